//! Tokens for people's programs: created, listed, changed and revoked.

use axum::Router;
use teamster_api::paths::{CreateToken, GrantToken, ListTokens, RevokeToken};
use teamster_api::{ApiError, Code, tokens};
use teamster_core::grant::Grants;
use teamster_core::token::{self, Kind, NewToken, Token};
use teamster_core::{Command, PrincipalName, RunName, TeamName, Timestamp, person};
use teamster_mcp::access::parse_grants;

use super::Api;
use super::serving::{Answered, ApiRequest, Serve as _, invalid, page};
use crate::secret;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .serve::<ListTokens, _, _>(list)
        .serve::<CreateToken, _, _>(create)
        .serve::<GrantToken, _, _>(grant)
        .serve::<RevokeToken, _, _>(revoke)
}

fn shown(token: &Token) -> tokens::Token {
    tokens::Token {
        id: token.id.to_string(),
        name: token.principal.to_string(),
        kind: match token.kind {
            Kind::Person(person::Role::Owner) => tokens::Kind::Operator,
            Kind::Agent => tokens::Kind::Agent,
            Kind::Hub => tokens::Kind::Hub,
        },
        grants: token.grants.to_string(),
        run: token.run.as_ref().map(ToString::to_string),
        team: token.team.as_ref().map(ToString::to_string),
        created_at: token.created_at.0,
        expires_at: token.expires_at.map(|at| at.0),
    }
}

async fn list(ApiRequest { by, query, .. }: ApiRequest<ListTokens>) -> Answered<ListTokens> {
    let state = by.api.hub.state();
    let which = (query.limit, query.cursor.as_deref());
    page(
        state.seq(),
        state.tokens.live(),
        |token| token.id.to_string(),
        |token| shown(token),
        which,
    )
}

async fn create(ApiRequest { by, body, .. }: ApiRequest<CreateToken>) -> Answered<CreateToken> {
    let secret = secret::new_secret();
    let next = || format!("agent-{}", by.api.hub.state().tokens.next_id().0);
    let name = body.name.unwrap_or_else(next);
    let new = NewToken {
        principal: PrincipalName::parse(&name).map_err(invalid)?,
        kind: Kind::Agent,
        secret: secret::hash(&secret),
        grants: grants(&body.grants)?,
        run: body.run.as_deref().map(RunName::parse).transpose().map_err(invalid)?,
        team: body.team.as_deref().map(TeamName::parse).transpose().map_err(invalid)?,
        expires_at: body
            .expires_in_s
            .map(|seconds| Timestamp(by.api.clock.now().0 + i64::from(seconds) * 1_000)),
    };
    let is_repeated = by.is_repeated();
    let create = token::Command::Create { new, replace: body.replace };
    let done = by.submit(Command::Token(create)).await?;
    let made =
        done.state.tokens.by_secret(&secret::hash(&secret)).ok_or_else(|| match is_repeated {
            // Only the hash of a secret is kept, so nobody can say it again.
            true => gone(
                "this request created a token before, and its secret was only in the first answer",
            )
            .with_hint("create the token again with `replace`"),
            false => gone("the token was revoked at once"),
        })?;
    Ok(tokens::CreatedToken { token: shown(made), secret })
}

fn gone(says: &str) -> ApiError {
    ApiError::new(Code::Gone, says)
}

fn grants(words: &[String]) -> Result<Grants, ApiError> {
    parse_grants(&teamster_mcp::tools::catalogue(), words).map_err(invalid)
}

async fn grant(
    ApiRequest { by, param: which, body, .. }: ApiRequest<GrantToken>,
) -> Answered<GrantToken> {
    let grants = grants(&body)?;
    let text = grants.to_string();
    by.submit(Command::Token(token::Command::Grant { which: which.clone(), grants })).await?;
    Ok(tokens::Granted { which, grants: text })
}

async fn revoke(
    ApiRequest { by, param: which, .. }: ApiRequest<RevokeToken>,
) -> Answered<RevokeToken> {
    let done = by.submit(Command::Token(token::Command::Revoke { which: which.clone() })).await?;
    let released_items = done.events.len().saturating_sub(1);
    Ok(tokens::Revoked { revoked: which, released_items })
}
