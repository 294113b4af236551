//! The arguments of every tool, through dispatch.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use teamster_core::grant::{Grant, Grants};
use teamster_core::permission::Permissions;
use teamster_core::token::{self, Kind, NewToken, SecretHash, Token};
use teamster_core::{Caller, Command, PrincipalName, RunName, role};
use teamster_hub::secret;
use teamster_log::memory::{Faults, Store};
use teamster_mcp::answer::{Answer, Outcome};
use teamster_mcp::call::Request;
use teamster_mcp::dispatch::dispatch;
use teamster_mcp::observe::Nobody;
use teamster_mcp::scope::Scope;
use tokio::runtime::Runtime;

use super::mutate::Mutator;
use super::play;
use crate::in_process::{self, Dice, Running};

/// A good call of every tool. `YAK` stands for the id of a yak that exists.
pub(super) fn good_calls() -> Vec<(&'static str, Value)> {
    vec![
        (
            "task-add",
            json!({"tasks": [{"content": "a", "status": "blocked", "priority": 1}, {"content": "b"}]}),
        ),
        (
            "task-update",
            json!({"id": "TAS-1", "status": "completed", "priority": 4, "depends_on": "TAS-2"}),
        ),
        ("task-list", json!({"cursor": "remaining.2.TAS-1"})),
        ("task-next", json!({"claim": true})),
        ("note-add", json!({"notes": [{"content": "n", "type": "learning"}]})),
        ("note-list", json!({"type": "tip", "cursor": "NOT-1"})),
        ("iteration-summary", json!({"summary": "done"})),
        ("session-complete", json!({})),
        ("draft_agent", json!({"role": "coder", "prompt": "do it", "taskSlug": "a-task"})),
        ("await_agent", json!({"agentId": "coder-1"})),
        ("kill_agent", json!({"agentId": "coder-2"})),
        ("list_agents", json!({"cursor": "0"})),
        ("list_tasks", json!({"cursor": "1"})),
        ("get_task_context", json!({"taskSlug": "a-task"})),
        (
            "team_tell",
            json!({"toTeam": "api", "message": "m", "fromTeam": "web", "waitForResponse": false, "timeout": 1_000}),
        ),
        ("team_isAwake", json!({"team": "api", "includeNotifications": true})),
        ("team_wake", json!({"team": "api", "fromTeam": "web", "clearCache": true})),
        ("team_sleep", json!({"team": "api", "fromTeam": "web", "force": true})),
        ("team_wake_all", json!({"fromTeam": "web", "parallel": true})),
        ("team_report", json!({"team": "api", "fromTeam": "web"})),
        (
            "team_cache_read",
            json!({"sessionId": "CONV-1", "includeMessages": true, "messageCount": 5, "format": "text", "cursor": "0"}),
        ),
        ("team_cache_clear", json!({"sessionId": "CONV-1", "fromTeam": "web"})),
        ("team_getTeamName", json!({"pwd": "/projects/api"})),
        ("team_teams", json!({"includeProcessDetails": true})),
        (
            "create_yak",
            json!({"title": "t", "yak_type": "bug", "priority": 2, "description": "d", "parent": "YAK"}),
        ),
        ("list_yaks", json!({"status": "all", "cursor": "YAK"})),
        ("show_yak", json!({"yak_id": "YAK"})),
        (
            "update_yak",
            json!({"yak_id": "YAK", "title": "u", "yak_type": "task", "priority": 3, "description": "e"}),
        ),
        ("shave_yak", json!({"yak_id": "YAK"})),
        ("shorn_yak", json!({"yak_id": "YAK", "commit": "abc123"})),
        ("regrow_yak", json!({"yak_id": "YAK"})),
        ("dep_yak", json!({"yak_id": "YAK", "dep_action": "add", "dep_id": "YAK"})),
    ]
}

/// A role whose agents nobody runs here.
fn coder() -> role::Role {
    role::Role {
        name: role::RoleName::parse("coder").expect("a name"),
        description: "writes code".into(),
        category: "coding".into(),
        program: "none".into(),
        model: None,
        grants: Grants::everything(),
        limits: role::Limits::USUAL,
        directory: None,
        stall_ms: 1_000,
        tool_stall_ms: 1_000,
        prompt: "".into(),
        permissions: Permissions::default(),
        account: "none".into(),
        max_wait_ms: 50_000,
        guard: teamster_core::guard::Guard::default(),
        reach: teamster_core::role::Reach::Own,
        is_projects: false,
    }
}

/// A hub inside the test with one token that may do everything.
pub(super) struct World {
    pub(super) runtime: Runtime,
    pub(super) store: Store,
    pub(super) hub: Running,
    pub(super) token: Arc<Token>,
}

impl World {
    pub(super) fn new(secret: SecretHash) -> Self {
        // Time is virtual, so that whatever waits is over at once. Processes need the rest of the runtime.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime");
        let store = Store::default();
        let (hub, token) = runtime.block_on(async {
            let hub = in_process::start(&store, &Faults::default(), Dice(1), u64::MAX).await;
            let hub = hub.expect("it starts");
            let new = NewToken {
                principal: PrincipalName::parse("ann").expect("a name"),
                kind: Kind::OPERATOR,
                secret,
                grants: Grants::everything(),
                run: None,
                team: None,
                expires_at: None,
            };
            let create = Command::Token(token::Command::Create { new, replace: false });
            let done = hub.handle.submit(Caller::hub(), create, None).await.expect("it is made");
            let token = done.state.tokens.by_secret(&secret).expect("it lives").clone();
            let prefix = teamster_core::yak::Command::SetPrefix { prefix: "p".into() };
            hub.handle.submit(Caller::hub(), Command::Yak(prefix), None).await.expect("it is set");
            let roles = Command::Role(role::Command::Sync(vec![coder()]));
            hub.handle.submit(Caller::hub(), roles, None).await.expect("they are set");
            (hub, token)
        });
        Self { runtime, store, hub, token }
    }

    /// Makes another token, whose secret is its principal's name.
    pub(super) fn add_token(&self, principal: &str, grants: &[&str], run: Option<&str>) {
        let grants = grants.iter().map(|word| Grant::parse(word).expect("a grant"));
        let new = NewToken {
            principal: PrincipalName::parse(principal).expect("a name"),
            kind: Kind::Agent,
            secret: secret::hash(principal),
            grants: Grants::new(grants),
            run: run.map(|run| RunName::parse(run).expect("a name")),
            team: None,
            expires_at: None,
        };
        let create = Command::Token(token::Command::Create { new, replace: false });
        let made = self.hub.handle.submit(Caller::hub(), create, None);
        self.runtime.block_on(made).expect("it is made");
    }

    pub(super) fn seq(&self) -> u64 {
        self.hub.handle.state().seq()
    }

    /// Puts the id of a yak that exists in place of `YAK`.
    pub(super) fn with_ids(&self, mutator: &mut Mutator, arguments: &Value) -> Value {
        let state = self.hub.handle.state();
        let yaks: Vec<String> =
            state.yaks.ranked_after(None, None).take(20).map(|yak| yak.id.to_string()).collect();
        let yak = if yaks.is_empty() { "p-0000".to_owned() } else { mutator.pick(&yaks).clone() };
        serde_json::from_str(&arguments.to_string().replace("YAK", &yak)).expect("ids are plain")
    }

    fn call(&self, name: &str, arguments: Map<String, Value>, key: Option<&str>) -> Answer {
        let catalogue = teamster_mcp::tools::catalogue();
        let key = key.map(str::to_owned);
        let request = Request { name: name.into(), arguments, key, ..Request::default() };
        let scope = Scope::all();
        let call = dispatch(&catalogue, &self.hub.handle, &Nobody, &self.token, &scope, &request);
        match self.runtime.block_on(call).expect("the tool exists") {
            Outcome::Answer(answer) => answer,
            Outcome::Ask(asks) => panic!("no tool asks: {asks:?}"),
        }
    }

    /// What the log says must be what the hub believes.
    pub(super) fn assert_replays(&self) {
        let again = self.runtime.block_on(async {
            let again = in_process::start(&self.store, &Faults::default(), Dice(2), u64::MAX).await;
            again.expect("whatever was accepted can be replayed").handle.state()
        });
        assert_eq!(*again, *self.hub.handle.state());
    }
}

#[test]
fn tool_arguments() {
    let world = World::new(SecretHash([1; 32]));
    let good = good_calls();
    for entry in teamster_mcp::tools::catalogue().entries() {
        assert!(good.iter().any(|(name, _)| *name == entry.name), "{} has no example", entry.name);
    }
    let (mut n_done, mut n_refused) = (0, 0);
    play("tool_arguments", 8_000, |mutator| {
        let (name, arguments) = mutator.pick(&good).clone();
        let arguments = world.with_ids(mutator, &arguments);
        let arguments = if mutator.one_in(8) { arguments } else { mutator.json(&arguments) };
        let Value::Object(arguments) = arguments else { return };
        let key = mutator.one_in(3).then(|| match mutator.below(3) {
            0 => mutator.odd_text(),
            _ => format!("key-{}", mutator.roll()),
        });
        let before = world.seq();
        let answer = world.call(name, arguments.clone(), key.as_deref());
        assert!(
            !answer.text().contains("this is a bug in Teamster"),
            "{name} {arguments:?}: {}",
            answer.text()
        );
        assert!(!answer.text().is_empty(), "{name} {arguments:?} has no answer");
        if answer.is_error {
            n_refused += 1;
            assert_eq!(world.seq(), before, "{name} {arguments:?} was refused and left something");
        } else {
            n_done += 1;
        }
        if key.is_some() && !answer.is_error && world.seq() > before {
            let now = world.seq();
            let again = world.call(name, arguments.clone(), key.as_deref());
            assert_eq!(again.text(), answer.text(), "{name} {arguments:?} again with its key");
            assert_eq!(world.seq(), now, "{name} {arguments:?} took effect twice");
        }
    });
    println!("{n_done} done, {n_refused} refused");
    assert!(n_done > 100 && n_refused > 100, "{n_done} done, {n_refused} refused");
    world.assert_replays();
}
