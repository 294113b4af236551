//! Permissions that programs ask for: decided by the role's rules, or by a person.

mod ours;
mod seen;

use teamster_agents::agent::{PermissionId, PermissionKind, PermissionOption, ToolCall};
use teamster_core::agent::Agent;
use teamster_core::ids::QuestionId;
use teamster_core::permission::{Ours, Permissions, Verdict};
use teamster_core::question::{self, Choice};
use teamster_core::role::Role;
use teamster_core::text::visible;
use teamster_core::{Caller, Command, Event, Timestamp};

use self::seen::Seen;
use super::Shared;
use crate::programs::Programs;
use crate::secret;

/// A permission that a person was asked for.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) permission: PermissionId,
    pub(super) question: QuestionId,
    options: Vec<PermissionOption>,
}

/// The answers that people are offered, in this order, as far as the program offers them.
const CHOICES: [(&str, PermissionKind); 4] = [
    ("allow", PermissionKind::AllowOnce),
    ("always", PermissionKind::AllowAlways),
    ("deny", PermissionKind::RejectOnce),
    ("never", PermissionKind::RejectAlways),
];
/// What holds if nobody answers.
const DENY: &str = "deny";

impl Pending {
    /// Returns the option that an answer stands for; none if the program offers none, which it takes for a no.
    pub(super) fn option(&self, word: &str) -> Option<&str> {
        let kind = CHOICES.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)?;
        of_kind(&self.options, kind)
    }
}

/// Says whether a person's answer permits the call.
pub(super) fn is_permitting(word: &str) -> bool {
    CHOICES.iter().any(|(known, kind)| {
        let permits = matches!(kind, PermissionKind::AllowOnce | PermissionKind::AllowAlways);
        *known == word && permits
    })
}

/// Returns what the role's rules say.
pub(super) fn verdict(role: &Role, call: &ToolCall, programs: &Programs) -> Verdict {
    let seen = Seen::of(call, &role.program, programs);
    let asked = seen.asked(call);
    match role.permissions.verdict(&asked) {
        Verdict::Allow if seen.ours == Ours::Surely => Verdict::Allow,
        // What a rule holds back may be in the part that was not looked at.
        Verdict::Allow if !seen.is_whole && role.permissions.look_into(&asked) => Verdict::Ask,
        Verdict::Allow if seen.is_blank && role.permissions.hold_back() => Verdict::Ask,
        verdict => verdict,
    }
}

/// Returns the option that lets the agent go on this once. What lets it go on for ever is a person's to choose.
pub(super) fn allowing(options: &[PermissionOption]) -> Option<&str> {
    of_kind(options, PermissionKind::AllowOnce)
}

/// Returns the option that says no.
pub(super) fn denying(options: &[PermissionOption]) -> Option<&str> {
    of_kind(options, PermissionKind::RejectOnce)
        .or_else(|| of_kind(options, PermissionKind::RejectAlways))
}

fn of_kind(options: &[PermissionOption], kind: PermissionKind) -> Option<&str> {
    options.iter().find(|option| option.kind == kind).map(|option| option.id.as_str())
}

/// Returns the answers that a person can give.
fn choices(permissions: &Permissions, options: &[PermissionOption]) -> Vec<Choice> {
    // A program that is told "always" asks no more, often for all uses of a tool and in later sessions too. Then no rule
    // would see its requests.
    let has_rules = !permissions.deny.is_empty() || !permissions.ask.is_empty();
    let offered =
        CHOICES.iter().filter(|(_, kind)| !(has_rules && *kind == PermissionKind::AllowAlways));
    let label = |kind| options.iter().find(|option| option.kind == kind).map(|one| &*one.name);
    let choice = |(word, kind): &(&str, PermissionKind)| {
        Some(Choice { word: (*word).into(), label: label(*kind)?.into() })
    };
    let mut choices: Vec<Choice> = offered.filter_map(choice).collect();
    // A no is always possible.
    if choices.iter().all(|choice| &*choice.word != DENY) {
        choices.push(Choice { word: DENY.into(), label: "Deny".into() });
    }
    choices
}

/// Asks people. Returns nothing if they cannot be asked; then the answer is no.
pub(super) async fn ask(
    shared: &Shared,
    (agent, role): (&Agent, &Role),
    permission: PermissionId,
    call: &ToolCall,
    options: Vec<PermissionOption>,
) -> Option<Pending> {
    let choices = choices(&role.permissions, &options);
    let now = shared.clock.now();
    let patience = i64::try_from(role.permissions.ask_ms).unwrap_or(i64::MAX);
    let asked = question::NewQuestion {
        agent: agent.id.clone(),
        incarnation: agent.incarnation,
        title: plain(&call.title).replace(['\n', '\t'], " ").into(),
        payload: payload(call).into(),
        choices,
        default: DENY.into(),
        deadline: Timestamp(now.0.saturating_add(patience)),
    };
    let ask = Command::Question(question::Command::Ask(asked));
    let done = shared.hub.submit(Caller::hub(), ask, None).await;
    let done = done
        .inspect_err(|error| tracing::warn!(agent = %agent.id, %error, "nobody could be asked"))
        .ok()?;
    let question = done.events.iter().find_map(|event| match event {
        Event::Question(question::Event::Asked { id, .. }) => Some(*id),
        _ => None,
    })?;
    Some(Pending { permission, question, options })
}

/// Tells all that the tool would be given.
fn payload(call: &ToolCall) -> String {
    let mut lines: Vec<String> =
        call.name.iter().map(|name| format!("tool: {}", plain(name))).collect();
    lines.extend(call.targets.iter().map(|target| format!("about: {}", plain(target))));
    if let Some(input) = &call.input {
        // Said first, for the end of a long text is what is cut off next.
        if input.cut_bytes > 0 {
            lines.push(format!("({} bytes at its end are not shown)", input.cut_bytes));
        }
        lines.push(plain(&input.text));
    }
    if call.shown.cut_bytes > 0 {
        lines.push(format!(
            "({} bytes of what the program shows are left out)",
            call.shown.cut_bytes
        ));
    }
    let is_known = |text: &&String| {
        **text == call.title
            || call.input.as_ref().is_some_and(|input| input.text.contains(text.as_str()))
    };
    lines.extend(call.shown.texts.iter().filter(|text| !is_known(text)).map(|text| plain(text)));
    lines.join("\n")
}

/// Makes a request readable for a person. Control sequences are shown as escapes and not dropped, because a command can hide
/// in one. The log keeps the question, so secrets are redacted.
fn plain(text: &str) -> String {
    secret::redacted(&visible(text))
}

#[cfg(test)]
mod tests;
