//! Two threads that answer clients, each with its own ports towards one server.

use super::*;
use crate::forward::plan::USUAL;

const PORTS: u32 = 8;

/// Reads `queries` from the upstream's socket, and sends each back.
fn echo(far: &std::net::UdpSocket, queries: usize) {
    let mut octets = [0; 8];
    for _ in 0..queries {
        let (length, from) = far.recv_from(&mut octets).unwrap();
        far.send_to(&octets[..length], from).unwrap();
    }
}

/// The flooded one has all ports that there are (L2).
#[tokio::test]
async fn l2_fw10_a_thread_reads_the_replies_to_its_own_queries() {
    const FLOOD: usize = 32;
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), PORTS);
    let flooded = Reading::begin().expect("this thread can wait for many sockets");
    for _ in 0..FLOOD {
        depart(&server.pool, (), |(), id| query(id), |(), _, came: Arrived<'_>| drop(came));
    }
    assert_eq!(flooded.ports(), PORTS as usize);
    let (runtime, pool) = (tokio::runtime::Handle::current(), &server.pool);
    std::thread::scope(|scope| {
        let quiet = scope.spawn(|| {
            let _lookups = runtime.enter();
            let mut reading = Reading::begin().expect("this thread can too");
            let (sender, landed) = std::sync::mpsc::channel();
            let note = move |(), _, came: Arrived<'_>| {
                let is_reply = matches!(came, Arrived::Datagram(..));
                sender.send((is_reply, std::thread::current().id())).unwrap();
            };
            depart(pool, (), |(), id| query(id), note);
            assert_eq!(reading.ports(), 1, "it reads the port from which it asked");
            echo(&far, FLOOD + 1);
            let clients = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            reading.wait(&clients, PATIENCE).unwrap();
            reading.read();
            let here = std::thread::current().id();
            assert_eq!(landed.try_recv(), Ok((true, here)), "no other thread has to run");
            for _ in 0..FLOOD {
                depart(pool, (), |(), id| query(id), |(), _, came: Arrived<'_>| drop(came));
            }
            assert_eq!(reading.ports(), 2, "half of its half");
        });
        quiet.join().expect("it reads its replies");
    });
    assert_eq!(flooded.ports(), PORTS as usize);
}

/// A thread that awaits no reply waits for clients alone, so it would not read the reply to a task at once.
#[tokio::test]
async fn fw10_a_task_opens_ports_beside_those_of_threads_and_draws_among_them() {
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), PORTS);
    let reading = Reading::begin().expect("this thread can wait for many sockets");
    for _ in 0..PORTS {
        depart(&server.pool, (), |(), id| query(id), |(), _, came: Arrived<'_>| drop(came));
    }
    let (pool, runtime) = (Arc::clone(&server.pool), tokio::runtime::Handle::current());
    let sends = move || {
        let _tasks = runtime.enter();
        (0..3).all(|_| send_at(&pool, query, Instant::now()).unwrap().is_some())
    };
    assert!(std::thread::spawn(sends).join().unwrap());
    let few = 2;
    assert_eq!((reading.ports(), server.pool.len()), (PORTS as usize, PORTS as usize + few));
    assert_eq!(upstreams.registry.common.shared_draws(), 1);
}

/// A late reply, of which no query waits, is read by one of the next looks.
#[tokio::test]
async fn fw13_fw53_a_thread_looks_at_its_ports_while_a_reply_to_it_may_come() {
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), 1);
    let mut reading = Reading::begin().expect("this thread can wait for many sockets");
    let clients = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut is_alone = || {
        reading.wait(&clients, Duration::ZERO).unwrap();
        reading.is_alone()
    };
    assert!(is_alone());
    let (sender, landed) = std::sync::mpsc::channel();
    let note = move |(), _, came: Arrived<'_>| {
        let Arrived::Overdue(listening) = came else { panic!("{came:?}") };
        sender.send(listening).unwrap();
    };
    depart(&server.pool, (), |(), id| query(id), note);
    assert!(!is_alone(), "its query waits");
    server.pool.overdue(now() + USUAL.interval);
    let listening = landed.try_recv().expect("a task waits on");
    assert!(!is_alone(), "it still waits");
    drop(listening);
    assert!(is_alone() && server.pool.len() == 1);
}

/// Its place in the set is taken where the set refuses it: then clients must be looked at.
#[tokio::test]
async fn fw10_a_port_of_one_query_leaves_the_set_of_its_thread_when_it_is_closed() {
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for (ports, is_own) in [(8192, true), (1, false)] {
        let (_upstreams, server) = server(far.local_addr().unwrap(), ports);
        let mut reading = Reading::begin().expect("this thread can wait for many sockets");
        let Ok(Drawn::Shared(port)) = server.pool.drawn(now()) else { panic!("it is read here") };
        port.close();
        assert_eq!((port.is_own(), reading.ports()), (is_own, 0));
        let is_in_the_set = reading.wait(port.socket(), Duration::ZERO).unwrap();
        assert_eq!(is_in_the_set, is_own, "of {ports} ports");
    }
}
