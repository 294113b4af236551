//! Documents that are made of the catalogue, so that they cannot say anything else than the tools do.

use std::fmt::Write;

use serde_json::Value;

use crate::catalogue::Needs;
use crate::catalogue::{Catalogue, Entry};
use crate::set::Set;

/// Returns `docs/tools.md`: every tool with who may call it and its arguments.
pub fn tools_markdown(catalogue: &Catalogue) -> String {
    let mut text = String::from(
        "# Tools\n\n\
         Made from the catalogue (`teamster_mcp::docs`) and checked by a test; `UPDATE_EXPECT=1 cargo test -p teamster-mcp` \
         writes it anew.\n\n\
         `/mcp` serves every tool that the caller's token allows, `/mcp/<set>` those of one set. A tool that is not \
         allowed is not listed. Each path may end in one more `/mcp`, for clients that append it; `/mcp/session/mcp` \
         names the run `mcp`.\n",
    );
    for set in Set::ALL {
        let more = match set {
            Set::Session => {
                ", and at `/mcp/session/<run>` for a run of that name; the other paths mean the run `default`"
            }
            Set::Agents | Set::Teams | Set::Yaks => "",
        };
        let _ = write!(text, "\n## {set}\n\nServed at `/mcp` and `/mcp/{set}`{more}.\n");
        for entry in catalogue.entries().iter().filter(|entry| entry.set == set) {
            tool(&mut text, entry);
        }
    }
    text
}

fn tool(text: &mut String, entry: &Entry) {
    let Entry { name, description, .. } = entry;
    let who = callers(entry, entry.needs_at_least);
    let _ = write!(text, "\n### {name}\n\n{description}\n\nMay be called with {who}.\n");
    if entry.needs != entry.needs_at_least {
        let who = callers(entry, entry.needs);
        let _ = writeln!(text, "\nA call that changes something needs {who}.");
    }
    let mut rows = Vec::new();
    arguments(&mut rows, "", &Value::Object((*entry.schema).clone()));
    if rows.is_empty() {
        text.push_str("\nIt has no arguments.\n");
    } else {
        text.push_str("\n| argument | type | | meaning |\n|---|---|---|---|\n");
        rows.iter().for_each(|row| text.push_str(row));
    }
}

/// Describes the tokens that may make a call which needs this much.
fn callers(Entry { set, name, .. }: &Entry, needs: Needs) -> String {
    match needs {
        Needs::Token => "any token".into(),
        Needs::Read if *set == Set::Teams => format!(
            "a token with `{set}` or `{set}:{name}`, or with `full` or `read-only` if it is of a team"
        ),
        Needs::Write if *set == Set::Teams => {
            format!("a token with `{set}` or `{set}:{name}`, or with `full` if it is of a team")
        }
        Needs::Read => {
            format!("a token with `full`, `read-only`, `{set}` or `{set}:{name}`")
        }
        Needs::Write => format!("a token with `full`, `{set}` or `{set}:{name}`"),
        Needs::Main => "a token with `main`".into(),
    }
}

/// Adds a row for each property of an object's schema, and for those of the objects in its arrays.
fn arguments(rows: &mut Vec<String>, before: &str, schema: &Value) {
    let required = schema["required"].as_array();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = required.is_some_and(|names| names.iter().any(|other| other == name));
        let needed = if is_required { "required" } else { "" };
        let meaning = property["description"].as_str().unwrap_or_default().replace('|', "\\|");
        rows.push(format!("| `{before}{name}` | {} | {needed} | {meaning} |\n", kind(property)));
        arguments(rows, &format!("{before}{name}[]."), &property["items"]);
    }
}

fn kind(schema: &Value) -> String {
    let name = schema["type"].as_str().unwrap_or("any");
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> =
            values.iter().filter_map(Value::as_str).map(|value| format!("`{value}`")).collect();
        return values.join(", ");
    }
    match (&schema["minimum"], &schema["maximum"], schema["items"]["type"].as_str()) {
        (Value::Number(min), Value::Number(max), _) => format!("{name}, {min} to {max}"),
        (_, _, Some(items)) => format!("{name} of {items}s"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_says_what_the_tools_do() {
        expect_test::expect_file!["../../../docs/tools.md"]
            .assert_eq(&tools_markdown(&crate::tools::catalogue()));
    }
}
