//! Changes of slices in a real API server: one after the other, each timed until its answer, and many at a rate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{Cluster, ask, patch_endpoints, patch_slice};

/// Writes in progress.
const AT_A_TIME: usize = 32;

/// One write of a slice, made beforehand.
#[derive(Clone, Debug)]
pub struct Write {
    pub namespace: String,
    pub slice: String,
    pub endpoints: Vec<Value>,
}

impl Write {
    /// Moves the first endpoint of a Service, and writes all of its slice.
    pub fn moving(cluster: &mut Cluster, service: usize) -> Write {
        cluster.move_first(service);
        Write {
            namespace: cluster.namespace(service),
            slice: cluster.slice_name(service),
            endpoints: cluster.endpoint_objects(service),
        }
    }
}

/// How long timed changes took.
#[derive(Clone, Debug, Default)]
pub struct Propagation {
    /// From the request to the right answer.
    pub from_request: Vec<Duration>,
    /// From the reply of the API server to the right answer; none where the answer was there first.
    pub from_reply: Vec<Duration>,
}

/// Moves the first endpoints of these Services, one change after the other, and asks this server until each is answered.
///
/// # Panics
/// The API server refuses a change, or it is never answered.
pub async fn propagation(
    client: &Client,
    cluster: &mut Cluster,
    server: SocketAddr,
    services: &[usize],
    count: usize,
) -> Propagation {
    let mut all = Propagation::default();
    for number in 0..count {
        let service = services[number * 7 % services.len()];
        let address = cluster.move_first(service);
        let packet = ask::a(&cluster.below_svc(service));
        let asking = tokio::task::spawn_blocking(move || ask::until(server, &packet, address));
        let begun = Instant::now();
        patch_slice(client, cluster, service).await;
        let replied = Instant::now();
        let seen = asking.await.expect("it is answered in time");
        all.from_request.push(seen.saturating_duration_since(begun));
        all.from_reply.push(seen.saturating_duration_since(replied));
    }
    all
}

/// Writes these, this many a second, or as fast as the API server takes them.
///
/// # Panics
/// The API server refuses one.
pub async fn write_at(client: Client, writes: impl IntoIterator<Item = Write>, rate: usize) {
    let places = Arc::new(Semaphore::new(AT_A_TIME));
    let begun = Instant::now();
    for (number, write) in writes.into_iter().enumerate() {
        let due = Duration::from_secs_f64(number as f64 / rate as f64);
        tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
        let place = places.clone().acquire_owned().await.expect("it is never closed");
        let client = client.clone();
        tokio::spawn(async move {
            patch_endpoints(&client, &write.namespace, &write.slice, &write.endpoints).await;
            drop(place);
        });
    }
    let _ = places.acquire_many(AT_A_TIME as u32).await.expect("it is never closed");
}
