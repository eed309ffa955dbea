//! Whether a server is down: it has failed every attempt for a while. Reported, and nothing else: who is asked does not
//! depend on it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Failures over at least so long, without one good reply, are more than a restart of the server.
const DOWN_AFTER: Duration = Duration::from_secs(60);
/// Fewer failures say little: two queries a minute apart may both have been lost.
const MIN_FAILURES: u64 = 3;
/// What times are counted from; atomics hold no `Instant`.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Since when a server has failed. Every field is 0 while it has not; readers may see fields of two moments, which moves a
/// report by one attempt.
#[derive(Debug, Default)]
pub(super) struct Failing {
    failures: AtomicU64,
    /// Milliseconds since [`START`], plus one.
    first: AtomicU64,
    last: AtomicU64,
}

impl Failing {
    /// It replied rightly. Written only after a failure, so that good servers cost nothing.
    pub(super) fn answered(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.first.store(0, Ordering::Relaxed);
        }
    }

    /// It did not.
    pub(super) fn failed(&self, now: Instant) {
        let at = millis(now) + 1;
        let _ = self.first.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed);
        self.last.store(at, Ordering::Relaxed);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// For how long it has been down, if it is.
    pub(super) fn down_for(&self, now: Instant) -> Option<Duration> {
        let first = self.first.load(Ordering::Relaxed);
        let last = self.last.load(Ordering::Relaxed);
        let failed_for = Duration::from_millis(last.saturating_sub(first));
        let is_down = first != 0
            && failed_for >= DOWN_AFTER
            && self.failures.load(Ordering::Relaxed) >= MIN_FAILURES;
        is_down.then(|| Duration::from_millis((millis(now) + 1).saturating_sub(first)))
    }
}

/// An upstream that is down, as `/config` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Down {
    /// `upstreams`, or a stub domain.
    pub group: String,
    /// Address and port.
    pub server: String,
    /// For how long.
    pub seconds: u64,
}

fn millis(at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(*START).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_down_after_a_minute_of_failures_and_up_after_one_reply() {
        let start = *START + Duration::from_secs(1);
        let at = |seconds| start + Duration::from_secs(seconds);
        let failing = Failing::default();
        assert_eq!(failing.down_for(at(0)), None, "nobody asked it");
        failing.failed(at(0));
        failing.failed(at(59));
        failing.failed(at(59));
        assert_eq!(failing.down_for(at(300)), None, "silence after a minute says nothing");
        failing.failed(at(60));
        assert_eq!(failing.down_for(at(61)), Some(Duration::from_secs(61)));
        failing.answered();
        assert_eq!(failing.down_for(at(62)), None);
        failing.failed(at(100));
        failing.failed(at(170));
        assert_eq!(failing.down_for(at(171)), None, "two failures are too few");
    }
}
