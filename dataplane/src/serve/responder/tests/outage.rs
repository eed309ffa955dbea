//! Every server is dead for minutes, and then back (F11): how long clients wait meanwhile, and how soon names are answered
//! again. The clock of the runtime is stopped: it moves when nothing else can happen, or when the test moves it.

use std::cell::Cell;
use std::task::Poll;

use futures::poll;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, pause, sleep, sleep_until};

use super::golden::{A, CART, outcome, serving};
use super::*;

/// It is in the cache when the first outage begins, and has expired.
const KNOWN: &str = "www.example.org";
/// How long servers are dead while clients ask, and how much longer: until another moment between two probes.
const OUTAGES_MS: [(u64, u64); 9] = [
    (600_000, 0),
    (30_000, 0),
    (30_000, 250),
    (30_000, 500),
    (30_000, 750),
    (30_000, 1_000),
    (30_000, 1_250),
    (30_000, 1_500),
    (30_000, 1_750),
];
/// The longest waits of clients (CA40, FW24), with what a timer may be late.
const STALE_WAIT: Duration = Duration::from_millis(1_850);
const FAILED_WAIT: Duration = Duration::from_millis(4_050);
/// From the end of the outage until all names are answered.
const RECOVERY: Duration = Duration::from_secs(2);
/// How far the clock moves at once while servers answer, and how often the runtime looks for datagrams before.
const STEP: Duration = Duration::from_millis(20);
const LOOKS: usize = 50;

struct Site {
    upstream: Upstream,
    responder: Responder,
    /// How far the clock of the cache has followed that of the runtime.
    began: Instant,
    followed: Cell<Duration>,
}

/// What a client got (see [`outcome`]), and how long it waited.
type AndWait = ((u8, u8, Option<u8>), Duration);

impl Site {
    /// The clock of the cache shows what that of the runtime does.
    fn follow(&self) {
        let passed = self.began.elapsed();
        self.responder.later((passed - self.followed.replace(passed)).as_millis() as u64);
    }

    async fn ask(&self, name: &str) -> AndWait {
        let asked = Instant::now();
        let got = outcome(&self.responder, name, A, true).await;
        (got, asked.elapsed())
    }

    /// Servers are dead until this time. Once a second, or when it has its reply, a client asks for what has expired, and
    /// for a name that the cache does not have.
    async fn without_servers(&self, end: Instant, new: &str) {
        self.upstream.is_silent.store(true, Ordering::Relaxed);
        while Instant::now() < end {
            let next = Instant::now() + Duration::from_secs(1);
            let ((known, waited), (failed, waited_longer)) =
                tokio::join!(self.ask(KNOWN), self.ask(new));
            assert_eq!(known, (0, 1, Some(3)), "stale");
            assert!(waited <= STALE_WAIT, "{waited:?}");
            assert!(matches!(failed, (2, 0, Some(13 | 22))), "{failed:?}");
            assert!(waited_longer <= FAILED_WAIT, "{waited_longer:?}");
            let own = outcome(&self.responder, CART, A, true).now_or_never();
            assert_eq!(own, Some((0, 1, None)), "at once");
            sleep_until(next.min(end)).await;
            self.follow();
        }
    }

    /// No upstream is asked for this name for the next seconds, because it has just failed again (CA20).
    async fn until_it_has_failed(&self, name: &str) {
        while self.ask(name).await.0 != (2, 0, Some(22)) {
            self.pass(Duration::from_millis(100)).await;
        }
        self.follow();
    }

    async fn pass(&self, time: Duration) {
        sleep(time).await;
        self.follow();
    }

    /// Servers answer again. Returns how long it takes until this name has a fresh answer, for which a client asks again
    /// and again.
    async fn until_answered(&self, name: &str) -> Duration {
        let back = Instant::now();
        // A bound, so that a failing test ends.
        while back.elapsed() < 30 * RECOVERY {
            let mut asking = Box::pin(self.ask(name));
            let (got, _) = loop {
                for _ in 0..LOOKS {
                    yield_now().await;
                }
                if let Poll::Ready(got) = poll!(&mut asking) {
                    break got;
                }
                advance(STEP).await;
                self.follow();
            };
            if got == (0, 1, None) {
                return back.elapsed();
            }
            advance(STEP).await;
            self.follow();
        }
        back.elapsed()
    }
}

#[tokio::test]
async fn f11_after_minutes_without_a_server_names_are_answered_within_two_seconds() {
    let upstream = Upstream::start().await;
    let mut config = upstream.config();
    config.limits.in_flight = 100;
    let responder = serving(&config, "/nonexistent");
    assert_eq!(outcome(&responder, KNOWN, A, true).await, (0, 1, None));
    pause();
    let (began, followed) = (Instant::now(), Cell::default());
    let site = Site { upstream, responder, began, followed };
    let Responder { forwarder, state, .. } = &site.responder;
    forwarder.probe(Arc::clone(state), &Handle::current());
    for (number, (outage_ms, longer_ms)) in OUTAGES_MS.into_iter().enumerate() {
        let new = format!("new-{number}.example.org");
        site.responder.later(600_000);
        let (asked, outage) = (site.upstream.asked(), Duration::from_millis(outage_ms));
        site.without_servers(Instant::now() + outage, &new).await;
        // A probe a second, for loops one a minute, and each name once in five seconds: no query is repeated without end.
        // Before the server is known to be down, a lookup sends four.
        let (asked, seconds) = (site.upstream.asked() - asked, outage.as_secs() + 1);
        let most = seconds + seconds / 60 + 1 + 2 * (seconds / 5 + 1) + 2 * 4;
        assert!(asked <= most, "{asked} queries in {outage:?}, and at most {most}");
        // Only a probe can find out now that the server is back.
        site.until_it_has_failed(&new).await;
        site.pass(Duration::from_millis(longer_ms)).await;
        site.upstream.is_silent.store(false, Ordering::Relaxed);
        let recovery = site.until_answered(&new).await + site.until_answered(KNOWN).await;
        assert!(recovery <= RECOVERY, "{recovery:?} after {outage:?} and {longer_ms} ms");
    }
}

#[tokio::test]
async fn f11_names_of_the_cluster_wait_for_nothing_while_all_places_are_taken() {
    /// One client can have half of them.
    const PLACES: u32 = 100;
    const EVERY: Duration = Duration::from_secs(10);
    const OUTAGE: Duration = Duration::from_secs(600);
    /// Names of the cluster, and what a client gets: rcode, and records of the answer.
    const OWN: [(&str, u8, u8); 4] = [
        (CART, 0, 1),
        ("inside.shop.svc.cluster.local", 0, 2),
        ("shop.svc.cluster.local", 0, 0),
        ("nothere.shop.svc.cluster.local", 3, 0),
    ];
    let upstream = Upstream::start().await;
    upstream.is_silent.store(true, Ordering::Relaxed);
    let mut config = upstream.config();
    config.limits.in_flight = PLACES;
    let responder = serving(&config, "/nonexistent");
    pause();
    responder.forwarder.probe(Arc::clone(&responder.state), &Handle::current());
    let (began, mut waiting, mut names) = (Instant::now(), Vec::new(), 0);
    while began.elapsed() < OUTAGE {
        // The client takes every place that it can have, and none is given back before time passes.
        loop {
            names += 1;
            let (of, name) = (&responder, format!("n{names}.example.org"));
            let mut asking = Box::pin(async move { outcome(of, &name, A, true).await });
            match poll!(&mut asking) {
                Poll::Pending => waiting.push(asking),
                Poll::Ready(refused) => break assert_eq!(refused, (2, 0, Some(0)), "no place"),
            }
        }
        assert!(waiting.len() >= PLACES as usize / 2);
        for (name, rcode, records) in OWN {
            let own = outcome(&responder, name, A, true).now_or_never();
            assert_eq!(own, Some((rcode, records, None)), "{name}, after {:?}", began.elapsed());
        }
        sleep(EVERY).await;
        for asking in waiting.drain(..) {
            assert_eq!(asking.await.0, 2, "SERVFAIL");
        }
    }
}
