//! HTTP connections in bounds: so many at a time, each for so long, so that whoever holds some open
//! can neither use up the descriptors that DNS needs nor keep probes out: a probe that comes while
//! every place is taken gets that of the oldest connection.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;

/// HTTP connections at a time: a kubelet, a few scrapers and a few people.
const MAX_CONNECTIONS: usize = 128;
/// After so long a connection ends; clients open another.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Without a free descriptor, try again so often.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener that keeps a bounded number of connections.
pub(super) struct Bounded {
    listener: TcpListener,
    /// Oldest first; those that ended are swept out when a place is needed.
    open: VecDeque<Weak<Place>>,
}

/// One connection's right to be there.
#[derive(Default)]
struct Place {
    is_taken_back: AtomicBool,
    waker: AtomicWaker,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener) -> Bounded {
        Bounded { listener, open: VecDeque::new() }
    }

    /// A place for a new connection, if need be that of the oldest.
    fn place(&mut self) -> Arc<Place> {
        if self.open.len() >= MAX_CONNECTIONS {
            self.open.retain(|place| place.strong_count() > 0);
        }
        if self.open.len() >= MAX_CONNECTIONS
            && let Some(oldest) = self.open.pop_front().and_then(|place| place.upgrade())
        {
            oldest.is_taken_back.store(true, Ordering::Release);
            oldest.waker.wake();
        }
        let place = Arc::new(Place::default());
        self.open.push_back(Arc::downgrade(&place));
        place
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, client)) => {
                    let end = Box::pin(tokio::time::sleep(MAX_AGE));
                    return (Connection { stream, end, place: self.place() }, client);
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// One connection, its place, and its end.
pub(super) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    place: Arc<Place>,
}

impl Connection {
    fn check_end(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        // Registered before it is looked at, so that no wake is missed.
        self.place.waker.register(context.waker());
        let is_over = self.end.as_mut().poll(context).is_ready();
        if is_over || self.place.is_taken_back.load(Ordering::Acquire) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_end(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_end(context)?;
        Pin::new(&mut self.stream).poll_write(context, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
