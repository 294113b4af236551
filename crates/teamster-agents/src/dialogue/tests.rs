use futures_util::FutureExt;
use tokio::io::AsyncReadExt;

use super::*;
use crate::drivers::acp::Acp;
use crate::drivers::testing::{Player, Script};

const HANDSHAKE: Duration = Duration::from_secs(30);
const INITIALIZED: &str = r#"{"id":1,"result":{"protocolVersion":1}}"#;
const OPENED: &str = r#"{"id":2,"result":{"sessionId":"s"}}"#;
const UNKNOWN_REQUEST: &str = r#"{"id":7,"method":"fs/read_text_file","params":{}}"#;

fn permission(id: usize) -> String {
    format!(
        r#"{{"id":{id},"method":"session/request_permission","params":{{"sessionId":"s","toolCall":{{"toolCallId":"c"}},"options":[]}}}}"#
    )
}

fn text(text: &str) -> String {
    format!(
        r#"{{"method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
    )
}

/// A program that has started and whose turn has begun.
async fn in_turn(player: &mut Player) {
    for line in ["! begin /work alone", "! prompt Go"] {
        player.play(line).await;
        player.script.line(INITIALIZED);
        player.script.line(OPENED);
        player.outcome();
    }
}

/// Returns what there is to hear until nothing moves any more.
async fn events<W: AsyncWrite + Send + Unpin>(dialogue: &mut Dialogue<Script, W>) -> Vec<Event> {
    let mut events = Vec::new();
    // The clock of these tests moves only when nothing else does.
    let still = Duration::from_millis(1);
    while let Ok(Some(event)) = tokio::time::timeout(still, dialogue.next()).await {
        events.push(event);
    }
    events
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_that_nobody_waits_for() {
    let mut player = Player::new(Box::new(Acp::default()));
    in_turn(&mut player).await;
    for _ in 0..100 {
        player.script.line(&text("a"));
    }
    player.dialogue.next().await;
    assert_eq!(player.script.n_unread(), 99);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_asks_and_does_not_read_is_not_read_any_further() {
    let script = Script::default();
    let (sink, _unread) = tokio::io::duplex(1);
    let mut dialogue = Dialogue::new(Box::new(Acp::default()), script.clone(), sink);
    let n_requests = 10_000;
    for _ in 0..n_requests {
        script.line(UNKNOWN_REQUEST);
    }
    events(&mut dialogue).await;
    let n_read = n_requests - script.n_unread();
    let answer = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"fs/read_text_file is not offered"}}"#;
    assert!(dialogue.unwritten.len() <= UNWRITTEN_BYTES_MAX + answer.len());
    assert!((2_000..4_000).contains(&n_read), "{n_read}");
}

#[tokio::test(start_paused = true)]
async fn a_program_that_says_a_lot_before_it_reads_is_heard() {
    let script = Script::default();
    let (sink, mut written) = tokio::io::duplex(10);
    let mut dialogue = Dialogue::new(Box::new(Acp::default()), script.clone(), sink);
    dialogue.begin(&Begin::default(), HANDSHAKE).unwrap();
    script.line(INITIALIZED);
    script.line(OPENED);
    assert!(matches!(dialogue.next().await, Some(Event::Started(_))));
    let prompt = "long ".repeat(UNWRITTEN_BYTES_MAX / 10);
    dialogue.prompt(&prompt).unwrap();
    for _ in 0..1_000 {
        script.line(&text("a"));
    }
    for _ in 0..1_001 {
        dialogue.next().await;
    }
    // Given up in the middle of every write, it still arrives whole.
    let mut arrived = Vec::new();
    dialogue.close();
    loop {
        assert!(dialogue.next().now_or_never().is_none());
        let mut some = [0; 7];
        match written.read(&mut some).await.unwrap() {
            0 => break,
            n_bytes => arrived.extend_from_slice(&some[..n_bytes]),
        }
    }
    let lines: Vec<serde_json::Value> = arrived
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[2]["params"]["prompt"][0]["text"], prompt);
}

#[tokio::test(start_paused = true)]
async fn of_endless_trouble_only_the_beginning_is_told() {
    let mut player = Player::new(Box::new(Acp::default()));
    for _ in 0..1_000 {
        player.script.line("nonsense");
    }
    let events = events(&mut player.dialogue).await;
    assert_eq!(events.len(), 50);
    assert_eq!(player.dialogue.n_troubles(), 1_000);
    let Some(Event::Trouble { message }) = events.last() else { panic!("{events:?}") };
    assert_eq!(message, "not a message: nonsense (more such trouble is not told)");
}

#[tokio::test(start_paused = true)]
async fn more_permissions_than_anybody_could_decide_are_not_kept() {
    let mut player = Player::new(Box::new(Acp::default()));
    in_turn(&mut player).await;
    for id in 0..100 {
        player.script.line(&permission(id));
    }
    let events = events(&mut player.dialogue).await;
    let answered = |event: &&Event| matches!(event, Event::PermissionAnswered { .. });
    assert_eq!(events.iter().filter(answered).count(), 100 - PERMISSIONS_MAX);
    player.dialogue.end("killed");
    let after = self::events(&mut player.dialogue).await;
    assert_eq!(after.iter().filter(answered).count(), PERMISSIONS_MAX);
    let [.., end, exited] = after.as_slice() else { panic!("{after:?}") };
    assert_eq!(*end, Event::TurnEnded(TurnEnd::Gone));
    assert_eq!(*exited, Event::Exited { how: "killed".to_owned() });
}

#[tokio::test(start_paused = true)]
async fn what_a_program_said_before_it_broke_is_still_heard() {
    let script = Script::default();
    let (sink, written) = tokio::io::duplex(10);
    let mut dialogue = Dialogue::new(Box::new(Acp::default()), script.clone(), sink);
    dialogue.begin(&Begin::default(), HANDSHAKE).unwrap();
    drop(written);
    script.line(r#"{"id":1,"error":{"code":1,"message":"no key"}}"#);
    script.say(Ok(None));
    let mut events = Vec::new();
    while let Some(event) = dialogue.next().await {
        events.push(event);
    }
    let [Event::Trouble { .. }, Event::NotStarted { message }, Event::Exited { .. }] =
        events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!(message, "no key");
    assert_eq!(dialogue.prompt("hello"), Err(Refusal::Over));
}

#[tokio::test(start_paused = true)]
async fn activity_is_when_the_program_spoke_last() {
    let mut player = Player::new(Box::new(Acp::default()));
    in_turn(&mut player).await;
    let before = player.dialogue.last_activity();
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(player.dialogue.next().now_or_never().is_none());
    assert_eq!(player.dialogue.last_activity(), before);
    player.script.line(&text("a"));
    player.dialogue.next().await;
    assert_eq!(player.dialogue.last_activity() - before, Duration::from_secs(5));
}
