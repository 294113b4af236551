//! `teamster log compact`: leaves out the events that nothing depends on any more.

use std::path::PathBuf;

use anyhow::bail;
use teamster_core::compaction::Compaction;
use teamster_core::hub::Rewriting;
use teamster_core::record::Body;
use teamster_log::{Commit, Edit, EditError};

use super::super::{Progress, export, say};
use super::rewrite;
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct CompactArgs {
    /// Write the whole log as it is into this file first, as `export` does
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,

    /// Keep no copy of what is left out
    #[arg(long)]
    discard: bool,
}

pub(super) async fn run(data: &DataFiles, args: CompactArgs) -> anyhow::Result<()> {
    let CompactArgs { archive, discard: _ } = args;
    let rewrite = rewrite::begin(data)?;
    let state = rewrite::replay(rewrite.old(), |_| ()).await?;
    let mut compaction = Compaction::new(&state);
    rewrite::replay(rewrite.old(), |body| compaction.survey(body)).await?;
    if let Some(archive) = &archive {
        export::write_file(rewrite.old(), archive).await?;
    }
    let mut progress = Progress::new("compacting");
    let mut say_progress = |done, all| progress.say(done, all);
    let mut thinner = Thinner(compaction);
    let at = teamster_log::copy(rewrite.old(), rewrite.new_log(), &mut thinner, &mut say_progress)
        .await?;
    let (n_dropped, n_before) = thinner.0.n_dropped();
    if n_dropped == 0 {
        say(&format!("all {n_before} events are still needed; the log stays as it is"));
        return Ok(());
    }
    let thinned = rewrite::replay(rewrite.new_log(), |_| ()).await?;
    if !thinned.equals_but_for_numbers(&state) {
        bail!(
            "the compacted log would come to another state, which is a fault in teamster; the log stays as it is"
        );
    }
    let how = Rewriting::Compacted { n_dropped, n_before };
    rewrite::finish(rewrite, at, &thinned, how).await?;
    say(&format!(
        "{n_dropped} of {n_before} events were left out; the log says so in its last commit"
    ));
    Ok(())
}

struct Thinner<'a>(Compaction<'a>);

impl Edit for Thinner<'_> {
    fn body(&mut self, commit: Commit) -> Result<Option<Vec<u8>>, EditError> {
        Ok(self.0.thin(Body::decode(&commit.body)?).map(|body| body.encode()))
    }

    fn record(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }

    fn keeps_blob(&mut self, _bytes: &[u8]) -> bool {
        true
    }
}
