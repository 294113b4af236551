//! A call's arguments: read into a tool's own type, or refused with the name of what is wrong.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::answer::ToolError;

/// Returns the value with the members of its objects in order: who repeats a call may write them in another.
pub(crate) fn in_order(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let sorted: std::collections::BTreeMap<&String, Value> =
                object.iter().map(|(name, value)| (name, in_order(value))).collect();
            sorted.into_iter().map(|(name, value)| (name.clone(), value)).collect()
        }
        Value::Array(values) => values.iter().map(in_order).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// What programs know wrong arguments by.
const INVALID: &str = "ValidationError";

/// Refuses an array where the schema has an object: serde would read it as the object's fields in their order.
pub(crate) fn check_objects(
    schema: &Map<String, Value>,
    arguments: &Map<String, Value>,
) -> Result<(), ToolError> {
    for (name, argument) in arguments {
        let wants_objects = schema["properties"][name]["items"]["type"] == "object";
        let mut items = argument.as_array().into_iter().flatten().filter(|_| wants_objects);
        if let Some(i) = items.position(Value::is_array) {
            return Err(ToolError::named(
                INVALID,
                format!("{name}[{i}]: invalid type: sequence, expected an object"),
            ));
        }
    }
    Ok(())
}

/// Reads a tool's arguments, or says which of them is wrong.
pub(crate) fn read<T: DeserializeOwned>(given: &Map<String, Value>) -> Result<T, ToolError> {
    serde_path_to_error::deserialize(given).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner().to_string();
        let missing =
            problem.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
        let says = match (path.as_str(), missing) {
            (".", Some(field)) => format!("missing '{field}' parameter"),
            (path, Some(field)) => format!("missing '{field}' in {path}"),
            (".", None) => problem,
            (path, None) => format!("{path}: {problem}"),
        };
        ToolError::named(INVALID, says)
    })
}
