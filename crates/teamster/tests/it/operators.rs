//! What an operator does with a whole log: export and import, back up and restore, redact, compact; and the doctor.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::path::Path;
use std::process::Output;

use expect_test::expect;
use rustix::process::Signal;
use serde_json::{Value, json};
use teamster_log::{Options, TranscriptName};

use crate::hub::{Hub, command, feed, mode, ordinary, run_in};

#[test]
fn a_log_that_is_exported_and_imported_is_the_same() {
    let hub = Hub::start();
    hub.ok(&["tool", "task-add", "--tasks", "ä \u{1F9F6} \"quoted\""]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let file = path("log.jsonl");
    hub.ok(&["export", &file]);
    assert_eq!(mode(Path::new(&file)), 0o600);
    assert!(hub.fails(&["export", &file]).contains("cannot make"), "a file is not written over");

    let head = hub.ok(&["log", "verify"]);
    let into = |name: &str, file: &str| run_in(Path::new(&path(name)), &["import", file]);
    let (ok, _, stderr) = into("other", &file);
    assert!(ok, "{stderr}");
    assert_eq!(run_in(Path::new(&path("other")), &["log", "verify"]).1.trim_end(), head);
    let again = Hub::start_in(Path::new(&path("other")));
    assert_eq!(again.ok(&["tool", "task-list"]), hub.ok(&["tool", "task-list"]));
    assert!(into("other", &file).2.contains("is in use by"));
    drop(again);
    assert!(into("other", &file).2.contains("has a log already"));

    // A file that was cut off, or changed, is not taken over at all.
    let text = std::fs::read_to_string(&file).expect("it is there");
    let without_end = text.trim_end().rsplit_once('\n').expect("several lines").0;
    for (n, bad) in
        [without_end, &text.replace("quoted", "other"), "nonsense"].into_iter().enumerate()
    {
        std::fs::write(path("bad.jsonl"), bad).expect("it can be written");
        let place = format!("bad-{n}");
        let (ok, _, stderr) = into(&place, &path("bad.jsonl"));
        assert!(!ok, "{stderr}");
        assert!(!Path::new(&path(&place)).exists(), "{stderr}");
    }
}

/// A hub that starts on a part of a log would go on from there, and nobody could tell.
#[test]
fn an_import_that_is_killed_leaves_no_part_of_a_log() {
    const COMMITS: usize = 1_000;
    let hub = Hub::start();
    let line =
        |n| json!({"notes": [{"content": format!("{n}"), "type": "tip"}]}).to_string() + "\n";
    let mut notes = hub.command();
    notes.args(["tool", "note-add", "--json", "-"]);
    let fed = feed(notes, &(0..COMMITS).map(line).collect::<String>());
    assert!(fed.status.success(), "{fed:?}");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (file, data) = (directory.path().join("log.jsonl"), directory.path().join("data"));
    let file = file.to_string_lossy();
    hub.ok(&["export", &file]);
    let mut import = command(&data);
    let mut import = import.args(["import", &file]).spawn().expect("it starts");
    // Each commit is synced, so that this takes a second; it is killed when it has begun.
    let begun = data.join("log.rewrite");
    while !begun.exists() {
        assert!(import.try_wait().expect("it is ours").is_none(), "it was too fast to be killed");
        std::thread::yield_now();
    }
    import.kill().expect("it is ours");
    import.wait().expect("it is ours");
    let empty = Hub::start_in(&data);
    assert_eq!(empty.ok(&["tool", "note-list"]), "No notes");
    assert!(!begun.exists());
    drop(empty);
    std::fs::remove_dir_all(&data).expect("it is ours");
    let (ok, _, stderr) = run_in(&data, &["import", &file]);
    assert!(ok, "{stderr}");
    assert_eq!(run_in(&data, &["log", "verify"]).1.trim_end(), hub.ok(&["log", "verify"]));
}

/// Returns what the tools and the log say, which must be the same for two hubs on the same log.
fn facts(hub: &Hub) -> [String; 4] {
    ["task-list", "note-list", "list_yaks", "task-next"].map(|tool| hub.ok(&["tool", tool]))
}

fn some_work(hub: &Hub) {
    hub.ok(&["tool", "task-add", "--tasks", "one", "--tasks", "two", "--tasks", "three"]);
    for status in ["in_progress", "blocked", "remaining", "in_progress", "completed"] {
        hub.ok(&["tool", "task-update", "--id", "TAS-1", "--status", status]);
    }
    hub.ok(&["tool", "note-add", "--notes", r#"{"content":"learned","type":"tip"}"#]);
    hub.ok(&[
        "tool",
        "create_yak",
        "--title",
        "shave it",
        "--yak_type",
        "bug",
        "--description",
        "d",
    ]);
}

#[test]
fn a_backup_of_a_running_hub_becomes_the_same_hub() {
    let mut hub = Hub::start();
    some_work(&hub);
    let token = hub.token("ann", "full");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let text = |name: &str| path(name).to_string_lossy().into_owned();
    let head = hub.ok(&["backup", &text("backup"), "--with-tokens"]);
    assert_eq!(head, hub.ok(&["log", "verify"]), "it is the log as it was");
    assert!(hub.fails(&["backup", &text("backup")]).contains("exists already"));
    for entry in std::fs::read_dir(path("backup")).expect("it is there") {
        let entry = entry.expect("it can be read").path();
        assert_eq!(mode(&entry) & 0o077, 0, "{}", entry.display());
    }
    let before = facts(&hub);

    // What happens later is not in the backup.
    hub.ok(&["tool", "task-add", "--tasks", "four"]);
    assert!(hub.fails(&["restore", &text("backup")]).contains("has something in it"));
    hub.end(Signal::TERM);
    let (ok, _, stderr) = run_in(&path("restored"), &["restore", &text("backup")]);
    assert!(ok, "{stderr}");
    assert_eq!(run_in(&path("restored"), &["log", "verify"]).1.trim_end(), head);
    let mut restored = Hub::start_in(&path("restored"));
    assert_eq!(facts(&restored), before);
    assert_eq!((&restored.operator, &restored.url), (&hub.operator, &hub.url));
    assert!(restored.ok(&["token", "list"]).contains("ann"), "{token}");
    restored.ok(&["tool", "task-add", "--tasks", "four again"]);
    restored.crash_and_start_again();

    // A damaged backup is not restored at all.
    let database = path("backup").join("log.db");
    let mut bytes = std::fs::read(&database).expect("it is there");
    let at = bytes.windows(8).position(|part| part == b"shave it").expect("it is stored as text");
    bytes[at] = b'S';
    std::fs::write(&database, bytes).expect("it can be written");
    let (ok, _, stderr) = run_in(&path("other"), &["restore", &text("backup")]);
    assert!(!ok && stderr.contains("of the backup is broken"), "{stderr}");
    assert!(!path("other").exists());
}

/// Backups are put where agents and other people can read.
#[test]
fn a_backup_holds_no_tokens_unless_asked() {
    let hub = Hub::start();
    some_work(&hub);
    let token = hub.token("ann", "full");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (backup, restored) = (directory.path().join("backup"), directory.path().join("restored"));
    hub.ok(&["backup", &backup.to_string_lossy()]);
    for name in ["operator.token", "agent.token", "seal.key"] {
        assert!(hub.data().join(name).exists() && !backup.join(name).exists(), "{name}");
    }
    let secrets = [&hub.operator, &token].map(|secret| secret.trim().as_bytes().to_owned());
    for entry in std::fs::read_dir(&backup).expect("it is there") {
        let path = entry.expect("it can be read").path();
        let bytes = if path.is_file() { std::fs::read(&path).expect("ours") } else { Vec::new() };
        let holds = |secret: &Vec<u8>| bytes.windows(secret.len()).any(|part| part == secret);
        assert!(!secrets.iter().any(holds), "{}", path.display());
    }
    let before = facts(&hub);
    drop(hub);
    let (ok, _, stderr) = run_in(&restored, &["restore", &backup.to_string_lossy()]);
    assert!(ok, "{stderr}");
    assert_eq!(facts(&Hub::start_in(&restored)), before);
}

/// What a copy leaves out must not be what somebody appended before it began.
#[test]
fn backups_made_under_load_hold_all_that_was_acknowledged_before() {
    let hub = Hub::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let writer = scope.spawn(|| {
            let mut n_added = 0;
            let stopped = stopped;
            while let Err(std::sync::mpsc::TryRecvError::Empty) = stopped.try_recv() {
                hub.ok(&["tool", "task-add", "--tasks", &format!("task {n_added}")]);
                n_added += 1;
            }
            n_added
        });
        for n in 0..5 {
            hub.ok(&["tool", "task-add", "--tasks", &format!("mark {n}")]);
            let backup = directory.path().join(n.to_string());
            let head = hub.ok(&["backup", &backup.to_string_lossy()]);
            assert_eq!(run_in(&backup, &["log", "verify"]).1.trim_end(), head);
            let log = run_in(&backup, &["log"]).1;
            assert!(log.contains(&format!("mark {n}")), "{log}");
            hub.ok(&["log", "verify", "--against", &head]);
        }
        drop(stop);
        assert!(writer.join().expect("it ends") > 0, "nothing was written meanwhile");
    });
}

/// Runs `log redact` with this text on stdin.
fn redact(data: &Path, text: &str) -> Output {
    let mut command = command(data);
    command.args(["log", "redact"]);
    feed(command, text)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}

/// Tells whether any file under a directory has these bytes.
fn is_anywhere(directory: &Path, text: &[u8]) -> bool {
    std::fs::read_dir(directory).expect("it can be read").any(|entry| {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            return is_anywhere(&path, text);
        }
        // A socket has no bytes.
        std::fs::read(&path).unwrap_or_default().windows(text.len()).any(|part| part == text)
    })
}

#[tokio::test]
async fn a_redacted_text_is_nowhere_and_the_log_says_so() {
    let mut hub = Hub::start();
    let data = hub.data().to_owned();
    let secret = r#"hunter2 "quoted" \ back"#;
    hub.ok(&["tool", "task-add", "--tasks", &format!("the password is {secret}, keep it")]);
    hub.ok(&["tool", "task-add", "--tasks", "something else"]);
    let head = hub.ok(&["log", "verify"]);
    let refused = said(&redact(&data, secret));
    assert!(refused.contains("a hub is using this log; stop it first with"), "{refused}");
    hub.end(Signal::TERM);
    let conversation = TranscriptName::new("a.b").expect("it is a name");
    let log = teamster_log::open(&data, Options::default()).expect("it can be opened");
    log.transcripts()
        .append(&conversation, json!({"text": secret}).to_string().into_bytes())
        .await
        .expect("it is stored");
    log.blobs().put(format!("a file with {secret}").into_bytes()).await.expect("it is stored");
    log.blobs().put(b"another file".to_vec()).await.expect("it is stored");
    drop(log);
    assert!(is_anywhere(&data, b"hunter2"), "the control: it is found where it is");

    assert!(said(&redact(&data, "nowhere to be found")).contains("stays as it is"));
    assert!(said(&redact(&data, "short")).contains("8 to 65536 bytes"));
    // What only looks like it in the written form is not it.
    assert!(said(&redact(&data, r#"events":["#)).contains("stays as it is"));
    assert!(run_in(&data, &["log", "verify", "--against", &head]).0, "nothing has changed");

    let output = redact(&data, &format!("{secret}\n"));
    assert!(output.status.success(), "{}", said(&output));
    expect![[r#"
        redacted in 1 commits, 1 transcript records and 1 blobs; the log says so in its last commit.
        Backups, exports and archives made before still have the text, and the disk may keep old blocks for a while: change the secret."#]]
    .assert_eq(&said(&output));
    assert!(!is_anywhere(&data, b"hunter2"));
    let hub = Hub::start_in(&data);
    assert!(hub.ok(&["tool", "task-list"]).contains("the password is [redacted], keep it"));
    assert!(hub.ok(&["log"]).contains("log redacted in 1 commits"));
    hub.ok(&["log", "verify"]);
    let against = hub.fails(&["log", "verify", "--against", &head]);
    assert!(
        against.contains("from before the log was written anew (log redacted in 1 commits"),
        "{against}"
    );
    let log = teamster_log::open_readonly(&data).expect("it can be opened");
    let record = log.transcripts().read(&conversation, 0, 9).await.expect("it can be read");
    assert_eq!(record[0].bytes, br#"{"text":"[redacted]"}"#);
}

#[test]
fn a_compacted_log_says_the_same_in_fewer_words() {
    let mut hub = Hub::start();
    let data = hub.data().to_owned();
    some_work(&hub);
    let before = facts(&hub);
    let head = hub.ok(&["log", "verify"]);
    hub.end(Signal::TERM);
    let n_events = |data: &Path| run_in(data, &["log"]).1.lines().count();
    let n_before = n_events(&data);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let archive = directory.path().join("archive.jsonl");
    let archive_text = archive.to_string_lossy();
    let (ok, _, stderr) = run_in(&data, &["log", "compact"]);
    assert!(!ok && stderr.contains("--archive <FILE>|--discard"), "{stderr}");
    let (ok, _, stderr) = run_in(&data, &["log", "compact", "--archive", &archive_text]);
    assert!(ok, "{stderr}");
    // Four of the five changes of TAS-1 were overwritten; the record of the compaction came in.
    assert_eq!(n_events(&data), n_before - 4 + 1, "{stderr}");
    let (_, shown, _) = run_in(&data, &["log", "-n", "1"]);
    assert!(
        shown.contains(&format!("4 of {n_before} events were left out; its head was {head}")),
        "{shown}"
    );
    let (ok, _, stderr) = run_in(&data, &["log", "compact", "--discard"]);
    assert!(ok && stderr.contains("stays as it is"), "{stderr}");
    let hub = Hub::start_in(&data);
    assert_eq!(facts(&hub), before);
    hub.ok(&["log", "verify"]);

    // The archive is the log as it was.
    let old = directory.path().join("old");
    assert!(run_in(&old, &["import", &archive_text]).0);
    assert_eq!(run_in(&old, &["log", "verify"]).1.trim_end(), head);
    assert_eq!(facts(&Hub::start_in(&old)), before);
}

/// An archive on a read-only medium, or somebody else's log: nothing can be written beside it.
#[test]
fn a_log_in_a_directory_that_cannot_be_written_is_read() {
    let place = tempfile::tempdir().expect("a directory");
    let data = place.path().join("a ?#%41 b");
    let mut hub = Hub::start_in(&data);
    hub.ok(&["tool", "task-add", "--tasks", "sweep"]);
    hub.end(Signal::TERM);
    let head = run_in(&data, &["log", "verify"]).1;
    let archive = run_in(&data, &["export"]).1;
    let read = |arguments: &[&str]| {
        set_modes(place.path(), 0o555, 0o444);
        let output = ordinary(&data).args(arguments).output().expect("it starts");
        set_modes(place.path(), 0o755, 0o644);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned(), said)
    };
    let (ok, printed, said) = read(&["log", "verify"]);
    assert_eq!((ok, printed.as_str()), (true, head.as_str()), "{said}");
    let (ok, printed, said) = read(&["export"]);
    assert!(ok && printed == archive, "{said}");

    // Of a hub that was killed, the newest commits are in a file beside the database.
    let mut hub = Hub::start_in(&data);
    hub.ok(&["tool", "task-add", "--tasks", "mop"]);
    hub.end(Signal::KILL);
    let (ok, printed, said) = read(&["export"]);
    assert!(ok && printed.contains("mop"), "{said}");
    // Without its index that file can only be read where one can be made.
    std::fs::remove_file(data.join("log.db-shm")).expect("it is there");
    let (ok, _, said) = read(&["export"]);
    assert!(!ok && said.contains("was not closed, and nothing can be written there"), "{said}");
}

/// Sets the modes of a directory, of all below it, and of the files in them.
fn set_modes(directory: &Path, of_directories: u32, of_files: u32) {
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
            .expect("it is ours");
    };
    for entry in std::fs::read_dir(directory).expect("it can be read").filter_map(Result::ok) {
        match entry.path() {
            path if path.is_dir() => set_modes(&path, of_directories, of_files),
            path => set(&path, of_files),
        }
    }
    set(directory, of_directories);
}

/// The hub may have been started with flags and a PATH that the shell of the doctor does not have.
#[test]
fn the_doctor_asks_the_hub_about_teams_and_reports_each_problem_once() {
    let home = tempfile::tempdir().expect("a directory");
    let (config, api) = (home.path().join("config"), home.path().join("api"));
    for directory in [&config.join("teamster"), &api] {
        std::fs::create_dir_all(directory).expect("it can be made");
    }
    let text = format!("nonsense = 1\n[teams.api]\npath = {api:?}\n");
    std::fs::write(config.join("teamster/teamster.toml"), text).expect("it can be written");
    let data = home.path().join("data");
    let doctor = || {
        let mut doctor = command(&data);
        doctor.arg("doctor").env("HOME", home.path()).env("XDG_CONFIG_HOME", &config);
        let output = doctor.output().expect("it runs");
        let all = [output.stdout, output.stderr];
        all.map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    };
    let without = doctor();
    assert!(without.contains("teams: api: "), "{without}");
    let mut up = command(&data);
    up.env("HOME", home.path()).env("XDG_CONFIG_HOME", &config).current_dir(&api);
    up.args(["up", "--set", "program=scripted"]);
    let _hub = Hub::start_with(up, &data);
    let with = doctor();
    assert!(with.contains("ok        teams: 1 in the running hub"), "{with}");
    for said in [with, without] {
        assert_eq!(said.matches("unknown key `nonsense`").count(), 1, "{said}");
    }
}

#[test]
fn the_doctor_says_what_holds() {
    let hub = Hub::start();
    let verdicts = |data: &Path| -> (bool, Vec<(String, String)>) {
        let (ok, stdout, _) = run_in(data, &["doctor", "--json"]);
        let found: Vec<Value> = serde_json::from_str(&stdout).expect("it is JSON");
        let word = |value: &Value| value.as_str().expect("it is a text").to_owned();
        (ok, found.iter().map(|found| (word(&found["about"]), word(&found["verdict"]))).collect())
    };
    let of = |found: &[(String, String)], about: &str| {
        found.iter().find(|(name, _)| name == about).map(|(_, verdict)| verdict.clone())
    };
    let (ok, found) = verdicts(hub.data());
    assert!(ok, "{found:?}");
    for about in ["hub", "data directory", "one hub per directory", "log"] {
        assert_eq!(of(&found, about).as_deref(), Some("ok"), "{about}");
    }
    let text = hub.ok(&["doctor"]);
    assert!(text.contains(&format!("process {} serves {}", hub.pid(), hub.url)), "{text}");
    assert!(!Path::new("/").join(".teamster-doctor").exists());

    // What is wrong makes it fail, and says what to do.
    let data = hub.data().to_owned();
    std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("it is ours");
    let (ok, found) = verdicts(&data);
    assert_eq!((ok, of(&found, "data directory").as_deref()), (false, Some("wrong")));
    let (ok, _, _) =
        run_in(&tempfile::tempdir().expect("a directory").path().join("new"), &["doctor"]);
    assert!(ok, "a directory that is not there yet is nothing wrong");
}
