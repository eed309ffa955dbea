//! When a kept reply may be served, and when its upstream is asked again (docs/dns.md §6.5). Pure: the time is an argument,
//! in milliseconds of any clock that only goes forward (CA6).

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use crate::relay::Relayed;

/// An answer with this TTL or more is worth asking for again before it expires (CA30), in seconds.
const PREFETCH_MIN_TTL_S: u32 = 10;
/// Hits that an entry needs before it is prefetched (CA30).
const PREFETCH_MIN_HITS: u8 = 2;
/// It is asked for again when a tenth of its time is left (CA30).
const PREFETCH_PART: u64 = 10;
/// How long a client waits for an upstream when there is an expired answer for it (CA40, RFC 8767 §5).
pub const CLIENT_TIMER_MS: u64 = 1_800;
/// Least time between two questions to upstreams for one expired answer (CA41).
const REFRESH_EVERY_MS: u64 = 5_000;
/// For how long failures in a row are remembered (CA20, RFC 9520 §3.2).
const FAILURE_MS: [u64; 3] = [1_000, 2_000, 5_000];
/// Longest message that is kept, in octets (CA4).
const MAX_KEPT_OCTETS: usize = 16 << 10;

/// The settings for kept replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRules {
    /// For how many seconds an expired answer may still be served (CA40); 0 is never.
    pub stale_s: u32,
    /// Whether popular answers are asked for again before they expire (CA30).
    pub prefetch: bool,
}

/// The state of one key and route besides the reply itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Age {
    /// When the reply came, in milliseconds of the process clock.
    kept_at_ms: u64,
    /// For how many seconds it is fresh; 0 when there is no reply.
    lifetime_s: u32,
    /// When the latest lookup began that asks for it again; 0 before the first.
    refreshed_at_ms: u64,
    /// The state of that lookup.
    refresh: Refresh,
    /// Its failure is remembered until this time.
    failed_until_ms: u64,
    /// Failed refreshes in a row; decides 1, 2 or 5 s of `FAILURE_MS`.
    failures: u8,
    /// Whether no server replied the last time; otherwise servers replied only with errors.
    was_silent: bool,
    /// How often it was served; it counts only as far as decisions need.
    hits: u8,
    /// How often servers of its group had come back when this was last looked at (FW29).
    recoveries: u64,
}

/// The lookup that asks again for a reply that is kept. A good reply to it makes another [`Age`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Refresh {
    /// None has begun, or none asked an upstream.
    #[default]
    None,
    /// A lookup for it is in progress.
    Running,
    /// It ended without a good reply.
    Failed,
}

/// What happens to a query whose key was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheAction {
    /// Serve the entry; it has not expired.
    Fresh {
        /// Whole seconds since it came.
        age_s: u32,
    },
    /// Serve it, and ask for it again (CA30).
    FreshAndPrefetch {
        /// Whole seconds since it came.
        age_s: u32,
    },
    /// It has expired and may still be served (CA40).
    Stale {
        /// Ask an upstream first, or wait for the lookup that is in progress; otherwise serve it at once (CA41).
        may_refresh: bool,
    },
    /// The lookup failed a moment ago (CA20): N19.
    Failed {
        /// Whether no server replied; otherwise servers replied only with errors.
        was_silent: bool,
    },
    /// Nothing usable: an upstream is asked, and the client waits.
    Miss,
}

/// Decides what may be served from one entry at `now_ms` (docs/dns.md §6.5).
pub fn cache_action(age: &Age, now_ms: u64, rules: CacheRules) -> CacheAction {
    let held_ms = now_ms.saturating_sub(age.kept_at_ms);
    let lifetime_ms = u64::from(age.lifetime_s) * 1_000;
    let has_failed = age.is_failing(now_ms);
    if held_ms < lifetime_ms {
        let age_s = u32::try_from(held_ms / 1_000).unwrap_or(u32::MAX);
        let is_popular = age.lifetime_s >= PREFETCH_MIN_TTL_S && age.hits >= PREFETCH_MIN_HITS;
        let is_ending = (lifetime_ms - held_ms) * PREFETCH_PART <= lifetime_ms;
        let was_tried = age.refresh != Refresh::None;
        return match rules.prefetch && is_popular && is_ending && !was_tried {
            true => CacheAction::FreshAndPrefetch { age_s },
            false => CacheAction::Fresh { age_s },
        };
    }
    if age.lifetime_s > 0 && held_ms - lifetime_ms < u64::from(rules.stale_s) * 1_000 {
        return CacheAction::Stale { may_refresh: !has_failed && age.may_refresh(now_ms) };
    }
    match has_failed {
        true => CacheAction::Failed { was_silent: age.was_silent },
        false => CacheAction::Miss,
    }
}

/// For how many seconds a good reply is kept; `None` is not at all: TTL 0, a denial without an SOA, or a long message
/// (CA2-CA4).
pub fn lifetime_s(relayed: &Relayed) -> Option<u32> {
    let fits = relayed.octets() <= MAX_KEPT_OCTETS;
    Some(relayed.lifetime_s()).filter(|lifetime_s| *lifetime_s > 0 && fits)
}

impl Age {
    /// For a reply that came now. Earlier failures are forgotten (CA20).
    pub fn of_reply(lifetime_s: u32, now_ms: u64) -> Age {
        Age { kept_at_ms: now_ms, lifetime_s, ..Age::default() }
    }

    /// Notes that it was asked for.
    pub fn note_hit(&mut self) {
        self.hits = self.hits.saturating_add(1);
    }

    /// Notes that a lookup that asks for it again has begun. The caller says so, because a limit may prevent it.
    pub fn note_refresh(&mut self, now_ms: u64) {
        (self.refreshed_at_ms, self.refresh) = (now_ms, Refresh::Running);
    }

    /// Notes that this lookup ended before any upstream was asked: the next query may begin another.
    pub fn note_no_refresh(&mut self) {
        self.refresh = Refresh::None;
    }

    /// Whether its latest lookup failed, and that is still remembered (CA20).
    pub fn is_failing(&self, now_ms: u64) -> bool {
        now_ms < self.failed_until_ms
    }

    /// Whether a client waits for an upstream: it joins the lookup in progress while that is younger than what clients
    /// wait, and begins one where none was tried for 5 s.
    fn may_refresh(&self, now_ms: u64) -> bool {
        let since_ms = now_ms.saturating_sub(self.refreshed_at_ms);
        match self.refresh {
            Refresh::None => true,
            Refresh::Running => !(CLIENT_TIMER_MS..REFRESH_EVERY_MS).contains(&since_ms),
            Refresh::Failed => since_ms >= REFRESH_EVERY_MS,
        }
    }

    /// Notes that a lookup failed, because no server replied or because servers replied only with errors: for 1 s, then
    /// 2 s, then 5 s no upstream is asked (CA20). The reply stays.
    pub fn note_failure(&mut self, now_ms: u64, was_silent: bool) {
        if self.refresh == Refresh::Running {
            self.refresh = Refresh::Failed;
        }
        self.was_silent = was_silent;
        let place = usize::from(self.failures).min(FAILURE_MS.len() - 1);
        self.failed_until_ms = now_ms + FAILURE_MS[place];
        self.failures = self.failures.saturating_add(1);
    }

    /// Notes that a lookup brought a part of the answer only. A reply stays, and is asked for again as after a failure. It is
    /// none: servers replied, and a client that finds no older reply gets the part. So a remembered failure is over.
    pub fn note_part(&mut self) {
        if self.refresh == Refresh::Running {
            self.refresh = Refresh::Failed;
        }
        (self.failures, self.failed_until_ms) = (0, 0);
    }

    /// Takes note of how often servers of its group have come back after they were down. When that has changed, failures
    /// are forgotten, and when an upstream was asked last (FW29).
    pub fn note_recoveries(&mut self, recoveries: u64) {
        if recoveries != self.recoveries {
            (self.failures, self.failed_until_ms, self.refresh) = (0, 0, Refresh::None);
            self.recoveries = recoveries;
        }
    }

    /// Whether its reply is fresh.
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.kept_at_ms) < u64::from(self.lifetime_s) * 1_000
    }

    /// Whole seconds since the reply came, and for how many seconds it is fresh.
    pub fn seconds(&self, now_ms: u64) -> (u64, u32) {
        (now_ms.saturating_sub(self.kept_at_ms) / 1_000, self.lifetime_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: CacheRules = CacheRules { stale_s: 3_600, prefetch: true };

    /// A reply with this lifetime that arrived at 1,000,000 ms and was served this many times.
    fn age(lifetime_s: u32, hits: u8) -> Age {
        Age { hits, ..Age::of_reply(lifetime_s, 1_000_000) }
    }

    #[test]
    fn ca2_ca30_ca40_what_is_served_depends_on_its_age() {
        for (lifetime_s, hits, after_ms, expected) in [
            (600, 0, 0, CacheAction::Fresh { age_s: 0 }),
            (600, 0, 10_500, CacheAction::Fresh { age_s: 10 }),
            (600, 9, 539_999, CacheAction::Fresh { age_s: 539 }),
            (600, 1, 545_000, CacheAction::Fresh { age_s: 545 }),
            (600, 2, 540_000, CacheAction::FreshAndPrefetch { age_s: 540 }),
            (600, 2, 599_999, CacheAction::FreshAndPrefetch { age_s: 599 }),
            (9, 9, 8_999, CacheAction::Fresh { age_s: 8 }),
            (10, 2, 9_000, CacheAction::FreshAndPrefetch { age_s: 9 }),
            (600, 9, 600_000, CacheAction::Stale { may_refresh: true }),
            (600, 9, 4_199_999, CacheAction::Stale { may_refresh: true }),
            (600, 9, 4_200_000, CacheAction::Miss),
            (1, 0, 999, CacheAction::Fresh { age_s: 0 }),
            (1, 0, 1_000, CacheAction::Stale { may_refresh: true }),
        ] {
            let decision = cache_action(&age(lifetime_s, hits), 1_000_000 + after_ms, RULES);
            assert_eq!(decision, expected, "{lifetime_s} s, {hits} hits, after {after_ms} ms");
        }
        let off = CacheRules { stale_s: 0, prefetch: false };
        assert_eq!(cache_action(&age(600, 9), 1_599_999, off), CacheAction::Fresh { age_s: 599 });
        assert_eq!(cache_action(&age(600, 9), 1_600_000, off), CacheAction::Miss);
        assert_eq!(
            cache_action(&age(600, 0), 0, RULES),
            CacheAction::Fresh { age_s: 0 },
            "never ahead"
        );
    }

    #[test]
    fn ca30_an_answer_is_asked_for_again_once() {
        let mut age = age(600, 2);
        let is_prefetch = |age: &Age, now_ms| {
            matches!(cache_action(age, now_ms, RULES), CacheAction::FreshAndPrefetch { .. })
        };
        assert!(
            is_prefetch(&age, 1_550_000) && is_prefetch(&age, 1_550_001),
            "no lookup has begun"
        );
        age.note_refresh(1_550_001);
        age.note_no_refresh();
        assert!(is_prefetch(&age, 1_550_002), "the lookup found no place");
        age.note_refresh(1_550_002);
        for now_ms in [1_550_002, 1_560_000, 1_599_999] {
            assert!(!is_prefetch(&age, now_ms), "{now_ms}");
        }
        age.note_failure(1_554_000, true);
        assert!(!is_prefetch(&age, 1_599_999), "its failure leaves the entry alone");
        assert_eq!(cache_action(&age, 1_600_000, RULES), CacheAction::Stale { may_refresh: true });
    }

    #[test]
    fn ca40_who_asks_while_a_lookup_is_young_waits_for_it() {
        for (began_ms, asked_ms, waits) in [
            (1_700_000, 1_700_001, true),
            (1_700_000, 1_701_799, true),
            (1_700_000, 1_701_800, false),
            (1_700_000, 1_704_999, false),
            (1_700_000, 1_705_000, true),
            // A prefetch is in progress when the answer expires.
            (1_599_500, 1_600_000, true),
            (1_599_500, 1_601_299, true),
            (1_599_500, 1_601_300, false),
        ] {
            let mut age = age(600, 0);
            age.note_refresh(began_ms);
            let expected = CacheAction::Stale { may_refresh: waits };
            assert_eq!(cache_action(&age, asked_ms, RULES), expected, "{began_ms} {asked_ms}");
        }
    }

    #[test]
    fn ca41_an_expired_answer_is_asked_for_at_most_every_five_seconds() {
        let mut age = age(600, 0);
        age.note_refresh(1_700_000);
        age.note_failure(1_700_001, false);
        for now_ms in [1_700_001, 1_701_001, 1_704_999] {
            let expected = CacheAction::Stale { may_refresh: false };
            assert_eq!(cache_action(&age, now_ms, RULES), expected, "{now_ms}");
        }
        assert_eq!(cache_action(&age, 1_705_000, RULES), CacheAction::Stale { may_refresh: true });
        age.note_refresh(1_705_000);
        age.note_failure(1_705_000, true);
        age.note_recoveries(1);
        assert_eq!(
            cache_action(&age, 1_705_001, RULES),
            CacheAction::Stale { may_refresh: true },
            "FW29"
        );
    }

    #[test]
    fn ca20_failures_are_remembered_for_one_two_and_five_seconds() {
        let mut age = Age::default();
        let mut now_ms = 7;
        for kept_ms in [1_000, 2_000, 5_000, 5_000] {
            assert_eq!(cache_action(&age, now_ms, RULES), CacheAction::Miss);
            age.note_failure(now_ms, true);
            assert_eq!(
                cache_action(&age, now_ms + kept_ms - 1, RULES),
                CacheAction::Failed { was_silent: true }
            );
            now_ms += kept_ms;
        }
        age.note_failure(now_ms, true);
        age.note_recoveries(1);
        assert_eq!(cache_action(&age, now_ms, RULES), CacheAction::Miss);
        age.note_failure(now_ms, true);
        assert_eq!(
            cache_action(&age, now_ms + 1_000, RULES),
            CacheAction::Miss,
            "counted from one again"
        );
    }

    #[test]
    fn ca20_ca40_a_failure_leaves_an_expired_answer_and_a_fresh_one() {
        let mut age = age(600, 0);
        age.note_failure(1_300_000, true);
        assert_eq!(cache_action(&age, 1_300_000, RULES), CacheAction::Fresh { age_s: 300 });
        age.note_failure(1_700_000, true);
        assert_eq!(cache_action(&age, 1_701_999, RULES), CacheAction::Stale { may_refresh: false });
        assert_eq!(cache_action(&age, 1_702_000, RULES), CacheAction::Stale { may_refresh: true });
    }

    #[test]
    fn fw26_ca41_a_part_of_the_answer_replaces_no_reply_and_ends_a_failure() {
        let mut whole = age(600, 0);
        whole.note_refresh(1_700_000);
        whole.note_part();
        for (now_ms, may_refresh) in [(1_700_001, false), (1_704_999, false), (1_705_000, true)] {
            let expected = CacheAction::Stale { may_refresh };
            assert_eq!(cache_action(&whole, now_ms, RULES), expected, "{now_ms}");
        }
        let mut failed = Age::default();
        failed.note_failure(1_700_000, true);
        failed.note_part();
        assert_eq!(cache_action(&failed, 1_700_500, RULES), CacheAction::Miss);
    }

    #[test]
    fn fw26_a_part_is_no_failure_beside_a_reply_that_may_not_be_served() {
        let off = CacheRules { stale_s: 0, ..RULES };
        // A lookup of a reply that is gone, and a prefetch of one that expires right after it.
        for (refreshed_ms, next_ms) in [(None, 1_700_001), (Some(1_599_990), 1_600_000)] {
            let mut gone = age(600, 0);
            if let Some(refreshed_ms) = refreshed_ms {
                gone.note_refresh(refreshed_ms);
            }
            gone.note_part();
            assert_eq!(cache_action(&gone, next_ms, off), CacheAction::Miss, "{next_ms}");
        }
        let mut beyond = age(600, 0);
        beyond.note_part();
        assert_eq!(cache_action(&beyond, 5_200_000, RULES), CacheAction::Miss);
    }
}
