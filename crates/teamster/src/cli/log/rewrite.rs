//! What `log redact` and `log compact` share: the log is written anew while no hub runs, and says so itself.

use anyhow::Context as _;
use teamster_core::hub::{self, Rewriting};
use teamster_core::record::Body;
use teamster_core::token::Kind;
use teamster_core::{Caller, Command, Context, Decision, PrincipalName, Record, State};
use teamster_log::{CommitId, Head, Log, OpenError, Options, Rewrite};

use teamster_hub::clock::{Clock, SystemClock};
use teamster_hub::config::DataFiles;
use teamster_hub::secret;

/// Takes the log for rewriting.
pub(super) fn begin(data: &DataFiles) -> anyhow::Result<Rewrite> {
    match Rewrite::begin(data.directory(), Options::default()) {
        Err(OpenError::InUse { .. }) => {
            anyhow::bail!("a hub is using this log; stop it first with `{}`", data.call("down"))
        }
        begun => Ok(begun?),
    }
}

/// Appends the record of the rewriting and puts the new log into the place of the old one. `state` is that at the end of
/// the new log.
pub(super) async fn finish(
    rewrite: Rewrite,
    at: Head,
    state: &State,
    how: Rewriting,
) -> anyhow::Result<()> {
    let before = rewrite.old().head().await?;
    let before = format!("{}:{}", before.number, before.hash);
    // Whoever can write the data directory is its operator; there is no hub to ask for a token.
    let by = PrincipalName::parse("operator")?;
    let caller = Caller { principal: by.clone(), kind: Kind::OPERATOR, token: None, team: None };
    let mut random = secret::system_random();
    let cx =
        Context { caller, now: SystemClock.now(), random: random(), quotas: Default::default() };
    let command = Command::Hub(hub::Command::Rewrite { before, how });
    let Decision::New(events) = state.decide(&command, None, &cx)? else { return Ok(()) };
    let record = Record { at: cx.now, by, token: None, key: None, events };
    let body = Body::new(state.seq() + 1, vec![record]);
    let id = (u128::from(random()) << 64 | u128::from(random())).to_be_bytes();
    rewrite.new_log().append(at.next(CommitId(id), body.encode())).await?;
    rewrite.finish().context("the log was not replaced")
}

/// Reads a whole log and shows each of its commits to `each`; returns the state at its end.
pub(super) async fn replay(log: &dyn Log, mut each: impl FnMut(&Body)) -> anyhow::Result<State> {
    const PAGE: usize = 1_000;
    let mut state = State::default();
    let mut after = 0;
    loop {
        let commits = log.read(after, PAGE).await?;
        let Some(last) = commits.last() else { return Ok(state) };
        after = last.number;
        for commit in &commits {
            let body = Body::decode(&commit.body)
                .with_context(|| format!("commit {} cannot be used", commit.number))?;
            body.records.iter().for_each(|record| state.apply(record));
            each(&body);
        }
    }
}
