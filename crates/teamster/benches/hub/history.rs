//! Data directories with a past, written straight into the log: as many calls would take minutes.

use std::path::{Path, PathBuf};

use teamster_core::ids::ItemId;
use teamster_core::item::{self, Priority, Status};
use teamster_core::record::{Body, FORMAT};
use teamster_core::state::SNAPSHOT_FORMAT;
use teamster_core::{Event, PrincipalName, Record, RunName, Timestamp, run};
use teamster_log::{CommitId, Head, Options};

use crate::client::{FIRST_NUMBER, content};
use crate::load;
use crate::process::Hub;

/// The long past: so many events, of which so many tasks are left.
const LONG_EVENTS: u64 = 1_000_000;
const LONG_ITEMS: u32 = 100_000;

/// Changes when what is written here does.
const VERSION: u32 = 1;

/// As many records as the hub itself puts into one commit at most.
const RECORDS_PER_COMMIT: usize = 512;

/// Makes a log of so many tasks in an empty directory, each added by a call of its own.
pub(crate) fn write_items(directory: &Path, n_items: u32) {
    write(directory, n_items, u64::from(n_items));
}

/// Returns a data directory with a long past and a snapshot at its end. It is made once and kept; nothing may change it.
pub(crate) fn long(bench_directory: &Path) -> PathBuf {
    let directory = bench_directory.join("history");
    let made_as = bench_directory.join("history.made-as");
    let wanted = format!("{VERSION} {FORMAT} {SNAPSHOT_FORMAT} {LONG_EVENTS} {LONG_ITEMS}");
    if std::fs::read_to_string(&made_as).ok().as_ref() != Some(&wanted) {
        eprintln!("writing a log of {LONG_EVENTS} events …");
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a directory for data");
        write(&directory, LONG_ITEMS, LONG_EVENTS);
        // A hub that ends leaves a snapshot.
        Hub::start_in(&directory).end();
        assert!(directory.join("snapshot").exists(), "a hub leaves a snapshot");
        std::fs::write(&made_as, wanted).expect("a note of how it was made");
    }
    directory
}

/// Copies a data directory and waits until the copy is on the disk, so that it disturbs nothing that is measured.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory for the copy");
    for entry in std::fs::read_dir(from).expect("the directory can be read") {
        let path = entry.expect("it can be listed").path();
        let copied = to.join(path.file_name().expect("a file has a name"));
        if path.is_dir() {
            copy(&path, &copied);
        } else if path.is_file() {
            std::fs::copy(&path, &copied).expect("a file can be copied");
            let file = std::fs::File::open(&copied).expect("the copy is there");
            file.sync_all().expect("the copy can be synced");
        }
    }
}

fn write(directory: &Path, n_items: u32, n_events: u64) {
    load::run(async {
        let log = teamster_log::open(directory, Options::default()).expect("a new log");
        let mut head = Head::EMPTY;
        let mut first = 1;
        while first <= n_events {
            let last = n_events.min(first + RECORDS_PER_COMMIT as u64 - 1);
            let records = (first..=last).map(|seq| record(seq, n_items)).collect();
            let mut id = [0; 16];
            id[..8].copy_from_slice(&first.to_le_bytes());
            let commit = head.next(CommitId(id), Body::new(first, records).encode());
            head = Head::of(&commit);
            log.append(commit).await.expect("the log can be written");
            first = last + 1;
        }
    });
}

/// Returns the record with this event: first every task is added, then their priorities change, all in turn.
fn record(seq: u64, n_items: u32) -> Record {
    let pass = (seq - 1) / u64::from(n_items);
    let number = u32::try_from((seq - 1) % u64::from(n_items)).expect("less than all") + 1;
    let id = ItemId(number);
    let event = if pass == 0 {
        let content = content(FIRST_NUMBER + u64::from(number)).into();
        item::Event::Added { id, content, status: Status::Remaining, priority: Priority::MEDIUM }
    } else {
        let priority = Priority::new(if pass.is_multiple_of(2) { 2 } else { 3 });
        let priority = Some(priority.expect("a priority"));
        item::Event::Updated { id, status: None, priority, depends_on: None }
    };
    let event = Event::Run { run: RunName::default_run(), what: run::Event::Item(event) };
    Record {
        at: Timestamp(i64::try_from(seq).expect("a small number")),
        by: PrincipalName::parse("bench").expect("a name"),
        token: None,
        key: None,
        events: vec![event],
    }
}
