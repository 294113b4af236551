//! Edits TOML files. Everything else stays as it is, comments too.

use anyhow::{Context, anyhow};
use toml_edit::{DocumentMut, Item, Table, TomlError, Value};

use super::Edited;

/// Makes `entry` the table `name` of the table `section`.
pub(in crate::cli) fn set(
    file: &str,
    section: &str,
    name: &str,
    mut entry: Table,
) -> anyhow::Result<Edited> {
    let parsed = file.parse::<DocumentMut>();
    // The whole error would quote the line, and that may hold somebody's secret.
    let mut document =
        parsed.map_err(|error: TomlError| anyhow!("it is not valid TOML ({})", error.message()))?;
    let inline = document.get(section).is_some_and(Item::is_inline_table);
    let tables = document.entry(section).or_insert_with(|| Item::Table(implicit(Table::new())));
    let tables =
        tables.as_table_like_mut().with_context(|| format!("`{section}` in it is not a table"))?;
    let existed = tables.contains_key(name);
    match tables.get_mut(name) {
        None if inline => {
            tables.insert(name, Item::Value(Value::InlineTable(entry.into_inline_table())));
        }
        None => {
            // At the end of the file nothing has to move, not even a last comment.
            let mut alone = DocumentMut::new();
            alone.insert(
                section,
                Item::Table(implicit(Table::from_iter([(name, Item::Table(entry))]))),
            );
            let gap = if file.trim().is_empty() {
                ""
            } else if file.ends_with('\n') {
                "\n"
            } else {
                "\n\n"
            };
            let text = with_line_ends_of(file, format!("{file}{gap}{alone}"));
            return Ok(Edited { text, replaced: false });
        }
        Some(Item::Table(old)) => {
            *entry.decor_mut() = old.decor().clone();
            entry.set_position(old.position());
            *old = entry;
        }
        Some(old) => {
            let mut entry = entry.into_inline_table();
            if let Some(old) = old.as_value() {
                *entry.decor_mut() = old.decor().clone();
            }
            *old = Item::Value(Value::InlineTable(entry));
        }
    }
    let text = with_line_ends_of(file, document.to_string());
    Ok(Edited { replaced: existed && text != file, text })
}

/// Takes out the table `name` of the table `section` if it holds a token of ours. Says whether it did.
pub(super) fn without_secret(
    file: &str,
    section: &str,
    name: &str,
) -> anyhow::Result<(String, bool)> {
    let parsed = file.parse::<DocumentMut>();
    let mut document =
        parsed.map_err(|error: TomlError| anyhow!("it is not valid TOML ({})", error.message()))?;
    let tables = document.get_mut(section).and_then(Item::as_table_like_mut);
    let Some(tables) = tables else { return Ok((file.to_owned(), false)) };
    let header = tables.get(name).and_then(|entry| entry.get("http_headers")?.get("Authorization"));
    let is_ours = header.and_then(Item::as_str).is_some_and(|header| header.starts_with(OURS));
    if !is_ours {
        return Ok((file.to_owned(), false));
    }
    tables.remove(name);
    Ok((with_line_ends_of(file, document.to_string()), true))
}

/// How the tokens of a hub begin in a header.
const OURS: &str = "Bearer tmst_";

/// What comes from `toml_edit` ends its lines with `\n`; a file that ends all of them with `\r\n` keeps that.
fn with_line_ends_of(file: &str, text: String) -> String {
    let windows = file.contains("\r\n") && !file.replace("\r\n", "").contains('\n');
    if windows { text.replace("\r\n", "\n").replace('\n', "\r\n") } else { text }
}

/// A table without a header of its own.
fn implicit(mut table: Table) -> Table {
    table.set_implicit(true);
    table
}
