use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};

use expect_test::{Expect, expect};

use super::*;

fn program(name: &str) -> &'static Program {
    find(name.to_owned()).unwrap()
}

fn server() -> Server {
    server_with("tmst_1")
}

fn server_with(secret: &str) -> Server {
    Server::Http(Http { url: "http://127.0.0.1:7777/mcp".into(), secret: secret.into() })
}

/// What is written if nobody asks for HTTP.
fn command() -> Server {
    let args = ["--data", "/home/ann/my state", "mcp", "--name", "it's"];
    Server::Command { program: "/usr/bin/teamster".into(), args: args.map(str::to_owned).into() }
}

#[test]
fn a_command_holds_no_secret_and_takes_the_place_of_one() {
    let mut all = String::new();
    for program in &PROGRAMS {
        let _ = writeln!(all, "{}", program.paste(&command()).unwrap());
        // What was connected by HTTP before goes, with its token.
        let old = (program.edit)("", &server()).unwrap().text;
        assert!(old.contains("tmst_1"), "{old}");
        let Edited { text, replaced } = (program.edit)(&old, &command()).unwrap();
        assert!(replaced && !text.contains("tmst_1") && !text.contains("127.0.0.1"), "{text}");
        let again = (program.edit)(&text, &command()).unwrap();
        assert_eq!((again.text, again.replaced), (text, false), "{}", program.name);
    }
    expect![[r#"
        claude mcp add --scope user teamster -- /usr/bin/teamster --data '/home/ann/my state' mcp --name 'it'\''s'
        [mcp_servers.teamster-mcp]
        command = "/usr/bin/teamster"
        args = ["--data", "/home/ann/my state", "mcp", "--name", "it's"]
        default_tools_approval_mode = "approve"
        {
          "mcpServers": {
            "teamster": {
              "command": "/usr/bin/teamster",
              "args": [
                "--data",
                "/home/ann/my state",
                "mcp",
                "--name",
                "it's"
              ],
              "trust": true
            }
          }
        }
        extensions:
          teamster:
            enabled: true
            type: stdio
            name: teamster
            cmd: "/usr/bin/teamster"
            args:
              - "--data"
              - "/home/ann/my state"
              - "mcp"
              - "--name"
              - "it's"
        {
          "$schema": "https://opencode.ai/config.json",
          "mcp": {
            "teamster": {
              "type": "local",
              "command": [
                "/usr/bin/teamster",
                "--data",
                "/home/ann/my state",
                "mcp",
                "--name",
                "it's"
              ],
              "enabled": true
            }
          }
        }
    "#]].assert_eq(&all);
    // An entry that somebody else made stays.
    let other = "[mcp_servers.teamster]\ncommand = \"mine\"\n";
    let edited = (program("codex").edit)(other, &command()).unwrap();
    assert!(edited.text.starts_with(other) && !edited.replaced, "{}", edited.text);
}

/// Takes the indentation of its first line off a text.
fn text(indented: &str) -> String {
    let lines = indented.trim_start_matches('\n').trim_end_matches(' ');
    let indentation = &lines[..lines.len() - lines.trim_start().len()];
    lines.split_inclusive('\n').map(|line| line.strip_prefix(indentation).unwrap_or(line)).collect()
}

/// Edits the file `before` of a program; once more must change nothing.
fn check(name: &str, before: &str, expect: Expect) {
    let edit = program(name).edit;
    let shown = match edit(before, &server()) {
        Ok(Edited { text, replaced }) => {
            let again = edit(&text, &server()).unwrap();
            assert_eq!(
                (again.text.as_str(), again.replaced),
                (text.as_str(), false),
                "the second time"
            );
            if replaced { format!("(replaced)\n{text}") } else { text }
        }
        Err(error) => format!("refused: {error:#}"),
    };
    expect.assert_eq(&shown);
}

#[test]
fn what_to_paste() {
    let pasted = |name: &str| program(name).paste(&server()).unwrap();
    expect![[r#"
        claude mcp add --scope user --transport http teamster http://127.0.0.1:7777/mcp --header "Authorization: Bearer tmst_1"

        [mcp_servers.teamster]
        url = "http://127.0.0.1:7777/mcp"
        http_headers = { Authorization = "Bearer tmst_1" }
        default_tools_approval_mode = "approve"

        {
          "mcpServers": {
            "teamster": {
              "httpUrl": "http://127.0.0.1:7777/mcp",
              "headers": {
                "Authorization": "Bearer tmst_1"
              },
              "trust": true
            }
          }
        }

        extensions:
          teamster:
            enabled: true
            type: streamable_http
            name: teamster
            uri: http://127.0.0.1:7777/mcp
            headers:
              Authorization: Bearer tmst_1

        {
          "$schema": "https://opencode.ai/config.json",
          "mcp": {
            "teamster": {
              "type": "remote",
              "url": "http://127.0.0.1:7777/mcp",
              "enabled": true,
              "oauth": false,
              "headers": {
                "Authorization": "Bearer tmst_1"
              }
            }
          }
        }
    "#]]
    .assert_eq(&format!("{}\n", PROGRAMS.iter().map(|program| pasted(program.name)).collect::<Vec<_>>().join("\n\n")));
}

#[test]
fn json_keeps_what_else_is_there() {
    check(
        "claude",
        text(
            r#"
            {
                "zeta": 1,
                "mcpServers": {
                    "other": {
                        "command": "x"
                    }
                },
                "alpha": "é\n"
            }
        "#,
        )
        .trim_end(),
        expect![[r#"
            {
                "zeta": 1,
                "mcpServers": {
                    "other": {
                        "command": "x"
                    },
                    "teamster": {
                        "type": "http",
                        "url": "http://127.0.0.1:7777/mcp",
                        "headers": {
                            "Authorization": "Bearer tmst_1"
                        }
                    }
                },
                "alpha": "é\n"
            }"#]],
    );
    check(
        "gemini",
        "{\n\t\"theme\": \"dark\"\n}\n",
        expect![[r#"
        {
        	"theme": "dark",
        	"mcpServers": {
        		"teamster": {
        			"httpUrl": "http://127.0.0.1:7777/mcp",
        			"headers": {
        				"Authorization": "Bearer tmst_1"
        			},
        			"trust": true
        		}
        	}
        }
    "#]],
    );
    check(
        "opencode",
        r#"{"mcp":{}}"#,
        expect![[r#"
        {
          "mcp": {
            "teamster": {
              "type": "remote",
              "url": "http://127.0.0.1:7777/mcp",
              "enabled": true,
              "oauth": false,
              "headers": {
                "Authorization": "Bearer tmst_1"
              }
            }
          }
        }"#]],
    );
}

#[test]
fn json_replaces_an_old_entry_where_it_is() {
    check(
        "claude",
        r#"{"mcpServers": {"teamster": {"command": "old", "args": []}, "other": {}}}"#,
        expect![[r#"
            (replaced)
            {
              "mcpServers": {
                "teamster": {
                  "type": "http",
                  "url": "http://127.0.0.1:7777/mcp",
                  "headers": {
                    "Authorization": "Bearer tmst_1"
                  }
                },
                "other": {}
              }
            }"#]],
    );
}

#[test]
fn json_that_would_lose_something_is_refused() {
    check(
        "gemini",
        "{\n  // mine\n  \"theme\": \"dark\"\n}\n",
        expect![
            "refused: it is not an object in plain JSON, without comments and trailing commas (key must be a string at line 2 column 3)"
        ],
    );
    check(
        "opencode",
        "{\"mcp\": {},}",
        expect![
            "refused: it is not an object in plain JSON, without comments and trailing commas (trailing comma at line 1 column 12)"
        ],
    );
    check(
        "claude",
        "[]",
        expect![
            "refused: it is not an object in plain JSON, without comments and trailing commas (invalid type: sequence, expected a map at line 1 column 0)"
        ],
    );
    check(
        "claude",
        r#"{"mcpServers": []}"#,
        expect!["refused: `mcpServers` in it is not an object"],
    );
}

#[test]
fn toml_keeps_what_else_is_there() {
    check(
        "codex",
        text(
            r#"
            # mine
            model = "m"   # the best

            [mcp_servers.other]
            command='x'

            [tui]
            theme = "a"
            # the end
        "#,
        )
        .trim_end(),
        expect![[r##"
            # mine
            model = "m"   # the best

            [mcp_servers.other]
            command='x'

            [tui]
            theme = "a"
            # the end

            [mcp_servers.teamster]
            url = "http://127.0.0.1:7777/mcp"
            http_headers = { Authorization = "Bearer tmst_1" }
            default_tools_approval_mode = "approve"
        "##]],
    );
    check(
        "codex",
        "# nothing yet\n",
        expect![[r##"
        # nothing yet

        [mcp_servers.teamster]
        url = "http://127.0.0.1:7777/mcp"
        http_headers = { Authorization = "Bearer tmst_1" }
        default_tools_approval_mode = "approve"
    "##]],
    );
    check(
        "codex",
        "mcp_servers.other.command = \"x\"\n",
        expect![[r#"
        mcp_servers.other.command = "x"

        [mcp_servers.teamster]
        url = "http://127.0.0.1:7777/mcp"
        http_headers = { Authorization = "Bearer tmst_1" }
        default_tools_approval_mode = "approve"
    "#]],
    );
    check(
        "codex",
        "mcp_servers = { other = { command = \"x\" } } # inline\nz = 1\n",
        expect![[r#"
        mcp_servers = { other = { command = "x" } , teamster = { url = "http://127.0.0.1:7777/mcp", http_headers = { Authorization = "Bearer tmst_1" }, default_tools_approval_mode = "approve" } } # inline
        z = 1
    "#]],
    );
}

#[test]
fn toml_replaces_an_old_entry_where_it_is() {
    check(
        "codex",
        &text(
            r#"
            [a]

            # the old one
            [mcp_servers.teamster]
            command = "old"
            [mcp_servers.teamster.env]
            A = "1"

            # next
            [b]
            x = 1
        "#,
        ),
        expect![[r#"
            (replaced)
            [a]

            # the old one
            [mcp_servers.teamster]
            url = "http://127.0.0.1:7777/mcp"
            http_headers = { Authorization = "Bearer tmst_1" }
            default_tools_approval_mode = "approve"

            # next
            [b]
            x = 1
        "#]],
    );
    check(
        "codex",
        "[mcp_servers]\n# the old one\nteamster = { command = \"old\" } # yes\nother.command = \"x\"\n",
        expect![[r#"
        (replaced)
        [mcp_servers]
        # the old one
        teamster = { url = "http://127.0.0.1:7777/mcp", http_headers = { Authorization = "Bearer tmst_1" }, default_tools_approval_mode = "approve" } # yes
        other.command = "x"
    "#]],
    );
    check(
        "codex",
        "[mcp_servers]\nteamster.command = \"old\"\nother.command = \"x\"\n\n[b]\n",
        expect![[r#"
        (replaced)
        [mcp_servers]
        other.command = "x"

        [mcp_servers.teamster]
        url = "http://127.0.0.1:7777/mcp"
        http_headers = { Authorization = "Bearer tmst_1" }
        default_tools_approval_mode = "approve"

        [b]
    "#]],
    );
}

#[test]
fn toml_that_is_not_understood_is_refused() {
    check(
        "codex",
        "secret = \"tmst_x\nb = 1\n",
        expect![[r#"refused: it is not valid TOML (invalid basic string, expected `"`)"#]],
    );
    check("codex", "mcp_servers = 1\n", expect!["refused: `mcp_servers` in it is not a table"]);
    check("codex", "[[mcp_servers]]\n", expect!["refused: `mcp_servers` in it is not a table"]);
}

#[test]
fn yaml_without_the_section_gets_it_at_the_end() {
    check(
        "goose",
        text(
            "
            # mine
            GOOSE_PROVIDER: openai # or not

            list:
            - a: 1
              b: 2
            text: |
              extensions:
                no: 1
        ",
        )
        .trim_end(),
        expect![[r#"
        # mine
        GOOSE_PROVIDER: openai # or not

        list:
        - a: 1
          b: 2
        text: |
          extensions:
            no: 1
        extensions:
          teamster:
            enabled: true
            type: streamable_http
            name: teamster
            uri: http://127.0.0.1:7777/mcp
            headers:
              Authorization: Bearer tmst_1
    "#]],
    );
    check(
        "goose",
        "# nothing yet\n",
        expect![[r#"
        # nothing yet
        extensions:
          teamster:
            enabled: true
            type: streamable_http
            name: teamster
            uri: http://127.0.0.1:7777/mcp
            headers:
              Authorization: Bearer tmst_1
    "#]],
    );
}

#[test]
fn yaml_with_the_section_gets_an_entry_like_its_siblings() {
    check(
        "goose",
        &text(
            "
            extensions: # all of them
                # the first
                developer:
                    enabled: true
                    args:
                    - x
                    env: {}

                memory:
                    enabled: false
            # next
            GOOSE_MODE: auto
        ",
        ),
        expect![[r#"
            extensions: # all of them
                teamster:
                  enabled: true
                  type: streamable_http
                  name: teamster
                  uri: http://127.0.0.1:7777/mcp
                  headers:
                    Authorization: Bearer tmst_1
                # the first
                developer:
                    enabled: true
                    args:
                    - x
                    env: {}

                memory:
                    enabled: false
            # next
            GOOSE_MODE: auto
        "#]],
    );
    check(
        "goose",
        "a: 1\nextensions: {} # none, {}\nb: 2\n",
        expect![[r#"
        a: 1
        extensions: # none, {}
          teamster:
            enabled: true
            type: streamable_http
            name: teamster
            uri: http://127.0.0.1:7777/mcp
            headers:
              Authorization: Bearer tmst_1
        b: 2
    "#]],
    );
    check(
        "goose",
        "\"extensions\":",
        expect![[r#"
        "extensions":
          teamster:
            enabled: true
            type: streamable_http
            name: teamster
            uri: http://127.0.0.1:7777/mcp
            headers:
              Authorization: Bearer tmst_1
    "#]],
    );
    check(
        "goose",
        "extensions:\nb: 2\n",
        expect![[r#"
        extensions:
          teamster:
            enabled: true
            type: streamable_http
            name: teamster
            uri: http://127.0.0.1:7777/mcp
            headers:
              Authorization: Bearer tmst_1
        b: 2
    "#]],
    );
}

#[test]
fn yaml_replaces_an_old_entry_where_it_is() {
    check(
        "goose",
        &text(
            "
            extensions:
              a:
                enabled: true
              'teamster':
                # gone
                enabled: false
                list:
                - x

              # about b
              b:
                enabled: true
        ",
        ),
        expect![[r#"
            (replaced)
            extensions:
              a:
                enabled: true
              teamster:
                enabled: true
                type: streamable_http
                name: teamster
                uri: http://127.0.0.1:7777/mcp
                headers:
                  Authorization: Bearer tmst_1

              # about b
              b:
                enabled: true
        "#]],
    );
    check(
        "goose",
        "extensions:\n  teamster: {enabled: false}\nz: 1\n",
        expect![[r#"
        (replaced)
        extensions:
          teamster:
            enabled: true
            type: streamable_http
            name: teamster
            uri: http://127.0.0.1:7777/mcp
            headers:
              Authorization: Bearer tmst_1
        z: 1
    "#]],
    );
}

#[test]
fn yaml_that_is_not_plain_is_refused() {
    check(
        "goose",
        "---\nextensions:\n",
        expect!["refused: line 1 is not a plain `key: value`, so it cannot be edited safely"],
    );
    check(
        "goose",
        "a: 1\n...\n",
        expect!["refused: line 2 is not a plain `key: value`, so it cannot be edited safely"],
    );
    check(
        "goose",
        "\u{feff}extensions:\n",
        expect!["refused: line 1 is not a plain `key: value`, so it cannot be edited safely"],
    );
    check(
        "goose",
        "extensions: {a: {enabled: true}}\n",
        expect![
            "refused: line 1 starts `extensions` in an unusual way, so it cannot be edited safely"
        ],
    );
    check(
        "goose",
        "{\"extensions\": {}}\n",
        expect!["refused: line 1 is not a plain `key: value`, so it cannot be edited safely"],
    );
    check(
        "goose",
        "a: {\n  b: 1\n}\n",
        expect!["refused: line 1 is not a plain `key: value`, so it cannot be edited safely"],
    );
    check(
        "goose",
        "a: \"x\nextensions:\n  y\"\n",
        expect!["refused: line 1 is not a plain `key: value`, so it cannot be edited safely"],
    );
    check(
        "goose",
        "extensions: &all\n  a: 1\n",
        expect![
            "refused: line 1 starts `extensions` in an unusual way, so it cannot be edited safely"
        ],
    );
    check(
        "goose",
        "extensions: *all\n",
        expect![
            "refused: line 1 starts `extensions` in an unusual way, so it cannot be edited safely"
        ],
    );
    check(
        "goose",
        "extensions: {}\n  a: 1\n",
        expect![
            "refused: line 1 starts `extensions` in an unusual way, so it cannot be edited safely"
        ],
    );
    check(
        "goose",
        "extensions:\n- a\n",
        expect![
            "refused: line 1 starts `extensions` in an unusual way, so it cannot be edited safely"
        ],
    );
    check(
        "goose",
        "extensions:\n  - a\n",
        expect!["refused: line 2 is not a plain `key: value`, so it cannot be edited safely"],
    );
    check(
        "goose",
        "extensions:\n\ta: 1\n",
        expect!["refused: line 2 is indented with a tab, so it cannot be edited safely"],
    );
    check(
        "goose",
        "extensions:\n    a: 1\n  b: 1\n",
        expect!["refused: line 3 is not a plain `key: value`, so it cannot be edited safely"],
    );
    check(
        "goose",
        "extensions:\n  <<: *all\n",
        expect!["refused: line 2 is not a plain `key: value`, so it cannot be edited safely"],
    );
    check(
        "goose",
        "extensions:\n  teamster:\n    headers: &mine\n      a: b\n",
        expect![
            "refused: line 3 has an anchor that others may refer to, so it cannot be edited safely"
        ],
    );
    check(
        "goose",
        "extensions:\nextensions:\n",
        expect![
            "refused: line 2 has `extensions` for the second time, so it cannot be edited safely"
        ],
    );
    check(
        "goose",
        "extensions:\n  teamster:\n  teamster:\n",
        expect![
            "refused: line 3 has `teamster` for the second time, so it cannot be edited safely"
        ],
    );
    check(
        "goose",
        "  extensions:\n    a: 1\n",
        expect!["refused: line 1 is not a plain `key: value`, so it cannot be edited safely"],
    );
    check(
        "goose",
        "- extensions\n",
        expect!["refused: line 1 is not a plain `key: value`, so it cannot be edited safely"],
    );
}

#[test]
fn a_file_is_made_private_with_its_directories_and_a_link_stays_one() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a/b/settings.json");
    let gemini = program("gemini");
    assert!(!gemini.write(&path, &server()).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let link = home.path().join("link.json");
    symlink(&path, &link).unwrap();
    let other = server_with("tmst_2");
    assert!(gemini.write(&link, &other).unwrap());
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&path).unwrap(), (gemini.edit)("", &other).unwrap().text);
    assert_eq!(
        fs::read_dir(path.parent().unwrap()).unwrap().count(),
        1,
        "no temporary file is left"
    );
}

#[test]
fn a_refusal_changes_nothing_and_shows_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config.yaml");
    let refusal = |path: &Path| {
        let error = program("goose").check(path, &server_with("TOKEN")).unwrap_err().to_string();
        error.replace(&home.path().display().to_string(), "HOME")
    };
    fs::write(&path, "---\n").unwrap();
    expect![[r#"
        HOME/config.yaml is left alone: line 1 is not a plain `key: value`, so it cannot be edited safely

        no token was made; without --write this is printed with one, to be used by hand:

        extensions:
          teamster:
            enabled: true
            type: streamable_http
            name: teamster
            uri: http://127.0.0.1:7777/mcp
            headers:
              Authorization: Bearer TOKEN"#]].assert_eq(&refusal(&path));
    assert_eq!(fs::read_to_string(&path).unwrap(), "---\n");

    fs::write(&path, b"\xff").unwrap();
    let link = home.path().join("link.yaml");
    symlink("nowhere", &link).unwrap();
    let reasons = [&path, &link].map(|path| refusal(path).lines().next().unwrap().to_owned());
    expect![[r#"
        HOME/config.yaml is left alone: it cannot be read (stream did not contain valid UTF-8)
        HOME/link.yaml is left alone: it is a link to a file that does not exist"#]]
    .assert_eq(&reasons.join("\n"));
}

#[test]
fn the_command_line() {
    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        connect: ConnectArgs,
    }
    let parse = |line: &str| {
        <Line as clap::Parser>::try_parse_from(line.split(' ')).map(|line| line.connect)
    };
    let connect = parse("connect codex --run r1 --grant session,main --grant self").unwrap();
    assert_eq!((connect.program.name, connect.run), ("codex", Some(RunName::parse("r1").unwrap())));
    assert_eq!(connect.grant, ["session", "main", "self"]);
    assert!(parse("connect goose").unwrap().grant.is_empty());
    assert!(
        parse("connect vim")
            .unwrap_err()
            .to_string()
            .contains("[possible values: claude, codex, gemini, goose, opencode]")
    );
    assert!(parse("connect goose --run a/b").is_err());
}
