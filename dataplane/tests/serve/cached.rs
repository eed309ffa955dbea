//! What a cache must not do: show a client what it may not ask (C7), keep anything of ours (C5, CA42), or anything of a
//! group that is gone (CA1).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dataplane::forward::cache::CacheResult;
use dataplane::serve::Limits;
use dataplane::state::Published;

use crate::harness::{
    House, OURS, Reply, THEIRS, Tcp, config, connect_from, objects, query, receive, records,
    service, udp,
};

fn hits(house: &House) -> u64 {
    house.forwarder.cache().outcomes()[CacheResult::Hit as usize]
}

#[test]
fn c7_a_client_that_may_not_ask_gets_nothing_from_the_cache() {
    let house = House::with(&["127.0.0.1:0"], Limits::default(), |config| {
        config.access.clients = vec!["127.0.0.2/32".parse().unwrap()];
    });
    house.upstream.release();
    let mut allowed = Tcp(connect_from("127.0.0.2", house.address()));
    assert_eq!(allowed.ask(1, THEIRS), Reply::theirs(1));
    assert_eq!(allowed.ask(2, THEIRS), Reply::theirs(2));
    assert_eq!(hits(&house), 1, "it is in the cache");
    let refused = |id| Reply { id, rcode: 5, address: None };
    let mut denied = Tcp::connect(house.address());
    assert_eq!(denied.ask(3, THEIRS), refused(3));
    assert_eq!(denied.ask(4, OURS), refused(4));
    let client = udp();
    client.send_to(&query(5, THEIRS), house.address()).unwrap();
    assert_eq!(receive(&client).0, refused(5));
    assert_eq!(hits(&house), 1);
}

#[test]
fn c5_ca42_a_name_of_ours_that_was_absent_is_there_with_the_next_query() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let config = config(house.upstream.address, house.upstream.address);
    let publish = |objects: &[_]| {
        let (records, now) = (records(&config, objects), house.state.published.load_full());
        let upstreams = Arc::clone(&now.upstreams);
        house.state.published.store(Arc::new(Published { records, upstreams }));
    };
    let (name, created) = ("later.shop.svc.cluster.local", [10, 96, 10, 9]);
    let (mut tcp, client) = (Tcp::connect(house.address()), udp());
    let mut both = |id| {
        client.send_to(&query(id, name), house.address()).unwrap();
        (receive(&client).0, tcp.ask(id, name))
    };
    let absent = |id| Reply { id, rcode: 3, address: None };
    for round in 0..3 {
        for id in 0..20 {
            assert_eq!(both(id), (absent(id), absent(id)), "round {round}");
        }
        let mut more = objects().to_vec();
        more.push(service("later", created));
        publish(&more);
        let there = Reply::with(99, created);
        assert_eq!(both(99), (there, Reply::with(99, created)), "round {round}: at once");
        publish(&objects());
    }
    let (cache, nothing) = (house.forwarder.cache(), [0; CacheResult::ALL.len()]);
    assert_eq!((cache.entries(), cache.outcomes()), (0, nothing), "the cache was not even asked");
}

#[test]
fn ca30_what_is_often_asked_for_over_tcp_is_asked_again_before_it_expires() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    house.upstream.release();
    house.forwarder.clock().stop();
    let mut client = Tcp::connect(house.address());
    for id in 1..4 {
        assert_eq!(client.ask(id, THEIRS), Reply::theirs(id));
    }
    // Of its 60 s.
    house.forwarder.clock().advance(Duration::from_secs(55));
    assert_eq!(house.forwarder.resolved(), 1);
    assert_eq!(client.ask(4, THEIRS), Reply::theirs(4));
    house.until("it is asked again", |house| {
        house.forwarder.resolved() == 2 && house.forwarder.lookups() == 0
    });
    house.forwarder.clock().advance(Duration::from_secs(55));
    assert_eq!(client.ask(5, THEIRS), Reply::theirs(5));
    let outcomes = house.forwarder.cache().outcomes();
    assert_eq!(outcomes[CacheResult::Miss as usize], 1, "the client waited once only");
}

#[test]
fn ca1_ca5_what_servers_said_that_are_configured_no_more_leaves_memory_unasked() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    house.upstream.release();
    assert_eq!(Tcp::connect(house.address()).ask(1, THEIRS), Reply::theirs(1));
    let entries = |house: &House| house.forwarder.cache().entries();
    assert_eq!(entries(&house), 1);
    let now = house.state.published.load_full();
    let other = udp().local_addr().unwrap();
    let next = now.upstreams.next(&config(other, other), Path::new(""));
    let (records, upstreams) = (Arc::clone(&now.records), Arc::new(next));
    house.state.published.store(Arc::new(Published { records, upstreams }));
    house.until("its octets are free", |house| entries(house) == 0);
}
