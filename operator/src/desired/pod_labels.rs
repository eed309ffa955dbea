//! The labels of our pods. They decide which Services lead to them, so one function says what they are: for the template,
//! and for those who must know it before there is one.

use std::collections::BTreeMap;

use crds::ClusterDNS;
use crds::defaults::SERVICE_NAME;

use crate::decide::plan::ServicePlan;
use crate::names;
use crate::observe::observed::{DnsService, Observed};
use crate::observe::pods;

/// The label by which NetworkPolicies, NodeLocal DNSCache and Kubernetes' own tests find the pods of cluster DNS.
const KUBE_DNS: (&str, &str) = ("k8s-app", "kube-dns");
/// The Service of NodeLocal DNSCache selects by that label in order to reach the pods behind kube-dns, whichever they are.
pub const FOLLOWS_KUBE_DNS: &str = "kube-dns-upstream";

/// All labels of a pod. Labels from the spec never replace ours.
pub fn pod_labels(
    dns: &ClusterDNS,
    service: &ServicePlan,
    observed: &Observed,
) -> BTreeMap<String, String> {
    let placement = dns.spec.placement.clone().unwrap_or_default();
    let mut labels = placement.pod_labels.unwrap_or_default();
    labels.extend(match service {
        ServicePlan::Own => own_labels(dns, observed),
        ServicePlan::Adopted { labels: theirs, patch: _ }
        | ServicePlan::Recreated { labels: theirs, manifest: _ }
        | ServicePlan::Released { labels: theirs, patch: _ } => labels_behind(dns, theirs),
    });
    labels
}

/// The labels of pods behind a Service that we created. A Service called kube-dns is the cluster's DNS, so its pods
/// have the label that others look for, unless another Service that serves DNS selects by it: our pods must not
/// answer beside another DNS server. A Service for monitoring does not count. Pods that have the label keep it while
/// they are the only ones behind that Service: without them its clients would have no DNS.
pub fn own_labels(dns: &ClusterDNS, observed: &Observed) -> BTreeMap<String, String> {
    let without = labels_behind(dns, &BTreeMap::new());
    let mut with = without.clone();
    with.insert(KUBE_DNS.0.to_owned(), KUBE_DNS.1.to_owned());
    // While the spec moves from a Deployment to a DaemonSet or back, the pods of both may be behind that Service.
    let has_label = |labels: &BTreeMap<String, String>| {
        labels.get(KUBE_DNS.0).map(String::as_str) == Some(KUBE_DNS.1)
    };
    let is_in_template = |per_node| has_label(&pods::template_labels(observed, per_node));
    let mut labels_of_pods = observed.pods.iter().filter_map(|pod| pod.metadata.labels.as_ref());
    let has_it = is_in_template(false) || is_in_template(true) || labels_of_pods.any(has_label);
    let would_get_them = |(service, other): (&String, &DnsService)| {
        leads_by_label(service, &other.selector, &with, &without)
            && (other.has_other_pods || !has_it)
    };
    match is_cluster_dns(dns) && !observed.dns_services.iter().any(would_get_them) {
        true => with,
        false => without,
    }
}

fn is_cluster_dns(dns: &ClusterDNS) -> bool {
    dns.spec.service.clone().unwrap_or_default().name == SERVICE_NAME
}

fn leads_by_label(
    service: &str,
    selector: &BTreeMap<String, String>,
    with: &BTreeMap<String, String>,
    without: &BTreeMap<String, String>,
) -> bool {
    service != FOLLOWS_KUBE_DNS && selects(selector, with) && !selects(selector, without)
}

/// Whether a Service of this name and selector, if it serves DNS, counts in [`own_labels`]: it would lead to our pods by the
/// label of kube-dns.
pub fn counts_for_own_labels(
    dns: &ClusterDNS,
    service: &str,
    selector: &BTreeMap<String, String>,
) -> bool {
    let without = labels_behind(dns, &BTreeMap::new());
    let with = own_labels(dns, &Observed::default());
    is_cluster_dns(dns) && leads_by_label(service, selector, &with, &without)
}

/// Whether another Service of this name and selector, if it serves DNS, would lead to our pods by labels that they get behind the
/// Service of others that the spec adopts, whose selector is `theirs`. What else leads to the pods of kube-dns, such as a load
/// balancer for clients outside of the cluster, is meant for the cluster's DNS, and moves with it.
pub fn would_join_another(
    dns: &ClusterDNS,
    theirs: &BTreeMap<String, String>,
    service: &str,
    selector: &BTreeMap<String, String>,
) -> bool {
    let without = labels_behind(dns, &BTreeMap::new());
    let with = labels_behind(dns, theirs);
    !is_cluster_dns(dns) && leads_by_label(service, selector, &with, &without)
}

/// The labels of pods behind a Service with this selector.
pub fn labels_behind(
    dns: &ClusterDNS,
    theirs: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let name = dns.metadata.name.as_deref().unwrap_or_default();
    let mut labels = names::labels(name);
    labels.extend(theirs.clone());
    labels.extend(names::selector(name));
    labels
}

/// Whether a Service with this selector leads to pods with these labels. Without a selector it leads to none.
pub fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Does it select the pods of another ClusterDNS by name, and so none of this one's?
fn is_of_another(instance: &str, selector: &BTreeMap<String, String>) -> bool {
    selector.get(names::INSTANCE).is_some_and(|of| of != instance)
}

/// Whether a change of a Service or a PodDisruptionBudget that selects by these labels can concern this ClusterDNS: its pods have
/// them, or would. Behind an adopted Service they may have more: such a change is noticed at the next look.
pub fn may_select(dns: &ClusterDNS, selector: &BTreeMap<String, String>) -> bool {
    // Checked first, because it is the usual case where there are many ClusterDNS: each has a Service that selects by
    // its name.
    if is_of_another(dns.metadata.name.as_deref().unwrap_or_default(), selector) {
        return false;
    }
    let placement = dns.spec.placement.clone().unwrap_or_default();
    let mut most = placement.pod_labels.unwrap_or_default();
    most.extend(own_labels(dns, &Observed::default()));
    selects(selector, &most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deploy, dns, from, pod};
    use serde_json::json;

    #[test]
    fn o2_pods_keep_the_label_while_the_spec_moves_them_to_each_node_or_back() {
        let template = json!({"metadata": {"labels": pod("x", 0, 0).metadata.labels}});
        let mut with_deployment = Observed::default();
        deploy(&mut with_deployment, 2);
        with_deployment.pods.clear();
        let with_daemon_set = Observed {
            daemon_set: Some(from(json!({"spec": {"selector": {}, "template": template}}))),
            ..Observed::default()
        };
        let with_pods = Observed { pods: vec![pod("dns-0", 0, 0)], ..Observed::default() };
        let selector = BTreeMap::from([("k8s-app".to_owned(), "kube-dns".to_owned())]);
        for (mut observed, has_it) in [
            (with_deployment, true),
            (with_daemon_set, true),
            (with_pods, true),
            (Observed::default(), false),
        ] {
            let second = DnsService { selector: selector.clone(), has_other_pods: false };
            observed.dns_services.insert("second".to_owned(), second);
            for spec in ["{scaling: {perNode: {}}}", "{scaling: {fixed: {replicas: 2}}}"] {
                let labels = own_labels(&dns(spec), &observed);
                assert_eq!(labels.contains_key("k8s-app"), has_it, "{spec}");
            }
        }
    }
}
