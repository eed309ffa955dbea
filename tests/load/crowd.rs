//! More questions than a server answers, and what one client gets beside another that floods it.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tests::load::check::{Verdict, judge};
use tests::load::flights::PER_SOCKET;
use tests::load::generator::{Client, Generator, run_beside};
use tests::load::outcome::Outcome;
use tests::load::schedule::Pace;
use tests::load::servers::{Peer, Server};
use tests::load::statistics::there_and_back;
use tests::load::trace::Trace;
use tests::load::udp::Udp;
use tests::load::upstream::Upstream;
use tests::processor_limit::ProcessorLimit;

use crate::arguments::Wanted;
use crate::measure::{Scene, WARM_UP, WARM_UP_PACE};
use crate::page::Section;
use crate::sets::MOST;

/// All but the echoes and hickory-server, whose catalog walks through the whole zone for a denial.
pub(crate) const SERVERS: [Peer; 6] =
    [Peer::Ours, Peer::Knot, Peer::Nsd, Peer::Dnsmasq, Peer::Unbound, Peer::CoreDns];
/// Those that ask an upstream.
pub(crate) const FORWARDERS: [Peer; 4] = [Peer::Ours, Peer::Dnsmasq, Peer::Unbound, Peer::CoreDns];
/// So often what a server answers at most is asked, with all of its processor and with a part.
const TIMES: [f64; 2] = [3.0, 10.0];
/// That part is one of this many milliseconds, as a container with a limit has it: the generator can ask ten times as many
/// questions as the server then answers.
const ONE_MS_IN: u64 = 15;
/// After that it is asked until it answers: how often at most, and how long each time.
const AGAIN: usize = 5_000;
const AGAIN_EVERY: Duration = Duration::from_millis(1);
/// Questions of each socket that may wait. What lies in the queue of a server that is asked too much is answered after half a
/// second, in which the generator sends 130,000 more: with fewer places these answers would count as lost.
const WAITING: usize = 4_096;
const VICTIM_PER_S: u32 = 1_000;
/// Another address than the victim's: the flood is of one client.
const FLOODER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Names that do not exist, and names that no cache has.
const DENIED_PER_S: u32 = 100_000;
const MISSED_PER_S: u32 = 20_000;
const QUESTIONS: usize = 200_000;
const OUTSIDE: usize = 100;
const SEED: u64 = 20_261_124;
const MIB: &str = "MiB before, most";

/// What one server did with too many questions.
struct Overload {
    peer: Peer,
    /// One millisecond of the processor in this many, or all.
    one_ms_in: Option<u64>,
    /// Answers a second with 192 questions at once: the mean of before and after.
    most_per_s: f64,
    times: f64,
    overloaded: Outcome,
    /// From the last question until the first answer to another client.
    again_after: Duration,
    before_mib: f64,
    peak_mib: f64,
}

/// What one client got, alone and beside a flood.
struct Victim {
    peer: Peer,
    flood: &'static str,
    alone: Outcome,
    beside: Outcome,
    flooded: Outcome,
}

/// Every server there and back.
pub(crate) fn measure(scene: &mut Scene, wanted: &Wanted) -> anyhow::Result<Section> {
    let cluster = scene.cluster.clone();
    let hit = Trace::hit(&cluster, QUESTIONS, SEED);
    let denied = Trace::flood(&cluster, QUESTIONS, SEED);
    let outside = Trace::external(OUTSIDE, QUESTIONS, SEED);
    let (mut overloads, mut victims) = (Vec::new(), Vec::new());
    let all: Vec<usize> = (0..scene.servers.len()).collect();
    for (number, at) in there_and_back(&all).into_iter().enumerate() {
        scene.servers[at].ensure_running()?;
        let (peer, is_forwarder) =
            (scene.servers[at].peer, FORWARDERS.contains(&scene.servers[at].peer));
        // Unbound has no zone.
        if peer != Peer::Unbound && wanted.wants_row("L1") {
            for one_ms_in in [None, Some(ONE_MS_IN)] {
                match overload(scene, at, &hit, one_ms_in) {
                    Ok(both) => overloads.extend(both),
                    // One server that hangs up, or a machine without cgroups, must not cost all other figures.
                    Err(error) => {
                        let broken = format!("{}, overload: {error:#}", peer.name());
                        println!("{broken}");
                        scene.broken.push(broken);
                    }
                }
                scene.servers[at].ensure_running()?;
            }
        }
        if peer != Peer::Unbound && wanted.row.is_empty() {
            let flood = (&denied, DENIED_PER_S, "names that do not exist");
            victims.push(victim(scene, at, &hit, flood)?);
        }
        if is_forwarder && wanted.row.is_empty() {
            let count = (f64::from(MISSED_PER_S) * scene.lasting.as_secs_f64()) as usize;
            let missed = Trace::misses(count.max(1), SEED + number as u64);
            let flood = (&missed, MISSED_PER_S, "names that no cache has");
            victims.push(victim(scene, at, &outside, flood)?);
        }
        println!("{:15} has answered too many questions", peer.name());
    }
    Ok(Section { text: text(&overloads, &victims), files: Vec::new() })
}

/// Sockets of one client of a server, with room for this many questions of each that wait.
fn client(
    scene: &Scene,
    server: &Server,
    own: Ipv4Addr,
    per_socket: usize,
) -> anyhow::Result<Generator<Udp>> {
    Ok(Generator::with_room(Udp::open_from(own, server.dns, scene.sockets)?, per_socket))
}

/// The same, which also plays the upstream.
fn with_upstream(scene: &Scene, server: &Server) -> anyhow::Result<Generator<Udp>> {
    let upstream = Upstream::on(scene.upstream.shared()?);
    let udp = Udp::open_from(Ipv4Addr::LOCALHOST, server.dns, scene.sockets)?;
    Ok(Generator::new(udp.stamped()?.with_upstream(upstream)?))
}

fn overload(
    scene: &Scene,
    at: usize,
    trace: &Trace,
    one_ms_in: Option<u64>,
) -> anyhow::Result<Vec<Overload>> {
    let server = &scene.servers[at];
    let mut generator = client(scene, server, Ipv4Addr::LOCALHOST, WAITING)?;
    generator.run(trace, WARM_UP_PACE, WARM_UP)?;
    let limited = |part| ProcessorLimit::one_in(part, server.family.members());
    let _limit = one_ms_in.map(limited).transpose().context("a limit for its processor")?;
    let mut overloads = Vec::new();
    let mut before = generator.run(trace, MOST, scene.lasting)?.answered_per_s();
    for times in TIMES {
        server.family.forget_peak()?;
        let (before_mib, ..) = server.family.memory_mib();
        let per_s = (before * times).max(1.0) as u32;
        let overloaded = generator.flood(trace, Pace::Rate(per_s), scene.lasting)?;
        let again_after = answers_again(server, trace)?;
        let (_, peak_mib, _) = server.family.memory_mib();
        let peer = server.peer;
        // The same program answers up to a sixth more in one run than in the next: an overload between a good and a bad one
        // is compared with both.
        let after = generator.run(trace, MOST, scene.lasting)?.answered_per_s();
        let most_per_s = f64::midpoint(before, after);
        before = after;
        overloads.push(Overload {
            peer,
            one_ms_in,
            most_per_s,
            times,
            overloaded,
            again_after,
            before_mib,
            peak_mib,
        });
    }
    Ok(overloads)
}

/// How long it takes until another client has an answer.
fn answers_again(server: &Server, trace: &Trace) -> anyhow::Result<Duration> {
    let (socket, begun) = (UdpSocket::bind((FLOODER, 0))?, Instant::now());
    socket.connect(server.dns)?;
    socket.set_read_timeout(Some(AGAIN_EVERY))?;
    let ((query, expected), mut reply) = (trace.get(0), [0; 4_096]);
    for _ in 0..AGAIN {
        socket.send(query)?;
        let Ok(octets) = socket.recv(&mut reply) else { continue };
        if judge(query, &reply[..octets], expected).0 == Verdict::Right {
            return Ok(begun.elapsed());
        }
    }
    bail!("{} does not answer after an overload", server.peer.name())
}

fn victim(
    scene: &Scene,
    at: usize,
    trace: &Trace,
    (flood, per_s, what): (&Trace, u32, &'static str),
) -> anyhow::Result<Victim> {
    let server = &scene.servers[at];
    let mut quiet = with_upstream(scene, server)?;
    let mut loud = client(scene, server, FLOODER, PER_SOCKET)?;
    quiet.run(trace, WARM_UP_PACE, WARM_UP)?;
    let pace = Pace::Rate(VICTIM_PER_S);
    let alone = quiet.run(trace, pace, scene.lasting)?;
    let (beside, flooded) = run_beside(
        Client { generator: &mut quiet, trace, pace },
        Client { generator: &mut loud, trace: flood, pace: Pace::Rate(per_s) },
        scene.lasting,
    )?;
    Ok(Victim { peer: server.peer, flood: what, alone, beside, flooded })
}

fn text(overloads: &[Overload], victims: &[Victim]) -> String {
    let mut text = format!(
        "\n### More questions than a server answers\n\n\
         `hit`, 192 at once, and then {} and {} times as many a second as were answered; the most is the mean of the runs of 192 \
         at once before and after. And after how many \
         milliseconds another client has an answer. With all of a processor, and with one in {ONE_MS_IN} milliseconds of \
         it, as a container with a limit has it:\n\n\
         | Server | processor | answers a second at most | times | asked a second | answered a second | p99, µs | answers again, ms | {MIB} |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        TIMES[0], TIMES[1],
    );
    for run in overloads {
        let it = &run.overloaded;
        let sent_per_s = it.sent_per_s();
        let bound = if it.is_generator_bound() { " †" } else { "" };
        let (most, answered) = (run.most_per_s, it.answered_per_s());
        let share = answered * 100.0 / most.max(1.0);
        writeln!(
            text,
            "| {} | {} | {most:.0} | {} | {sent_per_s:.0}{bound} | {answered:.0} ({share:.0} %) | {:.0} | {:.1} | {:.1}, {:.1} |",
            run.peer.name(),
            run.one_ms_in.map_or_else(|| "all".to_owned(), |part| format!("1/{part}")),
            run.times,
            it.latency_us(0.99),
            run.again_after.as_secs_f64() * 1e3,
            run.before_mib,
            run.peak_mib,
        )
        .expect("a string takes everything");
    }
    write!(
        text,
        "\nOne client that asks {VICTIM_PER_S} questions a second, alone and beside one client that asks {DENIED_PER_S} names \
         that do not exist, or {MISSED_PER_S} that no cache has, a second; p50 / p99 from sending until the kernel has the reply / lost:\n\n\
         | Server | the other asks | alone, µs | beside it, µs | the other is answered |\n|---|---|---|---|---|\n"
    )
    .expect("a string takes everything");
    for run in victims {
        let answered = run.flooded.answered as f64 * 100.0 / run.flooded.sent.max(1) as f64;
        let bound = if run.flooded.is_generator_bound() { " †" } else { "" };
        writeln!(
            text,
            "| {} | {} | {} | {} | {answered:.0} %{bound} |",
            run.peer.name(),
            run.flood,
            seen(&run.alone),
            seen(&run.beside),
        )
        .expect("a string takes everything");
    }
    text
}

/// What a client sees: half and 99 % of its answers came within this, and what was lost.
fn seen(it: &Outcome) -> String {
    format!("{:.0} / {:.0} / {:.1} %", within(it, 0.5), within(it, 0.99), lost(it))
}

/// This share of the answers came within this many microseconds; of stamped replies without the generator's own waits.
pub(crate) fn within(it: &Outcome, share: f64) -> f64 {
    it.between_us(share).unwrap_or_else(|| it.latency_us(share))
}

/// Percent of the questions without an answer.
pub(crate) fn lost(it: &Outcome) -> f64 {
    it.lost as f64 * 100.0 / it.sent.max(1) as f64
}
