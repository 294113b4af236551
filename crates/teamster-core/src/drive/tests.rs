use super::*;
use crate::agent::tests::role;
use crate::agent::{self, AgentId, Outcome, Status as OutcomeStatus};
use crate::item::Status;
use crate::role::Limits;
use crate::testing::Given;
use crate::token::{self, NewToken, SecretHash};
use crate::{Command as Any, RunName, item, iteration, run};

/// A request for a run in a repository that several can work on.
pub(super) fn request(workers: u32) -> Request {
    Request {
        resumes: false,
        spec: "Build it.".into(),
        file: "SPEC.md".into(),
        directory: "/project".into(),
        behaviour: Some(Arc::new(role("coder", Limits::USUAL))),
        iterations: None,
        workers: Some(workers),
        microdollars: None,
        commits: Some(true),
        check: None,
        template: None,
        plan_template: None,
        extra: None,
        repository: Some(Repository {
            root: "/project".into(),
            has_commit: true,
            is_on_branch: true,
        }),
    }
}

fn begin(request: Request) -> Command {
    Command::Begin(request)
}

pub(super) fn resume(request: Request) -> Command {
    Command::Begin(Request { resumes: true, ..request })
}

fn name() -> RunName {
    RunName::parse("spec").unwrap()
}

/// Something asked of the run.
fn in_run(what: run::Command) -> Any {
    Any::Run { run: name(), what }
}

/// Something asked of the default run, asked of this one.
fn here(command: Any) -> Any {
    let Any::Run { what, .. } = command else { panic!("{command:?}") };
    in_run(what)
}

/// A run that the hub works off, whose agents do what the test says.
pub(super) struct World {
    pub(super) given: Given,
    n_secrets: u8,
}

impl World {
    pub(super) fn begin(request: Request) -> Self {
        let mut given = Given::ann_and_bob();
        let eve = NewToken { kind: Kind::OPERATOR, ..crate::testing::new_token("eve", 99) };
        given.by("hub", Any::Token(token::Command::Create { new: eve, replace: false }));
        let mut world = Self { given, n_secrets: 100 };
        world.drive("eve", begin(request)).unwrap();
        world
    }

    pub(super) fn drive(&mut self, who: &str, command: Command) -> Result<(), crate::Refusal> {
        self.given.decide(who, in_run(run::Command::Drive(command))).map(|_| ())
    }

    pub(super) fn run(&self) -> &Run {
        self.given.state.runs.get(&name())
    }

    fn next(&self, worker: u32) -> Next {
        next(self.run(), &self.given.state.agents, worker)
    }

    /// Begins what comes next for a worker, and has its agent admitted.
    fn begin_next(&mut self, worker: u32) -> AgentId {
        let Next::Begin { plans } = self.next(worker) else { panic!("{:?}", self.next(worker)) };
        let (base, directory, hooks) = (Some("tree".into()), "/project".into(), String::new());
        let left = None;
        let begin = Command::BeginIteration { worker, plans, base, left, directory, hooks };
        self.drive("hub", begin).unwrap();
        let agent = self.run().iterations.of_worker(worker).unwrap().agent.clone();
        self.admit(&agent);
        agent
    }

    fn admit(&mut self, agent: &AgentId) {
        self.n_secrets += 1;
        let secret = SecretHash([self.n_secrets; 32]);
        self.given.by(
            "hub",
            Any::Agent(agent::Command::Admit {
                id: agent.clone(),
                secret,
                node: crate::NodeName::only(),
            }),
        );
    }

    fn add(&mut self, agent: &AgentId, contents: &[&str]) {
        self.given.by(agent.as_str(), here(crate::testing::add(contents)));
    }

    fn claim(&mut self, agent: &AgentId) -> Result<(), crate::Refusal> {
        let claim = in_run(run::Command::Item(item::Command::Claim));
        self.given.decide(agent.as_str(), claim).map(|_| ())
    }

    fn set(&mut self, agent: &AgentId, item: &str, status: Status) {
        self.given.by(agent.as_str(), here(crate::testing::set(item, status)));
    }

    fn summarise(&mut self, agent: &AgentId) -> Result<(), crate::Refusal> {
        let summary = iteration::Command::Summarise { text: "did it".into() };
        self.given.decide(agent.as_str(), in_run(run::Command::Iteration(summary))).map(|_| ())
    }

    fn ended(&mut self, agent: &AgentId, ending: Ending) {
        let incarnation = self.given.state.agents.get(agent.as_str()).unwrap().incarnation;
        let outcome = Outcome { status: OutcomeStatus::Success, ..Outcome::failed(ending, "so") };
        let end = agent::Command::End { id: agent.clone(), incarnation, outcome };
        self.given.by("hub", Any::Agent(end));
    }

    /// Has a worker's iteration come to its end.
    fn finish(&mut self, worker: u32, commit: Option<&str>) {
        let Next::Finish(open) = self.next(worker) else { panic!("{:?}", self.next(worker)) };
        let commit = commit.map(Into::into);
        self.drive("hub", Command::EndIteration { iteration: open.number, commit, problem: None })
            .unwrap();
    }

    /// Makes a plan of three items.
    pub(super) fn plan(&mut self) {
        let planner = self.begin_next(0);
        self.add(&planner, &["a", "b", "c"]);
        self.summarise(&planner).unwrap();
        self.ended(&planner, Ending::Completed);
        self.finish(0, None);
    }

    /// Works one item off.
    pub(super) fn work(&mut self, worker: u32, item: &str) {
        let agent = self.begin_next(worker);
        self.claim(&agent).unwrap();
        self.set(&agent, item, Status::Completed);
        self.summarise(&agent).unwrap();
        self.ended(&agent, Ending::Completed);
        self.finish(worker, Some("abc"));
    }
}

#[test]
fn a_run_is_planned_and_worked_off_item_by_item() {
    let mut world = World::begin(request(1));
    assert_eq!(world.next(0), Next::Begin { plans: true });
    assert_eq!(world.next(1), Next::Wait);
    let planner = world.begin_next(0);
    assert!(matches!(world.next(0), Next::Await(_)));
    world.add(&planner, &["a", "b"]);
    let refused = world.claim(&planner).unwrap_err().to_string();
    assert!(refused.contains("iteration #0 only makes the plan"), "{refused}");
    world.summarise(&planner).unwrap();
    world.ended(&planner, Ending::Completed);
    world.finish(0, None);
    world.work(0, "TAS-1");
    let agent = world.begin_next(0);
    assert_eq!(world.run().iterations.of_worker(0).unwrap().number, 2);
    world.claim(&agent).unwrap();
    world.set(&agent, "TAS-2", Status::Completed);
    // One item, one summary.
    let refused = world.claim(&agent);
    assert!(refused.is_ok(), "there is nothing left to refuse");
    world.summarise(&agent).unwrap();
    let again = world.summarise(&agent).unwrap_err().to_string();
    assert!(again.contains("Iteration #2 already has a summary"), "{again}");
    world.given.by(agent.as_str(), in_run(run::Command::Complete));
    world.ended(&agent, Ending::Completed);
    world.finish(0, Some("def"));
    assert_eq!(world.next(0), Next::End(Why::Completed));
    world.drive("hub", Command::End { why: Why::Completed }).unwrap();
    assert_eq!(world.next(0), Next::Over);
    let numbers: Vec<u32> = world.run().iterations.summaries().map(|(n, _)| n).collect();
    assert_eq!(numbers, [0, 1, 2]);
    world.given.compacted();
}

#[test]
fn an_iteration_is_for_one_item() {
    let mut world = World::begin(request(1));
    world.plan();
    let agent = world.begin_next(0);
    world.claim(&agent).unwrap();
    world.set(&agent, "TAS-1", Status::Completed);
    let refused = world.claim(&agent).unwrap_err().to_string();
    assert!(refused.contains("iteration #1 is for TAS-1"), "{refused}");
    // Nobody else writes its summary.
    let summary = iteration::Command::Summarise { text: "mine".into() };
    let refused = world.given.decide("ann", in_run(run::Command::Iteration(summary)));
    assert!(refused.unwrap_err().to_string().contains("writes its own summary"));
}

/// A log may be compacted while an iteration is under way: which item it is for is still known after that.
#[test]
fn an_iteration_is_for_the_same_item_after_a_compaction() {
    let mut world = World::begin(request(1));
    world.plan();
    let agent = world.begin_next(0);
    world.claim(&agent).unwrap();
    // The last word on the item, by somebody else.
    world.given.by("eve", here(crate::testing::set("TAS-1", Status::Blocked)));
    world.given.compacted();
}

/// Whoever was cut off goes on with its item, which nobody else gets meanwhile.
#[test]
fn an_item_stays_with_its_iteration() {
    let mut world = World::begin(request(2));
    world.plan();
    let agent = world.begin_next(0);
    world.claim(&agent).unwrap();
    let (id, why) = (agent.clone(), "cut".to_owned());
    let cut = agent::Command::Interrupt { id, incarnation: 1, why, blameless: true };
    world.given.by("hub", Any::Agent(cut));
    assert_eq!(world.run().items.find("TAS-1").unwrap().status, Status::Remaining);
    let other = world.begin_next(1);
    world.claim(&other).unwrap();
    assert_eq!(world.run().items.find("TAS-2").unwrap().status, Status::InProgress);
    let taken = in_run(run::Command::Item(item::Command::Update {
        item: "TAS-1".into(),
        status: Some(Status::InProgress),
        priority: None,
        depends_on: None,
    }));
    let refused = world.given.decide("ann", taken).unwrap_err().to_string();
    assert!(refused.contains("TAS-1 is being worked on in another iteration"), "{refused}");
    world.admit(&agent);
    world.claim(&agent).unwrap();
    assert_eq!(world.run().items.find("TAS-1").unwrap().status, Status::InProgress);
}

#[test]
fn as_many_begin_as_there_is_work_for() {
    let mut world = World::begin(request(3));
    world.plan();
    let first = world.begin_next(0);
    let _second = world.begin_next(1);
    let third = world.begin_next(2);
    // Two have finished, and what is left is taken.
    for (agent, item) in [(&first, "TAS-1"), (&third, "TAS-2")] {
        world.claim(agent).unwrap();
        world.set(agent, item, Status::Completed);
        world.ended(agent, Ending::Completed);
    }
    world.finish(0, Some("a"));
    world.finish(2, Some("b"));
    assert_eq!((world.next(0), world.next(2)), (Next::Wait, Next::Wait));
}

#[test]
fn it_is_over_when_going_on_makes_no_sense() {
    // Its iterations are used up.
    let mut world = World::begin(Request { iterations: Some(1), ..request(1) });
    world.plan();
    world.work(0, "TAS-1");
    assert_eq!(world.next(0), Next::End(Why::IterationsUsed));
    world.drive("hub", Command::End { why: Why::IterationsUsed }).unwrap();
    // And it goes on where it was, with new terms.
    let again = begin(request(1));
    let refused = world.drive("eve", again).unwrap_err().to_string();
    assert!(refused.contains("`resume`"), "{refused}");
    world.drive("eve", resume(request(1))).unwrap();
    world.work(0, "TAS-2");
    assert_eq!(world.run().iterations.current(), 3);
    // Three that do nothing.
    for _ in 0..IDLE_MAX {
        let agent = world.begin_next(0);
        world.ended(&agent, Ending::Completed);
        world.finish(0, None);
    }
    assert_eq!(world.next(0), Next::End(Why::Idle));
    // A message is a reason to go on.
    world.drive("eve", Command::Tell { text: "look again".into() }).unwrap();
    let agent = world.begin_next(0);
    let open = world.run().iterations.of(&agent.principal()).unwrap();
    assert_eq!(open.told.iter().map(|message| &*message.text).collect::<Vec<_>>(), ["look again"]);
    assert!(world.run().drive.as_ref().unwrap().messages.is_empty());
    // Three that fail; how the files were before them is not forgotten.
    for n in 0..FAILURES_MAX {
        let agent = if n == 0 { agent.clone() } else { world.begin_next(0) };
        world.ended(&agent, Ending::Crashed);
        world.finish(0, None);
        assert_eq!(
            world.run().drive.as_ref().unwrap().carried.get(&0).unwrap().base.as_ref(),
            "tree"
        );
    }
    assert!(matches!(world.next(0), Next::End(Why::Failed { .. })));
}

#[test]
fn people_pause_stop_and_go_on() {
    let mut world = World::begin(request(1));
    world.plan();
    let refused = world.drive("ann", Command::Pause).unwrap_err().to_string();
    assert!(refused.contains("operator"), "{refused}");
    world.drive("eve", Command::Pause).unwrap();
    assert_eq!(world.next(0), Next::Wait);
    world.drive("eve", Command::GoOn).unwrap();
    let agent = world.begin_next(0);
    world.drive("eve", Command::Stop { now: true }).unwrap();
    assert_eq!(
        world.given.state.agents.get(agent.as_str()).unwrap().phase,
        agent::Phase::Ending,
        "its agent is ended"
    );
    world.ended(&agent, Ending::Aborted);
    world.finish(0, None);
    assert_eq!(world.next(0), Next::End(Why::Stopped));
    world.drive("hub", Command::End { why: Why::Stopped }).unwrap();
    let refused = world.drive("eve", Command::Pause).unwrap_err().to_string();
    assert!(refused.starts_with("nobody works on this run"), "{refused}");
}

#[test]
fn money_is_shared_by_all_iterations() {
    let mut world = World::begin(Request { microdollars: Some(1_000), ..request(1) });
    let planner = world.begin_next(0);
    let limit = |world: &World, agent: &AgentId| {
        world.given.state.agents.get(agent.as_str()).unwrap().draft.limits.microdollars
    };
    assert_eq!(limit(&world, &planner), Some(1_000));
    world.add(&planner, &["a"]);
    let begin = agent::Command::BeginTurn { id: planner.clone(), incarnation: 1 };
    world.given.by("hub", Any::Agent(begin));
    let used = crate::spending::Used { microdollars: Some(400), ..Default::default() };
    let spend = agent::Command::Spend { id: planner.clone(), incarnation: 1, used };
    world.given.by("hub", Any::Agent(spend));
    world.ended(&planner, Ending::Completed);
    world.finish(0, None);
    let next = world.begin_next(0);
    assert_eq!(limit(&world, &next), Some(600));
}

fn depends(item: &str, on: &str) -> Any {
    let (item, depends_on) = (item.into(), Some(on.into()));
    in_run(run::Command::Item(item::Command::Update {
        item,
        status: None,
        priority: None,
        depends_on,
    }))
}

/// What was done for an item is with the others when its iteration is over, not when its agent says so.
#[test]
fn an_item_waits_for_the_work_that_it_depends_on() {
    let mut world = World::begin(request(3));
    world.plan();
    world.given.by("eve", depends("TAS-2", "TAS-1"));
    world.given.by("eve", depends("TAS-3", "TAS-1"));
    let first = world.begin_next(0);
    world.claim(&first).unwrap();
    world.set(&first, "TAS-1", Status::Completed);
    assert_eq!(world.next(1), Next::Wait);
    // One that has begun does not get it either.
    world.given.by("eve", here(crate::testing::add(&["d"])));
    let second = world.begin_next(1);
    world.claim(&second).unwrap();
    assert_eq!(world.run().items.find("TAS-4").unwrap().status, Status::InProgress);
    world.ended(&first, Ending::Completed);
    assert_eq!(world.next(2), Next::Wait);
    world.finish(0, Some("abc"));
    assert_eq!(world.next(2), Next::Begin { plans: false });
}

/// An agent that commits something each time, and never adds an item, would otherwise plan for ever.
#[test]
fn a_plan_without_items_is_made_again_only_so_often() {
    let mut world = World::begin(Request { iterations: Some(1), ..request(1) });
    for _ in 0..IDLE_MAX {
        assert_eq!(world.next(0), Next::Begin { plans: true });
        let agent = world.begin_next(0);
        world.ended(&agent, Ending::Completed);
        world.finish(0, Some("abc"));
    }
    assert_eq!(world.next(0), Next::End(Why::Idle));
}

/// Whoever takes an item and leaves it is as idle as one that does nothing.
#[test]
fn to_take_an_item_is_no_progress() {
    let mut world = World::begin(request(1));
    world.plan();
    for _ in 0..IDLE_MAX {
        let agent = world.begin_next(0);
        world.claim(&agent).unwrap();
        world.summarise(&agent).unwrap();
        world.ended(&agent, Ending::Completed);
        world.finish(0, None);
    }
    assert_eq!(world.next(0), Next::End(Why::Idle));
    // To say what is in its way is.
    world.drive("eve", Command::Tell { text: "go on".into() }).unwrap();
    let agent = world.begin_next(0);
    world.claim(&agent).unwrap();
    world.set(&agent, "TAS-1", Status::Blocked);
    world.ended(&agent, Ending::Completed);
    world.finish(0, None);
    assert_eq!(world.next(0), Next::Begin { plans: false });
}

#[test]
fn what_was_left_in_one_place_is_not_gone_on_with_in_another() {
    let mut world = World::begin(request(1));
    world.plan();
    let fail = |world: &mut World| {
        let agent = world.begin_next(0);
        world.drive("eve", Command::Stop { now: false }).unwrap();
        world.ended(&agent, Ending::Crashed);
        world.finish(0, None);
        world.drive("hub", Command::End { why: Why::Stopped }).unwrap();
    };
    let is_carried = |world: &World| world.run().drive.as_ref().unwrap().carried.contains_key(&0);
    fail(&mut world);
    world.drive("eve", resume(request(1))).unwrap();
    assert!(is_carried(&world));
    fail(&mut world);
    // Several work elsewhere, but what one has left is there until it is set aside.
    world.drive("eve", resume(request(2))).unwrap();
    assert!(is_carried(&world));
    assert!(world.drive("eve", Command::SetAside).is_err());
    world.drive("hub", Command::SetAside).unwrap();
    assert!(!is_carried(&world));
    // Of several each begins afresh.
    fail(&mut world);
    assert!(!is_carried(&world));
    world.drive("eve", resume(request(1))).unwrap();
    fail(&mut world);
    assert!(is_carried(&world));
    let elsewhere = Request { directory: "/elsewhere".into(), ..request(1) };
    world.drive("eve", resume(elsewhere)).unwrap();
    assert!(!is_carried(&world));
}

#[test]
fn two_runs_that_commit_have_no_directory_in_common() {
    let mut world = World::begin(request(1));
    let mut begin_at = |directory: &str, commits: bool| {
        let commits = Some(commits);
        let request =
            Request { directory: directory.into(), commits, repository: None, ..request(1) };
        let what = run::Command::Drive(begin(request));
        let run = RunName::parse("other").unwrap();
        world.given.decide("eve", Any::Run { run, what }).map(|_| ()).map_err(|no| no.to_string())
    };
    for directory in ["/project", "/project/sub", "/"] {
        let refused = begin_at(directory, true).unwrap_err();
        assert!(refused.starts_with("run spec is working in this directory"), "{refused}");
    }
    begin_at("/projects", true).unwrap();
}

#[test]
fn a_yak_is_worked_on_as_an_item_and_shorn_with_its_commit() {
    use crate::yak::{self, Kind as YakKind, NewYak, Priority};
    let mut world = World::begin(request(1));
    let yak = |title: &str| {
        let (title, description) = (title.to_owned(), "it is hairy".to_owned());
        let (kind, priority) = (YakKind::Bug, Priority::new(1).unwrap());
        yak::Command::Create(NewYak { title, kind, priority, description, parent: None })
    };
    let mut yaks = Vec::new();
    for title in ["leak", "noise"] {
        for event in world.given.by("eve", Any::Yak(yak(title))) {
            if let crate::Event::Yak(yak::Event::Created { id, .. }) = event {
                yaks.push(id.to_string());
            }
        }
    }
    let add = |yak: &str| in_run(run::Command::Item(item::Command::AddYak { yak: yak.to_owned() }));
    let refused = world.given.decide("ann", add(&yaks[0])).unwrap_err().to_string();
    assert!(refused.contains("operator"), "{refused}");
    for yak in &yaks {
        world.given.by("eve", add(yak));
    }
    let stands = |world: &World, n: usize| {
        let yak = world.given.state.yaks.find(&yaks[n]).unwrap();
        (yak.status, yak.commit.as_ref().map(ToString::to_string))
    };
    assert_eq!(stands(&world, 0), (yak::Status::Shaving, None));
    let planner = world.begin_next(0);
    world.ended(&planner, Ending::Completed);
    world.finish(0, None);
    world.work(0, "TAS-1");
    assert_eq!(stands(&world, 0), (yak::Status::Shorn, Some("abc".to_owned())));
    // By hand, too.
    world.given.by("eve", here(crate::testing::set("TAS-2", Status::Completed)));
    assert_eq!(stands(&world, 1), (yak::Status::Shorn, None));
    world.given.compacted();
}

#[test]
fn a_message_that_was_told_to_one_that_failed_is_told_again() {
    let mut world = World::begin(request(1));
    world.plan();
    let tell = |world: &mut World, text: &str| {
        world.drive("eve", Command::Tell { text: text.into() }).unwrap();
    };
    tell(&mut world, "first");
    let agent = world.begin_next(0);
    tell(&mut world, "second");
    world.ended(&agent, Ending::Crashed);
    world.finish(0, None);
    world.begin_next(0);
    let open = world.run().iterations.of_worker(0).unwrap().clone();
    let told: Vec<&str> = open.told.iter().map(|message| &*message.text).collect();
    assert_eq!(told, ["first", "second"]);
}

/// What is said while the hub does what comes at the end counts.
#[test]
fn a_run_does_not_end_for_a_reason_that_is_gone() {
    let mut world = World::begin(request(1));
    world.plan();
    world.drive("eve", Command::Stop { now: false }).unwrap();
    assert_eq!(world.next(0), Next::End(Why::Stopped));
    world.drive("eve", Command::GoOn).unwrap();
    world.drive("hub", Command::End { why: Why::Stopped }).unwrap_err();
    for item in ["TAS-1", "TAS-2", "TAS-3"] {
        world.work(0, item);
    }
    world.given.by("eve", in_run(run::Command::Complete));
    assert_eq!(world.next(0), Next::End(Why::Completed));
    world.drive("eve", Command::Tell { text: "one more thing".into() }).unwrap();
    world.drive("hub", Command::End { why: Why::Completed }).unwrap_err();
}

#[test]
fn a_plan_may_find_that_there_is_nothing_to_do() {
    let mut world = World::begin(request(1));
    let planner = world.begin_next(0);
    world.given.by(planner.as_str(), in_run(run::Command::Complete));
    world.ended(&planner, Ending::Completed);
    world.finish(0, None);
    assert_eq!(world.next(0), Next::End(Why::Completed));
}

/// Neither what somebody else has begun nor what a person has cancelled is an agent's to change.
#[test]
fn an_agent_says_how_its_own_item_stands() {
    let mut world = World::begin(request(2));
    world.plan();
    let (one, two) = (world.begin_next(0), world.begin_next(1));
    world.claim(&one).unwrap();
    world.claim(&two).unwrap();
    let set = |world: &mut World, who: &str, item: &str| {
        world.given.decide(who, here(crate::testing::set(item, Status::Completed))).map(|_| ())
    };
    let refused = set(&mut world, one.as_str(), "TAS-2").unwrap_err().to_string();
    assert!(refused.contains("TAS-2"), "{refused}");
    world.given.by("eve", here(crate::testing::set("TAS-1", Status::Cancelled)));
    let refused = set(&mut world, one.as_str(), "TAS-1").unwrap_err().to_string();
    assert!(refused.contains("TAS-1 was cancelled"), "{refused}");
    // What a person says of another's item does not make it the work of nobody.
    set(&mut world, two.as_str(), "TAS-2").unwrap();
    let update = item::Command::Update {
        item: "TAS-2".into(),
        status: None,
        priority: item::Priority::new(0).ok(),
        depends_on: None,
    };
    world.given.by("eve", in_run(run::Command::Item(update)));
    let done_in = world.run().items.find("TAS-2").unwrap().iteration;
    assert_eq!(done_in, world.run().iterations.of_worker(1).unwrap().number);
    world.given.compacted();
}

/// An update to what is so already is no progress.
#[test]
fn to_say_the_same_again_is_no_progress() {
    let mut world = World::begin(request(1));
    world.plan();
    for _ in 0..IDLE_MAX {
        let agent = world.begin_next(0);
        world.set(&agent, "TAS-3", Status::Remaining);
        world.ended(&agent, Ending::Completed);
        world.finish(0, None);
    }
    assert_eq!(world.next(0), Next::End(Why::Idle));
}

#[test]
fn a_spec_that_has_grown_is_planned_anew() {
    let mut world = World::begin(request(1));
    world.plan();
    for item in ["TAS-1", "TAS-2", "TAS-3"] {
        world.work(0, item);
    }
    world.given.by("eve", in_run(run::Command::Complete));
    world.drive("hub", Command::End { why: Why::Completed }).unwrap();
    world.drive("eve", resume(request(1))).unwrap();
    assert_eq!(world.next(0), Next::End(Why::Completed));
    world.drive("hub", Command::End { why: Why::Completed }).unwrap();
    let more = Request { spec: "Build it, and paint it.".into(), ..request(1) };
    world.drive("eve", resume(more)).unwrap();
    assert_eq!(world.next(0), Next::Begin { plans: true });
}

#[test]
fn a_worker_that_waits_knows_why() {
    let mut world = World::begin(Request { iterations: Some(2), ..request(4) });
    let why = |world: &World, worker| held_up(world.run(), &world.given.state.agents, worker);
    let planner = world.begin_next(0);
    assert_eq!((why(&world, 0), why(&world, 1)), (None, Some(HeldUp::Plan)));
    world.add(&planner, &["a"]);
    world.summarise(&planner).unwrap();
    world.ended(&planner, Ending::Completed);
    world.finish(0, None);
    world.begin_next(2);
    assert_eq!(why(&world, 1), Some(HeldUp::NothingReady));
    assert_eq!(why(&world, 4), Some(HeldUp::TooMany));
    world.drive("eve", Command::Pause).unwrap();
    assert_eq!(why(&world, 1), Some(HeldUp::Paused));
    world.drive("eve", Command::Stop { now: false }).unwrap();
    assert_eq!(why(&world, 1), Some(HeldUp::Over(Why::Stopped)));
}

#[test]
fn people_are_warned_and_the_newest_warnings_are_at_hand() {
    let mut world = World::begin(request(1));
    let warn = |says: String| Command::Warn { says };
    let refused = world.drive("eve", warn("so".into())).unwrap_err().to_string();
    assert!(refused.contains("only the hub itself"), "{refused}");
    // What the hub says of an agent that works on a run is said of the run.
    let planner = world.begin_next(0);
    for _ in 0..2 {
        let says = "it has no price".to_owned();
        world.given.by("hub", Any::Agent(agent::Command::Warn { id: planner.clone(), says }));
    }
    let says = |world: &World| {
        let warnings = &world.run().drive.as_ref().unwrap().warnings;
        warnings.iter().map(|one| (one.number, one.says.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(says(&world), [(1, format!("{planner}: it has no price"))]);
    for n in 0..WARNINGS_MAX {
        world.drive("hub", warn(format!("\u{1b}[31m{n} {}", "x".repeat(5_000)))).unwrap();
    }
    let kept = says(&world);
    assert_eq!((kept.len(), kept[0].0), (WARNINGS_MAX, 2));
    assert!(kept[0].1.starts_with("0 x") && kept[0].1.len() <= WARNING_BYTES_MAX);
    world.ended(&planner, Ending::Completed);
    world.finish(0, None);
    // Whoever goes on with it begins without them; their numbers go on.
    world.drive("eve", Command::Stop { now: false }).unwrap();
    world.drive("hub", Command::End { why: Why::Stopped }).unwrap();
    world.drive("eve", resume(request(1))).unwrap();
    assert_eq!(says(&world), []);
    world.drive("hub", warn("again".into())).unwrap();
    assert_eq!(says(&world), [(WARNINGS_MAX as u32 + 2, "again".to_owned())]);
    world.given.compacted();
}

/// What an agent left behind is known by its last process that was told anything, and travels with what it left.
#[test]
fn how_an_agent_left_the_files_is_kept_until_they_are_committed() {
    let left = |incarnation, files: &str| Left {
        incarnation,
        files: Some(files.into()),
        at: Timestamp(7),
    };
    let mut world = World::begin(request(1));
    world.plan();
    let agent = world.begin_next(0);
    let open = |world: &World| world.run().iterations.of_worker(0).unwrap().clone();
    let known =
        |world: &World| open(world).left_by(world.given.state.agents.get(agent.as_str()).unwrap());
    let number = open(&world).number;
    // It was told nothing yet, so nothing is its own.
    assert_eq!(known(&world).files.as_deref(), Some("tree"));
    let begin = |incarnation| agent::Command::BeginTurn { id: agent.clone(), incarnation };
    world.given.by("hub", Any::Agent(begin(1)));
    // Nobody looked, so all that is known is when it began.
    assert_eq!((known(&world).files, known(&world).at), (None, open(&world).begun_at));
    for who in ["eve", agent.as_str()] {
        let leave = Command::Leave { iteration: number, left: left(1, "x") };
        assert!(world.drive(who, leave).is_err(), "{who}");
    }
    let elsewhere = Command::Leave { iteration: number + 1, left: left(1, "x") };
    assert!(world.drive("hub", elsewhere).is_err());
    world.drive("hub", Command::Leave { iteration: number, left: left(1, "left") }).unwrap();
    assert_eq!(known(&world), left(1, "left"));
    let (why, blameless) = ("so".to_owned(), true);
    let interrupt = agent::Command::Interrupt { id: agent.clone(), incarnation: 1, why, blameless };
    world.given.by("hub", Any::Agent(interrupt));
    world.admit(&agent);
    // Before its next process is told something, nothing more can be its own.
    assert_eq!(known(&world), left(1, "left"));
    let (iteration, base) = (number, "other tree".into());
    world.drive("hub", Command::Rebase { iteration, base, left: left(1, "now") }).unwrap();
    assert_eq!((open(&world).base.as_deref(), known(&world)), (Some("other tree"), left(1, "now")));
    world.given.by("hub", Any::Agent(begin(2)));
    assert_eq!(known(&world).files, None);
    world.drive("hub", Command::Leave { iteration: number, left: left(2, "at last") }).unwrap();
    world.ended(&agent, Ending::Aborted);
    world.finish(0, None);
    let carried = world.run().drive.as_ref().unwrap().carried.get(&0).unwrap().clone();
    assert_eq!((&*carried.base, carried.left), ("other tree", Some(left(2, "at last"))));
    world.given.compacted();
}

/// A field that is left out when it is empty is fine in an event, and makes a snapshot unreadable.
#[test]
fn a_run_with_iterations_that_have_ended_is_read_back_from_a_snapshot() {
    let mut world = World::begin(request(1));
    world.plan();
    let agent = world.begin_next(0);
    world.ended(&agent, Ending::Completed);
    world.finish(0, Some("commit"));
    let state = &world.given.state;
    assert!(world.run().iterations.ended().next().is_some());
    assert_eq!(crate::State::from_snapshot(&state.to_snapshot()).as_ref(), Some(state));
}

/// As for what else is in a snapshot.
#[test]
fn a_changed_layout_of_a_run_that_is_worked_off_needs_a_new_format_number() {
    let mut world = World::begin(request(1));
    let planner = world.begin_next(0);
    world.add(&planner, &["a"]);
    world.drive("eve", Command::Tell { text: "b".into() }).unwrap();
    world.drive("hub", Command::Warn { says: "c".into() }).unwrap();
    let bytes = world.given.state.to_snapshot();
    let print = crate::text::fingerprint(bytes.iter().copied());
    let format = crate::state::SNAPSHOT_FORMAT;
    expect_test::expect!["format 19: 836 bytes, 3294f15329426387"]
        .assert_eq(&format!("format {format}: {} bytes, {print:016x}", bytes.len()));
}

/// What the iterations of a run wrote down stands in its dossier, with the spec that they work on.
#[test]
fn the_dossier_of_a_run_has_its_spec_and_its_summaries() {
    let mut world = World::begin(request(1));
    world.plan();
    let state = &world.given.state;
    let dossier = state.dossiers.get("run-spec").unwrap();
    let context = dossier.context(&state.agents, &state.runs);
    let spec = &world.run().drive.as_ref().unwrap().terms.spec;
    let head = format!("> run spec\n> \n> {spec}\n\n### Iterations\n- #0 (");
    assert!(context.contains(&head) && context.contains("): did it\n"), "{head}\n{context}");
}

#[test]
fn a_run_under_way_is_not_forgotten() {
    let mut world = World::begin(request(1));
    let forget = |world: &mut World| world.given.decide("eve", in_run(run::Command::Forget));
    let refused = forget(&mut world).unwrap_err().to_string();
    assert!(refused.contains("`teamster steer spec stop`"), "{refused}");
    world.drive("eve", Command::Stop { now: false }).unwrap();
    world.drive("hub", Command::End { why: Why::Stopped }).unwrap();
    assert_eq!(forget(&mut world).unwrap().len(), 1);
    // The name is free, and nothing of the old run is left.
    world.drive("eve", begin(request(1))).unwrap();
    assert_eq!(world.next(0), Next::Begin { plans: true });
    assert_eq!(world.run().iterations.current(), 0);
    world.given.compacted();
}
