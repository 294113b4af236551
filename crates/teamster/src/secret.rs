//! Secrets: where randomness comes from, and how a token's secret is made and hashed.

use sha2::{Digest, Sha256};
use teamster_core::token::SecretHash;

/// Where the hub takes random numbers from; tests bring a seeded one.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

/// The operating system's random numbers.
pub fn system_random() -> Random {
    Box::new(|| getrandom::u64().unwrap_or_else(|error| no_randomness(error)))
}

/// A token's secret: 256 random bits behind a mark by which people and scanners recognise it.
pub fn new_secret() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).unwrap_or_else(|error| no_randomness(error));
    format!("tmst_{}", String::from(SecretHash(bytes)))
}

/// A random number that no other is like.
pub fn nonce() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap_or_else(|error| no_randomness(error));
    u128::from_ne_bytes(bytes)
}

/// Without randomness there are no safe tokens and no unique commits; there is nothing sensible to go on with.
fn no_randomness(error: getrandom::Error) -> ! {
    panic!("the system gives no random numbers: {error}")
}

/// A key that stays in the hub: 256 random bits.
pub fn new_key() -> anyhow::Result<[u8; 32]> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    Ok(key)
}

/// Returns what is kept of a secret. It is random and long, so a plain hash is enough.
pub fn hash(secret: &str) -> SecretHash {
    SecretHash(Sha256::digest(secret.as_bytes()).into())
}
