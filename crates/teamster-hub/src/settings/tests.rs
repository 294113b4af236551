//! What comes of files, variables and flags: what is used, what is told.

use std::fmt::Write;

use expect_test::{Expect, expect, expect_file};

use super::{Configuration, Sources, configuration_markdown, read, schema};

/// Writes files below `user/` and `project/` and reads them all.
pub(crate) fn configured(files: &[(&str, &str)], more: Sources) -> (Configuration, String) {
    let root = tempfile::tempdir().expect("a temporary directory");
    for (path, text) in files {
        let path = root.path().join(path);
        let parent = path.parent().expect("a file is in a directory");
        std::fs::create_dir_all(parent).expect("a directory can be made");
        std::fs::write(path, text).expect("a file can be written");
    }
    std::fs::create_dir_all(root.path().join("project")).expect("a directory can be made");
    let user = Some(root.path().join("user"));
    let project = Some(root.path().join("project"));
    let configuration = read(&Sources { user, project, ..more });
    let root = format!("{}/", root.path().display());
    let mut told = String::new();
    for problem in &configuration.problems {
        let _ = writeln!(told, "{}", problem.to_string().replace(&root, ""));
    }
    (configuration, told)
}

/// Shows the problems, and all values that are not built in.
fn check_with(files: &[(&str, &str)], more: Sources, expected: Expect) {
    let (configuration, mut shown) = configured(files, more);
    for value in configuration.values() {
        let from = value.from.to_string();
        if from != "built in" {
            let file = from.rsplit_once("/teamster.toml").map(|(before, line)| {
                let layer = before.rsplit('/').next().unwrap_or_default();
                format!("{layer}/teamster.toml{line}")
            });
            let _ = writeln!(shown, "{} = {} # {}", value.key, value.value, file.unwrap_or(from));
        }
    }
    expected.assert_eq(&shown);
}

fn check(files: &[(&str, &str)], expected: Expect) {
    check_with(files, Sources::default(), expected);
}

#[test]
fn without_files_there_is_what_is_built_in() {
    let (configuration, told) = configured(&[], Sources::default());
    assert_eq!(told, "");
    let mut shown = String::new();
    for value in configuration.values() {
        if !value.key.starts_with("programs.") {
            let _ = writeln!(shown, "{} = {}", value.key, value.value);
        }
    }
    expect![[r#"
        categories.coding.stall_s = 300
        categories.coding.tool_stall_s = 3600
        categories.conversational.stall_s = 180
        categories.conversational.tool_stall_s = 3600
        categories.research.stall_s = 420
        categories.research.tool_stall_s = 3600
        guard.errors = 8
        guard.pairs = 4
        guard.repeats = 5
        limits.children = 8
        limits.depth = 3
        limits.total = 100
        limits.turns = 200
        limits.wall_minutes = 240
        mcp.fullAccessCategories = ["conversational"]
        mcp.streamTimeout = 600000
        permissions.allow = []
        permissions.ask = []
        permissions.ask_minutes = 60
        permissions.deny = []
        permissions.otherwise = "allow"
        pool.live = 16
        pool.park_minutes = 30
        pool.running = 8
        prices.claude-haiku-4-5.cached_read = 0.1
        prices.claude-haiku-4-5.cached_write = 1.25
        prices.claude-haiku-4-5.input = 1
        prices.claude-haiku-4-5.output = 5
        prices.claude-opus-4-1.cached_read = 1.5
        prices.claude-opus-4-1.cached_write = 18.75
        prices.claude-opus-4-1.input = 15
        prices.claude-opus-4-1.output = 75
        prices.claude-opus-4-5.cached_read = 0.5
        prices.claude-opus-4-5.cached_write = 6.25
        prices.claude-opus-4-5.input = 5
        prices.claude-opus-4-5.output = 25
        prices.claude-sonnet-4-5.cached_read = 0.3
        prices.claude-sonnet-4-5.cached_write = 3.75
        prices.claude-sonnet-4-5.input = 3
        prices.claude-sonnet-4-5.output = 15
        prices.gemini-2.5-flash.cached_read = 0.075
        prices.gemini-2.5-flash.input = 0.3
        prices.gemini-2.5-flash.output = 2.5
        prices.gemini-2.5-pro.cached_read = 0.31
        prices.gemini-2.5-pro.input = 1.25
        prices.gemini-2.5-pro.output = 10
        prices.gpt-5.cached_read = 0.125
        prices.gpt-5.input = 1.25
        prices.gpt-5.output = 10
        prices.gpt-5-codex.cached_read = 0.125
        prices.gpt-5-codex.input = 1.25
        prices.gpt-5-codex.output = 10
        prices.gpt-5-mini.cached_read = 0.025
        prices.gpt-5-mini.input = 0.25
        prices.gpt-5-mini.output = 2
        quotas.disk_reserve_mib = 512
        quotas.received_mib_per_s = 2
        quotas.run_stored_mib = 256
        quotas.stored_mib = 64
        quotas.writes_at_once = 4000
        quotas.writes_per_s = 200
        transcripts.keep_days = 180
        transcripts.keep_mib = 128
        transcripts.keep_records = 100000
    "#]]
    .assert_eq(&shown);
}

#[test]
fn later_sources_win() {
    let files = [
        (
            "user/teamster.toml",
            "pool.running = 4\n[limits]\ndepth = 2\nturns = 1_000\nwall_minutes = 60\n",
        ),
        ("project/teamster.toml", "[limits]\nturns = 100\nwall_minutes = 30\n"),
    ];
    let more = Sources {
        environment: vec![
            ("TEAMSTER_LIMITS_WALL_MINUTES", "20".into()),
            ("TEAMSTER_POOL_LIVE", "9".into()),
        ],
        flags: vec!["pool.live=10".into(), "program=goose".into()],
        ..Sources::default()
    };
    check_with(
        &files,
        more,
        expect![[r#"
            project/teamster.toml:3: limits.wall_minutes: a project may not allow more than its user, 20
            limits.depth = 2 # user/teamster.toml:3
            limits.turns = 100 # project/teamster.toml:2
            limits.wall_minutes = 20 # TEAMSTER_LIMITS_WALL_MINUTES
            pool.live = 10 # --set pool.live=10
            pool.running = 4 # user/teamster.toml:1
            program = "goose" # --set program=goose
        "#]],
    );
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_the_rest_is_used() {
    let user = r#"
[limits]
dpeth = 2
children = "many"
turns = 0
total = -1
wall_minutes = 1.5
depth = 1

[pools]
running = 1

[pool]
running = 5

[mcp]
fullAccessCategories = "coding"

[categories.Coding]
stall_s = 5

[categories.quick]
stall_s = 5

[programs.mine]
command = "mine"
ends = "politely"
pass = ["GOOD", "not good"]

[programs.half]
args = ["--acp"]

[programs.near]
command = "./near"

[roles.fast]
prompt = "be fast"
categroy = "quick"
category = "quick"
limits = { turns = 10, depth = 99 }
"#;
    check(
        &[("user/teamster.toml", user)],
        expect![[r#"
            user/teamster.toml:3: limits.dpeth: unknown key `dpeth`, expected one of `depth`, `children`, `total`, `turns`, `wall_minutes`, `dollars`, `tokens`
            user/teamster.toml:4: limits.children: invalid type: string "many", expected a whole number from 0 to 1000
            user/teamster.toml:5: limits.turns: invalid value: integer `0`, expected a whole number from 1 to 100000
            user/teamster.toml:6: limits.total: invalid type: integer `-1`, expected a whole number from 0 to 1000000
            user/teamster.toml:7: limits.wall_minutes: invalid type: floating point `1.5`, expected a whole number from 1 to 43200
            user/teamster.toml:10: pools: unknown key `pools`, expected one of `program`, `pool`, `limits`, `permissions`, `guard`, `isolation`, `mcp`, `transcripts`, `quotas`, `telemetry`, `categories`, `programs`, `prices`, `teams`, `roles`, `hooks`
            user/teamster.toml:17: mcp.fullAccessCategories: invalid type: string "coding", expected a list
            user/teamster.toml:19: categories.Coding: invalid value: string "Coding", expected a name: at most 64 lower-case letters, digits and dashes, no dash at either end
            user/teamster.toml:27: programs.mine.ends: unknown word `politely`, expected `stdin` or `sigterm`
            user/teamster.toml:28: programs.mine.pass[1]: invalid value: string "not good", expected the name of an environment variable
            user/teamster.toml:30: programs.half: has no command; name what to start
            user/teamster.toml:33: programs.near: has a relative path as its command; write a name that is on the PATH, or an absolute path
            user/teamster.toml:38: roles.fast.categroy: unknown key `categroy`, expected one of `name`, `description`, `category`, `program`, `model`, `tools`, `limits`, `permissions`, `guard`, `reach`, `cwd`, `prompt`
            user/teamster.toml:40: roles.fast.limits.depth: invalid value: integer `99`, expected a whole number from 0 to 16
            categories.quick.stall_s = 5 # user/teamster.toml:23
            limits.depth = 1 # user/teamster.toml:8
            mcp.fullAccessCategories = [] # user/teamster.toml:17
            pool.running = 5 # user/teamster.toml:14
            programs.mine.command = "mine" # user/teamster.toml:26
            programs.mine.pass = ["GOOD"] # user/teamster.toml:28
            roles.fast.category = "quick" # user/teamster.toml:39
            roles.fast.limits.turns = 10 # user/teamster.toml:40
            roles.fast.prompt = "be fast" # user/teamster.toml:37
        "#]],
    );
}

#[test]
fn a_project_may_not_grant_itself_anything() {
    let project = r#"
program = "mine"

[limits]
depth = 9
turns = 20

[pool]
running = 100

[mcp]
fullAccessCategories = ["coding"]

[programs.goose]
command = "/tmp/evil"

[categories.coding]
stall_s = 1

[roles.mine]
prompt = "work"

[hooks]
"#;
    check(
        &[("project/teamster.toml", project)],
        expect![[r#"
            project/teamster.toml:2: program: a project's file may only have `roles`, `limits` and `hooks`
            project/teamster.toml:5: limits.depth: a project may not allow more than its user, 3
            project/teamster.toml:8: pool: a project's file may only have `roles`, `limits` and `hooks`
            project/teamster.toml:11: mcp: a project's file may only have `roles`, `limits` and `hooks`
            project/teamster.toml:14: programs: a project's file may only have `roles`, `limits` and `hooks`
            project/teamster.toml:17: categories: a project's file may only have `roles`, `limits` and `hooks`
            limits.turns = 20 # project/teamster.toml:6
            roles.mine.prompt = "work" # project/teamster.toml:21
        "#]],
    );
}

#[test]
fn of_a_file_that_is_not_toml_nothing_is_used() {
    let user = "[pool]\nrunning = 4\n[limits\ndepth = 1\nturns = = 5\n";
    check(
        &[("user/teamster.toml", user)],
        expect![[r#"
            user/teamster.toml:3: this is not TOML: unclosed table, expected `]`; what the file says now is not used
            user/teamster.toml:5: this is not TOML: extra `=`, expected nothing; what the file says now is not used
        "#]],
    );
}

#[test]
fn variables_and_flags_are_checked_as_files_are() {
    let more = Sources {
        environment: vec![
            ("TEAMSTER_LIMITS_DEPTH", "deep".into()),
            ("TEAMSTER_MCP_FULL_ACCESS_CATEGORIES", r#"["coding", "research"]"#.into()),
        ],
        flags: vec!["limits".into(), "limits.turns=x".into(), "a.b=1".into(), "=".into()],
        ..Sources::default()
    };
    check_with(
        &[],
        more,
        expect![[r#"
            --set =: : unknown key ``, expected one of `program`, `pool`, `limits`, `permissions`, `guard`, `isolation`, `mcp`, `transcripts`, `quotas`, `telemetry`, `categories`, `programs`, `prices`, `teams`, `roles`, `hooks`
            --set a.b=1: a: unknown key `a`, expected one of `program`, `pool`, `limits`, `permissions`, `guard`, `isolation`, `mcp`, `transcripts`, `quotas`, `telemetry`, `categories`, `programs`, `prices`, `teams`, `roles`, `hooks`
            --set limits: write KEY=VALUE, e.g. limits.depth=2
            --set limits.turns=x: limits.turns: invalid type: string "x", expected a whole number from 1 to 100000
            TEAMSTER_LIMITS_DEPTH: limits.depth: invalid type: string "deep", expected a whole number from 0 to 16
            mcp.fullAccessCategories = ["coding","research"] # TEAMSTER_MCP_FULL_ACCESS_CATEGORIES
        "#]],
    );
}

#[test]
fn text_from_files_cannot_play_with_the_terminal() {
    let project = "\"\\u001b[31mred\" = 1\n";
    check(
        &[("project/teamster.toml", project)],
        expect![[r#"
            project/teamster.toml:1: \u{1b}[31mred: a project's file may only have `roles`, `limits` and `hooks`
        "#]],
    );
}

#[test]
fn what_the_user_sets_for_a_program_is_not_shown() {
    let user = "[programs.mine]\ncommand = \"mine\"\nset = { KEY = \"secret\" }\n";
    check(
        &[("user/teamster.toml", user)],
        expect![[r#"
            programs.mine.command = "mine" # user/teamster.toml:2
            programs.mine.set.KEY = "(not shown)" # user/teamster.toml:3
        "#]],
    );
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let large = "#".repeat(300 << 10);
    check(
        &[("user/teamster.toml", &large)],
        expect![[r#"
            user/teamster.toml: is larger than 256 KB and is not used
        "#]],
    );
    check(
        &[("user/teamster.toml/inside", "")],
        expect![[r#"
            user/teamster.toml: is not a file
        "#]],
    );
}

#[cfg(unix)]
#[test]
fn a_projects_file_does_not_lead_out_of_it() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let project = root.path().join("project");
    std::fs::create_dir(&project).expect("a directory can be made");
    std::fs::write(root.path().join("secret"), "key").expect("a file can be written");
    std::os::unix::fs::symlink(root.path().join("secret"), project.join("teamster.toml"))
        .expect("a link can be made");
    let read = read(&Sources { project: Some(project), ..Sources::default() });
    let told: Vec<&str> = read.problems.iter().map(|problem| problem.says.as_str()).collect();
    let says = "is a symbolic link, or below one, and is not used; a project's file has to be a regular file in the project";
    assert_eq!(told, [says]);
}

#[test]
fn a_file_with_very_much_wrong_is_not_used() {
    let mut user = String::from("[pool]\nrunning = 4\n[limits]\n");
    for i in 0..200 {
        let _ = writeln!(user, "x{i} = 1");
    }
    let (configuration, told) = configured(&[("user/teamster.toml", &user)], Sources::default());
    assert_eq!(told.lines().count(), 51);
    assert_eq!(configuration.settings.pool.running.get(), 8);
}

#[test]
fn the_schema() {
    expect_file!["../../tests/settings.schema.json"].assert_eq(&format!("{:#}\n", schema()));
}

#[test]
fn the_document() {
    expect_file!["../../../../docs/configuration.md"].assert_eq(&configuration_markdown());
}

#[test]
fn a_collector_is_the_users_to_choose_and_has_a_plain_url() {
    let collector = "[telemetry]\notlp = \"http://127.0.0.1:4318\"\n";
    check(
        &[("user/teamster.toml", collector), ("project/teamster.toml", collector)],
        expect![[r#"
            project/teamster.toml:1: telemetry: a project's file may only have `roles`, `limits` and `hooks`
            telemetry.otlp = "http://127.0.0.1:4318" # user/teamster.toml:2
        "#]],
    );
    for url in ["https://far.example", "127.0.0.1:4318", "http://", "http://me@host", "http://h/?a"]
    {
        let flags = vec![format!("telemetry.otlp={url}")];
        let (configuration, told) = configured(&[], Sources { flags, ..Sources::default() });
        assert_eq!(configuration.settings.telemetry.otlp, None, "{url}");
        assert!(told.contains("a URL such as http://127.0.0.1:4318"), "{url}: {told}");
    }
}

/// Shows what has changed from the user's file (and the project's role) to another.
fn check_changes(before: &[(&str, &str)], after: &[(&str, &str)], expected: Expect) {
    let (before, _) = configured(before, Sources::default());
    let (after, _) = configured(after, Sources::default());
    expected.assert_eq(&super::changes(&before, &after).join("\n"));
}

#[test]
fn what_has_changed_is_told_by_its_keys() {
    let file = "user/teamster.toml";
    let role = "project/.teamster/roles/cook.md";
    let nothing: [(&str, &str); 0] = [];
    check_changes(&nothing, &[(file, "# nothing\n[pool]\nlive = 16\n")], expect![[r#""#]]);
    check_changes(
        &nothing,
        &[(
            file,
            "program = \"goose\"\n[pool]\nlive = 2\n[limits]\ndollars = 3\n[telemetry]\notlp = \"http://127.0.0.1:1\"\n",
        )],
        expect![[r#"
            limits.dollars added
            pool.live changed
            program added
            telemetry.otlp added (from the next start on)"#]],
    );
    check_changes(
        &[(
            file,
            "[teams.api]\npath = \"/a\"\n[teams.\"v1.2\"]\npath = \"/b\"\n[programs.mine]\ncommand = \"m\"\nset = { KEY = \"one\" }\n",
        )],
        &[(
            file,
            "[teams.api]\npath = \"/b\"\nmodel = \"x\"\n[teams.web]\npath = \"/w\"\n[programs.mine]\ncommand = \"m\"\nset = { KEY = \"two\" }\n",
        )],
        expect![[r#"
            programs.mine changed (set.KEY)
            teams.api changed (model, path)
            teams.v1.2 removed
            teams.web added"#]],
    );
    check_changes(
        &[(role, "---\nmodel: small\n---\nCook.\n")],
        &[
            (role, "---\nmodel: large\nlimits:\n  turns: 3\n---\nBake.\n"),
            (file, "[roles.coder]\nmodel = \"x\"\n"),
        ],
        expect![[r#"
            roles.coder changed (model)
            roles.cook changed (limits, model, prompt)"#]],
    );
    check_changes(&[(role, "---\n---\nCook.\n")], &nothing, expect!["roles.cook removed"]);
}
