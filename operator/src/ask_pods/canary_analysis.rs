//! Asks the canary and a stable pod the same questions at the same time, as a client would. Only I/O is here; the
//! questions and the judgement are pure, in the modules below.

pub mod question;
pub mod questions;
mod spec_records;
mod groups;
pub mod progress;
mod next_round;
mod ask;
pub mod reply;
mod upstream_health;
pub mod judge;
mod agreement;
pub mod clients;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crds::{ClusterDNS, Config};
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::decide::plan::{HeldBy, RolloutState};
use crate::decide::{config_map, wants_trial};
use crate::observe::lists::Lists;
use crate::observe::observed::{CheckResult, Comparison, Observed, SampledService};
use crate::observe::{pods, sample};
use ask::ask;
pub(crate) use ask::once;
pub use ask::query;
use judge::Asked;
use next_round::Turns;
use progress::{Progress, Trial, Trials};
use question::{Expects, Question};
use questions::questions;

/// Questions in progress: a name of ours waits 3 s at most where a pod is silent, one that is forwarded 20 s.
const SIDE_BY_SIDE: usize = 32;

/// Rounds of questions in progress, of all ClusterDNS: one round may take 25 s, and those that are not on trial must be
/// reconciled meanwhile. Fewer than the reconciles that run at a time.
const MAX_ROUNDS: usize = 4;

/// The longest round: the next round asks what this one did not reach.
const LONGEST_ROUND: Duration = Duration::from_secs(25);

/// Rounds in a row that may end early, because another client deleted the Service or edited what pods run: then the trial waits
/// with a reason. Without that it would end only by its time, and begin again, without end.
const MAX_ENDED: u32 = 3;

/// Wait before a question about a Service of others that seems worse is asked again: within this time both pods know
/// of a change.
const SETTLES: Duration = Duration::from_secs(2);

/// The versions of Services of others after they were asked for, by namespace and name.
pub type Versions = BTreeMap<(String, String), String>;

/// Permits for rounds of questions, of which only [`MAX_ROUNDS`] run at a time, and how far each trial is.
#[derive(Debug)]
pub struct RoundPermits {
    places: Semaphore,
    trials: Trials,
    turns: Turns,
}

impl Default for RoundPermits {
    fn default() -> RoundPermits {
        RoundPermits {
            places: Semaphore::new(MAX_ROUNDS),
            trials: Trials::default(),
            turns: Turns::default(),
        }
    }
}

impl RoundPermits {
    /// rollout.json says what the round of this reconcile found, so the next one asks what follows. Without this it asks the same:
    /// what was worse would be forgotten, and the trial pass.
    pub fn written(&self, dns: &str) {
        self.trials.written(dns);
    }

    /// For how long this process has watched the trial that is written; none: there is no trial. The time of rollout.json is of the clock
    /// of the operator that began it, which may not be this one.
    pub fn watched(&self, dns: &ClusterDNS, observed: &Observed, now: Instant) -> Option<Duration> {
        let state = config_map::state(observed);
        state.canary_pod.as_ref()?;
        Some(self.trials.watched(Trial::of(dns, &state), now))
    }

    /// A round of this trial ended early. Nothing it heard counts: pods may have run what the other client wrote.
    pub fn ended(&self, dns: &ClusterDNS, observed: &Observed) -> Option<Comparison> {
        let state = config_map::state(observed);
        state.canary_pod.as_ref()?;
        self.trials.ended(Trial::of(dns, &state));
        self.interrupted(dns, observed)
    }

    /// What is said of this trial once too many of its rounds in a row have ended early.
    fn interrupted(&self, dns: &ClusterDNS, observed: &Observed) -> Option<Comparison> {
        let state = config_map::state(observed);
        let pod = state.canary_pod.as_ref()?;
        let ended = self.trials.progress(&Trial::of(dns, &state)).ended();
        let why = "another client deletes the Service of this ClusterDNS, or edits or deletes its configuration ConfigMap, again \
                   and again, and each time the questions to its pods end";
        (ended >= MAX_ENDED).then(|| Comparison {
            canary_uid: pod.uid.clone(),
            revision: state.canary.clone(),
            unreachable: Some(HeldBy::Interrupted.because(why)),
            ..Comparison::default()
        })
    }
}

/// What may happen in this reconcile with a canary that runs its configuration.
#[derive(Debug)]
pub enum Look<'a> {
    /// Nothing this time, and why: other trials have all permits, or another client ends the rounds.
    Postponed(Comparison),
    /// Ask these questions now.
    Round(Box<Round<'a>>),
}

/// A round of questions that may run now. What it needs to know of the cluster is read only when a round has been allowed.
#[derive(Debug)]
pub struct Round<'a> {
    pair: Pair,
    config: Config,
    state: RolloutState,
    trial: Trial,
    trials: &'a Trials,
    _permit: SemaphorePermit<'a>,
}

/// What happens with the canary in this reconcile. An edit of another client is undone first, and a deleted Service created
/// again: a round would keep clients waiting for that. Such a reconcile says why the trial waits, because it writes that down:
/// the write of the one whose round ended was refused, as another client had written meanwhile.
pub fn look<'a>(
    dns: &ClusterDNS,
    observed: &Observed,
    rounds: &'a RoundPermits,
) -> Option<Look<'a>> {
    rounds.trials.forget_unwritten(dns.metadata.name.as_deref().unwrap_or_default());
    let is_gone = observed.service.is_none() && !is_known_to_fail(dns);
    match observed.lost_document.is_some() || is_gone {
        true => rounds.interrupted(dns, observed).map(Look::Postponed),
        false => begin(dns, observed, rounds),
    }
}

/// The reconcile before could not write an object, such as the Service: trials do not wait for that.
fn is_known_to_fail(dns: &ClusterDNS) -> bool {
    let mut conditions = dns.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|it| {
        it.type_ == "Degraded" && ["ServiceGone", "ApplyFailed"].contains(&it.reason.as_str())
    })
}

/// Begins a round, if a canary is on trial, said that it runs what it tries, and the spec still asks for that: call it last, when
/// `pod_reports` are fresh.
/// No waiting for a permit: it would occupy a reconcile that asks nothing. The next reconcile asks.
fn begin<'a>(dns: &ClusterDNS, observed: &Observed, rounds: &'a RoundPermits) -> Option<Look<'a>> {
    let pair = pair(dns, observed).filter(|_| wants_trial(dns, observed))?;
    let (config, state) = config_map::canary(observed)?;
    let trial = Trial::of(dns, &state);
    let name = dns.metadata.name.as_deref().unwrap_or_default();
    let is_next = rounds.turns.is_next(name, rounds.places.available_permits(), Instant::now());
    Some(match rounds.places.try_acquire().ok().filter(|_| is_next) {
        Some(_permit) => {
            rounds.turns.begins(name);
            let trials = &rounds.trials;
            Look::Round(Box::new(Round { pair, config, state, trial, trials, _permit }))
        }
        None => Look::Postponed(Comparison {
            canary_uid: pair.uid,
            revision: state.canary,
            is_postponed: true,
            ..Comparison::default()
        }),
    })
}

impl Round<'_> {
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Asks both. Questions about Services of others that seem worse are asked twice.
    pub async fn ask(self, observed: &Observed, client: &Client, lists: &Lists) -> Comparison {
        let Round { pair, config, state, trial, trials, _permit } = &self;
        let before = config_map::stable(observed);
        let mut progress = trials.progress(trial);
        let questions =
            questions(config, &before, observed, (&fresh_label(), &state.worse), &mut progress);
        let count = questions.len();
        let asked = ask_both(pair, questions, LONGEST_ROUND).await;
        let is_whole = asked.len() == count;
        let (doubtful, mut asked): (Vec<Asked>, Vec<Asked>) =
            asked.into_iter().partition(judge::is_doubtful);
        let mut versions = Versions::default();
        if !doubtful.is_empty() {
            tokio::time::sleep(SETTLES).await;
            let again = doubtful.into_iter().map(|asked| asked.question).collect();
            asked.extend(ask_both(pair, again, LONGEST_ROUND).await);
            versions = read_versions(&asked, client, lists).await;
        }
        let heard = (&asked[..], &versions);
        let comparison =
            comparison(&pair.uid, &state.canary, (config, &before), observed, heard, &progress);
        // Questions without a reply, or not asked in time, are asked by the next round.
        let comparison = if comparison.unreachable.is_none() && is_whole {
            trials.proceeded(trial.clone(), progress);
            comparison
        } else {
            let unasked = trials.progress(trial).unasked_after(&progress);
            Comparison { unasked, ..comparison }
        };
        trials.heard(trial.clone());
        comparison
    }
}

/// The replies of both to these questions within this time; later replies are missing. Servers are asked first,
/// because they take longest.
async fn ask_both(pair: &Pair, questions: Vec<Question>, time: Duration) -> Vec<Asked> {
    let mut questions: Vec<(usize, Question)> = questions.into_iter().enumerate().collect();
    questions.sort_by_key(|(_, question)| !matches!(question.expects, Expects::Server { .. }));
    let asking = stream::iter(questions).map(|(place, question)| async move {
        let canary = ask(&question, pair.canary);
        let stable = ask(&question, pair.stable);
        let (canary, stable) = futures::join!(canary, stable);
        (place, Asked { question, canary, stable })
    });
    let mut asking = asking.buffer_unordered(SIDE_BY_SIDE);
    let mut asked = Vec::new();
    let all = async {
        while let Some(heard) = asking.next().await {
            asked.push(heard);
        }
    };
    // That the time is over is no error: the others are missing.
    let _ = tokio::time::timeout(time, all).await;
    asked.sort_by_key(|(place, _)| *place);
    asked.into_iter().map(|(_, asked)| asked).collect()
}

/// The versions of the Services that still seem worse, after they were asked.
async fn read_versions(asked: &[Asked], client: &Client, lists: &Lists) -> Versions {
    let mut versions = Versions::default();
    let doubtful = asked.iter().filter(|asked| judge::is_doubtful(asked));
    for of in doubtful.filter_map(|asked| asked.question.of.as_ref()) {
        let key = (of.namespace.clone(), of.name.clone());
        if !versions.contains_key(&key)
            && let Ok(version) = sample::version(client, lists, &of.namespace, &of.name).await
        {
            versions.insert(key, version);
        }
    }
    versions
}

/// A label that no cache knows.
fn fresh_label() -> String {
    format!("clusterdns-canary-{:016x}", RandomState::new().build_hasher().finish())
}

/// The result of one round for this canary, which tries the first configuration beside pods that run the second one.
/// Pure.
pub fn comparison(
    uid: &str,
    revision: &str,
    (config, before): (&Config, &Config),
    observed: &Observed,
    (asked, versions): (&[Asked], &Versions),
    progress: &Progress,
) -> Comparison {
    let missing = questions::missing_namespaces(config, observed);
    let settled = |asked: &Asked| {
        let mut check = judge::check(asked);
        if let (CheckResult::Worse(how), Some(missing)) = (&mut check.outcome, &missing)
            && let CheckResult::Warning(why) = &missing.outcome
        {
            how.push_str(&format!("; {}: {why}", missing.what));
        }
        let Some(of) = &asked.question.of else { return check };
        let is_it = |it: &&SampledService| (&it.namespace, &it.name) == (&of.namespace, &of.name);
        let before = observed.sample.services.iter().find(is_it).map(|it| it.version.as_str());
        let after = versions.get(&(of.namespace.clone(), of.name.clone())).map(String::as_str);
        judge::settled(check, before.unwrap_or_default(), after)
    };
    let checks = asked.iter().map(|asked| (&asked.question, settled(asked))).collect();
    let mut checks = agreement::agreed(checks);
    checks.extend(missing.clone());
    checks.extend(clients::check(config, before, observed));
    // A client list that refuses pods fails the trial, also if nothing else is known.
    let is_worse = checks.iter().any(|check| matches!(check.outcome, CheckResult::Worse(_)));
    let unread = observed.sample.unread.clone().map(|why| HeldBy::ApiServer.because(why));
    let unreachable = unread
        .or_else(|| judge::unreachable(asked))
        .or_else(|| judge::refused_operator(asked).filter(|_| !is_worse));
    let (canary_uid, revision) = (uid.to_owned(), revision.to_owned());
    let unasked = progress.unasked();
    Comparison { canary_uid, revision, checks, is_postponed: false, unasked, unreachable }
}

/// The canary and the stable pod that it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    uid: String,
    canary: SocketAddr,
    stable: SocketAddr,
}

/// The canary, if it runs what it tries, and a pod that runs what all the others run.
fn pair(dns: &ClusterDNS, observed: &Observed) -> Option<Pair> {
    let state = config_map::state(observed);
    let uid = state.canary_pod.as_ref()?.uid.clone();
    let canary = observed.pods.iter().find(|pod| pods::uid(pod) == uid)?;
    if pods::reported(observed, canary)?.revision != state.canary {
        return None;
    }
    // Of many pods not all were asked lately: the youngest report counts.
    let runs_stable = |pod: &&Pod| {
        pods::reported(observed, pod).is_some_and(|reported| reported.runs(&state.stable))
    };
    let others = pods::ready(observed).filter(|pod| pods::uid(pod) != uid).filter(runs_stable);
    let age = |pod: &Pod| observed.pod_reports.get(pods::uid(pod)).map(|report| report.age);
    // While a rollout is stuck, pods from before an edit of the port try a configuration.
    let address = |pod| Some(SocketAddr::new(pods::address(pod)?, pods::dns_port(pod, dns)));
    let stable =
        others.filter_map(|pod| Some((age(pod)?, address(pod)?))).min_by_key(|(age, _)| *age)?.1;
    Some(Pair { uid, canary: address(canary)?, stable })
}

#[cfg(test)]
mod tests;
