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
/// How long the kernel's word about a client is believed, and of how many clients.
const BELIEVED: Duration = Duration::from_secs(1);
const MOST: usize = 8192;

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

impl Crowd<'_> {
    /// Whether this client gets a reply: the kernel knows its machine or a router to it. Another one gets a single reply for now,
    /// with which the kernel looks for it.
    pub(super) fn lets(&mut self, peer: SocketAddr) -> bool {
        let known = &mut *self.known;
        if known.since.is_none_or(|since| since.elapsed() >= BELIEVED)
            || known.reached.len() >= MOST
        {
            known.reached.clear();
            known.since = Some(Instant::now());
        }
        let scope = if let SocketAddr::V6(peer) = peer { peer.scope_id() } else { 0 };
        if let Some(is_reached) = known.reached.get(&(peer.ip(), scope)) {
            return *is_reached;
        }
        let is_reached = known.neighbours.reach(peer);
        known.reached.insert((peer.ip(), scope), is_reached);
        is_reached || !self.is_closed
    }
}
