//! What the loop promises, one promise at a time. Time is virtual and nothing is measured: wake-ups are counted.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "tasks live no longer than their test, and a broken fixture should panic"
)]

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use teamster_core::grant::Grants;
use teamster_core::token::{self, Kind, NewToken, SecretHash};
use teamster_core::topic::Topic;
use teamster_core::{Caller, Command, PrincipalName, RunName, Timestamp, item, run};
use teamster_hub::hub::WAITING_MAX;
use teamster_log::memory::{Fate, Faults, Store};
use teamster_mcp::Hub;
use teamster_mcp::hub::{Done, Failure, wait};

use crate::in_process::{self, Dice, Running, run_in_virtual_time};

struct Test {
    store: Store,
    faults: Faults,
    hub: Running,
}

impl Test {
    async fn start() -> Self {
        let (store, faults) = (Store::default(), Faults::default());
        let hub = in_process::start(&store, &faults, Dice(1), u64::MAX).await.expect("it starts");
        Self { store, faults, hub }
    }

    async fn caller(&self, name: &str, n: u8, expires_at: Option<Timestamp>) -> Caller {
        let new = NewToken {
            principal: PrincipalName::parse(name).expect("a name"),
            kind: Kind::Agent,
            secret: SecretHash([n; 32]),
            grants: Grants::everything(),
            run: None,
            team: None,
            expires_at,
        };
        let create = Command::Token(token::Command::Create { new, replace: false });
        let done = self.hub.handle.submit(Caller::hub(), create, None).await.expect("it is made");
        Caller::of(done.state.tokens.by_secret(&SecretHash([n; 32])).expect("it lives"))
    }

    /// Submits without waiting for the answer.
    fn submit(
        &self,
        caller: &Caller,
        command: Command,
    ) -> tokio::task::JoinHandle<Result<Done, Failure>> {
        let (handle, caller) = (self.hub.handle.clone(), caller.clone());
        tokio::spawn(async move { handle.submit(caller, command, None).await })
    }

    fn items(&self) -> Vec<String> {
        let state = self.hub.handle.state();
        let items = &state.runs.get(&RunName::default_run()).items;
        items.ranked_after(None).map(|item| format!("{} {}", item.content, item.status)).collect()
    }
}

fn add(content: &str) -> Command {
    let new = item::NewItem { content: content.into(), status: None, priority: None };
    in_run(run::Command::Item(item::Command::Add(vec![new])))
}

fn in_run(what: run::Command) -> Command {
    Command::Run { run: RunName::default_run(), what }
}

#[test]
fn readers_see_nothing_that_could_still_be_lost() {
    run_in_virtual_time(async {
        let test = Test::start().await;
        let ann = test.caller("ann", 1, None).await;
        test.faults.set_append_latency(Duration::from_secs(1));
        let answer = test.submit(&ann, add("a"));
        tokio::time::sleep(Duration::from_millis(999)).await;
        assert_eq!(test.items(), Vec::<String>::new());
        answer.await.expect("it ends").expect("it is added");
        assert_eq!(test.items(), ["a remaining"]);
    });
}

#[test]
fn a_refusal_waits_for_what_it_rests_on() {
    run_in_virtual_time(async {
        let test = Test::start().await;
        let (ann, bob) = (test.caller("ann", 1, None).await, test.caller("bob", 2, None).await);
        // Ann's item is on its way when Bob adds the same, and then it does not arrive.
        test.faults.set_append_latency(Duration::from_secs(1));
        test.faults.next_append(Fate::Unavailable);
        let first = test.submit(&ann, add("a"));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let second = test.submit(&bob, add("A"));
        let first = first.await.expect("it ends").expect_err("the log was down");
        assert_eq!(
            first.to_string(),
            "nothing was changed: the commit was not stored: the log is down; the hub only reads until the log can be \
             written again, so repeat the call later"
        );
        // Told «exists already» at once, Bob would have believed in an item that is not there.
        second.await.expect("it ends").expect("it is decided anew");
        assert_eq!(test.items(), ["A remaining"]);
    });
}

#[test]
fn what_was_decided_on_a_failed_batch_is_decided_anew() {
    run_in_virtual_time(async {
        let test = Test::start().await;
        let (ann, bob) = (test.caller("ann", 1, None).await, test.caller("bob", 2, None).await);
        test.faults.set_append_latency(Duration::from_secs(1));
        test.faults.next_append(Fate::Unavailable);
        let first = test.submit(&ann, add("a"));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let second = test.submit(&bob, add("b"));
        assert!(first.await.expect("it ends").is_err());
        let done = second.await.expect("it ends").expect("it is stored");
        assert_eq!(done.events[0].summary().text, "TAS-1 added (P2): b");
    });
}

#[test]
fn an_unknown_outcome_is_settled_before_anyone_is_answered() {
    for fate in [Fate::UnknownStored, Fate::UnknownNotStored, Fate::UnknownLate] {
        run_in_virtual_time(async {
            let test = Test::start().await;
            let ann = test.caller("ann", 1, None).await;
            test.faults.next_append(fate.clone());
            test.faults.fail_heads(3);
            test.submit(&ann, add("a")).await.expect("it ends").expect("it is stored in the end");
            let again = in_process::start(&test.store, &Faults::default(), Dice(2), u64::MAX).await;
            assert_eq!(
                *again.expect("it starts").handle.state(),
                *test.hub.handle.state(),
                "{fate:?}"
            );
            assert_eq!(test.items(), ["a remaining"], "{fate:?}");
        });
    }
}

#[test]
fn one_that_floods_is_bounded_and_does_not_come_first() {
    run_in_virtual_time(async {
        let test = Test::start().await;
        let (flood, ann) = (test.caller("flood", 1, None).await, test.caller("ann", 2, None).await);
        test.faults.set_append_latency(Duration::from_secs(1));
        let floods: Vec<_> =
            (0..WAITING_MAX * 2).map(|n| test.submit(&flood, add(&format!("flood {n}")))).collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let one = test.submit(&ann, add("ann's"));
        let done = one.await.expect("it ends").expect("it is added");
        // The batch under way when Ann came, and the one that was full already, are before hers; the rest is not.
        let before = done.state.runs.get(&RunName::default_run()).items.len();
        assert!(before <= 2 * 512 + 512, "{before} were served first");
        let outcomes = futures_util::future::join_all(floods).await;
        let refused = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Ok(Err(Failure::Unavailable(_)))))
            .count();
        assert!(refused > 0, "the flood was not bounded");
        let sentence = outcomes
            .into_iter()
            .find_map(|outcome| outcome.expect("it ends").err())
            .expect("refused");
        assert_eq!(
            sentence.to_string(),
            "nothing was changed: flood has 1024 calls waiting already; wait for answers, then go on"
        );
    });
}

#[test]
fn those_who_wait_are_woken_by_what_they_wait_for_and_by_nothing_else() {
    run_in_virtual_time(async {
        let test = Test::start().await;
        let ann = test.caller("ann", 1, None).await;
        let handle = Arc::new(test.hub.handle.clone());
        let waiting: Vec<_> = (0..1_000)
            .map(|_| {
                let handle = handle.clone();
                tokio::spawn(async move {
                    let mut n_checks = 0;
                    let topic = Topic::Run(RunName::default_run());
                    let completed = wait(
                        handle.as_ref(),
                        &topic,
                        Duration::from_secs(3_600),
                        |_| (),
                        |state| {
                            n_checks += 1;
                            state.runs.get(&RunName::default_run()).completed_at.map(|_| ())
                        },
                    );
                    (completed.await, n_checks)
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(60)).await;
        for n in 0..50 {
            let new = item::NewItem { content: n.to_string(), status: None, priority: None };
            let what = run::Command::Item(item::Command::Add(vec![new]));
            let add = Command::Run { run: RunName::parse("other").expect("a name"), what };
            test.submit(&ann, add).await.expect("it ends").expect("it is added");
        }
        assert_eq!(test.hub.handle.n_wakes(), 0, "nobody waits for another run");
        test.submit(&ann, in_run(run::Command::Complete))
            .await
            .expect("it ends")
            .expect("it is done");
        for waiter in waiting {
            // Once when it came, once when it was woken: never in between.
            assert_eq!(waiter.await.expect("it ends"), (Some(()), 2));
        }
    });
}

#[test]
fn a_wait_ends_at_its_deadline_and_says_that_it_is_there() {
    run_in_virtual_time(async {
        let test = Test::start().await;
        let mut progress = Vec::new();
        let never = wait(
            &test.hub.handle,
            &Topic::Yaks,
            Duration::from_secs(50),
            |waited| progress.push(waited.as_secs()),
            |_| None::<()>,
        );
        assert_eq!(never.await, None);
        assert_eq!(progress, [15, 30, 45, 50]);
    });
}

#[test]
fn an_expired_token_ends_by_itself_and_gives_back_what_it_held() {
    run_in_virtual_time(async {
        let test = Test::start().await;
        let ann = test.caller("ann", 1, None).await;
        let short = test.caller("short", 2, Some(Timestamp(60_000))).await;
        test.submit(&ann, add("a")).await.expect("it ends").expect("it is added");
        test.submit(&short, in_run(run::Command::Item(item::Command::Claim)))
            .await
            .expect("it ends")
            .expect("claimed");
        assert_eq!(test.items(), ["a in_progress"]);
        let watch = test.hub.handle.watch(&Topic::Run(RunName::default_run()));
        let released = watch.until(&test.hub.handle, |state| {
            state
                .runs
                .get(&RunName::default_run())
                .items
                .next_ready()
                .map(|item| item.id.to_string())
        });
        assert_eq!(released.await, "TAS-1");
        let late =
            test.submit(&short, add("b")).await.expect("it ends").expect_err("the token has ended");
        assert!(late.to_string().starts_with("this token has ended"), "{late}");
    });
}

#[test]
fn a_hub_that_shuts_down_finishes_what_it_has() {
    run_in_virtual_time(async {
        let test = Test::start().await;
        let ann = test.caller("ann", 1, None).await;
        test.faults.set_append_latency(Duration::from_secs(1));
        let answers: Vec<_> = (0..10).map(|n| test.submit(&ann, add(&format!("{n}")))).collect();
        tokio::time::sleep(Duration::from_millis(10)).await;
        test.hub.handle.shut_down().await;
        for answer in answers {
            answer.await.expect("it ends").expect("it was taken in before the end");
        }
        let late =
            test.hub.handle.submit(ann, add("late"), None).await.expect_err("the hub has ended");
        assert_eq!(
            late.to_string(),
            "nothing was changed: the hub is stopping; start it again and repeat the call"
        );
    });
}

#[test]
fn reading_never_waits_for_the_log() {
    run_in_virtual_time(async {
        let test = Test::start().await;
        let ann = test.caller("ann", 1, None).await;
        test.faults.set_append_latency(Duration::from_secs(3_600));
        let _on_its_way = test.submit(&ann, add("a"));
        tokio::time::sleep(Duration::from_millis(1)).await;
        let read = async { test.hub.handle.state().seq() };
        assert_eq!(read.now_or_never(), Some(1));
    });
}

/// Callers are told within the time in which people give up, and the hub tells when it is over.
#[test]
fn a_loop_that_does_not_answer_is_noticed() {
    run_in_virtual_time(async {
        let test = Test::start().await;
        let ann = test.caller("ann", 1, None).await;
        tokio::spawn(test.hub.handle.watch_the_loop());
        let pulse = test.hub.handle.pulse();
        // It has nothing to do for long, then it answers slowly: neither is a stall.
        tokio::time::sleep(Duration::from_secs(60)).await;
        test.faults.set_append_latency(Duration::from_secs(5));
        test.submit(&ann, add("a")).await.expect("it ends").expect("it is added");
        assert_eq!((pulse.says(), pulse.n_waiting()), (None, 0));

        test.faults.set_append_latency(Duration::from_secs(60));
        let slow = test.submit(&ann, add("b"));
        tokio::time::sleep(Duration::from_secs(15)).await;
        let stalled = pulse.stalled().expect("it is noticed");
        assert!((10..=14).contains(&stalled.as_secs()), "{stalled:?}");
        let refused = test.hub.handle.submit(ann.clone(), add("c"), None).now_or_never();
        let refused = refused.expect("it is answered at once").expect_err("it is refused");
        let says = "nothing was changed: the hub has answered no call for 1";
        assert!(refused.to_string().starts_with(says), "{refused}");

        slow.await.expect("it ends").expect("it is added");
        test.faults.set_append_latency(Duration::from_millis(1));
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(pulse.says(), None);
        test.submit(&ann, add("c")).await.expect("it ends").expect("it is added");
        assert_eq!(test.items().len(), 3);
    });
}

/// A number that is drawn where a batch is put together, beyond any single call, fails.
#[test]
fn a_loop_that_panics_ends_with_a_sentence() {
    run_in_virtual_time(async {
        let (store, faults) = (Store::default(), Faults::default());
        let mut n_drawn = 0;
        let draw = move || {
            n_drawn += 1;
            assert!(n_drawn != 2, "no more numbers");
            n_drawn
        };
        let opened = in_process::open(&store, &faults, Box::new(draw)).await.expect("it opens");
        let teamster_hub::hub::Opened { handle, run } = opened;
        let ended = tokio::spawn(teamster_hub::hub::guarded(run));
        let start = teamster_core::hub::Command::Start { version: "1".into() };
        let answer = handle.submit(Caller::hub(), Command::Hub(start), None).await;
        let answer = answer.expect_err("the loop is gone").to_string();
        assert!(answer.starts_with("it is unknown whether anything was changed"), "{answer}");
        let why = ended.await.expect("the panic was caught").expect_err("it is no good end");
        assert!(why.starts_with("its loop panicked (no more numbers). This is a bug"), "{why}");
    });
}
