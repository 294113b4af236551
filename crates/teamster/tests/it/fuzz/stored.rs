//! What lies in the log and beside it. The hash chain keeps rot away from here; an import or an older version's log does
//! not come by the chain.

use teamster_core::grant::Grants;
use teamster_core::record::Body;
use teamster_core::state::SNAPSHOT_FORMAT;
use teamster_core::token::{self, Kind, NewToken, SecretHash};
use teamster_core::{Event, PrincipalName, Record, State, Timestamp};
use teamster_log::{Hash, Options, Snapshot};
use tokio::runtime::Handle;

use super::play;

/// Bodies with every kind of event, from the golden logs of a release.
fn bodies() -> Vec<Vec<u8>> {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../teamster-core/tests/golden");
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    for name in ["0.1.0.jsonl", "0.1.0-agents.jsonl"] {
        let logs = std::fs::read_to_string(format!("{golden}/{name}")).expect("it is there");
        let lines = logs.lines().filter(|line| !line.is_empty());
        bodies.extend(lines.map(|line| line.as_bytes().to_vec()));
    }
    let token = NewToken {
        principal: PrincipalName::parse("ann").expect("a name"),
        kind: Kind::Agent,
        secret: SecretHash([7; 32]),
        grants: Grants::everything(),
        run: None,
        team: None,
        expires_at: Some(Timestamp(5)),
    };
    let created = token::Event::Created { id: teamster_core::ids::TokenId(900), token };
    let record = Record {
        at: Timestamp(1),
        by: PrincipalName::hub(),
        token: None,
        key: None,
        events: vec![Event::Token(created)],
    };
    bodies.push(Body::new(1, vec![record]).encode());
    bodies
}

fn replayed(bodies: &[Vec<u8>]) -> State {
    let mut state = State::default();
    for body in bodies {
        let body = Body::decode(body).expect("the golden log is readable");
        body.records.iter().for_each(|record| state.apply(record));
    }
    state
}

#[test]
fn bodies_of_commits() {
    let bodies = bodies();
    let state = replayed(&bodies);
    let (mut n_read, mut n_refused) = (0, 0);
    play("bodies_of_commits", 6_000, |mutator| {
        let good = mutator.pick(&bodies).clone();
        let bytes = if mutator.one_in(3) {
            mutator.bytes(&good)
        } else {
            let good = serde_json::from_slice(&good).expect("a body is JSON");
            mutator.json(&good).to_string().into_bytes()
        };
        let Ok(body) = Body::decode(&bytes) else {
            n_refused += 1;
            return;
        };
        n_read += 1;
        let again = Body::decode(&body.encode()).expect("what is written can be read");
        assert_eq!(again.records, body.records);
        // Whatever can be read has happened: it is applied, to any state, and the state can be kept.
        let mut state = state.clone();
        body.records.iter().for_each(|record| state.apply(record));
        body.records
            .iter()
            .flat_map(|record| &record.events)
            .for_each(|event| drop(event.summary()));
        let kept = State::from_snapshot(&state.to_snapshot()).expect("it can be kept");
        // Not equal to `state` itself: a log that adds an id twice leaves marks in the indexes, which are made anew here.
        assert_eq!(State::from_snapshot(&kept.to_snapshot()), Some(kept));
    });
    println!("{n_read} read, {n_refused} refused");
    assert!(n_read > 100 && n_refused > 100, "{n_read} read, {n_refused} refused");
}

/// Through the engine, whose checksum is what guards [`State::from_snapshot`]: its decoder trusts the lengths it reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn snapshots() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = teamster_log::open(directory.path(), Options::default()).expect("it opens");
    let bytes = replayed(&bodies()).to_snapshot();
    let kept = Snapshot { number: 0, hash: Hash::ZERO, format: SNAPSHOT_FORMAT, bytes };
    log.put_snapshot(kept.clone()).await.expect("it is kept");
    let path = directory.path().join("snapshot");
    let good = std::fs::read(&path).expect("it is there");
    let (mut n_read, mut n_refused) = (0, 0);
    play("snapshots", 1_500, |mutator| {
        std::fs::write(&path, mutator.bytes(&good)).expect("it is written");
        let read = log.snapshot(SNAPSHOT_FORMAT);
        match tokio::task::block_in_place(|| Handle::current().block_on(read)).expect("it is read")
        {
            Some(read) => {
                n_read += 1;
                assert_eq!(read, kept);
            }
            None => n_refused += 1,
        }
    });
    println!("{n_read} unchanged, {n_refused} refused");
    assert!(n_refused > 0);
}
