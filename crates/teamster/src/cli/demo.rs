//! What `teamster up --demo` shows: three agents without a model or an account, which draft, wait and work from one list.

use std::path::Path;

use teamster_api::Client;
use teamster_api::agents::Draft;
use teamster_api::log::{Line, ReadLog};

use super::{print, say};
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
    let role = "coordinator".to_owned();
    let draft = Draft { role, prompt: SCRIPT.to_owned(), ..Draft::default() };
    let id = client.draft_agent(&draft).await?.agent.id;
    loop {
        let page = client.read_log(&ReadLog { after, limit: None, wait_ms: 45_000 }).await?;
        after = page.last;
        print_lines(&page.lines)?;
        let has_ended = client.show_agent(&id).await?.agent.outcome.is_some();
        if has_ended {
            // The last lines are there once it has ended; then nothing is waited for.
            if !page.lines.is_empty() {
                print_lines(&client.read_log(&from(after)).await?.lines)?;
            }
            break;
        }
    }
    say(
        "\nthat was it; its data is gone. With an agent program of your own: `teamster up`, then `teamster draft`",
    );
    client.stop_hub().await?;
    Ok(())
}

fn from(after: u64) -> ReadLog {
    ReadLog { after, ..ReadLog::default() }
}

fn print_lines(lines: &[Line]) -> anyhow::Result<()> {
    lines.iter().try_for_each(|line| print(&format!("{:<14} {}", line.by, line.summary)))
}

/// Returns the end of the log as it is now.
async fn skip(client: &mut Client) -> anyhow::Result<u64> {
    let mut after = 0;
    loop {
        let last = client.read_log(&from(after)).await?.last;
        if last == after {
            return Ok(after);
        }
        after = last;
    }
}
