//! A run that somebody wants worked through, and what its log must say.

use teamster_core::drive::{self, Phase, Request, Why};
use teamster_core::ids::ItemId;
use teamster_core::iteration;
use teamster_core::topic::Topic;
use teamster_mcp::Hub as _;

use super::people::until_told;
use super::*;

/// What every agent of the run is told.
pub(super) const SPEC: &str = "The spec of this seed.";

/// What is wanted, and what is known of it.
pub(super) struct RunWanted {
    begins_after: Duration,
    iterations: u32,
    microdollars: Option<u64>,
    /// When somebody stops it, and whether at once.
    stops: Option<(Duration, bool)>,
    is_begun: Mutex<bool>,
    is_stopped: Mutex<bool>,
    over: Mutex<Option<Why>>,
}

fn name() -> RunName {
    RunName::parse("work").expect("a name")
}

impl RunWanted {
    pub(super) fn drawn(dice: &mut Dice) -> Self {
        Self {
            begins_after: dice.millis(5_000),
            iterations: 2 + u32::try_from(dice.below(4)).expect("few"),
            microdollars: (dice.below(3) == 0).then(|| dice.below(500)),
            stops: (dice.below(6) == 0).then(|| (dice.millis(60_000), dice.below(2) == 0)),
            is_begun: Mutex::default(),
            is_stopped: Mutex::default(),
            over: Mutex::default(),
        }
    }

    fn drive(what: drive::Command) -> Command {
        Command::Run { run: name(), what: run::Command::Drive(what) }
    }

    fn begin(&self, handle: &Handle) -> Command {
        let directory: Arc<str> = handle.directory().into();
        Self::drive(drive::Command::Begin(Request {
            resumes: false,
            spec: SPEC.into(),
            file: "spec.md".into(),
            directory,
            behaviour: handle.state().roles.get("hand").cloned(),
            iterations: Some(self.iterations),
            // More of them need a repository.
            workers: Some(1),
            microdollars: self.microdollars,
            commits: Some(false),
            check: None,
            template: None,
            plan_template: None,
            extra: None,
            repository: None,
        }))
    }

    /// Has it begun, if it is not, and waits until it is over.
    pub(super) async fn have_done(&self, handle: &Handle, mut dice: Dice) -> Result<(), String> {
        let is = |what: &Mutex<bool>| *what.lock().expect("nobody panics with it");
        tokio::time::sleep(self.begins_after).await;
        if !is(&self.is_begun) {
            let key = Key::new("begin-the-run", 1).expect("it is a key");
            until_told(handle, &self.begin(handle), Some(key), &mut dice).await?;
            *self.is_begun.lock().expect("nobody panics with it") = true;
        }
        let stops = async {
            let Some((after, now)) = self.stops.filter(|_| !is(&self.is_stopped)) else {
                return std::future::pending().await;
            };
            tokio::time::sleep(after).await;
            let stop = Self::drive(drive::Command::Stop { now });
            // It may be over.
            let told = until_told(handle, &stop, None, &mut dice).await;
            *self.is_stopped.lock().expect("nobody panics with it") = told.is_ok();
            std::future::pending::<()>().await;
        };
        let watch = handle.watch(&Topic::Run(name()));
        let over = watch.until(handle, |state| {
            let run = state.runs.get(&name());
            let over = match &run.drive.as_ref()?.phase {
                Phase::Over(why) => Some(why.clone()),
                Phase::Working | Phase::Paused | Phase::Stopping => None,
            };
            over.filter(|_| run.iterations.open().next().is_none())
        });
        let over = tokio::select! {
            biased;
            over = over => over,
            () = stops => unreachable!("it waits for ever"),
        };
        *self.over.lock().expect("nobody panics with it") = Some(over);
        Ok(())
    }

    /// The run is over as its owner was told, and nothing of it is open.
    pub(super) fn check(&self, state: &State) -> Result<(), String> {
        let run = state.runs.get(&name());
        let over = self.over.lock().expect("nobody panics with it").clone();
        let drive = run.drive.as_ref().ok_or("a run was begun and is not there")?;
        match (&drive.phase, over) {
            (Phase::Over(why), Some(told)) if *why == told => {}
            (phase, told) => {
                return Err(format!("the run is {phase:?}, and was told to be {told:?}"));
            }
        }
        match run.iterations.open().next() {
            Some(open) => Err(format!("iteration {} never ended", open.number)),
            None => Ok(()),
        }
    }
}

/// What the log says of the run, counted anew.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// The worker of each iteration that is open.
    open: BTreeMap<u32, u32>,
    last: Option<u32>,
    n_begun: u32,
    n_ended: u64,
    is_over: bool,
    completed: BTreeSet<ItemId>,
}

impl Model {
    pub(super) fn n_iterations(&self) -> u64 {
        self.n_ended
    }

    pub(super) fn n_completed(&self) -> u64 {
        self.completed.len() as u64
    }

    pub(super) fn take(&mut self, record: &Record, before: &State) -> Result<(), String> {
        for event in &record.events {
            let Event::Run { run, what } = event else { continue };
            let Some(drive) = &before.runs.get(run).drive else { continue };
            if let run::Event::Iteration(event) = what {
                self.take_iteration(event, drive)?;
            }
            if let run::Event::Drive(drive::Event::Over { why }) = what
                && std::mem::replace(&mut self.is_over, true)
            {
                return Err(format!("the run was over twice, at last by {why:?}"));
            }
            if let run::Event::Item(item::Event::Updated { id, status, .. }) = what
                && *status == Some(item::Status::Completed)
                && !self.completed.insert(*id)
            {
                return Err(format!("{id} was completed twice"));
            }
        }
        Ok(())
    }

    fn take_iteration(
        &mut self,
        event: &iteration::Event,
        drive: &drive::Drive,
    ) -> Result<(), String> {
        match event {
            iteration::Event::Begun { iteration, worker, plans, .. } => {
                // The first one plans, and so do those after it until there is a plan.
                if self.last.map_or(0, |last| last + 1) != *iteration {
                    return Err(format!("iteration {iteration} came after {:?}", self.last));
                }
                if self.is_over || drive.is_over() {
                    return Err(format!("iteration {iteration} began when the run was over"));
                }
                if self.open.values().any(|other| other == worker) {
                    return Err(format!("worker {worker} is in two iterations"));
                }
                self.last = Some(*iteration);
                self.n_begun += u32::from(!plans);
                self.open.insert(*iteration, *worker);
                let terms = &drive.terms;
                if self.open.len() > terms.workers as usize {
                    return Err(format!("{} iterations are open", self.open.len()));
                }
                if terms.iterations.is_some_and(|most| self.n_begun > most) {
                    return Err(format!("{} iterations were begun", self.n_begun));
                }
                let spent = drive.spent.microdollars;
                if terms.microdollars.is_some_and(|most| spent >= most) {
                    return Err(format!("iteration {iteration} began when {spent} was spent"));
                }
            }
            iteration::Event::Ended { iteration, .. } => {
                if self.open.remove(iteration).is_none() {
                    return Err(format!("iteration {iteration} ended and was not open"));
                }
                self.n_ended += 1;
            }
            iteration::Event::Summarised { .. }
            | iteration::Event::Left { .. }
            | iteration::Event::Rebased { .. }
            | iteration::Event::Numbered { .. } => {}
        }
        Ok(())
    }
}

/// Returns the item that somebody has taken.
pub(super) fn claimed(done: &Done) -> Option<ItemId> {
    done.events.iter().find_map(|event| match event {
        Event::Run { what: run::Event::Item(item::Event::Claimed { id }), .. } => Some(*id),
        _ => None,
    })
}
