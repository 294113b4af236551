//! The command line: a file for each verb. Data goes to stdout, everything else to stderr.

mod adopt;
mod agent;
mod allocator;
mod backup;
mod budget;
mod config;
mod connect;
mod demo;
mod doctor;
mod down;
mod export;
mod flags;
mod fork;
mod launch;
mod log;
mod mcp;
mod own_team;
mod program;
mod question;
mod records;
mod roles;
mod run;
mod screen;
mod scripted_agent;
mod status;
mod team;
mod token;
mod tool;
mod top;
mod transcript;
mod trust;
mod up;
mod watch;
mod yak;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use teamster_core::Timestamp;

use teamster_api::Client;
use teamster_hub::clock::{Clock, SystemClock};
use teamster_hub::config::{DataFiles, Place};

/// Drives teams of coding agents, and never loses a fact it has acknowledged
#[derive(Debug, Parser)]
#[command(name = "teamster", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    place: Place,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start the hub
    Up(up::UpArgs),
    /// Stop the hub
    Down,
    /// Show what the hub is doing
    Status(status::StatusArgs),
    /// Watch agents, runs, teams and questions on one screen
    Top(top::TopArgs),
    /// Call a tool as an agent would; without a name, list the tools
    #[command(disable_help_flag = true)]
    Tool(tool::ToolArgs),
    /// Work with the backlog
    Yak(yak::YakArgs),
    /// Start an agent on a task
    Draft(agent::DraftArgs),
    /// Wait until an agent has ended, and show its result
    Await(agent::OneArgs),
    /// End an agent and all that it drafted
    Kill(agent::OneArgs),
    /// List the agents under way
    Agents(agent::AgentsArgs),
    /// Look at one agent
    Agent(agent::AgentArgs),
    /// Work a spec off in iterations
    Run(run::RunArgs),
    /// Watch and steer a run that is under way
    Watch(watch::WatchArgs),
    /// List the runs
    Runs(run::RunsArgs),
    /// Tell, pause or stop a run
    Steer(run::SteerArgs),
    /// List, show, add or change items of a run
    Item(run::ItemArgs),
    /// List, show, add, change or remove notes of a run
    Note(run::NoteArgs),
    /// Print the usual prompt of an iteration
    Template(run::TemplateArgs),
    /// Tell another project's agent something, and print its answer
    Tell(team::TellArgs),
    /// Show the teams that can be told something, and what they do
    Teams(team::TeamsArgs),
    /// Add, remove and list teams
    Team(team::TeamArgs),
    /// Start a team's agent
    Wake(team::WakeArgs),
    /// End the process of a team's agent; its session stays
    Sleep(team::SleepArgs),
    /// Take a message to a team back that is not begun
    Cancel(team::CancelArgs),
    /// Show what was said in a conversation
    Transcript(transcript::TranscriptArgs),
    /// Print the command that opens a copy of a conversation's session in its program's own terminal
    Fork(fork::ForkArgs),
    /// Show what waits for you
    Questions(question::QuestionsArgs),
    /// Answer a question
    Answer(question::AnswerArgs),
    /// Show what agents have used up, and what is left
    Budget(budget::BudgetArgs),
    /// Take in an agent that you have started yourself
    Adopt(adopt::AdoptArgs),
    /// Have the hub go on with an agent that you had started, or that is parked
    Resume(adopt::ResumeArgs),
    /// List the dossiers, or show what came of one
    Dossiers(agent::DossiersArgs),
    /// Show what has happened, oldest first
    Log(log::LogArgs),
    /// Make a copy of everything the hub knows; a running hub is not disturbed
    Backup(backup::BackupArgs),
    /// Take over a backup, in a data directory without a log
    Restore(backup::RestoreArgs),
    /// Write the whole log as lines of JSON; a running hub is not disturbed
    Export(export::ExportArgs),
    /// Make a log of what `export` wrote, in an empty data directory
    Import(export::ImportArgs),
    /// Tell what holds on this machine, and what is only advisory
    Doctor(doctor::DoctorArgs),
    /// Make, list, change and revoke agents' tokens
    Token(token::TokenArgs),
    /// Connect an agent program that is installed here
    Connect(connect::ConnectArgs),
    /// Serve the tools over stdio, for clients that start their servers themselves
    Mcp(mcp::McpArgs),
    /// Show which agent programs can be run here
    Program(program::ProgramArgs),
    /// List the roles that agents can be drafted for
    Roles(roles::RolesArgs),
    /// Show what is configured
    Config(config::ConfigArgs),
    /// Look at the hooks of a project's file, and let runs run them
    Trust(trust::TrustArgs),
    /// Trust a project's hooks no longer
    Untrust(trust::UntrustArgs),
    /// How the hub starts agents; not for people
    #[command(hide = true)]
    Launch(launch::LaunchArgs),
    /// Speak ACP over stdin and stdout, and play the scripts that are in prompts
    #[command(hide = true)]
    ScriptedAgent,
}

/// A tool refused: its sentence has been shown, and there is nothing to add but the exit code.
#[derive(Debug, thiserror::Error)]
#[error("refused")]
struct Refused;

/// Something ended in another way than it should; all has been said, and scripts have the code.
#[derive(Debug, thiserror::Error)]
#[error("ended with {0}")]
struct Ended(u8);

/// Runs the program.
pub fn main() -> ExitCode {
    let Cli { place, verb } = Cli::parse();
    let outcome = match verb {
        // It has no data directory, and must not have threads.
        Verb::Launch(args) => launch::run(args),
        // An agent is not for any workspace; its home may have none.
        Verb::ScriptedAgent => scripted_agent::run(),
        Verb::Mcp(args) if args.bridge => mcp::bridge(),
        verb => place.data_files().and_then(|data| run(verb, data)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Refused>() => ExitCode::FAILURE,
        Err(error) if error.is::<Ended>() => {
            error.downcast::<Ended>().map_or(ExitCode::FAILURE, |Ended(code)| code.into())
        }
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {}", flags::in_flags(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb, data: DataFiles) -> anyhow::Result<()> {
    match verb {
        Verb::Up(args) => up::run(data, args),
        Verb::Down => wait_for(down::run(&data)),
        Verb::Status(args) => wait_for(status::run(&data, args)),
        Verb::Top(args) => wait_for(top::run(&data, args)),
        Verb::Tool(args) => wait_for(tool::run(&data, args)),
        Verb::Yak(args) => wait_for(yak::run(&data, args)),
        Verb::Draft(args) => wait_for(agent::draft(&data, args)),
        Verb::Await(args) => wait_for(agent::wait(&data, args)),
        Verb::Kill(args) => wait_for(agent::kill(&data, args)),
        Verb::Agents(args) => wait_for(agent::list(&data, args)),
        Verb::Agent(args) => wait_for(agent::agent(&data, args)),
        Verb::Tell(args) => wait_for(team::tell(&data, args)),
        Verb::Team(args) => wait_for(team::team(&data, args)),
        Verb::Teams(args) => wait_for(team::teams(&data, args)),
        Verb::Wake(args) => wait_for(team::wake(&data, args)),
        Verb::Sleep(args) => wait_for(team::sleep(&data, args)),
        Verb::Run(args) => run::run(&data, args),
        Verb::Watch(args) => wait_for(watch::run(&data, args)),
        Verb::Runs(args) => wait_for(run::list(&data, args)),
        Verb::Steer(args) => wait_for(run::steer(&data, args)),
        Verb::Item(args) => wait_for(run::item(&data, args)),
        Verb::Note(args) => wait_for(run::note(&data, args)),
        Verb::Template(args) => run::template(&args),
        Verb::Cancel(args) => wait_for(team::cancel(&data, args)),
        Verb::Transcript(args) => wait_for(transcript::run(&data, args)),
        Verb::Fork(args) => fork::run(&data, args),
        Verb::Questions(args) => wait_for(question::list(&data, args)),
        Verb::Answer(args) => wait_for(question::answer(&data, args)),
        Verb::Budget(args) => wait_for(budget::run(&data, args)),
        Verb::Adopt(args) => wait_for(adopt::adopt(&data, args)),
        Verb::Resume(args) => wait_for(adopt::resume(&data, args)),
        Verb::Dossiers(args) => wait_for(agent::dossiers(&data, args)),
        Verb::Log(args) => wait_for(log::run(&data, args)),
        Verb::Backup(args) => wait_for(backup::backup(&data, args)),
        Verb::Restore(args) => wait_for(backup::restore(&data, args)),
        Verb::Doctor(args) => wait_for(doctor::run(&data, args)),
        Verb::Export(args) => wait_for(export::export(&data, args)),
        Verb::Import(args) => wait_for(export::import(&data, args)),
        Verb::Token(args) => wait_for(token::run(&data, args)),
        Verb::Connect(args) => wait_for(connect::run(&data, args)),
        Verb::Mcp(args) => mcp::run(&data, args),
        Verb::Program(args) => wait_for(program::run(args)),
        Verb::Roles(args) => roles::run(&args),
        Verb::Config(args) => config::run(&data, args),
        Verb::Trust(args) => trust::trust(&data, args),
        Verb::Untrust(args) => trust::untrust(&data, args),
        Verb::Launch(args) => launch::run(args),
        Verb::ScriptedAgent => scripted_agent::run(),
    }
}

/// Returns the whole command line as clap sees it, for the tests that keep an eye on it.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs what waits only for the hub: one thread is enough.
fn wait_for<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(command);
    // What is given up may wait in a thread of its own, such as for a hub's end; whoever leaves does not.
    runtime.shutdown_background();
    done
}

/// Connects to the hub and mentions it if the hub is of another version.
async fn connect_to_hub(data: &DataFiles) -> anyhow::Result<Client> {
    let client = Client::connect(data).await?;
    if let Some(difference) = client.version_difference() {
        say(&format!("warning: {difference}"));
    }
    Ok(client)
}

/// Tells the person something, on stderr.
pub(crate) fn say(text: &str) {
    // If stderr is closed, there is nobody to tell.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints data, on stdout.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()?;
    Ok(())
}

/// Prints data as JSON, on one line.
fn print_json(data: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string(data)?)
}

/// Prints a piece of data, without ending its line.
fn put(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// Says every second how far something is that takes long.
struct Progress {
    what: &'static str,
    said_at: Timestamp,
}

impl Progress {
    fn new(what: &'static str) -> Self {
        Self { what, said_at: SystemClock.now() }
    }

    fn say(&mut self, done: u64, all: u64) {
        let now = SystemClock.now();
        if now.0 - self.said_at.0 >= 1_000 {
            self.said_at = now;
            say(&format!("{}: {done} of {all} commits", self.what));
        }
    }
}

/// A reader that has seen enough, such as `head`, is not a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Puts colour around text, if people will see it.
fn dim(text: &str) -> String {
    if std::io::stdout().is_terminal() && teamster_hub::config::terminal_can_move() {
        format!("\x1b[2m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Cuts the lines of a table that are wider than the terminal, if people will see it there.
fn fitted(table: &str) -> String {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
    match size.map(|size| usize::from(size.ws_col)) {
        Some(width @ 1..) => cut(table, width),
        Some(0) | None => table.to_owned(),
    }
}

fn cut(table: &str, width: usize) -> String {
    let cut = |line: &str| match line.chars().count() {
        n_chars if n_chars <= width => line.to_owned(),
        _ => line.chars().take(width - 1).chain(['…']).collect(),
    };
    table.lines().map(cut).collect::<Vec<_>>().join("\n")
}

/// Shows a time as the person's clock shows it.
fn local_time(at: Timestamp) -> String {
    let shown = jiff::Timestamp::from_millisecond(at.0).map(|at| {
        at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
    });
    shown.unwrap_or_else(|_| at.0.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_cut_where_the_terminal_ends() {
        assert_eq!(cut("id   dossier\nä-1  long-name\n", 12), "id   dossier\nä-1  long-n…");
        assert_eq!(cut("id", 1), "…");
    }
}
