//! Commits and the hash chain that links them. Pure: no files, no waiting.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// Names one attempt to append, so that after an unknown outcome its author recognises it. Random, chosen by the author.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommitId(pub [u8; 16]);

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

/// One entry of the log: everything that became true at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// 1, 2, 3, … without a gap.
    pub number: u64,
    pub id: CommitId,
    /// The hash of the commit before, [`Hash::ZERO`] for the first.
    pub prev: Hash,
    /// UTF-8 text (JSON), opaque here.
    pub body: Vec<u8>,
}

/// The end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the last commit, 0 when there is none.
    pub number: u64,
    /// `None` when the log is empty.
    pub id: Option<CommitId>,
    pub hash: Hash,
}

impl Commit {
    /// Returns the hash that the next commit carries as its `prev`.
    pub fn hash(&self) -> Hash {
        let mut sha = Sha256::new();
        sha.update(self.prev.0);
        sha.update(self.number.to_be_bytes());
        sha.update(self.id.0);
        // The length is hashed too, so that no body can be moved across the border of a field added later.
        sha.update((self.body.len() as u64).to_be_bytes());
        sha.update(&self.body);
        Hash(sha.finalize().into())
    }
}

impl Head {
    /// The head of a log without commits.
    pub const EMPTY: Self = Self { number: 0, id: None, hash: Hash::ZERO };

    /// Returns the head of a log that ends with `commit`.
    pub fn of(commit: &Commit) -> Self {
        Self { number: commit.number, id: Some(commit.id), hash: commit.hash() }
    }

    /// Returns the commit that would extend this head.
    pub fn next(&self, id: CommitId, body: Vec<u8>) -> Commit {
        Commit { number: self.number + 1, id, prev: self.hash, body }
    }

    /// Tells whether `commit` may be appended here.
    pub fn is_followed_by(&self, commit: &Commit) -> bool {
        Some(commit.number) == self.number.checked_add(1) && commit.prev == self.hash
    }
}

impl Hash {
    /// What stands for "before the first commit".
    pub const ZERO: Self = Self([0; 32]);

    /// Returns the hash of some bytes, e.g. a blob's name.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// Why a text is no [`struct@Hash`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a hash; expected 64 hexadecimal digits")]
pub struct NotAHash(String);

impl FromStr for Hash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let refusal = || NotAHash(text.to_owned());
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(refusal());
        }
        let mut hash = Self::ZERO;
        for (byte, pair) in hash.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_digit(pair[0])
                .zip(hex_digit(pair[1]))
                .map(|(high, low)| high << 4 | low)
                .ok_or_else(refusal)?;
        }
        Ok(hash)
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit() -> Commit {
        Commit {
            number: 1,
            id: CommitId([7; 16]),
            prev: Hash::ZERO,
            body: br#"["hello"]"#.to_vec(),
        }
    }

    /// Old logs must verify forever: if this fails, the chain's definition changed and every stored log looks broken.
    #[test]
    fn the_hash_of_a_commit_never_changes() {
        let first = commit();
        let second = Head::of(&first).next(CommitId([8; 16]), Vec::new());
        assert_eq!(
            [first.hash().to_string(), second.hash().to_string()],
            [
                "bf2de68a473a60636cbf8aef442731464d4249496e0daea8adc55d7316fbe186",
                "304d47980d84e48d61feecc3053a09c21bab8702f4b3267b39a6c2acabcd075b"
            ]
        );
    }

    #[test]
    fn every_field_changes_the_hash() {
        let changed = [
            Commit { number: 2, ..commit() },
            Commit { id: CommitId([8; 16]), ..commit() },
            Commit { prev: Hash([1; 32]), ..commit() },
            Commit { body: b"[]".to_vec(), ..commit() },
        ];
        for other in changed {
            assert_ne!(other.hash(), commit().hash(), "{other:?}");
        }
    }

    #[test]
    fn a_hash_reads_back_what_it_prints() {
        let hash = Hash::of(b"abc");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for bad in ["", "12", &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(bad.parse::<Hash>(), Err(NotAHash(bad.to_owned())));
        }
    }
}
