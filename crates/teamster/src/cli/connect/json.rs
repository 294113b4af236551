//! Edits JSON files. The order of everything else and the indentation stay.

use anyhow::{Context, anyhow};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};

use super::Edited;

/// Makes `entry` the member `name` of the object `section`.
pub(super) fn set(file: &str, section: &str, name: &str, entry: Value) -> anyhow::Result<Edited> {
    let empty = file.trim().is_empty();
    let mut root: Map<String, Value> = serde_json::from_str(if empty { "{}" } else { file })
        .map_err(|error| {
            anyhow!(
                "it is not an object in plain JSON, without comments and trailing commas ({error})"
            )
        })?;
    let members = root.entry(section).or_insert_with(|| json!({})).as_object_mut();
    let old = members
        .with_context(|| format!("`{section}` in it is not an object"))?
        .insert(name.into(), entry);

    let mut text = Vec::new();
    let formatter = PrettyFormatter::with_indent(indentation(file).as_bytes());
    root.serialize(&mut Serializer::with_formatter(&mut text, formatter))?;
    let mut text = String::from_utf8(text)?;
    text.push_str(if empty { "\n" } else { &file[file.trim_end().len()..] });
    Ok(Edited { replaced: old.is_some() && text != file, text })
}

/// Returns what the file indents by.
fn indentation(file: &str) -> &str {
    let first_member =
        file.lines().skip(1).find(|line| !line.trim().is_empty()).unwrap_or_default();
    let indentation = &first_member[..first_member.len() - first_member.trim_start().len()];
    if indentation.is_empty() { "  " } else { indentation }
}
