//! The machine that programs run on: starts and ends them as a supervisor does, knows which of them run, and notices what
//! a hub says or does that does not fit.

use std::io;
use std::sync::MutexGuard;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use teamster_agents::isolation::{self, Isolation, Step};
use teamster_agents::launch::{Exited, How, Launch, Measure};
use teamster_agents::launches::Leftover;
use teamster_agents::started::{Running as Side, Started, Wanted};
use teamster_agents::supervise::Supervise;
use teamster_agents::supervisor::Error;
use teamster_core::agent::{self, Agent, Phase};
use teamster_core::iteration;
use tokio::sync::Notify;

use super::program::{Manner, Program};
use super::*;

/// The machine of one seed.
pub(super) struct Machine {
    seed: u64,
    state: Mutex<Inside>,
    faulted: Notify,
}

#[derive(Default)]
struct Inside {
    fault: Option<String>,
    hub: Option<Handle>,
    n_launches: u64,
    /// Programs that run, by the name of their launch.
    live: BTreeMap<String, Of>,
    /// Launches that no hub saw end, and when their programs were gone, if that was seen.
    noted: BTreeMap<String, Option<Timestamp>>,
    ledger: Ledger,
}

/// Whose program it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Of {
    pub(super) agent: String,
    pub(super) incarnation: u32,
}

/// What programs did, as they know it themselves.
#[derive(Debug, Default, Clone)]
pub(super) struct Ledger {
    /// What each session has cost, and whose it is.
    pub(super) sessions: BTreeMap<String, (String, u64)>,
    /// The last that an agent said when its turn was done.
    pub(super) said: BTreeMap<String, String>,
    /// Starts of agents that did not go on with their session.
    pub(super) not_resumed: BTreeSet<(String, u32)>,
    pub(super) n_answered: u64,
    pub(super) n_resumed: u64,
    pub(super) n_killed: u64,
    pub(super) n_left: u64,
}

impl Of {
    /// Reads it from a launch's name: `<agent>-<incarnation>-<number>`.
    fn read(launch: &str) -> Self {
        let mut parts = launch.rsplitn(3, '-').skip(1);
        let incarnation = parts.next().and_then(|part| part.parse().ok()).expect("a number");
        Self { agent: parts.next().expect("a name").to_owned(), incarnation }
    }
}

impl Machine {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, state: Mutex::default(), faulted: Notify::new() }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.state.lock().expect("nobody panics with it")
    }

    /// Notes what must not be; the first is what counts.
    pub(super) fn fault(&self, what: String) {
        self.inside().fault.get_or_insert(what);
        self.faulted.notify_one();
    }

    pub(super) async fn faulted(&self) -> String {
        loop {
            if let Some(fault) = self.inside().fault.clone() {
                return fault;
            }
            self.faulted.notified().await;
        }
    }

    pub(super) fn ledger<T>(&self, with: impl FnOnce(&mut Ledger) -> T) -> T {
        with(&mut self.inside().ledger)
    }

    /// Returns the hub that runs now.
    pub(super) fn hub(&self) -> Handle {
        self.inside().hub.clone().expect("programs run only while a hub does")
    }

    pub(super) fn hub_starts(&self, handle: &Handle) {
        self.inside().hub = Some(handle.clone());
    }

    /// What a hub started ends with it, a little later.
    pub(super) fn hub_is_gone(&self, at: Timestamp) {
        let mut inside = self.inside();
        inside.hub = None;
        let gone = std::mem::take(&mut inside.live);
        inside.ledger.n_left += gone.len() as u64;
        let mut dice = dice(self.seed, 600 + inside.n_launches);
        for launch in gone.into_keys() {
            let gone_at = Timestamp(at.0 + i64::try_from(dice.below(50)).expect("small"));
            inside.noted.insert(launch, (dice.below(4) > 0).then_some(gone_at));
        }
    }

    /// A hub that has ended must have ended all that it started.
    pub(super) fn check_idle(&self) -> Result<(), String> {
        let inside = self.inside();
        if let Some(fault) = &inside.fault {
            return Err(fault.clone());
        }
        match inside.live.keys().next() {
            Some(launch) => Err(format!("the hub has ended, and {launch} runs")),
            None => Ok(()),
        }
    }

    /// Sees what a hub is about to store: of none whose program runs, it may say that it has none.
    pub(super) fn sees(&self, commit: &teamster_log::Commit) {
        let body = Body::decode(&commit.body).expect("our commits can be read");
        for event in body.records.iter().flat_map(|record| &record.events) {
            if let Event::Run {
                run,
                what: run::Event::Iteration(iteration::Event::Ended { iteration, .. }),
            } = event
            {
                self.check_iteration(run, *iteration);
            }
            let Event::Agent(event) = event else { continue };
            let is_over = matches!(
                event,
                agent::Event::Ended { .. }
                    | agent::Event::Interrupted { .. }
                    | agent::Event::Parked { .. }
                    | agent::Event::Slept { .. }
            );
            let runs = |of: &Of| of.agent == event.agent().as_str();
            let running = self.inside().live.values().find(|of| runs(of)).cloned();
            if let Some(of) = running.filter(|_| is_over) {
                self.fault(format!("{of:?} still runs, and the hub says {event:?}"));
            }
        }
    }

    /// An iteration is over when its agent is.
    fn check_iteration(&self, run: &RunName, number: u32) {
        let state = self.hub().state();
        let mut open = state.runs.get(run).iterations.open();
        let Some(open) = open.find(|open| open.number == number) else { return };
        let is_live = self.inside().live.values().any(|of| of.agent == open.agent.as_str());
        if is_live {
            self.fault(format!("iteration {number} of {run} ends while {} runs", open.agent));
        }
    }

    /// Returns an agent as the hub has published it, if it is the one that a program belongs to.
    pub(super) fn agent(&self, of: &Of) -> Option<Arc<Agent>> {
        let state = self.hub().state();
        let agent = state.agents.get(&of.agent)?;
        (agent.incarnation == of.incarnation).then(|| agent.clone())
    }

    fn check_launch(&self, of: &Of) {
        let is_wanted = self
            .agent(of)
            .is_some_and(|agent| matches!(agent.phase, Phase::Running | Phase::Ending));
        if !is_wanted {
            self.fault(format!("{of:?} is started, and the log does not say so"));
        }
        let other = self
            .inside()
            .live
            .iter()
            .find(|(_, other)| other.agent == of.agent)
            .map(|(launch, _)| launch.clone());
        if let Some(other) = other {
            self.fault(format!("{of:?} is started while {other} runs"));
        }
    }

    async fn start(self: Arc<Self>, launch: Launch) -> Result<Started, Error> {
        let of = Of::read(&launch.id);
        self.check_launch(&of);
        let n = {
            let mut inside = self.inside();
            inside.n_launches += 1;
            inside.n_launches
        };
        let mut dice = dice(self.seed, 10_000 + n);
        tokio::time::sleep(dice.millis(60)).await;
        match dice.below(40) {
            0 => return Err(Error::Late),
            1 => return Err(Error::Failed(failure("there is no such program"))),
            _ => {}
        }
        // So small that a program has to wait for the hub to read.
        let (stdin, reads) = tokio::io::duplex(256);
        let (writes, stdout) = tokio::io::duplex(256);
        let (started, side) = Started::new(&launch, None, stdin, stdout);
        let name = launch.id.clone();
        self.inside().live.insert(name.clone(), of.clone());
        self.inside().noted.insert(name.clone(), None);
        let manner = Manner::drawn(&mut dice);
        let program = Program::new(self.clone(), of, name.clone(), manner, Dice(dice.roll()));
        let machine = self.clone();
        let watch = self.watch(name, program.run(reads, writes), side, manner, dice);
        tokio::spawn(async move {
            if let Err(error) = tokio::spawn(watch).await {
                machine.fault(format!("a program of the simulation failed: {error}"));
            }
        });
        Ok(started)
    }

    /// Runs a program until it ends, or is ended, as a launcher and its supervisor do.
    async fn watch(
        self: Arc<Self>,
        name: String,
        program: impl Future<Output = How> + Send + 'static,
        mut side: Side,
        manner: Manner,
        mut dice: Dice,
    ) {
        let mut measure = None;
        let how = {
            let mut program = std::pin::pin!(program);
            let ends = async {
                loop {
                    match side.wanted() {
                        Wanted::Alive => drop(side.asked().await),
                        Wanted::Killed => break,
                        Wanted::Ended(grace) => {
                            side.close_stdin();
                            measure = Some(Measure::StdinClosed);
                            if is_killed_within(&mut side, grace.after_stdin).await {
                                break;
                            }
                            measure = Some(Measure::Terminated);
                            let after = match manner.heeds_term {
                                true => grace.after_terminate.min(dice.millis(500)),
                                false => grace.after_terminate,
                            };
                            is_killed_within(&mut side, after).await;
                            break;
                        }
                    }
                }
                measure = Some(Measure::Killed);
                How::Killed
            };
            tokio::select! {
                biased;
                how = ends => how,
                how = &mut program => how,
            }
        };
        if how == How::Killed {
            self.ledger(|ledger| ledger.n_killed += 1);
        }
        // Its pipes are closed. What it started may take longer.
        tokio::time::sleep(manner.lingers).await;
        self.inside().live.remove(&name);
        self.inside().noted.remove(&name);
        side.end(Exited { how, after: measure, n_left: 0 });
    }
}

/// Waits so long, unless the hub wants it killed at once.
async fn is_killed_within(side: &mut Side, time: Duration) -> bool {
    let killed = async {
        while side.wanted() != Wanted::Killed {
            if side.asked().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::time::timeout(time, killed).await.is_ok()
}

fn failure(why: &str) -> isolation::Failure {
    isolation::Failure { step: Step::Program, why: why.to_owned() }
}

/// The runner holds it as its supervisor.
pub(super) struct OnMachine(pub(super) Arc<Machine>);

impl Supervise for OnMachine {
    fn strongest<'a>(
        &'a self,
        _id: &'a str,
    ) -> BoxFuture<'a, (Isolation, Option<isolation::Failure>)> {
        Box::pin(std::future::ready((Isolation::Namespaces, None)))
    }

    fn launch(&self, launch: Launch) -> BoxFuture<'_, Result<Started, Error>> {
        Box::pin(self.0.clone().start(launch))
    }

    fn end_leftovers(&self) -> io::Result<Vec<Leftover>> {
        let left = |(id, gone_at): (&String, &Option<Timestamp>)| Leftover {
            id: id.clone(),
            note: None,
            processes: Vec::new(),
            n_killed: 0,
            n_left: 0,
            alone_at: None,
            gone_at: gone_at.map(time),
        };
        Ok(self.0.inside().noted.iter().map(left).collect())
    }

    fn forget(&self, leftovers: &[Leftover]) -> io::Result<()> {
        for left in leftovers {
            let of = Of::read(&left.id);
            if self.0.agent(&of).is_some_and(|agent| agent.token.is_some()) {
                self.0
                    .fault(format!("{of:?} is forgotten, and the log does not say that it ended"));
            }
            self.0.inside().noted.remove(&left.id);
        }
        Ok(())
    }
}

fn time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).expect("after 1970"))
}
