//! One headless Service of 5,000 endpoints of which a hundred change a second: the first and the last endpoint are
//! answered equally soon.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::{Value, json};
use tests::data_plane::DataPlane;
use tests::scale::changes::{Write, write_at};
use tests::scale::{ask, create_all, patch_endpoints};

use crate::table::{Spread, row};

const SLICES: usize = 50;
/// As many as the slice controller puts in one.
const PER_SLICE: usize = 100;
const RATE: usize = 100;
const SECONDS: usize = 5;
/// Changes of the first and of the last endpoint each.
const TIMED: usize = 40;
const NAMESPACE: &str = "wide";
const FIRST: u32 = u32::from_be_bytes([10, 192, 0, 0]);
/// First address of endpoints that were moved.
const MOVED: u32 = u32::from_be_bytes([10, 193, 0, 0]);

/// The first and the last slice are timed, those between are the load.
pub(crate) async fn measure(client: &Client, server: &DataPlane) {
    let mut moves = Moves { count: 0 };
    create_all(client, [json!({"kind": "Namespace", "metadata": {"name": NAMESPACE}})]).await;
    let service = json!({"kind": "Service", "metadata": {"name": "wide", "namespace": NAMESPACE},
        "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}});
    create_all(client, [service]).await;
    let slices = (0..SLICES).map(|slice| {
        json!({"kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints(slice, None),
            "metadata": {"name": name(slice), "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": "wide"}},
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]})
    });
    create_all(client, slices).await;

    // Nothing is asked meanwhile, so that only changes are measured.
    let alone = writes(&mut moves);
    let (count, cpu, begun) = (alone.len(), server.usage().cpu(), Instant::now());
    write_at(client.clone(), alone, RATE).await;
    let (cpu, seconds) = (server.usage().cpu() - cpu, begun.elapsed().as_secs_f64());
    let what = format!("{:.0} changes a second", count as f64 / seconds);
    let share = cpu.as_secs_f64() / seconds * 100.0;
    let each = cpu.as_secs_f64() / count as f64 * 1e6;
    row(&format!("processor at {what}"), &format!("{share:.1} %, {each:.0} us each"), "");

    let writing = tokio::spawn(write_at(client.clone(), writes(&mut moves), RATE));
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for _ in 0..TIMED {
        first.push(timed(client, server, 0, 0, moves.next()).await);
        last.push(timed(client, server, SLICES - 1, PER_SLICE - 1, moves.next()).await);
    }
    writing.await.expect("every change is taken");
    row("write to answer beside them, the first endpoint", &Spread::of(first).text(), "the same");
    row("write to answer beside them, the last endpoint", &Spread::of(last).text(), "for both");
}

fn writes(moves: &mut Moves) -> Vec<Write> {
    (0..RATE * SECONDS)
        .map(|number| {
            let slice = 1 + number % (SLICES - 2);
            let moved = Some((number % PER_SLICE, moves.next()));
            let (namespace, endpoints) = (NAMESPACE.to_owned(), endpoints(slice, moved));
            Write { namespace, slice: name(slice), endpoints }
        })
        .collect()
}

/// Moves this endpoint, and waits for its new name.
async fn timed(
    client: &Client,
    server: &DataPlane,
    slice: usize,
    at: usize,
    to: Ipv4Addr,
) -> Duration {
    let label = to.to_string().replace('.', "-");
    let packet = ask::a(&format!("{label}.wide.{NAMESPACE}"));
    let server = server.address();
    let endpoints = endpoints(slice, Some((at, to)));
    let asking = tokio::task::spawn_blocking(move || ask::until(server, &packet, to));
    let begun = Instant::now();
    patch_endpoints(client, NAMESPACE, &name(slice), &endpoints).await;
    asking.await.expect("it is answered in time").saturating_duration_since(begun)
}

struct Moves {
    count: u32,
}

impl Moves {
    fn next(&mut self) -> Ipv4Addr {
        self.count += 1;
        (MOVED + self.count).into()
    }
}

fn name(slice: usize) -> String {
    format!("wide-{slice}")
}

fn endpoints(slice: usize, moved: Option<(usize, Ipv4Addr)>) -> Vec<Value> {
    (0..PER_SLICE)
        .map(|at| {
            let own = Ipv4Addr::from(FIRST + (slice * PER_SLICE + at) as u32);
            let address = moved.filter(|(place, _)| *place == at).map_or(own, |(_, to)| to);
            let pod = format!("wide-7d4b9c6f5-{slice:02}{at:03}");
            json!({"addresses": [address.to_string()], "nodeName": format!("node-{at}"),
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {"kind": "Pod", "name": pod, "namespace": NAMESPACE,
                    "uid": format!("00000003-0000-4000-8000-{:012x}", slice * PER_SLICE + at)}})
        })
        .collect()
}
