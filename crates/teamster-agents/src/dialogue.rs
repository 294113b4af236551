//! The talk with one process of an agent program: lines go in and out, a driver translates, the hub gets events.
//!
//! Nothing happens unless the hub asks for the next event, and only then is a line read. So a hub that is slow slows the
//! program, and there is no queue that a program could fill: what it made us want to write is bounded, and beyond that it
//! is not read any further until it reads.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::future;
use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::agent::{
    Begin, Event, LABEL_BYTES_MAX, PermissionId, PermissionOption, Refusal, TurnEnd, clipped,
};
use crate::drivers::{Driver, Out};

/// While more than this waits to be written, nothing is read. A program that reads its input never comes near it; our own
/// prompts may be larger, and wait alone.
const UNWRITTEN_BYTES_MAX: usize = 256 * 1024;
/// As many permissions may wait for an answer at a time. Programs ask for one after the other.
const PERMISSIONS_MAX: usize = 32;
/// As many troubles are told; later ones are only counted. Enough to see what is wrong with a program.
const TROUBLES_MAX: u64 = 50;

/// What a program wrote, line by line.
pub trait Source: Send {
    /// Returns what comes next, or nothing at the end. It may be given up at any time without loss.
    fn next(&mut self) -> impl Future<Output = io::Result<Option<Said>>> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A whole line, without its newline.
    Line(Bytes),
    /// A line that was too long to be kept.
    TooLong,
    /// What came after the last newline when the output ended.
    CutOff(Bytes),
}

/// The talk with one process. Every `begin` is answered by one of `Started` and `NotStarted`, every prompt by one
/// `TurnEnded`, every permission by one `PermissionAnswered`, and `Exited` comes last, whatever the program does.
pub struct Dialogue<S, W> {
    driver: Box<dyn Driver>,
    source: S,
    /// Gone once it is closed or broken.
    sink: Option<W>,
    unwritten: BytesMut,
    /// The sink is closed when everything is written.
    closing: bool,
    phase: Phase,
    events: VecDeque<Event>,
    permissions: BTreeMap<PermissionId, Vec<PermissionOption>>,
    n_troubles: u64,
    last_activity: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Fresh,
    Beginning {
        deadline: Instant,
        within: Duration,
    },
    Idle,
    Turn {
        cancelled: bool,
    },
    /// It never started. What it says now is thrown away, until it ends.
    Failed,
    Ended,
}

impl<S: Source, W: AsyncWrite + Send + Unpin> Dialogue<S, W> {
    /// `sink` must not need flushing.
    pub fn new(driver: Box<dyn Driver>, source: S, sink: W) -> Self {
        Self {
            driver,
            source,
            sink: Some(sink),
            unwritten: BytesMut::new(),
            closing: false,
            phase: Phase::Fresh,
            events: VecDeque::new(),
            permissions: BTreeMap::new(),
            n_troubles: 0,
            last_activity: Instant::now(),
        }
    }

    /// Begins the handshake, which may take this long.
    pub fn begin(&mut self, begin: &Begin, within: Duration) -> Result<(), Refusal> {
        self.listens()?;
        if self.phase != Phase::Fresh {
            return Err(Refusal::AlreadyBegun);
        }
        self.phase = Phase::Beginning { deadline: Instant::now() + within, within };
        self.translate(|driver, out| driver.begin(begin, out));
        Ok(())
    }

    /// Begins a turn.
    pub fn prompt(&mut self, text: &str) -> Result<(), Refusal> {
        self.listens()?;
        match self.phase {
            Phase::Idle => {}
            Phase::Turn { .. } => return Err(Refusal::InTurn),
            Phase::Fresh | Phase::Beginning { .. } => return Err(Refusal::NotStarted),
            Phase::Failed | Phase::Ended => return Err(Refusal::Over),
        }
        self.phase = Phase::Turn { cancelled: false };
        self.events.push_back(Event::Prompted { text: text.to_owned() });
        self.translate(|driver, out| driver.prompt(text, out));
        Ok(())
    }

    /// Asks the agent to stop its turn, whose end is still to be waited for. Between turns there is nothing to do, and
    /// asking twice is asking once.
    pub fn cancel(&mut self) -> Result<(), Refusal> {
        self.listens()?;
        if self.phase == (Phase::Turn { cancelled: false }) {
            self.phase = Phase::Turn { cancelled: true };
            self.events.push_back(Event::CancelAsked);
            self.translate(|driver, out| driver.cancel(out));
            self.withdraw_permissions();
        }
        Ok(())
    }

    /// Decides a permission.
    pub fn answer(&mut self, permission: PermissionId, option: &str) -> Result<(), Refusal> {
        self.listens()?;
        let Some(options) = self.permissions.get(&permission) else {
            return Err(Refusal::NoSuchPermission(permission));
        };
        if !options.iter().any(|offered| offered.id == option) {
            return Err(Refusal::NoSuchOption(option.to_owned()));
        }
        self.permissions.remove(&permission);
        self.settle(permission, Some(option));
        Ok(())
    }

    /// Tells the program that nobody will decide a permission, which it takes for a no.
    pub fn withdraw(&mut self, permission: PermissionId) -> Result<(), Refusal> {
        self.listens()?;
        match self.permissions.remove(&permission) {
            Some(_) => self.settle(permission, None),
            None => return Err(Refusal::NoSuchPermission(permission)),
        }
        Ok(())
    }

    /// Says whether a permission still waits to be decided.
    pub fn waits_for(&self, permission: PermissionId) -> bool {
        self.permissions.contains_key(&permission)
    }

    /// Closes the program's input once everything is written, by which most programs end.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Ends the talk for a reason that its lines do not show, such as that the process is gone although something still
    /// holds its output.
    pub fn end(&mut self, how: &str) {
        let gone = match self.phase {
            Phase::Beginning { .. } => Some(Event::NotStarted {
                message: format!("it ended before it had started: {how}"),
            }),
            Phase::Turn { .. } => Some(Event::TurnEnded(TurnEnd::Gone)),
            Phase::Fresh | Phase::Idle | Phase::Failed => None,
            Phase::Ended => return,
        };
        self.sink = None;
        self.unwritten.clear();
        for (id, _) in std::mem::take(&mut self.permissions) {
            self.events.push_back(Event::PermissionAnswered { id, option: None });
        }
        self.events.extend(gone);
        self.events.push_back(Event::Exited { how: how.to_owned() });
        self.phase = Phase::Ended;
    }

    /// Returns the next event, or nothing after `Exited`. It may be given up at any time without loss, but while nobody
    /// waits for it nothing is read or written.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let deadline = match self.phase {
                Phase::Beginning { deadline, .. } => Some(deadline),
                Phase::Ended => return None,
                _ => None,
            };
            let may_read = self.unwritten.len() <= UNWRITTEN_BYTES_MAX;
            // Lines that make no event would otherwise keep the others of this thread waiting.
            tokio::task::consume_budget().await;
            tokio::select! {
                biased;
                () = at(deadline) => self.too_late(),
                written = write(self.sink.as_mut(), &self.unwritten, self.closing) => {
                    self.written(written);
                }
                said = self.source.next(), if may_read => self.said(said),
            }
        }
    }

    /// When the program last said anything.
    pub fn last_activity(&self) -> Instant {
        self.last_activity
    }

    /// How often the program said what could not be understood, also when that was not told any more.
    pub fn n_troubles(&self) -> u64 {
        self.n_troubles
    }

    /// A turn is under way.
    pub fn in_turn(&self) -> bool {
        matches!(self.phase, Phase::Turn { .. })
    }

    fn listens(&self) -> Result<(), Refusal> {
        let listens = self.sink.is_some() && !self.closing;
        if listens { Ok(()) } else { Err(Refusal::Over) }
    }

    fn said(&mut self, said: io::Result<Option<Said>>) {
        self.last_activity = Instant::now();
        match said {
            Ok(Some(_)) if matches!(self.phase, Phase::Failed) => {}
            Ok(Some(Said::Line(line))) => {
                if !line.trim_ascii().is_empty() {
                    self.translate(|driver, out| driver.hear(&line, out));
                }
            }
            Ok(Some(Said::TooLong)) => {
                self.trouble("a line that was too long was thrown away".to_owned());
            }
            Ok(Some(Said::CutOff(rest))) => {
                let rest = clipped(String::from_utf8_lossy(&rest), LABEL_BYTES_MAX);
                self.trouble(format!("it ended in the middle of a line: {rest}"));
            }
            Ok(None) => self.end("its output ended"),
            Err(error) => self.end(&format!("its output could not be read: {error}")),
        }
    }

    fn written(&mut self, written: io::Result<Option<usize>>) {
        match written {
            Ok(Some(n_bytes)) => {
                self.unwritten.advance(n_bytes);
                if self.unwritten.is_empty() {
                    // An idle agent does not keep the room that its last prompt took.
                    self.unwritten = BytesMut::new();
                }
            }
            Ok(None) => self.sink = None,
            // What it said before may still be there to be read, so this is not the end.
            Err(error) => {
                self.sink = None;
                self.unwritten.clear();
                self.trouble(format!("it could not be told anything more: {error}"));
            }
        }
    }

    fn too_late(&mut self) {
        if let Phase::Beginning { within, .. } = self.phase {
            let message = format!("it did not start within {within:?}");
            self.note(Event::NotStarted { message });
        }
    }

    fn translate(&mut self, call: impl FnOnce(&mut dyn Driver, &mut Out)) {
        let mut out = Out::default();
        call(self.driver.as_mut(), &mut out);
        self.write_later(&out.lines);
        for event in out.events {
            self.note(event);
        }
    }

    fn write_later(&mut self, lines: &[u8]) {
        if self.sink.is_some() {
            self.unwritten.extend_from_slice(lines);
        }
    }

    /// Takes in what the driver says, and what follows from it.
    fn note(&mut self, event: Event) {
        let expected = match (&event, self.phase) {
            (Event::Started(_), Phase::Beginning { .. }) => {
                self.phase = Phase::Idle;
                true
            }
            (Event::NotStarted { .. }, Phase::Beginning { .. }) => {
                self.phase = Phase::Failed;
                true
            }
            (Event::TurnEnded(_), Phase::Turn { .. }) => {
                self.withdraw_permissions();
                self.phase = Phase::Idle;
                true
            }
            (Event::Started(_) | Event::NotStarted { .. } | Event::TurnEnded(_), _) => false,
            (Event::PermissionAnswered { id, .. }, _) => self.permissions.remove(id).is_some(),
            (Event::Trouble { message }, _) => return self.trouble(message.clone()),
            (Event::PermissionAsked { id, options, .. }, _) => {
                let (id, options) = (*id, options.clone());
                self.events.push_back(event);
                return self.permission_asked(id, options);
            }
            _ => true,
        };
        if expected {
            self.events.push_back(event);
        } else {
            self.trouble(format!("its driver answered what nobody had asked: {event:?}"));
        }
    }

    fn permission_asked(&mut self, id: PermissionId, options: Vec<PermissionOption>) {
        let cancelled = self.phase == Phase::Turn { cancelled: true };
        if cancelled || self.permissions.len() >= PERMISSIONS_MAX {
            self.settle(id, None);
        } else {
            self.permissions.insert(id, options);
        }
    }

    fn trouble(&mut self, message: String) {
        self.n_troubles += 1;
        let message = match self.n_troubles {
            ..TROUBLES_MAX => message,
            TROUBLES_MAX => format!("{message} (more such trouble is not told)"),
            _ => return,
        };
        self.events.push_back(Event::Trouble { message });
    }

    fn withdraw_permissions(&mut self) {
        for (id, _) in std::mem::take(&mut self.permissions) {
            self.settle(id, None);
        }
    }

    fn settle(&mut self, id: PermissionId, option: Option<&str>) {
        let mut out = Out::default();
        self.driver.answer(id, option, &mut out);
        self.write_later(&out.lines);
        self.events.push_back(Event::PermissionAnswered { id, option: option.map(str::to_owned) });
    }
}

/// Writes some of what is unwritten, or closes the sink (then returns nothing), or waits forever if there is nothing to
/// do.
async fn write<W: AsyncWrite + Unpin>(
    sink: Option<&mut W>,
    unwritten: &[u8],
    closing: bool,
) -> io::Result<Option<usize>> {
    match sink {
        Some(sink) if !unwritten.is_empty() => match sink.write(unwritten).await? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            n_bytes => Ok(Some(n_bytes)),
        },
        Some(sink) if closing => sink.shutdown().await.map(|()| None),
        _ => future::pending().await,
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => future::pending().await,
    }
}

#[cfg(test)]
mod tests;
