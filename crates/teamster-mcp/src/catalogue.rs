//! The catalogue: every tool with its name, description, schema and what it needs, keyed by (set, name).

use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::answer::{Answer, Block, Reply, ToolError};
use crate::arguments;
use crate::call::Call;
use crate::set::Set;

/// What a tool needs its caller to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but a valid token.
    Token,
    /// Leave to read the set.
    Read,
    /// Leave to write the set.
    Write,
    /// The `main` grant, which no other grant includes.
    Main,
}

/// One tool, as its author writes it. It translates: arguments to a command, events to a reply.
pub trait Tool {
    const SET: Set;
    const NAME: &'static str;
    /// The most that a call needs.
    const NEEDS: Needs;
    /// The least that a call needs. Callers who have this much are shown the tool.
    const NEEDS_AT_LEAST: Needs = Self::NEEDS;
    /// What callers are told who do not have the tool, where the set has its own words for that.
    const NOT_GRANTED: Option<&'static str> = None;
    /// Whether a call may take longer than its client's patience. What such a tool does, it does with one command: when
    /// it is called again, after a restart or with answers, the same key makes sure that it happens once.
    const WAITS: bool = false;
    /// The arguments; their documentation is what the model reads.
    type Args: DeserializeOwned + JsonSchema + Send;

    /// Returns what a call with these arguments needs. They are not checked yet; in doubt it needs the most.
    fn needs(_arguments: &Map<String, Value>) -> Needs {
        Self::NEEDS
    }

    fn call(
        cx: &Call<'_>,
        args: Self::Args,
    ) -> impl Future<Output = Result<Reply, ToolError>> + Send;
}

type Run =
    for<'a> fn(&'a Call<'a>, &'a Map<String, Value>) -> BoxFuture<'a, Result<Reply, ToolError>>;

/// One tool, as the catalogue keeps it.
#[derive(Debug)]
pub struct Entry {
    /// Its place in the catalogue.
    pub number: usize,
    pub set: Set,
    pub name: &'static str,
    /// The most that a call needs.
    pub needs: Needs,
    /// The least that a call needs.
    pub needs_at_least: Needs,
    needs_with: fn(&Map<String, Value>) -> Needs,
    not_granted: Option<&'static str>,
    pub waits: bool,
    pub description: String,
    pub schema: Arc<Map<String, Value>>,
    pub(crate) run: Run,
}

impl Entry {
    pub fn of<T: Tool>() -> Self {
        let mut schema = schema_of::<T::Args>();
        let description = match schema.remove("description") {
            Some(Value::String(description)) => description,
            Some(_) | None => String::new(),
        };
        let run: Run = |cx, args| {
            Box::pin(async move {
                let args = arguments::read::<T::Args>(args)?;
                T::call(cx, args).await
            })
        };
        Self {
            number: 0,
            set: T::SET,
            name: T::NAME,
            needs: T::NEEDS,
            needs_at_least: T::NEEDS_AT_LEAST,
            needs_with: T::needs,
            not_granted: T::NOT_GRANTED,
            waits: T::WAITS,
            description,
            schema: Arc::new(schema),
            run,
        }
    }

    /// Returns what a call with these arguments needs.
    pub(crate) fn needs_with(&self, arguments: &Map<String, Value>) -> Needs {
        (self.needs_with)(arguments)
    }

    /// Says that the caller does not have the tool, or not with these arguments though it is shown to it.
    pub(crate) fn refusal(&self, is_shown: bool) -> Answer {
        let usual = || {
            let name = self.name;
            if is_shown {
                return format!(
                    "{name} with these arguments is not granted to this token here; an operator can grant more (`teamster token grant`)"
                );
            }
            format!(
                "{name} is not granted to this token here; tools/list shows what is, and an operator can grant more (`teamster token grant`)"
            )
        };
        let says = self.not_granted.map_or_else(usual, str::to_owned);
        self.failed(&ToolError::named("Forbidden", says))
    }

    /// Says in the set's own way that something went wrong.
    pub(crate) fn failed(&self, error: &ToolError) -> Answer {
        let (text, structured_content) = self.set.failure(error);
        let content = vec![Block::text(text)];
        Answer { content, structured_content, is_error: true, is_bug: false }
    }

    /// Says whether no call of the tool changes anything.
    pub fn reads_only(&self) -> bool {
        matches!(self.needs, Needs::Token | Needs::Read)
    }
}

/// Returns the schema of a tool's arguments, as short as it can be: clients put it into every request.
fn schema_of<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    shorten(&mut schema);
    match schema {
        Value::Object(mut schema) => {
            // A tool without arguments still has an object of them.
            schema.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            schema
        }
        _ => Map::new(),
    }
}

/// Leaves out what says nothing to a model: titles, number formats that validators do not know, and `null` as a type,
/// since what may be left out is not in `required`.
fn shorten(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let is_schema = object.contains_key("type") || object.contains_key("properties");
            if is_schema {
                object.remove("title");
                object.remove("format");
                if let Some(Value::Array(types)) = object.get_mut("type") {
                    types.retain(|name| name != "null");
                    if let [only] = &types[..] {
                        let only = only.clone();
                        object.insert("type".into(), only);
                    }
                }
                if let Some(Value::Array(values)) = object.get_mut("enum") {
                    values.retain(|value| !value.is_null());
                }
                if object.get("default").is_some_and(Value::is_null) {
                    object.remove("default");
                }
            }
            object.values_mut().for_each(shorten);
        }
        Value::Array(values) => values.iter_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// All tools, in the order in which they are listed.
#[derive(Debug)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

impl Catalogue {
    /// Returns a catalogue of these tools only.
    pub fn of(mut entries: Vec<Entry>) -> Self {
        entries.iter_mut().enumerate().for_each(|(number, entry)| entry.number = number);
        Self { entries }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the tool of that name, in one set or in any.
    pub fn find(&self, set: Option<Set>, name: &str) -> Option<&Entry> {
        self.entries
            .iter()
            .find(|entry| entry.name == name && set.is_none_or(|set| entry.set == set))
    }
}
