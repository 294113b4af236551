//! What `teamster up --demo` shows: three agents without a model or an account, which draft, wait and work from one list.

use std::path::Path;

use anyhow::Context;
use serde_json::json;

use super::{print, say};
use teamster_api::Client;
use teamster_hub::api::Line;
use teamster_hub::config::DataFiles;

/// Returns the settings of the demonstration, which leaves nothing outside `directory`.
pub(super) fn settings(directory: &Path) -> Vec<String> {
    let state = directory.join("sessions");
    let state =
        format!("programs.scripted.set.TEAMSTER_SCRIPTED_STATE={:?}", state.display().to_string());
    vec!["program=scripted".to_owned(), state]
}

/// What the coordinator's script is, as the scripted agent reads it. Each worker takes a task, works and reports.
const SCRIPT: &str = r#"Have the kitchen cleaned by two workers.
! say I put the chores on the list and draft two workers.
! call task-add {"tasks": [{"content": "sweep the floor"}, {"content": "wash the dishes"}]}
! call draft_agent {"role": "coder", "prompt": "Take a chore and do it.\n! call task-next {\"claim\": true}\n! sleep 900\n! call task-update {\"id\": \"$$call1.id\", \"status\": \"completed\"}\n! outcome {\"status\": \"success\", \"summary\": \"$$call1.content: done\"}"}
! call draft_agent {"role": "researcher", "prompt": "Take a chore and do it.\n! call task-next {\"claim\": true}\n! sleep 500\n! call note-add {\"notes\": [{\"content\": \"the sponge is worn out\", \"type\": \"tip\"}]}\n! call task-update {\"id\": \"$$call1.id\", \"status\": \"completed\"}\n! outcome {\"status\": \"partial\", \"summary\": \"$$call1.content: done\", \"issues\": [\"the sponge is worn out\"]}"}
! call await_agent {"agentId": "$call2.agentId"}
! call await_agent {"agentId": "$call3.agentId"}
! call session-complete
! outcome {"status": "success", "summary": "The kitchen is clean; a new sponge is needed."}
"#;

/// Drafts the coordinator and shows what happens until it has ended.
pub(super) async fn play(data: &DataFiles) -> anyhow::Result<()> {
    say(
        "a demonstration: three scripted agents work from one list, without a model or an account\n",
    );
    let mut client = Client::connect(data).await?;
    let mut after = skip(&mut client).await?;
    let agent =
        client.post("/api/agents", &json!({"role": "coordinator", "prompt": SCRIPT})).await?;
    let id = agent["id"].as_str().context("the hub's answer has no id")?.to_owned();
    loop {
        let page = client.get(&format!("/api/log?after={after}&wait_ms=45000")).await?;
        after = page["last"].as_u64().context("the hub's answer has no end")?;
        let lines: Vec<Line> = serde_json::from_value(page["lines"].clone())?;
        for line in &lines {
            print(&format!("{:<14} {}", line.by.as_str(), line.summary))?;
        }
        let agent = client.get(&format!("/api/agents/{id}")).await?;
        if !agent["outcome"].is_null() && lines.is_empty() {
            break;
        }
        // The last lines are there once it has ended; then nothing is waited for.
        if !agent["outcome"].is_null() {
            let rest = client.get(&format!("/api/log?after={after}")).await?;
            let rest: Vec<Line> = serde_json::from_value(rest["lines"].clone())?;
            for line in &rest {
                print(&format!("{:<14} {}", line.by.as_str(), line.summary))?;
            }
            break;
        }
    }
    say(
        "\nthat was it; its data is gone. With an agent program of your own: `teamster up`, then `teamster draft`",
    );
    client.post("/api/stop", &json!({})).await?;
    Ok(())
}

/// Returns the end of the log as it is now.
async fn skip(client: &mut Client) -> anyhow::Result<u64> {
    let mut after = 0;
    loop {
        let page = client.get(&format!("/api/log?after={after}")).await?;
        let last = page["last"].as_u64().context("the hub's answer has no end")?;
        if last == after {
            return Ok(after);
        }
        after = last;
    }
}
