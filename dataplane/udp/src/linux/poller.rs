//! Waiting for one of many sockets: one thread that answers clients also reads what upstreams reply.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Sockets that one [`Poller::wait`] shows at most: a thread that has read them looks for queries of clients again. It asks
/// upstreams for four queries meanwhile, so replies are read as fast as they are caused; one more is that of clients.
const MOST: usize = 5;

/// A set of sockets of which each is shown as long as there is something to read from it (`epoll`, level-triggered).
#[derive(Debug)]
pub struct Poller {
    descriptor: OwnedFd,
}

/// What a [`Poller::wait`] found.
pub struct Ready {
    events: [libc::epoll_event; MOST],
    count: usize,
}

impl Poller {
    /// A set without sockets.
    ///
    /// # Errors
    /// What the system says: no descriptor is free.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call has no pointers.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nothing else owns it.
        Ok(Self { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// Shows this socket under `key` from now on. One that is closed leaves the set.
    ///
    /// # Errors
    /// What the system says: it is in the set, or there is no room for one more.
    pub fn add(&self, socket: &impl AsFd, key: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, key)
    }

    /// Shows it no more.
    pub fn remove(&self, socket: &impl AsFd) {
        // One that is not in the set is what was wanted.
        let _ = self.control(libc::EPOLL_CTL_DEL, socket, 0);
    }

    fn control(&self, operation: libc::c_int, socket: &impl AsFd, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: key };
        // SAFETY: the pointer is to `event`, which outlives the call; both descriptors are open, as they are borrowed.
        let status = unsafe {
            libc::epoll_ctl(
                self.descriptor.as_raw_fd(),
                operation,
                socket.as_fd().as_raw_fd(),
                &raw mut event,
            )
        };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits until one of them has something to read, an error included, at most for this time.
    ///
    /// # Errors
    /// Only what says that waiting cannot work at all.
    pub fn wait(&self, ready: &mut Ready, time: Duration) -> io::Result<()> {
        ready.count = 0;
        let time_ms = libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the pointer is to MOST events, of which the kernel writes at most that many.
        let count = unsafe {
            libc::epoll_wait(
                self.descriptor.as_raw_fd(),
                ready.events.as_mut_ptr(),
                MOST as libc::c_int,
                time_ms,
            )
        };
        match usize::try_from(count) {
            Ok(count) => ready.count = count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl Ready {
    /// Room for what is found.
    pub fn new() -> Self {
        // SAFETY: an event is integers, for which zero is valid.
        Self { events: unsafe { mem::zeroed() }, count: 0 }
    }

    /// Whether other sockets may have something to read too.
    pub fn is_full(&self) -> bool {
        self.count == MOST
    }

    /// Nothing was found.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// The keys of the sockets that have something to read.
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        self.events.iter().take(self.count).map(|event| event.u64)
    }
}

impl Default for Ready {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::UdpSocket;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn found(poller: &Poller, time: Duration) -> BTreeSet<u64> {
        let mut ready = Ready::new();
        poller.wait(&mut ready, time).expect("a wait");
        ready.keys().collect()
    }

    #[test]
    fn a_socket_is_shown_as_long_as_there_is_something_to_read() {
        let poller = Poller::new().expect("a set");
        let sockets = [7, 9].map(|key| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            poller.add(&socket, key).expect("room");
            socket
        });
        assert_eq!(found(&poller, Duration::ZERO), BTreeSet::new());
        let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let send =
            |to: &UdpSocket| client.send_to(b"x", to.local_addr().expect("one")).expect("ok");
        send(&sockets[1]);
        for _ in 0..2 {
            assert_eq!(found(&poller, PATIENCE), BTreeSet::from([9]), "it was not read");
        }
        sockets[1].recv(&mut [0; 8]).expect("the datagram");
        assert_eq!(found(&poller, Duration::ZERO), BTreeSet::new());
        sockets.iter().for_each(|socket| {
            send(socket);
        });
        assert_eq!(found(&poller, PATIENCE), BTreeSet::from([7, 9]));
        poller.remove(&sockets[0]);
        poller.remove(&sockets[0]);
        assert_eq!(found(&poller, PATIENCE), BTreeSet::from([9]));
        drop(sockets);
        assert_eq!(found(&poller, Duration::ZERO), BTreeSet::new(), "what is closed is gone");
    }

    #[test]
    fn a_wait_that_shows_as_many_as_it_can_says_that_there_may_be_more() {
        let (poller, mut ready) = (Poller::new().expect("a set"), Ready::new());
        let sockets: Vec<UdpSocket> = (0..MOST as u64 + 2)
            .map(|key| {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
                poller.add(&socket, key).expect("room");
                socket
            })
            .collect();
        let send = |to: &UdpSocket| to.send_to(b"x", to.local_addr().expect("one")).expect("ok");
        for socket in &sockets[2..] {
            send(socket);
        }
        poller.wait(&mut ready, PATIENCE).expect("a wait");
        assert!(ready.is_full() && ready.keys().count() == MOST);
        for socket in &sockets[3..] {
            socket.recv(&mut [0; 8]).expect("the datagram");
        }
        poller.wait(&mut ready, PATIENCE).expect("a wait");
        assert!(!ready.is_full() && ready.keys().eq([2]));
    }

    #[test]
    fn what_icmp_says_of_a_closed_port_is_shown_too() {
        let poller = Poller::new().expect("a set");
        let closed = UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr().expect("one");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(closed).expect("connected");
        poller.add(&socket, 1).expect("room");
        socket.send(b"x").expect("sent");
        assert_eq!(found(&poller, PATIENCE), BTreeSet::from([1]));
        assert!(socket.recv(&mut [0; 8]).is_err(), "reading it shows the error, once");
        assert_eq!(found(&poller, Duration::ZERO), BTreeSet::new());
    }
}
