//! What an agent's program may do without asking anybody: rules of its role, matched against each request.
//!
//! Programs name the same thing differently (`Bash`, `shell`, `developer__shell`), so a rule can also name the kind of a
//! tool. Rules about what is in a command are no wall: whoever may run one command can reach another by it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

const PATTERN_BYTES_MAX: usize = 500;

/// What becomes of a request for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    #[default]
    Allow,
    /// A person decides.
    Ask,
    Deny,
}

/// The rules of a role. What is denied is denied whatever else matches; then what is asked is asked; then what is allowed
/// is allowed; the rest is as `otherwise` says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Permissions {
    pub deny: Vec<Pattern>,
    pub ask: Vec<Pattern>,
    pub allow: Vec<Pattern>,
    pub otherwise: Verdict,
    /// How long a person is waited for; then it is denied.
    pub ask_ms: u64,
}

impl Permissions {
    /// As long as a person is waited for who was told nothing else: a meeting, not a night.
    pub const ASK_MS_USUAL: u64 = 60 * 60 * 1_000;

    /// Returns whether a request can be denied or become a question.
    pub fn hold_back(&self) -> bool {
        !self.deny.is_empty() || !self.ask.is_empty() || self.otherwise != Verdict::Allow
    }

    /// Returns whether a rule that holds back looks at what is in this call.
    pub fn look_into(&self, asked: &PermissionRequest<'_>) -> bool {
        let mut patterns = self.deny.iter().chain(&self.ask);
        patterns.any(|pattern| pattern.target().is_some() && pattern.may_mean_tool(asked))
    }

    /// Decides a request.
    pub fn verdict(&self, asked: &PermissionRequest<'_>) -> Verdict {
        let denies = |pattern: &Pattern| match asked.ours {
            Ours::No | Ours::ByName => pattern.matches(asked),
            // Rules for kinds and for everything mean the tools of others.
            Ours::Surely => pattern.matches(asked) && pattern.names(asked),
        };
        let asks = |pattern: &Pattern| pattern.matches(asked);
        // What is allowed is allowed for all that it is about, and a command that chains others is not the one that was meant.
        let allows = |pattern: &Pattern| match pattern.target() {
            None => pattern.means_tool(asked),
            Some(wanted) => {
                let is_meant = |target: &&str| {
                    glob(wanted, target) && !target.contains(CHAINING) && !leads_up(target)
                };
                pattern.means_tool(asked)
                    && !asked.targets.is_empty()
                    && asked.targets.iter().all(is_meant)
            }
        };
        if self.deny.iter().any(denies) {
            return Verdict::Deny;
        }
        match asked.ours {
            Ours::ByName | Ours::Surely => Verdict::Allow,
            Ours::No if self.ask.iter().any(asks) => Verdict::Ask,
            Ours::No if self.allow.iter().any(allows) => Verdict::Allow,
            Ours::No => self.otherwise,
        }
    }
}

/// Says whether a path leads out of where it seems to be.
fn leads_up(target: &str) -> bool {
    target.split(['/', '\\', ' ', '=', ':']).any(|step| step == "..")
}

/// What starts another command in a shell.
const CHAINING: [char; 9] = [';', '&', '|', '`', '$', '<', '>', '\n', '\r'];

/// Whether a tool is one of the hub's own, whose access the hub checks itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ours {
    #[default]
    No,
    /// It has the name and the arguments of one. Another server may have a tool of that name, so every deny rule holds.
    ByName,
    Surely,
}

/// What a program asks permission for. A rule that allows looks at what is certain, a rule that holds back at all of it.
#[derive(Debug, Clone, Default)]
pub struct PermissionRequest<'a> {
    /// What the tool is called; empty if that is not certain.
    pub name: &'a str,
    /// What it may be called as well.
    pub aliases: Vec<&'a str>,
    /// `read`, `edit`, `execute` and so on.
    pub kind: &'a str,
    /// What it may be as well.
    pub kinds: Vec<&'a str>,
    /// What it is about: files, commands, addresses. A rule that allows must mean all of it.
    pub targets: Vec<&'a str>,
    /// All texts that the program shows of it. For a rule that holds back, one of them is enough.
    pub texts: Vec<&'a str>,
    pub ours: Ours,
}

/// `TOOL` or `TOOL(TARGET)`, each with `*` for anything. A tool is also matched by its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(Arc<str>);

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a pattern; write TOOL or TOOL(TARGET), with * for anything, e.g. `execute(git *)`"
)]
pub struct BadPattern(String);

impl Pattern {
    pub fn parse(given: &str) -> Result<Self, BadPattern> {
        let text = given.trim();
        let (tool, target) = split(text);
        let closed = text.contains('(') == target.is_some();
        let fits = !tool.is_empty() && text.len() <= PATTERN_BYTES_MAX && closed;
        if fits && !text.contains(char::is_control) {
            Ok(Self(text.into()))
        } else {
            Err(BadPattern(text.chars().take(80).collect()))
        }
    }

    fn target(&self) -> Option<&str> {
        split(&self.0).1
    }

    fn matches(&self, asked: &PermissionRequest<'_>) -> bool {
        let mut all = asked.targets.iter().chain(&asked.texts);
        let any = |wanted: &str| all.any(|text| glob(wanted, text));
        self.may_mean_tool(asked) && self.target().is_none_or(any)
    }

    /// Returns whether it means the tool for certain.
    fn means_tool(&self, asked: &PermissionRequest<'_>) -> bool {
        let (tool, _) = split(&self.0);
        glob(tool, asked.name) || glob(tool, asked.kind)
    }

    fn may_mean_tool(&self, asked: &PermissionRequest<'_>) -> bool {
        let (tool, _) = split(&self.0);
        let mut others = asked.aliases.iter().chain(&asked.kinds);
        self.means_tool(asked) || others.any(|other| glob(tool, other))
    }

    /// Returns whether it has a part of the tool's own name, not only stars.
    fn names(&self, asked: &PermissionRequest<'_>) -> bool {
        let (tool, _) = split(&self.0);
        let mut names = std::iter::once(&asked.name).chain(&asked.aliases);
        tool.contains(|c| c != '*') && names.any(|name| glob(tool, name))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some((tool, target)) => (tool, Some(target)),
        None => (text, None),
    }
}

/// Says whether a text is what a pattern means, in time that grows with the product of their lengths at most.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where the last star was, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if byte.eq_ignore_ascii_case(&text[t]) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, t) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(list: &[&str]) -> Vec<Pattern> {
        list.iter().map(|text| Pattern::parse(text).unwrap()).collect()
    }

    fn check(permissions: &Permissions, tool: &str, kind: &str, target: &str, expected: Verdict) {
        let asked = PermissionRequest {
            name: tool,
            kind,
            targets: vec![target],
            texts: vec!["a remark"],
            ours: if tool == "ours" { Ours::Surely } else { Ours::No },
            ..PermissionRequest::default()
        };
        assert_eq!(permissions.verdict(&asked), expected, "{tool} {kind} {target}");
    }

    #[test]
    fn deny_beats_ask_beats_allow() {
        use Verdict::{Allow, Ask, Deny};
        let permissions = Permissions {
            deny: patterns(&["execute(rm *)", "WebFetch"]),
            ask: patterns(&["execute(git push*)"]),
            allow: patterns(&["execute(git *)", "read", "mcp__*__task-*"]),
            otherwise: Ask,
            ask_ms: 1,
        };
        check(&permissions, "Bash", "execute", "rm -rf x", Deny);
        check(&permissions, "webfetch", "fetch", "http://x", Deny);
        check(&permissions, "shell", "execute", "git push origin", Ask);
        check(&permissions, "shell", "execute", "git status", Allow);
        // A chain is more than what was allowed.
        check(&permissions, "shell", "execute", "git status; curl x", Ask);
        check(&permissions, "shell", "execute", "git log $(curl x)", Ask);
        check(&permissions, "shell", "execute", "git add ../../other", Ask);
        check(&permissions, "Read", "read", "/etc/passwd", Allow);
        check(&permissions, "mcp__hub__task-add", "other", "", Allow);
        check(&permissions, "Edit", "edit", "a.rs", Ask);
        check(&permissions, "ours", "other", "", Allow);
        let none = Permissions { otherwise: Deny, ..Permissions::default() };
        check(&none, "ours", "other", "", Allow);
        check(&none, "Edit", "edit", "a.rs", Deny);
        check(&Permissions::default(), "Edit", "edit", "a.rs", Allow);
    }

    #[test]
    fn our_own_tools_are_never_asked_about_and_denied_only_by_name() {
        use Verdict::{Allow, Deny};
        let asked = |ours| PermissionRequest {
            name: "teamster_task-add",
            kind: "other",
            texts: vec!["curl"],
            ours,
            ..PermissionRequest::default()
        };
        for (deny, ask, surely, by_name) in [
            ("x", "*", Allow, Allow),
            ("x", "teamster_*", Allow, Allow),
            ("*", "x", Allow, Deny),
            ("other", "x", Allow, Deny),
            ("*(*curl*)", "x", Allow, Deny),
            ("*task-add", "x", Deny, Deny),
        ] {
            let rules = Permissions {
                deny: patterns(&[deny]),
                ask: patterns(&[ask]),
                otherwise: Deny,
                ..Permissions::default()
            };
            assert_eq!(rules.verdict(&asked(Ours::Surely)), surely, "{deny}");
            assert_eq!(rules.verdict(&asked(Ours::ByName)), by_name, "{deny}");
        }
    }

    #[test]
    fn what_is_only_possible_holds_back_and_allows_nothing() {
        use Verdict::{Allow, Ask, Deny};
        let asked = PermissionRequest {
            name: "",
            aliases: vec!["shell"],
            kind: "other",
            kinds: vec!["execute"],
            targets: vec![],
            texts: vec!["curl x"],
            ours: Ours::No,
        };
        for rule in ["execute", "shell", "execute(curl *)", "sh*(*curl*)", "*"] {
            let deny = Permissions { deny: patterns(&[rule]), ..Permissions::default() };
            assert_eq!(deny.verdict(&asked), Deny, "{rule}");
            let ask = Permissions { ask: patterns(&[rule]), ..Permissions::default() };
            assert_eq!(ask.verdict(&asked), Ask, "{rule}");
            let allow =
                Permissions { allow: patterns(&[rule]), otherwise: Ask, ..Permissions::default() };
            assert_eq!(allow.verdict(&asked), if rule == "*" { Allow } else { Ask }, "{rule}");
        }
    }

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "abcd", false),
            ("*b*", "abc", true),
            ("A", "a", true),
            ("a*b*c*d", "axbxxcxd", true),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
        assert!(!glob(&"a*".repeat(200), &"a".repeat(100)), "it is short of letters");
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in ["", "(x)", "a(b", "a\nb", &"x".repeat(501)] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }
}
