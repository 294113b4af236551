use expect_test::{ExpectFile, expect_file};

use super::*;

use crate::drivers::testing;

fn driver() -> Box<dyn Driver> {
    Box::new(Acp::default())
}

fn check(file: ExpectFile) {
    testing::check(driver, file);
}

#[test]
fn goose() {
    check(expect_file!["sessions/goose.txt"]);
}

#[test]
fn goose_says_in_words_that_its_turn_failed() {
    check(expect_file!["sessions/goose_failed.txt"]);
}

#[test]
fn opencode() {
    check(expect_file!["sessions/opencode.txt"]);
}

#[test]
fn gemini() {
    check(expect_file!["sessions/gemini.txt"]);
}

#[test]
fn qwen() {
    check(expect_file!["sessions/qwen.txt"]);
}

#[test]
fn claude() {
    check(expect_file!["sessions/claude.txt"]);
}

#[test]
fn failures_that_are_told_as_text_end_the_turn_as_failures() {
    check(expect_file!["sessions/codex_acp_failed.txt"]);
    check(expect_file!["sessions/copilot_failed.txt"]);
    check(expect_file!["sessions/fast_agent_failed.txt"]);
    check(expect_file!["sessions/vibe_retries.txt"]);
}

#[test]
fn a_denied_call_ends_the_turn_of_some_programs() {
    check(expect_file!["sessions/copilot.txt"]);
    check(expect_file!["sessions/qwen_denied.txt"]);
}

/// Four calls of 120, 1121, 2122 and 3123 tokens: 6486 together.
#[test]
fn the_tokens_of_all_calls_are_summed_as_far_as_they_are_told() {
    check(expect_file!["sessions/goose_calls.txt"]);
    check(expect_file!["sessions/qwen_calls.txt"]);
    check(expect_file!["sessions/codex_acp.txt"]);
    check(expect_file!["sessions/vibe.txt"]);
    check(expect_file!["sessions/vibe_resumed.txt"]);
    check(expect_file!["sessions/opencode_calls.txt"]);
    check(expect_file!["sessions/kimi.txt"]);
}

#[test]
fn oddities_are_noted_and_harm_nobody() {
    check(expect_file!["sessions/oddities.txt"]);
}

#[test]
fn a_handshake_that_fails_says_why() {
    check(expect_file!["sessions/no_answer.txt"]);
    check(expect_file!["sessions/gone_early.txt"]);
    check(expect_file!["sessions/other_version.txt"]);
    check(expect_file!["sessions/no_http.txt"]);
    check(expect_file!["sessions/login.txt"]);
    check(expect_file!["sessions/not_resumed.txt"]);
    check(expect_file!["sessions/nameless.txt"]);
}

#[test]
fn a_program_without_http_gets_a_command_and_one_that_hides_it_the_url() {
    check(expect_file!["sessions/over_stdio.txt"]);
    check(expect_file!["sessions/hidden_http.txt"]);
}

#[test]
fn a_program_that_wants_a_login_is_told_the_one_that_fits() {
    check(expect_file!["sessions/logged_in.txt"]);
    check(expect_file!["sessions/key_in_variable.txt"]);
    check(expect_file!["sessions/login_refused.txt"]);
}

#[test]
fn a_program_that_resumes_without_telling_the_past_is_asked_that_way() {
    check(expect_file!["sessions/resume_only.txt"]);
}

#[tokio::test(start_paused = true)]
async fn whatever_is_said_everything_asked_is_answered_once() {
    let talks = [
        include_str!("sessions/goose.txt"),
        include_str!("sessions/opencode.txt"),
        include_str!("sessions/gemini.txt"),
        include_str!("sessions/qwen.txt"),
        include_str!("sessions/claude.txt"),
        include_str!("sessions/oddities.txt"),
    ];
    testing::check_at_random(driver, &talks, 500, |below| {
        format!(
            r#"{{"id":{},"result":{{"protocolVersion":1,"sessionId":"s","stopReason":"end_turn"}}}}"#,
            below(12)
        )
    })
    .await;
}
