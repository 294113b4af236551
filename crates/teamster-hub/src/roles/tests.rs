//! What comes of role files and tables: who may do what, and what is told.

use std::fmt::Write;

use expect_test::{Expect, expect};

use crate::settings::Sources;
use crate::settings::tests::configured;

/// Shows the problems, and all roles that are not built in.
fn check(files: &[(&str, &str)], expected: Expect) {
    let (configuration, mut shown) = configured(files, Sources::default());
    for role in configuration.roles.iter() {
        let from = role.from.to_string();
        if from == "built in" {
            continue;
        }
        let line = from.rsplit('/').next().unwrap_or_default();
        let _ = writeln!(shown, "{} ({}) from {line}: {:?}", role.name, role.category, role.prompt);
        let _ = writeln!(shown, "  may use {}", role.grants().join(" "));
        let limits = &role.limits;
        let _ = write!(shown, "  depth {}, turns {}", limits.depth.get(), limits.turns.get());
        for (what, said) in [
            ("program", role.program.as_ref().map(ToString::to_string)),
            ("model", role.model.clone()),
            ("cwd", role.cwd.as_ref().map(|cwd| cwd.display().to_string())),
        ] {
            if let Some(said) = said {
                let _ = write!(shown, ", {what} {said}");
            }
        }
        shown.push('\n');
    }
    expected.assert_eq(&shown);
}

#[test]
fn roles_that_are_built_in() {
    let (configuration, told) = configured(&[], Sources::default());
    assert_eq!(told, "");
    let mut shown = String::new();
    for role in configuration.roles.iter() {
        let _ = writeln!(
            shown,
            "{} ({}, {} s): {}",
            role.name, role.category, role.stall_s, role.description
        );
        let _ = writeln!(shown, "  may use {}", role.grants().join(" "));
        for word in ["\"status\"", "\"summary\"", "\"changes\"", "\"issues\"", "\"questions\""] {
            assert!(role.prompt.contains(word), "{} does not ask for {word}", role.name);
        }
    }
    expect![[r#"
        coder (coding, 300 s): Writes and changes code until the work it was given is done and checked
          may use session yaks agents:list_agents agents:list_tasks agents:get_task_context
        coordinator (conversational, 180 s): Splits work up, drafts other agents for the parts, and puts their results together
          may use session yaks agents
        researcher (research, 420 s): Finds out how things are and reports it with its sources; changes nothing
          may use session yaks agents:list_agents agents:list_tasks agents:get_task_context
        reviewer (coding, 300 s): Looks for what is wrong with a change and reports it; changes nothing
          may use session:task-list session:note-list session:note-add yaks agents:list_agents agents:list_tasks agents:get_task_context
    "#]].assert_eq(&shown);
}

#[test]
fn a_role_is_a_file_or_a_table() {
    let file = "---\nname: api-dev\ndescription: 'API: keeps it working'\ncategory: conversational\nprogram: goose\nmodel: large\ntools: [session, agents:list_agents, main]\nlimits:\n  turns: 500\ncwd: services/api\n---\n\nYou look after the API.\n\n---\n\nAnd this too.\n";
    let table = "[roles.quick]\nprompt = \"be quick\"\nlimits.depth = 0\n\n[roles.pm]\nprompt = \"plan\"\ncategory = \"conversational\"\n";
    check(
        &[("user/roles/api-dev.md", file), ("user/teamster.toml", table)],
        expect![[r#"
            api-dev (conversational) from api-dev.md:1: "You look after the API.\n\n---\n\nAnd this too."
              may use session agents:list_agents main
              depth 3, turns 500, program goose, model large, cwd services/api
            pm (conversational) from teamster.toml:5: "plan"
              may use session yaks agents
              depth 3, turns 200
            quick (coding) from teamster.toml:1: "be quick"
              may use session yaks agents:list_agents agents:list_tasks agents:get_task_context
              depth 0, turns 200
        "#]],
    );
}

#[test]
fn a_file_says_all_of_a_role_and_a_table_changes_it() {
    let files = [
        ("user/roles/one.md", "---\ncategory: research\nmodel: small\n---\nThe user's one.\n"),
        (
            "user/teamster.toml",
            "[roles.one]\nprogram = \"goose\"\n[roles.two]\nprompt = \"The user's two.\"\ncategory = \"research\"\n",
        ),
        ("project/.teamster/roles/one.md", "---\n---\nThe project's one.\n"),
        ("project/teamster.toml", "[roles.two]\nmodel = \"large\"\n"),
        ("project/roles/other.yml.md", "# not a role of ours"),
    ];
    check(
        &files,
        expect![[r#"
            one (coding) from one.md:1: "The project's one."
              may use session yaks agents:list_agents agents:list_tasks agents:get_task_context
              depth 3, turns 200
            two (research) from teamster.toml:1: "The user's two."
              may use session yaks agents:list_agents agents:list_tasks agents:get_task_context
              depth 3, turns 200, model large
        "#]],
    );
    let coder = [("user/teamster.toml", "program = \"goose\"\n[roles.coder]\nmodel = \"m\"\n")];
    let (configuration, told) = configured(&coder, Sources::default());
    assert_eq!(told, "");
    let coder = configuration.roles.find("coder").expect("coder is built in");
    assert_eq!(coder.model.as_deref(), Some("m"));
    assert_eq!(coder.program.as_ref().map(crate::settings::Name::as_str), Some("goose"));
    assert!(coder.prompt.starts_with("You are a coder"));
}

#[test]
fn what_is_wrong_with_a_role_is_told_with_its_line() {
    let files = [
        ("user/roles/no-front.md", "Just text.\n"),
        ("user/roles/no-end.md", "---\ncategory: coding\nText.\n"),
        ("user/roles/no-prompt.md", "---\ncategory: coding\n---\n\n"),
        ("user/roles/Bad_Name.md", "---\n---\nText.\n"),
        ("user/roles/not-yaml.md", "---\ncategory: coding\ntools: [a, b\nmodel: x\n---\nText.\n"),
        ("user/roles/a-list.md", "---\n- a\n- b\n---\nText.\n"),
        ("user/roles/anchor.md", "---\ncategory: &a coding\nmodel: *a\n---\nText.\n"),
        ("user/roles/twice.md", "---\nmodel: a\nmodel: b\n---\nText.\n"),
        (
            "user/roles/fields.md",
            "---\nname: other\ncolour: red\ncategory: cooking\nprogram: cline\nmodel:\ntools:\n  - session\n  - 'no such word'\nlimits:\n  depth: deep\n  speed: 5\n  turns: 7\nprompt: twice\n---\nText.\n",
        ),
        ("user/roles/tools.md", "---\ntools: session\n---\nText.\n"),
        ("user/roles/only-main.md", "---\ntools: [main]\n---\nText.\n"),
        (
            "user/teamster.toml",
            "[roles.empty]\nmodel = \"x\"\n[roles.UP]\nprompt = \"x\"\n[roles]\n",
        ),
        ("user/roles/coder.md", "---\nmodel: [\n---\nText.\n"),
    ];
    check(
        &files,
        expect![[r#"
            user/roles/Bad_Name.md: a role's file is named after it, with at most 64 lower-case letters, digits and dashes
            user/roles/a-list.md:2: front matter has lines `key: value`; the role a-list is left out
            user/roles/anchor.md:2: anchors, aliases and tags are not used here; the role anchor is left out
            user/roles/coder.md:3: this is not YAML: while parsing a node, did not find expected node content; the role coder is left out
            user/roles/fields.md:2: name: "other" is not used; the role is called fields
            user/roles/fields.md:3: colour: unknown key `colour`, expected one of `name`, `description`, `category`, `program`, `model`, `tools`, `limits`, `permissions`, `guard`, `reach`, `cwd`, `prompt`
            user/roles/fields.md:4: roles.fields.category: there is no category cooking, so it is coding; there are coding, conversational, research
            user/roles/fields.md:5: roles.fields.program: there is no program "cline"; there are claude, claude-agent-acp, codex, codex-acp, copilot, fast-agent, gemini, goose, kimi, opencode, qwen, scripted, vibe
            user/roles/fields.md:6: model: invalid value: string "", expected one line of text, at most 1024 bytes long
            user/roles/fields.md:9: tools[1]: invalid value: string "no such word", expected full, read-only, main, self, metrics, a set such as `session`, or a tool such as `session:task-list`
            user/roles/fields.md:11: limits.depth: invalid type: string "deep", expected a whole number from 0 to 16
            user/roles/fields.md:12: limits.speed: unknown key `speed`, expected one of `depth`, `children`, `total`, `turns`, `wall_minutes`, `dollars`, `tokens`
            user/roles/fields.md:14: prompt: the prompt is what follows the front matter
            user/roles/no-end.md:1: a role's file starts with front matter between two lines `---`; the role no-end is left out
            user/roles/no-front.md:1: a role's file starts with front matter between two lines `---`; the role no-front is left out
            user/roles/no-prompt.md:4: roles.no-prompt: has no prompt and is left out
            user/roles/not-yaml.md:4: this is not YAML: illegal placement of ':' indicator; the role not-yaml is left out
            user/roles/tools.md:2: tools: invalid type: string "session", expected a list
            user/roles/twice.md:3: this key is there twice; the role twice is left out
            user/teamster.toml:1: roles.empty: has no prompt and is left out
            user/teamster.toml:3: roles.UP: invalid value: string "UP", expected a name: at most 64 lower-case letters, digits and dashes, no dash at either end
            fields (coding) from fields.md:1: "Text."
              may use session
              depth 3, turns 7, program cline
            only-main (coding) from only-main.md:1: "Text."
              may use main agents:list_agents
              depth 3, turns 200
            tools (coding) from tools.md:1: "Text."
              may use agents:list_agents
              depth 3, turns 200
        "#]],
    );
    let (configuration, _) = configured(&files, Sources::default());
    assert!(configuration.roles.find("coder").is_err(), "the built-in coder is not what was meant");
}

#[test]
fn a_role_of_a_project_has_no_more_than_its_user_allows() {
    let files = [
        (
            "user/teamster.toml",
            "[limits]\ndepth = 2\n[roles.mine]\nprompt = \"The user's.\"\ntools = [\"session\", \"main\"]\nlimits.turns = 1000\ncwd = \"/srv\"\n",
        ),
        (
            "project/.teamster/roles/evil.md",
            "---\ntools: [full, main, self]\nlimits:\n  depth: 9\n  turns: 5\ncwd: ../../home\nreach: workspace\n---\nText.\n",
        ),
        (
            "project/teamster.toml",
            "[roles.mine]\nprompt = \"The project's.\"\n\n[roles.sub]\nprompt = \"x\"\ncwd = \"./a/b\"\ntools = [\"main\"]\n\n[roles.chief]\nprompt = \"x\"\ncategory = \"conversational\"\ntools = [\"agents\", \"self:install_packages\"]\n\n[roles.sly]\nprompt = \"x\"\ntools = [\"agents:draft_agent\", \"agents:list_tasks\", \"agents\"]\n",
        ),
    ];
    check(
        &files,
        expect![[r#"
            project/.teamster/roles/evil.md:2: roles.evil.tools: this role of a project may not have "full"
            project/.teamster/roles/evil.md:2: roles.evil.tools: this role of a project may not have "main"
            project/.teamster/roles/evil.md:2: roles.evil.tools: this role of a project may not have "self"
            project/.teamster/roles/evil.md:4: roles.evil.limits.depth: a role of a project may not have more than 2
            project/.teamster/roles/evil.md:6: roles.evil.cwd: a role of a project works in the project
            project/.teamster/roles/evil.md:7: roles.evil.reach: a role of a project reaches its own runs and tasks only
            project/teamster.toml:1: roles.mine.tools: this role of a project may not have "main"
            project/teamster.toml:1: roles.mine.limits.turns: a role of a project may not have more than 200
            project/teamster.toml:1: roles.mine.cwd: a role of a project works in the project
            project/teamster.toml:7: roles.sub.tools: this role of a project may not have "main"
            project/teamster.toml:12: roles.chief.tools: this role of a project may not have "self:install_packages"
            project/teamster.toml:16: roles.sly.tools: this role of a project may not have "agents:draft_agent"
            project/teamster.toml:16: roles.sly.tools: this role of a project may not have "agents"
            chief (conversational) from teamster.toml:9: "x"
              may use agents
              depth 2, turns 200
            evil (coding) from evil.md:1: "Text."
              may use agents:list_agents
              depth 2, turns 5
            mine (coding) from teamster.toml:1: "The project's."
              may use session
              depth 2, turns 200
            sly (coding) from teamster.toml:14: "x"
              may use agents:list_tasks
              depth 2, turns 200
            sub (coding) from teamster.toml:4: "x"
              may use agents:list_agents
              depth 2, turns 200, cwd ./a/b
        "#]],
    );
}

#[test]
fn a_project_takes_nothing_away_that_its_user_has_said_of_a_role() {
    let users = "---\npermissions:\n  deny: [fetch]\n  otherwise: ask\nguard:\n  repeats: 3\nlimits:\n  dollars: 1\n  turns: 5\n---\nCare.\n";
    for (file, text) in [
        ("project/teamster.toml", "[roles.careful]\ndescription = \"x\"\n"),
        (
            "project/teamster.toml",
            "[roles.careful]\nlimits = { dollars = 100, wall_minutes = 7 }\npermissions = { deny = [] }\nguard = { repeats = 0 }\n",
        ),
        ("project/.teamster/roles/careful.md", "---\ndescription: x\n---\nThe project's.\n"),
    ] {
        let files = [("user/roles/careful.md", users), (file, text)];
        let (configuration, _) = configured(&files, Sources::default());
        let role = configuration.roles.find("careful").unwrap();
        let denied: Vec<&str> = role.permissions.deny.iter().map(|rule| rule.as_str()).collect();
        assert_eq!(denied, ["fetch"], "{text}");
        assert_eq!(role.permissions.otherwise, crate::settings::Verdict::Ask, "{text}");
        assert_eq!(
            role.limits.dollars.map(crate::settings::Money::micros),
            Some(1_000_000),
            "{text}"
        );
        assert_eq!(role.limits.turns.get(), 5, "{text}");
        assert_eq!((role.guard.repeats.get(), role.guard.pairs.get()), (3, 4), "{text}");
    }
}
