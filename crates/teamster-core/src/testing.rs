//! The one function that knows the API in the core's tests: a history, a command, what comes of it.

use expect_test::Expect;

use crate::compaction::Compaction;
use crate::grant::{Grant, Grants};
use crate::record::Body;
use crate::token::{self, Kind, NewToken, SecretHash};
use crate::{
    Caller, Command, Context, Decision, Event, PrincipalName, Record, RunName, State, Timestamp,
    item, quota, run,
};

/// Gives commands one after the other and remembers the state they lead to.
pub(crate) struct Given {
    pub(crate) state: State,
    /// What led to it.
    pub(crate) records: Vec<Record>,
    n_commands: u64,
    pub(crate) limits: quota::Limits,
}

impl Given {
    /// A state in which `ann` (TOK-1) and `bob` (TOK-2) have tokens.
    pub(crate) fn ann_and_bob() -> Self {
        let mut given = Self {
            state: State::default(),
            records: Vec::new(),
            n_commands: 0,
            limits: quota::Limits::default(),
        };
        for (n, name) in [(1, "ann"), (2, "bob")] {
            given.by(
                "hub",
                Command::Token(token::Command::Create { new: new_token(name, n), replace: false }),
            );
        }
        given
    }

    /// Gives a command that must not be refused.
    pub(crate) fn by(&mut self, who: &str, command: Command) -> Vec<Event> {
        match self.decide(who, command) {
            Ok(events) => events,
            Err(refusal) => panic!("refused: {refusal}"),
        }
    }

    /// Decides a command and applies what it causes.
    pub(crate) fn decide(
        &mut self,
        who: &str,
        command: Command,
    ) -> Result<Vec<Event>, crate::Refusal> {
        self.n_commands += 1;
        let cx = Context {
            caller: self.caller(who),
            now: Timestamp(1_000 * self.n_commands as i64),
            random: 7 + self.n_commands,
            quotas: self.limits,
        };
        let events = match self.state.decide(&command, None, &cx)? {
            Decision::New(events) => events,
            Decision::Known(events) => events.to_vec(),
        };
        let (by, token) = (cx.caller.principal, cx.caller.token);
        let record = Record { at: cx.now, by, token, key: None, events: events.clone() };
        self.state.apply(&record);
        self.records.push(record);
        Ok(events)
    }

    /// Returns what a compaction leaves of the history, which comes to the same state.
    pub(crate) fn compacted(&self) -> Vec<Record> {
        let bodies = self.records.iter().map(|record| Body::new(1, vec![record.clone()]));
        let mut compaction = Compaction::new(&self.state);
        bodies.clone().for_each(|body| compaction.survey(&body));
        let left = bodies.filter_map(|body| compaction.thin(body)).flat_map(|body| body.records);
        let left: Vec<Record> = left.collect();
        let mut state = State::default();
        left.iter().for_each(|record| state.apply(record));
        assert!(state.equals_but_for_numbers(&self.state), "{left:#?}\n{:#?}", self.state);
        left
    }

    pub(crate) fn caller(&self, who: &str) -> Caller {
        let name = PrincipalName::parse(who).unwrap();
        match self.state.tokens.by_principal(&name) {
            Some(token) => Caller::of(token),
            None if who == "hub" => Caller::hub(),
            None => panic!("{who} has no token"),
        }
    }
}

pub(crate) fn new_token(name: &str, n: u8) -> NewToken {
    NewToken {
        principal: PrincipalName::parse(name).unwrap(),
        kind: Kind::Agent,
        secret: SecretHash([n; 32]),
        grants: Grants::new([Grant::Full]),
        run: None,
        team: None,
        expires_at: None,
    }
}

/// Gives `history` (who, command), then one more command, and compares what comes of it: events, or a refusal.
pub(crate) fn check(history: Vec<(&str, Command)>, who: &str, command: Command, expect: Expect) {
    let mut given = Given::ann_and_bob();
    for (who, command) in history {
        given.by(who, command);
    }
    let outcome = match given.decide(who, command) {
        Ok(events) if events.is_empty() => "nothing".to_owned(),
        Ok(events) => events
            .iter()
            .map(|event| serde_json::to_string(event).unwrap())
            .collect::<Vec<_>>()
            .join("\n"),
        Err(refusal) => format!("refused: {refusal}"),
    };
    expect.assert_eq(&outcome);
    let snapshot = given.state.to_snapshot();
    assert_eq!(
        State::from_snapshot(&snapshot).as_ref(),
        Some(&given.state),
        "a snapshot keeps everything"
    );
    given.compacted();
}

/// Something asked of the default run's items.
pub(crate) fn item(command: item::Command) -> Command {
    in_run(run::Command::Item(command))
}

/// Something asked of the default run.
pub(crate) fn in_run(what: run::Command) -> Command {
    Command::Run { run: RunName::default_run(), what }
}

pub(crate) fn add(contents: &[&str]) -> Command {
    let new =
        |content: &&str| item::NewItem { content: (*content).into(), status: None, priority: None };
    item(item::Command::Add(contents.iter().map(new).collect()))
}

pub(crate) fn add_one(
    content: &str,
    status: Option<item::Status>,
    priority: Option<i64>,
) -> Command {
    let priority = priority.map(|n| item::Priority::new(n).unwrap());
    item(item::Command::Add(vec![item::NewItem { content: content.into(), status, priority }]))
}

pub(crate) fn set(id: &str, status: item::Status) -> Command {
    item(item::Command::Update {
        item: id.into(),
        status: Some(status),
        priority: None,
        depends_on: None,
    })
}

pub(crate) fn depend(id: &str, on: &str) -> Command {
    item(item::Command::Update {
        item: id.into(),
        status: None,
        priority: None,
        depends_on: Some(on.into()),
    })
}
