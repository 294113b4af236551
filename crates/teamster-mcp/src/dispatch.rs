//! One way in for every tool call, whatever door it came by.

use std::sync::Arc;

use teamster_core::token::Token;

use crate::answer::{Fault, Outcome};
use crate::call::Request;
use crate::catalogue::Catalogue;
use crate::errands::{self, Called, called_of};
use crate::hub::Hub;
use crate::observe::{How, Observer, Watched};
use crate::running::run;
use crate::scope::Scope;
use crate::seal::{Carried, For};
use crate::service::{Service, find};

/// Calls a tool for a door. `state` is what an earlier call gave the client to carry.
pub(crate) async fn call(
    service: &Arc<Service>,
    token: &Arc<Token>,
    scope: &Scope,
    mut request: Request,
    state: Option<&str>,
) -> Result<Called, Fault> {
    let found = service.find(scope, &request.name);
    let entry = found.inspect_err(|_| service.over(None, token, &request.trace, How::Failed))?;
    let principal = token.principal.as_str();
    if let Some(sealed) = state {
        let whom = For { principal, scope, tool: entry.name, arguments: &request.arguments };
        let opened = service.seal.open(sealed, whom);
        let Carried { answers, key } = opened
            .inspect_err(|_| service.over(Some(entry), token, &request.trace, How::Failed))?;
        request.answers = answers.with(request.answers);
        request.key = request.key.or(key);
    }
    if entry.waits {
        let arguments = request.arguments.clone();
        let whom = For { principal, scope, tool: entry.name, arguments: &arguments };
        return errands::call(service, token, scope, entry, request, whom).await;
    }
    let Service { hub, observer, .. } = &**service;
    let called = run(entry, hub.as_ref(), observer.as_ref(), token, scope, &request).await?;
    let whom = For { principal, scope, tool: entry.name, arguments: &request.arguments };
    Ok(called_of(service, called, || Carried { answers: request.answers.clone(), key: None }, whom))
}

/// Calls a tool without a door: whoever calls waits, however long it takes.
pub async fn dispatch(
    catalogue: &Catalogue,
    hub: &dyn Hub,
    observer: &dyn Observer,
    token: &Token,
    scope: &Scope,
    request: &Request,
) -> Result<Outcome, Fault> {
    let entry = find(catalogue, scope, &request.name).inspect_err(|_| {
        Watched::begin(observer, None, token, &request.trace).ends(How::Failed);
    })?;
    run(entry, hub, observer, token, scope, request).await
}

#[cfg(test)]
mod tests;
