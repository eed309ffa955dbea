//! A million names, each another one (L6): the metrics have the series that they had, and nothing is logged.

use std::collections::BTreeSet;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::counted::metrics;
use super::golden::{A, serving};
use super::*;
use crate::metrics::{Form, Metrics};

const NAMES: usize = 1_000_000;
/// Half are names of the cluster that do not exist, half are names of others. The digits of each are its number.
const DIGITS: usize = 7;
const OURS: &str = "0000000.shop.svc.cluster.local";
const THEIRS: &str = "0000000.example.org";

/// Counts log lines of all levels.
#[derive(Default)]
pub(in crate::serve) struct Lines(pub(in crate::serve) AtomicU64);

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Every series of the page, without its value.
fn series(metrics: &Metrics) -> BTreeSet<String> {
    let page = String::from_utf8(metrics.page(Form::Text)).expect("text");
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
}

/// Writes a number into the first label of a query.
fn number(packet: &mut [u8], mut number: usize) {
    for digit in packet[13..13 + DIGITS].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[tokio::test]
async fn l6_a_million_names_make_no_series_and_no_log_line() {
    let upstream = Upstream::start().await;
    let mut config = upstream.config();
    config.limits.in_flight = 0;
    let responder = serving(&config, "/nonexistent");
    let metrics = metrics(&responder, &config, &Arc::default(), &Arc::default());
    let published = responder.state.published.load_full();
    let mut buffer = [0; 1232];
    let mut ask = |packet: &[u8]| {
        let client = SocketAddr::from(([127, 0, 0, 1], 5353));
        let query = Query { packet, client, transport: Transport::Udp, now_s: 0, seed: 1 };
        match responder.decide((&published, None), 0, &query, Room::Now, &mut buffer) {
            ServeAction::Reply(_, answered, None) => answered.origin,
            _ => panic!("every query has its reply at once"),
        }
    };
    let (mut ours, mut theirs) = (question(OURS, A, true), question(THEIRS, A, true));
    ask(&ours);
    ask(&theirs);
    let before = series(&metrics);
    let lines = Arc::new(Lines::default());
    let of_thread = tracing::Dispatch::new(Arc::clone(&lines));
    tracing::dispatcher::with_default(&of_thread, || {
        for name in 1..=NAMES / 2 {
            number(&mut ours, name);
            assert_eq!(ask(&ours), Origin::Own);
            number(&mut theirs, name);
            assert_eq!(ask(&theirs), Origin::Failed);
        }
    });
    assert_eq!(series(&metrics), before);
    assert_eq!(lines.0.load(Ordering::Relaxed), 0);
}
