//! What a client has sent and we have not read. Its connection is not idle, so it is not closed before that is answered
//! (RFC 7766 §6.2.3): the client would see a reset, and its query would be lost.
//!
//! That a connection waits for its client may not be true any more: the runtime learns only between two turns of its tasks
//! what sockets have. Where a process stood still and continues, the system interrupts that look, and timers run before the
//! next one.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use super::TcpServer;
use super::handshakes::Measured;
use super::table::Permit;

/// Sockets that one look of the runtime shows at most.
pub(super) const SHOWN: usize = 1024;
/// Between two looks before a connection gives way. They take time where much is read, and accepting waits for them.
const LOOKS_APART: Duration = Duration::from_millis(1);

/// A stream of which that can be known.
pub(super) trait Unread {
    /// Whether its client has sent what we have not read.
    fn has_unread(&self) -> bool;

    /// Its socket; none in tests without one.
    fn socket(&self) -> Option<&TcpStream>;
}

impl Unread for TcpStream {
    /// Asks the system: the runtime may not know yet.
    fn has_unread(&self) -> bool {
        let mut octet = [MaybeUninit::uninit()];
        SockRef::from(self).peek(&mut octet).is_ok_and(|octets| octets > 0)
    }

    fn socket(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl<S: Unread> Unread for Measured<S> {
    fn has_unread(&self) -> bool {
        self.get_ref().has_unread()
    }

    fn socket(&self) -> Option<&TcpStream> {
        self.get_ref().socket()
    }
}

impl<S: Unread> Unread for TlsStream<S> {
    /// One read of the socket may bring several records, of which the session keeps all but the first.
    fn has_unread(&self) -> bool {
        let (socket, session) = self.get_ref();
        socket.has_unread() || !session.wants_read()
    }

    fn socket(&self) -> Option<&TcpStream> {
        self.get_ref().0.socket()
    }
}

#[cfg(test)]
impl Unread for tokio::io::DuplexStream {
    fn has_unread(&self) -> bool {
        false
    }

    fn socket(&self) -> Option<&TcpStream> {
        None
    }
}

impl TcpServer {
    /// A place for one more connection, whose session of TLS holds this many octets. Where another one must close for it,
    /// each reads first what its client has sent; `None` if none may close.
    pub(super) async fn admit(&self, client: IpAddr, session: Option<usize>) -> Option<Permit> {
        if self.table.is_full(client, session) {
            self.look_at_sockets().await;
        }
        match session {
            None => self.table.admit(client),
            Some(octets) => self.table.admit_session(client, octets),
        }
    }

    /// Lets each connection read what its client has sent.
    pub(super) async fn look_at_sockets(&self) {
        if self.looked.get().is_some_and(|at| at.elapsed() < LOOKS_APART) {
            return;
        }
        // The runtime looks at sockets, and wakes those that read them before it wakes us. A turn more, because who is no task
        // of its own, but the future that the thread waits for, comes before all tasks that are awake.
        for _ in 0..2 + self.table.len() / SHOWN {
            tokio::task::yield_now().await;
        }
        self.looked.set(Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::rc::Rc;
    use std::sync::Arc;

    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::spawn_local;
    use tokio::time::timeout;
    use tokio_rustls::rustls::ClientConnection;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::super::super::Limits;
    use super::super::super::certificate::Certificate;
    use super::super::super::certificate::testing::{signed_there, trusting};
    use super::super::accept;
    use super::super::tests::{message, patient, with_handshake_thread};
    use super::super::tls::Secured;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);
    const CLIENTS: u16 = 8;

    /// A client that sends without the runtime: no connection is served meanwhile.
    enum Client {
        Tcp(TcpStream),
        Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    }

    impl Client {
        /// One that has asked already: its connection waits for it, and is not new.
        async fn connect(server: SocketAddr, tls: Option<&TlsConnector>) -> Client {
            let stream = TcpStream::connect(server).await.expect("a connection");
            let mut client = match tls {
                None => Client::Tcp(stream),
                Some(tls) => {
                    let session = tls.connect("dns.example".try_into().unwrap(), stream).await;
                    Client::Tls(Box::new(session.expect("a session")))
                }
            };
            client.send(CLIENTS);
            assert_eq!(client.reply().await, Some(CLIENTS));
            client
        }

        fn send(&mut self, id: u16) {
            let (stream, octets) = match self {
                Client::Tcp(stream) => (stream, message(id, b"e")),
                Client::Tls(session) => {
                    let (stream, session) = session.get_mut();
                    (stream, records(session, &message(id, b"e")))
                }
            };
            assert_eq!(stream.try_write(&octets).expect("it is sent"), octets.len());
        }

        /// The id of the next reply; nothing where the connection has ended.
        async fn reply(&mut self) -> Option<u16> {
            let mut reply = [0; 15];
            let read = match self {
                Client::Tcp(stream) => timeout(PATIENCE, stream.read_exact(&mut reply)).await,
                Client::Tls(session) => timeout(PATIENCE, session.read_exact(&mut reply)).await,
            };
            read.expect("an end").ok().map(|_| u16::from_be_bytes([reply[2], reply[3]]))
        }
    }

    /// The octets in which a client sends this.
    fn records(session: &mut ClientConnection, message: &[u8]) -> Vec<u8> {
        session.writer().write_all(message).unwrap();
        let mut octets = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut octets).unwrap();
        }
        octets
    }

    /// A busy system may bring octets over loopback a moment later. The runtime sees nothing of it.
    fn let_them_arrive() {
        std::thread::sleep(Duration::from_millis(10));
    }

    /// Both ends of a session of TLS over these.
    async fn session<S: AsyncRead + AsyncWrite + Unpin>(
        theirs: S,
        ours: S,
    ) -> (tokio_rustls::client::TlsStream<S>, TlsStream<S>) {
        let (tls, chain, _) = signed_there(b"dot");
        let connector = TlsConnector::from(Arc::new(trusting(&chain, b"dot")));
        let (client, session) = futures::join!(
            connector.connect("dns.example".try_into().unwrap(), theirs),
            TlsAcceptor::from(Arc::new(tls)).accept(ours),
        );
        (client.unwrap(), session.unwrap())
    }

    #[tokio::test]
    async fn wr44_records_that_a_session_of_tls_has_read_already_are_unread() {
        let (theirs, ours) = tokio::io::duplex(1 << 16);
        let (client, mut session) = session(theirs, ours).await;
        let (mut stream, mut client) = client.into_inner();
        let sent = [b"one", b"two"].map(|record| records(&mut client, record)).concat();
        stream.write_all(&sent).await.unwrap();
        let mut record = [0; 3];
        session.read_exact(&mut record).await.unwrap();
        assert_eq!((&record, session.has_unread()), (b"one", true));
        session.read_exact(&mut record).await.unwrap();
        assert_eq!((&record, session.has_unread()), (b"two", false));
    }

    #[tokio::test]
    async fn wr44_what_the_system_has_of_a_session_of_tls_is_unread() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (theirs, ours) = futures::join!(connecting, listener.accept());
        let (client, session) = session(theirs.unwrap(), ours.unwrap().0).await;
        assert!(!session.has_unread());
        Client::Tls(Box::new(client)).send(1);
        let_them_arrive();
        assert!(session.has_unread());
    }

    /// A server with connections that were accepted, and one that waits for that; then queries on the first ones.
    fn with_clients(
        limits: Limits,
        is_tls: bool,
        then: impl AsyncFnOnce(Rc<TcpServer>, Vec<Client>),
    ) {
        let (tls, chain, _) = signed_there(b"dot");
        let connector = TlsConnector::from(Arc::new(trusting(&chain, b"dot")));
        let connector = is_tls.then_some(&connector);
        let certificate = Arc::new(Certificate::of(tls));
        let secured = is_tls.then_some(Secured { certificate, http_path: None });
        with_handshake_thread(limits, async move |server| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let accepting = spawn_local(accept(Rc::clone(&server), listener, secured));
            let connecting = (0..CLIENTS).map(|_| Client::connect(address, connector));
            let mut clients = futures::future::join_all(connecting).await;
            // The tasks of all of them wait for their clients now.
            tokio::time::sleep(Duration::from_millis(10)).await;
            let _another = std::net::TcpStream::connect(address).unwrap();
            (0..CLIENTS).zip(&mut clients).for_each(|(id, client)| client.send(id));
            let_them_arrive();
            then(server, clients).await;
            accepting.abort();
        });
    }

    async fn assert_answered(clients: Vec<Client>) {
        for (id, mut client) in (0..CLIENTS).zip(clients) {
            assert_eq!(client.reply().await, Some(id), "an unread query is answered");
        }
    }

    #[test]
    fn wr44_a_connection_with_an_unread_query_does_not_give_way_to_another() {
        let limit = usize::from(CLIENTS);
        let of_a_client = Limits { tcp_connections_per_client: limit, ..patient() };
        let of_all = Limits { tcp_connections: limit, ..patient() };
        for limits in [of_a_client, of_all] {
            for is_tls in [false, true] {
                let then = async |_, clients| assert_answered(clients).await;
                with_clients(limits.clone(), is_tls, then);
            }
        }
    }

    #[test]
    fn wr44_a_lower_limit_closes_no_connection_with_an_unread_query() {
        for is_tls in [false, true] {
            with_clients(patient(), is_tls, async |server, clients| {
                server.set_limits(Limits { tcp_connections: 1, ..patient() }).await;
                assert_answered(clients).await;
            });
        }
    }

    #[test]
    fn e45_a_drain_closes_no_connection_with_an_unread_query() {
        for is_tls in [false, true] {
            with_clients(patient(), is_tls, async |server, clients| {
                server.drain();
                assert_answered(clients).await;
            });
        }
    }
}
