//! Bounds on the texts that agents and people send.

use std::sync::Arc;

/// The longest text an event carries; longer bodies belong in a blob or a file.
pub const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Why a text is refused; `field` is how the caller knows it, e.g. `tasks[2].content`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadText {
    #[error("{field} is empty; give it some text")]
    Empty { field: String },
    #[error(
        "{field} is {bytes} bytes long; the limit is {max}, so put long text into a file and name it"
    )]
    TooLong { field: String, bytes: usize, max: usize },
    #[error("{field} has a line break or tab in it; give it as one line")]
    SeveralLines { field: String },
    #[error(
        "{field} contains a control character ({character}); only line breaks and tabs are allowed"
    )]
    Control { field: String, character: String },
}

/// Returns `given` without surrounding white space, if it is a text of 1 to [`TEXT_BYTES_MAX`] bytes.
pub fn body(field: impl Into<String>, given: &str) -> Result<Arc<str>, BadText> {
    checked(field.into(), given, TEXT_BYTES_MAX)
}

/// Returns `given` as one line of at most `max` bytes.
pub fn line(field: impl Into<String>, given: &str, max: usize) -> Result<Arc<str>, BadText> {
    let field = field.into();
    if given.trim().contains(['\n', '\r', '\t']) {
        return Err(BadText::SeveralLines { field });
    }
    checked(field, given, max)
}

/// Returns `given` if it is a text of at most `max` bytes, for the few that may be longer than [`TEXT_BYTES_MAX`].
pub fn long(field: impl Into<String>, given: &str, max: usize) -> Result<Arc<str>, BadText> {
    checked(field.into(), given, max)
}

/// Returns a text without what would steer a terminal, or have it read in another order than it is in.
pub fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.replace(|c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || turns(c), "")
}

/// Returns the beginning of a text that may be too long to be kept, as much as fits into `max` bytes.
pub fn beginning(text: &str, max: usize) -> Arc<str> {
    const CUT: &str = "…";
    if text.len() <= max {
        return text.into();
    }
    let mut end = max.saturating_sub(CUT.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT}", &text[..end]).into()
}

fn checked(field: String, given: &str, max: usize) -> Result<Arc<str>, BadText> {
    let text = given.trim();
    if text.is_empty() {
        return Err(BadText::Empty { field });
    }
    if text.len() > max {
        return Err(BadText::TooLong { field, bytes: text.len(), max });
    }
    if let Some(control) = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
    {
        return Err(BadText::Control { field, character: control.escape_unicode().to_string() });
    }
    Ok(text.into())
}

/// A stable 64-bit fingerprint (FNV-1a) for indexes and for telling calls apart. Equal texts have equal fingerprints;
/// whoever looks one up compares the texts too.
pub fn fingerprint(text: impl Iterator<Item = u8>) -> u64 {
    text.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
