//! How a request waits for something new: the one way of all routes that can.

use std::time::Duration;

use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;

use super::Api;

/// The longest that a request waits.
const WAIT_MAX: Duration = Duration::from_secs(50);

/// Waits for `something`, for as long as the request wants to at the most, and no longer than the hub is there.
pub(super) async fn wait_for(api: &Api, wait_ms: u64, something: impl Future) {
    if wait_ms == 0 {
        return;
    }
    let at_most = Duration::from_millis(wait_ms).min(WAIT_MAX);
    let mut stop = api.stop.subscribe();
    tokio::select! {
        _ = something => {}
        () = tokio::time::sleep(at_most) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Waits for an event of a topic that comes after the event with a number.
pub(super) async fn wait_for_event(api: &Api, wait_ms: u64, topic: &Topic, after: u64) {
    let watch = api.hub.watch(topic);
    let comes = watch.until(&api.hub, |state| (state.seq() > after).then_some(()));
    wait_for(api, wait_ms, comes).await;
}
