//! Texts that programs wrote for a terminal, for those who read them elsewhere.

/// Takes out what is for terminals: colours, titles, movements, and characters that turn the text around.
pub(crate) fn cleaned(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next_if(|c| *c != '\n') {
                Some('[') => {
                    // Parameters, up to a letter.
                    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
                    chars.next_if(|c| matches!(c, '@'..='~'));
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_titles_and_links_are_left_out() {
        for (text, expected) in [
            ("plain\n\ttext – ü", "plain\n\ttext – ü"),
            ("\u{1b}[1;31mred\u{1b}[0m and \u{1b}[38;5;12mblue\u{1b}[m", "red and blue"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("cut \u{1b}[", "cut "),
        ] {
            assert_eq!(cleaned(text), expected, "{text:?}");
        }
    }
}
