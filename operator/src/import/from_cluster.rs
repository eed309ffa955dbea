//! What `--from-cluster` reads: the Service that pods ask, the workloads behind it, the ConfigMaps that these mount, and the rules
//! of an autoscaler of theirs. Nothing is written there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::manifests::{Object, config_maps, config_maps_of_environment};
use super::node_local::{is_autoscaler, is_node_local, rules_of};
use crate::args::Cluster;
use crate::decide::adoption::{cluster_ips, is_local};
use crate::decide::disruption_budget::selects;
use crate::names;
use crate::offline::{self, PAGE, Paged};

/// Time for all reads: a person waits for them.
const PATIENCE: Duration = Duration::from_secs(30);
/// Workloads of each kind in a namespace that are looked at.
const MAX_WORKLOADS: usize = 5_000;
/// The label that Services of cluster DNS have.
const LABEL: &str = "k8s-app=kube-dns";
/// Its key.
pub(super) const LABEL_KEY: &str = "k8s-app";
/// Namespace and name of the Service on OpenShift.
pub(super) const OPENSHIFT: (&str, &str) = ("openshift-dns", "dns-default");
/// The Service of NodeLocal DNSCache: it asks the DNS server of the cluster there, and pods do not.
pub(super) const UPSTREAM: &str = "kube-dns-upstream";
/// The usual name of the Service that pods ask.
pub(super) const KUBE_DNS: &str = "kube-dns";
/// Its usual namespace, in which administrators of the cluster write.
const USUAL_NAMESPACE: &str = crds::defaults::SERVICE_NAMESPACE;
/// Services that a message names.
const MAX_NAMED: usize = 8;

pub(super) struct Found {
    /// The namespace and name of the Service that pods ask.
    pub(super) service: (String, String),
    /// It leads clients to pods of their own node only.
    pub(super) is_local: bool,
    /// What that Service selects by.
    pub(super) selector: BTreeMap<String, String>,
    /// The addresses of the Services that lead to the server that is replaced.
    pub(super) addresses: Vec<String>,
    /// Workloads and ConfigMaps of the DNS server.
    pub(super) objects: Vec<Object>,
    /// What was not read because there is too much of it, one sentence each.
    pub(super) cut: Vec<String>,
}

/// The Services that people name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted<'a> {
    /// The one that pods ask (`--from-service`).
    pub(super) source: Option<&'a str>,
    /// The one of the ClusterDNS (`--service`). Where several could be the one that pods ask, it is this one, if it is among them.
    pub(super) target: Option<&'a str>,
}

/// Reads it, or says why that cannot be read.
pub(super) fn read(which: &Cluster, wanted: Wanted<'_>) -> Result<Found, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let answer =
        runtime.block_on(async { tokio::time::timeout(PATIENCE, ask(which, wanted)).await });
    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
}

async fn ask(which: &Cluster, wanted: Wanted<'_>) -> Result<Found, String> {
    let client = offline::client(which).await?;
    let service = service(&client, wanted).await?;
    let namespace = service.namespace().unwrap_or_default();
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    // NodeLocal DNSCache asks the server of the cluster at this one.
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let upstream =
        services.get_opt(UPSTREAM).await.map_err(|error| unreadable("Services", &error))?;
    let addresses = [&service].into_iter().chain(&upstream).flat_map(cluster_ips);
    let addresses = addresses.map(|ip| ip.to_string()).collect();
    let mut found = Vec::new();
    let mut autoscalers = Vec::new();
    let mut cut = Vec::new();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    for deployment in all(&client, &deployments, "Deployments", &mut cut).await? {
        let template = deployment.spec.as_ref().map(|spec| &spec.template);
        let is_behind = template.is_some_and(|template| is_behind(template, &selector));
        let object = object("Deployment", &namespace, &deployment.name_any(), &deployment);
        match is_behind {
            true => found.push(object),
            // There may be thousands of others.
            false => autoscalers.extend(is_autoscaler(&object).then_some(object)),
        }
    }
    let workloads: Vec<&str> = found.iter().map(Object::name).collect();
    let rules = autoscalers.iter().filter_map(|it| rules_of(it, &workloads));
    let rules: BTreeSet<String> = rules.map(str::to_owned).collect();
    let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
    for daemon_set in all(&client, &daemon_sets, "DaemonSets", &mut cut).await? {
        let template = daemon_set.spec.as_ref().map(|spec| &spec.template);
        let is_behind = template.is_some_and(|template| is_behind(template, &selector));
        let object = object("DaemonSet", &namespace, &daemon_set.name_any(), &daemon_set);
        found.extend((is_behind || is_node_local(&object)).then_some(object));
    }
    found.extend(budgets(&client, &namespace, &selector, &mut cut).await);
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    for name in mounted(&found).union(&rules) {
        let map = maps.get_opt(name).await.map_err(|error| unreadable("ConfigMaps", &error))?;
        let is_named = rules.contains(name);
        let object = map.map(|map| object("ConfigMap", &namespace, name, &map));
        found.extend(object.map(|object| Object { is_named, ..object }));
    }
    let (is_local, service) = (is_local(&service), (namespace, service.name_any()));
    Ok(Found { service, is_local, selector, addresses, objects: found, cut })
}

/// The PodDisruptionBudgets of a namespace that select pods with these labels. No configuration of DNS is in them, and who imports
/// may have no right to list them.
async fn budgets(
    client: &Client,
    namespace: &str,
    labels: &BTreeMap<String, String>,
    cut: &mut Vec<String>,
) -> Vec<Object> {
    let api: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), namespace);
    let listed = all(client, &api, "PodDisruptionBudgets", cut).await;
    let budgets = listed.unwrap_or_else(|why| {
        cut.push(why);
        Vec::new()
    });
    let is_selected = |it: &&PodDisruptionBudget| {
        let selector = it.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|selector| selects(selector, labels))
    };
    let object =
        |it: &PodDisruptionBudget| object("PodDisruptionBudget", namespace, &it.name_any(), it);
    budgets.iter().filter(is_selected).map(object).collect()
}

/// All objects of a kind in a namespace, page by page; where there are more than are read, `cut` has a sentence.
async fn all<T>(
    client: &Client,
    api: &Api<T>,
    what: &str,
    cut: &mut Vec<String>,
) -> Result<Vec<T>, String>
where
    T: kube::Resource + DeserializeOwned,
{
    let mut objects = Vec::new();
    let take = |object| objects.push(object);
    let listed = offline::paged(client, api.resource_url(), MAX_WORKLOADS, take).await;
    let Paged { is_cut, skipped } = listed.map_err(|error| unreadable(what, &error))?;
    if is_cut {
        cut.push(format!("the first {} {what} were looked at, and there are more", objects.len()));
    }
    if skipped > 0 {
        cut.push(format!("{skipped} of the {what} cannot be read and are not looked at"));
    }
    Ok(objects)
}

/// The Service that pods ask. Anyone who may edit a namespace can give Services there the label, as many as a page of a
/// list holds: those of the usual namespace are looked at, and else the one that people name with its namespace.
async fn service(client: &Client, wanted: Wanted<'_>) -> Result<Service, String> {
    if let Some(source) = wanted.source {
        return named(client, source).await;
    }
    let wanted = wanted.target;
    let usual: Api<Service> = Api::namespaced(client.clone(), USUAL_NAMESPACE);
    let listed = usual.list(&ListParams::default().labels(LABEL).limit(PAGE)).await;
    let mut services = listed.map_err(|error| unreadable("Services", &error))?.items;
    let elsewhere = wanted.and_then(|name| name.split_once('/'));
    if let Some((namespace, name)) = elsewhere.filter(|(at, _)| *at != USUAL_NAMESPACE) {
        let named: Api<Service> = Api::namespaced(client.clone(), namespace);
        let named = named.get_opt(name).await.map_err(|error| unreadable("Services", &error))?;
        services.extend(named.filter(is_labelled));
    }
    if let Some(service) = asked_by_pods(services, wanted)? {
        return Ok(service);
    }
    let (namespace, name) = OPENSHIFT;
    let openshift: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = openshift.get_opt(name).await.map_err(|error| unreadable("Services", &error))?;
    match service {
        Some(service) => Ok(service),
        None => Err(none_in_usual_namespace(client).await),
    }
}

/// The Service that people name as the one that pods ask, with any labels.
async fn named(client: &Client, source: &str) -> Result<Service, String> {
    let (namespace, name) = in_full(source);
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let found = services.get_opt(&name).await.map_err(|error| unreadable("Services", &error))?;
    match found {
        None => Err(format!("there is no Service {namespace}/{name} (--from-service)")),
        Some(service) if !may_be_asked(&service) => Err(format!(
            "pods do not ask the Service {namespace}/{name} (--from-service): it is headless, that of NodeLocal DNSCache, or of a \
             ClusterDNS"
        )),
        Some(service) => Ok(service),
    }
}

/// Namespace and name of a Service, of which people may leave out the usual namespace.
pub(super) fn in_full(text: &str) -> (String, String) {
    let (namespace, name) = text.split_once('/').unwrap_or((USUAL_NAMESPACE, text));
    (namespace.to_owned(), name.to_owned())
}

/// Our own Service is not one to import, and a headless Service has no address that kubelet could write into pods.
pub(super) fn may_be_asked(service: &Service) -> bool {
    let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    !service.labels().contains_key(names::INSTANCE)
        && service.name_any() != UPSTREAM
        && ip != Some("None")
}

/// Why it is not known which Service pods ask, with those of other namespaces that say that they are asked.
async fn none_in_usual_namespace(client: &Client) -> String {
    let (namespace, name) = OPENSHIFT;
    let all: Api<Service> = Api::all(client.clone());
    let listed = all.list_metadata(&ListParams::default().labels(LABEL).limit(PAGE)).await;
    let others: Vec<String> = listed
        .map(|listed| listed.items)
        .unwrap_or_default()
        .iter()
        .map(|it| format!("{}/{}", it.namespace().unwrap_or_default(), it.name_any()))
        .take(MAX_NAMED)
        .collect();
    let others = match others.is_empty() {
        true => String::new(),
        false => format!(" (other namespaces have {})", others.join(", ")),
    };
    format!(
        "no Service with the label {LABEL} in the namespace {USUAL_NAMESPACE}, and no Service {namespace}/{name}{others}: name \
         the one that pods ask with --from-service NAMESPACE/NAME, or files with --corefile instead"
    )
}

/// Of the Services with the label, the one that pods ask: the one that people name, that of the usual name, or the only one.
///
/// # Errors
/// It is not known which one it is.
pub(super) fn asked_by_pods(
    mut services: Vec<Service>,
    wanted: Option<&str>,
) -> Result<Option<Service>, String> {
    services.retain(may_be_asked);
    let full_name = |service: &Service| {
        format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
    };
    let is_wanted = |service: &Service| {
        wanted.is_some_and(|name| name == service.name_any() || name == full_name(service))
    };
    let usual = format!("{USUAL_NAMESPACE}/{KUBE_DNS}");
    // A name without a namespace is that of the usual one first: others may have a Service of this name too.
    services.sort_by_cached_key(|service| {
        let is_elsewhere = service.namespace().as_deref() != Some(USUAL_NAMESPACE);
        (!is_wanted(service), full_name(service) != usual, is_elsewhere, full_name(service))
    });
    let is_known = |first: &Service| is_wanted(first) || full_name(first) == usual;
    match &services[..] {
        [first, _, ..] if !is_known(first) => {
            let names: Vec<String> = services.iter().take(MAX_NAMED).map(full_name).collect();
            Err(format!(
                "{} Services have the label {LABEL}: {}: name the one that pods ask with --from-service NAMESPACE/NAME",
                services.len(),
                names.join(", ")
            ))
        }
        _ => Ok(services.into_iter().next()),
    }
}

/// Has it the label of cluster DNS?
pub(super) fn is_labelled(service: &Service) -> bool {
    service.labels().get(LABEL_KEY).is_some_and(|value| value == KUBE_DNS)
}

fn is_behind(template: &PodTemplateSpec, selector: &BTreeMap<String, String>) -> bool {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let has =
        |(key, value): (&String, &String)| labels.is_some_and(|it| it.get(key) == Some(value));
    !selector.is_empty() && selector.iter().all(has)
}

/// The names of the ConfigMaps that these pods mount.
fn mounted(workloads: &[Object]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for workload in workloads {
        let pods = &workload.value["spec"]["template"]["spec"];
        let volumes = pods["volumes"].as_array().into_iter().flatten();
        let maps = volumes.flat_map(config_maps);
        names.extend(maps.filter_map(|map| Some(map["name"].as_str()?.to_owned())));
        let containers = pods["containers"].as_array().into_iter().flatten();
        names.extend(containers.flat_map(config_maps_of_environment).map(str::to_owned));
        // Old versions of kube-dns read their ConfigMap from the API server.
        let containers = pods["containers"].as_array().into_iter().flatten();
        let words = containers.flat_map(|it| it["args"].as_array().into_iter().flatten());
        let words = words
            .filter_map(|word| word.as_str()?.trim_start_matches('-').strip_prefix("config-map="));
        names.extend(words.map(str::to_owned));
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
        is_named: false,
    }
}

fn unreadable(what: &str, error: &kube::Error) -> String {
    format!("its {what} cannot be read: {error}")
}

#[cfg(test)]
mod tests;
