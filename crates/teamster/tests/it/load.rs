//! Clients that write as fast as they are answered, to a hub that may be killed at any moment.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a task that kills lives no longer than its hub, and a broken fixture should panic"
)]

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::history::{History, OperationId, Outcome};
use crate::hub::{Hub, Mcp};
use crate::in_process::Dice;

/// As many clients as work at once.
pub(crate) const CLIENTS: usize = 16;
/// Clients share a few tokens, as agents of one kind do; making a token takes a process each.
const TOKENS: usize = 4;

/// How clients behave. Anything but the default is wrong, and shows that the checker notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Habit {
    #[default]
    Good,
    /// Takes a call for acknowledged once it is sent.
    TrustsSending,
    /// Repeats an unanswered call without its key.
    ForgetsKeys,
}

/// Sixteen clients, what they did, and what they have not heard of yet.
pub(crate) struct Clients {
    pub(crate) history: Arc<History>,
    clients: Vec<Client>,
    /// Becomes true with the first call.
    began: watch::Sender<bool>,
}

struct Client {
    number: usize,
    token: String,
    habit: Habit,
    dice: Dice,
    n_calls: usize,
    /// A call with a key that was not answered: it is repeated before anything else is done.
    unheard: Option<Call>,
}

#[derive(Clone)]
struct Call {
    operation: OperationId,
    id: String,
    key: Option<String>,
    tool: &'static str,
    arguments: Value,
}

/// How a stretch of work went.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Worked {
    pub(crate) n_acknowledged: usize,
    /// Calls that the hub did not answer.
    pub(crate) n_unheard: usize,
}

impl Clients {
    pub(crate) fn new(hub: &Hub, mut dice: Dice, habit: Habit) -> Self {
        let tokens: Vec<_> = (0..TOKENS).map(|n| hub.token(&format!("w{n}"), "full")).collect();
        let client = |number| Client {
            number,
            token: tokens[number % TOKENS].clone(),
            habit,
            dice: Dice(dice.roll()),
            n_calls: 0,
            unheard: None,
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self { history: Arc::default(), clients, began: watch::Sender::new(false) }
    }

    /// Works until every client has made its calls, or has seen the hub go away.
    pub(crate) async fn work(&mut self, hub_url: &str, n_calls: usize) -> Worked {
        let each = self.clients.iter_mut();
        let each = each.map(|client| client.work(hub_url, n_calls, &self.history, &self.began));
        let worked = futures_util::future::join_all(each).await;
        worked.into_iter().fold(Worked::default(), |all, one| Worked {
            n_acknowledged: all.n_acknowledged + one.n_acknowledged,
            n_unheard: all.n_unheard + one.n_unheard,
        })
    }

    /// Works until the hub is killed, which happens so long after the first call.
    pub(crate) async fn work_until_killed(&mut self, hub: &mut Hub, delay: Duration) -> Worked {
        self.began = watch::Sender::new(false);
        let mut began = self.began.subscribe();
        let pid = hub.hub_process;
        // A task of its own, so that the hub is killed while the clients work and not between two of their steps. Its
        // sleep is a thread's, since the runtime's timers know nothing shorter than a millisecond.
        tokio::spawn(async move {
            began.wait_for(|began| *began).await.expect("the clients live on");
            tokio::task::block_in_place(|| std::thread::sleep(delay));
            kill_process(pid, Signal::KILL).expect("the hub runs until it is killed");
        });
        let worked = self.work(&hub.url, usize::MAX).await;
        hub.end(Signal::KILL);
        worked
    }

    /// Repeats what was not answered, until it is.
    pub(crate) async fn repeat_unheard(&mut self, hub_url: &str) {
        for client in &mut self.clients {
            if client.unheard.is_some() {
                client.work(hub_url, 1, &self.history, &self.began).await;
            }
            assert!(client.unheard.is_none(), "a running hub answers");
        }
    }
}

impl Client {
    async fn work(
        &mut self,
        hub_url: &str,
        n_calls: usize,
        history: &History,
        began: &watch::Sender<bool>,
    ) -> Worked {
        let mut worked = Worked::default();
        let Ok(mut mcp) = Mcp::connect(hub_url, &self.token, "/mcp").await else { return worked };
        for _ in 0..n_calls {
            let call = match self.unheard.take() {
                Some(call) => {
                    Call { key: call.key.filter(|_| self.habit != Habit::ForgetsKeys), ..call }
                }
                None => self.next_call(history),
            };
            mcp.key = call.key.clone();
            began.send_replace(true);
            match mcp.try_call(&call.id, call.tool, call.arguments.clone()).await {
                Ok((answer, false)) => {
                    worked.n_acknowledged += 1;
                    history.end(call.operation, Outcome::Ok { answer });
                }
                Ok((_, true)) => history.end(call.operation, Outcome::Failed),
                Err(_) => {
                    worked.n_unheard += 1;
                    self.went_unheard(call, history);
                    return worked;
                }
            }
        }
        worked
    }

    /// Half of the clients have keys and repeat their calls; the others never learn what became of them.
    fn went_unheard(&mut self, call: Call, history: &History) {
        match self.habit {
            Habit::TrustsSending => {
                history.end(call.operation, Outcome::Ok { answer: String::new() });
            }
            Habit::Good | Habit::ForgetsKeys if call.key.is_some() => self.unheard = Some(call),
            Habit::Good | Habit::ForgetsKeys => history.end(call.operation, Outcome::Unknown),
        }
    }

    fn next_call(&mut self, history: &History) -> Call {
        self.n_calls += 1;
        let id = format!("op-{:02}-{:06}", self.number, self.n_calls);
        let parts = |n: usize| (0..n).map(|part| format!("{id}/{part}")).collect::<Vec<_>>();
        let task = |content: &String| json!({"content": content});
        let (tool, texts, arguments) = match self.dice.below(4) {
            0 => ("task-add", parts(1), None),
            1 => ("task-add", parts(3), None),
            2 => {
                let note = json!({"notes": [{"content": id, "type": "tip"}]});
                ("note-add", vec![id.clone()], Some(note))
            }
            // The one write that is as welcome a second time: only its key keeps it from being done twice.
            _ => ("iteration-summary", vec![id.clone()], Some(json!({"summary": id}))),
        };
        let tasks = || json!({"tasks": texts.iter().map(task).collect::<Vec<_>>()});
        let arguments = arguments.unwrap_or_else(tasks);
        let key = self.number.is_multiple_of(2).then(|| format!("key-{id}"));
        Call { operation: history.invoke(texts), id, key, tool, arguments }
    }
}
