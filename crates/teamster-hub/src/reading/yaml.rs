//! Reads the YAML of a role's front matter into a tree: text, numbers, lists and tables. Anchors, tags and further
//! documents have no use there and are refused, so that a small file stays a small tree.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::Value as Json;

use super::problem::Problem;
use super::tree::{Node, Origin, Value};

/// As deep as tables and lists may lie in one another; a role needs two.
const DEPTH_MAX: usize = 4;

/// Reads the lines of a front matter, the first of which is line `first_line` of its file.
pub(crate) fn read(text: &str, first_line: usize, at: &Origin) -> Result<Node, Problem> {
    Reader { events: Parser::new_from_str(text), first_line, at, scalar }.document()
}

/// Reads such lines with every value as the text that is there, but for null: `1e3` can be a commit.
pub fn read_as_text(text: &str, first_line: usize, at: &Origin) -> Result<Node, Problem> {
    let scalar = |text: &str, style| match (style, text) {
        (ScalarStyle::Plain, "" | "~" | "null") => Json::Null,
        (_, text) => text.into(),
    };
    Reader { events: Parser::new_from_str(text), first_line, at, scalar }.document()
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    first_line: usize,
    at: &'a Origin,
    scalar: fn(&str, ScalarStyle) -> Json,
}

impl<'a> Reader<'a> {
    fn at(&self, line: usize) -> Origin {
        self.at.line(line + self.first_line - 1)
    }

    fn problem(&self, span: Span, says: &str) -> Problem {
        Problem::new(&self.at(span.start.line()), says)
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Problem> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(Problem::new(
                &self.at(error.marker().line()),
                format!("this is not YAML: {}", error.info()),
            )),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(mut self) -> Result<Node, Problem> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
                Event::StreamEnd => return Ok(Node::table(self.at(1))),
                event => {
                    let node = self.node(event, span, 0)?;
                    return self.nothing_follows().map(|()| node);
                }
            }
        }
    }

    fn nothing_follows(&mut self) -> Result<(), Problem> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentEnd | Event::Nothing, _) => {}
                (_, span) => {
                    return Err(self.problem(span, "a second document has no meaning here"));
                }
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Problem> {
        let at = self.at(span.start.line());
        if depth > DEPTH_MAX {
            return Err(self.problem(span, "lists and tables lie too deep in one another"));
        }
        let value = match event {
            Event::Scalar(text, style, 0, None) => Value::Leaf((self.scalar)(&text, style)),
            Event::SequenceStart(0, None) => {
                let mut list = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break Value::List(list),
                        (event, span) => list.push(self.node(event, span, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(0, None) => {
                let mut table = BTreeMap::new();
                loop {
                    let (key, key_span) = match self.next()? {
                        (Event::MappingEnd, _) => break Value::Table(table),
                        (Event::Scalar(key, _, 0, None), span) => (key.into_owned(), span),
                        (_, span) => return Err(self.problem(span, "a key must be a plain word")),
                    };
                    let (event, span) = self.next()?;
                    let mut node = self.node(event, span, depth + 1)?;
                    node.at = self.at(key_span.start.line());
                    if table.insert(key, node).is_some() {
                        return Err(self.problem(key_span, "this key is there twice"));
                    }
                }
            }
            _ => return Err(self.problem(span, "anchors, aliases and tags are not used here")),
        };
        Ok(Node { at, value })
    }
}

/// Reads text as YAML's core schema does, but for null: what has no value is empty text, which no field allows.
fn scalar(text: &str, style: ScalarStyle) -> Json {
    match (style, text) {
        (ScalarStyle::Plain, "true") => true.into(),
        (ScalarStyle::Plain, "false") => false.into(),
        (ScalarStyle::Plain, text) => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => number.into(),
            // `inf` and `nan` are words here.
            (_, Ok(number)) if text.starts_with(|c: char| c.is_ascii_digit()) => number.into(),
            _ => text.into(),
        },
        (_, text) => text.into(),
    }
}
