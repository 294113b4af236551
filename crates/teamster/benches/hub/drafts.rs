//! Agents: what the hub adds to starting and ending an agent's program, and how much of its memory an idle one takes.
//!
//! The program is the scripted agent. Its script writes into a pipe of ours, which shows when it has begun its turn; that
//! is the same for those that the hub drafts, those that only the launcher starts, and those that are started by hand.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use teamster_agents::isolation::Isolation;
use teamster_agents::launch::{Grace, LINE_BYTES_MAX, Launch, Mask, Terminate};
use teamster_agents::launches::Launches;
use teamster_agents::lines::{Line, Lines};
use teamster_agents::started::Started;
use teamster_agents::supervisor::{Spawn, Supervisor};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe::{OpenOptions, Receiver, Sender};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::Bench;
use crate::connection::Connection;
use crate::load;
use crate::process::{Hub, TEAMSTER, memory_kib};

/// How many agents are started each way in one round.
const DRAFTS: usize = 20;
/// How many agents are idle at once.
const IDLE: usize = 50;

/// How long an agent took, from asking for it: until it began its turn, and from then until it was seen to be gone.
#[derive(Debug, Clone, Copy)]
struct Took {
    begin_ms: f64,
    end_ms: f64,
}

pub(crate) fn measure(bench: &mut Bench) {
    let place = Place::new(&bench.directory);
    let hub = place.hub(&bench.directory, &[]);
    let results = &mut bench.results;
    load::run(async {
        let mut pipe = place.pipe();
        let mut connection = Connection::open(hub.server.address).await;
        let supervisor = place.supervisor();
        let isolation = supervisor.probe("probe").await.best();
        // The first finds out how agents can be isolated.
        drafted(&hub, &mut connection, &place, &mut pipe).await;
        for n in 0..DRAFTS {
            let hand = by_hand(&place, &hub, &mut pipe).await;
            let launched = launched(&place, &hub, &supervisor, isolation, n, &mut pipe).await;
            let drafted = drafted(&hub, &mut connection, &place, &mut pipe).await;
            results.add("draft_begin_ms", drafted.begin_ms);
            results.add("draft_begin_launched_ms", launched.begin_ms);
            results.add("draft_begin_by_hand_ms", hand.begin_ms);
            results.add("draft_overhead_ms", drafted.begin_ms - hand.begin_ms);
            results.add("draft_overhead_launcher_ms", launched.begin_ms - hand.begin_ms);
            results.add("draft_overhead_hub_ms", drafted.begin_ms - launched.begin_ms);
            results.add("draft_begin_vs_by_hand", drafted.begin_ms / hand.begin_ms);
            results.add("draft_end_by_hand_ms", hand.end_ms);
            results.add("draft_end_overhead_ms", drafted.end_ms - hand.end_ms);
        }
    });
}

/// Measures by how much the hub grows when so many of its agents sleep.
pub(crate) fn measure_idle(bench: &mut Bench) {
    let place = Place::new(&bench.directory);
    let room = [format!("pool.running={IDLE}"), format!("pool.live={IDLE}")];
    let hub = place.hub(&bench.directory, &room);
    let grown_kib = load::run(async {
        let mut pipe = place.pipe();
        let mut connection = Connection::open(hub.server.address).await;
        // What the first of all takes is not what each takes.
        drafted(&hub, &mut connection, &place, &mut pipe).await;
        let before_kib = memory_kib(hub.pid());
        for _ in 0..IDLE {
            draft(&hub, &mut connection, &place, &format!("{}\n! hang", place.script())).await;
        }
        let mut n_begun = 0;
        while n_begun < IDLE {
            n_begun += pipe.begun().await;
        }
        memory_kib(hub.pid()) - before_kib
    });
    hub.end();
    bench.results.add("idle_agent_kib", grown_kib / IDLE as f64);
}

/// Where agents work, and the pipe in which they show that they do.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    pub(crate) fn new(below: &Path) -> Self {
        let directory = tempfile::tempdir_in(below).expect("a directory for agents");
        let made = Command::new("mkfifo").arg(directory.path().join("pipe")).status();
        assert!(made.expect("every system has mkfifo").success());
        Self { directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Opens the pipe, for writing too: while that is held it has no end.
    fn pipe(&self) -> Pipe {
        let path = self.path().join("pipe");
        let receiver = OpenOptions::new().open_receiver(&path).expect("the pipe can be opened");
        let held = OpenOptions::new().open_sender(&path).expect("the pipe can be opened");
        Pipe { receiver, _held: held }
    }

    fn script(&self) -> String {
        format!("! write {} x", self.path().join("pipe").display())
    }

    fn state(&self) -> PathBuf {
        self.path().join("sessions")
    }

    pub(crate) fn hub(&self, directory: &Path, settings: &[String]) -> Hub {
        let sets = settings.iter().flat_map(|setting| ["--set".to_owned(), setting.clone()]);
        let arguments: Vec<String> =
            ["--set".to_owned(), "program=scripted".to_owned()].into_iter().chain(sets).collect();
        Hub::start_with(directory, &arguments, &[("TEAMSTER_SCRIPTED_STATE", &self.state())])
    }

    /// Starts the program as one would by hand.
    fn start(&self) -> (Child, Talk<ChildStdout, ChildStdin>) {
        let mut command = tokio::process::Command::new(TEAMSTER);
        command.arg("scripted-agent").env_clear().env("PATH", "/usr/bin:/bin");
        command.env("TEAMSTER_SCRIPTED_STATE", self.state()).current_dir(self.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the agent starts");
        let stdin = process.stdin.take().expect("it is piped");
        let stdout = process.stdout.take().expect("it is piped");
        (process, Talk { stdin, stdout: Lines::new(stdout, LINE_BYTES_MAX) })
    }

    /// Starts it and shakes hands, for several turns.
    pub(crate) async fn talk(&self, hub: &Hub) -> Session {
        let (process, mut talk) = self.start();
        let session = talk.shake_hands(self, hub).await;
        Session { _process: process, talk, session, last: 2 }
    }

    fn supervisor(&self) -> Supervisor {
        let spawn: Spawn = Arc::new(|_, task| drop(tokio::spawn(task)));
        Supervisor::new(TEAMSTER, Launches::new(self.path().join("launches")), spawn)
    }
}

struct Pipe {
    receiver: Receiver,
    _held: Sender,
}

impl Pipe {
    /// Waits until agents have begun their turns; returns how many.
    async fn begun(&mut self) -> usize {
        let mut lines = [0; 1_024];
        let n_bytes = self.receiver.read(&mut lines).await.expect("the pipe can be read");
        lines[..n_bytes].iter().filter(|byte| **byte == b'\n').count()
    }
}

/// Has the hub run an agent, as `teamster draft --wait` does.
async fn drafted(hub: &Hub, connection: &mut Connection, place: &Place, pipe: &mut Pipe) -> Took {
    let asked = Instant::now();
    let id = draft(hub, connection, place, &place.script()).await;
    pipe.begun().await;
    let begin_ms = millis(asked);
    let now = Instant::now();
    let mut last = 0;
    loop {
        let path = format!("/api/agents/{id}/transcript?after={last}&wait_ms=50000");
        let page = connection.exchange(&hub.operators("GET", &path, "")).await.json();
        if page["live"] == false {
            return Took { begin_ms, end_ms: millis(now) };
        }
        last = page["last"].as_u64().expect("a transcript has an end");
    }
}

async fn draft(hub: &Hub, connection: &mut Connection, place: &Place, prompt: &str) -> String {
    let asked = json!({"role": "coder", "prompt": prompt, "directory": place.path()});
    let request = hub.operators("POST", "/api/agents", &asked.to_string());
    let answer = connection.exchange(&request).await.json();
    answer["id"].as_str().unwrap_or_else(|| panic!("no agent: {answer}")).to_owned()
}

async fn by_hand(place: &Place, hub: &Hub, pipe: &mut Pipe) -> Took {
    let asked = Instant::now();
    let (mut process, mut talk) = place.start();
    let begin_ms = talk.begin(place, hub, pipe, asked).await;
    let now = Instant::now();
    talk.answer(3).await;
    drop(talk);
    process.wait().await.expect("it ends");
    Took { begin_ms, end_ms: millis(now) }
}

/// Starts an agent as the hub does, and talks to it as by hand.
async fn launched(
    place: &Place,
    hub: &Hub,
    supervisor: &Supervisor,
    isolation: Isolation,
    n: usize,
    pipe: &mut Pipe,
) -> Took {
    let asked = Instant::now();
    let mut launch = Launch::new(format!("by-hand-{n}"), TEAMSTER, isolation);
    launch.args.push("scripted-agent".into());
    launch.directory = place.path().to_owned();
    launch.environment = vec![("TEAMSTER_SCRIPTED_STATE".into(), place.state().into())];
    launch.masked = vec![Mask::of(hub.data()).expect("the hub made it")];
    let started = supervisor.launch(launch).await.expect("the agent starts");
    let Started { process, stdin, stdout } = started;
    let mut talk = Talk { stdin, stdout };
    let begin_ms = talk.begin(place, hub, pipe, asked).await;
    let now = Instant::now();
    talk.answer(3).await;
    let patience = std::time::Duration::from_secs(10);
    process.end(Grace {
        after_stdin: patience,
        terminate: Terminate::Program,
        after_terminate: patience,
    });
    process.exited().await;
    Took { begin_ms, end_ms: millis(now) }
}

/// A program that was started by hand, ready for turns.
pub(crate) struct Session {
    _process: Child,
    talk: Talk<ChildStdout, ChildStdin>,
    session: Value,
    last: u64,
}

impl Session {
    /// Prompts it, and waits until its turn is over.
    pub(crate) async fn turn(&mut self, prompt: &str) {
        self.last += 1;
        let prompt = json!([{"type": "text", "text": prompt}]);
        let params = json!({"sessionId": self.session, "prompt": prompt});
        self.talk.ask(self.last, "session/prompt", params).await;
        self.talk.answer(self.last).await;
    }
}

/// A talk in ACP without anything that is not needed for one turn.
struct Talk<R, W> {
    stdin: W,
    stdout: Lines<R>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Talk<R, W> {
    /// Shakes hands, and prompts. Returns how long it took until the turn began.
    async fn begin(&mut self, place: &Place, hub: &Hub, pipe: &mut Pipe, asked: Instant) -> f64 {
        let session = self.shake_hands(place, hub).await;
        let prompt = json!([{"type": "text", "text": place.script()}]);
        self.ask(3, "session/prompt", json!({"sessionId": session, "prompt": prompt})).await;
        pipe.begun().await;
        millis(asked)
    }

    async fn shake_hands(&mut self, place: &Place, hub: &Hub) -> Value {
        let hello = json!({"protocolVersion": 1, "clientCapabilities": {}});
        self.ask(1, "initialize", hello).await;
        self.answer(1).await;
        let bearer = format!("Bearer {}", hub.agent);
        let server = json!({
            "type": "http", "name": "teamster", "url": format!("http://{}/mcp", hub.server.address),
            "headers": [{"name": "Authorization", "value": bearer}],
        });
        self.ask(2, "session/new", json!({"cwd": place.path(), "mcpServers": [server]})).await;
        self.answer(2).await["sessionId"].clone()
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let line = format!("{request}\n");
        self.stdin.write_all(line.as_bytes()).await.expect("it listens");
    }

    async fn answer(&mut self, id: u64) -> Value {
        loop {
            let line = match self.stdout.next().await.expect("it can be read") {
                Some(Line::Whole(line)) => line,
                other => panic!("the agent said {other:?}"),
            };
            let message: Value = serde_json::from_slice(&line).expect("it speaks JSON");
            if message["id"] == id && message.get("method").is_none() {
                assert!(message["error"].is_null(), "{message}");
                return message["result"].clone();
            }
        }
    }
}

pub(crate) fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
