//! A few clients that take every TCP connection there is (L15), each from an address of its own on loopback.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;

use dataplane::serve::{CloseReason, Limits};
use socket2::{Domain, Socket, Type};

use crate::harness::{House, OURS, PATIENCE, Reply, Tcp};

/// Connections in all and per client: 16 clients can take them all, as they can with the defaults.
const CONNECTIONS: usize = 64;
const PER_CLIENT: usize = 4;
const CLIENTS: u8 = 16;
/// Others, who want one answer each.
const VICTIMS: u8 = 20;

fn connect(from: Ipv4Addr, to: SocketAddr) -> Tcp {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).expect("connect");
    let stream = TcpStream::from(socket);
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
        ..Limits::default()
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
