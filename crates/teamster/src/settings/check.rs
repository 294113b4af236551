//! Compares a tree with the type it is to become. What does not fit is told and taken out, the rest is used.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::problem::Problem;
use super::tree::{Node, Step, Value};

/// As many problems as are told of one file: each costs a reading, and nobody mends more at once.
const PROBLEMS_MAX: usize = 50;

/// Lists of what is allowed. One that cannot be read allows nothing, rather than what is allowed where there is none.
const ALLOWING: [&str; 2] = ["tools", "fullAccessCategories"];

/// Takes out of `tree` what is no part of a `T`, and returns the rest as one.
pub(crate) fn sound<T: DeserializeOwned + Default>(
    tree: &mut Node,
    problems: &mut Vec<Problem>,
) -> T {
    for _ in 0..PROBLEMS_MAX {
        let error = match serde_path_to_error::deserialize(tree.json()) {
            Ok(value) => return value,
            Err(error) => error,
        };
        let path: Vec<Step> = error.path().iter().filter_map(step).collect();
        let says = in_our_words(&error.inner().to_string());
        let Some(node) = tree.find(&path).filter(|_| !path.is_empty()) else {
            problems.push(Problem::new(&tree.at, says));
            break;
        };
        problems.push(Problem::new(&node.at, format!("{}: {says}", error.path())));
        let is_list = matches!(node.value, Value::List(_));
        match path.last() {
            Some(Step::Key(key)) if ALLOWING.contains(&key.as_str()) && !is_list => {
                node.value = Value::List(Vec::new());
            }
            _ => drop(tree.remove(&path)),
        }
    }
    problems.push(Problem::new(&tree.at, "nothing of this is used"));
    *tree = Node::table(tree.at.clone());
    T::default()
}

/// Says in the words of configuration files what serde says in its own.
fn in_our_words(says: &str) -> String {
    let words = [
        ("unknown field", "unknown key"),
        ("unknown variant", "unknown word"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected a table"),
    ];
    words.iter().fold(says.to_owned(), |says, (theirs, ours)| says.replacen(theirs, ours, 1))
}

fn step(segment: &Segment) -> Option<Step> {
    match segment {
        Segment::Map { key } => Some(Step::Key(key.clone())),
        Segment::Seq { index } => Some(Step::Index(*index)),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}
