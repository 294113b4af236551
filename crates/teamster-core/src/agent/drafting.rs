//! How agents come to be: drafted by somebody, taken in from a person, convened for a team, or engaged for a run.

use std::sync::Arc;

use super::{
    Adoption, AgentId, Agents, CLIENT_CHILDREN_MAX, DIRECTORY_BYTES_MAX, Draft, Event, LIVE_MAX,
    NewAgent, PROMPT_BYTES_MAX, Phase, Refusal,
};
use crate::ids::TokenId;
use crate::role::{Limits, Role, RoleName, Roles};
use crate::{Context, DossierName, PrincipalName, RunName, text};

impl Agents {
    /// Returns the agent that a draft comes to.
    pub(crate) fn draft(
        &self,
        new: &NewAgent,
        roles: &Roles,
        new_dossier: impl FnOnce(&str) -> Result<DossierName, Refusal>,
        is_taken: impl Fn(&PrincipalName) -> bool,
        within: Option<RunName>,
        cx: &Context,
    ) -> Result<Event, Refusal> {
        let role = known(roles, &new.role)?;
        if role.program.is_empty() {
            return Err(Refusal::NoProgram(role.name.clone()));
        }
        let prompt = text::long("prompt", &new.prompt, PROMPT_BYTES_MAX)?;
        if self.n_live() >= LIVE_MAX {
            return Err(Refusal::TooMany);
        }
        let parent = self.of_caller(&cx.caller);
        if parent.is_some_and(|parent| !matches!(parent.phase, Phase::Running | Phase::Adopted)) {
            return Err(Refusal::BeingEnded);
        }
        let asked = new.limits.over(role.limits);
        let may_exceed = cx.caller.kind.may_operate();
        let mut limits = if may_exceed { asked } else { asked.within(role.limits) };
        if let Some(parent) = parent {
            limits = limits.within(self.left(parent, cx.now)?);
        } else if !cx.caller.kind.may_operate() {
            let n = self.drafted_by.get(&cx.caller.principal).copied().unwrap_or_default();
            if n >= CLIENT_CHILDREN_MAX {
                let (who, limit) = (cx.caller.principal.to_string(), CLIENT_CHILDREN_MAX);
                return Err(Refusal::TooManyChildren { who, limit });
            }
        }
        let dossier = match (&new.dossier, parent) {
            (Some(name), _) => DossierName::parse(name)?,
            (None, Some(parent)) => parent.draft.dossier.clone(),
            (None, None) => new_dossier(&prompt)?,
        };
        let inherited = parent.map(|parent| parent.draft.directory.as_ref());
        let directory = new.directory.as_deref().or(role.directory.as_deref()).or(inherited);
        let directory = directory.unwrap_or(&new.default_directory);
        // What is inherited was good enough for the parent, who may be on another machine.
        let is_inherited = inherited == Some(directory);
        if !(directory.starts_with('/') || is_inherited) || directory.len() > DIRECTORY_BYTES_MAX {
            return Err(Refusal::Directory(directory.chars().take(200).collect()));
        }
        let (id, number) = self.new_id(&role.name, is_taken);
        let draft = Draft {
            role: role.name.clone(),
            dossier,
            prompt,
            directory: directory.into(),
            parent: parent.map(|parent| parent.id.clone()),
            depth: parent.map_or(0, |parent| parent.draft.depth + 1),
            limits,
            team: None,
            run: None,
            within,
        };
        Ok(Event::Drafted { id, number, draft })
    }

    /// Returns the agent that an adoption comes to; its token will be `token`.
    pub(crate) fn adopt(
        &self,
        adoption: &Adoption,
        roles: &Roles,
        new_dossier: impl FnOnce(&str) -> Result<DossierName, Refusal>,
        is_taken: impl Fn(&PrincipalName) -> bool,
        token: TokenId,
        cx: &Context,
    ) -> Result<Event, Refusal> {
        if !cx.caller.kind.is_operator() {
            return Err(Refusal::OperatorsOnly);
        }
        let role = known(roles, &adoption.role)?;
        if self.n_live() >= LIVE_MAX {
            return Err(Refusal::TooMany);
        }
        let directory = &adoption.directory;
        if !directory.starts_with('/') || directory.len() > DIRECTORY_BYTES_MAX {
            return Err(Refusal::Directory(directory.chars().take(200).collect()));
        }
        let session = adoption.session.as_deref();
        let session = session.map(|session| text::line("session", session, 256)).transpose()?;
        let dossier = match &adoption.dossier {
            Some(name) => DossierName::parse(name)?,
            None => new_dossier("adopted")?,
        };
        let (id, number) = self.new_id(&role.name, is_taken);
        let draft = Draft {
            role: role.name.clone(),
            dossier,
            prompt: "(a person runs it)".into(),
            directory: directory.as_str().into(),
            parent: None,
            depth: 0,
            limits: role.limits,
            team: None,
            run: None,
            within: None,
        };
        Ok(Event::Adopted { id, number, draft, token, session })
    }

    /// Returns an agent that speaks for a team, which lasts as long as its conversation.
    pub(crate) fn convene(
        &self,
        team: &crate::team::Team,
        directory: Arc<str>,
        is_taken: impl Fn(&PrincipalName) -> bool,
    ) -> Event {
        let role = RoleName::of_team(&team.name);
        let (id, number) = self.new_id(&role, is_taken);
        let draft = Draft {
            role,
            dossier: DossierName::new("conversations".to_owned()),
            prompt: "".into(),
            directory,
            parent: None,
            depth: 0,
            // Its turns and its time are those of its conversation, which has no end.
            limits: Limits { turns: u32::MAX, wall_ms: u64::MAX, ..team.behaviour.limits },
            team: Some(team.name.clone()),
            run: None,
            within: None,
        };
        Event::Convened { id, number, draft }
    }

    /// Returns the agent of an iteration of a run.
    pub(crate) fn engage(
        &self,
        run: &RunName,
        terms: &crate::drive::Terms,
        directory: Arc<str>,
        prompt: Arc<str>,
        microdollars: Option<u64>,
        is_taken: impl Fn(&PrincipalName) -> bool,
    ) -> Event {
        let role = terms.behaviour.name.clone();
        let (id, number) = self.new_id(&role, is_taken);
        let limits = terms.behaviour.limits;
        let money = Limits { microdollars, ..limits };
        let draft = Draft {
            role,
            dossier: DossierName::new(format!("run-{run}")),
            prompt,
            directory,
            parent: None,
            depth: 0,
            limits: limits.within(money),
            team: None,
            run: Some(run.clone()),
            within: None,
        };
        Event::Drafted { id, number, draft }
    }

    fn new_id(&self, role: &RoleName, is_taken: impl Fn(&PrincipalName) -> bool) -> (AgentId, u32) {
        let mut ids =
            (self.last + 1..).map(|number| (AgentId(format!("{role}-{number}").into()), number));
        ids.find(|(id, _)| !is_taken(&id.principal()))
            .unwrap_or_else(|| unreachable!("there are fewer tokens than numbers"))
    }
}

/// Returns the role of a name, if there is one.
fn known<'a>(roles: &'a Roles, name: &str) -> Result<&'a Arc<Role>, Refusal> {
    roles.get(name).ok_or_else(|| {
        let names: Vec<&str> = roles.iter().map(|role| role.name.as_str()).collect();
        let role = name.chars().take(80).collect();
        Refusal::UnknownRole { role, available: names.join(", ") }
    })
}
