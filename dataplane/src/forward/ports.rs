//! How many UDP ports are in use towards upstreams (FW10): those that are open, and those closed less than 30 s ago, which
//! still hold an entry in the connection tracking of their node. Each server has a part of its own, so that a silent one
//! cannot take the ports of the others. Pure: time comes as an argument.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Time until a closed port is free again (FW10).
pub(super) const REST: Duration = Duration::from_secs(30);
/// Open sockets of one server from which queries draw where none may have a port of its own (FW10).
pub(super) const POOL: usize = 1024;
/// Ports for one query each that one server opens at once at most; the others are spread evenly over the time of a rest. Else a
/// flood would open thousands of sockets within a moment while clients wait (L2), again each time these ports have rested.
const MOST_AT_ONCE: u32 = 512;

/// Names one server of the registry.
pub(super) type ServerId = u32;

/// Where a query is sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draw {
    /// A port of its own, closed after it.
    Own,
    /// A port of its own that stays open: later queries will draw from such.
    Pooled,
    /// One of the open sockets of the pool, at random.
    Shared,
}

/// The open ports of one server that queries share, as a query finds them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    pub(super) all: usize,
    /// Those among which it draws: a thread reads its own, and draws among these.
    pub(super) to_draw: usize,
    /// Who reads some, and the thread of the query.
    pub(super) readers: usize,
}

/// What one server holds.
#[derive(Debug, Default)]
struct Held {
    /// Open and resting ports.
    ports: usize,
    pace: Pace,
}

/// How fast ports for one query each are opened.
#[derive(Debug, Default)]
struct Pace {
    /// When as many as at most may be opened at once; none where that is so.
    full_at: Option<Instant>,
}

impl Pace {
    /// Takes one, if it is its time. This many may be opened in the time of a rest.
    fn take(&mut self, most: usize, now: Instant) -> bool {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let each = REST / most.max(1);
        let full = each * MOST_AT_ONCE.min(most);
        // After an edit it may be more than all.
        let until_full = |at: Instant| at.saturating_duration_since(now).min(full);
        let before = self.full_at.map_or(Duration::ZERO, until_full);
        let may = before + each <= full;
        self.full_at = Some(now + if may { before + each } else { before });
        may
    }
}

/// The ports of the process.
#[derive(Debug, Default)]
pub(super) struct Ports {
    bound: usize,
    /// The servers of the present configuration.
    configured: HashSet<ServerId>,
    /// Of configured servers, and of former ones until their ports have rested.
    held: HashMap<ServerId, Held>,
    total: usize,
    resting: VecDeque<(Instant, ServerId)>,
}

impl Ports {
    /// Another bound, or other servers. A server that is gone keeps what it holds until that has rested.
    pub(super) fn configure(&mut self, bound: usize, servers: impl Iterator<Item = ServerId>) {
        self.bound = bound;
        self.held.retain(|_, held| held.ports > 0);
        self.configured = servers.collect();
        for server in &self.configured {
            self.held.entry(*server).or_default();
        }
    }

    /// Decides for one query, and takes the port if it is a new one.
    pub(super) fn draw(&mut self, server: ServerId, open: Open, now: Instant) -> Draw {
        self.expire(now);
        let own = self.own_part();
        let held = self.held_by(server);
        let most = own.max(POOL.min(self.bound));
        let is_free = held < own || (held < most && self.total + self.reserve(own) < self.bound);
        // As many as its readers still open to draw from. With many readers that would be the whole part.
        let of_readers = (POOL * open.readers.max(1)).min((most / 2).max(POOL));
        // Also where none is free: what is not opened now must not be opened at once later.
        let of_server = self.held.get_mut(&server);
        let is_its_time =
            of_server.is_none_or(|held| held.pace.take(most.saturating_sub(POOL), now));
        let is_own = is_its_time && is_free && held + of_readers.saturating_sub(open.all) < most;
        let is_pooled = is_free && open.to_draw < POOL || is_few(open, own);
        if !is_own && !is_pooled {
            return Draw::Shared;
        }
        self.total += 1;
        self.held.entry(server).or_default().ports += 1;
        if is_own { Draw::Own } else { Draw::Pooled }
    }

    fn held_by(&self, server: ServerId) -> usize {
        self.held.get(&server).map_or(0, |held| held.ports)
    }

    /// A port was closed: it rests.
    pub(super) fn closed(&mut self, server: ServerId, now: Instant) {
        self.resting.push_back((now + REST, server));
    }

    /// A port could not be opened: it is free again.
    pub(super) fn failed(&mut self, server: ServerId) {
        self.release(server);
    }

    /// Ports that this server can open now, also if all others open theirs.
    pub(super) fn free(&mut self, server: ServerId, now: Instant) -> usize {
        self.expire(now);
        self.own_part().saturating_sub(self.held_by(server))
    }

    /// Ports that are open or rest.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// The reserved part of each server; the other half is shared by servers that need more.
    fn own_part(&self) -> usize {
        match self.held.len() {
            0 | 1 => self.bound,
            servers => (self.bound / (2 * servers)).max(1).min(self.bound),
        }
    }

    /// Reserved ports that are not in use.
    fn reserve(&self, own: usize) -> usize {
        self.held.values().map(|held| own.saturating_sub(held.ports)).sum()
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(until, server)) = self.resting.front().filter(|(until, _)| *until <= now) {
            let _ = until;
            self.resting.pop_front();
            self.release(server);
        }
    }

    fn release(&mut self, server: ServerId) {
        self.total = self.total.saturating_sub(1);
        if let Some(held) = self.held.get_mut(&server) {
            held.ports = held.ports.saturating_sub(1);
            if held.ports == 0 && !self.configured.contains(&server) {
                // Its reserved part is free for the others again.
                self.held.remove(&server);
            }
        }
    }
}

/// Whether a reader takes one more port to draw from, also beyond the part of its server. After an edit that made that part
/// smaller, as a second server does, the ports that were closed before rest beyond it: it must not be without any until they
/// have rested. So it is after a burst, whose sockets were closed together, and while another thread has them.
fn is_few(open: Open, own: usize) -> bool {
    let share = own / open.readers.max(1);
    open.to_draw < (POOL.min(share) / 2).max(1).min(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(bound: usize, servers: u32) -> Ports {
        let mut ports = Ports::default();
        ports.configure(bound, 0..servers);
        ports
    }

    /// All are of one reader.
    fn alone(open: usize) -> Open {
        Open { all: open, to_draw: open, readers: 1 }
    }

    /// Ports that a server can open one after the other: for one query each, and pooled.
    fn open(ports: &mut Ports, server: ServerId, now: Instant) -> (usize, usize) {
        let mut opened = (0, 0);
        loop {
            match ports.draw(server, alone(opened.1), now) {
                Draw::Own => opened.0 += 1,
                Draw::Pooled => opened.1 += 1,
                Draw::Shared => return opened,
            }
        }
    }

    #[test]
    fn fw10_a_server_opens_512_ports_at_once_and_has_1024_to_draw_from() {
        let now = Instant::now();
        assert_eq!(open(&mut ports(8192, 1), 0, now), (512, 1024));
        assert_eq!(open(&mut ports(8192, 2), 0, now), (512, 1024));
        assert_eq!(open(&mut ports(1124, 1), 0, now), (100, 1024));
        assert_eq!(open(&mut ports(8192, 4), 0, now), (0, 1024));
        assert_eq!(open(&mut ports(100, 1), 0, now), (0, 100));
        assert_eq!(open(&mut ports(0, 1), 0, now), (0, 0));
    }

    /// A flood that lasts: what opens a socket must not come together, and all ports are used (L2).
    #[test]
    fn l2_fw10_a_flood_opens_ports_for_one_query_each_evenly() {
        let start = Instant::now();
        let (mut ports, mut open) = (ports(8192, 1), 0);
        let mut own_in_second = vec![0; 95];
        // A port is closed after five milliseconds.
        let mut closes = VecDeque::new();
        for millisecond in 0..95_000 {
            let now = start + Duration::from_millis(millisecond);
            while closes.front().is_some_and(|at| *at <= now) {
                closes.pop_front();
                ports.closed(0, now);
            }
            for _ in 0..20 {
                match ports.draw(0, alone(open), now) {
                    Draw::Own => {
                        own_in_second[millisecond as usize / 1000] += 1;
                        closes.push_back(now + Duration::from_millis(5));
                    }
                    Draw::Pooled => open += 1,
                    Draw::Shared => {}
                }
            }
        }
        assert_eq!(open, 1024);
        let evenly = 7168 / 30;
        assert!(own_in_second[0] <= 512 + evenly + 1, "{own_in_second:?}");
        let later = &own_in_second[1..];
        assert!(later.iter().all(|own| *own <= evenly + 1), "{own_in_second:?}");
        let all: usize = later.iter().sum();
        assert!(all > later.len() * evenly * 9 / 10, "{own_in_second:?}");
    }

    #[test]
    fn fw10_few_queries_have_ports_of_their_own_beside_many_readers() {
        for (servers, readers) in [(2, 2), (1, 8)] {
            let open = Open { all: 2 * readers, to_draw: 2, readers };
            let (mut ports, start) = (ports(8192, servers), Instant::now());
            for query in 0..600 {
                let now = start + query * Duration::from_millis(100);
                assert_eq!(ports.draw(0, open, now), Draw::Own, "{servers} {query}");
                ports.closed(0, now);
            }
        }
    }

    /// Each of these threads sends queries until it draws among open ports only; how many these are.
    fn floods(ports: &mut Ports, server: ServerId, threads: usize, now: Instant) -> Vec<usize> {
        let mut open = vec![0; threads];
        for thread in 0..threads {
            let found = |open: &[usize]| Open {
                all: open.iter().sum(),
                to_draw: open[thread],
                readers: thread + 1,
            };
            loop {
                match ports.draw(server, found(&open), now) {
                    Draw::Own => {}
                    Draw::Pooled => open[thread] += 1,
                    Draw::Shared => break,
                }
            }
        }
        open
    }

    #[test]
    fn l2_fw10_each_thread_has_1024_ports_to_draw_from_where_there_is_room() {
        let now = Instant::now();
        assert_eq!(floods(&mut ports(8192, 1), 0, 4, now), [1024; 4]);
        // Two servers have 2,048 each for sure.
        assert_eq!(floods(&mut ports(8192, 2), 0, 2, now), [1024, 512]);
        assert_eq!(floods(&mut ports(1024, 1), 0, 2, now), [1024, 256]);
        assert_eq!(floods(&mut ports(1, 1), 0, 2, now), [1, 1]);
        assert_eq!(floods(&mut ports(0, 1), 0, 2, now), [0, 0]);
    }

    #[test]
    fn l16_fw10_threads_have_few_ports_beyond_the_part_of_their_server() {
        let now = Instant::now();
        for (servers, threads) in [(1, 4), (2, 8), (5, 4), (15, 8)] {
            let mut ports = ports(8192, servers);
            let own = ports.own_part();
            for _ in 0..8192 {
                ports.draw(0, Open { all: POOL, to_draw: POOL - 1, readers: 1 }, now);
            }
            let before = ports.held_by(0);
            let few: usize = floods(&mut ports, 0, threads, now).iter().sum();
            assert!(few >= threads && few <= own * 3 / 2, "{few} for {threads} of {servers}");
            assert_eq!(ports.held_by(0), before + few);
        }
    }

    #[test]
    fn fw10_queries_that_come_evenly_have_a_port_each() {
        let start = Instant::now();
        let mut ports = ports(8192, 1);
        for query in 0..20_000 {
            let now = start + Duration::from_millis(5) * query;
            assert_eq!(ports.draw(0, alone(0), now), Draw::Own, "{query}");
            ports.closed(0, now);
        }
    }

    /// With the pace of its small part it would wait for half a minute.
    #[test]
    fn fw10_a_server_whose_part_becomes_larger_opens_ports_at_the_new_pace() {
        let start = Instant::now();
        let mut ports = ports(1025, 1);
        assert_eq!(open(&mut ports, 0, start), (1, 1024));
        ports.configure(8192, 0..1);
        let draws = [5, 10, 15].map(Duration::from_millis);
        let drawn = draws.map(|after| ports.draw(0, alone(1024), start + after));
        assert_eq!(drawn, [Draw::Shared, Draw::Own, Draw::Own]);
    }

    #[test]
    fn fw10_a_closed_port_rests_for_thirty_seconds() {
        let start = Instant::now();
        let mut ports = ports(1, 1);
        assert_eq!(ports.draw(0, alone(0), start), Draw::Pooled);
        ports.closed(0, start);
        let thirty = Duration::from_secs(30);
        let before = start + thirty - Duration::from_millis(1);
        assert_eq!(ports.draw(0, alone(1), before), Draw::Shared);
        assert_eq!(ports.draw(0, alone(0), start + thirty), Draw::Pooled);
        ports.failed(0);
        assert_eq!((ports.draw(0, alone(0), start + REST), ports.total()), (Draw::Pooled, 1));
    }

    #[test]
    fn fw10_the_part_of_a_removed_server_is_free_when_its_ports_have_rested() {
        let start = Instant::now();
        let mut ports = ports(8192, 2);
        ports.draw(1, alone(0), start);
        ports.configure(8192, 0..1);
        assert_eq!(ports.free(0, start), 2048);
        ports.closed(1, start);
        assert_eq!(ports.free(0, start + REST), 8192);
        assert_eq!(ports.total(), 0);
    }

    #[test]
    fn fw10_a_smaller_part_leaves_a_server_ports_to_draw_from() {
        let now = Instant::now();
        for (bound, servers, least) in [(8192, 2, 512), (1024, 1, 512), (8192, 5, 409), (1, 1, 1)] {
            let mut ports = ports(8192, 1);
            for _ in 0..3000 {
                assert_ne!(ports.draw(0, alone(POOL - 1), now), Draw::Shared);
                ports.closed(0, now);
            }
            ports.configure(bound, 0..servers);
            assert_eq!(
                ports.draw(0, alone(POOL), now),
                Draw::Shared,
                "what rests is more than its part"
            );
            assert_eq!(open(&mut ports, 0, now), (0, least), "{bound} for {servers}");
            assert_eq!(ports.total(), 3000 + least);
        }
    }

    #[test]
    fn l16_no_server_can_take_the_part_of_another_and_the_bound_holds() {
        let now = Instant::now();
        for servers in [2, 3, 5, 20, 300] {
            let mut ports = ports(8192, servers);
            let own = 8192 / (2 * servers as usize);
            let opened: Vec<usize> = (0..servers)
                .map(|server| {
                    let draws = std::iter::repeat_with(|| ports.draw(server, alone(POOL - 1), now));
                    draws.take_while(|draw| *draw != Draw::Shared).count()
                })
                .collect();
            assert!(opened.iter().all(|opened| *opened >= own), "{servers}: {opened:?}");
            assert!(opened.iter().all(|opened| *opened <= own.max(POOL)), "{servers}: {opened:?}");
            assert!(ports.total() <= 8192, "{servers}: {}", ports.total());
        }
    }
}
