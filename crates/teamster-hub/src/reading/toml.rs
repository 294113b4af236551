//! Reads TOML into a tree.

use ::toml::de::{DeTable, DeValue};
use serde_json::Value as Json;

use super::problem::Problem;
use super::tree::{Node, Origin, Value};

/// Reads a file. One that is not TOML has no tree: where its grammar is broken, nobody knows which table a key is in.
pub(crate) fn read(text: &str, at: &Origin, problems: &mut Vec<Problem>) -> Option<Node> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let file = File { text, at };
    let mut last_line = 0;
    for error in &errors {
        let line = error.span().map_or(1, |span| file.line(span.start));
        // One mistake often has several messages; the first is the one that helps.
        if line != last_line {
            let says = format!(
                "this is not TOML: {}; what the file says now is not used",
                error.message()
            );
            problems.push(Problem::fatal(&at.line(line), says));
            last_line = line;
        }
    }
    errors.is_empty().then(|| file.table(1, table.get_ref()))
}

/// Reads the value of a variable or flag. What is not TOML is text.
pub(crate) fn read_value(text: &str, at: &Origin) -> Node {
    let plain = DeValue::parse(text).ok();
    let json = plain
        .map_or_else(|| text.into(), |value| File { text, at }.value(1, value.get_ref()).json());
    Node::of(at, json)
}

struct File<'a> {
    text: &'a str,
    at: &'a Origin,
}

impl File<'_> {
    fn line(&self, byte: usize) -> usize {
        let before = self.text.as_bytes().iter().take(byte);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    fn table(&self, line: usize, table: &DeTable<'_>) -> Node {
        let members = table.iter().map(|(key, value)| {
            let line = self.line(key.span().start);
            (key.get_ref().to_string(), self.value(line, value.get_ref()))
        });
        Node { at: self.at.line(line), value: Value::Table(members.collect()) }
    }

    fn value(&self, line: usize, value: &DeValue<'_>) -> Node {
        let leaf: Json = match value {
            DeValue::Table(table) => return self.table(line, table),
            DeValue::Array(list) => {
                let list = list
                    .iter()
                    .map(|value| self.value(self.line(value.span().start), value.get_ref()));
                return Node { at: self.at.line(line), value: Value::List(list.collect()) };
            }
            DeValue::String(text) => text.to_string().into(),
            DeValue::Boolean(is_true) => (*is_true).into(),
            DeValue::Integer(integer) => {
                match i64::from_str_radix(integer.as_str(), integer.radix()) {
                    Ok(integer) => integer.into(),
                    Err(_) => integer.as_str().into(),
                }
            }
            DeValue::Float(float) => match float.as_str().replace('_', "").parse::<f64>() {
                Ok(number) if number.is_finite() => number.into(),
                _ => float.as_str().into(),
            },
            // No setting is a date; as text it is told to be the wrong type.
            DeValue::Datetime(time) => time.to_string().into(),
        };
        Node::leaf(self.at.line(line), leaf)
    }
}
