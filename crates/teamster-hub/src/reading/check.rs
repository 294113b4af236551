//! Compares a tree with the type it is to become. What does not fit is told and taken out, the rest is used.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::problem::Problem;
use super::tree::{Node, Step, Value};

/// As many problems as are told of one file: each costs a reading, and nobody mends more at once.
const PROBLEMS_MAX: usize = 50;

/// Lists of what is allowed. One that cannot be read allows nothing, rather than what is allowed where there is none.
const ALLOWING: [&str; 3] = ["tools", "fullAccessCategories", "allow"];
/// Rules that hold an agent back. One that cannot be read matches everything, rather than nothing.
const HOLDING_BACK: [&str; 2] = ["ask", "deny"];

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
        let holds_back =
            |key: &Step| matches!(key, Step::Key(key) if HOLDING_BACK.contains(&key.as_str()));
        match path.last() {
            Some(Step::Index(_)) if path.iter().rev().nth(1).is_some_and(holds_back) => {
                node.value = Value::Leaf("*".into());
            }
            Some(key) if holds_back(key) && !is_list => {
                node.value = Value::List(vec![Node::leaf(node.at.clone(), "*")]);
            }
            Some(Step::Key(key)) if key == "otherwise" => {
                node.value = Value::Leaf("ask".into());
            }
            // A budget that cannot be read is none at all, rather than no limit.
            Some(Step::Key(key)) if key == "dollars" => node.value = Value::Leaf(0.into()),
            Some(Step::Key(key)) if key == "tokens" => node.value = Value::Leaf(1.into()),
            Some(Step::Key(key)) if ALLOWING.contains(&key.as_str()) && !is_list => {
                node.value = Value::List(Vec::new());
            }
            _ => drop(tree.remove(&path)),
        }
    }
    problems.push(Problem::fatal(&tree.at, "nothing of this is used"));
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
        ("expected struct Hook", "expected a table with a `command`"),
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
