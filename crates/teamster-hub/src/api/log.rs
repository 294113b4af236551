//! The log for people's programs.

use axum::Router;
use teamster_api::log::{Line, LogPage};
use teamster_api::paths::ReadLog;
use teamster_core::record::{Body, Unreadable};
use teamster_core::topic::Topic;

use super::Api;
use super::serving::{Answered, ApiRequest, Serve as _, internal, invalid};
use super::waiting::wait_for_event;

/// Maximum commits per page.
const COMMITS_MAX: u32 = 500;

pub(super) fn routes() -> Router<Api> {
    Router::new().serve::<ReadLog, _, _>(read)
}

/// Returns the lines of one commit.
pub fn lines(commit: &teamster_log::Commit) -> Result<Vec<Line>, Unreadable> {
    let body = Body::decode(&commit.body)?;
    let mut seq = body.first;
    let mut lines = Vec::new();
    for record in body.records {
        for event in &record.events {
            let summary = event.summary();
            lines.push(Line {
                seq,
                commit: commit.number,
                at: record.at.0,
                by: record.by.to_string(),
                summary: summary.text,
                run: summary.run.map(|run| run.to_string()),
                event: serde_json::to_value(event)?,
            });
            seq += 1;
        }
    }
    Ok(lines)
}

async fn read(ApiRequest { by, query, .. }: ApiRequest<ReadLog>) -> Answered<ReadLog> {
    let api = &by.api;
    let limit = match query.limit.unwrap_or(COMMITS_MAX) {
        limit @ 1..=COMMITS_MAX => limit as usize,
        _ => return Err(invalid(format!("`limit` is a number from 1 to {COMMITS_MAX}"))),
    };
    // Noted before we read, so that what is written in between is not waited for as if it were still to come.
    let seq = api.hub.state().seq();
    let mut commits = api.log.read(query.after, limit).await.map_err(internal)?;
    if commits.is_empty() && query.wait_ms > 0 {
        wait_for_event(api, query.wait_ms, &Topic::Log, seq).await;
        commits = api.log.read(query.after, limit).await.map_err(internal)?;
    }
    let mut all = Vec::new();
    for commit in &commits {
        all.extend(lines(commit).map_err(internal)?);
    }
    let last = commits.last().map_or(query.after, |commit| commit.number);
    Ok(LogPage { lines: all, last })
}
