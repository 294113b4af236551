//! `teamster questions` and `answer`: what waits for a person.

use std::fmt::Write as _;

use teamster_api::paths;
use teamster_api::questions::{Answer, ListQuestions, Question};
use teamster_core::Timestamp;

use super::{connect_to_hub, dim, local_time, print, print_json, say};
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
pub(super) struct QuestionsArgs {
    /// Also those that were settled lately
    #[arg(short, long)]
    all: bool,

    /// Go on as they come
    #[arg(short, long)]
    follow: bool,

    /// Print a JSON array of questions; with --follow, one per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct AnswerArgs {
    /// The question's id, such as Q-3
    id: String,

    /// One of the answers that it offers, such as allow or deny
    answer: String,

    /// Why, for whoever looks at it later
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How long one request waits for something to happen.
const WAIT_MS: u64 = 45_000;

pub(super) async fn list(data: &DataFiles, args: QuestionsArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let mut newest = 0;
    let mut first = true;
    loop {
        let wait_ms = if first { 0 } else { WAIT_MS };
        let mut past = Vec::new();
        if first && args.all {
            let settled = ListQuestions { settled: true, ..ListQuestions::default() };
            past = client.all::<paths::ListQuestions, _>(&settled).await?;
            past.reverse();
        }
        let asked = ListQuestions { after: newest, wait_ms, ..ListQuestions::default() };
        let open = client.all::<paths::ListQuestions, _>(&asked).await?;
        if args.json && !args.follow {
            return print_json(&past.iter().chain(&open).collect::<Vec<_>>());
        }
        for question in &past {
            if args.json { print_json(question) } else { print(&settled(question)) }?;
        }
        for question in open.iter().filter(|question| number(question) > newest) {
            if args.json { print_json(question) } else { print(&shown(question, data)) }?;
        }
        newest = open.iter().map(number).max().unwrap_or(0).max(newest);
        if !args.follow {
            if open.is_empty() {
                say("nothing waits for you");
            }
            return Ok(());
        }
        first = false;
    }
}

pub(super) fn number(question: &Question) -> u32 {
    teamster_core::ids::QuestionId::parse(&question.id).map_or(0, |id| id.0)
}

/// Shows a question with all that its answer is about.
pub(super) fn shown(question: &Question, data: &DataFiles) -> String {
    let id = &question.id;
    let mut text = format!("{id}  {} wants to: {}\n", question.agent, question.title);
    for line in question.payload.lines() {
        let _ = writeln!(text, "     {}", dim(line));
    }
    let choices: Vec<&str> = question.choices.iter().map(|one| one.word.as_str()).collect();
    let _ = write!(
        text,
        "     answer with `{}`; without an answer until {} it is {:?}",
        data.call(&format!("answer {id} {}", choices.join("|"))),
        local_time(Timestamp(question.deadline)),
        question.default,
    );
    text
}

fn settled(question: &Question) -> String {
    let Question { id, agent, title, told, settled, .. } = question;
    let by = settled.as_ref().map_or("", |settled| &settled.by);
    let at = settled.as_ref().map(|settled| local_time(Timestamp(settled.at)));
    dim(&format!(
        "{id}  {agent} wanted to: {title}\n     {} by {by} at {}",
        told.as_deref().unwrap_or_default(),
        at.unwrap_or_default(),
    ))
}

pub(super) async fn answer(data: &DataFiles, args: AnswerArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let answer = Answer { word: args.answer, note: args.note };
    let settled = client.answer_question(&args.id, &answer).await?;
    if args.json {
        return print_json(&settled);
    }
    let Question { id, agent, told, .. } = settled.unwrap_or_default();
    say(&format!("{id} of {agent}: {}", told.unwrap_or_default()));
    Ok(())
}
