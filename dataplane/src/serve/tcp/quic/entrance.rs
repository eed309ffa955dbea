//! What happens on the thread of handshakes for QUIC: a client shows that it has its address, then its handshake is
//! computed, then its connection goes to the thread of the TCP side.
//!
//! quinn computes a signature while it holds the lock of its endpoint, so only this thread uses that.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Connection, Endpoint, IdleTimeout, Incoming, ServerConfig, TransportConfig, VarInt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::super::super::certificate::{Certificate, LOOK_EVERY};
use super::super::super::counters::{CloseReason, ServeCounters, add};
use super::super::super::responder::{Asker, client};
use super::super::super::traffic::ServedOver;
use super::super::super::{Deadlines, Limits, Phase};
use super::super::MESSAGE_OCTETS;
use super::super::frame::PREFIX;
use super::super::handshakes::{HANDSHAKES, Handshake, Handshakes, Rates};
use super::super::requests::STREAMS;
use super::costly_frames::{COSTLY_LOOK_EVERY, Looks, costly};
use super::lingering::{Lingering, Places};
use super::{Code, ended_by};
use crate::quic_sockets::OneByOne;

/// Octets of a connection that a client may send before we read them: as many usual queries as it has streams. quinn keeps
/// them as they come, and pieces with holes between them, which cannot be read, take some 60 octets each besides.
const WINDOW_OCTETS: u32 = 8 << 10;
/// The same of one stream: more than any usual query, also a padded one (RFC 8467). A longer one takes round trips more. quinn
/// goes through all pieces of a stream about once for 20 that come, so this bounds the work for each.
const STREAM_OCTETS: u32 = 2 << 10;
/// Octets of replies that are not acknowledged yet: a full message on each of two streams.
const SEND_OCTETS: u64 = 2 * (MESSAGE_OCTETS + PREFIX) as u64;
/// Octets that quinn keeps of a connection that was not accepted yet, and of all of them.
const INCOMING_OCTETS: u64 = 32 << 10;
const ALL_INCOMING_OCTETS: u64 = 4 << 20;

/// One listener, as far as the end of handshakes.
pub(super) struct Entrance {
    pub(super) endpoint: Endpoint,
    pub(super) sockets: OneByOne,
    /// What the listener was opened with.
    pub(super) config: Option<ServerConfig>,
    pub(super) local: SocketAddr,
    pub(super) certificate: Arc<Certificate>,
    pub(super) limits: watch::Receiver<Limits>,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) handshakes: Handshakes,
    pub(super) rates: Arc<Rates>,
    pub(super) counters: Arc<ServeCounters>,
    pub(super) costly_frames: u64,
    /// Whose connections have ended and are kept by quinn.
    pub(super) lingering: Mutex<Lingering>,
    /// Connections whose handshake has begun.
    pub(super) open: Mutex<Vec<Connection>>,
    /// Connections that wait for room in it keep their place among the handshakes.
    pub(super) established: mpsc::Sender<(Connection, Asker)>,
}

/// How we speak QUIC with the certificate in use; nothing until there was a good one. What was used before stays, except for
/// the certificate: its key reads the tokens of clients that have just shown their address, and they do that only once.
pub(super) fn config(
    certificate: &Certificate,
    deadlines: &Deadlines,
    before: Option<ServerConfig>,
) -> Option<ServerConfig> {
    let tls = certificate.config()?;
    let crypto = QuicServerConfig::try_from(tls).ok()?;
    if let Some(mut config) = before {
        config.crypto = Arc::new(crypto);
        return Some(config);
    }
    // Only what nothing is heard of for longer than we wait for: the connection table ends the rest.
    let silence = 2 * deadlines.idle.max(deadlines.message);
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(STREAMS.into())
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(STREAM_OCTETS))
        .receive_window(VarInt::from_u32(WINDOW_OCTETS))
        .send_window(SEND_OCTETS)
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(IdleTimeout::try_from(silence).ok());
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(Arc::new(transport))
        .max_incoming(HANDSHAKES)
        .incoming_buffer_size(INCOMING_OCTETS)
        .incoming_buffer_size_total(ALL_INCOMING_OCTETS);
    // A client that moves is another one for limits by address.
    config.migration(false);
    Some(config)
}

impl Entrance {
    /// Until the thread of the TCP side has ended.
    pub(super) async fn serve(self) {
        let entrance = Arc::new(self);
        let deadlines = entrance.limits.borrow().deadlines.clone();
        let (mut version, mut in_use) = (None, entrance.config.clone());
        let mut look = tokio::time::interval(COSTLY_LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = Looks::new(Instant::now());
        loop {
            // Before the certificate: one that comes in between is then taken the next time.
            let now = Some(entrance.certificate.version());
            if version != now
                && let Some(config) = config(&entrance.certificate, &deadlines, in_use.clone())
            {
                version = now;
                in_use = Some(config.clone());
                entrance.endpoint.set_server_config(Some(config));
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY / 4) => {}
                now = look.tick(), if entrance.has_connections() => {
                    if looks.is_due(entrance.sockets.datagrams(), now) {
                        entrance.look();
                    }
                }
                incoming = entrance.endpoint.accept() => {
                    let Some(incoming) = incoming else { return };
                    entrance.welcome(incoming);
                }
            }
        }
    }

    /// Whether there are connections, or handshakes that are about to begin.
    fn has_connections(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || !self.open().is_empty()
    }

    fn lingering(&self) -> MutexGuard<'_, Lingering> {
        self.lingering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that quinn may keep, with those that have ended.
    fn places(&self) -> Places {
        Places::of(self.limits.borrow().tcp_buffer_bytes)
    }

    fn open(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes connections whose clients sent too many costly frames. Nothing else is woken by these. What a client has closed
    /// itself counts as well: else it could begin the next one at once.
    fn look(&self) {
        let now = Instant::now();
        self.open().retain(|connection| {
            let is_over = connection.close_reason().is_some();
            let is_costly = costly(&connection.stats().frame_rx) > self.costly_frames;
            if !is_over && !is_costly {
                return true;
            }
            let address = client(connection.remote_address()).ip();
            self.lingering().ended(address, self.places(), now);
            if is_costly {
                self.rates.charge(address, &self.limits.borrow(), now);
            }
            if !is_over {
                self.counters.encrypted.add_quic(Code::ExcessiveLoad as u32);
                connection.close(Code::ExcessiveLoad.number(), b"");
            }
            false
        });
    }

    /// Begins a handshake. A client must show first that it has its address (RFC 9000 §8.1.2): tokens and places go by
    /// address, so one that is not its own must take none. It costs a round trip, and no signature.
    fn welcome(self: &Arc<Self>, incoming: Incoming) {
        if matches!(*self.phase.borrow(), Phase::Stopping | Phase::Over) {
            // Its client can ask elsewhere at once.
            add(&self.counters.tcp_accepted, 1);
            self.counters.add_closed(CloseReason::Drain);
            incoming.refuse();
            return;
        }
        if !incoming.remote_address_validated() {
            self.counters.encrypted.retries.fetch_add(1, Ordering::Relaxed);
            // It fails only for a client that has shown its address already.
            let _ = incoming.retry();
            return;
        }
        add(&self.counters.tcp_accepted, 1);
        let (address, now) = (client(incoming.remote_address()).ip(), Instant::now());
        let kept = (self.endpoint.open_connections(), self.open().len());
        if !self.lingering().may_begin(address, kept, self.places(), now) {
            self.counters.add_closed(CloseReason::Refused);
            incoming.refuse();
            return;
        }
        if !self.rates.may_begin(address, &self.limits.borrow(), now) {
            self.counters.add_closed(CloseReason::HandshakeRate);
            incoming.refuse();
            return;
        }
        let place = self.handshakes.begin(address);
        tokio::spawn(Arc::clone(self).attend(incoming, place));
    }

    /// One connection until its handshake is over.
    async fn attend(self: Arc<Self>, incoming: Incoming, place: Handshake) {
        let ip = incoming.local_ip().unwrap_or(self.local.ip());
        let asker = Asker {
            client: client(incoming.remote_address()),
            server: SocketAddr::new(ip, self.local.port()),
            over: ServedOver::Quic,
        };
        match self.handshake(incoming, &place).await {
            // Without a receiver the process is about to end.
            Ok(connection) => drop(self.established.send((connection, asker)).await),
            Err(reason) => self.counters.add_closed(reason),
        }
    }

    /// A handshake has the time of a message (WR42), and gives way where there are too many.
    async fn handshake(
        &self,
        incoming: Incoming,
        place: &Handshake,
    ) -> Result<Connection, CloseReason> {
        let within = self.limits.borrow().deadlines.message;
        let connecting = incoming.accept().map_err(|_| CloseReason::Failed)?;
        // A server has its connection before the end of the handshake. It is looked at, and nothing is done with it.
        let (connection, over) = connecting.into_0rtt().map_err(|_| CloseReason::Failed)?;
        self.open().push(connection.clone());
        self.lingering().began(client(connection.remote_address()).ip());
        let failed = tokio::select! {
            () = place.gave_way() => Some(CloseReason::Evicted),
            over = tokio::time::timeout(within, over) => match (over, connection.close_reason()) {
                (Err(_), _) => Some(CloseReason::SlowMessage),
                (Ok(_), None) => None,
                (Ok(_), Some(error)) => Some(ended_by(&error)),
            },
        };
        let Some(reason) = failed else { return Ok(connection) };
        connection.close(Code::NoError.number(), b"");
        Err(reason)
    }
}

#[cfg(test)]
pub(super) mod tests;
