//! G119 and G120: how a TCP connection is treated (WR41-WR43). G97, which waits for upstreams in one way over TCP and in
//! another over UDP.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use tests::client::{Question, Transport, connect, read, receive, send};
use tests::scenario::{Plane, objects_of};

fn plane() -> Plane {
    Plane::start(&objects_of("stub-domains").unwrap()).unwrap()
}

#[test]
fn g119_a_slow_question_does_not_hold_up_the_next_on_the_connection() {
    let plane = plane();
    let mut stream = connect(plane.address()).unwrap();
    let mut slow = Question::parse("slow.corp.example. A").unwrap();
    let fast = Question::parse("cart.shop.svc.cluster.local. A").unwrap();
    // Two questions in progress need two ids.
    slow.packet[0] ^= 0xff;
    send(&mut stream, &slow.packet).unwrap();
    send(&mut stream, &fast.packet).unwrap();
    for (question, status) in [(&fast, "NOERROR"), (&slow, "SERVFAIL")] {
        let reply = receive(&mut stream).unwrap().unwrap();
        let text = read(question, Some(&reply), Transport::Tcp, plane.names());
        assert!(text.status.contains(status), "{}:\n{text}", question.text);
        assert!(!text.notes.contains(&"another id".to_owned()), "{}:\n{text}", question.text);
    }
}

#[test]
fn g120_a_length_of_zero_closes_the_connection() {
    let plane = plane();
    let mut stream = connect(plane.address()).unwrap();
    send(&mut stream, &[]).unwrap();
    assert_eq!(receive(&mut stream).unwrap(), None);
}

#[test]
fn g120_a_message_that_trickles_in_closes_the_connection() {
    let plane = plane();
    let mut stream = connect(plane.address()).unwrap();
    let question = Question::parse("cart.shop.svc.cluster.local. A").unwrap();
    let length = (question.packet.len() as u16).to_be_bytes();
    let octets = [&length, question.packet.as_slice()].concat();
    // The wait for a reply that never comes is also the pause between two octets.
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let closed =
        octets.iter().any(|octet| stream.write_all(&[*octet]).is_err() || ended(&mut stream));
    assert!(closed, "all {} octets were taken, one a second", octets.len());
}

#[test]
fn g97_a_chain_that_leaves_a_stub_domain_is_whole_over_udp_and_tcp() {
    let question = Question::parse("half.corp.example. A").unwrap();
    for over in [Transport::Udp, Transport::Tcp] {
        let plane = plane();
        // First from the upstreams, then from the cache.
        for round in 0..2 {
            let reply = plane.ask(&question.packet, over, false).unwrap().reply.unwrap();
            let reply = Message::from_vec(&reply).unwrap();
            let header = &reply.metadata;
            let (code, is_ours) = (header.response_code, header.authoritative);
            assert_eq!((code, is_ours), (ResponseCode::NoError, false), "{over:?} {round}");
            let mut data: Vec<_> = reply.answers.iter().map(|it| it.data.to_string()).collect();
            // The addresses rotate; the CNAME leads to them.
            data[1..].sort();
            let whole = ["www.example.org.", "192.0.2.80", "192.0.2.81"];
            assert_eq!(data, whole, "{over:?} {round}");
        }
    }
}

/// Whether the server has closed the connection.
fn ended(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 2]) {
        Ok(octets) => octets == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}
