//! `teamster mcp`: the hub's tools over stdio, for clients that start their servers themselves.
//!
//! It opens a connection to the running hub, asks to go on as lines, and from then on only copies bytes: what it does
//! not understand it cannot get wrong.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use teamster_core::RunName;
use teamster_mcp::door::lines::AS_HEADER;

use super::{own_team, up};
use teamster_api::{Client, HubFile, read_token};
use teamster_hub::config::{self, DataFiles};

#[derive(Debug, clap::Args)]
pub(super) struct McpArgs {
    /// What the agent is called; a number is added if that name is taken
    #[arg(long, default_value = "stdio")]
    name: String,

    /// The only run it may use [default: any; its tools mean the run `default`]
    #[arg(long)]
    run: Option<String>,

    /// The team it belongs to, or `none` [default: that of the current directory]
    #[arg(long)]
    team: Option<String>,

    /// What it may do: full, read-only, main, self, metrics, a set (`session`) or a tool (`session:task-list`)
    #[arg(long, value_delimiter = ',', value_name = "GRANT", default_value = "full")]
    grant: Vec<String>,

    /// Connect as an agent of the hub, with the address and token in the environment
    #[arg(long, hide = true, conflicts_with_all = ["name", "run", "team", "grant"])]
    pub(super) bridge: bool,
}

/// The longest answer to the request to go on as lines.
const HEAD_BYTES_MAX: usize = 16 * 1024;

pub(super) fn run(data: &DataFiles, mut args: McpArgs) -> anyhow::Result<()> {
    let running = super::wait_for(Client::connect_if_running(data))?.is_some();
    // What a person has connected is also started by agents of the hub that read the same configuration.
    let is_agents =
        config::own_launch().is_some_and(|launch| data.launches().join(launch).exists());
    if is_agents || (!running && (config::own_launch().is_some() || is_hidden(data))) {
        bail!(
            "`teamster mcp` is for programs that you start yourself. A hub started this agent and gave it a connection of \
             its own; the data in {} is hidden from it",
            data.directory().display()
        );
    }
    if !running {
        up::start_in_background(data)?;
    }
    args.team = super::wait_for(async {
        let mut client = Client::connect(data).await?;
        own_team::find(&mut client, args.team.as_deref()).await
    })?;
    let hub = HubFile::read(data)?.context("the hub left no hub.json")?;
    let (from_hub, mut to_hub) = open(&hub)?;
    to_hub.write_all(request(&hub, &args)?.as_bytes())?;
    serve(from_hub, to_hub)
}

/// Says whether the data is where nobody can write, as it is for agents.
fn is_hidden(data: &DataFiles) -> bool {
    let there = data.directory().ancestors().find(|path| path.is_dir());
    there.is_some_and(|path| {
        rustix::fs::statvfs(path)
            .is_ok_and(|about| about.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    })
}

/// Serves an agent whose program takes MCP servers only as commands. The hub that started it gave it the agent's own
/// token; it knows no other, and starts no hub.
pub(super) fn bridge() -> anyhow::Result<()> {
    let (url, token) = config::bridge()?;
    let address = url.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
    let (address, path) = address.with_context(|| format!("{url:?} is not the URL of a hub"))?;
    let (from_hub, mut to_hub) = open_tcp(address)?;
    let request = format!(
        "GET /{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: upgrade\r\n\
         upgrade: mcp\r\n\r\n"
    );
    to_hub.write_all(request.as_bytes())?;
    serve(from_hub, to_hub)
}

/// Copies bytes both ways from where the hub agrees to go on as lines.
fn serve(mut from_hub: Box<dyn Read>, mut to_hub: Writer) -> anyhow::Result<()> {
    read_head(&mut from_hub)?;
    std::thread::spawn(move || {
        // The end of our input is the end of the client: the hub answers what it has and closes.
        let _ = copy_at_once(&mut std::io::stdin().lock(), &mut to_hub);
        let _ = to_hub.end();
    });
    // When the hub closes the connection we are done, whether or not the client has noticed.
    copy_at_once(&mut from_hub, &mut std::io::stdout().lock())?;
    Ok(())
}

/// The writing half of a connection.
enum Writer {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Writer {
    fn end(&self) -> std::io::Result<()> {
        match self {
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
        }
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn open(hub: &HubFile) -> anyhow::Result<(Box<dyn Read>, Writer)> {
    if let Some(socket) = &hub.socket {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("cannot connect to {}", socket.display()))?;
        return Ok((Box::new(stream.try_clone()?), Writer::Unix(stream)));
    }
    open_tcp(hub.url.trim_start_matches("http://"))
}

fn open_tcp(address: &str) -> anyhow::Result<(Box<dyn Read>, Writer)> {
    let stream =
        TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    Ok((Box::new(stream.try_clone()?), Writer::Tcp(stream)))
}

fn request(hub: &HubFile, args: &McpArgs) -> anyhow::Result<String> {
    let path = match &args.run {
        Some(run) => format!("/mcp/session/{}", RunName::parse(run)?),
        None => "/mcp".into(),
    };
    let asked = json!({"name": args.name, "grants": args.grant, "team": args.team}).to_string();
    if !asked.is_ascii() {
        bail!("names and grants are plain letters, digits and a few signs");
    }
    let token = read_token(&hub.token_file)?;
    Ok(format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: upgrade\r\n\
         upgrade: mcp\r\n{AS_HEADER}: {asked}\r\n\r\n"
    ))
}

/// Reads the hub's answer up to where the lines begin, or says why there will be none.
fn read_head(from_hub: &mut dyn Read) -> anyhow::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD_BYTES_MAX || from_hub.read(&mut byte)? == 0 {
            bail!("the hub closed the connection");
        }
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 101 ") {
        return Ok(());
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    let mut body = Vec::new();
    BufReader::new(from_hub).take(length).read_to_end(&mut body)?;
    let message = serde_json::from_slice::<Value>(&body).ok();
    let message = message.as_ref().and_then(|body| body["error"].as_str());
    bail!("{}", message.unwrap_or("the hub did not go on as lines"))
}

/// Copies what comes as it comes; nothing waits for a full buffer.
fn copy_at_once(from: &mut dyn Read, to: &mut dyn Write) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                to.write_all(&buffer[..n])?;
                to.flush()?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
