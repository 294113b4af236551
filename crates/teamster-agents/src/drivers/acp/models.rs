//! Which model a session uses, and how it is changed: as an option of the session, or in the older way that Gemini has.

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, SessionConfigKind, SessionConfigOption, SessionConfigOptionCategory,
    SessionConfigSelectOptions,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::agent::{ID_BYTES_MAX, MODELS_MAX};

const SET_MODEL: &str = "session/set_model";

/// The models that a session offers.
#[derive(Debug, Default)]
pub(super) struct Models {
    pub(super) current: Option<String>,
    pub(super) offered: Vec<String>,
    /// The option of the session that chooses the model, if that is the way.
    option: Option<String>,
}

impl Models {
    /// Reads the answer that opened a session. What is wrong in it offers nothing.
    pub(super) fn offered(result: &str) -> Self {
        let result: Value = serde_json::from_str(result).unwrap_or_default();
        let options = result.get("configOptions").and_then(Value::as_array).into_iter().flatten();
        let mut options =
            options.filter_map(|option| SessionConfigOption::deserialize(option).ok());
        let mut models = options
            .find_map(Self::from_option)
            .or_else(|| Self::from_models(&result))
            .unwrap_or_default();
        models.offered.retain(|model| model.len() <= ID_BYTES_MAX);
        models.offered.truncate(MODELS_MAX);
        models.current = models.current.filter(|model| model.len() <= ID_BYTES_MAX);
        models
    }

    fn from_option(option: SessionConfigOption) -> Option<Self> {
        let is_model = option.category == Some(SessionConfigOptionCategory::Model)
            || option.id.0.as_ref() == "model";
        let SessionConfigKind::Select(select) = option.kind else {
            return None;
        };
        let choices = match select.options {
            SessionConfigSelectOptions::Ungrouped(choices) => choices,
            SessionConfigSelectOptions::Grouped(groups) => {
                groups.into_iter().flat_map(|group| group.options).collect()
            }
            _ => Vec::new(),
        };
        is_model.then(|| Self {
            current: Some(select.current_value.0.to_string()),
            offered: choices.into_iter().map(|choice| choice.value.0.to_string()).collect(),
            option: Some(option.id.0.to_string()),
        })
    }

    fn from_models(result: &Value) -> Option<Self> {
        let models = result.get("models")?;
        let ids = models.get("availableModels")?.as_array()?.iter();
        let ids = ids.filter_map(|model| model.get("modelId")?.as_str().map(str::to_owned));
        let current = models.get("currentModelId").and_then(Value::as_str).map(str::to_owned);
        Some(Self { current, offered: ids.collect(), option: None })
    }

    pub(super) fn is_other(&self, model: &str) -> bool {
        self.current.as_deref() != Some(model)
    }

    /// Returns the request that chooses `model`, if it is offered.
    pub(super) fn choose(&self, session: &str, model: &str) -> Option<(&'static str, Value)> {
        self.offered.iter().any(|offered| offered == model).then(|| match &self.option {
            Some(option) => {
                let params = json!({"sessionId": session, "configId": option, "value": model});
                (AGENT_METHOD_NAMES.session_set_config_option, params)
            }
            None => (SET_MODEL, json!({"sessionId": session, "modelId": model})),
        })
    }
}
