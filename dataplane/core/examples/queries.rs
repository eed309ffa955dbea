//! Answers questions of one outcome (or of all) again and again and prints the shortest time a reply
//! took in any round: what to look at on a machine that others use too, and what to put a profiler on.
//!
//! `queries [OUTCOME|all] [ROUNDS] [SERVICES]`

#![allow(clippy::print_stdout)]

#[allow(dead_code)]
#[path = "../benches/fixture/mod.rs"]
mod fixture;

use std::time::Instant;

/// Replies of one round: some milliseconds, which often pass without a neighbour's interruption.
const ROUND: usize = 10_000;

fn main() {
    let mut args = std::env::args().skip(1);
    let wanted = args.next().unwrap_or_else(|| "all".into());
    let mut number = |default| args.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (rounds, services) = (number(200), number(10_000));
    let records = fixture::cluster_with_crowd(services).records();
    let own = dataplane_core::WorkerCounters::default();
    let mut buffer = vec![0; 4096];
    for (outcome, questions) in fixture::cases(services) {
        if wanted != "all" && wanted != outcome {
            continue;
        }
        let mut shortest_ns = u128::MAX;
        for _ in 0..rounds {
            let start = Instant::now();
            for turn in 0..ROUND {
                fixture::ask(&records, &questions, &own, &mut buffer, turn);
            }
            shortest_ns = shortest_ns.min(start.elapsed().as_nanos());
        }
        println!("{outcome:22} {:6.1} ns", shortest_ns as f64 / ROUND as f64);
    }
}
