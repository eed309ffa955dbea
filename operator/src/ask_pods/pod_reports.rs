//! What our pods report at `/config`: which configuration they run, what they could not serve, which upstreams are down.
//! No watch brings it, so each pod is asked every 30 s, and about every second while a change is on its way to it. Of more
//! than 50 pods, one look asks 50: those whose reports are oldest, so that the turn of each pod comes.

mod page;
mod request;
mod size;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};

use crate::decide::config_map;
use crate::decide::plan::RolloutState;
use crate::observe::observed::{PodReport, Reported};
use crate::observe::pods;
use request::{Asker, Whose};
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
/// From the first question without a reply to the last one: after that, what the pod said before is no longer taken for true. A
/// moment without a reply would end problems that last, and begin them again. Also how old the report of a pod that is not
/// ready may become.
const SILENT_AFTER: Duration = Duration::from_secs(300);
/// Reports of pods that are gone. Longer than until the turn of each of 5,000 pods comes again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);
/// Reports of pods of all ClusterDNS.
const MAX_KEPT: usize = 5_000;
/// Octets of all of them. A report has some hundred, and up to 128 KiB where many upstreams are down. Besides, the skipped
/// objects of one may have 30 KiB: pods skip the same ones, which are kept once. Where there is no room, the largest reports
/// go: who answers in the name of our pods keeps no other report out.
const MAX_OCTETS: usize = 32 << 20;
/// What is kept instead.
const NO_ROOM: &str = "its report is larger than those of other pods, and all together are too large: see its /config";

#[derive(Clone, Debug)]
struct Kept {
    reported: Result<Reported, String>,
    at: Instant,
    /// What it said last, where it has not been silent for long.
    before: Option<Reported>,
    /// The first question without a reply since its last one.
    silent_since: Option<Instant>,
    /// How often its container was restarted: another process may say something else.
    restarts: u32,
}

impl Kept {
    fn is_silent(&self) -> bool {
        let silent = self.silent_since.map(|since| self.at.saturating_duration_since(since));
        silent.is_some_and(|silent| silent >= SILENT_AFTER)
    }

    fn report(&self, now: Instant) -> PodReport {
        PodReport {
            reported: self.reported.clone(),
            age: now.saturating_duration_since(self.at),
            before: self.before.clone(),
            is_silent: self.is_silent(),
        }
    }
}

/// The last report of each pod, and the client that asks.
#[derive(Debug, Default)]
pub struct PodReports {
    asker: Asker,
    kept: Mutex<HashMap<String, Kept>>,
}

impl PodReports {
    /// The answers of those of these pods that are ready, each asked again if it is time. `makers`: see [`pods::makers`].
    pub async fn read(
        &self,
        pods: &[Pod],
        makers: &BTreeSet<String>,
        config_map: Option<&ConfigMap>,
    ) -> BTreeMap<String, PodReport> {
        let state = config_map::state_in(config_map);
        let due: Vec<(String, u32, Option<String>, Whose)> = {
            let (mut kept, now) = (self.lock(), Instant::now());
            forget_unasked(&mut kept, pods, now);
            let due = next(pods, makers, &kept, &state, now);
            let question = |pod| {
                (
                    pods::uid(pod).to_owned(),
                    pods::restarts(pod),
                    request::address(pod),
                    whose(pod, makers, canary(&state)),
                )
            };
            due.into_iter().map(question).collect()
        };
        let asked = futures::stream::iter(due)
            .map(|(uid, restarts, address, whose)| async move {
                (uid, restarts, self.asker.ask(address, whose).await)
            })
            .buffer_unordered(SIDE_BY_SIDE)
            .collect::<Vec<_>>()
            .await;
        let at = Instant::now();
        let mut kept = self.lock();
        for (uid, restarts, reported) in asked {
            keep(&mut kept, uid, restarts, reported, at);
        }
        forget(&mut kept, at);
        let answer =
            |pod: &Pod| Some((pods::uid(pod).to_owned(), kept.get(pods::uid(pod))?.report(at)));
        pods.iter().filter(|pod| pods::is_ready(pod)).filter_map(answer).collect()
    }

    /// The report of this canary now, also if its last report is young.
    pub async fn read_now(&self, pod: &Pod) -> PodReport {
        let reported = self.asker.ask(request::address(pod), Whose::Ours).await;
        let (uid, at) = (pods::uid(pod).to_owned(), Instant::now());
        keep(&mut self.lock(), uid, pods::restarts(pod), reported, at).report(at)
    }

    /// The document that most of these ready pods run, if nothing else shows it. A canary does not count.
    pub async fn document(
        &self,
        pods: &[Pod],
        makers: &BTreeSet<String>,
        reports: &BTreeMap<String, PodReport>,
    ) -> Option<String> {
        let pod = speaker(pods, reports)?;
        self.asker.document(request::address(pod), whose(pod, makers, None)).await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The uid of the canary.
fn canary(state: &RolloutState) -> Option<&str> {
    state.canary_pod.as_ref().map(|pod| pod.uid.as_str())
}

/// Is it ours, or does it only have our labels?
/// `canary`: its uid.
fn whose(pod: &Pod, makers: &BTreeSet<String>, canary: Option<&str>) -> Whose {
    if Some(pods::uid(pod)) == canary || pods::is_made_by(pod, makers) {
        Whose::Ours
    } else {
        Whose::Others
    }
}

/// The ready pods that are asked now: the canary, then those that our workload made before others with our labels; of these
/// those that were never asked, then those whose reports are oldest.
fn next<'a>(
    pods: &'a [Pod],
    makers: &BTreeSet<String>,
    kept: &HashMap<String, Kept>,
    state: &RolloutState,
    now: Instant,
) -> Vec<&'a Pod> {
    let canary = canary(state);
    let asked_at = |pod: &Pod| kept.get(pods::uid(pod)).map(|kept| kept.at);
    let ready = || pods.iter().filter(|pod| pods::is_ready(pod));
    let is_recent = |at: Instant| now.saturating_duration_since(at) < SECOND;
    let recent = ready().filter(|pod| asked_at(pod).is_some_and(is_recent)).count();
    let mut due: Vec<&Pod> = ready()
        .filter(|pod| is_due(kept.get(pods::uid(pod)), pods::uid(pod), state, now))
        .collect();
    due.sort_by_key(|pod| {
        let is_canary = Some(pods::uid(pod)) == canary;
        (!is_canary, !pods::is_made_by(pod, makers), asked_at(pod), pods::uid(pod))
    });
    due.truncate(MAX_A_SECOND.saturating_sub(recent));
    due
}

/// A pod that is not ready is not asked. That is no silence, and its last report says less of it from minute to minute: only a
/// young report is kept for the time after. A ready pod keeps its own, also where its turn comes late.
fn forget_unasked(kept: &mut HashMap<String, Kept>, pods: &[Pod], now: Instant) {
    let is_young = |at: Instant| now.saturating_duration_since(at) < SILENT_AFTER;
    for uid in pods.iter().filter(|pod| !pods::is_ready(pod)).map(pods::uid) {
        let last = kept.get(uid);
        if last.is_some_and(|last| last.reported.is_err() || !is_young(last.at)) {
            kept.remove(uid);
        }
    }
}

/// Keeps a report, and the one before where there is none. Skipped objects that another pod reports too are shared with it.
fn keep(
    kept: &mut HashMap<String, Kept>,
    uid: String,
    restarts: u32,
    mut reported: Result<Reported, String>,
    at: Instant,
) -> &Kept {
    if let Ok(new) = &mut reported {
        let known = kept.values().filter_map(said);
        if let Some(same) = known.map(|known| &known.skipped).find(|same| **same == new.skipped) {
            new.skipped = Arc::clone(same);
        }
    }
    let mut new = Kept { reported, at, before: None, silent_since: None, restarts };
    if new.reported.is_err() {
        let last = kept.remove(&uid).filter(|last| last.restarts == restarts);
        new.silent_since = last.as_ref().and_then(|last| last.silent_since).or(Some(at));
        let is_long = new.is_silent();
        new.before = last.and_then(|last| last.reported.ok().or(last.before)).filter(|_| !is_long);
    }
    kept.entry(uid).insert_entry(new).into_mut()
}

/// What is kept of what a pod said.
fn said(kept: &Kept) -> Option<&Reported> {
    kept.reported.as_ref().ok().or(kept.before.as_ref())
}

/// Drops the reports of pods that are gone, and the oldest where there are too many. Where they are too large, the largest are
/// replaced by the reason, and of equal ones the oldest: such a pod is asked again in its turn.
fn forget(kept: &mut HashMap<String, Kept>, now: Instant) {
    kept.retain(|_, kept| now.saturating_duration_since(kept.at) < FORGOTTEN_AFTER);
    if kept.len() > MAX_KEPT {
        let mut ages: Vec<(Instant, String)> =
            kept.iter().map(|(uid, kept)| (kept.at, uid.clone())).collect();
        ages.sort_by(|a, b| b.cmp(a));
        for (_, uid) in ages.drain(MAX_KEPT..) {
            kept.remove(&uid);
        }
    }
    let mut all = size::Size::default();
    let with = |size: &mut size::Size, kept: &Kept| {
        size.with(said(kept), kept.reported.as_ref().err().map_or(0, String::len))
    };
    if kept.values().map(|kept| with(&mut all, kept)).last().unwrap_or(0) <= MAX_OCTETS {
        return;
    }
    let alone = |kept: &Kept| with(&mut size::Size::default(), kept);
    let mut by_size: Vec<&mut Kept> = kept.values_mut().collect();
    by_size.sort_by_cached_key(|kept| (alone(kept), Reverse(kept.at)));
    let mut size = size::Size::default();
    for kept in by_size {
        if with(&mut size, kept) > MAX_OCTETS {
            (kept.reported, kept.before) = (Err(NO_ROOM.to_owned()), None);
            kept.silent_since.get_or_insert(kept.at);
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
    // One that runs it and has a rejection was given no document for a moment, or another one: that may be over.
    let is_settled = kept
        .reported
        .as_ref()
        .is_ok_and(|reported| reported.revision == *expected && reported.rejection.is_none());
    let young = match (is_settled, state.canary_pod.is_some()) {
        (false, _) => UNSETTLED,
        (true, true) => ON_TRIAL,
        (true, false) => SETTLED,
    };
    // A reconcile every 30 s must not find an answer that is 29.9 s old.
    now.saturating_duration_since(kept.at) + UNSETTLED / 2 >= young
}

#[cfg(test)]
mod tests;
