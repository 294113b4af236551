//! What a run prints line by line, and what a signal to whoever prints it means.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::unattended::{question, until_said};
use crate::work::{Project, SPEC, TEMPLATE, said};

/// What a run prints, while it goes on.
struct Printed {
    process: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Printed {
    fn start(project: &Project, args: &[&str]) -> Self {
        let mut command = project.world.hub.command();
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("stdout is piped")).lines();
        Self { process, lines }
    }

    fn run(project: &Project, more: &[&str]) -> Self {
        let (spec, template) = (project.aside("SPEC.md"), project.aside("template.md"));
        let directory = project.path.to_string_lossy();
        let mut args =
            vec!["run", &spec, "--headless", "--template", &template, "--dir", &directory];
        args.extend(more);
        Self::start(project, &args)
    }

    /// Returns what is printed up to the first line that has this.
    fn until(&mut self, what: &str) -> Vec<String> {
        let mut seen = Vec::new();
        for line in self.lines.by_ref() {
            seen.push(line.expect("it can be read"));
            if seen.last().is_some_and(|line| line.contains(what)) {
                return seen;
            }
        }
        panic!("{what:?} is not in\n{}", seen.join("\n"));
    }

    fn rest(&mut self) -> String {
        self.lines.by_ref().map(|line| line.expect("it can be read") + "\n").collect()
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.process.id() as i32).expect("it runs");
        kill_process(id, signal).expect("it can be signalled");
    }

    fn code(&mut self) -> Option<i32> {
        self.process.wait().expect("it ends").code()
    }
}

/// What a line says, without its time, which must be one.
fn says(line: &str) -> &str {
    let time: Vec<&str> = line.get(..8).expect("a time").split(':').collect();
    assert!(time.len() == 3 && time.iter().all(|part| part.parse::<u8>().is_ok()), "{line}");
    line.get(10..).expect("something is said")
}

#[test]
fn what_an_agent_says_and_does_is_printed_with_the_time_and_a_summary_at_the_end() {
    let project = Project::start("");
    let template =
        TEMPLATE.replace("! say done", "! think of much\n! usage 100 10 0.25\n! say done\u{7}");
    project.write_aside("template.md", &template);
    let output = project.run(&["--iterations", "2", "--budget", "3"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let (lines, end) = printed.split_once("SPEC: its iterations").expect("it ends so");
    let lines: Vec<&str> = lines.lines().map(says).collect();
    let place = |what: &str| {
        let found = lines.iter().position(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("{what:?} is not in {printed}"))
    };
    assert!(place("iteration 0 plans (agent worker-1)") < place("  planned"));
    assert!(place("  planned") < place("iteration 0 ended"));
    assert!(place("TAS-4 claimed by iteration 1: four") < place("iteration 1 ended, commit"));
    assert!(place("  ✓ write") < place("iteration 1 ended, commit"));
    // In a prompt it is written out, and so the agent says it.
    assert!(lines.contains(&"  done\\u{7}"), "{printed}");
    assert!(!printed.contains("of much") && !printed.contains("number 0"), "{printed}");
    assert!(lines.iter().all(|line| !line.contains(char::is_control)), "{printed}");
    for row in [
        "iterations  2 of 2",
        "commits     2",
        "items       2 done, 3 open",
        "cost        $0.50 of $3.00",
        "time        ",
    ] {
        assert!(end.contains(&format!("\n  {row}")), "{row}: {end}");
    }
    assert!(
        said(&output).contains("run --resume --name SPEC` goes on with it"),
        "{}",
        said(&output)
    );
}

#[test]
fn with_several_workers_each_line_says_whose_it_is() {
    let project = Project::start("");
    // Each waits until the other has begun.
    let home = project.world.home.path().to_string_lossy().into_owned();
    let waits = format!(
        "! run : > {home}/has-{{{{iteration}}}}; until test -e {home}/has-1 && test -e {home}/has-2; do sleep 0.05; done"
    );
    project
        .write_aside("template.md", &TEMPLATE.replace("! write newest.txt {{iteration}}", &waits));
    let output = project.run(&["--workers", "2", "--iterations", "2"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> =
        printed.lines().take_while(|line| !line.starts_with("SPEC: ")).map(says).collect();
    for worker in [1, 2] {
        for what in [
            format!("worker {worker}, agent worker-"),
            "claimed by iteration".into(),
            "  ✓ ".into(),
        ] {
            let has =
                |line: &&str| line.starts_with(&format!("w{worker}  ")) && line.contains(&what);
            assert!(lines.iter().any(has), "{worker} {what}: {printed}");
        }
    }
    assert!(lines[0].starts_with("    "), "{printed}");
    let log = project.world.hub.ok(&["log"]);
    assert!(log.contains(", worker 2)") && !log.contains(", worker 1)"), "{log}");
}

#[test]
fn a_question_is_printed_with_how_to_answer_it() {
    let project = Project::start("[permissions]\notherwise = \"ask\"\n");
    project.write_aside("SPEC.md", &SPEC.replace("! say planned", "! ask execute cargo test"));
    for (more, name) in [(None, "SPEC"), (Some("--json"), "other")] {
        let args: Vec<&str> =
            ["--iterations", "1", "--name", name].into_iter().chain(more).collect();
        let mut printed = Printed::run(&project, &args);
        let asked = question(&project.world);
        let id = asked["id"].as_str().expect("it has an id");
        match more {
            None => {
                let line = printed.until(id).pop().expect("a line");
                assert!(
                    line.contains("worker-1 wants to: execute cargo test; answer with `"),
                    "{line}"
                );
                assert!(line.contains(&format!("answer {id} allow|deny`")), "{line}");
                // Whoever comes later sees it, too.
                let mut watch = Printed::start(&project, &["watch", "SPEC", "--headless"]);
                assert!(
                    watch.until(id).pop().expect("a line").contains("wants to: execute cargo test")
                );
                watch.signal(Signal::TERM);
                assert_eq!(watch.code(), Some(143));
            }
            Some(_) => {
                let line = printed.until("\"asked\"").pop().expect("a line");
                let line: Value = serde_json::from_str(&line).expect("it is JSON");
                assert_eq!(
                    line["event"]["question"]["asked"]["asked"]["title"],
                    "execute cargo test"
                );
            }
        }
        project.world.hub.ok(&["answer", id, "allow"]);
        let settled = if more.is_none() { "answered \"allow\" by operator" } else { "\"settled\"" };
        printed.until(settled);
        printed.rest();
        assert_eq!(printed.code(), Some(3));
    }
}

#[test]
fn an_agent_that_waits_for_room_is_told_of() {
    let project = Project::start("[pool]\nrunning = 1\n");
    let other = project.world.draft("coder", "! hang");
    until_said(&project.world, &format!("agent {other} begins a turn"));
    let mut printed = Printed::run(&project, &["--iterations", "1"]);
    printed.until("is queued: the pool is full (pool.running = 1");
    project.world.hub.ok(&["kill", &other]);
    printed.until("worker-2 starts");
    printed.rest();
    assert_eq!(printed.code(), Some(3));
}

/// Who cancels a job in CI wants it to cost nothing any more; who only watches ends nothing.
#[test]
fn a_signal_stops_the_run_that_is_ours_and_no_other() {
    let project = Project::start("");
    project.write_aside("template.md", "! call task-next {\"claim\":true}\n! hang\n");
    for (n, (signal, code)) in
        [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)].into_iter().enumerate()
    {
        let name = format!("run-{n}");
        let mut printed = Printed::run(&project, &["--name", &name]);
        printed.until("claimed by iteration 1");
        let mut watch = Printed::start(&project, &["watch", &name, "--headless"]);
        // It is there when it says how the run stands.
        let mut says = String::new();
        let stderr = watch.process.stderr.take().expect("it is piped");
        BufReader::new(stderr).read_line(&mut says).expect("it can be read");
        assert!(says.contains("working"), "{says}");
        // Its signals are listened to before it has anything to print.
        project.world.hub.ok(&["note", &name, "--content", "hello"]);
        watch.until("hello (by operator)");
        watch.signal(signal);
        assert_eq!(watch.code(), Some(code));
        assert_eq!(project.view(&name)["phase"], "working");
        printed.signal(signal);
        let rest = printed.rest();
        assert!(rest.contains(&format!("{name}: ")) && rest.contains("\n  iterations"), "{rest}");
        assert_eq!(printed.code(), Some(code), "{rest}");
        assert_eq!(project.view(&name)["phase"], "stopped");
    }
}

#[test]
fn items_notes_and_runs_are_listed() {
    let project = Project::start("");
    let hub = &project.world.hub;
    for run in ["b", "a"] {
        let output = project.run(&["--iterations", "1", "--name", run]);
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    }
    let items = hub.ok(&["item", "a"]);
    let lines: Vec<&str> = items.lines().collect();
    assert_eq!(lines[0], "status         id     after  by  item");
    assert!(lines.contains(&"remaining  P2  TAS-2  TAS-4      two"), "{items}");
    assert_eq!(
        hub.ok(&["item", "a", "tas-3"]),
        "TAS-3  remaining, P3, after TAS-2, of iteration 0\nthree"
    );
    let all: Vec<Value> = serde_json::from_str(&hub.ok(&["item", "a", "--json"])).expect("JSON");
    assert_eq!(all.len(), 5);
    let notes = hub.ok(&["note", "a"]);
    assert!(notes.ends_with("NOT-1  tip   0          worker-3  remember the milk"), "{notes}");
    assert!(hub.ok(&["note", "a", "NOT-1"]).ends_with("\nremember the milk"));
    for (verb, id) in [("item", "TAS-9"), ("note", "NOT-9")] {
        let says = hub.fails(&[verb, "a", id]);
        assert!(says.contains(&format!("there is no {verb} \"{id}\"")), "{says}");
        let says = hub.fails(&[verb, "nothing"]);
        assert!(says.contains("there is no run nothing"), "{says}");
    }
    // A list that nobody works off is the last, and is no run to go on with.
    hub.ok(&["tool", "task-add", "--tasks", "sweep"]);
    let runs = hub.ok(&["runs"]);
    let names: Vec<&str> = runs.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["name", "a", "b", "default"], "{runs}");
    let top = hub.ok(&["top", "--once"]);
    let place = |name: &str| top.find(&format!("\n{name} ")).expect("it is there");
    assert!(place("a") < place("b") && place("b") < place("default"), "{top}");
    let watch = hub.run(&["watch", "default", "--headless"]);
    assert_eq!(said(&watch), "default: 0 done, 1 open; nobody works it off\n");
    assert_eq!(watch.status.code(), Some(0));
    let prompt = hub.ok(&["agent", "show", "worker-1", "--prompt"]);
    assert!(prompt.lines().count() > 5 && prompt.contains("! call task-add"), "{prompt}");
}
