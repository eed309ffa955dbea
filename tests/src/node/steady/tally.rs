//! What a client counts: each question by the time at which it was due, on a clock that all processes of a machine share.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Pieces of a second for each of which the slowest reply is kept.
const PER_SECOND: f64 = 10.0;
/// Losses that a summary names.
const SHOWN: usize = 3;

/// Seconds of the monotonic clock: no one sets it, and all processes of a machine have the same.
pub fn now() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every system has this clock");
    Duration::from(now).as_secs_f64()
}

/// The same of a moment that has passed.
pub(super) fn seconds_at(moment: Instant) -> f64 {
    now() - moment.elapsed().as_secs_f64()
}

/// A question without a right reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Miss {
    /// When it was due, as [`now`] counts. It was asked later where the client had no processor at that time.
    pub at: f64,
    pub why: String,
}

/// The results of the questions over one transport.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    pub asked: usize,
    /// Those without a right reply to the first try.
    pub first: Vec<Miss>,
    /// Those without one to the second try either.
    pub lost: Vec<Miss>,
    /// The longest time until a right reply, in milliseconds, of the questions that were due in each tenth of a second.
    longest_ms: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tallies {
    /// When the client began, as [`now`] counts.
    pub began: f64,
    /// UDP, a socket for each question.
    pub udp: Tally,
    /// TCP, a connection for each question.
    pub tcp: Tally,
    /// UDP, always the same socket.
    pub kept_udp: Tally,
    /// TCP, the same connection until it is closed.
    pub kept_tcp: Tally,
}

/// The slowest of some questions: one without a reply to either try is slower than any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slowest {
    /// Milliseconds until its right reply.
    Reply(u64),
    /// This many of them were lost.
    Lost(usize),
}

impl Slowest {
    /// Of the questions over these transports that were due at this time or later, exact to a tenth of a second.
    pub fn since<'t>(at: f64, tallies: impl Iterator<Item = &'t Tally> + Clone) -> Slowest {
        match tallies.clone().map(|it| it.lost_since(at)).sum() {
            0 => Slowest::Reply(tallies.map(|it| it.longest_since(at)).max().unwrap_or(0)),
            lost => Slowest::Lost(lost),
        }
    }
}

impl fmt::Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slowest::Reply(ms) => write!(f, "{ms} ms"),
            Slowest::Lost(count) => write!(f, "{count} lost"),
        }
    }
}

/// Why the first try failed, and why the second one failed too.
pub(super) type Tries = (Option<String>, Option<String>);

/// The piece of a second that a time is in.
fn piece(at: f64) -> u64 {
    (at * PER_SECOND) as u64
}

impl Tally {
    /// A question that was due then and took this long.
    pub(super) fn add(&mut self, (at, took): (f64, Duration), (first, lost): Tries) {
        self.asked += 1;
        self.first.extend(first.map(|why| Miss { at, why }));
        match lost {
            Some(why) => self.lost.push(Miss { at, why }),
            None => {
                let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                let longest = self.longest_ms.entry(piece(at)).or_default();
                *longest = took.max(*longest);
            }
        }
    }

    /// The longest time until a right reply, in milliseconds, of questions that were due in this tenth of a second or later.
    pub fn longest_since(&self, at: f64) -> u64 {
        self.longest_ms.range(piece(at)..).map(|(_, longest)| *longest).max().unwrap_or(0)
    }

    /// The end of the last tenth of a second in which a question was due that was lost or took this long.
    pub fn slow_until(&self, ms: u64) -> Option<f64> {
        let slow = self.longest_ms.iter().filter(|(_, longest)| **longest >= ms).map(|it| *it.0);
        let last = slow.chain(self.lost.iter().map(|miss| piece(miss.at))).max();
        last.map(|last| (last + 1) as f64 / PER_SECOND)
    }

    /// How many of them were lost.
    pub fn lost_since(&self, at: f64) -> usize {
        self.lost.iter().filter(|miss| piece(miss.at) >= piece(at)).count()
    }
}

impl Tallies {
    /// All counts in one line.
    pub fn summary(&self) -> String {
        let of = |(name, tally): (&str, &Tally)| {
            let shown = tally.first.iter().take(SHOWN);
            let shown: Vec<String> =
                shown.map(|it| format!("{:.2} s: {}", it.at - self.began, it.why)).collect();
            format!(
                "{name}: {} asked, {} lost on the first try {shown:?}, {} after the second, slowest {} ms",
                tally.asked,
                tally.first.len(),
                tally.lost.len(),
                tally.longest_since(0.0)
            )
        };
        self.all().map(of).join("; ")
    }

    fn all(&self) -> [(&'static str, &Tally); 4] {
        let Tallies { udp, tcp, kept_udp, kept_tcp, began: _ } = self;
        [("UDP", udp), ("TCP", tcp), ("one UDP socket", kept_udp), ("one connection", kept_tcp)]
    }

    /// Each client asked something, and nothing was lost after the second try.
    ///
    /// # Panics
    /// With what was lost.
    #[track_caller]
    pub fn lost_nothing(&self, what: &str) {
        for (name, tally) in self.all() {
            assert!(tally.asked > 0, "{what}: nothing was asked over {name}");
            assert!(tally.lost.is_empty(), "{what}: {}\n{tally:#?}", self.summary());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Option<String> {
        Some("no reply".to_owned())
    }

    #[test]
    fn d8_a_question_counts_from_when_it_was_due_and_a_lost_one_is_the_slowest() {
        let (mut udp, mut tcp) = (Tally::default(), Tally::default());
        let fault = 100.0;
        let ms = Duration::from_millis;
        udp.add((fault + 3.85, ms(2_300)), (none(), None));
        udp.add((fault + 4.05, ms(12)), (None, None));
        tcp.add((fault + 4.95, ms(40)), (None, None));
        let slowest =
            |tallies: &[&Tally], after| Slowest::since(fault + after, tallies.iter().copied());
        assert_eq!(slowest(&[&udp, &tcp], 0.0), Slowest::Reply(2_300));
        assert_eq!(slowest(&[&udp, &tcp], 4.0), Slowest::Reply(40), "a tenth of a second before");
        assert_eq!(slowest(&[&udp], 4.1), Slowest::Reply(0), "nothing was asked");

        udp.add((fault + 4.05, ms(7_000)), (none(), none()));
        assert_eq!(slowest(&[&udp, &tcp], 4.0), Slowest::Lost(1));
        assert_eq!(slowest(&[&udp, &tcp], 4.2), Slowest::Reply(40));
        assert_eq!((udp.slow_until(1_000), tcp.slow_until(1_000)), (Some(fault + 4.1), None));
        assert_eq!(tcp.slow_until(40), Some(fault + 5.0));
        assert!(Slowest::Lost(1) > Slowest::Reply(u64::MAX));
        assert_eq!((udp.asked, udp.first.len(), udp.lost.len()), (3, 2, 1));
    }
}
