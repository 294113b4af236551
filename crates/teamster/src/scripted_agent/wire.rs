//! What is written to the client, one message on a line unless a script wants it otherwise.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agent_client_protocol_schema::v1::{CLIENT_METHOD_NAMES, SessionNotification, SessionUpdate};
use anyhow::{Context, anyhow};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, Stdout};
use tokio::sync::{Mutex, oneshot};

/// So much of a flood is written at a time.
static FLOOD: [u8; 64 * 1024] = [b'x'; 64 * 1024];

pub(super) struct Wire {
    output: Mutex<Output>,
    /// The one request that the client has not answered.
    asked: Mutex<Option<(u64, oneshot::Sender<Answer>)>>,
    n_asked: AtomicU64,
    stays: AtomicBool,
}

type Answer = Result<Value, Option<Value>>;

struct Output {
    stdout: Stdout,
    /// A line was begun; whatever comes next begins another.
    in_line: bool,
}

impl Wire {
    pub(super) fn new() -> Self {
        Self {
            output: Mutex::new(Output { stdout: tokio::io::stdout(), in_line: false }),
            asked: Mutex::default(),
            n_asked: AtomicU64::default(),
            stays: AtomicBool::default(),
        }
    }

    /// The end of the input is not to be the end.
    pub(super) fn stay(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    pub(super) fn stays(&self) -> bool {
        self.stays.load(Ordering::Relaxed)
    }

    pub(super) async fn answer(&self, id: &Value, result: &Value) -> io::Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await
    }

    pub(super) async fn fail(&self, id: &Value, code: i64, message: &str) -> io::Result<()> {
        let error = json!({"code": code, "message": message});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error})).await
    }

    pub(super) async fn update(&self, session: &str, update: SessionUpdate) -> io::Result<()> {
        self.send(&notification(session, update)).await
    }

    /// Asks the client something and waits for its answer.
    pub(super) async fn ask(&self, method: &str, params: &impl Serialize) -> anyhow::Result<Value> {
        let id = self.n_asked.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        *self.asked.lock().await = Some((id, tell));
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        let answer = told.await.context("nobody answered")?;
        answer.map_err(|error| anyhow!("refused: {}", error.unwrap_or_default()))
    }

    /// Takes in the client's answer. One that comes after its turn was cancelled is nobody's.
    pub(super) async fn answered(&self, id: &Value, answer: Answer) {
        if let Some((_, tell)) = self.asked.lock().await.take_if(|(asked, _)| *id == *asked) {
            let _ = tell.send(answer);
        }
    }

    /// Writes without a newline.
    pub(super) async fn flood(&self, n_bytes: u64) -> io::Result<()> {
        let mut output = self.output.lock().await;
        output.begin_line().await?;
        output.fill(n_bytes).await
    }

    /// Sends `update` with a text of `n_bytes` in the place of `mark`, without ever having all of it.
    pub(super) async fn long_line(
        &self,
        session: &str,
        update: SessionUpdate,
        mark: &str,
        n_bytes: u64,
    ) -> anyhow::Result<()> {
        let message = notification(session, update).to_string();
        let (before, after) = message.split_once(mark).context("the text has its mark")?;
        let mut output = self.output.lock().await;
        output.begin_line().await?;
        output.stdout.write_all(before.as_bytes()).await?;
        output.fill(n_bytes).await?;
        output.stdout.write_all(after.as_bytes()).await?;
        Ok(output.end_line().await?)
    }

    pub(super) async fn line(&self, line: &str) -> io::Result<()> {
        let mut output = self.output.lock().await;
        output.begin_line().await?;
        output.stdout.write_all(line.as_bytes()).await?;
        output.end_line().await
    }

    async fn send(&self, message: &Value) -> io::Result<()> {
        self.line(&message.to_string()).await
    }
}

impl Output {
    async fn begin_line(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.in_line, true) {
            self.stdout.write_all(b"\n").await?;
        }
        Ok(())
    }

    async fn end_line(&mut self) -> io::Result<()> {
        self.stdout.write_all(b"\n").await?;
        self.in_line = false;
        self.stdout.flush().await
    }

    async fn fill(&mut self, n_bytes: u64) -> io::Result<()> {
        let mut left = n_bytes;
        while left > 0 {
            let piece = FLOOD.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(&FLOOD);
            self.stdout.write_all(piece).await?;
            left -= piece.len() as u64;
        }
        self.stdout.flush().await
    }
}

fn notification(session: &str, update: SessionUpdate) -> Value {
    let params = SessionNotification::new(session.to_owned(), update);
    json!({"jsonrpc": "2.0", "method": CLIENT_METHOD_NAMES.session_update, "params": params})
}
