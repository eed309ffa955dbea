//! Connections to one server (FW54): kept while they are used, many queries on each, replies matched by id. A query whose
//! connection breaks is asked once more, on a new one. What carries the messages is below: TCP, TLS, HTTP/2 or QUIC.

mod counts;
mod failure;
mod https;
mod quic;
mod sessions;
mod stream;
mod tls;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::HandshakeKind;
use tokio_util::sync::CancellationToken;

use super::{now, random};
pub(super) use counts::Counted;
use counts::Counts;
pub(super) use failure::Failure;
#[cfg(test)]
use failure::Reason;
pub(super) use tls::Client;
use tls::Spoken;

/// Connections to one server.
const MAX_CONNECTIONS: usize = 32;
/// Queries in progress on each (FW54).
const MAX_QUERIES: usize = 32;
/// A connection on which nothing came for so long is closed (FW54).
const IDLE: Duration = Duration::from_secs(10);
/// A connection on which nothing came for so long, while queries wait on it, gets no others: it may be dead.
const SILENCE: Duration = Duration::from_secs(1);
/// From the first packet to a connection that can carry queries. It continues without the query that began it.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// After a connection could not be made, none is tried for so long: less than the time between two sends of a lookup.
const HOLD_OFF: Duration = Duration::from_millis(400);

/// The open connections to one server, and what is needed for others.
#[derive(Debug)]
pub(super) struct Connections {
    address: SocketAddr,
    /// Whom to expect there; none for TCP.
    client: Option<Client>,
    open: Mutex<Vec<Arc<Connection>>>,
    /// Held while one is made: other queries wait for it, instead of one each.
    turn: Arc<tokio::sync::Mutex<Turn>>,
    /// Connections so far.
    opened: AtomicU64,
    counts: Counts,
}

/// How the latest attempt at a connection ended, if it failed.
#[derive(Debug, Default)]
struct Turn {
    failed: Option<(Instant, Failure)>,
}

/// One connection, as those see it who ask.
#[derive(Debug)]
struct Connection {
    /// Later ones have greater numbers; the first is 1.
    number: u64,
    queries: mpsc::Sender<Query>,
    waiting: Mutex<Waiting>,
    /// Ends the tasks that carry messages, and so the socket.
    end: CancellationToken,
}

/// A message on its way out.
#[derive(Debug)]
struct Query {
    id: u16,
    octets: Vec<u8>,
}

impl Query {
    /// Over HTTPS and QUIC ids are 0: the stream says whose reply it is.
    fn without_id(mut self) -> Query {
        self.octets[..2].fill(0);
        self
    }
}

/// A message that came in.
#[derive(Debug)]
struct Message {
    octets: Vec<u8>,
    /// Seconds that it lay in a cache of HTTP.
    age_s: u32,
}

impl Message {
    /// With the id that its query has here. Another one than 0 stays, and is found wrong with the rest of the message.
    fn with_id(mut self, id: u16) -> Message {
        if let Some(octets @ [0, 0]) = self.octets.first_chunk_mut() {
            *octets = id.to_be_bytes();
        }
        self
    }
}

/// What comes for a query; nothing where the connection broke.
type Ended = Result<Message, Failure>;

#[derive(Debug, Default)]
struct Waiting {
    /// Those whose clients are gone stay until the reply: the server still works on them.
    replies: HashMap<u16, oneshot::Sender<Ended>>,
    /// Since when queries wait and nothing came.
    silent_since: Option<Instant>,
    state: State,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// It takes no more queries; those that wait still have their time.
    Draining,
    /// Its tasks end at once.
    Closed,
}

/// A reply, and how to say that it was not one.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) id: u16,
    pub(super) octets: Vec<u8>,
    /// Seconds that it lay in a cache of HTTP (RFC 8484 §5.1).
    pub(super) age_s: u32,
    connection: Arc<Connection>,
}

impl Reply {
    /// The server is wrong: what else waits on this connection is asked again on another (FW54).
    pub(super) fn distrust(&self) {
        self.connection.close();
    }
}

/// Asks over a connection that is open, or a new one; without a deadline. `query` writes the message for an id.
///
/// # Errors
/// No connection can be made, two broke, or the reply is none.
pub(super) async fn ask(
    connections: &Arc<Connections>,
    query: impl Fn(u16) -> Vec<u8>,
) -> Result<Reply, Failure> {
    let mut broken = 0;
    if let Some(place) = connections.place(0, &query, now()) {
        let connection = Arc::clone(&place.connection);
        let failure = match place.reply().await {
            Ok(reply) => return Ok(reply),
            Err(failure) => failure,
        };
        connections.counts.failed(&failure);
        if !failure.is_loss() {
            return Err(failure);
        }
        // Where only one stream was lost, the connection may still be used.
        broken = connection.number - u64::from(connection.is_open());
    }
    let opening = Arc::clone(connections).connect();
    let place = connections.place_on_new(broken, &query, opening).await?;
    place.reply().await.inspect_err(|lost| connections.counts.failed(lost))
}

/// A query in progress on a connection.
struct Place {
    id: u16,
    connection: Arc<Connection>,
    reply: oneshot::Receiver<Ended>,
}

impl Place {
    async fn reply(self) -> Result<Reply, Failure> {
        let ended = self.reply.await.unwrap_or_else(|_| Err(Failure::broken()));
        let Message { octets, age_s } = ended?;
        Ok(Reply { id: self.id, octets, age_s, connection: self.connection })
    }
}

impl Connections {
    /// None is open yet. `client` belongs to the encrypted transports.
    pub(super) fn new(address: SocketAddr, client: Option<Client>) -> Connections {
        Connections {
            address,
            client,
            open: Mutex::default(),
            turn: Arc::default(),
            opened: AtomicU64::new(0),
            counts: Counts::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.open.lock().expect("nothing panics while it holds this")
    }

    /// What happened so far, for people and metrics.
    pub(super) fn counted(&self) -> Counted {
        let is_open = |connection: &&Arc<Connection>| connection.waiting().state != State::Closed;
        let open = self.open().iter().filter(is_open).count();
        self.counts.read(open, self.opened.load(Ordering::Relaxed))
    }

    /// A place on an open connection that is not silent, later than this number.
    fn place(&self, after: u64, query: impl Fn(u16) -> Vec<u8>, now: Instant) -> Option<Place> {
        let open = self.open().clone();
        let fit = |it: &&Arc<Connection>| it.number > after && !it.is_silent(now);
        open.iter().filter(fit).find_map(|connection| connection.place(&query, now))
    }

    /// A place on a connection later than this number: one that another query opened meanwhile, else a new one.
    async fn place_on_new(
        &self,
        after: u64,
        query: impl Fn(u16) -> Vec<u8>,
        opening: impl Future<Output = Result<Arc<Connection>, Failure>> + Send + 'static,
    ) -> Result<Place, Failure> {
        let mut turn = Arc::clone(&self.turn).lock_owned().await;
        if let Some(place) = self.place(after, &query, now()) {
            return Ok(place);
        }
        if let Some((at, failure)) = &turn.failed
            && now().saturating_duration_since(*at) < HOLD_OFF
        {
            return Err(failure.clone());
        }
        self.close_finished();
        let open = self.open().clone();
        if open.len() >= MAX_CONNECTIONS {
            // A slow server may be silent on each of them; the latest is the least likely to be dead.
            let mut latest_first = open.iter().rev();
            let place = latest_first.find_map(|connection| connection.place(&query, now()));
            return place.ok_or_else(Failure::full);
        }
        // A task of its own: a lookup that another server answers meanwhile does not end the handshake, or a server
        // that is slower than others would never have a connection.
        let task = tokio::spawn(async move {
            let opened = timeout(HANDSHAKE, opening).await.unwrap_or_else(|_| Err(Failure::slow()));
            turn.failed = opened.as_ref().err().map(|failure| (now(), failure.clone()));
            (opened, turn)
        });
        // The turn is ours until we have a place: those who wait would take all of them.
        let (opened, _turn) = task.await.map_err(|_| Failure::broken())?;
        let connection = opened.inspect_err(|failure| self.counts.failed(failure))?;
        connection.place(&query, now()).ok_or_else(Failure::broken)
    }

    /// Opens a connection of this server's transport, and keeps it.
    async fn connect(self: Arc<Self>) -> Result<Arc<Connection>, Failure> {
        let Some(client) = &self.client else { return Ok(self.keep(self.tcp().await?)) };
        match &client.spoken {
            Spoken::Tls => {
                let stream = self.tls(client).await?;
                Ok(self.keep(stream))
            }
            Spoken::Https { uri } => {
                let stream = self.tls(client).await?;
                https::check_protocol(&stream)?;
                let (sender, driver, end) = https::begin(stream).await?;
                let (connection, queries) = self.add(end.disarm());
                let kept = Arc::clone(&connection);
                tokio::spawn(https::carry(kept, sender, driver, Arc::clone(uri), queries));
                Ok(connection)
            }
            Spoken::Quic(config) => {
                let (full, name) = (client.full_handshakes(), client.name());
                let (endpoint, quic) = quic::connect(config.clone(), self.address, &name).await?;
                self.counts.shook_hands(client.full_handshakes() == full);
                let (connection, queries) = self.add(CancellationToken::new());
                let kept = Arc::clone(&connection);
                tokio::spawn(async move {
                    quic::carry(kept, quic, queries).await;
                    // The last packets leave before the port is closed.
                    endpoint.wait_idle().await;
                });
                Ok(connection)
            }
        }
    }

    async fn tcp(&self) -> Result<TcpStream, Failure> {
        let stream = TcpStream::connect(self.address).await.map_err(Failure::connect)?;
        stream.set_nodelay(true).map_err(Failure::connect)?;
        Ok(stream)
    }

    async fn tls(&self, client: &Client) -> Result<TlsStream<TcpStream>, Failure> {
        let stream = client.handshake(self.tcp().await?).await?;
        let is_resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
        self.counts.shook_hands(is_resumed);
        Ok(stream)
    }

    /// Keeps a new connection that carries octets in order.
    fn keep(
        &self,
        io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
    ) -> Arc<Connection> {
        let (connection, queries) = self.add(CancellationToken::new());
        tokio::spawn(stream::carry(Arc::clone(&connection), io, queries));
        connection
    }

    /// `end` ends the tasks that carry its messages.
    fn add(&self, end: CancellationToken) -> (Arc<Connection>, mpsc::Receiver<Query>) {
        let (queries, taken) = mpsc::channel(MAX_QUERIES);
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = Arc::new(Connection { number, queries, waiting: Mutex::default(), end });
        self.open().push(Arc::clone(&connection));
        (connection, taken)
    }

    fn close_finished(&self) {
        self.open().retain(|connection| connection.waiting().state != State::Closed);
    }
}

impl Connection {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nothing panics while it holds this")
    }

    fn is_silent(&self, now: Instant) -> bool {
        let since = self.waiting().silent_since;
        since.is_some_and(|since| now.saturating_duration_since(since) >= SILENCE)
    }

    fn place(self: &Arc<Self>, query: impl Fn(u16) -> Vec<u8>, now: Instant) -> Option<Place> {
        let mut waiting = self.waiting();
        if waiting.state != State::Open || waiting.replies.len() >= MAX_QUERIES {
            return None;
        }
        // At most 32 of 65,536 ids are taken.
        let id = std::iter::repeat_with(|| random() as u16)
            .find(|id| !waiting.replies.contains_key(id))
            .unwrap_or_default();
        self.queries.try_send(Query { id, octets: query(id) }).ok()?;
        let (sender, reply) = oneshot::channel();
        waiting.replies.insert(id, sender);
        waiting.silent_since.get_or_insert(now);
        drop(waiting);
        Some(Place { id, connection: Arc::clone(self), reply })
    }

    /// No more queries; those that wait learn of it, and the tasks that carry messages end.
    fn close(&self) {
        let mut waiting = self.waiting();
        waiting.state = State::Closed;
        waiting.replies.clear();
        drop(waiting);
        self.end.cancel();
    }

    /// No more queries; those that wait still have their time.
    fn retire(&self) {
        let mut waiting = self.waiting();
        if waiting.state == State::Open {
            waiting.state = State::Draining;
        }
    }

    fn is_open(&self) -> bool {
        self.waiting().state == State::Open
    }

    /// Gives a reply to the query with this id; false if none waits for it (FW54).
    fn answered(&self, id: u16, ended: Ended, now: Instant) -> bool {
        let mut waiting = self.waiting();
        let reply = waiting.replies.remove(&id);
        waiting.silent_since = (!waiting.replies.is_empty()).then_some(now);
        // A query whose client is gone takes no notice of its reply.
        reply.map(|reply| reply.send(ended)).is_some()
    }
}

#[cfg(test)]
mod tests;
