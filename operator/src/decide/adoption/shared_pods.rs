//! Pods behind an adopted Service carry the labels of its selector. Another Service for DNS may select by the same labels: then our
//! pods would answer its clients too, beside the pods of others and with another configuration, and the operator may not patch it.
//! Pure.

use std::collections::BTreeMap;

use crds::ClusterDNS;
use crds::defaults::SERVICE_NAME;
use k8s_openapi::api::core::v1::Service;

use super::{Standing, is_annotated, selector_without_us, shown, standing};
use crate::decide::plan::Refusal;
use crate::desired::{selects, would_join_another};
use crate::observe::observed::Observed;
use crate::observe::pods;

/// Does a workload of ours make pods with these labels? While the spec moves from a Deployment to a DaemonSet or back, those of the
/// one before serve.
pub(super) fn carry(observed: &Observed, labels: &BTreeMap<String, String>) -> bool {
    let is_in_template = |per_node| selects(labels, &pods::template_labels(observed, per_node));
    is_in_template(false) || is_in_template(true)
}

/// One that was adopted before is left as it is: its pods are behind both already, and a refusal would not change that.
///
/// # Errors
/// `ServiceNotAdoptable`: another Service for DNS would lead to our pods.
pub(super) fn are_not_of_others(
    dns: &ClusterDNS,
    observed: &Observed,
    service: &Service,
) -> Result<(), Refusal> {
    let theirs = selector_without_us(service);
    let was_adopted =
        standing(dns, Some(service)) == Standing::Switched || is_annotated(service, dns);
    if was_adopted || carry(observed, &theirs) {
        return Ok(());
    }
    let mut others = observed.dns_services.iter();
    let Some((other, _)) =
        others.find(|(name, other)| would_join_another(dns, &theirs, name, &other.selector))
    else {
        return Ok(());
    };
    // Only it is adopted beside others: of two others each would be named for the other.
    let instead = match other == SERVICE_NAME {
        true => "Adopt that one instead, or first give",
        false => "First give",
    };
    let message = format!(
        "Service {other} of the same namespace serves DNS too, and it selects the pods behind {}. Our pods would answer the clients \
         of both, and the operator does not change Service {other}. {instead} the two Services different pods: a label that only \
         one of them selects by. For a trial, create this ClusterDNS with another service.name and without adopt",
        shown(service)
    );
    Err(Refusal::new("ServiceNotAdoptable", "spec.service.adopt", message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::adoption::plan;
    use crate::fixtures::{at, deploy, dns, from, kube_dns};
    use crate::observe::observed::DnsService;
    use serde_json::{Value, json};

    /// Why this one does not adopt the Service of that name beside the other one.
    fn refused(own: &str, other: (&str, Value), observed: &Observed) -> Option<&'static str> {
        let mut service = observed.service.clone().unwrap_or_else(kube_dns);
        service.metadata.name = Some(own.to_owned());
        let (name, selector) = other;
        let beside = DnsService { selector: from(selector), has_other_pods: true };
        let observed = Observed {
            service: Some(service),
            dns_services: [(name.to_owned(), beside)].into(),
            ..observed.clone()
        };
        let dns = dns(&format!("{{service: {{name: {own}, adopt: true}}}}"));
        plan(&dns, &observed, at(0)).err().map(|refusal| {
            assert!(
                refusal.message.contains(&format!("Service {name} of the same")),
                "{refusal:?}"
            );
            let is_advised = refusal.message.contains("Adopt that one instead");
            assert_eq!(is_advised, name == "kube-dns", "{refusal:?}");
            refusal.reason
        })
    }

    #[test]
    fn s14_a_service_that_shares_its_pods_with_another_for_dns_is_not_adopted() {
        let shared = || json!({"k8s-app": "kube-dns"});
        let new = Observed::default();
        let refusal = Some("ServiceNotAdoptable");
        for own in ["kube-dns-upstream", "kube-dns-test"] {
            assert_eq!(refused(own, ("kube-dns", shared()), &new), refusal, "{own}");
        }
        assert_eq!(refused("coredns", ("kube-dns-upstream", shared()), &new), None, "NodeLocal");
        assert_eq!(refused("kube-dns", ("lb", shared()), &new), None, "it moves with kube-dns");
        for (own, other) in [("rke2-coredns", "lb"), ("lb", "rke2-coredns")] {
            assert_eq!(refused(own, (other, shared()), &new), refusal, "neither names {own}");
        }
        let narrower = json!({"k8s-app": "kube-dns", "server": "a"});
        assert_eq!(refused("test", ("kube-dns", narrower), &new), None, "our pods lack server");
    }

    #[test]
    fn s14_what_was_adopted_before_stays_adopted_beside_another_service() {
        let refused = |observed: &Observed| {
            refused("test", ("kube-dns", json!({"k8s-app": "kube-dns"})), observed)
        };
        let mut running = Observed::default();
        deploy(&mut running, 2);
        assert_eq!(refused(&running), None, "its pods carry the labels");
        let mut annotated = kube_dns();
        let by = (crate::names::ADOPTED_BY.to_owned(), "default".to_owned());
        annotated.metadata.annotations = Some([by].into());
        assert_eq!(refused(&Observed { service: Some(annotated), ..Observed::default() }), None);
    }
}
