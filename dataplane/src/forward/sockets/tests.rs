//! Sockets against a server on loopback that answers what the test says.

mod cut_off;
mod drawn;
mod emptied;
mod looked_after;
mod refused;
mod threads;

use std::collections::BTreeSet;
use std::path::Path;

use crds::config::{self, Config, Group, GroupOptions};
use dataplane_core::Discard;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::asked::{Asked, Asker, By, LATE, MAX_ANSWERED, MAX_ENDED};
use super::*;
use crate::forward::ports::REST;
use crate::forward::server::Server;
use crate::forward::upstreams::Upstreams;

/// A bound, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(30);

const MILLISECOND: Duration = Duration::from_millis(1);

/// Servers at these addresses, with this many ports for all of them.
fn upstreams(addresses: &[SocketAddr], ports: u32) -> Upstreams {
    let transport = config::Transport::Udp;
    let server = |address: &SocketAddr| config::Server {
        ip: address.ip(),
        port: address.port(),
        transport,
        tls: None,
    };
    let servers = addresses.iter().map(server).collect();
    let group = Group { servers, options: GroupOptions::default() };
    let mut config = Config { upstreams: config::Upstreams::Servers(group), ..Config::default() };
    config.limits.upstream_ports = ports;
    Upstreams::of(&config, Path::new(""))
}

/// A server at this address, with this many ports for all of it.
fn server(address: SocketAddr, ports: u32) -> (Upstreams, Arc<Server>) {
    let upstreams = upstreams(&[address], ports);
    let server = Arc::clone(&upstreams.known()[0]);
    (upstreams, server)
}

/// One of its open ports.
fn open_port(pool: &Pool) -> Arc<Port> {
    pool.open().all().next().map(Arc::clone).expect("one is open")
}

fn query(id: u16) -> Vec<u8> {
    [&id.to_be_bytes()[..], b"?"].concat()
}

async fn next(exchange: &mut Exchange) -> Arrival {
    tokio::time::timeout(PATIENCE, exchange.next()).await.expect("something arrives")
}

#[tokio::test]
async fn fw21_a_closed_port_is_noticed_without_waiting_for_a_reply() {
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for ports in [8192, 1] {
        let (_upstreams, server) = server(closed, ports);
        let mut exchange = send(&server.pool, query).unwrap().unwrap();
        assert!(matches!(next(&mut exchange).await, Arrival::Failed), "of {ports} ports");
    }
}

#[tokio::test]
async fn fw10_at_the_bound_queries_share_ports_and_get_their_own_replies() {
    const QUERIES: usize = 64;
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), 8);
    let mut exchanges: Vec<Exchange> =
        (0..QUERIES).map(|_| send(&server.pool, query).unwrap().unwrap()).collect();
    let mut asked = Vec::new();
    for _ in 0..QUERIES {
        let mut octets = [0; 8];
        let (length, from) = far.recv_from(&mut octets).await.unwrap();
        asked.push((octets[..length].to_vec(), from));
    }
    let ports: BTreeSet<SocketAddr> = asked.iter().map(|(_, from)| *from).collect();
    assert_eq!(ports.len(), 8);
    assert_eq!(upstreams.registry.common.shared_draws(), QUERIES as u64 - 8);
    assert_eq!(upstreams.registry.common.ports().total(), 8);
    for (octets, from) in asked.iter().rev() {
        far.send_to(octets, from).await.unwrap();
    }
    for exchange in &mut exchanges {
        let expected = query(exchange.id());
        assert!(matches!(next(exchange).await, Arrival::Datagram(octets) if octets == expected));
    }
}

#[tokio::test]
async fn fw10_an_edit_that_makes_its_part_smaller_leaves_a_server_ports_to_be_asked_from() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), 2048);
    let start = now();
    for query_number in 0..900 {
        let at = start + Duration::from_millis(30) * query_number;
        drop(send_at(&server.pool, query, at).unwrap().unwrap());
    }
    assert_eq!(server.pool.len(), 0, "each had a socket of its own, and its port rests");
    let common = &upstreams.registry.common;
    // A lower bound, and a second server, which has the same part.
    common.ports().configure(1024, [server.pool.server, u32::MAX].into_iter());
    for _ in 0..100 {
        assert!(send(&server.pool, query).unwrap().is_some(), "{} ports", common.ports().total());
    }
    assert!(server.pool.len() > 0);
}

#[tokio::test]
async fn fw13_a_stray_datagram_on_a_shared_port_is_counted_once_and_known_to_all() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), 1);
    let mut exchanges: Vec<Exchange> =
        (0..3).map(|_| send(&server.pool, query).unwrap().unwrap()).collect();
    let (_, from) = far.recv_from(&mut [0; 8]).await.unwrap();
    let ids: BTreeSet<u16> = exchanges.iter().map(Exchange::id).collect();
    assert_eq!(ids.len(), 3, "each its own id");
    let stray = (0..=u16::MAX).find(|id| !ids.contains(id)).unwrap();
    far.send_to(&query(stray), from).await.unwrap();
    for exchange in &mut exchanges {
        assert!(matches!(next(exchange).await, Arrival::Stray));
    }
    assert_eq!(upstreams.discarded(Discard::Id), 1);
}

/// Sends this three times, and then the reply to another query of the port: that one arrives, and nothing is counted.
async fn disturbs_no_other(
    far: &UdpSocket,
    from: SocketAddr,
    datagram: &[u8],
    other: &mut Exchange,
    upstreams: &Upstreams,
) {
    for _ in 0..3 {
        far.send_to(datagram, from).await.unwrap();
    }
    far.send_to(&query(other.id()), from).await.unwrap();
    let arrived = next(other).await;
    assert!(
        matches!(&arrived, Arrival::Datagram(octets) if *octets == query(other.id())),
        "{arrived:?}"
    );
    assert_eq!(upstreams.discarded(Discard::Id), 0);
}

#[tokio::test]
async fn fw13_a_late_reply_on_a_shared_port_disturbs_no_other_query() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), 1);
    let ended = send(&server.pool, query).unwrap().unwrap();
    let late = ended.id();
    let mut other = send(&server.pool, query).unwrap().unwrap();
    let (_, from) = far.recv_from(&mut [0; 8]).await.unwrap();
    drop(ended);
    disturbs_no_other(&far, from, &query(late), &mut other, &upstreams).await;
    // Much later nothing waits for such a reply.
    let port = open_port(&server.pool);
    let mut asked = port.asked.lock().unwrap();
    asked.forget(now() + Duration::from_secs(12));
    assert!(asked.had(late), "a server gives up its name after ten seconds");
    asked.forget(now() + LATE);
    assert!(!asked.had(late));
    for id in 0..2_000 {
        let (arrivals, _) = mpsc::channel(1);
        let is_answered = id % 2 == 0;
        asked.waiting.insert(id, Asker { by: By::Task(arrivals), is_answered, _awaits: None });
        asked.end(id, now);
    }
    assert_eq!((asked.ended.len(), asked.answered.len()), (MAX_ENDED, MAX_ANSWERED));
}

/// The network, or a server behind several addresses, may send a reply twice.
#[tokio::test]
async fn fw13_a_second_reply_on_a_shared_port_disturbs_no_other_query() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), 1);
    let mut answered = send(&server.pool, query).unwrap().unwrap();
    let mut other = send(&server.pool, query).unwrap().unwrap();
    let (_, from) = far.recv_from(&mut [0; 8]).await.unwrap();
    let reply = query(answered.id());
    far.send_to(&reply, from).await.unwrap();
    assert!(matches!(next(&mut answered).await, Arrival::Datagram(octets) if octets == reply));
    drop(answered);
    disturbs_no_other(&far, from, &reply, &mut other, &upstreams).await;
}

#[test]
fn fw10_a_want_of_descriptors_or_memory_says_nothing_of_a_server() {
    for code in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EAGAIN] {
        assert!(is_ours(&io::Error::from_raw_os_error(code)), "{code}");
    }
    for code in [libc::ECONNREFUSED, libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EPERM] {
        assert!(!is_ours(&io::Error::from_raw_os_error(code)), "{code}");
    }
}

/// What a machine says on which IPv6 is off.
#[test]
fn fw21_no_address_of_the_family_is_no_want_of_ports() {
    for code in [libc::EADDRNOTAVAIL, libc::ENETUNREACH] {
        let error = unreachable(io::Error::from_raw_os_error(code));
        assert!(!is_ours(&error), "{error}");
    }
    let error = unreachable(io::Error::from_raw_os_error(libc::EMFILE));
    assert!(is_ours(&error), "{error}");
}

#[tokio::test]
async fn fw10_queries_that_cannot_be_sent_leave_nothing_behind() {
    const QUERIES: usize = 500;
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), 8192);
    let reading = Reading::begin().expect("this system can");
    let (sender, mut ends) = mpsc::unbounded_channel();
    for _ in 0..QUERIES {
        let sender = sender.clone();
        let landed = move |(), _, came: Arrived<'_>| {
            sender.send(matches!(came, Arrived::Failed)).unwrap();
        };
        // Longer than any datagram.
        depart(&server.pool, (), |(), _| vec![0; 70_000], landed);
        assert!(ends.try_recv().unwrap(), "it failed at once");
    }
    assert_eq!(reading.ports(), 0);
    let kept = server.pool.own_ports().len();
    assert!(kept < 64, "{kept} of {QUERIES} closed ports are remembered");
}

#[tokio::test]
async fn fw53_clients_are_looked_at_though_the_system_cannot_wait_for_them() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), 1);
    let mut reading = Reading::begin().expect("this system can");
    depart(&server.pool, (), |(), id| query(id), |(), _, came: Arrived<'_>| drop(came));
    let port = open_port(&server.pool);
    // Its place in the set is taken, so that the clients' socket is refused as it is without memory.
    assert!(reading.wait(port.socket(), Duration::ZERO).unwrap());
    let clients = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(!reading.wait(&clients, Duration::ZERO).unwrap(), "it takes this one");
}

#[tokio::test]
async fn fw10_a_pooled_socket_is_closed_when_it_was_not_used_for_thirty_seconds() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), 2);
    let exchange = send(&server.pool, query).unwrap().unwrap();
    let start = now();
    server.pool.sweep(start + MAX_AGE);
    assert_eq!(server.pool.len(), 1, "a query waits on it");
    drop(exchange);
    server.pool.sweep(start + REST / 2);
    assert_eq!(server.pool.len(), 1, "it was used");
    server.pool.sweep(start + 2 * REST);
    assert_eq!(server.pool.len(), 0);
}

#[tokio::test]
async fn fw53_no_query_waits_while_old_sockets_are_closed() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), 2);
    drop(send(&server.pool, query).unwrap().unwrap());
    let (pool, (closed, closes)) = (Arc::clone(&server.pool), std::sync::mpsc::channel());
    let is_free = move || closed.send(pool.common.has_free_ports() && pool.open.try_lock().is_ok());
    open_port(&server.pool).at_end(move || is_free().unwrap());
    server.pool.sweep(now() + MAX_AGE);
    assert!(closes.try_recv().expect("it is closed"), "the locks of all sockets are free");
}

#[tokio::test]
async fn fw10_a_port_is_left_to_draw_from_while_old_ones_rest() {
    const SERVERS: usize = 4;
    let mut far = Vec::new();
    for _ in 0..SERVERS {
        far.push(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    }
    let addresses: Vec<_> = far.iter().map(|far| far.local_addr().unwrap()).collect();
    let upstreams = upstreams(&addresses, 64);
    let start = now();
    for second in 0..1000 {
        let now = start + Duration::from_secs(second);
        for server in upstreams.known() {
            for _ in 0..20 {
                let sent = send_at(&server.pool, query, now).unwrap();
                assert!(sent.is_some(), "no port in second {second}");
            }
            server.pool.sweep(now);
            let oldest = server.pool.open().all().next().map_or(now, |port| port.opened);
            assert!(now - oldest <= MAX_AGE + 3 * REST, "every port is closed in the end");
        }
        // Sockets close with the tasks that read them.
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn fw10_a_server_that_is_gone_gives_its_ports_back() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), 2);
    let common = Arc::clone(&upstreams.registry.common);
    for _ in 0..2 {
        drop(send(&server.pool, query).unwrap().unwrap());
    }
    let port = Arc::downgrade(&open_port(&server.pool));
    drop((upstreams, server));
    common.ports().free(0, now() + REST);
    assert_eq!(common.ports().total(), 0);
    tokio::task::yield_now().await;
    assert!(port.upgrade().is_none(), "no one reads it any more");
}

#[tokio::test]
async fn fw12_an_id_is_taken_while_its_datagram_is_judged() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (_upstreams, server) = server(far.local_addr().unwrap(), 1);
    let (judged, mut judgements) = mpsc::unbounded_channel();
    let pool = Arc::clone(&server.pool);
    let landed = move |(), id, arrived: Arrived<'_>| {
        let Arrived::Datagram(_, place) = arrived else { panic!("{arrived:?}") };
        let is_taken = || open_port(&pool).asked.lock().unwrap().waiting.contains_key(&id);
        let mut taken = vec![is_taken()];
        let exchange = place.listen();
        taken.push(is_taken());
        drop(exchange);
        taken.push(is_taken());
        judged.send(taken).unwrap();
    };
    let left = depart(&server.pool, (), |(), id| query(id), landed);
    assert!(matches!(left, Departed::Shared));
    let mut octets = [0; 8];
    let (length, from) = far.recv_from(&mut octets).await.unwrap();
    far.send_to(&octets[..length], from).await.unwrap();
    let taken = tokio::time::timeout(PATIENCE, judgements.recv()).await.expect("it is judged");
    assert_eq!(taken.unwrap(), [true, true, false]);
    // A reply that is believed frees the port at once: no other reply is waited for.
    let landed = move |(), _, arrived: Arrived<'_>| drop(arrived);
    depart(&server.pool, (), |(), id| query(id), landed);
    let (length, from) = far.recv_from(&mut octets).await.unwrap();
    far.send_to(&octets[..length], from).await.unwrap();
    let port = open_port(&server.pool);
    let is_free = async {
        while !port.asked.lock().unwrap().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, is_free).await.expect("its id is free");
}

#[test]
fn f8_an_id_whose_reply_may_still_come_is_not_drawn_again() {
    let start = now();
    let mut asked = Asked::<()>::new(start, false, std::sync::Weak::new());
    let ended: BTreeSet<u16> = (0..MAX_ENDED as u16).collect();
    ended.iter().for_each(|id| asked.note_ended(*id, start));
    // Each is drawn once in 65,536 times where it is free.
    let mut drawn_again = |at| {
        let ids = (0..10_000).map(|_| asked.draw(at).expect("nothing waits"));
        ids.filter(|id| ended.contains(id)).count()
    };
    assert_eq!(drawn_again(start + LATE - Duration::from_millis(1)), 0);
    assert!(drawn_again(start + LATE) > 0, "they are free again");
}
