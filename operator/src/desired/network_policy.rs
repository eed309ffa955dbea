//! Who may connect, where that is asked for (S10): DNS from anywhere, HTTP from operator, monitoring and nodes. No egress
//! rules: the addresses of the API server and of resolv.conf's servers cannot be expressed.
//!
//! It is off by default because it would cut off clients that should have access: a scraper whose Pods have another
//! label, and one in the host network of another node (a node agent), whose address no selector matches. Probes do
//! not depend on it: the HTTP port is shared by client address (L14).

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::container::CONTAINER;
use super::instance::Instance;
use super::ports::{self, Port};
use crate::observe::observed::Observed;
use crate::observe::pods;

/// The labels that packages of scrapers give to their pods. HTTP shows nothing secret (S11), so another pod with such
/// a label does no harm.
const SCRAPERS: [&str; 5] =
    ["prometheus", "vmagent", "alloy", "grafana-agent", "opentelemetry-collector"];
/// Numbers of ports that are kept open for pods from before an edit, in each rule: those of a few edits in a row.
const MAX_OLD_PORTS: usize = 16;
/// Label of a namespace whose pods scrape and have other labels.
const SCRAPES: &str = "clusterdns.dev/scrapes";
/// The label that every namespace has.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

pub(super) fn network_policy(of: &Instance<'_>) -> Option<NetworkPolicy> {
    if !of.dns.spec.network_policy {
        return None;
    }
    let (dns, http): (Vec<Port>, Vec<Port>) =
        ports::of(&of.dns.spec).into_iter().partition(Port::is_dns);
    let (dns, http) = (with_old(dns, of.observed), with_old(http, of.observed));
    let from_anyone = NetworkPolicyIngressRule { ports: Some(numbers(&dns)), from: None };
    let from_some = NetworkPolicyIngressRule { ports: Some(numbers(&http)), from: Some(peers(of)) };
    let spec = NetworkPolicySpec {
        pod_selector: Some(of.selector()),
        policy_types: Some(vec!["Ingress".to_owned()]),
        ingress: Some(vec![from_anyone, from_some]),
        egress: None,
    };
    Some(NetworkPolicy { metadata: of.metadata(), spec: Some(spec) })
}

/// These ports, and the same with the numbers that pods of ours have for them: a policy holds at once, and an edit of a number
/// reaches pods when they are replaced. A port that the spec does not have any more is not among them: it is closed at once.
fn with_old(mut ports: Vec<Port>, observed: &Observed) -> Vec<Port> {
    let makers = pods::our_makers(observed);
    let ours = observed.pods.iter().filter(|pod| pods::is_made_by(pod, &makers));
    let containers = ours.flat_map(|pod| pod.spec.iter().flat_map(|spec| &spec.containers));
    let own = containers.filter(|container| container.name == CONTAINER);
    let known = ports.clone();
    let most = known.len() + MAX_OLD_PORTS;
    for declared in own.flat_map(|container| container.ports.iter().flatten()) {
        let same = known.iter().find(|port| declared.name.as_deref() == Some(port.name));
        let number = u16::try_from(declared.container_port).ok();
        let (Some(same), Some(pod)) = (same, number) else { continue };
        let is_it = |port: &Port| (port.pod, port.protocol) == (pod, same.protocol);
        if !ports.iter().any(is_it) && ports.len() < most {
            ports.push(Port { pod, ..*same });
        }
    }
    // Pods of several templates come in an order that changes while they are replaced.
    ports[known.len()..].sort_by_key(|port| (port.pod, port.protocol));
    ports
}

/// Nodes need no rule: traffic from a pod's own node, such as kubelet's probes, is always allowed.
fn peers(of: &Instance<'_>) -> Vec<NetworkPolicyPeer> {
    let operator = of.settings.own_namespace.as_ref().map(|namespace| NetworkPolicyPeer {
        namespace_selector: Some(labelled(NAMESPACE_NAME, namespace)),
        ..NetworkPolicyPeer::default()
    });
    let scrapers = NetworkPolicyPeer {
        namespace_selector: Some(LabelSelector::default()),
        pod_selector: Some(LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "app.kubernetes.io/name".to_owned(),
                operator: "In".to_owned(),
                values: Some(SCRAPERS.map(str::to_owned).to_vec()),
            }]),
            match_labels: None,
        }),
        ip_block: None,
    };
    let namespaces = NetworkPolicyPeer {
        namespace_selector: Some(labelled(SCRAPES, "true")),
        ..NetworkPolicyPeer::default()
    };
    operator.into_iter().chain([scrapers, namespaces]).collect()
}

fn labelled(key: &str, value: &str) -> LabelSelector {
    let labels = [(key.to_owned(), value.to_owned())].into();
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}

fn numbers(ports: &[Port]) -> Vec<NetworkPolicyPort> {
    let port = |port: &Port| NetworkPolicyPort {
        port: Some(IntOrString::Int(port.pod.into())),
        protocol: Some(port.protocol.to_owned()),
        end_port: None,
    };
    ports.iter().map(port).collect()
}
