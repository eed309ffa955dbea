//! Why a connection to a server was not made, or a query on it got no reply: the reason for metrics, the words for people.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use quinn::ConnectionError;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as TlsError};

use crate::forward::sockets::{is_ours, unreachable};

/// Characters of the message of a library that are shown.
const MAX_TEXT: usize = 200;
/// QUIC error code of TLS alert 0 (RFC 9001 §4.8).
const CRYPTO_ERROR: u64 = 0x100;
/// How rustls says that a certificate is for other names.
const OTHER_NAMES: &str = "not valid for";

/// How many reasons there are.
pub(in crate::forward) const REASONS: usize = 15;

/// The values of the label `reason` of `clusterdns_upstream_connection_failures_total`.
pub fn connection_failures() -> [&'static str; REASONS] {
    Reason::ALL.map(Reason::label)
}

/// The reasons, as labels of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::forward) enum Reason {
    /// TCP refused, no route, or no descriptor.
    Connect,
    /// The handshake took too long.
    Timeout,
    /// The certificate is for other names.
    CertificateName,
    /// No trusted authority signed the certificate.
    CertificateAuthority,
    /// The certificate has expired, or is not valid yet.
    CertificateTime,
    /// Something else is wrong with the certificate.
    CertificateOther,
    /// The server does not speak TLS, or not what we do.
    Handshake,
    /// HTTPS: another status than 200.
    Status,
    /// HTTPS: a body of another type.
    ContentType,
    /// A reply of more octets than a DNS message may have.
    TooLarge,
    /// Replies of the server that have not come whole yet take too much memory.
    NoRoom,
    /// QUIC: not one whole message in the stream.
    Malformed,
    /// One stream of a connection was reset.
    Reset,
    /// Every connection to this server is in use.
    Full,
    /// A connection broke while queries waited.
    Broken,
}

impl Reason {
    /// Every reason, in the order of their discriminants.
    pub(in crate::forward) const ALL: [Reason; REASONS] = [
        Reason::Connect,
        Reason::Timeout,
        Reason::CertificateName,
        Reason::CertificateAuthority,
        Reason::CertificateTime,
        Reason::CertificateOther,
        Reason::Handshake,
        Reason::Status,
        Reason::ContentType,
        Reason::TooLarge,
        Reason::NoRoom,
        Reason::Malformed,
        Reason::Reset,
        Reason::Full,
        Reason::Broken,
    ];

    /// Value of the label `reason` of `clusterdns_upstream_connection_failures_total`.
    pub(in crate::forward) const fn label(self) -> &'static str {
        match self {
            Reason::Connect => "connect",
            Reason::Timeout => "timeout",
            Reason::CertificateName => "certificate_name",
            Reason::CertificateAuthority => "certificate_authority",
            Reason::CertificateTime => "certificate_time",
            Reason::CertificateOther => "certificate_other",
            Reason::Handshake => "handshake",
            Reason::Status => "http_status",
            Reason::ContentType => "http_content_type",
            Reason::TooLarge => "too_large",
            Reason::NoRoom => "no_room",
            Reason::Malformed => "malformed",
            Reason::Reset => "stream_reset",
            Reason::Full => "full",
            Reason::Broken => "broken",
        }
    }

    /// What a person should do; none where time may mend it.
    pub(in crate::forward) const fn advice(self) -> Option<&'static str> {
        match self {
            Reason::CertificateName => Some(
                "its certificate is for other names: write one of them as tls.serverName, or correct the address",
            ),
            Reason::CertificateAuthority => Some(
                "its certificate is not signed by a trusted authority: name the ConfigMap with the authority in \
                 tls.caBundle, or have the server send its whole chain",
            ),
            Reason::CertificateTime => Some(
                "its certificate has expired or is not valid yet: renew it at the server, or correct the clock of the node",
            ),
            Reason::CertificateOther => {
                Some("its certificate cannot be used: replace it at the server")
            }
            Reason::Handshake => Some(
                "it does not offer this transport there: correct port or transport, or enable TLS 1.2 or 1.3 at the server",
            ),
            Reason::Status | Reason::ContentType => Some(
                "it does not serve DNS at /dns-query under this name: correct tls.serverName, the address or the server",
            ),
            Reason::Connect
            | Reason::Timeout
            | Reason::TooLarge
            | Reason::NoRoom
            | Reason::Malformed
            | Reason::Reset
            | Reason::Full
            | Reason::Broken => None,
        }
    }
}

impl Reason {
    /// Whether it prevented the connection, so that no query was sent.
    pub(in crate::forward) const fn is_of_handshake(self) -> bool {
        match self {
            Reason::Connect
            | Reason::Timeout
            | Reason::CertificateName
            | Reason::CertificateAuthority
            | Reason::CertificateTime
            | Reason::CertificateOther
            | Reason::Handshake
            | Reason::Full => true,
            Reason::Status
            | Reason::ContentType
            | Reason::TooLarge
            | Reason::NoRoom
            | Reason::Malformed
            | Reason::Reset
            | Reason::Broken => false,
        }
    }
}

/// One failure; cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::forward) struct Failure {
    pub(in crate::forward) reason: Reason,
    /// What the library or the system said.
    pub(in crate::forward) text: Arc<str>,
    /// Why the query was not sent, or not again, where no connection was tried for it.
    pub(in crate::forward) unsent: Option<Unsent>,
}

/// Why a query did not leave, or not again after its connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::forward) enum Unsent {
    /// The system gave us no socket.
    NoSocket,
    /// Every connection has as many queries as it may have.
    NoPlace,
    /// Others took the places on the connection that was made for it.
    Taken,
    /// A connection failed a moment ago, and the next one is made later.
    Pause,
}

impl Failure {
    fn new(reason: Reason, text: &str) -> Failure {
        // A server may have written parts of the text, so control characters are removed before terminals and logs
        // get it.
        let shown = |it: char| if it.is_control() { '?' } else { it };
        let text: String = text.chars().map(shown).take(MAX_TEXT).collect();
        Failure { reason, text: text.into(), unsent: None }
    }

    pub(super) fn connect(error: io::Error) -> Failure {
        let unsent = is_ours(&error).then_some(Unsent::NoSocket);
        Failure { unsent, ..Failure::new(Reason::Connect, &error.to_string()) }
    }

    /// A connection to this server was not made. Without an address of its family on this machine the system says EADDRNOTAVAIL,
    /// as it does for a want of ports: IPv6 may be off, IPv4 is not.
    pub(super) fn connect_to(server: SocketAddr, error: io::Error) -> Failure {
        Failure::connect(if server.is_ipv6() { unreachable(error) } else { error })
    }

    pub(super) fn slow() -> Failure {
        Failure::new(Reason::Timeout, "the handshake did not end in time")
    }

    pub(super) fn broken() -> Failure {
        Failure::new(Reason::Broken, "the connection ended while queries waited")
    }

    pub(super) fn wrong() -> Failure {
        Failure::new(Reason::Malformed, "a reply is not that of its query")
    }

    pub(super) fn full() -> Failure {
        let full = Failure::new(Reason::Full, "every connection to this server is in use");
        Failure { unsent: Some(Unsent::NoPlace), ..full }
    }

    pub(super) fn taken() -> Failure {
        Failure { unsent: Some(Unsent::Taken), ..Failure::full() }
    }

    /// It was overdue, and its stream or its connection was needed for another query.
    pub(super) fn gave_way() -> Failure {
        Failure::new(Reason::Full, "every connection to this server is in use, and it was overdue")
    }

    /// The same failure for a query that was not sent because of it.
    pub(super) fn held_off(self) -> Failure {
        Failure { unsent: self.unsent.or(Some(Unsent::Pause)), ..self }
    }

    /// The server does not speak our protocol.
    pub(super) fn protocol(text: &str) -> Failure {
        Failure::new(Reason::Handshake, text)
    }

    pub(super) fn status(status: u16) -> Failure {
        Failure::new(Reason::Status, &format!("HTTP status {status}"))
    }

    pub(super) fn content_type() -> Failure {
        Failure::new(Reason::ContentType, "the body is not application/dns-message")
    }

    pub(super) fn too_large() -> Failure {
        Failure::new(Reason::TooLarge, "a reply has more than 65,535 octets")
    }

    pub(super) fn no_room() -> Failure {
        Failure::new(Reason::NoRoom, "its unfinished replies take too much memory")
    }

    pub(super) fn malformed() -> Failure {
        Failure::new(Reason::Malformed, "a stream does not hold one message")
    }

    pub(super) fn reset(text: &str) -> Failure {
        Failure::new(Reason::Reset, text)
    }

    /// The query was lost, and the server did not refuse it: another connection or stream may carry it.
    pub(in crate::forward) fn is_loss(&self) -> bool {
        matches!(self.reason, Reason::Broken | Reason::Reset)
    }

    /// A handshake of QUIC failed. Its error has the TLS alert that we sent, and a text.
    pub(super) fn quic(error: &ConnectionError) -> Failure {
        let reason = match error {
            ConnectionError::TransportError(error) => {
                of_alert(u64::from(error.code), &error.reason)
            }
            ConnectionError::TimedOut => Reason::Timeout,
            ConnectionError::VersionMismatch
            | ConnectionError::ConnectionClosed(_)
            | ConnectionError::ApplicationClosed(_)
            | ConnectionError::Reset
            | ConnectionError::LocallyClosed
            | ConnectionError::CidsExhausted => Reason::Handshake,
        };
        Failure::new(reason, &error.to_string())
    }

    /// A handshake over TCP failed: the error is from TLS, or from the connection below it.
    pub(super) fn handshake(error: &io::Error) -> Failure {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        let reason = tls.map_or(Reason::Handshake, of_tls);
        Failure::new(reason, &error.to_string())
    }
}

/// The reason in an alert (RFC 9001 §4.8) that rustls sends for a certificate.
fn of_alert(code: u64, words: &str) -> Reason {
    let alert = code.checked_sub(CRYPTO_ERROR).and_then(|alert| u8::try_from(alert).ok());
    match alert.map(AlertDescription::from) {
        Some(AlertDescription::CertificateExpired) => Reason::CertificateTime,
        Some(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            Reason::CertificateAuthority
        }
        Some(AlertDescription::BadCertificate) if words.contains(OTHER_NAMES) => {
            Reason::CertificateName
        }
        Some(AlertDescription::BadCertificate) => Reason::CertificateOther,
        Some(_) | None => Reason::Handshake,
    }
}

/// The reason in an error of TLS.
fn of_tls(error: &TlsError) -> Reason {
    match error {
        TlsError::InvalidCertificate(error) => of_certificate(error),
        TlsError::NoCertificatesPresented => Reason::CertificateOther,
        TlsError::AlertReceived(AlertDescription::UnrecognisedName) => Reason::CertificateName,
        _ => Reason::Handshake,
    }
}

fn of_certificate(error: &CertificateError) -> Reason {
    match error {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Reason::CertificateName
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            Reason::CertificateAuthority
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => Reason::CertificateTime,
        _ => Reason::CertificateOther,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fw10_a_connection_for_which_there_is_no_descriptor_is_our_failure() {
        let failure = |code| Failure::connect(io::Error::from_raw_os_error(code));
        assert_eq!(failure(libc::EMFILE).unsent, Some(Unsent::NoSocket));
        assert_eq!(failure(libc::ECONNREFUSED).unsent, None);
    }

    #[test]
    fn fw21_where_ipv6_is_off_a_server_with_such_an_address_cannot_be_reached() {
        let unsent = |server: &str, code| {
            let error = io::Error::from_raw_os_error(code);
            Failure::connect_to(server.parse().unwrap(), error).unsent
        };
        assert_eq!(unsent("[2001:db8::1]:53", libc::EADDRNOTAVAIL), None);
        assert_eq!(unsent("192.0.2.1:53", libc::EADDRNOTAVAIL), Some(Unsent::NoSocket));
        assert_eq!(unsent("[2001:db8::1]:53", libc::EMFILE), Some(Unsent::NoSocket));
    }

    #[test]
    fn f22_what_a_server_wrote_is_shown_without_control_characters() {
        let failure = Failure::reset("bye\u{1b}[2J\r\nwarning: \u{9b}m");
        assert_eq!(&*failure.text, "bye?[2J??warning: ?m");
    }
}
