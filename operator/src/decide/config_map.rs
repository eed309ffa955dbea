//! What is written in the configuration ConfigMap now.

use crds::{Config, config};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;

use crate::decide::plan::RolloutState;
use crate::observe::observed::Observed;

/// Key of the document that every pod runs, but for the canary.
pub const STABLE: &str = "stable.json";
/// Key of the document that the canary pod tries.
pub const CANARY: &str = "canary.json";
/// Who tries it: a [`RolloutState`].
pub const ROLLOUT: &str = "rollout.json";

/// What the configuration ConfigMap holds now.
#[derive(Debug, Default)]
pub(super) struct Current {
    /// `stable.json`, if it is one of our documents; where it was deleted, what ready pods run.
    pub(super) stable: Option<String>,
    /// `format` of the stable document.
    pub(super) format: Option<u32>,
    /// `rollout.json`; without one, the revision of stable.json.
    pub(super) state: RolloutState,
    /// The revision of stable.json is not the one in rollout.json: another client wrote it.
    pub(super) is_foreign: bool,
}

impl Current {
    pub(super) fn read(observed: &Observed) -> Self {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let written = text(observed.config_map.as_ref(), STABLE);
        let Some(text) = written.or(observed.lost_document.as_deref()) else {
            return Self { state: state(observed), ..Self::default() };
        };
        // A document of a newer operator may be more than we can read; that it is one suffices.
        let Ok(Head { format }) = serde_json::from_str(text) else {
            return Self { state: state(observed), is_foreign: true, ..Self::default() };
        };
        let revision = config::revision_of(text);
        let mut state = state(observed);
        if written.is_none() && state.stable != revision {
            state = RolloutState::default();
        }
        let is_foreign = !state.stable.is_empty() && state.stable != revision;
        if state.stable.is_empty() {
            state.stable = revision;
        }
        Self { stable: Some(text.to_owned()), format: Some(format), state, is_foreign }
    }
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

/// The document on trial and its revision.
pub fn canary(observed: &Observed) -> Option<(Config, RolloutState)> {
    let (config, _) = Config::from_json(text(observed.config_map.as_ref(), CANARY)?).ok()?;
    Some((config, state(observed)))
}

/// What stable pods run. One that cannot be read, of another version, is taken for one that says nothing.
pub fn stable(observed: &Observed) -> Config {
    let text = text(observed.config_map.as_ref(), STABLE).unwrap_or_default();
    Config::from_json(text).map(|(config, _)| config).unwrap_or_default()
}

/// The text of one key.
pub(crate) fn text<'a>(config_map: Option<&'a ConfigMap>, key: &str) -> Option<&'a str> {
    config_map?.data.as_ref()?.get(key).map(String::as_str)
}
