//! Records of transcripts as the views read them. What a newer hub wrote in another form is left out.

use serde::Deserialize as _;
use serde_json::Value;
use teamster_agents::agent::{Event, TurnEnd};

/// Returns what a record tells.
pub(super) fn event(record: &Value) -> Option<Event> {
    Event::deserialize(record).ok()
}

/// Returns when a record began, in milliseconds since 1970.
pub(super) fn at_ms(record: &Value) -> Option<i64> {
    record["at_ms"].as_i64()
}

/// Returns why a turn ended, in a word.
pub(super) fn why(end: &TurnEnd) -> &'static str {
    match end {
        TurnEnd::Done => "done",
        TurnEnd::Cancelled => "cancelled",
        TurnEnd::Refused => "refused",
        TurnEnd::MaxTokens => "max_tokens",
        TurnEnd::MaxTurns => "max_turns",
        TurnEnd::Failed { .. } => "failed",
        TurnEnd::Gone => "gone",
    }
}
