//! `teamster teams`: who can be told something, who talks to whom, and how that stands. On a terminal the table stays, and
//! follows what happens.

use std::io::IsTerminal;
use std::str::FromStr;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::tz::TimeZone;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};
use serde_json::Value;
use teamster_core::Timestamp;

use crate::cli::screen::{Input, PAUSE, Screen, WAIT_MS};
use crate::cli::{print, say};
use teamster_api::teams::{Doing, ListTeams, Team};
use teamster_api::{Client, Lost, paths};
use teamster_hub::clock::{Clock, SystemClock};
use teamster_hub::config;

const COLUMNS: usize = 9;
const HEAD: [&str; COLUMNS] =
    ["TEAM", "STATE", "ID", "FROM", "QUEUE", "TOLD", "LAST", "PATH", "DESCRIPTION"];
/// What is cut where there is no room, and no further than to so many characters; names only after all else.
const FLEXIBLE: [&[(usize, usize)]; 2] = [&[(8, 11), (7, 8)], &[(3, 6), (0, 6)]];
const STATE: usize = 1;
const PATH: usize = 7;

const NO_TEAMS: &str = "there are no teams; add one with `teamster team add NAME PATH`";

/// How the teams stand after some event.
struct Teams {
    seq: u64,
    teams: Vec<Team>,
}

async fn fetch(client: &mut Client, asked: &ListTeams) -> anyhow::Result<Teams> {
    // What happens between two pages is told by the next request.
    let first = client.list_teams(asked).await?;
    let (seq, mut teams) = (first.seq, first.items);
    if let Some(cursor) = first.next {
        let rest = ListTeams { cursor: Some(cursor), ..ListTeams::default() };
        teams.extend(client.all::<paths::ListTeams, _>(&rest).await?);
    }
    Ok(Teams { seq, teams })
}

async fn fetch_now(client: &mut Client) -> anyhow::Result<Teams> {
    fetch(client, &ListTeams::default()).await
}

/// Returns whose conversations with a team are awake.
pub(super) async fn awake_in(client: &mut Client, team: &str) -> anyhow::Result<Vec<String>> {
    let teams = fetch_now(client).await?.teams;
    let talks = teams.into_iter().filter(|one| one.name == team).flat_map(|one| one.conversations);
    let awake = talks.filter(|talk| talk.status != Doing::Asleep);
    Ok(awake.map(|talk| format!("{} ({})", talk.from, talk.id)).collect())
}

/// Adds to a list of teams what people may know of them: all conversations, and what is wrong.
pub(super) async fn add_conversations(client: &mut Client, list: &mut Value) -> anyhow::Result<()> {
    let teams = fetch_now(client).await?.teams;
    for listed in list["teams"].as_array_mut().into_iter().flatten() {
        if let Some(team) = teams.iter().find(|team| listed["name"] == *team.name) {
            listed["conversations"] = serde_json::to_value(&team.conversations)?;
            listed["problem"] = serde_json::to_value(&team.problem)?;
        }
    }
    Ok(())
}

pub(super) async fn print_once(client: &mut Client) -> anyhow::Result<()> {
    let teams = fetch_now(client).await?;
    if teams.teams.is_empty() {
        say(NO_TEAMS);
        return Ok(());
    }
    let size = std::io::stdout().is_terminal().then(crossterm::terminal::size);
    let width = size.and_then(Result::ok).map(|(width, _)| usize::from(width));
    let mut eyes = Eyes::of_the_person();
    // A program that reads it does not know whose home that is.
    eyes.home = eyes.home.filter(|_| width.is_some());
    let rows = rows(&teams.teams, &eyes);
    print(&width.map_or_else(|| uncut(&rows), |width| plain(&rows, width)))
}

/// Shows the table until the person has seen enough.
pub(super) async fn show(client: &mut Client) -> anyhow::Result<()> {
    let mut teams = fetch_now(client).await?;
    let mut screen = Screen::open("use --once")?;
    let (mut first, mut is_lost) = (0, false);
    loop {
        let eyes = Eyes::of_the_person();
        let next = ListTeams { after: teams.seq, wait_ms: WAIT_MS, ..ListTeams::default() };
        let was_lost = is_lost;
        let more = async {
            if was_lost {
                client.connect_again().await;
                return fetch_now(client).await;
            }
            tokio::time::sleep(PAUSE).await;
            fetch(client, &next).await
        };
        tokio::pin!(more);
        let more = loop {
            let mut seen = Seen { first: &mut first, is_lost };
            screen.draw(|frame| draw(frame, &teams.teams, &eyes, &mut seen))?;
            tokio::select! {
                more = &mut more => break more,
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
        match more {
            Ok(more) => (teams, is_lost) = (more, false),
            Err(error) if error.is::<Lost>() => is_lost = true,
            Err(error) => return Err(error),
        }
    }
}

/// What of the table is shown.
struct Seen<'a> {
    /// The row at the top.
    first: &'a mut usize,
    /// The hub is gone: it was so when we last heard of it.
    is_lost: bool,
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

fn draw(frame: &mut Frame<'_>, teams: &[Team], eyes: &Eyes, seen: &mut Seen<'_>) {
    let areas = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).split(frame.area());
    let (top, bottom) = (areas[0], areas[1]);
    let rows = rows(teams, eyes);
    let room = usize::from(top.height).saturating_sub(1).max(1);
    let first = &mut *seen.first;
    *first = (*first).min(rows.len().saturating_sub(room));
    if rows.is_empty() {
        frame.render_widget(Line::from(NO_TEAMS), top);
    } else {
        let widths = widths(&rows, usize::from(top.width));
        let shown = rows.iter().skip(*first).take(room).map(|row| {
            let cells = row.cells.iter().enumerate().map(|(n, text)| {
                let cell = Cell::from(cut(text, widths[n], n));
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
    let n_awake = talks().filter(|talk| talk.status != Doing::Asleep).count();
    let n_queued: usize = talks().map(|talk| talk.queued).sum();
    let n_teams = teams.len();
    let foot = if seen.is_lost {
        "the hub is gone; `teamster up -d` starts it, and this goes on".to_owned()
    } else {
        format!("{n_teams} teams, {n_awake} agents awake, {n_queued} messages wait")
    };
    let cut = if rows.len() > room {
        let (from, to, all) = (*first + 1, *first + room, rows.len());
        format!("; rows {from} to {to} of {all}, the arrows show others")
    } else {
        String::new()
    };
    frame.render_widget(Line::from(format!("{foot}{cut}; q leaves")).dim(), bottom);
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

impl Shape {
    /// The same without what can be of any length.
    fn without_words(&self) -> Self {
        let mut cells = self.cells.clone();
        cells[PATH..].iter_mut().for_each(String::clear);
        Self { cells, color: self.color }
    }
}

/// Returns a row for each conversation, and one for each team that has none.
fn rows(teams: &[Team], eyes: &Eyes) -> Vec<Shape> {
    let mut rows = Vec::new();
    for team in teams {
        let plain = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
        let color = team.color.as_deref().and_then(|color| Color::from_str(color).ok());
        let description = match &team.problem {
            Some(problem) => format!("! {}", plain(problem)),
            None => plain(&team.description),
        };
        let about = [eyes.path(&plain(&team.path)), description];
        let row = |n: usize, middle: [String; 6], holds_up: Option<&str>| {
            let [state, id, from, queue, told, last] = middle;
            let again = n > 0;
            let own = |text: &str| if again { String::new() } else { text.to_owned() };
            let (name, path) = (own(&team.name), own(&about[0]));
            let description = holds_up.map_or_else(|| own(&about[1]), plain);
            let cells = [name, state, id, from, queue, told, last, path, description];
            Shape { cells, color }
        };
        if team.conversations.is_empty() {
            let mut cells: [String; 6] = Default::default();
            "asleep".clone_into(&mut cells[0]);
            rows.push(row(0, cells, None));
        }
        for (n, talk) in team.conversations.iter().enumerate() {
            let queue = if talk.queued == 0 { String::new() } else { talk.queued.to_string() };
            let last = eyes.time(Timestamp(talk.last_used_at));
            let (id, from) = (talk.id.clone(), talk.from.clone());
            let (state, told) = (talk.status.to_string(), talk.messages.to_string());
            let cells = [state, id, from, queue, told, last];
            rows.push(row(n, cells, talk.holds_up.as_deref()));
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
        let widest = FLEXIBLE.iter().find_map(|columns| {
            let can = columns.iter().filter(|(n, least)| widths[*n] > *least);
            can.max_by_key(|(n, _)| widths[*n])
        });
        match widest {
            Some((n, _)) if total > width => widths[*n] -= 1,
            Some(_) | None => return widths,
        }
    }
}

/// Cuts a text of a column that is too long, where it says least: a path at its start, a name in the middle, words at their
/// end.
fn cut(text: &str, width: usize, column: usize) -> String {
    let n_chars = text.chars().count();
    if n_chars <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let from_end = match column {
        PATH => kept,
        0 | 3 => kept / 2,
        _ => 0,
    };
    let start = text.chars().take(kept - from_end);
    start.chain(['…']).chain(text.chars().skip(n_chars - from_end)).collect()
}

fn plain(rows: &[Shape], width: usize) -> String {
    let widths = widths(rows, width);
    let line = |cells: &dyn Fn(usize) -> String| {
        let padded = (0..COLUMNS).map(|n| {
            let text = cut(&cells(n), widths[n], n);
            format!("{text:<width$}", width = widths[n])
        });
        padded.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    };
    let head = line(&|n| HEAD[n].to_owned());
    let lines = rows.iter().map(|row| line(&|n| row.cells[n].clone()));
    std::iter::once(head).chain(lines).collect::<Vec<_>>().join("\n")
}

/// Shows everything where nobody knows how wide it may be: what is long has a line of its own, below what it is about.
fn uncut(rows: &[Shape]) -> String {
    let short: Vec<Shape> = rows.iter().map(Shape::without_words).collect();
    let table = plain(&short, usize::MAX);
    let (head, shown) = table.split_once('\n').unwrap_or((&table, ""));
    let head = head.split(HEAD[PATH]).next().unwrap_or_default().trim_end();
    let mut lines = vec![head.to_owned()];
    for (row, line) in rows.iter().zip(shown.lines()) {
        lines.push(line.trim_end().to_owned());
        let words = [&row.cells[PATH], &row.cells[PATH + 1]].into_iter();
        let words: Vec<&str> = words.map(String::as_str).filter(|word| !word.is_empty()).collect();
        if !words.is_empty() {
            lines.push(format!("    {}", words.join("  ")));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use teamster_api::teams::Talk;

    fn team(name: &str, description: &str, talks: &[(&str, &str, usize)]) -> Team {
        let talk = |(from, status, queued): &(&str, &str, usize)| Talk {
            id: format!("CONV-{}", from.len()),
            from: (*from).to_owned(),
            status: Doing::parse(status).unwrap(),
            queued: *queued,
            messages: 7,
            last_used_at: 1_000,
            ..Talk::default()
        };
        Team {
            name: name.to_owned(),
            path: format!("/home/ann/code/{name}"),
            description: description.to_owned(),
            conversations: talks.iter().map(talk).collect(),
            ..Team::default()
        }
    }

    fn teams() -> Vec<Team> {
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
        terminal
            .draw(|frame| {
                draw(frame, &teams(), &eyes(), &mut Seen { first: &mut 0, is_lost: false })
            })
            .expect("it is memory");
        let buffer = terminal.backend().to_string();
        expect![[r#"
            "TEAM       STATE    ID      FROM        QUEUE TOLD LAST     PATH     DESCRIPTION"
            "api        busy     CONV-8  operator    2     7    00:00:01 …ode/api the backen…"
            "           asleep   CONV-3  web               7    00:00:01                     "
            "mobil…ions asleep                                           …cations            "
            "web        starting CONV-19 mobil…tions 1     7    00:00:01 …ode/web the web    "
            "                                                                                "
            "                                                                                "
            "3 teams, 2 agents awake, 3 messages wait; q leaves                              "
        "#]]
        .assert_eq(&buffer);
        let mut first = 99;
        let mut terminal = Terminal::new(TestBackend::new(80, 4)).expect("it is memory");
        terminal
            .draw(|frame| {
                draw(frame, &teams(), &eyes(), &mut Seen { first: &mut first, is_lost: false })
            })
            .expect("it is memory");
        assert_eq!(first, 2, "the last two rows are shown");
        for (width, height) in [(1, 1), (20, 2), (300, 100)] {
            let mut terminal =
                Terminal::new(TestBackend::new(width, height)).expect("it is memory");
            terminal
                .draw(|frame| {
                    draw(frame, &teams(), &eyes(), &mut Seen { first: &mut 0, is_lost: false })
                })
                .expect("it is memory");
            terminal
                .draw(|frame| {
                    draw(frame, &[], &eyes(), &mut Seen { first: &mut 0, is_lost: false })
                })
                .expect("it is memory");
        }
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        expect![[r#"
            TEAM                STATE    ID      FROM                QUEUE TOLD LAST
            api                 busy     CONV-8  operator            2     7    00:00:01
                ~/code/api  the backend that all others talk to
                                asleep   CONV-3  web                       7    00:00:01
            mobile-applications asleep
                ~/code/mobile-applications
            web                 starting CONV-19 mobile-applications 1     7    00:00:01
                ~/code/web  the web"#]]
        .assert_eq(&uncut(&rows(&teams(), &eyes())));
    }
}
