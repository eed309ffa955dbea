//! What came and what was answered: sizes, response codes and durations, for metrics.
//!
//! Each serving thread has tables of its own and adds without locked instructions. A reply that waited for an upstream is
//! sent by another thread: those replies share a table, whose additions cost nothing beside asking an upstream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dataplane_core::Reason;

pub use crate::origin::ServedOver;
use crate::origin::{Answered, Origin};
use crate::rcode;
use process::histogram::{Distribution, Durations, QUERY_BUCKETS, Sizes, Writers};

/// Where a header has TC, and the bit (RFC 1035 §4.1.1).
const FLAGS: usize = 2;
const TC: u8 = 2;

/// Counters of one thread and transport. None shares a line of a processor's cache, or the one that is fetched with it, with those
/// of another thread: each addition would take it away from the other processor.
#[derive(Debug)]
#[repr(align(128))]
pub struct Traffic {
    writers: Writers,
    queries: Sizes,
    replies: Sizes,
    by_rcode: [[AtomicU64; rcode::LABELS.len()]; Origin::ALL.len()],
    durations: [Durations<QUERY_BUCKETS>; Origin::ALL.len()],
    truncated: AtomicU64,
    capped: AtomicU64,
}

// The tables of the threads lie side by side.
const _: () = assert!(align_of::<Traffic>() >= 128);

impl Traffic {
    fn new(writers: Writers) -> Traffic {
        Traffic {
            writers,
            queries: Sizes::default(),
            replies: Sizes::default(),
            by_rcode: Default::default(),
            durations: Default::default(),
            truncated: AtomicU64::new(0),
            capped: AtomicU64::new(0),
        }
    }

    /// A query of this many octets came.
    pub fn query(&self, octets: usize) {
        self.queries.add(octets, self.writers);
    }

    /// Counts a reply by its size, its Rcode and TC.
    pub fn reply(&self, answered: Answered, reply: &[u8]) {
        self.replies.add(reply.len(), self.writers);
        // The upper bits of BADVERS are in the OPT record.
        let header = reply.get(3).map_or(0, |octet| u16::from(octet & 0xf));
        let rcode = if answered.reason == Reason::EdnsVersion { 16 } else { header };
        let counts = &self.by_rcode[answered.origin as usize];
        self.writers.add(&counts[rcode::place(rcode)], 1);
        if reply.get(FLAGS).is_some_and(|flags| flags & TC != 0) {
            self.writers.add(&self.truncated, 1);
        }
    }

    /// Counts a reply over a stream that waited for an upstream and has a shortened RRset (WR23).
    pub fn capped(&self) {
        self.writers.add(&self.capped, 1);
    }

    /// Records the time of a reply of this origin, from when its query reached the machine.
    pub fn took(&self, origin: Origin, duration: Duration) {
        self.durations[origin as usize].add(duration, self.writers);
    }
}

/// All tables of the process.
#[derive(Debug)]
pub struct TrafficTables {
    /// One for each UDP thread.
    udp: Vec<Traffic>,
    /// One for each transport: streams, and of UDP nothing.
    streams: [Traffic; ServedOver::ALL.len()],
    /// Replies that waited for an upstream.
    late: [Traffic; ServedOver::ALL.len()],
}

impl Default for TrafficTables {
    fn default() -> Self {
        Self::new(0)
    }
}

impl TrafficTables {
    pub(super) fn new(udp_threads: usize) -> TrafficTables {
        let late = |_| Traffic::new(Writers::Several);
        // The TCP thread serves all of them.
        let stream = |_| Traffic::new(Writers::One);
        TrafficTables {
            udp: (0..udp_threads).map(|_| Traffic::new(Writers::One)).collect(),
            streams: ServedOver::ALL.map(stream),
            late: std::array::from_fn(late),
        }
    }

    /// The table of a UDP thread; only that thread may add to it.
    pub fn udp(&self, thread: usize) -> &Traffic {
        &self.udp[thread]
    }

    /// The table of a stream transport. Only the TCP thread may add to it.
    pub fn stream(&self, over: ServedOver) -> &Traffic {
        &self.streams[over as usize]
    }

    /// The table for replies that waited for an upstream; any thread may add to it.
    pub fn late(&self, over: ServedOver) -> &Traffic {
        &self.late[over as usize]
    }

    /// Everything that was counted of a transport so far.
    pub fn read(&self, over: ServedOver) -> Totals {
        let udp = if over == ServedOver::Udp { &self.udp[..] } else { &[] };
        let tables = || udp.iter().chain([self.stream(over), self.late(over)]);
        let sum = |read: &dyn Fn(&Traffic) -> Distribution| {
            tables().fold(Distribution::default(), |sum, table| sum.plus(&read(table)))
        };
        Totals {
            queries: sum(&|table| table.queries.read()),
            replies: sum(&|table| table.replies.read()),
            by_rcode: Origin::ALL.map(|origin| {
                std::array::from_fn(|place| {
                    let count = |table: &Traffic| {
                        table.by_rcode[origin as usize][place].load(Ordering::Relaxed)
                    };
                    tables().map(count).sum()
                })
            }),
            durations: Origin::ALL
                .map(|origin| sum(&|table| table.durations[origin as usize].read())),
            truncated: tables().map(|table| table.truncated.load(Ordering::Relaxed)).sum(),
            capped: tables().map(|table| table.capped.load(Ordering::Relaxed)).sum(),
        }
    }
}

/// What was counted of a transport.
#[derive(Clone, Debug, PartialEq)]
pub struct Totals {
    pub queries: Distribution,
    pub replies: Distribution,
    /// Replies by [`Origin`], then by the places of [`rcode::LABELS`].
    pub by_rcode: [[u64; rcode::LABELS.len()]; Origin::ALL.len()],
    /// Seconds from a query to its reply, by [`Origin`].
    pub durations: [Distribution; Origin::ALL.len()],
    /// Replies with TC=1 (WR21).
    pub truncated: u64,
    /// Replies that waited for an upstream and whose RRset was shortened (WR23); others are in `WorkerCounters`.
    pub capped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_is_summed_by_transport() {
        let tables = TrafficTables::new(2);
        let answered = |reason, origin| Answered { reason, origin };
        let reply = |rcode: u8| [0, 0, 0x84, 0x80 | rcode, 0, 0, 0, 0, 0, 0, 0, 0];
        tables.udp(0).query(30);
        tables.udp(1).query(40);
        tables.udp(0).reply(answered(Reason::Found, Origin::Own), &reply(0));
        tables.udp(1).reply(answered(Reason::EdnsVersion, Origin::Own), &reply(0));
        tables.late(ServedOver::Udp).reply(answered(Reason::Forward, Origin::Failed), &reply(2));
        let cut = [0, 0, 0x86, 0x80, 0, 0, 0, 0, 0, 0, 0, 0];
        tables.udp(1).reply(answered(Reason::Found, Origin::Own), &cut);
        tables.late(ServedOver::Udp).reply(answered(Reason::Forward, Origin::Upstream), &cut);
        tables.udp(0).took(Origin::Own, Duration::from_micros(3));
        tables.stream(ServedOver::Tls).query(50);
        let udp = tables.read(ServedOver::Udp);
        assert_eq!((udp.queries.count(), udp.queries.sum), (2, 70.0));
        assert_eq!(udp.replies.count(), 5);
        assert_eq!(udp.by_rcode[Origin::Own as usize], [2, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(udp.by_rcode[Origin::Failed as usize], [0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(udp.durations[Origin::Own as usize].count(), 1);
        assert_eq!(tables.read(ServedOver::Tls).queries.count(), 1);
        assert_eq!((udp.truncated, udp.capped), (2, 0));
        assert_eq!(tables.read(ServedOver::Tcp).queries.count(), 0);
    }

    #[test]
    fn every_transport_is_at_its_own_place() {
        for (place, over) in ServedOver::ALL.into_iter().enumerate() {
            assert_eq!(over as usize, place, "{}", over.label());
        }
    }
}
