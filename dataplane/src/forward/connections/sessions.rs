//! The TLS sessions of one server: kept in memory by rustls, and counted here, as QUIC does not say whether one was resumed.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio_rustls::rustls::NamedGroup;
use tokio_rustls::rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use tokio_rustls::rustls::pki_types::ServerName;

/// Sessions that are kept: TLS 1.3 uses each once.
const MAX_SESSIONS: usize = 8;

/// The store of one server.
#[derive(Debug)]
pub(super) struct Sessions {
    kept: ClientSessionMemoryCache,
    misses: AtomicU64,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions { kept: ClientSessionMemoryCache::new(MAX_SESSIONS), misses: AtomicU64::new(0) }
    }
}

impl Sessions {
    /// How often a handshake of TLS 1.3 found no session to resume.
    pub(super) fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.kept.set_kx_hint(name, group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept.kx_hint(name)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.kept.set_tls12_session(name, value);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.kept.tls12_session(name)
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.kept.remove_tls12_session(name);
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.kept.insert_tls13_ticket(name, value);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let ticket = self.kept.take_tls13_ticket(name);
        self.misses.fetch_add(u64::from(ticket.is_none()), Ordering::Relaxed);
        ticket
    }
}
