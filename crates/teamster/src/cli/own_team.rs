//! The team that a connected program belongs to: the one it names, or the one whose directory it is connected from.

use serde_json::{Value, json};

use teamster_api::Client;

/// The word for no team at all.
const NONE: &str = "none";

/// Returns the team that `--team` names, or else the one that the current directory belongs to.
pub(super) async fn find(
    client: &mut Client,
    named: Option<&str>,
) -> anyhow::Result<Option<String>> {
    if let Some(name) = named {
        return Ok((name != NONE).then(|| name.to_owned()));
    }
    // A directory that is gone or has no text as its name belongs to no team.
    let here = std::env::current_dir().ok();
    let Some(here) = here.as_deref().and_then(|here| here.to_str()) else { return Ok(None) };
    let asked = json!({"pwd": here});
    let (text, failed) = client.call_tool("/mcp/teams", "team_getTeamName", &asked, None).await?;
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    Ok(answer["teamName"].as_str().filter(|_| !failed).map(ToOwned::to_owned))
}
