//! Which connections of QUIC send too much of what costs more than its octets, and when that is looked at: nothing wakes us
//! for such frames.

use std::time::Duration;

use quinn::FrameStats;
use tokio::time::Instant;

/// Frames that a client may send of those that take more than their octets: of a handshake (CRYPTO, RFC 9000 §19.6), and with
/// ids of the connection (§19.15, §19.16). A usual client sends some ten. quinn keeps and goes through pieces of a handshake as
/// through those of streams, as long as a connection is open. And it has its endpoint look at each id, 160 in a turn, while the
/// eight datagrams of a turn may bring 5,000: those that wait would take memory without a bound.
pub(super) const COSTLY_FRAMES: u64 = 256;
/// Between two looks at all connections for that, while datagrams come.
pub(super) const COSTLY_LOOK_EVERY: Duration = Duration::from_millis(10);
/// The same while none comes: what has ended by itself is given up then.
const QUIET_LOOK_EVERY: Duration = Duration::from_secs(1);

/// When all connections are looked at: a thousand that say nothing cost nothing in between.
#[derive(Debug)]
pub(super) struct Looks {
    /// Datagrams that had come at the last one.
    datagrams: u64,
    last: Instant,
}

impl Looks {
    pub(super) fn new(now: Instant) -> Looks {
        Looks { datagrams: 0, last: now }
    }

    /// `datagrams`: how many have come since the start.
    pub(super) fn is_due(&mut self, datagrams: u64, now: Instant) -> bool {
        let is_due = datagrams != self.datagrams || now >= self.last + QUIET_LOOK_EVERY;
        if is_due {
            *self = Looks { datagrams, last: now };
        }
        is_due
    }
}

/// The frames that [`COSTLY_FRAMES`] is about.
pub(super) fn costly(came: &FrameStats) -> u64 {
    came.crypto + came.retire_connection_id + came.new_connection_id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t8_frames_of_handshakes_and_of_ids_of_connections_are_costly() {
        let mut came = FrameStats::default();
        (came.crypto, came.retire_connection_id, came.new_connection_id) = (1, 2, 4);
        (came.stream, came.ping) = (8, 16);
        assert_eq!(costly(&came), 1 + 2 + 4);
    }

    #[test]
    fn t8_connections_are_looked_at_after_datagrams_and_each_second_without() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut looks = Looks::new(start);
        assert!(looks.is_due(3, at(10)));
        assert!((2..=100).all(|tick| !looks.is_due(3, at(tick * 10))));
        assert!(looks.is_due(3, at(1010)), "without a datagram");
        assert!(looks.is_due(4, at(1020)));
        assert!(!looks.is_due(4, at(1030)));
    }
}
