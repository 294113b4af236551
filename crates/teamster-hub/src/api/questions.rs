//! What waits for people: listed, waited for, and answered.

use axum::Router;
use teamster_api::paths::{AnswerQuestion, ListQuestions};
use teamster_api::questions::{self, Choice, Settled};
use teamster_core::question::{self, How, Question};
use teamster_core::topic::Topic;
use teamster_core::{Command, Event};
use teamster_mcp::Hub as _;

use super::Api;
use super::serving::{Answered, ApiRequest, Serve as _, page};
use super::waiting::wait_for;

/// Maximum settled questions that are listed.
const SETTLED_MAX: usize = 100;

pub(super) fn routes() -> Router<Api> {
    Router::new().serve::<ListQuestions, _, _>(list).serve::<AnswerQuestion, _, _>(answer)
}

pub(super) fn shown(question: &Question) -> questions::Question {
    let Question { id, asked, asked_at, settled } = question;
    let choice = |choice: &question::Choice| Choice {
        word: choice.word.to_string(),
        label: choice.label.to_string(),
    };
    questions::Question {
        id: id.to_string(),
        agent: asked.agent.to_string(),
        title: asked.title.to_string(),
        payload: asked.payload.to_string(),
        choices: asked.choices.iter().map(choice).collect(),
        default: asked.default.to_string(),
        deadline: asked.deadline.0,
        asked_at: asked_at.0,
        settled: settled.as_ref().map(|settled| Settled {
            how: match &settled.how {
                How::Answered { word, note } => questions::How::Answered {
                    word: word.to_string(),
                    note: note.as_ref().map(ToString::to_string),
                },
                How::Expired => questions::How::Expired,
                How::Withdrawn => questions::How::Withdrawn,
            },
            by: settled.by.to_string(),
            at: settled.at.0,
        }),
        told: settled.as_ref().map(|settled| settled.how.told(asked)),
    }
}

/// Lists those that are open, oldest first, or those that were settled, newest first.
async fn list(ApiRequest { by, query, .. }: ApiRequest<ListQuestions>) -> Answered<ListQuestions> {
    let api = &by.api;
    let watch = api.hub.watch(&Topic::Questions);
    let newer = watch.until(&api.hub, |state| {
        state.questions.open().any(|question| question.id.0 > query.after).then_some(())
    });
    wait_for(api, query.wait_ms, newer).await;
    let state = api.hub.state();
    let which = (query.limit, query.cursor.as_deref());
    let open = state.questions.open().filter(|_| !query.settled);
    let settled = state.questions.settled().take(SETTLED_MAX).filter(|_| query.settled);
    let all = open.chain(settled);
    page(state.seq(), all, |question| question.id.to_string(), |question| shown(question), which)
}

async fn answer(
    ApiRequest { by, param: which, body, .. }: ApiRequest<AnswerQuestion>,
) -> Answered<AnswerQuestion> {
    let answer = question::Command::Answer { which, word: body.word, note: body.note };
    let done = by.submit(Command::Question(answer)).await?;
    Ok(done.events.iter().find_map(|event| match event {
        Event::Question(question::Event::Settled { id, .. }) => {
            done.state.questions.get(*id).map(|question| shown(question))
        }
        _ => None,
    }))
}
