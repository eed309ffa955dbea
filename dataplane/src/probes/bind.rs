//! Opening the port of HTTP, and saying what to do when it cannot be had.

use std::io;
use std::net::SocketAddr;

use anyhow::Context;

/// Connections that may wait to be accepted: those of 0.2 s at 20,000 a second. Of more, the kernel drops the first
/// segment, and kubelet tries again only after its patience is over. The kernel takes `net.core.somaxconn` where that
/// is less; its default is the same.
const BACKLOG: i32 = 4096;

/// Takes the first address that can be had, of those that mean the same.
///
/// # Errors
/// When none can: the message says why and what to do.
pub fn bind(candidates: &[SocketAddr]) -> anyhow::Result<std::net::TcpListener> {
    let mut last = None;
    for &address in candidates {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some((address, error)),
        }
    }
    let (address, error) = last.context("no address for HTTP")?;
    let advice = match error.kind() {
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
    };
    Err(error).with_context(|| format!("cannot listen for HTTP on {address}: {advice}"))
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // [::] is every address of the machine, IPv4 ones too.
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

    #[test]
    fn a_taken_port_says_what_to_do() {
        let taken = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = taken.local_addr().unwrap();
        let message = format!("{:#}", bind(&[address]).unwrap_err());
        assert!(message.contains("another process has this port"), "{message}");
        assert!(message.contains(&address.to_string()), "{message}");
    }
}
