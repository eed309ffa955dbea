//! Clients that wait for one lookup (F6, FW11): each gets a reply of its own.

use dataplane::serve::Limits;

use crate::harness::{House, Reply, Tcp, query, udp};

/// An OPT record that allows 1,232 octets, and the DO bit of it.
const OPT: [u8; 11] = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
const DO: usize = 7;

/// A query with an OPT record.
fn with_opt(id: u16, name: &str, dnssec_ok: bool) -> Vec<u8> {
    let mut packet = query(id, name);
    packet[11] = 1;
    let mut opt = OPT;
    opt[DO] = u8::from(dnssec_ok) << 7;
    packet.extend(opt);
    packet
}

#[test]
fn f6_g133_who_waits_for_one_lookup_gets_its_own_id_letter_case_and_flags() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let over_udp = [
        query(1, "www.example.org"),
        query(2, "WWW.example.ORG"),
        with_opt(3, "wWw.eXample.org", false),
        // DO asks for more, so it is another lookup.
        with_opt(4, "www.Example.org", true),
    ];
    let over_tcp = query(5, "www.exAmple.org");
    let clients = over_udp.each_ref().map(|packet| {
        let client = udp();
        client.send_to(packet, house.address()).unwrap();
        client
    });
    let mut tcp = Tcp::connect(house.address());
    tcp.send(&over_tcp);
    house.until("all wait", |house| house.forwarder.joined() == 3);
    assert_eq!((house.forwarder.lookups(), house.forwarder.in_flight()), (2, 5));
    house.upstream.release();

    let of_udp = clients.iter().map(|client| {
        let mut buffer = [0; 512];
        let octets = client.recv(&mut buffer).expect("a reply");
        buffer[..octets].to_vec()
    });
    let replies: Vec<Vec<u8>> = of_udp.chain([tcp.message()]).collect();
    for (asked, reply) in over_udp.iter().chain([&over_tcp]).zip(&replies) {
        assert_eq!(reply[..2], asked[..2], "its id");
        let question_end = 12 + "www.example.org".len() + 2 + 4;
        assert_eq!(reply[12..question_end], asked[12..question_end], "its question");
        assert_eq!((reply[3] & 15, reply[7]), (0, 1), "{reply:?}");
        // The record of its own that the reply ends with, if it sent one.
        assert_eq!(reply[11], asked[11], "its OPT record");
        if asked[11] == 1 {
            let (sent, got) =
                (&asked[asked.len() - OPT.len()..], &reply[reply.len() - OPT.len()..]);
            assert_eq!((got[..3].to_vec(), got[DO]), (sent[..3].to_vec(), sent[DO]), "its DO bit");
        } else {
            assert_eq!(
                Reply::parse(reply),
                Reply::theirs(u16::from_be_bytes([asked[0], asked[1]]))
            );
        }
    }
}
