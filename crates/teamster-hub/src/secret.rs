//! Secrets: where randomness comes from, and how a token's secret is made and hashed.

use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};
use teamster_core::token::SecretHash;

/// Where the hub takes random numbers from; tests bring a seeded one.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

/// The operating system's random numbers.
pub fn system_random() -> Random {
    Box::new(|| getrandom::u64().unwrap_or_else(|error| no_randomness(error)))
}

/// What each secret begins with.
const MARK: &str = "tmst_";
/// Hexadecimal digits after the mark.
const DIGITS: usize = 64;
const REDACTED: &str = "(redacted)";

/// A token's secret: 256 random bits behind a mark by which people and scanners recognise it.
pub fn new_secret() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).unwrap_or_else(|error| no_randomness(error));
    secret_of(bytes)
}

fn secret_of(bytes: [u8; 32]) -> String {
    format!("{MARK}{}", String::from(SecretHash(bytes)))
}

/// Makes secrets and other numbers that nobody can guess, of random numbers that it is given.
pub struct Secrets(Mutex<Random>);

impl Secrets {
    pub fn new(random: Random) -> Self {
        Self(Mutex::new(random))
    }

    /// Returns a secret as [`new_secret`] does.
    pub fn secret(&self) -> String {
        let mut random = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0; 32];
        for part in bytes.chunks_exact_mut(8) {
            part.copy_from_slice(&random().to_ne_bytes());
        }
        secret_of(bytes)
    }

    /// Returns a number that no other is like.
    pub fn nonce(&self) -> u128 {
        let mut random = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        u128::from(random()) << 64 | u128::from(random())
    }
}

/// Returns a text without the secrets of tokens.
pub fn redacted(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(MARK) {
        kept.push_str(before);
        kept.push_str(MARK);
        let n_digits = digits(after);
        rest = if n_digits < DIGITS {
            after
        } else {
            kept.push_str(REDACTED);
            &after[n_digits..]
        };
    }
    kept.push_str(rest);
    kept
}

/// Returns how many bytes at the end of a text may be the beginning of a secret.
pub fn unfinished(text: &str) -> usize {
    let marked = text.rfind(MARK).map(|at| (at, digits(&text[at + MARK.len()..])));
    if let Some((at, n_digits)) = marked
        && n_digits < DIGITS
        && at + MARK.len() + n_digits == text.len()
    {
        return text.len() - at;
    }
    let of_mark = (1..MARK.len()).rev().find(|n| text.ends_with(&MARK[..*n]));
    of_mark.unwrap_or_default()
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_hexdigit).count()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_of_texts() {
        let secret = new_secret();
        for (text, expected) in [
            (format!("a {secret} b\n{secret}"), "a tmst_(redacted) b\ntmst_(redacted)"),
            (format!("{{\"token\":\"{secret}\"}}"), "{\"token\":\"tmst_(redacted)\"}"),
            (format!("{secret}0123"), "tmst_(redacted)"),
            (
                "tokens begin with tmst_, such as tmst_12ab".to_owned(),
                "tokens begin with tmst_, such as tmst_12ab",
            ),
            ("größe".to_owned(), "größe"),
        ] {
            assert_eq!(redacted(&text), expected);
        }
    }

    #[test]
    fn a_secret_that_is_not_whole_yet_is_noticed() {
        let secret = new_secret();
        for n in 1..secret.len() {
            assert_eq!(unfinished(&format!("it is {}", &secret[..n])), n, "{n} bytes");
        }
        for text in [secret.as_str(), "tmst_12 ", "tms ", "", "no", "tmst_zz"] {
            assert_eq!(unfinished(text), 0, "{text:?}");
        }
    }
}
