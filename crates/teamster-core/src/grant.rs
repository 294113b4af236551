//! What a token allows. The catalogue says what each tool needs; this says what a caller has.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing a caller may do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// Every tool set, except what `main` and `self` guard.
    Full,
    /// The reading tools of every set.
    ReadOnly,
    /// Writing the backlog.
    Main,
    /// Changing the caller's own machine and team.
    SelfChange,
    /// One whole tool set.
    Set(String),
    /// One tool of one set.
    Tool(String, String),
    /// Reading the hub's metrics; no tool needs it.
    Metrics,
}

/// All that a caller may do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Grants(Vec<Grant>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "grant {0:?} is not known; use full, read-only, main, self, metrics, a set such as `session`, or a tool such as `session:task-list`"
)]
pub struct BadGrant(String);

impl Grant {
    /// Reads one word of `--grant`. Whether a set or tool of that name exists is the catalogue's to say.
    pub fn parse(word: &str) -> Result<Self, BadGrant> {
        let plain = |part: &str| {
            !part.is_empty()
                && part.len() <= 64
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        };
        match word {
            "full" => Ok(Self::Full),
            "read-only" => Ok(Self::ReadOnly),
            "main" => Ok(Self::Main),
            "self" => Ok(Self::SelfChange),
            "metrics" => Ok(Self::Metrics),
            _ => match word.split_once(':') {
                Some((set, tool)) if plain(set) && plain(tool) => {
                    Ok(Self::Tool(set.into(), tool.into()))
                }
                None if plain(word) => Ok(Self::Set(word.into())),
                Some(_) | None => Err(BadGrant(word.chars().take(80).collect())),
            },
        }
    }

    /// `main` and `self` come on top of a base; all others are the base. `metrics` is one of which no tool is: whoever
    /// reads them need not be able to call anything.
    fn is_base(&self) -> bool {
        !matches!(self, Self::Main | Self::SelfChange)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::ReadOnly => f.write_str("read-only"),
            Self::Main => f.write_str("main"),
            Self::SelfChange => f.write_str("self"),
            Self::Set(set) => f.write_str(set),
            Self::Tool(set, tool) => write!(f, "{set}:{tool}"),
            Self::Metrics => f.write_str("metrics"),
        }
    }
}

impl Grants {
    /// Collects grants; where none of them is a base, the base is `full`.
    pub fn new(given: impl IntoIterator<Item = Grant>) -> Self {
        let mut grants: Vec<Grant> = given.into_iter().collect();
        if !grants.iter().any(Grant::is_base) {
            grants.push(Grant::Full);
        }
        grants.sort();
        grants.dedup();
        Self(grants)
    }

    /// Everything, as operators have it.
    pub fn everything() -> Self {
        Self::new([Grant::Full, Grant::Main, Grant::SelfChange])
    }

    pub fn has(&self, grant: &Grant) -> bool {
        self.0.contains(grant)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.0.iter()
    }
}

impl fmt::Display for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, grant) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            grant.fmt(f)?;
        }
        Ok(())
    }
}
