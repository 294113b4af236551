//! The last of what an agent says: its answer, or where its outcome is looked for.

/// As much as is kept of it.
const BYTES_MAX: usize = 64 * 1024;
/// What a note of what is missing may take of that.
const NOTE_BYTES_MAX: usize = 200;

/// A text of which only the end is kept, and how much of its beginning is gone.
#[derive(Debug, Default)]
pub(super) struct LastWords {
    text: String,
    n_cut: usize,
}

impl LastWords {
    pub(super) fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > BYTES_MAX - NOTE_BYTES_MAX {
            // Half of it at once, so that a long text is not moved with every piece.
            let cut = self.text.ceil_char_boundary(self.text.len() - BYTES_MAX / 2);
            self.text.drain(..cut);
            self.n_cut += cut;
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns it, after a note of what is missing, if something is.
    pub(super) fn whole(&self, note: impl FnOnce(usize) -> String) -> String {
        let text = self.text.trim();
        if self.n_cut == 0 { text.to_owned() } else { format!("{}{text}", note(self.n_cut)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_said() {
        let mut words = LastWords::default();
        words.push_str(" short ");
        assert_eq!(words.whole(|_| unreachable!()), "short");
        for _ in 0..100 {
            words.push_str(&"ü".repeat(500));
        }
        let whole = words.whole(|n_cut| format!("[{n_cut}]"));
        assert_eq!(whole.len() - whole.find(']').unwrap() - 1, words.as_str().len());
        let n_cut: usize = whole[1..whole.find(']').unwrap()].parse().unwrap();
        assert_eq!(n_cut + words.as_str().len(), 100_007);
        assert!(whole.len() <= BYTES_MAX);
    }
}
