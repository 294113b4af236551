//! `teamster run forget`: remove a run with what it left behind. The verb is one word after `run`; a spec of that name is
//! `./forget`.

use serde_json::{Value, json};

use crate::cli::{connect_to_hub, print, say};
use teamster_api::in_path;
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
pub(super) struct ForgetArgs {
    /// The run
    #[arg(value_name = "NAME")]
    run: String,

    /// Also remove branches and files that are not merged
    #[arg(long)]
    force: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(data: &DataFiles, args: ForgetArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let path = format!("/api/runs/{}/forget", in_path(&args.run));
    let done = client.post(&path, &json!({"force": args.force})).await?;
    if args.json {
        return print(&done.to_string());
    }
    if done["forgotten"] == false {
        say(&format!("there is no run {}; nothing to forget", args.run));
        return Ok(());
    }
    print(&shown(&args.run, &done["removed"]))
}

fn shown(name: &str, removed: &Value) -> String {
    let list = |what: &str| -> Vec<&str> {
        removed[what].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let mut text = format!("forgot {name}; the name is free, and the log keeps its history");
    for (what, title) in [
        ("branches", "removed branches"),
        ("refs", "removed refs"),
        ("worktrees", "removed worktrees"),
        ("kept", "could not remove"),
    ] {
        let list = list(what);
        if !list.is_empty() {
            text.extend(["\n  ", title, ": ", &list.join(", ")]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn what_was_removed_is_named() {
        let removed = json!({
            "branches": ["teamster/run-a/iteration-1"], "refs": ["refs/teamster/run-a/before-0", "refs/teamster/run-a/work-0"],
            "worktrees": [], "kept": [],
        });
        expect![[r#"
            forgot a; the name is free, and the log keeps its history
              removed branches: teamster/run-a/iteration-1
              removed refs: refs/teamster/run-a/before-0, refs/teamster/run-a/work-0"#]]
        .assert_eq(&shown("a", &removed));
    }
}
