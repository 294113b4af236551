//! `teamster yak import`: takes in a directory of Markdown files, and what other readers have found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::bail;
use teamster_core::yak::IMPORT_MAX;

use super::directory::{Directory, Entry};
use super::file::{self, Found};
use crate::cli::{Refused, print, say};
use teamster_api::Client;
use teamster_api::yaks::{Change, Report, ToImport, Trouble, WholeYak};
use teamster_hub::settings::{Origin, Problem};

/// A yak that was found, and where.
pub(super) struct Candidate {
    pub(super) yak: WholeYak,
    pub(super) at: Origin,
    /// The lines of its fields, if they have their own.
    pub(super) lines: BTreeMap<String, usize>,
}

/// How an import is made.
#[derive(Debug, Clone, Default)]
pub(super) struct Manner {
    pub(super) prefix: Option<String>,
    /// Leave those alone that are there already.
    pub(super) only_new: bool,
    pub(super) dry_run: bool,
}

/// About as much as one import has: what comes of it is one record of the log, which is bounded.
const WEIGHT_MAX: usize = 700 << 10;
/// What an event weighs beside its texts.
const EVENT_WEIGHT: usize = 200;

pub(super) async fn run(
    client: &mut Client,
    named: Option<PathBuf>,
    dry_run: bool,
) -> anyhow::Result<()> {
    let directory = Directory::new(named)?;
    let listing = directory.list()?;
    if listing.entries.is_empty() && listing.foreign.is_empty() {
        bail!("{} has no yaks in hairy, shaving or shorn", directory.path.display());
    }
    // What is there and cannot be read is missing from the backlog; the rest never was part of it.
    let (mut problems, foreign): (Vec<_>, Vec<_>) =
        listing.foreign.into_iter().partition(|problem| problem.is_fatal);
    for foreign in foreign {
        say(&foreign.to_string());
    }
    let mut by_stem: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in &listing.entries {
        by_stem.entry(&entry.stem).or_default().push(entry);
    }
    let mut candidates = Vec::new();
    for (stem, entries) in by_stem {
        let [entry] = entries[..] else {
            let statuses: Vec<_> = entries.iter().map(|entry| entry.status.as_str()).collect();
            let says = format!("there is a {stem} in {}; keep one", statuses.join(" and in "));
            let at = entries.into_iter().map(|entry| directory.origin(entry));
            problems.extend(at.map(|at| Problem::new(&at, &says)));
            continue;
        };
        let at = directory.origin(entry);
        let found = directory.read(entry);
        match found.and_then(|text| file::read(&text, &at, stem, entry.status)) {
            Ok(Found { yak, lines, .. }) => candidates.push(Candidate { yak, at, lines }),
            Err(problem) => problems.push(problem),
        }
    }
    let prefix = directory.prefix().unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    take_in(client, candidates, problems, Manner { prefix, only_new: false, dry_run }).await
}

/// Imports what was found, and says what came of it.
pub(super) async fn take_in(
    client: &mut Client,
    mut candidates: Vec<Candidate>,
    mut problems: Vec<Problem>,
    manner: Manner,
) -> anyhow::Result<()> {
    // The oldest first: that is the order in which they are listed.
    candidates.sort_by(|one, other| {
        // One without a time is created now.
        let age = |yak: &WholeYak| {
            let created = yak.created_at.or(yak.updated_at);
            (created.is_none(), created, yak.id.clone())
        };
        age(&one.yak).cmp(&age(&other.yak))
    });
    let mut imports = Imports {
        client,
        manner: &manner,
        changes: BTreeMap::new(),
        refused: BTreeSet::new(),
        troubles: Vec::new(),
    };
    let chunks = chunks(&candidates);
    if let [all] = &chunks[..] {
        imports.send(all, WholeYak::clone).await?;
    } else {
        imports.send_in_parts(&chunks).await?;
    }
    let Imports { changes, refused, troubles, .. } = imports;
    problems.extend(troubles);
    problems.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    let n_new = changes.values().filter(|change| change.is_new).count();
    let n_updated = changes.len() - n_new;
    if manner.dry_run {
        for candidate in &candidates {
            if let Some(change) = changes.get(&candidate.yak.id) {
                print(&would(change, &candidate.yak))?;
            }
        }
    }
    for problem in &problems {
        say(&problem.to_string());
    }
    let is_same = |id: &String| !changes.contains_key(id) && !refused.contains(id);
    let n_same = candidates.iter().filter(|candidate| is_same(&candidate.yak.id)).count();
    let would = if manner.dry_run { "would be " } else { "" };
    let told = match problems.len() {
        0 => String::new(),
        1 => "; 1 problem".to_owned(),
        n => format!("; {n} problems"),
    };
    say(&format!(
        "{n_new} {would}created, {n_updated} {would}updated, {n_same} left as they are{told}"
    ));
    if problems.is_empty() { Ok(()) } else { Err(Refused.into()) }
}

fn would(change: &Change, yak: &WholeYak) -> String {
    match &yak.content {
        Some(content) if change.is_new => {
            format!("create {} ({}): {}", yak.id, content.status, content.title)
        }
        Some(_) | None => format!("update {}: {}", yak.id, change.fields.join(", ")),
    }
}

/// Parts what was found into what fits into one import each. There is at least one, which may be empty.
fn chunks(candidates: &[Candidate]) -> Vec<&[Candidate]> {
    let mut chunks = Vec::new();
    let (mut start, mut weight) = (0, 0);
    for (n, candidate) in candidates.iter().enumerate() {
        let next = weight_of(&candidate.yak);
        if n > start && (weight + next > WEIGHT_MAX || n - start >= IMPORT_MAX) {
            chunks.push(&candidates[start..n]);
            (start, weight) = (n, 0);
        }
        weight += next;
    }
    chunks.push(&candidates[start..]);
    chunks
}

fn weight_of(yak: &WholeYak) -> usize {
    let content = yak.content.iter();
    let texts = content.map(|content| {
        let labels: usize = content.labels.iter().map(|label| label.len() + 3).sum();
        content.title.len() + content.description.len() + labels
    });
    let links = yak.depends_on.as_ref().map_or(0, Vec::len);
    (4 + links) * EVENT_WEIGHT + texts.sum::<usize>()
}

/// An import on its way, and what has come of it.
struct Imports<'a> {
    client: &'a mut Client,
    manner: &'a Manner,
    changes: BTreeMap<String, Change>,
    /// Those of which something could not be taken in.
    refused: BTreeSet<String>,
    troubles: Vec<Problem>,
}

impl Imports<'_> {
    /// Imports these, in a form of them.
    async fn send(
        &mut self,
        candidates: &[Candidate],
        form: impl Fn(&WholeYak) -> WholeYak,
    ) -> anyhow::Result<()> {
        let Manner { prefix, only_new, dry_run } = self.manner.clone();
        let yaks = candidates.iter().map(|candidate| form(&candidate.yak)).collect();
        let given = ToImport { yaks, prefix, only_new, dry_run };
        let Report { changes, problems } = self.client.import_yaks(&given).await?;
        for change in changes {
            self.note(change);
        }
        for Trouble { index, field, says } in problems {
            let Some(candidate) = candidates.get(index) else { continue };
            let line = candidate.lines.get(&field).copied().or(candidate.at.line);
            let at = line.map_or_else(|| candidate.at.clone(), |line| candidate.at.line(line));
            self.troubles.push(Problem::new(&at, says));
            self.refused.insert(candidate.yak.id.clone());
        }
        Ok(())
    }

    /// Imports more than fits into one import. What one depends on can be in another part, so that comes last.
    async fn send_in_parts(&mut self, chunks: &[&[Candidate]]) -> anyhow::Result<()> {
        for chunk in chunks {
            let alone = |yak: &WholeYak| WholeYak { depends_on: None, ..yak.clone() };
            self.send(chunk, alone).await?;
        }
        if self.manner.dry_run {
            say("these are too many for one import; their dependencies are not looked at");
            return Ok(());
        }
        let is_left = |candidate: &&Candidate| {
            let id = &candidate.yak.id;
            let is_new = self.changes.get(id).is_some_and(|change| change.is_new);
            let depends = candidate.yak.depends_on.as_ref().is_some_and(|on| !on.is_empty());
            !self.refused.contains(id) && if is_new { depends } else { !self.manner.only_new }
        };
        let left: Vec<Candidate> = chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .filter(is_left)
            .map(|candidate| Candidate {
                yak: WholeYak { content: None, ..candidate.yak.clone() },
                at: candidate.at.clone(),
                lines: candidate.lines.clone(),
            })
            .collect();
        // They are there now.
        let manner = Manner { only_new: false, ..self.manner.clone() };
        let mut links = Imports {
            client: self.client,
            manner: &manner,
            changes: std::mem::take(&mut self.changes),
            refused: std::mem::take(&mut self.refused),
            troubles: std::mem::take(&mut self.troubles),
        };
        for chunk in self::chunks(&left) {
            links.send(chunk, WholeYak::clone).await?;
        }
        let Imports { changes, refused, troubles, .. } = links;
        (self.changes, self.refused, self.troubles) = (changes, refused, troubles);
        Ok(())
    }

    fn note(&mut self, change: Change) {
        match self.changes.get_mut(&change.id) {
            Some(known) => {
                let more = change.fields.into_iter();
                let more: Vec<_> = more.filter(|field| !known.fields.contains(field)).collect();
                known.fields.extend(more);
            }
            None => drop(self.changes.insert(change.id.clone(), change)),
        }
    }
}
