//! The configuration for people's programs: having it read again, and what came of that.

use axum::Router;
use teamster_api::configuration::{Reading, Readings};
use teamster_api::paths::{ReadConfiguration, ShowReadings};

use super::serving::{Answered, ApiRequest, Serve as _, failed};
use super::{Api, shapes};

pub(super) fn routes() -> Router<Api> {
    Router::new().serve::<ShowReadings, _, _>(show).serve::<ReadConfiguration, _, _>(read_again)
}

async fn show(ApiRequest { by, .. }: ApiRequest<ShowReadings>) -> Answered<ShowReadings> {
    Ok(Readings { readings: by.api.configured.told().await.0 })
}

async fn read_again(
    ApiRequest { by, query, .. }: ApiRequest<ReadConfiguration>,
) -> Answered<ReadConfiguration> {
    let now = by.api.configured.read_again().await.map_err(failed)?;
    let (readings, last) = by.api.configured.told().await;
    let is_missed = |n: u64| n < readings;
    let noticed = last.filter(|_| now.n_changes == 0 && query.after.is_some_and(is_missed));
    let reading = noticed.as_ref().unwrap_or(&now);
    Ok(Reading {
        says: reading.to_string(),
        used: reading.is_used,
        changes: shapes::texts(&reading.changes),
        n_changes: reading.n_changes,
        problems: shapes::texts(&reading.problems),
        n_problems: reading.n_problems,
    })
}
