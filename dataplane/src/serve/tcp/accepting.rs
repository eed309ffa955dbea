//! Accepting connections, and how a listener closes without losing one (E45, D3).
//!
//! When a listener closes, the kernel resets connections that it has completed for it and that were not accepted, and those that it
//! is just completing. So a listener that closes first has the kernel give new connections to other processes that listen at its
//! address, and accepts what is left.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::super::bind::BACKLOG;
use super::super::counters::add;
use super::TcpServer;
use super::tls::Secured;

/// First and longest pause of accepting when it fails, as without a free descriptor (WR44, T7).
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Connections that are taken at most when a listener closes: as many as the kernel keeps for it.
const LEFT: usize = BACKLOG as usize + 1;

/// Places among the listeners of an address, by age. Usually the process that ends is the older one of two, so the first of
/// these is that of the other.
const PLACES: [u32; 2] = [1, 0];
/// How long connections still come that the kernel gave us before it gave them to another listener: on one node far less than
/// this. All places together take less than the least time that queries in progress have.
const SETTLES_WITHIN: Duration = Duration::from_millis(20);

/// Gives connections of this listener to the server until it stops; then the listener closes in order.
pub(super) async fn accept(server: Rc<TcpServer>, listener: TcpListener, secured: Option<Secured>) {
    let accepting = Accepting { server, listener, secured };
    let mut stopping = accepting.server.stopping.subscribe();
    let mut pause = ACCEPT_PAUSE;
    loop {
        let accepted = tokio::select! {
            accepted = accepting.listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        match take(&accepting.server, accepted, accepting.secured.as_ref()).await {
            Ok(()) => pause = ACCEPT_PAUSE,
            Err(error) => {
                if pause == ACCEPT_PAUSE {
                    tracing::warn!(%error, "cannot accept TCP connections for now; UDP is not affected");
                }
                let stopping = stopping.wait_for(|stopping| *stopping);
                let _ = tokio::time::timeout(pause, stopping).await;
                pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
            }
        }
    }
    accepting.leave().await;
}

/// One listener, and who serves its connections.
struct Accepting {
    server: Rc<TcpServer>,
    listener: TcpListener,
    secured: Option<Secured>,
}

impl Accepting {
    /// Turns new connections away, serves those that the kernel has for this listener, and closes it.
    async fn leave(self) {
        // Without SO_REUSEPORT no other process listens there.
        let _ = self.turn_away().await;
        let Accepting { server, listener, secured } = self;
        // The runtime may not know yet what the kernel has.
        let Ok(listener) = listener.into_std() else { return };
        let left: Vec<_> = std::iter::from_fn(|| listener.accept().ok()).take(LEFT).collect();
        drop(listener);
        for (stream, peer) in left {
            let accepted = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            let _ = take(&server, accepted.map(|stream| (stream, peer)), secured.as_ref()).await;
        }
    }

    /// Has the kernel give new connections to another process that listens at this address, if there is one.
    async fn turn_away(&self) -> io::Result<()> {
        for place in PLACES {
            dataplane_udp::steer_connections(&self.listener, place)?;
            self.take_for(SETTLES_WITHIN).await;
            if self.take_for(SETTLES_WITHIN).await == 0 {
                return Ok(());
            }
        }
        dataplane_udp::spread_connections(&self.listener)
    }

    /// Serves the connections that come within this time, and returns how many.
    async fn take_for(&self, time: Duration) -> usize {
        let until = Instant::now() + time;
        let mut taken = 0;
        while let Ok(accepted) = tokio::time::timeout_at(until, self.listener.accept()).await {
            if take(&self.server, accepted, self.secured.as_ref()).await.is_err() {
                break;
            }
            taken += 1;
        }
        taken
    }
}

/// Serves a connection.
///
/// # Errors
/// No connection can be accepted now.
async fn take(
    server: &Rc<TcpServer>,
    accepted: io::Result<(TcpStream, SocketAddr)>,
    secured: Option<&Secured>,
) -> io::Result<()> {
    match accepted {
        Ok((stream, peer)) => {
            // A panic must not end the listener.
            let welcome = AssertUnwindSafe(server.welcome(stream, peer, secured));
            if welcome.catch_unwind().await.is_err() {
                add(&server.counters.panics, 1);
            }
            Ok(())
        }
        Err(error) => {
            add(&server.counters.tcp_accept_failed, 1);
            // Only this connection is affected: it was gone before we took it.
            if is_of_the_connection(&error) { Ok(()) } else { Err(error) }
        }
    }
}

fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::tests::{message, patient, server, with_handshake_thread};
    use super::*;

    const CLIENTS: u16 = 32;

    /// As another process would open one at this address.
    fn shared(address: SocketAddr) -> TcpListener {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseport(true).unwrap();
        socket.bind(address).unwrap();
        socket.listen(1024).unwrap()
    }

    /// Clients that have connected and asked. No task runs meanwhile, so they are not accepted.
    fn clients(server: SocketAddr) -> Vec<std::net::TcpStream> {
        let connect = |id| {
            let mut client = std::net::TcpStream::connect(server).expect("there is room for it");
            client.write_all(&message(id, b"e")).expect("it is sent");
            client
        };
        (0..CLIENTS).map(connect).collect()
    }

    /// Each gets its reply.
    fn read(clients: Vec<std::net::TcpStream>) {
        for (id, mut client) in (0..CLIENTS).zip(clients) {
            let mut reply = [0; 15];
            client.read_exact(&mut reply).unwrap_or_else(|error| panic!("client {id}: {error}"));
            assert_eq!(reply[2..4], id.to_be_bytes());
        }
    }

    #[test]
    fn e45_a_listener_that_closes_takes_connections_that_were_not_accepted() {
        with_handshake_thread(patient(), async |server| {
            let listener = shared(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            let address = listener.local_addr().unwrap();
            let accepting = tokio::task::spawn_local(accept(Rc::clone(&server), listener, None));
            tokio::task::yield_now().await;
            let clients = clients(address);
            server.stopping.send_replace(true);
            accepting.await.unwrap();
            assert!(std::net::TcpStream::connect(address).is_err(), "it is closed");
            tokio::task::spawn_blocking(|| read(clients)).await.expect("all are answered");
        });
    }

    /// Whichever of two processes ends: the old one, for which the new one takes over, or the new one, which failed.
    #[test]
    fn d3_a_listener_that_closes_gives_new_connections_to_another_process() {
        for place in [0, 1] {
            with_handshake_thread(patient(), async |ends| {
                let mut listeners = Vec::from([shared(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]);
                let address = listeners[0].local_addr().unwrap();
                listeners.push(shared(address));
                let closes = listeners.remove(place);
                let stays = listeners.remove(0);
                let (other, _) = server(patient());
                tokio::task::spawn_local(accept(Rc::clone(&other), stays, None));
                let accepting = tokio::task::spawn_local(accept(Rc::clone(&ends), closes, None));
                let is_closed = Arc::new(AtomicBool::new(false));
                let until = Arc::clone(&is_closed);
                let asking = tokio::task::spawn_blocking(move || {
                    while !until.load(Ordering::Relaxed) {
                        read(clients(address));
                    }
                });
                tokio::time::sleep(SETTLES_WITHIN).await;
                ends.stopping.send_replace(true);
                accepting.await.unwrap();
                let before = other.counters.tcp_accepted.load(Ordering::Relaxed);
                is_closed.store(true, Ordering::Relaxed);
                asking.await.expect("all are answered");
                assert!(before > 0, "place {place}");
            });
        }
    }
}
