//! Clients that ask for more than there is (L2, L4, T10): what the others get, by counts and not by times.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use crds::config::Upstreams;
use dataplane::forward::Limit;
use dataplane::serve::Limits;

use crate::harness::{House, OURS, PATIENCE, Reply, Tcp, query, receive};

const PLACES: u32 = 128;
const OF_A_CLIENT: u32 = 32;
/// Clients beside the one that takes all it can get.
const VICTIMS: u8 = 50;
const TCP_QUERIES: u16 = 200;
/// Places of one stub domain, and clients that ask for random names below it.
const BELOW: u32 = 200;
const ATTACKERS: u8 = 250;

fn client(address: [u8; 4]) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::from(address), 0))).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Every other client gets a name of ours, and its name of others, whose server answers at once.
fn others_are_answered(house: &House, theirs: impl Fn(u8) -> String) {
    for number in 1..=VICTIMS {
        let victim = client([127, 0, 7, number]);
        let ask = |id, name| {
            victim.send_to(&query(id, name), house.address()).unwrap();
            receive(&victim).0
        };
        assert_eq!(ask(1, OURS), Reply::ours(1), "victim {number}");
        assert_eq!(ask(2, &theirs(number)), Reply::theirs(2), "victim {number}");
    }
    assert_eq!(house.forwarder.limited(Limit::Total), 0);
}

#[test]
fn l2_one_client_that_floods_upstreams_takes_no_place_of_others() {
    let house = House::with(&["127.0.0.1:0"], Limits::default(), |config| {
        config.limits.in_flight = PLACES;
        config.limits.in_flight_per_client = OF_A_CLIENT;
    });
    // Nothing of it is answered, and each name is another one: every query needs a place.
    let flood = client([127, 0, 6, 1]);
    let refused = || house.forwarder.limited(Limit::Client);
    // Some at a time, as the queue of the socket is short.
    let numbers = RefCell::new(0..u16::MAX);
    house.until("it has its share, and much more is refused", |house| {
        for number in numbers.borrow_mut().by_ref().take(50) {
            let asked = query(number, &format!("n{number}.example.org"));
            flood.send_to(&asked, house.address()).unwrap();
        }
        refused() >= 400
    });
    assert_eq!(house.forwarder.limited(Limit::Total), 0);
    // Theirs are of a stub domain.
    others_are_answered(&house, |number| format!("wiki-{number}.corp.example"));
}

#[test]
fn l4_l16_random_names_below_a_silent_stub_domain_take_the_places_of_its_group_only() {
    let house = House::with(&["127.0.0.1:0"], Limits::default(), |config| {
        let Upstreams::Servers(default) = &mut config.upstreams else { panic!("servers") };
        let stub_domain = &mut config.stub_domains[0].group;
        // The server that answers nothing is that of the stub domain.
        std::mem::swap(&mut stub_domain.servers, &mut default.servers);
        stub_domain.options.limits.in_flight = BELOW;
    });
    let attackers: Vec<UdpSocket> = (1..=ATTACKERS).map(|last| client([127, 0, 9, last])).collect();
    let names = RefCell::new(0..u16::MAX);
    house.until("its group is full, and much more is refused", |house| {
        for (attacker, number) in attackers.iter().zip(names.borrow_mut().by_ref()) {
            let asked = query(number, &format!("n{number}.corp.example"));
            attacker.send_to(&asked, house.address()).unwrap();
        }
        house.forwarder.limited(Limit::Group) >= 400
    });
    assert!(house.forwarder.in_flight() <= BELOW as usize, "{}", house.forwarder.in_flight());
    others_are_answered(&house, |number| format!("n{number}.example.org"));
}

#[test]
fn t10_queries_over_tcp_are_answered_while_the_kernel_drops_those_over_udp() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let (drops, stop) = (|| house.serving.counters().udp_drops(), AtomicBool::new(false));
    let server = house.address();
    std::thread::scope(|scope| {
        for number in 1..=3 {
            let stop = &stop;
            scope.spawn(move || {
                let flood = client([127, 0, 8, number]);
                flood.set_nonblocking(true).unwrap();
                let packet = query(1, OURS);
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..64 {
                        let _ = flood.send_to(&packet, server);
                    }
                }
            });
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            house.until("its queue is full", |_| drops() > 0);
            let (before, mut tcp) = (drops(), Tcp::connect(server));
            for id in 0..TCP_QUERIES {
                assert_eq!(tcp.ask(id, OURS), Reply::ours(id));
            }
            // It was full while they were answered.
            house.until("more is dropped", |_| drops() > before);
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}
