//! `teamster down`: stop the hub and wait until it is gone.

use serde_json::{Value, json};

use super::say;
use teamster_api::{Client, wait_until_gone};
use teamster_hub::config::DataFiles;

pub(super) async fn run(data: &DataFiles) -> anyhow::Result<()> {
    let Some(mut client) = Client::connect_if_running(data).await? else {
        say(&format!("no hub is running for {}", data.directory().display()));
        return Ok(());
    };
    let pid = client.hub.pid;
    let runs = client.get("/api/runs").await?;
    let up = data.call("up");
    let unfinished: Vec<String> =
        runs.as_array().into_iter().flatten().filter_map(|run| unfinished(run, &up)).collect();
    client.post("/api/stop", &json!({})).await?;
    drop(client);
    wait_until_gone(data).await?;
    say(&format!("the hub (pid {pid}) has stopped"));
    unfinished.iter().for_each(|line| say(line));
    Ok(())
}

/// Says what the next hub does with a run that has not ended, if it has not.
fn unfinished(run: &Value, up: &str) -> Option<String> {
    let name = run["name"].as_str().filter(|_| run["under_way"] == true)?;
    Some(match run["phase"].as_str() {
        Some("stopping") => format!("run {name} is stopping; it ends at the next `{up}`"),
        Some("paused") => format!("run {name} is paused; it stays paused after the next `{up}`"),
        _ => format!("run {name} is unfinished; it resumes at the next `{up}`"),
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn each_run_that_has_not_ended_is_named_with_what_comes_next() {
        let says = |phase: &str, under_way: bool| {
            unfinished(
                &json!({"name": "z1", "phase": phase, "under_way": under_way}),
                "teamster up",
            )
        };
        let lines = ["working", "paused", "stopping"].map(|phase| says(phase, true));
        expect![[r#"
            run z1 is unfinished; it resumes at the next `teamster up`
            run z1 is paused; it stays paused after the next `teamster up`
            run z1 is stopping; it ends at the next `teamster up`"#]]
        .assert_eq(&lines.map(Option::unwrap_or_default).join("\n"));
        assert_eq!(says("stopped", false), None);
    }
}
