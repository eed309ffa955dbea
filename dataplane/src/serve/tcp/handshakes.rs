//! Handshakes in progress: how many there are, which gives way to a new one, and how much is read of each.
//!
//! They run on a thread of their own, because each costs a signature, up to a millisecond: what is served over TCP, and
//! over sessions that are open, does not wait for them.

mod rates;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio_rustls::server::TlsStream;

pub(super) use rates::Rates;

/// Handshakes in progress. A good client needs milliseconds for one. Many at a time mean that clients stall.
pub(super) const HANDSHAKES: usize = 256;
/// Octets that are read from a client until its handshake is over: a usual client sends less than 4 KiB.
pub(super) const HANDSHAKE_OCTETS: usize = 32 << 10;

/// The thread of all handshakes and of the sockets of QUIC; it ends when this is dropped.
pub(super) fn thread() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).thread_name("handshakes").enable_all().build()
}

/// All handshakes, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Handshakes(Arc<Mutex<VecDeque<Arc<Entry>>>>);

#[derive(Debug)]
struct Entry {
    client: IpAddr,
    gave_way: Notify,
}

/// One handshake; it is over when this is dropped.
#[derive(Debug)]
pub(super) struct Handshake {
    entry: Arc<Entry>,
    all: Handshakes,
}

impl Handshakes {
    /// One more. Where there are too many, the oldest of the client with the most gives way.
    pub(super) fn begin(&self, client: IpAddr) -> Handshake {
        let mut all = self.entries();
        if all.len() >= HANDSHAKES {
            let mut counts: HashMap<IpAddr, usize> = HashMap::new();
            all.iter().for_each(|entry| *counts.entry(entry.client).or_default() += 1);
            let most = counts.values().copied().max().unwrap_or(0);
            let place = all.iter().position(|entry| counts[&entry.client] == most);
            if let Some(entry) = place.and_then(|place| all.remove(place)) {
                entry.gave_way.notify_one();
            }
        }
        let entry = Arc::new(Entry { client, gave_way: Notify::new() });
        all.push_back(Arc::clone(&entry));
        Handshake { entry, all: self.clone() }
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<Arc<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handshake {
    /// Returns when it must end for another one.
    pub(super) async fn gave_way(&self) {
        self.entry.gave_way.notified().await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.all.entries().retain(|entry| !Arc::ptr_eq(entry, &self.entry));
    }
}

/// What is behind a handshake of TLS.
pub(super) type Session = TlsStream<Measured<TcpStream>>;

/// A stream that allows only this many octets to be read.
#[derive(Debug)]
pub(super) struct Measured<S> {
    stream: S,
    left: usize,
}

impl<S> Measured<S> {
    pub(super) fn new(stream: S, left: usize) -> Measured<S> {
        Measured { stream, left }
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.stream
    }

    /// From here on all of it may be read.
    pub(super) fn unbounded(&mut self) {
        self.left = usize::MAX;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Measured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, to))?;
        match self.left.checked_sub(to.filled().len() - before) {
            Some(left) => self.left = left,
            None => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Measured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    #[test]
    fn t8_past_the_bound_the_oldest_handshake_of_the_largest_client_gives_way() {
        let handshakes = Handshakes::default();
        let other = handshakes.begin(client(1));
        let many: Vec<_> = (1..HANDSHAKES).map(|_| handshakes.begin(client(2))).collect();
        let gave_way = |handshake: &Handshake| handshake.gave_way().now_or_never().is_some();
        assert!(!gave_way(&many[0]));
        let new = handshakes.begin(client(3));
        assert!(gave_way(&many[0]) && !gave_way(&many[1]) && !gave_way(&other) && !gave_way(&new));
        assert_eq!(handshakes.entries().len(), HANDSHAKES);
        drop((other, many, new));
        assert!(handshakes.entries().is_empty());
    }

    #[tokio::test]
    async fn t8_a_handshake_is_not_read_without_end() {
        use tokio::io::AsyncReadExt;
        let octets = [7; 100];
        let mut measured = Measured::new(&octets[..], 60);
        let mut buffer = [0; 50];
        measured.read_exact(&mut buffer).await.unwrap();
        assert!(measured.read_exact(&mut buffer).await.is_err(), "too many");
        let mut measured = Measured::new(&octets[..], 60);
        measured.unbounded();
        let mut all = Vec::new();
        assert_eq!(measured.read_to_end(&mut all).await.unwrap(), 100);
    }
}
