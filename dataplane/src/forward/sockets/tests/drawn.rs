//! What no one can guess of 10,000 queries: the port and the id of each (F5).

use std::collections::HashMap;

use tokio::time::advance;

use super::*;
use crate::forward::ports::POOL;

const QUERIES: usize = 10_000;
/// 200 queries a second: each gets a port of its own at the default bound, although a port rests for 30 s.
const EVERY: Duration = Duration::from_millis(5);
/// Two draws of 64,512 ports are equal once in 64,512 times: 15.98 bits. The promise is 14. Of the 50 million pairs of
/// 10,000 draws 775 are equal, and 940 at this bound: six deviations (28) more.
const LEAST_BITS: f64 = 15.7;
/// Values in a row whose steps are looked at.
const LAGS: usize = 8;
/// Draws within which few values come again: 9.5 million pairs are so near, of which 147 are equal, within six
/// deviations (12).
const NEAR: usize = 1_000;
const NEAR_EQUAL: std::ops::RangeInclusive<usize> = 75..=220;

/// The bits of collision entropy: how often two values are equal. Shannon's entropy is never less, and 10,000 values are
/// too few to see it.
fn bits(values: &[u16]) -> f64 {
    let mut times: HashMap<u16, usize> = HashMap::new();
    values.iter().for_each(|value| *times.entry(*value).or_default() += 1);
    let equal: usize = times.values().map(|times| times * (times - 1) / 2).sum();
    let pairs = values.len() * (values.len() - 1) / 2;
    (pairs as f64 / equal as f64).log2()
}

/// Pairs of equal values, the second of which is within this number of draws.
fn equal_within(draws: usize, values: &[u16]) -> usize {
    let mut places: HashMap<u16, Vec<usize>> = HashMap::new();
    let mut equal = 0;
    for (at, value) in values.iter().enumerate() {
        let places = places.entry(*value).or_default();
        equal += places.iter().filter(|earlier| at - **earlier <= draws).count();
        places.push(at);
    }
    equal
}

/// Ports and ids of queries that leave so often, and how many of them shared a port, where this many may be in use.
async fn drawn(bound: usize, every: Duration) -> (Vec<u16>, Vec<u16>, u64) {
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let (upstreams, server) = server(far.local_addr().unwrap(), 1);
    // However few files may be open here: most of these ports are closed, and rest.
    let common = &upstreams.registry.common;
    common.ports().configure(bound, std::iter::once(server.pool.server));
    let (mut ports, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..QUERIES {
        let exchange = send(&server.pool, query).unwrap().unwrap();
        let mut octets = [0; 8];
        let (_, from) = far.recv_from(&mut octets).unwrap();
        assert_eq!(octets[..2], exchange.id().to_be_bytes());
        ports.push(from.port());
        ids.push(exchange.id());
        drop(exchange);
        advance(every).await;
    }
    (ports, ids, common.shared_draws())
}

#[tokio::test(start_paused = true)]
async fn f5_ports_and_ids_of_ten_thousand_queries_have_no_pattern() {
    let bound = Config::default().limits.upstream_ports as usize;
    let (ports, ids, shared) = drawn(bound, EVERY).await;
    assert_eq!(shared, 0, "each had a port of its own");
    for (what, values) in [("ports", ports), ("ids", ids)] {
        let drawn = bits(&values);
        assert!(drawn >= LEAST_BITS, "{what}: {drawn:.2} bits");
        // Who knows the last values knows nothing about the next: the steps between them are as hard to guess.
        for lag in 1..=LAGS {
            let pairs = values.iter().zip(&values[lag..]);
            let steps: Vec<u16> =
                pairs.map(|(earlier, later)| later.wrapping_sub(*earlier)).collect();
            let step = bits(&steps);
            assert!(step >= LEAST_BITS, "{what}: {step:.2} bits in steps over {lag}");
        }
        let near = equal_within(NEAR, &values);
        assert!(NEAR_EQUAL.contains(&near), "{what}: {near} come again within {NEAR} draws");
    }
}

#[tokio::test(start_paused = true)]
async fn f5_queries_that_share_ports_draw_among_all_of_them_and_have_ids_as_before() {
    let (ports, ids, shared) = drawn(POOL, EVERY).await;
    assert_eq!(shared, (QUERIES - POOL) as u64);
    // 10 bits: of the 50 million pairs 48,800 are equal, and 52,300 at this bound: fifteen deviations (221) more.
    assert!(bits(&ports) >= 9.9, "{:.2} bits", bits(&ports));
    assert!(bits(&ids) >= LEAST_BITS, "{:.2} bits", bits(&ids));
}

/// A burst has fewer ports for one query each than there could be, and no fewer to draw from.
#[tokio::test(start_paused = true)]
async fn f5_fw10_queries_of_a_flood_draw_among_as_many_ports() {
    let bound = Config::default().limits.upstream_ports as usize;
    let (ports, ids, shared) = drawn(bound, Duration::ZERO).await;
    assert_eq!(shared, (QUERIES - 512 - POOL) as u64);
    let (fresh, drawn) = ports.split_at(512 + POOL);
    assert!(bits(fresh) >= 14.0, "{:.2} bits", bits(fresh));
    assert!(bits(drawn) >= 9.9, "{:.2} bits", bits(drawn));
    assert!(bits(&ids) >= LEAST_BITS, "{:.2} bits", bits(&ids));
}
