//! A thousand changes a second beside ten thousand questions a second. A real API server of two cores does not take so
//! many writes; the scripted one does, and sends the same events.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tests::data_plane::DataPlane;
use tests::scale::{Cluster, Kind, ask};
use tests::scripted_api::ScriptedApi;

use crate::ready::wait_until_ready;
use crate::table::{Spread, row};

const SERVICES: usize = 1_000;
const CHANGES_PER_S: u32 = 1_000;
const QUESTIONS_PER_S: u32 = 10_000;
const PHASE: Duration = Duration::from_secs(10);
/// One in this many changes is timed.
const TIMED: usize = 20;
/// Questions that are sent together.
const BATCH: u32 = 10;
const RECEIVE_BUFFER: usize = 8 << 20;
const PAUSE: Duration = Duration::from_micros(100);
/// The scripted API server remembers events, which are many here.
const FORGET_AFTER: usize = 1_000;

/// Returns how many answers were wrong.
pub(crate) fn measure() -> usize {
    let mut cluster = Cluster::new(SERVICES, "ns");
    let namespaces = cluster.namespaces;
    let objects: Vec<_> = (0..SERVICES)
        .flat_map(|service| [Some(cluster.service_object(service)), cluster.slice_object(service)])
        .flatten()
        .collect();
    let api = ScriptedApi::start(&objects);
    api.pages_of(500);
    api.compact();
    let server = DataPlane::start(api.kubeconfig(), &[]);
    wait_until_ready(&server);
    row("Services, namespaces", &format!("{SERVICES}, {namespaces}"), "");
    phase(&api, &server, &mut cluster, "changes alone", true, false);
    let alone = phase(&api, &server, &mut cluster, "questions alone", false, true);
    alone + phase(&api, &server, &mut cluster, "both", true, true)
}

fn phase(
    api: &ScriptedApi,
    server: &DataPlane,
    cluster: &mut Cluster,
    what: &str,
    changes: bool,
    questions: bool,
) -> usize {
    let is_over = AtomicBool::new(false);
    let packets = packets(cluster);
    let (cpu, begun) = (server.usage().cpu(), Instant::now());
    let (timed, answered) = std::thread::scope(|scope| {
        let asking = questions.then(|| {
            let to = server.address();
            scope.spawn(move || Load::run(to, packets))
        });
        let timed = match changes {
            true => change(api, server.address(), cluster, &is_over),
            false => {
                std::thread::sleep(PHASE);
                Vec::new()
            }
        };
        (timed, asking.map(|asking| asking.join().expect("questions are asked")))
    });
    let (cpu, seconds) = (server.usage().cpu() - cpu, begun.elapsed().as_secs_f64());
    let share = cpu.as_secs_f64() / seconds * 100.0;
    row(&format!("processor, {what}"), &format!("{share:.1} % of a core"), "");
    if changes {
        let rate = f64::from(CHANGES_PER_S) * PHASE.as_secs_f64() / seconds;
        row(&format!("changes a second, {what}"), &format!("{rate:.0}"), "1,000");
        let wanted = "p99 10 ms";
        row(&format!("event to answer, {what}"), &Spread::of(timed).text(), wanted);
    }
    let Some(answered) = answered else { return 0 };
    row(&format!("question to reply, {what}"), &Spread::of(answered.times).text(), "");
    let text = format!("{} / {} of {}", answered.wrong, answered.lost, answered.sent);
    row(&format!("wrong / lost answers, {what}"), &text, "0 / 0");
    answered.wrong
}

/// Sends events at their rate; returns the times from each timed event to its answer.
fn change(
    api: &ScriptedApi,
    server: SocketAddr,
    cluster: &mut Cluster,
    is_over: &AtomicBool,
) -> Vec<Duration> {
    let headless: Vec<usize> = cluster.headless().collect();
    let (probe, others) = headless.split_first().expect("headless Services");
    let packet = ask::a(&cluster.below_svc(*probe));
    // The address that is waited for, and since when.
    let waiting: Mutex<Option<(Ipv4Addr, Instant)>> = Mutex::default();
    let put = |cluster: &Cluster, service: usize| {
        api.put(cluster.slice_object(service).expect("it has a slice"));
    };
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| follow(server, &packet, &waiting, is_over));
        let begun = Instant::now();
        for number in 0.. {
            let due = Duration::from_secs(1) / CHANGES_PER_S * number as u32;
            if due > PHASE {
                break;
            }
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
            if number % TIMED == 0 {
                let address = cluster.move_first(*probe);
                *waiting.lock().expect("no panic") = Some((address, Instant::now()));
                put(cluster, *probe);
            } else {
                let service = others[number % others.len()];
                cluster.move_first(service);
                put(cluster, service);
            }
            if number % FORGET_AFTER == 0 {
                api.compact();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        watching.join().expect("the probe is answered")
    })
}

/// Asks for the probe again and again.
fn follow(
    server: SocketAddr,
    packet: &[u8],
    waiting: &Mutex<Option<(Ipv4Addr, Instant)>>,
    is_over: &AtomicBool,
) -> Vec<Duration> {
    let (socket, mut times, mut buffer) = (ask::socket(server), Vec::new(), [0; 4096]);
    while !is_over.load(Ordering::Relaxed) {
        let wanted = *waiting.lock().expect("no panic");
        if let Some((address, since)) = wanted {
            socket.send(packet).expect("a question is sent");
            let octets = socket.recv(&mut buffer).expect("a reply");
            if ask::has(&buffer[..octets], address) {
                times.push(since.elapsed());
                let mut waiting = waiting.lock().expect("no panic");
                if waiting.is_some_and(|(newest, _)| newest == address) {
                    *waiting = None;
                }
            }
        }
        std::thread::sleep(PAUSE);
    }
    times
}

/// Questions for Services whose answers never change, and these answers.
fn packets(cluster: &Cluster) -> Vec<(Vec<u8>, Ipv4Addr)> {
    (0..cluster.services)
        .filter(|&service| cluster.kind(service) == Kind::ClusterIp)
        .map(|service| (ask::a(&cluster.below_svc(service)), cluster.address(service)))
        .collect()
}

/// Questions at a fixed rate, which replies do not change.
struct Load {
    sent: usize,
    wrong: usize,
    lost: usize,
    times: Vec<Duration>,
}

impl Load {
    fn run(server: SocketAddr, packets: Vec<(Vec<u8>, Ipv4Addr)>) -> Load {
        let socket = ask::socket(server);
        // A large buffer here, so that only the server loses datagrams.
        let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER);
        let patience = Some(Duration::from_secs(1));
        socket.set_read_timeout(patience).expect("a timeout");
        let begun = Instant::now();
        let count = u64::from(QUESTIONS_PER_S) * PHASE.as_secs();
        // When each question was due, by its id: its reply is timed from then.
        let due = |number: u64| {
            Duration::from_secs(1).mul_f64(number as f64 / f64::from(QUESTIONS_PER_S))
        };
        let sent = Arc::new(AtomicU64::new(0));
        std::thread::scope(|scope| {
            let replies = scope.spawn(|| {
                let (mut times, mut wrong, mut buffer) = (Vec::new(), 0, [0; 4096]);
                while (times.len() as u64) < count {
                    let Ok(octets) = socket.recv(&mut buffer) else { break };
                    let now = begun.elapsed();
                    let id = u64::from(u16::from_be_bytes([buffer[0], buffer[1]]));
                    // The newest question with this id.
                    let newest = sent.load(Ordering::Acquire).saturating_sub(1);
                    let number = newest - (newest.wrapping_sub(id) & 0xffff);
                    times.push(now.saturating_sub(due(number)));
                    let (_, address) = packets[number as usize % packets.len()];
                    wrong += usize::from(!ask::has(&buffer[..octets], address));
                }
                (times, wrong)
            });
            for number in 0..count {
                if number % u64::from(BATCH) == 0 {
                    std::thread::sleep(due(number).saturating_sub(begun.elapsed()));
                }
                let mut packet = packets[number as usize % packets.len()].0.clone();
                packet[..2].copy_from_slice(&(number as u16).to_be_bytes());
                sent.store(number + 1, Ordering::Release);
                socket.send(&packet).expect("a question is sent");
            }
            let (times, wrong) = replies.join().expect("replies are read");
            let sent = count as usize;
            Load { sent, wrong, lost: sent - times.len(), times }
        })
    }
}
