//! Tries a program out: starts it, shakes hands, and ends it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use teamster_agents::agent::{Begin, Event, Started};
use teamster_agents::dialogue::Dialogue;
use teamster_agents::isolation::Probe;
use teamster_agents::launch::Launch;
use teamster_agents::launches::Launches;
use teamster_agents::supervisor::{self, Supervisor};

use super::launching::{HANDSHAKE_PATIENCE, driver, filled, grace, prepared};
use crate::programs::Program;
use crate::settings::Mcp;
use crate::{secret, tasks};

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

/// Starts a program and shakes hands with it; returns what it says of itself, or what went wrong.
pub async fn check(
    program: &Program,
    path: PathBuf,
    mcp: &Mcp,
) -> anyhow::Result<Result<Started, String>> {
    let trial = Trial::new()?;
    let isolation = trial.supervisor.probe(&id("probe")).await.best();
    let directory = std::env::temp_dir();
    let launch = filled(Launch::new(id("check"), path, isolation), program, None, mcp, &directory);
    let begin = Begin { directory, nonce: secret::nonce(), ..Begin::default() };
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
                let stderr = process.stderr_tail();
                outcome = Err(match stderr.trim() {
                    "" => message,
                    said => format!("{message}; its stderr ends with: {said}"),
                });
                break;
            }
            _ => {}
        }
    }
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
    Ok(outcome)
}
