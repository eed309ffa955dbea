//! Sessions of TLS: each holds memory for as long as it is open. That is no backlog, so it does not decide who is read
//! (WR44); all of them share a part of the buffers, so that the rest is left for what is read and written.

use std::net::IpAddr;
use std::rc::Rc;

use super::order::Among;
use super::{ConnectionTable, Limit, Permit};

/// The part of the buffers that all sessions may hold.
pub(in super::super) const fn most(bound: usize) -> usize {
    bound / 4 * 3
}

impl ConnectionTable {
    /// Whether a session of this many octets fits beside the others.
    pub(super) fn has_room_for_session(&self, octets: usize) -> bool {
        self.sessions.get() + octets <= most(self.limits.borrow().tcp_buffer_bytes)
    }

    /// A place for one more connection, whose session holds this many octets. Where sessions hold too much, as many of them
    /// close for it as hold what it needs; `None` if too few may.
    pub(in super::super) fn admit_session(
        self: &Rc<Self>,
        address: IpAddr,
        octets: usize,
    ) -> Option<Permit> {
        // One that closes may hold less than the new one needs.
        while !self.has_room_for_session(octets) {
            let (number, reason) = self.choose(address, Limit::Sessions)?;
            self.evict(number, reason);
        }
        let permit = self.admit(address)?;
        permit.entry.session.set(octets);
        self.enlist(permit.number, &permit.entry, Among::Sessions);
        self.sessions.set(self.sessions.get() + octets);
        self.set_held(self.held.get());
        self.keep_bound();
        Some(permit)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::super::super::Limits;
    use super::super::super::tests::local;
    use super::*;

    const OCTETS: usize = 16 << 10;

    fn client(number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        IpAddr::from([10, 0, high, low])
    }

    #[test]
    fn wr44_larger_sessions_that_replace_smaller_ones_leave_room_for_others() {
        local(async {
            let table = Rc::new(ConnectionTable::new(Limits::default(), Arc::default()));
            let bound = Limits::default().tcp_buffer_bytes;
            let admit = |number, octets| table.admit_session(client(number % 8), octets).unwrap();
            let small = (most(bound) / OCTETS) as u16;
            let small: Vec<Permit> = (0..small).map(|number| admit(number, OCTETS)).collect();
            let large = (most(bound) / OCTETS / 3) as u16;
            let large: Vec<Permit> = (0..large).map(|number| admit(number, 3 * OCTETS)).collect();
            assert!(table.sessions.get() <= most(bound), "{} octets", table.sessions.get());
            let plain = table.admit(client(99)).unwrap();
            plain.hold(100);
            assert!(!plain.must_close() && plain.has_room(1 << 10), "TCP goes without a session");
            drop((small, large, plain));
        });
    }

    #[test]
    fn wr44_a_lower_limit_closes_idle_sessions_and_leaves_room_for_others() {
        local(async {
            let table = Rc::new(ConnectionTable::new(Limits::default(), Arc::default()));
            let bound = Limits::default().tcp_buffer_bytes / 4;
            let admit = |number| table.admit_session(client(number), OCTETS).unwrap();
            let sessions: Vec<Permit> = (0..1_000).map(admit).collect();
            let plain = table.admit(client(1_001)).unwrap();
            let busy = 700;
            sessions[..busy].iter().for_each(|permit| permit.set_quiet_since(None));
            table.set_limits(Limits { tcp_buffer_bytes: bound, ..Limits::default() });
            while table.shrink() {}
            let closed = sessions.iter().filter(|permit| permit.must_close()).count();
            assert_eq!(closed, 1_000 - busy, "all that are idle");
            assert!(sessions[0].is_surplus() && !plain.is_surplus());
            plain.hold(100);
            assert!(!plain.must_close() && plain.has_room(1 << 10));
            drop((sessions, plain));
        });
    }

    #[test]
    fn wr44_sessions_of_many_clients_are_no_backlog_and_have_a_bound() {
        local(async {
            let table = Rc::new(ConnectionTable::new(Limits::default(), Arc::default()));
            let bound = Limits::default().tcp_buffer_bytes;
            let many = (most(bound) / OCTETS) as u16;
            let admit = |number| table.admit_session(client(number), OCTETS);
            let permits: Vec<Permit> = (0..many).map(|number| admit(number).unwrap()).collect();
            permits.iter().for_each(|permit| permit.hold(100));
            assert!(permits.iter().all(|permit| !permit.is_paused()), "each waits for its client");
            assert!(permits[0].has_room(1 << 20));
            tokio::time::sleep(Duration::from_secs(1)).await;
            for permit in &permits[1..] {
                permit.set_waits_since(Some(tokio::time::Instant::now()));
            }
            let plain = table.admit(client(many)).unwrap();
            plain.set_waits_since(permits[0].waits_since());
            let another = admit(many + 1).unwrap();
            let closed = |permit: &&Permit| permit.must_close();
            assert_eq!(permits.iter().filter(closed).count(), 1);
            assert!(permits[0].must_close() && !plain.must_close(), "the longest idle session");
            assert_eq!(table.sessions.get(), usize::from(many) * OCTETS);
            permits.iter().for_each(|permit| permit.set_waits_since(None));
            another.set_waits_since(None);
            assert!(admit(many + 2).is_none(), "no session is idle, and no client has more");
            let more = table.admit(client(1)).unwrap();
            more.set_waits_since(None);
            assert!(admit(many + 2).is_some(), "a client has more than the new one would");
            assert!(permits[1].must_close() && !more.must_close(), "of connections with a session");
            drop(more);
            drop((permits, another, plain));
            assert_eq!((table.sessions.get(), table.held.get()), (0, 0));
        });
    }
}
