//! YAML to values, in bounds. Errors of the parser are in words for the person who wrote the text; the parser's own words
//! are for programmers.

use serde_json::Value;
use serde_saphyr::{Error, Location, Options};

use super::Place;
use crate::check::shown;

/// How texts are read: the defaults of the parser suit small files. A dump of a cluster of 100,000 endpoints has some
/// 10 million nodes; who reads a text has a limit for its octets. What aliases may expand to is bounded more tightly than
/// by default, so there may be 50,000 of them however few anchors there are: 150 hosts can have one address by an alias each.
/// A leading zero is octal, as in kubectl: the API server gets 43 for `port: 053`.
pub fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 64_000_000,
            max_nodes: 32_000_000,
            max_documents: 200_000,
            max_total_scalar_bytes: 256 * 1024 * 1024,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// The documents of a text, those without content left out.
///
/// # Errors
/// It is not YAML, or is more than is read: see [`not_yaml`].
pub fn documents(text: &str) -> Result<Vec<Value>, Error> {
    serde_saphyr::from_multiple_with_options(text, options())
}

/// Where a text is not YAML or is too large, and why, in one line.
pub fn not_yaml(error: &Error) -> (Option<Place>, String) {
    let place = |place: Location| Place {
        line: usize::try_from(place.line()).unwrap_or(usize::MAX),
        column: usize::try_from(place.column()).unwrap_or(usize::MAX),
    };
    (error.location().map(place), reason(error))
}

fn reason(error: &Error) -> String {
    // Without the snippet: the rest of such a message is an excerpt of the text.
    match error.without_snippet() {
        Error::AliasError { error, .. } => reason(error),
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("{} is written twice: leave one out", shown(key))
        }
        Error::DuplicateMappingKey { key: None, .. } => {
            "a key is written twice: leave one out".to_owned()
        }
        // Values of any kind are read: only a key has to be text.
        Error::NullIntoString { .. } => "the key before ':' is missing or null".to_owned(),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. } => {
            "more than is read of one file, aliases (*) written out: split it".to_owned()
        }
        other => without_place(&other.to_string()),
    }
}

/// Its first line without ` at line 4, column 2`, which is reported separately.
fn without_place(message: &str) -> String {
    let line: String =
        message.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    line.split(" at line ").next().unwrap_or_default().to_owned()
}
