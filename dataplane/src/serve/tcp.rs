//! The TCP side: one thread that accepts, and serves every connection as a small task.
//!
//! One thread is enough, as own answers cost a microsecond, and lookups and handshakes run elsewhere, and it is what
//! lets connections share their read and write buffers and their limits without a lock.

mod accepting;
mod table;
mod unread;
mod untaken;
mod client_turns;
mod reads;
mod connection;
mod frame;
mod late;
mod deadline;
mod handshakes;
mod tls;
mod requests;
mod https;
mod listeners;
mod quic;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use dataplane_core::{Query, Transport, Waiting, Written, pad, wants_padding};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use super::counters::{CloseReason, ServeCounters, add};
use super::responder::{Asked, Asker, Responder, Room, Seeds, ServeAction, client};
use super::traffic::ServedOver;
use super::{Limits, Phase, STREAM_COUNTERS};
use crate::forward::Held;
use accepting::accept;
use connection::Connection;
use handshakes::{Handshakes, Rates};
pub(super) use https::HttpPath;
use late::{Late, Later, Lookup, Shown};
pub(super) use listeners::{Listeners, Socket};
use table::{ConnectionTable, Permit};
use tls::Secured;

/// The largest message, and so the largest reply.
const MESSAGE_OCTETS: usize = 65_535;

/// Of a connection that is gone.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

type JoinTask = tokio::task::JoinHandle<()>;

/// The [`ServeAction`] of one message, as a connection carries it out.
enum TcpAction {
    /// The reply is in the buffer.
    Reply(Written),
    Close,
    /// A panic, which is counted; the connection is closed where no error can be sent.
    Failed,
    Late(Late),
    /// For [`Room::Later`].
    Later(Later),
}

/// Decides one message of a client, given whether there is room to wait for an upstream.
type Answer = Box<dyn Fn(&[u8], Asker, Room, &mut [u8]) -> TcpAction>;

struct TcpServer {
    answer: Answer,
    table: Rc<ConnectionTable>,
    /// How much each client gets in one turn.
    turns: Rc<client_turns::Turns>,
    /// How much is read of HTTP/2 in one.
    http2_reads: client_turns::AllReads,
    counters: Arc<ServeCounters>,
    /// Where late replies are waited for.
    runtime: Handle,
    /// Used within one step of one connection at a time, so that none needs its own.
    scratch: RefCell<Box<[u8]>>,
    seeds: RefCell<Seeds>,
    draining: Cell<bool>,
    /// Listeners close.
    stopping: watch::Sender<bool>,
    /// When each connection last had a chance to read.
    looked: Cell<Option<tokio::time::Instant>>,
    /// The thread that computes handshakes.
    handshake_thread: Handle,
    /// Those of TLS in progress; each listener for QUIC has its own.
    handshakes: Handshakes,
    /// How many each client may begin, of TLS and QUIC together.
    rates: Arc<Rates>,
    /// Endpoints of the QUIC listeners.
    endpoints: RefCell<Vec<quinn::Endpoint>>,
}

/// Length of the turns of this thread on its processor, the shortest that Linux has: a query over TCP does not wait until the
/// thread of UDP has had its turn, which is longer (T10).
const TURN: Duration = Duration::from_micros(100);

/// Starts the thread that serves these listeners.
pub(super) fn start(
    listeners: Vec<std::net::TcpListener>,
    responder: Arc<Responder>,
    limits: watch::Receiver<Limits>,
    phase: watch::Receiver<Phase>,
    more: mpsc::UnboundedReceiver<Listeners>,
) -> io::Result<JoinHandle<()>> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_io_events_per_tick(unread::SHOWN).build()?;
    let listeners = {
        let _inside = runtime.enter();
        listeners.into_iter().map(TcpListener::from_std).collect::<io::Result<Vec<_>>>()?
    };
    let handshaking = handshakes::thread()?;
    std::thread::Builder::new().name("tcp".to_owned()).spawn(move || {
        super::ask_for_turns(TURN);
        let (counters, handle) = (Arc::clone(&responder.counters), responder.runtime.clone());
        let (limits_now, there) = (limits.borrow().clone(), handshaking.handle().clone());
        let server = TcpServer::new(answer(responder), limits_now, counters, handle, there);
        LocalSet::new().block_on(&runtime, serve(Rc::new(server), listeners, limits, phase, more));
    })
}

/// The real [`Answer`]: the core's decision, and lookups by the forwarder.
fn answer(responder: Arc<Responder>) -> Answer {
    let seeds = RefCell::new(Seeds::new());
    let first = responder.state.counters.len() - STREAM_COUNTERS;
    Box::new(move |packet, asker, room, buffer| {
        let (read, over) = (Instant::now(), asker.over);
        // Counters of UDP are not among them.
        let own = first + over as usize - 1;
        responder.counters.traffic.stream(over).query(packet.len());
        let published = responder.state.published.load();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let query = Query {
            packet,
            client: asker.client,
            transport: Transport::Tcp,
            now_s: now.unwrap_or_default().as_secs(),
            seed: seeds.borrow_mut().next(),
        };
        let began = responder.state.taps.wanted().begin(Duration::ZERO);
        let asked = began.as_ref();
        let asked = asked.map(|began| Asked { began, asker, query: packet, is_cut: false });
        // WR14: padding hides the length of a reply, which encryption does not.
        let is_padded = over.is_encrypted() && wants_padding(packet);
        let lookup = |waiting: Box<Waiting>, held: Option<Held>| Lookup {
            responder: Arc::clone(&responder),
            upstreams: Arc::clone(&published.upstreams),
            waiting,
            held,
            client: asker.client.ip(),
            shown: Shown { asked: asked.map(|it| it.keep()), over, place: own, is_padded, read },
        };
        // Nothing else counts there meanwhile.
        let cut_before = responder.state.counters[own].capped_rrsets();
        // A panic ends only the connection of its message, and is counted.
        let decided = catch_unwind(AssertUnwindSafe(|| {
            responder.decide((&published, None), own, &query, room, buffer)
        }));
        match decided {
            Ok(ServeAction::Reply(octets, answered, refresh)) => {
                if let Some(refresh) = refresh {
                    responder.refresh(&published.upstreams, &refresh);
                }
                let octets = if is_padded { pad(buffer, octets) } else { octets };
                let traffic = responder.counters.traffic.stream(over);
                traffic.reply(answered, &buffer[..octets]);
                traffic.took(answered.origin, read.elapsed());
                if let Some(asked) = &asked {
                    responder.show(own, asked, answered, &buffer[..octets]);
                }
                let is_cut = responder.state.counters[own].capped_rrsets() > cut_before;
                TcpAction::Reply(Written { octets, is_cut })
            }
            Ok(ServeAction::Drop) => TcpAction::Close,
            Err(_) => {
                add(&responder.counters.panics, 1);
                TcpAction::Failed
            }
            Ok(ServeAction::Forward(waiting, held, slot)) => {
                TcpAction::Late(lookup(waiting, held).begin(slot))
            }
            Ok(ServeAction::Later(waiting, held)) => {
                TcpAction::Later(lookup(waiting, held).later())
            }
        }
    })
}

impl TcpServer {
    fn new(
        answer: Answer,
        limits: Limits,
        counters: Arc<ServeCounters>,
        runtime: Handle,
        handshake_thread: Handle,
    ) -> Self {
        Self {
            answer,
            table: Rc::new(ConnectionTable::new(limits, Arc::clone(&counters))),
            turns: Rc::default(),
            http2_reads: client_turns::AllReads::default(),
            counters,
            runtime,
            scratch: RefCell::new(vec![0; MESSAGE_OCTETS].into()),
            seeds: RefCell::new(Seeds::new()),
            draining: Cell::new(false),
            stopping: watch::Sender::new(false),
            looked: Cell::new(None),
            handshake_thread,
            handshakes: Handshakes::default(),
            rates: Arc::new(Rates::new(tokio::time::Instant::now())),
            endpoints: RefCell::default(),
        }
    }

    /// Gives a new connection its place, or closes it if there is none.
    async fn welcome(
        self: &Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        secured: Option<&Secured>,
    ) {
        add(&self.counters.tcp_accepted, 1);
        let address = client(peer).ip();
        if secured.is_some() && !self.may_handshake(address) {
            self.counters.add_closed(CloseReason::HandshakeRate);
            return;
        }
        let (session, over) = match secured {
            None => (None, ServedOver::Tcp),
            Some(Secured { http_path: None, .. }) => (Some(tls::SESSION_OCTETS), ServedOver::Tls),
            Some(Secured { http_path: Some(_), .. }) => {
                (Some(https::SESSION_OCTETS), ServedOver::Https)
            }
        };
        let Some(permit) = self.admit(address, session).await else {
            self.counters.add_closed(CloseReason::Refused);
            return;
        };
        // Replies are whole messages: nothing is gained by holding one back.
        let _ = stream.set_nodelay(true);
        // It fails only for a connection that is gone.
        let server = stream.local_addr().unwrap_or(UNKNOWN);
        let asker = Asker { client: client(peer), server, over };
        let secured = secured.cloned();
        tokio::task::spawn_local(attend(Rc::clone(self), stream, asker, permit, secured));
    }

    fn may_handshake(&self, client: IpAddr) -> bool {
        self.rates.may_begin(client, &self.table.limits(), tokio::time::Instant::now())
    }

    async fn set_limits(&self, limits: Limits) {
        self.table.set_limits(limits);
        self.look_at_sockets().await;
        while self.table.shrink() {
            tokio::task::yield_now().await;
        }
    }

    fn drain(&self) {
        self.draining.set(true);
        self.table.close_quiet(CloseReason::Drain);
    }
}

/// One connection from its first octet to its end.
async fn attend(
    server: Rc<TcpServer>,
    stream: TcpStream,
    asker: Asker,
    permit: Permit,
    secured: Option<Secured>,
) {
    let counters = Arc::clone(&server.counters);
    let reason = match secured {
        None => {
            let mut connection = Connection::new(server, stream, asker, permit);
            let reason = connection.run().await;
            connection.end(reason).await;
            reason
        }
        // Each on the heap: else a connection without TLS has the room of a session with HTTPS.
        Some(secured) => Box::pin(tls::attend(server, stream, asker, permit, secured)).await,
    };
    counters.add_closed(reason);
}

async fn serve(
    server: Rc<TcpServer>,
    listeners: Vec<TcpListener>,
    mut limits: watch::Receiver<Limits>,
    mut phase: watch::Receiver<Phase>,
    mut more: mpsc::UnboundedReceiver<Listeners>,
) {
    let mut accepting: Vec<_> = listeners
        .into_iter()
        .map(|listener| tokio::task::spawn_local(accept(Rc::clone(&server), listener, None)))
        .collect();
    loop {
        let changed = tokio::select! {
            changed = phase.changed() => changed,
            Some(listeners) = more.recv() => {
                accepting.extend(listeners.open(&server, &limits, &phase));
                continue;
            }
            Ok(()) = limits.changed() => {
                let limits = limits.borrow_and_update().clone();
                server.set_limits(limits).await;
                continue;
            }
        };
        // Without a sender there is no other way left to stop this thread.
        let now = match changed {
            Ok(()) => *phase.borrow_and_update(),
            Err(_) => Phase::Over,
        };
        match now {
            // Connections of QUIC see this themselves.
            Phase::Serving | Phase::Leaving => {}
            Phase::Draining => server.drain(),
            Phase::Stopping => break,
            Phase::Over => return,
        }
    }
    // Who asks for more is not kept waiting.
    drop(more);
    server.stopping.send_replace(true);
    server.drain();
    let done = async {
        futures::future::join_all(accepting).await;
        // What was accepted meanwhile.
        server.drain();
        server.table.empty().await;
    };
    tokio::select! {
        () = done => {}
        _ = phase.wait_for(|phase| *phase == Phase::Over) => return,
    }
    // What closes connections of QUIC is still to be sent.
    let endpoints = server.endpoints.take();
    let closed = futures::future::join_all(endpoints.iter().map(quinn::Endpoint::wait_idle));
    let _ = tokio::time::timeout(deadline::CLOSE_WITHIN, closed).await;
}

#[cfg(test)]
mod tests;
