//! Yaks for people's programs: listed, labelled, and the whole backlog out of the hub and into it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use teamster_api::paths::{ExportYaks, ImportYaks, LabelYak, ListYaks};
use teamster_api::yaks::{
    Change, ExportPage, Kind as ShownKind, Labelled, Report, Status as ShownStatus, Trouble,
    WholeContent, WholeYak, Yak as ShownYak,
};
use teamster_core::yak::{self, Content, Event, Import, Imported, Kind, Status, Yak};
use teamster_core::{Caller, Command, Context, Event as AnyEvent, State, Timestamp};

use super::Api;
use super::serving::{Answered, ApiRequest, Serve as _, page};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .serve::<ListYaks, _, _>(list)
        .serve::<LabelYak, _, _>(label)
        .serve::<ExportYaks, _, _>(export)
        .serve::<ImportYaks, _, _>(import)
}

fn kind(kind: Kind) -> ShownKind {
    match kind {
        Kind::Bug => ShownKind::Bug,
        Kind::Feature => ShownKind::Feature,
        Kind::Task => ShownKind::Task,
    }
}

fn status(status: Status) -> ShownStatus {
    match status {
        Status::Hairy => ShownStatus::Hairy,
        Status::Shaving => ShownStatus::Shaving,
        Status::Shorn => ShownStatus::Shorn,
    }
}

fn shown(state: &State, yak: &Yak) -> ShownYak {
    ShownYak {
        id: yak.id.to_string(),
        title: yak.title.to_string(),
        kind: kind(yak.kind),
        priority: yak.priority.number(),
        status: status(yak.status),
        description: yak.description.to_string(),
        labels: yak.labels.iter().map(ToString::to_string).collect(),
        commit: yak.commit.as_ref().map(ToString::to_string),
        depends_on: yak.depends_on.iter().map(ToString::to_string).collect(),
        tangled_by: state.yaks.tangled_by(yak).map(ToString::to_string).collect(),
        created_by: yak.created_by.to_string(),
        created_at: yak.created_at.0,
        updated_at: yak.updated_at.0,
    }
}

async fn list(ApiRequest { by, query, .. }: ApiRequest<ListYaks>) -> Answered<ListYaks> {
    let state = by.api.hub.state();
    let which = (query.limit, query.cursor.as_deref());
    let all = state.yaks.ranked_after(None, None);
    page(state.seq(), all, |yak| yak.id.to_string(), |yak| shown(&state, yak), which)
}

async fn label(ApiRequest { by, param: id, body, .. }: ApiRequest<LabelYak>) -> Answered<LabelYak> {
    let (add, remove) = (body.add, body.remove);
    by.submit(Command::Yak(yak::Command::Label { yak: id.clone(), add, remove })).await?;
    Ok(Labelled { labelled: id })
}

fn whole(yak: &Arc<Yak>) -> WholeYak {
    WholeYak {
        id: yak.id.to_string(),
        content: Some(WholeContent {
            title: yak.title.to_string(),
            kind: kind(yak.kind),
            priority: yak.priority.number().into(),
            description: yak.description.to_string(),
            status: status(yak.status),
            labels: yak.labels.iter().map(ToString::to_string).collect(),
            commit: yak.commit.as_ref().map(ToString::to_string),
        }),
        depends_on: Some(yak.depends_on.iter().map(ToString::to_string).collect()),
        created_at: Some(yak.created_at.0),
        updated_at: Some(yak.updated_at.0),
    }
}

async fn export(ApiRequest { by, query, .. }: ApiRequest<ExportYaks>) -> Answered<ExportYaks> {
    let state = by.api.hub.state();
    let which = (query.limit, query.cursor.as_deref());
    let all = state.yaks.ranked_after(None, None);
    let page = page(state.seq(), all, |yak| yak.id.to_string(), whole, which)?;
    let prefix = state.yaks.prefix().map(str::to_owned);
    Ok(ExportPage { prefix, yaks: page.items, next: page.next })
}

async fn import(ApiRequest { by, body, .. }: ApiRequest<ImportYaks>) -> Answered<ImportYaks> {
    let yaks = body.yaks.into_iter().map(as_given).collect();
    let import = Import { yaks, prefix: body.prefix, only_new: body.only_new };
    let cx = Context {
        caller: Caller::of(&by.token),
        now: by.api.clock.now(),
        random: 0,
        quotas: Default::default(),
    };
    if body.dry_run {
        let outcome = by.api.hub.state().yaks.import(&import, &cx);
        return Ok(report(&outcome.events, outcome.problems));
    }
    let done = by.submit(Command::Yak(yak::Command::Import(import.clone()))).await?;
    // What cannot be imported still cannot be: asking again names it, in the state that includes the rest.
    let problems = done.state.yaks.import(&import, &cx).problems;
    let events = done.events.iter().filter_map(|event| match event {
        AnyEvent::Yak(event) => Some(event),
        _ => None,
    });
    Ok(report(events, problems))
}

fn as_given(yak: WholeYak) -> Imported {
    let WholeYak { id, content, depends_on, created_at, updated_at } = yak;
    let content = content.map(|content| Content {
        title: content.title,
        kind: match content.kind {
            ShownKind::Bug => Kind::Bug,
            ShownKind::Feature => Kind::Feature,
            ShownKind::Task => Kind::Task,
        },
        priority: content.priority,
        description: content.description,
        status: match content.status {
            ShownStatus::Hairy => Status::Hairy,
            ShownStatus::Shaving => Status::Shaving,
            ShownStatus::Shorn => Status::Shorn,
        },
        labels: content.labels,
        commit: content.commit,
    });
    let (created_at, updated_at) = (created_at.map(Timestamp), updated_at.map(Timestamp));
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
