//! Connections of QUIC that have ended and that quinn still keeps: it answers late packets of a client until no more can come
//! (RFC 9000 §10.2), three times as long as it waits for an acknowledgement. The client says how long it takes for one, so it
//! decides for how long the memory of its connection is held. That memory has a bound, and what is short of it is shared: a
//! client that has more of it is refused before one that has less.

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
/// The part of all connections that may have ended and be kept before clients which left more than others are refused. So what
/// has ended never takes the place of all.
const PART: usize = 4;

/// Who has connections, and who had those that ended within the last [`LINGER`].
#[derive(Debug, Default)]
pub(super) struct Lingering {
    ended: VecDeque<(Instant, IpAddr)>,
    of: HashMap<IpAddr, usize>,
    open: HashMap<IpAddr, usize>,
}

/// Connections that quinn may keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// As many as have room among the sessions.
    sessions: usize,
    /// And those whose handshake is in progress.
    handshakes: usize,
}

impl Places {
    pub(super) fn of(buffers: usize) -> Places {
        Places { sessions: sessions_most(buffers) / SESSION_OCTETS, handshakes: HANDSHAKES }
    }

    pub(super) fn all(self) -> usize {
        self.sessions + self.handshakes
    }
}

impl Lingering {
    /// A connection of this client has begun.
    pub(super) fn began(&mut self, client: IpAddr) {
        *self.open.entry(client).or_default() += 1;
    }

    /// One that had begun has ended.
    pub(super) fn ended(&mut self, client: IpAddr, places: Places, now: Instant) {
        self.expire(now);
        // No more are kept by quinn: those before are over, also if their clients said otherwise.
        while self.ended.len() >= places.all().max(1) {
            self.forget_first();
        }
        take_one(&mut self.open, client);
        self.ended.push_back((now + LINGER, client));
        *self.of.entry(client).or_default() += 1;
    }

    /// Whether this client may begin a connection while quinn keeps this many, of which these are open.
    pub(super) fn may_begin(
        &mut self,
        client: IpAddr,
        (kept, open): (usize, usize),
        places: Places,
        now: Instant,
    ) -> bool {
        self.expire(now);
        let left = self.of.get(&client).copied().unwrap_or(0);
        let has = left + self.open.get(&client).copied().unwrap_or(0);
        // Where all sessions are taken, one gives way to the new connection, but only after its handshake. Clients with few
        // connections may use more of the places for that: a client without one may take the last place, a client with one only
        // places of the first half, and each client the first place.
        let has_room = kept < places.sessions + places.handshakes.div_ceil(has + 1);
        // Clients that left no more than others do may leave one more.
        let is_modest = left == 0 || left * self.of.len() < self.ended.len();
        has_room && (kept.saturating_sub(open) < places.all() / PART || is_modest)
    }

    fn expire(&mut self, now: Instant) {
        while self.ended.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((_, client)) = self.ended.pop_front() else { return };
        take_one(&mut self.of, client);
    }
}

/// Counts one less of this client.
fn take_one(counts: &mut HashMap<IpAddr, usize>, client: IpAddr) {
    let left = counts.get_mut(&client).map(|count| {
        *count -= 1;
        *count
    });
    if left == Some(0) {
        counts.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Places = Places { sessions: 48, handshakes: 16 };

    fn client(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    /// What quinn has: nothing that has ended leaves it during a test.
    #[derive(Default)]
    struct Kept {
        lingering: Lingering,
        open: Vec<u8>,
        ended: usize,
    }

    impl Kept {
        fn may(&mut self, number: u8) -> bool {
            let counts = (self.open.len() + self.ended, self.open.len());
            self.lingering.may_begin(client(number), counts, PLACES, Instant::now())
        }

        fn begin(&mut self, number: u8) -> bool {
            let may = self.may(number);
            if may {
                self.lingering.began(client(number));
                self.open.push(number);
            }
            may
        }

        /// Ends the oldest connection of this client.
        fn end(&mut self, number: u8) {
            let place = self.open.iter().position(|of| *of == number).expect("it has one");
            self.open.remove(place);
            self.ended += 1;
            self.lingering.ended(client(number), PLACES, Instant::now());
        }
    }

    #[test]
    fn t8_two_clients_with_all_sessions_of_quic_keep_no_third_one_out() {
        // Their handshakes end, or they do not: then none of the connections before gives way.
        for gives_way in [true, false] {
            let mut kept = Kept::default();
            for number in 0..48 {
                assert!(kept.begin(1 + number % 2), "there is room");
            }
            for round in 0..100 {
                let number = 1 + round % 2;
                if kept.begin(number) && gives_way {
                    kept.end(number);
                }
            }
            for _ in 0..3 {
                assert!(kept.begin(3), "{} of {}", kept.open.len(), kept.ended);
                // One of the largest client gives way to it, and it ends itself soon.
                kept.end(1);
                kept.end(3);
                if kept.begin(1) {
                    kept.end(1);
                }
            }
        }
    }

    #[test]
    fn t8_what_some_clients_leave_behind_keeps_no_other_out_that_left_less() {
        let mut kept = Kept::default();
        for number in (1..=4).cycle().take(400) {
            if kept.begin(number) {
                kept.end(number);
            }
        }
        assert_eq!(kept.ended, PLACES.all() / PART, "they left as much as each other");
        for _ in 0..3 {
            assert!(kept.begin(5), "also one that has closed a connection itself");
            kept.end(5);
        }
        assert!(!kept.may(1), "but none of those");
        // All that were open end at once.
        let mut kept = Kept::default();
        (0..48).for_each(|number| assert!(kept.begin(1 + number % 2)));
        (0..48).for_each(|number| kept.end(1 + number % 2));
        assert!(kept.begin(3));
        kept.end(3);
        assert!(kept.begin(3) && !kept.may(1));
    }

    #[test]
    fn t8_what_clients_leave_behind_over_quic_has_a_bound() {
        let (mut lingering, now) = (Lingering::default(), Instant::now());
        for _ in 0..PLACES.all() / PART {
            lingering.began(client(1));
            lingering.ended(client(1), PLACES, now);
        }
        let mut may = |number, kept, open, now| {
            lingering.may_begin(client(number), (kept, open), PLACES, now)
        };
        assert!(may(1, 15, 0, now) && !may(1, 16, 0, now), "it has left its part");
        assert!(may(1, 47, 47, now), "connections that are open are nothing that it left");
        assert!(may(2, 63, 0, now) && !may(2, 64, 0, now), "another client has all the room");
        assert!(!may(1, 16, 0, now + LINGER - Duration::from_millis(1)));
        assert!(may(1, 16, 0, now + LINGER));
        assert!(lingering.of.is_empty() && lingering.ended.is_empty() && lingering.open.is_empty());
    }

    #[test]
    fn t8_no_more_ended_connections_are_counted_than_may_be_kept() {
        let (mut lingering, now) = (Lingering::default(), Instant::now());
        for number in 0..1000_u32 {
            let client = IpAddr::from(number.to_be_bytes());
            lingering.began(client);
            lingering.ended(client, PLACES, now);
        }
        assert_eq!((lingering.ended.len(), lingering.of.len()), (64, 64));
        assert!(lingering.open.is_empty());
        let usual = Places::of(32 << 20);
        assert_eq!((usual.sessions, usual.handshakes), (438, 256));
    }
}
