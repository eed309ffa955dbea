//! What is written in the configuration ConfigMap now.

use std::net::IpAddr;

pub use crds::between_planes::{CANARY, ROLLOUT, STABLE};
use crds::{ClusterDNS, Config, config};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde::Deserialize;
use serde_json::Value;

use crate::decide::adoption;
use crate::decide::plan::{Account, LastService, RolloutPlan, RolloutState, Switch};
use crate::decide::rollout::what_failed;
use crate::names;
use crate::observe::observed::Observed;

/// What the configuration ConfigMap holds now.
#[derive(Debug, Default)]
pub(super) struct Current {
    /// The document that every pod must run for now: `stable.json`, or what was there before another client changed it.
    pub(super) stable: Option<String>,
    /// `format` of the stable document.
    pub(super) format: Option<u32>,
    /// `rollout.json`; without one, the revision of the stable document. After an edit it names the revision before.
    pub(super) state: RolloutState,
    /// What another client did to `stable.json`.
    pub(super) edit: Edit,
}

/// Another client changed `stable.json`, so that its revision is not the one in `rollout.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Edit {
    /// No client did.
    #[default]
    None,
    /// The document before is known: it is written back.
    Undone,
    /// It is not known, and pods run what that client wrote: it is the stable document here.
    Kept,
    /// It is not known, and what that client wrote is no document of ours.
    Unreadable,
}

impl Current {
    pub(super) fn read(observed: &Observed) -> Self {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let mut state = state(observed);
        let written = text(observed.config_map.as_ref(), STABLE);
        let mut edit = Edit::None;
        let text = match (written, observed.lost_document.as_deref()) {
            (None, None) => return Self { state, ..Self::default() },
            (None, Some(lost)) => {
                // The state of another document, but what failed beside that one failed.
                if state.stable != config::revision_of(lost) {
                    state = RolloutState { needs_pods: state.needs_pods, ..what_failed(&state) };
                }
                lost
            }
            (Some(written), lost) if is_edited(written, &state) => {
                match lost.filter(|lost| config::revision_of(lost) == state.stable) {
                    Some(lost) => {
                        edit = Edit::Undone;
                        lost
                    }
                    None => {
                        edit = Edit::Kept;
                        written
                    }
                }
            }
            (Some(written), _) => written,
        };
        // We may not be able to read the document of a newer operator; here it only matters that it is one.
        let Ok(Head { format }) = serde_json::from_str(text) else {
            return Self { state, edit: Edit::Unreadable, ..Self::default() };
        };
        if state.stable.is_empty() {
            state.stable = config::revision_of(text);
        }
        Self { stable: Some(text.to_owned()), format: Some(format), state, edit }
    }
}

/// Another client wrote it: its revision is not the one in `rollout.json`.
fn is_edited(written: &str, state: &RolloutState) -> bool {
    !state.stable.is_empty() && config::revision_of(written) != state.stable
}

/// `stable.json`, if no other client changed it.
pub fn whole(config_map: Option<&ConfigMap>) -> Option<&str> {
    text(config_map, STABLE).filter(|text| !is_edited(text, &state_in(config_map)))
}

/// `rollout.json`; what cannot be read is as good as none.
pub fn state(observed: &Observed) -> RolloutState {
    state_in(observed.config_map.as_ref())
}

/// The same of the ConfigMap alone.
pub fn state_in(config_map: Option<&ConfigMap>) -> RolloutState {
    let state = text(config_map, ROLLOUT).and_then(|text| serde_json::from_str(text).ok());
    state.unwrap_or_default()
}

/// The ConfigMap that a deleted ClusterDNS of this name left behind, for the one that has the name now. Pods may still run its
/// documents, so these and their trials count. What was done to a Service does not, nor its ServiceAccount, nor the addresses of a
/// Service of another name. Nor do addresses where this one asks for others: it was created for them. Nor those that the Service,
/// which is there, does not have: a backup brought them from another cluster, or the clients of this one are those of the Service.
pub fn left_behind(mut map: ConfigMap, dns: &ClusterDNS, service: Option<&Service>) -> ConfigMap {
    let (namespace, name) = names::service(dns);
    let mut state = state_in(Some(&map));
    let is_its = |manifest: &Value| {
        let metadata = &manifest["metadata"];
        let is = |key: &str, expected: &str| metadata[key].as_str() == Some(expected);
        is("namespace", &namespace) && is("name", &name)
    };
    state.switch = Switch::default();
    // It had a ServiceAccount of its own, which may be gone with it.
    state.account = Account::default();
    let is_its_service = state.service.manifest.as_ref().is_some_and(is_its);
    let known = &state.service.cluster_ips;
    let is_stale = adoption::asks_for_others(dns, known) || is_at_others(service, known);
    if !is_its_service || is_stale {
        state.service = LastService::default();
    }
    // This ClusterDNS has given nothing back.
    state.service.is_given_back = false;
    if let Some(rollout) = map.data.as_mut().and_then(|data| data.get_mut(ROLLOUT)) {
        *rollout = serde_json::to_string(&state).unwrap_or_default();
    }
    map
}

/// Does the Service have addresses, and none of these?
fn is_at_others(service: Option<&Service>, known: &[String]) -> bool {
    let mut real = service.into_iter().flat_map(adoption::cluster_ips).peekable();
    let is_known = |ip: IpAddr| known.iter().any(|it| it.parse::<IpAddr>() == Ok(ip));
    real.peek().is_some() && !real.any(is_known)
}

/// The document on trial and its revision.
pub fn canary(observed: &Observed) -> Option<(Config, RolloutState)> {
    let (config, _) = Config::from_json(text(observed.config_map.as_ref(), CANARY)?).ok()?;
    Some((config, state(observed)))
}

/// Whether pods would get a document that none of them has: it is not in the ConfigMap, and was not there before another client
/// edited or deleted it.
pub fn has_new_document(rollout: &RolloutPlan, observed: &Observed) -> bool {
    let Current { stable, state, .. } = Current::read(observed);
    let canary = text(observed.config_map.as_ref(), CANARY);
    let is_new = |text: &str| {
        let revision = config::revision_of(text);
        let is_on_trial = state.canary_pod.is_some() && state.canary == revision;
        let is_there = [stable.as_deref(), canary].contains(&Some(text));
        !is_there && !is_on_trial && state.stable != revision
    };
    let stable = Some(rollout.stable.as_str()).filter(|stable| !stable.is_empty());
    stable.into_iter().chain(rollout.canary.as_deref()).any(is_new)
}

/// What stable pods run. A document of another version that cannot be read counts as empty.
pub fn stable(observed: &Observed) -> Config {
    stable_document(observed).map(|document| document.config).unwrap_or_default()
}

/// The same with its revision; `None` if there is none that can be read.
pub fn stable_document(observed: &Observed) -> Option<Document> {
    let written = text(observed.config_map.as_ref(), STABLE);
    Document::read(observed.lost_document.as_deref().or(written)?)
}

/// A document of the ConfigMap.
#[derive(Clone, Debug)]
pub struct Document {
    /// What it says, as far as this version reads it.
    pub config: Config,
    /// Its content revision, as pods report it at `/config`.
    pub revision: String,
}

impl Document {
    /// `None` for the text of another version that cannot be read.
    pub fn read(text: &str) -> Option<Self> {
        let (config, _) = Config::from_json(text).ok()?;
        Some(Self { config, revision: config::revision_of(text) })
    }
}

/// The text of one key; an empty one is as good as none.
pub(crate) fn text<'a>(config_map: Option<&'a ConfigMap>, key: &str) -> Option<&'a str> {
    config_map?.data.as_ref()?.get(key).map(String::as_str).filter(|text| !text.is_empty())
}
