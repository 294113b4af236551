//! Tries a program out: starts it with our tools, shakes hands, sees whether it lists them, and ends it.

mod door;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use teamster_agents::agent::{Begin, Event, McpServer, Started};
use teamster_agents::dialogue::Dialogue;
use teamster_agents::isolation::Probe;
use teamster_agents::launch::Launch;
use teamster_agents::launches::Launches;
use teamster_agents::supervisor::{self, Supervisor};

use self::door::Door;
pub use self::door::Reached;
use super::launching::{HANDSHAKE_PATIENCE, driver, filled, grace, offer, prepared};
use crate::plain::cleaned;
use crate::programs::Program;
use crate::settings::Mcp;
use crate::{config, secret, tasks};

/// How long a program may take to list our tools once it can be prompted. Some connect only with their first prompt.
const TOOLS_PATIENCE: Duration = Duration::from_secs(10);

/// How long a program that was tried out may take to end; then it is killed.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// A supervisor for a command of ours, which notes its launches in a directory that goes with it.
struct Trial {
    supervisor: Supervisor,
    directory: PathBuf,
}

impl Trial {
    fn new() -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("teamster-trial-{}", std::process::id()));
        let spawn: supervisor::Spawn = Arc::new(|name, task| {
            tasks::spawn(name, task);
        });
        let launches = Launches::new(&directory);
        let supervisor = Supervisor::new(supervisor::own_program()?, launches, spawn);
        Ok(Self { supervisor, directory })
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // Empty by now; if not, it is in nobody's way.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Several may be tried out at a time.
fn id(what: &str) -> String {
    format!("{what}-{}", std::process::id())
}

/// Finds out by trying what agents can be held by on this machine.
pub async fn probe() -> anyhow::Result<Probe> {
    Ok(Trial::new()?.supervisor.probe(&id("probe")).await)
}

/// What a trial of a program showed.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// What it says of itself.
    pub started: Option<Started>,
    /// Why it cannot work, if it cannot.
    pub failed: Option<String>,
    /// How far it got with our tools.
    pub tools: Reached,
    /// The end of its stderr, if it failed.
    pub last_words: Option<String>,
    /// The variables that it takes a key or a login from, if none of them is set.
    pub unset: Vec<String>,
}

/// Starts a program with our tools and shakes hands with it.
pub async fn check(program: &Program, path: PathBuf, mcp: &Mcp) -> anyhow::Result<Checked> {
    let trial = Trial::new()?;
    let door = Door::open().await?;
    let isolation = trial.supervisor.probe(&id("probe")).await.best();
    // Its own: programs read what they find in their directory.
    let directory = trial.directory.join("work");
    std::fs::create_dir_all(&directory)?;
    let launch = filled(Launch::new(id("check"), path, isolation), program, None, mcp, &directory);
    let server = McpServer {
        name: "teamster".into(),
        url: door.url.clone(),
        headers: vec![("Authorization".into(), format!("Bearer {}", door.token))],
        tool_timeout: None,
        bridge: None,
    };
    let mut begin = Begin {
        directory,
        mcp_servers: vec![server],
        nonce: secret::nonce(),
        checks_login: true,
        cannot_resume: !program.load_session,
        ..Begin::default()
    };
    offer(&mut begin, program, &launch);
    let mut driver = driver(program);
    let launch = prepared(launch, driver.as_mut(), &begin);
    let started = trial.supervisor.launch(launch).await?;
    let process = started.process;
    let mut dialogue = Dialogue::new(driver, started.stdout, started.stdin);
    dialogue.begin(&begin, HANDSHAKE_PATIENCE)?;
    let mut outcome = Err("it ended".to_owned());
    while let Some(event) = dialogue.next().await {
        match event {
            Event::Started(started) => {
                outcome = Ok(started);
                break;
            }
            Event::NotStarted { message } => {
                outcome = Err(message);
                break;
            }
            _ => {}
        }
    }
    if outcome.is_ok() {
        // It may say things meanwhile, and must not wait for a reader.
        let talk = async { while dialogue.next().await.is_some() {} };
        tokio::select! {
            () = door.listed() => {}
            () = talk => {}
            () = tokio::time::sleep(TOOLS_PATIENCE) => {}
        }
    }
    let tools = door.reached();
    dialogue.close();
    process.end(grace(program));
    let ended = async {
        let exited = process.exited();
        tokio::pin!(exited);
        loop {
            tokio::select! {
                _ = &mut exited => return,
                event = dialogue.next() => if event.is_none() {
                    exited.await;
                    return;
                },
            }
        }
    };
    if tokio::time::timeout(END_PATIENCE, ended).await.is_err() {
        process.kill();
        process.exited().await;
    }
    let (started, failed) = match outcome {
        Ok(started) => {
            let failed = started.login_missing.clone();
            (Some(started), failed)
        }
        Err(why) => (None, Some(why)),
    };
    // Whole only now that it has ended.
    let last_words = failed.as_ref().map(|_| cleaned(&process.stderr_tail()).trim().to_owned());
    let last_words = last_words.filter(|words| !words.is_empty());
    Ok(Checked { started, failed, tools, last_words, unset: unset(program) })
}

/// Returns the variables by which a program can get a key or a login, if none of them is set.
fn unset(program: &Program) -> Vec<String> {
    let is_key = |name: &String| {
        ["_KEY", "_TOKEN", "_CREDENTIALS"].iter().any(|ending| name.ends_with(ending))
    };
    let keys: Vec<String> = program.pass.iter().map(ToString::to_string).filter(is_key).collect();
    if keys.iter().any(|name| config::is_set(name)) { Vec::new() } else { keys }
}
