//! What the agent of an iteration is told: a template, filled with what is known of its run.

use std::fmt::Write as _;

use teamster_core::drive::Terms;
use teamster_core::ids::NoteId;
use teamster_core::item::{Item, Status};
use teamster_core::iteration::Open;
use teamster_core::run::Run;
use teamster_core::{RunName, State};

/// The prompt of an iteration, unless the person has another.
pub const TEMPLATE: &str = include_str!("template.md");
/// The prompt of the iteration that makes the plan, unless the person has another.
pub const PLAN: &str = include_str!("plan.md");

/// What a template can have filled in, in double braces.
const VARIABLES: [&str; 7] = ["session", "iteration", "spec", "tasks", "notes", "history", "extra"];

/// As many summaries as an agent is told, the newest.
const SUMMARIES_MAX: usize = 5;
/// As many notes, the newest; all are there with `note-list`.
const NOTES_MAX: usize = 50;
/// As many tasks that are finished; all are there with `task-list`.
const FINISHED_MAX: usize = 20;
/// As many that are not.
const OPEN_MAX: usize = 200;

/// Returns what an iteration's agent is told.
pub(crate) fn of_iteration(state: &State, name: &RunName, open: &Open) -> Option<String> {
    let run = state.runs.get(name);
    let terms = &run.drive.as_ref()?.terms;
    let template = match open.plans {
        true => terms.plan_template.as_deref().unwrap_or(PLAN),
        false => terms.template.as_deref().unwrap_or(TEMPLATE),
    };
    let extra = extra(&terms.extra, open);
    let values = [
        ("session", name.to_string()),
        ("iteration", open.number.to_string()),
        ("spec", terms.spec.to_string()),
        ("tasks", tasks(run)),
        ("notes", notes(run)),
        ("history", history(run)),
        ("extra", extra.clone()),
    ];
    let mut text = filled(template, &values);
    if !extra.is_empty() && variables(template).all(|variable| variable != "extra") {
        // What people say must reach somebody.
        text.extend(["\n\n", &extra]);
    }
    Some(text)
}

/// Returns what stands in double braces in a template.
fn variables(template: &str) -> impl Iterator<Item = &str> {
    template
        .split("{{")
        .skip(1)
        .filter_map(|after| after.split_once("}}"))
        .map(|(name, _)| name.trim())
}

/// Returns a name in double braces that looks like a variable and is none, if there is one.
fn unknown_variable(template: &str) -> Option<&str> {
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic());
    variables(template).find(|name| is_name(name) && !VARIABLES.contains(name))
}

/// Returns what the person may not have meant in the templates of a run.
pub(crate) fn doubts(terms: &Terms) -> Vec<String> {
    let templates =
        [("the template", &terms.template), ("the plan's template", &terms.plan_template)];
    let mut doubts = Vec::new();
    for (which, template) in templates {
        let Some(template) = template.as_deref() else { continue };
        if let Some(unknown) = unknown_variable(template) {
            let known = VARIABLES.join(", ");
            doubts.push(format!(
                "{which} has {{{{{unknown}}}}}, which stays as it is; filled in are {known}"
            ));
        }
        if variables(template).all(|variable| variable != "spec") {
            doubts.push(format!("{which} has no {{{{spec}}}}, so agents are not told the spec"));
        }
    }
    doubts
}

/// Puts values into a template in one pass, so that what stands in a value is never taken for a variable.
fn filled(template: &str, values: &[(&str, String)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some(start) = rest.find("{{") {
        text.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        let known = after.find("}}").and_then(|end| {
            let name = after[..end].trim();
            let value = values.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| (value, &after[end + 2..]))
        });
        match known {
            Some((value, after)) => {
                text.push_str(value);
                rest = after;
            }
            // Not one of ours.
            None => {
                text.push_str("{{");
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text.trim_end().to_owned()
}

fn task(item: &Item) -> String {
    let mut line = format!("- [P{}][{}] {}", item.priority.number(), item.id, item.content);
    if item.status == Status::Completed || item.status == Status::InProgress {
        let _ = write!(line, " [iteration #{}]", item.iteration);
    }
    if !item.depends_on.is_empty() {
        let on: Vec<String> = item.depends_on.iter().map(ToString::to_string).collect();
        let _ = write!(line, " (depends on: {})", on.join(", "));
    }
    line
}

fn tasks(run: &Run) -> String {
    let mut text = String::new();
    for status in Status::ALL {
        let n = run.items.count(status) as usize;
        if n == 0 {
            continue;
        }
        let most = if status.is_finished() { FINISHED_MAX } else { OPEN_MAX };
        let all = run.items.ranked_after(None).filter(|item| item.status == status);
        let _ = writeln!(text, "{} ({n}):", heading(status));
        for item in all.take(most) {
            let _ = writeln!(text, "{}", task(item));
        }
        if n > most {
            let _ = writeln!(text, "- … and {} more; task-list shows them", n - most);
        }
    }
    if text.is_empty() { "None yet.".to_owned() } else { text.trim_end().to_owned() }
}

fn heading(status: Status) -> &'static str {
    match status {
        Status::Remaining => "Remaining",
        Status::InProgress => "In progress",
        Status::Completed => "Completed",
        Status::Blocked => "Blocked",
        Status::Cancelled => "Cancelled",
    }
}

fn notes(run: &Run) -> String {
    let all: Vec<_> = run.notes.after(NoteId(0), None).collect();
    if all.is_empty() {
        return "None yet.".to_owned();
    }
    let mut text = String::new();
    if all.len() > NOTES_MAX {
        let _ = writeln!(text, "The newest of {}; note-list shows all.", all.len());
    }
    for note in &all[all.len().saturating_sub(NOTES_MAX)..] {
        let _ = writeln!(text, "- [{}] (#{}) {}", note.kind, note.iteration, note.content);
    }
    text.trim_end().to_owned()
}

fn history(run: &Run) -> String {
    let newest: Vec<_> = run.iterations.summaries().rev().take(SUMMARIES_MAX).collect();
    if newest.is_empty() {
        return "Nothing yet.".to_owned();
    }
    let lines = newest.iter().rev().map(|(number, summary)| format!("#{number}: {}", summary.text));
    lines.collect::<Vec<_>>().join("\n\n")
}

/// Returns what else it is told: what the person wrote for all iterations, what hooks said, and what people say now.
fn extra(extra: &str, open: &Open) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !extra.trim().is_empty() {
        parts.push(extra.trim().to_owned());
    }
    if !open.hooks.is_empty() {
        parts.push(format!("## Output of hooks\n\n{}", open.hooks));
    }
    if !open.told.is_empty() {
        let told: Vec<String> = open
            .told
            .iter()
            .map(|message| format!("> {}", message.text.replace('\n', "\n> ")))
            .collect();
        parts.push(format!(
            "## Messages of the person who runs this\n\nDeal with these first; they go before the spec.\n\n{}",
            told.join("\n\n")
        ));
    }
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_looked_at_for_variables() {
        let values = [("spec", "say {{notes}} and {{spec}}".to_owned()), ("notes", "N".to_owned())];
        let text = filled("{{ spec }}|{{notes}}|{{other}}|{{", &values);
        assert_eq!(text, "say {{notes}} and {{spec}}|N|{{other}}|{{");
    }

    #[test]
    fn agents_are_told_to_respect_what_the_user_added() {
        assert!(TEMPLATE.contains("The user may add tasks that the spec does not mention."));
        assert!(PLAN.contains("Tasks that exist already are the user's"));
    }

    #[test]
    fn a_misspelt_variable_is_found() {
        assert_eq!(unknown_variable(TEMPLATE), None);
        assert_eq!(unknown_variable(PLAN), None);
        assert_eq!(unknown_variable("{{ spec }} {{speck}} {{notes}}"), Some("speck"));
        assert_eq!(unknown_variable("{{ a + b }} {{}} {{"), None);
    }
}
