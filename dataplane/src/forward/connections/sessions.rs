//! Sessions with one server, by which handshakes resume. No certificate comes in these, and each may bring the session of
//! the next: without an end, a certificate that has expired since would never be seen.

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::NamedGroup;
use tokio_rustls::rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use tokio_rustls::rustls::pki_types::ServerName;

use super::certificates::Certificates;

/// Sessions that are kept: TLS 1.3 uses each once.
const MAX_SESSIONS: usize = 8;
/// Time from a handshake with a good certificate until no session is resumed: the next handshake is a full one.
pub(super) const CHECKED_WITHIN: Duration = Duration::from_secs(3600);

/// The sessions of one server.
#[derive(Debug)]
pub(super) struct Sessions {
    kept: ClientSessionMemoryCache,
    certificates: Arc<Certificates>,
}

impl Sessions {
    /// For the server whose certificates these are.
    pub(super) fn of(certificates: &Arc<Certificates>) -> Sessions {
        let kept = ClientSessionMemoryCache::new(MAX_SESSIONS);
        Sessions { kept, certificates: Arc::clone(certificates) }
    }

    /// Whether a session may be resumed. If not, all are forgotten: the next certificate says nothing about who gave them.
    fn may_resume(&self, server: &ServerName<'static>) -> bool {
        let may = self.certificates.checked_for() < CHECKED_WITHIN;
        if !may {
            self.kept.remove_tls12_session(server);
            while self.kept.take_tls13_ticket(server).is_some() {}
        }
        may
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.kept.set_kx_hint(server, group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept.kx_hint(server)
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.kept.set_tls12_session(server, session);
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        if !self.may_resume(&server.to_owned()) {
            return None;
        }
        self.kept.tls12_session(server)
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.kept.remove_tls12_session(server);
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.kept.insert_tls13_ticket(server, ticket);
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        if !self.may_resume(server) {
            return None;
        }
        self.kept.take_tls13_ticket(server)
    }
}
