//! Whether a program works with the model that was wanted. Only programs that speak ACP tell what they offer in the words in
//! which a model is chosen; of others it is known when they answer, or not at all.

use teamster_agents::agent::Started;

use crate::programs::{Driver, Program};

/// As many models as one sentence names.
const NAMED_MAX: usize = 12;

/// Another model than the wanted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Other {
    /// It has others, and was told in no other way: whoever wants one does not want another.
    Refused(String),
    /// It may have been told in time, in words of its own.
    Doubtful(String),
}

/// Returns what is wrong with the model that a program works with, if something may be.
pub(super) fn other(program: &Program, wanted: Option<&str>, started: &Started) -> Option<Other> {
    let wanted = wanted.filter(|wanted| started.model.as_deref() != Some(*wanted))?;
    if program.driver != Driver::Acp {
        return None;
    }
    let named: Vec<&str> = started.models.iter().take(NAMED_MAX).map(String::as_str).collect();
    let more = match started.models.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let has_choice = program.has_model_choice();
    match (named.is_empty(), has_choice) {
        (false, false) => {
            let named = named.join(", ");
            Some(Other::Refused(format!(
                "it does not offer the model {wanted:?}; it offers {named}{more}"
            )))
        }
        (false, true) => {
            let uses = started.model.as_deref().unwrap_or("its own");
            Some(Other::Doubtful(format!(
                "it does not list the model {wanted:?} and says that it uses {uses}"
            )))
        }
        (true, false) => Some(Other::Doubtful(format!(
            "its model cannot be chosen, so it works with its own instead of {wanted:?}"
        ))),
        (true, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_model_that_is_not_offered_is_refused_where_that_is_certain() {
        let by = |driver: Driver, model_args: &[&str]| Program {
            driver,
            model_args: model_args.iter().map(ToString::to_string).collect(),
            ..Program::default()
        };
        let (acp, with_flag) = (by(Driver::Acp, &[]), by(Driver::Acp, &["-m", "{model}"]));
        let started = |model: &str, models: &[&str]| Started {
            model: Some(model.to_owned()),
            models: models.iter().map(ToString::to_string).collect(),
            ..Started::default()
        };
        let offers = started("small", &["small", "large"]);
        let told = started("small", &[]);
        let cases = [
            other(&acp, Some("foo"), &offers),
            other(&acp, Some("small"), &offers),
            other(&acp, None, &offers),
            other(&acp, Some("foo"), &told),
            other(&with_flag, Some("foo"), &offers),
            other(&with_flag, Some("foo"), &told),
            other(&by(Driver::Claude, &["--model", "{model}"]), Some("opus"), &offers),
        ];
        let shown: Vec<String> = cases.iter().map(|case| format!("{case:?}")).collect();
        expect![[r#"
            Some(Refused("it does not offer the model \"foo\"; it offers small, large"))
            None
            None
            Some(Doubtful("its model cannot be chosen, so it works with its own instead of \"foo\""))
            Some(Doubtful("it does not list the model \"foo\" and says that it uses small"))
            None
            None"#]].assert_eq(&shown.join("\n"));
    }
}
