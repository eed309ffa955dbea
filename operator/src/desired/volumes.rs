//! What the pod has on disk: a place for the warm start, the configuration for a start without the API server, and
//! certificates.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, KeyToPath, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::instance::Instance;
use crate::observe::observed::{Certificate, Observed};
use crate::observe::pods;

/// The volume with the snapshot. What is in it may be lost with the pod, or with its node.
pub(super) const STATE_VOLUME: &str = "state";
pub const STATE: &str = "/var/lib/clusterdns";
/// Where the mounted copy of the ConfigMap is.
pub const CONFIGURATION: &str = "/etc/clusterdns/config";
/// Where the Secrets of listeners are, each in a folder of its name.
pub const CERTIFICATES: &str = "/etc/clusterdns/certificates";

/// A snapshot has at most 256 MiB; there are the present one, the next one, and one that was rejected. A pod that exceeds
/// the limit is evicted, so it is no tighter than needed.
const STATE_LIMIT: &str = "1Gi";

/// The keys of a Secret of type `kubernetes.io/tls`; other keys of it are not mounted.
const KEY_PAIR: [&str; 2] = ["tls.crt", "tls.key"];

/// Names of the Secrets of listeners, each once: those that were read and may be mounted, and those that are mounted and gone.
/// Without the latter all pods would be replaced, with some that have no certificate, while a Secret is written again. One that
/// the spec does not name any more stays where it is mounted, and is not mounted again. While one that the spec names is not there,
/// all of them stay: the pods that run serve the last good certificate, and new ones would have none.
fn certificates(of: &Instance<'_>) -> BTreeSet<String> {
    let wanted = of.in_pods.listeners.certificates();
    let Observed { deployment, daemon_set, certificates, .. } = of.observed;
    let mounted = pods::mounted_secrets(deployment.as_ref(), daemon_set.as_ref());
    // These are those of the spec.
    let is_awaited = certificates
        .values()
        .any(|state| matches!(state, Certificate::Missing | Certificate::Unread));
    let is_mounted = |name: &&str| match certificates.get(*name) {
        Some(Certificate::Usable | Certificate::Gone) => true,
        Some(
            Certificate::Missing
            | Certificate::OtherType
            | Certificate::NotMarked
            | Certificate::NotReadable
            | Certificate::Unread,
        ) => false,
        None => mounted.contains(*name),
    };
    let mut names: BTreeSet<String> = wanted.filter(is_mounted).map(str::to_owned).collect();
    if is_awaited {
        names.extend(mounted);
    }
    names
}

pub(super) fn volumes(of: &Instance<'_>) -> Vec<Volume> {
    let state = Volume {
        name: STATE_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            size_limit: Some(Quantity(STATE_LIMIT.to_owned())),
            medium: None,
        }),
        ..Volume::default()
    };
    let configuration = Volume {
        name: "config".to_owned(),
        // A pod whose ConfigMap is gone starts and says so, instead of hanging.
        config_map: Some(ConfigMapVolumeSource {
            name: of.child.clone(),
            optional: Some(true),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    let item =
        |key: &str| KeyToPath { key: key.to_owned(), path: key.to_owned(), ..KeyToPath::default() };
    let certificate = |(index, secret): (usize, String)| Volume {
        name: format!("certificate-{index}"),
        // A missing one disables its listener only.
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret),
            optional: Some(true),
            items: Some(KEY_PAIR.map(item).to_vec()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    let certificates = certificates(of).into_iter().enumerate().map(certificate);
    [state, configuration].into_iter().chain(certificates).collect()
}

pub(super) fn mounts(of: &Instance<'_>) -> Vec<VolumeMount> {
    let mount = |name: &str, path: String, read_only: bool| VolumeMount {
        name: name.to_owned(),
        mount_path: path,
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    };
    let certificate = |(index, secret): (usize, String)| {
        mount(&format!("certificate-{index}"), format!("{CERTIFICATES}/{secret}"), true)
    };
    let certificates = certificates(of).into_iter().enumerate().map(certificate);
    [mount(STATE_VOLUME, STATE.to_owned(), false), mount("config", CONFIGURATION.to_owned(), true)]
        .into_iter()
        .chain(certificates)
        .collect()
}
