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
    let runs = client.get("/api/runs").await?;
    let under_way = runs.as_array().into_iter().flatten().filter(|run| run["under_way"] == true);
    let under_way: Vec<&str> = under_way.filter_map(|run| run["name"].as_str()).collect();
    client.post("/api/stop", &json!({})).await?;
    drop(client);
    wait_until_gone(data).await?;
    say(&format!("the hub (pid {pid}) has stopped"));
    if !under_way.is_empty() {
        say(&format!("not over yet, and gone on with by the next hub: {}", under_way.join(", ")));
    }
    Ok(())
}
