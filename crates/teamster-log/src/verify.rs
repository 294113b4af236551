//! Walks a whole log and recomputes its hash chain. It finds rot and truncation; whoever can rewrite the log and the
//! exported head together is beyond it.

use crate::{Error, Hash, Head, Log};

/// How many commits are asked for at once; the page's own bound in bytes is what usually ends it.
const PAGE: usize = 1_000;

/// What [`verify`] found.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// The end of the part that is sound, from the first commit on: worth exporting when nothing is broken.
    pub sound: Head,
    /// The first commit that is not.
    pub broken: Option<Broken>,
    /// What else is wrong, where all commits are sound: the engine's own structures are.
    pub damage: Option<String>,
}

/// The first commit that is damaged or missing.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken {
    pub number: u64,
    pub why: String,
}

/// Checks every commit up to the present head, and that the log still contains `expected`, a head exported earlier.
///
/// `Err` means that the log could not be read, not that it is broken. Works while others append.
pub async fn verify(log: &dyn Log, expected: Option<Head>) -> Result<Report, Error> {
    let end = log.head().await?;
    let mut walk = Walk { before: Head::EMPTY, at: Head::EMPTY };
    while walk.at.number < end.number {
        let page = match log.read(walk.at.number, PAGE).await {
            Ok(page) if page.is_empty() => return Ok(walk.missing_next()),
            Ok(page) => page,
            Err(Error::DamagedCommit { number, why }) => {
                let broken = Some(Broken { number, why });
                return Ok(Report { sound: walk.at, broken, damage: None });
            }
            Err(error) => return Err(error),
        };
        for commit in page {
            if commit.number != walk.at.number + 1 {
                return Ok(walk.missing_next());
            }
            if commit.prev != walk.at.hash {
                return Ok(walk.last_is_broken(commit.prev, "the next commit records"));
            }
            walk = Walk { before: walk.at, at: Head::of(&commit) };
            if walk.at.number == end.number && walk.at.hash != end.hash {
                return Ok(walk.last_is_broken(end.hash, "the log's end records"));
            }
            if let Some(expected) = expected
                && expected.number == walk.at.number
                && expected.hash != walk.at.hash
            {
                return Ok(walk.last_is_broken(expected.hash, "the exported head records"));
            }
            if walk.at.number == end.number {
                break;
            }
        }
    }
    match expected {
        Some(expected) if expected.number > end.number => Ok(Report {
            sound: walk.at,
            broken: Some(Broken {
                number: end.number + 1,
                why: format!(
                    "it is missing: the log ends at commit {}, but it had {} when its head was exported",
                    end.number, expected.number
                ),
            }),
            damage: None,
        }),
        _ => Ok(Report { sound: walk.at, broken: None, damage: log.damage().await? }),
    }
}

/// The last two commits seen: whether the last is sound shows only in what comes after it.
struct Walk {
    before: Head,
    at: Head,
}

impl Walk {
    fn missing_next(&self) -> Report {
        let broken = Broken {
            number: self.at.number + 1,
            why: "it is missing, though later commits exist".to_owned(),
        };
        Report { sound: self.at, broken: Some(broken), damage: None }
    }

    fn last_is_broken(&self, recorded: Hash, by: &str) -> Report {
        if self.at.number == 0 {
            let why = format!("it follows a commit {recorded}, but the first follows none");
            let broken = Some(Broken { number: 1, why });
            return Report { sound: self.at, broken, damage: None };
        }
        let why = format!("its hash is {}, but {by} {recorded}", self.at.hash);
        let broken = Some(Broken { number: self.at.number, why });
        Report { sound: self.before, broken, damage: None }
    }
}
