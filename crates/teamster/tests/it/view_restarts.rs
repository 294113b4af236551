//! Views while the hub goes away and comes back.

use std::process::Stdio;

use rustix::process::Signal;

use crate::run_view::{run, types};
use crate::terminal::{Terminal, has_tmux};
use crate::unattended::until_said;
use crate::work::{Project, TEMPLATE, said};

/// Each iteration says something, bit by bit.
fn project(settings: &str) -> Project {
    let project = Project::start(settings);
    let says: String =
        (1..=6).map(|n| format!("! say bit {n} of {{{{iteration}}}}.\n! sleep 300\n")).collect();
    let template = TEMPLATE.replace("! call task-next", &format!("{says}! call task-next"));
    project.write_aside("template.md", &template);
    project
}

#[test]
fn a_view_comes_back_with_the_hub_and_nothing_is_lost_or_doubled() {
    if !has_tmux() {
        return;
    }
    let mut project = project("");
    let terminal = Terminal::open(project.world.home.path());
    types(&terminal, &project, &format!("{} --iterations 1", run(&project)));
    terminal.until_all(&["bit 2 of 1"]);
    terminal.types(&["m"]);
    terminal.types(&["-l", "mind the g"]);
    terminal.until_all(&["for the next iteration: mind the g"]);
    project.world.hub.end(Signal::KILL);
    // What is being written stays, is not lost when it is sent in vain, and is gone on with.
    terminal.until_all(&["SPEC · the hub is gone; trying again", "mind the g"]);
    terminal.types(&["-l", "ap"]);
    terminal.types(&["Enter"]);
    terminal.until_all(&["for the next iteration: mind the gap", "not sent: the hub is gone"]);
    terminal.types(&["Escape"]);
    terminal.until_all(&["up -d` starts the hub"]);
    terminal.types(&["m"]);
    terminal.types(&["-l", "mind it"]);
    project.world.start_again();
    terminal.until_all(&["SPEC · working", "for the next iteration: mind it"]);
    terminal.types(&["Enter"]);
    terminal.until_all(&["> mind it"]);
    let shown = terminal.until_all(&["its iterations are used up", "bit 6 of 1"]);
    let bits = |text: &str| -> Vec<String> {
        text.split("bit ").skip(1).filter_map(|bit| bit.split('.').next()).map(Into::into).collect()
    };
    let transcript = project.world.hub.ok(&["agent", "show", "worker-2", "--json"]);
    let said = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
        record["text"].as_str().filter(|_| record["type"] == "text").map(ToOwned::to_owned)
    };
    let said: String = transcript.lines().filter_map(said).collect();
    assert!(bits(&said).len() >= 4, "{transcript}");
    assert_eq!(bits(&shown), bits(&said), "{shown}");
    assert!(shown.contains("1 TAS-4") && shown.contains("did four"), "{shown}");
    // A hub that stays gone is no reason to stay.
    project.world.hub.end(Signal::TERM);
    terminal.until_all(&["the hub is gone; trying again"]);
    terminal.types(&["q"]);
    terminal.until_all(&["left 3"]);
    project.world.start_again();
}

#[test]
fn a_view_is_left_while_the_hub_is_gone() {
    if !has_tmux() {
        return;
    }
    let mut project = project("");
    let terminal = Terminal::open(project.world.home.path());
    types(&terminal, &project, &run(&project));
    terminal.until_all(&["bit 1 of 1"]);
    project.world.hub.end(Signal::KILL);
    terminal.until_all(&["the hub is gone; trying again"]);
    terminal.types(&["q"]);
    let shown = terminal.until_all(&["left 0"]).replace(char::is_whitespace, "");
    assert!(shown.contains("starts it,SPECgoesonthen".replace(' ', "").as_str()), "{shown}");
    project.world.start_again();
    types(&terminal, &project, "watch SPEC");
    terminal.until_all(&["SPEC · working"]);
    project.world.hub.end(Signal::KILL);
    terminal.until_all(&["the hub is gone; trying again"]);
    terminal.types(&["C-c"]);
    terminal.until_all(&["left 130"]);
    project.world.start_again();
}

#[test]
fn the_whole_workspace_comes_back_with_the_hub() {
    if !has_tmux() {
        return;
    }
    let mut project = project("");
    let terminal = Terminal::open(project.world.home.path());
    types(&terminal, &project, "top");
    terminal.until_all(&["AGENTS 0 under way", "q leaves"]);
    project.world.hub.end(Signal::KILL);
    terminal.until_all(&["the hub is gone, trying again"]);
    project.world.start_again();
    terminal.until(|shown| !shown.contains("the hub is gone"));
    let coder = project.world.draft("coder", "! say Looking around\n! hang");
    terminal.until_all(&[&coder, "Looking around"]);
    project.world.hub.end(Signal::KILL);
    terminal.until_all(&["the hub is gone, trying again", "up -d` starts the hub"]);
    terminal.types(&["q"]);
    terminal.until_all(&["left 0"]);
    project.world.start_again();
}

#[test]
fn line_by_line_a_run_is_followed_from_one_hub_to_the_next() {
    let mut project = project("");
    let (spec, template) = (project.aside("SPEC.md"), project.aside("template.md"));
    let directory = project.path.to_string_lossy().into_owned();
    let mut follow = project.world.hub.command();
    follow.args(["run", &spec, "--headless", "--iterations", "2"]);
    follow.args(["--template", &template, "--dir", &directory]);
    let follow = follow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let follow = follow.expect("it starts");
    until_said(&project.world, "iteration 1 begins");
    project.world.crash_and_start_again();
    until_said(&project.world, "iteration 2 begins");
    project.world.hub.end(Signal::TERM);
    project.world.start_again();
    let output = follow.wait_with_output().expect("it ends");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    // On a quiet machine a hub is replaced so quickly that nobody misses it, not even once.
    let n_gone = said.matches("the hub is gone; `").count();
    assert!(n_gone <= 2, "{said}");
    assert_eq!(said.matches("the hub is back").count(), n_gone, "{said}");
    for what in
        ["iteration 1 begins", "iteration 1 ended", "iteration 2 begins", "iteration 2 ended"]
    {
        assert_eq!(said.matches(what).count(), 1, "{what}: {said}");
    }
}

/// What an agent has used is shown before anything else of its run changes.
#[test]
fn money_is_shown_while_an_iteration_is_under_way() {
    let hook = "[[hooks.post_iteration]]\ncommand = [\"sleep\", \"60\"]\ntimeout_s = 60\n";
    let project = project(hook);
    let template = TEMPLATE.replace("! say done", "! usage 1000 200 0.75\n! say done");
    project.write_aside("template.md", &template);
    if !has_tmux() {
        return;
    }
    let terminal = Terminal::open(project.world.home.path());
    types(&terminal, &project, &run(&project));
    terminal.until_all(&["iteration 1 · finishing", "$0.75"]);
    terminal.types(&["q"]);
    terminal.until_all(&["left 0"]);
    types(&terminal, &project, "top --once");
    let shown = terminal.until_all(&["left 0", "RUNS 1"]);
    let line = shown.lines().find(|line| line.starts_with("SPEC")).unwrap_or_default();
    assert!(line.contains("$0.75"), "{shown}");
}

#[test]
fn a_view_is_suspended_and_gone_on_with() {
    if !has_tmux() {
        return;
    }
    let project = project("");
    let terminal = Terminal::open(project.world.home.path());
    types(&terminal, &project, &run(&project));
    terminal.until_all(&["bit 1 of 1"]);
    terminal.types(&["m"]);
    terminal.types(&["-l", "half a "]);
    terminal.until_all(&["for the next iteration: half a"]);
    terminal.types(&["C-z"]);
    // A shell echoes what is typed only if the terminal is as it was.
    terminal.until(|shown| !shown.contains("for the next iteration"));
    terminal.types(&["echo as it $((1 + 1)) was; fg", "Enter"]);
    terminal.until_all(&["for the next iteration: half a", "Enter:send"]);
    terminal.types(&["-l", "word"]);
    terminal.types(&["Enter"]);
    terminal.until_all(&["> half a word"]);
    terminal.types(&["q"]);
    terminal.until_all(&["echo as it $((1 + 1)) was; fg", "as it 2 was"]);
}

#[test]
fn where_the_cursor_cannot_move_lines_are_printed() {
    if !has_tmux() {
        return;
    }
    let project = project("");
    let terminal = Terminal::open(project.world.home.path());
    terminal.types(&["export TERM=dumb", "Enter"]);
    types(&terminal, &project, &format!("{} --iterations 1", run(&project)));
    terminal.until_all(&["iteration 1 ended", "left 3"]);
    types(&terminal, &project, "top");
    terminal.until_all(&["RUNS 1", "left 0"]);
}
