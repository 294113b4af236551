//! Other programs' configuration files, changed at random: an editor refuses, or adds the server and keeps the rest.
//! `TEAMSTER_FUZZ=100` plays a hundred times as many cases, `TEAMSTER_FUZZ_SEED=7` one.

#[path = "../../../tests/it/fuzz/mutate.rs"]
mod mutate;

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use toml_edit::{DocumentMut, Item};

use self::mutate::Mutator;
use super::{Edited, Http, PROGRAMS, Program, SERVER, Server};

const CASES: u64 = 1_000;

const JSON: &str = r#"{
  "theme": "dark",
  "mcpServers": {
    "other": {"command": "x", "args": ["-y"]},
    "teamster": {"url": "http://127.0.0.1:1/mcp"}
  },
  "mcp": {"other": {"type": "local"}},
  "last": [1, 2.5, null]
}
"#;

const TOML: &str = r#"# mine
model = "o3"
[mcp_servers.other]
command = "x" # why
args = ["-y"]

[mcp_servers.teamster]
url = "http://127.0.0.1:1/mcp"

[profiles.fast]
model = "o4-mini"
# the end
"#;

const YAML: &str = "# mine
GOOSE_MODEL: x
extensions:
  other:
    enabled: true
    args:
    - -y
  teamster:
    uri: http://127.0.0.1:1/mcp
last: \"quoted: text\"
";

const URL: &str = "http://127.0.0.1:4321/mcp";

fn server() -> Server {
    Server::Http(Http { url: URL.into(), secret: "tmst_secret".into() })
}

fn number(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "seeds come from the environment")]
    std::env::var(name).ok().map(|number| number.parse().expect("a seed is a number"))
}

/// Edits what is left of a good file. Returns whether that was accepted.
fn case(program: &Program, good: &str, mutator: &mut Mutator) -> bool {
    let file = match serde_json::from_str(good) {
        _ if mutator.one_in(10) => mutator.odd_text(),
        Ok(good) if mutator.one_in(2) => format!("{:#}", mutator.json(&good)),
        _ => mutator.text(good),
    };
    let Ok(Edited { text, replaced }) = (program.edit)(&file, &server()) else { return false };
    assert!(text.contains(URL), "{}: the server is not in\n{text}", program.name);
    let again = (program.edit)(&text, &server());
    let again =
        again.unwrap_or_else(|why| panic!("{}: {why} in what it wrote:\n{text}", program.name));
    // Of two kinds of line ends in one file only one stays, and no mark of the byte order.
    let plain = |text: &str| text.replace(['\r', '\u{feff}'], "");
    assert_eq!(plain(&again.text), plain(&text), "{file:?}");
    assert!(!again.replaced || plain(&text) != text, "{file:?}");
    match program.name {
        "codex" => keeps_toml(&file, &text),
        "goose" => keeps_lines(&file, &text, replaced),
        _ => keeps_json(&file, &text),
    }
    true
}

fn keeps_json(file: &str, text: &str) {
    let rest = |text: &str| {
        let text = if text.trim().is_empty() { "{}" } else { text };
        let mut value: Value = serde_json::from_str(text).expect("it was accepted");
        for section in ["mcpServers", "mcp"] {
            if let Some(members) = value.get_mut(section).and_then(Value::as_object_mut) {
                members.remove(SERVER);
                if members.is_empty() {
                    value.as_object_mut().expect("an object").remove(section);
                }
            }
        }
        value.as_object_mut().expect("an object").remove("$schema");
        value
    };
    assert_eq!(rest(file), rest(text), "{file:?}");
}

fn keeps_toml(file: &str, text: &str) {
    let rest = |text: &str| {
        let document: DocumentMut = text.parse().expect("it was accepted");
        let mut leaves = Vec::new();
        collect(document.as_item(), "", &mut leaves);
        leaves.retain(|leaf| !leaf.starts_with("/mcp_servers/teamster"));
        leaves
    };
    assert_eq!(rest(file), rest(text), "{file:?}");
}

/// Collects every value with its path.
fn collect(item: &Item, path: &str, leaves: &mut Vec<String>) {
    if let Some(table) = item.as_table_like() {
        for (name, item) in table.iter() {
            collect(item, &format!("{path}/{name}"), leaves);
        }
    } else if let Some(tables) = item.as_array_of_tables() {
        for table in tables {
            collect(&Item::Table(table.clone()), &format!("{path}/-"), leaves);
        }
    } else {
        leaves.push(format!("{path} = {}", item.to_string().trim()));
    }
}

/// Every line is still there, in order, unless an old entry was replaced.
fn keeps_lines(file: &str, text: &str, replaced: bool) {
    if replaced || file.contains("{}") {
        return;
    }
    let mut lines = text.lines();
    for line in file.lines() {
        assert!(lines.any(|kept| kept == line), "{line:?} is lost of {file:?}");
    }
}

#[test]
fn editors_refuse_or_keep_the_rest() {
    let n_cases = CASES * number("TEAMSTER_FUZZ").unwrap_or(1);
    let seeds = number("TEAMSTER_FUZZ_SEED").map_or(0..n_cases, |seed| seed..seed + 1);
    for program in &PROGRAMS {
        let good = match program.name {
            "codex" => TOML,
            "goose" => YAML,
            _ => JSON,
        };
        let mut n_edited = 0;
        for seed in seeds.clone() {
            let played = catch_unwind(AssertUnwindSafe(|| case(program, good, &mut Mutator(seed))));
            let Ok(edited) = played else {
                panic!(
                    "{}: repeat with: TEAMSTER_FUZZ_SEED={seed} cargo test -p teamster --lib editors_refuse",
                    program.name
                )
            };
            n_edited += u64::from(edited);
        }
        let n_files = seeds.end - seeds.start;
        println!("{}: {n_edited} of {n_files} files edited", program.name);
        assert!(n_files == 1 || n_edited > n_files / 50, "nearly nothing is accepted");
    }
}
