//! How the process ends (E45): a pure timeline, and the small loop that follows it.
//!
//! SIGTERM comes while the cluster still sends queries here, and for some seconds after: everything
//! is answered as before for the whole drain period, then until no query comes.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::signal::unix;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::readiness::Health;
use crate::serve::Serving;
use crate::telemetry;

/// `/readyz` says no from here on. Not at once: a pod that is being deleted leaves its Service
/// without it, and while it counts as serving kube-proxy can fall back to it (E45).
const UNREADY_AFTER: Duration = Duration::from_secs(5);
/// After the drain period: time without a query after which clients have gone.
const QUIET: Duration = Duration::from_secs(1);
/// How long to wait for that after the drain period.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// How long a process that got SIGTERM answers at most after the drain period, with the last queries in progress.
pub const LONGEST_END: Duration = MAX_WAIT.saturating_add(QUIET);
/// All the time there is after SIGINT: a person waits.
const INTERRUPT: Duration = Duration::from_secs(1);
/// How often the timeline is looked at.
const TICK: Duration = Duration::from_millis(50);
/// Least time for queries in progress to finish, after SIGINT. Listeners close within it.
const MIN_GRACE: Duration = Duration::from_millis(200);
/// Time without a query after SIGINT, instead of [`QUIET`].
const INTERRUPT_QUIET: Duration = Duration::from_millis(200);

/// Who asked the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The cluster: SIGTERM.
    Terminate,
    /// A person: SIGINT.
    Interrupt,
}

/// Which signal ends the process, and how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    signal: Signal,
    period: Duration,
}

/// What to do at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// `/readyz` answers 200, and idle connections of QUIC stay. They are closed before kube-proxy sees that: it then moves
    /// their datagrams to other pods, which cannot end them in order.
    pub is_ready: bool,
    /// Close TCP connections that have no query in progress.
    pub close_idle_tcp: bool,
    /// End the process; queries in progress get [`Drain::grace`].
    pub exit: bool,
}

impl Drain {
    /// A drain that begins now; `period` is that of `--drain-seconds`.
    pub fn new(signal: Signal, period: Duration) -> Drain {
        Drain { signal, period }
    }

    /// The step at this time after the signal and after the last query.
    pub fn step(self, since_signal: Duration, since_query: Duration) -> Step {
        match self.signal {
            Signal::Terminate => {
                let is_over = since_signal >= self.period;
                let is_late = since_signal >= self.period + MAX_WAIT;
                Step {
                    is_ready: since_signal < UNREADY_AFTER,
                    close_idle_tcp: is_over,
                    exit: is_late || (is_over && since_query >= QUIET),
                }
            }
            Signal::Interrupt => Step {
                is_ready: false,
                close_idle_tcp: true,
                exit: since_signal >= INTERRUPT || since_query >= INTERRUPT_QUIET,
            },
        }
    }

    /// Time left for queries in progress, at this time after the signal.
    pub fn grace(self, since_signal: Duration) -> Duration {
        let (all, least) = match self.signal {
            // A connection that was just opened may ask once.
            Signal::Terminate => (self.period + MAX_WAIT, QUIET),
            Signal::Interrupt => (INTERRUPT, MIN_GRACE),
        };
        all.saturating_sub(since_signal).max(least)
    }

    /// Another signal while draining: SIGINT shortens the drain, a second one ends it at once. `None` means to end
    /// now.
    pub fn again(self, signal: Signal) -> Option<Drain> {
        match (self.signal, signal) {
            (_, Signal::Terminate) => Some(self),
            (Signal::Terminate, Signal::Interrupt) => Some(Drain { signal, ..self }),
            (Signal::Interrupt, Signal::Interrupt) => None,
        }
    }
}

/// The signals that end the process, caught from here on.
#[derive(Debug)]
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

impl Signals {
    /// Catches them, so that none is lost while the process starts.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn catch(runtime: &Runtime) -> anyhow::Result<Signals> {
        let _entered = runtime.enter();
        let catch = |kind| unix::signal(kind).context("cannot catch signals");
        Ok(Signals {
            terminate: catch(unix::SignalKind::terminate())?,
            interrupt: catch(unix::SignalKind::interrupt())?,
        })
    }

    /// Until something is served there is nothing to drain: a signal ends the process at once, even
    /// while a large folder is being read.
    #[expect(
        clippy::disallowed_methods,
        reason = "main is reading files, cannot be interrupted, and holds nothing that must be put in order"
    )]
    pub fn while_starting(mut self, runtime: &Runtime) -> Starting {
        let (served, is_served) = oneshot::channel();
        let watched = runtime.spawn(async move {
            tokio::select! {
                signal = self.next() => {
                    tracing::info!(?signal, "asked to end before anything was served");
                    telemetry::flush();
                    std::process::exit(0)
                }
                _ = is_served => self,
            }
        });
        Starting { served, watched }
    }

    /// The next signal that asks to end.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Interrupt,
        }
    }
}

/// Signals while the process starts, see [`Signals::while_starting`].
#[derive(Debug)]
pub struct Starting {
    served: oneshot::Sender<()>,
    watched: JoinHandle<Signals>,
}

impl Starting {
    /// From here on signals drain.
    ///
    /// # Errors
    /// When the task that watched them panicked.
    pub fn served(self, runtime: &Runtime) -> anyhow::Result<Signals> {
        // The receiver exists: that task ends by this message or with the process.
        let _ = self.served.send(());
        runtime.block_on(self.watched).context("cannot catch signals")
    }
}

/// Answers as before until the timeline is over, then ends.
pub async fn drain(
    serving: Serving,
    health: &Health,
    mut signals: Signals,
    signal: Signal,
    period: Duration,
) {
    tracing::info!(?signal, period_s = period.as_secs(), "draining");
    let grace = follow(Drain::new(signal, period), &serving, health, &mut signals).await;
    serving.stop(grace).await;
    tracing::info!("done");
}

/// Follows the timeline to its end; returns what is left for queries in progress.
async fn follow(
    mut drain: Drain,
    serving: &Serving,
    health: &Health,
    signals: &mut Signals,
) -> Duration {
    let mut begun = Instant::now();
    let (mut seen, mut last_query) = (serving.queries_seen(), begun);
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            signal = signals.next() => match drain.again(signal) {
                Some(next) if next == drain => {}
                Some(next) => (drain, begun) = (next, Instant::now()),
                None => return MIN_GRACE,
            }
        }
        let count = serving.queries_seen();
        if count != seen {
            (seen, last_query) = (count, Instant::now());
        }
        let step = drain.step(begun.elapsed(), last_query.elapsed());
        if !step.is_ready {
            serving.close_idle_quic();
            health.leaving();
        }
        if step.close_idle_tcp {
            serving.close_idle_tcp();
        }
        if step.exit {
            return drain.grace(begun.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds since the signal, and since the last query. Then what is expected: ready, idle TCP closed, exit.
    type Row = (u64, u64, bool, bool, bool);

    fn check(signal: Signal, period_s: u64, rows: &[Row]) {
        let drain = Drain::new(signal, Duration::from_secs(period_s));
        for &(signal_ms, query_ms, is_ready, close_idle_tcp, exit) in rows {
            assert_eq!(
                drain.step(Duration::from_millis(signal_ms), Duration::from_millis(query_ms)),
                Step { is_ready, close_idle_tcp, exit },
                "{signal:?}, period {period_s} s, {signal_ms} ms after it, {query_ms} ms after a query"
            );
        }
    }

    #[test]
    fn e45_sigterm_answers_for_the_whole_period_and_then_until_quiet() {
        let hour = 3_600_000;
        check(
            Signal::Terminate,
            20,
            &[
                (0, hour, true, false, false),
                (4_999, hour, true, false, false),
                (5_000, hour, false, false, false),
                (19_999, hour, false, false, false),
                (20_000, hour, false, true, true),
                (20_000, 999, false, true, false),
                (21_500, 1_000, false, true, true),
                (24_999, 0, false, true, false),
                (25_000, 0, false, true, true),
            ],
        );
    }

    #[test]
    fn a_short_period_ends_before_readyz_would_turn() {
        check(
            Signal::Terminate,
            2,
            &[
                (1_999, 0, true, false, false),
                (2_000, 1_000, true, true, true),
                (7_000, 0, false, true, true),
            ],
        );
        check(Signal::Terminate, 0, &[(0, 0, true, true, false), (0, 1_000, true, true, true)]);
    }

    #[test]
    fn sigint_takes_a_second_in_all() {
        check(
            Signal::Interrupt,
            20,
            &[
                (0, 0, false, true, false),
                (0, 200, false, true, true),
                (999, 0, false, true, false),
                (1_000, 0, false, true, true),
            ],
        );
    }

    #[test]
    fn queries_in_progress_get_what_is_left_of_the_time() {
        let drain = |signal| Drain::new(signal, Duration::from_secs(20));
        let rows = [
            (Signal::Terminate, 21_000, 4_000),
            (Signal::Terminate, 25_000, 1_000),
            (Signal::Interrupt, 200, 800),
            (Signal::Interrupt, 1_000, 200),
        ];
        for (signal, since_ms, grace_ms) in rows {
            let grace = drain(signal).grace(Duration::from_millis(since_ms));
            assert_eq!(grace, Duration::from_millis(grace_ms), "{signal:?} {since_ms}");
        }
    }

    #[test]
    fn a_second_signal_only_ever_hurries() {
        let period = Duration::from_secs(20);
        let (term, int) = (Signal::Terminate, Signal::Interrupt);
        let rows = [
            (term, term, Some(Drain::new(term, period))),
            (term, int, Some(Drain::new(int, period))),
            (int, term, Some(Drain::new(int, period))),
            (int, int, None),
        ];
        for (first, second, expected) in rows {
            assert_eq!(Drain::new(first, period).again(second), expected, "{first:?} {second:?}");
        }
    }
}
