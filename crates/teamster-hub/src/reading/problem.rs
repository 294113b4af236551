//! What is wrong with a file, and where. A problem stops nothing; it is told.

use std::fmt;
use std::sync::Arc;

use super::tree::Origin;

/// Something in a file that is not used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file; or the variable of the environment, or the flag.
    pub file: Arc<str>,
    pub line: Option<usize>,
    pub says: String,
    /// Nothing of the file is used because of it.
    pub is_fatal: bool,
}

/// As much as a problem says: it may repeat what is in the file, which is somebody else's text.
const SAYS_MAX: usize = 400;

impl Problem {
    pub fn new(at: &Origin, says: impl AsRef<str>) -> Self {
        Self {
            file: at.source.clone(),
            line: at.line,
            says: harmless(says.as_ref()),
            is_fatal: false,
        }
    }

    /// A problem because of which nothing of the file is used.
    pub fn fatal(at: &Origin, says: impl AsRef<str>) -> Self {
        Self { is_fatal: true, ..Self::new(at, says) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.says),
            None => write!(f, "{}: {}", self.file, self.says),
        }
    }
}

/// Returns what is shown of a problem without the number of its line: it is the same wherever it has moved to in its file.
pub(crate) fn without_line(shown: &str) -> String {
    let is_line = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    shown.split(':').filter(|part| !is_line(part)).collect::<Vec<_>>().join(":")
}

/// Makes text from a file fit for a terminal.
fn harmless(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars().take(SAYS_MAX) {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    if text.chars().nth(SAYS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_the_same_on_another_line() {
        let (one, other) =
            ("/p/teamster.toml:3: x: 5 is wrong", "/p/teamster.toml:12: x: 5 is wrong");
        assert_eq!(without_line(one), without_line(other));
        assert_ne!(without_line(one), without_line("/p/teamster.toml:3: y: 5 is wrong"));
    }
}
