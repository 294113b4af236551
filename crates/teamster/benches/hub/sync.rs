//! The least that a durable write can cost: bytes appended to a file, and an fdatasync.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::load::micros;

/// A file that is removed when nobody holds it any more.
pub(crate) struct SyncedFile {
    file: File,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl SyncedFile {
    /// Makes a file to which so many bytes are appended each time.
    pub(crate) fn new(directory: &Path, size_bytes: usize) -> Self {
        let path = directory.join("synced");
        let file = File::create(&path).expect("a file to sync");
        Self { file, path, bytes: vec![b'x'; size_bytes] }
    }

    /// Appends and syncs once. Returns how long that took, in microseconds.
    pub(crate) fn append(&mut self) -> f64 {
        let before = Instant::now();
        self.file.write_all(&self.bytes).expect("it can be written");
        self.file.sync_data().expect("it can be synced");
        micros(before.elapsed())
    }
}

impl Drop for SyncedFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
