//! One run of one server, as a line of the table of raw figures; and how runs are chosen and put together (pure).

use std::time::Duration;

use super::outcome::Outcome;
use super::schedule::Pace;
use super::servers::Peer;
use super::statistics::Spread;

/// Below this share of its processor a server in a closed loop waits for questions: the generator was the limit.
const SATURATED: f64 = 0.95;
/// With more lost questions than one in this many, a server does not keep up.
const LOSS_SHARE: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Datagrams.
    Udp,
    /// Kept connections.
    Tcp,
    /// Kept connections inside TLS (RFC 7858).
    Tls,
}

/// One measurement: a server, a trace, a transport, a rate, and its outcome.
#[derive(Clone, Debug)]
pub struct Run {
    pub peer: Peer,
    pub trace: String,
    /// Transport of the queries.
    pub via: Via,
    pub pace: Pace,
    /// Which of the runs of this kind, in their order.
    pub pass: usize,
    /// Counts and latencies.
    pub outcome: Outcome,
    /// Processor time of the server.
    pub processor: Duration,
}

impl Run {
    /// Processor time for each answered question, in microseconds.
    pub fn processor_us(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / self.outcome.answered.max(1) as f64
    }

    /// Whether this says more of the generator than of the server's speed.
    pub fn is_generator_bound(&self) -> bool {
        let busy = self.processor.as_secs_f64() / self.outcome.lasted.as_secs_f64().max(1e-9);
        match self.pace {
            Pace::Rate(_) => self.outcome.is_generator_bound(),
            Pace::Window(_) => busy < SATURATED,
        }
    }

    /// Whether the server lost more than one question in a thousand.
    pub fn is_overloaded(&self) -> bool {
        self.outcome.lost > self.outcome.sent / LOSS_SHARE
    }
}

/// All runs of one kind: a server, a trace, a pace.
pub fn select<'r>(runs: &'r [Run], peer: Peer, trace: &str, via: Via, pace: Pace) -> Vec<&'r Run> {
    let is_wanted =
        |run: &&Run| (run.peer, run.via, run.pace) == (peer, via, pace) && run.trace == trace;
    runs.iter().filter(is_wanted).collect()
}

/// One figure of each run. At a fixed rate a run in which the generator was late does not count, where another does.
pub fn spread(runs: &[&Run], figure: impl Fn(&Run) -> f64) -> Option<Spread> {
    let is_good = |run: &&&Run| matches!(run.pace, Pace::Window(_)) || !run.is_generator_bound();
    let good: Vec<&&Run> = runs.iter().filter(is_good).collect();
    let counted = if good.is_empty() { runs.iter().collect() } else { good };
    Spread::of(counted.into_iter().map(|run| figure(run)))
}

/// The ratio of a server's processor time to that of another in the same pass.
pub fn ratio(runs: &[&Run], others: &[&Run]) -> Option<Spread> {
    // The passes go there and back: the nth run of one from the start is paired with the nth of the other.
    Spread::of(
        runs.iter().zip(others).map(|(run, other)| run.processor_us() / other.processor_us()),
    )
}

pub fn csv(runs: &[Run]) -> String {
    let mut text = String::from(
        "server,trace,via,pace,pass,due,sent,late,answered,wrong,lost,foreign,answered_per_s,\
         processor_us,p50_us,p90_us,p99_us,p999_us,generator_bound,rcodes\n",
    );
    for run in runs {
        let it = &run.outcome;
        let latency = [0.5, 0.9, 0.99, 0.999].map(|share| format!("{:.1}", it.latency_us(share)));
        text.push_str(&format!(
            "{:?},{},{:?},{},{},{},{},{},{},{},{},{},{:.0},{:.3},{},{},{}\n",
            run.peer,
            run.trace,
            run.via,
            run.pace.text().replace(',', ""),
            run.pass,
            it.due,
            it.sent,
            it.late,
            it.answered,
            it.wrong,
            it.lost,
            it.foreign,
            it.answered_per_s(),
            run.processor_us(),
            latency.join(","),
            run.is_generator_bound(),
            it.rcodes_text().replace(", ", " "),
        ));
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::load) fn run(peer: Peer, pace: Pace, pass: usize, processor_us: u64) -> Run {
        let mut outcome = Outcome { lasted: Duration::from_secs(1), ..Outcome::default() };
        (outcome.due, outcome.sent, outcome.answered) = (1_000, 1_000, 1_000);
        outcome.rcodes[0] = 1_000;
        outcome.latency.record_n(processor_us * 10_000, 1_000).expect("within the bounds");
        let processor = Duration::from_micros(processor_us * 1_000);
        Run { peer, trace: "hit".into(), via: Via::Udp, pace, pass, outcome, processor }
    }

    const RATE: Pace = Pace::Rate(1_000);

    #[test]
    fn processor_time_is_for_each_answered_question() {
        assert_eq!(run(Peer::Ours, RATE, 0, 5).processor_us(), 5.0);
    }

    #[test]
    fn a_run_in_which_the_generator_was_late_counts_only_where_no_other_does() {
        let mut late = run(Peer::Ours, RATE, 0, 9);
        late.outcome.late = 900;
        let good = run(Peer::Ours, RATE, 1, 5);
        let median = |runs: &[&Run]| spread(runs, Run::processor_us).map(|spread| spread.median);
        assert_eq!(median(&[&late, &good]), Some(5.0));
        assert_eq!(median(&[&late]), Some(9.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_closed_loop_that_leaves_the_server_idle_is_bound_by_the_generator() {
        let idle = run(Peer::Echo, Pace::Window(64), 0, 500);
        let busy = run(Peer::Echo, Pace::Window(64), 0, 960);
        assert!(idle.is_generator_bound() && !busy.is_generator_bound());
    }

    #[test]
    fn ratios_are_taken_within_a_pass() {
        let echo = [run(Peer::Echo, RATE, 0, 4), run(Peer::Echo, RATE, 3, 8)];
        let ours = [run(Peer::Ours, RATE, 1, 6), run(Peer::Ours, RATE, 2, 10)];
        let (echo, ours): (Vec<_>, Vec<_>) = (echo.iter().collect(), ours.iter().collect());
        let ratio = ratio(&ours, &echo).expect("runs");
        assert_eq!((ratio.low, ratio.high), (1.25, 1.5));
    }

    #[test]
    fn every_run_is_a_line_with_as_many_fields_as_the_head() {
        let text = csv(&[run(Peer::Ours, Pace::Rate(20_000), 0, 5)]);
        let fields = |line: &str| line.split(',').count();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), fields(lines[0])), (2, fields(lines[1])));
        assert!(
            lines[1].starts_with("Ours,hit,Udp,20000 q/s,0,1000,1000,0,1000,0,"),
            "{}",
            lines[1]
        );
    }
}
