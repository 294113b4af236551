//! Programs as agents have them: each speaks ACP, and does what its seed says, well-behaved or not.

use std::collections::VecDeque;

use serde_json::{Value, json};
use teamster_agents::launch::How;
use teamster_core::agent::{Agent, Phase};
use teamster_core::iteration;
use teamster_core::question;
use teamster_core::topic::Topic;
use teamster_hub::secret;
use teamster_mcp::Hub as _;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};

use super::machine::{Machine, Of};
use super::people::{draft, drafted};
use super::*;

/// An answer that the hub has published reaches its program within this time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// How a program behaves as a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// It ends when its standard input does.
    heeds_end: bool,
    pub(super) heeds_term: bool,
    heeds_cancel: bool,
    start: Start,
    /// How long what it started takes to end after it.
    pub(super) lingers: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Good,
    /// It does not load sessions, but makes new ones.
    Forgets,
    /// It ends in the middle of the handshake.
    Ends,
    Hangs,
}

impl Manner {
    pub(super) fn drawn(dice: &mut Dice) -> Self {
        Self {
            heeds_end: dice.below(8) > 0,
            heeds_term: dice.below(4) > 0,
            heeds_cancel: dice.below(5) > 0,
            start: match dice.below(24) {
                0 => Start::Ends,
                1 => Start::Hangs,
                2..5 => Start::Forgets,
                _ => Start::Good,
            },
            lingers: match dice.below(4) {
                0 => dice.millis(3_000),
                _ => dice.millis(20),
            },
        }
    }
}

/// How a turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnEnd {
    Done,
    Stopped(&'static str),
    Failed,
    /// Its account has nothing left.
    Limit,
    Exits,
    Hangs,
}

/// It ends, in this way.
type Step<T> = Result<T, How>;

/// A program that runs.
pub(super) struct Program {
    machine: Arc<Machine>,
    of: Of,
    launch: String,
    manner: Manner,
    dice: Dice,
    session: String,
    secret: String,
    n_asked: u64,
    n_calls: u64,
}

/// What it reads and writes.
struct Pipes {
    lines: Lines<BufReader<DuplexStream>>,
    out: DuplexStream,
    heeds_end: bool,
    /// Requests of the hub that are not dealt with.
    requests: VecDeque<Value>,
    /// The hub's answers, by what they are about.
    answers: BTreeMap<String, Value>,
    is_cancelled: bool,
}

impl Pipes {
    async fn send(&mut self, message: &Value) -> Step<()> {
        let line = format!("{message}\n");
        self.out.write_all(line.as_bytes()).await.map_err(|_| How::Code(1))
    }

    /// Takes in what the hub says next.
    async fn hear(&mut self) -> Step<()> {
        let Ok(Some(line)) = self.lines.next_line().await else {
            return match self.heeds_end {
                true => Err(How::Code(0)),
                false => std::future::pending().await,
            };
        };
        // The hub may close its side in the middle of a line, which is the last one then.
        let Ok(message) = serde_json::from_str::<Value>(&line) else { return Ok(()) };
        match (message["method"].as_str(), message["id"].as_str()) {
            (Some("session/cancel"), _) => self.is_cancelled = true,
            (Some(_), _) => self.requests.push_back(message),
            (None, Some(id)) => drop(self.answers.insert(id.to_owned(), message)),
            (None, None) => panic!("the hub sends {line}"),
        }
        Ok(())
    }

    async fn request(&mut self) -> Step<Value> {
        loop {
            if let Some(request) = self.requests.pop_front() {
                return Ok(request);
            }
            self.hear().await?;
        }
    }

    /// Waits for something while the hub may speak; returns nothing if the turn is cancelled meanwhile.
    async fn until<T>(&mut self, what: impl Future<Output = T>) -> Step<Option<T>> {
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                done = &mut what => return Ok(Some(done)),
                heard = self.hear() => heard?,
            }
            if self.is_cancelled {
                return Ok(None);
            }
        }
    }
}

fn answer(request: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result})
}

fn refusal(request: &Value, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32000, "message": message}})
}

impl Program {
    pub(super) fn new(
        machine: Arc<Machine>,
        of: Of,
        launch: String,
        manner: Manner,
        dice: Dice,
    ) -> Self {
        let (session, secret) = (String::new(), String::new());
        Self { machine, of, launch, manner, dice, session, secret, n_asked: 0, n_calls: 0 }
    }

    /// Runs until it ends by itself.
    pub(super) async fn run(mut self, reads: DuplexStream, writes: DuplexStream) -> How {
        let mut pipes = Pipes {
            lines: BufReader::new(reads).lines(),
            out: writes,
            heeds_end: self.manner.heeds_end,
            requests: VecDeque::new(),
            answers: BTreeMap::new(),
            is_cancelled: false,
        };
        match self.talk(&mut pipes).await {
            Ok(never) => match never {},
            Err(how) => how,
        }
    }

    async fn talk(&mut self, pipes: &mut Pipes) -> Step<std::convert::Infallible> {
        self.shake_hands(pipes).await?;
        loop {
            let prompt = pipes.request().await?;
            self.check_prompt(&prompt);
            pipes.is_cancelled = false;
            self.turn(pipes, &prompt).await?;
        }
    }

    async fn shake_hands(&mut self, pipes: &mut Pipes) -> Step<()> {
        let request = pipes.request().await?;
        self.pause(pipes, 300).await?;
        let can = json!({"loadSession": true, "mcpCapabilities": {"http": true}});
        let us = json!({"name": "played", "version": "1"});
        let hello = json!({"protocolVersion": 1, "agentCapabilities": can, "agentInfo": us});
        pipes.send(&answer(&request, hello)).await?;
        loop {
            let request = pipes.request().await?;
            let header = &request["params"]["mcpServers"][0]["headers"][0]["value"];
            let secret = header.as_str().and_then(|header| header.strip_prefix("Bearer "));
            self.secret = secret.expect("it is given a token").to_owned();
            self.pause(pipes, 300).await?;
            let known = self.machine.agent(&self.of).and_then(|agent| agent.session.clone());
            let resumes = request["method"] == "session/load";
            let given = request["params"]["sessionId"].as_str().unwrap_or_default();
            self.check_session(resumes.then_some(given), known.as_deref());
            if resumes && self.manner.start != Start::Good {
                let start = (self.of.agent.clone(), self.of.incarnation);
                self.machine.ledger(|ledger| ledger.not_resumed.insert(start));
            }
            match self.manner.start {
                Start::Ends => return Err(How::Code(3)),
                Start::Hangs => return std::future::pending().await,
                Start::Forgets if resumes => {
                    pipes.send(&refusal(&request, "no such session")).await?;
                    continue;
                }
                Start::Good | Start::Forgets => {}
            }
            let result = if resumes {
                self.machine.ledger(|ledger| ledger.n_resumed += 1);
                self.session = given.to_owned();
                json!({})
            } else {
                self.session = format!("session of {}", self.launch);
                let new = (self.of.agent.clone(), 0);
                self.machine.ledger(|ledger| ledger.sessions.insert(self.session.clone(), new));
                json!({"sessionId": self.session})
            };
            return pipes.send(&answer(&request, result)).await;
        }
    }

    /// A session goes on that the log knows, if the log knows one and it was not given up.
    fn check_session(&self, given: Option<&str>, known: Option<&str>) {
        let Of { agent, incarnation } = &self.of;
        let start = (agent.clone(), *incarnation);
        let was_given_up = self.machine.ledger(|ledger| ledger.not_resumed.contains(&start));
        let is_right = match given {
            Some(given) => known == Some(given),
            None => known.is_none() || was_given_up,
        };
        if !is_right {
            self.fault(format!("is to go on with {given:?}, and the log says {known:?}"));
        }
        let of_other = self.machine.ledger(|ledger| {
            given.and_then(|given| ledger.sessions.get(given)).is_some_and(|(of, _)| of != agent)
        });
        if of_other {
            self.fault(format!("is to go on with {given:?} of another agent"));
        }
    }

    /// A prompt comes when the log says that a turn has begun, and says what is to be done.
    fn check_prompt(&self, prompt: &Value) {
        let text = prompt["params"]["prompt"][0]["text"].as_str().unwrap_or_default();
        let Some(agent) = self.machine.agent(&self.of) else {
            return self.fault("is prompted, and the log knows of no such start".into());
        };
        if !agent.has_open_turn {
            self.fault("is prompted, and the log does not say that a turn has begun".into());
        }
        let task = match agent.draft.run {
            Some(_) => runs::SPEC,
            None => &*agent.draft.prompt,
        };
        if !text.contains(task) {
            self.fault(format!("is not told its task: {text}"));
        }
    }

    fn fault(&self, what: String) {
        self.machine.fault(format!("{} {what}", self.launch));
    }

    async fn turn(&mut self, pipes: &mut Pipes, prompt: &Value) -> Step<()> {
        let n_steps = self.dice.below(6);
        for _ in 0..n_steps {
            self.step(pipes).await?;
            if pipes.is_cancelled {
                return self.cancelled(pipes, prompt).await;
            }
        }
        if self.machine.agent(&self.of).is_some_and(|agent| agent.draft.run.is_some()) {
            self.work_on_run(pipes).await?;
            if pipes.is_cancelled {
                return self.cancelled(pipes, prompt).await;
            }
        }
        let end = match self.dice.below(40) {
            0..24 => TurnEnd::Done,
            24 => TurnEnd::Stopped("refusal"),
            25 => TurnEnd::Stopped("max_tokens"),
            26 => TurnEnd::Stopped("max_turn_requests"),
            27..29 => TurnEnd::Failed,
            29..33 => TurnEnd::Limit,
            33..37 => TurnEnd::Exits,
            _ => TurnEnd::Hangs,
        };
        match end {
            TurnEnd::Done => {
                let summary = format!("{} is done", self.launch);
                let says = json!({"status": "success", "summary": summary});
                self.say(pipes, &says.to_string()).await?;
                let agent = self.of.agent.clone();
                self.machine.ledger(|ledger| ledger.said.insert(agent, summary));
                pipes.send(&answer(prompt, json!({"stopReason": "end_turn"}))).await
            }
            TurnEnd::Stopped(reason) => {
                pipes.send(&answer(prompt, json!({"stopReason": reason}))).await
            }
            TurnEnd::Failed => pipes.send(&refusal(prompt, "it went wrong")).await,
            TurnEnd::Limit => {
                let now_s = self.machine.hub().now().0 / 1_000;
                let until = now_s + i64::try_from(self.dice.below(1_000)).expect("small");
                let says = match self.dice.below(2) {
                    0 => format!("usage limit reached|{until}"),
                    _ => "rate limit".to_owned(),
                };
                pipes.send(&refusal(prompt, &says)).await
            }
            TurnEnd::Exits => Err(match self.dice.below(2) {
                0 => How::Code(2),
                _ => How::Signal(11),
            }),
            TurnEnd::Hangs => match pipes.until(std::future::pending::<()>()).await? {
                None => self.cancelled(pipes, prompt).await,
                Some(()) => Ok(()),
            },
        }
    }

    /// Gives its turn up, unless it does not listen.
    async fn cancelled(&mut self, pipes: &mut Pipes, prompt: &Value) -> Step<()> {
        if !self.manner.heeds_cancel {
            loop {
                pipes.hear().await?;
            }
        }
        pipes.send(&answer(prompt, json!({"stopReason": "cancelled"}))).await
    }

    async fn step(&mut self, pipes: &mut Pipes) -> Step<()> {
        match self.dice.below(16) {
            0..4 => self.pause(pipes, 2_000).await,
            4 => self.pause(pipes, 40_000).await,
            5..8 => self.say(pipes, "I work on it. ").await,
            8..10 => self.call(pipes).await,
            10..12 => self.spend(pipes).await,
            12..14 => self.ask(pipes).await,
            _ => self.draft(pipes).await,
        }
    }

    /// Works for a while.
    async fn pause(&mut self, pipes: &mut Pipes, below_ms: u64) -> Step<()> {
        let pause = self.dice.millis(below_ms);
        pipes.until(tokio::time::sleep(pause)).await.map(drop)
    }

    async fn update(&mut self, pipes: &mut Pipes, update: Value) -> Step<()> {
        let params = json!({"sessionId": self.session, "update": update});
        let method = "session/update";
        pipes.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await
    }

    async fn say(&mut self, pipes: &mut Pipes, text: &str) -> Step<()> {
        let content = json!({"type": "text", "text": text});
        let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
        self.update(pipes, update).await
    }

    async fn call(&mut self, pipes: &mut Pipes) -> Step<()> {
        self.n_calls += 1;
        let id = format!("call-{}", self.n_calls);
        let input = json!({"n": self.n_calls});
        let call = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": id, "kind": "read", "rawInput": input});
        self.update(pipes, call).await?;
        self.pause(pipes, 500).await?;
        let status = if self.dice.below(4) == 0 { "failed" } else { "completed" };
        let done = json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status});
        self.update(pipes, done).await
    }

    /// Costs something; a session goes on counting where it was.
    async fn spend(&mut self, pipes: &mut Pipes) -> Step<()> {
        let more = self.dice.below(150);
        let total = self.machine.ledger(|ledger| {
            let (_, total) = ledger.sessions.get_mut(&self.session).expect("it has a session");
            *total += more;
            *total
        });
        let cost = json!({"amount": total as f64 / 1e6, "currency": "USD"});
        let used = json!({"sessionUpdate": "usage_update", "used": 1, "size": 9, "cost": cost});
        self.update(pipes, used).await
    }

    /// Asks for leave, and goes on with what it is told.
    async fn ask(&mut self, pipes: &mut Pipes) -> Step<()> {
        self.n_asked += 1;
        let id = format!("asked-{}", self.n_asked);
        let title = format!("{id} of {}", self.launch);
        let call = json!({"toolCallId": id, "kind": "execute", "status": "pending", "title": title, "rawInput": {"command": title}});
        let option = |id: &str| json!({"optionId": id, "name": id, "kind": id});
        let options = [option("allow_once"), option("reject_once")];
        let params = json!({"sessionId": self.session, "toolCall": call, "options": options});
        let method = "session/request_permission";
        pipes
            .send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        let hub = self.machine.hub();
        let watch = hub.watch(&Topic::Log);
        let mut overdue = std::pin::pin!(async {
            watch.until(&hub, |state| how_settled(state, &title).flatten().map(drop)).await;
            tokio::time::sleep(ANSWER_PATIENCE).await;
        });
        let mut is_overdue = false;
        let answer = loop {
            if let Some(answer) = pipes.answers.remove(&id) {
                break answer;
            }
            if pipes.is_cancelled {
                return Ok(());
            }
            tokio::select! {
                biased;
                heard = pipes.hear() => heard?,
                () = &mut overdue, if !is_overdue => {
                    is_overdue = true;
                    // One that is being ended is not told any more.
                    if self.machine.agent(&self.of).is_some_and(|agent| is_running(&agent)) {
                        self.fault(format!("never hears the answer to {title}"));
                    }
                }
            }
        };
        self.machine.ledger(|ledger| ledger.n_answered += 1);
        self.check_answer(&title, &answer);
        Ok(())
    }

    /// A program hears what people said, or what holds if nobody does.
    fn check_answer(&self, title: &str, answer: &Value) {
        let heard = answer["result"]["outcome"]["optionId"].as_str();
        let state = self.machine.hub().state();
        let settled = how_settled(&state, title).flatten();
        let said = match &settled {
            Some(question::How::Answered { word, .. }) => Some(&**word),
            Some(question::How::Expired) => Some("deny"),
            Some(question::How::Withdrawn) | None => None,
        };
        let is_right = match heard {
            Some("allow_once") => said == Some("allow"),
            Some("reject_once") => said == Some("deny"),
            Some(_) => false,
            None => said.is_none(),
        };
        if !is_right {
            self.fault(format!("hears {heard:?} of {title}, and the log says {settled:?}"));
        }
    }

    /// Returns who it is to the hub, unless its token has ended with its agent.
    fn caller(&self) -> Option<Caller> {
        let state = self.machine.hub().state();
        if let Some(token) = state.tokens.by_secret(&secret::hash(&self.secret)) {
            return Some(Caller::of(token));
        }
        let agent = self.machine.agent(&self.of);
        if agent.is_some_and(|agent| is_running(&agent)) {
            self.fault("runs, and its token is not known".into());
        }
        None
    }

    /// Calls the hub as its agent does. Returns nothing if that is refused, or the answer is not heard.
    async fn submit(&mut self, pipes: &mut Pipes, command: Command) -> Step<Option<Done>> {
        let Some(caller) = self.caller() else { return Ok(None) };
        self.n_calls += 1;
        let key = format!("{}-{}", self.launch, self.n_calls);
        let key = Key::new(&key, 1).expect("it is a key");
        let hub = self.machine.hub();
        let told = pipes.until(hub.submit(caller, command, Some(key))).await?;
        Ok(told.and_then(Result::ok))
    }

    /// Does what an iteration is for: plans, or takes an item and completes it, mostly.
    async fn work_on_run(&mut self, pipes: &mut Pipes) -> Step<()> {
        let Some(agent) = self.machine.agent(&self.of) else { return Ok(()) };
        let Some(run) = agent.draft.run.clone() else { return Ok(()) };
        let state = self.machine.hub().state();
        let Some(open) = state.runs.get(&run).iterations.of(&agent.id.principal()).cloned() else {
            self.fault("works on a run, and the log has no iteration of it".into());
            return Ok(());
        };
        let in_run = |what| Command::Run { run: run.clone(), what };
        if open.plans {
            let item =
                |n| item::NewItem { content: format!("item {n}"), status: None, priority: None };
            let items = (0..1 + self.dice.below(3)).map(item).collect();
            let add = in_run(run::Command::Item(item::Command::Add(items)));
            self.submit(pipes, add).await?;
        } else {
            let claim = in_run(run::Command::Item(item::Command::Claim));
            let claimed = self.submit(pipes, claim).await?;
            self.pause(pipes, 3_000).await?;
            let claimed = claimed.and_then(|done| runs::claimed(&done)).or(open.item);
            if let Some(id) = claimed.filter(|_| self.dice.below(6) > 0) {
                let status = Some(item::Status::Completed);
                let (item, priority, depends_on) = (id.to_string(), None, None);
                let update = item::Command::Update { item, status, priority, depends_on };
                self.submit(pipes, in_run(run::Command::Item(update))).await?;
            }
        }
        let text = format!("summary by {}", self.launch);
        let summary = run::Command::Iteration(iteration::Command::Summarise { text });
        self.submit(pipes, in_run(summary)).await?;
        if !open.plans && self.dice.below(3) > 0 {
            self.submit(pipes, in_run(run::Command::Complete)).await?;
        }
        Ok(())
    }

    /// Has others work, and waits for them or not.
    async fn draft(&mut self, pipes: &mut Pipes) -> Step<()> {
        let hub = self.machine.hub();
        let Some(caller) = self.caller() else { return Ok(()) };
        let draft = draft("hand", &format!("help {}", self.launch), hub.directory());
        let told = self.submit(pipes, draft).await?;
        let Some(child) = told.and_then(|told| drafted(&told)) else { return Ok(()) };
        if self.dice.below(2) == 0 {
            return Ok(());
        }
        let _waits = hub.waits(&caller);
        let watch = hub.watch(&Topic::Agent(child.clone()));
        let ended = watch.until(&hub, |state| {
            let agent = state.agents.get(child.as_str());
            agent.is_none_or(|agent| !agent.is_live()).then_some(())
        });
        pipes.until(ended).await.map(drop)
    }
}

fn is_running(agent: &Agent) -> bool {
    agent.phase == Phase::Running
}

/// Returns how a question was settled, if it was asked, and if it was.
fn how_settled(state: &State, title: &str) -> Option<Option<question::How>> {
    let mut all = state.questions.open().chain(state.questions.settled());
    let question = all.find(|question| *question.asked.title == *title)?;
    Some(question.settled.as_ref().map(|settled| settled.how.clone()))
}
