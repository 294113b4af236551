//! What `connect` leaves in the files of other programs, and what agents can do with it.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "the configured command is started as a program would, and a broken fixture should panic"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use teamster_agents::isolation::Isolation;

use crate::agents::World;
use crate::launcher::offered;

const FILES: [(&str, &str); 5] = [
    ("claude", ".claude.json"),
    ("codex", ".codex/config.toml"),
    ("gemini", ".gemini/settings.json"),
    ("goose", ".config/goose/config.yaml"),
    ("opencode", ".config/opencode/opencode.json"),
];

/// Connects a program of somebody whose home this is, and returns the text of its file and what was said.
fn connect(world: &World, home: &Path, program: &str, more: &[&str]) -> (String, String) {
    let mut connect = world.hub.command();
    connect.env("HOME", home).env_remove("XDG_CONFIG_HOME").env_remove("CLAUDE_CONFIG_DIR");
    connect.env_remove("CODEX_HOME").args(["connect", program, "--write"]).args(more);
    let output = connect.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let file = FILES.iter().find(|(name, _)| *name == program).expect("it is known").1;
    let text = std::fs::read_to_string(home.join(file)).expect("it was written");
    (text, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn tokens(world: &World) -> String {
    world.hub.ok(&["token", "list", "--json"])
}

#[test]
fn no_token_is_left_in_the_file_of_a_program() {
    let world = World::start("");
    let home = tempfile::tempdir().expect("a directory");
    for (program, _) in FILES {
        // The control: by HTTP there is one, which may do little, and that is said.
        let (text, said) = connect(&world, home.path(), program, &["--http"]);
        assert!(text.contains("Bearer tmst_"), "{program}: {text}");
        assert!(said.contains("whoever can read the file can use it"), "{said}");
        assert!(tokens(&world).contains(r#""grants":"session""#));
        // Once more without it, and it is gone, from the file and altogether.
        let (text, said) = connect(&world, home.path(), program, &["--replace"]);
        assert!(!text.contains("tmst_") && text.contains("mcp"), "{program}: {text}");
        assert!(said.contains("the file holds no token"), "{said}");
        assert!(said.contains(&format!("the token of {program} is revoked")), "{said}");
        assert!(!tokens(&world).contains(&format!("\"{program}\"")), "{}", tokens(&world));
    }
}

/// Returns the command that Claude Code would start.
fn configured(text: &str) -> (String, Vec<String>) {
    let file: Value = serde_json::from_str(text).expect("it is JSON");
    let entry = &file["mcpServers"]["teamster"];
    let args = entry["args"].as_array().expect("it has some");
    let word = |word: &Value| word.as_str().expect("it is text").to_owned();
    (word(&entry["command"]), args.iter().map(word).collect())
}

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

fn script(command: &str, args: &[String]) -> String {
    let args = args.iter().map(|arg| format!("'{arg}'")).collect::<Vec<_>>().join(" ");
    format!("printf '%s\\n' '{HELLO}' | {command} {args} 2>&1")
}

/// Has an agent run a script, and returns what that printed.
fn as_agent(world: &World, name: &str, script: &str) -> String {
    let path = |name: &str| -> PathBuf { world.home.path().join(name) };
    let (file, out) = (path(&format!("{name}.sh")), path(&format!("{name}.out")));
    let script = format!("({script}) >{} 2>&1 || true\n", out.display());
    std::fs::write(&file, script).expect("it can be written");
    let id = world.draft("coder", &format!("! run sh {}\n! say done", file.display()));
    world.ended(&id);
    std::fs::read_to_string(out).expect("it was run")
}

/// A program that the hub starts reads the same configuration as one that its user starts.
#[tokio::test]
async fn the_configured_command_gives_an_agent_of_the_hub_nothing() {
    let world = World::start("");
    let home = tempfile::tempdir().expect("a directory");
    let (text, _) = connect(&world, home.path(), "claude", &[]);
    let (command, args) = configured(&text);
    let script = script(&command, &args);
    // The control: for its user it is a client with the hub's tools.
    let output = Command::new("sh").args(["-c", &script]).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(r#""serverInfo":{"name":"teamster""#), "{said}");
    let seen = as_agent(&world, "plain", &script);
    assert!(seen.contains("gave it a connection of its own"), "{seen}");
    assert!(!seen.contains("serverInfo"), "{seen}");
    // It can hide that it is one; then only what it sees of the data counts.
    let seen = as_agent(&world, "hidden", &format!("unset TEAMSTER_LAUNCH; {script}"));
    let is_masked = !offered(&[Isolation::Namespaces]).await.is_empty();
    assert_eq!(seen.contains("serverInfo"), !is_masked, "{seen}");
}
