//! Ours and CoreDNS beside one real API server with the same cluster: until each is ready, what it holds, how long a
//! change takes from its write to its answer, and what many changes take of it.
//!
//! Only one server watches at a time, each with a process of its own for each turn, there and back (A B B A). Nothing is
//! pinned: API server, server and questions share all processors, for each server the same.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::Client;
use tests::control_plane::{ControlPlane, Setup};
use tests::load::curves::{Axes, Corner, Curve, draw};
use tests::load::generator::Generator;
use tests::load::outcome::Outcome;
use tests::load::schedule::Pace;
use tests::load::servers::{Peer, Server};
use tests::load::statistics::{Distribution, there_and_back};
use tests::load::trace::Trace;
use tests::load::udp::Udp;
use tests::load::watching::{WATCHING, start};
use tests::scale::changes::{Propagation, Write, propagation, write_at};
use tests::scale::{Cluster, fill};
use tests::scratch::Scratch;

use crate::arguments::{Set, Wanted};
use crate::page::Section;

/// The most that the control plane of the tests has addresses for.
const MOST_SERVICES: usize = 20_000;
/// What runs beside timed changes: the most changes that Kubernetes promises to bear, and questions.
const OTHER_CHANGES_PER_S: usize = 20;
const QUESTIONS_PER_S: u32 = 5_000;
/// More than an API server on two processors takes.
const CHURN_PER_S: usize = 1_000;
const QUESTIONS: usize = 50_000;
const SOCKETS: usize = 64;
const SEED: u64 = 20_261_123;
const SMOKE_CHANGES: usize = 10;
const SMOKE_MINUTES: f64 = 0.05;
/// After which a server that was started, or got many changes, is at rest.
const REST: Duration = Duration::from_secs(3);
/// One run of the questions beside changes; they are asked again and again.
const TURN: Duration = Duration::from_millis(500);
/// How long a snapshot may take to be written.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(100);

/// Beside an API server with each of the sizes that it can hold. Empty where its programs were not built.
pub(crate) fn measure(wanted: &Wanted) -> anyhow::Result<Vec<Section>> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut sections = Vec::new();
    for services in &wanted.services {
        if *services > MOST_SERVICES {
            println!("{services} Services are too many for the API server: left out");
            continue;
        }
        sections.extend(runtime.block_on(one_size(*services, wanted))?);
    }
    Ok(sections)
}

async fn one_size(services: usize, wanted: &Wanted) -> anyhow::Result<Option<Section>> {
    // No controllers: only this program writes, and what it takes is the API server's alone.
    let setup = Setup { controllers: false, ..Setup::default() };
    let Some(plane) = ControlPlane::start(setup).await else { return Ok(None) };
    let (client, cluster) = (plane.client().await, Cluster::new(services, "ns"));
    println!("\n{services} Services in a real API server");
    fill(&client, &cluster).await;
    let (own, mut programs) = (std::env::current_exe()?, Vec::new());
    for peer in WATCHING.into_iter().filter(|peer| wanted.wants(*peer)) {
        match peer.program(&own) {
            Some(program) => programs.push((peer, program)),
            None => println!("{} is not installed: left out", peer.name()),
        }
    }
    let moving = Arc::new(Mutex::new(cluster.clone()));
    let mut scene = Scene { plane, client, cluster, moving };
    let mut turns = Vec::new();
    for (peer, program) in there_and_back(&programs) {
        turns.push(scene.turn(peer, &program, wanted).await?);
    }
    let snapshot = match programs.iter().find(|(peer, _)| *peer == Peer::Ours) {
        Some((_, program)) => Some(scene.restart_from_snapshot(program)?),
        None => None,
    };
    Ok(Some(section(services, &turns, snapshot)?))
}

/// What one process did.
struct Turn {
    peer: Peer,
    ready: Duration,
    processor_until_ready: Duration,
    peak_until_ready_mib: f64,
    at_rest_mib: f64,
    idle: Propagation,
    under_load: Propagation,
    beside: Beside,
    churn: Churn,
}

/// What became of the questions beside timed changes.
#[derive(Default)]
struct Beside {
    sent: u64,
    lost: u64,
    wrong: u64,
}

/// Many changes and nothing else.
struct Churn {
    per_s: f64,
    minutes: f64,
    processor_us: f64,
    peak_mib: f64,
    after_mib: f64,
}

struct Scene {
    plane: ControlPlane,
    client: Client,
    /// As the timed changes left it.
    cluster: Cluster,
    /// As all other changes left it: they are of other Services.
    moving: Arc<Mutex<Cluster>>,
}

impl Scene {
    async fn turn(
        &mut self,
        peer: Peer,
        program: &std::path::Path,
        wanted: &Wanted,
    ) -> anyhow::Result<Turn> {
        let is_smoke = wanted.set == Set::Smoke;
        let changes = if is_smoke { SMOKE_CHANGES } else { wanted.changes / 2 };
        let minutes = if is_smoke { SMOKE_MINUTES } else { wanted.minutes };
        let mut server = self.start(peer, program, None)?;
        let processor_until_ready = server.family.processor();
        let (_, peak_until_ready_mib, _) = server.family.memory_mib();
        tokio::time::sleep(REST).await;
        let (at_rest_mib, ..) = server.family.memory_mib();
        let (timed, others) = self.services();
        let idle = propagation(&self.client, &mut self.cluster, server.dns, &timed, changes).await;
        let (under_load, beside) = self.under_load(&server, &timed, &others, changes).await?;
        server.ensure_running()?;
        let churn = self.churn(&server, others, minutes).await?;
        server.ensure_running()?;
        let turn = Turn {
            peer,
            ready: server.ready_after,
            processor_until_ready,
            peak_until_ready_mib,
            at_rest_mib,
            idle,
            under_load,
            beside,
            churn,
        };
        println!(
            "{:11} ready {:.2?}  {:.1} MiB  a change idle {} ms, under load {} ms",
            peer.name(),
            turn.ready,
            turn.at_rest_mib,
            Distribution::of(turn.idle.from_request.iter().copied()).text(),
            Distribution::of(turn.under_load.from_request.iter().copied()).text(),
        );
        Ok(turn)
    }

    fn start(
        &self,
        peer: Peer,
        program: &std::path::Path,
        snapshots: Option<&std::path::Path>,
    ) -> anyhow::Result<Server> {
        let hit = Trace::hit(&self.cluster, 1, SEED);
        start(peer, program, self.plane.kubeconfig(), snapshots, hit.get(0))
    }

    /// Services whose changes are timed, and all others that change.
    fn services(&self) -> (Vec<usize>, Vec<usize>) {
        let headless: Vec<usize> = self.cluster.headless().collect();
        let (timed, others) = headless.split_at(headless.len() / 3);
        (timed.to_vec(), others.to_vec())
    }

    /// Changes of these Services, one after the other, without an end.
    fn changes(&self, services: Vec<usize>) -> impl Iterator<Item = Write> + Send + use<> {
        let moving = Arc::clone(&self.moving);
        (0..).map(move |number: usize| {
            let mut cluster = moving.lock().expect("no panic");
            Write::moving(&mut cluster, services[number % services.len()])
        })
    }

    /// Timed changes beside other changes and questions.
    async fn under_load(
        &mut self,
        server: &Server,
        timed: &[usize],
        others: &[usize],
        changes: usize,
    ) -> anyhow::Result<(Propagation, Beside)> {
        let others = self.changes(others.to_vec());
        let writing = tokio::spawn(write_at(self.client.clone(), others, OTHER_CHANGES_PER_S));
        let is_over = Arc::new(AtomicBool::new(false));
        let asking = std::thread::spawn({
            let (is_over, dns) = (Arc::clone(&is_over), server.dns);
            let hit = Trace::hit(&self.cluster, QUESTIONS, SEED);
            move || ask(dns, &hit, &is_over)
        });
        let times = propagation(&self.client, &mut self.cluster, server.dns, timed, changes).await;
        writing.abort();
        is_over.store(true, Ordering::Relaxed);
        let asked = tokio::task::spawn_blocking(|| asking.join()).await?;
        Ok((times, asked.map_err(|_| anyhow::anyhow!("the generator panicked"))??))
    }

    /// As many changes as the API server takes.
    async fn churn(
        &self,
        server: &Server,
        others: Vec<usize>,
        minutes: f64,
    ) -> anyhow::Result<Churn> {
        let (before, begun) = (server.family.processor(), Instant::now());
        let lasting = Duration::from_secs_f64(minutes * 60.0);
        let changes = self.changes(others).take_while(move |_| begun.elapsed() < lasting);
        let written = Arc::new(Mutex::new(0_u64));
        let counted = changes.inspect({
            let written = Arc::clone(&written);
            move |_| *written.lock().expect("no panic") += 1
        });
        server.family.forget_peak()?;
        write_at(self.client.clone(), counted, CHURN_PER_S).await;
        let took = begun.elapsed().as_secs_f64();
        tokio::time::sleep(REST).await;
        let written = (*written.lock().expect("no panic")).max(1) as f64;
        let processor = server.family.processor().saturating_sub(before);
        let (after_mib, peak_mib, _) = server.family.memory_mib();
        let processor_us = processor.as_secs_f64() * 1e6 / written;
        Ok(Churn { per_s: written / took, minutes, processor_us, peak_mib, after_mib })
    }

    /// From the start of ours to the first right answer, with a snapshot of a process before it.
    fn restart_from_snapshot(&self, program: &std::path::Path) -> anyhow::Result<Duration> {
        let folder = Scratch::new("snapshots")?;
        let first = self.start(Peer::Ours, program, Some(folder.path()))?;
        let (begun, is_empty) = (Instant::now(), || {
            std::fs::read_dir(folder.path()).is_ok_and(|mut files| files.next().is_none())
        });
        while is_empty() {
            anyhow::ensure!(begun.elapsed() < PATIENCE, "no snapshot was written");
            std::thread::sleep(POLL);
        }
        // It has its name only when it is complete; a file with another name may be one that is being written.
        std::thread::sleep(REST);
        drop(first);
        Ok(self.start(Peer::Ours, program, Some(folder.path()))?.ready_after)
    }
}

/// Asks until it is over.
fn ask(
    server: std::net::SocketAddr,
    trace: &Trace,
    is_over: &AtomicBool,
) -> std::io::Result<Beside> {
    let mut generator = Generator::new(Udp::open(server, SOCKETS)?);
    let mut all = Beside::default();
    while !is_over.load(Ordering::Relaxed) {
        let Outcome { sent, lost, wrong, .. } =
            generator.run(trace, Pace::Rate(QUESTIONS_PER_S), TURN)?;
        all.sent += sent;
        all.lost += lost;
        all.wrong += wrong;
    }
    Ok(all)
}

fn of(turns: &[Turn], peer: Peer, what: impl Fn(&Turn) -> &Vec<Duration>) -> Distribution {
    let turns = turns.iter().filter(|turn| turn.peer == peer);
    Distribution::of(turns.flat_map(|turn| what(turn).iter().copied()))
}

fn section(services: usize, turns: &[Turn], snapshot: Option<Duration>) -> anyhow::Result<Section> {
    let mut text = format!("\n### {services} Services, watching a real API server\n\n");
    text.push_str(
        "| Server | exec to the first right answer, s | processor until then, s | memory: at rest, most until then, MiB |\n\
         |---|---|---|---|\n",
    );
    for turn in turns {
        writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.1}, {:.1} |",
            turn.peer.name(),
            turn.ready.as_secs_f64(),
            turn.processor_until_ready.as_secs_f64(),
            turn.at_rest_mib,
            turn.peak_until_ready_mib
        )?;
    }
    if let Some(snapshot) = snapshot {
        let name = Peer::Ours.name();
        writeln!(text, "| {name}, from a snapshot | {:.2} | - | - |", snapshot.as_secs_f64())?;
    }
    write!(
        text,
        "\nFrom the write of a slice to the right answer, p50 / p99 / longest, ms; under load there are {OTHER_CHANGES_PER_S} \
         other changes and {QUESTIONS_PER_S} questions a second. \"Beyond the reply\" is the time from the reply of the API server to the \
         answer, 0 where the answer was there first:\n\n\
         | Server | changes | idle | under load | beyond the reply, idle | beyond the reply, under load | questions lost, wrong |\n\
         |---|---|---|---|---|---|---|\n"
    )?;
    let mut curves = Vec::new();
    for peer in WATCHING.into_iter().filter(|peer| turns.iter().any(|turn| turn.peer == *peer)) {
        let (idle, loaded) = (
            of(turns, peer, |turn| &turn.idle.from_request),
            of(turns, peer, |turn| &turn.under_load.from_request),
        );
        let (idle_beyond, loaded_beyond) = (
            of(turns, peer, |turn| &turn.idle.from_reply),
            of(turns, peer, |turn| &turn.under_load.from_reply),
        );
        let own = || turns.iter().filter(|turn| turn.peer == peer);
        let count: usize = own().map(|turn| turn.idle.from_request.len()).sum();
        let (lost, wrong, sent) = own().fold((0, 0, 0), |(lost, wrong, sent), turn| {
            let beside = &turn.beside;
            (lost + beside.lost, wrong + beside.wrong, sent + beside.sent)
        });
        let (name, idle_text, loaded_text) = (peer.name(), idle.text(), loaded.text());
        let (idle_beyond, loaded_beyond) = (idle_beyond.text(), loaded_beyond.text());
        writeln!(
            text,
            "| {name} | {count} | {idle_text} | {loaded_text} | {idle_beyond} | {loaded_beyond} | {lost}, {wrong} of {sent} |"
        )?;
        curves.push(Curve { peer, what: "idle", points: idle.slower(), is_thin: false });
        curves.push(Curve { peer, what: "under load", points: loaded.slower(), is_thin: true });
    }
    write!(
        text,
        "\nChanges as fast as the API server takes them, at most {CHURN_PER_S} a second:\n\n\
         | Server | minutes | changes a second | processor for a change, µs | memory: before, most, after, MiB |\n\
         |---|---|---|---|---|\n"
    )?;
    for turn in turns {
        let Churn { per_s, minutes, processor_us, peak_mib, after_mib } = turn.churn;
        let (name, before) = (turn.peer.name(), turn.at_rest_mib);
        writeln!(
            text,
            "| {name} | {minutes} | {per_s:.0} | {processor_us:.0} | {before:.1}, {peak_mib:.1}, {after_mib:.1} |"
        )?;
    }
    let axes = Axes {
        caption: "from a write to its answer",
        x: "milliseconds",
        y: "share of changes that took longer",
        legend: Corner::UpperRight,
    };
    let raw = format!("changes-{services}.csv");
    let mut files = vec![(raw.clone().into(), csv(turns))];
    text.push('\n');
    if let Some(picture) = draw(axes, &curves)? {
        let name = format!("changes-{services}.svg");
        writeln!(text, "![{name}](benchmarks/{name})\n")?;
        files.push((name.into(), picture));
    }
    writeln!(text, "Every change: [{raw}](benchmarks/{raw}).")?;
    Ok(Section { text, files })
}

/// Every timed change.
fn csv(turns: &[Turn]) -> String {
    let mut text = String::from("server,turn,when,ms,ms beyond the reply\n");
    for (number, turn) in turns.iter().enumerate() {
        for (when, times) in [("idle", &turn.idle), ("under load", &turn.under_load)] {
            for (time, beyond) in times.from_request.iter().zip(&times.from_reply) {
                let [ms, beyond] = [time, beyond].map(|time| time.as_secs_f64() * 1e3);
                writeln!(text, "{:?},{number},{when},{ms:.3},{beyond:.3}", turn.peer)
                    .expect("a string takes everything");
            }
        }
    }
    text
}
