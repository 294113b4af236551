//! `teamster config`: what is configured, where each value comes from, and having the hub read it again.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;

use super::{connect_to_hub, print, print_json, say};
use teamster_api::Client;
use teamster_api::configuration::{ReadAgain, Reading};
use teamster_hub::config::{self, DataFiles};
use teamster_hub::settings::{self, Configuration, Sources};

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
    /// Have the hub read everything again, where it does not notice changes by itself
    Reload {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
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
    let configuration = settings::read(&sources(project, flags));
    for problem in &configuration.problems {
        say(&format!("warning: {problem}"));
    }
    configuration
}

/// Returns where the settings come from that hold in a project's directory with these flags.
pub(super) fn sources(project: PathBuf, flags: Vec<String>) -> Sources {
    Sources {
        // Without a home there is no file of the user's; that is no reason not to work.
        user: config::config_home().ok().map(|home| home.join("teamster")),
        project: Some(project),
        environment: config::setting_variables(),
        flags,
        users_text: None,
    }
}

/// Returns how many readings the hub has told of.
pub(super) async fn readings(client: &mut Client) -> anyhow::Result<u64> {
    Ok(client.show_readings().await?.readings)
}

/// Has the hub read everything again. Returns what came of that, or of what it noticed by itself after so many readings.
pub(super) async fn read_again(client: &mut Client, after: u64) -> anyhow::Result<Reading> {
    client.read_configuration(&ReadAgain { after: Some(after) }).await
}

async fn reload(data: &DataFiles, json: bool) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let after = readings(&mut client).await?;
    let reading = read_again(&mut client, after).await?;
    if json { print_json(&reading) } else { print(&reading.says) }?;
    if reading.used { Ok(()) } else { Err(super::Refused.into()) }
}

pub(super) fn run(data: &DataFiles, ConfigArgs { verb }: ConfigArgs) -> anyhow::Result<()> {
    match verb {
        Verb::Reload { json } => super::wait_for(reload(data, json)),
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
