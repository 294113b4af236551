use expect_test::expect;

use super::*;
use teamster_hub::settings::Layer;

fn at() -> Origin {
    Origin::new(Layer::Project, "hairy/a-1.md")
}

fn yak() -> WholeYak {
    WholeYak {
        id: "a-1".into(),
        content: Some(WholeContent {
            title: "Fix: the \"door\" # now".into(),
            kind: Kind::Bug,
            priority: 1,
            description: "It squeaks.\n\n---\nStill.".into(),
            status: Status::Hairy,
            labels: vec!["ux".into(), "1e3".into()],
            commit: Some("1234e56".into()),
        }),
        depends_on: Some(vec!["a-3".into(), "a-2".into()]),
        created_at: Some(1_775_656_589_123),
        updated_at: Some(1_775_688_997_000),
    }
}

fn problem(text: &str) -> String {
    read(text, &at(), "a-1", Status::Hairy).unwrap_err().to_string()
}

#[test]
fn a_yak_is_written_as_the_plugin_writes_it() {
    expect![[r#"
        ---
        id: a-1
        title: 'Fix: the "door" # now'
        type: bug
        priority: 1
        created: '2026-04-08T13:56:29Z'
        updated: '2026-04-08T22:56:37Z'
        depends_on:
        - a-2
        - a-3
        labels:
        - '1e3'
        - ux
        commit: '1234e56'
        ---

        It squeaks.

        ---
        Still.
    "#]]
    .assert_eq(&write(&yak(), ""));
}

#[test]
fn what_is_written_is_read_again() {
    let titles = [
        "plain",
        "it's",
        "'quoted'",
        "\"double\"",
        "a: b",
        "a #b",
        "a:",
        "- list",
        "[x]",
        "{x}",
        "& anchor",
        "* alias",
        "! tag",
        "| bar",
        "> fold",
        "% percent",
        "@ at",
        "` tick",
        "#",
        "?",
        "null",
        "~",
        "true",
        "No",
        "12",
        "0x1f",
        "1_000",
        ".5",
        "2026-01-01",
        "=",
        "<<",
        "back\\slash",
        "ä umlaut",
        "日本",
        "🐃 yak",
        "odd\u{2028}break",
        "\u{feff}mark",
        "a\u{202e}b",
        "--- dashes",
        "...",
        "a\u{a0}b",
        "x ,",
        "don't: 'x'",
    ];
    for title in titles {
        let mut yak = yak();
        let content = yak.content.as_mut().unwrap();
        content.title = title.into();
        content.labels = vec![title.into()];
        content.commit = Some(title.into());
        let text = write(&yak, "");
        let found = read(&text, &at(), "a-1", Status::Hairy);
        let found = found.unwrap_or_else(|problem| panic!("{title:?}: {problem}\n{text}"));
        assert_eq!(found.yak.content, yak.content, "{text}");
        assert_eq!(write(&found.yak, &found.rest), text);
    }
}

#[test]
fn files_of_the_plugin_and_of_people_are_understood() {
    // As PyYAML folds a long title, with a type of its own and keys that we do not know.
    let text = "---\nid: a-1\ntitle: A title that is so long that it is continued on the next line of the file, as\n  some \
                writers do\ntype: idea\npriority: 3\ncreated: '2026-04-08T13:56:29Z'\nupdated: 2026-04-08\nref:\n  jira: \
                X-1\n  # a comment\ndepends_on: [a-2, 'a-3']\nlabels: ux\ncommit: 12345e7\nassignee: ann\n---\r\n\r\nBody.\r\n";
    let found = read(text, &at(), "a-1", Status::Shorn).unwrap();
    expect![[r#"
        ---
        id: a-1
        title: A title that is so long that it is continued on the next line of the file, as some writers do
        type: task
        priority: 3
        created: '2026-04-08T13:56:29Z'
        updated: '2026-04-08T00:00:00Z'
        depends_on:
        - a-2
        - a-3
        labels:
        - type:idea
        - ux
        commit: '12345e7'
        ref:
          jira: X-1
          # a comment
        assignee: ann
        ---

        Body.
    "#]]
    .assert_eq(&write(&found.yak, &found.rest));
    let again = read(&write(&found.yak, &found.rest), &at(), "a-1", Status::Shorn).unwrap();
    assert!(are_same(&again.yak, &found.yak));
    let little =
        read("\u{feff}---\ntitle: t\ncommit: null\nlabels:\n---\n", &at(), "a-1", Status::Hairy);
    let little = little.unwrap().yak;
    assert_eq!((little.id.as_str(), little.created_at), ("a-1", None));
    let content = little.content.unwrap();
    assert_eq!((content.priority, content.commit, content.labels), (2, None, vec![]));
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let texts = [
        "",
        "no front matter",
        "---\ntitle: never ends\n",
        "---\n- a\n- list\n---\n",
        "---\nid: a-2\ntitle: t\n---\n",
        "---\nid: a-1\n---\n",
        "---\ntitle: [a, b]\n---\n",
        "---\ntitle: t\n\npriority: high\n---\n",
        "---\ntitle: t\ncreated: yesterday\n---\n",
        "---\ntitle: t\nlabels:\n- a\n- {b: c}\n---\n",
        "---\ntitle: t\ntitle: u\n---\n",
        "---\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\ntitle: t\n---\n",
        "---\ntitle: t\nx: [[[[[[[[1]]]]]]]]\n---\n",
        "---\ntitle: !!python/object:os.system t\n---\n",
        "---\ntitle: \"open\n---\n",
    ];
    let told: Vec<String> = texts.into_iter().map(problem).collect();
    expect![[r#"
        hairy/a-1.md:1: a yak's file starts with front matter between two lines `---`
        hairy/a-1.md:1: a yak's file starts with front matter between two lines `---`
        hairy/a-1.md:1: a yak's file starts with front matter between two lines `---`
        hairy/a-1.md:2: front matter has lines `key: value`
        hairy/a-1.md:2: id: the file is called a-1.md, and the yak "a-2"
        hairy/a-1.md:1: title: a yak needs one
        hairy/a-1.md:2: title: must be text
        hairy/a-1.md:4: priority: "high" is not a number
        hairy/a-1.md:3: created: "yesterday" is not a time such as 2026-01-31T12:00:00Z
        hairy/a-1.md:5: labels: must be a list of words
        hairy/a-1.md:3: this key is there twice
        hairy/a-1.md:2: anchors, aliases and tags are not used here
        hairy/a-1.md:3: lists and tables lie too deep in one another
        hairy/a-1.md:2: anchors, aliases and tags are not used here
        hairy/a-1.md:2: this is not YAML: while scanning a quoted scalar, found unexpected end of stream"#]].assert_eq(&told.join("\n"));
}
