//! The document about configuration, made of the settings themselves so that it cannot say anything else than they do.

use std::fmt::Write;

use serde_json::Value as Json;

use super::{Sources, VARIABLES, schema};
use crate::programs::Known;

const START: &str = "\
# Configuration

Made from the settings (`teamster::settings`) and checked by a test; `UPDATE_EXPECT=1 cargo test -p teamster --lib
settings` writes it anew.

Nothing needs to be configured. What is configured comes from these, the later over the earlier:

1. what is built in;
2. the user's file, `$XDG_CONFIG_HOME/teamster/teamster.toml` (usually `~/.config/teamster/teamster.toml`), and roles in
   `roles/` beside it;
3. the project's file, `teamster.toml` in the project's directory, and roles in `.teamster/roles/` (a directory `roles`
   is something else's in many projects);
4. variables of the environment;
5. `--set KEY=VALUE`.

A project's file may define roles, lower limits, and hooks, which run only after you have looked at them (`teamster trust`,
[hooks.md](hooks.md)). It may not say anything else, since whoever wrote the project would then decide what runs on your
machine.

A bad file stops nothing. A key that is unknown, or has a wrong value, is reported with its file and line and left out;
the rest is used. A list of what is allowed (`tools`, `fullAccessCategories`) that cannot be read allows nothing. Of a
file that is not TOML, nothing is used; a role whose front matter is not YAML is left out.

`teamster config show` prints every value and where it comes from, `teamster config schema` a JSON schema for editors,
`teamster program list` which programs are found, `teamster roles` which roles there are.
";

const ROLES: &str = "
## Roles

A role is a file `NAME.md`: front matter with the fields of `roles.NAME` above, then its prompt.

```markdown
---
description: Keeps the API's clients working
category: coding
program: goose
tools: [session, agents:list_agents]
limits:
  turns: 50
cwd: services/api
---
You look after the API's clients. …
```

The file's name is the role's name. A file says all of a role; `[roles.NAME]` changes single fields, also of roles that
are built in. What `tools` names is all that the role may use, in the words of `--grant`. Without it, a role has the
`session` set, reads the backlog, and of the `agents` set has everything if its category is one of
`mcp.fullAccessCategories`, otherwise `list_agents`, `list_tasks` and `get_task_context`.

An agent reaches its own run and the tasks (dossiers) of its own tree. An agent that works on no run has the shared list,
the run `default`. `reach: workspace` lets the agents of a role use every run and read every task. An agent never reaches
more than the agent or client that drafted it, and an agent that works on a run reaches only that run.

A role that a project defines or changes never has `main`, `self`, `metrics` or `reach: workspace`, has at most the user's limits, and works
inside the project. A role's file that cannot be read also hides another role of its name: that one is not what was meant.

";

const PROGRAMS: &str = "
## Programs

Any program that speaks ACP is added in three lines:

```toml
[programs.mine]
command = \"my-agent\"
args = [\"--acp\"]
```

Its environment has only what it is known to need. Name the variables that hold its keys in `pass`; their values are
taken from the hub's environment and written nowhere. `scripted` is an agent of our own without a model, for trying
things out: it plays the script in its prompt (`! say hello`, `! call task-next`), and is only used where it is named.
`codex` is run by its own protocol and keeps its own sandbox: it writes where it works, and asks the hub for more. Log it in
with `codex login`; in that protocol it takes no key from the environment, unless its configuration has a provider that does.
Built in are:

";

/// Returns `docs/configuration.md`.
pub fn configuration_markdown() -> String {
    let mut text = String::from(START);
    text.push_str(
        "\nThe hub reads all of this when it starts, and again when a file changes, with the variables and the `up --set` flags \
         that it was\nstarted with. Then `teamster log` shows which keys changed and what is wrong. Where changes are not noticed \
         (some file\nsystems of other machines), `teamster config reload` has it read them now. What is new holds for agents and \
         turns that begin\nfrom then on; processes that run go on with what they had, and a team's agent that rests is put to sleep, \
         so that it comes\nback with what is new. A session keeps the prompt that it was begun with. What `telemetry` says, and where \
         the hub listens,\nholds from the next start on. A file that could be read and now cannot (it is not TOML, a role's front \
         matter is not YAML)\nchanges nothing at all, until it can be read again.\n",
    );
    text.push_str("\n## Keys\n\n| key | allowed | default | meaning |\n|---|---|---|---|\n");
    let schema = schema();
    rows(&mut text, "", &schema, &schema["$defs"]);
    text.push_str(
        "\n## Variables\n\nTheir values are written as in TOML; what is not TOML is text.\n\n",
    );
    text.push_str("| variable | sets |\n|---|---|\n");
    for (key, variable) in VARIABLES {
        let _ = writeln!(text, "| `{variable}` | `{key}` |");
    }
    let built_in = super::read(&Sources::default());
    text.push_str(ROLES);
    text.push_str("Built in are:\n\n| role | category | may use | is for |\n|---|---|---|---|\n");
    for role in built_in.roles.iter() {
        let grants = role.grants().join(", ");
        let _ = writeln!(
            text,
            "| `{}` | {} | {grants} | {} |",
            role.name, role.category, role.description
        );
    }
    text.push_str(PROGRAMS);
    text.push_str("| program | started as | passed on |\n|---|---|---|\n");
    for Known { name, program } in built_in.settings.programs.iter() {
        let words: Vec<&str> = [program.command.as_str()]
            .into_iter()
            .chain(program.args.iter().map(String::as_str))
            .collect();
        let pass: Vec<String> = program.pass.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "| `{name}` | `{}` | {} |", words.join(" "), pass.join(", "));
    }
    text
}

/// Adds a row for each key of an object's schema, and those below it.
fn rows(text: &mut String, before: &str, schema: &Json, definitions: &Json) {
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{before}{key}");
        let shape = resolved(property, definitions);
        let named = shape["patternProperties"].as_object().and_then(|named| named.values().next());
        let members = resolved(named.unwrap_or(&shape["additionalProperties"]), definitions);
        // What may be absent has defaults of its own only where it stands first.
        let is_optional = property["anyOf"].is_array();
        if shape["properties"].is_object() && !is_optional {
            rows(text, &format!("{path}."), shape, definitions);
        } else if members["properties"].is_object() {
            rows(text, &format!("{path}.NAME."), members, definitions);
        } else {
            // A row is one line.
            let meaning = property["description"].as_str().unwrap_or_default().replace('\n', " ");
            let default = match &property["default"] {
                Json::Null => String::new(),
                Json::String(text) if text.is_empty() => String::new(),
                value => format!("`{value}`"),
            };
            let _ = writeln!(text, "| `{path}` | {} | {default} | {meaning} |", allowed(shape));
        }
    }
}

/// Follows a reference, and looks through what may also be absent.
fn resolved<'a>(schema: &'a Json, definitions: &'a Json) -> &'a Json {
    let present =
        schema["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null"));
    let schema = present.unwrap_or(schema);
    match schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        Some(name) => resolved(&definitions[name], definitions),
        None => schema,
    }
}

fn allowed(schema: &Json) -> String {
    let kind = match &schema["type"] {
        Json::Array(kinds) => kinds.first().and_then(Json::as_str),
        kind => kind.as_str(),
    };
    let choices = schema["oneOf"].as_array().or(schema["enum"].as_array());
    match (kind, choices) {
        (_, Some(choices)) => {
            let word = |choice: &Json| {
                choice["const"].as_str().or(choice.as_str()).map(|word| format!("`{word}`"))
            };
            choices.iter().filter_map(word).collect::<Vec<_>>().join(" or ")
        }
        (Some("integer"), _) => format!("{} to {}", schema["minimum"], schema["maximum"]),
        (Some("number"), _) => format!("{} to {}", schema["minimum"], schema["maximum"]),
        (Some("array"), _) => "a list".into(),
        (Some("object"), _) => "a table".into(),
        (Some("boolean"), _) => "`true` or `false`".into(),
        (Some("string"), _) if schema["pattern"].is_string() => "a name".into(),
        _ => "text".into(),
    }
}
