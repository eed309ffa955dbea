//! Which of the ConfigMap's documents this pod runs: `stable.json`, or `canary.json` where the
//! operator chose this pod to try it. Pure; time is the pod's monotonic clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(super) use crds::between_planes::{CANARY, CANARY_GRACE, ROLLOUT, STABLE};
use crds::between_planes::{CanaryPod, Rollout};

/// The texts of a ConfigMap, by key.
pub(super) type Texts = BTreeMap<String, String>;

/// What the operator names when it chooses this process to try a configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Own {
    /// `metadata.uid` of our pod, where we know it.
    pub(super) pod_uid: Option<String>,
    /// Our own id, the `instanceId` at `/config`.
    pub(super) process: String,
}

impl Own {
    /// Whether this process is the one that was named. A process that was started again in the same pod is another one:
    /// it may read an old `rollout.json` first, and the operator may have named another pod since (O7: one pod at most).
    fn is_named(&self, canary: &CanaryPod) -> bool {
        let is_our_pod = !canary.uid.is_empty() && self.pod_uid.as_ref() == Some(&canary.uid);
        is_our_pod && (canary.process.is_empty() || canary.process == self.process)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Key of the ConfigMap with the document to run.
    pub(super) key: &'static str,
    /// Its name at `/config`, such as `canary`.
    pub(super) role: &'static str,
    /// When to choose again although nothing changed.
    pub(super) until: Option<Instant>,
}

/// Remembers since when this pod runs a canary.
#[derive(Debug)]
pub(super) struct Canary {
    /// How long the pod keeps its role, see [`CANARY_GRACE`].
    grace: Duration,
    since: Option<(Rollout, Instant)>,
}

impl Canary {
    /// No canary runs yet; `grace` is that of [`CANARY_GRACE`] except for tests.
    pub(super) fn with_grace(grace: Duration) -> Canary {
        Canary { grace, since: None }
    }

    /// Chooses for this process.
    pub(super) fn choose(&mut self, texts: &Texts, own: &Own, now: Instant) -> Choice {
        let stable = Choice { key: STABLE, role: "stable", until: None };
        let rollout: Rollout =
            texts.get(ROLLOUT).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let is_chosen = rollout.canary_pod.as_ref().is_some_and(|canary| own.is_named(canary));
        if !is_chosen || !texts.contains_key(CANARY) {
            self.since = None;
            return stable;
        }
        let length =
            Duration::from_secs(rollout.observe_seconds.min(u64::from(u32::MAX))) + self.grace;
        let begun = match &self.since {
            Some((known, since)) if *known == rollout => *since,
            Some(_) | None => {
                self.since = Some((rollout, now));
                now
            }
        };
        let until = begun + length;
        if now >= until {
            let role = "stable: the canary was neither promoted nor renewed in time";
            return Choice { role, ..stable };
        }
        Choice { key: CANARY, role: "canary", until: Some(until) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(rollout: &str) -> Texts {
        let text = |key: &str, text: &str| (key.to_owned(), text.to_owned());
        [text(STABLE, "{}"), text(CANARY, "{}"), text(ROLLOUT, rollout)].into()
    }

    const ROLLING: &str = r#"{"stable":"a","canary":"b","canaryPod":{"name":"dns-1","uid":"u1"},
        "startedAt":"2026-01-01T00:00:00Z","observeSeconds":60}"#;

    fn own(pod_uid: &str) -> Own {
        Own { pod_uid: Some(pod_uid.to_owned()), process: "p1".to_owned() }
    }

    /// Key of the document that a new process runs.
    fn key(texts: &Texts, own: &Own) -> &'static str {
        Canary::with_grace(CANARY_GRACE).choose(texts, own, Instant::now()).key
    }

    #[test]
    fn only_the_chosen_pod_runs_the_canary() {
        assert_eq!(key(&texts(ROLLING), &own("u1")), CANARY);
        assert_eq!(key(&texts(ROLLING), &own("u2")), STABLE);
        assert_eq!(key(&texts(ROLLING), &Own::default()), STABLE);
        for rollout in ["{}", "", r#"{"canaryPod":{"uid":""}}"#] {
            assert_eq!(key(&texts(rollout), &own("")), STABLE);
        }
        let mut without = texts(ROLLING);
        without.remove(CANARY);
        assert_eq!(key(&without, &own("u1")), STABLE);
    }

    #[test]
    fn o7_a_process_that_was_started_again_does_not_run_the_canary() {
        let naming = |process: &str| {
            texts(
                &ROLLING.replace(r#""uid":"u1""#, &format!(r#""uid":"u1","process":"{process}""#)),
            )
        };
        assert_eq!(key(&naming("p1"), &own("u1")), CANARY);
        assert_eq!(key(&naming("p0"), &own("u1")), STABLE);
        assert_eq!(key(&naming(""), &own("u1")), CANARY);
    }

    #[test]
    fn a_canary_that_is_neither_promoted_nor_renewed_returns_to_stable() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut canary = Canary::with_grace(CANARY_GRACE);
        let chosen = canary.choose(&texts(ROLLING), &own("u1"), start);
        assert_eq!(chosen.until, Some(at(360)));
        assert_eq!(canary.choose(&texts(ROLLING), &own("u1"), at(359)).key, CANARY);
        assert_eq!(canary.choose(&texts(ROLLING), &own("u1"), at(360)).key, STABLE);
        assert_eq!(canary.choose(&texts(ROLLING), &own("u1"), at(9999)).key, STABLE);
        let renewed = texts(&ROLLING.replace("2026", "2027"));
        assert_eq!(canary.choose(&renewed, &own("u1"), at(400)).key, CANARY);
        assert_eq!(canary.choose(&renewed, &own("u1"), at(400 + 359)).key, CANARY);
        assert_eq!(canary.choose(&renewed, &own("u1"), at(400 + 360)).key, STABLE);
    }
}
