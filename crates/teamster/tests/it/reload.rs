//! Configuration that is read again while the hub runs, and the commands that change it.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use expect_test::expect;
use serde_json::{Value, json};

use crate::agents::{World, outcome};
use crate::terminal::{Terminal, has_tmux};
use crate::unattended::{question, until_said};

/// A hub with one team, and directories for more.
struct Place(World);

impl Place {
    fn start(more: &str) -> Self {
        let world =
            World::start("permissions.otherwise = \"ask\"\n[teams.api]\npath = \"~/api\"\n");
        let place = Self(world);
        for name in ["api", "web", "ops"] {
            std::fs::create_dir(place.path(name)).expect("it can be made");
        }
        if !more.is_empty() {
            place.write(&format!("{}{more}", place.read()));
            place.0.hub.run(&["config", "reload"]);
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.home.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("config/teamster/teamster.toml")
    }

    fn read(&self) -> String {
        std::fs::read_to_string(self.file()).expect("it can be read")
    }

    /// Replaces the file as editors do.
    fn write(&self, text: &str) {
        let new = self.path("config/teamster/.teamster.toml.new");
        std::fs::write(&new, text).expect("it can be written");
        std::fs::rename(new, self.file()).expect("it can be renamed");
    }

    /// Allows the agent to go on that asks.
    fn answer(&self) {
        let asked = question(&self.0);
        self.0.hub.ok(&["answer", asked["id"].as_str().expect("it has an id"), "allow"]);
    }

    /// Returns what the log says of readings, without what is different each time.
    fn told(&self) -> String {
        let log = self.0.hub.ok(&["log"]);
        let told = log.lines().filter_map(|line| Some(&line[line.find("configuration ")?..]));
        told.map(|line| self.without_place(line) + "\n").collect()
    }

    fn without_place(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.home.path().display()), "")
    }

    /// Runs a command with the user's configuration, and returns whether it succeeded, and what it printed and said.
    fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        let mut command = crate::hub::command(&self.path("data"));
        command.current_dir(self.0.home.path());
        command.env("HOME", self.0.home.path()).env("XDG_CONFIG_HOME", self.path("config"));
        let output = command.args(arguments).output().expect("the program starts");
        let text = |bytes: &[u8]| self.without_place(String::from_utf8_lossy(bytes).trim_end());
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }
}

#[test]
fn a_team_that_is_written_down_can_be_told_something_at_once() {
    let place = Place::start("");
    let hub = &place.0.hub;
    let unknown = hub.fails(&["tell", "web", "x"]);
    assert!(unknown.contains("Unknown team: web"), "{unknown}");
    assert!(unknown.contains("`teamster team add web PATH`"), "{unknown}");
    assert!(hub.fails(&["wake", "web"]).contains("`teamster team add web PATH`"));
    place.write(&format!("{}[teams.web]\npath = \"~/web\"\n", place.read()));
    until_said(&place.0, "configuration read again: teams.web added");
    assert_eq!(hub.ok(&["tell", "web", "! say here"]), "here");
    // A file that is new, in a directory that is new.
    let roles = place.path(".teamster/roles");
    std::fs::create_dir_all(&roles).expect("it can be made");
    std::fs::write(roles.join("cook.md"), "---\nprogram: scripted\n---\n! say cooked\n")
        .expect("it can be written");
    until_said(&place.0, "configuration read again: roles.cook added");
    assert_eq!(outcome(&place.0.ended(&place.0.draft("cook", "now"))).2, "cooked");
    // Nothing is said of what changes nothing.
    place.write(&format!("# more\n{}", place.read()));
    assert_eq!(
        hub.ok(&["config", "reload"]),
        "configuration read again: nothing has changed, and nothing is wrong"
    );
    std::fs::write(roles.join("cook.md"), "---\nprogram: scripted\n---\n! say baked\n")
        .expect("it can be written");
    until_said(&place.0, "configuration read again: roles.cook changed (prompt)");
    assert_eq!(outcome(&place.0.ended(&place.0.draft("cook", "now"))).2, "baked");
    std::fs::remove_dir_all(&roles).expect("it can be removed");
    until_said(&place.0, "configuration read again: roles.cook removed");
    expect![[r#"
        configuration read again: teams.web added
        configuration read again: roles.cook added
        configuration read again: roles.cook changed (prompt)
        configuration read again: roles.cook removed
    "#]]
    .assert_eq(&place.told());
}

#[test]
fn a_broken_file_changes_nothing() {
    let place = Place::start("");
    let sound = place.read();
    place.write("[teams.api\npath = ");
    until_said(&place.0, "configuration not read again");
    assert_eq!(place.0.hub.ok(&["tell", "api", "! say still here"]), "still here");
    let (worked, printed, _) = place.run(&["config", "reload"]);
    assert!(!worked && printed.starts_with("configuration not read again"), "{printed}");
    // What is sound of a file that has problems is used.
    let secret = "[programs.mine]\ncommand = \"mine\"\nset = { KEY = 17, OTHER = \"hush\" }\n";
    place.write(&format!(
        "{sound}[teams.web]\npath = \"web\"\n[pool]\nlive = 0\nrunning = 3\n[telemetry]\notlp = \"http://127.0.0.1:9\"\n{secret}"
    ));
    until_said(&place.0, "pool.running changed");
    place.write(&sound);
    until_said(&place.0, "programs.mine removed");
    let told = place.told();
    assert!(!told.contains("17") && !told.contains("hush"), "{told}");
    expect![[r#"
        configuration not read again, all stays as it was; 1 problem: config/teamster/teamster.toml:1: this is not TOML: unclosed table, expected `]`; what the file says now is not used
        configuration read again: pool.running changed, programs.mine added, teams.web added, telemetry.otlp added (from the next start on); 3 problems: config/teamster/teamster.toml:8: pool.live: invalid value: integer `0`, expected a whole number from 1 to 10000; config/teamster/teamster.toml:14: programs.mine.set.KEY: is not used; teams.web is not usable: its path is not absolute; write it in full, or as ~/…
        configuration read again: pool.running changed, programs.mine removed, teams.web removed, telemetry.otlp removed (from the next start on)
    "#]].assert_eq(&told);
    let reading = place.0.hub.ok(&["config", "reload", "--json"]);
    let reading: Value = serde_json::from_str(&reading).expect("it is JSON");
    assert_eq!((&reading["used"], &reading["changes"]), (&json!(true), &json!([])));
    // One that is empty, and stays so, says nothing.
    std::fs::write(place.file(), "").expect("it can be written");
    until_said(&place.0, "program removed, teams.api removed");
}

#[test]
fn more_room_is_used_at_once() {
    let place = Place::start("[pool]\nrunning = 1\n");
    let first = place.0.draft("coder", "! hang");
    until_said(&place.0, &format!("agent {first} begins a turn"));
    let second = place.0.draft("coder", "! say done");
    assert_eq!(place.0.agent(&second)["phase"], "queued");
    place.write(&place.read().replace("running = 1", "running = 2"));
    assert_eq!(outcome(&place.0.ended(&second)).2, "done");
}

#[test]
fn an_agent_that_rests_comes_back_with_what_is_new() {
    let place = Place::start("");
    let hub = &place.0.hub;
    assert_eq!(hub.ok(&["tell", "api", "! say one"]), "one");
    // How a team is shown does not concern its agent.
    place.write(&format!("{}description = \"the API\"\n", place.read()));
    until_said(&place.0, "teams.api changed (description)");
    assert_eq!(hub.ok(&["tell", "api", "! say two"]), "two");
    assert_eq!(place.0.agent("api-1")["incarnation"], 1);
    place.write(&format!("{}path = \"~/web\"\n", place.read().replace("path = \"~/api\"\n", "")));
    until_said(&place.0, "agent api-1 sleeps: its team has changed");
    assert_eq!(hub.ok(&["tell", "api", "! write here yes\n! say three"]), "three");
    assert_eq!(place.0.agent("api-1")["incarnation"], 2);
    assert!(place.path("web/here").exists());
    // One that works finishes its turn, and the next message is answered by what is new.
    let slow = hub.ok(&["tell", "api", "! ask to go on\n! say four", "--no-wait"]);
    let next = hub.ok(&["tell", "api", "! write here yes\n! say five", "--no-wait"]);
    question(&place.0);
    place.write(&place.read().replace("~/web", "~/ops"));
    hub.ok(&["config", "reload"]);
    place.answer();
    until_said(&place.0, &format!("{next} answered: five"));
    let log = hub.ok(&["log"]);
    assert!(log.contains(&format!("{slow} answered: ")), "{log}");
    assert!(place.path("ops/here").exists());
    assert_eq!(place.0.agent("api-1")["incarnation"], 3);
}

#[test]
fn what_a_removed_team_was_told_has_a_definite_end() {
    let place = Place::start("");
    let hub = &place.0.hub;
    let slow = hub.ok(&["tell", "api", "! ask to go on\n! say done", "--no-wait"]);
    let queued = hub.ok(&["tell", "api", "! say never", "--no-wait"]);
    question(&place.0);
    let with = place.read();
    let (worked, printed, said) = place.run(&["team", "remove", "api"]);
    assert!(worked, "{said}");
    assert_eq!(printed, "configuration read again: teams.api removed");
    until_said(&place.0, &format!("{queued} has no answer: the team api was removed"));
    assert!(hub.fails(&["tell", "api", "x"]).contains("Unknown team: api"));
    place.answer();
    until_said(&place.0, &format!("{slow} answered: "));
    until_said(&place.0, "agent api-1 sleeps: its team has changed");
    // One that comes back goes on, in the same session.
    place.write(&with);
    until_said(&place.0, "teams.api added");
    assert_eq!(hub.ok(&["tell", "api", "! say again"]), "again");
    let transcript = hub.ok(&["transcript", "operator", "api"]);
    assert!(
        transcript.contains("terminated: the team api was removed") && transcript.contains("again"),
        "{transcript}"
    );
    let log = hub.ok(&["log"]);
    assert_eq!(crate::teams::sessions(&log, "api-1").len(), 1, "{log}");
}

#[test]
fn teams_are_added_and_removed_by_commands() {
    let place = Place::start("");
    let file = "# mine\nprogram = \"scripted\" # for now\n\n# the API\n[teams.api]\npath = \"~/api\"\n\n# room\n[pool]\nlive = 9\n";
    place.write(file);
    until_said(&place.0, "pool.live changed");
    std::fs::set_permissions(place.file(), PermissionsExt::from_mode(0o640)).expect("it is ours");
    let (worked, printed, said) = place.run(&[
        "team",
        "add",
        "web",
        "web",
        "--description",
        "the web",
        "--idle-minutes",
        "5",
    ]);
    assert!(worked, "{said}");
    assert_eq!(printed, "configuration read again: teams.web added");
    assert_eq!(said, "team web added to config/teamster/teamster.toml");
    assert_eq!(place.0.hub.ok(&["tell", "web", "! say here"]), "here");
    let mode = std::fs::metadata(place.file()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let added = place.read();
    expect![[r##"
        # mine
        program = "scripted" # for now

        # the API
        [teams.api]
        path = "~/api"

        # room
        [pool]
        live = 9

        [teams.web]
        path = "web"
        description = "the web"
        idle_minutes = 5
    "##]]
    .assert_eq(&place.without_place(&added));
    let (_, listed, _) = place.run(&["team", "list"]);
    // A head, and for each of the three what it is and where.
    assert!(listed.contains("the web") && listed.lines().count() == 7, "{listed}");
    let (_, listed, _) = place.run(&["team", "list", "--json"]);
    assert!(serde_json::from_str::<Value>(&listed).is_ok_and(|all| all["totalTeams"] == 3));

    // What cannot be is refused, and the file is left alone.
    std::fs::write(place.path("notes"), "").expect("it can be written");
    let mut refusals = String::new();
    for refused in [
        &["add", "web", "ops"][..],
        &["add", "../x", "ops"],
        &["add", "operator", "ops"],
        &["add", "ops", "nowhere"],
        &["add", "ops", "notes"],
        &["add", "ops", "ops", "--program", "nobody"],
        &["add", "ops", "ops", "--role", "nobody"],
        &["add", "ops", "ops", "--idle-minutes", "0"],
        &["add", "ops", "ops", "--description", "two\nlines"],
        &["remove", "ops"],
    ] {
        let (worked, _, said) = place.run(&[&["team"], refused].concat());
        assert!(!worked, "{refused:?}: {said}");
        let _ = writeln!(refusals, "{refused:?}: {said}");
    }
    expect![[r#"
        ["add", "web", "ops"]: error: there is a team web already; change it in config/teamster/teamster.toml, or remove it first
        ["add", "../x", "ops"]: error: team "../x" is not a valid name; use 1 to 100 letters, digits, `_`, `@`, `.` or `-`, without `..`
        ["add", "operator", "ops"]: error: the name belongs to the hub or its operator; config/teamster/teamster.toml is left alone
        ["add", "ops", "nowhere"]: error: there is no directory nowhere
        ["add", "ops", "notes"]: error: notes is not a directory
        ["add", "ops", "ops", "--program", "nobody"]: error: there is no program "nobody"; there are claude, claude-agent-acp, codex, codex-acp, copilot, fast-agent, gemini, goose, kimi, opencode, qwen, scripted, vibe; config/teamster/teamster.toml is left alone
        ["add", "ops", "ops", "--role", "nobody"]: error: Unknown role "nobody". Available: coder, coordinator, researcher, reviewer; config/teamster/teamster.toml is left alone
        ["add", "ops", "ops", "--idle-minutes", "0"]: error: teams.ops.idle_minutes: invalid value: integer `0`, expected a whole number from 1 to 10080; config/teamster/teamster.toml is left alone
        ["add", "ops", "ops", "--description", "two\nlines"]: error: teams.ops.description: invalid value: string "two\nlines", expected one line of text, at most 1024 bytes long; config/teamster/teamster.toml is left alone
        ["remove", "ops"]: error: there is no team ops of a directory that a hub was started in
    "#]].assert_eq(&refusals);
    assert_eq!(place.read(), added);

    let (worked, printed, said) = place.run(&["team", "remove", "web"]);
    assert!(worked, "{said}");
    assert_eq!(printed, "configuration read again: teams.web removed");
    assert_eq!(place.read(), file);
    // Without a hub it is told when it holds.
    place.0.hub.ok(&["down"]);
    let (worked, printed, _) = place.run(&["team", "remove", "api"]);
    assert!(worked && printed.starts_with("no hub is running; it holds from `"), "{printed}");
    assert!(!place.read().contains("api"), "{}", place.read());
    std::fs::remove_dir_all(place.path("config")).expect("it can be removed");
    let (worked, _, said) = place.run(&["team", "add", "ops", "ops"]);
    assert!(worked, "{said}");
    expect![[r#"
        [teams.ops]
        path = "ops"
    "#]]
    .assert_eq(&place.without_place(&place.read()));
}

#[test]
fn on_a_terminal_the_table_follows_what_happens() {
    if !has_tmux() {
        return;
    }
    let place = Place::start("description = \"the backend\"\n");
    let terminal = Terminal::open(place.0.home.path());
    let teams = format!(
        "{} --data {} teams",
        crate::hub::program().display(),
        place.path("data").display()
    );
    for leave in ["q", "Escape", "C-c"] {
        terminal.types(&[&format!("clear; {teams}; echo left $?"), "Enter"]);
        let shown = terminal.until(|shown| shown.contains("q leaves"));
        assert!(shown.contains("the backend") && shown.starts_with("TEAM"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        terminal.types(&[leave]);
        // The screen is as it was before.
        let shown = terminal.until(|shown| shown.contains("left 0"));
        assert!(!shown.contains("q leaves"), "{shown}");
    }
    terminal.types(&[&format!("clear; {teams}; echo left $?"), "Enter"]);
    terminal.until(|shown| shown.contains("0 agents awake"));
    let tell = place.0.hub.ok(&["tell", "api", "! hang", "--no-wait"]);
    place.0.hub.ok(&["tell", "api", "! say later", "--no-wait"]);
    let shown = terminal.until(|shown| shown.contains("busy"));
    assert!(shown.contains("operator") && shown.contains("1 messages wait"), "{tell}: {shown}");
    place.0.hub.ok(&["sleep", "api"]);
    terminal.until(|shown| shown.contains("0 agents awake, 0 messages wait"));
    // A smaller window, and the end of the hub.
    terminal.tmux(&["resize-window", "-x", "60", "-y", "10"]);
    terminal.until(|shown| shown.lines().count() <= 10 && shown.contains("q leaves"));
    place.0.hub.ok(&["down"]);
    let shown = terminal.until(|shown| shown.contains("the hub is gone"));
    assert!(shown.contains("the backe"), "what was known stays: {shown}");
    terminal.types(&["q"]);
    terminal.until(|shown| shown.contains("left 0") && !shown.contains("q leaves"));
}
