//! Whether a program asks permission. Rules decide only about requests: a program that does not ask does as it likes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Known, Program};

/// Whether a program asks permission before it runs a command or changes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Asks {
    /// It was not tried.
    #[default]
    Unknown,
    /// It does.
    Yes,
    /// Only before it leaves its own sandbox.
    OutsideSandbox,
    /// It never does.
    No,
}

impl Program {
    /// Returns the variables that make it ask. What the user sets for it in the configuration stays as it is.
    pub fn asking(&self) -> Vec<(String, String)> {
        let own = self.asking.iter().filter(|(name, _)| !self.set.contains_key(*name));
        own.map(|(name, value)| (name.to_string(), value.clone())).collect()
    }
}

impl Known<'_> {
    /// Returns why permission rules may have no effect on the program, if so.
    pub fn doubt(&self) -> Option<String> {
        let Self { name, program } = self;
        let other = program.asking.iter().find_map(|(variable, wanted)| {
            let set = program.set.get(variable).filter(|set| *set != wanted)?;
            Some(format!(
                "your configuration sets {variable} to {set:?} for {name}, so it may not ask permission; rules decide \
                 only about what it asks"
            ))
        });
        other.or_else(|| match program.asks {
            Asks::Yes => None,
            Asks::OutsideSandbox => Some(format!(
                "{name} asks permission only before it leaves its sandbox; rules do not see what it does inside"
            )),
            Asks::No => Some(format!("{name} never asks permission; rules have no effect on it")),
            Asks::Unknown => Some(format!(
                "it is not known whether {name} asks permission; rules decide only about what it asks (set \
                 programs.{name}.asks once you know)"
            )),
        })
    }
}
