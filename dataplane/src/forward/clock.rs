//! The time by which kept replies age: the wall clock may jump, and it does not count (CA6). The time in which the machine is
//! suspended does: what was kept before may have expired since.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dataplane_udp::since_boot;

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
    /// Milliseconds since this clock started; tests may move it ahead.
    pub fn now_ms(&self) -> u64 {
        let elapsed = since_boot().saturating_sub(self.start);
        millis(elapsed).saturating_add(self.ahead_ms.load(Ordering::Relaxed))
    }

    /// Moves this clock ahead: for tests, in place of waiting.
    pub fn advance(&self, by: Duration) {
        self.ahead_ms.fetch_add(millis(by), Ordering::Relaxed);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
