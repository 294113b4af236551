//! Documents that are made of the table of paths, so that they cannot say anything else than the types do.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::endpoint::Row;
use crate::error::ErrorBody;
use crate::events;
use crate::paths::ALL;

/// Where schemas are in an OpenAPI document.
const SCHEMAS: &str = "#/components/schemas/";

/// Every row with its schemas, and the schemas that these refer to.
struct Described {
    rows: Vec<(&'static Row, Schemas)>,
    components: Map<String, Value>,
}

struct Schemas {
    query: Option<Value>,
    body: Option<Value>,
    answer: Value,
}

fn generator(settings: SchemaSettings) -> SchemaGenerator {
    let settings = settings.with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    settings.into_generator()
}

/// Returns the table, and the stream of events, which no request answers with JSON.
fn described() -> impl Iterator<Item = &'static Row> {
    ALL.iter().chain([&events::ROW])
}

fn describe() -> Described {
    // A field that an answer always has may be left out of a request.
    let mut requests = generator(SchemaSettings::draft2020_12().for_deserialize());
    let mut answers = generator(SchemaSettings::draft2020_12().for_serialize());
    let value = |schema: Schema| schema.to_value();
    let rows: Vec<_> = described()
        .map(|row| {
            // A query is a list of parameters, so its schema is needed whole.
            let query = row.query.map(|schema| {
                let schema = value(schema(&mut requests));
                whole(&schema, &requests)
            });
            let body = row.body.map(|schema| value(schema(&mut requests)));
            (row, Schemas { query, body, answer: value((row.answer)(&mut answers)) })
        })
        .collect();
    // Parameters have no schema of their own name.
    let queries: BTreeSet<String> = described()
        .filter_map(|row| named(&value((row.query?)(&mut requests))).map(str::to_owned))
        .collect();
    let _ = answers.subschema_for::<ErrorBody>();
    let mut components = answers.take_definitions(true);
    let asked = requests.take_definitions(true);
    let mut text = json!({
        "rows": rows.iter().map(|(_, schemas)| json!([schemas.query, schemas.body])).collect::<Vec<_>>(), "asked": asked,
    })
    .to_string();
    let others: BTreeSet<&String> = asked
        .iter()
        .filter(|(name, schema)| components.get(*name).is_some_and(|known| known != *schema))
        .map(|(name, _)| name)
        .collect();
    for name in &others {
        text =
            text.replace(&format!("\"{SCHEMAS}{name}\""), &format!("\"{SCHEMAS}{name}Request\""));
    }
    let renamed: Value = serde_json::from_str(&text).unwrap_or_default();
    for (name, schema) in renamed["asked"].as_object().into_iter().flatten() {
        match others.contains(name) {
            true => components.insert(format!("{name}Request"), schema.clone()),
            false => components.insert(name.clone(), schema.clone()),
        };
    }
    let rows = rows.into_iter().enumerate().map(|(n, (row, schemas))| {
        let given =
            |at: usize, schema: Option<Value>| schema.map(|_| renamed["rows"][n][at].clone());
        let (query, body) = (given(0, schemas.query), given(1, schemas.body));
        (row, Schemas { query, body, answer: schemas.answer })
    });
    let rows = rows.collect();
    components.retain(|name, _| !queries.contains(name));
    components.sort_keys();
    Described { rows, components }
}

/// Returns the schema that a reference means.
fn whole(schema: &Value, generator: &SchemaGenerator) -> Value {
    let name = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix(SCHEMAS));
    name.and_then(|name| generator.definitions().get(name))
        .cloned()
        .unwrap_or_else(|| schema.clone())
}

/// Returns the OpenAPI document of the API.
pub fn document() -> Value {
    let Described { rows, components } = describe();
    let mut paths = Map::new();
    for (row, schemas) in rows {
        let mut parameters: Vec<Value> = row
            .param
            .iter()
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
            .collect();
        let query = schemas.query.unwrap_or_default();
        let required = query["required"].as_array().cloned().unwrap_or_default();
        for (name, property) in query["properties"].as_object().into_iter().flatten() {
            let mut property = property.clone();
            let says =
                property.as_object_mut().and_then(|property| property.shift_remove("description"));
            parameters.push(json!({
                "name": name, "in": "query", "required": required.contains(&name.as_str().into()), "description": says,
                "schema": property,
            }));
        }
        if row.method.is_command() {
            parameters.push(json!({"$ref": "#/components/parameters/IdempotencyKey"}));
        }
        let content = |schema: Value| json!({"application/json": {"schema": schema}});
        let answer = match row.path {
            events::PATH => json!({"text/event-stream": {"schema": schemas.answer}}),
            _ => content(schemas.answer),
        };
        let mut operation = json!({
            "operationId": row.name, "tags": [row.noun], "summary": row.says.trim(), "parameters": parameters,
        });
        if let Some(body) = schemas.body {
            operation["requestBody"] = json!({"required": true, "content": content(body)});
        }
        operation["responses"] = json!({
            "200": {"description": "The answer.", "content": answer},
            "default": {"$ref": "#/components/responses/Failure"},
        });
        let path = paths.entry(row.path).or_insert_with(|| json!({}));
        path[row.method.as_str().to_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Teamster's operator API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The hub serves it on loopback and on its unix socket. `hub.json` in the data directory says where.",
        },
        "security": [{"operator": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"operator": {
                "type": "http", "scheme": "bearer", "description": "The operator's token, in the file that `hub.json` names.",
            }},
            "parameters": {"IdempotencyKey": {
                "name": "Idempotency-Key", "in": "header", "required": false, "schema": {"type": "string", "maxLength": 200},
                "description": "The hub carries out a key once. The same request with the same key changes nothing and shows the first result.",
            }},
            "responses": {"Failure": {
                "description": "Why the request was not carried out.",
                "content": {"application/json": {"schema": {"$ref": format!("{SCHEMAS}ErrorBody")}}},
            }},
            "schemas": components,
        },
    })
}

/// Returns `docs/reference/api.md`: every path with its request and its answer.
pub fn markdown() -> String {
    let Described { rows, components } = describe();
    let mut text = String::from(
        "# The operator API\n\n\
         Programs of the operator talk to the hub over HTTP, on loopback and on the hub's unix socket. `hub.json` in the data \
         directory has the URL, the socket and the file with the operator's token; send it as `Authorization: Bearer …`. \
         `teamster` itself uses this API and nothing else.\n\n\
         This page is generated from the types (`teamster_api::openapi`), as is [openapi.json](openapi.json). \
         `UPDATE_EXPECT=1 cargo test -p teamster-api` writes both anew.\n\n\
         ## Conventions\n\n\
         - **Times** are milliseconds since 1970. Money is in millionths of a dollar.\n\
         - **Unknown fields** of a request are refused. Ignore fields of an answer that you do not know.\n\
         - **Lists** are read page by page: `limit` is the maximum number of items, `cursor` is the `next` of the page before. \
         The last page has no `next`. The log and transcripts are read by number (`after`) instead.\n\
         - **Waiting**: with `wait_ms` the hub answers when something changes, at the latest after 50 seconds.\n\
         - **Commands** (everything that is not `GET`) take an `Idempotency-Key` header of 1 to 200 visible ASCII characters. \
         The hub carries out a key once, also over a restart: the same request with the same key changes nothing, and its \
         answer shows the first result as it is now. A secret is only in the first answer; \
         another request with the same key is refused. The hub remembers the newest 1,000 keys.\n\
         - **Failures** have a status from 400 on and a body `{\"error\": {\"code\", \"message\", \"hint\", \"fields\"}}`. \
         `fields` names the fields of the request that the sentences have in backquotes. A request that does not reach the API \
         (without a valid token, for another host, to an unknown path, or too large) gets `{\"error\": \"sentence\"}`.\n",
    );
    let mut noun = "";
    for (row, schemas) in &rows {
        if row.noun != noun {
            noun = row.noun;
            let _ = write!(text, "\n## {noun}\n");
        }
        let _ = write!(text, "\n### {} {}\n\n{}\n", row.method.as_str(), row.path, row.says.trim());
        if let Some(query) = &schemas.query {
            fields(&mut text, "query", query);
        }
        if let Some(body) = &schemas.body {
            match named(body) {
                Some(name) => match components[name]["properties"].is_object() {
                    true => fields(&mut text, "body", &components[name]),
                    false => variants(&mut text, &components[name]),
                },
                None => {
                    let _ = write!(text, "\nBody: {}\n", kind(body));
                }
            }
        }
        let _ = write!(text, "\nAnswer: {}\n", kind(&schemas.answer));
    }
    let shown: Vec<&str> = rows.iter().filter_map(|(_, row)| named(row.body.as_ref()?)).collect();
    text.push_str("\n## Types\n");
    for (name, schema) in components.iter().filter(|(name, _)| !shown.contains(&name.as_str())) {
        let _ = write!(text, "\n### {name}\n");
        if let Some(says) = schema["description"].as_str() {
            let _ = write!(text, "\n{}\n", says.replace('\n', " "));
        }
        match schema["properties"].is_object() {
            true => fields(&mut text, "field", schema),
            false => variants(&mut text, schema),
        }
    }
    text
}

fn named(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix(SCHEMAS)
}

/// Adds a table of an object's fields.
fn fields(text: &mut String, title: &str, schema: &Value) {
    let required = schema["required"].as_array();
    let Some(properties) = schema["properties"].as_object().filter(|all| !all.is_empty()) else {
        return;
    };
    let _ = write!(text, "\n| {title} | type | | meaning |\n|---|---|---|---|\n");
    for (name, property) in properties {
        let is_required = required.is_some_and(|names| names.iter().any(|other| other == name));
        // An answer has all its fields.
        let needed = if is_required && title != "field" { "required" } else { "" };
        let says = property["description"].as_str().unwrap_or_default();
        let says = says.replace('|', "\\|").replace('\n', " ");
        let _ = writeln!(text, "| `{name}` | {} | {needed} | {says} |", kind(property));
    }
}

/// Adds a table of an enum's variants.
fn variants(text: &mut String, schema: &Value) {
    let mut rows = Vec::new();
    for word in schema["enum"].as_array().into_iter().flatten() {
        rows.push(format!("| {} | |\n", plain(word)));
    }
    for one in schema["oneOf"].as_array().into_iter().flatten() {
        let says = one["description"].as_str().unwrap_or_default().replace('\n', " ");
        match (&one["const"], one["enum"].as_array(), one["properties"].as_object()) {
            (Value::Null, Some(words), _) => {
                rows.extend(words.iter().map(|word| format!("| {} | {says} |\n", plain(word))));
            }
            (Value::Null, None, Some(properties)) => {
                let shown: Vec<String> = properties
                    .iter()
                    .map(|(name, property)| format!("`{name}`: {}", kind(property)))
                    .collect();
                rows.push(format!("| {} | {says} |\n", shown.join(", ")));
            }
            (word, _, _) => rows.push(format!("| {} | {says} |\n", plain(word))),
        }
    }
    if !rows.is_empty() {
        text.push_str("\n| value | meaning |\n|---|---|\n");
        rows.iter().for_each(|row| text.push_str(row));
    }
}

fn plain(word: &Value) -> String {
    word.as_str().map_or_else(|| word.to_string(), |word| format!("`{word}`"))
}

/// Describes the type of a value in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = named(schema) {
        let anchor = name.to_lowercase();
        return format!("[{name}](#{anchor})");
    }
    if !schema["const"].is_null() {
        return plain(&schema["const"]);
    }
    for alternatives in ["anyOf", "oneOf"] {
        if let Some(all) = schema[alternatives].as_array() {
            return all.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    match &schema["type"] {
        Value::String(word) if word == "array" => format!("array of {}", kind(&schema["items"])),
        Value::String(word) if word == "object" && schema["additionalProperties"].is_object() => {
            format!("map to {}", kind(&schema["additionalProperties"]))
        }
        Value::String(word) => word.clone(),
        Value::Array(words) => {
            let words = words.iter().filter_map(Value::as_str).map(|word| match word {
                "array" => format!("array of {}", kind(&schema["items"])),
                word => word.to_owned(),
            });
            words.collect::<Vec<_>>().join(" or ")
        }
        _ => "any JSON".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;

    #[test]
    fn the_documents_are_those_of_the_types() {
        let document = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        expect_file!["../../../docs/reference/openapi.json"].assert_eq(&document);
        expect_file!["../../../docs/reference/api.md"].assert_eq(&markdown());
    }

    #[test]
    fn no_two_types_have_one_name() {
        let document = document();
        let numbered = |name: &&String| name.ends_with(char::is_numeric);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert_eq!(
            schemas.keys().find(numbered),
            None,
            "give one of them another #[schemars(rename)]"
        );
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            if let Some(reference) = value["$ref"].as_str() {
                let place = reference.trim_start_matches('#');
                assert!(document.pointer(place).is_some(), "{reference}");
            }
            match value {
                Value::Array(all) => open.extend(all),
                Value::Object(all) => open.extend(all.values()),
                _ => {}
            }
        }
    }
}
