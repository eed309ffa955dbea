//! What needs a look behind the interface.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Batch, Socket};
use crate::{DATAGRAM_OCTETS, Local, Options};

const PATIENCE: Duration = Duration::from_secs(20);

fn bind(address: &str, wait: Duration) -> Socket {
    let options = Options { wait, ..Options::default() };
    Socket::bind(address.parse().expect("address"), &options).expect("bind")
}

fn client() -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").expect("client");
    client.set_read_timeout(Some(PATIENCE)).expect("timeout");
    client
}

/// Sends one datagram to each address and answers it; returns where each reply came from.
fn exchange(socket: &Socket, addresses: &[&str]) -> Vec<IpAddr> {
    let mut batch = Batch::new();
    let mut sources = Vec::new();
    for address in addresses {
        let client = client();
        let ip: IpAddr = address.parse().expect("ip");
        client.send_to(b"q", SocketAddr::new(ip, socket.local_addr().port())).expect("send");
        assert_eq!(socket.recv(&mut batch).expect("recv"), 1);
        batch.answer(|datagram, buffer| {
            assert_eq!(datagram.local, Local::from(ip));
            buffer[0] = b'r';
            1
        });
        assert_eq!(socket.send(&mut batch).sent, 1);
        let (_, from) = client.recv_from(&mut [0; 4]).expect("reply");
        sources.push(from.ip());
    }
    sources
}

#[test]
fn wr8_a_wildcard_socket_replies_from_the_address_asked() {
    let socket = bind("0.0.0.0:0", PATIENCE);
    let asked = ["127.0.0.2", "127.0.0.1", "127.3.3.3"];
    let from = exchange(&socket, &asked);
    let asked: Vec<IpAddr> = asked.iter().map(|ip| ip.parse().expect("ip")).collect();
    assert_eq!(from, asked);
}

#[test]
fn wr8_a_late_reply_leaves_from_the_address_asked() {
    let socket = bind("0.0.0.0:0", PATIENCE);
    let client = client();
    let from = Local::from("127.0.0.2".parse::<IpAddr>().expect("ip"));
    let peer = client.local_addr().expect("address");
    assert_eq!(socket.send_to(b"late", from, peer).sent, 1);
    let (_, source) = client.recv_from(&mut [0; 8]).expect("reply");
    assert_eq!(source.ip(), from.address);
}

#[test]
fn a_socket_on_one_address_knows_it_without_asking() {
    let socket = bind("127.0.0.2:0", PATIENCE);
    let from = exchange(&socket, &["127.0.0.2"]);
    assert_eq!(from, ["127.0.0.2".parse::<IpAddr>().expect("ip")]);
}

/// Octets of the reply to each datagram of a full batch: none for some, and the longest last.
fn reply_octets(number: usize) -> usize {
    match number {
        31 => DATAGRAM_OCTETS,
        number if number % 5 == 3 => 0,
        number => 1 + number * 37,
    }
}

#[test]
fn replies_of_one_batch_leave_whole_also_if_their_sizes_differ() {
    let socket = bind("127.0.0.1:0", PATIENCE);
    let client = client();
    let mut batch = Batch::new();
    // Twice: the second batch uses the memory of the first.
    for round in 0..2 {
        for number in 0..32 {
            client.send_to(&[number], socket.local_addr()).expect("send");
        }
        assert_eq!(socket.recv(&mut batch).expect("recv"), 32);
        batch.answer(|datagram, buffer| {
            assert_eq!(buffer.len(), DATAGRAM_OCTETS);
            let number = datagram.bytes[0];
            // More is written than is sent, as by a reply that is truncated afterwards.
            buffer.fill(number + round);
            reply_octets(usize::from(number))
        });
        assert_eq!(socket.send(&mut batch).failed, 0);
        for number in (0..32).filter(|number| reply_octets(usize::from(*number)) > 0) {
            let mut reply = [0; DATAGRAM_OCTETS + 1];
            let octets = client.recv(&mut reply).expect("reply");
            assert_eq!(octets, reply_octets(usize::from(number)));
            assert!(reply[..octets].iter().all(|octet| *octet == number + round), "{number}");
        }
    }
}

#[test]
fn one_call_takes_what_is_queued_up_to_the_batch() {
    let socket = bind("127.0.0.1:0", PATIENCE);
    let client = client();
    for number in 0..40u8 {
        client.send_to(&[number], socket.local_addr()).expect("send");
    }
    let mut batch = Batch::new();
    assert_eq!(socket.recv(&mut batch).expect("first"), 32);
    assert_eq!(socket.recv(&mut batch).expect("second"), 8);
    let mut numbers = Vec::new();
    batch.answer(|datagram, _| {
        numbers.push(datagram.bytes[0]);
        0
    });
    assert_eq!(numbers, (32..40).collect::<Vec<u8>>());
}

#[test]
fn l9_the_time_in_the_queue_is_known() {
    let socket = bind("127.0.0.1:0", PATIENCE);
    let client = client();
    client.send_to(b"old", socket.local_addr()).expect("send");
    let sent = Instant::now();
    thread::sleep(Duration::from_millis(30));
    let waited_at_least = sent.elapsed();
    let mut batch = Batch::new();
    assert_eq!(socket.recv(&mut batch).expect("recv"), 1);
    let mut waited = Duration::ZERO;
    batch.answer(|datagram, _| {
        waited = datagram.waited;
        0
    });
    // The kernel's clock and ours are not the same one: a millisecond of grace.
    assert!(waited + Duration::from_millis(1) >= waited_at_least, "{waited:?}");
    assert!(waited < PATIENCE, "{waited:?}");
    assert!(batch.now() > Duration::from_secs(1_600_000_000), "Unix time");
}

/// How long each datagram of a batch waited.
fn waits(batch: &mut Batch) -> Vec<Duration> {
    let mut waits = Vec::new();
    batch.answer(|datagram, _| {
        waits.push(datagram.waited);
        0
    });
    waits
}

/// A socket whose batches were full until only their newest datagram is asked for its time, and its client.
fn under_load(batch: &mut Batch) -> (Socket, UdpSocket) {
    let (socket, client) = (bind("127.0.0.1:0", PATIENCE), client());
    let started = Instant::now();
    while socket.stamps.are_with_each() {
        assert!(started.elapsed() < PATIENCE, "no batches were full in a row");
        send(&client, &socket, 32);
        let mut missing = 32;
        while missing > 0 {
            missing -= socket.recv(batch).expect("recv");
        }
    }
    (socket, client)
}

fn send(client: &UdpSocket, socket: &Socket, count: u8) {
    for number in 0..count {
        client.send_to(&[number], socket.local_addr()).expect("send");
    }
}

#[test]
fn l9_wr46_the_time_in_the_queue_is_known_while_batches_are_full() {
    let mut batch = Batch::new();
    let (socket, client) = under_load(&mut batch);
    let (pause, grace) = (Duration::from_millis(30), Duration::from_millis(1));
    send(&client, &socket, 33);
    thread::sleep(pause);
    for count in [32, 1] {
        assert_eq!(socket.recv(&mut batch).expect("recv"), count);
        let waits = waits(&mut batch);
        assert_eq!(waits.len(), count);
        assert!(waits.iter().all(|waited| *waited + grace >= pause), "{waits:?}");
    }
    assert!(socket.stamps.are_with_each(), "the queue is empty");
    send(&client, &socket, 1);
    thread::sleep(pause);
    send(&client, &socket, 1);
    assert_eq!(socket.recv(&mut batch).expect("recv"), 2);
    let waits = waits(&mut batch);
    assert!(waits[0] + grace >= waits[1] + pause, "each has its own: {waits:?}");
}

#[test]
fn l9_wr46_what_is_queued_has_its_own_time_when_that_is_asked_for_later() {
    let mut batch = Batch::new();
    let (socket, client) = under_load(&mut batch);
    send(&client, &socket, 64);
    let pause = Duration::from_millis(1_100);
    thread::sleep(pause);
    for _ in 0..2 {
        assert_eq!(socket.recv(&mut batch).expect("recv"), 32);
        let waits = waits(&mut batch);
        assert!(
            waits.iter().all(|waited| *waited + Duration::from_millis(1) >= pause),
            "{waits:?}"
        );
        assert!(socket.stamps.are_with_each(), "the queue is old: {waits:?}");
    }
}

#[test]
fn wr8_replies_leave_from_the_address_asked_while_batches_are_full() {
    let socket = bind("0.0.0.0:0", PATIENCE);
    let (client, mut batch) = (client(), Batch::new());
    let asked = SocketAddr::from(([127, 0, 0, 3], socket.local_addr().port()));
    let started = Instant::now();
    while socket.stamps.are_with_each() {
        assert!(started.elapsed() < PATIENCE, "no batches were full in a row");
        exchange_many(&socket, &client, asked, &mut batch);
    }
    exchange_many(&socket, &client, asked, &mut batch);
}

/// Asks 32 times at this address, from which all replies must come.
fn exchange_many(socket: &Socket, client: &UdpSocket, asked: SocketAddr, batch: &mut Batch) {
    for number in 0..32 {
        client.send_to(&[number], asked).expect("send");
    }
    let mut missing = 32;
    while missing > 0 {
        missing -= socket.recv(batch).expect("recv");
        batch.answer(|datagram, _| {
            assert_eq!(datagram.local, Local::from(asked.ip()));
            1
        });
        assert_eq!(socket.send(batch).failed, 0);
    }
    for _ in 0..32 {
        assert_eq!(client.recv_from(&mut [0; 4]).expect("reply").1, asked);
    }
}

#[test]
fn l10_datagrams_the_kernel_drops_are_counted() {
    let options = Options { receive_buffer: 4096, ..Options::default() };
    let socket = Socket::bind("127.0.0.1:0".parse().expect("address"), &options).expect("bind");
    assert_eq!(socket.drops(), 0);
    let client = client();
    for _ in 0..200 {
        client.send_to(&[0; 500], socket.local_addr()).expect("send");
    }
    let (mut batch, mut received) = (Batch::new(), 0);
    let drops = socket.drops();
    while received + drops < 200 {
        let count = socket.recv(&mut batch).expect("recv");
        assert!(count > 0, "neither received nor counted as dropped");
        received += count as u64;
    }
    assert!(drops > 0 && received + drops == 200, "{received} + {drops}");
}

#[test]
fn a_reply_that_cannot_be_sent_does_not_stop_the_others() {
    let socket = bind("0.0.0.0:0", PATIENCE);
    let client = client();
    for number in 0..3u8 {
        let to = SocketAddr::new("127.0.0.1".parse().expect("ip"), socket.local_addr().port());
        client.send_to(&[number], to).expect("send");
    }
    let mut batch = Batch::new();
    assert_eq!(socket.recv(&mut batch).expect("recv"), 3);
    // No such source address: the kernel refuses the second of the three.
    let mut asked = 0;
    batch.answer(|_, buffer| {
        buffer[0] = asked;
        asked += 1;
        1
    });
    batch.pretend_asked_at(1, "192.0.2.1".parse::<IpAddr>().expect("ip").into());
    let sent = socket.send(&mut batch);
    assert_eq!((sent.sent, sent.failed), (2, 1));
    for number in [0, 2] {
        let mut buffer = [9; 4];
        let octets = client.recv(&mut buffer).expect("reply");
        assert_eq!(buffer[..octets], [number]);
    }
}

#[test]
fn waking_ends_a_wait_and_what_is_queued_is_still_received() {
    let socket = Arc::new(bind("127.0.0.1:0", Duration::from_secs(3600)));
    let reader = {
        let socket = Arc::clone(&socket);
        thread::spawn(move || socket.recv(&mut Batch::new()))
    };
    // Whether the reader already waits or not yet, it must not wait for an hour.
    socket.wake();
    let received = reader.join().expect("reader").expect("recv");
    assert_eq!(received, 0, "a wake is not a datagram");

    let client = client();
    client.send_to(b"last", socket.local_addr()).expect("send");
    let (mut batch, mut seen) = (Batch::new(), 0);
    socket.recv(&mut batch).expect("recv");
    batch.answer(|datagram, _| {
        assert_eq!(datagram.bytes, b"last");
        seen += 1;
        0
    });
    assert_eq!(seen, 1);
    assert_eq!(socket.recv(&mut batch).expect("recv, at once"), 0);
}

#[test]
fn a_batch_may_move_between_threads() {
    let socket = bind("127.0.0.1:0", PATIENCE);
    let client = client();
    let mut batch = Batch::new();
    for _ in 0..2 {
        client.send_to(b"x", socket.local_addr()).expect("send");
        batch = thread::scope(|scope| {
            let socket = &socket;
            let reader = scope.spawn(move || {
                let mut batch = batch;
                assert_eq!(socket.recv(&mut batch).expect("recv"), 1);
                batch.answer(|_, _| 1);
                assert_eq!(socket.send(&mut batch).sent, 1);
                batch
            });
            reader.join().expect("thread")
        });
        client.recv(&mut [0; 4]).expect("reply");
    }
}

#[test]
fn what_is_queued_is_taken_at_once_and_nothing_is_waited_for() {
    // If it were waited for, this test would take an hour.
    let options = Options { wait: std::time::Duration::from_secs(3_600), ..Options::default() };
    let socket = Socket::bind("127.0.0.1:0".parse().expect("address"), &options).expect("bind");
    let mut batch = Batch::new();
    assert_eq!(socket.recv_now(&mut batch).expect("nothing"), 0);
    let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a client");
    for octet in 0..3u8 {
        client.send_to(&[octet], socket.local_addr()).expect("sent");
    }
    assert_eq!(socket.recv_now(&mut batch).expect("all of them"), 3);
    let octets: Vec<u8> = batch.received().map(|datagram| datagram[0]).collect();
    assert_eq!(octets, [0, 1, 2]);
}

#[test]
fn d3_a_socket_that_turns_away_keeps_what_is_queued_and_gets_nothing_more() {
    for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
        let options = Options { wait: Duration::from_millis(50), ..Options::default() };
        let Ok(old) = Socket::bind(address.parse().expect("address"), &options) else {
            continue; // This machine has no IPv6.
        };
        let loopback = if address.starts_with('[') { "::1" } else { "127.0.0.1" };
        let to = SocketAddr::new(loopback.parse().expect("ip"), old.local_addr().port());
        let client = || UdpSocket::bind(SocketAddr::new(to.ip(), 0)).expect("client");
        let queued = client();
        queued.send_to(b"before", to).expect("send");
        let next = Socket::bind(old.local_addr(), &options).expect("shared");
        old.turn_away().expect("turn away");

        // Some of 64 would go to the old socket, if the kernel still chose from both.
        let clients: Vec<_> = (0..64).map(|_| client()).collect();
        for client in &clients {
            client.send_to(b"after", to).expect("send");
        }
        let (mut batch, mut seen) = (Batch::new(), Vec::new());
        let started = Instant::now();
        while seen.len() < clients.len() && started.elapsed() < PATIENCE {
            next.recv(&mut batch).expect("recv");
            seen.extend(batch.received().map(<[u8]>::to_vec));
        }
        assert_eq!(seen, vec![b"after".to_vec(); clients.len()], "{address}");
        assert_eq!(old.recv(&mut batch).expect("recv"), 1, "{address}");
        batch.answer(|datagram, buffer| {
            buffer[..datagram.bytes.len()].copy_from_slice(datagram.bytes);
            datagram.bytes.len()
        });
        assert_eq!(old.send(&mut batch).sent, 1, "{address}");
        queued.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let mut reply = [0; 16];
        let (octets, from) = queued.recv_from(&mut reply).expect("reply");
        assert_eq!((&reply[..octets], from), (&b"before"[..], to), "{address}");
    }
}
