//! `teamster backup` and `teamster restore`: everything the hub knows, as a data directory of its own.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use teamster_log::{Head, Log, OpenError, Options, Verbatim};

use super::{Progress, print, say};
use teamster_hub::config::{DataFiles, write_private};

#[derive(Debug, clap::Args)]
pub(super) struct BackupArgs {
    /// The directory to make
    directory: PathBuf,

    /// Copy the tokens and the seal key too: whoever reads the backup can then act as the operator
    #[arg(long)]
    with_tokens: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct RestoreArgs {
    /// A directory that `teamster backup` made
    directory: PathBuf,
}

pub(super) async fn backup(data: &DataFiles, args: BackupArgs) -> anyhow::Result<()> {
    let target = args.directory;
    if target.exists() {
        bail!("{} exists already; name a directory that does not", target.display());
    }
    let log = teamster_log::open_readonly(data.directory())?;
    let kept = if args.with_tokens { Kept::Everything } else { Kept::NoSecrets };
    let head = make(log.as_ref(), data, &target, kept, "backing up").await?;
    print(&format!("{}:{}", head.number, head.hash))?;
    say(&format!(
        "{} commits are in {}; the line above is their head",
        head.number,
        target.display()
    ));
    if kept == Kept::NoSecrets {
        say(
            "the operator's token is not in it: a hub that starts there makes a new one (--with-tokens copies it)",
        );
    }
    Ok(())
}

pub(super) async fn restore(data: &DataFiles, args: RestoreArgs) -> anyhow::Result<()> {
    let source = DataFiles::of(&args.directory);
    let backup = match teamster_log::open_readonly(source.directory()) {
        Err(OpenError::NoLog { dir }) => {
            bail!("{} is no backup; name a directory that `teamster backup` made", dir.display())
        }
        opened => opened?,
    };
    let report = teamster_log::verify(backup.as_ref(), None).await?;
    if let Some(broken) = report.broken {
        bail!(
            "commit {} of the backup is broken: {}; nothing was restored",
            broken.number,
            broken.why
        );
    }
    if let Some(damage) = report.damage {
        bail!("the backup is damaged: {damage}; nothing was restored");
    }
    let target = data.directory();
    if target.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        bail!(
            "{0} has something in it; stop its hub and move it away first (for instance `mv {0} {0}.old`), \
             or restore into another directory with --data",
            target.display()
        );
    }
    let head = make(backup.as_ref(), &source, target, Kept::Everything, "restoring").await?;
    say(&format!(
        "{} commits are in {}; start the hub with `{}`",
        head.number,
        target.display(),
        data.call("up -d")
    ));
    Ok(())
}

/// Makes the data directory `target` with a copy of the log and of the files beside it. It has another name until it is
/// whole, so that nobody takes a part for all of it.
async fn make(
    log: &dyn Log,
    files: &DataFiles,
    target: &Path,
    kept: Kept,
    doing: &'static str,
) -> anyhow::Result<Head> {
    let name = target.file_name().context("name the directory to make")?.to_string_lossy();
    let unfinished = target.with_file_name(format!("{name}.unfinished-{}", std::process::id()));
    if unfinished.exists() {
        bail!("{} is in the way; remove it", unfinished.display());
    }
    let copy = teamster_log::open(&unfinished, Options::default())?;
    let mut progress = Progress::new(doing);
    let mut say = |done, all| progress.say(done, all);
    let head = teamster_log::copy(log, copy.as_ref(), &mut Verbatim, &mut say).await?;
    drop(copy);
    copy_files(files, &DataFiles::of(&unfinished), kept)?;
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::rename(&unfinished, target)
        .and_then(|()| File::open(parent.unwrap_or(Path::new(".")))?.sync_all())
        .with_context(|| format!("cannot make {}", target.display()))?;
    Ok(head)
}

/// Which files beside the log are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// All that there are: the copy is the same hub for everybody.
    Everything,
    /// Where it listens. A hub that starts there makes its own tokens and seal key; tokens of connected agents, of which
    /// the log has the hashes, stay valid.
    NoSecrets,
}

fn copy_files(from: &DataFiles, to: &DataFiles, kept: Kept) -> anyhow::Result<()> {
    let secrets = [DataFiles::operator_token, DataFiles::agent_token, DataFiles::seal_key];
    let secrets = secrets.into_iter().filter(|_| kept == Kept::Everything);
    let kept = secrets.chain([DataFiles::address as fn(&DataFiles) -> PathBuf]);
    for file in kept {
        match std::fs::read(file(from)) {
            Ok(contents) => write_private(&file(to), &contents)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file(from).display()));
            }
        }
    }
    Ok(())
}
