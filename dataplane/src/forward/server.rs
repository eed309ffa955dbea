//! One upstream server, as the process knows it: it outlives configurations. What it owns: its part of the ports, its
//! open sockets and connections, its health, latency, EDNS memory, and how many queries it is given at once.

mod address;
mod sent;
mod place_queue;
mod window;
mod health;
mod latency;
mod edns;
mod datagrams;
mod loops;
mod probed;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crds::config;
use tokio::sync::Semaphore;

use super::common::Common;
use super::connections::{Client, Connections, Counted};
use super::now;
use super::plan::{Candidate, Standing, Transport};
use super::ports::ServerId;
use super::server_identity::ServerIdentity;
use super::sockets::Pool;
use crate::rcode;
pub(super) use address::AddressCounts;
use address::Replies;
use datagrams::Datagrams;
use edns::Edns;
pub(super) use edns::OptHeard;
use health::Health;
use latency::Latency;
pub(super) use loops::Found;
use loops::Loops;
pub(super) use probed::silent_udp;
use process::histogram::Distribution;
use window::Window;

pub(super) use health::Heard;
use place_queue::PlaceQueue;
pub(super) use place_queue::Waiting;
pub(super) use sent::Sent;

/// Probes of one server that are on their way at once, for groups in which it is failing (FW28).
const PROBE_PLACES: usize = 4;

/// A server and all that is known of it.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) id: ServerId,
    pub(super) identity: ServerIdentity,
    /// See [`ServerIdentity::shown_name`].
    pub(super) shown_name: String,
    /// What is shown of its address; shared by servers at one address.
    pub(super) of_address: Arc<AddressCounts>,
    pub(super) common: Arc<Common>,
    pub(super) pool: Arc<Pool>,
    pub(super) connections: Arc<Connections>,
    state: Mutex<ServerState>,
    sent: AtomicU64,
    heard: [AtomicU64; 3],
    replies: Replies,
    failed_probes: AtomicU64,
    /// Those of them that asked whether it answers at all.
    silent_probes: AtomicU64,
    /// Places of probes for the groups in which it is failing.
    pub(super) probe_places: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct ServerState {
    health: Health,
    edns: Edns,
    datagrams: Datagrams,
    /// The latest that was heard over TCP was a reply, and no connection has failed since.
    answers_tcp: bool,
    /// A probe in both forms is on its way.
    is_form_probing: bool,
    window: Window,
    latency: Latency,
    loops: Loops,
    /// Lookups that wait for a place.
    turns: PlaceQueue,
}

/// The state of a server, for people and metrics.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// For how long it is down.
    pub(super) down_for: Option<Duration>,
    pub(super) looping_for: Option<Duration>,
    pub(super) latency: Option<Duration>,
    pub(super) edns: bool,
    /// Its UDP gives no replies, and it is asked over TCP first (FW27).
    pub(super) has_silent_udp: bool,
    pub(super) in_flight: usize,
    pub(super) places: usize,
    pub(super) sent: u64,
    /// Good replies, errors, silence.
    pub(super) heard: [u64; 3],
    pub(super) connections: Counted,
}

impl Server {
    pub(super) fn new(
        id: ServerId,
        identity: ServerIdentity,
        client: Option<Client>,
        of_address: Arc<AddressCounts>,
        common: Arc<Common>,
    ) -> Server {
        Server {
            id,
            connections: Arc::new(Connections::new(identity.address, client, Arc::clone(&common))),
            pool: Arc::new(Pool::new(id, identity.address, Arc::clone(&common))),
            shown_name: identity.shown_name(),
            identity,
            of_address,
            common,
            state: Mutex::default(),
            sent: AtomicU64::new(0),
            heard: Default::default(),
            replies: Replies::default(),
            failed_probes: AtomicU64::new(0),
            silent_probes: AtomicU64::new(0),
            probe_places: Arc::new(Semaphore::new(PROBE_PLACES)),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.identity.address
    }

    /// What its configuration names, and what it is asked over first as long as that gets replies.
    pub(super) fn transport(&self) -> Transport {
        match self.identity.transport {
            config::Transport::Udp => Transport::Udp,
            config::Transport::Tcp
            | config::Transport::Tls
            | config::Transport::Https
            | config::Transport::Quic => Transport::Connection,
        }
    }

    /// What it is asked over first now: TCP while its UDP is silent (FW27).
    pub(super) fn asked_over(&self) -> Transport {
        self.first_of(&self.state())
    }

    fn first_of(&self, state: &ServerState) -> Transport {
        match self.has_silent_udp(state) && !state.health.is_down() {
            true => Transport::Connection,
            false => self.transport(),
        }
    }

    /// Never of a server with another transport: it gets no clear text (FW2).
    fn has_silent_udp(&self, state: &ServerState) -> bool {
        self.transport() == Transport::Udp && state.datagrams.is_silent()
    }

    /// Whether a query over TCP has an OPT record.
    fn uses_edns_over_tcp(&self, state: &ServerState, now: Instant) -> bool {
        match self.transport() {
            Transport::Udp => state.edns.is_used_over_tcp(now),
            Transport::Connection => state.edns.is_used(now),
        }
    }

    /// Whether only its TCP, which answers, takes OPT records.
    fn signs_over_tcp(&self, state: &ServerState, now: Instant) -> bool {
        state.answers_tcp && !state.edns.is_used(now) && self.uses_edns_over_tcp(state, now)
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        #[cfg(test)]
        super::common::LOCKS.set(super::common::LOCKS.get() + 1);
        self.state.lock().expect("nothing panics while it holds this")
    }

    /// The server as every group may ask it; none while it leads back to us (FW50).
    pub(super) fn candidate(&self, member: usize, now: Instant) -> Option<Candidate> {
        let state = self.state();
        state.loops.looping_since().is_none().then(|| Candidate {
            member,
            transport: self.first_of(&state),
            has_silent_udp: self.first_of(&state) != self.transport(),
            standing: match state.health.is_down() {
                true => Standing::Down,
                false => Standing::Healthy,
            },
            latency: state.latency.smoothed(),
            edns: state.edns.is_used(now),
            edns_over_tcp: self.uses_edns_over_tcp(&state, now),
            signs_over_tcp: self.signs_over_tcp(&state, now),
        })
    }

    /// Whether a query to it has an OPT record (FW25).
    pub(super) fn uses_edns(&self, now: Instant) -> bool {
        self.state().edns.is_used(now)
    }

    /// How long queries to it have no OPT record from now on, if it has refused one.
    pub(super) fn without_edns_for(&self, now: Instant) -> Option<Duration> {
        self.state().edns.unused_for(now)
    }

    /// Whether its replies may have signatures: it understands OPT records, as far as is known. One that has
    /// never replied and is down gives none.
    pub(super) fn may_give_signatures(&self, now: Instant) -> bool {
        let has_replied = self.heard[Heard::Good as usize].load(Ordering::Relaxed) > 0;
        let state = self.state();
        let signs = state.edns.is_used(now) || self.signs_over_tcp(&state, now);
        drop(state);
        signs && (has_replied || self.is_up())
    }

    /// Whether it is asked and answers: it is neither down nor leads back to us.
    pub(super) fn is_up(&self) -> bool {
        let state = self.state();
        !state.health.is_down() && state.loops.looping_since().is_none()
    }

    pub(super) fn down_since(&self) -> Option<Instant> {
        self.state().health.down_since()
    }

    /// The configuration changed; see [`Loops::configured`] and [`Window::configure`].
    pub(super) fn configured(&self, is_default: bool, most: usize) {
        let mut state = self.state();
        state.loops.configured(is_default);
        state.window.configure(most);
        state.give_places();
    }

    pub(super) fn seen(&self, now: Instant) -> Seen {
        let state = self.state();
        let since = |at: Instant| now.saturating_duration_since(at);
        Seen {
            down_for: state.health.down_since().map(since),
            looping_for: state.loops.looping_since().map(since),
            latency: state.latency.smoothed(),
            edns: state.edns.is_used(now),
            has_silent_udp: self.has_silent_udp(&state),
            in_flight: state.window.taken(),
            places: state.window.places(),
            sent: self.sent.load(Ordering::Relaxed),
            heard: std::array::from_fn(|place| self.heard[place].load(Ordering::Relaxed)),
            connections: self.connections.counted(now),
        }
    }

    /// How long replies took so far, by the places of [`rcode::LABELS`].
    pub(super) fn replies(&self) -> [Distribution; rcode::LABELS.len()] {
        self.replies.read()
    }

    /// Counts a reply of this Rcode that came after this time.
    fn replied(&self, rcode: u16, after: Duration) {
        self.replies.add(rcode, after);
        self.of_address.replies.add(rcode, after);
    }

    fn count_failed_probe(&self) {
        self.failed_probes.fetch_add(1, Ordering::Relaxed);
        self.of_address.probe_failed();
    }

    /// Probes without a reply so far.
    pub(super) fn failed_probes(&self) -> u64 {
        self.failed_probes.load(Ordering::Relaxed)
    }

    /// Of these the ones that asked whether it answers at all: each lets the next one ask for other groups (FW27).
    pub(super) fn silent_probes(&self) -> u64 {
        self.silent_probes.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.pool.close_all(now());
    }
}

/// What a person should do about a server that leads back to us (FW50).
pub(super) const LOOP_REMEDY: &str =
    "point it at other servers, or write other servers under upstreams or stubDomains";

/// The warning about a server that leads back to us (FW50).
pub(super) fn looping(address: SocketAddr) -> String {
    format!("upstream {address} forwards to ClusterDNS itself and is not asked: {LOOP_REMEDY}")
}

#[cfg(test)]
mod tests;
