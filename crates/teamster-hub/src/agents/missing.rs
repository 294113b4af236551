//! Programs that agents need and the hub does not have: it was restarted without a flag that named one, or with another
//! PATH.

use std::path::PathBuf;

use teamster_core::agent::Agent;
use teamster_core::role::Role;

use crate::settings::Configuration;

/// Returns which program an agent is missing and what to do about it, if it is missing one.
pub(super) fn missing(
    configuration: &Configuration,
    search_path: &[PathBuf],
    agent: &Agent,
    role: &Role,
) -> Option<String> {
    let programs = &configuration.settings.programs;
    let wanted = Some(&*role.program).filter(|program| !program.is_empty());
    let before = agent.program.as_deref().filter(|program| !program.is_empty());
    // Its session is of no use to another program, which may also be one that costs money. One that speaks for a team has
    // the team's program, whatever it had before.
    let chosen = programs.choose(wanted, search_path);
    let now = wanted.or(chosen.as_ref().ok().map(|(known, _)| known.name.as_str()));
    if let (Some(now), Some(before)) = (now, before)
        && now != before
        && !agent.lasts()
    {
        return Some(format!(
            "it began with the program {before}, and {now} is configured now; restart the hub with `--set program={before}`, \
             set `program` in teamster.toml, or end it with `teamster kill {}`",
            agent.id
        ));
    }
    let why = chosen.err()?;
    Some(match (wanted, before) {
        // It is named by nothing now, so a flag named it.
        (None, Some(before)) => format!(
            "the program {before}, with which it began, is not configured; restart the hub with `--set program={before}`, or \
             set `program` in teamster.toml"
        ),
        (None, None) => {
            format!("{why}; or name one with `--set program=NAME` or `program` in teamster.toml")
        }
        (Some(program), _) => format!(
            "the program {program} is missing: {why}; install or configure it, then restart the hub"
        ),
    })
}
