//! From the write of one slice to the first right answer, at rest and while others are written, and what a change
//! takes of the data plane.

use std::time::Instant;

use kube::Client;
use tests::data_plane::DataPlane;
use tests::scale::Cluster;
use tests::scale::changes::{Propagation, Write, propagation, write_at};

use crate::table::{Spread, row};

/// Changes that are timed, one after the other.
const TIMED: usize = 500;
const TIMED_UNDER_LOAD: usize = 100;
/// Changes a second. The second is more than most API servers of two cores take: the rate it reaches is printed.
const RATE: usize = 100;
const RATES: [usize; 2] = [RATE, 1_000];
const SECONDS: usize = 10;

pub(crate) async fn measure(client: &Client, cluster: &mut Cluster, server: &DataPlane) {
    // Some changes are timed; the others are the load beside them.
    let headless: Vec<usize> = cluster.headless().collect();
    let (timed, load) = headless.split_at(headless.len() / 3);
    let one_by_one = propagation(client, cluster, server.address(), timed, TIMED).await;
    print(one_by_one, "at rest", "p99 2 ms beyond the reply");
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
    let beside = propagation(client, cluster, server.address(), timed, TIMED_UNDER_LOAD).await;
    writing.await.expect("every change is taken");
    print(beside, &format!("beside {RATE} a second"), "");
}

/// Changes for some seconds at this rate, of one Service after the other.
fn writes(cluster: &mut Cluster, services: &[usize], rate: usize) -> Vec<Write> {
    (0..rate * SECONDS)
        .map(|number| Write::moving(cluster, services[number % services.len()]))
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

fn print(times: Propagation, when: &str, wanted: &str) {
    row(&format!("write to answer {when}"), &Spread::of(times.from_request).text(), "");
    row("  beyond the API server's reply", &Spread::of(times.from_reply).text(), wanted);
}
