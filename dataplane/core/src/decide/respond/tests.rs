//! Which datagrams get no reply because of where they come from (W2).

use super::*;
use crate::testing::settings;
use crate::{CacheCounters, Identity, Index, WorkerCounters};

/// Octets of the reply to this message; none where there is none.
fn replied(packet: &[u8], port: u16, transport: Transport) -> (Option<usize>, Reason) {
    let records = Index::new(settings()).records();
    let client = SocketAddr::from(([10, 244, 0, 9], port));
    let query = Query { packet, client, transport, now_s: 0, seed: 7 };
    let (own, cache, identity) =
        (WorkerCounters::default(), CacheCounters::default(), Identity::default());
    let counters =
        Counters { own: &own, all: &[], servers: &[], cache: &cache, identity: &identity };
    let mut buffer = vec![0; 65_535];
    let (action, reason) = respond(&records, &query, &counters, &mut buffer);
    assert_eq!(own.count(reason), 1);
    match action {
        Action::Reply(octets) => (Some(octets), reason),
        Action::Drop => (None, reason),
        Action::Forward(_) => panic!("it is answered here"),
    }
}

#[test]
fn w2_services_that_answer_everything_get_no_reply_over_udp() {
    // A question that is read, one with another opcode, one without a question, and octets of a character generator.
    let question = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x09localhost\0\0\x01\0\x01";
    let mut opcode = question.to_vec();
    opcode[2] = 0x29;
    let packets = [&question[..], &opcode, &question[..12], b" !\"#$%&'()*+,-./0123456789"];
    for packet in packets {
        for port in [0, 7, 11, 13, 17, 19, 37, 69] {
            assert_eq!(replied(packet, port, Transport::Udp), (None, Reason::SourcePortZero));
            assert!(replied(packet, port, Transport::Tcp).0.is_some(), "a connection is no echo");
        }
        // Those of resolvers, of clients behind source NAT, and the neighbours of the others.
        for port in [1, 8, 20, 53, 68, 70, 123, 853, 1023, 40_000] {
            assert!(replied(packet, port, Transport::Udp).0.is_some(), "{port}: {packet:02x?}");
        }
    }
}
