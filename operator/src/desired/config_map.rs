//! The configuration: the contract between the planes. Which document is in it was decided before (`plan`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use super::instance::Instance;
use crate::decide::config_map::{CANARY, ROLLOUT, STABLE};

pub(super) fn config_map(of: &Instance<'_>) -> ConfigMap {
    let rollout = &of.plan.rollout;
    let state = serde_json::to_string(&rollout.state).expect("texts and numbers are JSON");
    let mut data: BTreeMap<String, String> = [(ROLLOUT.to_owned(), state)].into();
    // Where it is not known what pods run, there is no document: an empty one would look like an edit.
    let stable = Some(rollout.stable.clone()).filter(|stable| !stable.is_empty());
    data.extend(stable.map(|stable| (STABLE.to_owned(), stable)));
    data.extend(rollout.canary.clone().map(|canary| (CANARY.to_owned(), canary)));
    let mut metadata = of.metadata();
    // Of two operators that both think they lead, the one that read an older state is refused (O9).
    metadata.resource_version =
        of.observed.config_map.as_ref().and_then(|seen| seen.metadata.resource_version.clone());
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}
