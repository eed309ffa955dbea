//! What a socket promises, over loopback.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::{Batch, Received, Socket};
use crate::{DATAGRAM_OCTETS, Local, Options};

/// Far beyond what loopback needs: only a broken implementation waits this long.
const PATIENCE: Duration = Duration::from_secs(20);

fn options() -> Options {
    Options { wait: Duration::from_millis(50), ..Options::default() }
}

fn bind(address: &str) -> Socket {
    Socket::bind(address.parse().expect("address"), &options()).expect("bind")
}

fn client(address: &str) -> UdpSocket {
    let client = UdpSocket::bind(address).expect("client");
    client.set_read_timeout(Some(PATIENCE)).expect("client timeout");
    client
}

fn at(ip: &str, socket: &Socket) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("ip"), socket.local_addr().port())
}

/// Receives until this many datagrams were answered with themselves, reversed.
fn serve(socket: &Socket, batch: &mut Batch, mut expected: usize) {
    let started = Instant::now();
    while expected > 0 {
        assert!(started.elapsed() < PATIENCE, "{expected} datagrams missing");
        let count = socket.recv(batch).expect("recv");
        let received: Vec<Vec<u8>> = batch.received().map(<[u8]>::to_vec).collect();
        assert_eq!(received.len(), count);
        let mut received = received.iter();
        batch.answer(|datagram, buffer| {
            assert_eq!(Some(datagram.bytes), received.next().map(Vec::as_slice));
            let octets = datagram.bytes.len();
            for (to, from) in buffer.iter_mut().zip(datagram.bytes.iter().rev()) {
                *to = *from;
            }
            octets
        });
        assert_eq!(batch.received().len(), 0, "all are answered");
        assert_eq!(socket.send(batch).sent, count);
        expected -= count;
    }
}

#[test]
fn all_datagrams_of_a_batch_are_seen_ahead_at_the_place_where_they_are_answered() {
    let socket = bind("127.0.0.1:0");
    let client = client("127.0.0.1:0");
    let (sent, mut seen, mut batch) = ([&b"abc"[..], b"de", b"fghi"], 0, Batch::new());
    sent.iter().for_each(|octets| assert!(client.send_to(octets, socket.local_addr()).is_ok()));
    while seen < sent.len() {
        let count = socket.recv(&mut batch).expect("recv");
        let wanted = &sent[seen..seen + count];
        let ahead = |received: Received<'_>| {
            assert_eq!(received.len(), count);
            received.map(<[u8]>::as_ptr_range).collect::<Vec<_>>()
        };
        let mut next = 0;
        batch.answer_ahead(ahead, |ahead, datagram, buffer| {
            assert_eq!(datagram.bytes, wanted[next]);
            assert_eq!(datagram.bytes.as_ptr_range(), ahead[next], "the octets that were seen");
            // A reply of any length is written elsewhere.
            buffer.fill(0xff);
            next += 1;
            buffer.len()
        });
        (seen, _) = (seen + next, assert_eq!(next, count));
    }
}

#[test]
fn a_reply_goes_to_who_asked() {
    let socket = bind("127.0.0.1:0");
    let client = client("127.0.0.1:0");
    client.send_to(b"abc", socket.local_addr()).expect("send");
    serve(&socket, &mut Batch::new(), 1);
    let mut buffer = [0; 16];
    let (octets, from) = client.recv_from(&mut buffer).expect("reply");
    assert_eq!((&buffer[..octets], from), (&b"cba"[..], socket.local_addr()));
}

#[test]
fn many_datagrams_keep_their_replies_apart() {
    let socket = bind("127.0.0.1:0");
    let clients: Vec<_> = (0..10).map(|_| client("127.0.0.1:0")).collect();
    let mut batch = Batch::new();
    for round in 0..5u8 {
        for (number, client) in clients.iter().enumerate() {
            for query in 0..10u8 {
                let message = [round, number as u8, query];
                client.send_to(&message, socket.local_addr()).expect("send");
            }
        }
        serve(&socket, &mut batch, 100);
        for (number, client) in clients.iter().enumerate() {
            for query in 0..10u8 {
                let mut buffer = [0; 16];
                let octets = client.recv(&mut buffer).expect("reply");
                assert_eq!(&buffer[..octets], [query, number as u8, round]);
            }
        }
    }
}

#[test]
fn a_datagram_without_reply_leaves_the_others_theirs() {
    let socket = bind("127.0.0.1:0");
    let client = client("127.0.0.1:0");
    for number in 0..20u8 {
        client.send_to(&[number], socket.local_addr()).expect("send");
    }
    let (mut batch, mut seen, mut sent) = (Batch::new(), 0, 0);
    let started = Instant::now();
    while seen < 20 {
        assert!(started.elapsed() < PATIENCE);
        seen += socket.recv(&mut batch).expect("recv");
        batch.answer(|datagram, buffer| {
            buffer[0] = datagram.bytes[0];
            usize::from(datagram.bytes[0] % 3 == 0)
        });
        sent += socket.send(&mut batch).sent;
    }
    assert_eq!(sent, 7);
    for number in [0, 3, 6, 9, 12, 15, 18] {
        let mut buffer = [0; 16];
        let octets = client.recv(&mut buffer).expect("reply");
        assert_eq!(buffer[..octets], [number]);
    }
}

#[test]
fn a_batch_is_sent_once() {
    let socket = bind("127.0.0.1:0");
    let client = client("127.0.0.1:0");
    client.send_to(b"x", socket.local_addr()).expect("send");
    let mut batch = Batch::new();
    serve(&socket, &mut batch, 1);
    assert_eq!(socket.send(&mut batch).sent, 0, "sent a second time");
    let mut shown = 0;
    batch.answer(|_, _| {
        shown += 1;
        0
    });
    assert_eq!(shown, 0, "shown a second time");
}

#[test]
fn a_panic_over_one_datagram_leaves_the_others_of_its_batch_to_the_next_call() {
    let socket = bind("127.0.0.1:0");
    let client = client("127.0.0.1:0");
    for number in 0..8u8 {
        client.send_to(&[number], socket.local_addr()).expect("send");
    }
    let (mut batch, mut seen, mut shown, mut panics) = (Batch::new(), 0, Vec::new(), 0);
    let started = Instant::now();
    while seen < 8 {
        assert!(started.elapsed() < PATIENCE);
        seen += socket.recv(&mut batch).expect("recv");
        let mut answer = || {
            batch.answer(|datagram, buffer| {
                shown.push(datagram.bytes[0]);
                assert!(datagram.bytes[0] % 3 != 1, "a defect");
                buffer[0] = datagram.bytes[0];
                1
            });
        };
        while catch_unwind(AssertUnwindSafe(&mut answer)).is_err() {
            panics += 1;
        }
        assert_eq!(batch.received().len(), 0);
        socket.send(&mut batch);
    }
    assert_eq!((shown, panics), ((0..8).collect(), 3), "each once");
    for number in [0, 2, 3, 5, 6] {
        let mut buffer = [0; 16];
        let octets = client.recv(&mut buffer).expect("reply");
        assert_eq!(buffer[..octets], [number]);
    }
}

#[test]
fn nothing_to_receive_returns_when_the_time_is_over() {
    let socket = bind("127.0.0.1:0");
    assert_eq!(socket.recv(&mut Batch::new()).expect("recv"), 0);
}

#[test]
fn a_long_datagram_is_cut_and_an_empty_one_is_none_the_less_one() {
    let socket = bind("127.0.0.1:0");
    let client = client("127.0.0.1:0");
    let mut batch = Batch::new();
    for (sent, read) in [
        (0, 0),
        (DATAGRAM_OCTETS, DATAGRAM_OCTETS),
        (DATAGRAM_OCTETS + 1, DATAGRAM_OCTETS),
        (9000, DATAGRAM_OCTETS),
        (3, 3),
    ] {
        client.send_to(&vec![7; sent], socket.local_addr()).expect("send");
        let started = Instant::now();
        let mut seen = None;
        while seen.is_none() {
            assert!(started.elapsed() < PATIENCE);
            socket.recv(&mut batch).expect("recv");
            batch.answer(|datagram, _| {
                seen = Some(datagram.bytes.len());
                0
            });
        }
        assert_eq!(seen, Some(read));
    }
}

#[test]
fn sockets_of_one_user_share_a_port_only_when_asked_to() {
    let first = bind("127.0.0.1:0");
    let second = Socket::bind(first.local_addr(), &options()).expect("shared");
    assert_eq!(first.local_addr(), second.local_addr());
    let alone = Options { reuse_port: false, ..options() };
    let error = Socket::bind(first.local_addr(), &alone).expect_err("taken");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn a_late_reply_may_come_from_another_thread() {
    let socket = bind("127.0.0.1:0");
    let client = client("127.0.0.1:0");
    let peer = client.local_addr().expect("client address");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let from = Local::from(socket.local_addr().ip());
            assert_eq!(socket.send_to(b"late", from, peer).sent, 1);
        });
    });
    let mut buffer = [0; 16];
    let (octets, from) = client.recv_from(&mut buffer).expect("reply");
    assert_eq!((&buffer[..octets], from), (&b"late"[..], socket.local_addr()));
}

#[test]
fn ipv6_is_served_and_leaves_ipv4_alone() {
    let Ok(socket) = Socket::bind("[::]:0".parse().expect("address"), &options()) else {
        return; // This machine has no IPv6.
    };
    assert_eq!(socket.local_addr().ip(), "::".parse::<IpAddr>().expect("ip"));
    // IPv4 on the same port is not ours: nothing arrives.
    let stranger = client("127.0.0.1:0");
    let _ = stranger.send_to(b"four", at("127.0.0.1", &socket));
    if UdpSocket::bind("[::1]:0").is_err() {
        return;
    }
    let client = client("[::1]:0");
    client.send_to(b"six", at("::1", &socket)).expect("send");
    serve(&socket, &mut Batch::new(), 1);
    let mut buffer = [0; 16];
    let (octets, from) = client.recv_from(&mut buffer).expect("reply");
    assert_eq!(&buffer[..octets], b"xis");
    assert_eq!(from.ip(), "::1".parse::<IpAddr>().expect("ip"));
}
