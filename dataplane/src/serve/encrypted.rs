//! What is served besides UDP and TCP, and what is counted of HTTPS and QUIC beside the queries in them.

use std::sync::atomic::{AtomicU64, Ordering};

/// What may be served besides UDP and TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encrypted {
    /// DNS over TLS (RFC 7858).
    Tls,
    /// DNS over HTTPS (RFC 8484).
    Https {
        /// Path of DNS over HTTPS, `/dns-query` by default.
        path: String,
    },
    /// DNS over QUIC (RFC 9250).
    Quic,
}

/// The statuses of responses to HTTPS requests (RFC 9110 §15), and their metrics label.
const HTTP_STATUSES: [(u16, &str); 11] = [
    (200, "200"),
    (400, "400"),
    (404, "404"),
    (405, "405"),
    (408, "408"),
    (413, "413"),
    (414, "414"),
    (415, "415"),
    (431, "431"),
    (500, "500"),
    (503, "503"),
];

/// The codes that a stream or a connection of QUIC ends with (RFC 9250 §4.3), and their metrics label. 0 is a reply.
const QUIC_CODES: [(u32, &str); 4] = [(0, "0"), (1, "1"), (2, "2"), (4, "4")];

/// The error codes with which a server resets a stream of HTTP/2 that it refuses (RFC 9113 §7), and their metrics label.
/// Others, such as CANCEL, end a stream that nothing more is expected of.
const HTTP2_CODES: [(u32, &str); 6] = [
    (1, "protocol_error"),
    (2, "internal_error"),
    (3, "flow_control_error"),
    (5, "stream_closed"),
    (7, "refused_stream"),
    (11, "enhance_your_calm"),
];

/// What became of requests over HTTPS and QUIC.
#[derive(Debug, Default)]
pub struct EncryptedCounters {
    https: [AtomicU64; HTTP_STATUSES.len()],
    http2_resets: [AtomicU64; HTTP2_CODES.len()],
    quic: [AtomicU64; QUIC_CODES.len()],
    /// Clients of QUIC that had to show first that they have their address (RFC 9000 §8.1.2).
    pub retries: AtomicU64,
}

impl EncryptedCounters {
    /// Responses to HTTPS requests, by status.
    pub fn https_responses(&self) -> [(&'static str, u64); HTTP_STATUSES.len()] {
        let count = |place: usize| self.https[place].load(Ordering::Relaxed);
        std::array::from_fn(|place| (HTTP_STATUSES[place].1, count(place)))
    }

    /// Streams of QUIC that were answered, and ends with an error, by code.
    pub fn quic_responses(&self) -> [(&'static str, u64); QUIC_CODES.len()] {
        let count = |place: usize| self.quic[place].load(Ordering::Relaxed);
        std::array::from_fn(|place| (QUIC_CODES[place].1, count(place)))
    }

    /// Streams of HTTP/2 that were refused with a reset, by error code.
    pub fn http2_resets(&self) -> [(&'static str, u64); HTTP2_CODES.len()] {
        let count = |place: usize| self.http2_resets[place].load(Ordering::Relaxed);
        std::array::from_fn(|place| (HTTP2_CODES[place].1, count(place)))
    }

    pub(super) fn add_http2_reset(&self, code: u32) {
        let place = HTTP2_CODES.iter().position(|(known, _)| *known == code);
        if let Some(place) = place {
            self.http2_resets[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn add_https(&self, status: u16) {
        let place = HTTP_STATUSES.iter().position(|(known, _)| *known == status);
        if let Some(place) = place {
            self.https[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn add_quic(&self, code: u32) {
        let place = QUIC_CODES.iter().position(|(known, _)| *known == code);
        if let Some(place) = place {
            self.quic[place].fetch_add(1, Ordering::Relaxed);
        }
    }
}
