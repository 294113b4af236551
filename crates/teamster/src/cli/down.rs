//! `teamster down`: stop the hub and wait until it is gone.

use anyhow::Context;
use serde_json::json;

use super::say;
use crate::client::Client;
use crate::config::DataFiles;

pub(super) async fn run(data: &DataFiles) -> anyhow::Result<()> {
    let Some(mut client) = Client::connect_if_running(data).await? else {
        say(&format!("no hub is running for {}", data.directory().display()));
        return Ok(());
    };
    let pid = client.hub.pid;
    client.post("/api/stop", &json!({})).await?;
    drop(client);
    // The hub holds this lock for as long as it lives, so getting it means that it is gone.
    let lock = data.lock();
    let gone = tokio::task::spawn_blocking(move || std::fs::File::open(lock)?.lock());
    gone.await?.context("cannot tell whether the hub is gone")?;
    say(&format!("the hub (pid {pid}) has stopped"));
    Ok(())
}
