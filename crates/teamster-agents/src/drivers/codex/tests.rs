use expect_test::{ExpectFile, expect_file};

use super::*;

use crate::drivers::testing;

fn driver() -> Box<dyn Driver> {
    Box::new(Codex::default())
}

fn check(file: ExpectFile) {
    testing::check(driver, file);
}

#[test]
fn turns_with_all_kinds_of_items() {
    check(expect_file!["sessions/turn.txt"]);
}

#[test]
fn a_session_goes_on_in_another_process() {
    check(expect_file!["sessions/resumed.txt"]);
    check(expect_file!["sessions/resumed_as_new.txt"]);
}

#[test]
fn a_usage_limit_is_told_with_its_end() {
    check(expect_file!["sessions/usage_limit.txt"]);
}

#[test]
fn oddities_are_noted_and_harm_nobody() {
    check(expect_file!["sessions/oddities.txt"]);
}

#[test]
fn a_handshake_that_fails_says_why() {
    check(expect_file!["sessions/not_started.txt"]);
    check(expect_file!["sessions/nameless.txt"]);
    check(expect_file!["sessions/not_resumed.txt"]);
}

/// Whatever a program says, every begin, prompt and permission is answered exactly once, and the end comes last.
#[tokio::test(start_paused = true)]
async fn whatever_is_said_everything_asked_is_answered_once() {
    let talks = [
        include_str!("sessions/turn.txt"),
        include_str!("sessions/resumed.txt"),
        include_str!("sessions/usage_limit.txt"),
        include_str!("sessions/oddities.txt"),
    ];
    let lines = talks.iter().flat_map(|talk| talk.lines());
    let said = lines.filter_map(|line| line.strip_prefix("< ")).map(str::to_owned);
    // What ends any turn of the thread that the answers name.
    let ends = [
        r#"{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}"#,
        r#"{"method":"turn/completed","params":{"threadId":"t","turn":{"id":"u","status":"completed"}}}"#,
    ];
    let ends = ends.map(str::to_owned);
    let said: Vec<String> = said.chain(ends.iter().cycle().take(80).cloned()).collect();
    let answer = |id: usize| format!(r#"{{"id":{id},"result":{{"thread":{{"id":"t"}}}}}}"#);
    let mut n_turns = 0;
    for round in 0..300 {
        n_turns += testing::play_at_random(driver, round, &said, answer).await;
    }
    assert!(n_turns > 500, "the rounds have hardly got anywhere: {n_turns} turns");
}
