//! The pause between connections to a server that gives no replies. A handshake ends no pause, because a server that
//! accepts every connection and then closes it would be asked for the next one at full speed.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::failure::Failure;

/// Pause after a connection that could not be made or gave no reply: less than the time between two
/// sends of a lookup.
pub(in crate::forward) const HOLD_OFF: Duration = Duration::from_millis(400);

/// When the next connection to one server may be made.
#[derive(Debug, Default)]
pub(super) struct Pause(Mutex<Latest>);

#[derive(Debug, Default)]
struct Latest {
    /// When a connection was made, could not be made, or ended without a reply.
    at: Option<Instant>,
    /// Why there was no reply; `None` after a reply.
    failure: Option<Failure>,
}

impl Pause {
    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.0.lock().expect("nothing panics while it holds this")
    }

    pub(super) fn connected(&self, now: Instant) {
        self.latest().at = Some(now);
    }

    /// None was made, or one ended while queries waited and had given no reply.
    pub(super) fn failed(&self, failure: &Failure, now: Instant) {
        *self.latest() = Latest { at: Some(now), failure: Some(failure.clone()) };
    }

    /// A reply came, on any connection.
    pub(super) fn replied(&self) {
        self.latest().failure = None;
    }

    /// Why no connection may be made now. `is_silent`: queries wait on a connection without a reply.
    pub(super) fn holds(&self, is_silent: bool, now: Instant) -> Option<Failure> {
        let latest = self.latest();
        let is_recent = latest.at.is_some_and(|at| now.saturating_duration_since(at) < HOLD_OFF);
        let failure = latest.failure.clone().or(is_silent.then(Failure::broken));
        failure.filter(|_| is_recent).map(Failure::held_off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fw54_only_a_reply_ends_the_pause_and_no_handshake() {
        let (start, pause) = (Instant::now(), Pause::default());
        let at = |ms| start + Duration::from_millis(ms);
        let holds = |ms| pause.holds(false, at(ms)).is_some();
        assert!(!holds(0), "the first connection");
        pause.connected(at(0));
        assert!(!holds(1), "many queries need many connections");
        pause.failed(&Failure::broken(), at(10));
        assert!(holds(10) && holds(409) && !holds(410));
        pause.connected(at(410));
        assert!(holds(411) && !holds(810), "that one gave no reply yet");
        pause.replied();
        assert!(!holds(412));
        assert!(pause.holds(true, at(412)).is_some(), "another one is silent");
        assert!(pause.holds(true, at(810)).is_none());
    }
}
