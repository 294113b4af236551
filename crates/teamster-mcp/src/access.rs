//! Which tools a caller has. The same answer filters `tools/list` and guards each call.

use serde_json::{Map, Value};
use teamster_core::grant::{Grant, Grants};
use teamster_core::token::Token;

use crate::catalogue::{Catalogue, Entry, Needs};
use crate::scope::Scope;
use crate::set::Set;

/// Reads grants and makes sure that what they name exists: a grant of nothing would look like a working one.
pub fn parse_grants(catalogue: &Catalogue, words: &[String]) -> Result<Grants, String> {
    let grants: Result<Vec<Grant>, _> =
        words.iter().map(|word| Grant::parse(word.trim())).collect();
    let grants = grants.map_err(|bad| bad.to_string())?;
    for grant in &grants {
        let exists = match grant {
            Grant::Full | Grant::ReadOnly | Grant::Main | Grant::SelfChange | Grant::Metrics => {
                true
            }
            Grant::Set(set) => Set::parse(set).is_some(),
            Grant::Tool(set, tool) => {
                Set::parse(set).is_some_and(|set| catalogue.find(Some(set), tool).is_some())
            }
        };
        if !exists {
            let sets = Set::ALL.map(Set::name).join(", ");
            return Err(format!("grant {grant} names no tool set or tool; the sets are {sets}"));
        }
    }
    Ok(Grants::new(grants))
}

/// Says whether `token` is shown the tool `entry` in `scope`: some call of it is allowed.
pub fn shown(token: &Token, entry: &Entry, scope: &Scope) -> bool {
    has(token, entry, scope, entry.needs_at_least)
}

/// Says whether `token` may call the tool `entry` in `scope` with these arguments.
pub fn allowed(
    token: &Token,
    entry: &Entry,
    scope: &Scope,
    arguments: &Map<String, Value>,
) -> bool {
    has(token, entry, scope, entry.needs_with(arguments))
}

fn has(token: &Token, entry: &Entry, scope: &Scope, needs: Needs) -> bool {
    let bound_elsewhere =
        entry.set == Set::Session && token.run.as_ref().is_some_and(|run| *run != scope.run);
    // Whoever belongs to no team is not burdened with their tools unless they were granted by name.
    let by_name_only = entry.set == Set::Teams && token.team.is_none() && !token.kind.may_operate();
    !bound_elsewhere && granted(&token.grants, entry, needs, by_name_only)
}

fn granted(grants: &Grants, entry: &Entry, needs: Needs, by_name_only: bool) -> bool {
    let counts = |grant: &&Grant| !(by_name_only && matches!(grant, Grant::Full | Grant::ReadOnly));
    let base = |needed: &[Grant]| needed.iter().filter(counts).any(|grant| grants.has(grant));
    let set = || Grant::Set(entry.set.name().into());
    let tool = || Grant::Tool(entry.set.name().into(), entry.name.into());
    match needs {
        Needs::Token => true,
        Needs::Read => base(&[Grant::Full, Grant::ReadOnly, set(), tool()]),
        Needs::Write => base(&[Grant::Full, set(), tool()]),
        Needs::Main => grants.has(&Grant::Main),
    }
}
