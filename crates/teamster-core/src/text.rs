//! Bounds on the texts that agents and people send.

use std::iter::Peekable;
use std::str::Chars;
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

/// Returns a text without what steers a terminal (colours, titles, movements) and without characters that change the order
/// in which it is read.
pub fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{9b}' => skip_parameters(&mut chars),
            '\u{1b}' => match chars.next_if(|c| *c != '\n') {
                Some('[') => skip_parameters(&mut chars),
                // A text, up to a bell or to the escape of `ESC \`, whose rest is taken next.
                Some(']' | 'P' | 'X' | '^' | '_') => {
                    let goes_on = |c: &char| !matches!(c, '\u{7}' | '\u{1b}' | '\n');
                    while chars.next_if(goes_on).is_some() {}
                }
                Some(' '..='/') => drop(chars.next_if(|c| matches!(c, '0'..='~'))),
                Some(_) | None => {}
            },
            // Programs that show progress write over their line.
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => plain.push('\n'),
            '\n' | '\t' => plain.push(c),
            c if c.is_control() || turns(c) => {}
            c => plain.push(c),
        }
    }
    plain
}

/// Skips the rest of a terminal's control sequence: parameters, up to a letter.
fn skip_parameters(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_titles_and_links_are_left_out() {
        for (text, expected) in [
            ("plain\n\ttext – ü", "plain\n\ttext – ü"),
            ("\u{1b}[1;31mred\u{1b}[0m and \u{1b}[38;5;12mblue\u{1b}[m", "red and blue"),
            ("\u{9b}31mred\u{9b}0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("one\r\ntwo\rthree", "one\ntwo\nthree"),
            ("ab\u{202e}c\u{0}d", "abcd"),
            ("cut \u{1b}[", "cut "),
            ("array[31m] stays", "array[31m] stays"),
        ] {
            assert_eq!(plain(text), expected, "{text:?}");
        }
    }
}
