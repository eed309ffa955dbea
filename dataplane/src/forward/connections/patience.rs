//! The usual time between two replies of one server on a connection. Where a connection has been silent for several times as long
//! while queries wait, its first name may be late, and the server may answer the others behind it (L16).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::forward::plan::USUAL;

/// Times the usual time between two replies.
const TIMES_GAP: u64 = 4;
/// Times the usual time of a reply.
const TIMES_TRIP: u64 = 2;
/// The bounds of what is waited. The upper one is the time between two sends, and holds before the first reply.
const LEAST: Duration = Duration::from_millis(100);
pub(super) const MOST: Duration = Duration::from_millis(500);
const _: () = assert!(MOST.as_millis() == USUAL.interval.as_millis());

/// Time after a reply that overtook an earlier query, in which the server counts as one that works on several at once.
const PARALLEL_FOR: Duration = Duration::from_secs(60);

/// How long a connection to one server may be silent.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Between two replies while queries wait; smoothed, in microseconds, 0 before the first.
    gap_us: AtomicU64,
    /// The same from a query on an idle connection to its reply: two replies can come together from a server that is far away.
    trip_us: AtomicU64,
    /// When a reply came before that to an earlier query on its connection.
    overtaken: Mutex<Option<Instant>>,
}

impl Patience {
    /// A reply came, on a connection that was silent since then; `was_idle`: the query before it was sent then.
    pub(super) fn replied(&self, silent_since: Option<Instant>, was_idle: bool, now: Instant) {
        let Some(silence) = silent_since.map(|at| now.saturating_duration_since(at)) else {
            return;
        };
        // A longer one says more about its name.
        if silence >= MOST {
            return;
        }
        let silence_us = silence.as_micros() as u64;
        smooth(&self.gap_us, silence_us);
        if was_idle {
            smooth(&self.trip_us, silence_us);
        }
    }

    /// A reply came before that to an earlier query on its connection.
    pub(super) fn overtook(&self, now: Instant) {
        *self.overtaken() = Some(now);
    }

    /// Whether the server works on several queries of a connection at once, as far as is known.
    pub(super) fn is_parallel(&self, now: Instant) -> bool {
        self.overtaken().is_some_and(|at| now.saturating_duration_since(at) < PARALLEL_FOR)
    }

    fn overtaken(&self) -> MutexGuard<'_, Option<Instant>> {
        self.overtaken.lock().expect("nothing panics while it holds this")
    }

    pub(super) fn get(&self) -> Duration {
        let usual = |of: &AtomicU64| of.load(Ordering::Relaxed);
        match (usual(&self.gap_us) * TIMES_GAP).max(usual(&self.trip_us) * TIMES_TRIP) {
            0 => MOST,
            patience => Duration::from_micros(patience).clamp(LEAST, MOST),
        }
    }
}

/// It follows faster replies sooner: names that a client makes slow must not raise it.
fn smooth(usual: &AtomicU64, new: u64) {
    let old = usual.load(Ordering::Relaxed);
    let smoothed = match old {
        0 => new,
        _ if new < old => (old + new) / 2,
        _ => old + (new - old) / 16,
    };
    usual.store(smoothed.max(1), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l16_patience_follows_fast_replies_soon_and_slow_ones_slowly() {
        let (patience, start) = (Patience::default(), Instant::now());
        let replied = |ms| patience.replied(Some(start), true, start + Duration::from_millis(ms));
        assert_eq!(patience.get(), MOST, "before the first reply");
        replied(40);
        assert_eq!(patience.get(), Duration::from_millis(160));
        (0..20).for_each(|_| replied(1));
        assert_eq!(patience.get(), LEAST);
        (0..100).for_each(|_| replied(9_000));
        assert_eq!(patience.get(), LEAST, "overdue replies");
        replied(400);
        assert!(patience.get() < Duration::from_millis(150), "one slow name");
        (0..100).for_each(|_| replied(300));
        assert_eq!(patience.get(), MOST);
    }

    #[test]
    fn l16_replies_that_come_together_from_far_away_shorten_no_patience() {
        let (patience, start) = (Patience::default(), Instant::now());
        for _ in 0..100 {
            patience.replied(Some(start), true, start + Duration::from_millis(150));
            patience.replied(Some(start), false, start + Duration::from_micros(200));
        }
        assert_eq!(patience.get(), Duration::from_millis(300));
    }

    #[test]
    fn l16_a_server_whose_reply_overtook_another_works_on_several_for_a_minute() {
        let (patience, start) = (Patience::default(), Instant::now());
        assert!(!patience.is_parallel(start));
        patience.overtook(start);
        assert!(patience.is_parallel(start + Duration::from_secs(59)));
        assert!(!patience.is_parallel(start + Duration::from_secs(60)));
    }
}
