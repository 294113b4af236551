//! Agent programs that lie, flood and leave: each harms only itself.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::agents::World;
use crate::hub::TEAMSTER;

const LIAR: &str = include_str!("liar.sh");
const DRIVERS: [&str; 3] = ["acp", "claude", "codex"];
/// What a program does, and how an agent ends whose program does it.
const TRICKS: [(&str, &str); 7] = [
    ("garbage", "completed"),
    ("endless", "timed_out"),
    ("leaves", "crashed"),
    ("usage", "completed"),
    ("strange", "completed"),
    ("asks", "completed"),
    ("takes_back", "completed"),
];
/// What one that never ends its line may cost: the longest line, and the copies made while a buffer grows.
const ENDLESS_KIB_MAX: u64 = 64 * 1024;
/// As many questions as one program may have open, and take back.
const ASKED_MAX: usize = 32;
const TAKEN_BACK_MAX: usize = 100;

fn settings(liar: &Path) -> String {
    let mut settings = "[pool]\nrunning = 64\nlive = 64\n[categories.coding]\nstall_s = 2\n\
                        [permissions]\notherwise = \"ask\"\n"
        .to_owned();
    for driver in DRIVERS {
        for (trick, _) in TRICKS {
            let name = name(driver, trick);
            // Only one that is silent needs to be found out soon.
            let category = if trick == "endless" { "coding" } else { "research" };
            let liar = liar.to_string_lossy();
            let _ = writeln!(
                settings,
                "[programs.{name}]\ncommand = \"sh\"\ndriver = \"{driver}\"\ngrace_s = 0\n\
                 args = [{liar:?}, \"{driver}\", \"{trick}\"]\n\
                 [roles.{name}]\nprogram = \"{name}\"\nprompt = \"Lie.\"\ncategory = \"{category}\""
            );
        }
    }
    settings
}

fn name(driver: &str, trick: &str) -> String {
    format!("{driver}-{}", trick.replace('_', "-"))
}

/// Returns how much memory the hub has taken up at most.
fn peak_kib(world: &World) -> u64 {
    let pid = world.hub.hub_process.as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the hub runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Returns the command lines of what the hub started, whose home is theirs, too.
fn processes(world: &World) -> Vec<String> {
    // It may have ended while we look.
    let read = |file: std::path::PathBuf| {
        String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).replace('\0', " ")
    };
    let home = world.home.path().to_string_lossy();
    let processes = std::fs::read_dir("/proc").expect("it can be read");
    processes
        .map(|entry| entry.expect("it can be read").path())
        .filter(|process| read(process.join("environ")).contains(&*home))
        .map(|process| read(process.join("cmdline")))
        .filter(|line| !line.starts_with(TEAMSTER))
        .collect()
}

#[test]
fn programs_that_lie_harm_only_themselves() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let liar = directory.path().join("liar.sh");
    std::fs::write(&liar, LIAR).expect("it can be written");
    let world = World::start(&settings(&liar));
    let before_kib = peak_kib(&world);
    let mut drafted = Vec::new();
    for driver in DRIVERS {
        for (trick, ending) in TRICKS {
            let id = world.draft(&name(driver, trick), "Lie to me.");
            drafted.push((driver, trick, ending, id));
        }
    }
    // The hub goes on with others meanwhile.
    let work = "! call task-add {\"tasks\":[{\"content\":\"honest work\"}]}\n! say done";
    let honest = world.ended(&world.draft("coder", work));
    assert_eq!(honest["outcome"]["summary"], "done", "{honest}");
    for (driver, trick, ending, id) in &drafted {
        let agent = world.ended(id);
        assert_eq!(agent["outcome"]["ending"], *ending, "{driver} {trick}: {agent}");
        let log = world.hub.ok(&["log"]);
        let n_asked = log.matches(&format!(": {id} asks: ")).count();
        match *trick {
            "asks" => assert!((1..=ASKED_MAX).contains(&n_asked), "{id}: {n_asked}"),
            "takes_back" => assert_eq!(n_asked, TAKEN_BACK_MAX, "{id}"),
            "usage" => {
                let used = &world.agent(id)["used"];
                assert!(used["input"].as_u64() <= Some(1_000_000_000), "{used}");
                let cost = (&used["microdollars"], &used["n_unpriced"]);
                assert_eq!(cost, (&json!(0), &json!(1)), "{driver}: {used}");
            }
            _ => assert!(n_asked <= 1, "{id}: {n_asked}"),
        }
    }
    let grown_kib = peak_kib(&world) - before_kib;
    println!("liars: {grown_kib} KiB more in all");
    assert!(grown_kib < ENDLESS_KIB_MAX * DRIVERS.len() as u64, "{grown_kib} KiB more");
    assert_eq!(world.hub.ok(&["questions", "--json"]), "[]");
    assert_eq!(processes(&world), Vec::<String>::new());
    let agents: Value = serde_json::from_str(&world.hub.ok(&["agents", "--json"])).expect("JSON");
    assert_eq!(agents, json!([]));
}
