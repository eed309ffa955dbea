//! What a batch of replies costs when the caches were emptied before it, as the kernel empties them between two batches: with
//! and without reading ahead. Prints the median of many batches in nanoseconds a reply.

#![allow(dead_code, clippy::print_stdout)]

mod fixture;

use std::hint::black_box;
use std::time::Instant;

use dataplane_core::{AheadRoom, WorkerCounters};

use crate::fixture::{IN_BATCHES, ask, ask_batch, cases, cluster_with_crowd};

const ROUNDS: usize = 800;
/// Octets that are read between two batches.
const EVICTED: [usize; 3] = [0, 1 << 20, 8 << 20];
const BATCHES: [usize; 3] = [1, 8, 32];
fn main() {
    let other: Vec<u64> = vec![1; 1 << 20];
    let own = WorkerCounters::default();
    let mut buffers = vec![vec![0; 4096]; 32];
    let mut room = AheadRoom::new();
    for services in [10_000, 100_000] {
        let index = cluster_with_crowd(services);
        let records = index.records();
        println!(
            "{services} Services; octets evicted, queries a batch: alone -> read ahead, ns a reply"
        );
        for (outcome, questions) in cases(services) {
            if !IN_BATCHES.contains(&outcome) {
                continue;
            }
            let mut turn = 0;
            for evicted in EVICTED {
                for batch in BATCHES {
                    let mut took = [Vec::new(), Vec::new()];
                    for round in 0..ROUNDS * 2 {
                        black_box(other[..evicted / 8].iter().step_by(8).sum::<u64>());
                        let turns = turn..turn + batch;
                        turn += batch;
                        let start = Instant::now();
                        if round % 2 == 1 {
                            ask_batch(&records, &mut room, &questions, &own, &mut buffers, turns);
                        } else {
                            for (turn, buffer) in turns.zip(&mut buffers) {
                                ask(&records, &questions, &own, buffer, turn);
                            }
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
