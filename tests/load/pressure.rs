//! How long many clients wait while a server is under pressure (rows L2, L3 and T10 of docs/guarantees.md): one client
//! floods its upstreams, its upstreams are slow, or the kernel drops datagrams for it. Ours has its default limits.
//!
//! Over UDP a time is from just before the question is sent until the kernel has the reply, without the time in which the
//! question waited for the upstream, which the generator plays: what the flood costs the generator is not in it. Each time
//! stands beside one with the same flood at a socket that nothing reads.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tests::load::generator::{Carrier, Client, Generator, run_beside};
use tests::load::outcome::Outcome;
use tests::load::runs::Via;
use tests::load::schedule::Pace;
use tests::load::servers::Peer;
use tests::load::statistics::{Spread, there_and_back};
use tests::load::stream::Streams;
use tests::load::trace::Trace;
use tests::load::udp::Udp;
use tests::load::upstream::Upstream;

use crate::arguments::Wanted;
use crate::crowd::{FORWARDERS, lost, within};
use crate::measure::{Scene, WARM_UP, WARM_UP_PACE};
use crate::page::Section;

/// Those that answer names of their own over connections too.
const STREAMS: [Peer; 4] = [Peer::Ours, Peer::Knot, Peer::Nsd, Peer::CoreDns];
/// Those that have names of their own and ask an upstream.
const BOTH: [Peer; 3] = [Peer::Ours, Peer::Dnsmasq, Peer::CoreDns];
/// Clients beside the flood, and what each asks a second.
const OTHERS: u8 = 50;
const EACH_PER_S: u32 = 20;
const CONNECTIONS: usize = 16;
/// More questions a second than any generator sends: as many as it can.
const ALL_IT_CAN: u32 = 10_000_000;
/// How late a slow upstream replies, and how long a server needs until nothing waits for it any more.
const LATE: Duration = Duration::from_secs(2);
const SETTLED: Duration = Duration::from_secs(6);
const SETTLING: Pace = Pace::Rate(10);
const QUESTIONS: usize = 200_000;
const SEED: u64 = 20_261_126;

/// Whose names are asked for.
#[derive(Clone, Copy, Debug)]
enum Asks {
    /// Names of the cluster.
    Ours,
    /// Names of others, each another one.
    Theirs,
}

/// One kind of pressure.
#[derive(Debug)]
struct Case {
    row: &'static str,
    peers: &'static [Peer],
    flood: Asks,
    per_s: u32,
    /// Addresses that it comes from.
    flooders: u8,
    /// How late upstreams reply meanwhile.
    late: Duration,
    others: Asks,
    via: Via,
}

static CASES: [Case; 4] = [
    Case {
        row: "L2",
        peers: &BOTH,
        flood: Asks::Theirs,
        per_s: 50_000,
        flooders: 1,
        late: Duration::ZERO,
        others: Asks::Ours,
        via: Via::Udp,
    },
    Case {
        row: "L2",
        peers: &FORWARDERS,
        flood: Asks::Theirs,
        per_s: 50_000,
        flooders: 1,
        late: Duration::ZERO,
        others: Asks::Theirs,
        via: Via::Udp,
    },
    Case {
        row: "T10",
        peers: &STREAMS,
        flood: Asks::Ours,
        per_s: ALL_IT_CAN,
        flooders: 1,
        late: Duration::ZERO,
        others: Asks::Ours,
        via: Via::Tcp,
    },
    Case {
        row: "L3",
        peers: &BOTH,
        flood: Asks::Theirs,
        per_s: 5_000,
        // More than one, so that no limit of one client is what is measured.
        flooders: 50,
        late: LATE,
        others: Asks::Ours,
        via: Via::Udp,
    },
];

/// What the clients beside a flood got.
struct Pressed {
    peer: Peer,
    case: &'static Case,
    alone: Outcome,
    /// While the flood goes to another socket, and to the server.
    elsewhere: Outcome,
    beside: Outcome,
    flooded: Outcome,
}

/// Every server there and back.
pub(crate) fn measure(scene: &mut Scene, wanted: &Wanted) -> anyhow::Result<Section> {
    let aside = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ours = Trace::hit(&scene.cluster, QUESTIONS, SEED);
    let (mut pressed, mut runs) = (Vec::new(), 0);
    let all: Vec<usize> = (0..scene.servers.len()).collect();
    for at in there_and_back(&all).repeat(scene.rounds) {
        let peer = scene.servers[at].peer;
        for case in
            CASES.iter().filter(|case| case.peers.contains(&peer) && wanted.wants_row(case.row))
        {
            runs += 2;
            let stage = Stage { scene, at, case, ours: &ours, aside: aside.local_addr()?, runs };
            match stage.press() {
                Ok(run) => pressed.push(run),
                // One server that hangs up must not cost the figures of all others.
                Err(error) => {
                    let broken = format!("{}, {}: {error:#}", peer.name(), case.row);
                    println!("{broken}");
                    scene.broken.push(broken);
                }
            }
            scene.servers[at].ensure_running()?;
        }
        println!("{:15} was under pressure", peer.name());
    }
    Ok(Section { text: text(&pressed), files: Vec::new() })
}

/// One server under one kind of pressure.
struct Stage<'s> {
    scene: &'s Scene,
    at: usize,
    case: &'static Case,
    ours: &'s Trace,
    /// A socket that nothing reads.
    aside: SocketAddr,
    /// Another number for each, so that no cache has the names of an earlier run.
    runs: u64,
}

impl Stage<'_> {
    fn press(&self) -> anyhow::Result<Pressed> {
        let server = self.scene.servers[self.at].dns;
        let upstream = Upstream::on(self.scene.upstream.shared()?).late(self.case.late);
        let upstream = match self.case.others {
            Asks::Ours => upstream,
            Asks::Theirs => upstream.timed()?,
        };
        let clients: Vec<Ipv4Addr> =
            (1..=OTHERS).map(|last| Ipv4Addr::new(127, 0, 7, last)).collect();
        match self.case.via {
            Via::Udp => {
                let udp = Udp::open_among(&clients, server, clients.len())?;
                self.beside(&mut Generator::of_clients(udp.stamped()?.with_upstream(upstream)?))
            }
            Via::Tcp | Via::Tls => {
                let streams = Streams::open(server, CONNECTIONS, None)?;
                self.beside(&mut Generator::of_clients(streams.with_upstream(upstream)?))
            }
        }
    }

    /// Alone, beside a flood of another socket, and beside one of the server.
    fn beside<C: Carrier>(&self, quiet: &mut Generator<C>) -> anyhow::Result<Pressed> {
        let (case, lasting) = (self.case, self.scene.lasting);
        let server = &self.scene.servers[self.at];
        let pace = Pace::Rate(u32::from(OTHERS) * EACH_PER_S);
        let three = 3.0 * lasting.as_secs_f64() + SETTLED.as_secs_f64();
        let trace = self.trace(case.others, u32::from(OTHERS) * EACH_PER_S, three, 0);
        let flood = self.trace(case.flood, case.per_s, lasting.as_secs_f64(), 1);
        match case.others {
            Asks::Ours => quiet.run(self.ours, WARM_UP_PACE, WARM_UP)?,
            // Each of these names must be asked once.
            Asks::Theirs => quiet.run(&trace, SETTLING, WARM_UP)?,
        };
        let alone = quiet.run(&trace, pace, lasting)?;
        let flooders: Vec<Ipv4Addr> =
            (1..=case.flooders).map(|last| Ipv4Addr::new(127, 0, 6, last)).collect();
        let mut flooded_at = |to: SocketAddr| {
            let mut loud = Generator::new(Udp::open_among(&flooders, to, self.scene.sockets)?);
            let first = Client { generator: &mut *quiet, trace: &trace, pace };
            let second =
                Client { generator: &mut loud, trace: &flood, pace: Pace::Rate(case.per_s) };
            run_beside(first, second, lasting)
        };
        let (elsewhere, _) = flooded_at(self.aside)?;
        let (beside, flooded) = flooded_at(server.dns)?;
        if matches!(case.flood, Asks::Theirs) {
            // The upstream must answer what still waits, or the server takes it for dead in the next run.
            quiet.run(&trace, SETTLING, SETTLED)?;
        }
        Ok(Pressed { peer: server.peer, case, alone, elsewhere, beside, flooded })
    }

    /// Questions for this many seconds at this rate.
    fn trace(&self, asks: Asks, per_s: u32, seconds: f64, which: u64) -> Trace {
        match asks {
            Asks::Ours => self.ours.clone(),
            Asks::Theirs => {
                let count = (f64::from(per_s) * seconds) as usize;
                Trace::misses(count.max(1), SEED + self.runs + which)
            }
        }
    }
}

fn text(pressed: &[Pressed]) -> String {
    let mut text = format!(
        "\n### Clients beside a flood\n\n\
         {OTHERS} clients that ask {EACH_PER_S} questions a second each, alone, beside a flood of another socket, and beside \
         the flood; p50 / p99 / lost. Over UDP from sending until the kernel has the reply, without the wait for the upstream, \
         which the generator plays; over TCP until it is read. Of several runs the medians, and the lowest and the highest figure; the last columns compare the p99 of each run with \
         the others of the same run:\n\n\
         | Row | Server | the flood | the others ask for | alone, µs | flood elsewhere, µs | beside it, µs | of the flood answered | p99 beside it: times alone | times elsewhere |\n\
         |---|---|---|---|---|---|---|---|---|---|\n"
    );
    for (case, peer) in
        CASES.iter().flat_map(|case| case.peers.iter().map(move |peer| (case, peer)))
    {
        let runs: Vec<&Pressed> = pressed
            .iter()
            .filter(|run| std::ptr::eq(run.case, case) && run.peer == *peer)
            .collect();
        if runs.is_empty() {
            continue;
        }
        let spread = |of: &dyn Fn(&Pressed) -> f64, decimals| {
            let spread = Spread::of(runs.iter().map(|run| of(run)));
            spread.map_or_else(|| "-".to_owned(), |spread| spread.text(decimals))
        };
        let per_s = match case.per_s {
            ALL_IT_CAN => spread(&|run| run.flooded.sent_per_s(), 0),
            per_s => per_s.to_string(),
        };
        let is_bound = runs.iter().any(|run| run.flooded.is_generator_bound());
        let bound = if case.per_s != ALL_IT_CAN && is_bound { " †" } else { "" };
        let late = match case.late {
            Duration::ZERO => String::new(),
            late => format!(", upstream {} s late", late.as_secs()),
        };
        let times = |of: fn(&Pressed) -> &Outcome| {
            spread(&|run| within(&run.beside, 0.99) / within(of(run), 0.99).max(1e-9), 1)
        };
        let cell = |of: fn(&Pressed) -> &Outcome| {
            let half = spread(&|run| within(of(run), 0.5), 0);
            let most = spread(&|run| within(of(run), 0.99), 0);
            format!("{half} / {most} / {} %", spread(&|run| lost(of(run)), 1))
        };
        writeln!(
            text,
            "| {} | {} | {per_s} a second{bound}, {}{late} | {}, over {:?} | {} | {} | {} | {} % | {} | {} |",
            case.row,
            peer.name(),
            named(case.flood),
            named(case.others),
            case.via,
            cell(|run| &run.alone),
            cell(|run| &run.elsewhere),
            cell(|run| &run.beside),
            spread(&|run| run.flooded.answered as f64 * 100.0 / run.flooded.sent.max(1) as f64, 0),
            times(|run| &run.alone),
            times(|run| &run.elsewhere),
        )
        .expect("a string takes everything");
    }
    text
}

fn named(asks: Asks) -> &'static str {
    match asks {
        Asks::Ours => "names of the cluster",
        Asks::Theirs => "names that no cache has",
    }
}
