//! `teamster questions` and `answer`: what waits for a person.

use std::fmt::Write as _;

use anyhow::Context;
use serde_json::{Value, json};
use teamster_core::Timestamp;

use super::{connect_to_hub, dim, local_time, print, say};
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
        let page = client.get(&format!("/api/questions?after={newest}&wait_ms={wait_ms}")).await?;
        let open = page["open"].as_array().context("the hub's answer is no list")?;
        let past = page["settled"].as_array().into_iter().flatten().rev();
        let past: Vec<&Value> = past.filter(|_| first && args.all).collect();
        if args.json && !args.follow {
            let all: Value = past.into_iter().chain(open).cloned().collect();
            return print(&all.to_string());
        }
        for question in past {
            print(&if args.json { question.to_string() } else { settled(question) })?;
        }
        for question in open.iter().filter(|question| number(question) > newest) {
            print(&if args.json { question.to_string() } else { shown(question, data) })?;
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

pub(super) fn number(question: &Value) -> u32 {
    let id = question["id"].as_str().and_then(teamster_core::ids::QuestionId::parse);
    id.map_or(0, |id| id.0)
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Shows a question with all that its answer is about.
pub(super) fn shown(question: &Value, data: &DataFiles) -> String {
    let id = word(question, "id");
    let mut text =
        format!("{id}  {} wants to: {}\n", word(question, "agent"), word(question, "title"));
    for line in word(question, "payload").lines() {
        let _ = writeln!(text, "     {}", dim(line));
    }
    let choices: Vec<&str> =
        question["choices"].as_array().into_iter().flatten().map(|one| word(one, "word")).collect();
    let deadline = question["deadline"].as_i64().map(|at| local_time(Timestamp(at)));
    let _ = write!(
        text,
        "     answer with `{}`; without an answer until {} it is {:?}",
        data.call(&format!("answer {id} {}", choices.join("|"))),
        deadline.unwrap_or_default(),
        word(question, "default"),
    );
    text
}

fn settled(question: &Value) -> String {
    let at = question["settled"]["at"].as_i64().map(|at| local_time(Timestamp(at)));
    dim(&format!(
        "{}  {} wanted to: {}\n     {} by {} at {}",
        word(question, "id"),
        word(question, "agent"),
        word(question, "title"),
        word(question, "told"),
        word(&question["settled"], "by"),
        at.unwrap_or_default(),
    ))
}

pub(super) async fn answer(data: &DataFiles, args: AnswerArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let id = teamster_api::in_path(&args.id);
    let body = json!({"word": args.answer, "note": args.note});
    let settled = client.post(&format!("/api/questions/{id}/answer"), &body).await?;
    if args.json {
        return print(&settled.to_string());
    }
    say(&format!(
        "{} of {}: {}",
        word(&settled, "id"),
        word(&settled, "agent"),
        word(&settled, "told")
    ));
    Ok(())
}
