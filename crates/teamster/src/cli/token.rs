//! `teamster token`: who may call.

use anyhow::{Context, bail};
use teamster_api::paths::{self, ListTokens};
use teamster_api::teams::ListTeams;
use teamster_api::tokens::{NewToken, Token};
use teamster_api::{Client, ListQuery};
use teamster_core::Timestamp;

use super::{connect_to_hub, local_time, print, print_json, say};
use teamster_hub::config::DataFiles;

#[derive(Debug, clap::Args)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Make a token for an agent; its secret is printed once
    Create(CreateArgs),
    /// List the live tokens
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change what a live token allows
    Grant {
        /// The token's id or its agent's name
        which: String,
        /// What it allows from now on
        #[arg(long, required = true, value_delimiter = ',', value_name = "GRANT")]
        grant: Vec<String>,
    },
    /// End a token at once; what its agent had in progress returns to the list
    Revoke {
        /// The token's id or its agent's name
        which: String,
    },
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// What the agent is called [default: agent-<number>]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// The same, as a flag
    #[arg(long = "name", value_name = "NAME", conflicts_with = "name")]
    named: Option<String>,

    /// What it allows: full, read-only, main, self, metrics, a set (`session`) or a tool (`session:task-list`)
    #[arg(long, value_delimiter = ',', value_name = "GRANT", default_value = "full")]
    grant: Vec<String>,

    /// The only run it may use
    #[arg(long)]
    run: Option<String>,

    /// The team it belongs to
    #[arg(long)]
    team: Option<String>,

    /// How long it lives, e.g. 30m, 8h or 7d [default: until it is revoked]
    #[arg(long = "for", value_name = "TIME")]
    lifetime: Option<String>,

    /// End a live token of the same name
    #[arg(long)]
    replace: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(data: &DataFiles, TokenArgs { verb }: TokenArgs) -> anyhow::Result<()> {
    let mut client = connect_to_hub(data).await?;
    match verb {
        Verb::Create(args) => {
            let new = NewToken {
                name: args.name.or(args.named),
                grants: args.grant,
                run: args.run,
                team: args.team.clone(),
                expires_in_s: args.lifetime.as_deref().map(seconds).transpose()?,
                replace: args.replace,
            };
            let made = client.create_token(&new).await?;
            if args.json {
                return print_json(&made);
            }
            print(&made.secret)?;
            let Token { id, name, grants, .. } = &made.token;
            let team = args.team.as_ref().map(|team| format!(", of team {team}"));
            say(&format!(
                "{id} for {name} ({grants}{}); it is shown only now",
                team.unwrap_or_default()
            ));
            if let Some(team) = &args.team {
                warn_if_unknown(&mut client, team).await?;
            }
        }
        Verb::List { json } => {
            let tokens = client.all::<ListTokens, _>(&ListQuery::default()).await?;
            if json {
                return print_json(&tokens);
            }
            print(&table(&tokens))?;
        }
        Verb::Grant { which, grant } => {
            let granted = client.grant_token(path_part(&which)?, &grant).await?;
            say(&format!("{which} now has {}", granted.grants));
        }
        Verb::Revoke { which } => {
            let released = client.revoke_token(path_part(&which)?).await?.released_items;
            let released = if released == 0 {
                String::new()
            } else {
                format!("; {released} item(s) returned to the list")
            };
            say(&format!("{which} is revoked{released}"));
        }
    }
    Ok(())
}

/// A team may be described later than its tokens are made.
pub(super) async fn warn_if_unknown(client: &mut Client, team: &str) -> anyhow::Result<()> {
    let known = client.all::<paths::ListTeams, _>(&ListTeams::default()).await?;
    if known.iter().all(|one| one.name != team) {
        say(&format!(
            "warning: there is no team {team} yet; `teamster team add {team} PATH` adds it"
        ));
    }
    Ok(())
}

fn table(tokens: &[Token]) -> String {
    let rows = tokens.iter().map(|token| {
        let Token { id, name, kind, grants, run, team, created_at, expires_at } = token;
        let mut rest: Vec<String> = Vec::new();
        rest.extend(run.as_ref().map(|run| format!("run {run}")));
        rest.extend(team.as_ref().map(|team| format!("team {team}")));
        rest.extend(expires_at.map(|at| format!("until {}", local_time(Timestamp(at)))));
        let created_at = local_time(Timestamp(*created_at));
        let row =
            format!("{id:<8} {name:<20} {kind:<9} {grants:<20} {created_at} {}", rest.join(", "));
        row.trim_end().to_owned()
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// Makes sure that a name is one part of a path.
fn path_part(name: &str) -> anyhow::Result<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '@' | '.' | '-');
    if name.is_empty() || name.contains("..") || !name.chars().all(plain) {
        bail!("{name:?} is neither a token's id nor a name; `teamster token list` shows them");
    }
    Ok(name)
}

/// Reads a lifetime such as `30m`.
fn seconds(text: &str) -> anyhow::Result<u32> {
    let wrong = || format!("{text:?} is not a time; write a number and s, m, h or d, e.g. 8h");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).with_context(wrong)?;
    let unit: u32 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => bail!(wrong()),
    };
    let number: u32 = number.parse().ok().with_context(wrong)?;
    number
        .checked_mul(unit)
        .with_context(|| format!("{text:?} is too long; leave --for out for a token without end"))
}
