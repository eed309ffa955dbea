//! What is measured, in its order: which servers, questions and rates.

use std::time::{Duration, Instant};

use anyhow::Context;
use tests::load::fixture::Shape;
use tests::load::processor::pinned;
use tests::load::runs::{Run, Via};
use tests::load::schedule::Pace;
use tests::load::servers::Peer;
use tests::load::trace::Trace;

use crate::arguments::{Part, Set, Wanted};
use crate::caches;
use crate::crowd;
use crate::encrypted;
use crate::measure::{GENERATOR, Questions, Scene};
use crate::page::{self, Section};
use crate::pressure;
use crate::watch;
use crate::workers;

/// Every batch of a server is full, and the queue of a socket, which holds some 270 datagrams by default, does not overflow.
pub(crate) const MOST: Pace = Pace::Window(192);
/// The rate at which processor times of all servers are compared, with the cost of waking up.
pub(crate) const RATE: Pace = Pace::Rate(20_000);
pub(crate) const RATES: [u32; 5] = [5_000, 10_000, 20_000, 60_000, 120_000];
pub(crate) const FORWARD_RATES: [u32; 3] = [1_000, 5_000, 20_000];
/// For every question. A catalog of hickory-server is not among them: it walks through the whole zone for a denial.
const WHOLE_ZONE: [Peer; 6] =
    [Peer::Echo, Peer::EchoPktinfo, Peer::Ours, Peer::Knot, Peer::Nsd, Peer::CoreDns];
/// For addresses that exist: dnsmasq has no SRV records here.
const ADDRESSES: [Peer; 8] = [
    Peer::Echo,
    Peer::EchoPktinfo,
    Peer::Ours,
    Peer::Knot,
    Peer::Nsd,
    Peer::Dnsmasq,
    Peer::CoreDns,
    Peer::Hickory,
];
const FORWARDERS: [Peer; 5] = [Peer::Echo, Peer::Ours, Peer::Dnsmasq, Peer::Unbound, Peer::CoreDns];
const STREAMS: [Peer; 5] = [Peer::Ours, Peer::Knot, Peer::Nsd, Peer::CoreDns, Peer::Hickory];
/// Those that answer over TLS.
const TLS: [Peer; 5] = [Peer::Ours, Peer::Knot, Peer::Nsd, Peer::Unbound, Peer::CoreDns];
const TLS_ZONES: [Peer; 4] = [Peer::Ours, Peer::Knot, Peer::Nsd, Peer::CoreDns];
const TLS_FORWARDERS: [Peer; 3] = [Peer::Ours, Peer::Unbound, Peer::CoreDns];
/// Few: all are in the cache after the warm-up of a server.
const TLS_NAMES: usize = 100;
/// Services beside which foreign names are asked for.
const FORWARDED_BESIDE: usize = 10;
/// Services where servers get more questions than they answer.
const CROWDED: usize = 1_000;
const QUESTIONS: usize = 200_000;
const EXTERNAL_NAMES: usize = 1_000;
const SEED: u64 = 20_251_122;

/// Everything that was asked for.
pub(crate) fn run(wanted: &Wanted) -> anyhow::Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    anyhow::ensure!(processors > GENERATOR, "server and generator need a processor each");
    let seconds = if wanted.set == Set::Smoke { 0.2 } else { wanted.seconds };
    let (lasting, begun) = (Duration::from_secs_f64(seconds), Instant::now());
    if wanted.has_apart(Part::Hits) {
        caches::hits()?;
    }
    if wanted.has_apart(Part::Memory) {
        caches::memory()?;
    }
    if wanted.has_apart(Part::Encrypted) {
        encrypted::compare(lasting)?;
    }
    let mut sections: Vec<Section> = Vec::new();
    if wanted.has_apart(Part::Watch) {
        sections.extend(watch::measure(wanted)?);
    }
    if wanted.has_apart(Part::Crowd) {
        println!("\n{CROWDED} Services, more questions than a server answers");
        let mut scene = Scene::start(CROWDED, lasting, wanted, &crowd::SERVERS)?;
        sections.push(pinned(GENERATOR, || crowd::measure(&mut scene, wanted))?);
    }
    if wanted.has_apart(Part::Pressure) {
        println!("\n{CROWDED} Services, clients beside a flood");
        let shape = Shape { has_default_limits: true, ..Shape::default() };
        let mut scene = Scene::start_as(CROWDED, lasting, wanted, &crowd::SERVERS, shape)?;
        sections.push(pinned(GENERATOR, || pressure::measure(&mut scene, wanted))?);
    }
    if wanted.has_apart(Part::Workers) {
        sections.push(workers::measure(CROWDED, lasting, wanted)?);
    }
    if wanted.has_apart(Part::Tls) {
        sections.push(over_tls(lasting, wanted)?);
    }
    let mut sizes = Vec::new();
    for (number, services) in wanted.services.iter().enumerate() {
        let mut size = None;
        if wanted.asks_for_services() {
            println!("\n{services} Services");
            let mut scene = Scene::start(*services, lasting, wanted, &Peer::ALL)?;
            // The generator has its processor alone from here on; servers keep theirs.
            let runs = pinned(GENERATOR, || measure(&mut scene, wanted))?;
            size = Some(page::Size::of(scene, runs));
        }
        // The same for every size: a server that looks through its whole zone for a foreign name is not measured by that.
        if number == 0 && wanted.asks_outside() && wanted.set != Set::Smoke {
            println!("\n{FORWARDED_BESIDE} Services, names outside the cluster");
            let mut scene = Scene::start(FORWARDED_BESIDE, lasting, wanted, &FORWARDERS)?;
            let runs = pinned(GENERATOR, || forward(&mut scene, wanted));
            let outside = page::Size::of(scene, runs);
            size = Some(match size {
                Some(size) => size.with(outside),
                None => outside,
            });
        }
        sizes.extend(size);
    }
    if sizes.is_empty() && sections.is_empty() {
        return Ok(());
    }
    page::write(wanted, &sizes, &sections, begun.elapsed())
}

/// Names outside the cluster.
fn forward(scene: &mut Scene, wanted: &Wanted) -> Vec<Run> {
    let external = Questions::Same(Trace::external(EXTERNAL_NAMES, QUESTIONS, SEED));
    let hits = wanted.has(Part::Forward).then_some(external);
    let mut runs = Vec::new();
    for questions in hits.into_iter().chain([Questions::Misses]) {
        for rate in FORWARD_RATES {
            runs.extend(scene.compare(&FORWARDERS, &questions, Via::Udp, Pace::Rate(rate)));
        }
    }
    runs
}

/// Questions over TLS.
fn over_tls(lasting: Duration, wanted: &Wanted) -> anyhow::Result<Section> {
    println!("\n{CROWDED} Services, over TLS");
    let shape = Shape { has_tls: true, ..Shape::default() };
    let mut scene = Scene::start_as(CROWDED, lasting, wanted, &TLS, shape)?;
    let hit = Questions::Same(Trace::hit(&scene.cluster, QUESTIONS, SEED));
    let outside = Questions::Same(Trace::external(TLS_NAMES, QUESTIONS, SEED));
    let runs = pinned(GENERATOR, || {
        let mut runs = Vec::new();
        for pace in [RATE, MOST] {
            runs.extend(scene.compare(&TLS_ZONES, &hit, Via::Tls, pace));
            runs.extend(scene.compare(&TLS_FORWARDERS, &outside, Via::Tls, pace));
        }
        runs
    });
    Ok(page::tls(&scene, &runs))
}

fn measure(scene: &mut Scene, wanted: &Wanted) -> anyhow::Result<Vec<Run>> {
    let cluster = scene.cluster.clone();
    let hit = Questions::Same(Trace::hit(&cluster, QUESTIONS, SEED));
    let mix = Questions::Same(Trace::mix(&cluster, QUESTIONS, SEED));
    let headless = Questions::Same(Trace::headless(&cluster, QUESTIONS, SEED));
    let mut runs = Vec::new();
    let is_all = wanted.set == Set::All;
    if wanted.has(Part::Most) {
        let all = [(&hit, &ADDRESSES[..]), (&mix, &WHOLE_ZONE[..]), (&headless, &ADDRESSES[..])];
        for (questions, peers) in all {
            runs.extend(scene.compare(peers, questions, Via::Udp, MOST));
        }
        if is_all {
            let flood = Questions::Same(Trace::flood(&cluster, QUESTIONS, SEED));
            runs.extend(scene.compare(&WHOLE_ZONE, &flood, Via::Udp, MOST));
        }
    }
    if wanted.set == Set::Smoke {
        return Ok(runs);
    }
    if wanted.has(Part::Rates) {
        for rate in if is_all { &ALL_RATES[..] } else { &RATES[..] } {
            runs.extend(scene.compare(&ADDRESSES, &hit, Via::Udp, Pace::Rate(*rate)));
        }
        for questions in [&mix, &headless] {
            runs.extend(scene.compare(&WHOLE_ZONE, questions, Via::Udp, RATE));
        }
    }
    if wanted.has(Part::Tcp) {
        for pace in if is_all { &[RATE, MOST][..] } else { &[RATE][..] } {
            runs.extend(scene.compare(&STREAMS, &hit, Via::Tcp, *pace));
        }
    }
    if let Some(file) = &wanted.recorded {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let trace = Trace::recorded(&text).map_err(anyhow::Error::msg)?;
        runs.extend(scene.compare(&Peer::ALL, &Questions::Same(trace), Via::Udp, RATE));
    }
    Ok(runs)
}

const ALL_RATES: [u32; 8] = [1_000, 5_000, 10_000, 20_000, 40_000, 60_000, 90_000, 120_000];
