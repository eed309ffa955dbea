//! What carried a query and where its answer came from: one value for each reply, for metrics and for the query log.

use dataplane_core::Reason;

/// Where a reply came from; also the label in metrics and in the query log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Origin {
    /// Our own records, or our own refusal of the query.
    Own,
    /// The cache: a reply that has not expired, or a failure that is remembered.
    Cache,
    /// The cache: a reply that has expired (CA40).
    Stale,
    /// An upstream that was asked for this query, or for another one with the same question at the same time.
    Upstream,
    /// No upstream gave an answer, or a limit was reached: the SERVFAIL is ours.
    Failed,
}

impl Origin {
    /// Every origin, in the order of their discriminants.
    pub const ALL: [Origin; 5] =
        [Origin::Own, Origin::Cache, Origin::Stale, Origin::Upstream, Origin::Failed];

    /// The metrics label: lower case.
    pub const fn label(self) -> &'static str {
        match self {
            Origin::Own => "own",
            Origin::Cache => "cache",
            Origin::Stale => "stale",
            Origin::Upstream => "upstream",
            Origin::Failed => "failed",
        }
    }
}

/// What carries a query, also the label in metrics and in the query log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ServedOver {
    Udp,
    /// Plain streams (RFC 7766).
    Tcp,
    /// DNS over TLS (RFC 7858).
    Tls,
    /// DNS over HTTPS (RFC 8484).
    Https,
    /// DNS over QUIC (RFC 9250).
    Quic,
}

impl ServedOver {
    /// Everything, in the order of the discriminants.
    pub const ALL: [ServedOver; 5] =
        [ServedOver::Udp, ServedOver::Tcp, ServedOver::Tls, ServedOver::Https, ServedOver::Quic];

    /// Value of the label `origin`.
    pub const fn label(self) -> &'static str {
        match self {
            ServedOver::Udp => "udp",
            ServedOver::Tcp => "tcp",
            ServedOver::Tls => "tls",
            ServedOver::Https => "https",
            ServedOver::Quic => "quic",
        }
    }

    /// Whether its messages are encrypted.
    pub const fn is_encrypted(self) -> bool {
        match self {
            ServedOver::Udp | ServedOver::Tcp => false,
            ServedOver::Tls | ServedOver::Https | ServedOver::Quic => true,
        }
    }
}

/// How one query came to its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Why it was decided so.
    pub reason: Reason,
    /// Where the reply came from.
    pub origin: Origin,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_origin_is_at_its_own_place() {
        for (place, origin) in Origin::ALL.into_iter().enumerate() {
            assert_eq!(origin as usize, place, "{}", origin.label());
        }
    }
}
