//! Several workers in the view of a run.

use crate::run_view::{run, types};
use crate::terminal::{Terminal, has_tmux};
use crate::work::Project;

/// Each takes an item, says whose it is, and does not end before it is let.
const TEMPLATE: &str = r#"! call task-next {"claim":true}
! say At work on $last.content.
! run while ! test -e ../../../../go; do sleep 0.1; done
! write files/{{iteration}}.txt $call1.content
! call task-update {"id":"$call1.id","status":"completed"}
! call iteration-summary {"summary":"did $call1.content"}
! call session-complete
! say done
"#;

/// Three can be begun at once, one of them is after another.
const SPEC: &str = r#"! call task-add {"tasks":[{"content":"apples"},{"content":"pears"},{"content":"plums"},{"content":"cherries"}]}
! call task-update {"id":"TAS-3","depends_on":"TAS-1"}
! call task-update {"id":"TAS-4","depends_on":"TAS-3"}
! call iteration-summary {"summary":"planned"}
! say planned
"#;

#[test]
fn each_workers_item_and_stream_can_be_seen() {
    if !has_tmux() {
        return;
    }
    let project = Project::start("");
    let go = project.aside("go");
    project.write_aside("template.md", &TEMPLATE.replace("../../../../go", &go));
    project.write_aside("SPEC.md", SPEC);
    let terminal = Terminal::open(project.world.home.path());
    types(&terminal, &project, &format!("{} --workers 3", run(&project)));
    // Two have an item, and one has none.
    let waits = "waits: every open item is";
    let shown = terminal.until_all(&["works · TAS-1 apples", "works · TAS-2 pears", waits, "▸1 "]);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    // The streams do not mix.
    let fruits = ["apples", "pears"];
    let mut seen = Vec::new();
    for key in ["1", "2", "3"] {
        terminal.types(&[key]);
        let title = format!("worker {key} of 3");
        let shown = terminal.until(|shown| {
            let title = shown.lines().find(|line| line.contains(&title));
            title.is_some_and(|title| title.contains("waits: ") || shown.contains("At work on"))
        });
        let streams = fruits.map(|fruit| shown.contains(&format!("At work on {fruit}.")));
        seen.push(streams);
    }
    seen.sort_unstable();
    assert!(seen.contains(&[true, false]) && seen.contains(&[false, true]), "{seen:?}");
    assert!(!seen.contains(&[true, true]), "{seen:?}");
    terminal.types(&["w"]);
    terminal.until_all(&["worker 1 of 3", "▸1 "]);
    terminal.resize(200, 50);
    let shown = terminal.until_all(&["w 1-9:worker", "or after another"]);
    assert!(
        shown.contains("works · TAS-1 apples") && shown.contains("works · TAS-2 pears"),
        "{shown}"
    );
    assert!(shown.lines().any(|line| line.chars().count() > 100), "{shown}");
    let status = project.world.hub.ok(&["status"]);
    let line = status.lines().find(|line| line.starts_with("run      SPEC: ")).unwrap_or_default();
    assert!(line.contains("working, iteration ") && line.contains("watch SPEC`"), "{status}");
    std::fs::write(&go, "").expect("it can be written");
    terminal.until_all(&["SPEC · complete"]);
    terminal.types(&["q"]);
    terminal.until_all(&["left 0"]);
}

/// What holds a worker's agent up is for people to know.
#[test]
fn an_agent_that_cannot_go_on_says_why() {
    if !has_tmux() {
        return;
    }
    let project = Project::start("permissions.otherwise = \"ask\"\npool.running = 1\n");
    let hub = &project.world.hub;
    let coder = project.world.draft("coder", "! hang");
    project.write_aside("SPEC.md", &format!("! ask to run make\n{SPEC}"));
    let terminal = Terminal::open(project.world.home.path());
    types(&terminal, &project, &run(&project));
    terminal.until_all(&["iteration 0 · waits: the pool is full"]);
    hub.ok(&["kill", &coder]);
    terminal.until_all(&["iteration 0 · waits for your answer to Q-1"]);
    hub.ok(&["answer", "Q-1", "allow"]);
    terminal.until_all(&["planned"]);
    terminal.types(&["S"]);
    terminal.types(&["y"]);
    terminal.until_all(&["SPEC · over"]);
}
