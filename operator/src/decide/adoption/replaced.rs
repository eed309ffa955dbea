//! A Service of ours that another client replaced, so that nothing of it shows whose it is: no owner, no labels, another
//! selector. What rollout.json remembers decides. The same object is put back, as after any edit. Another object of its name is
//! left alone, and was never adopted, so nothing is given back. Pure.

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Service;

use super::{is_annotated, shown};
use crate::decide::config_map;
use crate::decide::plan::Refusal;
use crate::observe::observed::Observed;

/// Is it the very object that we created?
pub fn is_same(observed: &Observed, service: &Service) -> bool {
    let last = config_map::state(observed).service;
    last.is_ours && !last.uid.is_empty() && service.metadata.uid.as_ref() == Some(&last.uid)
}

/// Is it another object, instead of one of ours that was not given away?
pub(super) fn is_another(dns: &ClusterDNS, observed: &Observed, service: &Service) -> bool {
    let is_adopted = is_annotated(service, dns);
    config_map::state(observed).service.is_ours && !is_adopted && !is_same(observed, service)
}

/// What a person can do about the other object.
pub(super) fn refusal(observed: &Observed, service: &Service) -> Refusal {
    let addresses = config_map::state(observed).service.cluster_ips.join(", ");
    let message = format!(
        "{} was of this ClusterDNS, and another client replaced it by one that is not: delete it, and it is created again with \
         {addresses}, which clients ask; or set adopt to true to take over the one that is there, or delete this ClusterDNS if \
         another DNS server has it now",
        shown(service)
    );
    Refusal::new("ServiceReplaced", "spec.service.adopt", message)
}
