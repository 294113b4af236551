//! `teamster config`: what is configured, and where each value comes from.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;

use super::{print, say};
use crate::config;
use crate::settings::{self, Configuration, Sources};

#[derive(Debug, clap::Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print every setting and where it comes from
    Show {
        #[command(flatten)]
        settings: SettingsArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a JSON schema of the configuration file
    Schema,
}

/// Which settings a command is about.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SettingsArgs {
    /// The project directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Change a setting, e.g. limits.depth=2; repeat the flag for more
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl SettingsArgs {
    /// Reads the settings and says what is wrong with them.
    pub(super) fn read(&self) -> anyhow::Result<Configuration> {
        let project = match &self.dir {
            Some(dir) => std::path::absolute(dir)?,
            None => std::env::current_dir()
                .context("the current directory is gone; name one with --dir")?,
        };
        Ok(read(project, self.set.clone()))
    }
}

/// Reads the settings that hold in a project's directory with these flags, and says what is wrong with them.
pub(super) fn read(project: PathBuf, flags: Vec<String>) -> Configuration {
    let configuration = settings::read(&Sources {
        // Without a home there is no file of the user's; that is no reason not to work.
        user: config::config_home().ok().map(|home| home.join("teamster")),
        project: Some(project),
        environment: config::setting_variables(),
        flags,
    });
    for problem in &configuration.problems {
        say(&format!("warning: {problem}"));
    }
    configuration
}

pub(super) fn run(ConfigArgs { verb }: ConfigArgs) -> anyhow::Result<()> {
    match verb {
        Verb::Schema => print(&format!("{:#}", settings::schema())),
        Verb::Show { settings, json } => {
            let configuration = settings.read()?;
            let values = configuration.values();
            if json {
                let values = values.iter().map(|shown| {
                    json!({"key": shown.key, "value": shown.value, "from": shown.from.to_string()})
                });
                return print(&json!(values.collect::<Vec<_>>()).to_string());
            }
            let rows: Vec<String> = values
                .iter()
                .map(|shown| {
                    let setting = format!("{} = {}", shown.key, shown.value);
                    format!("{setting}  {}", super::dim(&format!("# {}", shown.from)))
                })
                .collect();
            print(&rows.join("\n"))
        }
    }
}
