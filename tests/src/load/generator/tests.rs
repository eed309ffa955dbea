//! Runs of the loop against a server without sockets, by a clock of their own.

use std::cell::Cell;

use super::*;
use crate::load::upstream;

/// A server without sockets: it answers some, is silent to others, and takes a few at a time.
#[derive(Default)]
struct Table {
    takes: usize,
    silent_every: Option<usize>,
    lies: bool,
    asked: usize,
    /// The most questions that one socket sent together.
    together: usize,
    waiting: Vec<(usize, Vec<u8>)>,
}

impl Carrier for Table {
    fn sockets(&self) -> usize {
        4
    }

    fn send(&mut self, socket: usize, queries: &Queries) -> io::Result<usize> {
        let count = queries.count().min(self.takes);
        self.together = self.together.max(count);
        for at in 0..count {
            self.asked += 1;
            if self.silent_every.is_some_and(|every| self.asked.is_multiple_of(every)) {
                continue;
            }
            let mut message = queries.get(at).to_vec();
            let length = message.len();
            message.resize(512, 0);
            let length = upstream::reply(&mut message, length);
            message.truncate(length);
            if self.lies {
                *message.last_mut().expect("an address") ^= 1;
            }
            self.waiting.push((socket, message));
        }
        Ok(count)
    }

    fn receive(&mut self, mut reply: impl FnMut(Arrival<'_>)) -> io::Result<usize> {
        let count = self.waiting.len();
        for (socket, octets) in self.waiting.drain(..) {
            reply(Arrival { socket, octets: &octets, at: None });
        }
        Ok(count)
    }
}

const BRIEFLY: Duration = Duration::from_millis(20);

fn run(table: Table, pace: Pace) -> Outcome {
    let trace = Trace::external(100, 1_000, 1);
    // A clock that is 50 microseconds later whenever it is looked at.
    let ns = Cell::new(0);
    let clock = || {
        ns.set(ns.get() + 50_000);
        ns.get()
    };
    let run = Running::new(&trace, pace, BRIEFLY);
    Generator::new(table).run_by(run, clock).expect("no socket can fail")
}

#[test]
fn every_question_that_was_due_is_sent_and_answered_once() {
    let outcome = run(Table { takes: BATCH, ..Table::default() }, Pace::Rate(5_000));
    assert_eq!((outcome.due, outcome.sent, outcome.late), (100, 100, 0));
    assert_eq!((outcome.answered, outcome.wrong, outcome.foreign), (outcome.sent, 0, 0));
    assert_eq!((outcome.lost, outcome.rcodes[0]), (0, outcome.sent));
    assert_eq!(outcome.latency.len(), outcome.sent);
}

#[test]
fn a_client_beside_another_gets_its_own_answers_at_its_own_rate() {
    let (quiet, loud) = (Trace::external(100, 1_000, 1), Trace::misses(2_000, 1));
    let table = |silent_every| Table { takes: BATCH, silent_every, ..Table::default() };
    let mut first = Generator::new(table(None));
    let mut second = Generator::new(table(Some(4)));
    let ns = Cell::new(0);
    let clock = || {
        ns.set(ns.get() + 50_000);
        ns.get()
    };
    let first = Client { generator: &mut first, trace: &quiet, pace: Pace::Rate(1_000) };
    let second = Client { generator: &mut second, trace: &loud, pace: Pace::Rate(10_000) };
    let (one, other) = run_beside_by(first, second, BRIEFLY, clock).expect("no socket can fail");
    assert!(one.sent >= 19 && other.sent >= 190, "{} and {} of 20 and 200", one.sent, other.sent);
    assert_eq!((one.answered, one.wrong, one.lost), (one.sent, 0, 0));
    assert_eq!((other.answered + other.lost, other.wrong), (other.sent, 0));
    assert_eq!(other.lost, other.sent / 4);
}

#[test]
fn questions_that_are_late_are_not_those_of_one_client() {
    let trace = Trace::external(100, 1_000, 1);
    for (of_clients, together) in [(false, 20), (true, 1)] {
        let table = Table { takes: BATCH, ..Table::default() };
        let mut generator =
            if of_clients { Generator::of_clients(table) } else { Generator::new(table) };
        // It begins 20 ms late.
        let ns = Cell::new(20_000_000);
        let clock = || {
            ns.set(ns.get() + 50_000);
            ns.get()
        };
        let run = Running::new(&trace, Pace::Rate(1_000), 3 * BRIEFLY);
        let outcome = generator.run_by(run, clock).expect("no socket can fail");
        assert_eq!((outcome.sent, outcome.answered), (60, 60));
        assert_eq!(generator.carrier.together, together + usize::from(!of_clients));
    }
}

#[test]
fn what_a_socket_does_not_take_is_sent_later_and_not_lost() {
    let outcome = run(Table { takes: 3, ..Table::default() }, Pace::Window(64));
    assert!(outcome.sent > 3);
    assert_eq!((outcome.answered, outcome.lost), (outcome.sent, 0));
}

#[test]
fn a_flood_does_not_wait_for_replies_after_its_end() {
    let trace = Trace::external(100, 1_000, 1);
    let ended_ms = |grace| {
        let ns = Cell::new(0);
        let clock = || {
            ns.set(ns.get() + 50_000);
            ns.get()
        };
        let table = Table { takes: BATCH, silent_every: Some(1), ..Table::default() };
        let run = Running::new(&trace, Pace::Rate(5_000), BRIEFLY);
        let run = Running { grace: grace * run.grace, ..run };
        let outcome = Generator::new(table).run_by(run, clock).expect("no socket can fail");
        assert_eq!((outcome.answered, outcome.lost), (0, outcome.sent));
        ns.get() / 1_000_000
    };
    assert_eq!((ended_ms(0), ended_ms(1)), (20, 520));
}

#[test]
fn silence_is_loss_and_lies_are_wrong() {
    let every = Some(10);
    let table = Table { takes: BATCH, silent_every: every, ..Table::default() };
    let outcome = run(table, Pace::Rate(5_000));
    assert_eq!(outcome.lost, outcome.sent / 10);
    let lying = run(Table { takes: BATCH, lies: true, ..Table::default() }, Pace::Rate(5_000));
    assert_eq!(lying.wrong, lying.sent);
    assert!(lying.example.is_some_and(|text| text.contains("Wrong")));
}
