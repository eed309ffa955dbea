//! One batch that the test drives: which reply leaves when.

mod alone;
mod broken;
mod misses_in_a_row;
mod waiting_replies;

use std::net::UdpSocket;
use std::sync::Weak;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Wake, Waker};

use crds::Config;
use dataplane_core::Index;
use dataplane_udp::Options;

use super::*;
use crate::serve::ServeCounters;
use crate::serve::responder::tests::{Upstream, question, with_records};
use crate::settings;

/// A worker that the test drives, with one upstream and one client.
struct Site {
    upstream: Upstream,
    socket: Arc<Socket>,
    responder: Arc<Responder>,
    client: UdpSocket,
    worker: Worker,
}

impl Site {
    async fn start() -> Site {
        Site::with(|_| {}).await
    }

    /// The same with another configuration.
    async fn with(change: impl FnOnce(&mut Config)) -> Site {
        let upstream = Upstream::start().await;
        let mut config = upstream.config();
        change(&mut config);
        let records = Index::new(settings::of(&config).expect("settings")).records();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = Arc::new(Socket::bind(any, &Options::default()).unwrap());
        let mut responder = with_records(&config, records, "/nonexistent");
        responder.counters = Arc::new(ServeCounters::new(vec![Arc::clone(&socket)]));
        let responder = Arc::new(responder);
        let client = UdpSocket::bind(any).unwrap();
        client.connect(socket.local_addr()).unwrap();
        let (stale, stop) = (Duration::from_secs(600), Arc::default());
        let worker = Worker::new(Arc::clone(&socket), Arc::clone(&responder), 0, stale, stop);
        Site { upstream, socket, responder, client, worker }
    }
}

#[tokio::test]
async fn l3_fw53_answers_of_ours_leave_before_upstreams_are_asked_for_their_batch() {
    let Site { upstream: _upstream, socket, responder, client, mut worker } = Site::start().await;
    client.set_nonblocking(true).unwrap();
    for name in ["www.example.org", "cart.shop.svc.cluster.local"] {
        client.send(&question(name, 1, true)).unwrap();
    }
    let mut batch = Batch::new();
    assert_eq!(socket.recv(&mut batch).unwrap(), 2);
    let published = responder.state.published.load_full();
    worker.decide_batch(&published, &mut batch);
    assert!(!worker.later.is_empty() && responder.forwarder.in_flight() == 1, "it has its place");
    assert_eq!(responder.forwarder.lookups(), 0);
    assert_eq!(socket.send(&mut batch).sent, 1);
    let mut octets = [0; 512];
    let own = client.recv(&mut octets).expect("the answer of ours");
    assert_eq!(octets[12..17], *b"\x04cart", "{:?}", &octets[..own]);
    worker.ask(ASKED_AT_ONCE);
    assert!(worker.later.is_empty() && responder.forwarder.lookups() == 1);
    responder.finish_late().await;
    assert!(client.recv(&mut octets).is_ok() && octets[12..16] == *b"\x03www");
}

#[tokio::test]
async fn a_step_of_the_clock_is_no_time_that_replies_took() {
    let Site { responder, mut worker, .. } = Site::start().await;
    worker.stale = Duration::from_secs(4);
    worker.answered.push((Origin::Own, Duration::from_secs(1)));
    // It was 1970 when they came.
    worker.note_durations(Duration::ZERO);
    let took = &responder.counters.traffic.read(ServedOver::Udp).durations[Origin::Own as usize];
    assert_eq!(took.sum.round(), 5.0, "{took:?}");
}

/// Wakes a task that waits for the last late reply: it counts who holds the responder at that moment.
struct Holders {
    responder: Weak<Responder>,
    seen: AtomicUsize,
}

impl Wake for Holders {
    fn wake(self: Arc<Self>) {
        self.seen.store(self.responder.strong_count(), Ordering::Relaxed);
    }
}

#[tokio::test]
async fn e45_who_waits_for_the_last_late_reply_finds_the_socket_free() {
    let Site { upstream: _upstream, socket, responder, client, mut worker } = Site::start().await;
    client.send(&question("www.example.org", 1, true)).unwrap();
    let mut batch = Batch::new();
    assert_eq!(socket.recv(&mut batch).unwrap(), 1);
    let published = responder.state.published.load_full();
    worker.decide_batch(&published, &mut batch);
    worker.ask(ASKED_AT_ONCE);
    // The test, the worker and the lookup hold it.
    assert!(Arc::strong_count(&responder) > 2);
    let seen = AtomicUsize::new(0);
    let holders = Arc::new(Holders { responder: Arc::downgrade(&responder), seen });
    let waker = Waker::from(Arc::clone(&holders));
    let mut last = std::pin::pin!(responder.finish_late());
    assert!(last.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    while holders.seen.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(holders.seen.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_panic_over_one_query_costs_no_other_query_of_its_batch_its_answer() {
    let Site { upstream: _upstream, socket, responder, client, mut worker } = Site::start().await;
    client.set_nonblocking(true).unwrap();
    let mut batch = Batch::new();
    let published = responder.state.published.load_full();
    let name = |number: u8| format!("n{number}.shop.svc.cluster.local");
    // The first of a batch, one in its middle, and the last.
    for (panics, defect) in [(1, 0), (2, 2), (3, 4)] {
        worker.defect = Some(question(&name(defect), 1, true));
        for number in 0..5 {
            client.send(&question(&name(number), 1, true)).unwrap();
        }
        assert_eq!(socket.recv(&mut batch).unwrap(), 5);
        worker.decide_batch(&published, &mut batch);
        assert_eq!(responder.counters.panics.load(Ordering::Relaxed), panics, "counted once");
        assert_eq!(socket.send(&mut batch).sent, 4);
        let mut octets = [0; 512];
        for number in (0..5).filter(|number| *number != defect) {
            client.recv(&mut octets).expect("an answer");
            assert_eq!(octets[13..15], [b'n', b'0' + number]);
        }
    }
}

#[tokio::test]
async fn a_panic_outside_of_queries_ends_no_thread_that_answers() {
    let Site { upstream: _upstream, socket, responder, client, mut worker } = Site::start().await;
    worker.fails_next = true;
    let stop = Arc::clone(&worker.stop);
    let thread = std::thread::spawn(move || worker.run());
    let mut octets = [0; 512];
    for _ in 0..3 {
        client.send(&question("cart.shop.svc.cluster.local", 1, true)).unwrap();
        let received = client.recv(&mut octets);
        assert!(received.is_ok(), "{received:?}");
    }
    assert_eq!(responder.counters.panics.load(Ordering::Relaxed), 1);
    stop.store(true, Ordering::Release);
    socket.wake();
    thread.join().expect("it ends by itself");
}

#[tokio::test]
async fn ca30_fw53_replies_leave_before_an_upstream_is_asked_again() {
    let Site { upstream: _upstream, socket, responder, client, mut worker } = Site::start().await;
    let (mut batch, published) = (Batch::new(), responder.state.published.load_full());
    // A miss, two hits, and one hit more shortly before the end of its 600 s.
    for number in 1..=4 {
        client.send(&question("www.example.org", 1, true)).unwrap();
        assert_eq!(socket.recv(&mut batch).unwrap(), 1);
        worker.decide_batch(&published, &mut batch);
        if number < 4 {
            socket.send(&mut batch);
            worker.ask(ASKED_AT_ONCE);
            while responder.forwarder.lookups() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        if responder.forwarder.cache().outcomes()[0] == 2 {
            responder.forwarder.clock().advance(Duration::from_secs(595));
        }
    }
    let asks = |worker: &Worker| (worker.later.is_empty(), responder.forwarder.lookups());
    assert_eq!(asks(&worker), (false, 0), "it has its place, and is not asked yet");
    assert_eq!(socket.send(&mut batch).sent, 1);
    worker.ask(ASKED_AT_ONCE);
    assert_eq!(asks(&worker), (true, 1));
}

#[tokio::test]
async fn l2_a_client_that_asks_for_many_names_delays_none_of_another_one() {
    const MANY: usize = 3 * ASKED_AT_ONCE;
    let site = Site::with(|config| {
        config.limits.in_flight = 100;
        config.limits.in_flight_per_client = 100;
    });
    let Site { upstream: _upstream, socket, responder, client: many, mut worker } = site.await;
    let other = UdpSocket::bind("127.0.0.2:0").unwrap();
    other.connect(socket.local_addr()).unwrap();
    let mut batch = Batch::new();
    let published = responder.state.published.load_full();
    for number in 0..MANY {
        many.send(&question(&format!("n{number}.example.org"), 1, true)).unwrap();
    }
    other.send(&question("www.example.org", 1, true)).unwrap();
    assert_eq!(worker.receive(&mut batch, None, false).unwrap(), MANY + 1);
    worker.decide_batch(&published, &mut batch);
    worker.ask(ASKED_AT_ONCE);
    assert_eq!(responder.forwarder.lookups(), ASKED_AT_ONCE, "then clients are read again");
    assert_eq!(worker.receive(&mut batch, None, false).unwrap(), 0, "and not waited for");
    // The one of the other client is among the first.
    other.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let answered = tokio::task::spawn_blocking(move || other.recv(&mut [0; 512]));
    answered.await.unwrap().expect("its answer");
    while !worker.later.is_empty() {
        worker.ask(ASKED_AT_ONCE);
    }
    responder.finish_late().await;
    let mut answers = 0;
    many.set_nonblocking(true).unwrap();
    while many.recv(&mut [0; 512]).is_ok() {
        answers += 1;
    }
    assert_eq!(answers, MANY, "all are answered");
}

/// As many as upstreams are asked for in three turns.
const EQUAL: usize = 3 * ASKED_AT_ONCE;

impl Site {
    /// One with room for all of them.
    async fn for_many(change: impl FnOnce(&mut Config)) -> Site {
        let site = Site::with(|config| {
            config.limits.in_flight = 100;
            config.limits.in_flight_per_client = 100;
            change(config);
        });
        site.await
    }

    /// Takes equal queries in one batch, and asks for some of them at a time; what they begin is over before the next. How many
    /// are answered, and how many queries the upstream has got so far.
    async fn ask_together(&mut self, queries: usize) -> (usize, u64) {
        self.ask_in_turns(queries, Duration::ZERO).await
    }

    /// The same with this much time between two turns.
    async fn ask_in_turns(&mut self, queries: usize, between: Duration) -> (usize, u64) {
        let (mut batch, published) = (Batch::new(), self.responder.state.published.load_full());
        for _ in 0..queries {
            self.client.send(&question("www.example.org", 1, true)).unwrap();
        }
        assert_eq!(self.socket.recv(&mut batch).unwrap(), queries);
        self.worker.decide_batch(&published, &mut batch);
        self.socket.send(&mut batch);
        while !self.worker.later.is_empty() {
            self.worker.ask(ASKED_AT_ONCE);
            self.responder.finish_late().await;
            while self.responder.forwarder.lookups() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            self.responder.forwarder.clock().advance(between);
            self.wait(between);
        }
        self.client.set_nonblocking(true).unwrap();
        let answers = std::iter::from_fn(|| self.client.recv(&mut [0; 512]).ok()).count();
        (answers, self.upstream.asked())
    }

    /// As if what waits for its turn had been read this much earlier.
    fn wait(&mut self, time: Duration) {
        let waiting: Vec<Ask> = std::iter::from_fn(|| self.worker.later.pop()).collect();
        for mut ask in waiting {
            if let Ask::ForClient(later, _) = &mut ask {
                later.read = later.read.checked_sub(time).expect("the machine runs for longer");
            }
            self.worker.later.push([127, 0, 0, 1].into(), ask);
        }
    }
}

#[tokio::test]
async fn fw11_queries_of_one_batch_for_one_name_ask_once_though_they_have_turns() {
    let mut site = Site::for_many(|_| {}).await;
    assert_eq!(site.ask_together(EQUAL).await, (EQUAL, 1));
}

#[tokio::test]
async fn fw11_queries_of_one_batch_share_what_the_cache_does_not_keep() {
    for (what, entries, fails, ttl_s) in [
        ("TTL 0", 100, false, 0),
        ("no cache", 0, false, 600),
        ("an error without a cache", 0, true, 600),
    ] {
        let site = Site::for_many(|config| config.cache.entries = entries);
        let mut site = site.await;
        site.upstream.fails.store(fails, Ordering::Relaxed);
        site.upstream.ttl_s.store(ttl_s, Ordering::Relaxed);
        // However long they wait.
        let between = Duration::from_millis(1_500);
        assert_eq!(site.ask_in_turns(EQUAL, between).await, (EQUAL, 1), "{what}");
        assert_eq!(site.ask_together(1).await, (1, 2), "{what}: one that comes later asks again");
    }
}

#[tokio::test]
async fn c8_ca30_hits_of_one_batch_before_expiry_ask_once_though_they_have_turns() {
    for fails in [false, true] {
        let mut site = Site::for_many(|_| {}).await;
        for _ in 0..3 {
            assert_eq!(site.ask_together(1).await, (1, 1));
        }
        site.responder.forwarder.clock().advance(Duration::from_secs(595));
        site.upstream.fails.store(fails, Ordering::Relaxed);
        assert_eq!(site.ask_together(EQUAL).await, (EQUAL, 2), "{fails}");
    }
}

#[tokio::test]
async fn c8_ca41_queries_of_one_batch_for_an_expired_answer_ask_once_though_it_fails() {
    for ttl_s in [600, 0] {
        for fails in [true, false] {
            let mut site = Site::for_many(|_| {}).await;
            assert_eq!(site.ask_together(1).await, (1, 1));
            site.responder.forwarder.clock().advance(Duration::from_secs(601));
            site.upstream.fails.store(fails, Ordering::Relaxed);
            site.upstream.ttl_s.store(ttl_s, Ordering::Relaxed);
            assert_eq!(site.ask_together(EQUAL).await, (EQUAL, 2), "{ttl_s} {fails}");
        }
    }
}

#[tokio::test]
async fn fw11_a_query_for_an_expired_answer_that_waits_for_its_turn_finds_the_new_one() {
    let mut site = Site::for_many(|_| {}).await;
    assert_eq!(site.ask_together(1).await, (1, 1));
    site.responder.forwarder.clock().advance(Duration::from_secs(601));
    assert_eq!(site.ask_in_turns(EQUAL, Duration::from_secs(2)).await, (EQUAL, 2));
}

#[tokio::test]
async fn fw11_a_query_that_waits_longer_than_a_second_finds_what_the_cache_got() {
    let mut site = Site::for_many(|_| {}).await;
    assert_eq!(site.ask_in_turns(EQUAL, Duration::from_millis(1_500)).await, (EQUAL, 1));
}

#[tokio::test]
async fn l2_clients_are_read_again_before_upstreams_are_asked_while_batches_are_full() {
    // Queries of each batch, of which the first is for a name that is not ours, and the lookups after it.
    const BATCHES: [(usize, usize); 6] = [
        (BATCH, 0),
        // After the second in a row upstreams are asked, so that none waits without end.
        (BATCH, 2),
        (BATCH, 2),
        // Nothing waits to be read.
        (3, 4),
        (BATCH, 4),
        (1, 6),
    ];
    let site = Site::with(|config| {
        config.limits.in_flight = 100;
        config.limits.in_flight_per_client = 100;
    });
    let Site { upstream: _upstream, responder, client, mut worker, .. } = site.await;
    let mut batch = Batch::new();
    for (number, (queries, lookups)) in BATCHES.into_iter().enumerate() {
        client.send(&question(&format!("n{number}.example.org"), 1, true)).unwrap();
        for _ in 1..queries {
            client.send(&question("cart.shop.svc.cluster.local", 1, true)).unwrap();
        }
        assert!(worker.turn(&mut batch, None));
        assert_eq!(responder.forwarder.lookups(), lookups, "after batch {number}");
    }
}
