//! `teamster log redact`: takes a text that should never have been written, such as a password, out of the log.

use std::io::{IsTerminal, Read};

use anyhow::{Context, bail};
use serde_json::Value;
use teamster_core::State;
use teamster_core::hub::Rewriting;
use teamster_core::record::Body;
use teamster_log::{Commit, Edit, EditError};

use super::super::{Progress, say};
use super::rewrite;
use teamster_hub::config::DataFiles;

/// What stands in the place of the text.
const REDACTED: &str = "[redacted]";
/// A shorter text is part of much that is not secret.
const TEXT_BYTES_MIN: usize = 8;
/// More than any secret has.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// JSON within JSON within JSON: what a client sent may be kept as a text in a text.
const NESTED_MAX: usize = 3;

pub(super) async fn run(data: &DataFiles) -> anyhow::Result<()> {
    let text = read_text()?;
    let rewrite = rewrite::begin(data)?;
    let mut redactor = Redactor::new(&text);
    let mut progress = Progress::new("redacting");
    let mut say_progress = |done, all| progress.say(done, all);
    let at = teamster_log::copy(rewrite.old(), rewrite.new_log(), &mut redactor, &mut say_progress)
        .await?;
    let Redactor { state, n_commits, n_records, n_blobs, .. } = redactor;
    if n_commits + n_records + n_blobs == 0 {
        say("the text is nowhere in the log, which stays as it is");
        return Ok(());
    }
    let how = Rewriting::Redacted { n_commits, n_records, n_blobs };
    rewrite::finish(rewrite, at, &state, how).await?;
    say(&format!(
        "redacted in {n_commits} commits, {n_records} transcript records and {n_blobs} blobs; the log says so in its last commit.\n\
         Backups, exports and archives made before still have the text, and the disk may keep old blocks for a while: change the secret."
    ));
    Ok(())
}

/// From stdin and not from an argument, which other users and the shell's history would see.
fn read_text() -> anyhow::Result<String> {
    if std::io::stdin().is_terminal() {
        say("type the text to take out, then Enter and Ctrl-D:");
    }
    let mut text = String::new();
    std::io::stdin()
        .take(TEXT_BYTES_MAX as u64 + 1)
        .read_to_string(&mut text)
        .context("cannot read the text to redact from stdin")?;
    let text = text.trim_end_matches(['\n', '\r']);
    if !(TEXT_BYTES_MIN..=TEXT_BYTES_MAX).contains(&text.len()) {
        bail!(
            "give a text of {TEXT_BYTES_MIN} to {TEXT_BYTES_MAX} bytes on stdin; a shorter one would be found in much that is not secret"
        );
    }
    Ok(text.to_owned())
}

/// Replaces the text wherever it is.
struct Redactor {
    /// The text as it is, and as it is written within JSON.
    forms: Vec<String>,
    /// The state that the redacted log comes to.
    state: State,
    n_commits: u64,
    n_records: u64,
    n_blobs: u64,
}

impl Redactor {
    fn new(text: &str) -> Self {
        let mut forms = vec![text.to_owned()];
        for _ in 0..NESTED_MAX {
            let quoted = Value::from(forms[forms.len() - 1].as_str()).to_string();
            forms.push(quoted[1..quoted.len() - 1].to_owned());
        }
        // The longest first: it contains the shorter ones.
        forms.reverse();
        forms.dedup();
        Self { forms, state: State::default(), n_commits: 0, n_records: 0, n_blobs: 0 }
    }

    fn redact(&self, text: &str) -> String {
        self.forms.iter().fold(text.to_owned(), |text, form| text.replace(form, REDACTED))
    }

    /// Redacts the texts in some JSON; what only looks like the text in its written form is not it.
    fn redact_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redact(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.redact_json(value)),
            Value::Object(members) => {
                members.values_mut().for_each(|value| self.redact_json(value))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl Edit for Redactor {
    fn body(&mut self, commit: Commit) -> Result<Option<Vec<u8>>, EditError> {
        let text = String::from_utf8(commit.body)?;
        let written: Value = serde_json::from_str(&text)?;
        let mut value = written.clone();
        self.redact_json(&mut value);
        let redacted = if value == written { text.clone() } else { value.to_string() };
        let body = Body::decode(redacted.as_bytes()).map_err(|error| {
            format!("the text is part of a name there, which cannot be taken out ({error})")
        })?;
        if redacted != text {
            self.n_commits += 1;
            // A word of ours, such as a field's name, would be lost without a sound.
            if body.encode() != redacted.as_bytes() {
                return Err(
                    "the text is part of how the log is written; give more of the secret".into()
                );
            }
        }
        body.records.iter().for_each(|record| self.state.apply(record));
        Ok(Some(redacted.into_bytes()))
    }

    fn record(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        // No driver writes anything but JSON; what is not is searched as it is.
        let redacted = match serde_json::from_slice::<Value>(&bytes) {
            Ok(mut value) => {
                self.redact_json(&mut value);
                value.to_string()
            }
            Err(_) => self.redact(&String::from_utf8_lossy(&bytes)),
        };
        if redacted.contains(REDACTED) && redacted.as_bytes() != bytes {
            self.n_records += 1;
            return redacted.into_bytes();
        }
        bytes
    }

    fn keeps_blob(&mut self, bytes: &[u8]) -> bool {
        let found = self.forms.iter().any(|form| memmem(bytes, form.as_bytes()));
        self.n_blobs += u64::from(found);
        !found
    }
}

fn memmem(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
