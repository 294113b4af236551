//! `teamster run forget`: remove a run with what it left behind. The verb is one word after `run`; a spec of that name is
//! `./forget`.

use teamster_api::runs::{Forget, Removed};

use crate::cli::{connect_to_hub, print, print_json, say};
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
    let done = client.forget_run(&args.run, &Forget { force: args.force }).await?;
    if args.json {
        return print_json(&done);
    }
    if !done.forgotten {
        say(&format!("there is no run {}; nothing to forget", args.run));
        return Ok(());
    }
    print(&shown(&args.run, &done.removed.unwrap_or_default()))
}

fn shown(name: &str, removed: &Removed) -> String {
    let mut text = format!("forgot {name}; the name is free, and the log keeps its history");
    for (list, title) in [
        (&removed.branches, "removed branches"),
        (&removed.refs, "removed refs"),
        (&removed.worktrees, "removed worktrees"),
        (&removed.kept, "could not remove"),
    ] {
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
        let removed = Removed {
            branches: vec!["teamster/run-a/iteration-1".into()],
            refs: ["refs/teamster/run-a/before-0", "refs/teamster/run-a/work-0"]
                .map(Into::into)
                .into(),
            ..Removed::default()
        };
        expect![[r#"
            forgot a; the name is free, and the log keeps its history
              removed branches: teamster/run-a/iteration-1
              removed refs: refs/teamster/run-a/before-0, refs/teamster/run-a/work-0"#]]
        .assert_eq(&shown("a", &removed));
    }
}
