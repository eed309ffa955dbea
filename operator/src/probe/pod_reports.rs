//! What our pods report at `/config`: which configuration they run, what they could not serve, which upstreams are down.
//! No watch brings it, so each pod is asked every 30 s, and about every second while a change is on its way to it. Of more
//! than 50 pods, one look asks 50: those whose reports are oldest, so that the turn of each pod comes.

mod request;
mod size;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};

use crate::decide::config_map;
use crate::decide::plan::RolloutState;
use crate::observe::observed::{PodReport, Reported};
use crate::observe::pods;
use request::Asker;
pub use request::{PORT_NAME as HTTP_PORT_NAME, address as http_address, port as http_port};

/// The role of a pod that tries a configuration.
const CANARY: &str = "canary";
/// Pods that are asked at once.
const SIDE_BY_SIDE: usize = 16;
/// Questions to the pods of one ClusterDNS in one second. A look every 30 s asks this many, so that each of 500 pods is asked
/// within 5 min; while a change is on its way there is a look every 2 s, so that each is asked within 20 s.
const MAX_A_SECOND: usize = 50;
const SECOND: Duration = Duration::from_secs(1);
/// Time between two requests to a pod that reports the expected revision.
const SETTLED: Duration = Duration::from_secs(30);
/// The same for a pod that does not report it yet, or did not answer.
const UNSETTLED: Duration = Duration::from_secs(1);
/// While a canary runs: its answers must be young when it is compared.
const ON_TRIAL: Duration = Duration::from_secs(2);
/// Reports of pods that are gone. Longer than until the turn of each of 5,000 pods comes again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);
/// Reports of pods of all ClusterDNS.
const MAX_KEPT: usize = 5_000;
/// Octets of all of them. A report has some hundred. Besides, the skipped objects of one may have 30 KiB: pods skip the same
/// ones, which are kept once.
const MAX_OCTETS: usize = 32 << 20;

#[derive(Clone, Debug)]
struct Kept {
    reported: Result<Reported, String>,
    at: Instant,
}

/// The last report of each pod, and the client that asks.
#[derive(Debug, Default)]
pub struct PodReports {
    asker: Asker,
    kept: Mutex<HashMap<String, Kept>>,
}

impl PodReports {
    /// The answers of those of these pods that are ready, each asked again if it is time.
    pub async fn read(
        &self,
        pods: &[Pod],
        config_map: Option<&ConfigMap>,
    ) -> BTreeMap<String, PodReport> {
        let state = config_map::state_in(config_map);
        let due: Vec<(String, Option<String>)> = {
            let due = next(pods, &self.lock(), &state, Instant::now());
            due.into_iter().map(|pod| (pods::uid(pod).to_owned(), request::address(pod))).collect()
        };
        let asked = futures::stream::iter(due)
            .map(|(uid, address)| async move { (uid, self.asker.ask(address).await) })
            .buffer_unordered(SIDE_BY_SIDE)
            .collect::<Vec<_>>()
            .await;
        let at = Instant::now();
        let mut kept = self.lock();
        for (uid, reported) in asked {
            keep(&mut kept, uid, reported, at);
        }
        forget(&mut kept, at);
        let answer = |pod: &Pod| {
            let kept = kept.get(pods::uid(pod))?;
            let age = at.saturating_duration_since(kept.at);
            Some((pods::uid(pod).to_owned(), PodReport { reported: kept.reported.clone(), age }))
        };
        pods.iter().filter(|pod| pods::is_ready(pod)).filter_map(answer).collect()
    }

    /// The report of this pod now, also if its last report is young.
    pub async fn read_now(&self, pod: &Pod) -> PodReport {
        let reported = self.asker.ask(request::address(pod)).await;
        keep(&mut self.lock(), pods::uid(pod).to_owned(), reported.clone(), Instant::now());
        PodReport { reported, age: Duration::ZERO }
    }

    /// The document that most of these ready pods run, if nothing else shows it. A canary does not count.
    pub async fn document(
        &self,
        pods: &[Pod],
        reports: &BTreeMap<String, PodReport>,
    ) -> Option<String> {
        let pod = speaker(pods, reports)?;
        self.asker.document(request::address(pod)).await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ready pods that are asked now: the canary, then those that were never asked, then those whose reports are oldest.
fn next<'a>(
    pods: &'a [Pod],
    kept: &HashMap<String, Kept>,
    state: &RolloutState,
    now: Instant,
) -> Vec<&'a Pod> {
    let canary = state.canary_pod.as_ref().map(|pod| pod.uid.as_str());
    let asked_at = |pod: &Pod| kept.get(pods::uid(pod)).map(|kept| kept.at);
    let ready = || pods.iter().filter(|pod| pods::is_ready(pod));
    let is_recent = |at: Instant| now.saturating_duration_since(at) < SECOND;
    let recent = ready().filter(|pod| asked_at(pod).is_some_and(is_recent)).count();
    let mut due: Vec<&Pod> = ready()
        .filter(|pod| is_due(kept.get(pods::uid(pod)), pods::uid(pod), state, now))
        .collect();
    due.sort_by_key(|pod| (Some(pods::uid(pod)) != canary, asked_at(pod), pods::uid(pod)));
    due.truncate(MAX_A_SECOND.saturating_sub(recent));
    due
}

/// Keeps a report. Skipped objects that another pod reports too are shared with it.
fn keep(
    kept: &mut HashMap<String, Kept>,
    uid: String,
    mut reported: Result<Reported, String>,
    at: Instant,
) {
    if let Ok(new) = &mut reported {
        let known = kept.values().filter_map(|kept| kept.reported.as_ref().ok());
        if let Some(same) = known.map(|known| &known.skipped).find(|same| **same == new.skipped) {
            new.skipped = Arc::clone(same);
        }
    }
    kept.insert(uid, Kept { reported, at });
}

/// Drops the reports of pods that are gone, and the oldest where there are too many, or too large ones.
fn forget(kept: &mut HashMap<String, Kept>, now: Instant) {
    kept.retain(|_, kept| now.saturating_duration_since(kept.at) < FORGOTTEN_AFTER);
    let mut ages: Vec<(Instant, String)> =
        kept.iter().map(|(uid, kept)| (kept.at, uid.clone())).collect();
    ages.sort_by(|a, b| b.cmp(a));
    let mut size = size::Size::default();
    for (count, (_, uid)) in ages.into_iter().enumerate() {
        let octets = kept.get(&uid).map_or(0, |kept| size.with(&kept.reported));
        if count >= MAX_KEPT || octets > MAX_OCTETS {
            kept.remove(&uid);
        }
    }
}

/// A ready pod that runs what most of them run.
fn speaker<'a>(pods: &'a [Pod], reports: &BTreeMap<String, PodReport>) -> Option<&'a Pod> {
    let mut by_revision: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pods::is_ready(pod)) {
        let reported = reports.get(pods::uid(pod)).and_then(|it| it.reported.as_ref().ok());
        if let Some(reported) = reported.filter(|it| it.role != CANARY) {
            by_revision.entry(&reported.revision).or_default().push(pod);
        }
    }
    by_revision.into_values().max_by_key(Vec::len)?.first().copied()
}

fn is_due(kept: Option<&Kept>, uid: &str, state: &RolloutState, now: Instant) -> bool {
    let Some(kept) = kept else { return true };
    let is_canary = state.canary_pod.as_ref().is_some_and(|pod| pod.uid == uid);
    let expected = if is_canary { &state.canary } else { &state.stable };
    let is_settled = kept.reported.as_ref().is_ok_and(|reported| reported.revision == *expected);
    let young = match (is_settled, state.canary_pod.is_some()) {
        (false, _) => UNSETTLED,
        (true, true) => ON_TRIAL,
        (true, false) => SETTLED,
    };
    // A reconcile every 30 s must not find an answer that is 29.9 s old.
    now.saturating_duration_since(kept.at) + UNSETTLED / 2 >= young
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, ready: bool) -> Pod {
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid},
            "status": {"conditions": [{"type": "Ready", "status": status}]}}))
        .unwrap()
    }

    fn kept(revision: &str, at: Instant) -> Kept {
        Kept { reported: Ok(Reported { revision: revision.into(), ..Reported::default() }), at }
    }

    fn on_trial() -> RolloutState {
        let canary = Some(crate::decide::plan::CanaryPod {
            name: "p099".into(),
            uid: "p099".into(),
            ..Default::default()
        });
        RolloutState {
            stable: "s".into(),
            canary: "c".into(),
            canary_pod: canary,
            ..RolloutState::default()
        }
    }

    /// Looks at this many pods, so far apart, until each was asked; returns the most questions of one look, and the looks.
    fn looks(count: usize, apart: Duration) -> (usize, usize) {
        let pods: Vec<Pod> = (0..count).map(|n| pod(&format!("p{n:03}"), true)).collect();
        let state = RolloutState { stable: "s".into(), ..RolloutState::default() };
        let begin = Instant::now();
        // All are silent, so that all are due all the time.
        let silent = |at| Kept { reported: Err("no answer".to_owned()), at };
        let mut kept = HashMap::new();
        let (mut most, mut looks) = (0, 0);
        for look in 0..1_000 {
            let now = begin + apart * look;
            let asked = next(&pods, &kept, &state, now);
            most = most.max(asked.len());
            kept.extend(asked.iter().map(|pod| (pods::uid(pod).to_owned(), silent(now))));
            looks += 1;
            if kept.len() == count {
                // And in the same order again.
                let again = next(&pods, &kept, &state, now + Duration::from_secs(2));
                assert_eq!(pods::uid(again[0]), "p000");
                return (most, looks);
            }
        }
        panic!("{} of {count} pods were asked", kept.len());
    }

    #[test]
    fn o14_each_of_many_pods_is_asked_in_its_turn_and_fifty_in_one_second() {
        assert_eq!(looks(3, Duration::from_secs(30)), (3, 1));
        assert_eq!(looks(50, Duration::from_secs(2)), (50, 1));
        assert_eq!(looks(500, Duration::from_secs(2)), (50, 10));
        // Looks that follow each other faster ask no more.
        assert_eq!(looks(500, Duration::from_millis(250)), (50, 37));
    }

    #[test]
    fn the_canary_is_asked_first_and_pods_that_are_not_ready_never() {
        let mut pods: Vec<Pod> = (0..100).map(|n| pod(&format!("p{n:03}"), true)).collect();
        pods.push(pod("p000-not-ready", false));
        let asked = next(&pods, &HashMap::new(), &on_trial(), Instant::now());
        let asked: Vec<&str> = asked.into_iter().map(pods::uid).collect();
        assert_eq!((asked.len(), &asked[..3]), (50, &["p099", "p000", "p001"][..]));
    }

    #[test]
    fn reports_of_pods_that_are_gone_are_forgotten_and_of_too_many_the_oldest() {
        let now = Instant::now() + FORGOTTEN_AFTER * 2;
        let ago = |n: usize| now - Duration::from_millis(n as u64);
        let all = (0..MAX_KEPT + 2).map(|n| (n.to_string(), kept("s", ago(n))));
        let mut all: HashMap<String, Kept> = all.collect();
        all.insert("gone".to_owned(), kept("s", now - FORGOTTEN_AFTER));
        forget(&mut all, now);
        assert_eq!(all.len(), MAX_KEPT);
        assert!(all.contains_key("0") && !all.contains_key(&MAX_KEPT.to_string()));
    }

    /// A report with twenty objects, whose reasons say this.
    fn long(why: &str) -> Result<Reported, String> {
        let object = |n: usize| crds::v1alpha1::SkippedObject {
            name: n.to_string(),
            reason: format!("{why} {}", "x".repeat(1_000)),
            ..Default::default()
        };
        Ok(Reported { skipped: (0..20).map(object).collect(), ..Reported::default() })
    }

    #[test]
    fn reports_are_bounded_by_octets_and_what_many_pods_skip_is_kept_once() {
        let now = Instant::now() + FORGOTTEN_AFTER;
        let ago = |n: usize| now - Duration::from_millis(n as u64);
        let mut same = HashMap::new();
        for n in 0..MAX_KEPT {
            keep(&mut same, n.to_string(), long("same"), ago(n));
        }
        forget(&mut same, now);
        assert_eq!(same.len(), MAX_KEPT, "100 MB, if each had its own");

        // One after the other, each with a list of its own.
        let own = |n: usize| Kept { reported: long(&n.to_string()), at: ago(n) };
        let mut each: HashMap<String, Kept> = (0..2_000).map(|n| (n.to_string(), own(n))).collect();
        forget(&mut each, now);
        let mut size = size::Size::default();
        let octets = each.values().map(|kept| size.with(&kept.reported)).last().unwrap_or(0);
        assert!((MAX_OCTETS * 9 / 10..=MAX_OCTETS).contains(&octets), "{octets}");
        assert!(each.contains_key("0") && !each.contains_key("1999"), "the oldest went");
    }

    #[test]
    fn o4_what_most_pods_run_is_what_they_are_asked_for() {
        let pods: Vec<Pod> = ["a", "b", "c", "d"].map(|uid| pod(uid, uid != "d")).into();
        let said = |revision: &str, role: &str| PodReport {
            reported: Ok(Reported {
                revision: revision.into(),
                role: role.into(),
                ..Reported::default()
            }),
            age: Duration::ZERO,
        };
        let chosen = |all: [(&str, PodReport); 4]| {
            let reports = all.into_iter().map(|(uid, said)| (uid.to_owned(), said)).collect();
            speaker(&pods, &reports).map(|pod| pods::uid(pod).to_owned())
        };
        let [a, b, c, d] = ["a", "b", "c", "d"];
        let (new, old) = (|| said("new", "canary"), || said("old", "stable"));
        assert_eq!(chosen([(a, new()), (b, old()), (c, new()), (d, old())]).as_deref(), Some("b"));
        let mixed = [(a, said("x", "stable")), (b, old()), (c, old()), (d, said("x", "stable"))];
        assert_eq!(chosen(mixed).as_deref(), Some("b"), "one that is not ready does not count");
        assert_eq!(chosen([(a, new()), (b, new()), (c, new()), (d, old())]), None);
    }

    #[test]
    fn pods_are_asked_more_often_while_something_is_on_its_way() {
        let now = Instant::now() + Duration::from_secs(100);
        let ago = |seconds| now - Duration::from_secs(seconds);
        let stable = RolloutState { stable: "s".into(), ..RolloutState::default() };
        for (what, kept, uid, state, expected) in [
            ("never asked", None, "p", &stable, true),
            ("settled", Some(kept("s", ago(20))), "p", &stable, false),
            ("settled, long ago", Some(kept("s", ago(30))), "p", &stable, true),
            ("on its way", Some(kept("old", ago(1))), "p", &stable, true),
            ("asked just now", Some(kept("old", now)), "p", &stable, false),
            ("beside a canary", Some(kept("s", ago(2))), "p", &on_trial(), true),
            ("the canary, not there yet", Some(kept("s", ago(1))), "p099", &on_trial(), true),
            ("the canary", Some(kept("c", ago(1))), "p099", &on_trial(), false),
        ] {
            assert_eq!(is_due(kept.as_ref(), uid, state, now), expected, "{what}");
        }
    }
}
