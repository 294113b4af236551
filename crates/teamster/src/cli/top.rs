//! `teamster top`: the whole workspace on one screen.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use teamster_api::Lost;
use teamster_api::agents::Phase;
use teamster_api::runs::{ListedRun, Phase as RunPhase};
use teamster_api::teams::Doing;
use teamster_api::top::{ShowTop, Top, TopAgent};

use super::screen::{Input, Screen, WAIT_MS, clean_line, cut, fill, starts_hub, width};
use super::{budget, connect_to_hub, print, print_json};
use teamster_hub::config::DataFiles;

/// However much happens, people need to see it no more than four times a second.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug, clap::Args)]
pub(super) struct TopArgs {
    /// Print it once, also on a terminal
    #[arg(long)]
    once: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(data: &DataFiles, args: TopArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let answer = data.call("answer");
    if args.json {
        return print_json(&client.show_top(&ShowTop::default()).await?);
    }
    let mut top = client.show_top(&ShowTop::default()).await?;
    if args.once || !super::run::has_whole_terminal() {
        let lines = lines(&top, &answer);
        let text: Vec<&str> = lines.iter().map(|(_, line)| line.trim_end()).collect();
        return print(&super::fitted(&text.join("\n")));
    }
    let mut screen = Screen::open("use --once")?;
    let mut first = 0_usize;
    let mut gone = None;
    loop {
        let next = ShowTop { after: top.seq, records: top.records, wait_ms: WAIT_MS };
        let is_gone = gone.is_some();
        let more = async {
            if is_gone {
                client.connect_again().await;
                return client.show_top(&ShowTop::default()).await;
            }
            tokio::time::sleep(PAUSE).await;
            client.show_top(&next).await
        };
        tokio::pin!(more);
        let more = loop {
            screen.draw(|frame| draw(frame, &top, &answer, gone.as_deref(), &mut first))?;
            tokio::select! {
                more = &mut more => break more,
                input = screen.input() => match input {
                    Input::Key(key) => match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                        KeyCode::Down | KeyCode::Char('j') => first += 1,
                        KeyCode::Up | KeyCode::Char('k') => first = first.saturating_sub(1),
                        KeyCode::PageDown | KeyCode::Char(' ') => first += 10,
                        KeyCode::PageUp => first = first.saturating_sub(10),
                        KeyCode::Home => first = 0,
                        _ => {}
                    },
                    Input::Other | Input::Paste(_) => {}
                    Input::Gone => return Ok(()),
                },
            }
        };
        match more {
            Ok(more) => (top, gone) = (more, None),
            Err(error) if error.is::<Lost>() => gone = Some(data.call("up -d")),
            Err(error) => return Err(error),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Plain,
    Head,
    Dim,
    Urgent,
}

/// Draws the workspace; `answer` is how questions are answered, `gone` what starts a hub where there is none any more.
fn draw(frame: &mut Frame<'_>, top: &Top, answer: &str, gone: Option<&str>, first: &mut usize) {
    let area = frame.area();
    let lines = lines(top, answer);
    let rows = usize::from(area.height.saturating_sub(1)).max(1);
    *first = (*first).min(lines.len().saturating_sub(rows));
    let columns = usize::from(area.width);
    let keys = if lines.len() > rows { "q leaves, ↑↓ scroll" } else { "q leaves" };
    let (look, foot) = match gone {
        Some(up) => {
            let says = starts_hub(up, "q leaves; the hub is gone, trying again; ", columns);
            (Look::Urgent, says)
        }
        None => (Look::Dim, keys.to_owned()),
    };
    let shown = lines.iter().skip(*first).take(rows).map(|(look, line)| (*look, line.as_str()));
    let blank = std::iter::repeat((Look::Plain, ""));
    for (n, (look, line)) in
        shown.chain(blank).take(rows).chain([(look, foot.as_str())]).enumerate()
    {
        let style = match look {
            Look::Plain => Style::new(),
            Look::Head => Style::new().bold(),
            Look::Dim => Style::new().dim(),
            Look::Urgent => Style::new().yellow(),
        };
        let y = area.y + u16::try_from(n).unwrap_or(u16::MAX - area.y);
        let row = Rect::new(area.x, y, area.width, 1).intersection(area);
        frame.render_widget(Line::styled(cut(line, columns), style), row);
    }
}

/// Returns everything as lines; what is cut off on the right matters least.
fn lines(top: &Top, answer: &str) -> Vec<(Look, String)> {
    let mut lines = Vec::new();
    if !top.questions.is_empty() {
        lines.push((Look::Head, format!("QUESTIONS {}", top.questions.len())));
        for question in &top.questions {
            let words = question.choices.iter().map(|choice| choice.word.as_str());
            let words = words.collect::<Vec<_>>().join("|");
            let title = clean_line(&question.title);
            let text = format!("{} {} wants to: {title}", question.id, question.agent);
            lines.push((Look::Urgent, text));
            lines.push((Look::Dim, format!("  `{answer} {} {words}`", question.id)));
        }
        lines.push((Look::Plain, String::new()));
    }
    let is_live = |agent: &&TopAgent| agent.phase != Phase::Ended;
    let n_live = top.agents.iter().filter(is_live).count();
    lines.push((Look::Head, format!("AGENTS {n_live} under way")));
    lines.extend(agents(&top.agents));
    lines.push((Look::Plain, String::new()));
    lines.push((Look::Head, format!("RUNS {}", top.runs.len())));
    lines.extend(runs(&top.runs));
    let talks = || top.teams.iter().flat_map(|team| &team.conversations);
    let n_awake = talks().filter(|talk| talk.status != Doing::Asleep).count();
    let n_queued: usize = talks().map(|talk| talk.queued).sum();
    lines.push((Look::Plain, String::new()));
    let teams =
        format!("TEAMS {}, {n_awake} agents awake, {n_queued} messages wait", top.teams.len());
    lines.push((Look::Head, teams));
    for team in &top.teams {
        for talk in
            team.conversations.iter().filter(|talk| talk.status != Doing::Asleep || talk.queued > 0)
        {
            let text = format!(
                "{:<20} {:<9} from {}, {} queued",
                team.name, talk.status, talk.from, talk.queued
            );
            lines.push((Look::Plain, text));
        }
    }
    lines
}

/// Puts cells below each other; the last column is as long as it is.
fn table(rows: Vec<(Look, Vec<String>)>) -> Vec<(Look, String)> {
    let n_columns = rows.first().map_or(0, |(_, cells)| cells.len());
    let widths: Vec<usize> = (0..n_columns)
        .map(|n| rows.iter().map(|(_, cells)| width(&cells[n])).max().unwrap_or_default())
        .collect();
    let line = |cells: Vec<String>| {
        let filled = cells.iter().enumerate().map(|(n, text)| fill(text, widths[n]));
        filled.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.into_iter().map(|(look, cells)| (look, line(cells))).collect()
}

fn agents(agents: &[TopAgent]) -> Vec<(Look, String)> {
    let head = ["id", "phase", "program", "isolation", "turns", "cost", "does"].map(str::to_owned);
    let rows = agents.iter().map(|agent| {
        let phase = match (&agent.status, agent.parked_until) {
            (Some(status), _) => status.to_string(),
            (None, Some(_)) => "parked".to_owned(),
            (None, None) => agent.phase.to_string(),
        };
        let look = if agent.phase == Phase::Ended { Look::Dim } else { Look::Plain };
        let doing = clean_line(agent.doing.as_deref().unwrap_or_default());
        let program = agent.program.clone().unwrap_or_default();
        let cells = vec![
            agent.id.clone(),
            phase,
            program,
            agent.isolation.map(|isolation| isolation.to_string()).unwrap_or_default(),
            agent.turns.to_string(),
            budget::cost(&budget::sum(&agent.used)),
            doing,
        ];
        (look, cells)
    });
    if agents.is_empty() {
        return Vec::new();
    }
    table(std::iter::once((Look::Dim, head.to_vec())).chain(rows).collect())
}

fn runs(runs: &[ListedRun]) -> Vec<(Look, String)> {
    let head = ["name", "phase", "done", "open", "iterations", "cost", ""].map(str::to_owned);
    let rows = runs.iter().map(|run| {
        let mut more = Vec::new();
        more.extend(run.why.as_deref().map(clean_line));
        more.extend(run.workers.filter(|n| *n > 1).map(|n| format!("{n} workers")));
        let blocked = run.items.blocked;
        more.extend((blocked > 0).then(|| format!("{blocked} blocked")));
        let n_messages = run.queued_messages.unwrap_or_default();
        more.extend((n_messages > 0).then(|| format!("{n_messages} messages queued")));
        let is_live =
            matches!(run.phase, RunPhase::Working | RunPhase::Paused | RunPhase::Stopping);
        let cells = vec![
            run.name.clone(),
            run.phase.to_string(),
            run.items.completed.to_string(),
            (run.items.remaining + run.items.in_progress).to_string(),
            run.iterations.map(|n| n.to_string()).unwrap_or_default(),
            budget::cost(&budget::sum(&run.spent_now.unwrap_or_default())),
            more.join(", "),
        ];
        (if is_live { Look::Plain } else { Look::Dim }, cells)
    });
    if runs.is_empty() {
        return Vec::new();
    }
    table(std::iter::once((Look::Dim, head.to_vec())).chain(rows).collect())
}

#[cfg(test)]
mod tests;
