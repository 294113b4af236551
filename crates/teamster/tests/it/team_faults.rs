//! What becomes of messages when the agent that is told goes wrong, and when many tell many at once: every one is settled,
//! soon and by name, and the conversation goes on afterwards.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "how long something takes is what is tested, and a broken fixture should panic"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::teams::{Teams, call};
use crate::unattended::until_said;

/// Whoever waits for one that fails is told so within this time, on a machine at many times its load.
const SOON: Duration = Duration::from_secs(30);

/// How a person and a program wait, the program with two more messages behind the first: all of them must be told what
/// became of it. Returns what the person was told, and how the program's three came out.
async fn ask(teams: &Teams, team: &str, message: &str) -> (String, Vec<Value>) {
    let began = Instant::now();
    static LAST: AtomicU32 = AtomicU32::new(0);
    let pat = format!("pat{}", LAST.fetch_add(1, Ordering::Relaxed));
    let pat = teams.world.hub.token(&pat, "teams");
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(teams.world.hub.modern(&pat, "/mcp/teams").await);
    }
    let tells = clients.iter_mut().enumerate().map(async |(n, client)| {
        let message = if n == 0 { message.to_owned() } else { format!("! say {n}") };
        let tell = json!({"toTeam": team, "message": message, "timeout": 60_000});
        let (told, failed) = call(client, "team_tell", tell).await;
        assert!(!failed, "{told}");
        told
    });
    let person = async {
        let mut tell = teams.world.hub.command();
        tell.args(["tell", team, message, "--timeout", "60"]);
        let output = tokio::task::spawn_blocking(move || tell.output()).await;
        let output = output.expect("it runs").expect("it starts");
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (person, told) = tokio::join!(person, futures_util::future::join_all(tells));
    assert!(began.elapsed() < SOON, "{:?}: {told:?}", began.elapsed());
    (person, told)
}

/// Says how many were settled without an answer; none may be left open.
fn n_terminated(told: &[Value]) -> usize {
    let open = told.iter().find(|one| one["status"] == "timeout" || one["status"] == "busy");
    assert!(open.is_none(), "{told:?}");
    told.iter().filter(|one| one["status"] == "terminated" && one["reason"].is_string()).count()
}

fn assert_nobody_waits(teams: &Teams) {
    let log = teams.world.hub.ok(&["log"]);
    let told = log.matches(" in CONV-").count();
    let settled = log.matches(" answered: ").count() + log.matches(" has no answer: ").count();
    assert_eq!(told, settled, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_crashes_is_started_again_once_and_then_costs_one_message() {
    let teams = Teams::start("");
    // It is cut off, goes on once, and is cut off again: the script is played again.
    let (person, told) = ask(&teams, "api", "! say before\n! crash\n! crash").await;
    assert!(person.contains("terminated:") && person.contains("(signal 9)"), "{person}");
    assert_eq!(n_terminated(&told), 1, "{told:?}");
    assert_eq!((&told[1]["response"], &told[2]["response"]), (&json!("1"), &json!("2")));
    assert_eq!(teams.tell("api", "! say fine"), "fine");
    assert_nobody_waits(&teams);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_hangs_is_ended_by_its_own_timer_and_tells_what_it_said() {
    let teams = Teams::start("[categories.coding]\nstall_s = 2\ntool_stall_s = 2\n");
    let (person, told) = ask(&teams, "api", "! say so far\n! hang").await;
    assert!(person.contains("nothing was heard of it for 2 s"), "{person}");
    assert_eq!(
        (&told[0]["status"], &told[0]["response"]),
        (&json!("terminated"), &json!("so far"))
    );
    assert_eq!(n_terminated(&told), 1, "{told:?}");
    assert_eq!(teams.tell("api", "! say fine"), "fine");
    // Nor was it silent while it rested.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(teams.tell("api", "! sleep 50\n! say still fine"), "still fine");
    // Who waits for another is not silent.
    let waits = "! call team_tell {\"toTeam\":\"web\",\"message\":\"! sleep 1500\\n! say a\\n! sleep 1500\\n! say b\"}\n! say $last.response";
    assert_eq!(teams.tell("api", waits), "a\n\nb");
    assert_nobody_waits(&teams);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_floods_or_talks_nonsense_harms_itself_only() {
    let teams = Teams::start("");
    for flood in ["! garbage\n! long-line 3000000\n! say done", "! long-line 300000\n! say done"] {
        let answer = teams.tell("web", flood);
        assert!(
            answer.ends_with("done") && answer.len() <= 64 * 1024 + 8,
            "{} bytes",
            answer.len()
        );
    }
    // A line without an end is more than anybody reads.
    let (person, told) = ask(&teams, "api", "! flood 100000000\n! crash").await;
    assert!(person.contains("terminated:"), "{person}");
    assert_eq!(n_terminated(&told), 1, "{told:?}");
    assert_eq!(teams.tell("api", "! say fine"), "fine");
    assert_nobody_waits(&teams);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_cannot_be_started_is_told_to_all_who_wait() {
    let programs = "[programs.exits]\ncommand = \"/bin/false\"\n[programs.missing]\ncommand = \"/nowhere/missing\"\n\
                    [programs.mute]\ncommand = \"/bin/true\"\nargs = [\"x\"]\n";
    let teams = [
        ("exits".to_owned(), "program = \"exits\"\n"),
        ("missing".to_owned(), "program = \"missing\"\n"),
        ("mute".to_owned(), "program = \"mute\"\n"),
        ("gone".to_owned(), ""),
        ("fine".to_owned(), ""),
    ];
    let teams = Teams::of(&teams, programs);
    std::fs::remove_dir_all(teams.home.path().join("gone")).expect("it is there");
    let reasons = [
        ("exits", "it did not start"),
        ("missing", "missing"),
        ("mute", "it did not start"),
        ("gone", "there is no directory"),
    ];
    for (team, reason) in reasons {
        let (person, told) = ask(&teams, team, "! say hello").await;
        assert!(person.contains("terminated:") && person.contains(reason), "{team}: {person}");
        assert_eq!(n_terminated(&told), 3, "{told:?}");
        let says = told[0]["reason"].as_str().expect("it is text");
        assert!(says.contains(reason), "{team}: {says}");
        let says = teams.world.hub.fails(&["wake", team]);
        assert!(says.contains("did not wake up"), "{team}: {says}");
        // Others have nothing to do with it, also those of the same program.
        let began = Instant::now();
        assert_eq!(teams.tell("fine", "! say fine"), "fine");
        assert!(team == "exits" || began.elapsed() < SOON);
    }
    // When it is there again, so are they.
    std::fs::create_dir(teams.home.path().join("gone")).expect("it can be made");
    assert_eq!(teams.tell("gone", "! say back"), "back");
    assert_nobody_waits(&teams);
}

/// One whose program is there no longer when it is to wake up is not said to be awake.
#[test]
fn one_that_does_not_wake_up_again_is_not_awake() {
    let teams = Teams::start("");
    assert_eq!(teams.tell("api", "! say hello"), "hello");
    teams.world.hub.ok(&["sleep", "api"]);
    std::fs::remove_dir_all(teams.home.path().join("api")).expect("it is there");
    let says = teams.world.hub.fails(&["wake", "api"]);
    assert!(says.contains("did not wake up"), "{says}");
}

#[test]
fn a_team_that_is_removed_between_two_starts_answers_nobody() {
    let mut teams = Teams::start("");
    assert_eq!(teams.tell("ops", "! say hello"), "hello");
    let first = teams.world.hub.ok(&["tell", "api", "! say begun\n! hang", "--no-wait"]);
    let second = teams.world.hub.ok(&["tell", "api", "! say second", "--no-wait"]);
    until_said(&teams.world, &format!("{first} is being answered"));
    let settings = teams.world.home.path().join("config/teamster/teamster.toml");
    let text = std::fs::read_to_string(&settings).expect("it is there");
    std::fs::write(&settings, text.replace("[teams.api]", "[teams.apart]"))
        .expect("it can be written");
    teams.world.crash_and_start_again();
    for tell in [&first, &second] {
        until_said(&teams.world, &format!("{tell} has no answer: "));
    }
    let says = teams.world.hub.fails(&["tell", "api", "hello"]);
    assert!(says.contains("Unknown team: api"), "{says}");
    assert_eq!(teams.tell("ops", "! say still here"), "still here");
    // It comes back, and so does what was said.
    std::fs::write(&settings, text).expect("it can be written");
    teams.world.hub.end(Signal::TERM);
    teams.world.start_again();
    assert_eq!(teams.tell("api", "! say back"), "back");
    let transcript = teams.world.hub.ok(&["transcript", "operator", "api"]);
    assert!(transcript.contains("\n  back\n· TELL-"), "{transcript}");
    assert_nobody_waits(&teams);
}

/// Each waits for the next, and the last for the first: nobody may wait for ever.
#[test]
fn a_circle_of_tells_comes_to_an_end() {
    let teams = Teams::start("");
    // Operator to api to web to api to web: the last would wait behind the second, which waits for it.
    let third = "! call team_tell {\"toTeam\":\"web\",\"message\":\"! say deep\",\"timeout\":3600000}\n! say api heard $last.status";
    let second =
        json!({"toTeam": "api", "message": third.replace('$', "$$"), "timeout": 3_600_000});
    let second = format!("! call team_tell {second}\n! say web heard $last.response");
    let first =
        json!({"toTeam": "web", "message": second.replace('$', "$$"), "timeout": 3_600_000});
    let began = Instant::now();
    let answer = teams.tell("api", &format!("! call team_tell {first}\n! say $last.response"));
    assert_eq!(answer, "web heard api heard busy");
    assert!(began.elapsed() < SOON);
    // What was queued is answered all the same.
    until_said(&teams.world, "TELL-4 answered: deep");
    // One that asks its own team, in the very conversation that it answers.
    let inner =
        "! call team_tell {\"toTeam\":\"api\",\"message\":\"! say x\"}\n! say $$last.status";
    let script = format!(
        "! call team_tell {}\n! say $last.response",
        json!({"toTeam": "api", "message": inner})
    );
    assert_eq!(teams.tell("api", &script), "busy");
}

/// Many tell many at once, with room for few: all are answered, in order, and nobody who is at work makes room.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_small_pool_answers_everybody_in_order() {
    const TEAMS: usize = 20;
    const TELLERS: usize = 5;
    const MESSAGES: usize = 40;
    let names: Vec<(String, &str)> = (0..TEAMS).map(|n| (format!("team{n}"), "")).collect();
    let teams = Teams::of(&names, "[pool]\nrunning = 5\nlive = 5\n");
    let tellers = (0..TELLERS).map(async |teller| {
        let mut client = teams.client(&format!("teller{teller}"), None).await;
        // First all are sent, then the answers are read, so that conversations have queues.
        let mut sessions = BTreeMap::new();
        for n in 0..MESSAGES {
            let at = (n * 3 + teller) % TEAMS;
            let team = format!("team{at}");
            // Every eighth asks somebody else before it answers.
            let message = match n % 8 {
                0 => format!(
                    "! call team_tell {{\"toTeam\":\"team{}\",\"message\":\"! say answer {n}\"}}\n! say $last.response",
                    (at + 7) % TEAMS
                ),
                _ => format!("! say answer {n}"),
            };
            let tell = json!({"toTeam": team, "message": message, "waitForResponse": false});
            let (told, failed) = call(&mut client, "team_tell", tell).await;
            assert!(!failed, "{told}");
            sessions.insert(team, told["sessionId"].clone());
        }
        assert_eq!(sessions.len(), TEAMS);
        for (team, session) in &sessions {
            // The last of each conversation is answered after all before it.
            loop {
                let tell = json!({"toTeam": team, "message": "! say last", "timeout": 45_000});
                let (told, _) = call(&mut client, "team_tell", tell).await;
                if told["status"] != "timeout" {
                    assert_eq!(told["response"], "last", "{told}");
                    break;
                }
            }
            let read = json!({"sessionId": session, "messageCount": 100});
            let (cache, _) = call(&mut client, "team_cache_read", read).await;
            let entries = cache["entries"].as_array().expect("there are entries");
            let said = |entry: &Value| entry["messages"][1]["data"]["text"].as_str().map(str::to_owned);
            let n = |answer: String| {
                answer.strip_prefix("answer ").map(|n| n.parse::<usize>().expect("a number"))
            };
            let answers: Vec<usize> = entries.iter().filter_map(said).filter_map(n).collect();
            assert!(answers.is_sorted() && answers.len() == MESSAGES / TEAMS, "{cache}");
        }
    });
    futures_util::future::join_all(tellers).await;
    let log = teams.world.hub.ok(&["log"]);
    assert!(!log.contains("has no answer"), "{log}");
    check_the_pool(&log);
}

/// Reads in the log that nobody had to make room while at work, and that each message was begun and settled once.
fn check_the_pool(log: &str) {
    let mut agents: BTreeMap<&str, &str> = BTreeMap::new();
    let mut conversations: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut at_work, mut settled) = (BTreeSet::new(), BTreeSet::new());
    let mut n_made_room = 0;
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let after = |what: &str| {
            let at = words.iter().position(|word| *word == what)?;
            words.get(at + 1).copied()
        };
        let id = |prefix: &str| words.iter().find(|word| word.starts_with(prefix)).copied();
        if line.contains(" can talk to ") {
            let conversation = id("CONV-").expect("it is named").trim_end_matches(':');
            let agent = words.last().expect("it is named").trim_matches(['(', ')']);
            agents.insert(conversation, agent);
        } else if line.contains(" in CONV-") {
            let conversation = id("CONV-").expect("it is named").trim_end_matches(':');
            conversations.insert(id("TELL-").expect("it is named"), conversation);
        } else if line.contains(" is being answered") {
            let agent = agents[conversations[id("TELL-").expect("it is named")]];
            assert!(at_work.insert(agent), "{agent} is at two messages at once: {line}");
        } else if line.contains(" answered: ") {
            let tell = id("TELL-").expect("it is named");
            at_work.remove(agents[conversations[tell]]);
            assert!(settled.insert(tell), "{tell} is settled twice");
        } else if line.contains("others needed its place") {
            let agent = after("agent").expect("it is named");
            assert!(!at_work.contains(agent), "{agent} was at work: {line}");
            n_made_room += 1;
        }
    }
    assert_eq!(settled.len(), conversations.len());
    assert!(settled.len() >= 200 && n_made_room > 20, "{} {n_made_room}", settled.len());
}

#[test]
fn a_directory_is_what_a_team_is() {
    let teams = Teams::start("");
    assert_eq!(teams.tell("api", "! write here.txt yes\n! say done"), "done");
    assert!(Path::new(&teams.path("api")).join("here.txt").is_file());
}
