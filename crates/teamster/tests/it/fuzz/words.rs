//! The short words: names, ids, grants, keys, hashes, the hub's own file.

use std::fmt::Display;

use teamster_api::HubFile;
use teamster_core::grant::Grant;
use teamster_core::ids::{ItemId, NoteId, TokenId};
use teamster_core::key::Key;
use teamster_core::{PrincipalName, RunName, TeamName};
use teamster_hub::config::Place;
use teamster_log::{Hash, TranscriptName};
use teamster_mcp::Set;

use super::play;

/// What was read must be printed as what it was read from, or what is the same to people.
fn reads_back<T: Display>(given: &str, read: Option<T>, same: fn(&str, &str) -> bool) {
    if let Some(read) = read {
        let printed = read.to_string();
        assert!(same(given, &printed), "{given:?} was read as {printed:?}");
    }
}

#[test]
fn words() {
    let good = [
        "default",
        "run-1_a",
        "ann@home.net",
        "TAS-12",
        "NOT-3",
        "TOK-4",
        "full",
        "read-only",
        "metrics",
        "session",
        "session:task-add",
        "ann.bob",
        "yaks",
        &"a".repeat(64),
    ];
    play("words", 8_000, |mutator| {
        let base = *mutator.pick(&good);
        let word = if mutator.one_in(4) { mutator.odd_text() } else { mutator.text(base) };
        let exact: fn(&str, &str) -> bool = |given, printed| given == printed;
        let any_case: fn(&str, &str) -> bool = str::eq_ignore_ascii_case;
        reads_back(&word, RunName::parse(&word).ok(), exact);
        reads_back(&word, PrincipalName::parse(&word).ok(), exact);
        reads_back(&word, TeamName::parse(&word).ok(), exact);
        reads_back(&word, TranscriptName::new(word.clone()).ok(), exact);
        reads_back(&word, Grant::parse(&word).ok(), exact);
        reads_back(&word, Set::parse(&word), exact);
        reads_back(&word, ItemId::parse(&word), any_case);
        reads_back(&word, NoteId::parse(&word), any_case);
        reads_back(&word, TokenId::parse(&word), any_case);
        reads_back(&word, word.parse::<Hash>().ok(), any_case);
        if let Ok(key) = Key::new(&word, 1) {
            assert!(key.key.len() <= 200 && key.key.bytes().all(|byte| byte.is_ascii_graphic()));
        }
        if let Ok(name) = RunName::parse(&word) {
            assert!(!name.as_str().contains(['/', '\\', '.', '\0']), "{name} could be a path");
        }
    });
}

#[test]
fn hub_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = Place { workspace: "default".into(), data: Some(directory.path().into()) }
        .data_files()
        .expect("a place");
    let good = br#"{"url":"http://127.0.0.1:4321","pid":12,"token_file":"/data/operator.token","version":"0.1.0"}"#;
    let (mut n_read, mut n_refused) = (0, 0);
    play("hub_file", 2_000, |mutator| {
        std::fs::write(data.hub(), mutator.bytes(good)).expect("it is written");
        match HubFile::read(&data) {
            Ok(file) => n_read += u32::from(file.is_some()),
            Err(error) => {
                assert!(error.to_string().contains("is not what a hub writes"), "{error}");
                n_refused += 1;
            }
        }
    });
    println!("{n_read} read, {n_refused} refused");
    assert!(n_refused > 0);
}
