//! `teamster yak export`: the backlog as a directory of Markdown files, which git can keep.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use super::directory::{self, Directory, Entry};
use super::file;
use crate::cli::{Refused, say};
use teamster_api::{Client, LIMIT_MAX, ListQuery};
use teamster_hub::settings::Problem;

/// How often what was done.
#[derive(Default)]
struct Counts {
    written: usize,
    moved: usize,
    unchanged: usize,
}

pub(super) async fn run(client: &mut Client, named: Option<PathBuf>) -> anyhow::Result<()> {
    let directory = Directory::new(named)?;
    let (mut yaks, mut query) = (Vec::new(), ListQuery { limit: Some(LIMIT_MAX), cursor: None });
    let prefix = loop {
        let page = client.export_yaks(&query).await?;
        yaks.extend(page.yaks);
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => break page.prefix,
        }
    };
    yaks.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    directory.make()?;
    let listing = directory.list()?;
    let mut files: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    for entry in listing.entries {
        files.entry(entry.stem.clone()).or_default().push(entry);
    }
    let mut counts = Counts::default();
    let mut problems = Vec::new();
    for yak in &yaks {
        let Some(content) = &yak.content else { continue };
        let target = Entry { status: content.status, stem: yak.id.clone() };
        let path = directory.path_of(&target);
        let at = directory.origin(&target);
        let mut known = files.remove(&yak.id).unwrap_or_default();
        let place = known.iter().position(|entry| entry.status == content.status);
        if place.is_none() && fs::symlink_metadata(&path).is_ok() {
            problems.push(Problem::new(&at, format!("is in the way; {} is not written", yak.id)));
            continue;
        }
        // The one in its place, or else any that can be moved there; more than one cannot be right.
        let old = (!known.is_empty()).then(|| known.remove(place.unwrap_or(0)));
        for entry in &known {
            let path = directory.path_of(entry);
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        let moves = old.as_ref().filter(|old| old.status != content.status);
        if let Some(old) = moves {
            let old = directory.path_of(old);
            fs::rename(&old, &path).with_context(|| format!("cannot move {}", old.display()))?;
            counts.moved += 1;
        }
        let said = old.is_some().then(|| directory.read(&target).ok()).flatten();
        let said = said.and_then(|text| file::read(&text, &at, &yak.id, content.status).ok());
        // One that says the same in other words stays as it is.
        if said.as_ref().is_some_and(|said| file::are_same(&said.yak, yak)) {
            counts.unchanged += usize::from(moves.is_none());
            continue;
        }
        directory::write(&path, &file::write(yak, said.as_ref().map_or("", |said| &said.rest)))?;
        counts.written += usize::from(moves.is_none());
    }
    let config = directory.path.join(directory::CONFIG);
    if let Some(prefix) = prefix.filter(|_| fs::symlink_metadata(&config).is_err()) {
        directory::write(&config, &format!("prefix: {}\n", file::yaml(&prefix)))?;
    }
    for foreign in listing.foreign {
        say(&foreign.to_string());
    }
    for entry in files.into_values().flatten() {
        let says = "is not in the backlog and is left alone; `teamster yak import` takes it in";
        say(&Problem::new(&directory.origin(&entry), says).to_string());
    }
    for problem in &problems {
        say(&problem.to_string());
    }
    let Counts { written, moved, unchanged } = counts;
    say(&format!(
        "{} yaks are in {}: {written} written, {moved} moved, {unchanged} unchanged",
        yaks.len() - problems.len(),
        directory.path.display()
    ));
    if problems.is_empty() { Ok(()) } else { Err(Refused.into()) }
}
