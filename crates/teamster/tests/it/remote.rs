//! Teams on another machine, which is this one behind a real sshd on loopback. Needs OpenSSH's client and server, and says
//! so where there is none; `TEAMSTER_REQUIRE_SSHD=1` makes that a failure.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "the other machine's programs are started bare, and a broken fixture should panic"
)]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use crate::agents::World;
use crate::hub::program;
use crate::launcher::orphans::{marked, wait_for_ends};
use crate::optional::Optional;
use crate::real_agents::find;
use crate::scripted_model::{Script, ScriptedModel, Step};
use crate::unattended::until_said;

const SSHD: &str = "/usr/sbin/sshd";

/// What no shell on the way may touch.
const HARD: &str = "a 'b' \"c\" $(exit 3) `id` \\n \\\\ ${HOME} * ~ ;\nsecond line";

/// The other machine. Clients find in `config` how to get there, as `box`; and some that nobody gets to.
struct Machine {
    directory: TempDir,
    sshd: Child,
}

impl Machine {
    /// Starts one, if there is an sshd.
    fn start() -> Option<Self> {
        let found = Path::new(SSHD).exists() && Path::new("/usr/bin/ssh-keygen").exists();
        if !Optional::Sshd.is_usable(found) {
            return None;
        }
        // Without it an sshd of root does not start; services make it when the machine does.
        let _ = std::fs::create_dir_all("/run/sshd");
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        for key in ["host", "key", "other", "no-ports"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at(key));
            assert!(keygen.status().expect("it starts").success());
        }
        let public =
            |name: &str| std::fs::read_to_string(at(&format!("{name}.pub"))).expect("it is there");
        let authorized = format!("{}no-port-forwarding {}", public("key"), public("no-ports"));
        std::fs::write(at("authorized"), authorized).expect("it can be written");
        std::fs::create_dir(at("work")).expect("it can be made");
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let port = listener.local_addr().expect("it has an address").port();
        drop(listener);
        let path = directory.path().display();
        let server = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {path}/host\nAuthorizedKeysFile {path}/authorized\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n\
             PermitRootLogin yes\nLogLevel INFO\n"
        );
        std::fs::write(at("sshd_config"), server).expect("it can be written");
        std::fs::write(at("known"), format!("[127.0.0.1]:{port} {}", public("host")))
            .expect("it can be written");
        let client = format!(
            "Host stranger\n  UserKnownHostsFile {path}/nothing\nHost closed\n  Port 1\nHost locked\n  \
             IdentityFile {path}/other\nHost shut\n  IdentityFile {path}/no-ports\nHost !locked !shut *\n  IdentityFile {path}/key\n\
             Host *\n  HostName 127.0.0.1\n  Port {port}\n  IdentitiesOnly yes\n  UserKnownHostsFile {path}/known\n  GlobalKnownHostsFile none\n  \
             StrictHostKeyChecking yes\n"
        );
        std::fs::write(at("config"), client).expect("it can be written");
        let mut sshd = Command::new(SSHD);
        sshd.args(["-D", "-e", "-f"]).arg(at("sshd_config")).stdin(Stdio::null());
        let mut sshd = sshd.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(sshd.stderr.take().expect("stderr is piped"));
        let mut line = String::new();
        while !line.contains("Server listening") {
            line.clear();
            assert!(said.read_line(&mut line).expect("it speaks UTF-8") > 0, "sshd does not start");
        }
        // What else it says is read, so that it never waits for us.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Some(Self { directory, sshd })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn remote(&self, host: &str) -> String {
        format!("ssh -F {} {host}", self.at("config").display())
    }

    /// Returns the settings of programs and of a team on it.
    fn settings(&self, path: &str) -> String {
        let (command, state) = (program(), self.at("state"));
        let mut settings = format!(
            "[programs.scripted]\ncommand = {command:?}\n[programs.scripted.set]\n\
             TEAMSTER_SCRIPTED_STATE = {state:?}\nHARD = {HARD:?}\n[programs.missing]\ncommand = \"no-such-program\"\n"
        );
        let _ = writeln!(settings, "{}", self.team("api", "box", path));
        settings
    }

    fn team(&self, name: &str, host: &str, path: &str) -> String {
        format!("[teams.{name}]\npath = {path:?}\nremote = {:?}", self.remote(host))
    }

    /// Returns the processes there: agents with what they started.
    fn processes(&self) -> Vec<Pid> {
        marked(&self.at("state").to_string_lossy())
            .into_iter()
            .filter(|pid| read(*pid, "environ").contains("TEAMSTER_REMOTE="))
            .collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

/// Reads a file of a process, which may have ended while we look.
fn read(pid: Pid, file: &str) -> String {
    let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Returns the launch directory that a process there has, if it is still there.
fn launch_directory(environ: &str) -> PathBuf {
    let id = environ.split('\0').find_map(|variable| variable.strip_prefix("TEAMSTER_REMOTE="));
    Path::new("/tmp").join(format!("teamster-launch-{}", id.expect("it has a mark")))
}

/// Returns the sshd that serves a process there: the nearest above it.
fn session_of(pid: Pid) -> Pid {
    let parent = |pid: Pid| {
        let stat = read(pid, "stat");
        let after_name = stat.rsplit(") ").next().expect("it has a name").to_owned();
        let parent = after_name.split(' ').nth(1).and_then(|pid| pid.parse().ok());
        Pid::from_raw(parent.expect("it has a parent")).expect("it is no orphan")
    };
    let mut above = std::iter::successors(Some(pid), |pid| Some(parent(*pid)));
    above.find(|pid| read(*pid, "comm").starts_with("sshd")).expect("an sshd serves it")
}

#[test]
fn a_team_on_another_machine_answers_and_uses_the_hubs_tools() {
    let Some(machine) = Machine::start() else { return };
    let odd = machine.at("it's \"$(odd)\" \\n ü");
    std::fs::create_dir(&odd).expect("it can be made");
    let world = World::start(&machine.settings(&odd.to_string_lossy()));
    let tell = |message: &str| world.hub.ok(&["tell", "api", message]);
    assert_eq!(tell("! write here.txt it was here\n! say all is well"), "all is well");
    assert!(odd.join("here.txt").exists());
    // Through the forwarded port it finds the hub, and is who it is.
    let answer = tell("! call task-add {\"tasks\":[{\"content\":\"sweep\"}]}\n! say $last");
    assert!(answer.contains("TAS-1"), "{answer}");
    let added = ("api-1".to_owned(), "TAS-1 added (P2): sweep".to_owned());
    assert!(world.hub.log().contains(&added), "{:?}", world.hub.log());
    let answer = tell("! call team_teams\n! say $last.teams.1.config.remote");
    assert_eq!(answer, machine.remote("box"));

    let shown = world.hub.ok(&["agent", "show", "api-1"]);
    assert!(shown.contains(&machine.remote("box")), "{shown}");

    let processes = machine.processes();
    let [agent] = *processes else { panic!("{processes:?}") };
    let environ = read(agent, "environ");
    assert!(environ.split('\0').any(|variable| variable == format!("HARD={HARD}")), "{environ}");
    // What the hub was started with is not sent, and nothing of the launch is in a command line.
    assert!(
        !environ.contains("TEAMSTER_DATA") && !environ.contains("TEAMSTER_LAUNCH"),
        "{environ}"
    );
    let directory = launch_directory(&environ);
    assert!(directory.is_dir(), "{directory:?}");
    assert!(marked("second line").iter().all(|pid| !read(*pid, "cmdline").contains("second line")));

    // It ends there when it sleeps, and its session goes on.
    assert_eq!(world.hub.ok(&["sleep", "api"]), "your conversation with api has been put to sleep");
    assert_eq!(machine.processes(), []);
    assert!(!directory.exists());
    assert_eq!(tell("! say well again"), "well again");
    let log = world.hub.ok(&["log"]);
    assert_eq!(crate::teams::sessions(&log, "api-1").len(), 1, "{log}");
    assert!(log.contains(&format!("over {}", machine.remote("box"))), "{log}");
    assert_eq!(world.agent("api-1")["incarnation"], 2);
    let pwd = odd.to_string_lossy();
    let here = world.hub.ok(&["tool", "team_getTeamName", "--pwd", &pwd]);
    assert!(here.contains("false"), "{here}");
}

/// Only there is `~` a directory, so here it would not have started.
#[test]
fn what_is_drafted_there_runs_there() {
    let Some(machine) = Machine::start() else { return };
    let path = format!("~/../../../../../..{}", machine.at("work").display());
    let settings = machine.settings(&path) + "role = \"coordinator\"\ntools = [\"full\"]\n";
    let world = World::start(&settings);
    let script = "! call draft_agent {\"role\":\"coder\",\"prompt\":\"! write child.txt x\"}\n\
                  ! call await_agent {\"agentId\":\"$last.agentId\"}\n! say $last.status";
    assert_eq!(world.hub.ok(&["tell", "api", script]), "completed");
    assert!(machine.at("work/child.txt").exists());
    let agent = world.agent("coder-2");
    assert_eq!(agent["outcome"]["ending"], "completed", "{agent}");
}

#[test]
fn who_cannot_be_reached_is_told_of_in_a_sentence() {
    let Some(machine) = Machine::start() else { return };
    let work = machine.at("work").to_string_lossy().into_owned();
    let mut settings = machine.settings(&work);
    for host in ["stranger", "closed", "locked", "shut"] {
        let _ = writeln!(settings, "{}", machine.team(host, host, &work));
    }
    let _ = writeln!(settings, "{}", machine.team("nowhere", "box", "/not/there"));
    let _ = writeln!(settings, "{}\nprogram = \"missing\"", machine.team("lacking", "box", &work));
    let world = World::start(&settings);
    let try_it = |host: &str| format!("`ssh -F {} {host} true`", machine.at("config").display());
    for (team, says) in [
        (
            "stranger",
            vec![
                "Host key verification failed",
                "its host key is not known here",
                &try_it("stranger"),
            ],
        ),
        ("closed", vec!["Connection refused", &try_it("closed")]),
        ("locked", vec!["Permission denied", "without a question", &try_it("locked")]),
        ("shut", vec!["several ports could not be forwarded there"]),
        ("nowhere", vec!["on box: there is no directory /not/there there"]),
        ("lacking", vec!["on box: the program no-such-program is not on the PATH there: "]),
    ] {
        let told = world.hub.fails(&["tell", team, "! say hello"]);
        for words in says {
            assert!(told.contains(words), "{team}: {told}");
        }
    }
    // Others are none the worse for it.
    assert_eq!(world.hub.ok(&["tell", "api", "! say fine"]), "fine");
    assert_eq!(machine.processes().len(), 1);
}

/// The agent minds neither the end of its input nor SIGTERM.
const STAYS: &str =
    "! ignore-sigterm\n! call task-add {\"tasks\":[{\"content\":\"stay\"}]}\n! hang";

#[test]
fn a_hub_that_is_killed_leaves_nothing_there() {
    let Some(machine) = Machine::start() else { return };
    let mut world = World::start(&machine.settings(&machine.at("work").to_string_lossy()));
    world.hub.ok(&["tell", "api", STAYS, "--no-wait"]);
    until_said(&world, "TAS-1 added");
    let processes = machine.processes();
    assert_eq!(processes.len(), 1, "{processes:?}");
    let directory = launch_directory(&read(processes[0], "environ"));
    world.hub.end(Signal::KILL);
    wait_for_ends(&processes);
    assert_eq!(machine.processes(), []);
    assert!(!directory.exists());
}

#[test]
fn a_message_survives_its_connection() {
    let Some(machine) = Machine::start() else { return };
    let world = World::start(&machine.settings(&machine.at("work").to_string_lossy()));
    let message = "! say begun\n! sleep 2000\n! say done";
    let tell = world.hub.ok(&["tell", "api", message, "--no-wait"]);
    until_said(&world, &format!("{tell} is being answered"));
    let processes = machine.processes();
    kill_process(session_of(processes[0]), Signal::KILL).expect("it can be killed");
    until_said(&world, &format!("{tell} answered: "));
    wait_for_ends(&processes);
    assert_eq!(world.agent("api-1")["incarnation"], 2);
}

const TELL: &str = "Put the sweeping on the list.";

/// A real Claude Code gets its list of MCP servers from a file there.
#[tokio::test(flavor = "multi_thread")]
async fn claude_works_on_another_machine() {
    let (Some(machine), Some(claude)) = (Machine::start(), find("claude")) else { return };
    let script = Script::new(
        TELL,
        [
            Step::call("task-add", json!({"tasks": [{"content": "sweep"}]})),
            Step::call("Bash", json!({"command": "echo clean > kitchen.txt"})),
            Step::say("It is on the list."),
        ],
    );
    let model = ScriptedModel::start([script]).await;
    let home = machine.at("home");
    std::fs::create_dir(&home).expect("it can be made");
    let settings = format!(
        "[programs.claude]\ncommand = {claude:?}\n[programs.claude.set]\nHOME = {home:?}\n\
         CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = \"1\"\nDISABLE_TELEMETRY = \"1\"\nDISABLE_ERROR_REPORTING = \"1\"\n\
         ANTHROPIC_BASE_URL = {:?}\nANTHROPIC_API_KEY = \"dummy\"\n{}\nprogram = \"claude\"\n",
        model.url,
        machine.team("api", "box", &machine.at("work").to_string_lossy()),
    );
    let world = World::start(&settings);
    let told = world.hub.run(&["tell", "api", TELL]);
    let story = model.requests().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(told.status.success(), "{told:?}\n{story}\n{}", world.hub.ok(&["log"]));
    assert_eq!(String::from_utf8_lossy(&told.stdout).trim(), "It is on the list.");
    let added = ("api-1".to_owned(), "TAS-1 added (P2): sweep".to_owned());
    assert!(world.hub.log().contains(&added), "{:?}", world.hub.log());
    assert!(machine.at("work/kitchen.txt").exists());
    // Neither the token nor a key is in a command line.
    let lines = marked("ANTHROPIC_API_KEY=dummy").into_iter().map(|pid| read(pid, "cmdline"));
    assert!(lines.filter(|line| line.contains("dummy") || line.contains("tmst_")).count() == 0);
    world.hub.ok(&["sleep", "api"]);
}
