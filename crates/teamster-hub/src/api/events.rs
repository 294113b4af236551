//! The stream of events for people's programs. It is made of the log and of the topics that wake long calls. Nothing is
//! kept for a reader: what it has not taken yet is read from the log when it does.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use http::HeaderMap;
use teamster_api::events::{Event, FollowEvents, Grown, LAST_ID_HEADER, Missed, PATH, Reached};
use teamster_api::log::LogPage;
use teamster_core::agent::AgentId;
use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;

use super::Api;
use super::log::lines;
use super::serving::{invalid, problem};

/// Maximum commits that are read at a time.
const COMMITS_MAX: usize = 100;
/// A reader that is further behind than this is told that it missed something.
const BEHIND_MAX: u64 = 1_000;
/// How often a quiet stream shows that it is still there.
const ALIVE_EVERY: Duration = Duration::from_secs(15);

pub(super) fn routes() -> Router<Api> {
    Router::new().route(PATH, get(follow))
}

async fn follow(
    State(api): State<Api>,
    headers: HeaderMap,
    query: Result<Query<FollowEvents>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let Query(FollowEvents { after }) = match query {
        Ok(query) => query,
        Err(wrong) => return problem(invalid(wrong.body_text())),
    };
    let after = match headers.get(LAST_ID_HEADER).map(|id| id.to_str().ok()?.parse::<u64>().ok()) {
        None => after,
        Some(Some(id)) => id,
        Some(None) => {
            let error = invalid("the header Last-Event-ID is not the number of a commit");
            return problem(error.with_hint("leave it out to read from the beginning"));
        }
    };
    let reader = Reader {
        api,
        after,
        owes_current: true,
        has_caught_up: false,
        told: HashMap::new(),
        n_records: None,
        ready: VecDeque::new(),
    };
    let events = stream::unfold(reader, async |mut reader: Reader| {
        let sent = reader.next().await?;
        Some((Ok::<_, Infallible>(sent), reader))
    });
    let alive = KeepAlive::new().interval(ALIVE_EVERY);
    Sse::new(events).keep_alive(alive).into_response()
}

/// Somebody who follows the stream.
struct Reader {
    api: Api,
    /// The last commit that was sent.
    after: u64,
    /// Commits were sent since it was last told that it has everything.
    owes_current: bool,
    /// Until then nothing is left out: it said where it was, so it expects all of it.
    has_caught_up: bool,
    /// How far the transcripts were of which it was told.
    told: HashMap<AgentId, u64>,
    /// How many records of transcripts there were when it was last told of them.
    n_records: Option<u64>,
    ready: VecDeque<Sent>,
}

impl Reader {
    /// Returns what to send next; none if the stream cannot go on.
    async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some(sent) = self.ready.pop_front() {
                return Some(sent);
            }
            // Noted before we read, so that what is written in between is not waited for as if it were still to come.
            let seq = self.api.hub.state().seq();
            if let Err(error) = self.read().await {
                // The reader connects again, and an ordinary request tells it what is wrong.
                tracing::error!(%error, "the stream of events cannot be continued");
                return None;
            }
            if self.ready.is_empty() {
                self.wait(seq).await;
            }
        }
    }

    /// Makes ready what the log and the transcripts have beyond what was sent.
    async fn read(&mut self) -> anyhow::Result<()> {
        let head = self.api.log.head().await?.number;
        // A reader that is ahead of the log knows another one, such as that from before a backup was restored.
        let is_ahead = self.after > head;
        if is_ahead || (self.has_caught_up && head - self.after > BEHIND_MAX) {
            let after = if is_ahead { 0 } else { self.after };
            (self.after, self.owes_current) = (head, true);
            return self.send(&Event::Missed(Missed { after, up_to: head }), Some(head));
        }
        for commit in self.api.log.read(self.after, COMMITS_MAX).await? {
            (self.after, self.owes_current) = (commit.number, true);
            let page = LogPage { lines: lines(&commit)?, last: commit.number };
            self.send(&Event::Log(page), Some(commit.number))?;
        }
        if !self.ready.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.owes_current) {
            self.has_caught_up = true;
            return self.send(&Event::Current(Reached { last: self.after }), None);
        }
        self.transcripts()
    }

    /// Makes ready how far transcripts have come since it was told.
    fn transcripts(&mut self) -> anyhow::Result<()> {
        let n_records = self.api.live.n_records();
        if self.n_records.replace(n_records) == Some(n_records) {
            return Ok(());
        }
        let live = self.api.live.all();
        self.told.retain(|agent, _| live.iter().any(|(other, _)| other == agent));
        for (agent, last) in live {
            if self.told.insert(agent.clone(), last) != Some(last) {
                let grown = Grown { agent: agent.to_string(), last };
                self.send(&Event::Transcript(grown), None)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, event: &Event, id: Option<u64>) -> anyhow::Result<()> {
        let (name, data) = event.parts()?;
        let sent = Sent::default().event(name).data(data);
        self.ready.push_back(match id {
            Some(id) => sent.id(id.to_string()),
            None => sent,
        });
        Ok(())
    }

    async fn wait(&self, seq: u64) {
        let watch = self.api.hub.watch(&Topic::Log);
        let happens = watch.until(&self.api.hub, |state| (state.seq() > seq).then_some(()));
        let n_records = self.n_records.unwrap_or_default();
        tokio::select! {
            () = happens => {}
            () = self.api.live.any(n_records) => {}
        }
    }
}
