//! The listening side: UDP and TCP on every address, answering alike (WR40).
//!
//! UDP has one blocking thread per worker and address, each with its own socket, buffers and counters, because
//! waking up and copying is all that an answer costs. TCP has one thread for all connections: they share its
//! buffers, so that an idle one costs next to nothing. A query over UDP stays on its thread, also when an upstream answers it: other
//! threads get what is not a normal miss (docs/flows.md).

mod bind;
mod udp;
mod tcp;
mod responder;
mod encrypted;
mod certificate;
mod counters;
mod traffic;
mod phase;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use crds::defaults;
use dataplane_core::{Reason, WorkerCounters};
use dataplane_udp::Socket;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::forward::Forwarder;
use crate::state::State;
use arc_swap::ArcSwap;
use certificate::{Certificate, Use};
use phase::Phase;
use responder::Responder;

pub use bind::Listen;
pub use certificate::CertificateState;
pub use counters::{CloseReason, ClosedListener, ServeCounters};
pub use encrypted::{Encrypted, EncryptedCounters};
pub use traffic::{ServedOver, Totals, Traffic, TrafficTables};

/// Handshakes of one client: as many at once as it may have connections, then 64 each second. A signature costs up to a
/// millisecond, so one client takes a sixteenth of the thread at most.
const HANDSHAKE_BURST: u32 = 256;
const HANDSHAKE_EVERY: Duration = Duration::from_micros(1_000_000 / 64);

/// Limits of the listening side. New values apply to open connections too. The share of a client and the deadlines
/// are an exception: they apply to new connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Inbound TCP connections at a time (`tcpConnections`, WR44).
    pub tcp_connections: usize,
    /// The same, of one client address.
    pub tcp_connections_per_client: usize,
    /// Octets held for all TCP connections together, read and not yet answered or answered and not yet written
    /// (`limits.tcpBuffers`, WR44).
    pub tcp_buffer_bytes: usize,
    /// Handshakes of TLS and QUIC that one client address may begin at once. Not configurable; tests use shorter times.
    pub handshake_burst: u32,
    /// Until it may begin one more.
    pub handshake_every: Duration,
    /// Deadlines; not configurable, but tests use shorter ones.
    pub deadlines: Deadlines,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tcp_connections: defaults::TCP_CONNECTIONS as usize,
            tcp_connections_per_client: defaults::TCP_CONNECTIONS_PER_CLIENT as usize,
            tcp_buffer_bytes: defaults::TCP_BUFFER_BYTES as usize,
            handshake_burst: HANDSHAKE_BURST,
            handshake_every: HANDSHAKE_EVERY,
            deadlines: Deadlines::default(),
        }
    }
}

/// The times of WR42, WR45 and WR46.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// A TCP connection with nothing in progress.
    pub idle: Duration,
    /// From the first octet of a length prefix to the end of its message.
    pub message: Duration,
    /// Longest time in which a write sends nothing.
    pub write: Duration,
    /// The mean age at which a connection with nothing in progress is closed; each has its own, 20 % around it.
    pub age: Duration,
    /// Longest wait of a datagram in the kernel: after it, its client has given up.
    pub stale: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(10),
            message: Duration::from_secs(3),
            write: Duration::from_secs(5),
            age: Duration::from_secs(300),
            stale: Duration::from_secs(4),
        }
    }
}

/// Counters for the threads that serve this many listening addresses with this many workers each, as
/// [`State::counters`] must hold them: only their own thread may write to each.
pub fn worker_counters(addresses: usize, workers: usize) -> Vec<Arc<WorkerCounters>> {
    (0..addresses * workers + STREAM_COUNTERS).map(|_| Arc::default()).collect()
}

/// The last counters are those of streams: TCP, TLS, HTTPS, QUIC.
const STREAM_COUNTERS: usize = ServedOver::ALL.len() - 1;

/// The counters of this transport, from all that [`worker_counters`] made.
pub fn counters_over(all: &[Arc<WorkerCounters>], over: ServedOver) -> &[Arc<WorkerCounters>] {
    let (udp, streams) = all.split_at(all.len().saturating_sub(STREAM_COUNTERS));
    match over {
        ServedOver::Udp => udp,
        ServedOver::Tcp | ServedOver::Tls | ServedOver::Https | ServedOver::Quic => {
            let place = over as usize - 1;
            streams.get(place..=place).unwrap_or_default()
        }
    }
}

/// Tests whether these addresses can be bound, to fail early; keeps no socket open.
///
/// # Errors
/// One cannot: the message says which, why, and what to do.
pub fn check(listen: &Listen) -> anyhow::Result<()> {
    bind::check(listen)
}

/// What may change of a listener that is open.
#[derive(Debug)]
struct Opened {
    purpose: Use,
    certificate: Arc<Certificate>,
    http_path: Option<tcp::HttpPath>,
}

/// Open listeners and the threads behind them. Dropped without [`Serving::stop`], they end at once.
#[derive(Debug)]
pub struct Serving {
    addresses: Vec<SocketAddr>,
    shares_ports: bool,
    responder: Arc<Responder>,
    counters: Arc<ServeCounters>,
    limits: watch::Sender<Limits>,
    phase: watch::Sender<Phase>,
    more: mpsc::UnboundedSender<tcp::Listeners>,
    encrypted: Mutex<Vec<Opened>>,
    udp_stop: Arc<AtomicBool>,
    sockets: Vec<Arc<Socket>>,
    threads: Vec<JoinHandle<()>>,
}

impl Serving {
    /// Binds every address for UDP and TCP, then serves. Port 0 takes one port for both. An IPv6 wildcard or
    /// loopback address on a machine without IPv6 (or the reverse) is left out if another address could be bound.
    ///
    /// `state.counters` comes from [`worker_counters`]; lookups by `forwarder` run on `runtime`.
    ///
    /// # Errors
    /// An address cannot be bound: the message says which, why, and what to do.
    pub fn start(
        listen: &Listen,
        workers: usize,
        state: Arc<State>,
        forwarder: Arc<Forwarder>,
        limits: Limits,
        runtime: Handle,
    ) -> anyhow::Result<Serving> {
        anyhow::ensure!(workers > 0, "at least one worker must serve");
        anyhow::ensure!(
            state.counters.len() >= listen.addresses.len() * workers + STREAM_COUNTERS,
            "{} counters for {} threads: see serve::worker_counters",
            state.counters.len(),
            listen.addresses.len() * workers + STREAM_COUNTERS,
        );
        if let Err(error) = dataplane_udp::raise_descriptor_limit() {
            tracing::warn!(%error, "the limit on open descriptors stays as it is");
        }
        let bound = bind::all(listen, workers)?;
        let addresses: Vec<_> = bound.iter().map(|bound| bound.address).collect();
        // Before the first query: a configuration remembers from its first lookup on which servers it may ask (A34).
        forwarder.listening_on(&addresses);
        let sockets: Vec<_> = bound.iter().flat_map(|bound| bound.udp.clone()).collect();
        let counters = Arc::new(ServeCounters::new(sockets.clone()));
        forwarder.probe(Arc::clone(&state), &runtime);
        forwarder.tidy(Arc::clone(&state), &runtime);
        let responder = Arc::new(Responder::new(state, forwarder, runtime, Arc::clone(&counters)));
        let (limits, limits_seen) = watch::channel(limits);
        let (phase, phase_seen) = watch::channel(Phase::Serving);
        let (more, more_seen) = mpsc::unbounded_channel();
        let mut serving = Serving {
            addresses,
            shares_ports: listen.shares_ports,
            responder,
            counters,
            limits,
            phase,
            more,
            encrypted: Mutex::default(),
            udp_stop: Arc::default(),
            sockets,
            threads: Vec::new(),
        };
        let listeners = bound.into_iter().map(|bound| bound.tcp).collect();
        serving.spawn(listeners, limits_seen, phase_seen, more_seen)?;
        Ok(serving)
    }

    fn spawn(
        &mut self,
        listeners: Vec<std::net::TcpListener>,
        limits: watch::Receiver<Limits>,
        phase: watch::Receiver<Phase>,
        more: mpsc::UnboundedReceiver<tcp::Listeners>,
    ) -> anyhow::Result<()> {
        let stale = limits.borrow().deadlines.stale;
        for (number, socket) in self.sockets.iter().enumerate() {
            let worker = udp::Worker::new(
                Arc::clone(socket),
                Arc::clone(&self.responder),
                number,
                stale,
                Arc::clone(&self.udp_stop),
            );
            let thread = std::thread::Builder::new()
                .name(format!("udp-{number}"))
                .spawn(move || worker.run())
                .context("cannot start a thread for UDP")?;
            self.threads.push(thread);
        }
        let thread = tcp::start(listeners, Arc::clone(&self.responder), limits, phase, more)
            .context("cannot start a thread for TCP")?;
        self.threads.push(thread);
        Ok(())
    }

    /// Where we listen, UDP and TCP alike, with the ports that were chosen for port 0.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves DNS over this as well, at this port of every address, with the certificate of this folder. Port 0 takes a
    /// port for each. Returns where. Waits for the thread that serves.
    ///
    /// # Errors
    /// An address cannot be bound or served; none is served then. A certificate that is missing or bad is no error:
    /// handshakes are refused until there is a good one.
    pub fn serve_encrypted(
        &self,
        over: &Encrypted,
        port: u16,
        certificate: PathBuf,
    ) -> anyhow::Result<Vec<SocketAddr>> {
        let addresses = bind::at_port(&self.addresses, port);
        let listen = Listen { addresses, shares_ports: self.shares_ports };
        let (purpose, http_path) = match over {
            Encrypted::Tls => (Use::Tls, None),
            Encrypted::Https { path } => {
                (Use::Https, Some(Arc::new(ArcSwap::from_pointee(path.clone()))))
            }
            Encrypted::Quic => (Use::Quic, None),
        };
        let mut addresses = Vec::new();
        let mut sockets = Vec::new();
        let mut counted = Vec::new();
        if purpose == Use::Quic {
            // Never shared: the kernel would give datagrams of a connection to the process that does not know it.
            for socket in bind::datagrams(&listen.addresses)? {
                addresses.push(socket.local_addr().context("a listener has no address")?);
                counted.push(socket.try_clone().context("no descriptor is free")?);
                sockets.push(tcp::Socket::Quic(socket));
            }
        } else {
            for tcp in bind::streams(&listen)? {
                addresses.push(tcp.local_addr().context("a listener has no address")?);
                sockets.push(tcp::Socket::Tls(tcp));
            }
        }
        let certificate = Arc::new(Certificate::new(certificate, purpose));
        let (outcome, opened) = std::sync::mpsc::sync_channel(1);
        let listeners = tcp::Listeners {
            sockets,
            certificate: Arc::clone(&certificate),
            http_path: http_path.clone(),
            outcome,
        };
        self.more.send(listeners).context("the TCP thread has ended")?;
        let opened = opened.recv().context("the TCP thread has ended")?;
        opened.with_context(|| format!("the system does not let us use {addresses:?}"))?;
        self.counters.add_quic_sockets(counted);
        self.counters.add_certificate(Arc::clone(&certificate));
        let open = Opened { purpose, certificate, http_path };
        self.encrypted.lock().unwrap_or_else(PoisonError::into_inner).push(open);
        Ok(addresses)
    }

    /// From here on listeners for this that are open use the certificate of this folder, and HTTPS this path, on
    /// connections that are open too. A folder that is not there changes nothing until it is.
    pub fn change_encrypted(&self, over: &Encrypted, certificate: PathBuf) {
        let (purpose, path) = match over {
            Encrypted::Tls => (Use::Tls, None),
            Encrypted::Https { path } => (Use::Https, Some(path)),
            Encrypted::Quic => (Use::Quic, None),
        };
        let open = self.encrypted.lock().unwrap_or_else(PoisonError::into_inner);
        for open in open.iter().filter(|open| open.purpose == purpose) {
            open.certificate.set_folder(certificate.clone());
            if let (Some(in_use), Some(path)) = (&open.http_path, path) {
                in_use.store(Arc::new(path.clone()));
            }
        }
    }

    /// What the sockets have seen, for metrics.
    pub fn counters(&self) -> &Arc<ServeCounters> {
        &self.counters
    }

    /// Queries that came so far, by UDP and TCP; what is no query (N1) does not keep a drain waiting.
    pub fn queries_seen(&self) -> u64 {
        let none = |reason: &Reason| {
            matches!(reason, Reason::Short | Reason::IsResponse | Reason::SourcePortZero)
        };
        let reasons = || Reason::ALL.iter().filter(|reason| !none(reason));
        let workers = self.responder.state.counters.iter();
        workers.flat_map(|worker| reasons().map(|reason| worker.count(*reason))).sum()
    }

    /// Takes other limits. Past a lower one the longest idle connections are closed, and others as they fall idle.
    pub fn set_limits(&self, limits: Limits) {
        self.limits.send_replace(limits);
    }

    /// The limits in use.
    pub fn limits(&self) -> Limits {
        self.limits.borrow().clone()
    }

    /// From here on TCP connections are closed as soon as nothing is in progress on them (E45). New ones are
    /// still taken and answered.
    pub fn close_idle_tcp(&self) {
        self.phase.send_if_modified(|phase| phase.advance(Phase::Draining));
    }

    /// The same for connections of QUIC that are open now (E45).
    pub fn close_idle_quic(&self) {
        self.phase.send_if_modified(|phase| phase.advance(Phase::Leaving));
    }

    /// Takes nothing new, answers what is queued and in progress for at most `grace`, and ends.
    pub async fn stop(mut self, grace: Duration) {
        let threads = std::mem::take(&mut self.threads);
        self.udp_stop.store(true, Ordering::Release);
        for socket in &self.sockets {
            socket.wake();
        }
        self.phase.send_replace(Phase::Stopping);
        let joined = tokio::task::spawn_blocking(move || {
            for thread in threads {
                // A thread that panicked has said so itself.
                let _ = thread.join();
            }
        });
        let finished = tokio::time::timeout(grace, async {
            // The threads end first, because they start lookups.
            let _ = joined.await;
            self.responder.finish_late().await;
        });
        if finished.await.is_err() {
            tracing::info!("queries in progress were given up at the end of the drain");
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.udp_stop.store(true, Ordering::Release);
        for socket in &self.sockets {
            socket.wake();
        }
        self.phase.send_replace(Phase::Over);
    }
}

/// Asks for turns of this length on the processor, for this thread. Without them it waits longer for others, and all works.
fn ask_for_turns(length: Duration) {
    if let Err(error) = dataplane_udp::ask_for_turns(length) {
        tracing::debug!(%error, "this thread has the usual turns on its processor");
    }
}
