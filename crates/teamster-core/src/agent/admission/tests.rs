use std::collections::BTreeMap;

use super::*;
use crate::agent::tests::{admit, draft, id, roles};
use crate::testing::Given;

/// What the hub knows of each agent: `w` only waits, `-` is not ready, `n` is next in line, `l` is later in line.
struct Known(BTreeMap<AgentId, char>);

impl Known {
    fn is(&self, agent: &Agent, word: char) -> bool {
        self.0.get(&agent.id) == Some(&word)
    }
}

impl Knowledge for Known {
    fn only_waits(&self, agent: &Agent) -> bool {
        self.is(agent, 'w')
    }

    fn is_ready(&self, agent: &Agent) -> bool {
        !self.is(agent, '-')
    }

    fn line(&self, agent: &Agent) -> InLine {
        match self.0.get(&agent.id) {
            Some('n') => InLine::Next,
            Some('l') => InLine::Later,
            Some(_) | None => InLine::No,
        }
    }
}

/// Three drafted agents, the first of which are admitted; `coder-4` is drafted by `coder-1`.
fn agents(n_admitted: usize) -> Given {
    let mut given = Given::ann_and_bob();
    let (who, roles) = roles();
    given.by(who, roles);
    for _ in 0..3 {
        given.by("ann", draft("coder", "x"));
    }
    for name in ["coder-1", "coder-2", "coder-3"].iter().take(n_admitted) {
        given.by("hub", admit(name));
    }
    given
}

#[test]
fn the_first_that_can_work_starts_while_there_is_room() {
    let start = |n: u32| Next::Start(id(&format!("coder-{n}")));
    let with_child = |n: usize| {
        let mut given = agents(n);
        given.by("coder-1", draft("coder", "below"));
        given
    };
    #[rustfmt::skip]
    let rows = [
        // agents, running, live, known, can make room; next
        (agents(0), 1, 9, "",       true,  start(1)),
        (agents(1), 1, 9, "",       true,  Next::Nothing),
        (agents(1), 2, 9, "",       true,  start(2)),
        // Agents that only wait do not count as running.
        (agents(1), 1, 9, "1w",     true,  start(2)),
        // Not ready, or not in line: the next one.
        (agents(0), 1, 9, "1-",     true,  start(2)),
        (agents(0), 1, 9, "1l 2n",  true,  start(3)),
        (agents(0), 1, 9, "1l 2n 3l", true, start(2)),
        (agents(0), 1, 9, "1l 2l 3l", true, Next::Nothing),
        // All places are taken by agents that wait: one of them makes room. If none can, an agent starts only if others wait
        // for it.
        (agents(1), 9, 1, "1w",     true,  Next::MakeRoom),
        (agents(1), 9, 1, "1w",     false, Next::Nothing),
        (agents(1), 9, 1, "1w 2- 3-", true, Next::Nothing),
        (with_child(1), 9, 1, "1w", false, start(4)),
        // Not while one of them works.
        (with_child(1), 9, 1, "",   false, Next::Nothing),
        (with_child(2), 9, 2, "1w", false, Next::Nothing),
        (with_child(2), 9, 2, "1w 2w", false, start(4)),
        (with_child(2), 9, 2, "1w 2w 4n", false, Next::Nothing),
    ];
    for (given, running, live, known, can_make_room, expected) in rows {
        let words = known.split_whitespace().map(|word| {
            let (number, what) = word.split_at(1);
            (id(&format!("coder-{number}")), what.chars().next().unwrap())
        });
        let knowledge = Known(words.collect());
        let pool = Pool { running, live };
        let next = next(&given.state, pool, can_make_room, &knowledge);
        assert_eq!(next, expected, "{running} {live} {known:?} {can_make_room}");
    }
}

#[test]
fn one_that_waits_for_a_person_does_not_wait_for_another_agent() {
    let mut given = agents(1);
    given.by("coder-1", draft("coder", "below"));
    let knowledge = Known([(id("coder-1"), 'w')].into());
    let pool = Pool { running: 9, live: 1 };
    assert!(pool.has_room(&given.state, &knowledge));
    given.by("hub", crate::question::tests::ask("coder-1", "may I?"));
    assert!(!pool.has_room(&given.state, &knowledge));
}
