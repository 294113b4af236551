//! What is different between two readings of the configuration, in words that name keys and never their values.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{Configuration, Settings};
use crate::reading::{Node, Value};
use crate::roles::Role;

/// Tables whose members people name.
const NAMED: [&str; 4] = ["categories", "prices", "programs", "teams"];
/// What a hub is started with, and keeps.
const KEPT: &str = "telemetry";

/// What has a name, or a section that has none, with its fields.
type Entries = BTreeMap<(String, Option<String>), BTreeMap<String, Json>>;

/// Returns what was added, removed and changed, in the order of the keys. Of roles, what comes of all that is said of them
/// counts, wherever it stands.
pub fn changes(before: &Configuration, after: &Configuration) -> Vec<String> {
    let (before, after) = (entries(before), entries(after));
    let nothing = BTreeMap::new();
    let mut keys: Vec<_> = before.keys().chain(after.keys()).collect();
    keys.sort();
    keys.dedup();
    let mut told = Vec::new();
    for key @ (section, name) in keys {
        let (old, new) = (before.get(key), after.get(key));
        let later = if section == KEPT { " (from the next start on)" } else { "" };
        match (name, old, new) {
            (Some(name), None, Some(_)) => told.push(format!("{section}.{name} added{later}")),
            (Some(name), Some(_), None) => told.push(format!("{section}.{name} removed{later}")),
            (name, old, new) => {
                let fields = different(old.unwrap_or(&nothing), new.unwrap_or(&nothing));
                match name {
                    Some(name) if !fields.is_empty() => {
                        let fields: Vec<&str> = fields.iter().map(|(field, _)| *field).collect();
                        told.push(format!(
                            "{section}.{name} changed ({}){later}",
                            fields.join(", ")
                        ));
                    }
                    Some(_) => {}
                    None => told.extend(fields.iter().map(|(field, what)| match *field {
                        "" => format!("{section} {what}{later}"),
                        field => format!("{section}.{field} {what}{later}"),
                    })),
                }
            }
        }
    }
    told.into_iter().map(|line| line.chars().filter(|c| !c.is_control()).collect()).collect()
}

/// Returns the fields that are not the same, and what became of them.
fn different<'a>(
    old: &'a BTreeMap<String, Json>,
    new: &'a BTreeMap<String, Json>,
) -> Vec<(&'a str, &'static str)> {
    let gone = old.keys().filter(|field| !new.contains_key(*field));
    let gone = gone.map(|field| (field.as_str(), "removed"));
    let others = new.iter().filter_map(|(field, value)| match old.get(field) {
        None => Some((field.as_str(), "added")),
        Some(old) => (old != value).then_some((field.as_str(), "changed")),
    });
    let mut all: Vec<_> = gone.chain(others).collect();
    all.sort_unstable();
    all
}

fn entries(configuration: &Configuration) -> Entries {
    let mut entries = Entries::new();
    for (section, node) in configuration.tree.members() {
        match &node.value {
            // What the files say of roles is not all: see below.
            Value::Table(_) if section == "roles" => {}
            Value::Table(members) if NAMED.contains(&section.as_str()) => {
                for (name, node) in members {
                    entries.insert((section.clone(), Some(name.clone())), fields(node));
                }
            }
            Value::Table(_) | Value::Leaf(_) | Value::List(_) => {
                entries.insert((section.clone(), None), fields(node));
            }
        }
    }
    for (section, node) in configuration.apart.members() {
        entries.insert((format!("the project's {section}"), None), fields(node));
    }
    for role in configuration.roles.iter() {
        let key = ("roles".to_owned(), Some(role.name.to_string()));
        entries.insert(key, role_fields(role, &configuration.settings));
    }
    entries
}

fn fields(node: &Node) -> BTreeMap<String, Json> {
    let mut leaves = Vec::new();
    node.leaves("", &mut leaves);
    leaves.into_iter().map(|(field, node)| (field, node.json())).collect()
}

/// Returns what a role is. What it has from the settings is told there once, not of every role.
fn role_fields(role: &Role, settings: &Settings) -> BTreeMap<String, Json> {
    let json = |value: serde_json::Result<Json>| value.unwrap_or_default();
    let own_program = role.program.as_ref().filter(|own| settings.program.as_ref() != Some(*own));
    let own_limits = (role.limits != settings.limits).then_some(&role.limits);
    let own_permissions = (role.permissions != settings.permissions).then_some(&role.permissions);
    let own_guard = (role.guard != settings.guard).then_some(&role.guard);
    let fields = [
        ("description", Json::from(role.description.as_str())),
        ("category", role.category.as_str().into()),
        ("program", json(serde_json::to_value(own_program))),
        ("model", json(serde_json::to_value(&role.model))),
        ("tools", json(serde_json::to_value(&role.tools))),
        ("limits", json(serde_json::to_value(own_limits))),
        ("permissions", json(serde_json::to_value(own_permissions))),
        ("guard", json(serde_json::to_value(own_guard))),
        ("cwd", json(serde_json::to_value(&role.cwd))),
        ("prompt", role.prompt.as_str().into()),
    ];
    fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
}
