//! Which Secrets the pods have that a workload makes.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};

/// Secrets that the workload mounts into its pods.
pub fn mounted_secrets(
    deployment: Option<&Deployment>,
    daemon_set: Option<&DaemonSet>,
) -> BTreeSet<String> {
    let of_deployment = deployment.and_then(|set| Some(&set.spec.as_ref()?.template));
    let of_daemon_set = daemon_set.and_then(|set| Some(&set.spec.as_ref()?.template));
    let templates = of_deployment.into_iter().chain(of_daemon_set);
    let pods = templates.filter_map(|template| template.spec.as_ref());
    let volumes = pods.flat_map(|pod| pod.volumes.iter().flatten());
    volumes.filter_map(|volume| volume.secret.as_ref()?.secret_name.clone()).collect()
}
