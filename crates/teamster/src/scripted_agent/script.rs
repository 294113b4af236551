//! Scripts: their lines, their steps, and what references in them stand for.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use teamster_agents::agent::clipped;

/// A script with more steps is a mistake of whoever generates it.
const LINES_MAX: usize = 1_000;
/// As many results are kept, for a coordinator of as many agents as it may have at a time, and some.
const RESULTS_MAX: usize = 32;
/// What is shown of a line or a result that is wrong.
const SHOWN_BYTES_MAX: usize = 200;
/// What processes that are left behind wait for, so that even those which get away end some day.
const FORK_SECONDS: &str = "600";

/// A step as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Line {
    number: usize,
    text: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Say(String),
    Think(String),
    Call { tool: String, arguments: Value },
    Outcome(Value),
    Write { path: PathBuf, text: String },
    Run(String),
    Ask(String),
    Need(String),
    Usage { input: u64, output: u64, dollars: Option<f64> },
    Sleep(Duration),
    Hang,
    Flood(u64),
    LongLine(u64),
    Garbage,
    IgnoreSigterm,
    Fork { seconds: String },
    Crash,
    Exit(i32),
    Limit(String),
}

/// Returns the script in a prompt, if every line of it can be read.
pub(super) fn find(prompt: &str) -> anyhow::Result<VecDeque<Line>> {
    let lines = (1..).zip(prompt.lines()).filter_map(|(number, line)| {
        // A task or a message of another agent is quoted.
        let line = line.strip_prefix(teamster_hub::fence::MARK).unwrap_or(line);
        let text = line.strip_prefix("! ")?.trim().to_owned();
        Some(Line { number, text })
    });
    let lines: VecDeque<Line> = lines.collect();
    if lines.len() > LINES_MAX {
        bail!("the script has {} steps; it may have {LINES_MAX}", lines.len());
    }
    lines.iter().try_for_each(|line| line.step().map(drop))?;
    Ok(lines)
}

/// The script for a prompt that has none.
pub(super) fn friendly(prompt: &str, has_tools: bool) -> VecDeque<Line> {
    let asked = prompt.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("nothing");
    let asked = clipped(asked, SHOWN_BYTES_MAX).replace('$', "$$");
    let summary = format!("As a scripted agent I only said what I would do: {asked}");
    let outcome = json!({"status": "success", "summary": summary});
    let steps = [
        "think There is no script in this prompt.".to_owned(),
        format!("say I have no model. With one, I would do this: {asked}"),
        "call task-list".to_owned(),
        format!("outcome {outcome}"),
    ];
    let steps = steps.into_iter().filter(|step| has_tools || !step.starts_with("call "));
    steps.map(|text| Line { number: 0, text }).collect()
}

impl Line {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn step(&self) -> anyhow::Result<Step> {
        self.text.parse().with_context(|| self.place())
    }

    /// Says which line it is.
    pub(super) fn place(&self) -> String {
        let Self { number, text } = self;
        format!("line {number}, `! {}`", clipped(text, SHOWN_BYTES_MAX))
    }
}

impl FromStr for Step {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let (word, rest) = split(line);
        let bare = |step| if rest.is_empty() { Ok(step) } else { bail!("{word} stands alone") };
        match word {
            "say" => Ok(Self::Say(rest.to_owned())),
            "think" => Ok(Self::Think(rest.to_owned())),
            "call" => {
                let (tool, arguments) = split(rest);
                if tool.is_empty() {
                    bail!("name the tool: `call TOOL {{JSON}}`");
                }
                let arguments = if arguments.is_empty() { "{}" } else { arguments };
                Ok(Self::Call { tool: tool.to_owned(), arguments: object(arguments)? })
            }
            "outcome" => Ok(Self::Outcome(object(rest)?)),
            "write" => {
                let (path, text) = split(rest);
                if path.is_empty() {
                    bail!("name the file: `write PATH TEXT`");
                }
                Ok(Self::Write { path: path.into(), text: text.to_owned() })
            }
            "run" if rest.is_empty() => bail!("say what to run: `run COMMAND`"),
            "run" => Ok(Self::Run(rest.to_owned())),
            "ask" => Ok(Self::Ask(rest.to_owned())),
            "need" => Ok(Self::Need(rest.to_owned())),
            "usage" => {
                let (input, rest) = split(rest);
                let (output, dollars) = split(rest);
                Ok(Self::Usage {
                    input: number(input, "the tokens that went in")?,
                    output: number(output, "the tokens that came out")?,
                    dollars: match dollars {
                        "" => None,
                        dollars => Some(number(dollars, "the cost")?),
                    },
                })
            }
            "sleep" => Ok(Self::Sleep(Duration::from_millis(number(rest, "milliseconds")?))),
            "hang" => bare(Self::Hang),
            "flood" => Ok(Self::Flood(number(rest, "bytes")?)),
            "long-line" => Ok(Self::LongLine(number(rest, "bytes")?)),
            "garbage" => bare(Self::Garbage),
            "ignore-sigterm" => bare(Self::IgnoreSigterm),
            "fork" => {
                let seconds = if rest.is_empty() { FORK_SECONDS } else { rest };
                number::<f64>(seconds, "seconds")?;
                Ok(Self::Fork { seconds: seconds.to_owned() })
            }
            "crash" => bare(Self::Crash),
            "limit" => Ok(Self::Limit(rest.to_owned())),
            "exit" => Ok(Self::Exit(number(rest, "an exit code")?)),
            _ => bail!(
                "there is no such step; there are say, think, call, outcome, write, run, ask, need, usage, sleep, hang, flood, \
                 long-line, garbage, ignore-sigterm, fork, crash, exit and limit"
            ),
        }
    }
}

/// Splits a word off.
fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    (word, rest.trim_start())
}

fn number<N: FromStr>(word: &str, what: &str) -> anyhow::Result<N> {
    word.parse().map_err(|_| anyhow!("{word:?} is not a number; {what} are wanted"))
}

fn object(text: &str) -> anyhow::Result<Value> {
    let value: Value = serde_json::from_str(text).context("that is not JSON")?;
    if value.is_object() { Ok(value) } else { bail!("that is not a JSON object") }
}

/// The results of the session's calls.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Results {
    n_calls: usize,
    latest: VecDeque<String>,
}

impl Results {
    pub(super) fn add(&mut self, text: String) {
        self.n_calls += 1;
        self.latest.push_back(text);
        if self.latest.len() > RESULTS_MAX {
            self.latest.pop_front();
        }
    }

    /// Puts what they stand for in the place of references.
    pub(super) fn fill(&self, text: &str) -> anyhow::Result<String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            filled.push_str(before);
            rest = if let Some((reference, after)) = Reference::read(after) {
                match self.find(&reference)? {
                    Value::String(text) => filled.push_str(&text),
                    other => filled.push_str(&other.to_string()),
                }
                after
            } else {
                filled.push('$');
                after.strip_prefix('$').unwrap_or(after)
            };
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// The same for every string in a JSON value.
    pub(super) fn fill_json(&self, value: Value) -> anyhow::Result<Value> {
        Ok(match value {
            Value::String(text) => match text.strip_prefix('$').and_then(Reference::read) {
                Some((reference, "")) => self.find(&reference)?,
                _ => Value::String(self.fill(&text)?),
            },
            Value::Array(values) => {
                values.into_iter().map(|value| self.fill_json(value)).collect::<Result<_, _>>()?
            }
            Value::Object(members) => {
                let filled = members
                    .into_iter()
                    .map(|(name, value)| anyhow::Ok((name, self.fill_json(value)?)));
                Value::Object(filled.collect::<Result<_, _>>()?)
            }
            other => other,
        })
    }

    fn find(&self, reference: &Reference<'_>) -> anyhow::Result<Value> {
        let call = reference.call.unwrap_or(self.n_calls);
        if call == 0 || call > self.n_calls {
            let n_calls = self.n_calls;
            bail!("${} stands for nothing: there were {n_calls} calls so far", reference.text);
        }
        let from_the_end = self.n_calls - call;
        let at = self.latest.len().checked_sub(from_the_end + 1);
        let result = at.and_then(|at| self.latest.get(at));
        let result = result.with_context(|| format!("the result of call {call} is forgotten"))?;
        if reference.path.is_empty() {
            return Ok(Value::String(result.clone()));
        }
        let parsed: Option<Value> = serde_json::from_str(result).ok();
        let found = parsed.as_ref().and_then(|parsed| parsed.pointer(&reference.path));
        found.cloned().with_context(|| {
            format!("${} is not in {}", reference.text, clipped(result, SHOWN_BYTES_MAX))
        })
    }
}

/// A reference to a result, or to something in it.
struct Reference<'a> {
    /// As it is written, without the dollar sign.
    text: &'a str,
    /// The latest, if none is named.
    call: Option<usize>,
    /// A JSON pointer.
    path: String,
}

impl<'a> Reference<'a> {
    /// Reads what comes after a dollar sign, and returns what comes after that.
    fn read(text: &'a str) -> Option<(Self, &'a str)> {
        let name = |text: &'a str| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()))
        };
        let (word, mut rest) = name(text);
        let call = match word {
            "last" => None,
            word => Some(word.strip_prefix("call")?.parse().ok()?),
        };
        let mut path = String::new();
        while let Some((part, after)) = rest.strip_prefix('.').map(name)
            && !part.is_empty()
        {
            path = format!("{path}/{part}");
            rest = after;
        }
        let text = &text[..text.len() - rest.len()];
        Some((Self { text, call, path }, rest))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[test]
    fn a_wrong_line_is_told_with_its_place() {
        let check = |line: &str, expect: Expect| {
            let error = find(&format!("Please:\n! say hi\n{line}\n")).unwrap_err();
            expect.assert_eq(&format!("{error:#}"));
        };
        check(
            "! dance",
            expect![
                "line 3, `! dance`: there is no such step; there are say, think, call, outcome, write, run, ask, need, usage, sleep, hang, flood, long-line, garbage, ignore-sigterm, fork, crash, exit and limit"
            ],
        );
        check(
            "! sleep long",
            expect![[r#"line 3, `! sleep long`: "long" is not a number; milliseconds are wanted"#]],
        );
        check("! hang on", expect!["line 3, `! hang on`: hang stands alone"]);
        check("! call", expect!["line 3, `! call`: name the tool: `call TOOL {JSON}`"]);
        check(
            "! call task-add [1]",
            expect!["line 3, `! call task-add [1]`: that is not a JSON object"],
        );
        check(
            "! outcome {",
            expect![
                "line 3, `! outcome {`: that is not JSON: EOF while parsing an object at line 1 column 1"
            ],
        );
        check(
            "! usage 1",
            expect![[
                r#"line 3, `! usage 1`: "" is not a number; the tokens that came out are wanted"#
            ]],
        );
    }

    #[test]
    fn other_lines_are_no_steps() {
        assert!(find("Look:\n![image](x.png)\n  ! say no\n!say no\n").unwrap().is_empty());
        assert_eq!(find(&"! say x\n".repeat(LINES_MAX)).unwrap().len(), LINES_MAX);
        assert!(find(&"! say x\n".repeat(LINES_MAX + 1)).is_err());
    }

    #[test]
    fn references_are_filled_in() {
        let mut results = Results::default();
        results.add(r#"{"agentId":"a-1","of":[{"n":7}]}"#.to_owned());
        results.add("plain".to_owned());
        let fill = |text: &str| results.fill(text).unwrap_or_else(|error| error.to_string());
        assert_eq!(fill("$call1.agentId, $call1.of.0.n. $last."), "a-1, 7. plain.");
        assert_eq!(fill("$5 or $$last or $lasting or $"), "$5 or $last or $lasting or $");
        expect!["$last.agentId is not in plain"].assert_eq(&fill("$last.agentId"));
        expect!["$call3 stands for nothing: there were 2 calls so far"].assert_eq(&fill("$call3"));
        let json = json!({"agentId": "$call1.of", "text": ["n=$call1.of.0.n"], "kept": true});
        let filled = results.fill_json(json).unwrap().to_string();
        expect![[r#"{"agentId":[{"n":7}],"text":["n=7"],"kept":true}"#]].assert_eq(&filled);
        for _ in 0..RESULTS_MAX {
            results.add("more".to_owned());
        }
        expect!["the result of call 2 is forgotten"]
            .assert_eq(&results.fill("$call2").unwrap_err().to_string());
    }
}
