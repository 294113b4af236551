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
fn a_program_without_a_login_says_so() {
    check(expect_file!["sessions/login_missing.txt"]);
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
    testing::check_at_random(driver, &talks, 500, |below| match below(4) {
        0 => r#"{"method":"turn/started","params":{"threadId":"t","turn":{"id":"u"}}}"#.to_owned(),
        1 => {
            let turn = r#"{"id":"u","status":"completed"}"#;
            format!(r#"{{"method":"turn/completed","params":{{"threadId":"t","turn":{turn}}}}}"#)
        }
        _ => format!(r#"{{"id":{},"result":{{"thread":{{"id":"t"}}}}}}"#, below(12)),
    })
    .await;
}
