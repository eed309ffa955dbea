//! The rules of the election, without a clock or a client.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::LeaseSpec;

use super::DURATION;

/// The record as it was last read, and since when it is unchanged, by this process's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Who holds it; empty: it is free.
    pub holder: String,
    /// For how long after its last change.
    pub duration: Duration,
    /// How often it changed hands.
    pub transitions: i32,
    /// The resourceVersion that was read.
    pub version: String,
    /// When it was first seen to be as it is.
    pub since: Instant,
    spec: LeaseSpec,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// There is no Lease: create it.
    Create,
    /// It is free: take it, if it still has this version.
    Take {
        /// The version that was read.
        version: String,
        /// `leaseTransitions` to write.
        transitions: i32,
    },
    /// The lease is ours: renew it.
    Renew {
        /// The version that was read.
        version: String,
        /// `leaseTransitions` to write.
        transitions: i32,
    },
    /// Another process holds the lease: try again later.
    Wait,
}

/// The record that was read now. Only a changed record restarts the time; a changed label does not.
pub(super) fn observe(
    before: Option<Seen>,
    spec: LeaseSpec,
    version: String,
    now: Instant,
) -> Seen {
    let since = match before {
        Some(before) if before.spec == spec => before.since,
        Some(_) | None => now,
    };
    // Another program may have written it: a duration that makes no sense is read as ours.
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Seen {
        holder: spec.holder_identity.clone().unwrap_or_default(),
        duration: seconds.map_or(DURATION, Duration::from_secs),
        transitions: spec.lease_transitions.unwrap_or_default(),
        version,
        since,
        spec,
    }
}

/// The next step of the election, from the lease that was read.
pub fn next(seen: Option<&Seen>, me: &str, now: Instant) -> Move {
    let Some(seen) = seen else { return Move::Create };
    let version = seen.version.clone();
    if seen.holder == me {
        return Move::Renew { version, transitions: seen.transitions };
    }
    let is_over = now.saturating_duration_since(seen.since) >= seen.duration;
    match seen.holder.is_empty() || is_over {
        true => Move::Take { version, transitions: seen.transitions.saturating_add(1) },
        false => Move::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use k8s_openapi::jiff::Timestamp;

    fn record(holder: &str, renewed_s: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed_s).unwrap())),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn o9_a_lease_is_taken_only_when_it_is_free_or_was_not_seen_to_change() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let take = || Move::Take { version: "7".into(), transitions: 4 };
        let renew = Move::Renew { version: "7".into(), transitions: 3 };
        for (what, holder, asked_at, expected) in [
            ("free", "", 0, take()),
            ("ours", "me", 0, renew.clone()),
            ("ours, and old: no other took it", "me", 60, renew),
            ("another's", "other", 0, Move::Wait),
            ("another's, nearly over", "other", 14, Move::Wait),
            ("another's, over", "other", 15, take()),
        ] {
            let seen = observe(None, record(holder, 0), "7".into(), begin);
            assert_eq!(next(Some(&seen), "me", at(asked_at)), expected, "{what}");
        }
        assert_eq!(next(None, "me", begin), Move::Create);
    }

    #[test]
    fn o9_time_counts_from_the_last_change_seen_here_and_not_by_the_record() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        // Written by a clock that is an hour behind, or ahead: no matter.
        let old = observe(None, record("other", -3_600), "1".into(), at(0));
        assert_eq!(next(Some(&old), "me", at(14)), Move::Wait);

        let touched = observe(Some(old), record("other", -3_600), "2".into(), at(10));
        assert_eq!((touched.since, touched.version.as_str()), (at(0), "2"));

        let renewed = observe(Some(touched), record("other", -3_590), "3".into(), at(12));
        assert_eq!(next(Some(&renewed), "me", at(26)), Move::Wait);
        assert_ne!(next(Some(&renewed), "me", at(27)), Move::Wait);
    }

    #[test]
    fn a_nonsensical_duration_is_not_believed() {
        let mut spec = record("other", 0);
        spec.lease_duration_seconds = Some(-5);
        let seen = observe(None, spec, "1".into(), Instant::now());
        assert_eq!(seen.duration, DURATION);
    }
}
