//! Users who leave their branch while a run is under way: no commit of the run goes where nobody would find it.

use serde_json::json;

use crate::run_workers::{items, marks, project};
use crate::unattended::until_said;
use crate::work::{Project, said};

const WAITS: &str = "warning: the run waits for a branch: ";

/// Agents that wait for a file before they write theirs, and merge if that is their item.
const WORK: &str = r#"
item=$(cat .item)
while ! test -e "$0.go"; do sleep 0.05; done
case "$item" in
  "Bring in"*)
    branch=$(echo "$item" | grep -o 'teamster/run-[^ ]*' | head -n 1)
    git -c user.name=a -c user.email=a@b merge -q "$branch" ;;
  *) echo "$item" > "$item.txt" ;;
esac
"#;

fn prepared() -> Project {
    let project = project(&["one", "two", "three", "four"]);
    project.write_aside("work.sh", WORK);
    project
}

/// Returns what a branch has of the four files.
fn files(project: &Project, at: &str) -> Vec<String> {
    let listed = project.git(&["ls-tree", "--name-only", at]);
    let is_work = |name: &&str| ["one.txt", "two.txt", "three.txt", "four.txt"].contains(name);
    listed.lines().filter(is_work).map(ToOwned::to_owned).collect()
}

#[test]
fn several_workers_wait_while_head_is_on_no_branch() {
    let project = prepared();
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&["--workers", "3", "--json"]));
        until_said(&project.world, "TAS-1 claimed");
        project.git_patiently(&["bisect", "start", "HEAD", "HEAD~1"]);
        project.git_patiently(&["checkout", "-q", "--detach", "main~1"]);
        let head = project.git(&["rev-parse", "HEAD"]);
        project.write_aside("work.sh.go", "");
        until_said(&project.world, WAITS);
        assert_eq!(project.git(&["rev-parse", "HEAD"]), head, "nothing is committed there");
        assert_eq!(files(&project, "main"), [""; 0]);
        project.git_patiently(&["bisect", "reset"]);
        run.join().expect("it ends")
    });
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("(a bisect is under way)"), "{}", said(&output));
    assert_eq!(files(&project, "main").len(), 4, "{}", said(&output));
    assert!(marks(&project).values().all(|n| *n == 1), "{:?}", marks(&project));
    assert_eq!(project.git(&["branch", "--format=%(refname:short)"]), "main");
    assert_eq!(project.git(&["status", "--porcelain"]), "");
}

/// The run is stopped before its user comes back: each work is on one branch, with one item.
#[test]
fn work_that_meets_no_branch_is_kept_once() {
    for leave in [&["checkout", "-q", "--orphan", "new"][..], &["checkout", "-q", "--detach"]] {
        let project = prepared();
        let output = std::thread::scope(|scope| {
            let run = scope.spawn(|| project.run(&["--workers", "3"]));
            until_said(&project.world, "TAS-1 claimed");
            until_said(&project.world, "TAS-2 claimed");
            until_said(&project.world, "TAS-3 claimed");
            project.git_patiently(leave);
            project.write_aside("work.sh.go", "");
            until_said(&project.world, WAITS);
            project.world.hub.ok(&["steer", "SPEC", "stop"]);
            run.join().expect("it ends")
        });
        let told = || format!("{leave:?}: {}\n{}", said(&output), project.world.hub.ok(&["log"]));
        assert_eq!(output.status.code(), Some(5), "{}", told());
        let branches =
            project.git(&["branch", "--format=%(refname:short)", "--list", "teamster/*"]);
        let branches: Vec<&str> = branches.lines().collect();
        assert_eq!(branches.len(), 3, "{}", told());
        let listed = project.world.hub.ok(&["item", "SPEC"]);
        assert_eq!(listed.matches("Bring in the work").count(), 3, "{listed}");
        assert_eq!(files(&project, "main"), [""; 0], "{}", told());
        assert_eq!(project.git(&["worktree", "list"]).lines().count(), 1, "{}", told());

        let refused = project.run(&["--resume"]);
        assert!(said(&refused).contains("several workers need a"), "{}", said(&refused));
        project.git(&["checkout", "-q", "-f", "main"]);
        let output = project.run(&["--resume", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert_eq!(files(&project, "main").len(), 4, "{}", said(&output));
        let view = crate::run_workers::last_view(&output);
        let kept = items(&view, "Bring in the work");
        assert!(kept.iter().all(|item| item["status"] == json!("completed")), "{view:#}");
    }
}

/// With one worker, an iteration does not begin in the middle of what the user does.
#[test]
fn one_worker_waits_while_head_is_on_no_branch() {
    let project = prepared();
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| project.run(&[]));
        until_said(&project.world, "TAS-1 claimed");
        project.world.hub.ok(&["steer", "SPEC", "pause"]);
        project.write_aside("work.sh.go", "");
        until_said(&project.world, "iteration 1 ended, commit");
        project.git_patiently(&["checkout", "-q", "--detach"]);
        project.world.hub.ok(&["steer", "SPEC", "go-on"]);
        until_said(&project.world, WAITS);
        let head = project.git(&["rev-parse", "HEAD"]);
        assert_eq!(project.git(&["rev-parse", "main"]), head, "nothing is committed there");
        project.git_patiently(&["switch", "-q", "main"]);
        run.join().expect("it ends")
    });
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(files(&project, "main").len(), 4, "{}", said(&output));
}
