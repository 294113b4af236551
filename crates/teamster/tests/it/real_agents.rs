//! Real coding agents share one list, headless and offline: each runs in an empty environment with a home of its own,
//! a dummy key and nothing but loopback addresses, against a scripted model and the real hub.
//!
//! `.ci/install-agents` installs them. Where one is missing a test says that it was skipped, and
//! `TEAMSTER_REQUIRE_AGENTS=claude,goose,codex` makes that a failure.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "agents are started bare here, not by the hub, and a broken fixture should panic"
)]

use std::fs::{self, File};
use std::path::{self, Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fmt};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::hub::Hub;
use crate::optional::Optional;
use crate::scripted_model::{Script, ScriptedModel, Step};

/// A run takes seconds; only a hang, or a machine at many times its load, gets this far.
const DEADLINE: Duration = Duration::from_secs(180);

const ADD: &str = "Put the three chores on the shared list.";
const WORK: &str = "Do one chore from the shared list.";

fn chores() -> [Script; 2] {
    let add = |content: &str| Step::call("task-add", json!({"tasks": [{"content": content}]}));
    [
        Script::new(
            ADD,
            [add("sweep"), add("mop"), add("dust"), Step::say("Three chores are on the list.")],
        ),
        Script::new(
            WORK,
            [
                Step::call("task-next", json!({"claim": true})),
                Step::call(
                    "note-add",
                    json!({"notes": [{"content": "the broom is in the shed", "type": "tip"}]}),
                ),
                Step::call("task-update", json!({"id": "${task-next.id}", "status": "completed"})),
                Step::say("Swept."),
            ],
        ),
    ]
}

/// What the hub's log must say afterwards: who did what, in this order.
const SHARED: [(&str, &str); 6] = [
    ("claude", "TAS-1 added (P2): sweep"),
    ("claude", "TAS-2 added (P2): mop"),
    ("claude", "TAS-3 added (P2): dust"),
    ("goose", "TAS-1 claimed"),
    ("goose", "NOT-1 (tip): the broom is in the shed"),
    ("goose", "TAS-1 now completed"),
];

#[tokio::test]
async fn claude_and_goose_share_one_list() {
    let (Some(claude), Some(goose)) = (find("claude"), find("goose")) else { return };
    let hub = Hub::start();
    let model = ScriptedModel::start(chores()).await;

    let mcp = connect(&hub, "claude");
    run_claude(&claude, &home(), &model.url, Some(&mcp), ADD).await.assert_ok();
    model.assert_played(ADD);

    let mcp = connect(&hub, "goose");
    run_goose(&goose, &home(), &model.url, Some(&mcp), WORK).await.assert_ok();
    model.assert_played(WORK);

    assert_eq!(hub.log(), SHARED.map(|(principal, what)| (principal.to_owned(), what.to_owned())));
}

/// The same, but the agents find the hub through the files that `teamster connect … --write` leaves in their homes.
#[tokio::test]
async fn claude_and_goose_share_one_list_by_their_own_configuration() {
    let (Some(claude), Some(goose)) = (find("claude"), find("goose")) else { return };
    let hub = Hub::start();
    let model = ScriptedModel::start(chores()).await;

    let claude_home = home();
    write_configuration(&hub, "claude", claude_home.path());
    run_claude(&claude, &claude_home, &model.url, None, ADD).await.assert_ok();
    model.assert_played(ADD);

    let goose_home = home();
    write_configuration(&hub, "goose", goose_home.path());
    run_goose(&goose, &goose_home, &model.url, None, WORK).await.assert_ok();
    model.assert_played(WORK);

    assert_eq!(hub.log(), SHARED.map(|(principal, what)| (principal.to_owned(), what.to_owned())));
}

/// How an agent reaches the hub's tools.
pub(crate) struct Mcp {
    pub(crate) url: String,
    pub(crate) token: String,
}

/// Makes a token for a client called `principal`.
fn connect(hub: &Hub, principal: &str) -> Mcp {
    Mcp { url: format!("{}/mcp", hub.url), token: hub.token(principal, "full") }
}

/// Does what a person does whose home is `home`.
fn write_configuration(hub: &Hub, program: &str, home: &Path) {
    let mut command = hub.command();
    let output = command.env("HOME", home).args(["connect", program, "--write"]).output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{output:?}");
}

/// Runs Claude Code on `prompt` until it ends, connected by flags, or by what its home says if `mcp` is none.
pub(crate) async fn run_claude(
    program: &Path,
    home: &TempDir,
    model_url: &str,
    mcp: Option<&Mcp>,
    prompt: &str,
) -> Output {
    let mut command = bare(program, home.path());
    command
        .env("ANTHROPIC_BASE_URL", model_url)
        .env("ANTHROPIC_API_KEY", "dummy")
        .env("DISABLE_AUTOUPDATER", "1")
        .env("DISABLE_TELEMETRY", "1")
        .env("DISABLE_ERROR_REPORTING", "1")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .args(["-p", prompt, "--output-format", "stream-json", "--verbose"])
        .args(["--allowedTools", "mcp__teamster__*"]);
    if let Some(Mcp { url, token }) = mcp {
        let file = home.path().join("mcp.json");
        let headers = json!({"Authorization": format!("Bearer {token}")});
        let servers =
            json!({"mcpServers": {"teamster": {"type": "http", "url": url, "headers": headers}}});
        fs::write(&file, servers.to_string()).expect("the home can be written");
        command.arg("--strict-mcp-config").arg("--mcp-config").arg(file);
    }
    finish(command, home.path()).await
}

/// Runs Goose on `prompt` until it ends, connected to `mcp`, or by what its home says if that is none.
pub(crate) async fn run_goose(
    program: &Path,
    home: &TempDir,
    model_url: &str,
    mcp: Option<&Mcp>,
    prompt: &str,
) -> Output {
    if let Some(Mcp { url, token }) = mcp {
        // No flag of goose can carry a header, so a configuration file it is.
        let config = home.path().join(".config/goose");
        fs::create_dir_all(&config).expect("the home can be written");
        let headers = json!({"Authorization": format!("Bearer {token}")});
        let extension = json!({
            "name": "teamster", "type": "streamable_http", "enabled": true, "uri": url, "headers": headers,
        });
        // JSON is YAML.
        let extensions = json!({"extensions": {"teamster": extension}});
        fs::write(config.join("config.yaml"), extensions.to_string())
            .expect("the home can be written");
    }
    let mut command = bare(program, home.path());
    command
        .env("GOOSE_PROVIDER", "openai")
        .env("GOOSE_MODEL", "scripted")
        .env("GOOSE_MODE", "auto")
        .env("GOOSE_DISABLE_KEYRING", "1")
        .env("OPENAI_HOST", model_url)
        .env("OPENAI_API_KEY", "dummy")
        .args(["run", "--no-session", "--output-format", "stream-json", "--text", prompt]);
    finish(command, home.path()).await
}

/// Tells Codex in its home where its model is.
pub(crate) fn configure_codex(home: &Path, model_url: &str) {
    fs::create_dir_all(home.join(".codex")).expect("the home can be written");
    let settings = format!(
        "model = \"scripted\"\nmodel_provider = \"scripted\"\n\
         [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{model_url}/v1\"\n\
         wire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\n"
    );
    fs::write(home.join(".codex/config.toml"), settings).expect("the home can be written");
}

/// Runs Codex on `prompt` until it ends, connected by what its home says.
pub(crate) async fn run_codex(program: &Path, home: &TempDir, prompt: &str) -> Output {
    let mut command = bare(program, home.path());
    command.env("OPENAI_API_KEY", "dummy").args(["exec", "--skip-git-repo-check", prompt]);
    finish(command, home.path()).await
}

/// What an agent left behind.
pub(crate) struct Output {
    command: String,
    success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    fn assert_ok(&self) {
        assert!(self.success, "{self}");
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n--- stdout\n{}\n--- stderr\n{}", self.command, self.stdout, self.stderr)
    }
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A command that inherits nothing: neither variables nor a terminal nor a project to read settings from.
fn bare(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin")
        .current_dir(home)
        .stdin(Stdio::null());
    command
}

/// Runs `command` to its end. At the deadline it kills the whole process group and panics with what was said so far.
async fn finish(mut command: Command, home: &Path) -> Output {
    // Files rather than pipes: a grandchild that keeps a pipe open would keep us waiting, and a killed agent's last
    // words can still be read.
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| home.join(name));
    let create = |path: &Path| File::create(path).expect("the home can be written");
    command.stdout(create(&stdout)).stderr(create(&stderr)).process_group(0).kill_on_drop(true);
    let mut child = command.spawn().expect("the agent starts");
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));

    let ended = tokio::time::timeout(DEADLINE, child.wait()).await;
    let read = |path: &Path| {
        String::from_utf8_lossy(&fs::read(path).expect("the file exists")).into_owned()
    };
    let mut output = Output {
        command: format!("{:?}", command.as_std()),
        success: false,
        stdout: read(&stdout),
        stderr: read(&stderr),
    };
    match ended {
        Ok(status) => output.success = status.expect("the agent can be waited for").success(),
        Err(_) => {
            if let Some(group) = group {
                // It may have ended just now.
                let _ = kill_process_group(group, Signal::KILL);
            }
            panic!("no end within {DEADLINE:?}: {output}");
        }
    }
    // Shown only when the test fails.
    eprintln!("{output}");
    output
}

/// Returns the path of an agent, or says why the test is skipped; panics if the agent is required.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let installed = match name {
        "claude" => "node_modules/.bin/claude",
        "goose" => "node_modules/@aaif/goose-binary-linux-x64/bin/goose",
        // The program itself; what npm puts into .bin starts it from a script.
        "codex" => {
            "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
        }
        _ => panic!("{name} is not an agent that .ci/install-agents installs"),
    };
    let given = env::var_os("TEAMSTER_AGENTS_DIR").map(PathBuf::from);
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/agents");
    let search_path = env::var_os("PATH").unwrap_or_default();
    let found = given
        .iter()
        .chain([&usual])
        .map(|dir| dir.join(installed))
        .chain(env::split_paths(&search_path).map(|dir| dir.join(name)))
        .find(|candidate| candidate.is_file());
    Optional::Agent(name).is_usable(found.is_some());
    // The agent starts in another directory than ours.
    found.map(|program| path::absolute(program).expect("the current directory exists"))
}
