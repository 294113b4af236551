//! The sets that tools are in. Each says in its own way that something went wrong.

use std::fmt;

use serde_json::{Value, json};

use crate::answer::ToolError;

/// A set of tools, served together at `/mcp/<name>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    Session,
    Agents,
    Teams,
    Yaks,
}

impl Set {
    pub const ALL: [Self; 4] = [Self::Session, Self::Agents, Self::Teams, Self::Yaks];

    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Agents => "agents",
            Self::Teams => "teams",
            Self::Yaks => "yaks",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// Says in the set's own way that something went wrong.
    pub(crate) fn failure(self, error: &ToolError) -> (String, Option<Value>) {
        match self {
            Self::Session => (format!("error: {}", error.says), None),
            Self::Agents | Self::Teams => {
                let mut json = json!({"error": error.name, "message": error.says});
                if let Some(field) = error.field {
                    json["field"] = field.into();
                }
                (json.to_string(), Some(json))
            }
            Self::Yaks => (sentence(&error.says), None),
        }
    }
}

/// Makes a sentence of a refusal: capital letter, full stop. A field's name at its beginning stays as it is.
fn sentence(message: &str) -> String {
    let names_a_field = message.split(' ').next().is_some_and(|word| word.ends_with(':'));
    let mut letters = message.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let end = if message.ends_with(['.', '!', '?']) { "" } else { "." };
    if names_a_field {
        return format!("{message}{end}");
    }
    format!("{first}{}{end}", letters.as_str())
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
