//! One comparison: every server in turn, then in the opposite order, with the same questions.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use tests::load::fixture::{Fixture, Shape};
use tests::load::generator::{Carrier, Generator};
use tests::load::outcome::Outcome;
use tests::load::processor::pinned_to;
use tests::load::runs::{Run, Via};
use tests::load::schedule::Pace;
use tests::load::servers::{Peer, Server};
use tests::load::statistics::there_and_back;
use tests::load::stream::Streams;
use tests::load::trace::Trace;
use tests::load::udp::Udp;
use tests::load::upstream::Upstream;
use tests::scale::Cluster;

use crate::arguments::Wanted;

/// The processors of server and generator.
pub(crate) const SERVER: usize = 0;
pub(crate) const GENERATOR: usize = 1;
pub(crate) const WARM_UP: Duration = Duration::from_millis(250);
/// Few questions at once: caches fill, the state of upstreams is known, and nothing is lost.
pub(crate) const WARM_UP_PACE: Pace = Pace::Window(64);
/// More than any server answers during the warm-up.
const WARM_UP_QUESTIONS: usize = 100_000;
const CONNECTIONS: usize = 16;
const SEED: u64 = 1;

/// Questions of a comparison.
#[derive(Clone, Debug)]
pub(crate) enum Questions {
    /// The same for every run.
    Same(Trace),
    /// Names that no cache has: other ones for every run.
    Misses,
}

/// The servers that run, their cluster, and the upstream of those that forward.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) servers: Vec<Server>,
    /// Peers that are not installed.
    pub(crate) missing: Vec<Peer>,
    /// Peers that did not start, and what they said.
    pub(crate) failed: Vec<(Peer, String)>,
    /// Program and version of each that runs.
    pub(crate) versions: Vec<(Peer, String)>,
    /// Runs that failed, and why.
    pub(crate) broken: Vec<String>,
    pub(crate) upstream: Upstream,
    pub(crate) lasting: Duration,
    pub(crate) rounds: usize,
    pub(crate) sockets: usize,
    runs_so_far: u64,
    fixture: Fixture,
}

impl Scene {
    /// Starts these servers as far as they are wanted and there, one after the other.
    pub(crate) fn start(
        services: usize,
        lasting: Duration,
        wanted: &Wanted,
        peers: &[Peer],
    ) -> anyhow::Result<Scene> {
        Scene::start_as(services, lasting, wanted, peers, Shape::default())
    }

    /// The same, where servers run so. With one worker they are on one processor, with more on the first ones.
    pub(crate) fn start_as(
        services: usize,
        lasting: Duration,
        wanted: &Wanted,
        peers: &[Peer],
        shape: Shape,
    ) -> anyhow::Result<Scene> {
        let cluster = Cluster::of_manifests(services, "ns");
        let upstream = Upstream::open()?;
        let address = upstream.address()?;
        let fixture = Fixture::write_for(&cluster, address, shape).context("the fixture")?;
        let hit = Trace::hit(&cluster, 1, SEED);
        // Unbound has no zone: it must only forward.
        let outside = Trace::external(1, 1, SEED);
        let own = std::env::current_exe()?;
        let (mut servers, mut missing, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        let mut versions = Vec::new();
        for peer in peers.iter().copied().filter(|peer| wanted.wants(*peer)) {
            let Some(program) = peer.program(&own) else {
                println!("{} is not installed: left out", peer.name());
                missing.push(peer);
                continue;
            };
            versions.push((peer, peer.version(&program)));
            let question = if peer == Peer::Unbound { outside.get(0) } else { hit.get(0) };
            match start(peer, &program, &fixture, address, question, &upstream) {
                Ok(server) => {
                    println!("{} is ready after {:.2?}", peer.name(), server.ready_after);
                    servers.push(server);
                }
                Err(error) => {
                    println!("{} does not start: {error:#}", peer.name());
                    failed.push((peer, format!("{error:#}")));
                }
            }
        }
        Ok(Scene {
            cluster,
            servers,
            missing,
            failed,
            versions,
            broken: Vec::new(),
            upstream,
            lasting,
            rounds: wanted.rounds,
            sockets: wanted.sockets.into(),
            runs_so_far: 0,
            fixture,
        })
    }

    /// Measures these peers in turn, and then in the opposite order.
    pub(crate) fn compare(
        &mut self,
        peers: &[Peer],
        questions: &Questions,
        via: Via,
        pace: Pace,
    ) -> Vec<Run> {
        let running = self.servers.iter().enumerate();
        let chosen = running.filter(|(_, server)| peers.contains(&server.peer));
        let chosen: Vec<usize> = chosen.map(|(at, _)| at).collect();
        let mut runs = Vec::new();
        for pass in 0..self.rounds {
            for (number, at) in there_and_back(&chosen).into_iter().enumerate() {
                let pass = pass * 2 + usize::from(number >= chosen.len());
                match self.one(at, questions, via, pace, pass) {
                    Ok(run) => {
                        report(&run);
                        runs.push(run);
                    }
                    // One server that ends or hangs up must not cost the figures of all others.
                    Err(error) => {
                        let name = self.servers[at].peer.name();
                        let broken = format!("{name}, {via:?}, {}: {error:#}", pace.text());
                        println!("{broken}");
                        self.broken.push(broken);
                    }
                }
            }
        }
        runs
    }

    /// One run: a warm-up, then the measurement.
    fn one(
        &mut self,
        at: usize,
        questions: &Questions,
        via: Via,
        pace: Pace,
        pass: usize,
    ) -> anyhow::Result<Run> {
        self.runs_so_far += 1;
        let trace = match questions {
            Questions::Same(trace) => trace.clone(),
            Questions::Misses => {
                let per_s = if let Pace::Rate(per_s) = pace { per_s as usize } else { 200_000 };
                let count =
                    WARM_UP_QUESTIONS + (per_s as f64 * self.lasting.as_secs_f64()) as usize;
                Trace::misses(count, self.runs_so_far)
            }
        };
        let server = &mut self.servers[at];
        server.ensure_running()?;
        let (outcome, processor) = match via {
            Via::Udp => {
                let upstream = Upstream::on(self.upstream.shared()?);
                let udp = Udp::open(server.dns, self.sockets)?.with_upstream(upstream)?;
                let mut generator = Generator::new(udp);
                warm_and_measure(&mut generator, server, &trace, pace, self.lasting)?
            }
            Via::Tcp | Via::Tls => {
                let (to, tls) = match via {
                    Via::Tls => {
                        let to = server.tls.context("it has no TLS here")?;
                        (to, Some(self.fixture.trust()?))
                    }
                    Via::Tcp | Via::Udp => (server.dns, None),
                };
                let streams = Streams::open(to, CONNECTIONS, tls)?;
                let upstream = Upstream::on(self.upstream.shared()?);
                let streams = streams.with_upstream(upstream)?;
                let mut generator = Generator::new(streams);
                warm_and_measure(&mut generator, server, &trace, pace, self.lasting)?
            }
        };
        let peer = server.peer;
        Ok(Run { peer, trace: trace.name, via, pace, pass, outcome, processor })
    }
}

/// Starts a server on its processor, while the upstream answers it.
fn start(
    peer: Peer,
    program: &Path,
    fixture: &Fixture,
    upstream_address: std::net::SocketAddr,
    question: (&[u8], tests::load::check::Expected),
    upstream: &Upstream,
) -> anyhow::Result<Server> {
    let is_over = AtomicBool::new(false);
    let socket = upstream.shared()?;
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let answering = scope.spawn(move || {
            let mut beside = Upstream::on(socket);
            while !is_over.load(Ordering::Relaxed) {
                let _ = beside.serve();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let server = pinned_to(SERVER..SERVER + fixture.shape.workers, || {
            peer.start(program, fixture, upstream_address, question)
        });
        is_over.store(true, Ordering::Relaxed);
        let _ = answering.join();
        server
    })
}

fn warm_and_measure<C: Carrier>(
    generator: &mut Generator<C>,
    server: &Server,
    trace: &Trace,
    pace: Pace,
    lasting: Duration,
) -> anyhow::Result<(Outcome, Duration)> {
    generator.run(trace, WARM_UP_PACE, WARM_UP)?;
    let before = server.family.processor();
    let outcome = generator.run(trace, pace, lasting)?;
    Ok((outcome, server.family.processor().saturating_sub(before)))
}

/// A line while it runs.
fn report(run: &Run) {
    let it = &run.outcome;
    println!(
        "{:18} {:14} {:?} {:>14}  {:6.2} us  {:>8.0}/s  p50 {:>7.1}  p99 {:>8.1} us  lost {} wrong {} ({}){}",
        run.peer.name(),
        run.trace,
        run.via,
        run.pace.text(),
        run.processor_us(),
        it.answered_per_s(),
        it.latency_us(0.5),
        it.latency_us(0.99),
        it.lost,
        it.wrong,
        it.rcodes_text(),
        if run.is_generator_bound() { ", generator-bound" } else { "" },
    );
    // An echo gives no right answer.
    let is_echo = matches!(run.peer, Peer::Echo | Peer::EchoPktinfo);
    if let Some(example) = it.example.as_ref().filter(|_| !is_echo) {
        println!("  {example}");
    }
}
