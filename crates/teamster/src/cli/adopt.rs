//! `teamster adopt` and `resume`: agents that a person has started, as agents of the hub, and parked ones let go on.

use anyhow::anyhow;
use teamster_api::agents::{Adopt, AdoptedAgent, Agent, Resume};

use super::connect::{self, Http, Server};
use super::{connect_to_hub, print, print_json, say};
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
pub(super) struct AdoptArgs {
    /// The agent program, whose words are used to say how it is connected; without one, the token is printed
    #[arg(value_parser = connect::program_parser())]
    program: Option<&'static connect::Program>,

    /// The role whose tools and limits it gets, and which the hub plays on if it resumes it
    #[arg(long, default_value = "coordinator")]
    role: String,

    /// The program's own name for the conversation, so that the hub can go on with it later
    #[arg(long, value_name = "ID")]
    session: Option<String>,

    /// The dossier it belongs to
    #[arg(long, value_name = "SLUG")]
    dossier: Option<String>,

    /// Where it works [default: the current directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<std::path::PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    /// The agent's id, such as coordinator-3
    id: String,

    /// What an adopted one is told [default: to go on]
    prompt: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn adopt(data: &DataFiles, args: AdoptArgs) -> anyhow::Result<()> {
    let directory = super::agent::directory(args.dir.as_deref())?;
    let mut client = connect_to_hub(data).await?;
    let (role, session, dossier) = (args.role, args.session.clone(), args.dossier);
    let adopted = client.adopt_agent(&Adopt { role, directory, session, dossier }).await?;
    if args.json {
        return print_json(&adopted);
    }
    let AdoptedAgent { agent: Agent { id, .. }, secret } = adopted;
    let http = Http { url: format!("{}/mcp", client.hub.url), secret };
    match args.program {
        // For this project only: what the user has connected elsewhere stays as it is.
        Some(program) => {
            let pasted = program.paste(&Server::Http(http))?;
            print(&pasted.replace("--scope user", "--scope local"))?;
        }
        None => print(&format!("{}\nAuthorization: {}", http.url, http.authorization()))?,
    }
    say(&format!(
        "that connects the agent you run as {id} when it is started again; it holds a secret that is shown only now"
    ));
    match &args.session {
        Some(_) => say(&format!(
            "when you have closed it, `{}` lets the hub go on with it",
            data.call(&format!("resume {id} PROMPT"))
        )),
        None => say("without --session the hub cannot go on with it later"),
    }
    say(&format!("`{}` lets it go", data.call(&format!("kill {id}"))));
    Ok(())
}

pub(super) async fn resume(data: &DataFiles, args: ResumeArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    let agent = client.resume_agent(&args.id, &Resume { prompt: args.prompt }).await;
    let agent =
        agent.map_err(|error| anyhow!("{}", super::agent::in_our_words(&format!("{error:#}"))))?;
    if args.json {
        return print_json(&agent);
    }
    say(&format!("the hub goes on with {}", args.id));
    say(&format!("follow it with `{}`", data.call(&format!("agent show {} --follow", args.id))));
    Ok(())
}
