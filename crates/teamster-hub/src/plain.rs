//! Texts that programs wrote, for people and other agents.

use teamster_core::text;

use crate::secret;

/// Takes out what is for terminals, and the secrets of our tokens.
pub(crate) fn cleaned(text: &str) -> String {
    secret::redacted(&text::plain(text))
}
