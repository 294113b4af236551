//! Yaks: the backlog that agents file improvements into.
//!
//! A yak is hairy (not started), shaving (under way) or shorn (done); any move between these is allowed. A hairy yak
//! whose dependencies are not all shorn is *tangled*, which is computed, never stored.

mod import;

pub use import::{Content, IMPORT_MAX, Import, Imported, Outcome, Problem};

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::compaction::Fate;
use crate::text::{self, BadText};
use crate::token::Kind as CallerKind;
use crate::{Context, PrincipalName, Record, Summary, Timestamp};

/// As many yaks as a backlog may hold.
pub const YAKS_MAX: usize = 100_000;
/// As many dependencies or labels as one yak may have.
pub const LINKS_MAX: usize = 100;
const TITLE_BYTES_MAX: usize = 300;
const LABEL_BYTES_MAX: usize = 60;
const COMMIT_BYTES_MAX: usize = 64;
/// How deep children may be nested.
const DEPTH_MAX: usize = 8;
/// How often a new id is tried before the backlog counts as full.
const ID_TRIES: u64 = 100;

/// `<prefix>-<4 hex>`, or `<parent>.<n>` for a child.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct YakId(Arc<str>);

impl fmt::Display for YakId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl YakId {
    /// Returns the yak this one is a child of.
    pub fn parent(&self) -> Option<YakId> {
        self.0.rsplit_once('.').map(|(parent, _)| Self(parent.into()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Hairy,
    Shaving,
    Shorn,
}

impl Status {
    pub const ALL: [Self; 3] = [Self::Hairy, Self::Shaving, Self::Shorn];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hairy => "hairy",
            Self::Shaving => "shaving",
            Self::Shorn => "shorn",
        }
    }

    /// Reads a status; `shearing` is an old word for `shaving`.
    pub fn parse(word: &str) -> Result<Self, Refusal> {
        let word = if word == "shearing" { "shaving" } else { word };
        let known = Self::ALL.into_iter().find(|status| status.as_str() == word);
        known.ok_or_else(|| Refusal::UnknownStatus(word.chars().take(80).collect()))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Bug,
    Feature,
    Task,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Bug, Self::Feature, Self::Task];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bug => "bug",
            Self::Feature => "feature",
            Self::Task => "task",
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

/// How urgent a yak is: 1 is critical, 2 important, 3 nice to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(u8);

impl Priority {
    pub const IMPORTANT: Self = Self(2);

    pub fn new(number: i64) -> Result<Self, Refusal> {
        u8::try_from(number)
            .ok()
            .filter(|n| (1..=3).contains(n))
            .map(Self)
            .ok_or(Refusal::InvalidPriority(number))
    }

    pub fn number(self) -> u8 {
        self.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Yak {
    pub id: YakId,
    /// Counts the yaks in the order they were created.
    pub number: u32,
    pub title: Arc<str>,
    pub kind: Kind,
    pub priority: Priority,
    pub description: Arc<str>,
    pub status: Status,
    pub depends_on: Vec<YakId>,
    pub labels: Vec<Arc<str>>,
    /// The commit that shore it.
    pub commit: Option<Arc<str>>,
    pub created_by: PrincipalName,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    last_child: u32,
}

/// A yak's place in a list: by status, then priority, then age.
pub type Rank = (Status, Priority, u32);

impl Yak {
    pub fn rank(&self) -> Rank {
        (self.status, self.priority, self.number)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewYak {
    pub title: String,
    pub kind: Kind,
    pub priority: Priority,
    pub description: String,
    pub parent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Sets what new ids begin with, where the caller has no team to name them after.
    SetPrefix {
        prefix: String,
    },
    Create(NewYak),
    Update {
        yak: String,
        title: Option<String>,
        kind: Option<Kind>,
        priority: Option<Priority>,
        description: Option<String>,
    },
    Move {
        yak: String,
        to: Status,
        commit: Option<String>,
    },
    AddDependency {
        yak: String,
        on: String,
    },
    RemoveDependency {
        yak: String,
        on: String,
    },
    Label {
        yak: String,
        add: Vec<String>,
        remove: Vec<String>,
    },
    /// Takes in yaks with ids of their own, as far as they can be; [`Yaks::import`] says what cannot. Operators only.
    Import(Import),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    PrefixSet {
        prefix: Arc<str>,
    },
    Created {
        id: YakId,
        title: Arc<str>,
        kind: Kind,
        priority: Priority,
        description: Arc<str>,
    },
    Updated {
        id: YakId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<Arc<str>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<Kind>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<Priority>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<Arc<str>>,
        /// When it was created, if somebody knows better.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        created_at: Option<Timestamp>,
        /// When it was last updated, if that was not now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        updated_at: Option<Timestamp>,
    },
    Moved {
        id: YakId,
        to: Status,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commit: Option<Arc<str>>,
    },
    DependencyAdded {
        id: YakId,
        on: YakId,
    },
    DependencyRemoved {
        id: YakId,
        on: YakId,
    },
    Labelled {
        id: YakId,
        labels: Vec<Arc<str>>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Text(#[from] BadText),
    #[error("yak {0} not found; list_yaks shows the ids")]
    NotFound(String),
    #[error("invalid status {0:?} (must be hairy, shaving or shorn)")]
    UnknownStatus(String),
    #[error("invalid yak_type {0:?} (must be bug, feature or task)")]
    UnknownKind(String),
    #[error("invalid priority: {0} (must be 1, 2 or 3)")]
    InvalidPriority(i64),
    #[error("yak {0} has this title already and is not shorn; update that one instead")]
    Exists(YakId),
    #[error("nothing to update; give title, yak_type, priority or description")]
    NothingToUpdate,
    #[error("a yak cannot depend on itself")]
    SelfDependency,
    #[error(
        "{yak} cannot depend on {on}: {on} depends on {yak} already, directly or through others"
    )]
    Cycle { yak: YakId, on: YakId },
    #[error("{yak} does not depend on {on}")]
    NoSuchDependency { yak: YakId, on: YakId },
    #[error("{0} has {LINKS_MAX} of them, which is the limit")]
    TooManyLinks(YakId),
    #[error("{0} is nested {DEPTH_MAX} deep, which is the limit; use its parent")]
    TooDeep(YakId),
    #[error("there are {YAKS_MAX} yaks, which is the limit")]
    TooMany,
    #[error("no free id was found; try again")]
    NoFreeId,
    #[error("only the hub sets the prefix of new ids")]
    HubOnly,
    #[error("only an operator may import yaks")]
    OperatorsOnly,
    #[error(
        "{0:?} is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child"
    )]
    BadId(String),
    #[error("{0} is given twice; keep one")]
    Twice(YakId),
    #[error("{yak} depends on {on}, which is not in the backlog; that dependency is left out")]
    NoDependency { yak: YakId, on: String },
    #[error("there are more than {LINKS_MAX} labels")]
    TooManyLabels,
    #[error("times are of the years 1970 to 9999")]
    BadTime,
    #[error("that is too much for one import; give at most {IMPORT_MAX} yaks, or fewer large ones")]
    TooManyAtOnce,
}

/// The view of the backlog.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Yaks {
    prefix: Option<Arc<str>>,
    by_id: OrdMap<YakId, Arc<Yak>>,
    ranked: OrdMap<Rank, YakId>,
    /// (dependency, dependent)
    dependents: OrdSet<(YakId, YakId)>,
    by_title: OrdSet<(u64, YakId)>,
    counts: [u32; Status::ALL.len()],
}

/// What a snapshot keeps; the indexes are made anew.
#[derive(Serialize, Deserialize)]
struct Stored {
    prefix: Option<Arc<str>>,
    yaks: Vec<Arc<Yak>>,
}

impl Yaks {
    pub fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn count(&self, status: Status) -> u32 {
        self.counts[status as usize]
    }

    pub fn get(&self, id: &YakId) -> Option<&Arc<Yak>> {
        self.by_id.get(id)
    }

    /// Finds a yak by its id, in any case.
    pub fn find(&self, given: &str) -> Result<&Arc<Yak>, Refusal> {
        let id = YakId(given.trim().to_ascii_lowercase().into());
        self.by_id.get(&id).ok_or_else(|| Refusal::NotFound(given.chars().take(80).collect()))
    }

    /// Returns the yaks of one status, or of all, that are ranked after `after`.
    pub fn ranked_after(
        &self,
        after: Option<Rank>,
        status: Option<Status>,
    ) -> impl Iterator<Item = &Arc<Yak>> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let from = match (after, status) {
            (Some(after), Some(status)) if after.0 >= status => Excluded(after),
            (Some(after), None) => Excluded(after),
            (_, Some(status)) => Included((status, Priority(0), 0)),
            (None, None) => Unbounded,
        };
        self.ranked
            .range((from, Unbounded))
            .take_while(move |(rank, _)| status.is_none_or(|status| rank.0 == status))
            .filter_map(|(_, id)| self.by_id.get(id))
    }

    /// Returns the dependencies that keep a yak from being shaved.
    pub fn tangled_by(&self, yak: &Yak) -> impl Iterator<Item = &YakId> {
        let shorn = |id: &YakId| self.by_id.get(id).is_none_or(|yak| yak.status == Status::Shorn);
        let hairy = yak.status == Status::Hairy;
        let unshorn = yak.depends_on.iter().filter_map(|id| self.by_id.get(id).map(|yak| &yak.id));
        unshorn.filter(move |id| hairy && !shorn(id))
    }

    /// Returns the yaks that depend on this one.
    pub fn blocked_by(&self, id: &YakId) -> impl Iterator<Item = &YakId> {
        let lowest = (id.clone(), YakId("".into()));
        self.dependents
            .range(lowest.clone()..)
            .take_while(move |(on, _)| *on == lowest.0)
            .map(|(_, id)| id)
    }

    /// Returns the direct children of a yak, oldest first.
    pub fn children(&self, yak: &Yak) -> impl Iterator<Item = &Arc<Yak>> {
        // An imported child can have any number, so they are not counted through.
        let children = self.descendants(&yak.id).filter_map(|(n, child)| Some((n?, child)));
        let mut children: Vec<(u32, &Arc<Yak>)> = children.collect();
        children.sort_unstable_by_key(|(n, _)| *n);
        children.into_iter().map(|(_, child)| child)
    }

    /// Returns the events that `command` causes, or why it is refused.
    pub(crate) fn decide(&self, command: &Command, cx: &Context) -> Result<Vec<Event>, Refusal> {
        match command {
            Command::SetPrefix { .. } if cx.caller.kind != CallerKind::Hub => Err(Refusal::HubOnly),
            Command::SetPrefix { prefix } => {
                let prefix: Arc<str> = as_prefix(prefix).into();
                let known = self.prefix.as_ref() == Some(&prefix);
                Ok(if known { Vec::new() } else { vec![Event::PrefixSet { prefix }] })
            }
            Command::Create(new) => Ok(vec![self.create(new, cx)?]),
            Command::Update { yak, title, kind, priority, description } => {
                let yak = self.find(yak)?;
                if title.is_none() && kind.is_none() && priority.is_none() && description.is_none()
                {
                    return Err(Refusal::NothingToUpdate);
                }
                let title = title
                    .as_ref()
                    .map(|title| text::line("title", title, TITLE_BYTES_MAX))
                    .transpose()?;
                if let Some(other) = title.as_deref().and_then(|title| self.same_title(title))
                    && other.id != yak.id
                {
                    return Err(Refusal::Exists(other.id.clone()));
                }
                let description =
                    description.as_ref().map(|text| text::body("description", text)).transpose()?;
                Ok(vec![Event::Updated {
                    id: yak.id.clone(),
                    title,
                    kind: *kind,
                    priority: *priority,
                    description,
                    created_at: None,
                    updated_at: None,
                }])
            }
            Command::Move { yak, to, commit } => {
                let yak = self.find(yak)?;
                let commit = commit
                    .as_ref()
                    .map(|commit| text::line("commit", commit, COMMIT_BYTES_MAX))
                    .transpose()?;
                // Moving to where it is already is answered, not refused: agents retry calls they got no reply to.
                let there = yak.status == *to && (commit.is_none() || commit == yak.commit);
                Ok(if there {
                    Vec::new()
                } else {
                    vec![Event::Moved { id: yak.id.clone(), to: *to, commit }]
                })
            }
            Command::AddDependency { yak, on } => {
                let (yak, on) = (self.find(yak)?, self.find(on)?);
                if yak.depends_on.contains(&on.id) {
                    return Ok(Vec::new());
                }
                if yak.depends_on.len() >= LINKS_MAX {
                    return Err(Refusal::TooManyLinks(yak.id.clone()));
                }
                self.check_no_cycle(yak, on)?;
                Ok(vec![Event::DependencyAdded { id: yak.id.clone(), on: on.id.clone() }])
            }
            Command::RemoveDependency { yak, on } => {
                let (yak, on) = (self.find(yak)?, self.find(on)?);
                if !yak.depends_on.contains(&on.id) {
                    return Err(Refusal::NoSuchDependency {
                        yak: yak.id.clone(),
                        on: on.id.clone(),
                    });
                }
                Ok(vec![Event::DependencyRemoved { id: yak.id.clone(), on: on.id.clone() }])
            }
            Command::Label { yak, add, remove } => {
                let yak = self.find(yak)?;
                let add: Vec<Arc<str>> = add
                    .iter()
                    .map(|label| text::line("label", label, LABEL_BYTES_MAX))
                    .collect::<Result<_, _>>()?;
                let kept = yak
                    .labels
                    .iter()
                    .filter(|label| !remove.iter().any(|gone| gone.trim() == &***label));
                let mut labels: Vec<Arc<str>> = kept.cloned().chain(add).collect();
                labels.sort();
                labels.dedup();
                if labels.len() > LINKS_MAX {
                    return Err(Refusal::TooManyLinks(yak.id.clone()));
                }
                let same = labels == yak.labels;
                Ok(if same {
                    Vec::new()
                } else {
                    vec![Event::Labelled { id: yak.id.clone(), labels }]
                })
            }
            Command::Import(_) if cx.caller.kind == CallerKind::Agent => {
                Err(Refusal::OperatorsOnly)
            }
            Command::Import(import) => self.decide_import(import, cx),
        }
    }

    fn create(&self, new: &NewYak, cx: &Context) -> Result<Event, Refusal> {
        if self.by_id.len() >= YAKS_MAX {
            return Err(Refusal::TooMany);
        }
        let NewYak { title, kind, priority, description, parent } = new;
        let title = text::line("title", title, TITLE_BYTES_MAX)?;
        let description = text::body("description", description)?;
        if let Some(existing) = self.same_title(&title) {
            return Err(Refusal::Exists(existing.id.clone()));
        }
        let id = match parent {
            Some(parent) => {
                let parent = self.find(parent)?;
                if parent.id.0.matches('.').count() >= DEPTH_MAX {
                    return Err(Refusal::TooDeep(parent.id.clone()));
                }
                YakId(format!("{}.{}", parent.id, parent.last_child + 1).into())
            }
            None => self.free_id(cx)?,
        };
        Ok(Event::Created { id, title, kind: *kind, priority: *priority, description })
    }

    fn free_id(&self, cx: &Context) -> Result<YakId, Refusal> {
        let team = cx.caller.team.as_ref().map(|team| as_prefix(team.as_str()));
        let prefix = team.as_deref().or(self.prefix()).unwrap_or("yak");
        (0..ID_TRIES)
            .map(|i| {
                let mixed = text::fingerprint(cx.random.wrapping_add(i).to_le_bytes().into_iter());
                YakId(format!("{prefix}-{:04x}", (mixed >> 24) as u16).into())
            })
            .find(|id| !self.by_id.contains_key(id))
            .ok_or(Refusal::NoFreeId)
    }

    /// Returns the yak, not shorn, that has this title. The same title again is the same call again.
    fn same_title(&self, title: &str) -> Option<&Arc<Yak>> {
        let print = title_print(title);
        self.by_title
            .range((print, YakId("".into()))..)
            .take_while(|(other, _)| *other == print)
            .filter_map(|(_, id)| self.by_id.get(id))
            .find(|yak| {
                yak.status != Status::Shorn && yak.title.to_lowercase() == title.to_lowercase()
            })
    }

    fn check_no_cycle(&self, yak: &Yak, on: &Yak) -> Result<(), Refusal> {
        if yak.id == on.id {
            return Err(Refusal::SelfDependency);
        }
        // What nothing depends on closes no circle.
        if self.blocked_by(&yak.id).next().is_none() {
            return Ok(());
        }
        let mut seen = std::collections::BTreeSet::new();
        let mut to_visit = vec![&on.id];
        while let Some(id) = to_visit.pop() {
            if *id == yak.id {
                return Err(Refusal::Cycle { yak: yak.id.clone(), on: on.id.clone() });
            }
            if seen.insert(id) {
                to_visit.extend(self.by_id.get(id).into_iter().flat_map(|yak| &yak.depends_on));
            }
        }
        Ok(())
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record) {
        match event {
            Event::PrefixSet { prefix } => self.prefix = Some(prefix.clone()),
            Event::Created { id, title, kind, priority, description } => {
                if let Some((parent, n)) =
                    id.parent().zip(id.0.rsplit('.').next().and_then(|n| n.parse().ok()))
                {
                    self.change(&parent, |parent| parent.last_child = parent.last_child.max(n));
                }
                self.put(Yak {
                    id: id.clone(),
                    number: self.by_id.len() as u32 + 1,
                    title: title.clone(),
                    kind: *kind,
                    priority: *priority,
                    description: description.clone(),
                    status: Status::Hairy,
                    depends_on: Vec::new(),
                    labels: Vec::new(),
                    commit: None,
                    created_by: record.by.clone(),
                    created_at: record.at,
                    updated_at: record.at,
                    // An imported child can be there before its parent.
                    last_child: self.last_child_of(id),
                });
            }
            Event::Updated { id, title, kind, priority, description, created_at, updated_at } => {
                self.change(id, |yak| {
                    yak.title = title.clone().unwrap_or_else(|| yak.title.clone());
                    yak.kind = kind.unwrap_or(yak.kind);
                    yak.priority = priority.unwrap_or(yak.priority);
                    yak.description =
                        description.clone().unwrap_or_else(|| yak.description.clone());
                    yak.created_at = created_at.unwrap_or(yak.created_at);
                    yak.updated_at = updated_at.unwrap_or(record.at);
                })
            }
            Event::Moved { id, to, commit } => self.change(id, |yak| {
                yak.status = *to;
                yak.commit = commit.clone();
                yak.updated_at = record.at;
            }),
            Event::DependencyAdded { id, on } => self.change(id, |yak| {
                yak.depends_on.push(on.clone());
                yak.updated_at = record.at;
            }),
            Event::DependencyRemoved { id, on } => self.change(id, |yak| {
                yak.depends_on.retain(|id| id != on);
                yak.updated_at = record.at;
            }),
            Event::Labelled { id, labels } => self.change(id, |yak| {
                yak.labels = labels.clone();
                yak.updated_at = record.at;
            }),
        }
    }

    fn change(&mut self, id: &YakId, change: impl FnOnce(&mut Yak)) {
        if let Some(old) = self.by_id.get(id) {
            let mut yak = Yak::clone(old);
            change(&mut yak);
            self.put(yak);
        }
    }

    /// Puts a yak in, new or changed, and keeps every index true.
    fn put(&mut self, yak: Yak) {
        if let Some(was) = self.by_id.get(&yak.id) {
            self.ranked.remove(&was.rank());
            self.counts[was.status as usize] -= 1;
            self.by_title.remove(&(title_print(&was.title), was.id.clone()));
            for on in &was.depends_on {
                self.dependents.remove(&(on.clone(), was.id.clone()));
            }
        }
        self.ranked.insert(yak.rank(), yak.id.clone());
        self.counts[yak.status as usize] += 1;
        self.by_title.insert((title_print(&yak.title), yak.id.clone()));
        for on in &yak.depends_on {
            self.dependents.insert((on.clone(), yak.id.clone()));
        }
        self.by_id.insert(yak.id.clone(), Arc::new(yak));
    }
}

/// Turns a directory's or team's name into what an id can begin with.
fn as_prefix(name: &str) -> String {
    let words = name.to_ascii_lowercase();
    let words = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let prefix: String = words.collect::<Vec<_>>().join("-").chars().take(40).collect();
    if prefix.is_empty() { "yak".into() } else { prefix }
}

fn title_print(title: &str) -> u64 {
    text::fingerprint(title.to_lowercase().bytes())
}

impl From<Stored> for Yaks {
    fn from(stored: Stored) -> Self {
        let mut yaks = Self { prefix: stored.prefix, ..Self::default() };
        stored.yaks.into_iter().for_each(|yak| yaks.put(Yak::clone(&yak)));
        yaks
    }
}

impl From<Yaks> for Stored {
    fn from(yaks: Yaks) -> Self {
        Self { prefix: yaks.prefix, yaks: yaks.by_id.into_iter().map(|(_, yak)| yak).collect() }
    }
}

impl Event {
    pub(crate) fn fate(&self) -> Fate {
        let place = |id: &YakId, what: &str| format!("{id} {what}");
        let places = match self {
            Self::Created { .. } => return Fate::Kept,
            Self::PrefixSet { .. } => vec!["prefix".into()],
            Self::Updated { id, title, kind, priority, description, created_at, updated_at } => {
                let filled = [
                    (title.is_some(), "title"),
                    (kind.is_some(), "kind"),
                    (priority.is_some(), "priority"),
                    (description.is_some(), "description"),
                    (created_at.is_some(), "created"),
                    (updated_at.is_some(), "updated"),
                ];
                filled.iter().filter(|(is, _)| *is).map(|(_, what)| place(id, what)).collect()
            }
            Self::Moved { id, .. } => vec![place(id, "status")],
            Self::DependencyAdded { id, on } | Self::DependencyRemoved { id, on } => {
                vec![place(id, &format!("on {on}"))]
            }
            Self::Labelled { id, .. } => vec![place(id, "labels")],
        };
        Fate::KeptIfLast(places)
    }

    pub(crate) fn summary(&self) -> Summary {
        let text = match self {
            Self::PrefixSet { prefix } => format!("new yaks are called {prefix}-…"),
            Self::Created { id, title, kind, priority, .. } => {
                format!("yak {id} created ({kind}, p{}): {title}", priority.number())
            }
            Self::Updated { id, .. } => format!("yak {id} updated"),
            Self::Moved { id, to, commit: Some(commit) } => format!("yak {id} {to} ({commit})"),
            Self::Moved { id, to, commit: None } => format!("yak {id} {to}"),
            Self::DependencyAdded { id, on } => format!("yak {id} depends on {on}"),
            Self::DependencyRemoved { id, on } => format!("yak {id} no longer depends on {on}"),
            Self::Labelled { id, labels } => format!("yak {id} labelled {}", labels.join(", ")),
        };
        Summary::new("yak", text)
    }

    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Created { title, description, .. } => title.len() + description.len(),
            Self::Updated { title, description, .. } => {
                title.as_ref().map_or(0, |title| title.len())
                    + description.as_ref().map_or(0, |text| text.len())
            }
            Self::Labelled { labels, .. } => labels.iter().map(|label| label.len()).sum(),
            Self::PrefixSet { .. }
            | Self::Moved { .. }
            | Self::DependencyAdded { .. }
            | Self::DependencyRemoved { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests;
