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
    pub(crate) fn new(at: &Origin, says: impl AsRef<str>) -> Self {
        Self {
            file: at.source.clone(),
            line: at.line,
            says: harmless(says.as_ref()),
            is_fatal: false,
        }
    }

    /// A problem because of which nothing of the file is used.
    pub(crate) fn fatal(at: &Origin, says: impl AsRef<str>) -> Self {
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
