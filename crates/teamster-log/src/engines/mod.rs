//! The engines, and which of them a data directory uses.

mod blob_files;
mod directory;
mod files;
mod location;
pub mod memory;
mod page;
mod rewrite;
mod snapshots;
pub mod sqlite;
mod tail;

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::directory::{FileSystem, file_system};
pub use self::location::{BadLocation, Location};
pub use self::rewrite::Rewrite;
use crate::Log;

/// An engine that keeps its log in a data directory.
struct Engine {
    /// What `<dir>/engine` says.
    name: &'static str,
    /// The newest layout of the directory that this program understands.
    format: u32,
    open: fn(directory::Lock, Options) -> Result<Arc<dyn Log>, OpenError>,
    open_readonly: fn(&Path) -> Result<Arc<dyn Log>, OpenError>,
    /// Moves the files of a rewritten log over the old ones.
    adopt: fn(&Path, &Path) -> io::Result<()>,
}

/// Every engine; a new directory gets the first.
const ENGINES: &[Engine] = &[Engine {
    name: "sqlite",
    format: 1,
    open: |lock, options| Ok(Arc::new(sqlite::Sqlite::open_locked(lock, options)?)),
    open_readonly: |dir| Ok(Arc::new(sqlite::Sqlite::open_readonly(dir)?)),
    adopt: sqlite::adopt,
}];

/// How to open a log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Opens it on a network file system too, where neither the lock nor the engine's durability can be relied on.
    pub accept_network_file_system: bool,
    /// Anything but the default loses what was acknowledged. For tests, which show that they would notice.
    #[doc(hidden)]
    pub synchronous: Synchronous,
}

/// When the database waits for the disk.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// Acknowledged means synced.
    #[default]
    Full,
    /// Loses acknowledged commits when the power fails.
    Normal,
    /// Loses whole databases when the power fails.
    Off,
}

/// Why a log was not opened. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the data directory {dir} is in use by {holder}; look at it with `teamster status`, or choose another with --data",
        holder = pid.map_or("another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse { dir: PathBuf, pid: Option<u32> },
    #[error(
        "there is no log in {dir}; name a data directory with --data, or start a hub to make one"
    )]
    NoLog { dir: PathBuf },
    #[error(
        "{dir} says that its engine is {engine:?}, which this version of teamster does not know (it knows {known}); \
             use the version that made it"
    )]
    UnknownEngine { dir: PathBuf, engine: String, known: String },
    #[error("the log in {dir} is of the engine {found}, and not of {wanted}; name {found} instead")]
    OtherEngine { dir: PathBuf, found: &'static str, wanted: &'static str },
    #[error(
        "{path} has format {found}, and this version of teamster knows formats up to {known}; use a newer version"
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error(
        "{dir} is on a network file system ({kind}), where a log can be lost; choose a local directory with --data, or \
             accept the risk with --data 'sqlite://{dir}?network=accept'"
    )]
    NetworkFileSystem { dir: PathBuf, kind: &'static str },
    #[error(
        "the log in {dir} was not closed, and nothing can be written there; copy the directory to a place where you can write, \
         and name the copy with --data"
    )]
    NotClosed { dir: PathBuf },
    #[error("there is no room on the disk of {path}; make some, then try again")]
    DiskFull { path: PathBuf },
    #[error(
        "the log in {dir} has lost its end: {lost}; restore it from a backup, or, to go on with what is left, remove {note}"
    )]
    Lost { dir: PathBuf, lost: String, note: PathBuf },
    #[error("cannot {doing}")]
    Failed {
        doing: String,
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl OpenError {
    fn failed(doing: String, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Failed { doing, source: source.into() }
    }
}

/// Opens the log in `dir` for this process alone, and makes both if they do not exist.
pub fn open(dir: &Path, options: Options) -> Result<Arc<dyn Log>, OpenError> {
    let lock = directory::Lock::take(dir, options)?;
    let engine = match directory::read_engine(dir)? {
        Some(line) => find(dir, &line)?,
        None => {
            let first = &ENGINES[0];
            directory::write_engine(dir, &format!("{} {}\n", first.name, first.format))?;
            first
        }
    };
    rewrite::settle(dir, engine.adopt)?;
    (engine.open)(lock, options)
}

/// Opens the log at a location for this process alone, and makes it if it does not exist. Asynchronous, because an engine
/// may have to reach other machines.
pub async fn open_at(location: &Location) -> Result<Arc<dyn Log>, OpenError> {
    let Location { engine, directory, options } = location.clone();
    let opening = move || {
        if let (Some(wanted), Some(line)) = (engine, directory::read_engine(&directory)?) {
            let found = find(&directory, &line)?.name;
            if found != wanted {
                return Err(OpenError::OtherEngine { dir: directory, found, wanted });
            }
        }
        open(&directory, options)
    };
    match tokio::task::spawn_blocking(opening).await {
        Ok(opened) => opened,
        Err(error) => Err(OpenError::failed("open the log".to_owned(), error)),
    }
}

/// Opens the log in `dir` to look at it, whether or not a hub is using it.
pub fn open_readonly(dir: &Path) -> Result<Arc<dyn Log>, OpenError> {
    match directory::read_engine(dir)? {
        Some(line) => (find(dir, &line)?.open_readonly)(dir),
        None => Err(OpenError::NoLog { dir: dir.to_owned() }),
    }
}

fn find(dir: &Path, line: &str) -> Result<&'static Engine, OpenError> {
    let words = line.split_whitespace().collect::<Vec<_>>();
    let unknown = || OpenError::UnknownEngine {
        dir: dir.to_owned(),
        engine: line.trim().to_owned(),
        known: ENGINES.iter().map(|engine| engine.name).collect::<Vec<_>>().join(", "),
    };
    let [name, format] = words[..] else { return Err(unknown()) };
    let engine = ENGINES.iter().find(|engine| engine.name == name).ok_or_else(unknown)?;
    let found = format.parse::<u32>().map_err(|_| unknown())?;
    if found > engine.format {
        return Err(OpenError::Newer {
            path: directory::engine_path(dir),
            found,
            known: engine.format,
        });
    }
    Ok(engine)
}
