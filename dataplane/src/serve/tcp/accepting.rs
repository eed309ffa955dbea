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
/// How long a connection of our own to our own address may take.
const PROBED_WITHIN: Duration = Duration::from_millis(20);
/// How long connections still come that the kernel had begun for us before it gave new ones to another listener: the time in
/// which clients complete them. With the probes it is less than what [`super::deadline::FIRST_QUERY_WITHIN`] leaves of the time
/// that a process has for queries in progress.
const SETTLES_WITHIN: Duration = Duration::from_millis(100);

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

    /// Has the kernel give new connections to another process that listens at this address, if there is one, and serves those
    /// that it had begun for us.
    async fn turn_away(&self) -> io::Result<()> {
        for place in PLACES {
            dataplane_udp::steer_connections(&self.listener, place)?;
            // Where this cannot be seen, the usual place is the right one.
            if !self.gets_connections().await.unwrap_or(false) {
                self.take_for(SETTLES_WITHIN, None).await;
                return Ok(());
            }
        }
        dataplane_udp::spread_connections(&self.listener)
    }

    /// Whether new connections come to this listener. Clients say little of it: one that is slow completes now what it has begun
    /// before, and there may be none.
    async fn gets_connections(&self) -> io::Result<bool> {
        let address = dataplane_udp::reachable(self.listener.local_addr()?);
        let probe = tokio::time::timeout(PROBED_WITHIN, TcpStream::connect(address)).await;
        let probe = probe.map_err(io::Error::from)??;
        Ok(self.take_for(PROBED_WITHIN, Some(probe.local_addr()?)).await)
    }

    /// Serves the connections that come within this time; whether that of this client came, which ends it.
    async fn take_for(&self, time: Duration, awaited: Option<SocketAddr>) -> bool {
        let until = Instant::now() + time;
        while let Ok(accepted) = tokio::time::timeout_at(until, self.listener.accept()).await {
            if accepted.as_ref().is_ok_and(|(_, peer)| Some(*peer) == awaited) {
                return true;
            }
            if take(&self.server, accepted, self.secured.as_ref()).await.is_err() {
                tokio::time::sleep_until(until.min(Instant::now() + ACCEPT_PAUSE)).await;
            }
        }
        false
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

    use tokio::sync::{mpsc, watch};

    use super::super::super::Phase;
    use super::super::tests::{message, patient, server, with_handshake_thread};
    use super::*;

    const CLIENTS: u16 = 32;

    /// A listener whose address others may share.
    fn listener() -> TcpListener {
        sharing(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// As another process would open one at this address.
    fn sharing(address: SocketAddr) -> TcpListener {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseport(true).unwrap();
        socket.bind(address).unwrap();
        socket.listen(1024).unwrap()
    }

    /// Of two at one address: that at this place, and the other one.
    fn two(place: usize) -> (TcpListener, TcpListener) {
        let older = listener();
        let younger = sharing(older.local_addr().unwrap());
        if place == 0 { (older, younger) } else { (younger, older) }
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
            let listener = listener();
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

    #[test]
    fn e45_a_silent_connection_that_was_not_accepted_does_not_keep_the_process() {
        with_handshake_thread(patient(), async |server| {
            let listener = listener();
            let _silent = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (_limits, limits) = watch::channel(patient());
            let (stopping, phase) = watch::channel(Phase::Serving);
            let (_more, more) = mpsc::unbounded_channel();
            let stops = async {
                // The listener accepts nothing before.
                stopping.send_replace(Phase::Stopping);
            };
            let served =
                super::super::serve(Rc::clone(&server), vec![listener], limits, phase, more);
            let ended = futures::future::join(stops, served);
            tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it ends");
            assert_eq!(server.counters.tcp_accepted.load(Ordering::Relaxed), 1);
        });
    }

    /// The connections that each of two listeners gets, the second of which turns new ones away.
    async fn turned_away(
        server: Rc<TcpServer>,
        stays: &TcpListener,
        closes: TcpListener,
    ) -> [usize; 2] {
        let address = closes.local_addr().unwrap();
        let accepting = Accepting { server, listener: closes, secured: None };
        accepting.turn_away().await.unwrap();
        while stays.accept().now_or_never().is_some() {}
        let _clients = clients(address);
        tokio::time::sleep(PROBED_WITHIN).await;
        let accepted = |listener: &TcpListener| {
            std::iter::from_fn(|| listener.accept().now_or_never()).count()
        };
        [accepted(stays), accepted(&accepting.listener)]
    }

    #[test]
    fn d3_new_connections_are_turned_away_where_no_client_shows_the_place() {
        for place in [0, 1] {
            with_handshake_thread(patient(), async |server| {
                let (closes, stays) = two(place);
                let [stays, own] = turned_away(server, &stays, closes).await;
                assert_eq!([stays, own], [usize::from(CLIENTS), 0], "place {place}");
            });
        }
    }

    #[test]
    fn d3_connections_stay_where_no_other_process_takes_them() {
        with_handshake_thread(patient(), async |server| {
            assert_eq!(
                turned_away(server, &listener(), listener()).await,
                [0, usize::from(CLIENTS)]
            );
        });
    }

    /// Whichever of two processes ends: the old one, for which the new one takes over, or the new one, which failed.
    #[test]
    fn d3_a_listener_that_closes_gives_new_connections_to_another_process() {
        for place in [0, 1] {
            with_handshake_thread(patient(), async |ends| {
                let (closes, stays) = two(place);
                let address = closes.local_addr().unwrap();
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
