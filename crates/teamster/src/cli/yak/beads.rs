//! `teamster yak import-beads`: takes in the issues of a beads tracker, one JSON object in each line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;
use teamster_core::text;
use teamster_core::yak::{Priority, YAKS_MAX, YakId};

use super::directory::origin;
use super::file;
use super::import::{Candidate, Manner, take_in};
use crate::cli::say;
use teamster_api::Client;
use teamster_api::yaks::{Status, WholeContent, WholeYak};
use teamster_hub::settings::{Origin, Problem};

const DEFAULT: &str = ".beads/issues.jsonl";
const LINE_BYTES_MAX: u64 = 1 << 20;
/// As much as is read of a file: the yaks that a backlog can hold, and more than anybody has.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// A title of ours is shorter than one of beads.
const TITLE_BYTES_MAX: usize = 300;
const LABEL_BYTES_MAX: usize = 60;
/// As long as an id is that is made of another one.
const ID_BYTES_MAX: usize = 100;

/// What beads uses the same lines for, and is no work to be done.
const OTHER_TYPES: [&str; 3] = ["message", "molecule", "merge-request"];
/// Deleted, or there to be read only.
const OTHER_STATUSES: [&str; 2] = ["tombstone", "pinned"];

/// An issue, as far as there is a place for it here.
#[derive(Debug, Deserialize)]
struct Bead {
    /// Newer exports have lines of other kinds.
    #[serde(rename = "_type")]
    line: Option<String>,
    id: Option<String>,
    title: Option<String>,
    description: Option<String>,
    design: Option<String>,
    acceptance_criteria: Option<String>,
    notes: Option<String>,
    status: Option<String>,
    priority: Option<i64>,
    issue_type: Option<String>,
    created_at: Option<String>,
    updated_at: Option<String>,
    labels: Option<Vec<String>>,
    dependencies: Option<Vec<Dependency>>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    depends_on_id: Option<String>,
    #[serde(rename = "type", alias = "dep_type")]
    kind: Option<String>,
}

/// What a file comes to.
#[derive(Default)]
struct Beads {
    candidates: Vec<Candidate>,
    problems: Vec<Problem>,
    /// The line of each yak.
    lines: BTreeMap<String, usize>,
    /// Those that are no yaks.
    skipped: BTreeSet<String>,
    n_skipped: usize,
}

pub(super) async fn run(
    client: &mut Client,
    named: Option<PathBuf>,
    dry_run: bool,
) -> anyhow::Result<()> {
    let path = named.unwrap_or_else(|| DEFAULT.into());
    let Beads { candidates, problems, n_skipped, .. } = read(&path)?;
    if n_skipped > 0 {
        say(&format!("left out what is deleted, pinned or no work: {n_skipped}"));
    }
    let manner = Manner { prefix: None, only_new: true, dry_run };
    take_in(client, candidates, problems, manner).await
}

fn read(path: &Path) -> anyhow::Result<Beads> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !file.metadata()?.is_file() {
        bail!("{} is not a file", path.display());
    }
    let mut lines = BufReader::new(file.take(FILE_BYTES_MAX + 1));
    let mut beads = Beads::default();
    let mut n_bytes = 0;
    for n in 1.. {
        let mut line = Vec::new();
        n_bytes += (&mut lines).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)? as u64;
        if line.is_empty() {
            break;
        }
        let at = origin(path).line(n);
        let is_whole = line.len() as u64 <= LINE_BYTES_MAX || line.ends_with(b"\n");
        if !is_whole {
            n_bytes += skip_line(&mut lines)?;
            let says = format!("is longer than {LINE_BYTES_MAX} bytes and is left out");
            beads.problems.push(Problem::new(&at, says));
        } else if !line.trim_ascii().is_empty() {
            beads.add(&line, n, at);
        }
        if n_bytes > FILE_BYTES_MAX || beads.candidates.len() > YAKS_MAX {
            bail!(
                "{} is too large: at most {YAKS_MAX} issues and {} MB are read",
                path.display(),
                FILE_BYTES_MAX >> 20
            );
        }
    }
    beads.leave_out_skipped();
    Ok(beads)
}

/// Reads to the end of a line and keeps nothing of it.
fn skip_line(lines: &mut impl BufRead) -> std::io::Result<u64> {
    let mut skipped = 0;
    loop {
        let bytes = lines.fill_buf()?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let n = end.map_or(bytes.len(), |end| end + 1);
        lines.consume(n);
        skipped += n as u64;
        if end.is_some() || n == 0 {
            return Ok(skipped);
        }
    }
}

impl Beads {
    fn add(&mut self, line: &[u8], n: usize, at: Origin) {
        let bead = match serde_json::from_slice::<Bead>(line) {
            Ok(bead) => bead,
            Err(error) => {
                // Its line is always the first, and ours is told.
                let error = error.to_string();
                let why = error.split(" at line ").next().unwrap_or_default();
                self.problems.push(Problem::new(&at, format!("is not an issue of beads: {why}")));
                return;
            }
        };
        let is = |word: &Option<String>, words: &[&str]| {
            word.as_deref().is_some_and(|word| words.contains(&word))
        };
        if bead.line.as_deref().is_some_and(|line| line != "issue")
            || is(&bead.issue_type, &OTHER_TYPES)
            || is(&bead.status, &OTHER_STATUSES)
        {
            self.n_skipped += 1;
            self.skipped.extend(bead.id.as_deref().map(as_id));
            return;
        }
        match candidate(bead) {
            Ok(yak) => match self.lines.get(&yak.id) {
                Some(first) => {
                    let says = format!("{} is in line {first} already", yak.id);
                    self.problems.push(Problem::new(&at, says));
                }
                None => {
                    self.lines.insert(yak.id.clone(), n);
                    self.candidates.push(Candidate { yak, at, lines: BTreeMap::new() });
                }
            },
            Err(says) => self.problems.push(Problem::new(&at, says)),
        }
    }

    /// What was deleted keeps nobody waiting.
    fn leave_out_skipped(&mut self) {
        for candidate in &mut self.candidates {
            if let Some(depends_on) = &mut candidate.yak.depends_on {
                depends_on.retain(|on| !self.skipped.contains(on));
            }
        }
    }
}

fn candidate(bead: Bead) -> Result<WholeYak, String> {
    let given = bead.id.as_deref().map(str::trim).filter(|id| !id.is_empty());
    let given = given.ok_or("has no id")?;
    let id = as_id(given);
    let mut labels = bead.labels.unwrap_or_default();
    if id != given {
        labels.push(text::beginning(&format!("beads:{given}"), LABEL_BYTES_MAX).to_string());
    }
    let kind = file::kind(bead.issue_type.as_deref(), &mut labels);
    let mut depends_on = Vec::new();
    for Dependency { depends_on_id, kind } in bead.dependencies.unwrap_or_default() {
        let Some(on) = depends_on_id else { continue };
        match kind.as_deref() {
            Some("blocks") => depends_on.push(as_id(&on)),
            // An id says whose child it is; a parent of another name is remembered.
            Some("parent-child") if parent(&id) != Some(&as_id(&on)) => {
                labels.push(text::beginning(&format!("parent:{on}"), LABEL_BYTES_MAX).to_string());
            }
            Some(_) | None => {}
        }
    }
    if labels.len() > teamster_core::yak::LINKS_MAX
        || depends_on.len() > teamster_core::yak::LINKS_MAX
    {
        return Err("has too many labels or dependencies".into());
    }
    let title = bead.title.unwrap_or_default();
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut description = bead.description.unwrap_or_default().trim().to_owned();
    if title.len() > TITLE_BYTES_MAX {
        description = format!("{title}\n\n{description}").trim().to_owned();
    }
    let parts = [
        ("Design", bead.design),
        ("Acceptance criteria", bead.acceptance_criteria),
        ("Notes", bead.notes),
    ];
    for (name, part) in parts {
        let part = part.as_deref().map(str::trim).filter(|part| !part.is_empty());
        if let Some(part) = part {
            description = format!("{description}\n\n## {name}\n\n{part}").trim().to_owned();
        }
    }
    if description.len() > text::TEXT_BYTES_MAX {
        return Err(format!(
            "has a text of {} bytes; the limit is {}",
            description.len(),
            text::TEXT_BYTES_MAX
        ));
    }
    let time = |name: &str, text: Option<String>| match text {
        None => Ok(None),
        Some(text) => match file::read_time(&text) {
            Some(time) => Ok(Some(time)),
            None => Err(format!("{name}: {text:?} is not a time")),
        },
    };
    Ok(WholeYak {
        id,
        content: Some(WholeContent {
            title: text::beginning(&title, TITLE_BYTES_MAX).to_string(),
            kind,
            priority: match bead.priority {
                None => Priority::IMPORTANT.number().into(),
                Some(0 | 1) => 1,
                Some(2) => 2,
                Some(3 | 4) => 3,
                Some(other) => return Err(format!("priority: {other} is not one of 0 to 4")),
            },
            description,
            status: match bead.status.as_deref() {
                Some("in_progress") => Status::Shaving,
                Some("closed") => Status::Shorn,
                Some(_) | None => Status::Hairy,
            },
            labels,
            commit: None,
        }),
        depends_on: Some(depends_on),
        created_at: time("created_at", bead.created_at)?,
        updated_at: time("updated_at", bead.updated_at)?,
    })
}

fn parent(id: &str) -> Option<&str> {
    id.rsplit_once('.').map(|(parent, _)| parent)
}

/// Returns the id that a bead has here: its own, if it can be one, or else one that is always made of it in the same way.
fn as_id(given: &str) -> String {
    let given = given.trim();
    if YakId::parse(given).is_ok() {
        return given.to_owned();
    }
    let plain = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '-' | '_') => c,
        _ => '-',
    };
    // The numbers of children can stay what they are.
    let small = given.to_ascii_lowercase();
    let name_end =
        small.find('.').filter(|dot| YakId::parse(&format!("x{}", &small[*dot..])).is_ok());
    let (name, children) = small.split_at(name_end.unwrap_or(small.len()));
    let name: String =
        name.chars().map(plain).take(ID_BYTES_MAX - children.len().min(60)).collect();
    let id = format!("{name}{children}");
    if YakId::parse(&id).is_ok() { id } else { format!("bd{id}") }
}

#[cfg(test)]
mod tests;
