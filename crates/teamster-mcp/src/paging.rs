//! Pages: lists are cut where a client's patience or a model's context would end.

/// As many lines as one page has.
const LINES_MAX: usize = 100;
/// As many bytes as one page has, beyond its first line. The least patient client cuts a result at about 40 KB.
const BYTES_MAX: usize = 16 * 1024;

/// Indents all lines of a text but its first, so that no text can look like other lines of the list it stands in.
pub(crate) fn indented(text: &str) -> String {
    text.replace('\n', "\n      ")
}

/// Collects lines until the page is full.
pub(crate) struct Page {
    text: String,
    n_lines: usize,
}

impl Page {
    pub(crate) fn new() -> Self {
        Self { text: String::new(), n_lines: 0 }
    }

    /// Adds a heading, which does not count as a line.
    pub(crate) fn heading(&mut self, heading: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(heading);
    }

    /// Adds a line, or says that it does not fit any more.
    #[must_use]
    pub(crate) fn line(&mut self, line: &str) -> bool {
        let full = self.n_lines > 0
            && (self.n_lines >= LINES_MAX || self.text.len() + line.len() > BYTES_MAX);
        if full {
            return false;
        }
        self.heading(line);
        self.n_lines += 1;
        true
    }

    /// Ends the page; `next` is the cursor of the one after it.
    pub(crate) fn end(mut self, next: Option<String>) -> String {
        if let Some(next) = next {
            self.heading(&format!("More: call again with cursor \"{next}\"."));
        }
        self.text
    }
}
