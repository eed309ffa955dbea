//! What dnstap shows of one query to an upstream: the query as it went out, and the reply to it, if one came.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use crds::config;
use dataplane_core::Reason;

use super::plan::Transport;
use super::server::Server;
use crate::origin::{Answered, Origin, ServedOver};
use crate::taps::{Began, Exchange, Side};

/// The address that a query leaves from is not known here.
const UNKNOWN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// One query that was sent. dnstap shows it when this is dropped, also if the attempt took too long.
#[derive(Debug)]
pub(super) struct Shown {
    server: Arc<Server>,
    /// `None` while dnstap is off.
    began: Option<Began>,
    over: ServedOver,
    /// As it was sent last: its id is that of the reply.
    query: Mutex<Vec<u8>>,
    reply: Vec<u8>,
}

impl Shown {
    pub(super) fn new(server: &Arc<Server>, transport: Transport) -> Shown {
        let over = match (transport, server.identity.transport) {
            (Transport::Udp, _) => ServedOver::Udp,
            (_, config::Transport::Udp | config::Transport::Tcp) => ServedOver::Tcp,
            (_, config::Transport::Tls) => ServedOver::Tls,
            (_, config::Transport::Https) => ServedOver::Https,
            (_, config::Transport::Quic) => ServedOver::Quic,
        };
        let began = server.common.taps.wanted().begin_upstream();
        let server = Arc::clone(server);
        Shown { server, began, over, query: Mutex::default(), reply: Vec::new() }
    }

    /// Keeps the query that is sent, for dnstap.
    pub(super) fn sent(&self, query: Vec<u8>) -> Vec<u8> {
        if self.began.is_some() {
            // On another connection it has another id.
            *self.query.lock().unwrap_or_else(PoisonError::into_inner) = query.clone();
        }
        query
    }

    /// Keeps the reply that came, for dnstap.
    pub(super) fn came(&mut self, reply: &[u8]) {
        if self.began.is_some() {
            self.reply = reply.to_vec();
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let query = self.query.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (Some(began), false) = (&self.began, query.is_empty()) else { return };
        let origin = if self.reply.is_empty() { Origin::Failed } else { Origin::Upstream };
        let exchange = Exchange {
            side: Side::Forwarder,
            client: UNKNOWN,
            server: self.server.address(),
            over: self.over,
            answered: Answered { reason: Reason::Forward, origin },
            query,
            reply: &self.reply,
            ..Exchange::default()
        };
        // Any number spreads the threads of the runtime.
        self.server.common.taps.show(self.server.id as usize, began, &exchange);
    }
}
