//! The whole backlog at once, out of the hub and into it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use teamster_core::token::Token;
use teamster_core::yak::{self, Content, Event, Import, Imported, Kind, Status, Yak};
use teamster_core::{Caller, Command, Context, Event as AnyEvent, Timestamp};

use super::{Api, Given, Problem, submit};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/api/yaks/export", get(export)).route("/api/yaks/import", post(import))
}

/// A yak with all that other trackers know of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WholeYak {
    pub id: String,
    /// What it is; in an import it can be left out of a yak that is there, to set only its dependencies.
    pub content: Option<WholeContent>,
    /// In an import, nothing means: as they are.
    pub depends_on: Option<Vec<String>>,
    pub created_at: Option<Timestamp>,
    pub updated_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WholeContent {
    pub title: String,
    #[serde(rename = "type")]
    pub kind: Kind,
    pub priority: i64,
    pub description: String,
    pub status: Status,
    pub labels: Vec<String>,
    pub commit: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Exported {
    pub prefix: Option<String>,
    pub yaks: Vec<WholeYak>,
}

/// What is to be imported; at most [`yak::IMPORT_MAX`] at once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToImport {
    pub yaks: Vec<WholeYak>,
    /// What new ids begin with, if the backlog is still empty.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Leave those alone that are there already.
    #[serde(default)]
    pub only_new: bool,
    /// Say what would change, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// What an import came to; who is not in it is as it was.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub changes: Vec<Change>,
    pub problems: Vec<Trouble>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Change {
    pub id: String,
    pub is_new: bool,
    /// What of it changed, unless it is new.
    pub fields: Vec<String>,
}

/// Why a yak was not imported, or one of its dependencies was not.
#[derive(Debug, Serialize, Deserialize)]
pub struct Trouble {
    /// Which of the given ones, counted from 0.
    pub index: usize,
    pub field: String,
    pub says: String,
}

async fn export(State(api): State<Api>) -> Json<Exported> {
    let state = api.hub.state();
    let whole = |yak: &Arc<Yak>| WholeYak {
        id: yak.id.to_string(),
        content: Some(WholeContent {
            title: yak.title.to_string(),
            kind: yak.kind,
            priority: yak.priority.number().into(),
            description: yak.description.to_string(),
            status: yak.status,
            labels: yak.labels.iter().map(ToString::to_string).collect(),
            commit: yak.commit.as_ref().map(ToString::to_string),
        }),
        depends_on: Some(yak.depends_on.iter().map(ToString::to_string).collect()),
        created_at: Some(yak.created_at),
        updated_at: Some(yak.updated_at),
    };
    let prefix = state.yaks.prefix().map(str::to_owned);
    Json(Exported { prefix, yaks: state.yaks.ranked_after(None, None).map(whole).collect() })
}

async fn import(
    State(api): State<Api>,
    Extension(token): Extension<Arc<Token>>,
    given: Given<ToImport>,
) -> Result<Json<Report>, Problem> {
    let Json(ToImport { yaks, prefix, only_new, dry_run }) = given?;
    let import = Import { yaks: yaks.into_iter().map(as_given).collect(), prefix, only_new };
    let cx = Context {
        caller: Caller::of(&token),
        now: api.clock.now(),
        random: 0,
        quotas: Default::default(),
    };
    if dry_run {
        let outcome = api.hub.state().yaks.import(&import, &cx);
        return Ok(Json(report(&outcome.events, outcome.problems)));
    }
    let command = Command::Yak(yak::Command::Import(import.clone()));
    let done = submit(&api, &token, command).await?;
    // What cannot be imported still cannot be: asking again names it, in the state that includes the rest.
    let problems = done.state.yaks.import(&import, &cx).problems;
    let events = done.events.iter().filter_map(|event| match event {
        AnyEvent::Yak(event) => Some(event),
        _ => None,
    });
    Ok(Json(report(events, problems)))
}

fn as_given(yak: WholeYak) -> Imported {
    let WholeYak { id, content, depends_on, created_at, updated_at } = yak;
    let content = content.map(|content| {
        let WholeContent { title, kind, priority, description, status, labels, commit } = content;
        Content { title, kind, priority, description, status, labels, commit }
    });
    Imported { id, content, depends_on, created_at, updated_at }
}

fn report<'a>(events: impl IntoIterator<Item = &'a Event>, problems: Vec<yak::Problem>) -> Report {
    let mut changes: BTreeMap<String, Change> = BTreeMap::new();
    for event in events {
        let (id, fields): (_, Vec<&str>) = match event {
            Event::PrefixSet { .. } => continue,
            Event::Created { id, .. } => (id, Vec::new()),
            Event::Updated { id, title, kind, priority, description, created_at, updated_at } => {
                let fields = [
                    ("title", title.is_some()),
                    ("type", kind.is_some()),
                    ("priority", priority.is_some()),
                    ("description", description.is_some()),
                    ("created", created_at.is_some()),
                    ("updated", updated_at.is_some()),
                ];
                (id, fields.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect())
            }
            Event::Moved { id, .. } => (id, vec!["status"]),
            Event::DependencyAdded { id, .. } | Event::DependencyRemoved { id, .. } => {
                (id, vec!["depends_on"])
            }
            Event::Labelled { id, .. } => (id, vec!["labels"]),
        };
        let change = changes.entry(id.to_string()).or_insert_with(|| Change {
            id: id.to_string(),
            is_new: matches!(event, Event::Created { .. }),
            fields: Vec::new(),
        });
        if !change.is_new {
            for field in fields {
                if !change.fields.iter().any(|known| known == field) {
                    change.fields.push(field.to_owned());
                }
            }
        }
    }
    let problems = problems.into_iter().map(|problem| Trouble {
        index: problem.index,
        field: problem.field.to_owned(),
        says: problem.refusal.to_string(),
    });
    Report { changes: changes.into_values().collect(), problems: problems.collect() }
}
