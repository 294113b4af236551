//! Runs on a whole terminal: watched, steered by keys, left and watched again.

use crate::terminal::{Terminal, has_tmux};
use crate::unattended::until_said;
use crate::work::{Project, TEMPLATE};

/// Types a command of the program, and has its exit code shown when it has ended.
pub(crate) fn types(terminal: &Terminal, project: &Project, arguments: &str) {
    let data = project.world.home.path().join("data");
    let program = crate::hub::program();
    let line =
        format!("clear; {} --data {} {arguments}; echo left $?", program.display(), data.display());
    terminal.types(&[&line, "Enter"]);
}

/// Iterations take a while, so that the person can keep up with them.
fn project() -> Project {
    let project = Project::start("");
    let says =
        "{{extra}}\n! think first I look around\n! say Hello from {{iteration}}\n! sleep 700\n";
    let template = TEMPLATE.replace("! call task-next", &format!("{says}! call task-next"));
    project.write_aside("template.md", &template);
    project
}

pub(crate) fn run(project: &Project) -> String {
    let (spec, template) = (project.aside("SPEC.md"), project.aside("template.md"));
    format!("run {spec} --template {template} --dir {}", project.path.display())
}

/// What is left of the rule is the stream, what is right of it are items, iterations and notes.
fn fits(shown: &str, columns: usize) {
    assert!(shown.lines().all(|line| line.chars().count() <= columns), "{shown}");
    assert!(shown.lines().nth(1).is_some_and(|line| line.contains('│')), "{shown}");
}

#[test]
fn a_run_is_watched_and_steered_on_a_terminal() {
    if !has_tmux() {
        return;
    }
    let project = project();
    let terminal = Terminal::open(project.world.home.path());
    types(&terminal, &project, &run(&project));
    let shown = terminal.until_all(&["SPEC · working", "Hello from 1", "Items: 5 open", "q:leave"]);
    fits(&shown, 80);
    for wanted in ["tip: remember the milk", "0 plan - planned five", "iteration 1 · worker-2"] {
        assert!(shown.contains(wanted), "{wanted}\n{shown}");
    }
    // Paused, which holds when what is under way has ended; meanwhile something is written for the next.
    terminal.types(&["p"]);
    terminal.until_all(&["SPEC · pause", "p:go on"]);
    terminal.types(&["m"]);
    terminal.until_all(&["for the next iteration:", "Enter:send"]);
    terminal.types(&["-l", "mnd the gap"]);
    terminal.types(&["Home", "Right", "i", "Enter"]);
    terminal.until_all(&["Messages queued: 1", "> mind the gap"]);
    let shown = terminal.until_all(&["SPEC · paused", "did four"]);
    let commit = project.git(&["log", "-1", "--format=%h", "--abbrev=7"]);
    assert!(shown.contains(&format!("1 TAS-4 {commit} did four")), "{shown}");
    // A large terminal has room for more, and the other way round.
    terminal.resize(200, 50);
    let shown = terminal.until(|shown| shown.lines().any(|line| line.contains("Tab:pane")));
    fits(&shown, 200);
    assert!(shown.contains("✓ P1 TAS-4 four") && shown.contains("did four"), "{shown}");
    terminal.resize(80, 24);
    terminal.until(|shown| !shown.contains("Tab:pane") && shown.contains("q:leave"));
    // Items and notes are changed.
    terminal.types(&["a"]);
    terminal.until_all(&["new item:"]);
    terminal.types(&["-l", "six"]);
    terminal.types(&["Enter"]);
    terminal.until_all(&["TAS-6 six", "the item is added"]);
    terminal.types(&["n"]);
    terminal.types(&["-l", "a 日本 note"]);
    terminal.types(&["Enter"]);
    terminal.until_all(&["tip: a 日本 note"]);
    terminal.types(&["Tab", "End"]);
    terminal.types(&["c"]);
    terminal.until_all(&["TAS-4 is done already"]);
    terminal.types(&["Up", "c"]);
    terminal.until_all(&["TAS-5 is cancelled"]);
    // It is left, and watched again.
    terminal.types(&["q"]);
    let shown = terminal.until_all(&["left 0"]);
    // The line may be longer than the terminal is wide, and be broken at a space.
    let shown = shown.replace(char::is_whitespace, "");
    assert!(shown.contains("SPECgoeson") && shown.contains("watchSPEC`shows"), "{shown}");
    types(&terminal, &project, "watch SPEC");
    terminal.until_all(&["SPEC · paused", "> mind the gap"]);
    terminal.types(&["p"]);
    terminal.until_all(&["SPEC · working", "Hello from 2"]);
    terminal.until(|shown| !shown.contains("mind the gap"));
    let told = project.world.hub.ok(&["agent", "show", "worker-3", "--json"]);
    assert!(told.contains("> mind the gap"), "{told}");
    terminal.types(&["s"]);
    terminal.until_all(&["SPEC · over: it was stopped", "r:go on"]);
    // The view stays; it goes on from there, on the same terms, and is stopped at once.
    terminal.types(&["r"]);
    terminal.until_all(&["SPEC · working", "Hello from 3"]);
    terminal.types(&["S"]);
    terminal.until_all(&["end its agents now?"]);
    terminal.types(&["y"]);
    terminal.until_all(&["SPEC · over: it was stopped"]);
    terminal.types(&["q"]);
    terminal.until_all(&["left 5", "goes on with it"]);
}

#[test]
fn ctrl_c_stops_a_run_after_a_yes() {
    if !has_tmux() {
        return;
    }
    let project = project();
    let terminal = Terminal::open(project.world.home.path());
    types(&terminal, &project, &run(&project));
    terminal.until_all(&["Hello from 1"]);
    terminal.types(&["C-c"]);
    terminal.until_all(&["end its agents now, and leave?"]);
    terminal.types(&["n"]);
    terminal.until(|shown| shown.contains("q:leave") && !shown.contains("and leave?"));
    terminal.types(&["C-c"]);
    terminal.until_all(&["end its agents now, and leave?"]);
    terminal.types(&["y"]);
    terminal.until_all(&["left 130", "stopped; `"]);
    until_said(&project.world, "it was stopped");
}

#[test]
fn the_whole_workspace_is_on_one_screen() {
    if !has_tmux() {
        return;
    }
    let project = Project::start("permissions.otherwise = \"ask\"\n");
    let hub = &project.world.hub;
    let terminal = Terminal::open(project.world.home.path());
    types(&terminal, &project, "top");
    terminal.until_all(&["AGENTS 0 under way", "RUNS 0", "0 agents awake", "q leaves"]);
    let coder =
        project.world.draft("coder", "! say Looking around\n! ask to run cargo test\n! hang");
    let shown =
        terminal.until_all(&[&coder, "running", "scripted", "QUESTIONS 1", "? to run cargo test"]);
    assert!(
        shown.contains("answer Q-1 allow|deny") || shown.contains("wants to: to run cargo test"),
        "{shown}"
    );
    hub.ok(&["answer", "Q-1", "allow"]);
    terminal.until(|shown| !shown.contains("QUESTIONS") && shown.contains("permission: allow"));
    hub.ok(&["kill", &coder]);
    terminal.until_all(&["AGENTS 0 under way"]);
    let output = project.run(&["--iterations", "1"]);
    assert_eq!(output.status.code(), Some(3));
    terminal.until_all(&["RUNS 1", "iterations-used"]);
    terminal.resize(200, 50);
    terminal.until_all(&["its iterations are used up"]);
    terminal.types(&["q"]);
    terminal.until_all(&["left 0"]);
    let once = hub.ok(&["top"]);
    assert!(once.contains("RUNS 1") && once.contains("its iterations are used up"), "{once}");
    let json: serde_json::Value = serde_json::from_str(&hub.ok(&["top", "--json"])).expect("JSON");
    assert_eq!(json["runs"][0]["name"], "SPEC");
}

#[test]
fn without_a_terminal_a_run_is_watched_line_by_line() {
    let project = project();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&["--iterations", "1"]));
        until_said(&project.world, "iteration 1 begins");
        let watched = project.world.hub.run(&["watch", "SPEC"]);
        let printed = String::from_utf8_lossy(&watched.stdout);
        assert_eq!(watched.status.code(), Some(3), "{watched:?}");
        assert!(printed.contains("iteration 1 ended"), "{printed}");
        run.join().expect("it ends");
    });
    let over = project.world.hub.run(&["watch", "SPEC", "--json"]);
    let view: serde_json::Value = serde_json::from_slice(&over.stdout).expect("it is JSON");
    assert_eq!((over.status.code(), &view["phase"]), (Some(3), &"iterations-used".into()));
    let none = project.world.hub.fails(&["watch", "nothing"]);
    assert!(none.contains("there is no run nothing"), "{none}");
}
