//! A yak as a Markdown file: front matter that says what it is, then its description. Its directory says its status.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value as Json;
use teamster_api::Millis;
use teamster_api::yaks::{Kind, Status, WholeContent, WholeYak};
use teamster_core::yak::Priority;
use teamster_hub::roles;
use teamster_hub::settings::{self, Node, Origin, Problem, Value};

/// The keys of the front matter that have a meaning here.
const KEYS: [&str; 9] =
    ["id", "title", "type", "priority", "created", "updated", "depends_on", "labels", "commit"];

/// What a file says.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) yak: WholeYak,
    /// Where each field stands.
    pub(super) lines: BTreeMap<String, usize>,
    /// The lines of the keys that have no meaning here.
    pub(super) rest: String,
}

/// Reads the text of the file that is called `stem`.
pub(super) fn read(text: &str, at: &Origin, stem: &str, status: Status) -> Result<Found, Problem> {
    let Some((front, body)) = roles::split(text) else {
        let says = "a yak's file starts with front matter between two lines `---`";
        return Err(Problem::new(&at.line(1), says));
    };
    let fields = settings::read_yaml_as_text(front, 2, at)?;
    if !matches!(fields.value, Value::Table(_)) {
        return Err(Problem::new(&at.line(2), "front matter has lines `key: value`"));
    }
    let id = word(&fields, "id")?.unwrap_or_else(|| stem.to_owned());
    if id != stem {
        let says = format!("id: the file is called {stem}.md, and the yak {id:?}");
        return Err(Problem::new(&origin(&fields, "id", at), says));
    }
    let Some(title) = word(&fields, "title")? else {
        return Err(Problem::new(&at.line(1), "title: a yak needs one"));
    };
    let priority = match word(&fields, "priority")? {
        None => Priority::IMPORTANT.number().into(),
        Some(number) => number.parse().map_err(|_| {
            let says = format!("priority: {number:?} is not a number");
            Problem::new(&origin(&fields, "priority", at), says)
        })?,
    };
    let mut labels = words(&fields, "labels")?;
    let kind = kind(word(&fields, "type")?.as_deref(), &mut labels);
    let mut lines: BTreeMap<String, usize> = fields
        .members()
        .filter_map(|(key, node)| node.at.line.map(|line| (key.clone(), line)))
        .collect();
    let first = front.lines().count() + 3;
    lines.insert("description".into(), first);
    let yak = WholeYak {
        id,
        content: Some(WholeContent {
            title,
            kind,
            priority,
            description: body.trim().to_owned(),
            status,
            labels,
            commit: word(&fields, "commit")?,
        }),
        depends_on: Some(words(&fields, "depends_on")?),
        created_at: time(&fields, "created", at)?,
        updated_at: time(&fields, "updated", at)?,
    };
    Ok(Found { yak, rest: rest(front, &fields), lines })
}

/// Returns a kind of ours. Another one is remembered as a label.
pub(super) fn kind(word: Option<&str>, labels: &mut Vec<String>) -> Kind {
    let Some(word) = word.map(str::trim).filter(|word| !word.is_empty()) else { return Kind::Task };
    Kind::parse(word).unwrap_or_else(|| {
        labels.push(format!("type:{word}"));
        Kind::Task
    })
}

/// Reads a time as people and programs write it; without an offset it is UTC.
pub(super) fn read_time(text: &str) -> Option<Millis> {
    let text = text.trim();
    let instant = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    });
    instant.map(jiff::Timestamp::as_millisecond)
}

fn origin(fields: &Node, key: &str, at: &Origin) -> Origin {
    fields.member(key).map_or_else(|| at.line(1), |node| node.at.clone())
}

fn word(fields: &Node, key: &str) -> Result<Option<String>, Problem> {
    match fields.member(key).map(|node| (node, &node.value)) {
        None | Some((_, Value::Leaf(Json::Null))) => Ok(None),
        Some((_, Value::Leaf(Json::String(text)))) => Ok(Some(text.clone())),
        Some((node, _)) => Err(Problem::new(&node.at, format!("{key}: must be text"))),
    }
}

/// Reads a list of words, or one word.
fn words(fields: &Node, key: &str) -> Result<Vec<String>, Problem> {
    let Some(node) = fields.member(key) else { return Ok(Vec::new()) };
    let Value::List(list) = &node.value else {
        return Ok(word(fields, key)?.into_iter().collect());
    };
    let one = |node: &Node| match &node.value {
        Value::Leaf(Json::String(text)) => Ok(text.clone()),
        _ => Err(Problem::new(&node.at, format!("{key}: must be a list of words"))),
    };
    list.iter().map(one).collect()
}

fn time(fields: &Node, key: &str, at: &Origin) -> Result<Option<Millis>, Problem> {
    let Some(text) = word(fields, key)? else { return Ok(None) };
    let time = read_time(&text).ok_or_else(|| {
        let says = format!("{key}: {text:?} is not a time such as 2026-01-31T12:00:00Z");
        Problem::new(&origin(fields, key, at), says)
    });
    time.map(Some)
}

/// Returns the lines of keys that we do not know, as they are, so that they are not lost when the file is written.
fn rest(front: &str, fields: &Node) -> String {
    let mut starts: Vec<(usize, bool)> = fields
        .members()
        .filter_map(|(key, node)| node.at.line.map(|line| (line, KEYS.contains(&key.as_str()))))
        .collect();
    starts.sort_unstable();
    let is_kept = |line: usize| {
        let last = starts.iter().rev().find(|(start, _)| *start <= line);
        // Keys of both kinds in one line cannot be told apart.
        last.is_some_and(|(start, _)| starts.iter().all(|(other, ours)| other != start || !ours))
    };
    let lines = front.lines().enumerate().filter(|(n, _)| is_kept(n + 2));
    lines.fold(String::new(), |kept, (_, line)| kept + line + "\n")
}

/// Writes a yak, with lines of front matter that are somebody else's.
pub(super) fn write(yak: &WholeYak, rest: &str) -> String {
    let mut text = "---\n".to_owned();
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "{key}: {value}");
    };
    line("id", &yaml(&yak.id));
    if let Some(content) = &yak.content {
        line("title", &yaml(&content.title));
        line("type", content.kind.as_str());
        line("priority", &content.priority.to_string());
    }
    for (key, time) in [("created", yak.created_at), ("updated", yak.updated_at)] {
        if let Some(time) = time {
            line(key, &format!("'{}'", shown_time(time)));
        }
    }
    let none = Vec::new();
    let labels = yak.content.as_ref().map_or(&none, |content| &content.labels);
    for (key, words) in
        [("depends_on", yak.depends_on.as_ref().unwrap_or(&none)), ("labels", labels)]
    {
        if !words.is_empty() {
            let _ = writeln!(text, "{key}:");
            for word in sorted(words) {
                let _ = writeln!(text, "- {}", yaml(word));
            }
        }
    }
    if let Some(content) = &yak.content {
        if let Some(commit) = &content.commit {
            let _ = writeln!(text, "commit: {}", yaml(commit));
        }
        let _ = writeln!(text, "{rest}---");
        if !content.description.is_empty() {
            let _ = writeln!(text, "\n{}", content.description);
        }
    }
    text
}

/// Says whether two say the same of a yak, as far as a file can say it.
pub(super) fn are_same(one: &WholeYak, other: &WholeYak) -> bool {
    write(one, "") == write(other, "")
}

fn sorted(words: &[String]) -> Vec<&str> {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.sort_unstable();
    words.dedup();
    words
}

fn shown_time(at: Millis) -> String {
    jiff::Timestamp::from_millisecond(at)
        .map_or_else(|_| at.to_string(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Writes a line of text so that every YAML reader reads the same text.
pub(super) fn yaml(text: &str) -> String {
    const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];
    // Some readers take these for line breaks or for nothing.
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    if text.contains(is_odd) {
        let mut quoted = "\"".to_owned();
        for c in text.chars() {
            match c {
                '"' | '\\' => quoted.extend(['\\', c]),
                c if is_odd(c) => {
                    let _ = write!(quoted, "\\u{:04x}", u32::from(c));
                }
                c => quoted.push(c),
            }
        }
        return quoted + "\"";
    }
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with(':')
        && !text.ends_with(char::is_whitespace)
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

#[cfg(test)]
mod tests;
