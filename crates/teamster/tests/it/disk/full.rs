//! A real file system that fills up under load and then grows. It takes root to mount one; elsewhere this is skipped.

#![expect(clippy::disallowed_methods, reason = "mount and umount are programs")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use http::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{believing_everything, faults_after, tally};
use crate::history::{Fault, Outcome, tell};
use crate::hub::{Hub, Mcp, command};
use crate::in_process::Dice;
use crate::load::{Clients, Habit};
use crate::optional::Optional;

/// A file system in memory, of a size that can be changed; gone when dropped.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let disk = Self { directory: tempfile::tempdir().expect("a directory") };
        let options = format!("size={size}");
        let mounted = mount(&["-t", "tmpfs", "-o", &options, "teamster-test"], disk.path());
        Optional::Mounts.is_usable(mounted).then_some(disk)
    }

    fn resize(&self, size: &str) {
        assert!(mount(&["-o", &format!("remount,size={size}")], self.path()), "it can be resized");
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn data(&self) -> PathBuf {
        self.path().join("data")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Where nothing is mounted there is nothing to do.
        let _ = Command::new("umount").arg(self.path()).stderr(Stdio::null()).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    let status = Command::new("mount").args(arguments).arg(at).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

async fn add(mcp: &mut Mcp, text: &str) -> (String, bool) {
    let arguments = json!({"tasks": [{"content": text}]});
    mcp.try_call(text, "task-add", arguments).await.expect("the hub answers")
}

async fn reads_work(hub: &Hub, mcp: &mut Mcp) {
    let (list, is_error) = mcp.call("task-list", json!({})).await;
    assert!(!is_error && list.contains("TAS-1"), "{list}");
    let bearer = format!("Bearer {}", hub.operator);
    let log = hub.http().await;
    let log = { log }.send(Method::GET, "/api/log", &[("authorization", &bearer)], "").await;
    assert_eq!(log.status, StatusCode::OK, "{log:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_disk_is_full_callers_are_told_and_when_it_grows_writing_resumes() {
    let Some(disk) = SmallDisk::mount("1500k") else { return };
    let mut hub = Hub::start_in(&disk.data());
    let mut clients = Clients::new(&hub, Dice(1), Habit::Good);
    // Large notes make short work of the room that is left.
    let filler = "x".repeat(8_000);
    let mut mcp = hub.modern(&hub.operator, "/mcp").await;
    let (first, _) = add(&mut mcp, "before").await;
    assert!(first.contains("TAS-1"), "{first}");
    let history = clients.history.clone();
    history.end(history.invoke(vec!["before".into()]), Outcome::Ok { answer: first });

    let mut n_fillers = 0;
    let refusal = loop {
        clients.work(&hub.url, 5).await;
        n_fillers += 1;
        let text = format!("filler {n_fillers} {filler}");
        let operation = history.invoke(vec![text.clone()]);
        let (answer, is_error) = add(&mut mcp, &text).await;
        let outcome =
            if is_error { Outcome::Failed } else { Outcome::Ok { answer: answer.clone() } };
        history.end(operation, outcome);
        if is_error {
            break answer;
        }
        assert!(n_fillers < 1_000, "the disk does not fill up");
    };
    assert_eq!(
        refusal,
        "error: nothing was changed: the commit was not stored: database or disk is full; the hub only reads until the log \
         can be written again, so repeat the call later"
    );
    reads_work(&hub, &mut mcp).await;
    // It stays so, for everybody, until there is room; small calls may still find some.
    for _ in 0..3 {
        clients.work(&hub.url, 5).await;
        reads_work(&hub, &mut mcp).await;
    }
    let (_, n_refused, n_unheard) = tally(&history.operations());
    assert!(n_refused > 0 && n_unheard == 0, "{n_refused} refused, {n_unheard} unheard of");

    disk.resize("64m");
    let (_, n_refused, _) = tally(&history.operations());
    let worked = clients.work(&hub.url, 10).await;
    let (n_acknowledged, n_refused_later, n_unheard) = tally(&history.operations());
    assert_eq!(n_refused_later, n_refused, "with room again nothing is refused");
    assert_eq!(worked.n_acknowledged, 10 * crate::load::CLIENTS);
    println!(
        "disk full: {n_acknowledged} acknowledged, {n_refused} refused with the reason, {n_unheard} unheard of; {} \
         acknowledged at once when it grew",
        worked.n_acknowledged
    );
    let report: Value = serde_json::from_str(&hub.ok(&["log", "verify", "--json"])).expect("JSON");
    assert_eq!((&report["broken"], &report["damage"]), (&Value::Null, &Value::Null));
    assert!(hub.end(Signal::TERM).success());

    let operations = history.operations();
    let faults = faults_after(&disk.data(), &operations).await;
    assert!(faults.is_empty(), "{}", tell(&faults));
    // The control: whoever takes a refusal for an acknowledgement misses what is not there.
    let faults = faults_after(&disk.data(), &believing_everything(&operations)).await;
    assert!(faults.iter().any(|fault| matches!(fault, Fault::Lost(_))), "{faults:?}");
}

#[tokio::test]
async fn on_a_full_disk_the_hub_says_so_or_starts_and_later_it_starts() {
    let Some(disk) = SmallDisk::mount("2m") else { return };
    let mut hub = Hub::start_in(&disk.data());
    let mut mcp = hub.modern(&hub.operator, "/mcp").await;
    add(&mut mcp, "kept").await;
    assert!(hub.end(Signal::TERM).success());
    let filler = disk.path().join("filler");
    // It ends when there is no room for more.
    let _ = std::fs::write(&filler, vec![0; 4 << 20]);
    let stderr = tempfile::NamedTempFile::new().expect("a file");
    let mut up = command(&disk.data());
    up.arg("up").stderr(stderr.reopen().expect("it is open"));
    let started = Hub::try_start_with(up, &disk.data());
    let said = std::fs::read_to_string(stderr.path()).expect("it speaks UTF-8");
    println!("on a full disk: {}", if started.is_ok() { "it starts" } else { said.trim() });
    if let Err(status) = started {
        let says_why =
            said.contains("No space left on device") || said.contains("no room on the disk");
        assert!(!status.success() && said.contains("error: ") && says_why, "{said}");
    }
    std::fs::remove_file(filler).expect("it is there");
    let hub = Hub::start_in(&disk.data());
    let (list, _) = hub.modern(&hub.operator, "/mcp").await.call("task-list", json!({})).await;
    assert!(list.contains("kept"), "{list}");
}

/// The controls: an operator is served meanwhile, and the agent is as soon as there is room.
#[tokio::test]
async fn what_is_left_of_a_disk_is_kept_for_operators() {
    let Some(disk) = SmallDisk::mount("20m") else { return };
    let hub = Hub::start_in(&disk.data());
    let ann = hub.token("ann", "full");
    let mut mcp = hub.modern(&ann, "/mcp").await;
    let (answer, is_error) = add(&mut mcp, "while there is room").await;
    assert!(!is_error, "{answer}");
    let filler = disk.path().join("filler");
    let file = std::fs::File::create(&filler).expect("it can be made");
    let room = rustix::fs::statvfs(disk.path()).expect("a disk has a size");
    let left = room.f_bavail * room.f_frsize;
    let all_but_half_a_mib = left - (1 << 19);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, all_but_half_a_mib)
        .expect("there is room");
    // The hub looks at the disk each second.
    let mut n_added = 0;
    let refusal = loop {
        let (answer, is_error) = add(&mut mcp, &format!("ann {n_added}")).await;
        if is_error {
            break answer;
        }
        n_added += 1;
        assert!(n_added < 1_000, "agents fill the disk");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert!(refusal.starts_with("error: nothing was changed: the disk has 0."), "{refusal}");
    assert!(refusal.contains("are kept for operators; ask the operator to free some"), "{refusal}");
    reads_work(&hub, &mut mcp).await;
    let (answer, is_error) = add(&mut hub.modern(&hub.operator, "/mcp").await, "olga").await;
    assert!(!is_error, "{answer}");
    drop(file);
    std::fs::remove_file(filler).expect("it is there");
    let (answer, is_error) = add(&mut mcp, "ann again").await;
    assert!(!is_error, "{answer}");
}
