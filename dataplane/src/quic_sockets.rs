//! Sockets for QUIC, each datagram of which is read by itself. quinn has the kernel join up to 64 datagrams of one sender, and
//! a piece of a stream then keeps all of them in memory, while quinn counts the one that it came in: who sends pieces
//! with holes between them gets 64 times as much memory as is counted. Queries and replies are a datagram or two, so
//! joining them gains little.
//!
//! And few are read at a time: a connection works through all that were read for it at once, while others who use it wait.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};

/// Datagrams of a socket that are read until the connections which they are for have had a turn.
const AT_ONCE: usize = 8;

/// The runtime of tokio with such sockets.
#[derive(Clone, Debug, Default)]
pub(crate) struct OneByOne {
    datagrams: Arc<AtomicU64>,
}

impl OneByOne {
    /// Datagrams that its sockets have read.
    pub(crate) fn datagrams(&self) -> u64 {
        self.datagrams.load(Ordering::Relaxed)
    }
}

impl Runtime for OneByOne {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        TokioRuntime.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let same = socket.try_clone()?;
        let opened = TokioRuntime.wrap_udp_socket(socket)?;
        // Only now: what was opened has asked the kernel to join them.
        dataplane_udp::read_one_by_one(&same)?;
        let datagrams = Arc::clone(&self.datagrams);
        Ok(Arc::new(Socket { socket: opened, read: AtomicUsize::new(0), datagrams }))
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

#[derive(Debug)]
struct Socket {
    socket: Arc<dyn AsyncUdpSocket>,
    /// Datagrams that were read in this turn.
    read: AtomicUsize,
    /// Datagrams that were read in all.
    datagrams: Arc<AtomicU64>,
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let left = AT_ONCE.saturating_sub(self.read.load(Ordering::Relaxed));
        if left == 0 {
            // The connections were woken before, so they come first.
            self.read.store(0, Ordering::Relaxed);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = left.min(buffers.len()).min(metas.len());
        let received = self.socket.poll_recv(cx, &mut buffers[..most], &mut metas[..most]);
        let read = match &received {
            Poll::Ready(Ok(datagrams)) => {
                self.datagrams.fetch_add(*datagrams as u64, Ordering::Relaxed);
                AT_ONCE - left + datagrams
            }
            _ => 0,
        };
        self.read.store(read, Ordering::Relaxed);
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    /// quinn has room for this many datagrams of each sender: 47 KiB for a socket, not 3 MiB.
    fn max_receive_segments(&self) -> usize {
        1
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;

    use super::*;

    /// Datagrams that leave together.
    const TOGETHER: usize = 10;
    const OCTETS: usize = 100;

    /// Datagrams of a sender that has sent as many as fit, until there is none; those that were read in each turn.
    async fn turns(socket: &dyn AsyncUdpSocket, all: usize) -> Vec<usize> {
        let (mut turns, mut sum) = (Vec::new(), 0);
        poll_fn(|cx| {
            let mut turn = 0;
            loop {
                let mut room = [[0; OCTETS]; 32];
                let mut buffers = room.each_mut().map(|buffer| IoSliceMut::new(buffer));
                let mut metas = [RecvMeta::default(); 32];
                match socket.poll_recv(cx, &mut buffers, &mut metas) {
                    Poll::Ready(count) => turn += count.unwrap(),
                    Poll::Pending => break,
                }
            }
            turns.push(turn);
            sum += turn;
            if sum < all { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        turns
    }

    #[tokio::test]
    async fn t8_few_datagrams_of_quic_are_read_until_connections_have_a_turn() {
        let runtime = OneByOne::default();
        let receiver = runtime.wrap_udp_socket(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let receiver = receiver.unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for _ in 0..100 {
            sender.send_to(&[7; OCTETS], receiver.local_addr().unwrap()).unwrap();
        }
        let turns = turns(&*receiver, 100).await;
        assert!(turns.iter().all(|read| *read <= 8), "{turns:?}");
        assert_eq!(runtime.datagrams(), 100);
    }

    #[tokio::test]
    async fn t4_each_datagram_of_quic_is_read_by_itself() {
        let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sender = TokioRuntime.wrap_udp_socket(socket()).unwrap();
        let receiver = OneByOne::default().wrap_udp_socket(socket()).unwrap();
        assert_eq!(receiver.max_receive_segments(), 1);
        let sent = Transmit {
            destination: receiver.local_addr().unwrap(),
            ecn: None,
            contents: &[7; TOGETHER * OCTETS],
            segment_size: Some(OCTETS),
            src_ip: None,
        };
        let mut writable = Arc::clone(&sender).create_io_poller();
        poll_fn(|cx| writable.as_mut().poll_writable(cx)).await.unwrap();
        sender.try_send(&sent).unwrap();
        let mut read = Vec::new();
        while read.len() < TOGETHER {
            let mut room = [[0; 2 * TOGETHER * OCTETS]; 4];
            let mut buffers = room.each_mut().map(|buffer| IoSliceMut::new(buffer));
            let mut metas = [RecvMeta::default(); 4];
            let receive = |cx: &mut Context<'_>| receiver.poll_recv(cx, &mut buffers, &mut metas);
            let count = poll_fn(receive).await.unwrap();
            read.extend(metas[..count].iter().map(|meta| meta.len));
            assert!(
                read.iter().all(|octets| *octets == OCTETS),
                "{read:?} octets were read at once"
            );
        }
    }
}
