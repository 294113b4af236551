//! Several workers at once, each in a worktree of its own, played by scripted agents in real git repositories.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::appearing::until_exists;
use crate::unattended::until_said;
use crate::work::{Project, said};

/// What each iteration does: what the script outside of the project makes of its item.
const TEMPLATE: &str = r#"
! call task-next {"claim":true}
! write .item $last.content
! run sh $HOME/work.sh {{iteration}}
! call task-update {"id":"$call1.id","status":"completed"}
! call iteration-summary {"summary":"did $call1.id"}
! call session-complete
"#;

/// What agents do with their item: of most they make a file. Two change the same line at the same time, one writes what its check does not
/// like, one changes what the person is changing, and what is left over is brought in.
const WORK: &str = r#"
item=$(cat .item)
case "$item" in
  "line "*)
    : > "$0.$item"
    until test -e "$0.line A" && test -e "$0.line B"; do sleep 0.05; done
    echo "$item" > shared.txt ;;
  bad) echo bad > bad.txt; echo good > good.txt ;;
  readme) echo "changed by an agent" > README; echo x > beside-the-readme.txt ;;
  "file four") echo "$item" > "$item.txt"; git add -A; git -c user.name=a -c user.email=a@b commit -q -m "by itself" ;;
  "Bring in"*)
    # It only says that it has.
    if test -e "$0.pretend"; then rm "$0.pretend"; exit; fi
    branch=$(echo "$item" | grep -o 'teamster/run-[^ ]*' | head -n 1)
    git -c user.name=a -c user.email=a@b merge -q "$branch"
    grep -q '<<<' shared.txt && echo "both lines" > shared.txt
    rm -f bad.txt
    echo "$item" > "brought-$1.txt" ;;
  *) echo "$item" > "$item.txt" ;;
esac
"#;

/// It leaves something behind, as builds do.
const CHECK: &str = r#"
echo $$ > left-by-the-check.txt
test ! -e bad.txt || { echo "bad.txt is \"bad\""; echo 'and $(so on)' >&2; exit 3; }
"#;

pub(crate) fn project(items: &[&str]) -> Project {
    let project = Project::start("");
    project.write(".gitignore", ".item\n");
    project.write("shared.txt", "the line\n");
    project.write("person.txt", "as it was\n");
    project.git(&["add", "-A"]);
    project.git(&["commit", "-q", "-m", "second"]);
    let items: Vec<Value> = items.iter().map(|item| json!({"content": item})).collect();
    let plan = json!({"tasks": items});
    project.write_aside("SPEC.md", &format!("Much to do.\n! call task-add {plan}\n"));
    let home = project.world.home.path().to_string_lossy();
    project.write_aside("template.md", &TEMPLATE.replace("$HOME", &home));
    project.write_aside("work.sh", WORK);
    project.write_aside("check.sh", CHECK);
    project
}

/// Returns how a run stands, which is the last line of what it printed.
pub(crate) fn last_view(output: &Output) -> Value {
    let printed = String::from_utf8_lossy(&output.stdout);
    let last = printed.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| panic!("no view: {}", said(output)))
}

/// Each iteration has a number of its own, and there is none without.
pub(crate) fn assert_numbered(view: &Value) {
    let ended = view["ended"].as_array().expect("it is a list");
    let numbers: Vec<u64> = ended.iter().rev().filter_map(|one| one["number"].as_u64()).collect();
    let expected: Vec<u64> = (0..ended.len() as u64).collect();
    assert_eq!(numbers, expected, "{view:#}");
    assert_eq!(view["open"], json!([]));
}

/// Returns how often each iteration's mark is in the history.
pub(crate) fn marks(project: &Project) -> BTreeMap<String, usize> {
    let format = "--format=%(trailers:key=Teamster-Iteration,valueonly)";
    let mut marks = BTreeMap::new();
    for mark in project.git(&["log", "--all", format]).lines().filter(|line| !line.is_empty()) {
        *marks.entry(mark.to_owned()).or_default() += 1;
    }
    marks
}

/// Returns the items that say something.
pub(crate) fn items<'a>(view: &'a Value, what: &str) -> Vec<&'a Value> {
    let items = view["item_list"].as_array().expect("it is a list").iter();
    items.filter(|item| item["content"].as_str().is_some_and(|text| text.contains(what))).collect()
}

#[test]
fn three_workers_on_twelve_items_lose_nothing() {
    let contents = [
        "line A",
        "line B",
        "file one",
        "bad",
        "file two",
        "readme",
        "file three",
        "file four",
        "file five",
        "file six",
        "file seven",
        "file eight",
    ];
    let project = project(&contents);
    let check = format!("sh {}", project.aside("check.sh"));
    // What the person is doing meanwhile.
    project.write("README", "my own words\n");
    project.write("mine.txt", "mine\n");
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&["--workers", "3", "--check", &check, "--json"]));
        until_said(&project.world, "iteration 4 begins");
        project.write("person.txt", "committed meanwhile\n");
        // In one step: two of git that write the index at once may lose what only one has put in.
        project.git_patiently(&["commit", "-q", "-m", "by the person", "--", "person.txt"]);
        run.join().expect("it ends")
    });
    // The person has something to bring in.
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    let view = last_view(&output);
    assert_numbered(&view);

    // Each item was taken once, by one.
    let log = project.world.hub.log();
    let claims: Vec<&str> =
        log.iter().filter_map(|(_, what)| what.strip_suffix(" claimed")).collect();
    let taken: BTreeSet<&str> = claims.iter().copied().collect();
    assert_eq!(claims.len(), taken.len(), "{claims:?}");
    assert!(claims.len() >= 14, "{claims:?}");

    // All work is in the project, but for what the person is in the way of.
    for name in ["one", "two", "three", "four", "five", "six", "seven", "eight"] {
        let file = format!("HEAD:file {name}.txt");
        assert_eq!(project.git(&["show", &file]), format!("file {name}"));
    }
    assert_eq!(project.git(&["show", "HEAD:shared.txt"]), "both lines");
    assert_eq!(project.git(&["show", "HEAD:good.txt"]), "good");
    assert_eq!(project.git(&["show", "HEAD:person.txt"]), "committed meanwhile");
    assert_eq!(project.git(&["ls-tree", "--name-only", "HEAD", "bad.txt"]), "");
    assert!(marks(&project).values().all(|n| *n == 1), "{:?}", marks(&project));

    let conflict = items(&view, "conflicts with what others did meanwhile in shared.txt");
    assert_eq!((conflict.len(), &conflict[0]["status"]), (1, &json!("completed")), "{view:#}");
    let failed = items(&view, "check.sh` fails (exit code 3)");
    assert_eq!((failed.len(), &failed[0]["status"]), (1, &json!("completed")), "{view:#}");
    let text = failed[0]["content"].as_str().expect("it is text");
    assert!(text.contains("bad.txt is \"bad\"\nand $(so on)"), "{text}");

    // What the person had is theirs, and only they can let in what it is in the way of.
    assert_eq!(project.git(&["status", "--porcelain"]), " M README\n?? mine.txt");
    assert_eq!(std::fs::read_to_string(project.path.join("README")).expect("ok"), "my own words\n");
    let waits = items(&view, "For the person: ");
    assert_eq!((waits.len(), &waits[0]["status"]), (1, &json!("blocked")), "{view:#}");
    let text = waits[0]["content"].as_str().expect("it is text");
    let (_, branch) = text.split_once("git merge ").expect("it says what to do");
    let branch = branch.trim_end_matches("`.");
    assert_eq!(project.git(&["show", &format!("{branch}:README")]), "changed by an agent");

    // Nothing else is left of them.
    assert_eq!(project.git(&["worktree", "list"]).lines().count(), 1);
    let branches = project.git(&["branch", "--format=%(refname:short)"]);
    assert_eq!(branches.lines().collect::<Vec<_>>(), ["main", branch], "{branches}");
}

/// What waits for another item is begun when that one's work is there, not when its agent has said that it is done.
#[test]
fn an_item_begins_with_the_work_it_waited_for() {
    let project = project(&["file one", "two", "file three", "file four", "file five"]);
    let spec = std::fs::read_to_string(project.aside("SPEC.md")).expect("it is there");
    let depends = "! call task-update {\"id\":\"TAS-2\",\"depends_on\":\"TAS-1\"}\n";
    project.write_aside("SPEC.md", &format!("{spec}{depends}"));
    project.write_aside(
        "work.sh",
        r#"item=$(cat .item)
        case "$item" in two) cp "file one.txt" two.txt ;; *) echo "$item" > "$item.txt" ;; esac"#,
    );
    project.write_aside("check.sh", "sleep 0.5");
    let check = format!("sh {}", project.aside("check.sh"));
    let output = project.run(&["--workers", "3", "--check", &check]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(project.git(&["show", "HEAD:two.txt"]), "file one");
    assert_eq!(project.git(&["status", "--porcelain"]), "");
}

/// A hub that ends in an orderly way while it checks has not found anything wrong.
#[test]
fn work_is_brought_in_only_when_it_is_merged() {
    let project = project(&["line A", "line B"]);
    project.write_aside("work.sh.pretend", "");
    let output = project.run(&["--workers", "2", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let view = last_view(&output);
    let brought = items(&view, "Bring in");
    assert_eq!(brought.len(), 1, "{view:#}");
    assert_eq!(brought[0]["status"], "completed");
    let log = project.world.hub.ok(&["log"]);
    assert_eq!(log.matches("TAS-3 is remaining again").count(), 1, "{log}");
    let notes = view["notes"].to_string();
    assert!(notes.contains("TAS-3 came back once") && notes.contains("git merge"), "{notes}");
    assert_eq!(project.git(&["show", "HEAD:shared.txt"]), "both lines");
    assert_eq!(project.git(&["for-each-ref", "refs/heads/teamster", "refs/teamster"]), "");
}

#[test]
fn work_that_is_not_merged_is_forgotten_only_by_force() {
    let project = project(&["line A", "line B"]);
    let output = project.run(&["--workers", "2", "--iterations", "2", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let left = project.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/teamster"]);
    assert!(left.starts_with("teamster/run-SPEC/iteration-"), "{left}");
    let refused = project.world.hub.fails(&["run", "forget", "SPEC"]);
    assert!(refused.contains(&left) && refused.contains("--force"), "{refused}");
    assert_eq!(project.view("SPEC")["phase"], "iterations-used");
    let forgot = project.world.hub.ok(&["run", "forget", "SPEC", "--force"]);
    assert!(forgot.contains(&format!("removed branches: {left}")), "{forgot}");
    assert_eq!(project.git(&["for-each-ref", "refs/heads/teamster", "refs/teamster"]), "");
    assert_eq!(project.git(&["worktree", "list"]).lines().count(), 1);
}

#[test]
fn a_check_that_is_cut_off_is_made_again() {
    let mut project = project(&["file one", "file two"]);
    project.write_aside("check.sh", "test -e \"$0.go\" || { : > \"$0.waits\"; sleep 60; }");
    let check = format!("sh {}", project.aside("check.sh"));
    let waits = project.world.home.path().join("check.sh.waits");
    let (spec, template) = (project.aside("SPEC.md"), project.aside("template.md"));
    let mut run = project.world.hub.command();
    run.args(["run", &spec, "--headless", "--template", &template, "--workers", "2", "--dir"]);
    run.arg(&project.path).args(["--check", &check]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    until_exists(&waits, || project.world.hub.ok(&["log"]));
    project.world.hub.end(rustix::process::Signal::TERM);
    project.write_aside("check.sh.go", "");
    project.world.start_again();
    // Whoever follows it goes on with the next hub.
    let output = run.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output).matches("no longer worked on").count(), 1, "{}", said(&output));
    let log = project.world.hub.ok(&["log"]);
    assert!(!log.contains("Bring in the work"), "{log}");
    assert_eq!(project.git(&["show", "HEAD:file one.txt"]), "file one");
    assert_eq!(project.git(&["show", "HEAD:file two.txt"]), "file two");
}

#[test]
fn several_workers_need_a_commit_to_begin_with() {
    let project = Project::start("");
    let nowhere = project.world.home.path().join("nowhere");
    std::fs::create_dir(&nowhere).expect("it can be made");
    let nowhere = nowhere.to_string_lossy();
    let output = project.run(&["--workers", "2", "--dir", &nowhere]);
    assert!(said(&output).contains("several workers need a git repository with a commit"));
    let output = project.run(&["--workers", "2", "--no-commit"]);
    assert!(said(&output).contains("several workers need a git repository with a commit"));
}

/// Whoever removes where it worked has not done what it says.
#[test]
fn a_worktree_that_an_agent_removes_is_missed() {
    let project = project(&["file one", "gone"]);
    let work = WORK.replace(
        "  bad)",
        "  gone) git add -A; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m own; rm -rf \"$PWD\" ;;\n  \"Look for\"*) echo again > gone.txt ;;\n  bad)",
    );
    project.write_aside("work.sh", &work);
    let output = project.run(&["--workers", "2", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let view = last_view(&output);
    let missed = items(&view, "Look for the work of iteration");
    assert_eq!((missed.len(), &missed[0]["status"]), (1, &json!("completed")), "{view:#}");
    assert_eq!(project.git(&["show", "HEAD:gone.txt"]), "again");
    assert_eq!(project.git(&["show", "HEAD:file one.txt"]), "file one");
}
