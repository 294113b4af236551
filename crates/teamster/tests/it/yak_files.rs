//! The backlog as files and out of other trackers: `teamster yak export`, `import` and `import-beads`.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use expect_test::expect;
use serde_json::Value;
use tempfile::TempDir;

use crate::hub::Hub;
use crate::normal::Yaks;

/// A hub, and a directory in which commands are given to it.
struct Fixture {
    hub: Hub,
    directory: TempDir,
    yaks: Yaks,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { hub: Hub::start(), directory, yaks: Yaks::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn put(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("it can be made");
        fs::write(path, text).expect("the file can be written");
    }

    /// Runs a line of the shell in the directory, and returns all that it says.
    fn run(&mut self, line: &str) -> String {
        let line = self.yaks.ids(line);
        let mut command = self.hub.command();
        let output = command.args(line.split(' ')).current_dir(&self.directory).output();
        let output = output.expect("the program starts");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it prints UTF-8");
        let mut said = text(&output.stdout) + &text(&output.stderr);
        if let Some(code) = output.status.code().filter(|code| *code != 0) {
            let _ = writeln!(said, "exit code {code}");
        }
        let said = said.replace(&self.directory.path().display().to_string(), "<here>");
        self.yaks.names(&said)
    }

    fn list(&self) -> Vec<Value> {
        let list = self.hub.ok(&["yak", "list", "--status", "all", "--json"]);
        serde_json::from_str(&list).expect("the list is JSON")
    }

    fn n_events(&self) -> usize {
        self.hub.ok(&["log", "--json"]).lines().count()
    }
}

/// Returns the files below a directory, with what is in them.
fn tree(path: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut to_visit = vec![path.to_owned()];
    while let Some(directory) = to_visit.pop() {
        for entry in fs::read_dir(directory).expect("it can be read") {
            let entry = entry.expect("it can be read").path();
            if entry.is_dir() && !entry.is_symlink() {
                to_visit.push(entry);
            } else {
                let name = entry.strip_prefix(path).expect("it is below").display().to_string();
                files.insert(name, fs::read_to_string(&entry).unwrap_or_default());
            }
        }
    }
    files
}

/// Fills a backlog with some of everything.
fn some_of_everything(fixture: &mut Fixture) {
    for line in [
        "yak create door -t bug -p 1 -l house -l 1e3",
        "yak create paint -t feature -p 3",
        "yak create buy --parent yak-2",
        "yak create brush --parent yak-2.1",
        "yak dep yak-2 yak-2.1",
        "yak dep yak-2 yak-1",
        "yak shave yak-1",
        "yak shorn yak-2.1 --commit 1234e56",
    ] {
        let said = fixture.run(line);
        assert!(!said.contains("exit code"), "{line}: {said}");
    }
    let id = fixture.yaks.ids("yak-2.1.1");
    let title = "the \"brush\": soft # or 'hard'? \u{1f403}";
    let text = "--description=---\nnot front matter\n\n  indented\n---\n\nend";
    fixture.hub.ok(&["yak", "update", &id, "--title", title, text]);
}

#[test]
fn a_backlog_goes_through_files_unchanged() {
    let mut one = Fixture::new();
    some_of_everything(&mut one);
    expect![[r#"
        4 yaks are in .yaks: 4 written, 0 moved, 0 unchanged
    "#]]
    .assert_eq(&one.run("yak export"));
    let files = tree(&one.path(".yaks"));
    let names: Vec<String> = files.keys().map(|name| one.yaks.names(name)).collect();
    expect![[r#"
        config.yaml
        hairy/yak-2.1.1.md
        hairy/yak-2.md
        shaving/yak-1.md
        shorn/yak-2.1.md"#]]
    .assert_eq(&names.join("\n"));
    // What is as it was is not written again.
    let inode = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        files
            .keys()
            .map(|name| fs::metadata(path.join(name)).expect("it is there").ino())
            .collect::<Vec<_>>()
    };
    let before = inode(&one.path(".yaks"));
    expect![[r#"
        4 yaks are in .yaks: 0 written, 0 moved, 4 unchanged
    "#]]
    .assert_eq(&one.run("yak export"));
    assert_eq!(inode(&one.path(".yaks")), before);
    assert_eq!(tree(&one.path(".yaks")), files);
    // Nor does the hub learn anything from it.
    let n_events = one.n_events();
    expect![[r#"
        0 created, 0 updated, 4 left as they are
    "#]]
    .assert_eq(&one.run("yak import"));
    assert_eq!(one.n_events(), n_events);

    let mut other = Fixture::new();
    let from = one.path(".yaks").display().to_string();
    expect![[r#"
        4 created, 0 updated, 0 left as they are
    "#]]
    .assert_eq(&other.run(&format!("yak import {from}")));
    let n_events = other.n_events();
    expect![[r#"
        0 created, 0 updated, 4 left as they are
    "#]]
    .assert_eq(&other.run(&format!("yak import {from}")));
    assert_eq!(other.n_events(), n_events, "the second import changes nothing");
    other.run("yak export out");
    assert_eq!(tree(&other.path("out")), files);
    let seconds = |list: Vec<Value>| {
        let one = |mut yak: Value| {
            for time in ["created_at", "updated_at"] {
                yak[time] = (yak[time].as_i64().expect("a time") / 1_000).into();
            }
            let mut on = yak["depends_on"].as_array().cloned().unwrap_or_default();
            on.sort_by_key(Value::to_string);
            yak["depends_on"] = on.into();
            yak
        };
        let mut list: Vec<Value> = list.into_iter().map(one).collect();
        // What was created in the same second has no order in files.
        list.sort_by_key(|yak| yak["id"].to_string());
        list
    };
    assert_eq!(seconds(other.list()), seconds(one.list()));
    // It survives a restart, which reads it from the log.
    other.hub.crash_and_start_again();
    other.run("yak export again");
    assert_eq!(tree(&other.path("again")), files);
}

#[test]
fn an_export_moves_what_moved_and_leaves_the_rest_alone() {
    let mut fixture = Fixture::new();
    some_of_everything(&mut fixture);
    fixture.run("yak export");
    let id = fixture.yaks.ids("yak-1");
    let path = fixture.path(&format!(".yaks/shaving/{id}.md"));
    let text = fs::read_to_string(&path).expect("it was written");
    fs::write(&path, text.replace("type: bug\n", "type: bug\nref:\n  jira: X-1\n"))
        .expect("written");
    fixture.put(".yaks/config.yaml", "prefix: mine # and a comment\n");
    fixture.put(".yaks/hairy/notes.txt", "mine");
    fixture.put(".yaks/hairy/mine-1.md", "mine");
    fixture.put(".yaks/dead/old-1.md", "mine");
    fixture.run("yak shorn yak-1 --commit abc");
    expect![[r#"
        .yaks/hairy/notes.txt: is not a yak's file and is left alone
        .yaks/dead: is not one of hairy, shaving and shorn, and is left alone
        .yaks/hairy/mine-1.md: is not in the backlog and is left alone; `teamster yak import` takes it in
        4 yaks are in .yaks: 0 written, 1 moved, 3 unchanged
    "#]].assert_eq(&fixture.run("yak export"));
    assert!(!path.exists());
    let moved = fs::read_to_string(fixture.path(&format!(".yaks/shorn/{id}.md"))).expect("moved");
    assert!(moved.contains("\ncommit: abc\nref:\n  jira: X-1\n---\n"), "{moved}");
    let files = tree(&fixture.path(".yaks"));
    for name in ["hairy/notes.txt", "hairy/mine-1.md", "dead/old-1.md"] {
        assert_eq!(files[name], "mine");
    }
    assert_eq!(files["config.yaml"], "prefix: mine # and a comment\n");
}

#[test]
fn an_import_creates_updates_and_says_what_it_would() {
    let mut fixture = Fixture::new();
    let yak = |title: &str, more: &str| format!("---\ntitle: {title}\n{more}---\n\nWhy.\n");
    fixture.put(".yaks/config.yaml", "prefix: plugin\n");
    fixture.put(
        ".yaks/hairy/old-aaaa.md",
        yak("first", "created: 2026-01-01\nupdated: 2026-01-02 12:00\ndepends_on: [old-bbbb]\n"),
    );
    fixture.put(
        ".yaks/shorn/old-bbbb.md",
        yak("second", "commit: abc1234\ntype: idea\npriority: 1\n"),
    );
    fixture.put(
        ".yaks/shaving/old-aaaa.1.md",
        yak("third", "labels:\n- x\nupdated: '2026-02-01T00:00:00Z'\n"),
    );
    fixture.put(".yaks/hairy/old-cccc.md", yak("second", "depends_on: [old-aaaa, old-none]\n"));
    let n_events = fixture.n_events();
    expect![[r#"
        create old-aaaa (hairy): first
        create old-aaaa.1 (shaving): third
        create old-bbbb (shorn): second
        create old-cccc (hairy): second
        .yaks/hairy/old-cccc.md:3: old-cccc depends on old-none, which is not in the backlog; that dependency is left out
        4 would be created, 0 would be updated, 0 left as they are; 1 problem
        exit code 1
    "#]].assert_eq(&fixture.run("yak import --dry-run"));
    assert_eq!(fixture.n_events(), n_events);
    expect![[r#"
        .yaks/hairy/old-cccc.md:3: old-cccc depends on old-none, which is not in the backlog; that dependency is left out
        4 created, 0 updated, 0 left as they are; 1 problem
        exit code 1
    "#]].assert_eq(&fixture.run("yak import"));
    expect![[r#"
        old-aaaa           hairy    p2 task     first
        old-cccc           hairy    p2 task     second (tangled by old-aaaa)
        old-aaaa.1         shaving  p2 task     third [x]
        old-bbbb           shorn    p1 task     second [type:idea]
    "#]]
    .assert_eq(&fixture.run("yak list --status all"));
    expect![[r#"
        [old-aaaa] first
        Status: hairy
        Type: task
        Priority: 2
        Created: 2026-01-01T00:00:00Z by operator
        Updated: 2026-01-02T12:00:00Z
        Children:
          - [old-aaaa.1] third (shaving)
        Depends on:
          - [old-bbbb] second (shorn)
        Blocks:
          - [old-cccc] second (hairy)

        Why.
    "#]]
    .assert_eq(&fixture.run("yak show old-aaaa"));
    // New ones are called as the directory says.
    assert!(fixture.run("yak create new").starts_with("Yak created: plugin-"));
    // Somebody edits files.
    fixture.put(".yaks/hairy/old-cccc.md", yak("another", "labels: [y]\npriority: 3\n"));
    fs::rename(fixture.path(".yaks/hairy/old-aaaa.md"), fixture.path(".yaks/shaving/old-aaaa.md"))
        .expect("it moves");
    expect![[r#"
        update old-aaaa: status, updated
        update old-cccc: labels, depends_on, title, priority
        0 would be created, 2 would be updated, 2 left as they are
    "#]]
    .assert_eq(&fixture.run("yak import --dry-run .yaks"));
    expect![[r#"
        0 created, 2 updated, 2 left as they are
    "#]]
    .assert_eq(&fixture.run("yak import"));
    let n_events = fixture.n_events();
    fixture.run("yak import");
    assert_eq!(fixture.n_events(), n_events);
    expect![[r#"
        error: cannot read nowhere: No such file or directory (os error 2)
        exit code 1
    "#]]
    .assert_eq(&fixture.run("yak import nowhere"));
    expect![[r#"
        error: cannot read .beads/issues.jsonl: No such file or directory (os error 2)
        exit code 1
    "#]]
    .assert_eq(&fixture.run("yak import-beads"));
}

#[test]
fn a_hostile_directory_does_no_harm() {
    let mut fixture = Fixture::new();
    fixture.put("secret.md", "---\ntitle: secret\n---\n");
    fixture.put("outside/gone-1.md", "---\ntitle: secret\n---\n");
    fixture.put(".yaks/hairy/good-1.md", "---\nid: good-1\ntitle: good\n---\n");
    symlink(fixture.path("secret.md"), fixture.path(".yaks/hairy/link-1.md")).expect("a link");
    symlink(fixture.path("outside"), fixture.path(".yaks/shaving")).expect("a link");
    symlink("/dev/zero", fixture.path(".yaks/hairy/zero-1.md")).expect("a link");
    fs::create_dir(fixture.path(".yaks/hairy/directory-1.md")).expect("a directory");
    let pipe = fixture.path(".yaks/hairy/pipe-1.md");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from(0o600),
        0,
    )
    .expect("a pipe");
    fixture.put(".yaks/hairy/huge-1.md", "x".repeat(10 << 20));
    fixture.put(".yaks/hairy/long-1.md", format!("---\ntitle: t\n---\n{}", "x".repeat(20_000)));
    fixture.put(".yaks/hairy/bytes-1.md", b"---\ntitle: \xff\xfe\n---\n");
    fixture.put(
        ".yaks/hairy/bomb-1.md",
        "---\na: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: [*b,*b,*b,*b]\ntitle: boom\n---\n",
    );
    fixture.put(".yaks/hairy/path-1.md", "---\nid: ../../../path\ntitle: t\n---\n");
    fixture.put(".yaks/hairy/UPPER-1.md", "---\ntitle: t\n---\n");
    fixture.put(".yaks/hairy/a..b.md", "---\ntitle: t\n---\n");
    fixture.put(".yaks/hairy/esc-1.md", "---\ntitle: \"\\e[2J\"\n---\n");
    fixture.put(".yaks/hairy/-.md", "---\ntitle: t\n---\n");
    fixture.put(".yaks/hairy/twice-1.md", "---\ntitle: t\n---\n");
    fixture.put(".yaks/shorn/twice-1.md", "---\ntitle: t\n---\n");
    fixture.put(".yaks/config.yaml", "prefix: [&x a, *x]\n");
    expect![[r#"
        .yaks/config.yaml:1: anchors, aliases and tags are not used here
        .yaks/hairy/-.md: "-" is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child
        .yaks/hairy/UPPER-1.md: "UPPER-1" is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child
        .yaks/hairy/a..b.md: "a..b" is not a yak's id; use small letters, digits, `-` and `_`, then `.1` for a child
        .yaks/hairy/bomb-1.md:2: anchors, aliases and tags are not used here
        .yaks/hairy/bytes-1.md: is not UTF-8
        .yaks/hairy/directory-1.md: is not a file
        .yaks/hairy/esc-1.md:2: title contains a control character (\u{1b}); only line breaks and tabs are allowed
        .yaks/hairy/huge-1.md: is larger than 64 KB and is not read
        .yaks/hairy/link-1.md: is a link and is not followed
        .yaks/hairy/long-1.md:4: description is 20000 bytes long; the limit is 16384, so put long text into a file and name it
        .yaks/hairy/path-1.md:2: id: the file is called path-1.md, and the yak "../../../path"
        .yaks/hairy/pipe-1.md: is not a file
        .yaks/hairy/twice-1.md: there is a twice-1 in hairy and in shorn; keep one
        .yaks/hairy/zero-1.md: is a link and is not followed
        .yaks/shaving: is a link and is not followed
        .yaks/shorn/twice-1.md: there is a twice-1 in hairy and in shorn; keep one
        1 created, 0 updated, 0 left as they are; 17 problems
        exit code 1
    "#]].assert_eq(&fixture.run("yak import"));
    let titles: Vec<_> = fixture.list().iter().map(|yak| yak["title"].clone()).collect();
    assert_eq!(titles, ["good"]);
    // Nothing is written through a link.
    expect![[r#"
        error: .yaks/shaving is a link; nothing is written through it
        exit code 1
    "#]]
    .assert_eq(&fixture.run("yak export"));
    fs::remove_file(fixture.path(".yaks/shaving")).expect("it goes");
    fs::remove_file(fixture.path(".yaks/hairy/good-1.md")).expect("it goes");
    symlink(fixture.path("secret.md"), fixture.path(".yaks/hairy/good-1.md")).expect("a link");
    symlink(fixture.path("secret.md"), fixture.path(".yaks/hairy/.good-1.md.new")).expect("a link");
    let said = fixture.run("yak export");
    assert!(said.contains("hairy/good-1.md: is in the way; good-1 is not written"), "{said}");
    assert!(said.ends_with("exit code 1\n"), "{said}");
    fs::remove_file(fixture.path(".yaks/hairy/good-1.md")).expect("it goes");
    fixture.run("yak export");
    assert!(
        fixture.path(".yaks/hairy/good-1.md").symlink_metadata().expect("it is there").is_file()
    );
    let secret = fs::read_to_string(fixture.path("secret.md")).expect("it is there");
    assert_eq!(secret, "---\ntitle: secret\n---\n");
    // A project cannot lead an export elsewhere by what it calls `.yaks`.
    fs::rename(fixture.path(".yaks"), fixture.path("real")).expect("it moves");
    symlink(fixture.path("outside"), fixture.path(".yaks")).expect("a link");
    expect![[r#"
        error: .yaks is a link; name the directory that you mean
        exit code 1
    "#]]
    .assert_eq(&fixture.run("yak export"));
    expect![[r#"
        error: .yaks is a link; name the directory that you mean
        exit code 1
    "#]]
    .assert_eq(&fixture.run("yak import"));
}

#[test]
fn beads_are_taken_in_once() {
    let mut fixture = Fixture::new();
    let lines = [
        r#"{"id":"bd-2oo","title":"Threads","description":"All.","status":"open","priority":1,"issue_type":"epic","created_at":"2025-12-18T02:02:00.468223-08:00","updated_at":"2025-12-18T02:49:10-08:00"}"#,
        r#"{"id":"bd-2oo.1","title":"Columns","description":"","status":"closed","priority":4,"issue_type":"bug","created_at":"2025-12-19T02:02:00Z","updated_at":"2025-12-19T02:02:00Z","closed_at":"2025-12-19T02:02:00Z","dependencies":[{"issue_id":"bd-2oo.1","depends_on_id":"bd-2oo","type":"parent-child"}]}"#,
        "{not json",
        r#"{"id":"bd-7h7","title":"Daemon","status":"in_progress","priority":2,"issue_type":"task","created_at":"2025-12-20T02:02:00Z","updated_at":"2025-12-20T02:02:00Z","dependencies":[{"issue_id":"bd-7h7","depends_on_id":"bd-2oo.1","type":"blocks"},{"issue_id":"bd-7h7","depends_on_id":"bd-99","type":"blocks"}]}"#,
        r#"{"id":"bd-99","title":"Gone","status":"tombstone","priority":2,"issue_type":"task"}"#,
        r#"{"id":"bd-100","title":"","status":"open"}"#,
    ];
    fixture.put(".beads/issues.jsonl", lines.join("\n"));
    expect![[r#"
        create bd-2oo (hairy): Threads
        create bd-2oo.1 (shorn): Columns
        create bd-7h7 (shaving): Daemon
        left out what is deleted, pinned or no work: 1
        .beads/issues.jsonl:3: is not an issue of beads: key must be a string
        .beads/issues.jsonl:6: title is empty; give it some text
        3 would be created, 0 would be updated, 0 left as they are; 2 problems
        exit code 1
    "#]]
    .assert_eq(&fixture.run("yak import-beads --dry-run"));
    expect![[r#"
        left out what is deleted, pinned or no work: 1
        .beads/issues.jsonl:3: is not an issue of beads: key must be a string
        .beads/issues.jsonl:6: title is empty; give it some text
        3 created, 0 updated, 0 left as they are; 2 problems
        exit code 1
    "#]]
    .assert_eq(&fixture.run("yak import-beads"));
    expect![[r#"
        bd-2oo             hairy    p1 task     Threads [type:epic]
        bd-7h7             shaving  p2 task     Daemon
        bd-2oo.1           shorn    p3 bug      Columns
    "#]]
    .assert_eq(&fixture.run("yak list --status all"));
    expect![[r#"
        [bd-7h7] Daemon
        Status: shaving
        Type: task
        Priority: 2
        Created: 2025-12-20T02:02:00Z by operator
        Updated: 2025-12-20T02:02:00Z
        Depends on:
          - [bd-2oo.1] Columns (shorn)


    "#]]
    .assert_eq(&fixture.run("yak show bd-7h7"));
    // What has gone on since is not undone.
    fixture.run("yak shorn bd-7h7 --commit abc");
    let n_events = fixture.n_events();
    expect![[r#"
        left out what is deleted, pinned or no work: 1
        .beads/issues.jsonl:3: is not an issue of beads: key must be a string
        .beads/issues.jsonl:6: title is empty; give it some text
        0 created, 0 updated, 3 left as they are; 2 problems
        exit code 1
    "#]]
    .assert_eq(&fixture.run("yak import-beads .beads/issues.jsonl"));
    assert_eq!(fixture.n_events(), n_events);
}

#[test]
fn many_yaks_go_in_parts_and_their_dependencies_last() {
    let mut fixture = Fixture::new();
    // Each depends on the next one, so that every part has one that is not there yet.
    for n in 0..2_500 {
        let text = format!(
            "---\ntitle: yak {n}\ncreated: 2026-01-01\nupdated: 2026-01-02\ndepends_on: [m-{}]\n---\n{}\n",
            n + 1,
            "why ".repeat(100)
        );
        fixture.put(&format!(".yaks/hairy/m-{n}.md"), text);
    }
    fixture.put(
        ".yaks/shorn/m-2500.md",
        "---\ntitle: the last\ncreated: 2026-01-01\nupdated: 2026-01-02\n---\n",
    );
    expect![[r#"
        2501 created, 0 updated, 0 left as they are
    "#]]
    .assert_eq(&fixture.run("yak import"));
    let list = fixture.list();
    assert_eq!(list.len(), 2_501);
    assert!(
        list.iter().all(|yak| yak["id"] == "m-2500"
            || yak["depends_on"].as_array().is_some_and(|on| on.len() == 1))
    );
    let n_events = fixture.n_events();
    expect![[r#"
        0 created, 0 updated, 2501 left as they are
    "#]]
    .assert_eq(&fixture.run("yak import"));
    assert_eq!(fixture.n_events(), n_events);
    expect![[r#"
        2501 yaks are in .yaks: 0 written, 0 moved, 2501 unchanged
    "#]]
    .assert_eq(&fixture.run("yak export"));
}
