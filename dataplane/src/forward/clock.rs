//! The time by which kept replies age: the wall clock may jump, and it does not count (CA6). The time in which the machine is
//! suspended does: what was kept before may have expired since.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dataplane_udp::since_boot;

/// In place of the time ahead: this clock stands, and the other bits are what it shows.
const STANDS: u64 = 1 << 63;

/// Milliseconds since the process began to forward.
#[derive(Debug)]
pub struct Clock {
    start: Duration,
    ahead_ms: AtomicU64,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { start: since_boot(), ahead_ms: AtomicU64::new(0) }
    }
}

impl Clock {
    /// Milliseconds since this clock started; tests may move it ahead, and stop it.
    pub fn now_ms(&self) -> u64 {
        let ahead_ms = self.ahead_ms.load(Ordering::Relaxed);
        match ahead_ms & STANDS {
            0 => millis(since_boot().saturating_sub(self.start)).saturating_add(ahead_ms),
            _ => ahead_ms & !STANDS,
        }
    }

    /// Moves this clock ahead: for tests, in place of waiting.
    pub fn advance(&self, by: Duration) {
        self.ahead_ms.fetch_add(millis(by), Ordering::Relaxed);
    }

    /// From now on only [`Clock::advance`] moves it: for tests that compare times, on a machine that may stand still.
    pub fn stop(&self) {
        self.ahead_ms.store(self.now_ms() | STANDS, Ordering::Relaxed);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stands_is_moved_by_tests_alone() {
        let clock = Clock::default();
        clock.advance(Duration::from_secs(9));
        clock.stop();
        let stood = clock.now_ms();
        assert!(stood >= 9_000);
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(clock.now_ms(), stood);
        clock.advance(Duration::from_millis(5));
        assert_eq!(clock.now_ms(), stood + 5);
    }
}
