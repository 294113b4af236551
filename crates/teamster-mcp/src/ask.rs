//! Asking back: what a tool can want to know from its caller's client before it answers, and what was answered.
//!
//! A tool that asks is called again with the answers, from its beginning. Between the two calls the client carries what
//! was answered so far, sealed: it can neither change it nor use it for another call, nor can anybody else.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

/// Something that a client can do if it declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// It asks its person to fill in a form.
    Elicitation,
    /// It asks its model.
    Sampling,
    /// It says which directories it works in.
    Roots,
    /// It fetches the result of a long call later.
    Tasks,
}

impl Capability {
    const ALL: [Self; 4] = [Self::Elicitation, Self::Sampling, Self::Roots, Self::Tasks];

    pub fn name(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation",
            Self::Sampling => "sampling",
            Self::Roots => "roots",
            Self::Tasks => "tasks",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a caller's client can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Client {
    pub elicitation: bool,
    pub sampling: bool,
    pub roots: bool,
    pub tasks: bool,
}

impl Client {
    pub fn has(self, capability: Capability) -> bool {
        match capability {
            Capability::Elicitation => self.elicitation,
            Capability::Sampling => self.sampling,
            Capability::Roots => self.roots,
            Capability::Tasks => self.tasks,
        }
    }

    /// Returns the names of what it can do.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        Capability::ALL.into_iter().filter(move |one| self.has(*one)).map(Capability::name)
    }

    /// Returns the client that can do what is named.
    pub(crate) fn named<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut client = Self::default();
        for name in names {
            match Capability::ALL.into_iter().find(|one| one.name() == name) {
                Some(Capability::Elicitation) => client.elicitation = true,
                Some(Capability::Sampling) => client.sampling = true,
                Some(Capability::Roots) => client.roots = true,
                Some(Capability::Tasks) => client.tasks = true,
                // Written by a newer version; this one cannot ask for it anyway.
                None => {}
            }
        }
        client
    }
}

/// A question of a tool's.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// How the tool finds the answer; each of a tool's questions has another name.
    pub name: String,
    pub needs: Capability,
    /// The request in the protocol's words, e.g. `{"method": "roots/list", "params": {}}`.
    pub request: Value,
}

impl Ask {
    /// Asks a person to fill in a form; `schema` says what is in it.
    pub fn form(name: &str, message: &str, schema: &Value) -> Self {
        let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
        let request = json!({"method": "elicitation/create", "params": params});
        Self { name: name.into(), needs: Capability::Elicitation, request }
    }

    /// Asks the client's model.
    pub fn model(name: &str, prompt: &str, max_tokens: u32) -> Self {
        let content = json!({"type": "text", "text": prompt});
        let messages = json!([{"role": "user", "content": content}]);
        let params = json!({"messages": messages, "maxTokens": max_tokens});
        let request = json!({"method": "sampling/createMessage", "params": params});
        Self { name: name.into(), needs: Capability::Sampling, request }
    }

    /// Asks which directories the client works in.
    pub fn roots(name: &str) -> Self {
        let request = json!({"method": "roots/list", "params": {}});
        Self { name: name.into(), needs: Capability::Roots, request }
    }
}

/// What was answered, by the names of the questions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answers(BTreeMap<String, Map<String, Value>>);

impl Answers {
    /// Reads what a client sent, or says what is wrong with it. Only the names are the tool's; the rest is whatever the client made of it.
    pub(crate) fn read(given: impl IntoIterator<Item = (String, Value)>) -> Result<Self, String> {
        let read = |(name, answer): (String, Value)| match answer {
            Value::Object(answer) => Ok((name, answer)),
            _ => {
                let name: String = name.chars().take(80).collect();
                Err(format!("inputResponses.{name}: must be an object"))
            }
        };
        Ok(Self(given.into_iter().map(read).collect::<Result<_, _>>()?))
    }

    pub fn get(&self, name: &str) -> Option<&Map<String, Value>> {
        self.0.get(name)
    }

    /// Returns what a person put into a form, if there was a person who did and sent it off.
    pub fn form(&self, name: &str) -> Option<&Map<String, Value>> {
        let answer =
            self.get(name).filter(|answer| answer.get("action") == Some(&"accept".into()))?;
        answer.get("content").and_then(Value::as_object)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        self.0.iter().map(|(name, answer)| (name.as_str(), answer))
    }

    /// Adds later answers to these.
    pub(crate) fn with(mut self, later: Self) -> Self {
        self.0.extend(later.0);
        self
    }
}

impl From<Answers> for Value {
    fn from(answers: Answers) -> Self {
        answers.0.into_iter().map(|(name, answer)| (name, Self::Object(answer))).collect()
    }
}
