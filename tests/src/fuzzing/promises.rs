//! Rules that hold for every reply to any question (docs/dns.md §4.1, §5).

use dataplane_core::Transport;
use hickory_proto::op::Message;
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

/// `udpPayloadBytes` of the fixture and of the scenarios.
const PAYLOAD: usize = 1232;
/// Without OPT (WR11).
const PLAIN: usize = 512;
const HEADER: usize = 12;

/// How long a reply may be, and whether it may be truncated.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub octets: usize,
    stream: bool,
}

impl Limit {
    /// The limit for replies to this message: what its OPT says is read by hickory-proto where it can, else the
    /// largest there is.
    pub fn of(message: &[u8], transport: Transport) -> Limit {
        let octets = match (transport, Message::from_vec(message)) {
            (Transport::Tcp, _) => 65_535,
            (Transport::Udp, Err(_)) => PAYLOAD,
            (Transport::Udp, Ok(read)) => match read.edns {
                None => PLAIN,
                Some(edns) => usize::from(edns.max_payload()).clamp(PLAIN, PAYLOAD),
            },
        };
        Limit { octets, stream: transport == Transport::Tcp }
    }
}

/// Panics when a reply to this message breaks a promise.
pub fn keeps_its_promises(message: &[u8], limit: Limit, reply: &[u8]) {
    assert!(reply.len() <= limit.octets, "{} octets of {}", reply.len(), limit.octets);
    assert!(reply.len() >= HEADER);
    // WR1: ID, opcode and RD as sent, QR set; CD as sent, Z clear. A query has no other flags to copy.
    assert_eq!(reply[..2], message[..2], "ID");
    assert_eq!(reply[2] & 0xf9, message[2] & 0x79 | 0x80, "QR, opcode, RD");
    assert_eq!(reply[3] & 0x50, message[3] & 0x10, "Z, CD");
    assert!(!limit.stream || reply[2] & 0x02 == 0, "TC over TCP");
    let mut decoder = BinDecoder::new(reply);
    let read = Message::read(&mut decoder).expect("hickory-proto decodes what we write");
    assert!(decoder.is_empty(), "octets behind the last record");
    if reply.len() == HEADER {
        assert!(reply[4..].iter().all(|&octet| octet == 0), "header only");
        return;
    }
    // WR2: one question, octet for octet.
    let question = question_octets(message).expect("the question of an answered query is readable");
    assert_eq!(reply[4..6], [0, 1]);
    assert!(reply[HEADER..].starts_with(question), "another question");
    // Only NOERROR and NXDOMAIN are authoritative, and have a SOA (WR4, N32).
    let rcode = u16::from(read.metadata.response_code);
    let answers = matches!(rcode, 0 | 3 | 6);
    assert!(answers || !read.metadata.authoritative, "AA with Rcode {rcode}");
    assert!(answers || read.authorities.is_empty(), "authority with Rcode {rcode}");
    // WR21: nothing beside the part of the answer.
    let beside = read.authorities.len() + read.additionals.len();
    assert!(!read.metadata.truncation || beside == 0, "{beside} records beside a part");
}

/// The octets of the first question, if it has no compression.
fn question_octets(packet: &[u8]) -> Option<&[u8]> {
    let mut at = HEADER;
    while let length @ 1.. = *packet.get(at)? {
        at += usize::from(length) + 1;
    }
    packet.get(HEADER..at + 5)
}
