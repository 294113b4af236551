//! The table of paths. Routes, client and documents are generated from it.

use crate::endpoint::{Endpoint, Method, Nothing, Row};
use crate::page::{ListQuery, Page};
use crate::{
    Client, agents, configuration, conversations, hub, log, questions, runs, teams, tells, tokens,
    top, yaks,
};

macro_rules! or_nothing {
    () => {
        Nothing
    };
    ($given:ty) => {
        $given
    };
}

macro_rules! or_empty {
    () => {
        &Nothing {}
    };
    ($given:expr, $type:ty) => {
        $given
    };
}

macro_rules! or_blank {
    () => {
        ""
    };
    ($given:expr) => {
        $given
    };
}

macro_rules! optional {
    () => {
        None
    };
    ($given:expr) => {
        Some($given)
    };
}

macro_rules! schema {
    ($type:ty) => {
        |generator| generator.subschema_for::<$type>()
    };
}

/// A row: the endpoint's name, the client's method, the HTTP method, the path, its parameter in brackets, and types.
macro_rules! paths {
    ($( $noun:literal: { $(
        #[doc = $doc:literal]
        $name:ident $call:ident: $method:ident $path:literal $([$param:ident])?,
            $(query $query:ty,)? $(body $body:ty,)? answers $answer:ty;
    )* } )*) => {
        $($(
            #[doc = $doc]
            #[derive(Debug, Clone, Copy)]
            pub struct $name;

            impl Endpoint for $name {
                const METHOD: Method = Method::$method;
                const PATH: &'static str = $path;
                const HAS_BODY: bool = paths!(@is $($body)?);
                type Query = or_nothing!($($query)?);
                type Body = or_nothing!($($body)?);
                type Answer = $answer;
            }
        )*)*

        impl Client {
            $($(
                #[doc = $doc]
                pub async fn $call(&mut self $(, $param: &str)? $(, query: &$query)? $(, body: &$body)?) -> anyhow::Result<$answer> {
                    self.send::<$name>(
                        or_blank!($($param)?),
                        or_empty!($(query, $query)?),
                        or_empty!($(body, $body)?),
                    ).await
                }
            )*)*
        }

        /// All rows, by noun.
        pub const ALL: &[Row] = &[$($(
            Row {
                noun: $noun,
                name: stringify!($call),
                method: Method::$method,
                path: $path,
                says: $doc,
                param: optional!($(stringify!($param))?),
                query: optional!($(schema!($query))?),
                body: optional!($(schema!($body))?),
                answer: schema!($answer),
            },
        )*)*];
    };
    (@is) => { false };
    (@is $given:ty) => { true };
}

paths! {
    "Hub": {
        /// Shows the state of the hub at a glance.
        ShowStatus show_status: Get "/api/status", answers hub::Status;
        /// Shows agents, runs, teams and open questions in one answer.
        ShowTop show_top: Get "/api/top", query top::ShowTop, answers top::Top;
        /// Shows how agents are isolated on this machine.
        ShowIsolation show_isolation: Get "/api/isolation", answers hub::IsolationReport;
        /// Stops the hub.
        StopHub stop_hub: Post "/api/stop", answers hub::Stopping;
    }
    "Configuration": {
        /// Shows how often the configuration was read with a result.
        ShowReadings show_readings: Get "/api/configuration", answers configuration::Readings;
        /// Reads the configuration again.
        ReadConfiguration read_configuration: Post "/api/configuration", query configuration::ReadAgain, answers configuration::Reading;
    }
    "Runs": {
        /// Lists the runs: under way first, then ended, then shared ones; newest first.
        ListRuns list_runs: Get "/api/runs", query ListQuery, answers Page<runs::ListedRun>;
        /// Begins a run, or resumes one.
        BeginRun begin_run: Post "/api/runs", body runs::Begin, answers runs::BegunRun;
        /// Shows a run with its items, notes and iterations.
        ShowRun show_run: Get "/api/runs/{name}" [name], query runs::ShowRun, answers runs::ShownRun;
        /// Tells a run something, pauses, continues or stops it.
        SteerRun steer_run: Post "/api/runs/{name}/steer" [name], body runs::Steer, answers runs::RunLine;
        /// Removes a run with its branches, refs and worktrees. The log keeps its history.
        ForgetRun forget_run: Post "/api/runs/{name}/forget" [name], body runs::Forget, answers runs::ForgottenRun;
        /// Adds or changes an item of a run.
        EditItem edit_item: Post "/api/runs/{name}/items" [name], body runs::EditItem, answers runs::Run;
        /// Adds, changes or removes a note of a run.
        EditNote edit_note: Post "/api/runs/{name}/notes" [name], body runs::EditNote, answers runs::Run;
    }
    "Agents": {
        /// Lists the agents: under way, queued, the newest 100 asleep, and the newest 100 that ended.
        ListAgents list_agents: Get "/api/agents", query ListQuery, answers Page<agents::Agent>;
        /// Drafts an agent: it starts when there is room.
        DraftAgent draft_agent: Post "/api/agents", body agents::Draft, answers agents::DraftedAgent;
        /// Adopts an agent that a person runs. The answer has the secret of its token.
        AdoptAgent adopt_agent: Post "/api/agents/adopt", body agents::Adopt, answers agents::AdoptedAgent;
        /// Shows an agent with its task and its calls.
        ShowAgent show_agent: Get "/api/agents/{id}" [id], answers agents::AgentDetails;
        /// Resumes a parked or an adopted agent.
        ResumeAgent resume_agent: Post "/api/agents/{id}/resume" [id], body agents::Resume, answers Option<agents::Agent>;
        /// Reads the transcript of an agent.
        ReadTranscript read_transcript: Get "/api/agents/{id}/transcript" [id], query agents::ReadTranscript, answers agents::Transcript;
    }
    "Teams": {
        /// Lists the teams with their conversations.
        ListTeams list_teams: Get "/api/teams", query teams::ListTeams, answers Page<teams::Team>;
        /// Removes a team that exists only because a hub was started in its directory.
        RemoveTeam remove_team: Post "/api/teams/{name}/remove" [name], answers teams::RemovedTeam;
        /// Finds the conversation of two.
        FindConversation find_conversation: Get "/api/conversations", query conversations::FindConversation, answers conversations::Conversation;
        /// Shows a conversation.
        ShowConversation show_conversation: Get "/api/conversations/{id}" [id], answers conversations::Conversation;
        /// Sends a message to a team.
        TellTeam tell_team: Post "/api/tells", body tells::NewTell, answers tells::Told;
        /// Shows a message and its answer.
        ShowTell show_tell: Get "/api/tells/{id}" [id], query tells::ShowTell, answers tells::Tell;
        /// Cancels a message that is queued.
        CancelTell cancel_tell: Post "/api/tells/{id}/cancel" [id], answers tells::CancelledTell;
    }
    "Questions": {
        /// Lists the open or the settled questions.
        ListQuestions list_questions: Get "/api/questions", query questions::ListQuestions, answers Page<questions::Question>;
        /// Answers a question.
        AnswerQuestion answer_question: Post "/api/questions/{id}/answer" [id], body questions::Answer, answers Option<questions::Question>;
    }
    "Yaks": {
        /// Lists the backlog by rank.
        ListYaks list_yaks: Get "/api/yaks", query ListQuery, answers Page<yaks::Yak>;
        /// Adds and removes labels of a yak.
        LabelYak label_yak: Post "/api/yaks/{id}/labels" [id], body yaks::Label, answers yaks::Labelled;
        /// Exports the backlog, whole.
        ExportYaks export_yaks: Get "/api/yaks/export", query ListQuery, answers yaks::ExportPage;
        /// Imports yaks with ids of their own.
        ImportYaks import_yaks: Post "/api/yaks/import", body yaks::ToImport, answers yaks::Report;
    }
    "Tokens": {
        /// Lists the live tokens, oldest first.
        ListTokens list_tokens: Get "/api/tokens", query ListQuery, answers Page<tokens::Token>;
        /// Creates a token for an agent. The answer has its secret, which is shown only once.
        CreateToken create_token: Post "/api/tokens", body tokens::NewToken, answers tokens::CreatedToken;
        /// Replaces the grants of a live token.
        GrantToken grant_token: Post "/api/tokens/{which}/grants" [which], body Vec<String>, answers tokens::Granted;
        /// Revokes a token. The items that its agent had in progress return to the list.
        RevokeToken revoke_token: Delete "/api/tokens/{which}" [which], answers tokens::Revoked;
    }
    "Log": {
        /// Reads the log.
        ReadLog read_log: Get "/api/log", query log::ReadLog, answers log::LogPage;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_one_step_of_a_path() {
        assert_eq!(GrantToken::path("ann"), "/api/tokens/ann/grants");
        assert_eq!(RevokeToken::path("../x y"), "/api/tokens/%2E%2E%2Fx%20y");
        assert_eq!(ListTokens::path(""), "/api/tokens");
    }

    #[test]
    fn every_row_has_a_method_and_path_of_its_own_and_names_its_parameter() {
        let mut seen = std::collections::BTreeSet::new();
        for row in ALL {
            assert!(
                seen.insert((row.method.as_str(), row.path)),
                "{} {}",
                row.method.as_str(),
                row.path
            );
            let named = row.path.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
            assert_eq!(named.map(|(name, _)| name), row.param, "{}", row.path);
            assert!(row.says.trim().ends_with('.'), "{}", row.says);
        }
    }
}
