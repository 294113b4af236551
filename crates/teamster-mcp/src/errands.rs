//! Calls that may take longer than their client's patience: how they are waited for, become errands, and go on.
//!
//! A call waits inline for as long as its client tolerates. Then it is written down and goes on by itself: a client
//! that knows tasks gets one, any other is told to make the same call again and joins it so. What is kept and who may
//! see it is decided in [`teamster_core::errand`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use teamster_core::errand::{self, Awaited, Errand, NewErrand, Place, Texts};
use teamster_core::ids::ErrandId;
use teamster_core::key::Key;
use teamster_core::token::Token;
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, Event};

use crate::answer::{Answer, Block, Fault, Outcome, ToolError};
use crate::arguments::in_order;
use crate::ask::{Answers, Ask, Capability, Client};
use crate::call::{Request, patience};
use crate::catalogue::Entry;
use crate::hub::{Failure, wait};
use crate::observe::How;
use crate::progress::Progress;
use crate::running::{admit, call_print, run};
use crate::scope::Scope;
use crate::seal::{Carried, For};
use crate::service::Service;
use crate::set::Set;
use crate::trace::Trace;

/// What a caller hears.
#[derive(Debug)]
pub(crate) enum Called {
    Answer(Answer),
    /// It shall make the call again, with answers to these and with `state`.
    Ask {
        asks: Vec<Ask>,
        state: String,
    },
    /// The call goes on without it.
    Errand(Arc<Errand>),
}

/// A call under way that does not need its caller any more.
type Running = BoxFuture<'static, Result<Outcome, Fault>>;

/// How long to wait before a result that could not be written down is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Returns what a caller hears of an outcome; if it is asked, with what it carries for us.
pub(crate) fn called_of(
    service: &Service,
    outcome: Outcome,
    carried: impl FnOnce() -> Carried,
    whom: For<'_>,
) -> Called {
    match outcome {
        Outcome::Answer(answer) => Called::Answer(answer),
        Outcome::Ask(asks) => Called::Ask { asks, state: service.seal.seal(carried(), whom) },
    }
}

/// Calls a tool that waits.
pub(crate) async fn call(
    service: &Arc<Service>,
    token: &Arc<Token>,
    scope: &Scope,
    entry: &Entry,
    mut request: Request,
    whom: For<'_>,
) -> Result<Called, Fault> {
    let trace = request.trace.clone();
    let refused = |error: ToolError| {
        service.over(Some(entry), token, &trace, How::Refused);
        Ok(Called::Answer(entry.failed(&error)))
    };
    if let Err(answer) = admit(service.hub.as_ref(), token, scope, entry, &request.arguments) {
        service.over(Some(entry), token, &trace, How::Refused);
        return Ok(Called::Answer(answer));
    }
    let print = call_print(entry, scope, &request.arguments);
    let new_key = request.key.is_none().then(|| service.new_key());
    let key =
        match Key::new(request.key.as_deref().or(new_key.as_deref()).unwrap_or_default(), print) {
            Ok(key) => key,
            Err(refusal) => return refused(refusal.into()),
        };
    let state = service.hub.state();
    let before = match state.errands.by_key(&token.principal, &key) {
        Ok(before) => before,
        Err(refusal) => return refused(refusal.into()),
    };
    let arguments = in_order(&Value::Object(request.arguments.clone())).to_string();
    let arguments: Arc<str> = arguments.into();
    let repeated = || {
        let by_repeating = request.key.is_none() && !request.client.tasks;
        let found = state.errands.repeated(&token.principal, &place(scope), print);
        // The fingerprint alone is no proof.
        found.filter(|errand| {
            by_repeating && &*errand.call.tool == entry.name && errand.call.arguments == arguments
        })
    };
    if let Some(errand) = before.or_else(repeated) {
        return join(service, token, entry, errand, request, whom).await;
    }
    let new = NewErrand {
        tool: entry.name.into(),
        place: place(scope),
        arguments,
        key: key.clone(),
        awaited: if request.client.tasks { Awaited::ById } else { Awaited::ByRepeating },
        can: request.client.names().map(Arc::from).collect(),
        given: texts(&request.answers),
    };
    let given_bytes = new.given.iter().map(|(name, text)| name.len() + text.len()).sum::<usize>();
    if let Err(refusal) =
        state.errands.check_room(&token.principal, new.arguments.len() + given_bytes)
    {
        return refused(refusal.into());
    }

    request.key = Some(key.key.to_string());
    let (answers, client) = (request.answers.clone(), request.client);
    let mut running = start(service.clone(), entry, token.clone(), scope.clone(), request);
    let patience = patience(&state, &Caller::of(token), service.patience);
    if let Ok(outcome) = tokio::time::timeout(patience, &mut running).await {
        let carried = || Carried { answers, key: Some(key.key.to_string()) };
        return Ok(called_of(service, outcome?, carried, whom));
    }
    match service
        .hub
        .submit(Caller::of(token), Command::Errand(errand::Command::Begin(new)), None)
        .await
    {
        // The call itself is abandoned, and told as such.
        Err(failure) => Ok(Called::Answer(entry.failed(&failure.into()))),
        Ok(done) => {
            let errand = done.state.errands.by_key(&token.principal, &key);
            let Ok(Some(errand)) = errand.map(Option::<&Arc<Errand>>::cloned) else {
                let given_up = ToolError::new("the call was given up meanwhile");
                return Ok(Called::Answer(entry.failed(&given_up)));
            };
            let begun = |event: &Event| matches!(event, Event::Errand(errand::Event::Begun { id, .. }) if *id == errand.id);
            // The same call may have become one in the meantime, by another request; then that one goes on.
            if done.events.iter().any(begun) {
                go_on(service, errand.id, Some(running));
            }
            Ok(handed_over(&errand, client, entry))
        }
    }
}

/// Says to whom the call does not return that it goes on.
fn handed_over(errand: &Arc<Errand>, client: Client, entry: &Entry) -> Called {
    if client.tasks {
        return Called::Errand(errand.clone());
    }
    let text = format!(
        "Still working on it ({}). Call {} again with the same arguments to go on waiting; the result is kept.",
        errand.id, entry.name
    );
    let content = vec![Block::text(text)];
    Called::Answer(Answer { content, structured_content: None, is_error: false, is_bug: false })
}

/// Waits for an errand that the same call became before.
async fn join(
    service: &Arc<Service>,
    token: &Arc<Token>,
    entry: &Entry,
    errand: &Arc<Errand>,
    request: Request,
    whom: For<'_>,
) -> Result<Called, Fault> {
    if request.client.tasks {
        return Ok(Called::Errand(errand.clone()));
    }
    let (id, hub) = (errand.id, service.hub.as_ref());
    let submit = |command| hub.submit(Caller::of(token), Command::Errand(command), None);
    if !request.answers.is_empty() {
        let (which, place) = (id.to_string(), errand.call.place.clone());
        let give = errand::Command::Give { which, place, answers: texts(&request.answers) };
        if let Err(failure) = submit(give).await {
            return Ok(Called::Answer(entry.failed(&failure.into())));
        }
    }
    let progress = |waited: Duration| request.progress.waited(waited);
    let topic = Topic::Errand(id);
    let patience = patience(&hub.state(), &Caller::of(token), service.patience);
    let changed = wait(hub, &topic, patience, progress, |state| {
        let errand = state.errands.get(id).cloned();
        Some(errand).filter(|errand| errand.as_ref().is_none_or(|errand| !errand.is_ready()))
    });
    let errand = match changed.await {
        None => return Ok(handed_over(errand, request.client, entry)),
        Some(None) => {
            return Ok(Called::Answer(
                entry.failed(&ToolError::new("the call was given up; make it again")),
            ));
        }
        Some(Some(errand)) => errand,
    };
    let answer = match &errand.outcome {
        None => {
            let asks = asks_of(&errand);
            if let Some(ask) = asks.iter().find(|ask| !request.client.has(ask.needs)) {
                return Err(Fault::Needs(ask.needs));
            }
            let key = Some(errand.call.key.key.to_string());
            let carried = || Carried { key, ..Carried::default() };
            return Ok(called_of(service, Outcome::Ask(asks), carried, whom));
        }
        Some(errand::Outcome::Answered(answer)) => answer_of(answer),
        Some(errand::Outcome::Failed(why)) => entry.failed(&ToolError::new(&**why)),
        Some(errand::Outcome::Cancelled) => {
            entry.failed(&ToolError::new("the call was cancelled; make it again"))
        }
    };
    // Whether this is written down or not, the caller has its answer; if not, it would get it once more.
    let _ = submit(errand::Command::Collect { id }).await;
    Ok(Called::Answer(answer))
}

fn start(
    service: Arc<Service>,
    entry: &Entry,
    token: Arc<Token>,
    scope: Scope,
    request: Request,
) -> Running {
    let number = entry.number;
    async move {
        let Service { catalogue, hub, observer, .. } = &*service;
        let entry = &catalogue.entries()[number];
        run(entry, hub.as_ref(), observer.as_ref(), &token, &scope, &request).await
    }
    .boxed()
}

/// Carries on every call that an earlier hub left behind.
pub(crate) fn resume(service: &Arc<Service>) {
    service.hub.state().errands.open().for_each(|errand| go_on(service, errand.id, None));
}

/// Lets an errand go on by itself until it has ended, was given up, or the hub ends. `running` is its call, if it was
/// made already.
fn go_on(service: &Arc<Service>, id: ErrandId, running: Option<Running>) {
    let service = service.clone();
    let task = service.clone();
    service.spawn("carry on a long call", async move {
        let hub = task.hub.as_ref();
        let watch = hub.watch(&Topic::Errand(id));
        let given_up = watch.until(hub, |state| {
            state.errands.get(id).is_none_or(|errand| !errand.is_open()).then_some(())
        });
        let hub_ends = task.streams_ended();
        tokio::select! {
            () = given_up => {}
            () = hub_ends.cancelled() => {}
            () = work(&task, id, running) => {}
        }
    });
}

async fn work(service: &Arc<Service>, id: ErrandId, mut running: Option<Running>) {
    let hub = service.hub.as_ref();
    let watch = hub.watch(&Topic::Errand(id));
    loop {
        let outcome = match running.take() {
            Some(running) => running.await,
            None => {
                let ready = |errand: &&Arc<Errand>| errand.is_ready();
                let errand =
                    watch.until(hub, |state| state.errands.get(id).filter(ready).cloned()).await;
                call_again(service, &errand).await
            }
        };
        match record(service, id, outcome).await {
            Recorded::Asked => {}
            Recorded::Ended => return,
        }
    }
}

/// What is known of an errand after its tool was called.
enum Recorded {
    Asked,
    Ended,
}

/// Writes down what a call came to, however long that takes: nobody else knows it.
async fn record(service: &Service, id: ErrandId, outcome: Result<Outcome, Fault>) -> Recorded {
    let end = |outcome| errand::Command::End { id, outcome };
    let fail = |why: &str| end(errand::Outcome::Failed(why.into()));
    let (mut command, mut then) = match outcome {
        Ok(Outcome::Answer(answer)) if answer.is_bug => (fail(&answer.text()), Recorded::Ended),
        Ok(Outcome::Answer(answer)) => {
            let answer = serde_json::to_string(&answer).unwrap_or_default();
            (end(errand::Outcome::Answered(answer.into())), Recorded::Ended)
        }
        Ok(Outcome::Ask(asks)) => {
            let asks = asks
                .into_iter()
                .map(|ask| (ask.name.into(), ask.request.to_string().into()))
                .collect();
            (errand::Command::Ask { id, asks }, Recorded::Asked)
        }
        Err(fault) => (fail(&fault.to_string()), Recorded::Ended),
    };
    loop {
        let submitted = service.hub.submit(Caller::hub(), Command::Errand(command.clone()), None);
        match submitted.await {
            Ok(_) => return then,
            Err(Failure::Refused(refusal)) => {
                tracing::error!(%refusal, errand = %id, "what a call came to cannot be kept");
                (command, then) = (fail(&refusal.to_string()), Recorded::Ended);
            }
            Err(Failure::Unavailable(why) | Failure::Unknown(why)) => {
                tracing::warn!(why, errand = %id, "a result could not be written down; trying again");
                tokio::time::sleep(TRY_AGAIN_AFTER).await;
            }
        }
    }
}

/// Calls an errand's tool once more, as its principal and with what that may do now.
async fn call_again(service: &Arc<Service>, errand: &Errand) -> Result<Outcome, Fault> {
    let token = service.hub.state().tokens.by_principal(&errand.principal).cloned();
    let NewErrand { tool, place, arguments, key, can, .. } = &errand.call;
    let (Some(token), Ok(Value::Object(arguments))) = (token, serde_json::from_str(arguments))
    else {
        return Err(Fault::BadAnswers("the call cannot be made again".into()));
    };
    let set = place.set.as_deref().and_then(Set::parse);
    let scope = Scope { set, run: place.run.clone(), names_run: true };
    let given = errand
        .given
        .iter()
        .map(|(name, answer)| (name.to_string(), serde_json::from_str(answer).unwrap_or_default()));
    let request = Request {
        name: tool.to_string(),
        arguments,
        key: Some(key.key.to_string()),
        answers: Answers::read(given).map_err(Fault::BadAnswers)?,
        client: Client::named(can.iter().map(AsRef::as_ref)),
        progress: Progress::default(),
        trace: Trace::default(),
    };
    let entry = service.find(&scope, &request.name)?;
    start(service.clone(), entry, token, scope, request).await
}

/// Returns where a call came in, as the log knows it.
pub(crate) fn place(scope: &Scope) -> Place {
    Place { set: scope.set.map(|set| set.name().into()), run: scope.run.clone() }
}

/// Returns answers as the log keeps them.
pub(crate) fn texts(answers: &Answers) -> Texts {
    let text = |answer: &Map<String, Value>| serde_json::to_string(answer).unwrap_or_default();
    answers.iter().map(|(name, answer)| (name.into(), text(answer).into())).collect()
}

fn asks_of(errand: &Errand) -> Vec<Ask> {
    let ask = |(name, request): (&Arc<str>, &Arc<str>)| {
        let request: Value = serde_json::from_str(request).unwrap_or_default();
        let needs = match request["method"].as_str() {
            Some("sampling/createMessage") => Capability::Sampling,
            Some("roots/list") => Capability::Roots,
            Some(_) | None => Capability::Elicitation,
        };
        Ask { name: name.to_string(), needs, request }
    };
    errand.asked.iter().map(ask).collect()
}

/// Reads an answer that was kept. One that cannot be read is shown as it is.
fn answer_of(kept: &str) -> Answer {
    serde_json::from_str(kept).unwrap_or_else(|error| {
        tracing::error!(%error, "an answer that was kept cannot be read");
        let content = vec![Block::text(kept)];
        Answer { content, structured_content: None, is_error: true, is_bug: false }
    })
}
