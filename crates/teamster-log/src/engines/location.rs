//! Where a log is: a plain directory, or a URL that names the engine and has options, such as
//! `sqlite:///var/lib/teamster?network=accept`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;

use super::{ENGINES, Options};

/// The place of a log, and how to open it.
#[derive(Debug, Clone)]
pub struct Location {
    /// The engine that the directory must have, if the place names one.
    pub(super) engine: Option<&'static str>,
    pub(super) directory: PathBuf,
    pub(super) options: Options,
}

/// Why a text is no [`Location`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLocation {
    #[error("there is no engine {0:?} for a log; known: {known}", known = known())]
    Engine(String),
    #[error("{0:?} does not name a directory; write it in full, as in sqlite:///var/lib/teamster")]
    Directory(String),
    #[error("a log has no option {0:?}; known: network=accept, network=refuse")]
    Option(String),
}

fn known() -> String {
    ENGINES.iter().map(|engine| engine.name).collect::<Vec<_>>().join(", ")
}

impl Location {
    /// The log in a directory, whatever its engine is.
    pub fn of(directory: &Path) -> Self {
        Self { engine: None, directory: directory.to_owned(), options: Options::default() }
    }

    /// Reads a URL. Returns none if the text is a plain path.
    pub fn parse(text: &str) -> Result<Option<Self>, BadLocation> {
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(None) };
        let engine = ENGINES.iter().find(|engine| engine.name == scheme);
        let engine = engine.ok_or_else(|| BadLocation::Engine(scheme.to_owned()))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = PathBuf::from(OsString::from_vec(percent_decode_str(path).collect()));
        // What stands before the path would be a host.
        if !path.is_absolute() {
            return Err(BadLocation::Directory(text.to_owned()));
        }
        let mut options = Options::default();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            options.accept_network_file_system = match option {
                "network=accept" => true,
                "network=refuse" => false,
                other => return Err(BadLocation::Option(other.to_owned())),
            };
        }
        Ok(Some(Self { engine: Some(engine.name), directory: path, options }))
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_path_or_a_url_whose_every_part_is_known() {
        let read = |text: &str| {
            let read = Location::parse(text).map_err(|error| error.to_string())?;
            Ok::<_, String>(read.map(|read| {
                let directory = read.directory.to_string_lossy().into_owned();
                (read.engine, directory, read.options.accept_network_file_system)
            }))
        };
        let at =
            |directory: &str, network| Ok(Some((Some("sqlite"), directory.to_owned(), network)));
        for path in ["/var/lib/teamster", "relative", "a:b", "/odd?network=accept"] {
            assert_eq!(read(path), Ok(None), "{path}");
        }
        assert_eq!(read("sqlite:///a/b"), at("/a/b", false));
        assert_eq!(read("sqlite:///a%20b/%3F?network=accept"), at("/a b/?", true));
        assert_eq!(read("sqlite:///a?network=accept&network=refuse"), at("/a", false));
        for (bad, says) in [
            ("nats://a/b", "there is no engine \"nats\" for a log; known: sqlite"),
            ("sqlite://host/a", "\"sqlite://host/a\" does not name a directory"),
            ("sqlite://", "\"sqlite://\" does not name a directory"),
            ("sqlite:///a?network", "a log has no option \"network\""),
            ("sqlite:///a?synchronous=off", "a log has no option \"synchronous=off\""),
        ] {
            let refused = read(bad).unwrap_err();
            assert!(refused.starts_with(says), "{bad}: {refused}");
        }
    }
}
