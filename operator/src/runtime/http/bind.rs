//! Opens the port of HTTP. `[::]` is every address of the pod, also its IPv4 ones: with dual stack kubelet asks the
//! family that the cluster has first. A node without IPv6 has no such address, so `0.0.0.0` takes its place there.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use anyhow::Context;
use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Opens the port.
///
/// # Errors
/// When it cannot be had; the message says what to do.
pub(super) fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    first_of(&candidates(address), listen)
        .with_context(|| format!("cannot listen for HTTP on {address}: choose another with --http"))
}

/// The addresses that mean the same, in the order of preference.
fn candidates(address: SocketAddr) -> Vec<SocketAddr> {
    let mut all = vec![address];
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        all.push(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()));
    }
    all
}

/// The first that can be had. A port that is taken, or not allowed, is so in the other family too.
fn first_of<T>(
    candidates: &[SocketAddr],
    listen: impl Fn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for &address in candidates {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
        if [io::ErrorKind::AddrInUse, io::ErrorKind::PermissionDenied].contains(&last.kind()) {
            break;
        }
    }
    Err(last)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // The node's sysctl bindv6only must not decide whether IPv4 probes are answered.
        socket.set_only_v6(false)?;
    }
    // A restart must not wait for the connections of the process before it.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(port: u16) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)
    }

    #[test]
    fn probes_of_both_families_are_answered_on_every_address() {
        // A machine without IPv6 takes the other candidate, which IPv4 reaches as well.
        let listener = bind(any(0)).expect("a free port");
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(false).unwrap();
        let client = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        assert!(client.is_ok(), "{client:?}");
        if listener.local_addr().unwrap().is_ipv6() {
            let client = std::net::TcpStream::connect((Ipv6Addr::LOCALHOST, port));
            assert!(client.is_ok(), "{client:?}");
        }
    }

    #[test]
    fn a_node_without_ipv6_is_listened_on_by_ipv4() {
        let without_ipv6 = |address: SocketAddr| match address.is_ipv4() {
            true => Ok(address),
            // EAFNOSUPPORT, as socket() says it where the kernel has no IPv6.
            false => Err(io::Error::from_raw_os_error(97)),
        };
        let taken = first_of(&candidates(any(8080)), without_ipv6).unwrap();
        assert_eq!(taken, "0.0.0.0:8080".parse().unwrap());
        let one = "[fd00::1]:8080".parse().unwrap();
        assert!(first_of(&candidates(one), without_ipv6).is_err(), "that address was asked for");
    }

    #[test]
    fn a_taken_port_is_reported_and_no_other_address_is_taken() {
        let taken = |_: SocketAddr| Err::<(), _>(io::Error::from(io::ErrorKind::AddrInUse));
        let error = first_of(&candidates(any(8080)), taken).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let first = bind(any(0)).unwrap();
        let message = format!("{:#}", bind(first.local_addr().unwrap()).unwrap_err());
        assert!(message.contains("choose another with --http"), "{message}");
    }
}
