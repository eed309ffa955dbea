//! G119 and G120: how a TCP connection is treated (WR41-WR43).

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

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

/// Whether the server has closed the connection.
fn ended(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 2]) {
        Ok(octets) => octets == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}
