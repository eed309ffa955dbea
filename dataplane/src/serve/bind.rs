//! Opening every listener, and saying what to do when one cannot be opened.
//!
//! UDP ports are always shared among sockets of one user. TCP ports are shared only where that was asked for, so a
//! second process that was started by mistake fails.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use dataplane_udp::{Options, Socket};
use socket2::{Domain, Protocol, Type};

/// Octets that the kernel keeps for one connection of what its client has not confirmed. The kernel counts twice as many, with
/// its own overhead.
const SEND_OCTETS: usize = 32 << 10;
/// With as many of these that a client has no room for, the kernel takes no more. The rest of the replies stays with us, where
/// it counts (WR44) and has a deadline (WR42).
const UNSENT_OCTETS: u32 = 16 << 10;
/// Octets that the kernel keeps of what we have not read, counted in the same way.
const RECEIVE_OCTETS: usize = 32 << 10;
/// After this time in which a client acknowledges nothing that was sent, or takes nothing more, the kernel forgets its
/// connection and what it did not take, also one that we have closed.
const UNREAD_WITHIN: Duration = Duration::from_secs(10);

/// Connections the kernel completes ahead of `accept`.
pub(super) const BACKLOG: i32 = 1024;

/// How people choose the port of DNS over UDP and TCP, and those of encrypted listeners.
const BY_FLAG: &str = "with --listen";
const IN_THE_RESOURCE: &str = "in spec.listeners";

/// Ports tried for port 0, until one is free for UDP and TCP alike.
const PORT_ATTEMPTS: usize = 32;

/// Where to listen, for UDP and TCP alike.
#[derive(Clone, Debug)]
pub struct Listen {
    pub addresses: Vec<SocketAddr>,
    /// Whether another process of this user may listen there too: one that takes over from this one (D3).
    pub shares_ports: bool,
}

impl Listen {
    /// At these addresses, alone.
    pub fn at(addresses: impl Into<Vec<SocketAddr>>) -> Listen {
        Listen { addresses: addresses.into(), shares_ports: false }
    }
}

#[derive(Debug)]
pub(super) struct Bound {
    pub(super) address: SocketAddr,
    /// One socket per worker, all of this address (SO_REUSEPORT).
    pub(super) udp: Vec<Arc<Socket>>,
    pub(super) tcp: TcpListener,
}

/// Why one address could not be opened.
#[derive(Debug)]
struct Failure {
    transport: &'static str,
    address: SocketAddr,
    error: io::Error,
}

/// Opens every address, or none.
pub(super) fn all(listen: &Listen, workers: usize) -> anyhow::Result<Vec<Bound>> {
    let open = |address| one(address, workers, listen.shares_ports);
    let (bound, missing) = every(&listen.addresses, BY_FLAG, open)?;
    for address in missing {
        tracing::info!(%address, "not listening there: this machine does not have the address family");
    }
    Ok(bound)
}

/// These addresses with another port, each once: two may differ in nothing but their ports, and the wildcard address of a family
/// has all others of that family.
pub(super) fn at_port(addresses: &[SocketAddr], port: u16) -> Vec<SocketAddr> {
    let mut at: Vec<SocketAddr> = Vec::new();
    for mut address in addresses.iter().copied() {
        address.set_port(port);
        let is_wildcard_of = |other: &SocketAddr| {
            other.ip().is_unspecified() && other.is_ipv4() == address.is_ipv4()
        };
        let is_covered = !address.ip().is_unspecified() && addresses.iter().any(is_wildcard_of);
        // The system chooses a port for each.
        if port == 0 || !is_covered && !at.contains(&address) {
            at.push(address);
        }
    }
    at
}

/// Opens every address for streams alone, or none.
pub(super) fn streams(listen: &Listen) -> anyhow::Result<Vec<TcpListener>> {
    let open = |address| tcp(address, listen.shares_ports).map_err(Failure::new("TCP", address));
    every(&listen.addresses, IN_THE_RESOURCE, open).map(|(opened, _)| opened)
}

/// Opens every address for datagrams that are not DNS over UDP, or none.
pub(super) fn datagrams(listen: &[SocketAddr]) -> anyhow::Result<Vec<UdpSocket>> {
    let open = |address| plain_udp(address).map_err(Failure::new("UDP", address));
    every(listen, IN_THE_RESOURCE, open).map(|(opened, _)| opened)
}

/// Tests whether every address can be bound. The sockets are closed again: datagrams to a socket that is not read
/// yet would be lost or answered late.
pub(super) fn check(listen: &Listen) -> anyhow::Result<()> {
    every(&listen.addresses, BY_FLAG, |address| try_out(address, listen.shares_ports)).map(drop)
}

/// Opens each address, whose port people choose so, by `open`; with those whose family the machine does not have, unless it has none of them.
fn every<T>(
    listen: &[SocketAddr],
    chosen: &str,
    open: impl Fn(SocketAddr) -> Result<T, Failure>,
) -> anyhow::Result<(Vec<T>, Vec<SocketAddr>)> {
    let mut opened = Vec::new();
    let mut missing = Vec::new();
    for &address in listen {
        match open(address) {
            Ok(open) => opened.push(open),
            Err(failure) if failure.family_is_missing() => missing.push(failure),
            Err(failure) => return Err(failure.explain(chosen)),
        }
    }
    let addresses = missing.iter().map(|failure| failure.address).collect();
    match (opened.is_empty(), missing.into_iter().next()) {
        (false, _) => Ok((opened, addresses)),
        (true, Some(failure)) => Err(failure.explain(chosen)),
        (true, None) => bail!("no address to listen on: give one with --listen ADDRESS:PORT"),
    }
}

/// Binds both transports and lets go of them. TCP first, as in [`both`], and without listening: a client that
/// connected would be cut off.
///
/// Where ports are shared, TCP alone: the kernel would give the UDP socket a part of what is sent to the process that
/// serves there, and that would be lost.
fn try_out(address: SocketAddr, is_shared: bool) -> Result<(), Failure> {
    drop(bound_tcp(address, is_shared).map_err(Failure::new("TCP", address))?);
    if !is_shared {
        drop(Socket::bind(address, &Options::default()).map_err(Failure::new("UDP", address))?);
    }
    Ok(())
}

fn one(address: SocketAddr, workers: usize, is_shared: bool) -> Result<Bound, Failure> {
    if address.port() != 0 {
        return both(address, workers, is_shared);
    }
    let mut last = None;
    for _ in 0..PORT_ATTEMPTS {
        match on_a_free_port(address, workers, is_shared) {
            Err(failure) if failure.error.kind() == ErrorKind::AddrInUse => last = Some(failure),
            result => return result,
        }
    }
    Err(last.unwrap_or_else(|| {
        let error = io::Error::from(ErrorKind::AddrInUse);
        Failure::new("UDP", address)(error)
    }))
}

/// TCP chooses the port. UDP may share ports among our own sockets, so a socket that shares nothing first makes
/// sure that no other process is there.
fn on_a_free_port(address: SocketAddr, workers: usize, is_shared: bool) -> Result<Bound, Failure> {
    let tcp = tcp(address, is_shared).map_err(Failure::new("TCP", address))?;
    let address = tcp.local_addr().map_err(Failure::new("TCP", address))?;
    let alone = Options { reuse_port: false, ..Options::default() };
    drop(Socket::bind(address, &alone).map_err(Failure::new("UDP", address))?);
    let udp = udp(address, workers)?;
    Ok(Bound { address, udp, tcp })
}

fn both(address: SocketAddr, workers: usize, is_shared: bool) -> Result<Bound, Failure> {
    // TCP first: UDP ports are shared, and a second process that opened its UDP sockets before it
    // failed would have taken queries from the one that serves.
    let tcp = tcp(address, is_shared).map_err(Failure::new("TCP", address))?;
    let udp = udp(address, workers)?;
    Ok(Bound { address, udp, tcp })
}

fn udp(address: SocketAddr, workers: usize) -> Result<Vec<Arc<Socket>>, Failure> {
    (0..workers)
        .map(|_| Socket::bind(address, &Options::default()).map(Arc::new))
        .collect::<io::Result<_>>()
        .map_err(Failure::new("UDP", address))
}

fn plain_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    let socket = socket.into();
    dataplane_udp::enlarge(&socket);
    Ok(socket)
}

fn tcp(address: SocketAddr, is_shared: bool) -> io::Result<TcpListener> {
    let socket = bound_tcp(address, is_shared)?;
    socket.listen(BACKLOG)?;
    if is_shared {
        // A process that ended has given all connections to another one. It fails where there was none.
        let _ = dataplane_udp::spread_connections(&socket);
    }
    Ok(socket.into())
}

fn bound_tcp(address: SocketAddr, is_shared: bool) -> io::Result<socket2::Socket> {
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // A restart must not wait for connections of the last run to be forgotten.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(is_shared)?;
    socket.set_nonblocking(true)?;
    bound_memory(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Connections that this socket accepts have the same bounds. What the kernel keeps for them counts as memory of the pod, and a
/// client that does not read could make it megabytes, also after we have closed its connection ([`super::tcp`] sees to that).
fn bound_memory(socket: &socket2::Socket) -> io::Result<()> {
    socket.set_send_buffer_size(SEND_OCTETS)?;
    socket.set_recv_buffer_size(RECEIVE_OCTETS)?;
    socket.set_tcp_notsent_lowat(UNSENT_OCTETS)?;
    socket.set_tcp_user_timeout(Some(UNREAD_WITHIN))?;
    Ok(())
}

impl Failure {
    fn new(transport: &'static str, address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { transport, address, error }
    }

    /// The machine has no such address family, rather than not this address.
    fn family_is_missing(&self) -> bool {
        match self.error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => true,
            Some(libc::EADDRNOTAVAIL) => match self.address.ip() {
                IpAddr::V4(ip) => ip.is_unspecified(),
                IpAddr::V6(ip) => ip.is_unspecified() || ip.is_loopback(),
            },
            _ => false,
        }
    }

    fn explain(self, chosen: &str) -> anyhow::Error {
        let family_is_missing = self.family_is_missing();
        let Failure { transport, address, error } = self;
        let port = address.port();
        let advice = match error.kind() {
            ErrorKind::AddrInUse => {
                let (shown, holder) = match transport {
                    // Before there was this listener, a query may have left from its port, and its socket may be open still.
                    "UDP" if chosen == IN_THE_RESOURCE => {
                        ("anup", "another program, or for some minutes our socket to an upstream,")
                    }
                    "UDP" => ("lunp", "another program"),
                    _ => ("ltnp", "another program"),
                };
                format!(
                    "{holder} holds this port (`ss -{shown} 'sport = :{port}'` shows which): stop it, or choose another port {chosen}"
                )
            }
            ErrorKind::PermissionDenied if port < 1024 => format!(
                "ports below 1024 need permission: choose one from 1024 up {chosen}, allow it with `sysctl net.ipv4.ip_unprivileged_port_start={port}`, or grant CAP_NET_BIND_SERVICE"
            ),
            _ if family_is_missing => {
                "this machine does not have the address family: choose an address of the other with --listen".to_owned()
            }
            ErrorKind::AddrNotAvailable => {
                "no interface of this machine has this address (`ip address` lists those it has): correct --listen".to_owned()
            }
            _ => "choose another address with --listen if it persists".to_owned(),
        };
        anyhow!("cannot listen on {transport} {address}: {error}: {advice}")
    }
}

#[cfg(test)]
mod tests;
