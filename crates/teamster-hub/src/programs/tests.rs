//! Programs as data: what is built in, what users add, what is found where.

use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use expect_test::expect;

use super::Known;
use crate::settings::Sources;
use crate::settings::tests::configured;

#[test]
fn programs_that_are_built_in() {
    let (configuration, told) = configured(&[], Sources::default());
    assert_eq!(told, "");
    let settings = configuration.settings;
    let mut shown = String::new();
    for Known { name, program } in settings.programs.iter() {
        let _ = writeln!(shown, "{name}: {:?}", program.arguments(Some("MODEL")));
        let _ = writeln!(shown, "  ends by {:?} in {} s", program.ends, program.grace_s.get());
        let _ =
            writeln!(shown, "  load {}, wait {} s", program.load_session, program.max_wait_s.get());
        for (name, value) in program.variables(Some("MODEL"), &settings.mcp) {
            let _ = writeln!(shown, "  {name}={value}");
        }
        assert_eq!(
            program.has_model_choice(),
            !["codex-acp", "kimi", "opencode", "scripted"].contains(&name.as_str())
        );
    }
    expect![[r#"
        claude: ["--disallowedTools", "AskUserQuestion,EnterWorktree,Monitor,ScheduleWakeup", "--model", "MODEL"]
          ends by Stdin in 5 s
          load true, wait 240 s
          CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1
          CLAUDE_CODE_DISABLE_CRON=1
          CLAUDE_CODE_DISABLE_MCP_TASK_BACKGROUND=1
          DISABLE_AUTOUPDATER=1
          MCP_TOOL_TIMEOUT=600000
        claude-agent-acp: []
          ends by Stdin in 5 s
          load true, wait 240 s
          CLAUDE_CODE_STREAM_CLOSE_TIMEOUT=600000
          ANTHROPIC_MODEL=MODEL
        codex: ["app-server"]
          ends by Stdin in 5 s
          load true, wait 540 s
        codex-acp: []
          ends by Sigterm in 5 s
          load true, wait 50 s
          INITIAL_AGENT_MODE=workspace-write
        copilot: ["--acp"]
          ends by Stdin in 5 s
          load true, wait 50 s
          COPILOT_AUTO_UPDATE=false
          COPILOT_MODEL=MODEL
        fast-agent: ["acp", "--shell"]
          ends by Stdin in 5 s
          load true, wait 50 s
          FAST_AGENT_HOME=~/.fast-agent
          FAST_AGENT_MODEL=MODEL
        gemini: ["--acp", "-m", "MODEL"]
          ends by Sigterm in 5 s
          load false, wait 300 s
          GEMINI_CLI_TRUST_WORKSPACE=true
        goose: ["acp"]
          ends by Stdin in 5 s
          load true, wait 50 s
          GOOSE_MODEL=MODEL
        kimi: ["acp"]
          ends by Stdin in 5 s
          load true, wait 50 s
          KIMI_CODE_NO_AUTO_UPDATE=1
        opencode: ["acp"]
          ends by Stdin in 5 s
          load true, wait 50 s
        qwen: ["--acp", "--approval-mode", "default", "-m", "MODEL"]
          ends by Stdin in 5 s
          load true, wait 50 s
          QWEN_CODE_LEGACY_MCP_BLOCKING=1
        scripted: ["scripted-agent"]
          ends by Stdin in 5 s
          load true, wait 3600 s
        vibe: []
          ends by Stdin in 5 s
          load true, wait 50 s
          VIBE_DEFAULT_AGENT=ask
          VIBE_ACTIVE_MODEL=MODEL
    "#]]
    .assert_eq(&shown);
}

#[test]
fn a_program_is_added_in_three_lines_and_one_that_is_built_in_can_be_changed() {
    let user = "[programs.mine]\ncommand = \"my-agent\"\nargs = [\"--acp\"]\n\n[programs.goose]\npass = [\"MY_KEY\"]\n";
    let (configuration, told) = configured(&[("user/teamster.toml", user)], Sources::default());
    assert_eq!(told, "");
    let programs = configuration.settings.programs;
    let mine = programs.find("mine").expect("it was added").program;
    assert_eq!(
        (mine.command.as_str(), mine.arguments(Some("x"))),
        ("my-agent", vec!["--acp".into()])
    );
    let goose = programs.find("goose").expect("it is built in").program;
    assert_eq!(goose.command, "goose");
    assert_eq!(goose.pass.iter().map(ToString::to_string).collect::<Vec<_>>(), ["MY_KEY"]);
    let unknown = programs.find("cline").expect_err("nobody added it");
    expect![[r#"there is no program "cline"; there are claude, claude-agent-acp, codex, codex-acp, copilot, fast-agent, gemini, goose, kimi, mine, opencode, qwen, scripted, vibe"#]]
        .assert_eq(&unknown);
}

#[test]
fn a_program_that_may_not_ask_is_doubted() {
    let user = "[programs.mine]\ncommand = \"my-agent\"\n[programs.tried]\ncommand = \"x\"\nasks = \"yes\"\n\
                [programs.goose]\nset.GOOSE_MODE = \"auto\"\n[programs.opencode]\nset.X = \"1\"\n";
    for (text, name, asking, doubt) in [
        ("", "goose", "GOOSE_MODE=approve", ""),
        ("", "opencode", r#"OPENCODE_PERMISSION={"bash":"ask","edit":"ask","webfetch":"ask"}"#, ""),
        ("", "gemini", "", ""),
        ("", "fast-agent", "", "fast-agent never asks permission; rules have no effect on it"),
        ("", "codex-acp", "", "codex-acp asks permission only before it leaves its sandbox"),
        (
            user,
            "goose",
            "",
            "your configuration sets GOOSE_MODE to \"auto\" for goose, so it may not ask permission",
        ),
        (
            user,
            "opencode",
            r#"OPENCODE_PERMISSION={"bash":"ask","edit":"ask","webfetch":"ask"}"#,
            "",
        ),
        (user, "mine", "", "it is not known whether mine asks permission"),
        (user, "tried", "", ""),
    ] {
        let (configuration, told) = configured(&[("user/teamster.toml", text)], Sources::default());
        assert_eq!(told, "");
        let known = configuration.settings.programs.find(name).expect("it is known");
        let set: Vec<String> = known
            .program
            .asking()
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(set.join(" "), asking, "{name}");
        let found = known.doubt().unwrap_or_default();
        assert!(
            found.starts_with(doubt) && found.is_empty() == doubt.is_empty(),
            "{name}: {found}"
        );
    }
}

#[test]
fn programs_are_found_on_the_path() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let make = |name: &str, mode: u32| {
        let path = directory.path().join(name);
        std::fs::write(&path, "").expect("a file can be written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("it is ours");
        path
    };
    let goose = make("goose", 0o755);
    make("gemini", 0o644);
    let (configuration, _) = configured(&[], Sources::default());
    let programs = configuration.settings.programs;
    let search_path = [PathBuf::from("."), directory.path().to_owned()];

    let (first, found) = programs.choose(None, &search_path).expect("there is one");
    assert_eq!((first.name.as_str(), found), ("goose", goose));
    let missing = programs.choose(Some("gemini"), &search_path).expect_err("it cannot be run");
    expect![[r#"the program gemini needs "gemini", which is not on the PATH (a hub has that of the shell it was started from)"#]].assert_eq(&missing);
    let (_, own) = programs.choose(Some("scripted"), &[]).expect("it is the program that runs");
    assert_eq!(own, std::env::current_exe().expect("a test has a file"));
    let none = programs.choose(None, &[]).expect_err("there is no PATH");
    expect!["no agent program is on the PATH; install one of claude, claude-agent-acp, codex, codex-acp, copilot, fast-agent, gemini, goose, kimi, opencode, qwen, vibe-acp"]
        .assert_eq(&none);
}
