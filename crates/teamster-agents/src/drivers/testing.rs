//! Plays recorded talks to a driver. A talk is a text file that reads like a conversation:
//!
//! ```text
//! # a remark
//! ! prompt Say hello      what the hub does
//! > {"jsonrpc":"2.0",…}   what the driver writes
//! < {"jsonrpc":"2.0",…}   what the program says
//! = {"type":"text",…}     what the hub hears
//! ```
//!
//! `!`, `<` and `#` are played; `>` and `=` are what must come of it, and are written by `UPDATE_EXPECT=1`.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use expect_test::ExpectFile;
use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, DuplexStream};

use super::Driver;
use crate::agent::{
    AtEnd, Begin, Bridge, Event, InUpdates, McpServer, PermissionId, Refusal, Resume, Transport,
};
use crate::dialogue::{Dialogue, Said, Source};

/// As long as a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// Holds whatever a talk writes at once.
const SINK_BYTES: usize = 1 << 20;

/// A program whose lines are given by hand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script(Arc<Mutex<VecDeque<io::Result<Option<Said>>>>>);

impl Script {
    pub(crate) fn say(&self, said: io::Result<Option<Said>>) {
        self.0.lock().unwrap().push_back(said);
    }

    pub(crate) fn line(&self, line: &str) {
        self.say(Ok(Some(Said::Line(Bytes::from(line.to_owned())))));
    }

    pub(crate) fn n_unread(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Source for Script {
    async fn next(&mut self) -> io::Result<Option<Said>> {
        let said = self.0.lock().unwrap().pop_front();
        match said {
            Some(said) => said,
            None => std::future::pending().await,
        }
    }
}

pub(crate) struct Player {
    pub(crate) dialogue: Dialogue<Script, DuplexStream>,
    pub(crate) script: Script,
    written: DuplexStream,
}

impl Player {
    pub(crate) fn new(driver: Box<dyn Driver>) -> Self {
        let script = Script::default();
        let (sink, written) = tokio::io::duplex(SINK_BYTES);
        Self { dialogue: Dialogue::new(driver, script.clone(), sink), script, written }
    }

    /// Plays one line of a talk.
    pub(crate) async fn play(&mut self, line: &str) {
        let (sign, rest) = line.split_at_checked(1).unwrap_or_default();
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        match (sign, rest) {
            ("!", command) => self.command(command).await,
            ("<", "(end)") => self.script.say(Ok(None)),
            ("<", "(broken)") => self.script.say(Err(io::Error::other("the pipe broke"))),
            ("<", "(too long)") => self.script.say(Ok(Some(Said::TooLong))),
            ("<", said) => match said.strip_prefix("(cut off) ") {
                Some(cut) => self.script.say(Ok(Some(Said::CutOff(Bytes::from(cut.to_owned()))))),
                None => self.script.line(said),
            },
            _ => {}
        }
    }

    async fn command(&mut self, command: &str) {
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let done: Result<(), Refusal> = match verb {
            "begin" => self.dialogue.begin(&begin(rest), HANDSHAKE),
            "prompt" => self.dialogue.prompt(rest),
            "cancel" => self.dialogue.cancel(),
            "answer" => {
                let (id, option) = rest.split_once(' ').unwrap();
                self.dialogue.answer(PermissionId(id.parse().unwrap()), option)
            }
            "close" => {
                self.dialogue.close();
                Ok(())
            }
            "wait" => {
                tokio::time::advance(Duration::from_secs(rest.parse().unwrap())).await;
                Ok(())
            }
            _ => panic!("no such command: {command}"),
        };
        let refused = rest.ends_with("(refused)");
        assert_eq!(done.is_err(), refused, "{command}: {done:?}");
    }

    /// Returns what came of it: what was written, then what was heard.
    pub(crate) fn outcome(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        while let Some(Some(event)) = self.dialogue.next().now_or_never() {
            heard.push(format!("= {}", serde_json::to_string(&event).unwrap()));
        }
        let mut written = vec![0; SINK_BYTES];
        let n_bytes = self.written.read(&mut written).now_or_never().map_or(0, Result::unwrap);
        let written = String::from_utf8(written[..n_bytes].to_vec()).unwrap();
        let written = written.replace(env!("CARGO_PKG_VERSION"), "VERSION");
        written.lines().map(|line| format!("> {line}")).chain(heard).collect()
    }
}

/// `begin DIRECTORY`, then any of `resume ID`, `or-new`, `model ID`, `alone` (without our MCP server), `bridge` (it can
/// be had over stdio too), `http`, `stdio`, `checks-login`, `login METHOD`, `set VARIABLE`, and what the program's
/// reports of tokens count: `end last-call`, `end session`, `updates calls`.
fn begin(rest: &str) -> Begin {
    let mut words = rest.split(' ');
    let server = McpServer {
        name: "teamster".to_owned(),
        url: "http://127.0.0.1:7420/mcp".to_owned(),
        headers: vec![("Authorization".to_owned(), "Bearer t-1".to_owned())],
        tool_timeout: Some(Duration::from_secs(600)),
        bridge: None,
    };
    let mut begin = Begin {
        directory: words.next().unwrap().into(),
        mcp_servers: vec![server],
        ..Begin::default()
    };
    while let Some(word) = words.next() {
        match word {
            "resume" => {
                let session = words.next().unwrap().to_owned();
                begin.resume = Some(Resume { session, ..Resume::default() });
            }
            "or-new" => begin.resume.as_mut().unwrap().or_new = true,
            "model" => begin.model = Some(words.next().unwrap().to_owned()),
            "alone" => begin.mcp_servers.clear(),
            "bridge" => {
                begin.mcp_servers[0].bridge = Some(Bridge {
                    command: "/bin/teamster".into(),
                    args: vec!["mcp".to_owned(), "--bridge".to_owned()],
                    environment: vec![("TEAMSTER_MCP_TOKEN".to_owned(), "t-1".to_owned())],
                });
            }
            "checks-login" => begin.checks_login = true,
            "http" => begin.transport = Transport::Http,
            "stdio" => begin.transport = Transport::Stdio,
            "login" => begin.logins.push(words.next().unwrap().to_owned()),
            "set" => begin.variables.push(words.next().unwrap().to_owned()),
            "end" => {
                begin.reports.end = match words.next().unwrap() {
                    "last-call" => AtEnd::LastCall,
                    "session" => AtEnd::Session,
                    word => panic!("no such end: {word}"),
                }
            }
            "updates" => {
                assert_eq!(words.next(), Some("calls"));
                begin.reports.updates = InUpdates::Calls;
            }
            "without-headers" => begin.mcp_servers[0].headers.clear(),
            "(refused)" => {}
            _ => panic!("no such word: {word}"),
        }
    }
    begin
}

/// Plays a talk and compares it with what is written in it.
pub(crate) fn check(driver: fn() -> Box<dyn Driver>, file: ExpectFile) {
    let talk = file.data();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let played = runtime.block_on(async {
        let mut player = Player::new(driver());
        let mut played = Vec::new();
        for line in talk.lines().filter(|line| !line.starts_with(['>', '='])) {
            // Each line has the whole of what tokio lets a task do at a time.
            tokio::task::yield_now().await;
            player.play(line).await;
            played.push(line.to_owned());
            played.extend(player.outcome());
        }
        played
    });
    file.assert_eq(&(played.join("\n") + "\n"));
}

/// A pseudo-random number below `n`; the same ones in every run.
fn below(seed: &mut u64, n: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize % n.max(1)
}

/// Cuts something out of a line, doubles it, or puts something else there.
fn mutate(line: &str, seed: &mut u64) -> String {
    const OTHERS: [&str; 10] =
        ["null", "-1", "{}", "[]", "\"\"", "1e999", "\"s\"", "\u{0}", "\"id\":3,", "\\ud800"];
    let mut ends = [below(seed, line.len()), below(seed, line.len())];
    ends.sort_unstable();
    let [from, to] = ends.map(|end| line.floor_char_boundary(end));
    let (before, middle, after) = (&line[..from], &line[from..to], &line[to..]);
    match below(seed, 4) {
        0 => format!("{before}{after}"),
        1 => format!("{before}{middle}{middle}{after}"),
        2 => format!("{before}{}{after}", OTHERS[below(seed, OTHERS.len())]),
        _ => line.to_owned(),
    }
}

/// Makes a line that answers whatever the driver waits for, if its number is right.
pub(crate) type Answer = fn(&mut dyn FnMut(usize) -> usize) -> String;

/// Whatever a program says, every begin, prompt and permission is answered exactly once, and the end comes last.
pub(crate) async fn check_at_random(
    driver: fn() -> Box<dyn Driver>,
    talks: &[&str],
    n_turns_min: usize,
    answer: Answer,
) {
    let lines = talks.iter().flat_map(|talk| talk.lines());
    let said: Vec<&str> = lines.filter_map(|line| line.strip_prefix("< ")).collect();
    let mut n_turns = 0;
    for round in 0..300 {
        n_turns += play_at_random(driver(), round, &said, answer).await;
    }
    assert!(n_turns > n_turns_min, "the rounds have hardly got anywhere: {n_turns} turns");
}

/// Returns how many turns there were.
async fn play_at_random(
    driver: Box<dyn Driver>,
    round: u64,
    said: &[&str],
    answer: Answer,
) -> usize {
    let mut seed = round;
    let mut player = Player::new(driver);
    let mut heard = Vec::new();
    let (mut n_begun, mut n_prompts) = (0, 0);
    for _ in 0..200 {
        tokio::task::yield_now().await;
        match below(&mut seed, 8) {
            0 => {
                let begin = Begin { directory: "/work".into(), ..Begin::default() };
                let begun = player.dialogue.begin(&begin, Duration::from_secs(600));
                n_begun += usize::from(begun.is_ok());
            }
            1 => n_prompts += usize::from(player.dialogue.prompt("go").is_ok()),
            2 => player.dialogue.cancel().unwrap(),
            3 | 4 => player.script.line(&answer(&mut |n| below(&mut seed, n))),
            _ => player.script.line(&mutate(said[below(&mut seed, said.len())], &mut seed)),
        }
        while let Some(Some(event)) = player.dialogue.next().now_or_never() {
            heard.push(event);
        }
    }
    player.script.say(Ok(None));
    while let Some(event) = player.dialogue.next().await {
        heard.push(event);
    }
    let count = |is: fn(&Event) -> bool| heard.iter().filter(|event| is(event)).count();
    let n_answers = count(|event| matches!(event, Event::Started(_) | Event::NotStarted { .. }));
    assert_eq!(n_answers, n_begun, "round {round}: {heard:#?}");
    let n_ended = count(|event| matches!(event, Event::TurnEnded(_)));
    assert_eq!(n_ended, n_prompts, "round {round}: {heard:#?}");
    let n_asked = count(|event| matches!(event, Event::PermissionAsked { .. }));
    let n_answered = count(|event| matches!(event, Event::PermissionAnswered { .. }));
    assert_eq!(n_answered, n_asked, "round {round}: {heard:#?}");
    assert!(matches!(heard.last(), Some(Event::Exited { .. })), "round {round}: {heard:#?}");
    n_prompts
}
