use std::time::Duration;

use expect_test::{ExpectFile, expect_file};
use futures_util::FutureExt;

use super::*;

use crate::drivers::testing::{self, Player};

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
fn opencode() {
    check(expect_file!["sessions/opencode.txt"]);
}

#[test]
fn gemini() {
    check(expect_file!["sessions/gemini.txt"]);
}

#[test]
fn claude() {
    check(expect_file!["sessions/claude.txt"]);
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
fn a_program_that_resumes_without_telling_the_past_is_asked_that_way() {
    check(expect_file!["sessions/resume_only.txt"]);
}

/// Everything that programs say in the talks.
fn said() -> Vec<String> {
    let talks = [
        include_str!("sessions/goose.txt"),
        include_str!("sessions/opencode.txt"),
        include_str!("sessions/gemini.txt"),
        include_str!("sessions/claude.txt"),
        include_str!("sessions/oddities.txt"),
    ];
    let lines = talks.iter().flat_map(|talk| talk.lines());
    lines.filter_map(|line| line.strip_prefix("< ")).map(str::to_owned).collect()
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

/// Whatever a program says, every begin, prompt and permission is answered exactly once, and the end comes last.
#[tokio::test(start_paused = true)]
async fn whatever_is_said_everything_asked_is_answered_once() {
    let said = said();
    let mut n_turns = 0;
    for round in 0..300 {
        n_turns += play_at_random(round, &said).await;
    }
    assert!(n_turns > 500, "the rounds have hardly got anywhere: {n_turns} turns");
}

/// Returns how many turns there were.
async fn play_at_random(round: u64, said: &[String]) -> usize {
    let mut seed = round;
    let mut player = Player::new(driver());
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
            // What answers whatever the driver waits for, if the id is right.
            3 | 4 => player.script.line(&format!(
                r#"{{"id":{},"result":{{"protocolVersion":1,"sessionId":"s","stopReason":"end_turn"}}}}"#,
                below(&mut seed, 12)
            )),
            _ => player.script.line(&mutate(&said[below(&mut seed, said.len())], &mut seed)),
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
