//! Notes: what one iteration learned and the next should know.

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::compaction::Fate;
use crate::ids::NoteId;
use crate::text::{self, BadText};
use crate::{PrincipalName, Record, Summary, Timestamp};

/// As many notes as one call may add.
pub const ADDED_AT_ONCE_MAX: usize = 500;
/// As many notes as one run may hold.
pub const NOTES_MAX: u32 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Learning,
    Stuck,
    Tip,
    Decision,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Learning, Self::Stuck, Self::Tip, Self::Decision];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Stuck => "stuck",
            Self::Tip => "tip",
            Self::Decision => "decision",
        }
    }

    pub fn parse(word: &str) -> Result<Self, Refusal> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == word);
        known.ok_or_else(|| Refusal::UnknownKind(word.chars().take(80).collect()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub id: NoteId,
    pub kind: Kind,
    pub content: Arc<str>,
    pub iteration: u32,
    pub by: PrincipalName,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNote {
    pub content: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Adds all of these notes, or none.
    Add(Vec<NewNote>),
    /// Changes what is given.
    Edit {
        note: NoteId,
        content: Option<String>,
        kind: Option<Kind>,
    },
    Remove {
        note: NoteId,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Added {
        id: NoteId,
        kind: Kind,
        content: Arc<str>,
    },
    Edited {
        id: NoteId,
        content: Arc<str>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<Kind>,
    },
    Removed {
        id: NoteId,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no notes given; pass at least one in 'notes'")]
    NothingToAdd,
    #[error("{0} notes in one call; the limit is {ADDED_AT_ONCE_MAX}, so split the call")]
    TooManyAtOnce(usize),
    #[error("this run has {NOTES_MAX} notes, which is the limit; start another run")]
    TooMany,
    #[error(transparent)]
    Text(#[from] BadText),
    #[error("invalid note type: {0:?} (must be learning, stuck, tip or decision)")]
    UnknownKind(String),
    #[error("note already exists with ID {id} ({kind}); nothing was added")]
    Exists { id: NoteId, kind: Kind },
    #[error(
        "duplicate note in batch (notes[{0}]); nothing was added, so remove one and call again"
    )]
    TwiceInBatch(usize),
    #[error("there is no note {0}; note-list shows those there are")]
    NotFound(NoteId),
}

/// The view of one run's notes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Notes {
    last: u32,
    by_id: OrdMap<NoteId, Arc<Note>>,
    by_kind: OrdSet<(Kind, NoteId)>,
    by_content: OrdSet<(u64, NoteId)>,
}

impl Notes {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns the notes after `after`, oldest first, of one kind or of all.
    pub fn after(
        &self,
        after: NoteId,
        kind: Option<Kind>,
    ) -> Box<dyn Iterator<Item = &Arc<Note>> + '_> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        match kind {
            None => Box::new(self.by_id.range((Excluded(after), Unbounded)).map(|(_, note)| note)),
            Some(kind) => Box::new(
                self.by_kind
                    .range((Excluded((kind, after)), Included((kind, NoteId(u32::MAX)))))
                    .filter_map(|(_, id)| self.by_id.get(id)),
            ),
        }
    }

    /// Returns the events that `command` causes, or why it is refused.
    pub(crate) fn decide(&self, command: &Command) -> Result<Vec<Event>, Refusal> {
        let new = match command {
            Command::Add(new) => new,
            Command::Edit { note, content, kind } => {
                let note = self.by_id.get(note).ok_or(Refusal::NotFound(*note))?;
                let content = match content {
                    Some(content) => text::body("content", content)?,
                    None => note.content.clone(),
                };
                let kind = kind.filter(|kind| *kind != note.kind);
                if let Some(same) = self.same(&content, kind.unwrap_or(note.kind)) {
                    return match same.id == note.id {
                        true => Ok(Vec::new()),
                        false => Err(Refusal::Exists { id: same.id, kind: same.kind }),
                    };
                }
                return Ok(vec![Event::Edited { id: note.id, content, kind }]);
            }
            Command::Remove { note } => {
                let note = self.by_id.get(note).ok_or(Refusal::NotFound(*note))?;
                return Ok(vec![Event::Removed { id: note.id }]);
            }
        };
        if new.is_empty() {
            return Err(Refusal::NothingToAdd);
        }
        if new.len() > ADDED_AT_ONCE_MAX {
            return Err(Refusal::TooManyAtOnce(new.len()));
        }
        let last = self.last;
        if last as usize + new.len() > NOTES_MAX as usize {
            return Err(Refusal::TooMany);
        }
        let mut seen = std::collections::BTreeSet::new();
        let mut events = Vec::with_capacity(new.len());
        for (i, NewNote { content, kind }) in new.iter().enumerate() {
            let content = text::body(format!("notes[{i}].content"), content)?;
            if let Some(existing) = self.same(&content, *kind) {
                return Err(Refusal::Exists { id: existing.id, kind: *kind });
            }
            if !seen.insert((*kind, content.clone())) {
                return Err(Refusal::TwiceInBatch(i));
            }
            events.push(Event::Added { id: NoteId(last + 1 + i as u32), kind: *kind, content });
        }
        Ok(events)
    }

    fn same(&self, content: &str, kind: Kind) -> Option<&Arc<Note>> {
        let print = text::fingerprint(content.bytes());
        self.by_content
            .range((print, NoteId(0))..=(print, NoteId(u32::MAX)))
            .filter_map(|(_, id)| self.by_id.get(id))
            .find(|note| *note.content == *content && note.kind == kind)
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record, iteration: u32) {
        match event {
            Event::Added { id, kind, content } => {
                let (id, kind, content) = (*id, *kind, content.clone());
                self.insert(Arc::new(Note {
                    id,
                    kind,
                    content,
                    iteration,
                    by: record.by.clone(),
                    at: record.at,
                }));
            }
            Event::Edited { id, content, kind } => {
                if let Some(note) = self.remove(*id) {
                    let (content, kind) = (content.clone(), kind.unwrap_or(note.kind));
                    self.insert(Arc::new(Note { content, kind, ..Note::clone(&note) }));
                }
            }
            Event::Removed { id } => {
                self.remove(*id);
            }
        }
    }

    fn remove(&mut self, id: NoteId) -> Option<Arc<Note>> {
        let note = self.by_id.remove(&id)?;
        self.by_kind.remove(&(note.kind, id));
        self.by_content.remove(&(text::fingerprint(note.content.bytes()), id));
        Some(note)
    }

    fn insert(&mut self, note: Arc<Note>) {
        self.last = self.last.max(note.id.0);
        self.by_kind.insert((note.kind, note.id));
        self.by_content.insert((text::fingerprint(note.content.bytes()), note.id));
        self.by_id.insert(note.id, note);
    }
}

/// What a snapshot keeps; the indexes are made anew.
#[derive(Serialize, Deserialize)]
struct Stored {
    last: u32,
    notes: Vec<Arc<Note>>,
}

impl From<Stored> for Notes {
    fn from(stored: Stored) -> Self {
        let mut notes = Self { last: stored.last, ..Self::default() };
        stored.notes.into_iter().for_each(|note| notes.insert(note));
        notes
    }
}

impl From<Notes> for Stored {
    fn from(notes: Notes) -> Self {
        Self { last: notes.last, notes: notes.by_id.into_iter().map(|(_, note)| note).collect() }
    }
}

impl Event {
    pub(crate) fn summary(&self) -> Summary {
        match self {
            Self::Added { id, kind, content } => {
                let first_line = content.lines().next().unwrap_or_default();
                Summary::new("note", format!("{id} ({kind}): {first_line}"))
            }
            Self::Edited { id, content, kind } => {
                let first_line = content.lines().next().unwrap_or_default();
                let kind = kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
                Summary::new("edit", format!("{id}{kind} says now: {first_line}"))
            }
            Self::Removed { id } => Summary::new("edit", format!("{id} removed")),
        }
    }

    /// Returns how much text the event carries, for bounds.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Added { content, .. } | Self::Edited { content, .. } => content.len(),
            Self::Removed { .. } => 0,
        }
    }

    pub(crate) fn fate(&self) -> Fate {
        match self {
            Self::Added { .. } | Self::Removed { .. } => Fate::Kept,
            Self::Edited { id, kind, .. } => {
                let kind = kind.map(|_| format!("{id} kind"));
                Fate::KeptIfLast([format!("{id} content")].into_iter().chain(kind).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests;
