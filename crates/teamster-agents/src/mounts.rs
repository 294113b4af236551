//! What is mounted where, as the kernel tells it (Linux).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) path: PathBuf,
    /// The kind of its file system.
    pub(crate) kind: String,
}

/// Returns every mount that this process sees, in the order in which they were made.
pub(crate) fn all() -> io::Result<Vec<Mount>> {
    let list = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(list.lines().filter_map(read).collect())
}

/// Reads `36 35 98:0 / /mnt rw,noatime shared:1 - ext4 /dev/sda rw`.
fn read(line: &str) -> Option<Mount> {
    let (about, file_system) = line.split_once(" - ")?;
    let path = about.split(' ').nth(4)?;
    let kind = file_system.split(' ').next()?;
    Some(Mount { path: unescape(path), kind: kind.to_owned() })
}

/// Blanks and the like are written in octal: `\040`.
fn unescape(path: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let octal = (byte == b'\\').then(|| after.get(..3)).flatten();
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(meant) => {
                bytes.push(meant);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_read() {
        let line = r"36 35 98:0 /a /mnt/with\040blank\134 rw,noatime shared:1 - ext4 /dev/sda rw";
        let expected = Mount { path: r"/mnt/with blank\".into(), kind: "ext4".into() };
        assert_eq!(read(line), Some(expected));
        assert_eq!(read("36 35 98:0 / /mnt rw"), None);
    }
}
