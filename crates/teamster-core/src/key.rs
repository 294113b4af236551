//! Idempotency keys: a call sent again with the same key gets its first answer.
//!
//! What is kept is the events the first call caused, from which its answer is made again. A call that changed nothing
//! is not kept: deciding it again is harmless. Both bounds below are per principal. A key that is needed for sure, that
//! of an open errand, is not forgotten; their number is bounded where they are.

use std::sync::Arc;

use imbl::{OrdMap, Vector};
use serde::{Deserialize, Serialize};

use crate::{Event, PrincipalName, Record};

/// As many keys as are remembered of one principal; older ones are forgotten.
pub const KEYS_MAX: usize = 1_000;
/// As many bytes of events as are remembered of one principal, beyond the newest key.
pub const BYTES_MAX: usize = 1024 * 1024;
/// The longest key.
pub const KEY_BYTES_MAX: usize = 200;

/// What a caller sent to make its call repeatable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub key: Arc<str>,
    /// Tells whether the same key comes with the same call; see [`crate::text::fingerprint`].
    pub call: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the key {0:?} was used for another call; use a new key for each new call")]
    OtherCall(String),
    #[error("a key is 1 to {KEY_BYTES_MAX} visible ASCII characters")]
    BadKey,
}

impl Key {
    pub fn new(key: &str, call: u64) -> Result<Self, Refusal> {
        let fits = !key.is_empty()
            && key.len() <= KEY_BYTES_MAX
            && key.bytes().all(|byte| byte.is_ascii_graphic());
        if fits { Ok(Self { key: key.into(), call }) } else { Err(Refusal::BadKey) }
    }
}

/// The view of all remembered keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Keys {
    by_principal: OrdMap<PrincipalName, Window>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Window {
    known: OrdMap<Arc<str>, Known>,
    oldest_first: Vector<Arc<str>>,
    bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Known {
    call: u64,
    #[serde(with = "as_json")]
    events: Arc<[Event]>,
    bytes: usize,
}

/// Events leave out optional fields, which a snapshot's binary form cannot; they have only their JSON form there too.
mod as_json {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

    use crate::Event;

    pub(super) fn serialize<S: Serializer>(
        events: &Arc<[Event]>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serde_json::to_string(events).map_err(ser::Error::custom)?.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<[Event]>, D::Error> {
        serde_json::from_str(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Keys {
    /// Returns what the first call with this key caused, if it is remembered.
    pub(crate) fn recall(
        &self,
        principal: &PrincipalName,
        key: &Key,
    ) -> Result<Option<Arc<[Event]>>, Refusal> {
        match self.by_principal.get(principal).and_then(|window| window.known.get(&key.key)) {
            None => Ok(None),
            Some(known) if known.call == key.call => Ok(Some(known.events.clone())),
            Some(_) => Err(Refusal::OtherCall(key.key.to_string())),
        }
    }

    /// Remembers the record's key. `is_needed` says of a key of its principal that it must not be forgotten.
    pub(crate) fn apply(&mut self, record: &Record, is_needed: impl Fn(&Arc<str>) -> bool) {
        let Some(key) = &record.key else { return };
        let mut window = self.by_principal.get(&record.by).cloned().unwrap_or_default();
        window.remember(key, &record.events, is_needed);
        self.by_principal.insert(record.by.clone(), window);
    }

    /// Forgets a principal that is gone.
    pub(crate) fn forget(&mut self, principal: &PrincipalName) {
        self.by_principal.remove(principal);
    }
}

impl Window {
    fn remember(&mut self, key: &Key, events: &[Event], is_needed: impl Fn(&Arc<str>) -> bool) {
        let bytes = events.iter().map(Event::size_bytes).sum();
        let known = Known { call: key.call, events: events.into(), bytes };
        if self.known.insert(key.key.clone(), known).is_none() {
            self.oldest_first.push_back(key.key.clone());
            self.bytes += bytes;
        }
        while self.oldest_first.len() > 1
            && (self.oldest_first.len() > KEYS_MAX || self.bytes > BYTES_MAX)
        {
            let newest = self.oldest_first.len() - 1;
            let mut older = self.oldest_first.iter().take(newest);
            let Some(oldest) = older.position(|key| !is_needed(key)) else { return };
            if let Some(forgotten) = self.known.remove(&self.oldest_first.remove(oldest)) {
                self.bytes -= forgotten.bytes;
            }
        }
    }
}
