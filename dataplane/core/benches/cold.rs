//! What a batch of replies costs when the caches were emptied before it, as the kernel empties them between two batches: with
//! and without reading ahead. Prints the median of many batches in nanoseconds a reply.

#![allow(dead_code, clippy::print_stdout)]

mod fixture;

use std::hint::black_box;
use std::time::Instant;

use dataplane_core::{WorkerCounters, read_ahead};

use crate::fixture::{ask, cases, cluster_with_crowd};

const ROUNDS: usize = 800;
/// Octets that are read between two batches.
const EVICTED: [usize; 3] = [0, 1 << 20, 8 << 20];
const BATCHES: [usize; 3] = [1, 8, 32];
const OUTCOMES: [&str; 8] = [
    "found_cluster_ip",
    "found_headless_10",
    "found_srv",
    "found_ptr_cluster_ip",
    "found_ptr_endpoint",
    "no_data",
    "nx_domain_service",
    "forward",
];

fn main() {
    let other: Vec<u64> = vec![1; 1 << 20];
    let own = WorkerCounters::default();
    let mut buffers = vec![[0; 4096]; 32];
    for services in [10_000, 100_000] {
        let index = cluster_with_crowd(services);
        let records = index.records();
        println!(
            "{services} Services; octets evicted, queries a batch: alone -> read ahead, ns a reply"
        );
        for (outcome, questions) in cases(services) {
            if !OUTCOMES.contains(&outcome) {
                continue;
            }
            let mut turn = 0;
            for evicted in EVICTED {
                for batch in BATCHES {
                    let mut took = [Vec::new(), Vec::new()];
                    for round in 0..ROUNDS * 2 {
                        black_box(other[..evicted / 8].iter().step_by(8).sum::<u64>());
                        let first = turn + 1;
                        let start = Instant::now();
                        if round % 2 == 1 {
                            read_ahead(&records, (0..batch).map(|n| questions.packet(first + n)));
                        }
                        for buffer in &mut buffers[..batch] {
                            turn += 1;
                            ask(&records, &questions, &own, buffer, turn);
                        }
                        took[round % 2].push(start.elapsed().as_nanos() as usize / batch);
                    }
                    let [alone, ahead] = took.map(|mut all| {
                        all.sort_unstable();
                        all[all.len() / 2]
                    });
                    println!("{outcome:22} {evicted:8} {batch:3}: {alone:5} -> {ahead:5}");
                }
            }
        }
    }
}
