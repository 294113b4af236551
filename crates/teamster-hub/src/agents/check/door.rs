//! A door for one trial: the hub's own tools on an empty log in memory, and a note of who came in.
//!
//! A running hub is not asked: a trial must not leave anything in its log, and works without one.

use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::Value;
use teamster_core::grant::{Grant, Grants};
use teamster_core::token::{self, Kind, NewToken};
use teamster_core::{Caller, Command, PrincipalName};
use teamster_log::memory::{Memory, Store};
use teamster_mcp::call::PATIENCE;
use teamster_mcp::door::http as door;
use teamster_mcp::observe;
use teamster_mcp::seal::Seal;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::SystemClock;
use crate::hub::{self, Opened, Parts, Snapshots};
use crate::listen::{self, Connections, Limits};
use crate::project::Project;
use crate::{secret, tasks};

/// How far a program got with the tools that it was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reached {
    /// It has not connected.
    Nothing,
    /// It has connected with the token that it was given.
    Connected,
    /// It has listed the tools.
    Listed,
}

/// Serves until it is dropped.
pub(super) struct Door {
    pub(super) url: String,
    pub(super) token: String,
    reached: watch::Receiver<Reached>,
    stop: CancellationToken,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Door {
    pub(super) async fn open() -> anyhow::Result<Self> {
        let parts = Parts {
            log: Arc::new(Memory::new(&Store::default())),
            clock: Arc::new(SystemClock),
            random: secret::system_random(),
            project: Project::new(std::env::temp_dir()),
            snapshots: Snapshots::USUAL,
        };
        let Opened { handle, run } = hub::start(parts, |_, _| ()).await?;
        tasks::spawn("decide", async move {
            // It ends with the process.
            let _ = run.await;
        });
        let version = env!("CARGO_PKG_VERSION").into();
        let start = Command::Hub(teamster_core::hub::Command::Start { version });
        handle.submit(Caller::hub(), start, None).await?;
        let token = secret::new_secret();
        let new = NewToken {
            principal: PrincipalName::parse("trial")?,
            kind: Kind::Agent,
            secret: secret::hash(&token),
            grants: Grants::new([Grant::Full]),
            run: None,
            team: None,
            expires_at: None,
        };
        let create = Command::Token(token::Command::Create { new, replace: true });
        handle.submit(Caller::hub(), create, None).await?;
        let served = door::Served::new(door::Setup {
            hub: Arc::new(handle),
            catalogue: teamster_mcp::tools::catalogue(),
            secrets: door::Secrets { new: secret::new_secret, hash: secret::hash },
            spawn: Arc::new(|name, task| {
                tasks::spawn(name, task);
            }),
            seal: Seal::new(secret::new_key()?),
            observer: Arc::new(observe::Nobody),
            patience: PATIENCE,
            paces: Arc::default(),
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.context("cannot listen on 127.0.0.1")?;
        let port = listener.local_addr()?.port();
        let (tell, reached) = watch::channel(Reached::Nothing);
        let router = door::router(served, Router::new(), port);
        let router = router.layer(middleware::from_fn_with_state(tell, note));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let limits = Limits::of_this_process();
        tasks::spawn("serve a trial", async move {
            listen::serve(listener, router, limits, Connections::default(), stopped.cancelled())
                .await;
        });
        Ok(Self { url: format!("http://127.0.0.1:{port}/mcp"), token, reached, stop })
    }

    /// Waits until the tools were listed.
    pub(super) async fn listed(&self) {
        let mut reached = self.reached.clone();
        // It ends only with the door.
        let _ = reached.wait_for(|reached| *reached == Reached::Listed).await;
    }

    pub(super) fn reached(&self) -> Reached {
        *self.reached.borrow()
    }
}

/// Notes what a request that was let in asked for.
async fn note(
    State(tell): State<watch::Sender<Reached>>,
    request: Request,
    next: Next,
) -> Response {
    let is_bridge = request.headers().contains_key(header::UPGRADE);
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, door::BODY_BYTES_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let message = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    let let_in = response.status().is_success()
        || (is_bridge && response.status() == StatusCode::SWITCHING_PROTOCOLS);
    if let_in {
        let now =
            if message["method"] == "tools/list" { Reached::Listed } else { Reached::Connected };
        tell.send_if_modified(|reached| {
            let further = now > *reached;
            *reached = now.max(*reached);
            further
        });
    }
    response
}
