//! Counters of the sockets, besides those of queries; metrics read them at any time.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dataplane_udp::{Sent, Socket};
use serde::Serialize;

use super::certificate::{Certificate, CertificateState};
use super::encrypted::EncryptedCounters;
use super::traffic::TrafficTables;

/// Why a TCP connection ended, also the metrics label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CloseReason {
    /// The client closed the connection.
    Client,
    /// Reading or writing failed: reset, unreachable.
    Failed,
    /// WR42: nothing in progress for too long.
    Idle,
    /// WR42: a message took too long to arrive.
    SlowMessage,
    /// WR42: the client does not read its replies.
    SlowReader,
    /// WR43, N1: not a query.
    NotAQuery,
    /// WR44: the longest idle or in the middle of a message, for a new connection.
    Evicted,
    /// WR44: the same among those of one client, for a new one of that client.
    EvictedByClient,
    /// WR44: the newest of the client with the most connections, for a new connection while no connection is idle.
    LargestShare,
    /// WR44: a limit is reached, no connection is idle and no client holds more; closed unread.
    Refused,
    /// T8: its client began more handshakes than it may; closed before this one.
    HandshakeRate,
    /// WR44: the largest backlog when all buffers together reached their bound.
    Backlog,
    /// WR45: old enough to move to another replica.
    Age,
    /// E45: this process ends.
    Drain,
}

impl CloseReason {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [CloseReason; 14] = [
        CloseReason::Client,
        CloseReason::Failed,
        CloseReason::Idle,
        CloseReason::SlowMessage,
        CloseReason::SlowReader,
        CloseReason::NotAQuery,
        CloseReason::Evicted,
        CloseReason::EvictedByClient,
        CloseReason::LargestShare,
        CloseReason::Refused,
        CloseReason::HandshakeRate,
        CloseReason::Backlog,
        CloseReason::Age,
        CloseReason::Drain,
    ];

    /// The metrics label: lower case with underscores.
    pub const fn label(self) -> &'static str {
        match self {
            CloseReason::Client => "client",
            CloseReason::Failed => "failed",
            CloseReason::Idle => "idle",
            CloseReason::SlowMessage => "slow_message",
            CloseReason::SlowReader => "slow_reader",
            CloseReason::NotAQuery => "not_a_query",
            CloseReason::Evicted => "evicted",
            CloseReason::EvictedByClient => "evicted_by_client",
            CloseReason::LargestShare => "largest_share",
            CloseReason::Refused => "refused",
            CloseReason::HandshakeRate => "handshake_rate",
            CloseReason::Backlog => "backlog",
            CloseReason::Age => "age",
            CloseReason::Drain => "drain",
        }
    }
}

/// Counted by all serving threads; none of it is touched for an ordinary query.
#[derive(Debug, Default)]
pub struct ServeCounters {
    /// WR46: datagrams that had waited too long.
    pub udp_stale: AtomicU64,
    /// UDP replies the system did not take.
    pub udp_send_failed: AtomicU64,
    /// UDP replies to addresses that no machine answers for, while much of what was sent had not left.
    pub udp_withheld: AtomicU64,
    /// Times receiving from a UDP socket failed.
    pub udp_receive_failed: AtomicU64,
    /// Messages whose handling panicked: a defect of ours that cost these alone.
    pub panics: AtomicU64,
    /// TCP connections accepted, since start.
    pub tcp_accepted: AtomicU64,
    /// Times accepting failed, as without a free descriptor.
    pub tcp_accept_failed: AtomicU64,
    /// TCP connections open now.
    pub tcp_open: AtomicU64,
    /// Octets held for TCP connections now (WR44).
    pub tcp_buffered: AtomicU64,
    tcp_closed: [AtomicU64; CloseReason::ALL.len()],
    /// What came and what was answered.
    pub traffic: TrafficTables,
    /// Results of requests over HTTPS and QUIC.
    pub encrypted: EncryptedCounters,
    sockets: Vec<Arc<Socket>>,
    quic_sockets: Mutex<Vec<UdpSocket>>,
    certificates: Mutex<Vec<Arc<Certificate>>>,
    closed_listeners: Mutex<Vec<ClosedListener>>,
}

/// An encrypted listener whose port could not be opened, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClosedListener {
    /// `TLS`, `HTTPS` or `QUIC`.
    pub listener: &'static str,
    pub port: u16,
    /// What the system says.
    pub why: String,
}

impl ServeCounters {
    pub(super) fn new(sockets: Vec<Arc<Socket>>) -> Self {
        Self { traffic: TrafficTables::new(sockets.len()), sockets, ..Self::default() }
    }

    /// TCP connections that ended for this reason.
    pub fn tcp_closed(&self, reason: CloseReason) -> u64 {
        self.tcp_closed[reason as usize].load(Ordering::Relaxed)
    }

    /// Datagrams the kernel dropped before we could read them, as its queue was full (or they were damaged).
    pub fn udp_drops(&self) -> u64 {
        let dns: u64 = self.sockets.iter().map(|socket| socket.drops()).sum();
        let quic = self.quic_sockets.lock().unwrap_or_else(PoisonError::into_inner);
        dns + quic.iter().map(dataplane_udp::datagrams_dropped).sum::<u64>()
    }

    /// Sockets of QUIC, whose lost datagrams count with those of DNS over UDP.
    pub(super) fn add_quic_sockets(&self, sockets: Vec<UdpSocket>) {
        self.quic_sockets.lock().unwrap_or_else(PoisonError::into_inner).extend(sockets);
    }

    /// The certificates of encrypted listeners.
    pub fn certificates(&self) -> Vec<CertificateState> {
        let certificates = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        certificates.iter().map(|certificate| certificate.state()).collect()
    }

    pub(super) fn add_certificate(&self, certificate: Arc<Certificate>) {
        self.certificates.lock().unwrap_or_else(PoisonError::into_inner).push(certificate);
    }

    /// Encrypted listeners whose ports could not be opened: they are tried again every 10 s, and with each configuration.
    pub fn closed_listeners(&self) -> Vec<ClosedListener> {
        self.closed_listeners.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces those.
    pub fn set_closed_listeners(&self, closed: Vec<ClosedListener>) {
        *self.closed_listeners.lock().unwrap_or_else(PoisonError::into_inner) = closed;
    }

    /// Replies that were not sent. The first one that is withheld is said: someone forges addresses.
    pub(super) fn add_unsent(&self, sent: Sent) {
        if sent.failed > 0 {
            add(&self.udp_send_failed, sent.failed);
        }
        if sent.withheld > 0
            && self.udp_withheld.fetch_add(sent.withheld as u64, Ordering::Relaxed) == 0
        {
            tracing::warn!(
                "many UDP replies are to addresses of a network of this machine that no machine answers for, so they are withheld: \
                 a Pod may forge its source address; drop NET_RAW, or have the network check sources. Each further one is counted \
                 in clusterdns_udp_withheld_total"
            );
        }
    }

    pub(super) fn add_closed(&self, reason: CloseReason) {
        add(&self.tcp_closed[reason as usize], 1);
    }
}

/// For events that are so rare that threads can share a counter.
pub(super) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_close_reason_is_at_its_own_place() {
        for (place, reason) in CloseReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place, "{}", reason.label());
        }
    }
}
