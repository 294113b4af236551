//! What all seeds share: directories that must exist, and the configuration.

use std::path::PathBuf;

use teamster_hub::config::DataFiles;
use teamster_hub::held::Guarded;
use teamster_hub::settings::{self, Configuration, FILE_NAME, Sources};
use tempfile::TempDir;

/// Small limits, so that all of them are reached.
const CONFIGURATION: &str = r#"
program = "scripted"

[pool]
running = 3
live = 5
park_minutes = 7

[roles.lead]
description = "Drafts others"
prompt = "Lead."
tools = ["agents"]
limits = { depth = 2, children = 2, total = 3, turns = 4, dollars = 0.0006 }
permissions = { ask = ["execute"], ask_minutes = 1 }

[roles.hand]
description = "Works alone"
prompt = "Work."
limits = { depth = 0, turns = 3, dollars = 0.0004 }
permissions = { ask = ["execute"] }

[roles.brief]
description = "Has little time"
prompt = "Hurry."
limits = { depth = 0, wall_minutes = 1 }
permissions = { ask = ["execute"], ask_minutes = 2 }
"#;

/// What nobody writes to.
pub(super) struct Ground {
    place: TempDir,
    data: DataFiles,
    pub(super) guarded: Guarded,
    pub(super) configuration: Configuration,
}

impl Ground {
    pub(super) fn new() -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        for name in ["data", "project", "user"] {
            std::fs::create_dir(place.path().join(name)).expect("a directory can be made");
        }
        let data = DataFiles::of(&place.path().join("data"));
        std::fs::write(data.seal_key(), [7; 32]).expect("a file can be written");
        let guarded = Guarded::new(&data, None, None).expect("the data is there");
        let user = place.path().join("user");
        std::fs::write(user.join(FILE_NAME), CONFIGURATION).expect("a file can be written");
        let configuration = settings::read(&Sources { user: Some(user), ..Sources::default() });
        assert_eq!(configuration.problems, []);
        Self { place, data, guarded, configuration }
    }

    pub(super) fn project(&self) -> PathBuf {
        self.place.path().join("project")
    }

    pub(super) fn data(&self) -> &DataFiles {
        &self.data
    }
}
