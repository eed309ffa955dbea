//! Connections to one server (FW54): kept while they are used, many queries on each, replies matched by id. A query whose
//! connection breaks is asked once more, on a later one. What carries the messages is below: TCP, TLS, HTTP/2 or QUIC.

mod asker;
mod connection;
mod placing;
mod connect_turns;
mod crowd;
mod alone;
mod copies;
mod patience;
mod exchanges;
mod outlet;
mod stream;
mod tls_session;
mod tls_stream;
mod tls;
mod partial;
mod https;
mod in_parts;
mod quic;
mod certificates;
mod sessions;
mod pause;
mod failure;
mod counts;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::HandshakeKind;
use tokio_util::sync::CancellationToken;

use super::common::Common;
use super::now;
use super::overdue::{self, Watch};
pub(super) use asker::Asker;
use connect_turns::Turns;
pub(super) use connection::{Arrived, Place, Reply};
use connection::{Connection, MAX_QUERIES, Shared};
pub(super) use counts::Counted;
pub use failure::connection_failures;
pub(super) use failure::{Failure, Unsent};
pub(crate) use outlet::Together;
use outlet::{Outlet, Query};
pub(super) use pause::HOLD_OFF;
pub(super) use tls::Client;
use tls::Spoken;
use tls_session::TlsSession;

/// Connections to one server, those that are being closed among them.
const MAX_CONNECTIONS: usize = 32;
/// Stalled connections until new queries share these, as a copy has helped lately; else. The others are left for queries that are
/// asked again, alone, and a server may take few connections.
const MAX_STALLED: usize = 8;
const MAX_STALLED_AT_FIRST: usize = 4;
/// Times that a query is sent: once, and once more where it was lost (FW54).
const TRIES: usize = 2;
/// Times more where it was lost beside replies to others: as often as a full connection has to be made for a server that
/// gives two replies on each.
const MORE_TRIES: usize = MAX_QUERIES / 2;

/// The open connections to one server, and what is needed for others.
#[derive(Debug)]
pub(super) struct Connections {
    address: SocketAddr,
    /// The name and the authorities to expect; `None` for TCP.
    client: Option<Client>,
    common: Arc<Common>,
    open: Mutex<Vec<Arc<Connection>>>,
    turns: Turns,
    watch: Watch,
    shared: Arc<Shared>,
}

/// How far a query over a connection is.
#[derive(Debug)]
pub(super) enum Progress {
    Unsent,
    /// It was sent, and waits for its reply.
    Waits(Place),
    /// It was sent and lost (FW54): its next connection must be later than this number.
    Lost(u64),
}

/// Asks over a connection that is open, or a new one; without a deadline. `query` writes the message for an id.
///
/// # Errors
/// No connection can be made, two broke, or what came is not a reply.
pub(super) async fn ask(
    connections: &Arc<Connections>,
    asker: Asker<'_>,
    progress: Progress,
    query: impl Fn(u16) -> Vec<u8>,
) -> Result<Reply, Failure> {
    let (mut after, mut tries, mut taken) = match progress {
        Progress::Unsent => (0, 0, None),
        Progress::Waits(place) => (0, 0, Some(place)),
        Progress::Lost(after) => (after, 1, None),
    };
    // It came too late for the replies or the place that others got: the server works, so time and this number end it.
    let mut more_tries = 0;
    loop {
        let place = match taken.take().or_else(|| connections.place_for(asker, after, &query)) {
            Some(place) => place,
            None => {
                let place = connections.place_on_new(after, &query, connections.opening());
                match asker.placed(after > 0, place).await {
                    Ok(place) => place,
                    Err(failure) if failure.unsent != Some(Unsent::Taken) => return Err(failure),
                    Err(_) if more_tries < MORE_TRIES => {
                        more_tries += 1;
                        continue;
                    }
                    Err(taken) => return Err(connections.counted_failure(taken)),
                }
            }
        };
        let (connection, ended) = connections.reply_to(place, asker, &query).await;
        let failure = match ended {
            Ok(reply) => {
                if tries == TRIES {
                    connections.shared.copies.helped(asker.client, now());
                }
                return Ok(reply);
            }
            Err(failure) => failure,
        };
        match connection.loss_counts() || more_tries == MORE_TRIES {
            true => tries += 1,
            false => more_tries += 1,
        }
        if !failure.is_loss() || tries > TRIES {
            return Err(failure);
        }
        after = connection.after_loss();
        // It may have been lost together with a name for which the server ends its connection, as dnsmasq does.
        if tries == TRIES {
            let is_over = connection.has_streams() || more_tries == MORE_TRIES;
            if is_over || !connections.shared.copies.take(asker.client, now()) {
                return Err(failure);
            }
            let place = connections.placed_alone(&query);
            taken = Some(asker.placed(true, place).await.ok_or(failure)?);
        }
    }
}

/// Sends a query over a connection that is open, without a task: `landed` is called with `flight` and what comes first.
/// `query` writes the message for an id. `flight` is returned if no open connection has a place.
pub(super) fn depart<T: Send + 'static>(
    connections: &Arc<Connections>,
    flight: T,
    query: impl Fn(&T, u16) -> Vec<u8>,
    landed: impl FnOnce(T, Arrived) + Send + 'static,
) -> Option<T> {
    let (now, mut parts) = (now(), Some((flight, landed)));
    let mut make = |id| {
        let (flight, landed) = parts.take()?;
        let octets = query(&flight, id);
        let call = Box::new(move |arrived| landed(flight, arrived));
        Some((octets, call as connection::OnArrival))
    };
    if connections.fitting(0, now).any(|connection| connection.call(now, &mut make)) {
        connections.watch();
    }
    parts.map(|(flight, _)| flight)
}

impl Connections {
    /// None is open yet. `client` belongs to the encrypted transports.
    pub(super) fn new(
        address: SocketAddr,
        client: Option<Client>,
        common: Arc<Common>,
    ) -> Connections {
        Connections {
            address,
            client,
            common,
            open: Mutex::default(),
            turns: Turns::default(),
            watch: Watch::default(),
            shared: Arc::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.open.lock().expect("nothing panics while it holds this")
    }

    /// What happened so far, for people and metrics.
    pub(super) fn counted(&self, now: Instant) -> Counted {
        let open = self.open().iter().filter(|connection| !connection.is_closed()).count();
        self.shared.counts.read(open, self.shared.opened.load(Ordering::Relaxed), now)
    }

    /// Makes sure that queries without a task are called when they wait too long.
    fn watch(self: &Arc<Self>) {
        overdue::watch(self, |it| &it.common, |it| &it.watch, Connections::overdue);
    }

    /// Calls those that wait too long; returns when the next one will.
    fn overdue(&self, now: Instant) -> Option<Instant> {
        let open = self.open().clone();
        open.iter().filter_map(|connection| connection.overdue(now)).min()
    }

    /// Connections that are not stalled, later than this number; none behind as many stalled ones as there may be.
    fn fitting(&self, after: u64, now: Instant) -> impl Iterator<Item = Arc<Connection>> {
        let mut stalled = 0;
        let not_full = move |(is_stalled, it): &(bool, Arc<Connection>)| {
            stalled += usize::from(*is_stalled && !it.has_streams());
            stalled < MAX_STALLED_AT_FIRST || stalled < self.max_stalled(now)
        };
        let looked_at = self.later(after).map(move |it| (it.is_stalled(now), it));
        looked_at.take_while(not_full).filter_map(|(is_stalled, it)| (!is_stalled).then_some(it))
    }

    fn max_stalled(&self, now: Instant) -> usize {
        if self.shared.copies.has_helped(now) { MAX_STALLED } else { MAX_STALLED_AT_FIRST }
    }

    /// Connections later than this number.
    fn later(&self, after: u64) -> impl Iterator<Item = Arc<Connection>> {
        // The list is not copied: most queries fit on the first connection.
        let at = |place: usize| self.open().get(place).cloned();
        (0..).map_while(at).filter(move |it| it.number > after)
    }

    /// A place on an open connection that is not stalled, later than this number.
    fn place(&self, after: u64, query: impl Fn(u16) -> Vec<u8>, now: Instant) -> Option<Place> {
        self.fitting(after, now).find_map(|connection| connection.place(&query, now))
    }

    /// The same; one that may be late again goes to a connection that is stalled already, if there is one that is not silent.
    fn place_for(
        &self,
        asker: Asker<'_>,
        after: u64,
        query: impl Fn(u16) -> Vec<u8>,
    ) -> Option<Place> {
        let now = now();
        let is_late = |it: &Arc<Connection>| it.is_stalled(now) && !it.is_silent(now);
        let among_late = || {
            let mut late = self.later(after).filter(is_late);
            late.find_map(|connection| connection.place(&query, now))
        };
        let placed = if asker.is_repeat { among_late() } else { None };
        placed.or_else(|| self.place(after, &query, now))
    }

    /// A place on an open connection that is not silent, later than this number; it may be stalled.
    fn place_beside_late(
        &self,
        after: u64,
        query: impl Fn(u16) -> Vec<u8>,
        now: Instant,
    ) -> Option<Place> {
        let mut open = self.later(after).filter(|it| !it.is_silent(now));
        open.find_map(|connection| connection.place(&query, now))
    }

    fn opening(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<Arc<Connection>, Failure>> + Send + use<> {
        let new = Arc::clone(self);
        async move { Box::pin(new.connect()).await }
    }

    /// Opens a connection of this server's transport, and keeps it. It has some KiB while it does: only who opens has that.
    async fn connect(self: Arc<Self>) -> Result<Arc<Connection>, Failure> {
        let Some(client) = &self.client else { return Ok(self.keep(self.tcp().await?)) };
        match &client.spoken {
            Spoken::Tls => Ok(self.keep_tls(self.tls(client).await?)),
            Spoken::Https { uri } => {
                let stream = self.tls(client).await?;
                https::check_protocol(&stream)?;
                let (sender, driver, end) = https::begin(stream).await?;
                let (connection, queries) = self.add_queue(end.disarm());
                let kept = Arc::clone(&connection);
                let carry = https::carry(kept, sender, driver, Arc::clone(uri), queries);
                self.carry(&connection, carry);
                Ok(connection)
            }
            Spoken::Quic(config) => {
                let (full, name) = (client.full_handshakes(), client.name());
                let is_kept = |port| self.common.keeps(port);
                let connecting = quic::connect(config.clone(), self.address, &name, is_kept);
                let (endpoint, quic) = connecting.await?;
                self.shared.counts.shook_hands(client.full_handshakes() == full);
                let (connection, queries) = self.add_queue(CancellationToken::new());
                let (carried, common) = (Arc::clone(&connection), Arc::clone(&self.common));
                let carry = quic::carry(carried, endpoint, quic, queries, common);
                self.carry(&connection, carry);
                Ok(connection)
            }
        }
    }

    async fn tcp(&self) -> Result<TcpStream, Failure> {
        let connected = TcpStream::connect(self.address).await;
        let stream = connected.map_err(|error| Failure::connect_to(self.address, error))?;
        stream.set_nodelay(true).map_err(Failure::connect)?;
        Ok(stream)
    }

    async fn tls(&self, client: &Client) -> Result<TlsStream<TcpStream>, Failure> {
        let stream = client.handshake(self.tcp().await?).await?;
        let is_resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
        self.shared.counts.shook_hands(is_resumed);
        Ok(stream)
    }

    /// Keeps a connection on which the TLS handshake is over.
    fn keep_tls(&self, stream: TlsStream<TcpStream>) -> Arc<Connection> {
        let (tcp, tls) = stream.into_inner();
        let tcp = Arc::new(tcp);
        let tls = Arc::new(TlsSession::new(tls, Arc::clone(&tcp)));
        let connection = self.add(Outlet::Tls(Arc::clone(&tls)), CancellationToken::new());
        self.carry(&connection, tls_stream::carry(Arc::clone(&connection), tls, tcp));
        connection
    }

    /// Keeps a new connection that carries octets in order.
    fn keep(
        &self,
        io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
    ) -> Arc<Connection> {
        let (queries, taken) = mpsc::channel(MAX_QUERIES);
        let connection = self.add(Outlet::Task(queries), CancellationToken::new());
        self.carry(&connection, stream::carry(Arc::clone(&connection), io, taken));
        connection
    }

    /// Runs the task that carries the messages of a connection. Where it panics, which is a defect of ours, the connection ends as
    /// one that broke: no query waits on it without end, and later ones get another one.
    fn carry(
        &self,
        connection: &Arc<Connection>,
        carry: impl Future<Output = ()> + Send + 'static,
    ) {
        let (common, connection) = (Arc::clone(&self.common), Arc::clone(connection));
        tokio::spawn(async move {
            if common.guarded(carry).await.is_none() {
                connection.close();
                connection.end_outlet();
            }
        });
    }

    /// Adds a connection with a stream for each query, which a task opens. `end` ends the tasks that carry its messages.
    fn add_queue(&self, end: CancellationToken) -> (Arc<Connection>, mpsc::Receiver<Query>) {
        let (queries, taken) = mpsc::channel(MAX_QUERIES);
        (self.add(Outlet::Streams(queries), end), taken)
    }

    fn add(&self, outlet: Outlet, end: CancellationToken) -> Arc<Connection> {
        let number = self.shared.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let connection = Connection::new(number, Arc::clone(&self.shared), outlet, end);
        self.open().push(Arc::clone(&connection));
        connection
    }

    /// Ends those that are not needed any more, and forgets those whose socket is closed.
    fn close_finished(&self) {
        let open = self.open().clone();
        open.iter().for_each(|connection| connection.close_if_over());
        // Over TLS this waits for the thread that uses the session, and every query to the server needs the list.
        let gone: Vec<_> = open.iter().filter(|connection| connection.is_gone()).collect();
        if !gone.is_empty() {
            self.open().retain(|it| !gone.iter().any(|gone| Arc::ptr_eq(gone, it)));
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
