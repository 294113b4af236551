use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use super::*;

#[test]
fn the_command_line_of_ssh_is_the_same_but_for_port_and_host() {
    let words = arguments(&Ssh::parse("ssh -p 2222 ann@box").unwrap(), 20_001, "127.0.0.1:4321");
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
    assert!(words.starts_with(&["-T", "-a", "-x", "-o", "BatchMode=yes"]), "{words:?}");
    assert!(words.ends_with(&["-p", "2222", "--", "ann@box", BOOTSTRAP]), "{words:?}");
    assert!(words.contains(&"127.0.0.1:20001:127.0.0.1:4321"), "{words:?}");
    // Shells of all kinds have to understand it.
    let inner =
        BOOTSTRAP.strip_prefix("exec /bin/sh -c '").and_then(|rest| rest.strip_suffix('\''));
    assert!(inner.is_some_and(|inner| !inner.contains(['\'', '\\', '!', '\n'])), "{BOOTSTRAP}");
}

#[test]
fn ports_are_in_their_range() {
    for random in [0, 1, u128::MAX, 1 << 77] {
        assert!(PORTS.contains(&port(random)));
    }
}

/// The shells that are here and that sh may be.
fn shells() -> Vec<Vec<&'static str>> {
    let all =
        [&["/bin/sh"][..], &["/bin/dash"], &["/bin/bash", "--posix"], &["/bin/busybox", "sh"]];
    all.into_iter().filter(|words| Path::new(words[0]).exists()).map(<[_]>::to_vec).collect()
}

/// Runs an order as a machine would, in a session of its own as sshd makes one, with some input for the program.
fn played(shell: &[&str], order: &Order<'_>, input: &str) -> Output {
    let inner = BOOTSTRAP.strip_prefix("exec /bin/sh -c '").unwrap().strip_suffix('\'').unwrap();
    #[expect(clippy::disallowed_methods, reason = "what ssh would start is started without it")]
    let mut command = std::process::Command::new("setsid");
    command.arg("-w").args(shell).args(["-c", inner]).env_clear();
    command.env("PATH", "/usr/bin:/bin").env("HOME", std::env::temp_dir());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&order.text().unwrap()).unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn order<'a>(ssh: &'a Ssh, program: &'a str, args: &[&str]) -> Order<'a> {
    Order {
        ssh,
        id: format!("{:032x}", crate::secret::nonce()),
        directory: "~",
        program,
        args: args.iter().map(Into::into).collect(),
        environment: Vec::new(),
        pass: &[],
        files: Vec::new(),
        grace: Grace {
            after_stdin: Duration::from_secs(1),
            terminate: Terminate::Program,
            after_terminate: Duration::ZERO,
        },
    }
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Whatever is sent arrives as it was, and is run by nobody.
#[test]
fn values_arrive_as_data() {
    let ssh = Ssh::parse("box").unwrap();
    let hard =
        "a 'b' \"c\" $(touch /tmp/x) `id` \\n \\\\ \\0 \\c ${HOME} * ~ ; & |\n\nü\u{1b}[0m %s \\";
    for shell in shells() {
        let script = r#"printf '%s\0' "$@" "$HARD" "$(cat "$FILE"; echo .)"; cat"#;
        let mut order = order(&ssh, "sh", &["-c", script, "zero", hard, "", " \t"]);
        order.environment.push(("HARD".into(), hard.into()));
        let private = private(&order.id);
        order.environment.push(("FILE".into(), private.join("secret.json").into()));
        let file = PrivateFile { name: "secret.json".into(), contents: format!("{hard}\n") };
        order.files.push(file);
        let output = played(&shell, &order, "the rest\n\\n of it");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let home = std::fs::canonicalize(std::env::temp_dir()).unwrap();
        let said = said
            .strip_prefix(&format!("{HELLO}\n{AT}{}\n", home.display()))
            .unwrap_or_else(|| panic!("{shell:?}: {output:?}"));
        let parts: Vec<&str> = said.split('\0').collect();
        let file = format!("{hard}\n.");
        assert_eq!(parts, [hard, "", " \t", hard, &file, "the rest\n\\n of it"], "{shell:?}");
        assert!(!private.exists(), "{shell:?}");
    }
}

#[test]
fn what_cannot_be_run_is_told_in_a_sentence() {
    let ssh = Ssh::parse("box").unwrap();
    for shell in shells() {
        let mut lost = order(&ssh, "sh", &[]);
        lost.directory = "~/not/there";
        let home = std::env::temp_dir();
        let no_directory = format!(
            "{NO}there is no directory {}/not/there there that can be entered",
            home.display()
        );
        assert_eq!(lines(&played(&shell, &lost, "")), [HELLO, &no_directory], "{shell:?}");
        // Neither a builtin nor a function of ours is a program.
        for name in ["teamster_end", "read", "no-such-program"] {
            let said = lines(&played(&shell, &order(&ssh, name, &[]), ""));
            let missing = format!("{NO}the program {name} is not on the PATH there: ");
            assert!(said[1].starts_with(&missing), "{shell:?}: {said:?}");
        }
        let taken = order(&ssh, "sh", &[]);
        std::fs::create_dir(private(&taken.id)).unwrap();
        let said = lines(&played(&shell, &taken, ""));
        assert!(said[1].ends_with("cannot be made"), "{shell:?}: {said:?}");
        // What is there already is not ours to remove.
        std::fs::remove_dir(private(&taken.id)).unwrap();
    }
    let mut nul = order(&ssh, "sh", &[]);
    nul.environment.push(("A".into(), "a\0b".into()));
    assert!(nul.text().is_err());
}

/// Its input ends, as it does when a connection is lost: a program that minds neither that nor SIGTERM is killed with
/// what it started, also what has left its group.
#[test]
fn all_ends_with_the_input() {
    let ssh = Ssh::parse("box").unwrap();
    for shell in shells() {
        let script = "trap '' TERM; setsid sleep 1000 & sleep 1000 & echo $$ $!; setsid sh -c 'echo $$; exec sleep 1000'";
        let order = order(&ssh, "sh", &["-c", script]);
        let output = played(&shell, &order, "");
        let said = lines(&output).split_off(2).join(" ");
        let pids: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(pids.len(), 3, "{shell:?}: {output:?}");
        for pid in pids {
            // It may not have been reaped yet.
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(stat.is_empty() || stat.contains(") Z "), "{shell:?}: {stat}");
        }
        assert!(!private(&order.id).exists());
    }
}
