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
    let why = programs.choose(wanted, search_path).err()?;
    Some(match (wanted, agent.program.as_deref()) {
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
