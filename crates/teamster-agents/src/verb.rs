//! The hidden verb of our own program that makes it a launcher, and its words.

/// The verb of the command line that is a launcher.
pub const VERB: &str = "launch";
/// The flag for a program that may finish when the hub is gone.
pub(crate) const LINGERS: &str = "--lingers";
/// The part that runs commands for the hub.
pub(crate) const DEPUTY: &str = "deputy";
