//! The pause between connections to a server that gives no replies. A handshake ends no pause, because a server that
//! accepts every connection and then closes it would be asked for the next one at full speed.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::failure::Failure;

/// Pause after a connection that could not be made or gave no reply: less than the time between two
/// sends of a lookup.
pub(in crate::forward) const HOLD_OFF: Duration = Duration::from_millis(400);

/// The first pause where the server ended the connection and has [replied](Pause::has_replied) lately on others: it may end one
/// for each name that it cannot resolve, as dnsmasq does. Doubled with each further one that ends without a reply between, up to
/// [`SHORT_PAUSE`].
pub(super) const SHORT: Duration = Duration::from_millis(5);
const _: () = assert!(SHORT.as_millis() * 4 == SHORT_PAUSE.as_millis());
/// The longest of these. A query waits for the end of such a pause.
pub(super) const SHORT_PAUSE: Duration = Duration::from_millis(20);
/// Time after a reply in which the server counts as one that answers.
const LATELY: Duration = Duration::from_secs(1);

/// When the next connection to one server may be made.
#[derive(Debug, Default)]
pub(super) struct Pause(Mutex<Latest>);

#[derive(Debug, Default)]
struct Latest {
    /// When a connection was made, could not be made, or ended without a reply.
    at: Option<Instant>,
    /// Why there was no reply; `None` after a reply.
    failure: Option<Failure>,
    /// When the latest reply came.
    replied: Option<Instant>,
    /// Failures since then.
    failures: u32,
}

impl Latest {
    fn has_replied(&self, now: Instant) -> bool {
        self.replied.is_some_and(|at| now.saturating_duration_since(at) < LATELY)
    }
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
        let mut latest = self.latest();
        (latest.at, latest.failure) = (Some(now), Some(failure.clone()));
        latest.failures = latest.failures.saturating_add(1);
    }

    /// A reply came, on any connection.
    pub(super) fn replied(&self, now: Instant) {
        let mut latest = self.latest();
        (latest.failure, latest.replied, latest.failures) = (None, Some(now), 0);
    }

    /// Whether a reply came lately, on any connection: silence of one connection then says nothing about the server.
    pub(super) fn has_replied(&self, now: Instant) -> bool {
        self.latest().has_replied(now)
    }

    /// Why no connection may be made now, and for how long. `is_silent`: queries wait on a connection without a reply.
    pub(super) fn holds(&self, is_silent: bool, now: Instant) -> Option<(Failure, Duration)> {
        let latest = self.latest();
        let was_ended = latest.failure.as_ref().is_some_and(Failure::is_loss);
        let doubled = SHORT * (1 << latest.failures.saturating_sub(1).min(2));
        let pause = if was_ended && latest.has_replied(now) { doubled } else { HOLD_OFF };
        let left = pause.checked_sub(now.saturating_duration_since(latest.at?))?;
        let failure = latest.failure.clone().or(is_silent.then(Failure::broken));
        failure.filter(|_| !left.is_zero()).map(|failure| (failure.held_off(), left))
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
        pause.replied(at(412));
        assert!(pause.has_replied(at(1_411)) && !pause.has_replied(at(1_412)));
        assert!(!holds(412));
        assert!(pause.holds(true, at(412)).is_some(), "another one is silent");
        assert!(pause.holds(true, at(810)).is_none());
    }

    #[test]
    fn fw54_the_pause_is_short_where_a_server_that_replies_ends_a_connection() {
        let (start, pause) = (Instant::now(), Pause::default());
        let at = |ms| start + Duration::from_millis(ms);
        let holds = |ms| pause.holds(false, at(ms)).is_some();
        pause.replied(at(0));
        pause.failed(&Failure::broken(), at(10));
        assert!(holds(14) && !holds(15));
        pause.failed(&Failure::broken(), at(20));
        assert!(holds(29) && !holds(30), "twice as long");
        (0..20).for_each(|_| pause.failed(&Failure::broken(), at(100)));
        assert!(holds(119) && !holds(120), "it has a bound");
        pause.replied(at(600));
        pause.failed(&Failure::slow(), at(600));
        assert!(holds(999) && !holds(1_000), "none was made");
        pause.failed(&Failure::broken(), at(1_600));
        assert!(holds(1_999) && !holds(2_000), "the reply was too long ago");
    }
}
