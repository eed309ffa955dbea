//! The cache by itself: how many of the questions it answers, beside Unbound with the same memory, and what a full one takes
//! of the process. Counts and octets, so that a busy machine changes nothing.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use dataplane::forward::cache::{Cache, CacheLimits, Member};
use dataplane_core::{CacheRules, LookupKey, Name, Relayed, TtlCaps, Verdict};
use serde_json::json;
use tests::load::external::{Zipf, name};
use tests::load::servers::Peer;
use tests::load::trace::packet;
use tests::load::upstream::reply;
use tests::mutate::Random;
use tests::process::Process;
use tests::scratch::Scratch;
use tests::usage::Usage;

/// Memory of the caches that are compared.
const MEMORY_MIB: [usize; 3] = [1, 4, 16];
/// Names of the trace, as often as Zipf's law says, and questions in all.
const NAMES: usize = 100_000;
const QUESTIONS: usize = 150_000;
/// One question in five is for a name that is asked for once.
const SCAN: usize = 5;
/// Questions that are asked before the replies to them are read.
const TOGETHER: usize = 16;
const SEED: u64 = 20_261_122;
const PATIENCE: Duration = Duration::from_secs(5);
/// The octets of the answers that fill a cache, and how often more are inserted than fit.
const ANSWERS: [usize; 2] = [100, 4_096];
const FILL_MIB: usize = 64;
const ROUNDS: usize = 4;
/// The caches of a program that has nothing else, and one of next to nothing; names asked for, of an answer of some 100 octets
/// each: twice as many as fit.
const PROGRAM_MIB: usize = 64;
const NO_CACHE_MIB: usize = 1;
const PROGRAM_NAMES: usize = 600_000;
/// Row C1: names that a small cache sees.
const MANY_NAMES: u64 = 10_000_000;
const SMALL_MIB: usize = 16;

/// Prints how many questions each server answers from its cache.
pub(crate) fn hits() -> anyhow::Result<()> {
    println!("| memory of the cache | server | answered from it |\n|---|---|---|");
    for memory_mib in MEMORY_MIB {
        for peer in [Peer::Ours, Peer::Unbound] {
            let Some(program) = peer.program(&std::env::current_exe()?) else {
                println!("| {memory_mib} MiB | {} | not installed |", peer.name());
                continue;
            };
            let upstream = Upstream::start()?;
            let (dns, folder) = (free_port()?, Scratch::new("cache")?);
            let arguments = match peer {
                Peer::Unbound => unbound(dns, upstream.address, memory_mib, &folder)?,
                _ => ours(dns, upstream.address, memory_mib, &folder)?,
            };
            let mut process = Process::start(&program, &arguments, folder.path())?;
            let client = Client::of(dns, &mut process)?;
            let before = upstream.asked();
            let (mut random, zipf) = (Random::new(SEED), Zipf::new(NAMES));
            for first in (0..QUESTIONS).step_by(TOGETHER) {
                let names: Vec<String> = (first..(first + TOGETHER).min(QUESTIONS))
                    .map(|number| match number % SCAN {
                        0 => format!("scan-{number}.example.net."),
                        _ => name(zipf.rank(random.number() as f64 / u64::MAX as f64)),
                    })
                    .collect();
                client.ask(&names)?;
            }
            let misses = upstream.asked() - before;
            let share = 100.0 * (1.0 - misses as f64 / QUESTIONS as f64);
            println!("| {memory_mib} MiB | {} | {share:.1} % |", peer.name());
            process.stop();
        }
    }
    Ok(())
}

/// Prints what full caches take of a process besides what an empty one does.
pub(crate) fn memory() -> anyhow::Result<()> {
    println!(
        "| cache | answers | names | entries | counted | resident beside empty |\n|---|---|---|---|---|---|"
    );
    let own = std::env::current_exe()?;
    let fit = |octets: usize| (ROUNDS * (FILL_MIB << 20) / octets) as u64;
    let full = ANSWERS.map(|octets| (FILL_MIB, octets, fit(octets)));
    for (mib, octets, names) in full.into_iter().chain([(SMALL_MIB, ANSWERS[0], MANY_NAMES)]) {
        let arguments =
            ["fill-cache".to_owned(), mib.to_string(), octets.to_string(), names.to_string()];
        let output = std::process::Command::new(&own).args(arguments).output()?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        print!("{}", String::from_utf8_lossy(&output.stdout));
    }
    println!(
        "\n| cache of the program | answers | names | resident | beside {NO_CACHE_MIB} MiB |\n|---|---|---|---|---|"
    );
    let least_mib = resident_mib(NO_CACHE_MIB)?;
    println!("| {NO_CACHE_MIB} MiB | 100 octets | {PROGRAM_NAMES} | {least_mib:.1} MiB | - |");
    let full_mib = resident_mib(NO_CACHE_MIB + PROGRAM_MIB)?;
    let more_mib = full_mib - least_mib;
    println!(
        "| {} MiB | 100 octets | {PROGRAM_NAMES} | {full_mib:.1} MiB | {more_mib:.1} MiB, {:.0} % of {PROGRAM_MIB} |",
        NO_CACHE_MIB + PROGRAM_MIB,
        100.0 * more_mib / PROGRAM_MIB as f64,
    );
    Ok(())
}

/// What the program takes when it was asked for more names than its cache holds.
fn resident_mib(cache_mib: usize) -> anyhow::Result<f64> {
    let program = Peer::Ours.program(&std::env::current_exe()?).context("it is not built")?;
    let upstream = Upstream::start()?;
    let (dns, folder) = (free_port()?, Scratch::new("cache")?);
    let arguments = ours(dns, upstream.address, cache_mib, &folder)?;
    let mut process = Process::start(&program, &arguments, folder.path())?;
    let client = Client::of(dns, &mut process)?;
    for first in (0..PROGRAM_NAMES).step_by(TOGETHER) {
        let names = first..(first + TOGETHER).min(PROGRAM_NAMES);
        client
            .ask(&names.map(|number| format!("{number:040}.example.org.")).collect::<Vec<_>>())?;
    }
    let resident_mib = Usage::of(process.pid().context("it has ended")?).resident_mib();
    process.stop();
    Ok(resident_mib)
}

/// Fills a cache of this process, and prints its row.
pub(crate) fn fill(mib: usize, octets: usize, names: u64) -> anyhow::Result<()> {
    let usage = Usage::of(std::process::id());
    let rules = CacheRules { stale_s: 86_400, prefetch: true };
    let limits = CacheLimits { octets: mib << 20, entries: 10_000_000, rules };
    let cache = Cache::default();
    cache.keep(1, (&answer(0, octets)?, Member::at(0)), u32::MAX, 0, &limits);
    let empty_mib = usage.resident_mib();
    for number in 1..names {
        cache.keep(1, (&answer(number, octets)?, Member::at(0)), u32::MAX, number, &limits);
    }
    let more_mib = usage.resident_mib() - empty_mib;
    println!(
        "| {mib} MiB | {octets} octets | {names} | {} | {:.1} MiB | {more_mib:.1} MiB, {:.0} % |",
        cache.entries(),
        cache.octets() as f64 / f64::from(1 << 20),
        100.0 * more_mib / mib as f64,
    );
    Ok(())
}

/// What an upstream says of a name, in this many octets or few more.
fn answer(number: u64, octets: usize) -> anyhow::Result<Relayed> {
    const TXT: u16 = 16;
    const FIXED: usize = 12;
    let name = Name::from_text(&format!("n{number}.example.org")).context("a name")?;
    let key = LookupKey::new(name, TXT, false, false);
    let mut message = key.upstream_query(9).wire;
    // Without the OPT, which has 11 octets.
    message.truncate(message.len() - 11);
    (message[2], message[7], message[11]) = (0x81, 1, 0);
    let data = octets.saturating_sub(message.len() + FIXED);
    message.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 14, 16]);
    message.extend(u16::try_from(data)?.to_be_bytes());
    message.resize(message.len() + data, 0);
    match key.judge(9, &message, &TtlCaps::default()) {
        Verdict::Good(relayed) => Ok(relayed),
        other => anyhow::bail!("{other:?}"),
    }
}

fn ours(
    dns: SocketAddr,
    upstream: SocketAddr,
    mib: usize,
    folder: &Scratch,
) -> anyhow::Result<Vec<String>> {
    let server = json!({"address": upstream.ip(), "port": upstream.port()});
    let resource = json!({
        "apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": "cache"},
        "spec": {
            "upstreams": {"servers": [server]},
            "cache": {"memory": format!("{mib}Mi"), "entries": 10_000_000},
        },
    });
    let manifests = folder.path().join("manifests");
    std::fs::create_dir(&manifests)?;
    std::fs::write(manifests.join("dns.yaml"), serde_json::to_vec(&resource)?)?;
    let (manifests, dns, http) = (manifests.display().to_string(), dns.to_string(), free_port()?);
    let all =
        ["--manifests", &manifests, "--workers", "1", "--listen", &dns, "--log-level", "warn"];
    let mut all: Vec<String> = all.map(str::to_owned).to_vec();
    all.extend(["--http".to_owned(), http.to_string()]);
    Ok(all)
}

/// A third of the memory for messages and two thirds for RRsets, as its manual advises.
fn unbound(
    dns: SocketAddr,
    upstream: SocketAddr,
    mib: usize,
    folder: &Scratch,
) -> anyhow::Result<Vec<String>> {
    let (port, up, own) = (dns.port(), upstream.port(), folder.path().display());
    let (messages, sets) = ((mib << 20) / 3, (mib << 20) / 3 * 2);
    let conf = folder.write(
        "unbound.conf",
        format!(
            "server:\n  directory: \"{own}\"\n  chroot: \"\"\n  username: \"\"\n  pidfile: \"\"\n  \
             interface: 127.0.0.1@{port}\n  port: {port}\n  num-threads: 1\n  do-daemonize: no\n  use-syslog: no\n  \
             verbosity: 0\n  do-not-query-localhost: no\n  module-config: \"iterator\"\n  \
             access-control: 127.0.0.0/8 allow\n  msg-cache-size: {messages}\n  rrset-cache-size: {sets}\n\
             remote-control:\n  control-enable: no\nforward-zone:\n  name: \".\"\n  forward-addr: 127.0.0.1@{up}\n"
        ),
    )?;
    Ok(vec!["-d".into(), "-c".into(), conf.display().to_string()])
}

fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?)
}

/// Asks a few questions at a time.
struct Client(UdpSocket);

impl Client {
    /// Once the server answers.
    fn of(dns: SocketAddr, process: &mut Process) -> anyhow::Result<Client> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(dns)?;
        let client = Client(socket);
        for _ in 0..200 {
            process.ensure_running()?;
            client.0.set_read_timeout(Some(Duration::from_millis(50)))?;
            if client.once("first.example.net.").is_ok() {
                // What else it was asked meanwhile.
                std::thread::sleep(Duration::from_millis(200));
                while client.0.recv(&mut [0; 4096]).is_ok() {}
                client.0.set_read_timeout(Some(PATIENCE))?;
                return Ok(client);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        anyhow::bail!("it does not answer\n{}", process.log_tail())
    }

    fn ask(&self, names: &[String]) -> anyhow::Result<()> {
        for name in names {
            self.0.send(&packet(name, 1))?;
        }
        for _ in names {
            self.0.recv(&mut [0; 4096]).context("a question got no reply")?;
        }
        Ok(())
    }

    fn once(&self, name: &str) -> std::io::Result<()> {
        self.0.send(&packet(name, 1))?;
        self.0.recv(&mut [0; 4096]).map(drop)
    }
}

/// Answers all that it is asked, and counts.
struct Upstream {
    address: SocketAddr,
    asked: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Upstream {
    fn start() -> anyhow::Result<Upstream> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (asked, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let upstream = Upstream {
            address: socket.local_addr()?,
            asked: asked.clone(),
            is_over: is_over.clone(),
        };
        std::thread::spawn(move || {
            let mut message = [0; 4096];
            while !is_over.load(Ordering::Relaxed) {
                let Ok((octets, from)) = socket.recv_from(&mut message) else { continue };
                asked.fetch_add(1, Ordering::Relaxed);
                let length = reply(&mut message, octets);
                let _ = socket.send_to(&message[..length], from);
            }
        });
        Ok(upstream)
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
