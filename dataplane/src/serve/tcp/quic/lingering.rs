//! Connections of QUIC that have ended and that quinn still keeps: it answers late packets of a client until no more can come
//! (RFC 9000 §10.2), three times as long as it waits for an acknowledgement. The client says how long it takes for one, so it
//! decides for how long the memory of its connection is held. That memory has a bound, and one client has a part of it.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::super::handshakes::HANDSHAKES;
use super::super::table::sessions_most;
use super::SESSION_OCTETS;

/// For how long an ended connection counts for its client: three times the longest time for an acknowledgement that one may
/// name (16.4 s, RFC 9000 §18.2), and some round trips. A client that feigns longer ones holds its part for longer, and no more.
const LINGER: Duration = Duration::from_secs(60);
/// The part of all connections that those of one client which have ended may be, once a quarter of all has ended and is kept.
/// Once half of them has, only clients without such connections begin others: so what has ended never takes the place of all.
const PART: usize = 8;

/// Who had the connections that ended within the last [`LINGER`].
#[derive(Debug, Default)]
pub(super) struct Lingering {
    ended: VecDeque<(Instant, IpAddr)>,
    of: HashMap<IpAddr, usize>,
}

/// Connections that quinn may keep: as many as have room among the sessions, and those whose handshake is in progress.
pub(super) fn most(buffers: usize) -> usize {
    sessions_most(buffers) / SESSION_OCTETS + HANDSHAKES
}

impl Lingering {
    /// A connection of this client has ended.
    pub(super) fn ended(&mut self, client: IpAddr, most: usize, now: Instant) {
        self.expire(now);
        // No more are kept by quinn: those before are over, also if their clients said otherwise.
        while self.ended.len() >= most.max(1) {
            self.forget_first();
        }
        self.ended.push_back((now + LINGER, client));
        *self.of.entry(client).or_default() += 1;
    }

    /// Whether this client may begin a connection while quinn keeps this many, of which these are open.
    pub(super) fn may_begin(
        &mut self,
        client: IpAddr,
        (kept, open, most): (usize, usize, usize),
        now: Instant,
    ) -> bool {
        self.expire(now);
        let of_client = self.of.get(&client).copied().unwrap_or(0);
        let ended = kept.saturating_sub(open);
        let is_within = of_client < most / PART && (ended < most / 2 || of_client == 0);
        kept < most && (ended < most / 4 || is_within)
    }

    fn expire(&mut self, now: Instant) {
        while self.ended.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((_, client)) = self.ended.pop_front() else { return };
        let of_client = self.of.get_mut(&client).map(|count| {
            *count -= 1;
            *count
        });
        if of_client == Some(0) {
            self.of.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 64;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    #[test]
    fn t8_what_clients_leave_behind_over_quic_has_a_bound_and_each_a_part() {
        let (mut lingering, now) = (Lingering::default(), Instant::now());
        for _ in 0..MOST / PART {
            lingering.ended(client(1), MOST, now);
        }
        lingering.ended(client(3), MOST, now);
        let mut may =
            |number, kept, open, now| lingering.may_begin(client(number), (kept, open, MOST), now);
        assert!(may(1, MOST / 4 - 1, 0, now), "there is room");
        assert!(
            may(1, MOST - 1, MOST - 1, now),
            "connections that are open are nothing that it left"
        );
        assert!(!may(1, MOST / 4, 0, now), "it has its part");
        assert!(may(3, MOST / 2 - 1, 0, now) && !may(3, MOST / 2, 0, now), "it has some");
        assert!(may(2, MOST - 1, 0, now) && !may(2, MOST, 0, now), "another client has room");
        assert!(!may(1, MOST / 4, 0, now + LINGER - Duration::from_millis(1)));
        assert!(may(1, MOST / 4, 0, now + LINGER));
        assert!(lingering.of.is_empty() && lingering.ended.is_empty());
    }

    #[test]
    fn t8_no_more_ended_connections_are_counted_than_may_be_kept() {
        let (mut lingering, now) = (Lingering::default(), Instant::now());
        for number in 0..1000_u32 {
            lingering.ended(IpAddr::from(number.to_be_bytes()), MOST, now);
        }
        assert_eq!((lingering.ended.len(), lingering.of.len()), (MOST, MOST));
        assert_eq!(most(32 << 20), 512 + 256);
    }
}
