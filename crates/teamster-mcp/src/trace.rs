//! The trace that a call is part of.

/// The trace that a call belongs to, as its caller said it in `_meta`: W3C's `traceparent` and `tracestate`. Whether they
/// make sense is for whoever uses them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    pub parent: Option<String>,
    pub state: Option<String>,
}

impl Trace {
    /// As long as W3C asks everybody to pass on; what is longer is left out.
    const BYTES_MAX: usize = 512;

    /// Takes a trace out of a request's `_meta`.
    pub(crate) fn of<'a>(meta: impl Fn(&str) -> Option<&'a serde_json::Value>) -> Self {
        let text = |name| {
            let text = meta(name)?.as_str()?;
            (text.len() <= Self::BYTES_MAX).then(|| text.to_owned())
        };
        let parent = text("traceparent");
        let state = if parent.is_some() { text("tracestate") } else { None };
        Self { parent, state }
    }
}
