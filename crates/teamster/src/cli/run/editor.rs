//! A line that is being written.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::cli::screen::{clean_line, width};

/// As long as a message may be for the hub.
const BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct Editor {
    chars: Vec<char>,
    /// Before which of them.
    cursor: usize,
}

/// What a key did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    On,
    Sent,
    Cancelled,
}

impl Editor {
    pub(super) fn with(text: &str) -> Self {
        let mut editor = Self::default();
        editor.insert(text);
        editor
    }

    pub(super) fn text(&self) -> String {
        self.chars.iter().collect()
    }

    /// Puts a text where the cursor is; it is all one line.
    pub(super) fn insert(&mut self, text: &str) {
        let mut room = BYTES_MAX.saturating_sub(self.text().len());
        let text = if text.trim().is_empty() { text.to_owned() } else { one_line(text) };
        for c in text.chars().filter(|c| !c.is_control()) {
            if c.len_utf8() > room {
                break;
            }
            room -= c.len_utf8();
            self.chars.insert(self.cursor, c);
            self.cursor += 1;
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Typed {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => return Typed::Sent,
            KeyCode::Esc => return Typed::Cancelled,
            KeyCode::Char('c') if control => return Typed::Cancelled,
            KeyCode::Left => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right => self.cursor = (self.cursor + 1).min(self.chars.len()),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.chars.len(),
            KeyCode::Char('a') if control => self.cursor = 0,
            KeyCode::Char('e') if control => self.cursor = self.chars.len(),
            KeyCode::Char('u') if control => {
                self.chars.drain(..self.cursor);
                self.cursor = 0;
            }
            KeyCode::Char('k') if control => self.chars.truncate(self.cursor),
            KeyCode::Char('w') if control => {
                let before = &self.chars[..self.cursor];
                let end = before.iter().rposition(|c| *c != ' ').unwrap_or_default();
                let start = before[..end].iter().rposition(|c| *c == ' ').map_or(0, |at| at + 1);
                self.chars.drain(start..self.cursor);
                self.cursor = start;
            }
            KeyCode::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.chars.remove(self.cursor);
            }
            KeyCode::Delete if self.cursor < self.chars.len() => {
                self.chars.remove(self.cursor);
            }
            KeyCode::Char(c) if !control => self.insert(&c.to_string()),
            _ => {}
        }
        Typed::On
    }

    /// Returns the part of the line that so many columns show, and in which of them the cursor is.
    pub(super) fn shown(&self, columns: usize) -> (String, usize) {
        let columns = columns.max(2);
        let wide = |c: char| width(c.encode_utf8(&mut [0; 4]));
        // The cursor takes a column, also at the end.
        let (mut first, mut used) = (self.cursor, 1);
        while first > 0 && used + wide(self.chars[first - 1]) <= columns {
            first -= 1;
            used += wide(self.chars[first]);
        }
        let at = used - 1;
        let mut end = self.cursor;
        let mut used = at;
        while end < self.chars.len() && used + wide(self.chars[end]) <= columns {
            used += wide(self.chars[end]);
            end += 1;
        }
        (self.chars[first..end].iter().collect(), at)
    }
}

/// Like a line that was written, also if it was not; spaces around it are kept.
fn one_line(text: &str) -> String {
    let before = if text.starts_with(' ') { " " } else { "" };
    let after = if text.ends_with(' ') { " " } else { "" };
    format!("{before}{}{after}", clean_line(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(editor: &mut Editor, code: KeyCode, modifiers: KeyModifiers) -> Typed {
        editor.press(KeyEvent::new(code, modifiers))
    }

    #[test]
    fn a_line_is_written_and_changed_where_the_cursor_is() {
        let mut editor = Editor::default();
        let (none, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        for c in "mind teh gap".chars() {
            assert_eq!(press(&mut editor, KeyCode::Char(c), none), Typed::On);
        }
        for _ in 0..4 {
            press(&mut editor, KeyCode::Left, none);
        }
        press(&mut editor, KeyCode::Backspace, none);
        press(&mut editor, KeyCode::Backspace, none);
        editor.insert("h\u{1b}[31me");
        assert_eq!(editor.text(), "mind the gap");
        press(&mut editor, KeyCode::Char('w'), control);
        assert_eq!(editor.text(), "mind  gap");
        press(&mut editor, KeyCode::Delete, none);
        press(&mut editor, KeyCode::Home, none);
        press(&mut editor, KeyCode::Char('x'), control);
        press(&mut editor, KeyCode::Delete, none);
        assert_eq!(editor.text(), "ind gap");
        press(&mut editor, KeyCode::Right, none);
        press(&mut editor, KeyCode::Char('k'), control);
        press(&mut editor, KeyCode::Char('u'), control);
        assert_eq!(editor.text(), "");
        assert_eq!(press(&mut editor, KeyCode::Enter, none), Typed::Sent);
        assert_eq!(press(&mut editor, KeyCode::Esc, none), Typed::Cancelled);
        editor.insert("two\nlines");
        assert_eq!(editor.text(), "two lines");
        editor.insert(&"x".repeat(2 * BYTES_MAX));
        assert_eq!(editor.text().len(), BYTES_MAX);
    }

    #[test]
    fn the_cursor_is_always_to_be_seen() {
        let mut editor = Editor::with("日本語 and more");
        assert_eq!(editor.shown(80), ("日本語 and more".to_owned(), 15));
        assert_eq!(editor.shown(6), (" more".to_owned(), 5));
        press(&mut editor, KeyCode::Home, KeyModifiers::NONE);
        assert_eq!(editor.shown(6), ("日本語".to_owned(), 0));
        press(&mut editor, KeyCode::Right, KeyModifiers::NONE);
        assert_eq!(editor.shown(5), ("日本".to_owned(), 2));
    }
}
