//! Edits YAML files line by line, without reading YAML. A file is changed only if its lines say plainly where things
//! are, and then every other line stays as it is; all else is refused.

use std::ops::Range;

use anyhow::bail;

use super::Edited;

/// Makes `entry`, the lines of a block mapping, the member `name` of the top-level mapping `section`.
pub(super) fn set(file: &str, section: &str, name: &str, entry: &[&str]) -> anyhow::Result<Edited> {
    let lines: Vec<&str> = file.split_inclusive('\n').collect();
    let keys = keys(&lines, 0..lines.len(), 0)?;
    let Some(head) = only(&keys, section)? else {
        let text = format!("{}{section}:\n{}", ended(file.to_owned()), member("  ", name, entry));
        return Ok(Edited { text, replaced: false });
    };

    let block = head.line + 1..head.end;
    let first_line = content(&lines, block.clone()).next();
    let (head_line, indentation, old) = match (head.value, first_line) {
        // The braces of an empty section go, what may follow them stays.
        ("{}", None) => (lines[head.line].replacen(" {}", "", 1), "  ", None),
        ("", None) => (lines[head.line].to_owned(), "  ", None),
        ("", Some((_, first))) if indent(first) > 0 => {
            let members = self::keys(&lines, block, indent(first))?;
            (
                lines[head.line].to_owned(),
                &first[..indent(first)],
                only(&members, name)?.map(|old| old.line..old.end),
            )
        }
        _ => bail!(unclear(head.line, &format!("starts `{section}` in an unusual way"))),
    };
    // Without an old entry the new one becomes the first: the end of a block is harder to tell than its start.
    let place = old.clone().unwrap_or(head.line + 1..head.line + 1);
    let anchored = |line: &str| line.split_whitespace().any(|word| word.starts_with('&'));
    if let Some((number, _)) = content(&lines, place.clone()).find(|(_, line)| anchored(line)) {
        bail!(unclear(number, "has an anchor that others may refer to"));
    }
    let text = [
        lines[..head.line].concat(),
        ended(head_line),
        lines[head.line + 1..place.start].concat(),
        member(indentation, name, entry),
        lines[place.end..].concat(),
    ]
    .concat();
    Ok(Edited { replaced: old.is_some() && text != file, text })
}

fn member(indentation: &str, name: &str, entry: &[&str]) -> String {
    let lines = entry.iter().map(|line| format!("{indentation}  {line}\n"));
    format!("{indentation}{name}:\n{}", lines.collect::<String>())
}

/// Ends a last line that has no end.
fn ended(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn unclear(line: usize, what: &str) -> String {
    format!("line {} {what}, so it cannot be edited safely", line + 1)
}

/// A key of a block mapping.
struct Key<'a> {
    line: usize,
    /// The line after the last one that belongs to it. Comments and blank lines before the next key belong to that.
    end: usize,
    key: &'a str,
    /// What is on the key's line, without a comment.
    value: &'a str,
}

/// Returns the keys of the block mapping that fills `range` and is indented by `wanted`.
fn keys<'a>(lines: &[&'a str], range: Range<usize>, wanted: usize) -> anyhow::Result<Vec<Key<'a>>> {
    let mut keys: Vec<Key> = Vec::new();
    for (number, line) in content(lines, range) {
        if line[indent(line)..].starts_with('\t') {
            bail!(unclear(number, "is indented with a tab"));
        }
        // A list may stand as far left as the key that it belongs to.
        let is_of_a_key = indent(line) > wanted
            || (indent(line) == wanted && line.trim_start().starts_with("- "));
        match (key_and_value(line), keys.last_mut()) {
            (_, Some(key)) if is_of_a_key => key.end = number + 1,
            (Some((key, value)), _) if indent(line) == wanted => {
                keys.push(Key { line: number, end: number + 1, key, value });
            }
            _ => bail!(unclear(number, "is not a plain `key: value`")),
        }
    }
    Ok(keys)
}

/// Returns the key called `name`, if there is one.
fn only<'k, 'a>(keys: &'k [Key<'a>], name: &str) -> anyhow::Result<Option<&'k Key<'a>>> {
    let mut found = keys.iter().filter(|key| key.key == name);
    match (found.next(), found.next()) {
        (_, Some(second)) => {
            bail!(unclear(second.line, &format!("has `{name}` for the second time")))
        }
        (first, None) => Ok(first),
    }
}

/// Returns the lines that are neither blank nor comments.
fn content<'a>(lines: &[&'a str], range: Range<usize>) -> impl Iterator<Item = (usize, &'a str)> {
    range
        .map(|number| (number, lines[number]))
        .filter(|(_, line)| !matches!(line.trim_start().chars().next(), None | Some('#')))
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Reads a line that starts with a plain or quoted key, if the value does not obviously go on in the next one.
fn key_and_value(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let (key, value) = match line.chars().next()? {
        quote @ ('"' | '\'') => {
            let (key, rest) = line[1..].split_once(quote)?;
            (
                key,
                rest.strip_prefix(':')
                    .filter(|value| value.is_empty() || value.starts_with(' '))?,
            )
        }
        _ => line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, "")))?,
    };
    let plain =
        |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '@' | '+' | ' ');
    let starts_plainly = key.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let value = value.trim();
    let goes_on = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => !value[1..].contains(quote),
        Some('{') => !value.contains('}'),
        Some('[') => !value.contains(']'),
        _ => false,
    };
    let value = if value.starts_with('#') { "" } else { value.split(" #").next()?.trim_end() };
    (starts_plainly && !key.ends_with(' ') && key.chars().all(plain) && !goes_on)
        .then_some((key, value))
}
