//! How a program is logged in, if it asks for that.

use agent_client_protocol_schema::v1::ErrorCode;
use serde::Deserialize;

use super::json_rpc::Failure;
use crate::agent::{Begin, LABEL_BYTES_MAX, clipped};

/// Maximum login methods that are tried, one after the other.
const METHODS_MAX: usize = 4;

/// The login methods that a program offers.
#[derive(Debug, Default)]
pub(super) struct Login {
    /// Methods that fit the program's environment and were not tried yet.
    methods: Vec<String>,
    /// What the program tells a person who has to log in.
    hint: Option<String>,
    /// The variables with which it would not need a person.
    wanted: Vec<String>,
}

/// A login method. Only the fields that we use are read, so that kinds that are not known yet do not matter.
#[derive(Debug, Deserialize)]
struct Method {
    id: String,
    description: Option<String>,
    /// The environment variables that it takes its key from.
    #[serde(default)]
    vars: Vec<Variable>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
    #[serde(default)]
    optional: bool,
}

impl Login {
    /// Reads the answer to `initialize`. A method fits if `begin` names it, or if it takes its key from variables that
    /// are set.
    pub(super) fn offered(answer: &str, begin: &Begin) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer {
            #[serde(default)]
            auth_methods: Vec<serde_json::Value>,
        }
        let Ok(Answer { auth_methods }) = serde_json::from_str(answer) else {
            return Self::default();
        };
        let offered: Vec<Method> = auth_methods
            .into_iter()
            .filter_map(|method| serde_json::from_value(method).ok())
            .collect();
        let is_named = |method: &&Method| begin.logins.contains(&method.id);
        let needed = |method: &Method| {
            let needed = method.vars.iter().filter(|variable| !variable.optional);
            needed.map(|variable| variable.name.clone()).collect::<Vec<_>>()
        };
        let has_key = |method: &&Method| {
            let needed = needed(method);
            !needed.is_empty() && needed.iter().all(|name| begin.variables.contains(name))
        };
        let named = offered.iter().filter(is_named);
        let with_key = offered.iter().filter(|method| !is_named(method) && has_key(method));
        let methods = named.chain(with_key).take(METHODS_MAX);
        let wanted = offered.iter().flat_map(needed).take(METHODS_MAX);
        Self {
            methods: methods.map(|method| method.id.clone()).collect(),
            hint: offered.iter().find_map(|method| method.description.clone()),
            wanted: wanted.map(|name| clipped(name, LABEL_BYTES_MAX)).collect(),
        }
    }

    pub(super) fn has_method(&self) -> bool {
        !self.methods.is_empty()
    }

    /// Returns the next method to try.
    pub(super) fn take_method(&mut self) -> Option<String> {
        self.has_method().then(|| self.methods.remove(0))
    }

    /// Returns what a person has to know who wants to run this program.
    pub(super) fn explain(&self, failure: &Failure) -> String {
        let mut text = failure.to_string();
        if !is_missing(failure) {
            return text;
        }
        if let Some(hint) = &self.hint {
            text = format!("{text}; {hint}");
        }
        if !self.wanted.is_empty() {
            text = format!("{text}; or set {}", self.wanted.join(" or "));
        }
        text
    }
}

/// Says whether a request failed because nobody is logged in.
pub(super) fn is_missing(failure: &Failure) -> bool {
    failure.code == i64::from(i32::from(ErrorCode::AuthRequired))
}
