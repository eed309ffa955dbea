//! A limit of memory that is a fifth above what is steady, as a container has it, while more is asked than is answered (L7).
//! A count of queries in place of ten minutes; `make bench SET=load` has the times.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use tests::client::Transport;
use tests::control_plane::not_allowed;
use tests::data_plane::{DataPlane, wait_for};
use tests::http;
use tests::kubelet::program;
use tests::load::trace::Trace;
use tests::load::upstream;
use tests::memory_limit::MemoryLimit;
use tests::scale::Cluster;
use tests::scratch::Scratch;

/// Clients that ask as fast as the kernel takes it, each at an address of its own.
const FLOODS: u8 = 3;
/// Queries that are read until memory is where it stays, and those below the limit; datagrams that the kernel drops at
/// least in each part, or it was no overload.
const WARM_UP: f64 = 40_000.0;
const COUNTED: f64 = 50_000.0;
const DROPPED: f64 = 500.0;
/// Names of others, each of which is asked again when the cache has forgotten it.
const NAMES: usize = 50_000;
const SEED: u64 = 1;
const QUERIES: &str = "clusterdns_queries_total{";

/// Small, so that every store of the process is full when memory is measured, and every port of the bound is open: a third
/// of all memory is the kernel's, for the sockets.
const CONFIGURATION: &str = "
apiVersion: clusterdns.dev/v1alpha1
kind: ClusterDNS
metadata: {name: limited}
spec:
  upstreams: {servers: [{address: 127.0.0.1, port: PORT}]}
  cache: {memory: 1Mi}
  limits: {inFlight: 512, inFlightPerClient: 256, upstreamPorts: 1024}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: cart}
spec: {type: ClusterIP, clusterIP: 10.96.0.12, clusterIPs: [10.96.0.12], ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
";

/// An upstream that has an address for every name; it ends with the test program.
fn upstream() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((octets, from)) = socket.recv_from(&mut buffer) {
            let octets = upstream::reply(&mut buffer, octets);
            let _ = socket.send_to(&buffer[..octets], from);
        }
    });
    port
}

/// Clients that ask until this is dropped, and read no reply.
struct Flood {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Flood {
    fn of(server: SocketAddr) -> Flood {
        let ours = Trace::hit(&Cluster::of_manifests(100, "ns"), 1_000, SEED);
        let traces = Arc::new([ours, Trace::misses(NAMES, SEED)]);
        let is_over = Arc::new(AtomicBool::default());
        let client = |number| {
            let (traces, is_over) = (Arc::clone(&traces), Arc::clone(&is_over));
            thread::spawn(move || {
                let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 9, number), 0)).unwrap();
                socket.set_nonblocking(true).unwrap();
                for next in (usize::from(number)..).step_by(FLOODS.into()) {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    for trace in traces.iter() {
                        let _ = socket.send_to(trace.get(next % trace.len()).0, server);
                    }
                }
            })
        };
        let clients = (1..=FLOODS).map(client).collect();
        Flood { is_over, clients }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.clients.drain(..).for_each(|client| client.join().expect("it does not panic"));
    }
}

/// The sum of a metric over all of its labels.
fn sum(page: &str, metric: &str) -> f64 {
    let rows = page.lines().filter(|line| line.starts_with(metric));
    rows.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// Queries that were read, and datagrams that the kernel dropped. None once the process is gone.
fn counts(plane: &DataPlane) -> Option<(f64, f64)> {
    let page = http::get(plane.http(), "/metrics").ok()?.1;
    Some((sum(&page, QUERIES), http::metric(&page, "clusterdns_udp_dropped_total")?))
}

/// Waits until this many more queries were read, and the kernel has dropped others; says whether the process is still there.
fn overloaded_for(queries: f64, plane: &mut DataPlane) -> bool {
    let Some(before) = counts(plane) else { return false };
    wait_for("more than it can answer", || {
        if plane.process.exited().is_some() {
            return Some(false);
        }
        let (read, dropped) = counts(plane)?;
        (read >= before.0 + queries && dropped >= before.1 + DROPPED).then_some(true)
    })
}

#[test]
fn l7_an_overload_ends_no_process_whose_limit_is_a_fifth_above_what_is_steady() {
    let limit = match MemoryLimit::new() {
        Ok(limit) => limit,
        Err(error) => return not_allowed(&format!("a cgroup ({error})")),
    };
    let folder = Scratch::new("memory-limit").unwrap();
    folder.write("objects.yaml", CONFIGURATION.replace("PORT", &upstream().to_string())).unwrap();
    // The pages of the program count where they are read first: not in the group, so that the limit is that of its memory.
    std::fs::read(program("clusterdns-dataplane")).unwrap();
    let enter = limit.enter();
    let mut plane =
        DataPlane::of_manifests_below(&enter.each_ref().map(String::as_str), folder.path());
    let flood = Flood::of(plane.address());
    assert!(overloaded_for(WARM_UP, &mut plane));
    let steady = limit.in_use();
    limit.set(steady * 6 / 5).expect("a fifth more than is in use");
    let lives = overloaded_for(COUNTED, &mut plane);
    drop(flood);
    assert_eq!((lives, limit.kills()), (true, 0), "{steady} octets were steady");
    // What still waits in its socket is read first.
    wait_for("the last replies", || {
        let page = http::get(plane.http(), "/metrics").ok()?.1;
        let is_over = http::metric(&page, "clusterdns_forwarded_in_progress")? == 0.0;
        (is_over && sum(&page, QUERIES) == sum(&page, "clusterdns_replies_total{")).then_some(())
    });
    let cart = plane.ask("cart.shop.svc.cluster.local. A", Transport::Udp);
    assert_eq!(cart.records[0].len(), 1);
}
