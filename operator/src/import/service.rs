//! The Service that pods ask, among the manifests that people name: by the rule of `--from-cluster`. Each Service has a line,
//! and so has the one that is assumed where none is found.

use std::collections::BTreeMap;

use crds::defaults::{SERVICE_NAME, SERVICE_NAMESPACE};
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

use super::Source;
use super::from_cluster::{
    OPENSHIFT, UPSTREAM, Wanted, asked_by_pods, in_full, is_labelled, may_be_asked,
};
use super::manifests::Object;
use super::report::Outcome::{Changed, Kept, NotNeeded};
use super::report::Place;
use crate::decide::adoption::{cluster_ips, is_local};

/// What is said of a Service that must be changed before it is adopted.
pub(super) const LOCAL: &str = "spec.service: it is adopted only with internalTrafficPolicy: Cluster, because nodes without a new pod \
                                would have no DNS: set it, which also works with the server that it leads to now";

/// What the manifests say of Services.
pub(super) struct Found {
    /// The namespace and name of the one that pods ask.
    pub(super) service: Option<(String, String)>,
    /// What that one selects by; empty where it is not known.
    pub(super) selector: BTreeMap<String, String>,
    /// The addresses of those that lead to the server that is replaced.
    pub(super) addresses: Vec<String>,
    /// A line for each.
    pub(super) lines: Vec<Source>,
}

/// Finds it.
///
/// # Errors
/// It is not known which one it is.
pub(super) fn of_manifests(objects: &[Object], wanted: Wanted<'_>) -> Result<Found, String> {
    let all: Vec<(&Object, Service)> = objects.iter().filter_map(read).collect();
    let services = || all.iter().map(|(_, service)| service);
    let labelled = services().filter(|it| is_labelled(it)).cloned().collect();
    let is_openshift = |it: &&Service| (it.namespace().as_deref(), it.name_any()) == openshift();
    let asked = match wanted.source.map(in_full) {
        Some(source) => services().find(|it| may_be_asked(it) && full_name(it) == source).cloned(),
        None => asked_by_pods(labelled, wanted.target)?
            .or_else(|| services().find(is_openshift).cloned()),
    };
    let service = asked.as_ref().map(full_name);
    let lines = all.iter().map(|(object, it)| {
        let (namespace, name) = full_name(it);
        let is_asked = service.as_ref().is_some_and(|asked| *asked == (namespace.clone(), name.clone()));
        let is_wanted = wanted.target.is_none_or(|it| it == name || it == format!("{namespace}/{name}"));
        let (outcome, message) = match (is_asked, is_wanted) {
            (true, true) if is_local(it) => (Changed, LOCAL),
            (true, true) => (
                Kept,
                "spec.service: its addresses and ports stay, and it leads to the new pods when they are ready",
            ),
            (true, false) => (NotNeeded, "--service names another one"),
            (false, _) if name == UPSTREAM => {
                (NotNeeded, "NodeLocal DNSCache asked the server of the cluster there, and pods do not")
            }
            (false, _) => (
                NotNeeded,
                "pods do not ask it: their Service has the label k8s-app=kube-dns, or --from-service names it",
            ),
        };
        Source::Note {
            place: object.place("metadata"),
            outcome,
            what: format!("Service {namespace}/{name}"),
            message: message.to_owned(),
        }
    });
    let lines = lines.collect();
    let upstream = services().find(|it| it.name_any() == UPSTREAM);
    let addresses = asked.iter().chain(upstream).flat_map(cluster_ips);
    let addresses = addresses.map(|ip| ip.to_string()).collect();
    let spec = asked.and_then(|service| service.spec);
    let selector = spec.and_then(|spec| spec.selector).unwrap_or_default();
    Ok(Found { service, selector, addresses, lines })
}

/// The line where neither manifests nor flags name a Service.
pub(super) fn assumed(file: String) -> Source {
    Source::Note {
        place: Place { file, line: 1 },
        outcome: Changed,
        what: "service".to_owned(),
        message: format!(
            "{SERVICE_NAMESPACE}/{SERVICE_NAME} is assumed: if pods ask another Service, write --service NAMESPACE/NAME \
             --adopt, or name its manifest too"
        ),
    }
}

fn openshift() -> (Option<&'static str>, String) {
    (Some(OPENSHIFT.0), OPENSHIFT.1.to_owned())
}

fn full_name(service: &Service) -> (String, String) {
    (service.namespace().unwrap_or_default(), service.name_any())
}

/// Manifests without a namespace are those of the usual one.
fn read(object: &Object) -> Option<(&Object, Service)> {
    let mut service: Service = match object.value["kind"] == "Service" {
        true => serde_json::from_value(object.value.clone()).ok()?,
        false => return None,
    };
    service.metadata.namespace.get_or_insert_with(|| SERVICE_NAMESPACE.to_owned());
    Some((object, service))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn o15_a_service_that_must_be_changed_before_it_is_adopted_has_a_line_that_says_so() {
        for (policy, expected) in [(None, Kept), (Some("Cluster"), Kept), (Some("Local"), Changed)]
        {
            let value = json!({"kind": "Service",
                "metadata": {"name": "kube-dns", "labels": {"k8s-app": "kube-dns"}},
                "spec": {"internalTrafficPolicy": policy}});
            let object = Object { file: "a".to_owned(), value, places: None, is_named: false };
            let found = of_manifests(&[object], Wanted::default()).unwrap();
            let [Source::Note { outcome, .. }] = found.lines.as_slice() else { panic!("one line") };
            assert_eq!(*outcome, expected, "{policy:?}");
        }
    }
}
