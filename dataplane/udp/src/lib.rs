//! Batched UDP sockets behind a safe interface; the only unsafe code.
//!
//! The kernel's price for a datagram is more than nine tenths of the cost of an answer, so the one thing worth
//! doing is to pay it for 32 datagrams at a time: [`Socket::recv`] fills a [`Batch`], [`Batch::answer`] lets the
//! caller write one reply per datagram, [`Socket::send`] sends them all, each from the address it was sent to.
//! Linux only, as the rest of the data plane.
// Others build on this package: everything that they see says what it is.
#![warn(missing_docs)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]
#![warn(clippy::semicolon_if_nothing_returned, clippy::redundant_closure_for_method_calls)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![allow(
    unsafe_code,
    reason = "recvmmsg, sendmmsg and their ancillary data have no safe wrapper; the rest of the workspace denies it"
)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "ClusterDNS builds and runs on Linux only: its data plane uses recvmmsg, epoll and other calls of Linux"
);

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

mod boot;
mod descriptors;
mod large_pages;
mod scheduling;
mod signals;
mod linux;
mod steering;

pub use boot::since_boot;
pub use descriptors::{make_room_for_descriptors, most_descriptors, raise_descriptor_limit};
pub use large_pages::refuse_too_large_pages;
pub use linux::{Batch, Poller, Ready, Received, Socket};
pub use linux::{datagrams_dropped, enlarge, octets_to_send, read_one_by_one};
pub use scheduling::{ask_for_turns, give_way};
pub use signals::{hold_back_ends, let_ends_come};
pub use steering::{spread_connections, steer_connections};

/// Most octets of a datagram that are read, and of a reply (WR40): a longer datagram is cut, and what is left of
/// it is for the parser to refuse.
pub const DATAGRAM_OCTETS: usize = 4096;

/// The unspecified address of the same family, to which a socket is bound that connects to `of`.
pub fn wildcard(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Where this machine reaches what listens there: at the loopback address, if it listens at all addresses.
pub fn reachable(mut listener: SocketAddr) -> SocketAddr {
    if listener.ip().is_unspecified() {
        listener.set_ip(match listener.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listener
}

/// How a socket is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Several sockets of this user may share the address; the kernel spreads clients over them.
    pub reuse_port: bool,
    /// Octets the kernel may queue for us, as far as it lets us: it doubles them and counts its own overhead, so 1 MiB is
    /// about 2,700 queries. They bridge 0.1 s in which a container may not run, at 27,000 a second. More only lets clients wait:
    /// at a rate that no core keeps up with the queue is always full, and what is longer than the caches of the processor is
    /// slower to read (docs/benchmarks.md, overload).
    pub receive_buffer: usize,
    /// Octets of replies the kernel may queue.
    pub send_buffer: usize,
    /// How long [`Socket::recv`] waits at most before it returns without a datagram.
    pub wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reuse_port: true,
            receive_buffer: 1 << 20,
            send_buffer: 1 << 20,
            wait: Duration::from_secs(1),
        }
    }
}

/// Our side of one exchange: the address a datagram was sent to, from which its reply must leave (WR8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The address; unspecified where the system does not report it; the system then chooses.
    pub address: IpAddr,
    /// The interface, where the address means nothing without it (IPv6 link-local), else 0.
    pub interface: u32,
}

impl From<IpAddr> for Local {
    fn from(address: IpAddr) -> Self {
        Self { address, interface: 0 }
    }
}

/// A received datagram, its sender and its local address.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'b> {
    /// What it says, at most [`DATAGRAM_OCTETS`] of it.
    pub bytes: &'b [u8],
    /// Source address. No reply can go to port 0.
    pub peer: SocketAddr,
    /// The address it was sent to.
    pub local: Local,
    /// How long it waited in the kernel's queue before this batch was received; 0 where the system does not report it.
    pub waited: Duration,
}

/// The results of sending the replies of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Replies the kernel took.
    pub sent: usize,
    /// Replies it refused: no route, a full queue, a firewall. Each is given up, the others are sent.
    pub failed: usize,
    /// Replies that were not given to it, because no machine answers for the address of the client, and much of what was sent
    /// has not left.
    pub withheld: usize,
}
