//! What a second thread that answers adds, on a second processor. On a machine of two the generator shares it, so the gain
//! of the echo shows what is possible. Names that no cache has are asked too: their replies come to the thread that asked.

use std::fmt::Write as _;
use std::time::Duration;

use tests::load::fixture::Shape;
use tests::load::processor::pinned;
use tests::load::runs::{Run, Via, csv};
use tests::load::schedule::Pace;
use tests::load::servers::Peer;
use tests::load::statistics::Spread;
use tests::load::trace::Trace;

use crate::arguments::Wanted;
use crate::measure::{GENERATOR, Questions, Scene};
use crate::page::Section;
use crate::sets::{FORWARD_RATES, MOST};

const SERVERS: [Peer; 5] = [Peer::Echo, Peer::Ours, Peer::Knot, Peer::Nsd, Peer::CoreDns];
const WORKERS: usize = 2;
const QUESTIONS: usize = 200_000;
const SEED: u64 = 20_261_125;

/// One worker and two, in turns.
pub(crate) fn measure(
    services: usize,
    lasting: Duration,
    wanted: &Wanted,
) -> anyhow::Result<Section> {
    println!("\n{services} Services, two workers beside one");
    let start = |workers| {
        let shape = Shape { workers, ..Shape::default() };
        Scene::start_as(services, lasting, wanted, &SERVERS, shape)
    };
    let (mut one, mut two) = (start(1)?, start(WORKERS)?);
    let hit = Questions::Same(Trace::hit(&one.cluster, QUESTIONS, SEED));
    // A processor that no server has, where there is one.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut alone, mut both) = (Vec::new(), Vec::new());
    pinned(if processors > WORKERS { WORKERS } else { GENERATOR }, || {
        for peer in SERVERS {
            alone.extend(one.compare(&[peer], &hit, Via::Udp, MOST));
            both.extend(two.compare(&[peer], &hit, Via::Udp, MOST));
        }
        for rate in FORWARD_RATES {
            let pace = Pace::Rate(rate);
            alone.extend(one.compare(&[Peer::Ours], &Questions::Misses, Via::Udp, pace));
            both.extend(two.compare(&[Peer::Ours], &Questions::Misses, Via::Udp, pace));
        }
    });
    let files = vec![
        ("runs-one-worker.csv".into(), csv(&alone)),
        ("runs-two-workers.csv".into(), csv(&both)),
    ];
    let text = text(&of_hits(&alone), &of_hits(&both), processors) + &misses(&alone, &both);
    Ok(Section { text, files })
}

fn of_hits(runs: &[Run]) -> Vec<Run> {
    runs.iter().filter(|run| run.pace == MOST).cloned().collect()
}

/// Names that no cache has, with one and with two.
fn misses(alone: &[Run], both: &[Run]) -> String {
    let mut text = format!(
        "\nNames that no cache has, {}:\n\n\
         | Questions a second | p50 / p99, µs: one | two | processor time, µs: one, two | lost: one, two |\n\
         |---|---|---|---|---|\n",
        Peer::Ours.name()
    );
    for rate in FORWARD_RATES {
        let at = |runs: &[Run]| -> Vec<Run> {
            runs.iter().filter(|run| run.pace == Pace::Rate(rate)).cloned().collect()
        };
        let (one, two) = (at(alone), at(both));
        let late = |runs: &[Run], part| {
            let latencies = runs.iter().map(|run| run.outcome.latency_us(part));
            Spread::of(latencies).map_or("-".into(), |spread| spread.text(0))
        };
        let us = |runs: &[Run]| {
            processor_us(runs, Peer::Ours).map_or("-".into(), |spread| spread.text(1))
        };
        let lost = |runs: &[Run]| -> u64 { runs.iter().map(|run| run.outcome.lost).sum() };
        writeln!(
            text,
            "| {rate} | {} / {} | {} / {} | {}, {} | {}, {} |",
            late(&one, 0.5),
            late(&one, 0.99),
            late(&two, 0.5),
            late(&two, 0.99),
            us(&one),
            us(&two),
            lost(&one),
            lost(&two)
        )
        .expect("a string takes everything");
    }
    text
}

fn per_s(runs: &[Run], peer: Peer) -> Option<Spread> {
    let own = runs.iter().filter(|run| run.peer == peer);
    Spread::of(own.map(|run| run.outcome.answered_per_s() / 1e3))
}

fn processor_us(runs: &[Run], peer: Peer) -> Option<Spread> {
    Spread::of(runs.iter().filter(|run| run.peer == peer).map(Run::processor_us))
}

fn text(alone: &[Run], both: &[Run], processors: usize) -> String {
    let place = match processors {
        ..=WORKERS => "one of which the generator shares",
        _ => "and the generator has another",
    };
    let mut text = format!(
        "\n### Two workers beside one\n\n`hit`, {}, two processors, {place}:\n\n\
         | Server | thousand answers a second: one | two | gain | of the gain of the echo | processor time, µs: one, two |\n\
         |---|---|---|---|---|---|\n",
        MOST.text()
    );
    let gain = |peer| Some(per_s(both, peer)?.median / per_s(alone, peer)?.median.max(1e-9));
    for peer in SERVERS {
        let (Some(one), Some(two), Some(own)) = (per_s(alone, peer), per_s(both, peer), gain(peer))
        else {
            continue;
        };
        let of_echo = gain(Peer::Echo).map_or("-".into(), |echo| format!("{:.2}", own / echo));
        let us = |runs| processor_us(runs, peer).map_or("-".into(), |spread| spread.text(2));
        writeln!(
            text,
            "| {} | {} | {} | {own:.2} x | {of_echo} | {}, {} |",
            peer.name(),
            one.text(0),
            two.text(0),
            us(alone),
            us(both)
        )
        .expect("a string takes everything");
    }
    text
}
