//! Which of the listeners that share an address with SO_REUSEPORT gets a new connection. Usually the kernel chooses by the
//! addresses and ports of the client and the server; a program of classic BPF on one of the listeners chooses for all of them, and
//! stays when that one closes (socket(7), for TCP since Linux 4.6).

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

use crate::linux::set;

/// Gives all new connections for the address of this listener to the listener at this place, by age and from 0. Where there is
/// none, the kernel chooses as usual. When a listener closes, the youngest one takes its place.
///
/// # Errors
/// What the system says, such as `EINVAL` for a listener without SO_REUSEPORT. Nothing has changed then.
pub fn steer_connections(listener: &impl AsFd, place: u32) -> io::Result<()> {
    let returns = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut program = [libc::sock_filter { code: returns, jt: 0, jf: 0, k: place }];
    let program = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    // SAFETY: the pointer is to a program of the length given, whose instructions outlive the call; the kernel copies them.
    let status = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            mem::size_of_val(&program) as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel choose as usual again, after [`steer_connections`] on any of the listeners.
///
/// # Errors
/// What the system says, such as `ENOENT` where no place was given. Nothing has changed then. Linux before 5.3 does not have it.
pub fn spread_connections(listener: &impl AsFd) -> io::Result<()> {
    set(listener.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

    use socket2::{Domain, Type};

    use super::*;

    /// With this many, each of two listeners gets some, unless they are steered.
    const CONNECTIONS: usize = 64;

    fn listener(port: u16, is_shared: bool) -> TcpListener {
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_reuse_port(is_shared).expect("Linux has it");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        socket.bind(&address.into()).expect("it is free, or shared");
        socket.listen(1024).expect("it listens");
        socket.set_nonblocking(true).expect("it does not wait");
        socket.into()
    }

    fn port(listener: &TcpListener) -> u16 {
        listener.local_addr().expect("bound").port()
    }

    /// How many of some new connections each of them gets.
    fn got(listeners: &[&TcpListener]) -> Vec<usize> {
        let address = listeners[0].local_addr().expect("bound");
        for _ in 0..CONNECTIONS {
            TcpStream::connect(address).expect("there is room for it");
        }
        let accepted =
            |listener: &&TcpListener| std::iter::from_fn(|| listener.accept().ok()).count();
        listeners.iter().map(accepted).collect()
    }

    #[test]
    fn d3_new_connections_go_to_the_listener_at_the_given_place() {
        let older = listener(0, true);
        let younger = listener(port(&older), true);
        let both = [&older, &younger];
        assert!(got(&both).iter().all(|got| *got > 0));
        for by in both {
            steer_connections(by, 1).expect("they share their address");
            assert_eq!(got(&both), [0, CONNECTIONS]);
            steer_connections(by, 0).expect("they share their address");
            assert_eq!(got(&both), [CONNECTIONS, 0]);
        }
        spread_connections(&younger).expect("they were steered");
        assert!(got(&both).iter().all(|got| *got > 0));
        assert!(spread_connections(&younger).is_err(), "they are not steered any more");
    }

    #[test]
    fn d3_a_place_without_a_listener_steers_nothing() {
        let older = listener(0, true);
        let younger = listener(port(&older), true);
        steer_connections(&older, 1).expect("they share their address");
        drop(older);
        assert_eq!(got(&[&younger]), [CONNECTIONS]);
    }

    #[test]
    fn d3_connections_of_a_listener_that_shares_nothing_are_not_steered() {
        let alone = listener(0, false);
        let error = steer_connections(&alone, 0).expect_err("it is alone");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
