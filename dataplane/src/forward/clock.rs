//! The time by which kept replies age: monotonic, so that the wall clock may jump (CA6).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Milliseconds since the process began to forward.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    ahead_ms: AtomicU64,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { start: Instant::now(), ahead_ms: AtomicU64::new(0) }
    }
}

impl Clock {
    /// Milliseconds since this clock started; tests may move it ahead.
    pub fn now_ms(&self) -> u64 {
        millis(self.start.elapsed()).saturating_add(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Moves this clock ahead: for tests, in place of waiting.
    pub fn advance(&self, by: Duration) {
        self.ahead_ms.fetch_add(millis(by), Ordering::Relaxed);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
