//! A session of TLS that is read in turns, so that a client does not keep the thread busy by what needs no answer: frames of
//! HTTP/2 that say nothing, new keys of TLS, records of one octet. Its part of a turn counts, however many connections it
//! has (WR44).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::client_turns::Reads;
use super::table::Permit;
use super::unread::Unread;
use super::untaken::{self, Leaving};

/// A session that is read when it is the turn of its client.
pub(super) struct InTurns<S: Unread> {
    session: S,
    reads: Reads,
    permit: Rc<Permit>,
    /// Where the session is shut down by a library, which drops it after that.
    leaving: Option<Leaving>,
}

impl<S: Unread> InTurns<S> {
    pub(super) fn new(session: S, reads: Reads, permit: Rc<Permit>) -> InTurns<S> {
        InTurns { session, reads, permit, leaving: None }
    }

    /// Its shutdown ends when the client has taken all, or after this time (WR42).
    pub(super) fn until_taken(mut self, within: Duration) -> InTurns<S> {
        self.leaving = Some(Leaving::new(within));
        self
    }
}

impl<S: AsyncRead + Unread + Unpin> AsyncRead for InTurns<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.reads.poll(cx).is_pending() {
            // What was sent stays there, so one look at the socket is enough.
            if !self.permit.waits_for_turn() && self.session.has_unread() {
                self.permit.set_waits_for_turn(true);
            }
            return Poll::Pending;
        }
        self.permit.set_waits_for_turn(false);
        let (before, begun) = (to.filled().len(), Instant::now());
        let read = Pin::new(&mut self.session).poll_read(cx, to);
        let octets = read.is_ready().then(|| to.filled().len() - before);
        self.reads.took(octets, begun.elapsed());
        read
    }
}

impl<S: Unread> Unread for InTurns<S> {
    fn has_unread(&self) -> bool {
        self.session.has_unread()
    }

    fn socket(&self) -> Option<&TcpStream> {
        self.session.socket()
    }
}

impl<S: Unread> Drop for InTurns<S> {
    /// One that closes because of its client, or for another, leaves the kernel none of its replies. Where HTTP is in it, nothing
    /// else has its socket at its end, which may come by an error and without a shutdown.
    fn drop(&mut self) {
        let is_left = self.leaving.as_ref().is_some_and(|leaving| !leaving.is_over());
        if is_left || self.permit.gives_way() {
            untaken::discard_replies(self.session.socket());
        }
    }
}

impl<S: AsyncWrite + Unread + Unpin> AsyncWrite for InTurns<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.session).poll_write(cx, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.session).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.session.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.session).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let InTurns { session, permit, leaving, .. } = &mut *self;
        // To end what has ended is to end nothing.
        ready!(Pin::new(&mut *session).poll_shutdown(cx))?;
        if let Some(leaving) = leaving {
            ready!(leaving.poll(cx, session.socket(), permit));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::Write;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use tokio::net::{TcpListener, TcpStream};

    use super::super::super::Limits;
    use super::super::client_turns::{AllReads, Share, Turns};
    use super::super::table::ConnectionTable;
    use super::super::tests::local;
    use super::*;

    /// A session that always has more to read, this many octets at a time.
    struct Endless {
        octets: usize,
        /// How long each read of it takes.
        work: Duration,
    }

    /// As a busy connection of HTTP/2 is read.
    const BUSY: Endless = Endless { octets: 8 << 10, work: Duration::ZERO };
    /// As one whose client sends new keys all the time, and an octet of data now and then: more than a turn.
    const SLOW: Endless = Endless { octets: 1, work: Duration::from_millis(1) };

    impl Unread for Endless {
        fn has_unread(&self) -> bool {
            true
        }

        fn socket(&self) -> Option<&TcpStream> {
            None
        }
    }

    impl AsyncRead for Endless {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if !self.work.is_zero() {
                // The thread is busy meanwhile.
                std::thread::sleep(self.work);
            }
            to.put_slice(&vec![0; self.octets]);
            Poll::Ready(Ok(()))
        }
    }

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn table(limits: Limits) -> Rc<ConnectionTable> {
        Rc::new(ConnectionTable::new(limits, Arc::default()))
    }

    /// Reads connections of one client forever; counts the reads.
    fn read_all(connections: usize, of: Endless, reads: impl Fn() -> Reads) -> Rc<Cell<usize>> {
        let count = Rc::new(Cell::new(0));
        let table = table(Limits::default());
        for _ in 0..connections {
            let permit = Rc::new(table.admit(CLIENT).unwrap());
            let mut session = InTurns::new(Endless { ..of }, reads(), permit);
            let count = Rc::clone(&count);
            tokio::task::spawn_local(async move {
                let mut octets = [0; 8 << 10];
                loop {
                    let mut to = ReadBuf::new(&mut octets);
                    tokio::task::consume_budget().await;
                    poll_fn(|cx| Pin::new(&mut session).poll_read(cx, &mut to)).await.unwrap();
                    count.set(count.get() + 1);
                }
            });
        }
        count
    }

    /// Reads connections of HTTP/2 of one client.
    fn read_http2(connections: usize, all: &AllReads) -> Rc<Cell<usize>> {
        let own = Rc::new(Share::default());
        read_all(connections, BUSY, || all.of(&own))
    }

    #[test]
    fn t4_the_requests_of_http_2_that_were_read_are_looked_at_before_more_is_read() {
        local(async {
            let all = AllReads::default();
            let counts: Vec<_> = (0..10).map(|_| read_http2(5, &all)).collect();
            for turn in 0..100 {
                tokio::task::yield_now().await;
                let reads: usize = counts.iter().map(|count| count.take()).sum();
                assert!(reads <= 8, "{reads} times 8 KiB of all connections in turn {turn}");
            }
        });
    }

    #[test]
    fn wr44_a_client_with_many_connections_of_http_2_has_at_most_half_of_what_is_read() {
        local(async {
            let all = AllReads::default();
            let (greedy, other) = (read_http2(50, &all), read_http2(1, &all));
            for turn in 0..100 {
                tokio::task::yield_now().await;
                let reads = greedy.take();
                assert!(reads <= 4, "{reads} times 8 KiB of one client in turn {turn}");
            }
            assert!(other.get() >= 4 * 90, "{} reads of the other one", other.get());
        });
    }

    #[test]
    fn wr44_clients_with_many_connections_of_http_2_have_turns_with_one_that_has_one() {
        local(async {
            let all = AllReads::default();
            let greedy: Vec<_> = (0..4).map(|_| read_http2(10, &all)).collect();
            let other = read_http2(1, &all);
            for _ in 0..500 {
                tokio::task::yield_now().await;
            }
            let most = greedy.iter().map(|count| count.get()).max().unwrap();
            assert!(other.get() * 10 >= most * 9, "{} reads beside {most}", other.get());
        });
    }

    #[test]
    fn wr44_reads_that_take_long_count_by_their_time() {
        local(async {
            let turns = Rc::new(Turns::default());
            let (slow, other) = (Rc::new(Share::default()), Rc::new(Share::default()));
            let slow = read_all(20, SLOW, || turns.reads(&slow));
            let other = read_all(1, BUSY, || turns.reads(&other));
            for turn in 0..10 {
                tokio::task::yield_now().await;
                let reads = slow.take();
                assert!(reads <= 1, "{reads} slow reads of one client in turn {turn}");
                assert!(other.take() > 0, "no read of the other one in turn {turn}");
            }
        });
    }

    /// Looks once whether there is something to read; whether there was.
    async fn reads(session: &mut InTurns<TcpStream>) -> bool {
        let mut octets = [0; 10];
        let mut to = ReadBuf::new(&mut octets);
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *session).poll_read(cx, &mut to).is_ready())).await
    }

    #[tokio::test]
    async fn wr44_a_connection_that_waits_for_its_turn_is_not_taken_for_idle() {
        tokio::task::LocalSet::new()
            .run_until(async {
                let table = table(Limits { tcp_connections_per_client: 2, ..Limits::default() });
                let turns = Rc::new(Turns::default());
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                let mut client =
                    std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let permit = Rc::new(table.admit(CLIENT).unwrap());
                tokio::time::sleep(Duration::from_millis(2)).await;
                let newer = table.admit(CLIENT).unwrap();
                let stream = listener.accept().await.unwrap().0;
                let own = turns.reads(permit.share());
                let mut session = InTurns::new(stream, own, Rc::clone(&permit));
                assert!(!reads(&mut session).await, "nothing was sent");
                turns.took(permit.share(), usize::MAX / 2);
                assert!(!reads(&mut session).await);
                assert!(!permit.waits_for_turn(), "nothing was sent");
                client.write_all(b"query").unwrap();
                assert!(!reads(&mut session).await, "it is not its turn");
                let another = table.admit(CLIENT).expect("a place");
                assert!(!permit.must_close() && newer.must_close(), "its query was not read");
                turns.share(permit.share()).await;
                while !reads(&mut session).await {
                    tokio::task::yield_now().await;
                }
                drop(another);
                let _another = table.admit(CLIENT).expect("a place");
                let _third = table.admit(CLIENT).expect("a place");
                assert!(permit.must_close(), "it is idle again");
            })
            .await;
    }
}
