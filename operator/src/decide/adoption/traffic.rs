//! Whether clients of an adopted Service are led to pods of their own node only: with few pods that takes DNS from all other nodes.
//! Pure.

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Service;

use super::{Standing, shown, standing};
use crate::decide::plan::Refusal;
use crate::names;
use crate::observe::observed::Observed;

/// Does only a pod on the node of a client answer it?
pub(crate) fn is_local(service: &Service) -> bool {
    let policy = service.spec.as_ref().and_then(|spec| spec.internal_traffic_policy.as_deref());
    policy == Some("Local")
}

/// How people change that. The pods of the other DNS server continue to answer with it.
pub(crate) fn remedy((namespace, name): &(String, String)) -> String {
    format!(
        "kubectl -n {namespace} patch service {name} -p \
         '{{\"spec\":{{\"internalTrafficPolicy\":\"Cluster\"}}}}'"
    )
}

/// A Service that has not moved to our pods yet. One that has moved is only reported: a refusal gives no node its DNS back.
///
/// # Errors
/// `ServiceNotAdoptable`: nodes would lose DNS with the switch.
pub(super) fn can_move(dns: &ClusterDNS, service: &Service) -> Result<(), Refusal> {
    if standing(dns, Some(service)) == Standing::Switched || !is_local(service) {
        return Ok(());
    }
    let message = format!(
        "{} has internalTrafficPolicy: Local, so nodes without a pod of this ClusterDNS would have no DNS. Set Cluster, which \
         also works with the other DNS server: {}",
        shown(service),
        remedy(&names::service(dns))
    );
    Err(Refusal::new("ServiceNotAdoptable", "spec.service.adopt", message))
}

/// The adopted Service that leads clients to pods of their own node only.
pub fn leads_to_own_node_only(dns: &ClusterDNS, observed: &Observed) -> bool {
    let adopts = dns.spec.service.as_ref().is_some_and(|service| service.adopt);
    observed.service.as_ref().is_some_and(|service| {
        adopts && standing(dns, Some(service)) == Standing::Switched && is_local(service)
    })
}
