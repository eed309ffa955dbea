//! Errors of the YAML parser, in words for the person who wrote the text; the parser's own words are for programmers.

use serde_saphyr::{Error, Location};

use super::Place;
use crate::check::shown;

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
