//! Sealing what a client carries for us between two calls.
//!
//! A sealed text can be read but not changed, and it opens only for the principal and the call it was made for, and
//! only for a while.

use std::time::Duration;

use rmcp::model::{RequestStateCodec, SealOptions};
use serde_json::{Map, Value, json};

use crate::answer::Fault;
use crate::arguments::in_order;
use crate::ask::Answers;
use crate::scope::Scope;

/// How long a person may take to answer before the call has to be made anew.
const OPENS_FOR: Duration = Duration::from_secs(60 * 60);

/// The length of the key that seals.
pub const KEY_BYTES: usize = 32;

/// Seals and opens.
pub struct Seal {
    codec: RequestStateCodec,
    opens_for: Duration,
}

/// What a client carries for us from one call to the next.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Carried {
    pub(crate) answers: Answers,
    /// The key that we made up for the call, so that all its rounds are one call.
    pub(crate) key: Option<String>,
}

/// Whom a sealed text is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct For<'a> {
    pub(crate) principal: &'a str,
    pub(crate) scope: &'a Scope,
    pub(crate) tool: &'a str,
    pub(crate) arguments: &'a Map<String, Value>,
}

impl Seal {
    /// Returns what seals with a key, which must be kept where only the hub can read it.
    pub fn new(key: [u8; KEY_BYTES]) -> Self {
        Self { codec: RequestStateCodec::new_unchecked(key), opens_for: OPENS_FOR }
    }

    #[cfg(test)]
    pub(crate) fn opening_for(self, opens_for: Duration) -> Self {
        Self { opens_for, ..self }
    }

    pub(crate) fn seal(&self, carried: Carried, whom: For<'_>) -> String {
        let bound_to = bound_to(whom);
        let options = SealOptions::new().associated_data(&bound_to).ttl(self.opens_for);
        let Carried { answers, key } = carried;
        let carried = json!({"answers": Value::from(answers), "key": key}).to_string();
        self.codec.seal_with(carried.as_bytes(), &options)
    }

    pub(crate) fn open(&self, sealed: &str, whom: For<'_>) -> Result<Carried, Fault> {
        let refused = || {
            let message = "requestState was not made for this call, was changed, or is too old; make the call again without it";
            Fault::BadAnswers(message.into())
        };
        let bytes = self.codec.open_with(sealed, &bound_to(whom)).map_err(|_| refused())?;
        let mut carried: Value = serde_json::from_slice(&bytes).map_err(|_| refused())?;
        let Value::Object(answers) = carried["answers"].take() else { return Err(refused()) };
        let key = carried["key"].as_str().map(str::to_owned);
        Ok(Carried { answers: Answers::read(answers).map_err(Fault::BadAnswers)?, key })
    }
}

/// All that a sealed text is bound to, such that no two calls have the same.
fn bound_to(whom: For<'_>) -> Vec<u8> {
    let For { principal, scope, tool, arguments } = whom;
    let set = scope.set.map(crate::Set::name);
    let arguments = in_order(&Value::Object(arguments.clone()));
    json!([principal, set, scope.run, tool, arguments]).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_seal_opens_for_its_own_call_only() {
        let seal = Seal::new([7; KEY_BYTES]);
        let answers = Answers::read([("a".to_owned(), json!({"action": "accept"}))]).unwrap();
        let carried = Carried { answers, key: Some("k".into()) };
        let (scope, other) = (Scope::all(), Scope { set: Some(crate::Set::Yaks), ..Scope::all() });
        let arguments = object(json!({"x": 1, "y": {"b": 2, "a": 3}}));
        let own = For { principal: "ann", scope: &scope, tool: "t", arguments: &arguments };
        let sealed = seal.seal(carried.clone(), own);
        assert_eq!(seal.open(&sealed, own), Ok(carried));

        let reordered = object(json!({"y": {"a": 3, "b": 2}, "x": 1}));
        assert!(seal.open(&sealed, For { arguments: &reordered, ..own }).is_ok());
        let changed = object(json!({"x": 2, "y": {"b": 2, "a": 3}}));
        for foreign in [
            For { principal: "bob", ..own },
            For { scope: &other, ..own },
            For { tool: "u", ..own },
            For { arguments: &changed, ..own },
        ] {
            assert!(seal.open(&sealed, foreign).is_err(), "{foreign:?}");
        }
        for i in 0..sealed.len() {
            let mut tampered = sealed.clone().into_bytes();
            tampered[i] = if tampered[i] == b'A' { b'B' } else { b'A' };
            let tampered = String::from_utf8(tampered).unwrap();
            assert!(seal.open(&tampered, own).is_err(), "byte {i} of {sealed}");
        }
        for wrong in ["", "rs1", &format!("{sealed}-TAMPERED"), &"x".repeat(100_000)] {
            assert!(seal.open(wrong, own).is_err());
        }
        assert!(Seal::new([8; KEY_BYTES]).open(&sealed, own).is_err(), "another hub's");
    }

    #[test]
    fn a_seal_opens_for_a_while_only() {
        let seal = Seal::new([7; KEY_BYTES]).opening_for(Duration::ZERO);
        let (scope, arguments) = (Scope::all(), Map::new());
        let own = For { principal: "ann", scope: &scope, tool: "t", arguments: &arguments };
        let sealed = seal.seal(Carried::default(), own);
        // The seal counts in milliseconds, and its last one may count as well.
        assert!((0..1_000_000).any(|_| seal.open(&sealed, own).is_err()));
    }
}
