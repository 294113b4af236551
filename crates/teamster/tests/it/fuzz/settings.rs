//! Configuration and role files. Whatever a project's files say, they allow no more than the user does.

use std::path::Component;

use teamster_hub::settings::{Layer, Sources, read};

use super::play;

const USER: &str = "[limits]\ndepth = 2\nturns = 50\n\n[mcp]\nfullAccessCategories = []\n\n\
    [roles.mine]\nprompt = \"plan\"\ntools = [\"full\", \"main\", \"self\"]\nlimits.turns = 90\ncwd = \"/srv\"\n";
const PROJECT: &str = "[limits]\ndepth = 1\nturns = 40\n\n[roles.mine]\nprompt = \"other\"\n\n\
    [roles.new]\nprompt = \"p\"\ncategory = \"conversational\"\ntools = [\"session\", \"agents:list_agents\", \"main\"]\n\
    limits = { depth = 9, turns = 1 }\ncwd = \"a/../b\"\n";
const ROLE: &str = "---\nname: evil\ndescription: 'x: y'\ncategory: conversational\ntools: [full, main, self]\n\
    limits:\n  depth: 9\n  turns: 99\ncwd: ../up\n---\nDo it.\n";

#[test]
fn settings_of_a_project() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let (user, project) = (root.path().join("user"), root.path().join("project"));
    let roles = project.join(".teamster/roles");
    std::fs::create_dir_all(&roles).expect("a directory can be made");
    std::fs::create_dir(&user).expect("a directory can be made");
    std::fs::write(user.join("teamster.toml"), USER).expect("a file can be written");
    let sources = Sources {
        user: Some(user),
        project: Some(project.clone()),
        environment: Vec::new(),
        flags: Vec::new(),
        users_text: None,
    };
    let mut n_roles = 0;
    play("settings_of_a_project", 300, |mutator| {
        let write = |path, bytes: Vec<u8>| std::fs::write(path, bytes).expect("it can be written");
        write(project.join("teamster.toml"), mutator.bytes(PROJECT.as_bytes()));
        write(roles.join("evil.md"), mutator.bytes(ROLE.as_bytes()));
        let configuration = read(&sources);
        let limits = &configuration.settings.limits;
        assert!(limits.depth.get() <= 2 && limits.turns.get() <= 50, "{limits:?}");
        assert_eq!(configuration.settings.pool.running.get(), 8);
        let ours = configuration.roles.iter().filter(|role| role.from.layer == Layer::Project);
        for role in ours {
            n_roles += 1;
            assert!(role.limits.depth.get() <= 2 && role.limits.turns.get() <= 50, "{role:?}");
            let harmless = ["agents:list_agents", "agents:list_tasks", "agents:get_task_context"];
            for word in role.grants() {
                let set = word.split(':').next().unwrap_or_default();
                let is_bad = ["full", "main", "self", "agents"].contains(&set);
                assert!(!is_bad || harmless.contains(&word.as_str()), "{role:?}");
            }
            assert!(role.directory(&project).starts_with(&project), "{role:?}");
            let mut steps = role.cwd.iter().flat_map(|cwd| cwd.components());
            assert!(steps.all(|step| step != Component::ParentDir), "{role:?}");
        }
        for problem in &configuration.problems {
            assert!(!problem.to_string().contains(|c: char| c.is_control()), "{problem:?}");
        }
    });
    assert!(n_roles > 100, "the mutations leave nothing to look at: {n_roles}");
}
