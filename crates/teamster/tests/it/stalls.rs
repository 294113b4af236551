//! Programs that retry a failed model call by themselves: nothing is heard of their agent but that, or nothing at all. A
//! rate limit parks it; anything else ends it, with the program's own words.

use crate::agents::{World, outcome};
use crate::hub::program;
use crate::unattended::until_said;

/// A hub whose program `noisy` writes a line to stderr, and is then the scripted agent.
fn world(line: &str) -> World {
    let start = format!("echo {line:?} >&2; exec \"$0\" scripted-agent");
    let args = ["-c", &start, &program().to_string_lossy()].map(ToOwned::to_owned);
    World::start(&format!(
        "[categories.coding]\nstall_s = 1\n[programs.noisy]\ncommand = \"/bin/sh\"\nargs = {args:?}\n\
         [roles.coder]\nprogram = \"noisy\"\n"
    ))
}

#[test]
fn a_program_that_retries_in_silence_is_parked_for_a_rate_limit_and_else_ended() {
    for (line, expected) in [
        ("HTTP 429 Too Many Requests, retrying", None),
        ("HTTP 401 Unauthorized, retrying", Some("401 Unauthorized")),
        ("ready", Some("nothing was heard of it for 1 s")),
    ] {
        let world = world(line);
        let id = world.draft("coder", "! hang");
        match expected {
            None => {
                until_said(&world, "is parked: noisy accepts no requests for now: ");
                assert_eq!(world.agent(&id)["outcome"], serde_json::Value::Null);
            }
            Some(words) => {
                let ended = world.ended(&id);
                let (ending, status, summary) = outcome(&ended);
                assert_eq!((ending, status), ("timed_out", "failed"), "{line}: {summary}");
                assert!(summary.contains(words), "{line}: {summary}");
            }
        }
    }
}

/// Reports of retries are heard all the time, and are no work.
#[test]
fn a_program_that_reports_its_retries_is_parked_or_ended_all_the_same() {
    const RETRIES: &str = "Info: Request failed due to a transient API error.";
    for (why, is_parked) in [("429 Too Many Requests.", true), ("401 Unauthorized.", false)] {
        let world = world("ready");
        let step = format!("! say {RETRIES} {why}\n! sleep 200\n");
        let id = world.draft("coder", &step.repeat(50));
        until_said(&world, "its program retries a failed model call: ");
        if is_parked {
            until_said(&world, "is parked: noisy accepts no requests for now: ");
            continue;
        }
        let ended = world.ended(&id);
        let (ending, status, summary) = outcome(&ended);
        assert_eq!((ending, status), ("timed_out", "failed"), "{summary}");
        assert!(
            summary.contains("its program retried for 1 s without success: ")
                && summary.contains(why),
            "{summary}"
        );
    }
}
