//! `teamster roles`: how drafted agents can behave.

use serde_json::json;

use super::config::SettingsArgs;
use super::print;
use teamster_hub::roles::Role;

#[derive(Debug, clap::Args)]
pub(super) struct RolesArgs {
    #[command(flatten)]
    settings: SettingsArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &RolesArgs) -> anyhow::Result<()> {
    let configuration = args.settings.read()?;
    let roles = configuration.roles.iter();
    if args.json {
        let roles: Vec<_> = roles.map(as_json).collect();
        return print(&json!(roles).to_string());
    }
    let head = format!("{:<16} {:<15} {:<17} {:<10} from", "role", "category", "program", "agents");
    print(&[head].into_iter().chain(roles.map(row)).collect::<Vec<_>>().join("\n"))
}

fn as_json(role: &Role) -> serde_json::Value {
    json!({
        "name": role.name, "description": role.description, "category": role.category,
        "program": role.program, "model": role.model, "grants": role.grants(), "limits": role.limits,
        "stall_s": role.stall_s, "cwd": role.cwd, "from": role.from.to_string(),
    })
}

fn row(role: &Role) -> String {
    let program = role.program.as_ref().map_or("any", |program| program.as_str());
    let access = match (&role.tools, role.has_full_access) {
        (Some(_), _) => "as it says",
        (None, true) => "drafts",
        (None, false) => "looks on",
    };
    let name = &role.name;
    let description = if role.description.is_empty() {
        String::new()
    } else {
        format!("\n  {}", role.description)
    };
    format!(
        "{name:<16} {:<15} {program:<17} {access:<10} {}{description}",
        role.category, role.from
    )
}
