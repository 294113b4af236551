//! What the protocol's own conformance suite is run against: our door, our dispatch, our hub, with the suite's fixtures
//! in the place of our tools. `.ci/conformance` runs it.
//!
//! `cargo run -p teamster-mcp --example conformance [PORT]` prints where it listens. Everything is in memory.

#![expect(clippy::print_stdout, reason = "this is a program")]
#![expect(clippy::expect_used, reason = "a fixture that is broken should panic")]

mod server;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use http::header::{AUTHORIZATION, HeaderValue};
use teamster_core::grant::{Grant, Grants};
use teamster_core::token::{self, Kind, NewToken};
use teamster_core::{Caller, Command, PrincipalName};
use teamster_hub::clock::SystemClock;
use teamster_hub::hub::{self, Handle, Opened, Parts, Snapshots};
use teamster_hub::project::Project;
use teamster_hub::{secret, tasks};
use teamster_log::memory::{Memory, Store};
use teamster_mcp::Catalogue;
use teamster_mcp::door::http::{Secrets, Served, Setup, router_of};
use teamster_mcp::seal::Seal;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::server::Fixtures;

/// Who the suite is: it sends no token, so this door adds one.
const PRINCIPAL: &str = "suite";

/// As long as a call may take before it becomes a task; short, since the suite waits for tasks.
const PATIENCE: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() {
    let port = std::env::args().nth(1).map_or(0, |port| port.parse().expect("a port"));
    let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();

    let hub = start_hub().await;
    let bearer = let_in(&hub).await;
    let served = Served::new(Setup {
        hub: Arc::new(hub.clone()),
        catalogue: Catalogue::of(tools::all()),
        secrets: Secrets { new: secret::new_secret, hash: secret::hash },
        spawn: Arc::new(|name, task| {
            tasks::spawn(name, task);
        }),
        seal: Seal::new(secret::new_key().expect("randomness")),
        observer: Arc::new(teamster_mcp::observe::Nobody),
        patience: PATIENCE,
        paces: Arc::default(),
    });
    let prompts_changed = watch::Sender::new(());
    let make = move |served| Fixtures::new(served, hub.clone(), prompts_changed.clone());
    let router = router_of(served, Router::new(), port, make)
        .layer(middleware::from_fn_with_state(bearer, add_token));
    println!("http://127.0.0.1:{port}/mcp");
    axum::serve(listener, router).await.expect("the door stays open");
}

async fn start_hub() -> Handle {
    let parts = Parts {
        log: Arc::new(Memory::new(&Store::default())),
        clock: Arc::new(SystemClock),
        random: secret::system_random(),
        project: Project::new("/nowhere"),
        snapshots: Snapshots::USUAL,
    };
    let Opened { handle, run } = hub::start(parts, |_, _| ()).await.expect("an empty log");
    tasks::spawn("decide", async move { run.await.expect("the memory holds") });
    handle
}

/// Makes the suite's token and returns the header that carries it.
async fn let_in(hub: &Handle) -> HeaderValue {
    let secret = secret::new_secret();
    let new = NewToken {
        principal: PrincipalName::parse(PRINCIPAL).expect("a name"),
        kind: Kind::Agent,
        secret: secret::hash(&secret),
        grants: Grants::new([Grant::Full]),
        run: None,
        team: None,
        expires_at: None,
    };
    let create = Command::Token(token::Command::Create { new, replace: false });
    hub.submit(Caller::hub(), create, None).await.expect("a token");
    HeaderValue::from_str(&format!("Bearer {secret}")).expect("a header")
}

async fn add_token(
    State(bearer): State<HeaderValue>,
    mut request: Request,
    next: Next,
) -> axum::response::Response {
    request.headers_mut().entry(AUTHORIZATION).or_insert(bearer);
    next.run(request).await
}
