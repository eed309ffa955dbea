//! Opens the port of HTTP, and says what to do when that is not possible.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted: those of 0.2 s at 20,000 a second. If more wait, the kernel drops the
/// first segment of the next ones, and its repetition comes too late for a probe of kubelet. The kernel takes
/// `net.core.somaxconn` where that is less; its default is the same.
const BACKLOG: i32 = 4096;

/// Octets that the kernel keeps for one connection of what its client has not confirmed, counted twice with its own overhead.
/// They are memory of the pod, and clients that read nothing could make them megabytes, also of connections that have ended.
const SEND_OCTETS: usize = 32 << 10;
/// Octets that the kernel keeps of what we have not read, counted in the same way: a request is small.
const RECEIVE_OCTETS: usize = 32 << 10;
/// After this time in which a client takes nothing, the kernel forgets its connection and what it did not take.
const UNREAD_WITHIN: Duration = Duration::from_secs(10);

/// The addresses that mean the same, in the order of preference. `[::]` is every address of the pod, its IPv4 ones too:
/// with dual stack kubelet asks the family that the cluster has first. A node without IPv6 does not have that address,
/// so `0.0.0.0` takes its place there.
pub fn candidates(address: SocketAddr) -> Vec<SocketAddr> {
    let mut all = vec![address];
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        all.push(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()));
    }
    all
}

/// Opens the first address that can be opened, of those that mean the same.
///
/// # Errors
/// When none can: the message says why and what to do.
pub fn bind(candidates: &[SocketAddr]) -> anyhow::Result<TcpListener> {
    first_of(candidates, listen).map_err(|(address, error)| {
        let advice = advice(&error);
        anyhow::Error::new(error).context(format!("cannot listen for HTTP on {address}: {advice}"))
    })
}

/// The first that can be opened, or the error of the last one. A port that is taken or not allowed is so in the other
/// family too.
fn first_of<T>(
    candidates: &[SocketAddr],
    listen: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<T, (SocketAddr, io::Error)> {
    let unspecified = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    let mut last = (unspecified, io::ErrorKind::AddrNotAvailable.into());
    for &address in candidates {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = (address, error),
        }
        if [io::ErrorKind::AddrInUse, io::ErrorKind::PermissionDenied].contains(&last.1.kind()) {
            break;
        }
    }
    Err(last)
}

/// What a person can do about it.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process has this port: stop it, or choose another with --http"
        }
        io::ErrorKind::PermissionDenied => {
            "this user may not have ports below 1024: choose another with --http"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have this address: correct --http"
        }
        _ => "choose another address with --http",
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // The node's sysctl bindv6only must not decide whether IPv4 probes are answered.
        socket.set_only_v6(false)?;
    }
    // A restart must not wait for the connections of the process before it.
    socket.set_reuse_address(true)?;
    // Those that it accepts have the same bounds.
    socket.set_send_buffer_size(SEND_OCTETS)?;
    socket.set_recv_buffer_size(RECEIVE_OCTETS)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNREAD_WITHIN))?;
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
        let listener = bind(&candidates(any(0))).expect("a free port");
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
    fn what_the_kernel_keeps_of_a_connection_has_a_bound() {
        let listener = bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let accepted = listener.accept().unwrap().0;
        let accepted = socket2::SockRef::from(&accepted);
        // The kernel doubles what it is asked for.
        assert!(accepted.send_buffer_size().unwrap() <= 2 * SEND_OCTETS);
        assert!(accepted.recv_buffer_size().unwrap() <= 2 * RECEIVE_OCTETS);
        assert_eq!(accepted.tcp_user_timeout().unwrap(), Some(UNREAD_WITHIN));
    }

    #[test]
    fn a_node_without_ipv6_is_listened_on_by_ipv4() {
        let without_ipv6 = |address: SocketAddr| match address.is_ipv4() {
            true => Ok(address),
            // EAFNOSUPPORT: what socket() returns where the kernel has no IPv6.
            false => Err(io::Error::from_raw_os_error(97)),
        };
        let taken = first_of(&candidates(any(8080)), without_ipv6).unwrap();
        assert_eq!(taken, "0.0.0.0:8080".parse().unwrap());
        let one = "[fd00::1]:8080".parse().unwrap();
        assert!(first_of(&candidates(one), without_ipv6).is_err(), "that address was asked for");
    }

    #[test]
    fn a_taken_port_says_what_to_do_and_no_other_address_is_taken() {
        let taken = |_: SocketAddr| Err::<(), _>(io::Error::from(io::ErrorKind::AddrInUse));
        let (address, error) = first_of(&candidates(any(8080)), taken).unwrap_err();
        assert_eq!((address, error.kind()), (any(8080), io::ErrorKind::AddrInUse));
        let first = bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let address = first.local_addr().unwrap();
        let message = format!("{:#}", bind(&[address]).unwrap_err());
        assert!(message.contains("another process has this port"), "{message}");
        assert!(message.contains(&address.to_string()), "{message}");
    }
}
