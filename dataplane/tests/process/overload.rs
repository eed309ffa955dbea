//! More queries than the program can answer, for hits and misses alike (L1, L7): what it reads is answered, its memory
//! stays, and afterwards it is as before. Counts and octets only; `make bench` has the times.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::{Folder, Process, address, wait_for};
use crate::missing::cannot;
use crate::{CART, cluster_dns, service, serving};

/// Clients that ask as fast as the kernel takes it, each at an address of its own.
const FLOODS: u8 = 3;
/// Queries that are read until memory is where it stays, and those during which it is looked at; datagrams that the kernel
/// drops at least in each part, or it was no overload.
const WARM_UP: f64 = 10_000.0;
const COUNTED: f64 = 20_000.0;
const DROPPED: f64 = 500.0;
/// Names that repeat: some are in the cache, most are not.
const NAMES: u32 = 50_000;

/// A query for the address of a name.
fn query(id: u16, name: &str) -> Vec<u8> {
    let mut packet = id.to_be_bytes().to_vec();
    packet.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.extend([0, 0, 1, 0, 1]);
    packet
}

/// An upstream on 127.0.0.1 that has an address for every name, for a minute.
fn upstream() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((octets, from)) = socket.recv_from(&mut buffer) {
            // Without the OPT, which has 11 octets.
            let mut reply = buffer[..octets - 11].to_vec();
            (reply[2], reply[3], reply[7], reply[11]) = (0x81, 0x80, 1, 0);
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
            let _ = socket.send_to(&reply, from);
        }
    });
    port
}

/// Asks for a name of ours and for one of others in turn, and reads no reply.
fn flood(number: u8, server: SocketAddr, is_over: &AtomicBool) {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 9, number), 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut next = u32::from(number);
    while !is_over.load(Ordering::Relaxed) {
        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let name = format!("n{}.example.org", (next >> 8) % NAMES);
        for name in [CART, &name] {
            let _ = socket.send_to(&query(next as u16, name), server);
        }
    }
}

impl Process {
    /// The sum of a metric over all of its labels.
    fn sum(&self, metric: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let rows = text.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
        rows.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    fn queries(&self) -> f64 {
        self.sum("clusterdns_queries_total")
    }

    /// Waits until this many more queries were read, and the kernel has dropped others.
    fn overloaded_for(&self, queries: f64) {
        let dropped = || self.metric("clusterdns_udp_dropped_total");
        let (read_before, dropped_before) = (self.queries(), dropped());
        wait_for("more than it can answer", || {
            let is_read = self.queries() >= read_before + queries;
            (is_read && dropped() >= dropped_before + DROPPED).then_some(())
        });
    }
}

#[test]
fn l1_l7_what_is_read_in_an_overload_is_answered_and_memory_stays() {
    let (folder, port) = (Folder::new(), upstream());
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let servers = format!("servers: [{{address: 127.0.0.1, port: {port}}}]");
    let spec = format!(
        "{{upstreams: {{{servers}}}, cache: {{memory: 1Mi}}, limits: {{inFlight: 512, inFlightPerClient: 256}}}}"
    );
    folder.write("dns.yaml", &cluster_dns(&spec));
    let process = Process::start(&folder.0, &[]);
    let (server, is_over) = (process.dns, AtomicBool::new(false));
    thread::scope(|scope| {
        let is_over = &is_over;
        for number in 1..=FLOODS {
            scope.spawn(move || flood(number, server, is_over));
        }
        let watched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            process.overloaded_for(WARM_UP);
            let steady_kib = process.in_status("VmRSS:");
            process.forget_peak();
            process.overloaded_for(COUNTED);
            let peak_kib = process.in_status("VmHWM:");
            assert!(peak_kib * 5 <= steady_kib * 6, "{steady_kib} KiB became {peak_kib} KiB");
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = watched {
            std::panic::resume_unwind(panic);
        }
    });
    // Every query that was read has its reply, also if it is SERVFAIL at a limit, and nothing is left behind.
    let counts = || (process.queries(), process.sum("clusterdns_replies_total"));
    wait_for("the last replies", || {
        let (queries, replies) = counts();
        (queries == replies && process.metric("clusterdns_forwarded_in_progress") == 0.0)
            .then_some(())
    });
    // The next query is answered, without another try.
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    assert_eq!(process.ask("after.example.org"), address("192.0.2.1"));
}

/// Nanoseconds of a turn of the thread with this folder below /proc; none where this Linux does not show them.
fn turn_ns(thread: &Path) -> Option<u64> {
    let shown = fs::read_to_string(thread.join("sched")).ok()?;
    let turn = shown.lines().find_map(|line| line.strip_prefix("se.slice")?.split_once(':'))?;
    turn.1.trim().parse().ok()
}

/// By which it is given the processor when a query wakes it up, and does not wait until the one that runs has had its turn.
#[test]
fn t10_the_thread_of_tcp_has_shorter_turns_than_all_others() {
    const ASKED: Duration = Duration::from_micros(300);
    let gets_what_it_asks_for = thread::spawn(|| {
        dataplane_udp::ask_for_turns(ASKED).expect("any thread may ask");
        turn_ns(Path::new("/proc/thread-self")).map(Duration::from_nanos) == Some(ASKED)
    });
    if !gets_what_it_asks_for.join().unwrap() {
        // Linux before 6.12 has the same turns for all threads, and some builds do not show them.
        cannot("turns of a length of their own");
        return;
    }
    let (_folder, process) = serving();
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    let tasks = fs::read_dir(format!("/proc/{}/task", process.child.id())).expect("it runs");
    let tasks: Vec<PathBuf> = tasks.map(|task| task.expect("readable").path()).collect();
    let of = |name: &str| {
        let is_named = |task: &&PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with(name))
        };
        turn_ns(tasks.iter().find(is_named).expect(name)).expect("it is shown")
    };
    let [tcp, udp, lookups] = ["tcp", "udp-", "tokio-rt"].map(of);
    assert!(tcp < udp && tcp < lookups, "{tcp}, {udp}, {lookups}");
}
