use expect_test::{ExpectFile, expect, expect_file};

use super::*;
use crate::agent::Resume;
use crate::drivers::testing;

fn driver() -> Box<dyn Driver> {
    Box::new(Claude::default())
}

fn check(file: ExpectFile) {
    testing::check(driver, file);
}

#[test]
fn a_session() {
    check(expect_file!["sessions/session.txt"]);
}

#[test]
fn what_is_said_piece_by_piece_is_said_once() {
    check(expect_file!["sessions/streamed.txt"]);
}

#[test]
fn a_session_goes_on_and_costs_what_this_process_used() {
    check(expect_file!["sessions/resumed.txt"]);
}

#[test]
fn turns_fail_in_many_ways() {
    check(expect_file!["sessions/failures.txt"]);
    check(expect_file!["sessions/max_turns.txt"]);
}

#[test]
fn a_handshake_that_fails_says_why() {
    check(expect_file!["sessions/not_resumed.txt"]);
    check(expect_file!["sessions/not_started.txt"]);
    check(expect_file!["sessions/gone_early.txt"]);
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
fn the_token_is_in_a_file_and_nowhere_else() {
    let begin = Begin {
        mcp_servers: vec![McpServer {
            name: "teamster".to_owned(),
            url: "http://127.0.0.1:7420/mcp".to_owned(),
            headers: vec![("Authorization".to_owned(), "Bearer t-1".to_owned())],
            tool_timeout: None,
            bridge: None,
        }],
        resume: Some(Resume { session: "--help".to_owned(), or_new: true, ..Resume::default() }),
        ..Begin::default()
    };
    let Preparation { args, environment, files } =
        Claude::default().prepare(&begin, Path::new("/private"));
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    expect!["-p --input-format stream-json --output-format stream-json --include-partial-messages --verbose --permission-prompt-tool stdio --strict-mcp-config --mcp-config /private/mcp.json --resume=--help"].assert_eq(&args.join(" "));
    assert!(environment.is_empty());
    let [file] = files.as_slice() else { panic!("{files:?}") };
    assert!(!format!("{file:?}").contains("t-1"));
    expect![[r#"{"mcpServers":{"teamster":{"type":"http","url":"http://127.0.0.1:7420/mcp","headers":{"Authorization":"Bearer t-1"},"alwaysLoad":true}}}"#]].assert_eq(&file.contents);
}

#[test]
fn a_new_session_has_a_name_that_the_program_takes() {
    let names = [0, u128::MAX].map(new_session);
    assert_eq!(
        names,
        ["00000000-0000-4000-8000-000000000000", "ffffffff-ffff-4fff-bfff-ffffffffffff"]
    );
}

#[tokio::test(start_paused = true)]
async fn whatever_is_said_everything_asked_is_answered_once() {
    let talks = [
        include_str!("sessions/session.txt"),
        include_str!("sessions/streamed.txt"),
        include_str!("sessions/failures.txt"),
        include_str!("sessions/oddities.txt"),
    ];
    // An end before the beginning is the end of everything, so few get far.
    testing::check_at_random(driver, &talks, 100, |below| match below(3) {
        0 => r#"{"type":"result","subtype":"success","is_error":false}"#.to_owned(),
        _ => format!(
            r#"{{"type":"control_response","response":{{"subtype":"success","request_id":"{}"}}}}"#,
            below(12)
        ),
    })
    .await;
}
