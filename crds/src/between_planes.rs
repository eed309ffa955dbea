//! What each plane says to the other besides the configuration: keys of the ConfigMap, and the texts of Extended DNS Errors
//! (RFC 8914) with which a data plane says why a lookup ended without an answer. The operator reads these of a pod on trial, to
//! distinguish a server's silence from its errors.

use std::time::Duration;

/// Key of the document that every pod runs, except for the canary.
pub const STABLE: &str = "stable.json";
/// Key of the document that one pod tries, the canary.
pub const CANARY: &str = "canary.json";
/// Key of the state of the rollout: which pod tries it, and for how long.
pub const ROLLOUT: &str = "rollout.json";

/// For how long one request to `/top` has a data plane count, at most.
pub const LONGEST_TOP: Duration = Duration::from_secs(600);

/// The group has no server that can be asked (N16).
pub const NO_SERVER: &str = "no usable upstream server is configured";
/// No server replied (N18).
pub const SILENCE: &str = "no upstream server answered";
/// Servers replied, none of them with an answer (N18).
pub const ERRORS: &str = "upstream servers answered only with errors";
/// A limit turned the query away, so that no server was asked (N20).
pub const LIMIT: &str = "forward limit";
/// [`SILENCE`] of a lookup a moment ago, which is remembered (N19); it begins with the same words.
pub const SILENCE_BEFORE: &str = "no upstream server answered a moment ago";
/// [`ERRORS`] of a lookup a moment ago; the same.
pub const ERRORS_BEFORE: &str = "upstream servers answered only with errors a moment ago";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o17_a_remembered_failure_has_the_words_of_that_failure_and_of_no_other() {
        assert!(SILENCE_BEFORE.starts_with(SILENCE) && ERRORS_BEFORE.starts_with(ERRORS));
        assert!(!SILENCE_BEFORE.contains(ERRORS) && !ERRORS_BEFORE.contains(SILENCE));
        for text in [NO_SERVER, SILENCE, ERRORS, LIMIT, SILENCE_BEFORE, ERRORS_BEFORE] {
            assert!(text.len() <= 64 && (text == LIMIT) == text.contains(LIMIT), "{text}");
        }
    }
}
