//! What a file says, as a tree in which every value knows where it stands. Files of both kinds become such trees, trees
//! are laid over one another, and what comes of it can still say where each value is from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

/// Who said something, from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    BuiltIn,
    User,
    Project,
    Environment,
    Flag,
}

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub layer: Layer,
    /// A file, a variable of the environment, or a flag.
    pub source: Arc<str>,
    /// Its line, if it is a file.
    pub line: Option<usize>,
}

impl Origin {
    pub fn new(layer: Layer, source: &str) -> Self {
        Self { layer, source: source.into(), line: None }
    }

    pub fn line(&self, line: usize) -> Self {
        Self { line: Some(line), ..self.clone() }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.layer, self.line) {
            (Layer::BuiltIn, _) => f.write_str("built in"),
            (_, None) => f.write_str(&self.source),
            (_, Some(line)) => write!(f, "{}:{line}", self.source),
        }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub struct Node {
    pub at: Origin,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub enum Value {
    /// Text, a number or a truth value.
    Leaf(Json),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

/// One step on the way from a node to one in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl Node {
    pub fn table(at: Origin) -> Self {
        Self { at, value: Value::Table(BTreeMap::new()) }
    }

    pub fn leaf(at: Origin, value: impl Into<Json>) -> Self {
        Self { at, value: Value::Leaf(value.into()) }
    }

    /// Makes a tree of plain values that all stand in one place.
    pub fn of(at: &Origin, json: Json) -> Self {
        let value = match json {
            Json::Array(list) => {
                Value::List(list.into_iter().map(|json| Self::of(at, json)).collect())
            }
            Json::Object(table) => Value::Table(
                table.into_iter().map(|(key, json)| (key, Self::of(at, json))).collect(),
            ),
            leaf => Value::Leaf(leaf),
        };
        Self { at: at.clone(), value }
    }

    pub fn json(&self) -> Json {
        match &self.value {
            Value::Leaf(leaf) => leaf.clone(),
            Value::List(list) => list.iter().map(Self::json).collect(),
            Value::Table(table) => {
                Json::Object(table.iter().map(|(key, node)| (key.clone(), node.json())).collect())
            }
        }
    }

    /// Returns the members of a table; anything else has none.
    pub fn members(&self) -> impl Iterator<Item = (&String, &Self)> {
        let table = if let Value::Table(table) = &self.value { Some(table) } else { None };
        table.into_iter().flatten()
    }

    pub fn member(&self, key: &str) -> Option<&Self> {
        let Value::Table(table) = &self.value else { return None };
        table.get(key)
    }

    pub fn member_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Value::Table(table) = &mut self.value else { return None };
        table.get_mut(key)
    }

    pub fn insert(&mut self, key: &str, node: Self) {
        if let Value::Table(table) = &mut self.value {
            table.insert(key.to_owned(), node);
        }
    }

    /// Takes a member out of a table.
    pub fn take(&mut self, key: &str) -> Option<Self> {
        let Value::Table(table) = &mut self.value else { return None };
        table.remove(key)
    }

    /// Puts `node` at the end of a path of keys, making the tables on the way.
    pub(crate) fn place(&mut self, path: &[&str], node: Self) {
        let Some((key, rest)) = path.split_first() else {
            *self = node;
            return;
        };
        let at = node.at.clone();
        if !matches!(self.value, Value::Table(_)) {
            *self = Self::table(at.clone());
        }
        if let Value::Table(table) = &mut self.value {
            table.entry((*key).to_owned()).or_insert_with(|| Self::table(at)).place(rest, node);
        }
    }

    pub(crate) fn find(&mut self, path: &[Step]) -> Option<&mut Self> {
        path.iter().try_fold(self, |node, step| match (&mut node.value, step) {
            (Value::Table(table), Step::Key(key)) => table.get_mut(key),
            (Value::List(list), Step::Index(index)) => list.get_mut(*index),
            _ => None,
        })
    }

    pub(crate) fn remove(&mut self, path: &[Step]) -> Option<Self> {
        let (last, before) = path.split_last()?;
        match (&mut self.find(before)?.value, last) {
            (Value::Table(table), Step::Key(key)) => table.remove(key),
            (Value::List(list), Step::Index(index)) if *index < list.len() => {
                Some(list.remove(*index))
            }
            _ => None,
        }
    }

    /// Lays `over` on this tree: tables grow together, everything else is replaced.
    pub fn merge(&mut self, over: Self) {
        match (&mut self.value, over.value) {
            (Value::Table(table), Value::Table(members)) => {
                for (key, member) in members {
                    match table.get_mut(&key) {
                        Some(old) => old.merge(member),
                        None => drop(table.insert(key, member)),
                    }
                }
            }
            (value, new) => {
                *value = new;
                self.at = over.at;
            }
        }
    }

    /// Collects what is not a table, each with its keys joined by dots.
    pub(crate) fn leaves<'a>(&'a self, before: &str, into: &mut Vec<(String, &'a Self)>) {
        match &self.value {
            Value::Table(table) => {
                for (key, node) in table {
                    let is_root = before.is_empty();
                    let path = if is_root { key.clone() } else { format!("{before}.{key}") };
                    node.leaves(&path, into);
                }
            }
            Value::Leaf(_) | Value::List(_) => into.push((before.to_owned(), self)),
        }
    }
}
