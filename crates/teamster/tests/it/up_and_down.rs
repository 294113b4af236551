//! How a hub comes and goes: in the background or not, where it listens, what it leaves behind.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "programs are started as a person would start them, and a broken fixture should panic"
)]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use expect_test::expect;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::hub::{Detached, Hub, TEAMSTER, command, ended, mode, run_in};

fn is_alive(pid: &Value) -> bool {
    let pid = pid.as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a process id");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
    rustix::process::test_kill_process(pid).is_ok()
}

#[test]
fn a_hub_in_the_background_comes_and_goes() {
    let place = Detached::new();
    let (ok, stdout, stderr) = place.run(&["up", "-d"]);
    let file = place.file();
    let (url, pid) = (file["url"].as_str().expect("a URL"), &file["pid"]);
    assert!(ok, "{stderr}");
    assert_eq!(stdout, "", "messages go to stderr");
    assert!(stderr.starts_with(&format!("teamster is up: {url} (pid {pid}, ")), "{stderr}");
    assert!(stderr.contains("connect claude --write"), "{stderr}");
    assert!(is_alive(pid));

    // A second one says where the first is: in the background that is all that was wanted, in the foreground it is not.
    let (ok, stdout, stderr) = place.run(&["up", "--detach"]);
    let running =
        format!("a hub is running for {} already: {url}, pid {pid}", place.data.display());
    assert_eq!((ok, stdout.as_str(), stderr.trim_end()), (true, "", running.as_str()));
    let (ok, stdout, stderr) = place.run(&["up"]);
    let teamster = format!("{TEAMSTER} --data {}", place.data.display());
    let refused =
        format!("error: {running}; see `{teamster} status`, or stop it with `{teamster} down`\n");
    assert_eq!((ok, stdout.as_str(), stderr.as_str()), (false, "", refused.as_str()));
    assert_eq!(place.file(), file, "the first is not disturbed");

    let (ok, stdout, stderr) = place.run(&["down"]);
    assert_eq!(
        (ok, stdout.as_str(), stderr),
        (true, "", format!("the hub (pid {pid}) has stopped\n"))
    );
    assert!(!place.data.join("hub.json").exists());
    let (ok, stdout, stderr) = place.run(&["down"]);
    let none = format!("no hub is running for {}\n", place.data.display());
    assert_eq!((ok, stdout.as_str(), stderr), (true, "", none));

    // What was there is there again, at the same place.
    let (ok, _, stderr) = place.run(&["up", "-d"]);
    assert!(ok, "{stderr}");
    assert_eq!(place.file()["url"], url, "the port is remembered");
    assert_ne!(place.file()["pid"], *pid);
}

#[test]
fn a_hub_that_cannot_start_in_the_background_says_why() {
    let place = Detached::new();
    for arguments in
        [["up", "-d", "--listen", "0.0.0.0:0"], ["up", "-d", "--listen", "192.0.2.1:80"]]
    {
        let (ok, stdout, stderr) = place.run(&arguments);
        assert!(!ok && stdout.is_empty());
        assert!(stderr.starts_with("error: the hub did not start: "), "{stderr}");
        assert!(stderr.contains("is not a loopback address"), "{stderr}");
    }
    let (ok, stdout, stderr) = place.run(&["up", "--dir", "/nowhere/at/all"]);
    assert!(!ok && stdout.is_empty());
    assert!(stderr.starts_with("error: there is no directory /nowhere/at/all"), "{stderr}");
}

#[test]
fn hub_json_is_private_complete_and_gone_after_a_clean_end() {
    // Under `nohup` a hub outlives its terminal, as it is asked to.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let nohup =
        ignored.is_some_and(|mask| mask.trim().ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f']));
    let last = if nohup { None } else { Some(Signal::HUP) };
    for signal in [Signal::TERM, Signal::INT].into_iter().chain(last) {
        let mut hub = Hub::start();
        let path = hub.data().join("hub.json");
        let file: Value = serde_json::from_slice(&std::fs::read(&path).expect("it is there"))
            .expect("it is JSON");
        let expected = json!({
            "url": hub.url, "pid": hub.pid(), "token_file": hub.data().join("operator.token"),
            "version": env!("CARGO_PKG_VERSION"), "socket": hub.data().join("hub.sock"),
        });
        assert_eq!(file, expected);
        assert_eq!(mode(&path), 0o600);
        assert!(hub.url.starts_with("http://127.0.0.1:"), "{}", hub.url);
        let status = hub.end(signal);
        assert!(status.success(), "{signal:?}: {status:?}");
        assert!(!path.exists(), "{signal:?}");
    }
}

#[test]
fn nothing_in_the_data_directory_is_readable_by_others() {
    let hub = Hub::start();
    hub.token("ann", "full");
    hub.ok(&["tool", "task-add", "--tasks", "x"]);
    hub.ok(&["yak", "create", "x"]);
    let mut seen = Vec::new();
    let mut to_visit = vec![hub.data().to_owned()];
    while let Some(path) = to_visit.pop() {
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        seen.push(path.file_name().expect("a name").to_string_lossy().into_owned());
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("it can be read");
            to_visit.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
    for name in ["data", "log.db", "hub.json", "operator.token", "agent.token", "address"] {
        assert!(seen.iter().any(|seen| seen == name), "{name} in {seen:?}");
    }
}

#[test]
fn the_port_is_remembered_and_somebody_elses_is_not_taken() {
    let mut hub = Hub::start();
    let url = hub.url.clone();
    assert!(hub.end(Signal::TERM).success());
    let data = hub.data().to_owned();
    let mut again = Hub::start_in(&data);
    assert_eq!(again.url, url);
    assert!(again.end(Signal::TERM).success());

    let _other = TcpListener::bind(url.trim_start_matches("http://")).expect("the port is free");
    let output = command(&data).arg("up").output().expect("the program starts");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]));
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    let address = url.trim_start_matches("http://");
    let expected = format!(
        "error: cannot listen on {address}; connected agents expect the hub there, so free it, or move with --listen 127.0.0.1:0: "
    );
    assert!(stderr.starts_with(&expected), "{stderr}");
    assert!(!data.join("hub.json").exists());

    let (ok, _, stderr) = run_in(&data, &["up", "-d", "--listen", "127.0.0.1:0"]);
    assert!(ok, "{stderr}");
    let moved = std::fs::read_to_string(data.join("hub.json")).expect("it is there");
    assert!(!moved.contains(&url), "{moved}");
    assert!(run_in(&data, &["down"]).0);
}

#[test]
fn only_loopback_is_listened_on() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8080", "255.255.255.255:1"] {
        let (ok, stdout, stderr) = run_in(directory.path(), &["up", "--listen", address]);
        assert!(!ok && stdout.is_empty(), "{address}: {stdout}");
        assert!(
            stderr.starts_with(&format!("error: {address} is not a loopback address")),
            "{stderr}"
        );
    }
    for address in ["nonsense", "127.0.0.1", "localhost:1", "127.0.0.1:99999"] {
        let (ok, stdout, stderr) = run_in(directory.path(), &["up", "--listen", address]);
        assert!(!ok && stdout.is_empty(), "{address}: {stdout}");
        assert!(stderr.contains("--listen <ADDR:PORT>"), "{stderr}");
    }
}

#[test]
fn what_a_killed_hub_leaves_behind_is_in_nobodys_way() {
    let mut hub = Hub::start();
    hub.end(Signal::KILL);
    let data = hub.data().to_owned();
    assert!(data.join("hub.json").exists());
    let (ok, stdout, _) = run_in(&data, &["status", "--json"]);
    assert!(!ok);
    assert_eq!(
        serde_json::from_str::<Value>(&stdout).expect("JSON"),
        json!({"running": false, "data": data})
    );
    let (ok, _, stderr) = run_in(&data, &["down"]);
    assert!(ok && stderr.starts_with("no hub is running"), "{stderr}");
    Hub::start_in(&data);
}

#[test]
fn workspaces_have_places_of_their_own() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let run = |variables: &[(&str, &Path)], arguments: &[&str]| {
        let mut program = Command::new(TEAMSTER);
        program.env_clear().envs(variables.iter().copied()).args(arguments).stdin(Stdio::null());
        let output = program.output().expect("the program starts");
        String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8")
    };
    let place = |variables: &[(&str, &Path)], arguments: &[&str]| {
        let status = run(variables, &[arguments, &["status", "--json"]].concat());
        let status: Value =
            serde_json::from_str(&status).unwrap_or_else(|error| panic!("{error}: {status}"));
        PathBuf::from(status["data"].as_str().expect("a directory"))
    };
    let (home, state) = (home.path(), home.path().join("state"));
    let default = home.join(".local/state/teamster/default");
    assert_eq!(place(&[("HOME", home)], &[]), default);
    assert_eq!(
        place(&[("HOME", home)], &["--workspace", "garden"]),
        default.with_file_name("garden")
    );
    assert_eq!(
        place(&[("HOME", home), ("XDG_STATE_HOME", &state)], &[]),
        state.join("teamster/default")
    );
    assert_eq!(place(&[("HOME", home), ("TEAMSTER_DATA", &state)], &["--workspace", "x"]), state);
    assert_eq!(
        place(&[("TEAMSTER_DATA", home)], &["--data", "/elsewhere"]),
        Path::new("/elsewhere")
    );
    let long = "x".repeat(65);
    for name in ["a/b", "..", "", "a b", long.as_str(), "ä"] {
        let said = run(&[("HOME", home)], &["--workspace", name, "status"]);
        assert!(
            said.starts_with("error: the workspace ") && said.contains("is not a valid name"),
            "{said}"
        );
    }
    let said = run(&[], &["status"]);
    assert!(said.starts_with("error: HOME is not set"), "{said}");
}

#[test]
fn the_banner_has_what_is_needed_to_connect() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut up = command(directory.path());
    let mut up =
        up.arg("up").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = BufReader::new(up.stdout.take().expect("stdout is piped"));
    let mut banner = String::new();
    while !banner.contains("Stop with") {
        assert_ne!(stdout.read_line(&mut banner).expect("UTF-8"), 0, "{banner}");
    }
    let file =
        std::fs::read(directory.path().join("hub.json")).expect("a ready hub leaves hub.json");
    let url = serde_json::from_slice::<Value>(&file).expect("JSON")["url"]
        .as_str()
        .expect("a URL")
        .to_owned();
    let token = std::fs::read_to_string(directory.path().join("agent.token")).expect("a token");
    let cleaned = banner.replace(&url, "<url>").replace(token.trim(), "<token>");
    let cleaned = cleaned.replace(TEAMSTER, "<teamster>");
    let cleaned = cleaned.replace(&directory.path().display().to_string(), "<data>");
    expect![[r#"
        teamster is up: <url>
        data:           <data>

        Connect an agent (claude, codex, gemini, opencode, goose), each under its own name:
          <teamster> --data <data> connect claude --write

        Or put this into any MCP client's configuration:
          {"mcpServers":{"teamster":{"command":"<teamster>","args":["--data","<data>","mcp"]}}}

        Stop with Ctrl-C.
    "#]]
    .assert_eq(&cleaned);
    let pid = rustix::process::Pid::from_child(&up);
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    let mut stderr = up.stderr.take().expect("stderr is piped");
    assert!(ended(up).success());
    let mut said = String::new();
    stderr.read_to_string(&mut said).expect("UTF-8");
    assert!(!said.contains(token.trim()), "no message has a secret: {said}");
}

#[test]
fn a_hub_that_was_killed_a_moment_ago_is_started_again() {
    let place = Detached::new();
    for _ in 0..10 {
        let (ok, _, stderr) = place.run(&["up", "-d"]);
        assert!(ok && stderr.starts_with("teamster is up: "), "{stderr}");
        let pid = place.file()["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a process");
        rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
    }
}

#[test]
fn a_stranger_on_the_hubs_port_is_told_nothing() {
    let mut hub = Hub::start();
    let address = hub.url.trim_start_matches("http://").to_owned();
    hub.end(Signal::KILL);
    let stranger = std::net::TcpListener::bind(&address).expect("the port is free");
    stranger.set_nonblocking(true).expect("a socket");
    let data = hub.data().to_owned();
    let (ok, stdout, _) = run_in(&data, &["status"]);
    assert!(!ok && stdout.starts_with("no hub is running"), "{stdout}");
    assert!(run_in(&data, &["down"]).2.starts_with("no hub is running"));
    assert!(stranger.accept().is_err(), "somebody connected to the stranger");
}

#[test]
fn a_hub_file_that_is_damaged_is_in_nobodys_way() {
    let mut hub = Hub::start();
    hub.end(Signal::KILL);
    let data = hub.data().to_owned();
    std::fs::write(data.join("hub.json"), "nonsense").expect("it can be written");
    let mut again = Hub::start_in(&data);
    std::fs::remove_file(data.join("hub.json")).expect("it is there");
    let (ok, _, stderr) = run_in(&data, &["status"]);
    assert!(!ok && stderr.contains("does not say where it listens"), "{stderr}");
    assert!(again.end(Signal::TERM).success());
}

#[test]
fn messages_that_cannot_be_written_do_not_disturb_the_hub() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut up = command(directory.path());
    let mut up =
        up.arg("up").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // Nobody will ever read what it says.
    drop(up.stderr.take());
    let mut line = String::new();
    BufReader::new(up.stdout.take().expect("stdout is piped")).read_line(&mut line).expect("UTF-8");
    let (ok, _, stderr) =
        run_in(directory.path(), &["tool", "task-update", "--id", "TAS-1", "--status", "blocked"]);
    assert!(!ok && stderr.starts_with("error: task not found"), "{stderr}");
    let pid = rustix::process::Pid::from_child(&up);
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    assert!(ended(up).success());
    assert!(!directory.path().join("hub.json").exists());
}

/// A person who waits for ever learns nothing. What each of them waited for before never came.
#[test]
fn a_hub_that_cannot_be_talked_to_is_told_of() {
    let hub = Hub::start();
    let refused = |why: &str, hint: &str| {
        let stderr = hub.fails(&["status"]);
        let (says, hints) = stderr.split_once("\nhint: ").expect("it says what to do");
        let begins = format!("error: cannot talk to the hub (process {}): {why}", hub.pid());
        assert!(says.starts_with(&begins) && hints.starts_with(hint), "{stderr}");
    };
    let token = hub.data().join("operator.token");
    let secret = std::fs::read(&token).expect("the hub wrote it");
    let kill = format!("end the hub (`kill {}`) and start it again", hub.pid());
    std::fs::write(&token, "wrong\n").expect("it is ours");
    refused(&format!("it does not know the token in {}", token.display()), &kill);
    std::fs::remove_file(&token).expect("it is ours");
    refused(&format!("cannot read the token in {}: No such file", token.display()), &kill);
    std::fs::write(&token, secret).expect("it is ours");

    let pid = i32::try_from(hub.pid()).ok().and_then(rustix::process::Pid::from_raw);
    let signal = |signal| {
        rustix::process::kill_process(pid.expect("a process id"), signal).expect("it runs");
    };
    signal(Signal::STOP);
    refused("it did not answer within 4 s", "if it is suspended, continue it with `kill -CONT ");
    signal(Signal::CONT);
    hub.ok(&["status"]);
}

/// The team of a directory, and what is said with it, outlives a hub that is started elsewhere.
#[test]
fn the_directory_of_an_earlier_hub_stays_a_team() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let data = home.path().join("data");
    let up = |directory: &str| {
        let directory = home.path().join(directory);
        std::fs::create_dir_all(&directory).expect("it can be made");
        let mut up = command(&data);
        up.current_dir(directory).args(["up", "--set", "program=scripted"]);
        Hub::start_with(up, &data)
    };
    let names = |hub: &Hub| -> Vec<String> {
        let teams: Value = serde_json::from_str(&hub.ok(&["teams", "--json"])).expect("JSON");
        let teams = teams["teams"].as_array().expect("it is a list").iter();
        teams.map(|team| team["name"].as_str().expect("it has a name").to_owned()).collect()
    };
    let mut hub = up("one/app");
    hub.ok(&["tell", "app", "! say hello"]);
    hub.end(Signal::TERM);
    // Another directory of the same name is another team.
    let mut hub = up("two/app");
    assert_eq!(names(&hub), ["app", "app-2"]);
    assert_eq!(hub.ok(&["tell", "app", "! say again"]), "again");
    hub.end(Signal::TERM);
    let mut hub = up("three");
    assert_eq!(names(&hub), ["app", "app-2", "three"]);
    let remove = |name: &str| {
        let mut remove = command(&data);
        remove.env("HOME", home.path()).args(["team", "remove", name]);
        let output = remove.output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // Messages, conversations and tokens belong to a name: it is not given to another directory by the way.
    let add = |name: &str, directory: &str| {
        let mut add = command(&data);
        add.env("HOME", home.path()).args(["team", "add", name, directory]);
        let output = add.current_dir(home.path()).output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (ok, says) = add("app", "three");
    assert!(!ok && says.contains("the name app belongs to the team of "), "{says}");
    assert!(says.contains("one/app, in which a hub was started"), "{says}");
    let (ok, says) = remove("three");
    assert!(!ok && says.contains("start the hub in another"), "{says}");
    let (ok, says) = remove("app-2");
    assert!(ok, "{says}");
    assert_eq!(names(&hub), ["app", "three"]);
    hub.end(Signal::TERM);
    // One that is gone is none any more.
    std::fs::remove_dir_all(home.path().join("one")).expect("it can be removed");
    assert_eq!(names(&up("three")), ["three"]);
}
