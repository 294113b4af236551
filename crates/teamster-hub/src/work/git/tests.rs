//! What becomes of all kinds of files, in real repositories.

#![expect(
    clippy::disallowed_methods,
    reason = "a broken fixture should panic, and a person's git is a program like any other"
)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use teamster_core::iteration::Left;

use super::{Anchors, Apart, Gathered, GitError, Locking, Merged, Message, Standing, Tree};
use crate::held::Confined;

impl Tree {
    /// Commits, where nobody asks what is not in the commit.
    async fn commit(&self, base: &str, message: &Message<'_>) -> Result<Option<String>, GitError> {
        self.commit_since(base, message).await.map(|(commit, _)| commit)
    }
}

async fn tree_of(directory: &Path) -> Result<Option<Tree>, GitError> {
    Tree::at(&Confined::here(), directory).await
}

/// A repository with one commit of one file.
struct Repository {
    directory: TempDir,
}

impl Repository {
    fn new() -> Self {
        let repository = Self::without_a_commit();
        repository.write("README", "read me\n");
        repository.git(&["add", "-A"]);
        repository.git(&["commit", "-q", "-m", "first"]);
        repository
    }

    fn without_a_commit() -> Self {
        let repository = Self { directory: tempfile::tempdir().expect("a directory") };
        std::fs::create_dir(repository.path("")).expect("it can be made");
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join("repository").join(name)
    }

    fn git(&self, args: &[&str]) -> String {
        self.git_in("", args)
    }

    fn git_in(&self, directory: &str, args: &[&str]) -> String {
        let output = Command::new("git")
            .current_dir(self.path(directory))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"])
            .args(args)
            .output()
            .expect("git runs");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn write(&self, name: impl AsRef<Path>, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("it can be");
        std::fs::write(path, text).expect("it can be written");
    }

    async fn tree(&self) -> Tree {
        self.tree_at("").await
    }

    async fn tree_at(&self, directory: &str) -> Tree {
        let tree = tree_of(&self.path(directory)).await.expect("git answers");
        tree.expect("it is a repository")
    }

    /// Returns the files of the last commit, with a letter for what happened to each.
    fn committed(&self) -> Vec<String> {
        let shown = self.git(&["show", "--format=", "--name-status", "--no-renames", "-z", "HEAD"]);
        let fields: Vec<&str> = shown.split('\0').filter(|field| !field.is_empty()).collect();
        fields.chunks(2).map(|pair| pair.join(" ")).collect()
    }

    fn n_commits(&self) -> usize {
        self.git(&["rev-list", "--all"]).lines().count()
    }

    fn status(&self) -> String {
        self.git(&["status", "--porcelain"])
    }
}

const MESSAGE: Message<'_> =
    Message { subject: "did it", body: "all of it", mark: "SPEC#1", seal: "1a" };

const ANCHOR: &str = "refs/teamster/run-SPEC/before-0";

async fn base_of(tree: &Tree) -> std::sync::Arc<str> {
    tree.base(ANCHOR).await.expect("it can be looked at")
}

/// Commits what `change` changes in a tree.
async fn commits(tree: &Tree, change: impl FnOnce()) -> Option<String> {
    let base = base_of(tree).await;
    change();
    tree.commit(&base, &MESSAGE).await.expect("it can be committed")
}

#[tokio::test]
async fn all_kinds_of_files_are_committed_as_they_are() {
    let repository = Repository::new();
    for name in ["gone", "renamed from here", "mode", "becomes/a/file", "becomes a directory"] {
        repository.write(name, "as before\n");
    }
    repository.write(".gitignore", "ignored\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    let tree = repository.tree().await;
    let odd = [
        "with space",
        "with\nnewline",
        "with\ttab",
        "with \"quotes\"",
        "'single'",
        "*",
        "[a]",
        ":(top)x",
        ":/",
        "-rf",
        "$(touch x)",
        "ünïcødé",
        "\u{1f600}",
        "trailing ",
        " leading",
        "a\\b",
        "#x",
        "!x",
    ];
    let no_text = OsStr::from_bytes(b"\xff\xfe not UTF-8");
    let commit = commits(&tree, || {
        for name in odd {
            let name = if name == ":/" { ":" } else { name };
            repository.write(name, "odd\n");
        }
        repository.write(no_text, "odd\n");
        repository.write("ignored", "not to be committed\n");
        repository.write("deep/er/still", "deep\n");
        std::fs::remove_file(repository.path("gone")).expect("it is there");
        std::fs::rename(repository.path("renamed from here"), repository.path("to there"))
            .expect("ok");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(repository.path("mode"), mode).expect("it is there");
        symlink("nowhere", repository.path("link")).expect("it can be made");
        std::fs::remove_dir_all(repository.path("becomes")).expect("it is there");
        repository.write("becomes", "a file\n");
        std::fs::remove_file(repository.path("becomes a directory")).expect("it is there");
        repository.write("becomes a directory/x", "x\n");
    });
    let commit = commit.await.expect("something was changed");
    assert_eq!(repository.git(&["rev-parse", "HEAD"]), commit);
    assert_eq!(repository.status(), "");
    let mut committed = repository.committed();
    committed.retain(|line| !line.contains('\u{fffd}'));
    assert_eq!(committed.len(), odd.len() + 10, "{committed:#?}");
    for line in [
        "D gone",
        "D renamed from here",
        "A to there",
        "M mode",
        "A link",
        "A becomes",
        "D becomes/a/file",
    ] {
        assert!(committed.iter().any(|one| one == line), "{line}: {committed:#?}");
    }
    assert!(repository.git(&["ls-files", "-s", "link"]).starts_with("120000"));
    assert!(repository.git(&["ls-files", "-s", "mode"]).starts_with("100755"));
    assert!(repository.git(&["ls-files", "-z"]).contains('\u{fffd}'));
    let text = repository.git(&["log", "-1", "--format=%B"]);
    assert_eq!(text, "did it\n\nall of it\n\nTeamster-Seal: 1a\nTeamster-Iteration: SPEC#1");
    let base = base_of(&tree).await;
    assert_eq!(tree.commit(&base, &MESSAGE).await.expect("it can be"), None, "nothing is left");
}

/// A file's name can look like a pattern that means what the person has put ready to commit.
#[tokio::test]
async fn what_a_person_has_put_ready_stays_so() {
    let repository = Repository::new();
    repository.write("mine", "mine\n");
    repository.write("README", "mine, too\n");
    repository.git(&["add", "mine", "README"]);
    repository.write("README", "and more\n");
    let tree = repository.tree().await;
    let commit = commits(&tree, || {
        repository.write("*", "theirs\n");
        repository.write("mine", "changed by the agent\n");
    });
    commit.await.expect("something was changed");
    assert_eq!(repository.committed(), ["A *"]);
    assert_eq!(repository.status(), "MM README\nAM mine");
    assert_eq!(repository.git(&["show", ":mine"]), "mine");
}

#[tokio::test]
async fn in_a_directory_of_a_repository_all_that_was_changed_is_committed() {
    let repository = Repository::new();
    repository.write("sub/dir/kept", "kept\n");
    repository.write("sub/gone", "gone\n");
    repository.write("aside", "aside\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    repository.write("aside", "the person's\n");
    let tree = repository.tree_at("sub/dir").await;
    assert_eq!(tree.directory(), std::fs::canonicalize(repository.path("sub/dir")).expect("it is"));
    let commit = commits(&tree, || {
        repository.write("sub/dir/new", "new\n");
        repository.write("README", "changed\n");
        std::fs::remove_file(repository.path("sub/gone")).expect("it is there");
    });
    commit.await.expect("something was changed");
    assert_eq!(repository.committed(), ["M README", "A sub/dir/new", "D sub/gone"]);
    assert_eq!(repository.status(), " M aside");
}

#[tokio::test]
async fn a_repository_without_a_commit_gets_its_first() {
    let repository = Repository::without_a_commit();
    repository.write("mine", "mine\n");
    let tree = repository.tree().await;
    let commit = commits(&tree, || repository.write("new", "new\n")).await;
    assert_eq!(commit, Some(repository.git(&["rev-parse", "HEAD"])));
    assert_eq!(repository.committed(), ["A new"]);
    assert_eq!(repository.status(), "?? mine");
}

#[tokio::test]
async fn a_detached_head_moves_and_no_branch_does() {
    let repository = Repository::new();
    repository.git(&["checkout", "-q", "--detach"]);
    let tree = repository.tree().await;
    let commit = commits(&tree, || repository.write("new", "new\n")).await;
    assert_eq!(commit, Some(repository.git(&["rev-parse", "HEAD"])));
    assert_eq!(repository.git(&["log", "--format=%s", "main"]), "first");
    assert_eq!(repository.status(), "");
}

#[tokio::test]
async fn repositories_within_are_left_alone() {
    let repository = Repository::new();
    let tree = repository.tree().await;
    let nest = |name: &str, has_commit: bool| {
        repository.write(format!("{name}/file"), "file\n");
        repository.git_in(name, &["init", "-q"]);
        if has_commit {
            repository.git_in(name, &["add", "-A"]);
            repository.git_in(name, &["commit", "-q", "-m", "nested"]);
        }
    };
    nest("was here", true);
    let commit = commits(&tree, || {
        nest("with a commit", true);
        nest("without", false);
        repository.write("new", "new\n");
    });
    commit.await.expect("something was changed");
    assert_eq!(repository.committed(), ["A new"]);
    // A submodule says where it comes from, so it can be committed.
    let commit = commits_next(&tree, "SPEC#2", || {
        let declared =
            "[submodule \"with a commit\"]\n\tpath = with a commit\n\turl = ./elsewhere\n";
        repository.write(".gitmodules", declared);
    });
    commit.await.expect("something was changed");
    assert_eq!(repository.committed(), ["A .gitmodules"], "it was there before");
}

async fn commits_next(tree: &Tree, mark: &str, change: impl FnOnce()) -> Option<String> {
    let base = base_of(tree).await;
    change();
    tree.commit(&base, &Message { mark, seal: mark, ..MESSAGE }).await.expect("it can be committed")
}

/// So that no run stops because of a file that git cannot read either.
#[tokio::test]
async fn what_cannot_be_read_is_not_committed() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let repository = Repository::new();
    let tree = repository.tree().await;
    repository.write("secret", "secret\n");
    let mode = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(repository.path("secret"), mode).expect("it is there");
    commits(&tree, || repository.write("new", "new\n")).await.expect("something was changed");
    assert_eq!(repository.committed(), ["A new"]);
}

#[tokio::test]
async fn an_agent_may_commit_itself_or_go_back() {
    let repository = Repository::new();
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    let commit = commits(&tree, || {
        repository.write("by itself", "x\n");
        repository.git(&["add", "-A"]);
        repository.git(&["commit", "-q", "-m", "by itself"]);
        repository.write("left", "x\n");
    });
    commit.await.expect("something is left");
    assert_eq!(repository.committed(), ["A left"]);
    assert_eq!(repository.status(), "");
    assert_eq!(tree.moved_since(&base).await, Some(repository.git(&["rev-parse", "HEAD"])));
    let commit = commits_next(&tree, "SPEC#2", || {
        repository.git(&["reset", "-q", "--hard", "HEAD~2"]);
        repository.write("after all", "x\n");
    });
    commit.await.expect("something was changed");
    assert_eq!(repository.committed(), ["A after all"]);
    assert_eq!(repository.git(&["log", "--format=%s"]), "did it\nfirst");
    assert_eq!(repository.status(), "");
    // One that changes its mind about what it has committed.
    let commit = commits_next(&tree, "SPEC#3", || {
        repository.write("not to be", "x\n");
        repository.git(&["add", "-A"]);
        repository.git(&["commit", "-q", "-m", "by itself"]);
        std::fs::remove_file(repository.path("not to be")).expect("it is there");
    });
    commit.await.expect("something is left");
    assert_eq!(repository.committed(), ["D not to be"]);
    assert_eq!(repository.status(), "");
}

/// Another run may have had the same name long ago, and what agents write may look like a mark.
#[tokio::test]
async fn a_mark_counts_only_where_it_can_be_meant() {
    let repository = Repository::new();
    let tree = repository.tree().await;
    commits(&tree, || repository.write("a", "a\n")).await.expect("something was changed");
    let again = commits(&tree, || repository.write("b", "b\n")).await;
    assert_eq!(repository.committed(), ["A b"]);
    assert_eq!(repository.n_commits(), 3, "{again:?}");
    let base = base_of(&tree).await;
    let body = "it says\n\nTeamster-Seal: 3c\nTeamster-Iteration: SPEC#3";
    repository.write("c", "c\n");
    let spoof = Message { subject: "Teamster-Seal: 3c", body, mark: "SPEC#33", seal: "33" };
    tree.commit(&base, &spoof).await.expect("it can be committed").expect("something was changed");
    assert_eq!(tree.find(&base, "3c").await.expect("it can be looked for"), None);
    assert!(tree.find(&base, "33").await.expect("it can be looked for").is_some());
    // An agent knows how our commits look, and which number it has.
    repository.write("d", "d\n");
    repository.git(&["add", "-A"]);
    repository.git(&[
        "commit",
        "-q",
        "-m",
        "mine\n\nTeamster-Seal: 1a\nTeamster-Iteration: SPEC#3",
    ]);
    repository.write("e", "e\n");
    let own = Message { mark: "SPEC#3", seal: "3c", ..MESSAGE };
    tree.commit(&base, &own).await.expect("it can be committed").expect("something was changed");
    assert_eq!(repository.committed(), ["A e"]);
}

/// A hub that is killed at any point does the rest when it starts again.
#[tokio::test]
async fn a_commit_is_made_once_however_often_it_is_asked_for() {
    let repository = Repository::new();
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write("new", "new\n");
    let first = tree.commit(&base, &MESSAGE).await.expect("it can be committed");
    // What others do in between changes nothing about it.
    repository.write("later", "later\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "later"]);
    repository.write("later still", "later\n");
    assert_eq!(tree.commit(&base, &MESSAGE).await.expect("it can be committed"), first);
    assert_eq!(repository.n_commits(), 3);
    assert_eq!(repository.status(), "?? \"later still\"");
}

#[tokio::test]
async fn a_lock_is_waited_for_and_nothing_is_half_done_if_it_stays() {
    let repository = Repository::new();
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write("new", "new\n");
    repository.write(".git/index.lock", "");
    let error = tree.commit(&base, &MESSAGE).await.expect_err("it is locked").to_string();
    assert!(error.contains("index.lock"), "{error}");
    assert_eq!(repository.n_commits(), 1);
    let lock = repository.path(".git/index.lock");
    let unlock = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        std::fs::remove_file(lock).expect("it is there");
    };
    let (commit, ()) = tokio::join!(tree.commit(&base, &MESSAGE), unlock);
    assert!(commit.expect("it is waited for").is_some());
    assert_eq!(repository.status(), "");
}

#[tokio::test]
async fn five_thousand_files_are_committed_at_once() {
    let repository = Repository::new();
    let tree = repository.tree().await;
    let commit = commits(&tree, || {
        for n in 0..5_000 {
            repository.write(format!("many/{}/file {n}", n % 50), "x\n");
        }
    });
    commit.await.expect("something was changed");
    assert_eq!(repository.committed().len(), 5_000);
    assert_eq!(repository.status(), "");
}

const WORK: &str = "refs/teamster/run-SPEC/work-0";
const KEPT: &str = "teamster/run-SPEC";

/// A repository with a worktree beside it.
async fn with_worktree(repository: &Repository) -> (Tree, Tree, PathBuf) {
    let main = repository.tree().await;
    let path = repository.directory.path().join("worktree");
    let (tree, moved) = main.worktree(&path).await.expect("it can be made");
    assert_eq!(moved, None);
    (main, tree, path)
}

fn write(path: &Path, name: &str, text: &str) {
    let path = path.join(name);
    std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("it can be made");
    std::fs::write(path, text).expect("it can be written");
}

async fn gathered(tree: &Tree, base: &str, message: &Message<'_>) -> Gathered {
    let gathered = tree.gather(base, message, WORK, KEPT).await.expect("it can be gathered");
    gathered.0.expect("something was changed")
}

#[tokio::test]
async fn worktrees_are_merged_and_their_merges_finished() {
    let repository = Repository::new();
    repository.write("sub/file", "a\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    let main = repository.tree_at("sub").await;
    let path = repository.directory.path().join("worktree");
    let tree = main.worktree(&path).await.expect("it can be made").0;
    assert_eq!(tree.directory(), path.join("sub"));
    let base = base_of(&tree).await;
    write(&path, "sub/file", "b\n");
    let theirs = gathered(&tree, &base, &MESSAGE).await.commit;
    repository.write("sub/file", "c\n");
    repository.git(&["commit", "-q", "-a", "-m", "third"]);
    let head = main.head().await.expect("it has one");
    let conflicts = Merged::Conflicts(vec!["sub/file".to_owned()]);
    tree.reset_to(&theirs).await.expect("it can be reset");
    assert_eq!(tree.merge(&head, "Merge").await.expect("git runs"), conflicts);
    // An agent merges, puts it right, and leaves the rest to us.
    let kept = main.keep("teamster/run-SPEC/iteration-1", &theirs).await.expect("it can be kept");
    tree.reset_to(&head).await.expect("it can be reset");
    let base = base_of(&tree).await;
    let second = Message { mark: "SPEC#2", seal: "2b", ..MESSAGE };
    let merge = Command::new("git").current_dir(&path).args(["merge", &kept]).output();
    assert!(!merge.expect("git runs").status.success(), "it conflicts");
    let unsettled = gathered(&tree, &base, &second).await.unsettled;
    assert_eq!(unsettled, ["sub/file"]);
    write(&path, "sub/file", "b and c\n");
    let third = Message { mark: "SPEC#3", seal: "3c", ..MESSAGE };
    let merged = gathered(&tree, &base, &third).await;
    assert_eq!(merged.unsettled, [""; 0]);
    tree.reset_to(&merged.commit).await.expect("it can be reset");
    assert_eq!(tree.merge(&head, "Merge").await.expect("git runs"), Merged::Yes);
    main.fast_forward(&merged.commit).await.expect("it follows");
    assert_eq!(repository.git(&["show", "HEAD:sub/file"]), "b and c");
    main.remove_worktree(&path).await.expect("it can be removed");
    main.forget_merged("teamster").await.expect("they can be removed");
    assert_eq!(repository.git(&["branch", "--format=%(refname:short)"]), "main");
    assert_eq!(repository.status(), "");
}

/// Whatever an agent does with commits and branches in its worktree, its work is what is in the files.
#[tokio::test]
async fn what_an_agent_leaves_in_a_worktree_follows_what_it_began_with() {
    let repository = Repository::new();
    repository.git(&["branch", "feature"]);
    let (main, tree, path) = with_worktree(&repository).await;
    let first = main.head().await.expect("it has one");
    let feature = repository.git(&["rev-parse", "feature"]);
    let ways: [&[&[&str]]; 6] = [
        &[],
        &[
            &["add", "-A"],
            &["commit", "-q", "-m", "mine\n\nTeamster-Seal: 5\nTeamster-Iteration: SPEC#5"],
        ],
        &[&["add", "-A"], &["commit", "-q", "--amend", "-m", "other"]],
        &[&["checkout", "-q", "-b", "mine"], &["add", "-A"], &["commit", "-q", "-m", "mine"]],
        &[&["checkout", "-q", "feature"]],
        &[&["checkout", "-q", "--orphan", "nothing"]],
    ];
    for (n, way) in ways.iter().enumerate() {
        tree.reset_to(&first).await.expect("it can be reset");
        let base = base_of(&tree).await;
        write(&path, "new", &format!("{n}\n"));
        for args in *way {
            repository.git_in("../worktree", args);
        }
        write(&path, "more", "more\n");
        let seal = format!("{n}{n}");
        let message = Message { seal: &seal, ..MESSAGE };
        let work = gathered(&tree, &base, &message).await.commit;
        // Also if the hub is killed after that.
        assert_eq!(gathered(&tree, &base, &message).await.commit, work);
        assert_eq!(repository.git(&["rev-parse", &format!("{work}^@")]), first, "{way:?}");
        let files = repository.git(&["diff-tree", "-r", "--name-only", &first, &work]);
        assert_eq!(files, "more\nnew", "{way:?}");
    }
    assert_eq!(repository.git(&["rev-parse", "feature"]), feature);
    assert_eq!(repository.git(&["rev-parse", "main"]), first);
}

#[tokio::test]
async fn a_broken_worktree_is_moved_out_of_the_way() {
    let repository = Repository::new();
    let (main, _, path) = with_worktree(&repository).await;
    let breaks: [&dyn Fn(); 3] = [
        &|| std::fs::remove_file(path.join(".git")).expect("it is there"),
        &|| {
            std::fs::remove_file(path.join(".git")).expect("it is there");
            repository.git_in("../worktree", &["init", "-q"]);
        },
        &|| std::fs::write(path.join(".git"), "gitdir: /nowhere\n").expect("it can be written"),
    ];
    for break_it in breaks {
        write(&path, "work", "work\n");
        break_it();
        let (tree, moved) = main.worktree(&path).await.expect("there is a new one");
        let moved = moved.expect("it was moved");
        assert!(moved.join("work").exists());
        assert!(!path.join("work").exists());
        assert_eq!(tree.head().await, main.head().await);
    }
    // One who has ended may have left a lock.
    let lock = repository.git_in("../worktree", &["rev-parse", "--git-path", "index.lock"]);
    std::fs::write(path.join(lock), "").expect("it can be written");
    let (tree, moved) = main.worktree(&path).await.expect("it is there");
    assert_eq!(moved, None);
    tree.reset_to("HEAD").await.expect("it is not locked");
}

/// A person's settings and files are theirs, whatever is taken over.
#[tokio::test]
async fn what_is_taken_over_leaves_a_persons_files_alone() {
    let repository = Repository::new();
    repository.write(".gitignore", ".env\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    for (key, value) in [("merge.ff", "only"), ("merge.autoStash", "true")] {
        repository.git(&["config", key, value]);
    }
    repository.write(".env", "SECRET=mine\n");
    let (main, tree, path) = with_worktree(&repository).await;
    let base = base_of(&tree).await;
    write(&path, ".gitignore", "");
    write(&path, ".env", "SECRET=none\n");
    let work = gathered(&tree, &base, &MESSAGE).await.commit;
    let error = main.fast_forward(&work).await.expect_err("it is in the way").to_string();
    assert!(error.contains("would be overwritten"), "{error}");
    assert_eq!(
        std::fs::read_to_string(repository.path(".env")).expect("it is there"),
        "SECRET=mine\n"
    );
    // Neither is a merge refused, nor is something stashed.
    repository.write("README", "mine\n");
    repository.write("other", "other\n");
    repository.git(&["add", "other"]);
    repository.git(&["commit", "-q", "-m", "third"]);
    let head = main.head().await.expect("it has one");
    tree.reset_to(&work).await.expect("it can be reset");
    assert_eq!(tree.merge(&head, "Merge").await.expect("git runs"), Merged::Yes);
    assert_eq!(repository.git(&["stash", "list"]), "");
    assert_eq!(repository.status(), " M README");
}

/// What a person has taken back does not come back with what was done on top of it.
#[tokio::test]
async fn only_what_was_done_is_picked() {
    let repository = Repository::new();
    repository.write("secret", "secret\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "oops"]);
    let (main, tree, path) = with_worktree(&repository).await;
    let base = base_of(&tree).await;
    write(&path, "new", "new\n");
    let work = gathered(&tree, &base, &MESSAGE).await.commit;
    repository.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let head = main.head().await.expect("it has one");
    assert!(!main.is_based_on(&head, Some(&base)).await);
    tree.reset_to(&head).await.expect("it can be reset");
    assert_eq!(tree.pick(&work).await.expect("git runs"), Merged::Yes);
    main.fast_forward(&tree.head().await.expect("it has one")).await.expect("it follows");
    assert_eq!(repository.committed(), ["A new"]);
    assert_eq!(repository.git(&["ls-files"]), "README\nnew");
    assert!(main.find(&base, "1a").await.expect("git answers").is_some());
}

#[tokio::test]
async fn what_is_kept_is_not_overwritten() {
    let repository = Repository::new();
    let main = repository.tree().await;
    let first = main.head().await.expect("it has one");
    repository.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let second = main.head().await.expect("it has one");
    for (commit, name) in
        [(&first, "kept"), (&first, "kept"), (&second, "kept-2"), (&second, "kept-2")]
    {
        assert_eq!(main.keep("kept", commit).await.expect("it can be kept"), name);
    }
}

#[tokio::test]
async fn a_lock_is_there_only_while_somebody_has_it() {
    let repository = Repository::new();
    let (one, other) = (repository.tree().await, repository.tree().await);
    let Locking::Locked(lock) = one.lock() else { panic!("nobody has it") };
    assert!(matches!(other.lock(), Locking::Taken));
    assert!(repository.path(".git/teamster.lock").exists());
    drop(lock);
    assert!(!repository.path(".git/teamster.lock").exists());
    assert!(matches!(other.lock(), Locking::Locked(_)));
    // A file that a killed hub left is nobody's.
    repository.write(".git/teamster.lock", "");
    assert!(matches!(one.lock(), Locking::Locked(_)));
    std::os::unix::fs::symlink("/tmp", repository.path(".git/teamster.lock")).expect("a link");
    assert!(matches!(one.lock(), Locking::Impossible));
}

#[tokio::test]
async fn work_is_there_if_it_was_merged_squashed_or_picked() {
    let bring = |how: &'static [&'static [&'static str]]| async move {
        let repository = Repository::new();
        repository.git(&["checkout", "-q", "-b", "work"]);
        for (file, text) in [("one.txt", "1\n"), ("two.txt", "2\n")] {
            repository.write(file, text);
            repository.git(&["add", "-A"]);
            repository.git(&["commit", "-q", "-m", file]);
        }
        repository.git(&["checkout", "-q", "main"]);
        repository.write("README", "read me, too\n");
        repository.git(&["commit", "-q", "-am", "meanwhile"]);
        for args in how {
            repository.git(args);
        }
        let work = repository.git(&["rev-parse", "work"]);
        repository.tree().await.has_work_of(&work).await
    };
    assert!(bring(&[&["merge", "-q", "--no-edit", "work"]]).await);
    assert!(bring(&[&["merge", "-q", "-s", "ours", "--no-edit", "work"]]).await);
    assert!(bring(&[&["merge", "-q", "--squash", "work"], &["commit", "-q", "-m", "both"]]).await);
    assert!(bring(&[&["cherry-pick", "main..work"]]).await);
    // Somebody has changed it since it was picked, so that a merge would conflict.
    let changed: &[&[&str]] = &[
        &["cherry-pick", "main..work"],
        &["rm", "-q", "one.txt"],
        &["commit", "-q", "-m", "not that"],
    ];
    assert!(bring(changed).await);
    assert!(!bring(&[]).await);
    assert!(!bring(&[&["cherry-pick", "work~1"]]).await);
    assert!(!bring(&[&["merge", "-q", "--squash", "work"], &["reset", "-q", "--hard"]]).await);
}

/// A person may begin a merge while an agent is at work in the same files.
#[tokio::test]
async fn the_marks_of_a_merge_are_not_committed() {
    let repository = Repository::new();
    repository.git(&["checkout", "-q", "-b", "other"]);
    repository.write("README", "other\n");
    repository.git(&["commit", "-q", "-a", "-m", "other"]);
    repository.git(&["checkout", "-q", "main"]);
    repository.write("README", "main\n");
    repository.git(&["commit", "-q", "-a", "-m", "main"]);
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write("new", "new\n");
    let merge =
        Command::new("git").current_dir(repository.path("")).args(["merge", "other"]).output();
    assert!(!merge.expect("git runs").status.success(), "it conflicts");
    let error = tree.commit(&base, &MESSAGE).await.expect_err("it is not settled").to_string();
    assert!(error.contains("conflicts in README"), "{error}");
    assert_eq!(repository.status(), "UU README\n?? new");
    repository.git(&["merge", "--abort"]);
    let pick = Command::new("git")
        .current_dir(repository.path(""))
        .args(["cherry-pick", "other"])
        .output();
    assert!(!pick.expect("git runs").status.success(), "it conflicts");
    let error = tree.commit(&base, &MESSAGE).await.expect_err("it is not settled").to_string();
    assert!(error.contains("conflicts in README"), "{error}");
    repository.git(&["cherry-pick", "--abort"]);
    tree.commit(&base, &MESSAGE)
        .await
        .expect("it can be committed")
        .expect("something was changed");
    assert_eq!(repository.committed(), ["A new"]);
}

#[tokio::test]
async fn no_repository_is_another_thing_than_one_that_git_does_not_answer_for() {
    let place = tempfile::tempdir().expect("a directory");
    assert!(tree_of(place.path()).await.expect("that is no fault").is_none());
    assert!(tree_of(&place.path().join("nowhere")).await.is_err());
    let broken = |says: &'static str| {
        let at = place.path().join("in/it");
        async move {
            let error = tree_of(&at).await.expect_err("git does not answer").to_string();
            assert!(error.contains(says), "{error}");
        }
    };
    std::fs::create_dir_all(place.path().join("in/it")).expect("it can be made");
    let git = place.path().join(".git");
    std::fs::create_dir(&git).expect("it can be made");
    assert!(tree_of(place.path()).await.expect("git does not mind either").is_none());
    std::fs::write(git.join("config"), "").expect("it can be written");
    broken("not a git repository").await;
    std::fs::remove_dir_all(&git).expect("it is there");
    std::fs::write(place.path().join(".git"), "gitdir: nowhere\n").expect("it can be written");
    broken("nowhere").await;
    let repository = Repository::new();
    repository.git(&["config", "core.worktree", "/"]);
    assert!(tree_of(&repository.path("")).await.is_ok_and(|tree| tree.is_some()));
    let elsewhere = place.path().to_string_lossy().into_owned();
    repository.git(&["config", "core.worktree", &elsewhere]);
    assert!(tree_of(&repository.path("")).await.is_err());
    if rustix::process::geteuid().is_root() {
        let repository = Repository::new();
        for name in ["", ".git"] {
            std::os::unix::fs::chown(repository.path(name), Some(4321), None).expect("we may");
        }
        let error = tree_of(&repository.path("")).await.expect_err("it is another's").to_string();
        assert!(error.contains("dubious ownership") && error.contains("safe.directory"), "{error}");
    }
}

#[tokio::test]
async fn how_files_were_outlives_a_garbage_collection() {
    let repository = Repository::new();
    repository.write("mine", "mine\n");
    let tree = repository.tree().await;
    let commit = commits(&tree, || {
        repository.write("mine", "and more\n");
        repository.write("new", "new\n");
        repository.git(&["gc", "-q", "--prune=now"]);
    });
    commit.await.expect("something was changed");
    assert_eq!(repository.committed(), ["A new"]);
    tree.forget(&[ANCHOR.to_owned(), format!("{ANCHOR}1")]).await.expect("they can be removed");
    assert_eq!(repository.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main");
}

/// Such a commit would be on no branch, or lost when the rebase is given up.
#[tokio::test]
async fn nothing_is_committed_in_the_middle_of_an_agents_rebase() {
    let repository = Repository::new();
    repository.git(&["checkout", "-q", "-b", "other"]);
    repository.write("README", "other\n");
    repository.git(&["commit", "-q", "-a", "-m", "other"]);
    repository.git(&["checkout", "-q", "main"]);
    repository.write("README", "main\n");
    repository.git(&["commit", "-q", "-a", "-m", "main"]);
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    let mut rebase = Command::new("git");
    rebase.current_dir(repository.path("")).args(["rebase", "other"]);
    assert!(!rebase.output().expect("git runs").status.success(), "it conflicts");
    repository.write("new", "new\n");
    let error = tree.commit(&base, &MESSAGE).await.expect_err("HEAD is detached").to_string();
    assert!(error.contains("git switch main"), "{error}");
    repository.git(&["rebase", "--abort"]);
    tree.commit(&base, &MESSAGE).await.expect("it can be").expect("something was changed");
    assert_eq!(repository.committed(), ["A new"]);
    assert_eq!(repository.git(&["log", "--format=%s", "main"]), "did it\nmain\nfirst");
    // A branch that an agent makes is as good as another.
    let commit = commits_next(&tree, "SPEC#2", || {
        repository.git(&["checkout", "-q", "-b", "agents"]);
        repository.write("newer", "new\n");
    });
    let commit = commit.await.expect("something was changed");
    assert_eq!(repository.git(&["rev-parse", "agents"]), commit);
}

#[tokio::test]
async fn a_merge_is_finished_by_whoever_began_it() {
    let repository = Repository::new();
    repository.write("both", "first\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    repository.git(&["checkout", "-q", "-b", "other"]);
    for name in ["both", "README"] {
        repository.write(name, "other\n");
    }
    repository.git(&["commit", "-q", "-a", "-m", "other"]);
    repository.git(&["checkout", "-q", "main"]);
    for name in ["both", "README"] {
        repository.write(name, "main\n");
    }
    repository.git(&["commit", "-q", "-a", "-m", "main"]);
    let tree = repository.tree().await;
    let merge = || {
        let mut merge = Command::new("git");
        merge.current_dir(repository.path("")).args(["merge", "other"]);
        assert!(!merge.output().expect("git runs").status.success(), "it conflicts");
    };
    merge();
    let commit = commits(&tree, || repository.write("new", "new\n"));
    commit.await.expect("something was changed");
    assert_eq!(repository.git(&["log", "-1", "--format=%p"]).split(' ').count(), 1);
    assert_eq!(repository.status(), "UU README\nUU both", "the person is at it still");
    repository.git(&["merge", "--abort"]);
    let commit = commits_next(&tree, "SPEC#2", || {
        merge();
        repository.write("README", "main and other\n");
        repository.write("both", "main\n");
    });
    commit.await.expect("something was changed");
    assert_eq!(repository.git(&["log", "-1", "--format=%p"]).split(' ').count(), 2);
    assert_eq!(repository.status(), "");
    assert!(!repository.path(".git/MERGE_HEAD").exists());
}

#[tokio::test]
async fn line_endings_and_sparse_checkouts_are_no_hindrance() {
    let repository = Repository::new();
    for name in ["in/a", "out/a", "out/b"] {
        repository.write(name, "a\n");
    }
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    for (key, value) in [("core.autocrlf", "input"), ("core.safecrlf", "true")] {
        repository.git(&["config", key, value]);
    }
    repository.git(&["sparse-checkout", "set", "in"]);
    let tree = repository.tree().await;
    let commit = commits(&tree, || {
        repository.write("in/crlf", "a\r\nb\r\n");
        repository.write("out/new", "new\n");
        repository.write("out/b", "changed\n");
    });
    commit.await.expect("something was changed");
    assert_eq!(repository.committed(), ["A in/crlf", "M out/b", "A out/new"]);
}

#[tokio::test]
async fn what_was_secret_or_dirty_before_stays_uncommitted() {
    let repository = Repository::new();
    repository.write(".env", "KEY=1\n");
    repository.write("README", "the person's\n");
    repository.write("node_modules/x/y", "y\n");
    let tree = repository.tree().await;
    let commit = commits(&tree, || {
        repository.write(".env", "KEY=2\n");
        repository.write("README", "the person's and the agent's\n");
        repository.write("new", "new\n");
    });
    commit.await.expect("something was changed");
    assert_eq!(repository.committed(), ["A new"]);
    assert_eq!(repository.status(), " M README\n?? .env\n?? node_modules/");
}

#[tokio::test]
async fn no_heap_of_files_is_committed_by_mistake() {
    let repository = Repository::new();
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    for n in 0..super::FILES_MAX {
        repository.write(format!("node_modules/{}/{n}", n % 50), "");
    }
    repository.write("new", "new\n");
    let error = tree.commit(&base, &MESSAGE).await.expect_err("that is too much").to_string();
    assert!(error.contains("20001 files differ, 20000 of them in node_modules"), "{error}");
    repository.write(".gitignore", "node_modules\n");
    tree.commit(&base, &MESSAGE).await.expect("it can be").expect("something was changed");
    assert_eq!(repository.committed(), ["A .gitignore", "A new"]);
}

/// An agent may switch to any branch in its worktree.
#[tokio::test]
async fn a_worktree_is_put_back_without_moving_a_persons_branch() {
    let repository = Repository::new();
    repository.git(&["checkout", "-q", "-b", "feature"]);
    repository.write("README", "feature\n");
    repository.git(&["commit", "-q", "-a", "-m", "feature"]);
    repository.git(&["checkout", "-q", "main"]);
    let (main, tree, _) = with_worktree(&repository).await;
    let head = main.head().await.expect("it has one");
    let feature = repository.git(&["rev-parse", "feature"]);
    let in_worktree = |args: &[&str]| repository.git_in("../worktree", args);
    in_worktree(&["checkout", "-q", "feature"]);
    tree.reset_to(&head).await.expect("it can be");
    assert_eq!(repository.git(&["rev-parse", "feature"]), feature);
    assert_eq!(in_worktree(&["rev-parse", "HEAD"]), head);
    assert!(tree.is_clean().await.expect("git answers"));
    assert!(main.reset_to(&head).await.is_err(), "what is a person's is not reset");
}

/// Where and how each of `told_apart`'s cases leaves a file: as the agent left it, then as the person did.
#[derive(Clone, Copy)]
enum Does {
    Nothing,
    Writes(&'static str),
    Removes,
}

impl Does {
    fn to(self, repository: &Repository, name: &str) {
        match self {
            Self::Nothing => {}
            Self::Writes(text) => repository.write(name, text),
            Self::Removes => std::fs::remove_file(repository.path(name)).expect("it is there"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Whose {
    /// It is committed.
    Agents,
    /// It stays as it is, and nobody is told.
    Persons,
    /// It stays as it is, and is named.
    Both,
}

/// Waits until the clock of the files shows another time.
fn tick(repository: &Repository) -> teamster_core::Timestamp {
    use std::os::unix::fs::MetadataExt as _;
    let at = || {
        repository.write("../clock", "");
        let about = std::fs::metadata(repository.path("../clock")).expect("it is there");
        about.ctime() * 1_000 + about.ctime_nsec() / 1_000_000
    };
    let first = at();
    while at() < first + 2 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    teamster_core::Timestamp(first)
}

/// Each file is `kept\n` before, unless it is new. With a look at the files when the agent ended all can be told; with no
/// more than the time, some files are named.
#[tokio::test]
async fn what_an_agent_left_is_told_from_what_others_changed_since() {
    use Does::{Nothing, Removes, Writes};
    use Whose::{Agents, Both, Persons};
    let (agent, person) = (Writes("agent\n"), Writes("person\n"));
    let files = [
        // name, what the agent does, what the person does, whose it is, and by the time alone
        ("d1/changed", agent, Nothing, Agents, Agents),
        ("d2/new-agent", agent, Nothing, Agents, Agents),
        ("new-dir/agents", agent, Nothing, Agents, Agents),
        ("d3/removed", Removes, Nothing, Agents, Agents),
        ("d4/changed", Nothing, person, Persons, Both),
        ("d4/new-person", Nothing, person, Persons, Both),
        ("d5/removed", Nothing, Removes, Persons, Both),
        ("d6/changed", agent, person, Both, Both),
        ("d6/new-both", agent, person, Both, Both),
        ("d7/changed", agent, Removes, Both, Both),
        ("d8/removed", Removes, person, Both, Both),
        // What the person undoes is as before.
        ("d9/changed", agent, Writes("kept\n"), Persons, Persons),
        ("d9/new-undone", agent, Removes, Persons, Persons),
        ("d10/removed", Removes, Writes("kept\n"), Persons, Persons),
    ];
    for by_time in [false, true] {
        let repository = Repository::new();
        for (name, ..) in files.iter().filter(|(name, ..)| !name.contains("new")) {
            repository.write(name, "kept\n");
        }
        for n in 1..=10 {
            repository.write(format!("d{n}/keep"), "kept\n");
        }
        repository.git(&["add", "-A"]);
        repository.git(&["commit", "-q", "-m", "second"]);
        // Changed before all of it.
        repository.write("README", "mine\n");
        let tree = repository.tree().await;
        let base = base_of(&tree).await;
        for (name, does, ..) in &files {
            does.to(&repository, name);
        }
        let at = tick(&repository);
        let files_then = tree.base("refs/teamster/run-SPEC/after-0").await.expect("it can be");
        let left = Left { incarnation: 1, files: (!by_time).then_some(files_then), at };
        for (name, _, does, ..) in &files {
            does.to(&repository, name);
        }
        // What the person commits is theirs, and so is what they move.
        repository.write("own.txt", "own\n");
        repository.git(&["add", "own.txt"]);
        repository.git(&["commit", "-q", "-m", "by the person"]);
        std::fs::rename(repository.path("d1/keep"), repository.path("moved")).expect("ok");
        std::fs::create_dir_all(repository.path("other")).expect("ok");
        let anchors = Anchors { base: ANCHOR, now: "refs/teamster/run-SPEC/after-0" };
        let apart = tree.told_apart(&base, &left, &anchors).await.expect("it can be told");
        // Again, it is the same.
        let now = Left { files: Some(apart.now.clone()), ..left.clone() };
        let again = tree.told_apart(&apart.base, &now, &anchors).await.expect("it can be told");
        assert_eq!((&again.base, again.mixed.len()), (&apart.base, 0));
        let named = [apart.mixed, apart.unknown].concat();
        // Its next process goes on.
        repository.write("later", "agent\n");
        tree.commit(&apart.base, &MESSAGE).await.expect("it can be").expect("there is something");
        let committed = repository.committed();
        for (name, _, _, whose, by_time_alone) in &files {
            let expected = if by_time { by_time_alone } else { whose };
            let is_committed = committed.iter().any(|line| line.ends_with(&format!(" {name}")));
            let found = match (is_committed, named.iter().any(|one| one == name)) {
                (true, false) => Agents,
                (false, false) => Persons,
                (false, true) => Both,
                (true, true) => panic!("{name} is named and committed"),
            };
            assert_eq!(found, *expected, "{name}, by time: {by_time}: {committed:?} {named:?}");
        }
        assert!(committed.contains(&"A later".to_owned()), "{committed:?}");
        for theirs in ["README", "own.txt", "moved", "d1/keep"] {
            let is_theirs = |line: &String| line.split(' ').nth(1) == Some(theirs);
            assert!(!committed.iter().any(is_theirs), "{theirs}: {committed:?}");
        }
        let is_named = |name: &str| named.iter().any(|one| one == name);
        assert!(!is_named("README") && !is_named("own.txt"), "{named:?}");
        assert_eq!(is_named("moved"), by_time, "{named:?}");
        assert!(tree.moved_since(&apart.base).await.is_some());
    }
}

/// A directory that somebody moves has files that are older than that.
#[tokio::test]
async fn what_is_moved_with_its_directory_is_not_an_agents() {
    let repository = Repository::new();
    repository.write("dir/a", "a\n");
    repository.write("dir/b", "b\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write("agents", "agent\n");
    let left = Left { incarnation: 1, files: None, at: tick(&repository) };
    std::fs::rename(repository.path("dir"), repository.path("moved")).expect("it can be moved");
    let anchors = Anchors { base: ANCHOR, now: "refs/teamster/run-SPEC/after-0" };
    let apart = tree.told_apart(&base, &left, &anchors).await.expect("it can be told");
    assert_eq!(apart.unknown, ["dir/a", "dir/b", "moved/a", "moved/b"]);
    tree.commit(&apart.base, &MESSAGE).await.expect("it can be").expect("there is something");
    assert_eq!(repository.committed(), ["A agents"]);
}

/// A merge that a person begins while no agent runs is theirs; one that an agent was in is the agent's.
#[tokio::test]
async fn a_merge_is_whose_who_began_it() {
    for (by_agent, by_time) in [(false, false), (false, true), (true, false), (true, true)] {
        let repository = Repository::new();
        repository.git(&["checkout", "-q", "-b", "other"]);
        repository.write("other", "other\n");
        repository.git(&["add", "-A"]);
        repository.git(&["commit", "-q", "-m", "other"]);
        repository.git(&["checkout", "-q", "main"]);
        let merge = || repository.git(&["merge", "-q", "--no-ff", "--no-commit", "other"]);
        let tree = repository.tree().await;
        let base = base_of(&tree).await;
        repository.write("agents", "agent\n");
        if by_agent {
            merge();
        }
        let at = tick(&repository);
        let files = tree.base("refs/teamster/run-SPEC/after-0").await.expect("it can be");
        let left = Left { incarnation: 1, files: (!by_time).then_some(files), at };
        if !by_agent {
            merge();
        }
        let anchors = Anchors { base: ANCHOR, now: "refs/teamster/run-SPEC/after-0" };
        let apart = tree.told_apart(&base, &left, &anchors).await.expect("it can be told");
        tree.commit(&apart.base, &MESSAGE).await.expect("it can be").expect("there is something");
        let parents = repository.git(&["log", "-1", "--format=%P"]);
        let n_parents = parents.split(' ').count();
        assert_eq!(n_parents, if by_agent { 2 } else { 1 }, "{by_agent}, {by_time}");
        let is_merging = repository.path(".git/MERGE_HEAD").exists();
        assert_eq!(is_merging, !by_agent, "{by_agent}, {by_time}");
    }
}

/// In a repository without a commit, too.
#[tokio::test]
async fn before_the_first_commit_files_are_told_apart() {
    let repository = Repository::without_a_commit();
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write("agents", "agent\n");
    let files = tree.base("refs/teamster/run-SPEC/after-0").await.expect("it can be");
    let at = teamster_core::Timestamp(0);
    let left = Left { incarnation: 1, files: Some(files), at };
    repository.write(".env", "SECRET=x\n");
    let anchors = Anchors { base: ANCHOR, now: "refs/teamster/run-SPEC/after-0" };
    let apart = tree.told_apart(&base, &left, &anchors).await.expect("it can be told");
    tree.commit(&apart.base, &MESSAGE).await.expect("it can be").expect("there is something");
    assert_eq!(repository.git(&["ls-tree", "-r", "--name-only", "HEAD"]), "agents");
    assert_eq!(repository.status(), "?? .env");
}

#[tokio::test]
async fn a_branch_that_changes_is_noticed() {
    let repository = Repository::new();
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    assert_eq!(tree.switched_since(&base).await, None);
    repository.git(&["checkout", "-q", "-b", "feature/x"]);
    let (was, is) = tree.switched_since(&base).await.expect("it is another");
    assert_eq!((&*was, &*is), ("main", "feature/x"));
}

/// A person's directory in the place of a file that an agent removed, and a file in the place of its directory.
#[tokio::test]
async fn what_takes_the_place_of_an_agents_file_is_not_committed() {
    for by_time in [false, true] {
        let repository = Repository::new();
        repository.write("notes.txt", "n\n");
        repository.write("sub/a", "a\n");
        repository.git(&["add", "-A"]);
        repository.git(&["commit", "-q", "-m", "second"]);
        let tree = repository.tree().await;
        let base = base_of(&tree).await;
        repository.write("agents", "agent\n");
        std::fs::remove_file(repository.path("notes.txt")).expect("it is there");
        std::fs::remove_dir_all(repository.path("sub")).expect("it is there");
        let files = tree.base("refs/teamster/run-SPEC/after-0").await.expect("it can be");
        let at = tick(&repository);
        let left = Left { incarnation: 1, files: (!by_time).then_some(files), at };
        repository.write("notes.txt/secret", "S\n");
        repository.write("sub", "S\n");
        let anchors = Anchors { base: ANCHOR, now: "refs/teamster/run-SPEC/after-0" };
        let apart = tree.told_apart(&base, &left, &anchors).await.expect("it can be told");
        tree.commit(&apart.base, &MESSAGE).await.expect("it can be").expect("there is something");
        assert_eq!(repository.committed(), ["A agents"], "{by_time}");
        assert!(repository.path("notes.txt/secret").exists() && repository.path("sub").is_file());
    }
}

/// Git may be told by an agent to ignore it no longer.
#[tokio::test]
async fn what_was_ignored_before_is_not_committed() {
    let repository = Repository::new();
    repository.write(".gitignore", ".env\nbuild/\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    repository.write(".env", "SECRET=x\n");
    repository.write("build/old", "o\n");
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write(".gitignore", "target\n");
    repository.write("build/new", "n\n");
    repository.write("agents", "agent\n");
    tree.commit(&base, &MESSAGE).await.expect("it can be").expect("there is something");
    assert_eq!(repository.committed(), ["M .gitignore", "A agents"]);
    // Nor after an interruption, in which a person empties the file.
    repository.write(".gitignore", ".env\nbuild/\n");
    repository.git(&["commit", "-q", "-a", "-m", "third"]);
    let base = base_of(&tree).await;
    repository.write("later", "agent\n");
    let left = Left { incarnation: 1, files: None, at: tick(&repository) };
    repository.write(".gitignore", "");
    let anchors = Anchors { base: ANCHOR, now: "refs/teamster/run-SPEC/after-0" };
    let apart = tree.told_apart(&base, &left, &anchors).await.expect("it can be told");
    tree.commit(&apart.base, &MESSAGE).await.expect("it can be").expect("there is something");
    assert_eq!(repository.committed(), ["A later"]);
}

/// A directory that holds nothing but ignored files is none that is ignored.
#[tokio::test]
async fn work_beside_ignored_files_is_committed() {
    let repository = Repository::new();
    repository.write(".gitignore", "*.key\nnode_modules/\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    repository.write("app/my.key", "K\n");
    repository.write("web/node_modules/x", "x\n");
    let tree = repository.tree().await;
    commits(&tree, || {
        repository.write("app/src/main", "agent\n");
        repository.write("web/index", "agent\n");
    })
    .await
    .expect("something was changed");
    assert_eq!(repository.committed(), ["A app/src/main", "A web/index"]);
}

/// A person's own repository within the project stays theirs, also if an agent removes its `.git`.
#[tokio::test]
async fn files_of_a_repository_within_are_not_an_agents() {
    let repository = Repository::new();
    repository.write("lib/private", "mine\n");
    repository.git(&["-C", "lib", "init", "-q"]);
    repository.git(&["-C", "lib", "add", "-A"]);
    repository.git(&["-C", "lib", "commit", "-q", "-m", "theirs"]);
    let tree = repository.tree().await;
    commits(&tree, || {
        std::fs::remove_dir_all(repository.path("lib/.git")).expect("it is there");
        repository.write("agents", "agent\n");
    })
    .await
    .expect("something was changed");
    assert_eq!(repository.committed(), ["A agents"]);
}

/// What a person takes back or has git forget while an agent works was not changed by that agent.
#[tokio::test]
async fn a_file_that_stays_as_it_was_is_not_committed_again() {
    let ways: [&[&[&str]]; 4] = [
        &[&["reset", "-q", "HEAD~1"]],
        &[&["reset", "-q", "--soft", "HEAD~1"]],
        &[&["rm", "-q", "--cached", ".env"], &["commit", "-q", "-m", "no"]],
        &[
            &["rm", "-q", "--cached", ".env"],
            &["commit", "-q", "--amend", "--allow-empty", "-m", "a"],
        ],
    ];
    for way in ways {
        let repository = Repository::new();
        repository.write("notes.txt", "n\n");
        repository.git(&["add", "-A"]);
        repository.git(&["commit", "-q", "-m", "second"]);
        repository.write(".env", "SECRET=x\n");
        repository.write("notes.txt", "n\nmine\n");
        repository.git(&["add", "-A"]);
        repository.git(&["commit", "-q", "-m", "third"]);
        let tree = repository.tree().await;
        let base = base_of(&tree).await;
        repository.write("agents", "agent\n");
        way.iter().for_each(|args| drop(repository.git(args)));
        let (commit, _) = tree.commit_since(&base, &MESSAGE).await.expect("it can be");
        commit.expect("something was changed");
        assert_eq!(repository.committed(), ["A agents"], "{way:?}");
    }
}

/// Unfinished work is taken out of a person's files only where nothing of theirs is in its place.
#[tokio::test]
async fn nothing_of_a_persons_is_removed_when_work_is_put_aside() {
    let repository = Repository::new();
    repository.write(".gitignore", "*.key\n");
    repository.write("notes.txt", "n\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write("agents", "agent\n");
    std::fs::remove_file(repository.path("notes.txt")).expect("it is there");
    let taken = tree.taken(&base, &MESSAGE).await.expect("it can be").expect("there is something");
    repository.write("notes.txt/my.key", "K\n");
    let refused = tree.put_back(taken).await.expect_err("it is in the way").to_string();
    assert!(refused.contains("notes.txt is in the way"), "{refused}");
    assert!(repository.path("notes.txt/my.key").exists() && repository.path("agents").exists());
}

/// A person's uncommitted work that an interrupted agent has overwritten is named, so that it can be kept.
#[tokio::test]
async fn what_an_interrupted_agent_overwrote_is_named() {
    for by_time in [false, true] {
        let repository = Repository::new();
        repository.write("README", "mine\n");
        let tree = repository.tree().await;
        let base = base_of(&tree).await;
        repository.write("README", "agent\n");
        let files = tree.base("refs/teamster/run-SPEC/after-0").await.expect("it can be");
        let left =
            Left { incarnation: 1, files: (!by_time).then_some(files), at: tick(&repository) };
        // As long as nobody else changes anything, the base stays, and so does what it says.
        repository.write("persons", "person\n");
        let anchors = Anchors { base: ANCHOR, now: "refs/teamster/run-SPEC/after-0" };
        let apart = tree.told_apart(&base, &left, &anchors).await.expect("it can be told");
        assert_eq!(apart.overwritten, ["README"], "{by_time}");
    }
}

/// After the hub was killed, files may be older than that and yet have come later, with their directory.
#[tokio::test]
async fn what_comes_with_another_directory_is_not_an_agents() {
    let repository = Repository::new();
    repository.write("sub/keep", "k\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    let prepared = tempfile::tempdir_in(repository.path("..")).expect("a directory");
    let prepared = prepared.path();
    std::fs::create_dir(prepared.join("new")).expect("it can be made");
    std::fs::write(prepared.join("new/secret"), "S\n").expect("room");
    std::fs::write(prepared.join("new/keep"), "other\n").expect("room");
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write("agents", "agent\n");
    let left = Left { incarnation: 1, files: None, at: tick(&repository) };
    std::fs::rename(repository.path("sub"), prepared.join("old")).expect("it can be moved");
    std::fs::rename(prepared.join("new"), repository.path("sub")).expect("it can be moved");
    let anchors = Anchors { base: ANCHOR, now: "refs/teamster/run-SPEC/after-0" };
    let apart = tree.told_apart(&base, &left, &anchors).await.expect("it can be told");
    assert_eq!(apart.unknown, ["sub/keep", "sub/secret"]);
    tree.commit(&apart.base, &MESSAGE).await.expect("it can be").expect("there is something");
    assert_eq!(repository.committed(), ["A agents"]);
}

/// Before the first commit all files are a person's.
#[tokio::test]
async fn what_is_overwritten_before_the_first_commit_is_named() {
    let repository = Repository::without_a_commit();
    repository.write("notes.txt", "mine\n");
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write("notes.txt", "agent\n");
    assert_eq!(tree.overwritten(&base).await.expect("it can be told"), ["notes.txt"]);
}

#[tokio::test]
async fn only_a_branch_with_a_commit_keeps_commits() {
    let repository = Repository::new();
    repository.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    repository.git(&["commit", "-q", "--allow-empty", "-m", "third"]);
    let tree = repository.tree().await;
    let standing = async || tree.standing().await.expect("git answers");
    let commit = repository.git(&["rev-parse", "HEAD"]);
    let name = "refs/heads/main".to_owned();
    assert_eq!(standing().await, Standing::Branch { name, commit });
    repository.git(&["checkout", "-q", "--detach"]);
    assert_eq!(standing().await, Standing::Detached { during: None });
    repository.git(&["bisect", "start", "HEAD", "HEAD~2"]);
    assert_eq!(standing().await, Standing::Detached { during: Some("bisect") });
    repository.git(&["bisect", "reset"]);
    repository.git(&["checkout", "-q", "--orphan", "new"]);
    assert_eq!(standing().await, Standing::Unborn);
}

/// An agent that leaves the branch and commits there has done work that nobody would find.
#[tokio::test]
async fn what_an_agent_commits_on_no_branch_is_not_its_iterations_commit() {
    let repository = Repository::new();
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.git(&["checkout", "-q", "--detach"]);
    assert_eq!(tree.commit(&base, &MESSAGE).await.expect("nothing is lost"), None);
    repository.write("new", "new\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "by itself"]);
    let error = tree.commit(&base, &MESSAGE).await.expect_err("it would be lost").to_string();
    assert!(error.contains("git switch main"), "{error}");
}

#[tokio::test]
async fn work_is_kept_by_the_branch_of_its_base_or_one_of_its_run() {
    let repository = Repository::new();
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let second = repository.git(&["rev-parse", "HEAD"]);
    repository.git(&["checkout", "-q", "--detach", "HEAD~1"]);
    repository.git(&["commit", "-q", "--allow-empty", "-m", "other"]);
    let other = repository.git(&["rev-parse", "HEAD"]);
    repository.git(&["checkout", "-q", "--orphan", "new"]);
    assert!(tree.is_kept(&second, &base, KEPT).await);
    assert!(!tree.is_kept(&other, &base, KEPT).await);
    tree.keep("teamster/run-SPEC/iteration-1", &other).await.expect("it can be");
    assert!(tree.is_kept(&other, &base, KEPT).await);
}

const ANCHORS: Anchors<'_> = Anchors { base: ANCHOR, now: "refs/teamster/run-SPEC/after-0" };

/// Returns how an agent leaves the files now; by its time alone if nobody saw it.
async fn left_now(repository: &Repository, tree: &Tree, by_time: bool) -> Left {
    let files = tree.base(ANCHORS.now).await.expect("it can be looked at");
    Left { incarnation: 1, files: (!by_time).then_some(files), at: tick(repository) }
}

async fn told_apart(tree: &Tree, base: &str, left: &Left) -> Apart {
    tree.told_apart(base, left, &ANCHORS).await.expect("it can be told")
}

/// A person may take back a commit of work that is not done, after an agent has changed the same file.
#[tokio::test]
async fn what_a_person_takes_back_is_theirs() {
    for by_time in [false, true] {
        for (how, is_named) in [("--mixed", true), ("--soft", true)] {
            let repository = Repository::new();
            repository.write("README", "read me\nmine\n");
            repository.git(&["commit", "-q", "-a", "-m", "not done yet"]);
            let tree = repository.tree().await;
            let base = base_of(&tree).await;
            repository.write("README", "read me\nmine\nagent\n");
            repository.write("agents", "agent\n");
            let left = left_now(&repository, &tree, by_time).await;
            repository.git(&["reset", "-q", how, "HEAD~1"]);
            let apart = told_apart(&tree, &base, &left).await;
            assert_eq!(apart.overwritten == ["README"], is_named, "{how} {by_time}: {apart:?}");
            let commit = tree.commit(&apart.base, &MESSAGE).await.expect("it can be");
            commit.expect("there is something");
            assert_eq!(repository.committed(), ["A agents"], "{how} {by_time}");
        }
    }
    // A commit of its own that an agent takes back is its own work still.
    let repository = Repository::new();
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write("agents", "agent\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "by the agent"]);
    let left = left_now(&repository, &tree, false).await;
    repository.git(&["reset", "-q", "HEAD~1"]);
    let apart = told_apart(&tree, &base, &left).await;
    tree.commit(&apart.base, &MESSAGE).await.expect("it can be").expect("there is something");
    assert_eq!(repository.committed(), ["A agents"]);
}

/// What is added to a directory after it was put in the place of another changes nothing in that.
#[tokio::test]
async fn a_directory_is_known_by_more_than_its_time() {
    let repository = Repository::new();
    for name in ["sub/keep", "sub/gone", "same/keep", "same/gone", "old/gone", "old/keep"] {
        repository.write(name, "k\n");
    }
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    repository.write("../prepared/secret", "S\n");
    repository.write("../prepared/keep", "other\n");
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write("same/agents", "agent\n");
    std::fs::remove_file(repository.path("old/gone")).expect("it is there");
    let left = left_now(&repository, &tree, true).await;
    std::fs::rename(repository.path("sub"), repository.path("../old")).expect("it can be moved");
    std::fs::rename(repository.path("../prepared"), repository.path("sub")).expect("it can be");
    // In one that is the same, only what is new or gone is not the agent's.
    for name in ["sub/more", "same/more"] {
        repository.write(name, "m\n");
    }
    std::fs::remove_file(repository.path("same/gone")).expect("it is there");
    let apart = told_apart(&tree, &base, &left).await;
    let others = ["same/gone", "same/more", "sub/gone", "sub/keep", "sub/more", "sub/secret"];
    assert_eq!(apart.unknown, others);
    tree.commit(&apart.base, &MESSAGE).await.expect("it can be").expect("there is something");
    assert_eq!(repository.committed(), ["D old/gone", "A same/agents"]);
}

/// What a person has staged, and not in their files, is in no commit and in no file.
#[tokio::test]
async fn what_is_only_staged_is_not_replaced() {
    let repository = Repository::new();
    for name in ["changed", "removed", "untouched"] {
        repository.write(name, "k\n");
    }
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    for name in ["changed", "new", "untouched"] {
        repository.write(name, "staged\n");
    }
    repository.git(&["add", "-A"]);
    repository.git(&["rm", "-q", "--cached", "removed"]);
    for name in ["changed", "untouched"] {
        repository.write(name, "k\n");
    }
    std::fs::remove_file(repository.path("new")).expect("it is there");
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    for name in ["changed", "new", "removed", "agents"] {
        repository.write(name, "agent\n");
    }
    let files = tree.overwritten(&base).await.expect("it can be told");
    assert_eq!(files, ["changed", "new", "removed"]);
    let name = tree.keep_files("refs/teamster/run-SPEC/yours-1", &base, &files).await;
    let name = name.expect("it can be kept");
    tree.commit(&base, &MESSAGE).await.expect("it can be").expect("there is something");
    assert_eq!(repository.committed(), ["A agents"]);
    for file in ["changed", "new", "untouched"] {
        assert_eq!(repository.git(&["show", &format!(":{file}")]), "staged");
        assert_eq!(repository.git(&["show", &format!("{name}:{file}")]), "staged");
    }
    // Nor after an interruption.
    let left = left_now(&repository, &tree, false).await;
    repository.write("persons", "person\n");
    let apart = told_apart(&tree, &base, &left).await;
    assert_eq!(apart.overwritten, ["changed", "new", "removed"]);
    repository.write("later", "agent\n");
    tree.commit(&apart.base, &MESSAGE).await.expect("it can be").expect("there is something");
    assert_eq!(repository.committed(), ["A later"]);
    assert_eq!(repository.git(&["show", ":changed"]), "staged");
}

#[tokio::test]
async fn each_version_is_kept_and_known_until_it_is_committed() {
    let repository = Repository::new();
    repository.write("README", "mine\n");
    let tree = repository.tree().await;
    let name = "refs/teamster/run-SPEC/yours-1";
    let files = ["README".to_owned()];
    let base = base_of(&tree).await;
    let keep = async |base: &str| tree.keep_files(name, base, &files).await.expect("it can be");
    assert_eq!(keep(&base).await, name);
    assert_eq!(keep(&base).await, name, "it is the same version");
    repository.write("README", "agent\n");
    let second = keep(&base_of(&tree).await).await;
    assert_eq!(second, format!("{name}-2"));
    assert_eq!(repository.git(&["show", &format!("{name}:README")]), "mine");
    assert_eq!(repository.git(&["show", &format!("{second}:README")]), "agent");
    repository.write("other", "o\n");
    let names = tree.names("refs/teamster/run-SPEC/yours-*").await.expect("git answers");
    assert_eq!(tree.uncommitted_of(&names).await.expect("git answers"), ["README"]);
    repository.git(&["commit", "-q", "-m", "mine", "--", "README"]);
    assert_eq!(tree.uncommitted_of(&names).await.expect("git answers"), [""; 0]);
}

/// Git lists what it ignores up to a bound; beyond it nothing is committed that it may have ignored.
#[tokio::test]
async fn too_many_ignored_files_to_list_are_not_committed() {
    for by_exclude in [false, true] {
        let repository = Repository::new();
        repository.write(".gitignore", "*.key\n");
        repository.git(&["add", "-A"]);
        repository.git(&["commit", "-q", "-m", "second"]);
        if by_exclude {
            repository.write(".git/info/exclude", "*.o\n");
        }
        for n in 0..=super::about::IGNORED_MAX {
            repository.write(format!("many/{n:03}.key"), "");
        }
        repository.write("zz.o", "mine\n");
        repository.write("zz.key", "mine\n");
        let tree = repository.tree().await;
        let base = base_of(&tree).await;
        repository.write("agents", "agent\n");
        repository.write("README", "agent\n");
        match by_exclude {
            true => repository.write(".git/info/exclude", ""),
            false => repository.write(".gitignore", "many\n"),
        }
        let (commit, left_out) = tree.commit_since(&base, &MESSAGE).await.expect("it can be");
        commit.expect("something was changed");
        assert!(left_out.unclear.contains(&"agents".to_owned()), "{left_out:?}");
        assert!(repository.committed().contains(&"M README".to_owned()));
        assert!(repository.committed().iter().all(|line| line.starts_with("M ")));
    }
    // As long as the rules stay, all is as usual.
    let repository = Repository::new();
    repository.write(".gitignore", "*.key\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    for n in 0..=super::about::IGNORED_MAX {
        repository.write(format!("{n:03}.key"), "");
    }
    let tree = repository.tree().await;
    commits(&tree, || repository.write("agents", "agent\n")).await.expect("it is committed");
    assert_eq!(repository.committed(), ["A agents"]);
}

#[tokio::test]
async fn what_is_known_of_a_base_outlives_a_garbage_collection() {
    let repository = Repository::new();
    repository.write(".gitignore", ".env\n");
    repository.git(&["add", "-A"]);
    repository.git(&["commit", "-q", "-m", "second"]);
    repository.write(".env", "SECRET=x\n");
    repository.write("README", "staged\n");
    repository.git(&["add", "README"]);
    repository.write("README", "read me\n");
    let tree = repository.tree().await;
    let base = base_of(&tree).await;
    repository.write("README", "agent\n");
    repository.write(".gitignore", "");
    repository.git(&["add", "README"]);
    repository.git(&["gc", "-q", "--prune=now"]);
    let files = tree.overwritten(&base).await.expect("it can be told");
    assert_eq!(files, ["README"]);
    let name = tree.keep_files("refs/teamster/run-SPEC/yours-1", &base, &files).await;
    let name = name.expect("it can be kept");
    assert_eq!(repository.git(&["show", &format!("{name}:README")]), "staged");
    tree.commit(&base, &MESSAGE).await.expect("it can be").expect("there is something");
    assert_eq!(repository.committed(), ["M .gitignore"]);
    let names = super::anchored(ANCHOR);
    tree.forget(&names).await.expect("it can be");
    assert_eq!(repository.git(&["for-each-ref", ANCHOR, &format!("{ANCHOR}-*")]), "");
}
