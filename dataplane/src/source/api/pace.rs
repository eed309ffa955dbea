//! Intervals of background work, and random delays so that many pods do not work at once.

use std::time::Duration;

use tokio::time::Instant;

use super::rollout;

/// E25: a list for comparison after 5 to 7 hours.
const COMPARE_AFTER: Duration = Duration::from_secs(5 * 3600);

/// A list follows this long after an event that was too long, and after a list beside a watch that failed. Shorter, someone who
/// writes many such events would make every pod list all objects again and again.
pub(super) const LIST_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Random part of the time until such a list, because many pods start together.
const SPREAD: f64 = 0.4;

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
            canary_grace: rollout::CANARY_GRACE,
            silence: SILENCE,
        }
    }
}

/// When a list is due: after this time, or up to four tenths later.
pub(super) fn due_after(time: Duration) -> Instant {
    Instant::now() + time.mul_f64(1.0 + SPREAD * chance())
}

/// In [0, 1), different in every process.
pub(super) fn chance() -> f64 {
    let random = getrandom::u64().expect("this system gives random numbers");
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests shorten these times, or compute with them.
    #[test]
    fn e25_k22_silence_ends_a_watch_after_75_s_and_lists_are_compared_after_5_h() {
        let pace = Pace::with_spread(Duration::from_secs(60));
        assert_eq!(pace.silence, Duration::from_secs(75));
        assert_eq!(pace.compare_after, Duration::from_secs(18_000));
        assert_eq!(pace.canary_grace, Duration::from_secs(300));
        assert_eq!(pace.spread, Duration::from_secs(60));
    }
}
