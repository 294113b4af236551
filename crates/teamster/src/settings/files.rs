//! Reads the files that people write, within bounds.

use std::io::Read;
use std::path::{Path, PathBuf};

/// As large as a configuration or role file may be: far more than anybody writes, little to read at every start.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// As many role files as are read of one directory.
const FILES_MAX: usize = 500;

/// Reads a text file, if it is there. A file of a project must lie `within` it: a link out of it would show agents what
/// the project does not have.
pub(crate) fn read_text(path: &Path, within: Option<&Path>) -> Result<Option<String>, String> {
    let told = |error: std::io::Error| format!("cannot be read: {error}");
    let real = match std::fs::canonicalize(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        real => real.map_err(told)?,
    };
    if let Some(within) = within {
        let within = std::fs::canonicalize(within).map_err(told)?;
        if !real.starts_with(&within) {
            return Err("leads out of the project and is not used".into());
        }
    }
    // Opening a pipe would wait for whoever writes to it.
    if !std::fs::metadata(&real).map_err(told)?.is_file() {
        return Err("is not a file".into());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&real).map_err(told)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(told)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {} KB and is not used", FILE_BYTES_MAX >> 10));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err("is not UTF-8 and is not used".into()),
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
