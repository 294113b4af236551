//! What is kept of the talk with an agent's program, in its transcript.

use std::collections::VecDeque;

use teamster_agents::agent::Event;
use teamster_agents::transcript::Record;

use super::Talk;
use crate::secret;

const MIB: usize = 1 << 20;

/// How large a process has made its agent's transcript.
#[derive(Debug, Default)]
pub(super) struct Grown {
    /// What came since the last mark.
    n_bytes: usize,
    /// The records at which each MiB ended, oldest first.
    marks: VecDeque<u64>,
}

impl Grown {
    /// Counts a record. Returns the record up to which the transcript is to be forgotten, if it has become larger than
    /// `keep_mib`; 0 is no limit.
    fn by(&mut self, number: u64, n_bytes: usize, keep_mib: usize) -> Option<u64> {
        self.n_bytes += n_bytes;
        if self.n_bytes < MIB || keep_mib == 0 {
            return None;
        }
        self.n_bytes = 0;
        self.marks.push_back(number);
        let mut oldest = None;
        while self.marks.len() > keep_mib {
            oldest = self.marks.pop_front();
        }
        oldest
    }
}

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
        // The rest of the disk is reserved for operators.
        if self.shared.hub.disk().refuses_agents().is_some() {
            return;
        }
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
        let appends = encoded.map(|bytes| {
            let n_bytes = bytes.len();
            let appended = transcripts.append(&self.transcript, bytes);
            async move { appended.await.map(|number| (number, n_bytes)) }
        });
        let keep_mib =
            self.shared.configured.current().settings.transcripts.keep_mib.get() as usize;
        for appended in futures_util::future::join_all(appends).await {
            match appended {
                Ok((number, n_bytes)) => {
                    self.last_record = Some(number);
                    if let Some(up_to) = self.grown.by(number, n_bytes, keep_mib)
                        && let Err(error) = transcripts.forget(&self.transcript, up_to).await
                    {
                        tracing::warn!(agent = %self.agent.id, %error, "old records could not be removed");
                    }
                    self.shared.live.grown(&self.agent.id, number);
                }
                Err(error) => {
                    tracing::warn!(agent = %self.agent.id, %error, "a piece of a transcript is lost")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_a_transcript_that_grows_is_forgotten() {
        let mut grown = Grown::default();
        let forgotten: Vec<_> =
            (1..=10).filter_map(|number| grown.by(number, MIB / 2, 3)).collect();
        assert_eq!(
            forgotten,
            [2, 4],
            "a MiB ends with each second record, and three of them are kept"
        );
        let mut unlimited = Grown::default();
        assert!((1..=1_000).all(|number| unlimited.by(number, MIB, 0).is_none()));
        assert!(unlimited.marks.is_empty());
    }
}
