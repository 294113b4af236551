//! `config`, `program` and `roles` as people meet them.

#![expect(clippy::expect_used, reason = "a broken fixture should panic")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use expect_test::expect;
use serde_json::Value;
use tempfile::TempDir;

use crate::hub::{command, program};

struct Place(TempDir);

impl Place {
    fn new(files: &[(&str, &str)]) -> Self {
        let place = Self(tempfile::tempdir().expect("a temporary directory"));
        for (name, text) in files {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a file is in a directory"))
                .expect("a directory can be made");
            std::fs::write(&path, text).expect("a file can be written");
            let mode = if name.starts_with("bin/") { 0o755 } else { 0o644 };
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("it is ours");
        }
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a command in the project and returns what it printed and said.
    fn run(&self, arguments: &[&str]) -> (String, String) {
        let project = self.path().join("project");
        std::fs::create_dir_all(&project).expect("a directory can be made");
        let mut command = command(&self.path().join("data"));
        command.current_dir(project).env("XDG_CONFIG_HOME", self.path().join("config"));
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path().join("bin").display()));
        let output = command.args(arguments).output().expect("the program starts");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let place = format!("{}/", self.path().display());
        let text = |bytes| String::from_utf8(bytes).expect("it prints UTF-8").replace(&place, "");
        (text(output.stdout), text(output.stderr))
    }
}

#[test]
fn roles_and_what_is_wrong_with_them() {
    let place = Place::new(&[
        (
            "config/teamster/teamster.toml",
            "program = \"goose\"\n[roles.coder]\nmodel = \"large\"\n",
        ),
        ("config/teamster/roles/broken.md", "no front matter\n"),
        (
            "project/.teamster/roles/api.md",
            "---\ncategory: conversational\ntools: [main, yaks]\n---\nHi.\n",
        ),
    ]);
    let (printed, said) = place.run(&["roles"]);
    expect![[r#"
        role             category        program           agents     from
        api              conversational  goose             as it says project/.teamster/roles/api.md:1
        coder            coding          goose             looks on   config/teamster/teamster.toml:2
          Writes and changes code until the work it was given is done and checked
        coordinator      conversational  goose             drafts     built in
          Splits work up, drafts other agents for the parts, and puts their results together
        researcher       research        goose             looks on   built in
          Finds out how things are and reports it with its sources; changes nothing
        reviewer         coding          goose             as it says built in
          Looks for what is wrong with a change and reports it; changes nothing
    "#]].assert_eq(&printed);
    expect![[r#"
        warning: config/teamster/roles/broken.md:1: a role's file starts with front matter between two lines `---`; the role broken is left out
        warning: project/.teamster/roles/api.md:3: roles.api.tools: this role of a project may not have "main"
    "#]].assert_eq(&said);
    let (printed, _) = place.run(&["roles", "--json", "--set", "roles.coder.model=small"]);
    let roles: Value = serde_json::from_str(&printed).expect("it prints JSON");
    expect![[r#"{"name":"coder","description":"Writes and changes code until the work it was given is done and checked","category":"coding","program":"goose","model":"small","grants":["session","yaks","agents:list_agents","agents:list_tasks","agents:get_task_context"],"limits":{"depth":3,"children":8,"total":100,"turns":200,"wall_minutes":240},"stall_s":300,"cwd":null,"from":"--set roles.coder.model=small"}"#]].assert_eq(&roles[1].to_string());
}

#[test]
fn programs_and_their_versions() {
    let place = Place::new(&[
        (
            "config/teamster/teamster.toml",
            "[programs.mine]\ncommand = \"mine\"\n[programs.mute]\ncommand = \"mute\"\n",
        ),
        (
            "bin/mine",
            "#!/bin/sh\n[ \"$1\" = --version ] && printf '\\nmine 1.2\\033[31m\\nmore\\n'\n",
        ),
        // It says far more than anybody reads, and does not end by itself.
        ("bin/mute", "#!/bin/sh\nwhile :; do echo; done\n"),
    ]);
    let (printed, _) = place.run(&["program", "list"]);
    let own = std::fs::canonicalize(program()).expect("it is there");
    expect![[r#"
        claude             claude claude is not on your PATH
        claude-agent-acp   acp    claude-agent-acp is not on your PATH
        codex              codex  codex is not on your PATH
        codex-acp          acp    codex-acp is not on your PATH
        copilot            acp    copilot is not on your PATH
        fast-agent         acp    fast-agent is not on your PATH
        gemini             acp    gemini is not on your PATH
        goose              acp    goose is not on your PATH
        kimi               acp    kimi is not on your PATH
        mine               acp    bin/mine
        mute               acp    bin/mute
        opencode           acp    opencode is not on your PATH
        qwen               acp    qwen is not on your PATH
        scripted           acp    (the program that runs)
        vibe               acp    vibe-acp is not on your PATH
    "#]]
    .assert_eq(&printed.replace(&*own.to_string_lossy(), "(the program that runs)"));
    let (printed, _) = place.run(&["program", "list", "--versions", "--json"]);
    let programs: Value = serde_json::from_str(&printed).expect("it prints JSON");
    let mine = programs.as_array().and_then(|all| all.iter().find(|one| one["name"] == "mine"));
    expect![[r#"{"name":"mine","command":"mine","driver":"acp","found":"bin/mine","version":"mine 1.2[31m"}"#]].assert_eq(&mine.expect("it is listed").to_string());
}

#[test]
fn settings_and_where_they_come_from() {
    let place = Place::new(&[
        ("config/teamster/teamster.toml", "[limits]\ndepth = 2\n"),
        ("project/teamster.toml", "[limits]\nturns = 20\n[pool]\nrunning = 99\n"),
    ]);
    let (printed, said) = place.run(&["config", "show", "--set", "pool.live=20"]);
    let changed: Vec<&str> = printed.lines().filter(|line| !line.ends_with("# built in")).collect();
    expect![[r#"
        limits.depth = 2  # config/teamster/teamster.toml:2
        limits.turns = 20  # project/teamster.toml:2
        pool.live = 20  # --set pool.live=20"#]]
    .assert_eq(&changed.join("\n"));
    expect![[r#"
        warning: project/teamster.toml:3: pool: a project's file may only have `roles`, `limits` and `hooks`
    "#]]
    .assert_eq(&said);
    let (printed, _) = place.run(&["config", "schema"]);
    let schema: Value = serde_json::from_str(&printed).expect("it prints JSON");
    assert_eq!(schema, teamster_hub::settings::schema());
}
