//! Failures of the API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What kind of failure it is, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request is not JSON, or its query or path cannot be read.
    Malformed,
    /// A field is missing or unknown, or has a value that it cannot have.
    Invalid,
    /// The token is missing or unknown.
    Unauthorized,
    /// The token does not allow this.
    Forbidden,
    /// There is nothing of that name, or no such path.
    NotFound,
    /// The path does not answer this method.
    MethodNotAllowed,
    /// The request is well-formed, and the hub's state does not allow it.
    Refused,
    /// The request was carried out, and its result is no longer there.
    Gone,
    /// The request's body is too large.
    TooLarge,
    /// The body is not `application/json`.
    UnsupportedMediaType,
    /// The hub has a fault; its log has more.
    Internal,
    /// The hub cannot answer now, and did nothing.
    Unavailable,
    /// The hub cannot tell whether the request was carried out. Repeat it with the same key.
    UnknownOutcome,
    /// A code of a newer hub.
    #[default]
    #[serde(other)]
    Other,
}

impl Code {
    /// Returns the HTTP status that an answer with this code has.
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Invalid => 422,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Refused => 409,
            Self::Gone => 410,
            Self::TooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Internal | Self::Other => 500,
            Self::Unavailable | Self::UnknownOutcome => 503,
        }
    }

    /// Returns the code of an answer that has only a status.
    pub const fn of_status(status: u16) -> Self {
        match status {
            400 => Self::Malformed,
            422 => Self::Invalid,
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            405 => Self::MethodNotAllowed,
            409 => Self::Refused,
            410 => Self::Gone,
            413 => Self::TooLarge,
            415 => Self::UnsupportedMediaType,
            503 => Self::Unavailable,
            500 => Self::Internal,
            _ => Self::Other,
        }
    }
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApiError {
    pub code: Code,
    /// What went wrong, and where it fits in one sentence, what to do about it.
    pub message: String,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The fields of the request that this is about. The sentences have them in backquotes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// The body of an answer that reports a failure.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    pub error: ApiError,
}

impl ApiError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), ..Self::default() }
    }

    /// A value of the request cannot be.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::Invalid, message)
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        let field = field.into();
        if !self.fields.contains(&field) {
            self.fields.push(field);
        }
        self
    }

    /// Returns a text that has this error's sentences, with its fields in the reader's words, such as flags.
    pub fn in_words_of(&self, text: &str, word: impl Fn(&str) -> String) -> String {
        self.fields
            .iter()
            .fold(text.to_owned(), |text, field| text.replace(&format!("`{field}`"), &word(field)))
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ApiError {}

/// Why a request has no answer: the hub is gone, or goes. What was sent may or may not have been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("the hub has ended")]
    Ended,
    #[error("the hub closed the connection")]
    Closed,
    #[error("the hub's answer was cut off")]
    CutOff,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fields_of_an_error_become_flags() {
        let error = ApiError::new(
            Code::Refused,
            "ann has a token; choose another `name`, or `replace` it; `run` stays",
        )
        .with_field("name")
        .with_field("replace");
        let text = error.in_words_of(&format!("error: {error}"), |field| format!("--{field}"));
        assert_eq!(
            text,
            "error: ann has a token; choose another --name, or --replace it; `run` stays"
        );
    }

    #[test]
    fn an_unknown_code_of_a_newer_hub_is_read() {
        let body: ErrorBody =
            serde_json::from_str(r#"{"error":{"code":"asleep","message":"no"}}"#).unwrap();
        assert_eq!(body.error, ApiError::new(Code::Other, "no"));
    }
}
