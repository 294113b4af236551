//! Items: the to-dos of a run.

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};

use crate::compaction::Fate;
use crate::ids::{ItemId, TokenId};
use crate::text::{self, BadText};
use crate::yak::YakId;
use crate::{PrincipalName, Record, Summary};

/// As many items as one call may add; a plan for a large spec fits, a runaway loop does not.
pub const ADDED_AT_ONCE_MAX: usize = 500;
/// As many items as one run may hold.
pub const ITEMS_MAX: u32 = 1_000_000;
/// As many dependencies as one item may have.
pub const DEPENDENCIES_MAX: usize = 100;

/// Maximum number of times an item comes back because its branch is not merged; after that it waits for a person.
pub const RETURNS_MAX: u32 = 3;

/// Where an item stands. The order is the order of the groups in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Remaining,
    InProgress,
    Completed,
    Blocked,
    Cancelled,
}

impl Status {
    pub const ALL: [Self; 5] =
        [Self::Remaining, Self::InProgress, Self::Completed, Self::Blocked, Self::Cancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Remaining => "remaining",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Blocked => "blocked",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(word: &str) -> Result<Self, Refusal> {
        let known = Self::ALL.into_iter().find(|status| status.as_str() == word);
        known.ok_or_else(|| Refusal::UnknownStatus(word.chars().take(80).collect()))
    }

    /// A run can be completed when all of its items are finished. Blocked counts: nothing more can be done about it.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Blocked | Self::Cancelled)
    }

    /// Whether an item that depends on one in this status may be worked on.
    fn frees_dependents(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How urgent an item is: 0 is critical, 1 high, 2 medium, 3 low, 4 backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(u8);

impl Priority {
    pub const MEDIUM: Self = Self(2);

    pub fn new(number: i64) -> Result<Self, Refusal> {
        u8::try_from(number)
            .ok()
            .filter(|n| *n <= 4)
            .map(Self)
            .ok_or(Refusal::InvalidPriority(number))
    }

    pub fn number(self) -> u8 {
        self.0
    }
}

/// Who is working on an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub principal: PrincipalName,
    pub token: TokenId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub id: ItemId,
    pub content: Arc<str>,
    /// Author of the content.
    pub by: PrincipalName,
    pub status: Status,
    pub priority: Priority,
    pub depends_on: Vec<ItemId>,
    /// The iteration in which it was added or its status was changed last.
    pub iteration: u32,
    /// Whoever has it in progress.
    pub holder: Option<Holder>,
    /// The yak that it is about, which is shorn with it.
    pub yak: Option<YakId>,
    /// The work that is merged when it is done.
    pub merge: Option<Merge>,
}

/// Work that could not be merged when its iteration ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    /// Keeps the work.
    pub branch: Arc<str>,
    pub commit: Arc<str>,
    /// How often the item was completed although the work was not merged.
    pub n_returns: u32,
}

/// An item's place in a list: by status, then priority, then age.
pub type Rank = (Status, Priority, ItemId);

impl Item {
    pub fn rank(&self) -> Rank {
        (self.status, self.priority, self.id)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewItem {
    pub content: String,
    pub status: Option<Status>,
    pub priority: Option<Priority>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Adds all of these items, or none.
    Add(Vec<NewItem>),
    /// Changes what is given, all of it or nothing. `depends_on` adds one dependency.
    Update {
        item: String,
        status: Option<Status>,
        priority: Option<Priority>,
        depends_on: Option<String>,
    },
    /// Takes the next ready item, if there is one.
    Claim,
    /// Makes an item of a yak.
    AddYak { yak: String },
    /// Adds an item that is done when a branch is merged.
    AddMerge { new: NewItem, branch: Arc<str>, commit: Arc<str> },
    /// Takes back that an item is completed: its branch is not merged.
    Return { item: ItemId },
    /// Changes what is given of an item, all of it or nothing; adds one if none is named. `depends_on` adds one dependency.
    Edit {
        item: Option<String>,
        content: Option<String>,
        status: Option<Status>,
        priority: Option<Priority>,
        depends_on: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Added {
        id: ItemId,
        content: Arc<str>,
        status: Status,
        priority: Priority,
    },
    Updated {
        id: ItemId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<Status>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<Priority>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        depends_on: Option<ItemId>,
    },
    Claimed {
        id: ItemId,
    },
    Edited {
        id: ItemId,
        content: Arc<str>,
    },
    /// It is about a yak.
    Linked {
        id: ItemId,
        yak: YakId,
    },
    /// Its holder ended before finishing it; it is remaining again.
    Released {
        id: ItemId,
    },
    /// It is done when this branch is merged.
    MergeAsked {
        id: ItemId,
        branch: Arc<str>,
        commit: Arc<str>,
    },
    /// It was completed, but its branch is not merged; it is remaining again.
    Returned {
        id: ItemId,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no tasks given; pass at least one in 'tasks'")]
    NothingToAdd,
    #[error("{0} tasks in one call; the limit is {ADDED_AT_ONCE_MAX}, so split the call")]
    TooManyAtOnce(usize),
    #[error("this run has {ITEMS_MAX} tasks, which is the limit; start another run")]
    TooMany,
    #[error(transparent)]
    Text(#[from] BadText),
    #[error("task already exists with ID {id}: \"{}\"; update that one instead", shortened(.content))]
    Exists { id: ItemId, content: Arc<str> },
    #[error("duplicate task in batch: \"{}\"; nothing was added, so remove one and call again", shortened(.0))]
    TwiceInBatch(Arc<str>),
    #[error("{0} tasks in progress in one batch; add at most one as in_progress")]
    SeveralInProgress(usize),
    #[error(
        "you have {0} in progress already; finish it, or set it to blocked or remaining, before you start another"
    )]
    OneAtATime(ItemId),
    #[error(
        "invalid status: {0:?} (must be remaining, in_progress, completed, blocked or cancelled)"
    )]
    UnknownStatus(String),
    #[error("invalid priority: {0} (must be 0-4)")]
    InvalidPriority(i64),
    #[error("task not found: {0}; task-list shows the ids")]
    NotFound(String),
    #[error("ambiguous task ID prefix: {prefix} (matches {} and more); give the whole id", .matches)]
    Ambiguous { prefix: String, matches: String },
    #[error("no valid update parameters provided; give status, priority or depends_on")]
    NothingToUpdate,
    #[error("task cannot depend on itself")]
    SelfDependency,
    #[error(
        "{item} cannot depend on {on}: {on} depends on {item} already, directly or through others"
    )]
    Cycle { item: ItemId, on: ItemId },
    #[error(
        "{0} has {DEPENDENCIES_MAX} dependencies, which is the limit; group some of them into one task"
    )]
    TooManyDependencies(ItemId),
}

/// Returns a text's beginning, as much as is needed to recognise it.
pub fn shortened(content: &str) -> String {
    match content.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &content[..end]),
        None => content.to_owned(),
    }
}

/// The view of one run's items. All questions the tools ask have an index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Arc<Item>>", into = "Vec<Arc<Item>>")]
pub struct Items {
    by_id: OrdMap<ItemId, Arc<Item>>,
    ranked: OrdSet<Rank>,
    ready: OrdSet<(Priority, ItemId)>,
    /// (dependency, dependent)
    dependents: OrdSet<(ItemId, ItemId)>,
    by_content: OrdSet<(u64, ItemId)>,
    counts: [u32; Status::ALL.len()],
}

impl Items {
    pub fn get(&self, id: ItemId) -> Option<&Arc<Item>> {
        self.by_id.get(&id)
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

    pub fn n_unfinished(&self) -> u32 {
        Status::ALL
            .into_iter()
            .filter(|status| !status.is_finished())
            .map(|status| self.count(status))
            .sum()
    }

    /// Returns the most urgent item that is remaining and waits for nothing.
    pub fn next_ready(&self) -> Option<&Arc<Item>> {
        self.ready.get_min().and_then(|(_, id)| self.by_id.get(id))
    }

    /// Returns those that are remaining and wait for nothing, the most urgent first.
    pub fn ready(&self) -> impl Iterator<Item = &Arc<Item>> {
        self.ready.iter().filter_map(|(_, id)| self.by_id.get(id))
    }

    /// Returns the items ranked after `after`, in the order of a list.
    pub fn ranked_after(&self, after: Option<Rank>) -> impl Iterator<Item = &Arc<Item>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.ranked.range((from, Unbounded)).filter_map(|(_, _, id)| self.by_id.get(id))
    }

    /// Finds an item by its id or by a prefix of at least three characters that fits only one.
    pub fn find(&self, given: &str) -> Result<&Arc<Item>, Refusal> {
        if let Some(item) = ItemId::parse(given).and_then(|id| self.by_id.get(&id)) {
            return Ok(item);
        }
        // Ids are counted from one without gaps, so a prefix that is not an id itself leaves out the number.
        let is_prefix = given.len() >= 3 && given.len() <= ItemId::PREFIX.len() && {
            ItemId::PREFIX.as_bytes()[..given.len()].eq_ignore_ascii_case(given.as_bytes())
        };
        let not_found = || Refusal::NotFound(given.chars().take(80).collect());
        if !is_prefix {
            return Err(not_found());
        }
        let mut items = self.by_id.values();
        match (items.next(), items.next()) {
            (Some(only), None) => Ok(only),
            (Some(first), Some(second)) => Err(Refusal::Ambiguous {
                prefix: given.to_owned(),
                matches: format!("{}, {}", first.id, second.id),
            }),
            (None, _) => Err(not_found()),
        }
    }

    /// Returns the items that somebody is working on.
    pub fn in_progress(&self) -> impl Iterator<Item = ItemId> {
        self.ranked
            .range((Status::InProgress, Priority(0), ItemId(0))..)
            .take_while(|(status, _, _)| *status == Status::InProgress)
            .map(|(_, _, id)| *id)
    }

    /// Returns the events that `command` causes, or why it is refused. `held` are the items that the caller has in
    /// progress since the current iteration began; a claim gets `first` if it can be had, and none that is reserved.
    pub(crate) fn decide(
        &self,
        command: &Command,
        mut held: impl Iterator<Item = ItemId>,
        first: Option<ItemId>,
        is_reserved: &dyn Fn(&Item) -> bool,
    ) -> Result<Vec<Event>, Refusal> {
        match command {
            Command::Add(new) => self.add(new, held.next()),
            Command::Update { item, status, priority, depends_on } => {
                let item = self.find(item.trim())?;
                let changes = (*status, *priority, named(depends_on.as_ref()));
                let updated = self.update(item, changes, held)?;
                Ok(updated.into_iter().collect())
            }
            // Each claim gets an item of its own, also from one caller: workers may share a credential.
            Command::Claim => {
                let own = self.ready().find(|item| Some(item.id) == first);
                let next = own.or_else(|| self.ready().find(|item| !is_reserved(item)));
                Ok(next.map(|item| Event::Claimed { id: item.id }).into_iter().collect())
            }
            Command::AddMerge { new, branch, commit } => {
                let mut events = self.add(std::slice::from_ref(new), held.next())?;
                let (branch, commit) = (branch.clone(), commit.clone());
                let asked = events.first().map(Event::item);
                events.extend(asked.map(|id| Event::MergeAsked { id, branch, commit }));
                Ok(events)
            }
            Command::Return { item } => {
                let not_found = || Refusal::NotFound(item.to_string());
                let item = self.get(*item).ok_or_else(not_found)?;
                Ok(match &item.merge {
                    Some(merge) if item.status == Status::Completed => {
                        // Whoever has tried it so often will not succeed the next time.
                        let is_last = merge.n_returns >= RETURNS_MAX;
                        let (status, priority, depends_on) = (Some(Status::Blocked), None, None);
                        vec![match is_last {
                            true => Event::Updated { id: item.id, status, priority, depends_on },
                            false => Event::Returned { id: item.id },
                        }]
                    }
                    Some(_) | None => Vec::new(),
                })
            }
            Command::AddYak { .. } => unreachable!("this is decided where yaks are at hand"),
            Command::Edit { item: None, content, status, priority, depends_on } => {
                let content = content.clone().ok_or(Refusal::NothingToAdd)?;
                let new = NewItem { content, status: *status, priority: *priority };
                let mut events = self.add(&[new], held.next())?;
                if let (Some(on), Some(added)) = (named(depends_on.as_ref()), events.first()) {
                    let (id, depends_on) = (added.item(), Some(self.find(on)?.id));
                    events.push(Event::Updated { id, status: None, priority: None, depends_on });
                }
                Ok(events)
            }
            Command::Edit { item: Some(item), content, status, priority, depends_on } => {
                let item = self.find(item.trim())?;
                let edited = match content {
                    Some(content) => self.edit(item, content)?,
                    None => None,
                };
                let changes = (*status, *priority, named(depends_on.as_ref()));
                let updated = match self.update(item, changes, held) {
                    Err(Refusal::NothingToUpdate) if content.is_some() => None,
                    updated => updated?,
                };
                Ok(edited.into_iter().chain(updated).collect())
            }
        }
    }

    /// Returns what changes if an item says this.
    fn edit(&self, item: &Item, content: &str) -> Result<Option<Event>, Refusal> {
        let content = text::body("content", content)?;
        match self.same_content(&content) {
            Some(same) if same.id != item.id => {
                Err(Refusal::Exists { id: same.id, content: same.content.clone() })
            }
            Some(_) | None if item.content == content => Ok(None),
            Some(_) | None => Ok(Some(Event::Edited { id: item.id, content })),
        }
    }

    /// Returns what changes if an item has this status, this priority, and one more dependency.
    fn update(
        &self,
        item: &Item,
        (status, priority, depends_on): (Option<Status>, Option<Priority>, Option<&str>),
        mut held: impl Iterator<Item = ItemId>,
    ) -> Result<Option<Event>, Refusal> {
        if status.is_none() && priority.is_none() && depends_on.is_none() {
            return Err(Refusal::NothingToUpdate);
        }
        if status == Some(Status::InProgress)
            && let Some(other) = held.find(|id| *id != item.id)
        {
            return Err(Refusal::OneAtATime(other));
        }
        let depends_on = match depends_on {
            Some(on) => Some(self.dependency(item, self.find(on)?)?),
            None => None,
        };
        // What is so already does not happen; but who works on it may be somebody else now.
        let is_new = |status: &Status| *status == Status::InProgress || *status != item.status;
        let status = status.filter(is_new);
        let priority = priority.filter(|priority| *priority != item.priority);
        let depends_on = depends_on.filter(|on| !item.depends_on.contains(on));
        let happens = status.is_some() || priority.is_some() || depends_on.is_some();
        Ok(happens.then_some(Event::Updated { id: item.id, status, priority, depends_on }))
    }

    fn add(&self, new: &[NewItem], in_progress: Option<ItemId>) -> Result<Vec<Event>, Refusal> {
        if new.is_empty() {
            return Err(Refusal::NothingToAdd);
        }
        if new.len() > ADDED_AT_ONCE_MAX {
            return Err(Refusal::TooManyAtOnce(new.len()));
        }
        let last = self.by_id.get_max().map_or(0, |(id, _)| id.0);
        if last as usize + new.len() > ITEMS_MAX as usize {
            return Err(Refusal::TooMany);
        }
        let n_started = new.iter().filter(|item| item.status == Some(Status::InProgress)).count();
        if n_started > 1 {
            return Err(Refusal::SeveralInProgress(n_started));
        }
        if let (1, Some(other)) = (n_started, in_progress) {
            return Err(Refusal::OneAtATime(other));
        }
        let mut seen = std::collections::BTreeSet::new();
        let mut events = Vec::with_capacity(new.len());
        for (i, NewItem { content, status, priority }) in new.iter().enumerate() {
            let content = text::body(format!("tasks[{i}].content"), content)?;
            if let Some(existing) = self.same_content(&content) {
                return Err(Refusal::Exists { id: existing.id, content: existing.content.clone() });
            }
            if !seen.insert(content.to_lowercase()) {
                return Err(Refusal::TwiceInBatch(content));
            }
            events.push(Event::Added {
                id: ItemId(last + 1 + i as u32),
                content,
                status: status.unwrap_or(Status::Remaining),
                priority: priority.unwrap_or(Priority::MEDIUM),
            });
        }
        Ok(events)
    }

    /// Returns the item that says this.
    pub fn with_content(&self, content: &str) -> Option<&Arc<Item>> {
        self.same_content(content.trim())
    }

    /// Returns those that are not begun before this one is finished, and are not begun.
    pub fn waiting_for(&self, id: ItemId) -> impl Iterator<Item = &Arc<Item>> {
        let dependents = self.dependents.range((id, ItemId(0))..=(id, ItemId(u32::MAX)));
        let dependents = dependents.filter_map(|(_, dependent)| self.by_id.get(dependent));
        dependents.filter(|item| item.status == Status::Remaining)
    }

    fn same_content(&self, content: &str) -> Option<&Arc<Item>> {
        let print = content_print(content);
        self.by_content
            .range((print, ItemId(0))..=(print, ItemId(u32::MAX)))
            .filter_map(|(_, id)| self.by_id.get(id))
            .find(|item| item.content.to_lowercase() == content.to_lowercase())
    }

    /// Returns the dependency to add to `item`, if it may have it.
    fn dependency(&self, item: &Item, on: &Item) -> Result<ItemId, Refusal> {
        if item.id == on.id {
            return Err(Refusal::SelfDependency);
        }
        if item.depends_on.len() >= DEPENDENCIES_MAX {
            return Err(Refusal::TooManyDependencies(item.id));
        }
        let mut seen = std::collections::BTreeSet::new();
        let mut to_visit = vec![on.id];
        while let Some(id) = to_visit.pop() {
            if id == item.id {
                return Err(Refusal::Cycle { item: item.id, on: on.id });
            }
            if seen.insert(id) {
                to_visit.extend(
                    self.by_id
                        .get(&id)
                        .into_iter()
                        .flat_map(|item| item.depends_on.iter().copied()),
                );
            }
        }
        Ok(on.id)
    }

    pub(crate) fn apply(&mut self, event: &Event, record: &Record, iteration: u32) {
        let holder = || record.token.map(|token| Holder { principal: record.by.clone(), token });
        match event {
            Event::Added { id, content, status, priority } => {
                let holder = if *status == Status::InProgress { holder() } else { None };
                let (id, content, status, priority) = (*id, content.clone(), *status, *priority);
                self.put(Item {
                    id,
                    content,
                    by: record.by.clone(),
                    status,
                    priority,
                    depends_on: Vec::new(),
                    iteration,
                    holder,
                    yak: None,
                    merge: None,
                });
            }
            Event::Updated { id, status, priority, depends_on } => self.change(*id, |item| {
                if let Some(status) = *status {
                    item.status = status;
                    item.holder = if status == Status::InProgress { holder() } else { None };
                    item.iteration = iteration;
                }
                item.priority = priority.unwrap_or(item.priority);
                if let Some(on) = *depends_on
                    && !item.depends_on.contains(&on)
                {
                    item.depends_on.push(on);
                }
            }),
            Event::Claimed { id } => self.change(*id, |item| {
                item.status = Status::InProgress;
                item.holder = holder();
                item.iteration = iteration;
            }),
            Event::Edited { id, content } => self.change(*id, |item| {
                item.content = content.clone();
                item.by = record.by.clone();
            }),
            Event::Linked { id, yak } => self.change(*id, |item| item.yak = Some(yak.clone())),
            Event::Released { id } => self.change(*id, |item| {
                item.status = Status::Remaining;
                item.holder = None;
            }),
            Event::MergeAsked { id, branch, commit } => self.change(*id, |item| {
                let (branch, commit) = (branch.clone(), commit.clone());
                item.merge = Some(Merge { branch, commit, n_returns: 0 });
            }),
            Event::Returned { id } => self.change(*id, |item| {
                item.status = Status::Remaining;
                item.holder = None;
                if let Some(merge) = &mut item.merge {
                    merge.n_returns += 1;
                }
            }),
        }
    }

    fn change(&mut self, id: ItemId, change: impl FnOnce(&mut Item)) {
        if let Some(old) = self.by_id.get(&id) {
            let mut item = Item::clone(old);
            change(&mut item);
            self.put(item);
        }
    }

    /// Puts an item in, new or changed, and keeps every index true.
    fn put(&mut self, item: Item) {
        let id = item.id;
        let was = self.by_id.get(&id).cloned();
        if let Some(was) = &was {
            self.ranked.remove(&was.rank());
            self.ready.remove(&(was.priority, id));
            self.counts[was.status as usize] -= 1;
            self.by_content.remove(&(content_print(&was.content), id));
        }
        self.by_content.insert((content_print(&item.content), id));
        self.counts[item.status as usize] += 1;
        self.ranked.insert(item.rank());
        for on in &item.depends_on {
            self.dependents.insert((*on, id));
        }
        let freeing =
            was.is_some_and(|was| was.status.frees_dependents()) != item.status.frees_dependents();
        self.by_id.insert(id, Arc::new(item));
        self.refresh_readiness(id);
        if freeing {
            let dependents: Vec<ItemId> = self
                .dependents
                .range((id, ItemId(0))..=(id, ItemId(u32::MAX)))
                .map(|(_, id)| *id)
                .collect();
            dependents.into_iter().for_each(|id| self.refresh_readiness(id));
        }
    }

    fn refresh_readiness(&mut self, id: ItemId) {
        let Some(item) = self.by_id.get(&id) else { return };
        let free = |on: &ItemId| self.by_id.get(on).is_none_or(|on| on.status.frees_dependents());
        let place = (item.priority, id);
        if item.status == Status::Remaining && item.depends_on.iter().all(free) {
            self.ready.insert(place);
        } else {
            self.ready.remove(&place);
        }
    }
}

/// Two contents are the same if they differ only in case; white space around them is gone already.
fn content_print(content: &str) -> u64 {
    text::fingerprint(content.to_lowercase().bytes())
}

/// An empty name is none.
fn named(id: Option<&String>) -> Option<&str> {
    id.map(|id| id.trim()).filter(|id| !id.is_empty())
}

impl From<Vec<Arc<Item>>> for Items {
    fn from(stored: Vec<Arc<Item>>) -> Self {
        let mut items = Self::default();
        stored.into_iter().for_each(|item| items.put(Item::clone(&item)));
        // An item put in before its dependency counted as ready; look again now that all are there.
        let waiting: Vec<ItemId> =
            items.dependents.iter().map(|(_, dependent)| *dependent).collect();
        waiting.into_iter().for_each(|id| items.refresh_readiness(id));
        items
    }
}

impl From<Items> for Vec<Arc<Item>> {
    fn from(items: Items) -> Self {
        items.by_id.into_iter().map(|(_, item)| item).collect()
    }
}

impl Event {
    pub(crate) fn fate(&self) -> Fate {
        let place = |id: &ItemId, what| format!("{id} {what}");
        match self {
            Self::Added { .. }
            | Self::Linked { .. }
            | Self::MergeAsked { .. }
            // Each is counted.
            | Self::Returned { .. }
            | Self::Updated { depends_on: Some(_), .. } => Fate::Kept,
            Self::Updated { id, status, priority, depends_on: None } => {
                let status = status.map(|_| place(id, "status"));
                let priority = priority.map(|_| place(id, "priority"));
                Fate::KeptIfLast(status.into_iter().chain(priority).collect())
            }
            Self::Claimed { id } => Fate::KeptIfLast(vec![place(id, "status")]),
            Self::Edited { id, .. } => Fate::KeptIfLast(vec![place(id, "content")]),
            // Not the same place: a release leaves the iteration in which the item was worked on last.
            Self::Released { id } => Fate::KeptIfLast(vec![place(id, "released")]),
        }
    }

    /// Returns the item this happened to.
    pub fn item(&self) -> ItemId {
        match self {
            Self::Added { id, .. }
            | Self::Updated { id, .. }
            | Self::Claimed { id }
            | Self::Edited { id, .. }
            | Self::Linked { id, .. }
            | Self::MergeAsked { id, .. }
            | Self::Returned { id }
            | Self::Released { id } => *id,
        }
    }

    /// Says whether somebody says with this how an item stands.
    pub(crate) fn changes_status(&self) -> bool {
        matches!(self, Self::Updated { status: Some(_), .. })
    }

    /// Returns the item that somebody begins to work on with this.
    pub fn starts(&self) -> Option<ItemId> {
        match self {
            Self::Added { id, status: Status::InProgress, .. }
            | Self::Updated { id, status: Some(Status::InProgress), .. }
            | Self::Claimed { id } => Some(*id),
            Self::Added { .. }
            | Self::Updated { .. }
            | Self::Edited { .. }
            | Self::Linked { .. }
            | Self::MergeAsked { .. }
            | Self::Returned { .. }
            | Self::Released { .. } => None,
        }
    }

    /// Returns how much text the event carries, for bounds.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Added { content, .. } | Self::Edited { content, .. } => content.len(),
            Self::MergeAsked { branch, commit, .. } => branch.len() + commit.len(),
            Self::Updated { .. }
            | Self::Claimed { .. }
            | Self::Linked { .. }
            | Self::Returned { .. }
            | Self::Released { .. } => 0,
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        match self {
            Self::Added { id, content, status, priority } => {
                let status = if *status == Status::Remaining {
                    String::new()
                } else {
                    format!(", {status}")
                };
                Summary::new(
                    "add",
                    format!("{id} added (P{}{status}): {}", priority.number(), shortened(content)),
                )
            }
            Self::Updated { id, status, priority, depends_on } => {
                let changes = [
                    status.map(|status| status.to_string()),
                    priority.map(|priority| format!("P{}", priority.number())),
                    depends_on.map(|on| format!("depends on {on}")),
                ];
                Summary::new(
                    "edit",
                    format!(
                        "{id} now {}",
                        changes.into_iter().flatten().collect::<Vec<_>>().join(", ")
                    ),
                )
            }
            Self::Claimed { id } => Summary::new("take", format!("{id} claimed")),
            Self::Linked { id, yak } => Summary::new("yak", format!("{id} is about the yak {yak}")),
            Self::Edited { id, content } => {
                Summary::new("edit", format!("{id} says now: {}", shortened(content)))
            }
            Self::MergeAsked { id, branch, .. } => {
                Summary::new("edit", format!("{id} is done when {branch} is merged"))
            }
            Self::Returned { id } => {
                Summary::new("free", format!("{id} is remaining again: its branch is not merged"))
            }
            Self::Released { id } => {
                Summary::new("free", format!("{id} released: its holder's token ended"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
