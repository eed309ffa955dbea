//! One dnstap message in Protocol Buffers: the fields of `dnstap.proto` that we fill
//! (<https://github.com/dnstap/dnstap.pb>).
//!
//! By hand, as fifteen fields of four kinds do not need a generator, its build step and its crates.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::super::exchange::{Exchange, Side};
use crate::origin::ServedOver;

/// `identity` and `version` of dnstap messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Speaker {
    /// Name of the pod (`Dnstap.identity`).
    pub(super) identity: String,
    /// Name and version of this program.
    pub(super) version: String,
}

/// The two halves of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    Query,
    Response,
}

/// The halves that are shown: only complete messages, because readers would take another one for a broken message.
pub(super) fn halves(exchange: &Exchange<'_>) -> impl Iterator<Item = Half> + use<> {
    let has_query = !exchange.query.is_empty() && !exchange.is_query_cut;
    let has_response = !exchange.reply.is_empty();
    let query = has_query.then_some(Half::Query);
    query.into_iter().chain(has_response.then_some(Half::Response))
}

/// `Message.Type`.
const fn kind(side: Side, half: Half) -> u64 {
    match (side, half) {
        (Side::Client, Half::Query) => 5,
        (Side::Client, Half::Response) => 6,
        (Side::Forwarder, Half::Query) => 7,
        (Side::Forwarder, Half::Response) => 8,
    }
}

/// `SocketProtocol`.
const fn protocol(of: ServedOver) -> u64 {
    match of {
        ServedOver::Udp => 1,
        ServedOver::Tcp => 2,
        ServedOver::Tls => 3,
        ServedOver::Https => 4,
        ServedOver::Quic => 7,
    }
}

/// `SocketFamily`.
const fn family(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(_) => 1,
        IpAddr::V6(_) => 2,
    }
}

/// Appends a `Dnstap`; `scratch` is memory for the message in it.
pub(super) fn write(
    speaker: &Speaker,
    exchange: &Exchange<'_>,
    half: Half,
    scratch: &mut Vec<u8>,
    to: &mut Vec<u8>,
) {
    scratch.clear();
    message(exchange, half, scratch);
    octets(to, 1, speaker.identity.as_bytes());
    octets(to, 2, speaker.version.as_bytes());
    octets(to, 14, scratch);
    // MESSAGE, the only type there is.
    number(to, 15, 1);
}

fn message(exchange: &Exchange<'_>, half: Half, to: &mut Vec<u8>) {
    let Exchange { at, took, client, server, query, reply, .. } = *exchange;
    // We do not know the address that a query to an upstream leaves from.
    let known = [client, server].into_iter().find(|address| !address.ip().is_unspecified());
    number(to, 1, kind(exchange.side, half));
    number(to, 2, family(known.unwrap_or(client).ip()));
    number(to, 3, protocol(exchange.over));
    address(to, 4, client);
    address(to, 5, server);
    port(to, 6, client);
    port(to, 7, server);
    time(to, 8, at);
    match half {
        Half::Query => octets(to, 10, query),
        Half::Response => {
            time(to, 12, at + took);
            octets(to, 14, reply);
        }
    }
}

fn address(to: &mut Vec<u8>, field: u64, address: SocketAddr) {
    match address.ip() {
        ip if ip.is_unspecified() => {}
        IpAddr::V4(ip) => octets(to, field, &ip.octets()),
        IpAddr::V6(ip) => octets(to, field, &ip.octets()),
    }
}

fn port(to: &mut Vec<u8>, field: u64, address: SocketAddr) {
    if address.port() != 0 {
        number(to, field, address.port().into());
    }
}

/// Seconds in one field and nanoseconds in the next.
fn time(to: &mut Vec<u8>, field: u64, at: Duration) {
    number(to, field, at.as_secs());
    // A fixed number of 32 bits, the lowest octet first.
    varint(to, (field + 1) << 3 | 5);
    to.extend(at.subsec_nanos().to_le_bytes());
}

fn number(to: &mut Vec<u8>, field: u64, value: u64) {
    varint(to, field << 3);
    varint(to, value);
}

fn octets(to: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(to, field << 3 | 2);
    varint(to, value.len() as u64);
    to.extend(value);
}

/// Seven bits an octet, the lowest first.
fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use dataplane_core::Reason;

    use super::*;
    use crate::origin::{Answered, Origin};

    #[test]
    fn a_message_is_octet_for_octet_what_the_schema_says() {
        let exchange = Exchange {
            side: Side::Client,
            at: Duration::new(300, 1),
            took: Duration::new(0, 2),
            client: "10.0.0.1:5353".parse().unwrap(),
            server: "10.96.0.10:53".parse().unwrap(),
            over: ServedOver::Tcp,
            answered: Answered { reason: Reason::Found, origin: Origin::Own },
            query: b"qq",
            is_query_cut: false,
            reply: b"rrr",
        };
        let speaker = Speaker { identity: "pod".into(), version: "v".into() };
        let (mut scratch, mut written) = (Vec::new(), Vec::new());
        write(&speaker, &exchange, Half::Query, &mut scratch, &mut written);
        let common = b"\x10\x01\x18\x02\x22\x04\x0a\0\0\x01\x2a\x04\x0a\x60\0\x0a\x30\xe9\x29\x38\x35\x40\xac\x02\x4d\x01\0\0\0";
        let query = [b"\x08\x05", &common[..], b"\x52\x02qq"].concat();
        let around = |message: &[u8]| {
            [b"\x0a\x03pod\x12\x01v\x72", &[message.len() as u8][..], message, b"\x78\x01"].concat()
        };
        assert_eq!(written, around(&query));
        written.clear();
        write(&speaker, &exchange, Half::Response, &mut scratch, &mut written);
        let response =
            [b"\x08\x06", &common[..], b"\x60\xac\x02\x6d\x03\0\0\0\x72\x03rrr"].concat();
        assert_eq!(written, around(&response));
    }

    #[test]
    fn a_query_of_which_only_the_beginning_was_kept_is_left_out() {
        let reply = &b"rrr"[..];
        for (query, is_query_cut, reply, shown) in [
            (&b"qq"[..], false, reply, &[Half::Query, Half::Response][..]),
            (b"qq", true, reply, &[Half::Response]),
            (b"qq", false, b"", &[Half::Query]),
            (b"", false, reply, &[Half::Response]),
        ] {
            let exchange = Exchange { query, is_query_cut, reply, ..Exchange::default() };
            assert_eq!(halves(&exchange).collect::<Vec<_>>(), shown);
        }
    }

    #[test]
    fn an_upstream_is_asked_from_an_address_that_is_left_out() {
        let exchange = Exchange {
            side: Side::Forwarder,
            at: Duration::ZERO,
            took: Duration::ZERO,
            client: "0.0.0.0:0".parse().unwrap(),
            server: "[fd00::53]:853".parse().unwrap(),
            over: ServedOver::Tls,
            answered: Answered { reason: Reason::Forward, origin: Origin::Upstream },
            query: b"q",
            is_query_cut: false,
            reply: b"",
        };
        let mut written = Vec::new();
        message(&exchange, Half::Query, &mut written);
        assert!(written.starts_with(b"\x08\x07\x10\x02\x18\x03\x2a\x10\xfd"), "{written:?}");
    }
}
