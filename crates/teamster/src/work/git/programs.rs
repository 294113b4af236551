//! What git would run over the files, as its settings say. What an agent writes into them would run with the hub's rights,
//! so they must stay what they were when the person had the run begin or go on.

use std::ffi::OsStr;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{Base, GitError, Tree};

/// The settings that name a program which something that the hub does may start, or that lead git to other files. Hooks and
/// the file system monitor are switched off anyway; the rest is for objects that git fetches when it needs them.
const KEYS: &str = r"^(filter\.|hook\.|gpg\.|credential\.|protocol\.|merge\..*\.driver$|submodule\.recurse$|diff\.(external|.*\.(command|textconv))$|core\.(worktree|attributesfile|gitproxy|sshcommand|askpass)$|extensions\.(partialclone|worktreeconfig)$|remote\..*\.(uploadpack|vcs|promisor)$)";
/// As many as are told apart from each other; all of them are compared.
const NAMED_MAX: usize = 64;
/// As many as are shown, and as much of each.
const SHOWN_MAX: usize = 5;
const SHOWN_CHARS_MAX: usize = 150;

pub(crate) struct Programs {
    /// A digest of all of them, then a bit of one for each.
    pub(crate) digest: Arc<str>,
    named: Vec<(String, String)>,
}

impl Tree {
    /// Returns what git would run, by the settings of this repository, its user and its machine.
    pub(crate) async fn programs(&self) -> Result<Programs, GitError> {
        let args = ["config", "-z", "--get-regexp", KEYS].map(OsStr::new);
        let listed = match self.git_raw(None, &args).await {
            Ok(listed) => listed,
            // There are none.
            Err(error) if error.code == Some(1) => Vec::new(),
            Err(error) => return Err(error),
        };
        let named = listed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
        let named = named.take(NAMED_MAX).map(|entry| (digest(entry, 3), shown(entry)));
        let named: Vec<(String, String)> = named.collect();
        let mut all = digest(&listed, 16);
        for (each, _) in &named {
            all.extend([".", each]);
        }
        Ok(Programs { digest: all.into(), named })
    }
}

fn digest(bytes: &[u8], n_bytes: usize) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().take(n_bytes).map(|byte| format!("{byte:02x}")).collect()
}

fn shown(entry: &[u8]) -> String {
    let entry = String::from_utf8_lossy(entry);
    let (key, value) = entry.split_once('\n').unwrap_or((&entry, ""));
    let shown = match key.starts_with("credential.") {
        // There may be a password in it.
        true => key.to_owned(),
        false => format!("{key}={value}"),
    };
    shown.replace(char::is_control, " ").chars().take(SHOWN_CHARS_MAX).collect()
}

impl Programs {
    /// Fails if they were others at `base`.
    pub(crate) fn unchanged_since(&self, base: &str) -> Result<(), GitError> {
        let then = match Base::of(base).programs {
            Some(then) if then != &*self.digest => then,
            Some(_) | None => return Ok(()),
        };
        let is_new = |(each, _): &&(String, String)| !then.split('.').any(|known| known == each);
        let new = self.named.iter().filter(is_new).take(SHOWN_MAX);
        let new: Vec<&str> = new.map(|(_, shown)| &**shown).collect();
        let what = match new.is_empty() {
            true => "some are gone".to_owned(),
            false => format!("new is {}", new.join(", ")),
        };
        let says = format!(
            "the settings that name programs for git to run have changed while agents were at work ({what}), so it is not \
             run over their files; look at `git config --list --show-origin`, put it right, then resume"
        );
        Err(GitError::new("config", says))
    }

    /// Returns a base with these for those that were known then.
    pub(crate) fn renewed(&self, base: &str) -> Arc<str> {
        let mut fields: Vec<&str> = base.split(':').collect();
        match fields.get_mut(2) {
            Some(programs) => *programs = &self.digest,
            None => fields.push(&self.digest),
        }
        fields.join(":").into()
    }
}
