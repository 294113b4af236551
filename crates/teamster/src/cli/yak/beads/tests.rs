use expect_test::expect;

use super::*;

/// Returns what a file with these lines comes to: the yaks as files, then what is wrong.
fn read_lines(lines: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("issues.jsonl");
    std::fs::write(&path, lines).unwrap();
    let beads = read(&path).unwrap();
    let yaks = beads.candidates.iter().map(|candidate| {
        let status = candidate.yak.content.as_ref().map(|content| content.status);
        format!("{}\n{}", status.unwrap(), file::write(&candidate.yak, ""))
    });
    let problems = beads.problems.iter().map(|problem| format!("{problem}\n"));
    let text: String = yaks.chain(problems).collect();
    let skipped = format!("{} skipped\n", beads.n_skipped);
    (text + &skipped).replace(&path.display().to_string(), "issues.jsonl")
}

#[test]
fn issues_become_yaks() {
    let lines = [
        r#"{"id":"bd-2oo","title":"Threads","description":"All of it.","status":"open","priority":0,"issue_type":"epic","created_at":"2025-12-18T02:02:00.468223-08:00","updated_at":"2025-12-18T02:49:10.575133-08:00"}"#,
        r#"{"id":"bd-2oo.1","title":"Add the columns","description":"a\nb","design":"One table.","notes":"Later.","status":"closed","priority":4,"issue_type":"bug","assignee":"ann","created_at":"2025-12-18T02:02:00.468223-08:00","updated_at":"2025-12-18T02:49:10Z","closed_at":"2025-12-18T02:49:10Z","labels":["db"],"dependencies":[{"issue_id":"bd-2oo.1","depends_on_id":"bd-2oo","type":"parent-child","created_at":"2025-12-18T02:02:00Z","created_by":"daemon"},{"issue_id":"bd-2oo.1","depends_on_id":"bd-7h7","type":"blocks"},{"issue_id":"bd-2oo.1","depends_on_id":"bd-gone","type":"blocks"},{"issue_id":"bd-2oo.1","depends_on_id":"bd-x","type":"related"}]}"#,
        "",
        r#"{"id":"bd-7h7","title":"Stop the daemon","description":"","status":"in_progress","priority":2,"issue_type":"feature","created_at":"2025-12-16T13:26:47Z","updated_at":"2025-12-16T13:26:47Z","dependencies":[{"issue_id":"bd-7h7","depends_on_id":"bd-2oo","type":"parent-child"}]}"#,
        r#"{"id":"bd-gone","title":"x","status":"tombstone","issue_type":"task"}"#,
        r#"{"id":"bd-mail","title":"x","status":"open","issue_type":"message"}"#,
        r#"{"_type":"memory","key":"x"}"#,
        r#"{"id":"My.Proj-A1.3","title":"Other names","status":"blocked","created_at":"2025-12-16T13:26:47Z","comments":[{"text":"hi"}]}"#,
    ];
    expect![[r#"
        hairy
        ---
        id: bd-2oo
        title: Threads
        type: task
        priority: 1
        created: '2025-12-18T10:02:00Z'
        updated: '2025-12-18T10:49:10Z'
        labels:
        - type:epic
        ---

        All of it.
        shorn
        ---
        id: bd-2oo.1
        title: Add the columns
        type: bug
        priority: 3
        created: '2025-12-18T10:02:00Z'
        updated: '2025-12-18T02:49:10Z'
        depends_on:
        - bd-7h7
        labels:
        - db
        ---

        a
        b

        ## Design

        One table.

        ## Notes

        Later.
        shaving
        ---
        id: bd-7h7
        title: Stop the daemon
        type: feature
        priority: 2
        created: '2025-12-16T13:26:47Z'
        updated: '2025-12-16T13:26:47Z'
        labels:
        - parent:bd-2oo
        ---
        hairy
        ---
        id: my-proj-a1-3
        title: Other names
        type: task
        priority: 2
        created: '2025-12-16T13:26:47Z'
        labels:
        - beads:My.Proj-A1.3
        ---
        3 skipped
    "#]]
    .assert_eq(&read_lines(lines.join("\n").as_bytes()));
}

#[test]
fn bad_lines_are_told_and_the_rest_is_read() {
    let long = format!(r#"{{"id":"bd-1","title":"{}"}}"#, "x".repeat(2 << 20));
    let large = format!(r#"{{"id":"bd-2","title":"t","description":"{}"}}"#, "x".repeat(20_000));
    let title = format!(r#"{{"id":"bd-3","title":"{}"}}"#, "word ".repeat(80));
    let deep = format!(r#"{{"id":"bd-4","title":"t","x":{}}}"#, "[".repeat(5_000));
    let mut lines: Vec<&[u8]> =
        vec![b"nothing", b"[]", long.as_bytes(), large.as_bytes(), deep.as_bytes()];
    lines.push(b"{\"id\":\"bd-5\",\"title\":\"\xff\xfe\"}");
    lines.push(br#"{"title":"no id"}"#);
    lines.push(br#"{"id":"bd-6","title":"t","priority":9}"#);
    lines.push(br#"{"id":"bd-7","title":"t","created_at":"soon"}"#);
    lines.push(br#"{"id":"bd-8","title":"fine"}"#);
    lines.push(br#"{"id":"bd-8","title":"again"}"#);
    lines.push(br#"{"id":"../../etc/passwd","title":"a path"}"#);
    lines.push(title.as_bytes());
    expect![[r#"
        hairy
        ---
        id: bd-8
        title: fine
        type: task
        priority: 2
        ---
        hairy
        ---
        id: bd------etc-passwd
        title: a path
        type: task
        priority: 2
        labels:
        - beads:../../etc/passwd
        ---
        hairy
        ---
        id: bd-3
        title: word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word wo…
        type: task
        priority: 2
        ---

        word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word word
        issues.jsonl:1: is not an issue of beads: expected ident
        issues.jsonl:2: is not an issue of beads: invalid length 0, expected struct Bead with 14 elements
        issues.jsonl:3: is longer than 1048576 bytes and is left out
        issues.jsonl:4: has a text of 20000 bytes; the limit is 16384
        issues.jsonl:5: is not an issue of beads: expected value
        issues.jsonl:6: is not an issue of beads: invalid unicode code point
        issues.jsonl:7: has no id
        issues.jsonl:8: priority: 9 is not one of 0 to 4
        issues.jsonl:9: created_at: "soon" is not a time
        issues.jsonl:11: bd-8 is in line 10 already
        0 skipped
    "#]].assert_eq(&read_lines(&lines.join(&b'\n')));
}

#[test]
fn an_id_that_cannot_be_one_becomes_another_always_the_same() {
    let ids = ["bd-12", "BD-12", "my.app-1.2", "a/b", "-x", "..", "é", "x.01", &"y".repeat(300)];
    for id in ids {
        let made = as_id(id);
        assert!(YakId::parse(&made).is_ok(), "{id:?} became {made:?}");
        assert_eq!(as_id(&made), made);
    }
    assert_eq!(as_id("My App-1.2"), "my-app-1.2");
}
