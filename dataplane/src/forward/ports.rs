//! How many UDP ports are in use towards upstreams (FW10): those that are open, and those closed less than 30 s ago, which
//! still hold an entry in the connection tracking of their node. Each server has a part of its own, so that a silent one
//! cannot take the ports of the others. Pure: time comes as an argument.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Time until a closed port is free again (FW10).
pub(super) const REST: Duration = Duration::from_secs(30);
/// Open sockets of one server from which queries draw at the bound (FW10).
pub(super) const POOL: usize = 1024;

/// Names one server of the registry.
pub(super) type ServerId = u32;

/// Where a query is sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draw {
    /// A port of its own, closed after it.
    Own,
    /// A port of its own that stays open: the bound is near, and later queries will draw from such.
    Pooled,
    /// One of the open sockets of the pool, at random: the bound is reached.
    Shared,
}

/// The ports of the process.
#[derive(Debug, Default)]
pub(super) struct Ports {
    bound: usize,
    /// The servers of the present configuration.
    configured: HashSet<ServerId>,
    /// Open and resting ports, by server: of configured servers, and of former ones until their ports have rested.
    held: HashMap<ServerId, usize>,
    total: usize,
    resting: VecDeque<(Instant, ServerId)>,
}

impl Ports {
    /// Another bound, or other servers. A server that is gone keeps what it holds until that has rested.
    pub(super) fn configure(&mut self, bound: usize, servers: impl Iterator<Item = ServerId>) {
        self.bound = bound;
        self.held.retain(|_, held| *held > 0);
        self.configured = servers.collect();
        for server in &self.configured {
            self.held.entry(*server).or_insert(0);
        }
    }

    /// Decides for one query, and takes the port if it is a new one.
    pub(super) fn draw(&mut self, server: ServerId, now: Instant) -> Draw {
        self.expire(now);
        let own = self.own_part();
        let held = self.held.get(&server).copied().unwrap_or(0);
        let most = own.max(POOL.min(self.bound));
        let is_free = held < own || (held < most && self.total + self.reserve(own) < self.bound);
        if !is_free {
            return Draw::Shared;
        }
        self.total += 1;
        self.held.insert(server, held + 1);
        if held + POOL >= most { Draw::Pooled } else { Draw::Own }
    }

    /// Takes one more port that stays open, where a server has no more than this many to draw from. After an edit that made its
    /// part smaller, as a second server does, the ports that it closed before rest beyond that part: it must not be without any
    /// until they have rested. So it is after a burst, whose sockets were closed together.
    pub(super) fn draw_one_more(&mut self, server: ServerId, open: usize) -> bool {
        let own = self.own_part();
        let is_few = open < (POOL.min(own) / 2).max(1).min(own);
        if is_few {
            self.total += 1;
            *self.held.entry(server).or_insert(0) += 1;
        }
        is_few
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
        self.own_part().saturating_sub(self.held.get(&server).copied().unwrap_or(0))
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
        self.held.values().map(|held| own.saturating_sub(*held)).sum()
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
            *held = held.saturating_sub(1);
            if *held == 0 && !self.configured.contains(&server) {
                // Its reserved part is free for the others again.
                self.held.remove(&server);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(bound: usize, servers: u32) -> Ports {
        let mut ports = Ports::default();
        ports.configure(bound, 0..servers);
        ports
    }

    /// Ports that a server can open one after the other: of its own, and pooled.
    fn open(ports: &mut Ports, server: ServerId, now: Instant) -> (usize, usize) {
        let mut opened = (0, 0);
        loop {
            match ports.draw(server, now) {
                Draw::Own => opened.0 += 1,
                Draw::Pooled => opened.1 += 1,
                Draw::Shared => return opened,
            }
        }
    }

    #[test]
    fn fw10_the_last_1024_ports_of_a_server_stay_open_to_draw_from() {
        let now = Instant::now();
        assert_eq!(open(&mut ports(8192, 1), 0, now), (7168, 1024));
        assert_eq!(open(&mut ports(8192, 2), 0, now), (1024, 1024));
        assert_eq!(open(&mut ports(8192, 4), 0, now), (0, 1024));
        assert_eq!(open(&mut ports(100, 1), 0, now), (0, 100));
        assert_eq!(open(&mut ports(0, 1), 0, now), (0, 0));
    }

    #[test]
    fn fw10_a_closed_port_rests_for_thirty_seconds() {
        let start = Instant::now();
        let mut ports = ports(1, 1);
        assert_eq!(ports.draw(0, start), Draw::Pooled);
        ports.closed(0, start);
        let thirty = Duration::from_secs(30);
        assert_eq!(ports.draw(0, start + thirty - Duration::from_millis(1)), Draw::Shared);
        assert_eq!(ports.draw(0, start + thirty), Draw::Pooled);
        ports.failed(0);
        assert_eq!((ports.draw(0, start + REST), ports.total()), (Draw::Pooled, 1));
    }

    #[test]
    fn fw10_the_part_of_a_removed_server_is_free_when_its_ports_have_rested() {
        let start = Instant::now();
        let mut ports = ports(8192, 2);
        ports.draw(1, start);
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
                assert_eq!(ports.draw(0, now), Draw::Own);
                ports.closed(0, now);
            }
            ports.configure(bound, 0..servers);
            assert_eq!(ports.draw(0, now), Draw::Shared, "what rests is more than its part");
            let open = (0..8192).take_while(|open| ports.draw_one_more(0, *open)).count();
            assert_eq!(open, least, "{bound} for {servers}");
            assert_eq!(ports.total(), 3000 + least);
        }
        assert!(!ports(0, 1).draw_one_more(0, 0), "there is none");
    }

    #[test]
    fn l16_no_server_can_take_the_part_of_another_and_the_bound_holds() {
        let now = Instant::now();
        for servers in [2, 3, 5, 20, 300] {
            let mut ports = ports(8192, servers);
            let own = 8192 / (2 * servers as usize);
            let opened: Vec<usize> = (0..servers)
                .map(|server| open(&mut ports, server, now))
                .map(|(own, pooled)| own + pooled)
                .collect();
            assert!(opened.iter().all(|opened| *opened >= own), "{servers}: {opened:?}");
            assert!(opened.iter().all(|opened| *opened <= own.max(POOL)), "{servers}: {opened:?}");
            assert!(ports.total() <= 8192, "{servers}: {}", ports.total());
        }
    }
}
