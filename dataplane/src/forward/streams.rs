//! TCP connections to one server (FW54): kept while they are used, many queries on each, replies told apart by id. One
//! that breaks costs its queries a second try, on a new connection.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures::future::{Either, select};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::server::Server;
use super::{now, random};

/// Connections to one server.
const MAX_STREAMS: usize = 32;
/// Queries in progress on each (FW54).
const MAX_QUERIES: usize = 32;
/// A connection on which nothing came for so long is closed (FW54).
const IDLE: Duration = Duration::from_secs(10);
/// A connection on which nothing came for so long, while queries wait on it, gets no others: it may be dead.
const SILENCE: Duration = Duration::from_secs(1);
/// Octets of the length before each message (RFC 1035 §4.2.2).
const PREFIX: usize = 2;

/// The open connections to one server.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: Mutex<Vec<Arc<Stream>>>,
    /// Held while a query connects: the others wait for its connection, instead of one each.
    connecting: tokio::sync::Mutex<()>,
    /// Connections so far.
    opened: AtomicU64,
}

/// One connection, as those see it who ask.
#[derive(Debug)]
pub(super) struct Stream {
    /// Later ones have greater numbers; the first is 1.
    number: u64,
    queries: mpsc::Sender<Vec<u8>>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Those whose clients are gone stay until the reply: the server still works on them.
    replies: HashMap<u16, oneshot::Sender<Vec<u8>>>,
    /// Since when queries wait and nothing came.
    silent_since: Option<Instant>,
    is_closed: bool,
}

/// A reply, and how to say that it was not one.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) id: u16,
    pub(super) octets: Vec<u8>,
    stream: Arc<Stream>,
}

impl Reply {
    /// The server is wrong: what else waits on this connection is asked again on another (FW54).
    pub(super) fn distrust(&self) {
        self.stream.close();
    }
}

/// Asks over a connection that is open, or a new one; without a deadline. `query` writes the message for an id.
///
/// # Errors
/// No connection can be had, or two broke.
pub(super) async fn ask(server: &Server, query: impl Fn(u16) -> Vec<u8>) -> io::Result<Reply> {
    let mut broken = 0;
    if let Some(place) = server.streams.place(0, &query, now()) {
        broken = place.stream.number;
        if let Some(reply) = place.reply().await {
            return Ok(reply);
        }
    }
    let connect = async {
        let stream = TcpStream::connect(server.address()).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let place = server.streams.place_on_new(broken, &query, connect).await?;
    Ok(place.reply().await.ok_or(io::ErrorKind::ConnectionAborted)?)
}

/// A query in progress on a connection.
struct Place {
    id: u16,
    stream: Arc<Stream>,
    reply: oneshot::Receiver<Vec<u8>>,
}

impl Place {
    /// None when the connection broke.
    async fn reply(self) -> Option<Reply> {
        let octets = self.reply.await.ok()?;
        Some(Reply { id: self.id, octets, stream: self.stream })
    }
}

impl Streams {
    fn open(&self) -> MutexGuard<'_, Vec<Arc<Stream>>> {
        self.open.lock().expect("nothing panics while it holds this")
    }

    /// A place on an open connection that is not silent, later than this number.
    fn place(&self, after: u64, query: impl Fn(u16) -> Vec<u8>, now: Instant) -> Option<Place> {
        let open = self.open().clone();
        let fit = |stream: &&Arc<Stream>| stream.number > after && !stream.is_silent(now);
        open.iter().filter(fit).find_map(|stream| stream.place(&query, now))
    }

    /// A place on a connection later than this number: one that another query opened meanwhile, else a new one.
    async fn place_on_new<S: AsyncRead + AsyncWrite + Send + 'static>(
        &self,
        after: u64,
        query: impl Fn(u16) -> Vec<u8>,
        connect: impl Future<Output = io::Result<S>>,
    ) -> io::Result<Place> {
        let _connecting = self.connecting.lock().await;
        if let Some(place) = self.place(after, &query, now()) {
            return Ok(place);
        }
        self.close_finished();
        let open = self.open().clone();
        if open.len() >= MAX_STREAMS {
            // A slow server may be silent on each of them; the latest is the least likely to be dead.
            let mut latest_first = open.iter().rev();
            let place = latest_first.find_map(|stream| stream.place(&query, now()));
            let full = || io::Error::other("every connection to this server is in use");
            return place.ok_or_else(full);
        }
        let stream = self.keep(connect.await?);
        Ok(stream.place(&query, now()).ok_or(io::ErrorKind::ConnectionAborted)?)
    }

    /// Keeps a new connection; whatever carries octets in order will do.
    fn keep(&self, io: impl AsyncRead + AsyncWrite + Send + 'static) -> Arc<Stream> {
        let (queries, taken) = mpsc::channel(MAX_QUERIES);
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let stream = Arc::new(Stream { number, queries, waiting: Mutex::default() });
        tokio::spawn(carry(Arc::clone(&stream), io, taken));
        self.open().push(Arc::clone(&stream));
        stream
    }

    fn close_finished(&self) {
        self.open().retain(|stream| !stream.waiting().is_closed);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.open().len()
    }
}

impl Stream {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nothing panics while it holds this")
    }

    fn is_silent(&self, now: Instant) -> bool {
        let since = self.waiting().silent_since;
        since.is_some_and(|since| now.saturating_duration_since(since) >= SILENCE)
    }

    fn place(self: &Arc<Self>, query: impl Fn(u16) -> Vec<u8>, now: Instant) -> Option<Place> {
        let mut waiting = self.waiting();
        if waiting.is_closed || waiting.replies.len() >= MAX_QUERIES {
            return None;
        }
        // At most 32 of 65,536 ids are taken.
        let id = std::iter::repeat_with(|| random() as u16)
            .find(|id| !waiting.replies.contains_key(id))
            .unwrap_or_default();
        let query = query(id);
        let framed = [&(query.len() as u16).to_be_bytes()[..], &query].concat();
        self.queries.try_send(framed).ok()?;
        let (sender, reply) = oneshot::channel();
        waiting.replies.insert(id, sender);
        waiting.silent_since.get_or_insert(now);
        drop(waiting);
        Some(Place { id, stream: Arc::clone(self), reply })
    }

    /// No more queries; those that wait learn of it.
    fn close(&self) {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        waiting.replies.clear();
    }

    /// Gives a reply to its query; false if nobody waits for this id (FW54).
    fn arrived(&self, octets: Vec<u8>, now: Instant) -> bool {
        let Some(id) = octets.first_chunk().map(|id| u16::from_be_bytes(*id)) else { return false };
        let mut waiting = self.waiting();
        let reply = waiting.replies.remove(&id);
        waiting.silent_since = (!waiting.replies.is_empty()).then_some(now);
        // A query whose client is gone takes no notice of its reply.
        reply.map(|reply| reply.send(octets)).is_some()
    }
}

/// Carries queries out and replies in, until the connection breaks, says what was not asked, or is idle.
async fn carry(
    stream: Arc<Stream>,
    io: impl AsyncRead + AsyncWrite + Send + 'static,
    mut queries: mpsc::Receiver<Vec<u8>>,
) {
    let (mut reader, mut writer) = tokio::io::split(io);
    let write = async {
        while let Some(query) = queries.recv().await {
            writer.write_all(&query).await?;
        }
        Ok::<(), io::Error>(())
    };
    let read = async {
        loop {
            let mut prefix = [0; PREFIX];
            timeout(IDLE, reader.read_exact(&mut prefix)).await??;
            let mut octets = vec![0; u16::from_be_bytes(prefix).into()];
            timeout(IDLE, reader.read_exact(&mut octets)).await??;
            if !stream.arrived(octets, now()) || stream.waiting().is_closed {
                return Ok::<(), io::Error>(());
            }
        }
    };
    // Why it ended does not matter: what waits is asked again elsewhere.
    match select(std::pin::pin!(write), std::pin::pin!(read)).await {
        Either::Left((Ok(()) | Err(_), _)) | Either::Right((Ok(()) | Err(_), _)) => stream.close(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(id: u16) -> Vec<u8> {
        id.to_be_bytes().to_vec()
    }

    async fn read_query(far: &mut tokio::io::DuplexStream) -> Vec<u8> {
        let mut octets = vec![0; far.read_u16().await.unwrap().into()];
        far.read_exact(&mut octets).await.unwrap();
        octets
    }

    async fn write_reply(far: &mut tokio::io::DuplexStream, octets: &[u8]) {
        far.write_u16(octets.len() as u16).await.unwrap();
        far.write_all(octets).await.unwrap();
    }

    #[tokio::test]
    async fn fw54_replies_out_of_order_reach_their_queries_and_32_fit() {
        let (near, mut far) = tokio::io::duplex(4096);
        let streams = Streams::default();
        streams.keep(near);
        let places: Vec<Place> = (0..32).map(|_| streams.place(0, query, now()).unwrap()).collect();
        assert!(streams.place(0, query, now()).is_none(), "no more than 32");
        let mut asked = Vec::new();
        for _ in 0..32 {
            asked.push(read_query(&mut far).await);
        }
        for octets in asked.iter().rev() {
            write_reply(&mut far, octets).await;
        }
        for place in places {
            let id = place.id;
            assert_eq!(place.reply().await.unwrap().octets, id.to_be_bytes());
        }
        assert!(streams.place(0, query, now()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn fw54_a_reply_that_was_not_asked_for_closes_the_connection() {
        let start = tokio::time::Instant::now();
        let (near, mut far) = tokio::io::duplex(4096);
        let streams = Streams::default();
        streams.keep(near);
        let place = streams.place(0, query, now()).unwrap();
        let asked = read_query(&mut far).await;
        write_reply(&mut far, &(!place.id).to_be_bytes()).await;
        assert!(place.reply().await.is_none(), "{asked:?} is asked elsewhere");
        assert!(start.elapsed() < IDLE, "at once, and not for being idle");
        streams.close_finished();
        assert_eq!(streams.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn fw54_a_connection_without_replies_for_ten_seconds_is_closed() {
        let (near, _far) = tokio::io::duplex(4096);
        let streams = Streams::default();
        let stream = streams.keep(near);
        tokio::time::sleep(IDLE - Duration::from_millis(10)).await;
        assert!(!stream.waiting().is_closed);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(stream.waiting().is_closed);
    }

    #[tokio::test]
    async fn fw54_queries_that_come_together_share_new_connections() {
        let streams = Streams::default();
        let far = Mutex::new(Vec::new());
        let connect = || async {
            tokio::task::yield_now().await;
            let (near, other) = tokio::io::duplex(4096);
            far.lock().unwrap().push(other);
            Ok(near)
        };
        let together = (0..500).map(|_| streams.place_on_new(0, query, connect()));
        let places = futures::future::join_all(together).await;
        assert!(places.iter().all(Result::is_ok));
        assert_eq!(far.lock().unwrap().len(), 500_usize.div_ceil(MAX_QUERIES));
    }

    #[tokio::test]
    async fn fw54_a_connection_that_is_silent_gets_no_more_queries_until_a_reply() {
        let (near, _far) = tokio::io::duplex(4096);
        let streams = Streams::default();
        let stream = streams.keep(near);
        let start = now();
        let at = |ms| start + Duration::from_millis(ms);
        let ask = |ms| streams.place(0, query, at(ms)).map(|place| place.id);
        let first = ask(0).unwrap();
        let second = ask(999).expect("not yet silent");
        assert_eq!(ask(1000), None);
        assert!(stream.arrived(query(first), at(1500)));
        let third = ask(2499).expect("a reply came lately");
        assert_eq!(ask(2500), None);
        assert!(stream.arrived(query(second), at(2600)) && stream.arrived(query(third), at(2600)));
        assert!(ask(60_000).is_some(), "nothing waited");
    }

    #[tokio::test(start_paused = true)]
    async fn fw54_where_every_connection_is_silent_the_latest_is_used() {
        let streams = Streams::default();
        let mut far = Vec::new();
        for _ in 0..MAX_STREAMS {
            let (near, other) = tokio::io::duplex(4096);
            streams.keep(near).place(query, now()).unwrap();
            far.push(other);
        }
        tokio::time::advance(SILENCE).await;
        assert!(streams.place(0, query, now()).is_none());
        let none = async { Err::<tokio::io::DuplexStream, _>(io::Error::other("one too many")) };
        let place = streams.place_on_new(0, query, none).await.unwrap();
        assert_eq!(place.stream.number, MAX_STREAMS as u64);
    }
}
