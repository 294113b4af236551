//! The house stays in order: no two modules of a crate need each other, not even by way of others.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Crates whose modules form no circle.
const CRATES: [&str; 6] =
    ["teamster", "teamster-agents", "teamster-api", "teamster-hub", "teamster-log", "teamster-mcp"];

/// For each module of a crate, the modules it names and the file that does.
type Graph = BTreeMap<String, BTreeMap<String, PathBuf>>;

#[test]
fn no_modules_need_each_other() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut told = Vec::new();
    for name in CRATES {
        let graph = graph(&crates.join(name).join("src"));
        assert!(graph.values().any(|used| !used.is_empty()), "{name}: nothing was read");
        for (module, used) in &graph {
            for (other, file) in used {
                if leads_to(&graph, other, module) {
                    let file = file.display();
                    told.push(format!("{name}: {module} needs {other} ({file}), which leads back"));
                }
            }
        }
    }
    assert!(told.is_empty(), "{told:#?}");
}

#[test]
fn a_circle_is_found() {
    let graph = |pairs: &[(&str, &str)]| {
        let mut graph = Graph::new();
        for (from, to) in pairs {
            graph.entry((*from).into()).or_default().insert((*to).into(), PathBuf::new());
        }
        graph
    };
    let circle = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]);
    assert!(leads_to(&circle, "b", "a"));
    assert!(!leads_to(&circle, "d", "c"));
    let text = "use crate::{one, two::Two};\n// crate::three\nfn f() { crate::four::g() }\n#[cfg(test)]\nmod tests { use crate::five; }\n";
    assert_eq!(named(text), BTreeSet::from(["one", "two", "four"].map(str::to_owned)));
}

fn graph(source: &Path) -> Graph {
    let mut graph = Graph::new();
    let mut directories = vec![source.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("it is there") {
            let path = entry.expect("it can be read").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("names are text");
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let is_test = matches!(name, "tests.rs" | "testing.rs");
            if !name.ends_with(".rs") || is_test || matches!(name, "lib.rs" | "main.rs") {
                continue;
            }
            let below = path.strip_prefix(source).expect("it is below");
            let top = below.iter().next().and_then(|top| top.to_str()).expect("it has a name");
            let module = top.trim_end_matches(".rs").to_owned();
            let text = std::fs::read_to_string(&path).expect("it can be read");
            let used = graph.entry(module.clone()).or_default();
            for other in named(&text).into_iter().filter(|other| *other != module) {
                used.insert(other, below.to_owned());
            }
        }
    }
    let modules: BTreeSet<String> = graph.keys().cloned().collect();
    for used in graph.values_mut() {
        used.retain(|other, _| modules.contains(other));
    }
    graph
}

/// Returns the modules of its crate that a file names, outside of comments and of tests at its end.
fn named(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut named: BTreeSet<String> = BTreeSet::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => {
                // Each part of the list up to its first `::`; lists within lists belong to their module.
                let mut depth = 0_u32;
                let flat: String = (list.split(';').next().unwrap_or_default().chars())
                    .filter(|c| {
                        match c {
                            '{' => depth += 1,
                            '}' => depth = depth.saturating_sub(1),
                            _ => {}
                        }
                        depth == 0
                    })
                    .collect();
                let first = |part: &str| -> String {
                    part.trim().chars().take_while(|c| is_word(*c)).collect()
                };
                named.extend(flat.split(',').map(first));
            }
            None => {
                named.insert(rest.chars().take_while(|c| is_word(*c)).collect());
            }
        }
    }
    named.retain(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    named
}

fn leads_to(graph: &Graph, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            next.extend(graph.get(module).into_iter().flat_map(BTreeMap::keys).map(String::as_str));
        }
    }
    false
}
