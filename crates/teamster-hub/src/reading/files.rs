//! Reads the files that people write, within bounds.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::beneath::{self, Directory};

/// As large as a configuration or role file may be: far more than anybody writes, little to read at every start.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// As many role files as are read of one directory.
const FILES_MAX: usize = 500;

/// Reads a text file, if it is there. A file of a project is below `within`, and no link leads to it: agents can make links,
/// also to what only the hub may read, and what is read becomes part of their prompts.
pub(crate) fn read_text(path: &Path, within: Option<&Path>) -> Result<Option<String>, String> {
    let opened = match within {
        // The user's own files may be links.
        None => open(path),
        Some(within) => {
            let below = path.strip_prefix(within).unwrap_or(path);
            Directory::open(within).and_then(|project| project.file(below, OFlags::RDONLY))
        }
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            return Err("is not a file".into());
        }
        Err(error) if within.is_some() && beneath::is_link(&error) => {
            return Err(
                "is a symbolic link, or below one, and is not used; a project's file has to be a \
                        regular file in the project"
                    .into(),
            );
        }
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {} KB and is not used", FILE_BYTES_MAX >> 10));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err("is not UTF-8 and is not used".into()),
    }
}

/// Opens a regular file. Opening a pipe would wait for its writer.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(ErrorKind::InvalidInput.into()),
    }
}

/// Returns the Markdown files of a directory in the order of their names; a directory that is not there has none.
pub(crate) fn markdown_files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    files.sort();
    files.truncate(FILES_MAX);
    files
}
