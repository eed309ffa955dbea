//! What `--from-cluster` reads: the Service that pods ask, the workloads behind it, and the ConfigMaps that these mount.
//! Nothing is written there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec, Service};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::Serialize;

use super::manifests::Object;
use crate::args::Cluster;
use crate::offline;

/// For everything; people wait for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Workloads of a namespace that are looked at.
const MAX_WORKLOADS: u32 = 500;
/// The label that Services of cluster DNS have.
const LABEL: &str = "k8s-app=kube-dns";
/// Namespace and name of the Service on OpenShift.
const OPENSHIFT: (&str, &str) = ("openshift-dns", "dns-default");
/// The DaemonSet of NodeLocal DNSCache.
const NODE_LOCAL: &str = "node-local-dns";
/// The ConfigMap of kube-dns, which NodeLocal DNSCache reads too.
const KUBE_DNS: &str = "kube-dns";

pub(super) struct Found {
    /// The namespace and name of the Service that pods ask.
    pub(super) service: (String, String),
    /// Workloads and ConfigMaps of the DNS server.
    pub(super) objects: Vec<Object>,
}

/// Reads it, or says why that cannot be read.
pub(super) fn read(which: &Cluster) -> Result<Found, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, ask(which)).await });
    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
}

async fn ask(which: &Cluster) -> Result<Found, String> {
    let client = offline::client(which).await?;
    let service = service(&client).await?;
    let namespace = service.namespace().unwrap_or_default();
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    let mut found = Vec::new();
    let all = ListParams::default().limit(MAX_WORKLOADS);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    for deployment in
        deployments.list(&all).await.map_err(|error| unreadable("Deployments", &error))?
    {
        let template = deployment.spec.as_ref().map(|spec| &spec.template);
        if template.is_some_and(|template| is_behind(template, &selector)) {
            found.push(object("Deployment", &namespace, &deployment.name_any(), &deployment));
        }
    }
    let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
    for daemon_set in
        daemon_sets.list(&all).await.map_err(|error| unreadable("DaemonSets", &error))?
    {
        let template = daemon_set.spec.as_ref().map(|spec| &spec.template);
        let is_node_local = daemon_set.name_any() == NODE_LOCAL;
        if is_node_local || template.is_some_and(|template| is_behind(template, &selector)) {
            found.push(object("DaemonSet", &namespace, &daemon_set.name_any(), &daemon_set));
        }
    }
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    for name in mounted(&found) {
        let map = maps.get_opt(&name).await.map_err(|error| unreadable("ConfigMaps", &error))?;
        found.extend(map.map(|map| object("ConfigMap", &namespace, &name, &map)));
    }
    Ok(Found { service: (namespace, service.name_any()), objects: found })
}

/// The Service that pods ask: that of the usual name first.
async fn service(client: &Client) -> Result<Service, String> {
    let labelled: Api<Service> = Api::all(client.clone());
    let listed = labelled.list(&ListParams::default().labels(LABEL).limit(MAX_WORKLOADS)).await;
    let mut services = listed.map_err(|error| unreadable("Services", &error))?.items;
    // What is ours is no server to import.
    services.retain(|service| !service.labels().contains_key("clusterdns.dev/instance"));
    services.sort_by_key(|service| {
        (service.name_any() != KUBE_DNS, service.namespace(), service.name_any())
    });
    if let Some(service) = services.into_iter().next() {
        return Ok(service);
    }
    let (namespace, name) = OPENSHIFT;
    let openshift: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = openshift.get_opt(name).await.map_err(|error| unreadable("Services", &error))?;
    service.ok_or_else(|| {
        format!("no Service with the label {LABEL}, and no Service {namespace}/{name}: name files with --corefile instead")
    })
}

fn is_behind(template: &PodTemplateSpec, selector: &BTreeMap<String, String>) -> bool {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let has =
        |(key, value): (&String, &String)| labels.is_some_and(|it| it.get(key) == Some(value));
    !selector.is_empty() && selector.iter().all(has)
}

/// The names of the ConfigMaps that these pods mount.
fn mounted(workloads: &[Object]) -> BTreeSet<String> {
    let mut names = BTreeSet::from([KUBE_DNS.to_owned()]);
    for workload in workloads {
        let volumes = &workload.value["spec"]["template"]["spec"]["volumes"];
        let volumes = volumes.as_array().into_iter().flatten();
        names.extend(volumes.filter_map(|it| Some(it["configMap"]["name"].as_str()?.to_owned())));
    }
    names
}

fn object(kind: &str, namespace: &str, name: &str, of: &impl Serialize) -> Object {
    let mut value = serde_json::to_value(of).unwrap_or_default();
    value["kind"] = kind.into();
    Object {
        file: format!("{}/{namespace}/{name}", kind.to_ascii_lowercase()),
        value,
        places: None,
    }
}

fn unreadable(what: &str, error: &kube::Error) -> String {
    format!("its {what} cannot be read: {error}")
}
