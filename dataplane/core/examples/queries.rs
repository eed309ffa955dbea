//! Answers a given number of queries of one outcome and ends: what an instruction counter is put on.
//!
//! `valgrind --tool=callgrind target/release/examples/queries found_cluster_ip 120000`; the
//! difference to a run with fewer queries is the price of a reply, exact and repeatable.

#[allow(dead_code)]
#[path = "../benches/fixture/mod.rs"]
mod fixture;

fn main() {
    let mut args = std::env::args().skip(1);
    let outcome = args.next().unwrap_or_else(|| "found_cluster_ip".into());
    let count: usize = args.next().and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let cases = fixture::cases();
    let Some((_, packets)) = cases.into_iter().find(|(name, _)| *name == outcome) else {
        panic!("no outcome is called {outcome}; see benches/fixture");
    };
    let records = fixture::cluster(10_000).records();
    let own = dataplane_core::WorkerCounters::default();
    let (mut buffer, mut turn) = (vec![0; 4096], 0);
    for _ in 0..count {
        fixture::ask(&records, &packets, &own, &mut buffer, &mut turn);
    }
}
