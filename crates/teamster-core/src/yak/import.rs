//! Yaks that come with an id of their own: from files, or from another tracker.
//!
//! What is imported becomes as it is given, with its times; whoever imports the same again changes nothing. One that
//! cannot be taken in does not keep the others out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    COMMIT_BYTES_MAX, DEPTH_MAX, Event, Kind, LABEL_BYTES_MAX, LINKS_MAX, Priority, Refusal,
    Status, TITLE_BYTES_MAX, YAKS_MAX, Yak, YakId, Yaks, as_prefix,
};
use crate::{Context, Record, Timestamp, text};

/// As many yaks as are imported at once: what becomes of them is one record.
pub const IMPORT_MAX: usize = 1_000;
/// As many bytes as the events of one import may have, stored. A commit's body may be 8 MiB, and others are in it too.
const IMPORT_BYTES_MAX: usize = 5 * 1024 * 1024;
/// As much as an event has beside its texts: at most two ids and the names of fields.
const EVENT_BYTES: usize = 400;
const ID_BYTES_MAX: usize = 128;
/// Longer numbers of children are refused, so that there is always a next one.
const CHILD_DIGITS_MAX: usize = 9;
/// The end of the year 9999.
const TIME_MAX: Timestamp = Timestamp(253_402_300_799_999);

/// What is to be imported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Import {
    pub yaks: Vec<Imported>,
    /// What new ids begin with from now on, if the backlog is still empty.
    pub prefix: Option<String>,
    /// Leave those alone that are there already.
    pub only_new: bool,
}

/// A yak as somebody else knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub id: String,
    /// What it is; without this it is there already, and only its dependencies are set.
    pub content: Option<Content>,
    /// What it depends on; without this, as it is.
    pub depends_on: Option<Vec<String>>,
    pub created_at: Option<Timestamp>,
    pub updated_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub title: String,
    pub kind: Kind,
    pub priority: i64,
    /// May be empty.
    pub description: String,
    pub status: Status,
    pub labels: Vec<String>,
    pub commit: Option<String>,
}

/// What an import comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub events: Vec<Event>,
    pub problems: Vec<Problem>,
}

/// Why a yak was not imported, or one of its dependencies was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Which of the given ones.
    pub index: usize,
    /// What of it.
    pub field: &'static str,
    pub refusal: Refusal,
}

/// A yak whose content was found good.
struct Checked {
    title: Arc<str>,
    kind: Kind,
    priority: Priority,
    description: Arc<str>,
    status: Status,
    labels: Vec<Arc<str>>,
    commit: Option<Arc<str>>,
}

/// A yak that is taken in, on its way.
struct Taken {
    index: usize,
    id: YakId,
    is_new: bool,
    /// Whether events were made of it.
    is_changed: bool,
    fields: Fields,
}

/// What is written anew of a yak that was there.
#[derive(Default, PartialEq)]
struct Fields {
    title: Option<Arc<str>>,
    kind: Option<Kind>,
    priority: Option<Priority>,
    description: Option<Arc<str>>,
}

type Field<T> = Result<T, (&'static str, Refusal)>;

impl YakId {
    /// Returns the id that `given` is: a name in small letters, then the numbers of children. It can be a file's name.
    pub fn parse(given: &str) -> Result<Self, Refusal> {
        let bad = || Refusal::BadId(given.chars().take(80).collect());
        let mut parts = given.split('.');
        let name = parts.next().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_name = name.starts_with(is_plain)
            && name.chars().all(|c| is_plain(c) || matches!(c, '-' | '_'));
        let is_number = |part: &str| {
            (1..=CHILD_DIGITS_MAX).contains(&part.len())
                && !part.starts_with('0')
                && part.bytes().all(|digit| digit.is_ascii_digit())
        };
        let fits = given.len() <= ID_BYTES_MAX && given.matches('.').count() <= DEPTH_MAX;
        if !fits || !is_name || !parts.all(is_number) {
            return Err(bad());
        }
        Ok(Self(given.into()))
    }
}

impl Yaks {
    /// Returns what an import comes to: what it changes, and what of it cannot be taken in.
    pub fn import(&self, import: &Import, cx: &Context) -> Outcome {
        let mut importing = Importing {
            after: self.clone(),
            record: Record {
                at: cx.now,
                by: cx.caller.principal.clone(),
                token: None,
                key: None,
                events: Vec::new(),
            },
            events: Vec::new(),
            problems: Vec::new(),
        };
        let prefix = import.prefix.as_deref().map(as_prefix).filter(|_| self.is_empty());
        if let Some(prefix) = prefix.filter(|prefix| self.prefix() != Some(prefix)) {
            importing.happens(Event::PrefixSet { prefix: prefix.into() });
        }
        let mut seen = BTreeSet::new();
        let mut taken = Vec::new();
        for (index, yak) in import.yaks.iter().enumerate() {
            match importing.take(index, yak, import.only_new, &mut seen) {
                Ok(one) => taken.extend(one),
                Err((field, refusal)) => {
                    importing.problems.push(Problem { index, field, refusal });
                }
            }
        }
        // What goes must be gone before what comes, or there would be circles that nobody asked for.
        for one in &mut taken {
            importing.remove_dependencies(one, &import.yaks[one.index]);
        }
        for one in &mut taken {
            importing.add_dependencies(one, &import.yaks[one.index]);
        }
        for one in taken {
            let given = &import.yaks[one.index];
            importing.finish(one, given);
        }
        Outcome { events: importing.events, problems: importing.problems }
    }

    pub(super) fn decide_import(
        &self,
        import: &Import,
        cx: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        if import.yaks.len() > IMPORT_MAX {
            return Err(Refusal::TooManyAtOnce);
        }
        let events = self.import(import, cx).events;
        let n_bytes: usize =
            // A character that is escaped becomes two.
            events.iter().map(|event| EVENT_BYTES + 2 * event.text_bytes()).sum();
        if n_bytes > IMPORT_BYTES_MAX { Err(Refusal::TooManyAtOnce) } else { Ok(events) }
    }

    /// Returns the highest number of a direct child.
    pub(super) fn last_child_of(&self, id: &YakId) -> u32 {
        self.descendants(id).filter_map(|(n, _)| n).max().unwrap_or(0)
    }

    /// Returns all below a yak, direct children with their number.
    pub(super) fn descendants(&self, id: &YakId) -> impl Iterator<Item = (Option<u32>, &Arc<Yak>)> {
        let start = format!("{id}.");
        let from = YakId(start.as_str().into());
        self.by_id.range(from..).map_while(move |(id, yak)| {
            id.0.strip_prefix(start.as_str()).map(|rest| (rest.parse().ok(), yak))
        })
    }
}

/// An import on its way: the backlog as it will be, and what led there.
struct Importing {
    after: Yaks,
    /// Who imports, and when.
    record: Record,
    events: Vec<Event>,
    problems: Vec<Problem>,
}

impl Importing {
    fn happens(&mut self, event: Event) {
        self.after.apply(&event, &self.record);
        self.events.push(event);
    }

    /// Takes in all of a yak but for its dependencies and times. One that is to be left alone comes to nothing.
    fn take(
        &mut self,
        index: usize,
        given: &Imported,
        only_new: bool,
        seen: &mut BTreeSet<YakId>,
    ) -> Field<Option<Taken>> {
        let id = YakId::parse(&given.id).map_err(|refusal| ("id", refusal))?;
        if !seen.insert(id.clone()) {
            return Err(("id", Refusal::Twice(id)));
        }
        for (field, time) in [("created", given.created_at), ("updated", given.updated_at)] {
            if time.is_some_and(|time| time < Timestamp(0) || time > TIME_MAX) {
                return Err((field, Refusal::BadTime));
            }
        }
        let content = given.content.as_ref().map(checked).transpose()?;
        let before = self.after.get(&id).cloned();
        let mut taken = Taken {
            index,
            id: id.clone(),
            is_new: before.is_none(),
            is_changed: false,
            fields: Fields::default(),
        };
        match (before, content) {
            (Some(_), _) if only_new => return Ok(None),
            (Some(_), None) => {}
            (Some(yak), Some(content)) => {
                taken.fields = Fields {
                    title: Some(content.title.clone()).filter(|title| *title != yak.title),
                    kind: Some(content.kind).filter(|kind| *kind != yak.kind),
                    priority: Some(content.priority).filter(|number| *number != yak.priority),
                    description: Some(content.description.clone())
                        .filter(|text| *text != yak.description),
                };
                taken.is_changed = self.bring(&id, content);
            }
            (None, None) => return Err(("id", Refusal::NotFound(given.id.clone()))),
            (None, Some(_)) if self.after.len() >= YAKS_MAX => {
                return Err(("id", Refusal::TooMany));
            }
            (None, Some(content)) => {
                let Checked { title, kind, priority, description, .. } = &content;
                self.happens(Event::Created {
                    id: id.clone(),
                    title: title.clone(),
                    kind: *kind,
                    priority: *priority,
                    description: description.clone(),
                });
                self.bring(&id, content);
                taken.is_changed = true;
            }
        }
        Ok(Some(taken))
    }

    /// Gives a yak its status, commit and labels. Returns whether it had others.
    fn bring(&mut self, id: &YakId, content: Checked) -> bool {
        let Checked { status, commit, labels, .. } = content;
        let Some(yak) = self.after.get(id).cloned() else { return false };
        let moves = yak.status != status || yak.commit != commit;
        if moves {
            self.happens(Event::Moved { id: id.clone(), to: status, commit });
        }
        let relabels = yak.labels != labels;
        if relabels {
            self.happens(Event::Labelled { id: id.clone(), labels });
        }
        moves || relabels
    }

    fn remove_dependencies(&mut self, taken: &mut Taken, given: &Imported) {
        let Some(wanted) = &given.depends_on else { return };
        let Some(yak) = self.after.get(&taken.id).cloned() else { return };
        let wanted: BTreeSet<&str> = wanted.iter().map(|on| on.trim()).collect();
        for on in yak.depends_on.iter().filter(|on| !wanted.contains(&*on.0)) {
            self.happens(Event::DependencyRemoved { id: taken.id.clone(), on: on.clone() });
            taken.is_changed = true;
        }
    }

    /// Adds the dependencies that can be; each of the others is a problem.
    fn add_dependencies(&mut self, taken: &mut Taken, given: &Imported) {
        for on in given.depends_on.iter().flatten() {
            match self.dependency(&taken.id, on.trim()) {
                Ok(Some(on)) => {
                    self.happens(Event::DependencyAdded { id: taken.id.clone(), on });
                    taken.is_changed = true;
                }
                Ok(None) => {}
                Err(refusal) => {
                    let (index, field) = (taken.index, "depends_on");
                    self.problems.push(Problem { index, field, refusal });
                }
            }
        }
    }

    /// Returns the dependency that is to be added, unless it is there.
    fn dependency(&self, id: &YakId, on: &str) -> Result<Option<YakId>, Refusal> {
        let yak = self.after.find(&id.0)?;
        let Some(on) = YakId::parse(on).ok().and_then(|on| self.after.get(&on)) else {
            let on = on.chars().take(80).collect();
            return Err(Refusal::NoDependency { yak: id.clone(), on });
        };
        if yak.depends_on.contains(&on.id) {
            return Ok(None);
        }
        if yak.depends_on.len() >= LINKS_MAX {
            return Err(Refusal::TooManyLinks(id.clone()));
        }
        self.after.check_no_cycle(yak, on)?;
        Ok(Some(on.id.clone()))
    }

    /// Writes what is left, and the times, which all before has changed.
    fn finish(&mut self, taken: Taken, given: &Imported) {
        let Taken { id, is_new, is_changed, fields, .. } = taken;
        let Some(yak) = self.after.get(&id) else { return };
        // Files know times to the second.
        let differs = |known: Timestamp, given: Timestamp| {
            known.0.div_euclid(1_000) != given.0.div_euclid(1_000)
        };
        let is_changed = is_changed || fields != Fields::default();
        let created_at = given
            .created_at
            .or(given.updated_at.filter(|_| is_new))
            .filter(|given| differs(yak.created_at, *given));
        let updated_at =
            given.updated_at.filter(|given| is_changed || differs(yak.updated_at, *given));
        if fields == Fields::default() && created_at.is_none() && updated_at.is_none() {
            return;
        }
        // Somebody who only knows when it was created does not mean that it was updated now.
        let updated_at = updated_at.or(Some(yak.updated_at).filter(|_| !is_changed));
        let Fields { title, kind, priority, description } = fields;
        self.happens(Event::Updated {
            id,
            title,
            kind,
            priority,
            description,
            created_at,
            updated_at,
        });
    }
}

fn checked(given: &Content) -> Field<Checked> {
    let at = |field| move |bad: text::BadText| (field, Refusal::from(bad));
    let description = match given.description.trim() {
        "" => "".into(),
        description => text::body("description", description).map_err(at("description"))?,
    };
    let labels = given.labels.iter().map(|label| text::line("label", label, LABEL_BYTES_MAX));
    let mut labels = labels.collect::<Result<Vec<_>, _>>().map_err(at("labels"))?;
    labels.sort();
    labels.dedup();
    if labels.len() > LINKS_MAX {
        return Err(("labels", Refusal::TooManyLabels));
    }
    let commit = given.commit.as_ref();
    let commit = commit.map(|commit| text::line("commit", commit, COMMIT_BYTES_MAX));
    Ok(Checked {
        title: text::line("title", &given.title, TITLE_BYTES_MAX).map_err(at("title"))?,
        kind: given.kind,
        priority: Priority::new(given.priority).map_err(|refusal| ("priority", refusal))?,
        description,
        status: given.status,
        labels,
        commit: commit.transpose().map_err(at("commit"))?,
    })
}

#[cfg(test)]
mod tests;
