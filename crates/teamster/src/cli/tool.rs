//! `teamster tool`: call any tool from the shell. The flags are made from the catalogue's schemas.

use std::io::BufRead;

use anyhow::{Context, bail};
use clap::builder::Styles;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value, json};
use teamster_mcp::catalogue::{Catalogue, Entry};
use teamster_mcp::set::Set;

use super::{connect_to_hub, print, say};
use teamster_api::Client;
use teamster_hub::config::{DataFiles, Place};

#[derive(Debug, clap::Args)]
pub(super) struct ToolArgs {
    /// The tool and its flags; `teamster tool NAME --help` shows them
    #[arg(value_name = "NAME [FLAGS]", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Another name of a tool on the command line.
struct Alias {
    name: &'static str,
    tool: &'static str,
    /// Flags that it needs though the tool does not.
    requires: &'static [&'static str],
}

/// The names of iteratr's command line.
const ALIASES: [Alias; 4] = [
    Alias { name: "task-batch-add", tool: "task-add", requires: &["tasks"] },
    Alias { name: "task-status", tool: "task-update", requires: &["status"] },
    Alias { name: "task-priority", tool: "task-update", requires: &["priority"] },
    Alias { name: "task-depends", tool: "task-update", requires: &["depends_on"] },
];

pub(super) async fn run(data: &DataFiles, ToolArgs { words }: ToolArgs) -> anyhow::Result<()> {
    let catalogue = teamster_mcp::tools::catalogue();
    let name = match words.first().map(String::as_str) {
        None | Some("--help" | "-h" | "help") => return print(&listed(&catalogue)),
        Some(name) => name,
    };
    let alias = ALIASES.iter().find(|alias| alias.name == name);
    let Some(entry) = catalogue.find(None, alias.map_or(name, |alias| alias.tool)) else {
        bail!("there is no tool {name:?}; `teamster tool` lists them");
    };
    // Wrong flags end the program here, with clap's own explanation.
    let flags = command(entry, alias).get_matches_from(&words);
    let given = |name| flags.value_source(name) == Some(ValueSource::CommandLine);
    let place = Place::from_arg_matches(&flags)?;
    let elsewhere =
        if given("workspace") || given("data") { Some(place.data_files()?) } else { None };
    let data = elsewhere.as_ref().unwrap_or(data);
    // Only the session's tools have this flag.
    let run = if entry.set == Set::Session { flags.get_one::<String>("run") } else { None };
    let path = match run {
        Some(run) => {
            teamster_core::RunName::parse(run)?;
            format!("/mcp/{}/{run}", entry.set)
        }
        None => format!("/mcp/{}", entry.set),
    };
    let key = flags.get_one::<String>("key").map(String::as_str);
    let from_stdin = flags.get_one::<String>("json").is_some_and(|json| json == "-");
    if from_stdin {
        return many(data, entry, &path).await;
    }
    let arguments = match flags.get_one::<String>("json") {
        Some(json) => serde_json::from_str(json).context("--json is not JSON")?,
        None => Value::Object(arguments(entry, &flags)?),
    };
    let mut client = connect_to_hub(data).await?;
    let (text, is_error) = client.call_tool(&path, entry.name, &arguments, key).await?;
    if is_error {
        say(&text);
        return Err(super::Refused.into());
    }
    print(&text)
}

/// Makes a call for each line of stdin and prints an answer for each.
async fn many(data: &DataFiles, entry: &Entry, path: &str) -> anyhow::Result<()> {
    let mut client: Client = connect_to_hub(data).await?;
    let mut all_well = true;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let (text, is_error) = match serde_json::from_str(&line) {
            Ok(arguments) => client.call_tool(path, entry.name, &arguments, None).await?,
            Err(error) => (format!("the line is not JSON: {error}"), true),
        };
        all_well &= !is_error;
        print(&json!({"text": text, "isError": is_error}).to_string())?;
    }
    if all_well { Ok(()) } else { Err(super::Refused.into()) }
}

fn listed(catalogue: &Catalogue) -> String {
    let mut lines = Vec::new();
    for set in Set::ALL {
        lines.push(format!("{set}:"));
        for entry in catalogue.entries().iter().filter(|entry| entry.set == set) {
            let first = entry.description.split([':', '.']).next().unwrap_or_default();
            lines.push(format!("  {:<18} {first}", entry.name));
        }
    }
    lines.push("iteratr's names:".to_owned());
    lines.extend(ALIASES.iter().map(|Alias { name, tool, .. }| format!("  {name:<18} {tool}")));
    lines.join("\n")
}

/// Makes a command of a tool, under its own name or another.
fn command(entry: &Entry, alias: Option<&Alias>) -> Command {
    let name = alias.map_or(entry.name, |alias| alias.name);
    let is_required = |name: &str| {
        is_required(entry, name) || alias.is_some_and(|alias| alias.requires.contains(&name))
    };
    let mut command = Command::new(name)
        .bin_name(format!("teamster tool {name}"))
        .styles(Styles::styled())
        .arg(
            flag("json")
                .value_name("JSON")
                .help("All arguments as one JSON object; `-` makes a call of each line of stdin"),
        )
        .arg(
            flag("key")
                .value_name("KEY")
                .help("A call repeated with the same key gets its first answer"),
        );
    // The place's own words about itself are not the tool's.
    command = Place::augment_args(command).about(entry.description.clone());
    if entry.set == Set::Session {
        command = command
            .arg(flag("run").value_name("RUN").help("The run it is about [default: default]"));
    }
    let one = one_item(entry);
    for (name, schema) in properties(entry) {
        let mut arg = argument(name, schema);
        if is_required(name) {
            let fields = one.iter().filter(|item| item.array == name).flat_map(Item::fields);
            let instead = fields.map(|(field, _)| field.clone()).chain(["json".to_owned()]);
            arg = arg.required_unless_present_any(instead.collect::<Vec<_>>());
        }
        command = command.arg(arg);
    }
    if let Some(item) = &one {
        for (name, schema) in item.fields() {
            let mut arg = argument(name, schema);
            if schema["description"].as_str().is_none_or(str::is_empty) {
                arg = arg.help(format!("The {name} of one entry, instead of --{}", item.array));
            }
            command = command.arg(arg);
        }
    }
    command
}

/// Makes a flag of a property.
fn argument(name: &str, schema: &Value) -> Arg {
    let mut arg = flag(name).value_name(kind(schema).to_uppercase());
    if name.contains('_') {
        arg = arg.visible_alias(name.replace('_', "-"));
    }
    let words = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words = words.collect::<Vec<_>>().join(", ");
    let description = schema["description"].as_str().unwrap_or_default();
    let help = [description, &words].into_iter().filter(|part| !part.is_empty());
    arg = arg.help(help.collect::<Vec<_>>().join(" One of: "));
    match kind(schema) {
        "boolean" => {
            arg.num_args(0..=1).default_missing_value("true").value_parser(["true", "false"])
        }
        "integer" => arg.allow_negative_numbers(true),
        "array" => arg.action(ArgAction::Append).help(array_help(&schema["items"])),
        _ => arg,
    }
}

/// An object in the array that a tool takes, whose fields are flags too: `task-add --content sweep`.
struct Item<'a> {
    array: &'a str,
    schema: &'a Value,
}

impl<'a> Item<'a> {
    fn fields(&self) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.schema["properties"].as_object().into_iter().flatten()
    }
}

/// Returns the object whose fields are flags, if an array of objects is all that the tool takes.
fn one_item(entry: &Entry) -> Option<Item<'_>> {
    let mut properties = properties(entry);
    let (array, schema) = properties.next()?;
    let schema = &schema["items"];
    let is_all = properties.next().is_none() && schema["type"] == "object";
    is_all.then_some(Item { array, schema })
}

/// Says how the items of an array are written.
fn array_help(item: &Value) -> String {
    let fields =
        item["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let fields = fields.collect::<Vec<_>>().join(", ");
    let or_text = only_text(item).map(|field| format!(", or just the {field}")).unwrap_or_default();
    format!("A JSON object with {fields}{or_text}; repeat the flag for more")
}

fn flag(name: &str) -> Arg {
    Arg::new(name.to_owned()).long(name.to_owned())
}

fn properties(entry: &Entry) -> impl Iterator<Item = (&String, &Value)> {
    entry.schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn is_required(entry: &Entry, name: &str) -> bool {
    let required = entry.schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| required.iter().any(|required| required == name))
}

fn kind(schema: &Value) -> &str {
    schema["type"].as_str().unwrap_or("json")
}

/// Makes a tool's arguments of its flags.
fn arguments(entry: &Entry, flags: &ArgMatches) -> anyhow::Result<Map<String, Value>> {
    let mut arguments = Map::new();
    let text = |name: &str| flags.try_get_one::<String>(name).ok().flatten();
    let item = one_item(entry).map(|item| {
        let given = item.fields().filter_map(|(name, schema)| Some((name, schema, text(name)?)));
        let fields = given.map(|(name, schema, text)| {
            let value = value(text, schema).with_context(|| format!("--{name} is wrong"))?;
            Ok((name.clone(), value))
        });
        fields.collect::<anyhow::Result<Map<String, Value>>>()
    });
    let mut item = item.transpose()?.filter(|item| !item.is_empty());
    for (name, schema) in properties(entry) {
        let mut given = flags.get_many::<String>(name).into_iter().flatten().peekable();
        if given.peek().is_none() && item.is_none() {
            continue;
        }
        let values = given.map(|text| value(text, schema)).collect::<anyhow::Result<Vec<Value>>>();
        let values = values.with_context(|| format!("--{name} is wrong"))?;
        let value = match (kind(schema), values.into_iter()) {
            // `--tasks '[…]'` and `--tasks '{…}' --tasks '{…}'` mean the same.
            ("array", values) => Value::Array(
                values
                    .flat_map(
                        |value| if let Value::Array(values) = value { values } else { vec![value] },
                    )
                    .chain(item.take().map(Value::Object))
                    .collect(),
            ),
            (_, mut values) => values.next_back().unwrap_or(Value::Null),
        };
        arguments.insert(name.clone(), value);
    }
    Ok(arguments)
}

fn value(text: &str, schema: &Value) -> anyhow::Result<Value> {
    Ok(match kind(schema) {
        "string" => text.into(),
        "boolean" => (text == "true").into(),
        "integer" => {
            text.parse::<i64>().with_context(|| format!("{text:?} is not a whole number"))?.into()
        }
        "array" => match (serde_json::from_str(text), only_text(&schema["items"])) {
            (Ok(value @ (Value::Array(_) | Value::Object(_))), _) => value,
            (_, Some(field)) => json!({field: text}),
            (_, None) => bail!("{text:?} is not JSON"),
        },
        _ => serde_json::from_str(text).with_context(|| format!("{text:?} is not JSON"))?,
    })
}

/// Returns the one text that an item of an array needs, if that is all it needs.
fn only_text(item: &Value) -> Option<&str> {
    match item["required"].as_array()?.as_slice() {
        [only] => only.as_str().filter(|name| item["properties"][name]["type"] == "string"),
        _ => None,
    }
}
