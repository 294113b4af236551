//! The directory of a backlog in files: `hairy`, `shaving` and `shorn`, each with a file for each yak. It may come from
//! anybody, with a project: no link is followed, and everything has a bound.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::OFlags;
use teamster_api::yaks::Status;
use teamster_core::yak::YAKS_MAX;

use teamster_hub::settings::{Layer, Origin, Problem};

/// Where the backlog is if nobody says otherwise.
pub(super) const DEFAULT: &str = ".yaks";
pub(super) const CONFIG: &str = "config.yaml";
/// A description has at most 16 KiB, and the rest of a yak no more than that.
const FILE_BYTES_MAX: u64 = 64 << 10;

pub(super) struct Directory {
    pub(super) path: PathBuf,
}

/// A file that can be a yak's.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) status: Status,
    /// Its name, without `.md`.
    pub(super) stem: String,
}

/// What is in a directory.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) entries: Vec<Entry>,
    /// What is left alone, and why.
    pub(super) foreign: Vec<Problem>,
}

impl Directory {
    /// Takes the directory that a person named, or the usual one.
    pub(super) fn new(named: Option<PathBuf>) -> anyhow::Result<Self> {
        let path = match named {
            Some(path) => path,
            // A project could bring a link to anywhere under this name.
            None if Path::new(DEFAULT).is_symlink() => {
                bail!("{DEFAULT} is a link; name the directory that you mean")
            }
            None => DEFAULT.into(),
        };
        Ok(Self { path })
    }

    pub(super) fn path_of(&self, entry: &Entry) -> PathBuf {
        self.path.join(entry.status.as_str()).join(format!("{}.md", entry.stem))
    }

    /// Returns how people are told of a file.
    pub(super) fn origin(&self, entry: &Entry) -> Origin {
        origin(&self.path_of(entry))
    }

    pub(super) fn list(&self) -> anyhow::Result<Listing> {
        let mut listing = Listing::default();
        for status in Status::ALL.iter().copied() {
            self.list_status(status, &mut listing)?;
        }
        for (path, kind) in sorted(&self.path)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_known = Status::ALL.iter().any(|status| status.as_str() == name);
            if kind.is_dir() && !is_known {
                let says = "is not one of hairy, shaving and shorn, and is left alone";
                listing.foreign.push(Problem::new(&origin(&path), says));
            }
        }
        Ok(listing)
    }

    fn list_status(&self, status: Status, listing: &mut Listing) -> anyhow::Result<()> {
        let path = self.path.join(status.as_str());
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
            Ok(metadata) if metadata.is_dir() => {}
            Ok(metadata) => {
                let says = match metadata.is_symlink() {
                    true => "is a link and is not followed",
                    false => "is not a directory",
                };
                listing.foreign.push(Problem::fatal(&origin(&path), says));
                return Ok(());
            }
        }
        for (path, kind) in sorted(&path)? {
            let name = path.file_name().and_then(|name| name.to_str());
            let stem = name.and_then(|name| name.strip_suffix(".md"));
            let mut foreign = |problem: Problem| listing.foreign.push(problem);
            match stem {
                Some(_) if kind.is_symlink() => {
                    foreign(Problem::fatal(&origin(&path), "is a link and is not followed"));
                }
                Some(_) if !kind.is_file() => {
                    foreign(Problem::fatal(&origin(&path), "is not a file"));
                }
                Some(stem) if !stem.is_empty() && !stem.starts_with('.') => {
                    listing.entries.push(Entry { status, stem: stem.to_owned() });
                }
                Some(_) | None => {
                    foreign(Problem::new(&origin(&path), "is not a yak's file and is left alone"));
                }
            }
        }
        if listing.entries.len() > YAKS_MAX {
            bail!("{} has more than {YAKS_MAX} yaks, which is the limit", self.path.display());
        }
        Ok(())
    }

    /// Reads a yak's file.
    pub(super) fn read(&self, entry: &Entry) -> Result<String, Problem> {
        read_text(&self.path_of(entry))
    }

    /// Reads what new ids begin with, if the directory says so.
    pub(super) fn prefix(&self) -> Result<Option<String>, Problem> {
        let path = self.path.join(CONFIG);
        if fs::symlink_metadata(&path).is_err() {
            return Ok(None);
        }
        let at = origin(&path);
        let config = teamster_hub::settings::read_yaml_as_text(&read_text(&path)?, 1, &at)?;
        let Some(prefix) = config.member("prefix") else { return Ok(None) };
        match prefix.json() {
            serde_json::Value::String(prefix) => Ok(Some(prefix)),
            _ => Err(Problem::new(&prefix.at, "prefix: must be text")),
        }
    }

    /// Makes what is missing of the directories.
    pub(super) fn make(&self) -> anyhow::Result<()> {
        let made = |path: &Path| {
            fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))
        };
        made(&self.path)?;
        for status in Status::ALL.iter().copied() {
            let path = self.path.join(status.as_str());
            if path.is_symlink() {
                bail!("{} is a link; nothing is written through it", path.display());
            }
            made(&path)?;
        }
        Ok(())
    }
}

pub(super) fn origin(path: &Path) -> Origin {
    Origin::new(Layer::Project, &path.display().to_string())
}

/// Reads a text file that must be there and no link.
fn read_text(path: &Path) -> Result<String, Problem> {
    let bad = |says: String| Problem::fatal(&origin(path), says);
    let told = |error: std::io::Error| bad(format!("cannot be read: {error}"));
    // A pipe would wait for whoever writes to it.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(told)?;
    if !file.metadata().map_err(told)?.is_file() {
        return Err(bad("is not a file".into()));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(told)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(bad(format!("is larger than {} KB and is not read", FILE_BYTES_MAX >> 10)));
    }
    String::from_utf8(bytes).map_err(|_| bad("is not UTF-8".into()))
}

/// Writes a file so that it is there whole, or as it was.
pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = path.with_file_name(format!(".{name}.new"));
        // One that was left behind; were it a link, it would not be written through.
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        File::create_new(&unfinished)?.write_all(text.as_bytes())?;
        fs::rename(&unfinished, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Returns what is in a directory, by name.
fn sorted(path: &Path) -> anyhow::Result<Vec<(PathBuf, fs::FileType)>> {
    let read = || -> std::io::Result<Vec<_>> {
        // As many again may be there as foreign files.
        let entries = fs::read_dir(path)?.take(2 * YAKS_MAX);
        entries
            .map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))))
            .collect()
    };
    let mut all = read().with_context(|| format!("cannot read {}", path.display()))?;
    all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(all)
}
