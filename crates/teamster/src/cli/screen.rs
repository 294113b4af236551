//! The whole terminal for one view: taken, listened to, given back; and text that fits it.

use std::io::Stdout;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use crossterm::cursor::Show;
use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, Event, EventStream, KeyCode, KeyEvent,
    KeyEventKind, KeyModifiers,
};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use futures_util::StreamExt;
use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::text::Span;
use ratatui::{Frame, Terminal};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// One request waits no longer than the hub lets it.
pub(super) const WAIT_MS: u64 = 40_000;
/// However much happens, people need to see no more than this many changes a second.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// What comes from the person.
pub(super) enum Input {
    Key(KeyEvent),
    /// Something was pasted, which is no command, whatever keys it could be.
    Paste(String),
    /// Its size may be another.
    Other,
    /// The terminal is gone, or we are to go.
    Gone,
}

/// The terminal, never asked where its cursor is. Ratatui asks that after every change of size, and whoever waits for keys
/// at that moment takes the answer for itself: then drawing fails, or a key is seen only when the next one comes.
struct Unasked(CrosstermBackend<Stdout>);

impl Backend for Unasked {
    type Error = std::io::Error;

    fn draw<'a, I>(&mut self, content: I) -> std::io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        self.0.draw(content)
    }

    fn hide_cursor(&mut self) -> std::io::Result<()> {
        self.0.hide_cursor()
    }

    fn show_cursor(&mut self) -> std::io::Result<()> {
        self.0.show_cursor()
    }

    /// Every drawing puts it where it belongs.
    fn get_cursor_position(&mut self) -> std::io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> std::io::Result<()> {
        self.0.set_cursor_position(position)
    }

    fn clear(&mut self) -> std::io::Result<()> {
        self.0.clear()
    }

    fn clear_region(&mut self, which: ClearType) -> std::io::Result<()> {
        self.0.clear_region(which)
    }

    fn size(&self) -> std::io::Result<Size> {
        self.0.size()
    }

    fn window_size(&mut self) -> std::io::Result<WindowSize> {
        self.0.window_size()
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Backend::flush(&mut self.0)
    }
}

/// The terminal while it is ours. It is given back however we end; after a panic, by a hook.
pub(super) struct Screen {
    terminal: Terminal<Unasked>,
    events: EventStream,
    terminate: Signal,
    hang_up: Signal,
    go_on: Signal,
}

fn take_over() -> std::io::Result<()> {
    enable_raw_mode()?;
    // A terminal that does not know pastes ignores that they are to be marked.
    crossterm::execute!(std::io::stdout(), EnterAlternateScreen, EnableBracketedPaste)
}

fn give_back() {
    // If that fails, the terminal is gone.
    let _ =
        crossterm::execute!(std::io::stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Something has panicked, and the terminal was given back so that the person can read that.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            HAS_PANICKED.store(true, Ordering::Relaxed);
            give_back();
            before(panic);
        }));
    });
}

impl Screen {
    /// Takes the terminal; `instead` says what there is where that is not possible.
    pub(super) fn open(instead: &str) -> anyhow::Result<Self> {
        let (terminate, hang_up) =
            (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let go_on = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
        give_back_on_panic();
        let backend = || Terminal::new(Unasked(CrosstermBackend::new(std::io::stdout())));
        match take_over().and_then(|()| backend()) {
            Ok(terminal) => {
                Ok(Self { terminal, events: EventStream::new(), terminate, hang_up, go_on })
            }
            Err(error) => {
                give_back();
                Err(error).with_context(|| format!("the terminal cannot show it; {instead}"))
            }
        }
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> anyhow::Result<()> {
        if HAS_PANICKED.load(Ordering::Relaxed) {
            bail!("a part of the program has failed, which is its own fault");
        }
        self.terminal.draw(draw)?;
        Ok(())
    }

    /// Gives the terminal back, and stops until the person wants to see more.
    fn suspend(&mut self) -> Input {
        give_back();
        let stop = rustix::process::Signal::TSTP;
        let _ = rustix::process::kill_process(rustix::process::getpid(), stop);
        // Here again.
        self.retake()
    }

    /// Takes the terminal again, whatever others have done to it meanwhile.
    fn retake(&mut self) -> Input {
        // What is known of its modes is no longer so.
        let _ = disable_raw_mode();
        match take_over().and_then(|()| self.terminal.clear()) {
            Ok(()) => Input::Other,
            Err(_) => Input::Gone,
        }
    }

    /// Waits for the person. Nothing is lost if that is given up.
    pub(super) async fn input(&mut self) -> Input {
        tokio::select! {
            event = self.events.next() => match event {
                Some(Ok(Event::Key(key))) if is_ctrl_z(key) => self.suspend(),
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => Input::Key(key),
                Some(Ok(Event::Paste(text))) => Input::Paste(text),
                Some(Ok(_)) => Input::Other,
                Some(Err(_)) | None => Input::Gone,
            },
            _ = self.terminate.recv() => Input::Gone,
            _ = self.hang_up.recv() => Input::Gone,
            // We were stopped, by a key of ours or by others.
            _ = self.go_on.recv() => self.retake(),
        }
    }
}

fn is_ctrl_z(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('z')
        && key.modifiers.contains(KeyModifiers::CONTROL)
        && key.kind != KeyEventKind::Release
}

impl Drop for Screen {
    fn drop(&mut self) {
        // What is said of a panic is on the screen already, and would be written over.
        if !HAS_PANICKED.load(Ordering::Relaxed) {
            give_back();
        }
    }
}

/// Returns what can be shown of a text that others wrote: lines of characters that stand where they are put. Whole
/// sequences that would steer a terminal are left out, and so is what would turn the order of words around.
pub(super) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' => clean.push('\n'),
            '\t' => clean.push_str("    "),
            '\u{1b}' => match rest.next() {
                // Up to the letter that ends it.
                Some('[') => {
                    while rest.next_if(|c| matches!(c, ' '..='?')).is_some() {}
                    rest.next_if(|c| matches!(c, '@'..='~'));
                }
                // A title or the like, up to its end.
                Some(']' | 'P' | '_' | '^') => {
                    while let Some(c) = rest.next_if(|c| *c != '\n') {
                        if c == '\u{7}' || (c == '\u{1b}' && rest.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                Some('\n') => clean.push('\n'),
                Some(_) | None => {}
            },
            '\u{2028}' | '\u{2029}' => clean.push('\n'),
            c if c.is_control() => {}
            c => clean.push(c),
        }
    }
    teamster_core::text::visible(&clean).into_owned()
}

/// The same, as one line.
pub(super) fn clean_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns how many columns a text takes.
pub(super) fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { Span::raw(text).width() }
}

fn graphemes(text: &str) -> impl Iterator<Item = String> {
    let span = Span::raw(text);
    let all: Vec<String> = span
        .styled_graphemes(ratatui::style::Style::new())
        .map(|one| one.symbol.to_owned())
        .collect();
    all.into_iter()
}

/// Cuts a line that is wider than so many columns.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for grapheme in graphemes(text) {
        used += width(&grapheme);
        // One column is for the mark.
        if used >= columns.max(1) {
            break;
        }
        kept += &grapheme;
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// Says what starts a hub, after something else, in so many columns if that is possible.
pub(super) fn starts_hub(command: &str, before: &str, columns: usize) -> String {
    let says = |command: &str| format!("{before}`{command}` starts the hub");
    let whole = says(command);
    if width(&whole) <= columns { whole } else { says("teamster up -d") }
}

/// Cuts or fills a line so that it takes just so many columns.
pub(super) fn fill(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let missing = columns.saturating_sub(width(&text));
    text + &" ".repeat(missing)
}

/// Breaks a clean text into lines of at most so many columns, between words where it can.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    for line in text.split('\n') {
        if width(line) <= columns {
            lines.push(line.trim_end().to_owned());
            continue;
        }
        let (mut current, mut used) = (String::new(), 0);
        for word in line.split_inclusive(' ') {
            let (bare, all) = (width(word.trim_end()), width(word));
            if used > 0 && used + bare > columns {
                lines.push(std::mem::take(&mut current).trim_end().to_owned());
                used = 0;
            }
            if bare <= columns {
                current += word;
                used += all;
                continue;
            }
            for grapheme in graphemes(word) {
                let wide = width(&grapheme);
                if used + wide > columns && used > 0 {
                    lines.push(std::mem::take(&mut current));
                    used = 0;
                }
                current += &grapheme;
                used += wide;
            }
        }
        lines.push(current.trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_others_wrote_steers_the_terminal() {
        let text = "\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7}a\u{1b}]8;;x\u{1b}\\b\u{1b}c\r\n\tc\u{9b}\u{202e}d\u{1b}";
        assert_eq!(clean(text), "red ab\n    c\\u{202e}d");
        assert_eq!(clean("\u{1b}[1\n2\u{1b}]x\ny"), "\n2\ny");
        assert_eq!(clean_line("a\n  b\u{0} c"), "a b c");
    }

    #[test]
    fn wide_characters_take_the_columns_they_take() {
        assert_eq!(width("日本"), 4);
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(fill("日本語", 4), "日… ");
        assert_eq!(fill("ab", 4), "ab  ");
        assert_eq!((cut("ab", 1), cut("ab", 0)), ("…".to_owned(), String::new()));
    }

    #[test]
    fn lines_are_broken_between_words_where_that_is_possible() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrap("日本語日本語", 5), ["日本", "語日", "本語"]);
        assert_eq!(wrap("a\n\n  b c", 80), ["a", "", "  b c"]);
        assert_eq!(wrap("日", 1), ["日"]);
        for columns in 1..20 {
            let lines =
                wrap("some words, 日本語 among them, andaverylongonethathasnospaces", columns);
            assert!(lines.iter().all(|line| width(line) <= columns.max(2)), "{columns}: {lines:?}");
        }
    }
}
