//! What is kept of the talk with an agent's program, in its transcript.

use teamster_agents::agent::Event;
use teamster_agents::transcript::Record;

use super::Talk;
use crate::secret;

impl Talk<'_> {
    /// Keeps an event in the transcript.
    pub(super) async fn keep(&mut self, event: Event) {
        self.keep_all([event]).await;
    }

    /// Keeps several at once, in their order.
    pub(super) async fn keep_all(&mut self, events: impl IntoIterator<Item = Event>) {
        let at_ms = u64::try_from(self.shared.clock.now().0).unwrap_or_default();
        let mut records = Vec::new();
        for event in events {
            records.extend(self.transcriber.take(at_ms, event));
        }
        self.write_all(records).await;
    }

    /// A transcript that cannot be written loses a piece; the agent's outcome is what must not be lost.
    pub(super) async fn write(&mut self, record: Record) {
        self.write_all(vec![record]).await;
    }

    async fn write_all(&mut self, records: Vec<Record>) {
        let encoded = records.iter().filter_map(|record| {
            let encoded = record.encode();
            encoded.inspect_err(|error| tracing::warn!(%error, "a record cannot be written")).ok()
        });
        // In JSON, a secret looks as it does anywhere. An agent's own, and any other that it came by, is not for readers.
        let encoded = encoded.map(|bytes| match String::from_utf8(bytes) {
            Ok(text) => secret::redacted(&text).into_bytes(),
            Err(not_text) => not_text.into_bytes(),
        });
        // Asked for in their order before the first is waited for, so that they share a sync.
        let transcripts = self.shared.log.transcripts();
        let appends = encoded.map(|bytes| transcripts.append(&self.transcript, bytes));
        for appended in futures_util::future::join_all(appends).await {
            match appended {
                Ok(number) => {
                    self.last_record = Some(number);
                    self.shared.live.grown(&self.agent.id, number);
                }
                Err(error) => {
                    tracing::warn!(agent = %self.agent.id, %error, "a piece of a transcript is lost")
                }
            }
        }
    }
}
