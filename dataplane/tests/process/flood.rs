//! Clients that open HTTP connections as fast as they can (L14). What kubelet asks is counted, not timed.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::harness::PATIENCE;
use crate::serving;

/// Clients of the flood, each at an address of its own, and what each opens and keeps of it.
const CLIENTS: u8 = 8;
const CONNECTIONS: usize = 2_000;
const KEPT: usize = 64;
/// Probes that must be answered at least while the flood lasts; it continues until they are.
const PROBES: usize = 20;

fn socket(from: Ipv4Addr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SockAddr::from(SocketAddr::from((from, 0)))).unwrap();
    socket
}

/// Opens connections until it has opened all of them and the probes are done. A third says nothing, a third sends half
/// a request, a third asks for a page and does not read it.
fn flood(number: u8, server: SocketAddr, is_over: &AtomicBool, opened: &AtomicUsize) {
    let mut kept = VecDeque::new();
    for count in 0.. {
        if count >= CONNECTIONS && is_over.load(Ordering::Relaxed) {
            return;
        }
        let connection = socket(Ipv4Addr::new(127, 0, 3, number + 1));
        // It leaves no port behind that waits for the last segments of its connection.
        connection.set_linger(Some(Duration::ZERO)).unwrap();
        if connection.connect(&server.into()).is_err() {
            continue;
        }
        opened.fetch_add(1, Ordering::Relaxed);
        let said: &[u8] = match count % 3 {
            0 => b"",
            1 => b"GET /livez HTTP/1.1\r\nHost",
            _ => b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        };
        let mut stream = TcpStream::from(connection);
        let _ = stream.write_all(said);
        kept.push_back(stream);
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}

/// Connects; nothing if the kernel takes no connection within a second. Kubelet waits for two, so that one lost segment does
/// not fail a probe; here none may be lost.
pub(crate) fn connect(from: Ipv4Addr, server: SocketAddr) -> Option<TcpStream> {
    let connection = socket(from);
    connection.connect_timeout(&server.into(), Duration::from_secs(1)).ok()?;
    Some(TcpStream::from(connection))
}

/// Asks as kubelet does; nothing if the connection ends without an answer.
fn ask(mut stream: TcpStream, path: &str) -> Option<String> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.lines().next().map(str::to_owned)
}

fn probe(server: SocketAddr, path: &str) -> Option<String> {
    probe_from(Ipv4Addr::LOCALHOST, server, path)
}

fn probe_from(from: Ipv4Addr, server: SocketAddr, path: &str) -> Option<String> {
    let connection = socket(from);
    connection.connect(&server.into()).ok()?;
    ask(TcpStream::from(connection), path)
}

const OK: Option<&str> = Some("HTTP/1.1 200 OK");
const SCRAPER: Ipv4Addr = Ipv4Addr::new(127, 0, 4, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 3, 1);

#[test]
fn l14_kubelets_connection_stays_however_many_others_open_before_it_asks() {
    let (_folder, process) = serving();
    let kubelet = connect(Ipv4Addr::LOCALHOST, process.http).expect("a connection");
    let others: Vec<_> = (0..400).map(|_| connect(OTHER, process.http).expect("taken")).collect();
    // Connections are taken in their order: when the last has its answer, all are taken.
    let last = connect(Ipv4Addr::new(127, 0, 3, 2), process.http).expect("a connection");
    assert_eq!(ask(last, "/livez").as_deref(), OK);
    assert_eq!(ask(kubelet, "/readyz").as_deref(), OK);
    drop(others);
}

#[test]
fn l14_what_comes_while_the_process_does_not_run_is_answered_when_it_does() {
    let most: usize = std::fs::read_to_string("/proc/sys/net/core/somaxconn")
        .expect("Linux")
        .trim()
        .parse()
        .expect("a number");
    let descriptors = dataplane_udp::raise_descriptor_limit().expect("a limit") as usize;
    let count = most.min(4000).min(descriptors) - 100;
    let (_folder, process) = serving();
    process.stop();
    let others: Vec<_> = (0..count).map_while(|_| connect(OTHER, process.http)).collect();
    let kubelet = connect(Ipv4Addr::LOCALHOST, process.http);
    process.signal("CONT");
    assert_eq!(others.len(), count, "the kernel takes them all");
    assert_eq!(ask(kubelet.expect("a connection"), "/readyz").as_deref(), OK);
}

#[test]
fn l14_every_probe_and_page_is_answered_while_others_open_connections() {
    let (_folder, process) = serving();
    let server = process.http;
    let (is_over, opened) = (Arc::new(AtomicBool::default()), Arc::new(AtomicUsize::default()));
    let floods: Vec<JoinHandle<()>> = (0..CLIENTS)
        .map(|number| {
            let (is_over, opened) = (is_over.clone(), opened.clone());
            std::thread::spawn(move || flood(number, server, &is_over, &opened))
        })
        .collect();
    let mut answers = Vec::new();
    while answers.len() < PROBES || !floods.iter().all(JoinHandle::is_finished) {
        answers.push(probe(server, "/readyz"));
        answers.push(probe(server, "/livez"));
        // A scraper, and the operator.
        answers.push(probe_from(SCRAPER, server, "/metrics"));
        answers.push(probe_from(SCRAPER, server, "/config"));
        // As often as the probes of a few hundred pods. More would leave less of the machine to the flood.
        std::thread::sleep(Duration::from_millis(10));
        is_over.store(answers.len() >= PROBES, Ordering::Relaxed);
    }
    for flood in floods {
        flood.join().unwrap();
    }
    let opened = opened.load(Ordering::Relaxed);
    let ok = answers.iter().filter(|answer| answer.as_deref() == OK).count();
    assert_eq!(ok, answers.len(), "of the probes, beside {opened} connections");
    assert!(opened >= usize::from(CLIENTS) * CONNECTIONS / 2, "{opened} connections are no flood");
}

/// Prints the rate of a flood that only connects, and how the pages fare beside it. Run it alone:
/// `cargo test --release -p dataplane --test process -- --ignored --nocapture measure_the_flood`
#[test]
#[ignore = "a measurement: it takes the whole machine for ten seconds"]
#[expect(clippy::print_stdout, reason = "a person reads the figures")]
fn measure_the_flood() {
    let (_folder, process) = serving();
    let (server, is_over) = (process.http, Arc::new(AtomicBool::default()));
    let floods: Vec<JoinHandle<usize>> = (0..CLIENTS)
        .map(|number| {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                let mut opened = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let connection = socket(Ipv4Addr::new(127, 0, 3, number + 1));
                    connection.set_linger(Some(Duration::ZERO)).unwrap();
                    opened += usize::from(connection.connect(&server.into()).is_ok());
                }
                opened
            })
        })
        .collect();
    let begun = std::time::Instant::now();
    let mut pages = ["/readyz", "/livez", "/metrics", "/config"].map(|path| (path, Vec::new(), 0));
    while begun.elapsed() < Duration::from_secs(10) {
        for (path, times, failed) in &mut pages {
            let (asked, from) = (std::time::Instant::now(), Ipv4Addr::LOCALHOST);
            match probe_from(if path.len() > 7 { SCRAPER } else { from }, server, path).as_deref() {
                OK => times.push(asked.elapsed()),
                _ => *failed += 1,
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let lasted = begun.elapsed();
    is_over.store(true, Ordering::Relaxed);
    let opened: usize = floods.into_iter().map(|flood| flood.join().unwrap()).sum();
    println!("{:.0} connects/s", opened as f64 / lasted.as_secs_f64());
    for (path, mut times, failed) in pages {
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
        let (median, slowest) = (at(50), times.last().copied().unwrap_or_default());
        println!(
            "{path}: {} answered, {failed} not; median {median:?}, slowest {slowest:?}",
            times.len()
        );
        assert_eq!(failed, 0, "{path}");
    }
}
