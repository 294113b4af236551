//! `teamster teams`: who can be told something, who talks to whom, and how that stands. On a terminal the table stays, and
//! follows what happens.

use std::io::IsTerminal;
use std::str::FromStr;

use anyhow::Context;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::tz::TimeZone;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};
use serde::Deserialize;
use teamster_core::Timestamp;

use crate::api::teams::Shown;
use crate::cli::screen::{Input, PAUSE, Screen, WAIT_MS};
use crate::cli::{print, say};
use crate::client::Client;
use crate::clock::{Clock, SystemClock};
use crate::config;

const COLUMNS: usize = 8;
const HEAD: [&str; COLUMNS] =
    ["TEAM", "STATE", "FROM", "QUEUE", "TOLD", "LAST", "PATH", "DESCRIPTION"];
/// What is cut where there is no room, and no further than to so many characters.
const FLEXIBLE: [(usize, usize); 4] = [(7, 6), (6, 8), (2, 6), (0, 6)];
const STATE: usize = 1;
const PATH: usize = 6;

const NO_TEAMS: &str = "there are no teams; add one with `teamster team add NAME PATH`";

/// How the teams stand after some event.
#[derive(Debug, Default, Deserialize)]
struct Teams {
    seq: u64,
    teams: Vec<Shown>,
}

async fn fetch(client: &mut Client, path: &str) -> anyhow::Result<Teams> {
    let answer = client.get(path).await?;
    serde_json::from_value(answer).context("the hub is of another version; restart it")
}

pub(super) async fn print_once(client: &mut Client) -> anyhow::Result<()> {
    let teams = fetch(client, "/api/teams").await?;
    if teams.teams.is_empty() {
        say(NO_TEAMS);
        return Ok(());
    }
    let size = std::io::stdout().is_terminal().then(crossterm::terminal::size);
    let width = size.and_then(Result::ok).map(|(width, _)| usize::from(width));
    let mut eyes = Eyes::of_the_person();
    // A program that reads it does not know whose home that is.
    eyes.home = eyes.home.filter(|_| width.is_some());
    print(&plain(&rows(&teams.teams, &eyes), width.unwrap_or(usize::MAX)))
}

/// Shows the table until the person has seen enough.
pub(super) async fn show(client: &mut Client) -> anyhow::Result<()> {
    let mut teams = fetch(client, "/api/teams").await?;
    let mut screen = Screen::open("use --once")?;
    let mut first = 0;
    loop {
        let eyes = Eyes::of_the_person();
        let path = format!("/api/teams?after={}&wait_ms={WAIT_MS}", teams.seq);
        let more = async {
            tokio::time::sleep(PAUSE).await;
            fetch(client, &path).await
        };
        tokio::pin!(more);
        teams = loop {
            screen.draw(|frame| draw(frame, &teams.teams, &eyes, &mut first))?;
            tokio::select! {
                more = &mut more => break more?,
                input = screen.input() => match input {
                    Input::Key(key) => match pressed(key) {
                        Key::Leave => return Ok(()),
                        Key::Down(n) => first += n,
                        Key::Up(n) => first = first.saturating_sub(n),
                        Key::Other => {}
                    },
                    Input::Other | Input::Paste(_) => {}
                    Input::Gone => return Ok(()),
                },
            }
        };
    }
}

enum Key {
    Leave,
    Down(usize),
    Up(usize),
    Other,
}

fn pressed(key: KeyEvent) -> Key {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Key::Leave,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Leave,
        KeyCode::Down | KeyCode::Char('j') => Key::Down(1),
        KeyCode::Up | KeyCode::Char('k') => Key::Up(1),
        KeyCode::PageDown => Key::Down(10),
        KeyCode::PageUp => Key::Up(10),
        _ => Key::Other,
    }
}

fn draw(frame: &mut Frame<'_>, teams: &[Shown], eyes: &Eyes, first: &mut usize) {
    let areas = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).split(frame.area());
    let (top, bottom) = (areas[0], areas[1]);
    let rows = rows(teams, eyes);
    let room = usize::from(top.height).saturating_sub(1).max(1);
    *first = (*first).min(rows.len().saturating_sub(room));
    if rows.is_empty() {
        frame.render_widget(Line::from(NO_TEAMS), top);
    } else {
        let widths = widths(&rows, usize::from(top.width));
        let shown = rows.iter().skip(*first).take(room).map(|row| {
            let cells = row.cells.iter().enumerate().map(|(n, text)| {
                let cell = Cell::from(cut(text, widths[n], n == PATH));
                match n {
                    0 => cell.style(row.color.map_or_else(Style::new, Style::from)),
                    STATE => cell.style(look(text)),
                    2.. => cell,
                }
            });
            Row::new(cells)
        });
        let lengths =
            widths.map(|width| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
        let table = Table::new(shown, lengths).header(Row::new(HEAD).bold());
        frame.render_widget(table, top);
    }
    let talks = || teams.iter().flat_map(|team| &team.conversations);
    let n_awake = talks().filter(|talk| talk.status != "asleep").count();
    let n_queued: usize = talks().map(|talk| talk.queued).sum();
    let n_teams = teams.len();
    let foot =
        format!("{n_teams} teams, {n_awake} agents awake, {n_queued} messages wait; q leaves");
    frame.render_widget(Line::from(foot).dim(), bottom);
}

fn look(status: &str) -> Style {
    match status {
        "busy" => Style::new().yellow(),
        "awake" => Style::new().green(),
        "starting" => Style::new().cyan(),
        _ => Style::new().dim(),
    }
}

/// What the person's clock and home are.
struct Eyes {
    now: Timestamp,
    zone: TimeZone,
    home: Option<String>,
}

impl Eyes {
    fn of_the_person() -> Self {
        let home = config::home().ok().map(|home| home.to_string_lossy().into_owned());
        Self { now: SystemClock.now(), zone: TimeZone::system(), home }
    }

    /// Shows a time of today as one, any other as its day.
    fn time(&self, at: Timestamp) -> String {
        let zoned = |at: Timestamp| {
            let at = jiff::Timestamp::from_millisecond(at.0).ok()?;
            Some(at.to_zoned(self.zone.clone()))
        };
        let (Some(at), Some(now)) = (zoned(at), zoned(self.now)) else { return String::new() };
        let form = if at.date() == now.date() { "%H:%M:%S" } else { "%d %b" };
        at.strftime(form).to_string()
    }

    fn path(&self, path: &str) -> String {
        let home = self.home.as_deref().filter(|home| *home != "/");
        match home.and_then(|home| path.strip_prefix(home)) {
            Some("") => "~".to_owned(),
            Some(rest) if rest.starts_with('/') => format!("~{rest}"),
            Some(_) | None => path.to_owned(),
        }
    }
}

#[derive(Debug)]
struct Shape {
    cells: [String; COLUMNS],
    color: Option<Color>,
}

/// Returns a row for each conversation, and one for each team that has none.
fn rows(teams: &[Shown], eyes: &Eyes) -> Vec<Shape> {
    let mut rows = Vec::new();
    for team in teams {
        let plain = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
        let color = team.color.as_deref().and_then(|color| Color::from_str(color).ok());
        let about = [eyes.path(&plain(&team.path)), plain(&team.description)];
        let row = |n: usize, middle: [String; 5]| {
            let [state, from, queue, told, last] = middle;
            let again = n > 0;
            let own = |text: &str| if again { String::new() } else { text.to_owned() };
            let (name, path, description) = (own(&team.name), own(&about[0]), own(&about[1]));
            let cells = [name, state, from, queue, told, last, path, description];
            Shape { cells, color }
        };
        if team.conversations.is_empty() {
            let nothing = String::new;
            rows.push(row(0, ["asleep".to_owned(), nothing(), nothing(), nothing(), nothing()]));
        }
        for (n, talk) in team.conversations.iter().enumerate() {
            let queue = if talk.queued == 0 { String::new() } else { talk.queued.to_string() };
            let last = eyes.time(talk.last_used_at);
            let messages = talk.messages.to_string();
            rows.push(row(n, [talk.status.clone(), talk.from.clone(), queue, messages, last]));
        }
    }
    rows
}

/// Returns how wide the columns are, with a space between them, so that all fit if they can.
fn widths(rows: &[Shape], width: usize) -> [usize; COLUMNS] {
    let mut widths: [usize; COLUMNS] = std::array::from_fn(|n| {
        let longest = rows.iter().map(|row| row.cells[n].chars().count()).max();
        longest.unwrap_or_default().max(HEAD[n].len())
    });
    loop {
        let total = widths.iter().sum::<usize>() + COLUMNS - 1;
        let can = FLEXIBLE.iter().filter(|(n, least)| widths[*n] > *least);
        let widest = can.max_by_key(|(n, _)| widths[*n]);
        match widest {
            Some((n, _)) if total > width => widths[*n] -= 1,
            Some(_) | None => return widths,
        }
    }
}

/// Cuts a text that is too long: at its end, or at its start, where a path says least.
fn cut(text: &str, width: usize, at_start: bool) -> String {
    let n_chars = text.chars().count();
    match (n_chars <= width, at_start) {
        (true, _) => text.to_owned(),
        (false, true) => {
            std::iter::once('…').chain(text.chars().skip(n_chars + 1 - width)).collect()
        }
        (false, false) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

fn plain(rows: &[Shape], width: usize) -> String {
    let widths = widths(rows, width);
    let line = |cells: &dyn Fn(usize) -> String| {
        let padded = (0..COLUMNS).map(|n| {
            let text = cut(&cells(n), widths[n], n == PATH);
            format!("{text:<width$}", width = widths[n])
        });
        padded.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    };
    let head = line(&|n| HEAD[n].to_owned());
    let lines = rows.iter().map(|row| line(&|n| row.cells[n].clone()));
    std::iter::once(head).chain(lines).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::api::teams::Talk;

    fn team(name: &str, description: &str, talks: &[(&str, &str, usize)]) -> Shown {
        let talk = |(from, status, queued): &(&str, &str, usize)| Talk {
            from: (*from).to_owned(),
            status: (*status).to_owned(),
            queued: *queued,
            messages: 7,
            last_used_at: Timestamp(1_000),
            ..Talk::default()
        };
        Shown {
            name: name.to_owned(),
            path: format!("/home/ann/code/{name}"),
            description: description.to_owned(),
            conversations: talks.iter().map(talk).collect(),
            ..Shown::default()
        }
    }

    fn teams() -> Vec<Shown> {
        vec![
            team(
                "api",
                "the backend that all others talk to",
                &[("operator", "busy", 2), ("web", "asleep", 0)],
            ),
            team("mobile-applications", "", &[]),
            team("web", "the web", &[("mobile-applications", "starting", 1)]),
        ]
    }

    fn eyes() -> Eyes {
        let home = Some("/home/ann".to_owned());
        Eyes { now: Timestamp(5_000), zone: TimeZone::UTC, home }
    }

    #[test]
    fn the_table_fits_a_terminal() {
        let mut terminal = Terminal::new(TestBackend::new(80, 8)).expect("it is memory");
        terminal.draw(|frame| draw(frame, &teams(), &eyes(), &mut 0)).expect("it is memory");
        let buffer = terminal.backend().to_string();
        expect![[r#"
            "TEAM         STATE    FROM         QUEUE TOLD LAST     PATH         DESCRIPTION "
            "api          busy     operator     2     7    00:00:01 ~/code/api   the backend…"
            "             asleep   web                7    00:00:01                          "
            "mobile-appl… asleep                                    …pplications             "
            "web          starting mobile-appl… 1     7    00:00:01 ~/code/web   the web     "
            "                                                                                "
            "                                                                                "
            "3 teams, 2 agents awake, 3 messages wait; q leaves                              "
        "#]]
        .assert_eq(&buffer);
        let mut first = 99;
        let mut terminal = Terminal::new(TestBackend::new(80, 4)).expect("it is memory");
        terminal.draw(|frame| draw(frame, &teams(), &eyes(), &mut first)).expect("it is memory");
        assert_eq!(first, 2, "the last two rows are shown");
        for (width, height) in [(1, 1), (20, 2), (300, 100)] {
            let mut terminal =
                Terminal::new(TestBackend::new(width, height)).expect("it is memory");
            terminal.draw(|frame| draw(frame, &teams(), &eyes(), &mut 0)).expect("it is memory");
            terminal.draw(|frame| draw(frame, &[], &eyes(), &mut 0)).expect("it is memory");
        }
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        expect![[r#"
            TEAM                STATE    FROM                QUEUE TOLD LAST     PATH                       DESCRIPTION
            api                 busy     operator            2     7    00:00:01 ~/code/api                 the backend that all others talk to
                                asleep   web                       7    00:00:01
            mobile-applications asleep                                           ~/code/mobile-applications
            web                 starting mobile-applications 1     7    00:00:01 ~/code/web                 the web"#]].assert_eq(&plain(&rows(&teams(), &eyes()), usize::MAX));
    }
}
