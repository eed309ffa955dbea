//! What a drain does to connections: those that ask, those that do not, and those that were just opened (E45).

use super::*;

#[test]
fn e45_a_drain_closes_the_idle_and_lets_the_others_finish() {
    local(async {
        let mut busy = connect(Limits::default(), 1 << 16);
        let (_idle, idle_ended) = connect_to(&busy.server, 1 << 16);
        busy.send(&message(1, &[b'l', 3])).await;
        sleep(seconds(1)).await;
        busy.server.drain();
        assert_eq!(idle_ended.await.expect("no panic"), CloseReason::Drain);
        assert!(!busy.ended.is_finished());
        let (mut fresh, fresh_ended) = connect_to(&busy.server, 1 << 16);
        fresh.write_all(&message(2, b"e")).await.expect("write");
        assert_eq!(reply_id(&mut fresh).await, 2, "new ones may ask once");
        assert_eq!(fresh_ended.await.expect("no panic"), CloseReason::Drain);
        assert_eq!(busy.reply_id().await, 1);
        let table = Rc::clone(&busy.server.table);
        assert_eq!(busy.ended().await, CloseReason::Drain);
        table.empty().await;
    });
}

/// A session of TLS: what comes is half a record, of which reading takes the octets and gives none.
struct HalfRecord(Rc<Cell<bool>>);

impl AsyncRead for HalfRecord {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.set(false);
        Poll::Pending
    }
}

impl AsyncWrite for HalfRecord {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(octets.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Unread for HalfRecord {
    fn has_unread(&self) -> bool {
        self.0.get()
    }

    fn socket(&self) -> Option<&tokio::net::TcpStream> {
        None
    }
}

#[test]
fn e45_a_drain_closes_a_session_of_tls_that_has_half_a_record_only() {
    local(async {
        let (server, asked) = server(Limits::default());
        let peer: SocketAddr = "10.0.0.1:5353".parse().expect("address");
        let permit = Rc::new(server.table.admit(peer.ip()).expect("a permit"));
        let asker = Asker { client: peer, server: peer, over: ServedOver::Tls };
        let has_come = Rc::new(Cell::new(false));
        let stream = HalfRecord(Rc::clone(&has_come));
        let mut connection = Connection::behind(Rc::clone(&server), stream, asker, permit, true);
        let ended = tokio::task::spawn_local(async move { connection.run().await });
        sleep(seconds(1)).await;
        has_come.set(true);
        server.drain();
        assert_eq!(ended.await.expect("no panic"), CloseReason::Drain, "and not for being idle");
        assert!(!has_come.get(), "it was read first");
        assert_eq!(asked.get(), 0);
    });
}

#[test]
fn e45_a_drain_lets_a_connection_that_was_just_opened_ask() {
    local(async {
        let mut client = connect(Limits::default(), 1 << 16);
        let (_silent, silent_ended) = connect_to(&client.server, 1 << 16);
        sleep(Duration::from_millis(1)).await;
        let begun = Instant::now();
        client.server.drain();
        sleep(Duration::from_millis(500)).await;
        client.server.drain();
        client.send(&message(1, b"e")).await;
        assert_eq!(client.reply_id().await, 1, "its query was on its way");
        assert_eq!(client.ended().await, CloseReason::Drain);
        assert_eq!(silent_ended.await.expect("no panic"), CloseReason::Drain);
        assert!(begun.elapsed() < seconds(2), "it does not wait until it is idle");
    });
}
