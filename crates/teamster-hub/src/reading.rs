//! Reads files that people write into trees whose values know their file and line, and trees into types. What does not
//! fit is taken out and told; nothing here knows which settings there are.

mod check;
mod files;
mod problem;
mod toml;
mod tree;
mod words;
mod yaml;

pub(crate) use check::sound;
pub(crate) use files::{markdown_files, read_text};
pub use problem::Problem;
pub(crate) use problem::without_line;
pub(crate) use toml::{read as read_toml, read_value as read_toml_value};
pub use tree::{Layer, Node, Origin, Value};
pub use words::{CollectorUrl, GrantWord, Line, Money, Name, Remote, Rule, Variable, Whole};
pub(crate) use yaml::read as read_yaml;
pub use yaml::read_as_text as read_yaml_as_text;

/// The name of the configuration file, the user's and a project's.
pub const FILE_NAME: &str = "teamster.toml";
