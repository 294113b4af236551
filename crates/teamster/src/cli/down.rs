//! `teamster down`: stop the hub and wait until it is gone.

use serde_json::json;

use super::say;
use crate::client::{Client, wait_until_gone};
use crate::config::DataFiles;

pub(super) async fn run(data: &DataFiles) -> anyhow::Result<()> {
    let Some(mut client) = Client::connect_if_running(data).await? else {
        say(&format!("no hub is running for {}", data.directory().display()));
        return Ok(());
    };
    let pid = client.hub.pid;
    client.post("/api/stop", &json!({})).await?;
    drop(client);
    wait_until_gone(data).await?;
    say(&format!("the hub (pid {pid}) has stopped"));
    Ok(())
}
