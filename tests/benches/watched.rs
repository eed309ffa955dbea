//! What it costs to watch a data plane: the time of a scrape in each form, and the processor time of the thread that answers,
//! for one reply, while nothing is asked over HTTP, while `/metrics` is scraped, and while `/top` counts.
//!
//! Processor time of threads is that of the scheduler, so a busy machine changes it less than times of a clock. The thread
//! that answers is the only worker; it answers names of its own, in batches as large as the sender's.

#![allow(clippy::print_stdout)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tests::client::Question;
use tests::data_plane::DataPlane;

/// Replies of each measurement, and how many queries are sent before their replies are read.
const REPLIES: u32 = 200_000;
const BATCH: usize = 32;
/// How often each is measured, in turns; the median counts.
const ROUNDS: usize = 5;
/// Scrapes of each form.
const SCRAPES: u32 = 300;
/// Between two scrapes while queries are answered: 150 times as often as the usual 15 s.
const PAUSE: Duration = Duration::from_millis(100);
/// A datagram may be lost.
const PATIENCE: Duration = Duration::from_secs(1);

const FORMS: [(&str, &str); 3] = [
    ("text", "text/plain"),
    ("OpenMetrics", "application/openmetrics-text"),
    (
        "protobuf, native histograms",
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
    ),
];

fn main() {
    let quickstart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/examples/quickstart");
    let server = DataPlane::of_manifests(&quickstart);
    let question = Question::parse("cart.shop.svc.cluster.local. A").expect("a question");
    answers(&server, &question.packet);

    println!(
        "{:50} {:>12} {:>12} {:>12} {:>10}",
        "a scrape", "median", "99 %", "processor", "octets"
    );
    for (name, accept) in FORMS {
        scrapes(&server, name, accept);
    }

    let (mut quiet, mut scraped) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        quiet.push(answers(&server, &question.packet));
        scraped.push(while_scraped(&server, || answers(&server, &question.packet)));
    }
    http(server.http(), "POST", "/top?seconds=600", "*/*");
    let counted = (0..ROUNDS).map(|_| answers(&server, &question.packet)).collect();
    println!("\n{:50} {:>12}", "processor time of one reply, in its thread", "median");
    for (name, figures) in
        [("not watched", quiet), ("scraped every 100 ms", scraped), ("counted by /top", counted)]
    {
        println!("  {name:48} {:>9.0} ns", median(figures).as_nanos());
    }
}

/// Times and size of the page in this form.
fn scrapes(server: &DataPlane, name: &str, accept: &str) {
    let before = busy(server, |thread| !thread.starts_with("udp-"));
    let mut octets = 0;
    let times = (0..SCRAPES).map(|_| {
        let begun = Instant::now();
        octets = http(server.http(), "GET", "/metrics", accept);
        begun.elapsed()
    });
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    let each = (busy(server, |thread| !thread.starts_with("udp-")) - before) / SCRAPES;
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    let slow = times[times.len() * 99 / 100];
    println!(
        "  {name:48} {:>12} {:>12} {:>12} {octets:>10}",
        ms(times[times.len() / 2]),
        ms(slow),
        ms(each)
    );
}

/// Processor time of one reply in the thread that writes it.
fn answers(server: &DataPlane, packet: &[u8]) -> Duration {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(server.address()).expect("an address");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let worker = |thread: &str| thread.starts_with("udp-");
    let before = busy(server, worker);
    let (mut replies, mut buffer) = (0, [0; 512]);
    while replies < REPLIES {
        (0..BATCH).for_each(|_| assert!(socket.send(packet).is_ok(), "a query"));
        replies += (0..BATCH).map_while(|_| socket.recv(&mut buffer).ok()).count() as u32;
    }
    (busy(server, worker) - before) / replies
}

/// Measures while another thread scrapes.
fn while_scraped(server: &DataPlane, measure: impl FnOnce() -> Duration) -> Duration {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                http(server.http(), "GET", "/metrics", FORMS[2].1);
                std::thread::sleep(PAUSE);
            }
        });
        let measured = measure();
        is_over.store(true, Ordering::Relaxed);
        measured
    })
}

/// Time on a processor of the threads with such names, in all: the first number of their `schedstat` (ns).
fn busy(server: &DataPlane, is_meant: impl Fn(&str) -> bool) -> Duration {
    let process = server.process.pid().expect("it runs");
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let of = |thread: &Path| {
        let read = |file: &str| std::fs::read_to_string(thread.join(file)).unwrap_or_default();
        let ns = read("schedstat").split(' ').next().and_then(|text| text.parse().ok());
        Duration::from_nanos(ns.filter(|_| is_meant(read("comm").trim())).unwrap_or(0))
    };
    threads.filter_map(Result::ok).map(|thread| of(&thread.path())).sum()
}

/// One request on a connection of its own; how long its reply is.
fn http(server: SocketAddr, method: &str, path: &str, accept: &str) -> usize {
    let mut stream = TcpStream::connect(server).expect("a connection");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {server}\r\nAccept: {accept}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .expect("a request");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("a reply");
    assert!(reply.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&reply));
    reply.len()
}

fn median(mut figures: Vec<Duration>) -> Duration {
    figures.sort();
    figures[figures.len() / 2]
}
