//! Where a person reads why pods are not ready.

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Pod;

use crate::desired::CONTAINER;
use crate::desired::ports::METRICS;
use crate::names;
use crate::observe::observed::Observed;
use crate::observe::pods;

/// The command that shows it. Of a pod that runs, Kubernetes knows only the status code of the probe: the pod itself says why.
/// It is not quoted, because it counts seconds, so that the status would change with each look.
pub(super) fn next_step(dns: &ClusterDNS, observed: &Observed) -> String {
    let (namespace, _) = names::service(dns);
    let waits = |pod: &&Pod| !pods::is_ready(pod) && !pods::is_leaving(pod) && is_running(pod);
    let Some(pod) = observed.pods.iter().filter(waits).min_by_key(|pod| pods::name(pod)) else {
        return format!("kubectl -n {namespace} get pods shows the reason");
    };
    let (name, port) =
        (pods::name(pod), pods::port(pod, METRICS).map_or(crds::defaults::HTTP_PORT, u32::from));
    format!(
        "{name} runs, and says why it is not ready at /readyz: kubectl -n {namespace} port-forward pod/{name} {port}, and in a \
         second terminal curl http://127.0.0.1:{port}/readyz"
    )
}

fn is_running(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut ours = statuses.filter(|status| status.name == CONTAINER);
    ours.any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
}
