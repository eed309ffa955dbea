//! How the servers of a group stand in it: whether they answer at all is known of each server, and whether they answer its
//! queries with errors only is known of each server in each group (FW28).

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use dataplane_core::Name;

use super::Group;
use crate::forward::member_health::MemberHealth;
use crate::forward::plan::{Candidate, Standing};
use crate::forward::server::{Heard, Seen};

impl Group {
    fn health(&self, member: usize) -> MutexGuard<'_, MemberHealth> {
        self.state.health[member].lock().expect("nothing panics while it holds this")
    }

    /// A server of this group as a lookup that begins now may ask it; none while it leads back to us (FW50). A turn of a silent one
    /// is taken by this (FW27).
    pub(in crate::forward) fn candidate(&self, member: usize, now: Instant) -> Option<Candidate> {
        let mut candidate = self.servers[member].candidate(member, now)?;
        let mut health = self.health(member);
        if candidate.standing == Standing::Down {
            health.went_down();
        } else {
            candidate.standing = health.rank(now);
        }
        Some(candidate)
    }

    /// How a server stands in this group, and for how long if it is not healthy.
    pub(in crate::forward) fn standing(
        &self,
        member: usize,
        seen: &Seen,
        now: Instant,
    ) -> (Standing, Option<Duration>) {
        match (seen.down_for, self.health(member).since()) {
            (Some(time), _) => (Standing::Down, Some(time)),
            (None, Some(since)) => (Standing::Avoided, Some(now.saturating_duration_since(since))),
            (None, None) => (Standing::Healthy, None),
        }
    }

    /// For how long a server leads back to us and is not asked: it is this process (A34), or forwards to us (FW50).
    pub(in crate::forward) fn looping_for(
        &self,
        member: usize,
        seen: &Seen,
        now: Instant,
    ) -> Option<Duration> {
        let own = self.own_since(member).map(|since| now.saturating_duration_since(since));
        seen.looping_for.or(own)
    }

    /// A server replied to a query of a client of this group, which was sent then.
    pub(in crate::forward) fn replied(
        &self,
        member: usize,
        is_error: bool,
        sent: Instant,
        now: Instant,
    ) {
        self.change(member, |health| health.replied(is_error, sent, now));
    }

    /// The query of a client of this group for this name, which was sent then, is overdue. Of a server that is down this says
    /// nothing new.
    pub(in crate::forward) fn was_silent(
        &self,
        member: usize,
        name: &Name,
        sent: Instant,
        now: Instant,
    ) {
        if self.servers[member].is_up() {
            let name = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
            self.health(member).was_silent(name, sent, now);
        }
    }

    /// When the server must be probed for this group next.
    pub(in crate::forward) fn failing_probe_at(&self, member: usize) -> Option<Instant> {
        self.health(member).probe_at()
    }

    pub(in crate::forward) fn failing_probe_started(&self, member: usize) {
        self.health(member).probe_started();
    }

    /// What came of that probe.
    pub(in crate::forward) fn failing_probe_ended(
        &self,
        member: usize,
        heard: Heard,
        now: Instant,
    ) {
        self.change(member, |health| health.probe_ended(heard, now));
    }

    fn change(&self, member: usize, change: impl FnOnce(&mut MemberHealth)) {
        let mut health = self.health(member);
        let before = health.since().is_some();
        change(&mut health);
        let is_failing = health.since().is_some();
        drop(health);
        if before == is_failing {
            return;
        }
        let (address, name) = (self.servers[member].address(), &self.name);
        match is_failing {
            true => tracing::warn!("upstream {address} answers with errors only (group {name})"),
            false => tracing::info!("upstream {address} answers again (group {name})"),
        }
    }
}
