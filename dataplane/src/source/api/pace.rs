//! Intervals of background work, and random delays so that many pods do not work at once.

use std::time::Duration;

use super::rollout;

/// E25: a list for comparison after 5 to 7 hours.
const COMPARE_AFTER: Duration = Duration::from_secs(5 * 3600);

/// A watch that is silent for this long, or up to a fifth longer, is restarted: bookmarks come about once a minute, so it
/// may be dead, or at a version that the API server does not have yet (K22).
const SILENCE: Duration = Duration::from_secs(75);

/// Times that tests shorten.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Lists that a configuration asks of all pods at once begin at random within this time (E43).
    pub spread: Duration,
    /// Everything is listed for comparison after this time, or up to four tenths later (E25).
    pub compare_after: Duration,
    /// A canary that is neither promoted nor renewed returns to stable this long after its trial.
    pub canary_grace: Duration,
    /// A watch that is silent for this long, or up to a fifth longer, is restarted.
    pub silence: Duration,
}

impl Pace {
    /// The times in production; only the spread is a flag.
    pub fn with_spread(spread: Duration) -> Pace {
        Pace {
            spread,
            compare_after: COMPARE_AFTER,
            canary_grace: rollout::GRACE,
            silence: SILENCE,
        }
    }
}

/// In [0, 1), different in every process.
pub(super) fn chance() -> f64 {
    let random = getrandom::u64().expect("this system gives random numbers");
    (random >> 11) as f64 / (1_u64 << 53) as f64
}
