//! `teamster export` and `teamster import`: the whole log as lines of JSON, and back.
//!
//! A line holds one commit with the very text of its body, so that an imported log has the same hashes; the last line is
//! the head, so that a file that was cut off is noticed.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use teamster_log::{Commit, CommitId, Hash, Head, Log, Options, Rewrite};

use super::{Progress, say};
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
pub(super) struct ExportArgs {
    /// The file to write [default: stdout]
    file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
    /// A file that `teamster export` wrote
    file: PathBuf,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Commit {
        number: u64,
        id: String,
        prev: String,
        body: String,
    },
    /// The end: the last commit's number and hash.
    Head {
        number: u64,
        hash: String,
    },
}

/// As many commits as are read at once.
const PAGE: usize = 1_000;

pub(super) async fn export(data: &DataFiles, args: ExportArgs) -> anyhow::Result<()> {
    let log = teamster_log::open_readonly(data.directory())?;
    match &args.file {
        None => write(log.as_ref(), &mut std::io::stdout().lock()).await.map(|_| ()),
        Some(path) => write_file(log.as_ref(), path).await,
    }
}

/// Writes the log into a new file; durable when `Ok`.
pub(super) async fn write_file(log: &dyn Log, path: &Path) -> anyhow::Result<()> {
    let file = create_private(path).with_context(|| format!("cannot make {}", path.display()))?;
    let mut writer = BufWriter::new(file);
    let head = write(log, &mut writer).await?;
    writer.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    say(&format!("{} commits are in {}", head.number, path.display()));
    Ok(())
}

/// Whoever can read the file knows what all agents wrote, as with the log itself.
fn create_private(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes the log as it is now; what is appended meanwhile is left out.
async fn write(log: &dyn Log, to: &mut dyn Write) -> anyhow::Result<Head> {
    let end = log.head().await?;
    let mut at = Head::EMPTY;
    while at.number < end.number {
        let commits = log.read(at.number, PAGE).await?;
        if commits.is_empty() {
            bail!(
                "the log ends at commit {} instead of {}; `teamster log verify` shows more",
                at.number,
                end.number
            );
        }
        for commit in commits.iter().take_while(|commit| commit.number <= end.number) {
            let line = Line::Commit {
                number: commit.number,
                id: commit.id.to_string(),
                prev: commit.prev.to_string(),
                body: String::from_utf8(commit.body.clone()).context("a body is not text")?,
            };
            put(to, &line)?;
            at = Head::of(commit);
        }
    }
    put(to, &Line::Head { number: at.number, hash: at.hash.to_string() })?;
    to.flush()?;
    Ok(at)
}

fn put(to: &mut dyn Write, line: &Line) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *to, line).map_err(std::io::Error::from)?;
    to.write_all(b"\n")?;
    Ok(())
}

pub(super) async fn import(data: &DataFiles, args: ImportArgs) -> anyhow::Result<()> {
    // The whole file is checked first, so that nothing of a bad one is taken over.
    let head = check(&args.file)?;
    // The log takes its place when it is whole: a hub never starts on a part of one.
    drop(teamster_log::open(data.directory(), Options::default())?);
    let rewrite = Rewrite::begin(data.directory(), Options::default())?;
    if rewrite.old().head().await?.number > 0 {
        bail!(
            "{} has a log already; import into an empty directory (--data DIR)",
            data.directory().display()
        );
    }
    let log = rewrite.new_log();
    let mut progress = Progress::new("importing");
    for commit in commits(&args.file)? {
        let Some(commit) = commit? else { break };
        let number = commit.number;
        log.append(commit).await.with_context(|| format!("cannot take over commit {number}"))?;
        progress.say(number, head.number);
    }
    if log.head().await?.hash != head.hash {
        bail!("the imported log ends otherwise than the file says");
    }
    rewrite.finish()?;
    say(&format!("{} commits are in {}", head.number, data.directory().display()));
    Ok(())
}

/// Makes sure that every line follows the one before it and that none is missing at the end.
fn check(path: &Path) -> anyhow::Result<Head> {
    let mut at = Head::EMPTY;
    for (n, commit) in commits(path)?.enumerate() {
        let Some(commit) = commit.with_context(|| format!("line {}", n + 1))? else {
            return end(path, at);
        };
        if !at.is_followed_by(&commit) {
            bail!("line {}: commit {} does not follow the one before it", n + 1, commit.number);
        }
        at = Head::of(&commit);
    }
    bail!("{} has no end: it was cut off", path.display())
}

/// Compares what was read with the line that ends the file.
fn end(path: &Path, at: Head) -> anyhow::Result<Head> {
    let last = BufReader::new(File::open(path)?).lines().last().context("the file is empty")??;
    match serde_json::from_str(&last)? {
        Line::Head { number, hash } if number == at.number && hash == at.hash.to_string() => Ok(at),
        Line::Head { number, .. } => {
            bail!("the file says it ends with commit {number}, and has other commits")
        }
        Line::Commit { .. } => bail!("something follows the end of the file"),
    }
}

/// Returns the commits of a file, and `None` for the line that ends it.
fn commits(path: &Path) -> anyhow::Result<impl Iterator<Item = anyhow::Result<Option<Commit>>>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(BufReader::new(file).lines().map(|line| {
        match serde_json::from_str(&line?)
            .context("it is not a line that `teamster export` writes")?
        {
            Line::Head { .. } => Ok(None),
            Line::Commit { number, id, prev, body } => {
                let prev: Hash = prev.parse()?;
                Ok(Some(Commit { number, id: read_id(&id)?, prev, body: body.into_bytes() }))
            }
        }
    }))
}

fn read_id(text: &str) -> anyhow::Result<CommitId> {
    let fits = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = if fits { u128::from_str_radix(text, 16).ok() } else { None };
    number
        .map(|number| CommitId(number.to_be_bytes()))
        .with_context(|| format!("{text:?} is not a commit's id"))
}
