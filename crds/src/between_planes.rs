//! What each plane says to the other besides the configuration: keys of the ConfigMap, what a data plane reads of the rollout,
//! its pages that the operator reads, and the Extended DNS Errors (RFC 8914) with which it says why a lookup ended without an
//! answer. The operator reads these of a pod on trial, to distinguish a server's silence from its errors.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Key of the document that every pod runs, except for the canary.
pub const STABLE: &str = "stable.json";
/// Key of the document that one pod tries, the canary.
pub const CANARY: &str = "canary.json";
/// Key of the state of the rollout: which pod tries it, and for how long.
pub const ROLLOUT: &str = "rollout.json";

/// Time after the end of a trial until the canary goes back to [`STABLE`] by itself: if the operator is away, nothing is
/// promoted.
pub const CANARY_GRACE: Duration = Duration::from_secs(300);

/// The fields of [`ROLLOUT`] that a data plane reads. The operator writes more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollout {
    /// Revision that every pod runs.
    pub stable: Option<String>,
    /// Revision on trial.
    pub canary: Option<String>,
    /// The pod that tries it.
    pub canary_pod: Option<CanaryPod>,
    /// Another time is a renewal.
    pub started_at: Option<String>,
    /// How long the trial lasts.
    pub observe_seconds: u64,
}

/// The pod that tries a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CanaryPod {
    /// `metadata.name` of the pod.
    pub name: String,
    /// `metadata.uid` of the pod: a pod of the same name later is another one.
    pub uid: String,
    /// The process in it that was named, as it calls itself at `/config`: another one is another canary. Empty: the operator does
    /// not know it yet, or never.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub process: String,
}

/// The page `/look` of a data plane where the other pod answers.
pub const LOOK_ANSWERS: &str = "answers\n";
/// The same where it does not.
pub const LOOK_SILENT: &str = "silent\n";
/// For how long a data plane waits for that pod.
pub const LONGEST_LOOK: Duration = Duration::from_millis(600);

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

/// The Extended DNS Errors (RFC 8914 §4) that one plane gives and the other one reads.
pub mod ede {
    /// An error without a code of its own: no server can be asked, a limit was reached, or aliases make a loop.
    pub const OTHER: u16 = 0;
    /// The answer has expired.
    pub const STALE_ANSWER: u16 = 3;
    /// A lookup that failed a moment ago: the text says how.
    pub const CACHED_ERROR: u16 = 13;
    /// The data that the answer needs is not complete yet.
    pub const NOT_READY: u16 = 14;
    /// The client may not ask.
    pub const PROHIBITED: u16 = 18;
    /// As [`STALE_ANSWER`], of a name that did not exist.
    pub const STALE_NXDOMAIN: u16 = 19;
    /// Not Authoritative: the name is not ours, and no server is written for it.
    pub const NOT_AUTHORITATIVE: u16 = 20;
    /// No Reachable Authority: no server replied.
    pub const NO_SERVER_REPLIED: u16 = 22;
    /// Network Error: servers replied, none of them with an answer.
    pub const ONLY_ERRORS: u16 = 23;
}

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
