//! `teamster down`: stop the hub and wait until it is gone.

use teamster_api::paths::ListRuns;
use teamster_api::runs::{Phase, RunLine};
use teamster_api::{Client, ListQuery, wait_until_gone};

use super::say;
use teamster_hub::config::DataFiles;

pub(super) async fn run(data: &DataFiles) -> anyhow::Result<()> {
    let Some(mut client) = Client::connect_if_running(data).await? else {
        say(&format!("no hub is running for {}", data.directory().display()));
        return Ok(());
    };
    let pid = client.hub.pid;
    // A hub of another version may list its runs in another form; it stops all the same.
    let runs = client.all::<ListRuns, _>(&ListQuery::default()).await.unwrap_or_default();
    let up = data.call("up");
    let unfinished: Vec<String> =
        runs.iter().filter_map(|run| unfinished(&run.line, &up)).collect();
    client.stop_hub().await?;
    drop(client);
    wait_until_gone(data).await?;
    say(&format!("the hub (pid {pid}) has stopped"));
    unfinished.iter().for_each(|line| say(line));
    Ok(())
}

/// Says what the next hub does with a run that has not ended, if it has not.
fn unfinished(run: &RunLine, up: &str) -> Option<String> {
    let name = Some(&run.name).filter(|_| run.under_way)?;
    Some(match run.phase {
        Phase::Stopping => format!("run {name} is stopping; it ends at the next `{up}`"),
        Phase::Paused => format!("run {name} is paused; it stays paused after the next `{up}`"),
        _ => format!("run {name} is unfinished; it resumes at the next `{up}`"),
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn each_run_that_has_not_ended_is_named_with_what_comes_next() {
        let says = |phase: Phase, under_way: bool| {
            let name = "z1".to_owned();
            unfinished(&RunLine { name, phase, under_way, ..RunLine::default() }, "teamster up")
        };
        let lines = [Phase::Working, Phase::Paused, Phase::Stopping].map(|phase| says(phase, true));
        expect![[r#"
            run z1 is unfinished; it resumes at the next `teamster up`
            run z1 is paused; it stays paused after the next `teamster up`
            run z1 is stopping; it ends at the next `teamster up`"#]]
        .assert_eq(&lines.map(Option::unwrap_or_default).join("\n"));
        assert_eq!(says(Phase::Stopped, false), None);
    }
}
