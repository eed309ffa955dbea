//! The room of a socket for replies that have not left, which all its clients share.
//!
//! Linux keeps some hundred replies for each address of an own network until it knows to which machine it belongs, or gives up
//! after three seconds. They count towards the socket meanwhile. Someone who forges source addresses that no machine has could
//! so take all of the room, and no client would get a reply.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::memory;
use super::neighbours::Neighbours;

/// Octets that a socket sends before the kernel is asked how many it holds: less than an eighth of the smallest room that Linux
/// has by default.
const LOOK_OCTETS: usize = 24 << 10;
/// What the kernel keeps with a reply besides its octets.
const OVERHEAD: usize = 1 << 10;
/// Part of the room that must be taken until clients are looked at, and the part from which on one that nothing is known of gets
/// no reply.
const CROWDED: usize = 4;
const CLOSED: usize = 2;
/// How long the kernel's word about a client is believed that is not reached, and about one that is; and of how many clients.
const BELIEVED: Duration = Duration::from_secs(1);
const REACHED: Duration = Duration::from_secs(60);
const MOST: usize = 8192;
/// Clients that the kernel is asked about in a second: each takes up to three questions. Another one gets no reply meanwhile.
const ASKED: usize = 1000;

/// What is known of the room of one socket.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Octets sent since the kernel was asked. Late replies of other threads may be missing.
    sent: AtomicUsize,
    is_crowded: AtomicBool,
    known: Mutex<Known>,
}

/// What the kernel said of clients.
#[derive(Debug, Default)]
struct Known {
    since: Option<Instant>,
    reached_since: Option<Instant>,
    /// Since `since`.
    asked: usize,
    reached: HashMap<(IpAddr, u32), bool>,
    neighbours: Neighbours,
}

/// A socket with much that has not left: who gets a reply is looked at.
pub(super) struct Crowd<'r> {
    known: MutexGuard<'r, Known>,
    is_closed: bool,
}

impl Room {
    /// Looks before this many replies are sent, where it is time to.
    pub(super) fn look(
        &self,
        socket: &impl AsFd,
        replies: usize,
        octets: usize,
    ) -> Option<Crowd<'_>> {
        let sent = self.sent.load(Ordering::Relaxed) + octets + replies * OVERHEAD;
        self.sent.store(sent, Ordering::Relaxed);
        if sent < LOOK_OCTETS && !self.is_crowded.load(Ordering::Relaxed) {
            return None;
        }
        self.sent.store(0, Ordering::Relaxed);
        let (held, room) = memory::held_of_room(socket);
        // Where the kernel does not say it, room is 0.
        let is_crowded = room > 0 && held >= room / CROWDED;
        self.is_crowded.store(is_crowded, Ordering::Relaxed);
        is_crowded.then(|| Crowd {
            known: self.known.lock().unwrap_or_else(PoisonError::into_inner),
            is_closed: held >= room / CLOSED,
        })
    }
}

impl Known {
    /// Those that are reached are kept for longer: a flood of forged addresses does not push them out.
    fn forget(&mut self, now: Instant) {
        let is_over = |since: Option<Instant>, time| {
            since.is_none_or(|since| now.saturating_duration_since(since) >= time)
        };
        if is_over(self.since, BELIEVED) {
            self.reached.retain(|_, is_reached| *is_reached);
            (self.since, self.asked) = (Some(now), 0);
        }
        if is_over(self.reached_since, REACHED) || self.reached.len() >= MOST {
            self.reached.clear();
            self.reached_since = Some(now);
        }
    }
}

impl Crowd<'_> {
    /// Whether this client gets a reply: the kernel knows its machine or a router to it. Another one gets a single reply for now,
    /// with which the kernel looks for it.
    pub(super) fn lets(&mut self, peer: SocketAddr) -> bool {
        let known = &mut *self.known;
        known.forget(Instant::now());
        let scope = if let SocketAddr::V6(peer) = peer { peer.scope_id() } else { 0 };
        if let Some(is_reached) = known.reached.get(&(peer.ip(), scope)) {
            return *is_reached;
        }
        if known.asked >= ASKED {
            return !self.is_closed;
        }
        known.asked += 1;
        let is_reached = known.neighbours.reach(peer);
        known.reached.insert((peer.ip(), scope), is_reached);
        is_reached || !self.is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l19_clients_that_are_reached_are_known_for_longer_than_others() {
        let (mut known, now) = (Known::default(), Instant::now());
        known.forget(now);
        known.reached.insert((IpAddr::from([192, 0, 2, 1]), 0), true);
        known.reached.insert((IpAddr::from([192, 0, 2, 2]), 0), false);
        known.asked = ASKED;
        known.forget(now + BELIEVED / 2);
        assert_eq!((known.reached.len(), known.asked), (2, ASKED));
        known.forget(now + BELIEVED);
        assert_eq!((known.reached.values().collect::<Vec<_>>(), known.asked), (vec![&true], 0));
        known.forget(now + REACHED);
        assert!(known.reached.is_empty());
    }

    #[test]
    fn l19_a_flood_of_new_addresses_asks_the_kernel_a_bounded_number_of_times() {
        let known = Mutex::<Known>::default();
        let peer = SocketAddr::from(([127, 0, 0, 1], 53));
        for is_closed in [false, true] {
            // We reach ourselves, but nothing asks.
            let mut crowd = Crowd { known: known.lock().unwrap(), is_closed };
            let now = Some(Instant::now());
            (crowd.known.since, crowd.known.reached_since, crowd.known.asked) = (now, now, ASKED);
            assert_eq!(crowd.lets(peer), !is_closed);
            assert!(crowd.known.reached.is_empty());
        }
    }
}
