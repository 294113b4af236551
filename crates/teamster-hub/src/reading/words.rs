//! The kinds of values that settings have: each knows what it allows and says so when something else is given.

use std::borrow::{Borrow, Cow};
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use teamster_core::grant::Grant;
use teamster_core::permission::Pattern;

use crate::ssh::Ssh;

/// A whole number with bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Whole<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Whole<MIN, MAX> {
    /// Makes a number that is known when the program is built; in a constant, one out of bounds does not build.
    pub(crate) const fn new(number: u32) -> Self {
        assert!(MIN <= number && number <= MAX);
        Self(number)
    }

    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Whole<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number<const MIN: u32, const MAX: u32>;

        impl<const MIN: u32, const MAX: u32> Visitor<'_> for Number<MIN, MAX> {
            type Value = u32;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {MIN} to {MAX}")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<u32, E> {
                let fits = u32::try_from(number).ok().filter(|number| (MIN..=MAX).contains(number));
                fits.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
            }
        }

        deserializer.deserialize_u64(Number::<MIN, MAX>).map(Self)
    }
}

impl<const MIN: u32, const MAX: u32> JsonSchema for Whole<MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("from{MIN}to{MAX}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": MIN, "maximum": MAX})
    }
}

/// Makes a type of text that is checked when it is read.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $fits:expr, $expected:expr, $schema:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Returns the text if it is one.
            pub fn parse(text: &str) -> Option<Self> {
                let fits: fn(&str) -> bool = $fits;
                fits(text).then(|| Self(text.to_owned()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        $name::parse(text)
                            .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

text!(
    /// The name of a role, program or category. It is also a file's name, so it has no room for paths.
    Name,
    is_name,
    "a name: at most 64 lower-case letters, digits and dashes, no dash at either end",
    json_schema!({"type": "string", "pattern": "^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$", "maxLength": 64})
);

text!(
    /// A line of text that people read.
    Line,
    |text| (1..=1_024).contains(&text.len()) && !text.chars().any(char::is_control),
    "one line of text, at most 1024 bytes long",
    json_schema!({"type": "string", "minLength": 1, "maxLength": 1024})
);

text!(
    /// A machine as `ssh` is told it.
    Remote,
    |text| text.len() <= 1_024 && Ssh::parse(text).is_ok(),
    "what ssh is told, such as `ssh -p 2222 ann@box`: options that leave it to us what to run, and a host as the last word",
    json_schema!({"type": "string", "maxLength": 1024, "examples": ["ssh box", "ssh -p 2222 ann@box"]})
);

text!(
    /// The name of a variable of the environment.
    Variable,
    is_variable,
    "the name of an environment variable",
    json_schema!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "maxLength": 128})
);

text!(
    /// One thing that a role is allowed, in the words of `--grant`.
    GrantWord,
    |text| Grant::parse(text).is_ok(),
    "full, read-only, main, self, metrics, a set such as `session`, or a tool such as `session:task-list`",
    json_schema!({"type": "string", "examples": ["read-only", "session", "agents:list_agents"]})
);

text!(
    /// What a rule about permissions matches.
    Rule,
    |text| Pattern::parse(text).is_ok(),
    "a rule: TOOL or TOOL(TARGET), with * for anything, such as `execute(git *)`",
    json_schema!({"type": "string", "examples": ["read", "mcp__github__*", "execute(git *)"]})
);

text!(
    /// The address of a collector.
    CollectorUrl,
    is_collector_url,
    "a URL such as http://127.0.0.1:4318; for https, send to a collector on this machine that passes on",
    json_schema!({"type": "string", "maxLength": 1024, "examples": ["http://127.0.0.1:4318"]})
);

fn is_collector_url(text: &str) -> bool {
    let url = text.parse::<http::Uri>().ok().filter(|_| text.len() <= 1_024);
    url.is_some_and(|url| {
        url.scheme_str() == Some("http")
            && url.host().is_some_and(|host| !host.is_empty())
            && url.query().is_none()
            && !text.contains(['@', '#'])
    })
}

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=64).contains(&text.len())
        && text.chars().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_variable(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts_well = !text.starts_with(|c: char| c.is_ascii_digit());
    (1..=128).contains(&text.len()) && text.chars().all(plain) && starts_well
}

impl Name {
    /// Makes a name that is known when the program is built.
    pub(crate) fn known(name: &'static str) -> Self {
        debug_assert!(is_name(name), "{name} is no name");
        Self(name.to_owned())
    }
}

/// An amount of US dollars, kept in millionths so that sums do not drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Money(u64);

impl Money {
    const DOLLARS_MAX: f64 = 1_000_000.0;

    /// Makes an amount of dollars, unless it is negative, too much, or none at all.
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is in the range that was checked"
        )]
        (0.0..=Self::DOLLARS_MAX).contains(&dollars).then(|| Self((dollars * 1e6).round() as u64))
    }

    pub const fn micros(self) -> u64 {
        self.0
    }
}

impl Serialize for Money {
    #[expect(clippy::cast_precision_loss, reason = "the amounts are small enough")]
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1e6)
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Dollars;

        impl Visitor<'_> for Dollars {
            type Value = Money;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount of dollars from 0 to 1000000")
            }

            fn visit_f64<E: Error>(self, dollars: f64) -> Result<Money, E> {
                Money::from_dollars(dollars)
                    .ok_or_else(|| E::invalid_value(Unexpected::Float(dollars), &self))
            }

            #[expect(clippy::cast_precision_loss, reason = "amounts that large are refused")]
            fn visit_u64<E: Error>(self, dollars: u64) -> Result<Money, E> {
                self.visit_f64(dollars as f64)
            }
        }

        deserializer.deserialize_f64(Dollars)
    }
}

impl JsonSchema for Money {
    fn schema_name() -> Cow<'static, str> {
        "Money".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number", "minimum": 0, "maximum": 1_000_000})
    }
}
