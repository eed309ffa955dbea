//! Which connection gives way at a limit (WR44), by shares of clients.

use std::net::IpAddr;

use super::super::super::counters::CloseReason;
use super::order::Among;
use super::{ConnectionTable, Limit};

impl ConnectionTable {
    /// The connection that closes for a new one of this address, and why; `None` if none may.
    ///
    /// At the limit of all:
    /// 1. the one that has waited for its client for longest, idle or in the middle of a message. Those of clients with
    ///    fewer connections than this one would have are left alone, so that a client that opens many cannot close those
    ///    of others;
    /// 2. the newest of the client with the most connections, if that are more than this one would have;
    /// 3. one whose last message is older than any lookup takes: only its client can be holding it open.
    ///
    /// At the limit of a client, 1 and 3 among its own; at that of sessions, all among connections with one.
    pub(super) fn choose(&self, address: IpAddr, limit: Limit) -> Option<(u64, CloseReason)> {
        match limit {
            Limit::PerClient => {
                let own = self.longest_waiting(Among::All, usize::MAX, address);
                own.or_else(|| self.stuck_of(address))
                    .map(|number| (number, CloseReason::EvictedByClient))
            }
            Limit::Total => self.choose_among(Among::All, address),
            Limit::Sessions => self.choose_among(Among::Sessions, address),
        }
    }

    fn choose_among(&self, among: Among, address: IpAddr) -> Option<(u64, CloseReason)> {
        let would_have = self.connections_of(address) + 1;
        let evicted = |number| (number, CloseReason::Evicted);
        let outnumbering = |number| (number, CloseReason::LargestShare);
        self.longest_waiting(among, would_have, address)
            .map(evicted)
            .or_else(|| self.newest_of_the_largest(among, would_have).map(outnumbering))
            .or_else(|| self.stuck(among).map(evicted))
    }
}
