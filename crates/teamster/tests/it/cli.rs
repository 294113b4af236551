//! The command line as people and programs meet it: what it prints where.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "programs are started as a person would start them, and a broken fixture should panic"
)]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;

use expect_test::{expect, expect_file};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hub::{DEADLINE, Detached, Hub, TEAMSTER, command, ended, feed, run_in};
use crate::normal::{Yaks, mask};

/// Runs commands one after another and writes down what each prints where.
struct Shell<'a> {
    hub: &'a Hub,
    yaks: Yaks,
    written: String,
}

impl<'a> Shell<'a> {
    fn new(hub: &'a Hub) -> Self {
        Self { hub, yaks: Yaks::default(), written: String::new() }
    }

    /// Runs a line such as `token list`; what is in single quotes is one word.
    fn run(&mut self, line: &str) {
        let output = self.command(line).output().expect("the program starts");
        self.write(line, &output);
    }

    fn feed(&mut self, line: &str, input: &str) {
        let output = feed(self.command(line), input);
        self.write(line, &output);
    }

    fn command(&self, line: &str) -> Command {
        let line = self.yaks.ids(line);
        let quoted = line.split('\'').enumerate();
        let words = quoted.flat_map(|(i, part)| match i % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        let mut command = self.hub.command();
        command.args(words);
        command
    }

    fn write(&mut self, line: &str, output: &Output) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it prints UTF-8");
        let mut written = format!("$ teamster {line}\n{}", text(&output.stdout));
        for line in text(&output.stderr).lines() {
            let _ = writeln!(written, "stderr: {line}");
        }
        if !output.status.success() {
            let _ =
                writeln!(written, "exit code {}", output.status.code().expect("it was not killed"));
        }
        let written = cleaned(&written, self.hub);
        self.written += &self.yaks.names(&written);
    }
}

/// Replaces what differs from run to run.
fn cleaned(text: &str, hub: &Hub) -> String {
    let data = hub.data().display().to_string();
    let text = text.replace(&data, "<data>").replace(&hub.url, "<url>");
    let text = text.replace(&format!("pid {}", hub.pid()), "pid <pid>");
    let text = text.replace(&format!("\"pid\":{}", hub.pid()), "\"pid\":<pid>");
    let text = text.replace(env!("CARGO_PKG_VERSION"), "<version>");
    let text = mask(&text, &"f".repeat(64), "<hash>");
    let text = mask(&text, "0000-00-00 00:00:00", "<time>");
    let text = mask(&text, "0000-00-00T00:00:00Z", "<time>");
    let text = mask(&text, &"0".repeat(13), "<ms>");
    let text = ["namespaces", "subreaper", "group"].into_iter().fold(text, |text, isolation| {
        text.replace(&format!("\"isolation\":\"{isolation}\""), "\"isolation\":\"<isolation>\"")
    });
    // Not every machine offers the same.
    let text: String = text
        .split_inclusive('\n')
        .map(|line| if line.starts_with("isolation ") { "isolation <isolation>\n" } else { line })
        .collect();
    ["p50 ", "p99 ", "\"p50_ms\":", "\"p99_ms\":"].into_iter().fold(text, without_number)
}

/// Takes out the numbers that follow a word.
fn without_number(text: String, word: &str) -> String {
    let mut parts = text.split(word);
    let mut cleaned = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        cleaned.extend([word, "<n>", rest]);
    }
    cleaned
}

#[test]
fn the_help_of_every_verb() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut text = String::new();
    let mut to_visit = vec![(Vec::new(), teamster::cli::command())];
    while let Some((path, verb)) = to_visit.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let mut help = command(directory.path());
        help.env_remove("TEAMSTER_DATA").env("HOME", directory.path()).args(&words);
        let output = help.output().expect("the program starts");
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{words:?}: {output:?}");
        let help = String::from_utf8(output.stdout).expect("help is UTF-8");
        let _ = writeln!(text, "$ teamster {}", words.join(" "));
        // clap puts a space after an argument that needs no explanation.
        for line in help.lines() {
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.push('\n');
        let verbs: Vec<_> = verb.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
        for verb in verbs.into_iter().rev() {
            let path = path.iter().cloned().chain([verb.get_name().to_owned()]).collect();
            to_visit.push((path, verb.clone()));
        }
    }
    expect_file!["../cli/help.txt"].assert_eq(&text);
    let long = text.lines().find(|line| line.chars().count() > 100);
    assert_eq!(long, None, "a line is too long");
}

#[test]
fn the_help_of_a_tool() {
    // No hub is needed to read about the tools.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = command(directory.path()).args(["tool", "task-add", "--help"]).output();
    let output = output.expect("the program starts");
    expect![[r#"
        Add tasks to the shared list, all or none. A task that is there already is refused with its id.

        Usage: teamster tool task-add [OPTIONS]

        Options:
              --json <JSON>         All arguments as one JSON object; `-` makes a call of each line of stdin
              --key <KEY>           A call repeated with the same key gets its first answer
              --run <RUN>           The run it is about [default: default]
              --tasks <ARRAY>       A JSON object with content, status, priority, or just the content;
                                    repeat the flag for more
              --content <STRING>    The content of one entry, instead of --tasks
              --status <STRING>     Default remaining. One of: remaining, in_progress, completed, blocked,
                                    cancelled
              --priority <INTEGER>  0 critical, 1 high, 2 medium (default), 3 low, 4 backlog.
          -h, --help                Print help

        Workspace:
              --workspace <NAME>  The workspace: one log, with its own hub [env: TEAMSTER_WORKSPACE]
                                  [default: default]
              --data <DIR>        The directory that holds the workspace's data, instead of the user's state
                                  directory [env: TEAMSTER_DATA]
    "#]].assert_eq(&String::from_utf8(output.stdout).expect("help is UTF-8"));
    for line in ["tool", "tool help", "tool -h"] {
        let listed = command(directory.path()).args(line.split(' ')).output().expect("it starts");
        assert!(listed.status.success() && listed.stderr.is_empty(), "{line}: {listed:?}");
        assert!(listed.stdout.starts_with(b"session:\n  task-add "), "{line}: {listed:?}");
    }
}

#[test]
fn without_a_hub_every_verb_says_how_to_start_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = directory.path().display();
    let hint = format!(
        "error: no hub is running for {place}; start it with `{TEAMSTER} --data {place} up -d`\n"
    );
    for line in [
        "token list",
        "token create ann",
        "token revoke ann",
        "token grant ann --grant full",
        "yak list",
        "yak create x",
        "yak shorn x-0000",
        "tool task-list",
        "tool task-add --tasks x",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let (ok, stdout, stderr) = run_in(directory.path(), &words);
        assert_eq!((ok, stdout.as_str(), stderr.as_str()), (false, "", hint.as_str()), "{line}");
    }
    let (ok, stdout, stderr) = run_in(directory.path(), &["status"]);
    assert!(!ok);
    assert_eq!(stdout, format!("no hub is running for {}\n", directory.path().display()));
    assert_eq!(stderr, format!("start it with `{TEAMSTER} --data {place} up -d`\n"));
    let (ok, stdout, stderr) = run_in(directory.path(), &["log", "--follow"]);
    assert!(!ok && stdout.is_empty() && stderr.contains("nothing will happen"), "{stderr}");
    for arguments in [&["log"][..], &["log", "verify"]] {
        let (ok, stdout, stderr) = run_in(directory.path(), arguments);
        assert!(!ok && stdout.is_empty(), "{arguments:?}: {stdout}");
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
    let entries = std::fs::read_dir(directory.path()).expect("it can be read").count();
    assert_eq!(entries, 0, "nothing was made");
}

#[test]
fn tokens_on_the_command_line() {
    let hub = Hub::start();
    let mut shell = Shell::new(&hub);
    for line in [
        "token list",
        "token create ann",
        "token create ann",
        "token create ann --replace --grant read-only,main",
        "token create --name bob --grant session:task-list --run alpha --team crew --for 8h",
        "token create",
        "token create cat --json",
        "token list",
        "token grant bob --grant full",
        "token grant bob",
        "token grant TOK-4 --grant read-only",
        "token grant nobody --grant full",
        "token revoke ann",
        "token revoke ann",
        "token revoke operator",
        "token revoke a/b",
        "token create 'a b'",
        "token create hub",
        "token create dan --grant everything",
        "token create dan --grant session:everything",
        "token create dan --run 'a b'",
        "token create dan --for soon",
        "token create dan --for 0s",
        "token create dan --for 99999999999d",
        "token create dan --for ü",
        "token list --json",
    ] {
        shell.run(line);
    }
    expect_file!["../cli/token.txt"].assert_eq(&shell.written);
}

#[test]
fn a_revoked_workers_items_return_to_the_list() {
    let hub = Hub::start();
    hub.token("ann", "full");
    let secret = hub.ok(&["token", "create", "ann", "--replace"]);
    hub.ok(&["tool", "task-add", "--tasks", "sweep"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let claimed = runtime.expect("a runtime").block_on(async {
        hub.modern(&secret, "/mcp").await.call("task-next", json!({"claim": true})).await
    });
    assert!(!claimed.1, "{claimed:?}");
    let output = hub.run(&["token", "revoke", "ann"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "ann is revoked; 1 item(s) returned to the list\n"
    );
    assert_eq!(hub.ok(&["tool", "task-list"]), "Remaining:\n  [TAS-1] sweep");
}

#[test]
fn tools_on_the_command_line() {
    let hub = Hub::start();
    let mut shell = Shell::new(&hub);
    for line in [
        "tool task-add --tasks sweep --tasks '{\"content\":\"mop\",\"priority\":0}'",
        "tool task-add --tasks '[{\"content\":\"dust\"},{\"content\":\"wash\"}]'",
        "tool task-add --tasks sweep",
        "tool task-add --json '{\"tasks\":[{\"content\":\"iron\"}]}' --key k1",
        "tool task-add --json '{\"tasks\":[{\"content\":\"iron\"}]}' --key k1",
        "tool task-add --json '{\"tasks\":[{\"content\":\"other\"}]}' --key k1",
        "tool task-add --run alpha --tasks 'in alpha'",
        "tool task-list --run alpha",
        "tool task-list --run ../etc",
        "tool task-list",
        "tool task-next --claim",
        "tool task-next --claim false",
        "tool task-add --content scrub --priority 3",
        "tool task-add --content polish --status soon",
        "tool task-add --priority 1",
        "tool task-batch-add --tasks '[{\"content\":\"rinse\"},{\"content\":\"hang\",\"status\":\"blocked\"}]'",
        "tool task-batch-add --content beat",
        "tool task-status --id TAS-6 --status completed",
        "tool task-status --id TAS-6",
        "tool task-priority --id TAS-7 --priority 0",
        "tool task-depends --id TAS-7 --depends-on TAS-3",
        "tool task-depends --id TAS-7",
        "tool note-add --content 'dry it first' --type tip",
        "tool note-add --content 'of no type'",
        "tool",
        "tool task-next --claim maybe",
        "tool task-update --id TAS-1 --priority 1 --depends-on TAS-2",
        "tool task-update --id TAS-1 --priority -1",
        "tool task-update --id TAS-1 --priority high",
        "tool task-update --id TAS-1 --depends_on TAS-3",
        "tool task-update --priority 1",
        "tool note-add --notes '{\"content\":\"x\",\"type\":\"tip\"}'",
        "tool note-add --notes x",
        "tool note-list --type tip",
        "tool session-complete",
        "tool task-add",
        "tool task-add --json '{'",
        "tool task-add --json '[]'",
        "tool task-add --surprise",
        "tool list_yaks --status shearing",
        "tool no-such-tool",
        "tool ''",
    ] {
        shell.run(line);
    }
    let lines = "{\"tasks\":[{\"content\":\"one\"}]}\n\n{\"tasks\":[{\"content\":\"ONE\"}]}\nhello\n{\"tasks\":[{\"content\":\"two\"}]}\n";
    shell.feed("tool task-add --json -", lines);
    expect_file!["../cli/tool.txt"].assert_eq(&shell.written);
}

#[test]
fn yaks_on_the_command_line() {
    let hub = Hub::start();
    let mut shell = Shell::new(&hub);
    for line in [
        "yak list",
        "yak list --json",
        "yak next",
        "yak create 'the door squeaks' --type bug --priority 1 --label door --label house",
        "yak create 'paint the house' -t feature -p 3 -d 'All of it.' -l house",
        "yak create 'buy paint' --parent yak-2",
        "yak create 'The Door Squeaks'",
        "yak create x --type chore",
        "yak create x --priority 7",
        "yak create x --parent nobody-0000",
        "yak list",
        "yak list --label house",
        "yak list --label none",
        "yak dep yak-2 yak-2.1",
        "yak dep yak-2.1 yak-2",
        "yak list --status tangled",
        "yak next",
        "yak search PAINT",
        "yak search 'all of'",
        "yak shave yak-1",
        "yak shave yak-1",
        "yak list --status shearing",
        "yak shorn yak-2.1 --commit abc1234",
        "yak regrow yak-1",
        "yak update yak-1 --title 'the door is silent' -t task",
        "yak update yak-1",
        "yak label yak-1 quiet --remove house",
        "yak label yak-1 ''",
        "yak label ../../etc x",
        "yak dep yak-2 yak-2.1 --remove",
        "yak show yak-2.1",
        "yak show nobody-0000",
        "yak list --status all",
        "yak list --status all --json",
        "yak list --status done",
        "yak next --json",
        "yak search --json squeak",
    ] {
        shell.run(line);
    }
    expect_file!["../cli/yak.txt"].assert_eq(&shell.written);
}

#[test]
fn how_things_stand_and_what_happened() {
    let hub = Hub::start();
    let mut shell = Shell::new(&hub);
    // It waits until the hub knows how agents are isolated.
    hub.ok(&["doctor"]);
    shell.run("status");
    for line in [
        &["tool", "task-add", "--tasks", "sweep", "--tasks", "mop"][..],
        &["tool", "task-next", "--claim"],
        &["tool", "task-update", "--id", "TAS-2", "--status", "completed"],
        &["tool", "note-add", "--notes", r#"{"content":"the broom is in the shed","type":"tip"}"#],
        &["tool", "iteration-summary", "--summary", "swept\nand mopped"],
        &["tool", "task-add", "--run", "alpha", "--tasks", "in alpha"],
        &["tool", "task-update", "--run", "alpha", "--id", "TAS-1", "--status", "blocked"],
        &["tool", "session-complete", "--run", "alpha"],
        &["yak", "create", "the door squeaks"],
        &["token", "create", "ann", "--grant", "read-only"],
    ] {
        hub.ok(line);
    }
    for line in ["status", "status --json", "log", "log --json"] {
        shell.run(line);
    }
    expect_file!["../cli/status_and_log.txt"].assert_eq(&shell.written);
}

#[test]
fn the_log_is_shown_without_a_hub_as_with_one() {
    let mut hub = Hub::start();
    for i in 0..30 {
        hub.ok(&["tool", "task-add", "--tasks", &format!("task {i}")]);
    }
    let (shown, as_json) = (hub.ok(&["log"]), hub.ok(&["log", "--json"]));
    assert!(hub.end(Signal::TERM).success());
    let before = |text: &str, stored: &str| {
        // The hub's own end may be the only thing that is new.
        let new: Vec<String> =
            stored.lines().skip(text.lines().count()).map(str::to_owned).collect();
        assert!(stored.starts_with(text), "{stored}");
        assert!(new.len() <= 1, "{new:?}");
    };
    before(&shown, &hub.ok(&["log"]));
    before(&as_json, &hub.ok(&["log", "--json"]));
}

#[test]
fn a_followed_log_tells_what_happens_later() {
    let mut hub = Hub::start();
    hub.ok(&["tool", "task-add", "--tasks", "before"]);
    for json in [false, true] {
        let mut follow = hub.command();
        follow.args(["log", "--follow"]).args(json.then_some("--json"));
        let mut follow =
            follow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let stdout = BufReader::new(follow.stdout.take().expect("stdout is piped"));
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || stdout.lines().try_for_each(|line| tell.send(line)));
        let until = |text: &str| loop {
            let line = told.recv_timeout(DEADLINE).expect("a line in time").expect("UTF-8");
            if line.contains(text) {
                break;
            }
        };
        until("added (P2): before");
        for i in 0..3 {
            hub.ok(&["tool", "task-add", "--tasks", &format!("later {json} {i}")]);
            until(&format!("added (P2): later {json} {i}"));
        }
        if json {
            // When the hub ends, so does the log, and it says so.
            assert!(hub.end(Signal::TERM).success());
            let mut stderr = follow.stderr.take().expect("stderr is piped");
            assert!(ended(follow).success());
            let mut said = String::new();
            stderr.read_to_string(&mut said).expect("UTF-8");
            assert_eq!(said.trim(), "the hub has stopped");
        } else {
            follow.kill().expect("it runs");
            follow.wait().expect("it can be waited for");
        }
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let hub = Hub::start();
    for i in 0..3 {
        let tasks = json!(
            (0..500).map(|n| json!({"content": format!("task {i} {n}")})).collect::<Vec<_>>()
        );
        hub.ok(&["tool", "task-add", "--tasks", &tasks.to_string()]);
    }
    let mut log = hub.command();
    let log = log.args(["log", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut log = log.expect("it starts");
    let mut stdout = BufReader::new(log.stdout.take().expect("stdout is piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    drop(stdout);
    let mut stderr = log.stderr.take().expect("stderr is piped");
    assert!(ended(log).success());
    let mut said = String::new();
    stderr.read_to_string(&mut said).expect("UTF-8");
    assert_eq!(said, "");
}

#[test]
fn verify_finds_a_flipped_byte() {
    let mut hub = Hub::start();
    for what in ["before it", "flip me", "after it"] {
        hub.ok(&["tool", "task-add", "--tasks", what]);
    }
    let head = hub.ok(&["log", "verify"]);
    let (number, hash) = head.split_once(':').expect("NUMBER:HASH");
    assert!(number.parse::<u64>().is_ok_and(|number| number >= 3) && hash.len() == 64, "{head}");
    let as_json: Value = serde_json::from_str(&hub.ok(&["log", "verify", "--json"])).expect("JSON");
    assert_eq!(
        as_json,
        json!({
            "commits": number.parse::<u64>().expect("a number"), "head": head, "broken": null, "damage": null,
        })
    );
    hub.ok(&["tool", "task-add", "--tasks", "and one more"]);
    assert_ne!(hub.ok(&["log", "verify", "--against", &head]), head);
    let other = format!("{number}:{}", "0".repeat(64));
    assert!(hub.fails(&["log", "verify", "--against", &other]).starts_with("error: "));
    let ahead = format!("1000000:{hash}");
    assert!(hub.fails(&["log", "verify", "--against", &ahead]).starts_with("error: "));
    for wrong in ["", "7", "7:abc", "x:y", "1:2:3"] {
        let said = hub.fails(&["log", "verify", "--against", wrong]);
        assert!(said.contains("is not a head"), "{said}");
    }

    assert!(hub.end(Signal::TERM).success());
    let path = hub.data().join("log.db");
    // All of it may still be in the write-ahead log.
    let database = rusqlite::Connection::open(&path).expect("the log can be opened");
    let moved =
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    assert_eq!(moved, Ok(0));
    drop(database);
    let mut bytes = std::fs::read(&path).expect("the log is there");
    let flip = b"flip me";
    let at: Vec<usize> =
        (0..bytes.len() - flip.len()).filter(|at| bytes[*at..].starts_with(flip)).collect();
    assert!(!at.is_empty(), "the content is in the log");
    for at in at {
        bytes[at] ^= 1;
    }
    std::fs::write(&path, bytes).expect("the log can be written");

    let output = hub.run(&["log", "verify"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.starts_with("error: commit ") && said.contains(" is broken: "), "{said}");
    let output = hub.run(&["log", "verify", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let commit = report["broken"]["commit"].as_u64().expect("the broken commit");
    assert_eq!(report["commits"], commit - 1, "{report}");
}

#[test]
fn a_shorn_yak_records_the_commit() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let home = directory.path().to_owned();
    // Two repositories: where the hub was started, and where the person is.
    let [hubs, persons, none] = ["hubs", "persons", "none"].map(|name| directory.path().join(name));
    let search_path = std::env::var_os("PATH").expect("a PATH");
    let git = |place: &Path, arguments: &[&str]| {
        let mut git = Command::new("git");
        git.env_clear().env("PATH", &search_path).env("HOME", &home).current_dir(place);
        git.args(["-c", "user.name=Ann", "-c", "user.email=ann@example.net"]).args(arguments);
        let output = git.output().expect("git is installed");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    };
    for (place, message) in [(&hubs, "the hub's"), (&persons, "the person's")] {
        std::fs::create_dir(place).expect("it can be made");
        git(place, &["init", "--quiet"]);
        git(place, &["commit", "--quiet", "--allow-empty", "--message", message]);
    }
    std::fs::create_dir(&none).expect("it can be made");
    let place = Detached::within(directory);
    let run = |at: &Path, arguments: &[&str]| {
        let mut program = command(&place.data);
        program.env("PATH", &search_path).current_dir(at).args(arguments);
        let output = program.output().expect("the program starts");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    };
    run(&none, &["up", "-d", "--dir", hubs.to_str().expect("UTF-8")]);
    let shorn = |at: &Path, title: &str, how: &[&str]| {
        let created = run(at, &["yak", "create", title]);
        let id = created.strip_prefix("Yak created: ").and_then(|rest| rest.split(' ').next());
        let id = id.unwrap_or_else(|| panic!("no id in {created:?}"));
        assert!(id.starts_with("hubs-"), "ids are called after the project: {id}");
        run(at, &[how, &[id]].concat());
        let shown = run(at, &["yak", "show", id]);
        shown.lines().find_map(|line| line.strip_prefix("Commit: ")).map(str::to_owned)
    };
    let head = |place: &Path| Some(git(place, &["rev-parse", "--short", "HEAD"]));
    assert_eq!(shorn(&persons, "by a person", &["yak", "shorn"]), head(&persons));
    assert_eq!(shorn(&persons, "by a tool", &["tool", "shorn_yak", "--yak_id"]), head(&hubs));
    assert_eq!(shorn(&none, "outside of a repository", &["yak", "shorn"]), head(&hubs));
    assert_ne!(head(&persons), head(&hubs));
    git(&hubs, &["commit", "--quiet", "--allow-empty", "--message", "another"]);
    assert_eq!(
        shorn(&none, "after another commit", &["tool", "shorn_yak", "--yak_id"]),
        head(&hubs)
    );
}
