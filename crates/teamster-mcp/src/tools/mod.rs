//! The tools, a file for each set. To add one, write it in its set's file and add its line to [`all`].

pub(crate) mod agents;
pub(crate) mod session;
pub(crate) mod teams;
pub(crate) mod yaks;

use crate::catalogue::{Catalogue, Entry};

/// Returns the catalogue of all tools.
pub fn catalogue() -> Catalogue {
    Catalogue::of(all())
}

/// Returns every tool, in the order in which tools are listed.
pub fn all() -> Vec<Entry> {
    vec![
        Entry::of::<session::TaskAdd>(),
        Entry::of::<session::TaskUpdate>(),
        Entry::of::<session::TaskList>(),
        Entry::of::<session::TaskNext>(),
        Entry::of::<session::NoteAdd>(),
        Entry::of::<session::NoteList>(),
        Entry::of::<session::IterationSummary>(),
        Entry::of::<session::SessionComplete>(),
        Entry::of::<agents::DraftAgent>(),
        Entry::of::<agents::AwaitAgent>(),
        Entry::of::<agents::KillAgent>(),
        Entry::of::<agents::ListAgents>(),
        Entry::of::<agents::ListTasks>(),
        Entry::of::<agents::GetTaskContext>(),
        Entry::of::<teams::TeamTell>(),
        Entry::of::<teams::TeamIsAwake>(),
        Entry::of::<teams::TeamWake>(),
        Entry::of::<teams::TeamSleep>(),
        Entry::of::<teams::TeamWakeAll>(),
        Entry::of::<teams::TeamReport>(),
        Entry::of::<teams::TeamCacheRead>(),
        Entry::of::<teams::TeamCacheClear>(),
        Entry::of::<teams::TeamGetTeamName>(),
        Entry::of::<teams::TeamTeams>(),
        Entry::of::<yaks::CreateYak>(),
        Entry::of::<yaks::ListYaks>(),
        Entry::of::<yaks::ShowYak>(),
        Entry::of::<yaks::UpdateYak>(),
        Entry::of::<yaks::ShaveYak>(),
        Entry::of::<yaks::ShornYak>(),
        Entry::of::<yaks::RegrowYak>(),
        Entry::of::<yaks::DepYak>(),
    ]
}

/// Reads a whole number, also when a client wrote it as `2.0`.
pub(crate) fn whole<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<i64>, D::Error> {
    use serde::Deserialize;
    use serde::de::Error;
    let number = Option::<serde_json::Number>::deserialize(deserializer)?;
    let Some(number) = number else { return Ok(None) };
    let as_float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15);
    let whole = number.as_i64().or(as_float.map(|float| float as i64));
    whole.map(Some).ok_or_else(|| D::Error::custom(format!("{number} is not a whole number")))
}

/// Writes a time as clients read it.
pub(crate) fn iso(at: teamster_core::Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0).unwrap_or_default().to_string()
}
