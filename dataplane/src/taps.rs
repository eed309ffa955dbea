//! What is recorded about single queries: the query log, dnstap, and the counts of `/top`. They are off unless the
//! configuration, or a person, asks for them, and then they may lose entries, which are counted: a serving thread
//! never waits for a reader.
//!
//! A serving thread asks [`Taps::wanted`] once per query or batch: off, that is one load and one branch. On, it copies
//! the exchange into a bounded buffer; a thread for each tap takes the buffers and writes.

mod exchange;
mod lossy;
mod query_log;
mod top;
mod dnstap;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crds::Config;
use crds::config::{Logging, QueryLog as Level};
use dataplane_core::Identity;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub use dnstap::{Dnstap, Reader};
pub use exchange::{Exchange, Side};
pub use query_log::QueryLog;
pub use top::{LONGEST as LONGEST_TOP, Top, TopRow, TopView};

use crate::background;
use crate::restarting::{restarting, restarting_on_thread};

/// The taps of the process.
#[derive(Debug, Default)]
pub struct Taps {
    /// The octet of [`Wanted`], read once per query.
    wanted: AtomicU8,
    query_log: QueryLog,
    dnstap: Dnstap,
    top: Top,
    /// The reader of dnstap that a flag names; it overrides the configuration.
    fixed_reader: OnceLock<Reader>,
    panics: AtomicU64,
}

/// Which exchanges the query log and dnstap record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted(u8);

/// Which of them the query log wants, in the lowest bits.
const LEVEL: u8 = 0b11;
/// Whether dnstap wants all of them.
const DNSTAP: u8 = 0b100;
/// Whether the heaviest names and clients are counted.
const TOP: u8 = 0b1000;

/// A query whose reply will be shown.
#[derive(Clone, Copy, Debug)]
pub struct Began {
    wanted: Wanted,
    /// Time since the Unix epoch.
    at: Duration,
    began: Instant,
}

impl Wanted {
    /// When a query came that is about to be decided and waited this long to be read; `None` where all taps are off.
    pub fn begin(self, waited: Duration) -> Option<Began> {
        (self.0 != 0).then(|| {
            let (at, now) = (SystemTime::now().duration_since(UNIX_EPOCH), Instant::now());
            Began {
                wanted: self,
                at: at.unwrap_or_default().saturating_sub(waited),
                began: now.checked_sub(waited).unwrap_or(now),
            }
        })
    }

    /// The same, where exchanges with upstreams are wanted too: the query log shows those of clients only.
    pub fn begin_upstream(self) -> Option<Began> {
        Wanted(self.0 & DNSTAP).begin(Duration::ZERO)
    }

    fn level(self) -> Level {
        match self.0 & LEVEL {
            0 => Level::None,
            1 => Level::Errors,
            2 => Level::Denials,
            _ => Level::All,
        }
    }
}

impl Taps {
    pub fn wanted(&self) -> Wanted {
        Wanted(self.wanted.load(Ordering::Relaxed))
    }

    /// Starts the threads that write, once per process; they sleep while their tap is off. dnstap messages name
    /// `identity`, and go to `reader`, if there is one, instead of the configured reader.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        self: &Arc<Self>,
        identity: &Identity,
        reader: Option<Reader>,
    ) -> std::io::Result<()> {
        let version = format!("clusterdns {}", identity.version);
        self.dnstap.introduce(identity.pod_name.clone(), version);
        if let Some(reader) = reader {
            // It is set here only, and once.
            let _ = self.fixed_reader.set(reader);
        }
        let (log, dnstap) = (Arc::clone(self), Arc::clone(self));
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        thread("query-log").spawn(move || {
            background::give_way();
            log.keep("query log", || log.query_log.write_to(std::io::stdout()));
        })?;
        thread("dnstap")
            .spawn(move || {
                background::give_way();
                dnstap.keep("dnstap", || dnstap.dnstap.run());
            })
            .map(drop)
    }

    fn keep(&self, name: &'static str, run: impl Fn()) {
        restarting_on_thread(name, || self.count_panic(), run);
    }

    fn count_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Times that a task of these taps panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Applies the configurations that take over, as long as `runtime` runs.
    pub fn follow(self: &Arc<Self>, configs: &watch::Receiver<Arc<Config>>, runtime: &Handle) {
        let (taps, counted, configs) = (Arc::clone(self), Arc::clone(self), configs.clone());
        let begin = move || Arc::clone(&taps).apply_each(configs.clone());
        runtime.spawn(restarting("taps", move || counted.count_panic(), begin));
    }

    async fn apply_each(self: Arc<Self>, mut configs: watch::Receiver<Arc<Config>>) {
        while configs.changed().await.is_ok() {
            let logging = configs.borrow_and_update().logging.clone();
            self.apply(&logging);
        }
    }

    /// Applies this configuration from now on.
    pub fn apply(&self, logging: &Logging) {
        let Logging { queries, dnstap, format: _, level: _ } = logging;
        let level = match queries {
            Level::None => 0,
            Level::Errors => 1,
            Level::Denials => 2,
            Level::All => 3,
        };
        let configured = dnstap.map(|dnstap| Reader::Tcp(SocketAddr::new(dnstap.ip, dnstap.port)));
        let reader = self.fixed_reader.get().cloned().or(configured);
        let messages = if reader.is_some() { DNSTAP } else { 0 };
        // A tap that ends is switched off before its writer sleeps; a tap that begins has a writer before it is
        // switched on.
        let before = self.wanted.load(Ordering::Relaxed);
        let both = if before & LEVEL == 0 || level == 0 { 0 } else { level } | before & messages;
        self.want(both);
        self.query_log.set_on(level != 0);
        self.dnstap.set_reader(reader);
        self.want(level | messages);
    }

    /// Sets what the configuration wants; a count that a person asked for continues.
    fn want(&self, bits: u8) {
        let with = |now: u8| Some(now & TOP | bits);
        // It always gives a value, so it cannot fail.
        let _ = self.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
    }

    /// Counts the heaviest names and clients for this time from now.
    pub fn count_top(&self, now: Instant, during: Duration) {
        self.top.start(now, during, || {
            self.wanted.fetch_or(TOP, Ordering::Relaxed);
        });
    }

    /// The heaviest names and clients, if they are counted.
    pub fn top(&self, now: Instant) -> TopView {
        self.top.view(now, || self.without_top())
    }

    /// Ends the count of the heaviest names, if its time is over: without a query, nothing else would.
    pub fn end_top(&self, now: Instant) {
        if self.wanted().0 & TOP != 0 {
            self.top.end(now, || self.without_top());
        }
    }

    fn without_top(&self) {
        self.wanted.fetch_and(!TOP, Ordering::Relaxed);
    }

    /// Shows one exchange that has just ended; `place` is the number of the serving thread. Never waits. An exchange
    /// whose tap was switched off meanwhile is not shown.
    pub fn show(&self, place: usize, began: &Began, exchange: &Exchange<'_>) {
        let ended = Exchange { at: began.at, took: began.began.elapsed(), ..*exchange };
        let now = self.wanted();
        let log = now.level() != Level::None && ended.side == Side::Client;
        if log && query_log::is_wanted(began.wanted.level(), &ended) {
            self.query_log.put(place, &ended);
        }
        if began.wanted.0 & now.0 & DNSTAP != 0 {
            self.dnstap.put(place, &ended);
        }
        if began.wanted.0 & now.0 & TOP != 0 && ended.side == Side::Client {
            self.top.put(began.began, &ended, || self.without_top());
        }
    }

    /// The query log, for metrics.
    pub fn query_log(&self) -> &QueryLog {
        &self.query_log
    }

    /// The dnstap stream, for its metrics.
    pub fn dnstap(&self) -> &Dnstap {
        &self.dnstap
    }

    /// Waits until what was shown is written, and ends the stream of dnstap: for the end of the process. Waits no longer than
    /// this for both, which write side by side.
    pub fn finish(&self, within: Duration) {
        let until = Instant::now() + within;
        let dnstap = self.dnstap.finish();
        self.query_log.flush(within);
        self.dnstap.wait_for(dnstap, until.saturating_duration_since(Instant::now()));
    }
}
