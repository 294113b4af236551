//! What makes it responsible to let agents run alone: permissions that people are asked for, budgets, usage limits, loops
//! that are stopped, and agents that change hands.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Stdio};

use serde_json::{Value, json};

use crate::agents::{World, outcome};
use crate::hub::Hub;

/// Follows what a verb prints, up to the first line that is wanted, and returns that.
pub(crate) fn first_line(hub: &Hub, follow: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    let mut follow = hub.command().args(follow).stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(follow.stdout.take().expect("stdout is piped")).lines();
    let found = lines.map(|line| line.expect("it can be read")).find(|line| wanted(line));
    follow.kill().expect("it can be ended");
    follow.wait().expect("it ends");
    found.expect("it is said before the hub ends")
}

/// Waits until something waits for a person, and returns it.
pub(crate) fn question(world: &World) -> Value {
    let line = first_line(&world.hub, &["questions", "--follow", "--json"], |_| true);
    serde_json::from_str(&line).expect("it is a question")
}

pub(crate) fn until_said(world: &World, what: &str) {
    first_line(&world.hub, &["log", "--follow"], |line| line.contains(what));
}

/// Returns the lines of the log that say something.
fn said(world: &World, what: &str) -> Vec<String> {
    let log = world.hub.ok(&["log"]);
    log.lines().filter(|line| line.contains(what)).map(str::to_owned).collect()
}

/// Some programs end their turn at a denial, as if all were done.
#[test]
fn an_agent_whose_turn_ends_at_a_denial_is_prompted_once_more() {
    let world = World::start("[permissions]\ndeny = [\"execute(*curl*)\"]\n");
    let denied = "execute curl example.org";
    for (script, expected, n_prompts_expected) in [
        (
            format!("! need {denied}\n! say I did without."),
            ("completed", "success", "I did without."),
            1,
        ),
        // What was done in between shows that it went on.
        (
            format!("! need {denied}\n! run true\n! need {denied}\n! say I did without."),
            ("completed", "success", "I did without."),
            2,
        ),
        (
            format!("! need {denied}\n! need {denied}\n! say I did without."),
            (
                "crashed",
                "failed",
                "its turn ended because this was not permitted: execute curl example.org",
            ),
            1,
        ),
        (format!("! ask {denied}"), ("completed", "success", "permission: reject"), 0),
    ] {
        let id = world.draft("coder", &script);
        let ended = world.ended(&id);
        assert_eq!(outcome(&ended), expected, "{script}");
        let transcript = world.hub.ok(&["agent", "show", &id, "--json"]);
        let says = format!("That was not permitted: {id} | execute curl");
        let n_prompts = transcript.matches(&says).count();
        assert_eq!(n_prompts, n_prompts_expected, "{transcript}");
        assert_eq!(world.agent(&id)["turns"], 1 + n_prompts_expected, "each prompt is a turn");
    }
}

/// The program reports each model call, so the hub need not wait for the end of the turn.
#[test]
fn a_token_limit_holds_in_the_middle_of_a_turn() {
    let world = World::start("limits.tokens = 1000\n");
    let script = "! usage 400 50\n! run true\n! usage 400 50\n! run true\n! usage 400 50\n! run true\n! say done";
    let ended = world.ended(&world.draft("coder", script));
    assert_eq!(outcome(&ended), ("aborted", "partial", "its token limit is reached"));
    let used = &ended["used"];
    assert_eq!((&used["input"], &used["output"]), (&json!(1_200), &json!(150)));
    // One that stays below is not ended.
    let script = "! usage 400 50\n! run true\n! say done";
    let ended = world.ended(&world.draft("coder", script));
    assert_eq!(outcome(&ended), ("completed", "success", "done"));
}

const ASK: &str = "[permissions]\notherwise = \"ask\"\n";

#[test]
fn a_person_allows_or_denies_what_a_program_asks() {
    let world = World::start(ASK);
    for (answer, ends_with) in [("allow", "permission: allow"), ("deny", "permission: reject")] {
        let id = world.draft("coder", "! ask to run cargo test");
        let asked = question(&world);
        assert_eq!((&asked["agent"], &asked["title"]), (&json!(id), &json!("to run cargo test")));
        let shown = world.hub.ok(&["questions"]);
        assert!(shown.contains("wants to: to run cargo test"), "{shown}");
        let number = asked["id"].as_str().expect("it has an id");
        // Nobody answers who is no operator, and nobody twice.
        let no_answer = world.hub.fails(&["answer", number, "perhaps"]);
        assert!(no_answer.contains("choose one of allow, deny"), "{no_answer}");
        world.hub.ok(&["answer", number, answer, "--note", "as we said"]);
        let twice = world.hub.fails(&["answer", number, "allow"]);
        assert!(twice.contains("was settled already"), "{twice}");
        let ended = world.ended(&id);
        assert_eq!(outcome(&ended), ("completed", "success", ends_with));
    }
    assert_eq!(world.hub.ok(&["questions", "--json"]), "[]");
    let all = world.hub.ok(&["questions", "--all"]);
    assert!(all.contains("answered \"deny\" (as we said) by operator"), "{all}");
}

/// A script reads the same fields, whatever it asks for and whether there are any.
#[test]
fn questions_have_one_form_for_programs() {
    let world = World::start(ASK);
    let list = |flags: &[&str]| -> Vec<Value> {
        let printed = world.hub.ok(&[&["questions", "--json"], flags].concat());
        serde_json::from_str(&printed).expect("it is a list")
    };
    assert_eq!((list(&[]), list(&["--all"])), (vec![], vec![]));
    world.draft("coder", "! ask to run cargo test\n! ask to run it again");
    let first = question(&world);
    assert_eq!(list(&[]), [first]);
    world.hub.ok(&["answer", "Q-1", "allow"]);
    let newer = |line: &str| line.contains("again");
    let line = first_line(&world.hub, &["questions", "--follow", "--json"], newer);
    let second: Value = serde_json::from_str(&line).expect("it is a question");
    let all = list(&["--all"]);
    assert_eq!((all.len(), &all[1]), (2, &second));
    assert_eq!((&all[0]["id"], &all[0]["settled"]["by"]), (&json!("Q-1"), &json!("operator")));
    let keys = |of: &Value| of.as_object().expect("it is one").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&all[0]), keys(&second));
    let line = first_line(&world.hub, &["questions", "--follow", "--all", "--json"], |_| true);
    assert_eq!(serde_json::from_str::<Value>(&line).expect("it is JSON"), all[0]);
}

#[test]
fn rules_decide_before_people_do() {
    let rules = "[permissions]\ndeny = [\"*drop*\"]\nallow = [\"*tests*\"]\notherwise = \"ask\"\n";
    let world = World::start(rules);
    let allowed = world.ended(&world.draft("coder", "! ask to run the tests"));
    assert_eq!(outcome(&allowed).2, "permission: allow");
    let denied = world.ended(&world.draft("coder", "! ask to drop the tests"));
    assert_eq!(outcome(&denied).2, "permission: reject");
    assert_eq!(world.hub.ok(&["questions", "--json"]), "[]");
}

#[test]
fn an_agent_that_ends_takes_its_question_back() {
    let mut world = World::start(ASK);
    let id = world.draft("coder", "! ask to run cargo test\n! say done");
    question(&world);
    // Neither a dead hub nor a dead agent leaves a question that nobody needs.
    world.crash_and_start_again();
    let again = question(&world);
    assert_eq!(again["id"], "Q-2");
    world.hub.ok(&["kill", &id]);
    assert_eq!(world.hub.ok(&["questions", "--json"]), "[]");
    let late = world.hub.fails(&["answer", "Q-2", "allow"]);
    assert!(late.contains("nobody needs the answer any more"), "{late}");
}

#[test]
fn a_tree_stops_when_its_money_is_spent() {
    let world = World::start("");
    let child = "! usage 1000 100 0.30\\n! say done";
    let script = format!(
        "! call draft_agent {{\"role\":\"coder\",\"prompt\":\"{child}\"}}\n! call await_agent {{\"agentId\":\"coder-2\"}}\n\
         ! call draft_agent {{\"role\":\"coder\",\"prompt\":\"{child}\"}}\n! call await_agent {{\"agentId\":\"coder-3\"}}\n\
         ! call draft_agent {{\"role\":\"coder\",\"prompt\":\"{child}\"}}\n! usage 10 1\n! say $last"
    );
    let id = world.hub.ok(&["draft", "coordinator", &script, "--budget", "0.50"]);
    let ended = world.ended(&id);
    let (_, _, summary) = outcome(&ended);
    assert!(summary.contains("the $0.50 of coordinator-1 are spent"), "{summary}");
    let tree = world.hub.ok(&["budget", &id]);
    for line in ["$0.60 + unknown of $0.50", "$0.30 of $0.50", "$0.30 of $0.20"] {
        assert!(tree.contains(line), "{line}\n{tree}");
    }
    let tree: Value =
        serde_json::from_str(&world.hub.ok(&["budget", &id, "--json"])).expect("JSON");
    assert_eq!(tree[0]["spent"]["microdollars"], 600_000);
    assert_eq!(tree[0]["below"][1]["used"]["input"], 1_000);
    assert_eq!(ended["outcome"]["cost_microdollars"], Value::Null, "its own price is not known");
    assert_eq!(world.agent("coder-2")["outcome"]["cost_microdollars"], 300_000);
}

#[test]
fn a_turn_that_tells_what_it_costs_is_stopped_when_that_is_too_much() {
    let world = World::start("");
    let script = "! usage 100 10 0.30\n! call task-list\n! call task-list\n! say done";
    let stopped = world.hub.ok(&["draft", "coder", script, "--budget", "0.10"]);
    let ended = world.ended(&stopped);
    let (ending, status, summary) = outcome(&ended);
    assert_eq!((ending, status), ("aborted", "partial"), "{ended}");
    assert!(summary.contains("its budget is spent"), "{summary}");
    // What is done is done, whatever it cost.
    let late = world.hub.ok(&[
        "draft",
        "coder",
        "! call task-list\n! say done\n! usage 100 10 0.30",
        "--budget",
        "0.10",
    ]);
    assert_eq!(outcome(&world.ended(&late)), ("completed", "success", "done"));
}

#[tokio::test]
async fn a_price_is_listed_or_told_or_unknown() {
    let world =
        World::start("[roles.coder]\nmodel = \"mine\"\n[prices.mine]\ninput = 2\noutput = 10\n");
    let id = world.draft("coder", "! usage 1000000 100000\n! say done");
    world.ended(&id);
    let agent = world.agent(&id);
    assert_eq!(agent["used"]["microdollars"], 3_000_000, "{agent}");
    let shown = world.hub.ok(&["agent", "show", &id]);
    assert!(
        shown.contains("1100000 tokens (1000000 in, 100000 out, 0 cached), cost $3.00"),
        "{shown}"
    );
    // A program that lies harms only itself.
    let liar = world.draft("researcher", &format!("! usage {} 5\n! say done", u64::MAX));
    assert_eq!(outcome(&world.ended(&liar)).0, "completed");
    assert_eq!(world.agent(&liar)["used"]["n_unpriced"], 1);
    let status = world.hub.ok(&["status"]);
    assert!(status.contains("cost $3.00 + unknown"), "{status}");
    let samples = crate::telemetry::samples(&world.hub).await;
    for (sample, value) in [
        ("teamster_role_cost_dollars{role=\"coder\"}", 3.0),
        ("teamster_role_tokens{role=\"coder\",kind=\"output\"}", 100_000.0),
        ("teamster_role_unpriced_turns{role=\"researcher\"}", 1.0),
    ] {
        assert_eq!(samples.get(sample), Some(&value), "{sample} {samples:?}");
    }
}

#[test]
fn a_usage_limit_parks_all_of_an_account_and_what_was_done_stays_done() {
    let world = World::start("");
    let add = |what: &str| format!("! call task-add {{\"tasks\":[{{\"content\":\"{what}\"}}]}}");
    let script = format!(
        "{}\n! limit You have hit your usage limit, try again in 3 seconds\n{}\n! say all done",
        add("before"),
        add("after")
    );
    let id = world.draft("coder", &script);
    // A second one of the same account is not started before the limit ends.
    until_said(&world, "is parked");
    let other = world.draft("coder", "! say me too");
    assert_eq!(outcome(&world.ended(&id)), ("completed", "success", "all done"));
    assert_eq!(outcome(&world.ended(&other)).2, "me too");
    let items = world.hub.ok(&["tool", "task-list"]);
    assert_eq!(items.matches("before").count(), 1, "{items}");
    assert_eq!(items.matches("after").count(), 1, "{items}");
    let log = world.hub.ok(&["log"]);
    let place = |text: &str| log.find(text).unwrap_or_else(|| panic!("{text} is not in {log}"));
    assert!(place("is parked") < place(&format!("agent {other} starts")), "{log}");
    assert_eq!(world.agent(&id)["incarnation"], 2);
}

#[test]
fn a_person_lets_those_that_are_parked_go_on() {
    let world = World::start("");
    let id = world.draft("coder", "! limit usage limit, try again in 20 days\n! say done");
    until_said(&world, "is parked");
    let other = world.draft("coder", "! say me too");
    let parked = world.hub.ok(&["agents"]);
    assert!(parked.contains("parked") && parked.contains("queued"), "{parked}");
    let status = world.hub.ok(&["status"]);
    assert!(status.contains("(1 parked)"), "{status}");
    world.hub.ok(&["resume", &id]);
    assert_eq!(outcome(&world.ended(&id)).2, "done");
    assert_eq!(outcome(&world.ended(&other)).2, "me too");
    let again = world.hub.fails(&["resume", &id]);
    assert!(again.contains("is neither parked nor adopted"), "{again}");
}

/// Whoever waits sees why nothing happens: the agent that meets the limit, and one that is drafted while it lasts.
#[test]
fn who_waits_for_a_parked_agent_is_told_until_when() {
    let world = World::start("");
    let script = "! limit 429 Too Many Requests, try again in 20 days\n! say done";
    let mut first = waiting(&world, script);
    let says = first.until("coder-1 waits: ");
    assert!(says.contains("the account scripted accepts no requests until 20"), "{says}");
    let mut second = waiting(&world, "! say me too");
    let says = second.until("coder-2 waits: ");
    assert!(says.contains("the account scripted accepts no requests until 20"), "{says}");
    let log = said(&world, "is parked");
    assert!(
        log[0].contains("scripted accepts no requests for now: ") && log[0].contains("429"),
        "{log:?}"
    );
    world.hub.ok(&["resume", "coder-1"]);
    for mut waiting in [first, second] {
        assert!(waiting.process.wait().expect("it ends").success());
    }
}

/// `draft --wait`, and what it says to people.
struct Waiting {
    process: Child,
    lines: std::io::Lines<BufReader<ChildStderr>>,
}

fn waiting(world: &World, script: &str) -> Waiting {
    let mut draft = world.hub.command();
    draft.args(["draft", "coder", script, "--wait"]).current_dir(world.home.path());
    let mut process =
        draft.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(process.stderr.take().expect("stderr is piped")).lines();
    Waiting { process, lines }
}

impl Waiting {
    fn until(&mut self, what: &str) -> String {
        let mut lines = self.lines.by_ref().map(|line| line.expect("it can be read"));
        lines.find(|line| line.contains(what)).expect("it is said before the agent ends")
    }
}

#[test]
fn an_agent_that_meets_the_same_error_again_and_again_is_stopped() {
    let world = World::start("");
    let calls: Vec<String> = (1..20)
        .map(|n| format!("! call await_agent {{\"agentId\":\"nobody-1\",\"n\":{n}}}"))
        .collect();
    let id = world.draft("coordinator", &calls.join("\n"));
    let ended = world.ended(&id);
    assert_eq!(outcome(&ended).0, "aborted", "{ended}");
    let warnings = said(&world, "the same error came");
    assert_eq!(warnings.len(), 3, "a warning, a second one, and the end: {warnings:?}");
    assert!(warnings[1].contains("stopped, because it went in circles"), "{warnings:?}");
}

#[tokio::test]
async fn an_agent_changes_hands_and_goes_on() {
    let world = World::start("");
    // What a person began, and closed.
    let first = world.draft("coder", "! say begun");
    let session = world.ended(&first)["session"].as_str().expect("it has one").to_owned();

    let adopted = world.hub.ok(&["adopt", "--role", "researcher", "--session", &session, "--json"]);
    let adopted: Value = serde_json::from_str(&adopted).expect("JSON");
    let (id, secret) = (&adopted["agent"]["id"], adopted["secret"].as_str().expect("a secret"));
    let id = id.as_str().expect("an id").to_owned();
    // Its connection is the agent.
    let mut mcp = world.hub.modern(secret, "/mcp").await;
    let (answer, failed) = mcp.call("task-add", json!({"tasks": [{"content": "by hand"}]})).await;
    assert!(!failed, "{answer}");
    let log = world.hub.log();
    assert!(log.iter().any(|(by, text)| *by == id && text.contains("by hand")), "{log:?}");
    // The shared list is its run; another run, and another's task, are not.
    let answer = world.hub.modern(secret, "/mcp/session/other").await;
    let answer = { answer }.request("tools/list", json!({})).await;
    let says = "this token belongs to the run default; use the path /mcp/session/default";
    assert_eq!((answer.status.as_u16(), answer.body.contains(says)), (403, true), "{answer:?}");
    let theirs = world.agent(&first)["dossier"].as_str().expect("it has one").to_owned();
    let (answer, failed) = mcp.call("get_task_context", json!({"taskSlug": theirs})).await;
    assert!(failed && answer.contains("not found"), "{answer}");
    let (answer, _) = mcp.call("list_tasks", json!({})).await;
    assert!(!answer.contains(&theirs), "{answer}");
    let listed = world.hub.ok(&["agents"]);
    assert!(listed.contains("adopted"), "{listed}");

    world.hub.ok(&["resume", &id, "! say and finished"]);
    assert_eq!(outcome(&world.ended(&id)), ("completed", "success", "and finished"));
    let answer = mcp.request("tools/list", json!({})).await;
    assert_eq!(answer.status, 401, "the person's token is over");
}

/// A program that failed again and again, and an agent that waits because of that.
fn held_back() -> (World, String) {
    let world = World::start("[pool]\nrunning = 6\n");
    let go = world.home.path().join("go");
    let script = format!("! run until test -e {}; do sleep 0.05; done\n! exit 3", go.display());
    let others: Vec<String> = (0..6).map(|_| world.draft("coder", &script)).collect();
    let id = world.draft("coder", "! say done");
    let queued = world.agent(&id);
    let waits = queued["waits_for"].as_str().unwrap_or_default();
    assert_eq!(waits, "the pool is full (pool.running = 6, pool.live = 16)", "{queued}");
    for other in &others {
        until_said(&world, &format!("agent {other} begins a turn"));
    }
    std::fs::write(go, "").expect("it can be written");
    until_said(&world, &format!("agent {id}: waits: scripted is held back until "));
    for other in &others {
        until_said(&world, &format!("agent {other} was cut off"));
        world.hub.ok(&["kill", other]);
    }
    (world, id)
}

#[test]
fn people_see_why_an_agent_waits_and_can_have_it_tried() {
    let (world, id) = held_back();
    let says = "scripted is held back until ";
    let why = ", because it failed 6 times within ten minutes";
    for verb in [&["agents"][..], &["agent", "show", &id], &["status"], &["top", "--once"]] {
        let shown = world.hub.ok(verb);
        assert!(shown.contains(says), "{verb:?}: {shown}");
    }
    let queued = world.agent(&id);
    let waits = queued["waits_for"].as_str().unwrap_or_default();
    assert!(waits.starts_with(says) && waits.ends_with(why), "{queued}");
    assert!(queued["waits_until"].as_i64() > queued["drafted_at"].as_i64(), "{queued}");
    world.hub.ok(&["resume", &id]);
    let ended = world.ended(&id);
    assert_eq!(outcome(&ended), ("completed", "success", "done"));
    assert_eq!((&ended["waits_for"], &ended["waits_until"]), (&Value::Null, &Value::Null));
    let refused = world.hub.fails(&["resume", &id]);
    assert!(!refused.is_empty());
}

#[test]
fn whoever_drafts_an_agent_has_its_program_tried_at_once() {
    let (world, id) = held_back();
    let other = world.draft("coder", "! say me too");
    for id in [id, other] {
        assert_eq!(outcome(&world.ended(&id)).1, "success");
    }
}

/// A flag, or a line of a file, named a program that agents began with. Without it, nothing is lost.
#[test]
fn agents_wait_for_a_program_that_is_not_configured_any_more() {
    let says = "the program scripted, with which it began, is not configured";
    wait_for_program("", says);
}

/// Their sessions are of no use to another one, which may cost money.
#[test]
fn agents_do_not_continue_with_another_program() {
    let other = "program = \"other\"\n[programs.other]\ncommand = \"sh\"\n";
    wait_for_program(other, "it began with the program scripted, and other is configured now");
}

/// Starts a hub again with another line in the place of its program's, and expects an agent to wait.
fn wait_for_program(instead: &str, says: &str) {
    let mut world = World::start("");
    let id = world.draft("coder", "! hang");
    until_said(&world, &format!("agent {id} works"));
    world.hub.end(rustix::process::Signal::KILL);
    let file = world.home.path().join("config/teamster/teamster.toml");
    let text = std::fs::read_to_string(&file).expect("it can be read");
    let changed = text.replace("program = \"scripted\"\n", instead);
    std::fs::write(&file, changed).expect("it can be written");
    world.start_again();
    until_said(&world, says);
    assert_eq!(world.agent(&id)["phase"], "queued");
    let status = world.hub.ok(&["status"]);
    assert!(status.contains("restart the hub with `--set program=scripted`"), "{status}");
    // It goes on as soon as there is one.
    let n_starts = |log: &str| log.matches(&format!("agent {id} starts")).count();
    assert_eq!(n_starts(&world.hub.ok(&["log"])), 1);
    std::fs::write(&file, text).expect("it can be written");
    let seen = std::cell::Cell::new(0);
    first_line(&world.hub, &["log", "--follow"], |line| {
        seen.set(seen.get() + n_starts(line));
        seen.get() == 2
    });
    world.hub.ok(&["kill", &id]);
}
