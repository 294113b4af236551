//! Bounds on the texts that agents and people send.

use std::borrow::Cow;
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

/// Returns a text without what steers a terminal (colours, titles, movements), in which all other characters that show
/// nothing are written out.
pub fn plain(text: &str) -> String {
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
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    visible(&plain).into_owned()
}

/// Skips the rest of a terminal's control sequence: parameters, up to a letter.
fn skip_parameters(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

/// Says whether a character shows nothing, or changes how others are shown: controls, marks of direction, characters
/// without width, fillers, tags, and line breaks that only some programs know.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => {
            true
        }
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' => true,
        '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' => true,
        '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        c => c.is_control(),
    }
}

/// Says whether a hidden character belongs to the one before it: what joins or selects the forms of emoji and of letters
/// that have several.
fn shapes(c: char, before: Option<char>) -> bool {
    let Some(before) = before else { return false };
    let is_letter = !before.is_ascii() && !before.is_whitespace();
    match c {
        '\u{fe0e}' | '\u{fe0f}' => (is_letter || before.is_ascii_graphic()) && !is_hidden(before),
        '\u{200c}' | '\u{200d}' => {
            is_letter && (!is_hidden(before) || matches!(before, '\u{fe0e}' | '\u{fe0f}'))
        }
        _ => false,
    }
}

/// Returns a text in which every character that shows nothing is written as an escape, such as `\u{202e}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut before = None;
    for c in text.chars() {
        match is_hidden(c) && !shapes(c, before) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
        before = Some(c);
    }
    shown.into()
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
            ("ab\u{202e}c\u{0}d", "ab\\u{202e}cd"),
            ("cut \u{1b}[", "cut "),
            ("array[31m] stays", "array[31m] stays"),
        ] {
            assert_eq!(plain(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_shows_nothing_is_written_out_and_what_people_write_stays() {
        for text in [
            "",
            "plain\n\ttext – ü",
            "日本語 العربية עברית हिन्दी",
            "می\u{200c}خواهم",
            "❤\u{fe0f}\u{200d}🔥 👩\u{200d}💻 1\u{fe0f}⃣",
        ] {
            assert_eq!(visible(text), text);
        }
        for (text, expected) in [
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{200b}b", "a\\u{200b}b"),
            ("use\u{200d}r", "use\\u{200d}r"),
            ("\u{200d}", "\\u{200d}"),
            ("é\u{200d}\u{200d}", "é\u{200d}\\u{200d}"),
            ("\u{e0041}", "\\u{e0041}"),
            ("\u{7}", "\\u{7}"),
            ("a\u{2028}b", "a\\u{2028}b"),
        ] {
            assert_eq!(visible(text), expected);
            assert_eq!(visible(expected), expected, "twice is as once");
        }
    }
}
