//! What one reply costs by outcome, what one changed slice costs, and what an endpoint weighs, at
//! 10,000 Services with ten endpoints each. Benchmarks report; tests assert.

#![allow(dead_code, clippy::print_stderr)]

mod fixture;

use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use dataplane_core::{Change, Object, Records, Slice, WorkerCounters};

use crate::fixture::{ENDPOINTS_PER_SERVICE, ask, cases, cluster, cluster_with_crowd, slice};

fn by_outcome(c: &mut Criterion) {
    let index = cluster_with_crowd(10_000);
    let records: Arc<Records> = index.records();
    let own = WorkerCounters::default();
    let mut buffer = vec![0; 4096];
    for (outcome, questions) in cases(10_000) {
        let mut turn = 0;
        c.bench_function(outcome, |b| {
            b.iter(|| {
                turn += 1;
                ask(&records, &questions, &own, &mut buffer, turn)
            })
        });
    }
}

fn one_changed_slice(c: &mut Criterion) {
    for services in [1_000, 10_000, 100_000] {
        let mut index = cluster(services);
        let (mut turn, mut shift) = (0, 0);
        c.bench_function(&format!("changed_slice_of_{services}_services"), |b| {
            b.iter_batched(
                || {
                    turn = (turn + 7_919) % services;
                    shift += 1;
                    Slice { version: shift as u64 + 2, ..slice(turn, shift % 2 + 1) }
                },
                |slice| {
                    index.apply(Change::Apply(Object::Slice(slice)));
                    index.publish(1_760_000_000)
                },
                criterion::BatchSize::SmallInput,
            );
        });
    }
}

fn memory(_: &mut Criterion) {
    for services in [1_000, 10_000, 100_000] {
        let mut held = None;
        let info = allocation_counter::measure(|| held = Some(cluster(services)));
        let endpoints = services * ENDPOINTS_PER_SERVICE;
        eprintln!(
            "memory: {services} Services, {endpoints} endpoints: {} octets per endpoint, {:.1} MiB in all",
            info.bytes_current / endpoints as i64,
            info.bytes_current as f64 / f64::from(1 << 20),
        );
        drop(held);
    }
}

criterion_group!(benches, memory, by_outcome, one_changed_slice);
criterion_main!(benches);
