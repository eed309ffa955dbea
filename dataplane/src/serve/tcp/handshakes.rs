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

use crate::background;
pub(super) use rates::Rates;

/// Handshakes in progress. A good client needs milliseconds for one. Many at a time mean that clients stall.
pub(super) const HANDSHAKES: usize = 256;
/// Octets that are read from a client until its handshake is over: a usual client sends less than 4 KiB.
pub(super) const HANDSHAKE_OCTETS: usize = 32 << 10;
/// Octets of a session that are read until its task has another turn. A TLS read continues until data arrives; records without
/// data, such as new keys, cost more CPU than their size suggests. Some hundred new keys fit.
const AT_ONCE: usize = 8 << 10;

/// The thread of all handshakes and of the sockets of QUIC; it ends when this is dropped.
pub(super) fn thread() -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).thread_name("handshakes").on_thread_start(background::give_way);
    builder.enable_all().build()
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

/// A stream that allows only this many octets to be read, and few of them at a time.
#[derive(Debug)]
pub(super) struct Measured<S> {
    stream: S,
    left: usize,
    /// Octets that were read in this turn.
    at_once: usize,
}

impl<S> Measured<S> {
    pub(super) fn new(stream: S, left: usize) -> Measured<S> {
        Measured { stream, left, at_once: 0 }
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
        let room = AT_ONCE - std::mem::take(&mut self.at_once);
        if room == 0 {
            // Who reads this asks first whether it is the turn of its client.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let most = room.min(to.remaining());
        let mut part = ReadBuf::new(to.initialize_unfilled_to(most));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let octets = part.filled().len();
        to.advance(octets);
        self.at_once = AT_ONCE - room + octets;
        match self.left.checked_sub(octets) {
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
    use std::io::Write;

    use futures::FutureExt;
    use tokio::io::AsyncWriteExt;
    use tokio_rustls::rustls::crypto::cipher::{
        AeadKey, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundOpaqueMessage,
        OutboundPlainMessage, Tls13AeadAlgorithm, UnsupportedOperationError,
    };
    use tokio_rustls::rustls::crypto::{CipherSuiteCommon, ring};
    use tokio_rustls::rustls::{
        ConnectionTrafficSecrets, ContentType, Error, SupportedCipherSuite, Tls13CipherSuite,
    };
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::super::super::certificate::testing::{signed_there, trusting_with};
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
    async fn wr44_little_of_a_session_is_read_in_one_turn() {
        let octets = [7; 100_000];
        let mut measured = Measured::new(&octets[..], usize::MAX);
        let (mut turn, mut sum) = (0, 0);
        std::future::poll_fn(|cx| {
            turn = 0;
            loop {
                let mut room = [0; 5_000];
                let mut to = ReadBuf::new(&mut room);
                match Pin::new(&mut measured).poll_read(cx, &mut to) {
                    Poll::Ready(read) => read.unwrap(),
                    Poll::Pending => break Poll::Pending,
                }
                turn += to.filled().len();
                sum += to.filled().len();
                assert!(turn <= 8 << 10, "{turn} octets");
                if to.filled().is_empty() {
                    break Poll::Ready(());
                }
            }
        })
        .await;
        assert_eq!(sum, octets.len());
    }

    /// Encrypts as TLS does, but a record of one octet is sent without it.
    struct Emptying(&'static dyn Tls13AeadAlgorithm);

    impl Tls13AeadAlgorithm for Emptying {
        fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
            Box::new(EmptyRecords(self.0.encrypter(key, iv)))
        }

        fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
            self.0.decrypter(key, iv)
        }

        fn key_len(&self) -> usize {
            self.0.key_len()
        }

        fn extract_keys(
            &self,
            key: AeadKey,
            iv: Iv,
        ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
            self.0.extract_keys(key, iv)
        }
    }

    struct EmptyRecords(Box<dyn MessageEncrypter>);

    impl MessageEncrypter for EmptyRecords {
        fn encrypt(
            &mut self,
            mut message: OutboundPlainMessage<'_>,
            number: u64,
        ) -> Result<OutboundOpaqueMessage, Error> {
            if message.typ == ContentType::ApplicationData && message.payload.len() == 1 {
                message.payload = OutboundChunks::Single(&[]);
            }
            self.0.encrypt(message, number)
        }

        fn encrypted_payload_len(&self, octets: usize) -> usize {
            self.0.encrypted_payload_len(octets)
        }
    }

    /// The one suite of TLS 1.3 that every client has, with empty records.
    fn emptying() -> SupportedCipherSuite {
        let usual = ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
        let usual = usual.tls13().expect("it is of TLS 1.3");
        SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
            common: CipherSuiteCommon {
                suite: usual.common.suite,
                hash_provider: usual.common.hash_provider,
                confidentiality_limit: usual.common.confidentiality_limit,
            },
            hkdf_provider: usual.hkdf_provider,
            aead_alg: Box::leak(Box::new(Emptying(usual.aead_alg))),
            quic: None,
        })))
    }

    #[tokio::test]
    async fn wr44_new_keys_of_tls_with_empty_records_are_read_in_many_turns() {
        let (tls, chain, _) = signed_there(b"dot");
        let mut provider = ring::default_provider();
        provider.cipher_suites = vec![emptying()];
        let config = Arc::new(trusting_with(provider, &chain, b"dot"));
        let (theirs, ours) = tokio::io::duplex(1 << 20);
        let (client, session) = futures::join!(
            TlsConnector::from(config).connect("dns.example".try_into().unwrap(), theirs),
            TlsAcceptor::from(Arc::new(tls)).accept(Measured::new(ours, usize::MAX)),
        );
        let ((mut stream, mut client), mut session) =
            (client.unwrap().into_inner(), session.unwrap());
        let mut sent = Vec::new();
        while sent.len() < 300_000 {
            // As many as are taken without data between them, of which an empty record is some.
            (0..32).for_each(|_| client.refresh_traffic_keys().unwrap());
            client.writer().write_all(b"x").unwrap();
            while client.wants_write() {
                client.write_tls(&mut sent).unwrap();
            }
        }
        client.writer().write_all(b"end").unwrap();
        client.write_tls(&mut sent).unwrap();
        stream.write_all(&sent).await.unwrap();
        let (mut octets, mut turns) = ([0; 10], 0);
        let mut read = ReadBuf::new(&mut octets);
        std::future::poll_fn(|cx| {
            turns += 1;
            Pin::new(&mut session).poll_read(cx, &mut read)
        })
        .await
        .unwrap();
        assert_eq!(read.filled(), b"end");
        assert!(turns > sent.len() / (8 << 10), "{} octets in {turns} turns", sent.len());
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
