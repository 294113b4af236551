//! Makes wrong inputs of right ones: a small generator of our own, so that a seed always gives the same input. It needs
//! nothing of this test binary; unit tests of private parsers include this file too.

use serde_json::{Map, Value, json};

/// A source of mutations: SplitMix64, as `in_process::Dice` is.
#[derive(Debug, Clone)]
pub(crate) struct Mutator(pub(crate) u64);

/// Texts that parsers have stumbled over.
const TEXTS: &[&str] = &[
    "",
    " ",
    "\0",
    "\n",
    "\r\n",
    "\t",
    "\"",
    "'",
    "\\",
    "..",
    "../../etc/passwd",
    "/",
    "%00",
    "%2e%2e%2f",
    "-",
    "--",
    "-1",
    "0",
    "00",
    "1e999",
    "18446744073709551616",
    "NaN",
    "null",
    "true",
    "{}",
    "[]",
    "{",
    "}",
    "[",
    "]",
    ":",
    ": ",
    "#",
    "&a",
    "*a",
    "- ",
    "|",
    ">",
    "\u{feff}",
    "\u{202e}",
    "\u{200b}",
    "é",
    "e\u{301}",
    "𝕏",
    "\u{10ffff}",
    "TAS-1",
    "TAS-0",
    "tas-1",
    "TAS-4294967296",
    "NOT-1",
    "TOK-1",
    "remaining.2.TAS-1",
    "remaining.2.TAS-1.",
    "full",
    "session:task-add",
    "teamster",
    "mcpServers",
    "<script>",
    "\u{1b}[31m",
    "\u{ffff}",
];

impl Mutator {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `n`; 0 if there is none.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.roll() % (n.max(1) as u64)).unwrap_or(0)
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Returns a text that somebody might send: an odd one, or a long one.
    pub(crate) fn odd_text(&mut self) -> String {
        match self.below(60) {
            0 => "x".repeat(self.below(100_000)),
            1..4 => "𝕏".repeat(self.below(300)),
            4..10 => (0..self.below(20)).map(|_| *self.pick(TEXTS)).collect(),
            _ => (*self.pick(TEXTS)).to_owned(),
        }
    }

    /// Changes a few bytes.
    pub(crate) fn bytes(&mut self, input: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(24)).min(bytes.len());
            match self.below(7) {
                0 => bytes.truncate(at),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let twice = bytes[at..end].to_vec();
                    bytes.splice(at..at, twice);
                }
                3 => {
                    let text = self.odd_text();
                    bytes.splice(at..end, text.into_bytes());
                }
                4 => {
                    let other = self.below(input.len());
                    let end = (other + self.below(64)).min(input.len());
                    bytes.splice(at..at, input[other..end].iter().copied());
                }
                _ if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                _ => bytes.push(self.roll().to_le_bytes()[0]),
            }
        }
        bytes
    }

    /// Changes a few characters.
    pub(crate) fn text(&mut self, input: &str) -> String {
        String::from_utf8_lossy(&self.bytes(input.as_bytes())).into_owned()
    }

    /// Replaces, removes, adds or wraps a few parts of a value, wherever they are in it.
    pub(crate) fn json(&mut self, input: &Value) -> Value {
        let mut value = input.clone();
        for _ in 0..=self.below(3) {
            self.change(&mut value);
        }
        value
    }

    fn change(&mut self, value: &mut Value) {
        let goes_deeper = !self.one_in(4);
        match value {
            Value::Object(members) if goes_deeper && !members.is_empty() => {
                self.change_member(members)
            }
            Value::Array(items) if goes_deeper && !items.is_empty() => {
                let at = self.below(items.len());
                match self.below(5) {
                    0 => drop(items.remove(at)),
                    1 => items.push(items[at].clone()),
                    _ => self.change(&mut items[at]),
                }
            }
            Value::String(text) if self.one_in(2) => *text = self.text(text),
            _ => *value = self.odd_value(value),
        }
    }

    fn change_member(&mut self, members: &mut Map<String, Value>) {
        let names: Vec<String> = members.keys().cloned().collect();
        let name = self.pick(&names).clone();
        match self.below(8) {
            0 => drop(members.remove(&name)),
            1 => {
                let odd = self.odd_text();
                members.insert(odd, json!(1));
            }
            2 => {
                let value = members.remove(&name).unwrap_or_default();
                members.insert(self.text(&name), value);
            }
            _ => self.change(&mut members[&name]),
        }
    }

    fn odd_value(&mut self, old: &Value) -> Value {
        match self.below(14) {
            0 => Value::Null,
            1 => json!(self.one_in(2)),
            2 => json!(self.roll()),
            3 => json!(-1),
            4 => json!(1.5),
            5 => json!(1e300),
            6 => json!(2.0),
            7 => json!([]),
            8 => json!({}),
            9 => json!([old, old]),
            10 => json!({"": old}),
            11 => (0..self.below(120)).fold(old.clone(), |inner, _| json!([inner])),
            _ => json!(self.odd_text()),
        }
    }
}
