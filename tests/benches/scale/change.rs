//! From the write of one slice to the first right answer, at rest and while others are written, and what a change
//! takes of the data plane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::Value;
use tests::data_plane::DataPlane;
use tests::scale::{Cluster, patch_endpoints, patch_slice};
use tokio::sync::Semaphore;

use crate::ask;
use crate::table::{Spread, row};

/// Changes that are timed, one after the other.
const TIMED: usize = 500;
const TIMED_UNDER_LOAD: usize = 100;
/// Changes a second. The second is more than most API servers of two cores take: the rate it reaches is printed.
const RATE: usize = 100;
const RATES: [usize; 2] = [RATE, 1_000];
const SECONDS: usize = 10;
/// Writes in progress.
const AT_A_TIME: usize = 32;

/// One write of a slice, made beforehand.
pub(crate) struct Write {
    pub(crate) namespace: String,
    pub(crate) slice: String,
    pub(crate) endpoints: Vec<Value>,
}

pub(crate) async fn measure(client: &Client, cluster: &mut Cluster, server: &DataPlane) {
    // Some changes are timed; the others are the load beside them.
    let headless: Vec<usize> = cluster.headless().collect();
    let (timed, load) = headless.split_at(headless.len() / 3);
    let one_by_one = propagation(client, cluster, server, timed, TIMED).await;
    one_by_one.print("at rest", "p99 2 ms beyond the reply");
    // Nothing is asked meanwhile, so that only changes are measured.
    for rate in RATES {
        let writes = writes(cluster, load, rate);
        let (count, cpu, begun) = (writes.len(), server.usage().cpu(), Instant::now());
        let before = Visible::of(server);
        write_at(client.clone(), writes, rate).await;
        let (cpu, seconds) = (server.usage().cpu() - cpu, begun.elapsed().as_secs_f64());
        let share = cpu.as_secs_f64() / seconds * 100.0;
        let each = cpu.as_secs_f64() / count as f64 * 1e6;
        let what = format!("{:.0} changes a second", count as f64 / seconds);
        row(&format!("processor at {what}"), &format!("{share:.1} %, {each:.0} us each"), "");
        let mean = Visible::of(server).mean_since(before);
        row("  events received to visible, mean", &format!("{:.0} us", mean * 1e6), "");
    }
    let writing = tokio::spawn(write_at(client.clone(), writes(cluster, load, RATE), RATE));
    let beside = propagation(client, cluster, server, timed, TIMED_UNDER_LOAD).await;
    writing.await.expect("every change is taken");
    beside.print(&format!("beside {RATE} a second"), "");
}

/// Changes for some seconds at this rate, of one Service after the other.
fn writes(cluster: &mut Cluster, services: &[usize], rate: usize) -> Vec<Write> {
    (0..rate * SECONDS)
        .map(|number| {
            let service = services[number % services.len()];
            cluster.move_first(service);
            Write {
                namespace: cluster.namespace(service),
                slice: cluster.slice_name(service),
                endpoints: cluster.endpoint_objects(service),
            }
        })
        .collect()
}

/// The time from an event to its effect, as the data plane measures it (E53).
#[derive(Clone, Copy)]
struct Visible {
    seconds: f64,
    events: f64,
}

impl Visible {
    fn of(server: &DataPlane) -> Visible {
        let read = |end: &str| {
            server.metric(&format!("clusterdns_event_to_visible_seconds_{end}")).unwrap_or(0.0)
        };
        Visible { seconds: read("sum"), events: read("count") }
    }

    fn mean_since(self, before: Visible) -> f64 {
        (self.seconds - before.seconds) / (self.events - before.events).max(1.0)
    }
}

/// Times of changes that were made one after the other.
pub(crate) struct Propagation {
    from_request: Vec<Duration>,
    from_reply: Vec<Duration>,
}

impl Propagation {
    fn print(self, when: &str, wanted: &str) {
        row(&format!("write to answer {when}"), &Spread::of(self.from_request).text(), "");
        row("  beyond the API server's reply", &Spread::of(self.from_reply).text(), wanted);
    }
}

async fn propagation(
    client: &Client,
    cluster: &mut Cluster,
    server: &DataPlane,
    services: &[usize],
    count: usize,
) -> Propagation {
    let mut all = Propagation { from_request: Vec::new(), from_reply: Vec::new() };
    for number in 0..count {
        let service = services[number * 7 % services.len()];
        let address = cluster.move_first(service);
        let (packet, to) = (ask::a(&cluster.below_svc(service)), server.address());
        let asking = tokio::task::spawn_blocking(move || ask::until(to, &packet, address));
        let begun = Instant::now();
        patch_slice(client, cluster, service).await;
        let replied = Instant::now();
        let seen = asking.await.expect("it is answered in time");
        all.from_request.push(seen.saturating_duration_since(begun));
        all.from_reply.push(seen.saturating_duration_since(replied));
    }
    all
}

/// Writes these slices, this many a second, or as fast as the API server takes them.
pub(crate) async fn write_at(client: Client, writes: Vec<Write>, rate: usize) {
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
