//! What `--from-cluster` reads: the Service that pods ask, the workloads behind it, and the ConfigMaps that these mount.
//! Nothing is written there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec, Service};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::manifests::{Object, config_maps, config_maps_of_environment};
use crate::args::Cluster;
use crate::decide::adoption::is_local;
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
/// The DaemonSet of NodeLocal DNSCache, and the value of the label `k8s-app` of its pods.
const NODE_LOCAL: &str = "node-local-dns";
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
    /// Workloads and ConfigMaps of the DNS server.
    pub(super) objects: Vec<Object>,
    /// What was not read because there is too much of it, one sentence each.
    pub(super) cut: Vec<String>,
}

/// Reads it, or says why that cannot be read.
///
/// `wanted` is the Service that people name, which decides where several could be the one that pods ask.
pub(super) fn read(which: &Cluster, wanted: Option<&str>) -> Result<Found, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let answer =
        runtime.block_on(async { tokio::time::timeout(PATIENCE, ask(which, wanted)).await });
    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
}

async fn ask(which: &Cluster, wanted: Option<&str>) -> Result<Found, String> {
    let client = offline::client(which).await?;
    let service = service(&client, wanted).await?;
    let namespace = service.namespace().unwrap_or_default();
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    let mut found = Vec::new();
    let mut cut = Vec::new();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    for deployment in all(&client, &deployments, "Deployments", &mut cut).await? {
        let template = deployment.spec.as_ref().map(|spec| &spec.template);
        if template.is_some_and(|template| is_behind(template, &selector)) {
            found.push(object("Deployment", &namespace, &deployment.name_any(), &deployment));
        }
    }
    let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
    for daemon_set in all(&client, &daemon_sets, "DaemonSets", &mut cut).await? {
        let template = daemon_set.spec.as_ref().map(|spec| &spec.template);
        let label = BTreeMap::from([("k8s-app".to_owned(), NODE_LOCAL.to_owned())]);
        let is_node_local = daemon_set.name_any() == NODE_LOCAL
            || template.is_some_and(|template| is_behind(template, &label));
        if is_node_local || template.is_some_and(|template| is_behind(template, &selector)) {
            found.push(object("DaemonSet", &namespace, &daemon_set.name_any(), &daemon_set));
        }
    }
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    for name in mounted(&found) {
        let map = maps.get_opt(&name).await.map_err(|error| unreadable("ConfigMaps", &error))?;
        found.extend(map.map(|map| object("ConfigMap", &namespace, &name, &map)));
    }
    let is_local = is_local(&service);
    Ok(Found { service: (namespace, service.name_any()), is_local, selector, objects: found, cut })
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
async fn service(client: &Client, wanted: Option<&str>) -> Result<Service, String> {
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
         the one that pods ask with --service NAMESPACE/NAME, or files with --corefile instead"
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
    // Our own Service is not one to import, and a headless Service has no address that kubelet could write into pods.
    services.retain(|service| {
        let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
        !service.labels().contains_key("clusterdns.dev/instance")
            && service.name_any() != UPSTREAM
            && ip != Some("None")
    });
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
                "{} Services have the label {LABEL}: {}: name the one that pods ask with --service NAMESPACE/NAME",
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
mod tests {
    use serde_json::json;

    use super::*;

    fn service(namespace: &str, name: &str, ip: &str) -> Service {
        let metadata = json!({"namespace": namespace, "name": name});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"clusterIP": ip}})).unwrap()
    }

    fn chosen(names: &[(&str, &str)], wanted: Option<&str>) -> Result<Option<String>, String> {
        let all = names.iter().map(|(namespace, name)| service(namespace, name, "10.96.0.10"));
        Ok(asked_by_pods(all.collect(), wanted)?.map(|service| service.name_any()))
    }

    #[test]
    fn the_service_of_node_local_dns_cache_is_not_the_one_that_pods_ask() {
        let system = "kube-system";
        let beside = [(system, "coredns"), (system, UPSTREAM)];
        assert_eq!(chosen(&beside, None), Ok(Some("coredns".to_owned())));
        assert_eq!(chosen(&[(system, UPSTREAM)], None), Ok(None));
        let headless = vec![service(system, "a", "None"), service(system, "b", "10.96.0.10")];
        let found = asked_by_pods(headless, None).unwrap().map(|service| service.name_any());
        assert_eq!(found.as_deref(), Some("b"));
    }

    #[test]
    fn of_several_services_the_usual_or_the_named_one_is_taken() {
        let usual = [("a", "coredns"), ("kube-system", "kube-dns")];
        assert_eq!(chosen(&usual, None), Ok(Some("kube-dns".to_owned())));
        assert_eq!(chosen(&usual, Some("a/coredns")), Ok(Some("coredns".to_owned())));
        assert_eq!(chosen(&usual, Some("dns-trial")), Ok(Some("kube-dns".to_owned())));
        let several = [("a", "coredns"), ("b", "coredns")];
        assert_eq!(chosen(&several, Some("b/coredns")), Ok(Some("coredns".to_owned())));
        let why = chosen(&several, None).unwrap_err();
        assert!(why.contains("a/coredns, b/coredns: name the one"), "{why}");
        assert_eq!(chosen(&[], None), Ok(None));
    }

    /// An API server that has these Services, in the order of their namespaces, each with an address or headless.
    fn server_of(services: &[(&str, &str, &str)]) -> Client {
        let item = |(namespace, name, ip): &(&str, &str, &str)| {
            json!({"metadata": {"namespace": namespace, "name": name, "labels": {"k8s-app": "kube-dns"}},
                "spec": {"clusterIP": ip}})
        };
        let all: Vec<serde_json::Value> = services.iter().map(item).collect();
        let server = tower::service_fn(move |request: hyper::Request<kube::client::Body>| {
            let path = request.uri().path().trim_start_matches("/api/v1/").to_owned();
            let mut parts = path.split('/');
            let namespace = (parts.next() == Some("namespaces")).then(|| parts.next()).flatten();
            let name = namespace.and_then(|_| parts.nth(1));
            let of = |it: &&serde_json::Value| {
                namespace.is_none_or(|at| it["metadata"]["namespace"] == at)
                    && name.is_none_or(|name| it["metadata"]["name"] == name)
            };
            let found: Vec<&serde_json::Value> = all.iter().filter(of).take(500).collect();
            let (code, body) = match (name, found.first()) {
                (None, _) => (
                    200,
                    json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": found}),
                ),
                (Some(_), Some(one)) => (200, (*one).clone()),
                (Some(_), None) => (
                    404,
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                    "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404}),
                ),
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let response = hyper::Response::builder().status(code).body(body).unwrap();
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        Client::new(server, "default")
    }

    async fn found(
        services: &[(&str, &str, &str)],
        wanted: Option<&str>,
    ) -> Result<String, String> {
        let service = super::service(&server_of(services), wanted).await?;
        Ok(format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any()))
    }

    #[tokio::test]
    async fn who_may_edit_another_namespace_does_not_choose_the_service_that_is_imported() {
        let names: Vec<String> = (0..499).map(|number| format!("a{number:03}")).collect();
        // A page of headless Services, which are none, and one with an address.
        let mut page: Vec<(&str, &str, &str)> =
            names.iter().map(|name| ("a", name.as_str(), "None")).collect();
        page.push(("a", "dns", "10.96.0.66"));
        let real = ("kube-system", "kube-dns", "10.96.0.10");
        let full = [&page[..], &[real]].concat();
        assert_eq!(found(&full, None).await.as_deref(), Ok("kube-system/kube-dns"));
        let named = [("a", "coredns", "10.96.0.66"), ("kube-system", "coredns", "10.96.0.10")];
        for wanted in [None, Some("coredns"), Some("kube-system/coredns")] {
            assert_eq!(found(&named, wanted).await.as_deref(), Ok("kube-system/coredns"));
        }
        assert_eq!(found(&named, Some("a/coredns")).await.as_deref(), Ok("a/coredns"), "named");
        let alone = [("a", "coredns", "10.96.0.66")];
        let why = found(&alone, None).await.unwrap_err();
        assert!(why.contains("(other namespaces have a/coredns): name the one"), "{why}");
        let openshift = [alone[0], ("openshift-dns", "dns-default", "10.96.0.10")];
        assert_eq!(found(&openshift, None).await.as_deref(), Ok("openshift-dns/dns-default"));
        // One that is made beside the one that is imported.
        assert_eq!(found(&full, Some("dns/trial")).await.as_deref(), Ok("kube-system/kube-dns"));
    }

    /// Lists of `pages` pages, each with as many Deployments as it is asked for.
    async fn listed(pages: usize) -> (Vec<Deployment>, Vec<String>) {
        let mut cut = Vec::new();
        let client = offline::server_of_pages(pages);
        let api: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
        let found = all(&client, &api, "Deployments", &mut cut).await.unwrap();
        (found, cut)
    }

    #[tokio::test]
    async fn workloads_are_read_page_by_page_and_what_is_beyond_the_bound_is_said() {
        let (found, cut) = listed(3).await;
        assert_eq!((found.len(), cut), (1_500, Vec::new()));
        let (found, cut) = listed(100).await;
        assert_eq!(found.len(), MAX_WORKLOADS);
        assert_eq!(cut, ["the first 5000 Deployments were looked at, and there are more"]);
    }

    #[test]
    fn config_maps_are_those_that_workloads_mount_or_name() {
        let workload = |spec| Object {
            file: String::new(),
            value: json!({"kind": "Deployment", "spec": {"template": {"spec": spec}}}),
            places: None,
            is_named: false,
        };
        let volumes = json!([{"name": "a", "configMap": {"name": "coredns"}}, {"name": "b", "hostPath": {"path": "/"}},
            {"name": "c", "projected": {"sources": [{"configMap": {"name": "custom"}}, {"secret": {"name": "s"}}]}}]);
        let workloads = [
            workload(json!({"containers": [], "volumes": volumes})),
            workload(json!({"containers": [{"args": ["--config-map=kube-dns"]}]})),
            workload(json!({"containers": [{"envFrom": [{"configMapRef": {"name": "env"}}],
                "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "one", "key": "a"}}}]}]})),
        ];
        assert!(mounted(&workloads).iter().eq(["coredns", "custom", "env", "kube-dns", "one"]));
    }
}
