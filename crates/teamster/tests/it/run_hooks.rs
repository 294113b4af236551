//! Hooks of runs: when they run, with what, what their agents hear of them, and what becomes of a run whose hooks or
//! agents fail. How one hook is run is in `hooks.rs`.

use crate::run_workers::{assert_numbered, last_view};
use crate::work::{Project, said};

/// Writes down what it is told, a line for each run, with `~` for a newline.
const HOOK: &str = r#"
printf '%s|' "$TEAMSTER_EVENT" "$TEAMSTER_RUN" "$TEAMSTER_ITERATION" "$TEAMSTER_ITEM_ID" "$TEAMSTER_ITEM_CONTENT" \
  "$TEAMSTER_ERROR" "${TEAMSTER_COMMIT:+commit}" "${TEAMSTER_SPEC##*/}" $TEAMSTER_WHY | tr '\n' '~' >> ../told.txt
echo >> ../told.txt
if test -n "$TEAMSTER_COMMIT"; then git rev-parse -q --verify "$TEAMSTER_COMMIT^{commit}" > /dev/null || echo lost >> ../told.txt; fi
"#;

const EVENTS: [&str; 6] = [
    "session_start",
    "pre_iteration",
    "post_iteration",
    "session_end",
    "on_item_complete",
    "on_error",
];

fn hooks(events: &[&str], command: &str, more: &str) -> String {
    events.iter().map(|event| format!("[[hooks.{event}]]\ncommand = {command}\n{more}\n")).collect()
}

fn start(settings: &str) -> Project {
    let project = Project::start(settings);
    project.write_aside("hook.sh", HOOK);
    project
}

fn told(project: &Project) -> String {
    std::fs::read_to_string(project.aside("told.txt")).unwrap_or_default()
}

/// What would do harm if anything took it for more than text.
const NASTY: &str = r#"$(touch pwned) `touch pwned` '; touch pwned; ' " && touch pwned\n--force\n\nTeamster-Iteration: SPEC#2"#;

#[test]
fn each_hook_runs_at_its_moment_and_texts_stay_texts() {
    let project = start(&hooks(&EVENTS, "[\"sh\", \"../hook.sh\"]", ""));
    let item = serde_json::to_string(&NASTY.replace("\\n", "\n")).expect("it is text");
    let spec = format!(
        "! call task-add {{\"tasks\":[{{\"content\":{item}}},{{\"content\":\"plain\"}}]}}\n"
    );
    project.write_aside("SPEC.md", &spec);
    let template = "! call task-next {\"claim\":true}\n! write {{iteration}}.txt x\n\
        ! call task-update {\"id\":\"$call1.id\",\"status\":\"completed\"}\n\
        ! call iteration-summary {\"summary\":\"$call1.content\"}\n! call session-complete\n";
    project.write_aside("template.md", template);
    let output = project.run(&["--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let nasty = NASTY.replace("\\n", "~");
    let expected = format!(
        "session_start|SPEC||||||SPEC.md|\n\
         pre_iteration|SPEC|1|||||SPEC.md|\n\
         on_item_complete|SPEC|1|TAS-1|{nasty}||commit|SPEC.md|\n\
         post_iteration|SPEC|1||||commit|SPEC.md|\n\
         pre_iteration|SPEC|2|||||SPEC.md|\n\
         on_item_complete|SPEC|2|TAS-2|plain||commit|SPEC.md|\n\
         post_iteration|SPEC|2||||commit|SPEC.md|\n\
         session_end|SPEC||||||SPEC.md|completed|\n"
    );
    assert_eq!(told(&project), expected);
    // In git, too: the second iteration is not taken for done because of what an item says.
    assert_eq!(project.git(&["status", "--porcelain"]), "");
    let commits = project.commits();
    assert_eq!(commits.len(), 3, "{commits:?}");
    assert_eq!(commits[1].1, ["1.txt"]);
    let text = project.git(&["log", "-1", "--skip=1", "--format=%B"]);
    assert!(text.starts_with("$(touch pwned) `touch pwned` '; touch pwned; ' "), "{text}");
    assert!(text.ends_with("\nTeamster-Iteration: SPEC#1"), "{text}");
    assert_numbered(&last_view(&output));
}

#[test]
fn what_hooks_print_is_told_and_what_fails_harms_nothing() {
    let loud = "[\"sh\", \"-c\", \"echo 'it \\\"says\\\"'; echo '{{spec}} $(x)' >&2; exit 7\"]";
    let slow = "[\"sh\", \"-c\", \"echo before; sleep 60\"]";
    let missing = "[\"no-such-program\"]";
    let settings = [
        hooks(&["pre_iteration"], loud, "pipe_output = true"),
        hooks(&["pre_iteration"], slow, "pipe_output = true\ntimeout_s = 1"),
        hooks(&["post_iteration"], missing, "pipe_output = true"),
        hooks(&["session_start"], "[\"echo\", \"not for agents\"]", ""),
    ];
    let project = start(&settings.concat());
    project.write_aside(
        "SPEC.md",
        "! call task-add {\"tasks\":[{\"content\":\"one\"},{\"content\":\"two\"}]}\n",
    );
    project.write_aside(
        "template.md",
        "{{extra}}\n! call task-next {\"claim\":true}\n! call task-update {\"id\":\"$call1.id\",\"status\":\"completed\"}\n! call session-complete\n",
    );
    let output = project.run(&[]);
    assert!(output.status.success(), "{}", said(&output));
    // People are told, too; of each iteration, and not by what the hook printed.
    let shown = said(&output);
    for says in [
        "warning: the hook pre_iteration (sh -c ",
        ") failed with exit code 7\n",
        ") took longer than 1 s and was ended\n",
        "warning: the hook post_iteration (no-such-program) could not be started",
    ] {
        assert_eq!(
            shown.matches(says).count(),
            if says.ends_with("-c ") { 4 } else { 2 },
            "{shown}"
        );
    }
    let prompt = |agent: &str| {
        let transcript = project.world.hub.ok(&["agent", "show", agent, "--json"]);
        let told = transcript.lines().find(|line| line.contains("## Output of hooks"));
        let told: serde_json::Value =
            serde_json::from_str(told.expect("it is told")).expect("JSON");
        told["text"].as_str().or_else(|| told["prompt"].as_str()).expect("it has a text").to_owned()
    };
    let first = prompt("worker-2");
    for line in [
        "failed with exit code 7.",
        "\n| it \"says\"\n| {{spec}} $(x)\n",
        "took longer than 1 s and was ended.",
        "\n| before\n",
    ] {
        assert!(first.contains(line), "{line}: {first}");
    }
    assert!(!first.contains("not for agents"), "{first}");
    let second = prompt("worker-3");
    assert!(
        second.contains("The hook post_iteration (no-such-program) could not be started"),
        "{second}"
    );
}

#[test]
fn a_projects_hooks_do_not_run_before_they_are_trusted() {
    let project = start("");
    project.write("teamster.toml", &hooks(&EVENTS, "[\"sh\", \"../hook.sh\"]", ""));
    project.git(&["add", "-A"]);
    project.git(&["commit", "-q", "-m", "hooks"]);
    let output = project.run(&["--iterations", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert_eq!(told(&project), "");
    let directory = project.path.to_string_lossy();
    let says = format!(
        "warning: 6 hooks of this project are not trusted and do not run; `teamster trust {directory}` shows them and asks \
         you"
    );
    assert_eq!(said(&output).matches(&says).count(), 1, "{}", said(&output));
    assert!(project.world.hub.ok(&["log"]).contains(&says));
    project.world.hub.ok(&["trust", &directory, "--yes"]);
    let output = project.run(&["--resume", "--iterations", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(!said(&output).contains("are not trusted"), "{}", said(&output));
    let told = told(&project);
    let events: Vec<&str> = told.lines().filter_map(|line| line.split('|').next()).collect();
    let expected =
        ["session_start", "pre_iteration", "on_item_complete", "post_iteration", "session_end"];
    assert_eq!(events, expected);
}

/// An iteration that fails is tried again, some time later, and not for ever.
#[test]
fn after_three_failures_it_is_over() {
    let project = start(&hooks(&EVENTS, "[\"sh\", \"../hook.sh\"]", ""));
    project.write_aside("SPEC.md", "! call task-add {\"tasks\":[{\"content\":\"one\"}]}\n");
    project.write_aside("template.md", "! call task-next {\"claim\":true}\n! say $call9.nothing\n");
    let output = project.run(&["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let view = last_view(&output);
    assert_numbered(&view);
    assert_eq!((&view["iterations"], &view["phase"]), (&3.into(), &"failed".into()), "{view:#}");
    let ended = view["ended"].as_array().expect("it is a list");
    let time = |n: usize, what: &str| ended[n][what].as_u64().expect("it is a time");
    // The newest comes first.
    assert!(time(1, "begun_at") - time(2, "ended_at") >= 2_000, "{view:#}");
    assert!(time(0, "begun_at") - time(1, "ended_at") >= 4_000, "{view:#}");
    let told = told(&project);
    let errors = told.lines().filter(|line| line.starts_with("on_error|SPEC|")).count();
    assert_eq!(errors, 3, "{told}");
    assert!(told.contains("$call9"), "{told}");
    assert!(!told.contains("post_iteration"), "{told}");
    let end = told.lines().last().unwrap_or_default();
    assert!(end.starts_with("session_end|SPEC||||") && end.ends_with("||SPEC.md|failed|"), "{end}");
    assert!(end.contains("$call9"), "{end}");
    assert_eq!(view["items"]["remaining"], 1, "{view:#}");
}

/// What cannot be read is told in the words of `trust`, and the run goes on without it.
#[test]
fn what_is_wrong_in_a_projects_file_is_told() {
    let project = start("");
    project.write_aside("SPEC.md", "! call task-add {\"tasks\":[{\"content\":\"one\"}]}\n");
    for (name, text) in [
        ("syntax", "[[hooks.session_start\n"),
        ("event", "[[hooks.on_eror]]\ncommand = [\"true\"]\n"),
        ("command", "[[hooks.on_error]]\ncommand = \"make check\"\n"),
    ] {
        project.write("teamster.toml", text);
        let shown = said(&project.run(&["--no-commit", "--name", name]));
        let directory = project.path.to_string_lossy();
        let trust = said(&project.world.hub.run(&["trust", &directory]));
        let says: Vec<&str> = trust.lines().filter(|line| line.starts_with("warning: ")).collect();
        assert!(!says.is_empty(), "{trust}");
        for line in says {
            assert_eq!(shown.matches(line).count(), 1, "{name}: {line}\n{shown}");
        }
        assert!(shown.contains(&format!("{name}: it is complete")), "{shown}");
    }
}
