//! Clients that take every TCP connection there is (T1, T2, L15), each from an address of its own on loopback.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

use dataplane::serve::{CloseReason, Limits};
use socket2::Socket;

use crate::harness::{
    House, OURS, PATIENCE, Reply, THEIRS, Tcp, connect_from, query, receive, udp,
};
use crate::https::patient;

/// Connections in all and per client: 16 clients can take them all, as they can with the defaults.
const CONNECTIONS: usize = 64;
const PER_CLIENT: usize = 4;
const CLIENTS: u8 = 16;
/// Idle connections of one client, and of a thousand.
const TEN_THOUSAND: u64 = 10_000;
/// Others, who want one answer each.
const VICTIMS: u8 = 20;

fn connect(from: Ipv4Addr, to: SocketAddr) -> Tcp {
    let stream = connect_from(&from.to_string(), to);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Tcp(stream)
}

/// Clients that hold half a message on each connection, and open another when they please.
struct Crowd {
    server: SocketAddr,
    open: Vec<VecDeque<Tcp>>,
}

impl Crowd {
    fn new(server: SocketAddr) -> Crowd {
        Crowd { server, open: (0..CLIENTS).map(|_| VecDeque::new()).collect() }
    }

    fn open(&mut self, client: u8) {
        let mut stream = connect(Ipv4Addr::new(127, 0, 1, client + 1), self.server);
        stream.0.write_all(&[0, 40, 1, 2, 3]).unwrap();
        self.open[usize::from(client)].push_back(stream);
    }

    /// Gives up the oldest connection of a client, closed or not, for a new one.
    fn reopen(&mut self, client: u8) {
        self.open[usize::from(client)].pop_front();
        self.open(client);
    }
}

#[test]
fn l15_t2_clients_that_hold_half_messages_keep_no_other_out() {
    let limits = Limits {
        tcp_connections: CONNECTIONS,
        tcp_connections_per_client: PER_CLIENT,
        ..patient()
    };
    let house = House::on(&["127.0.0.1:0"], limits);
    let accepted = || house.serving.counters().tcp_accepted.load(Ordering::Relaxed);
    let mut crowd = Crowd::new(house.address());
    for number in 0..CONNECTIONS {
        crowd.open(u8::try_from(number).unwrap() % CLIENTS);
    }
    house.until("every place is taken", |_| accepted() == CONNECTIONS as u64);
    for number in 0..VICTIMS {
        let mut victim = connect(Ipv4Addr::new(127, 0, 2, number + 1), house.address());
        // Between its connection and its query the crowd tries to take the place back.
        let before = accepted();
        for client in 0..CLIENTS {
            crowd.reopen(client);
        }
        house.until("the crowd is back", |_| accepted() >= before + u64::from(CLIENTS));
        let id = u16::from(number);
        assert_eq!(victim.ask(id, OURS), Reply::ours(id), "victim {number}");
    }
    let evicted = house.serving.counters().tcp_closed(CloseReason::Evicted);
    assert!(evicted >= u64::from(VICTIMS), "{evicted} of the crowd's gave way");
    assert_eq!(house.serving.counters().tcp_closed(CloseReason::Refused), 0);
}

/// A connection that leaves nothing in the kernel when it ends: its peer gets a reset.
fn reset(client: Tcp) {
    let socket = Socket::from(client.0);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn t1_t2_ten_thousand_idle_connections_leave_room_for_others_and_udp() {
    let limits = Limits { tcp_connections: 128, tcp_connections_per_client: 16, ..patient() };
    let house = House::on(&["127.0.0.1:0"], limits);
    let counters = house.serving.counters();
    // One client goes past its share.
    let mut idle = VecDeque::new();
    for opened in 1..=TEN_THOUSAND {
        idle.push_back(connect(Ipv4Addr::new(127, 0, 4, 1), house.address()));
        if opened % 250 == 0 {
            // A connection that its client ends before the server has taken it is not counted as evicted. A connection is
            // counted as closed when its task has ended, which may be later.
            house.until("the share of one client", |_| {
                counters.tcp_closed(CloseReason::EvictedByClient) == opened - 16
            });
            // Those that the server has closed only cost descriptors here.
            idle.drain(..idle.len() - 16);
        }
    }
    // Then a thousand clients together go past the share of all.
    for number in 0..TEN_THOUSAND {
        let [.., high, low] = (number % 1_000).to_be_bytes();
        idle.push_back(connect(Ipv4Addr::new(127, 0, 5 + high, low), house.address()));
        if idle.len() > 400 {
            idle.pop_front();
        }
    }
    house.until("all were taken", |_| {
        counters.tcp_accepted.load(Ordering::Relaxed) == 2 * TEN_THOUSAND
    });
    house.until("no more than may be", |_| counters.tcp_open.load(Ordering::Relaxed) <= 128);
    house.until("the share of all", |_| counters.tcp_closed(CloseReason::Evicted) > 0);
    assert_eq!(counters.tcp_closed(CloseReason::Refused), 0);
    let mut other = connect(Ipv4Addr::new(127, 0, 2, 1), house.address());
    assert_eq!(other.ask(1, OURS), Reply::ours(1));
    let client = udp();
    client.send_to(&query(2, OURS), house.address()).unwrap();
    assert_eq!(receive(&client).0, Reply::ours(2));
}

#[test]
fn t5_t9_connections_that_are_all_reset_at_once_leave_nothing_behind() {
    let house = House::on(&["127.0.0.1:0"], patient());
    let counters = house.serving.counters();
    let mut clients = Vec::new();
    for number in 0..100 {
        let mut client = connect(Ipv4Addr::LOCALHOST, house.address());
        match number % 3 {
            0 => assert_eq!(client.ask(number, OURS), Reply::ours(number)),
            1 => client.0.write_all(&[0, 40, 1, 2, 3]).unwrap(),
            _ => client.send(&query(number, THEIRS)),
        }
        clients.push(client);
    }
    house.until("lookups are under way", |house| house.forwarder.in_flight() == 33);
    clients.into_iter().for_each(reset);
    let ended = [CloseReason::Failed, CloseReason::Client];
    let all = || ended.map(|reason| counters.tcp_closed(reason)).iter().sum::<u64>();
    house.until("all are gone", |_| all() == 100);
    assert_eq!(counters.tcp_open.load(Ordering::Relaxed), 0);
    assert_eq!(counters.tcp_buffered.load(Ordering::Relaxed), 0);
    assert_eq!(counters.panics.load(Ordering::Relaxed), 0);
    let mut after = connect(Ipv4Addr::LOCALHOST, house.address());
    assert_eq!(after.ask(1, OURS), Reply::ours(1));
}
