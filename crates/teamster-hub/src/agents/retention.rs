//! Removes the oldest of agents' transcripts, as far as the configuration says so.

use std::time::Duration;

use teamster_core::Timestamp;
use teamster_core::agent::AgentId;
use teamster_log::{Error, Log, TranscriptName};

use super::Shared;
use crate::settings::Transcripts;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// As many transcripts as are listed at once.
const PAGE: usize = 100;

/// Returns the name of an agent's transcript.
pub(crate) fn transcript_of(
    agent: &str,
) -> Result<TranscriptName, teamster_log::NotATranscriptName> {
    TranscriptName::new(format!("agent.{agent}"))
}

/// Looks after all transcripts, at once and then daily.
pub(super) async fn run(shared: &Shared) {
    let mut changes = shared.configured.changes();
    loop {
        let what = shared.configured.current().settings.transcripts.clone();
        if let Err(error) = all(shared).await {
            tracing::warn!(%error, "old transcripts could not be removed");
        }
        // Or when the person says something else.
        let changed = changes.wait_for(|now| now.settings.transcripts != what);
        tokio::select! {
            biased;
            () = tokio::time::sleep(DAY) => {}
            _ = changed => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

async fn all(shared: &Shared) -> Result<(), Error> {
    let mut last = None;
    loop {
        let page = shared.log.transcripts().names(last.as_ref(), PAGE).await?;
        let Some(end) = page.last().cloned() else { return Ok(()) };
        for transcript in &page {
            if let Some(agent) = transcript.as_str().strip_prefix("agent.") {
                one(shared, transcript, agent).await?;
            }
            if shared.stop.is_cancelled() {
                return Ok(());
            }
        }
        last = Some(end);
    }
}

/// Looks after the transcript of an agent whose turn is over.
pub(super) async fn after_turn(shared: &Shared, agent: &AgentId, transcript: &TranscriptName) {
    if let Err(error) = one(shared, transcript, agent.as_str()).await {
        tracing::warn!(%agent, %error, "old records could not be removed");
    }
}

async fn one(shared: &Shared, transcript: &TranscriptName, agent: &str) -> Result<(), Error> {
    let log = &*shared.log;
    let extent = log.transcripts().extent(transcript).await?;
    let configuration = shared.configured.current();
    let Transcripts { keep_days, keep_records, .. } = &configuration.settings.transcripts;
    let mut up_to = extent.forgotten;
    if keep_records.get() > 0 {
        up_to = up_to.max(extent.last.saturating_sub(keep_records.get().into()));
    }
    if keep_days.get() > 0 {
        let before_ms = shared.clock.now().0 - i64::from(keep_days.get()) * DAY.as_millis() as i64;
        up_to = up_to.max(last_before(log, transcript, before_ms).await?);
    }
    // What is being answered is kept; so is all if it is not known where that begins.
    let state = shared.hub.state();
    let agent = state.agents.get(agent).map(|agent| &agent.id);
    let current = agent
        .and_then(|id| state.conversations.of_agent(id)?.current)
        .and_then(|tell| state.conversations.tell(tell));
    if let Some(tell) = current {
        up_to = up_to.min(tell.records.after.unwrap_or_default());
    }
    if up_to > extent.forgotten {
        log.transcripts().forget(transcript, up_to).await?;
    }
    Ok(())
}

/// Returns when an agent was last heard of; long ago if that is not known.
pub(super) async fn last_heard(log: &dyn Log, agent: &AgentId) -> Timestamp {
    let last = async {
        let transcript = transcript_of(agent.as_str()).ok()?;
        let extent = log.transcripts().extent(&transcript).await.ok()?;
        let last = extent.last.checked_sub(1)?;
        let found = log.transcripts().read(&transcript, last, 1).await.ok()?;
        serde_json::from_slice::<When>(&found.first()?.bytes).ok()
    };
    Timestamp(last.await.map_or(0, |when| when.at_ms))
}

/// When a record was written.
#[derive(serde::Deserialize)]
struct When {
    at_ms: i64,
}

/// Returns the number of the last record from before a time. Records are in the order of time, so few are looked at.
pub(crate) async fn last_before(
    log: &dyn Log,
    transcript: &TranscriptName,
    at_ms: i64,
) -> Result<u64, Error> {
    let extent = log.transcripts().extent(transcript).await?;
    let (mut before, mut end) = (extent.forgotten, extent.last);
    while before < end {
        let middle = before + (end - before).div_ceil(2);
        let found = log.transcripts().read(transcript, middle - 1, 1).await?;
        let when = found.first().and_then(|record| serde_json::from_slice(&record.bytes).ok());
        match when {
            Some(When { at_ms: when }) if when < at_ms => before = middle,
            // One that cannot be read is not old.
            Some(_) | None => end = middle - 1,
        }
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use teamster_log::memory::{Memory, Store};

    use super::*;

    #[tokio::test]
    async fn what_is_from_before_a_time_is_found() {
        let log = Memory::new(&Store::default());
        let transcript = transcript_of("api-1").unwrap();
        let read = async |at_ms| last_before(&log, &transcript, at_ms).await.unwrap();
        assert_eq!(read(5).await, 0, "there is nothing");
        for at_ms in [10, 20, 20, 30, 40] {
            let record = format!("{{\"v\":1,\"at_ms\":{at_ms},\"type\":\"cancel_asked\"}}");
            log.transcripts().append(&transcript, record.into_bytes()).await.unwrap();
        }
        for (at_ms, expected) in [(5, 0), (10, 0), (11, 1), (20, 1), (21, 3), (40, 4), (99, 5)] {
            assert_eq!(read(at_ms).await, expected, "before {at_ms}");
        }
        log.transcripts().forget(&transcript, 4).await.unwrap();
        assert_eq!((read(5).await, read(99).await), (4, 5));
    }
}
