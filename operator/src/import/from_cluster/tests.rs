//! Which Service, workloads and ConfigMaps of a cluster are read.

use serde_json::json;

use super::*;
use crate::fixtures::api::{self, Reply};

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
    api::client(move |asked| {
        let mut parts = asked.path.trim_start_matches("/api/v1/").split('/');
        let namespace = (parts.next() == Some("namespaces")).then(|| parts.next()).flatten();
        let name = namespace.and_then(|_| parts.nth(1));
        let of = |it: &&serde_json::Value| {
            namespace.is_none_or(|at| it["metadata"]["namespace"] == at)
                && name.is_none_or(|name| it["metadata"]["name"] == name)
        };
        let mut found = all.iter().filter(of);
        match name {
            Some(_) => Reply::found(found.next()),
            None => Reply::list(found.take(500).collect::<Vec<_>>()),
        }
    })
}

async fn found(services: &[(&str, &str, &str)], wanted: Option<&str>) -> Result<String, String> {
    let wanted = Wanted { source: None, target: wanted };
    let service = super::service(&server_of(services), wanted).await?;
    Ok(format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any()))
}

#[tokio::test]
async fn who_may_edit_another_namespace_does_not_choose_the_service_that_is_imported() {
    let names: Vec<String> = (0..499).map(|number| format!("a{number:03}")).collect();
    // A page of headless Services, which do not count, and one Service with an address.
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

#[tokio::test]
async fn the_service_that_people_name_as_the_source_is_the_one_that_is_imported() {
    let services = [
        ("kube-system", "a", "10.96.0.10"),
        ("kube-system", "b", "10.96.0.11"),
        ("c", "d", "None"),
    ];
    let from = async |source| {
        let wanted = Wanted { source: Some(source), target: Some("dns-trial") };
        super::service(&server_of(&services), wanted).await.map(|service| service.name_any())
    };
    let why = found(&services, Some("dns-trial")).await.unwrap_err();
    assert!(
        why.contains(
            "kube-system/a, kube-system/b: name the one that pods ask with --from-service"
        ),
        "{why}"
    );
    assert_eq!(from("b").await.as_deref(), Ok("b"));
    assert_eq!(from("kube-system/a").await.as_deref(), Ok("a"));
    assert!(from("x").await.unwrap_err().contains("no Service kube-system/x"));
    assert!(from("c/d").await.unwrap_err().contains("it is headless"));
}

#[tokio::test]
async fn o12_budgets_that_select_the_pods_of_the_server_are_read_where_that_is_allowed() {
    let budget = |name: &str, label: &str| {
        json!({"metadata": {"name": name, "namespace": "kube-system"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"k8s-app": label}}}})
    };
    let all = [budget("coredns", "kube-dns"), budget("metrics", "metrics-server")];
    let labels = BTreeMap::from([("k8s-app".to_owned(), "kube-dns".to_owned())]);
    let mut cut = Vec::new();
    let client = api::client(move |_| Reply::list(all.iter().collect::<Vec<_>>()));
    let found = budgets(&client, "kube-system", &labels, &mut cut).await;
    assert_eq!(found.iter().map(Object::name).collect::<Vec<_>>(), ["coredns"]);
    assert!(cut.is_empty(), "{cut:?}");
    let refusing = api::client(|_| Reply::found(None::<&serde_json::Value>));
    assert!(budgets(&refusing, "kube-system", &labels, &mut cut).await.is_empty());
    assert!(cut[0].contains("its PodDisruptionBudgets cannot be read"), "{cut:?}");
}

/// Lists of `pages` pages, each with as many Deployments as it is asked for.
async fn listed(pages: usize) -> (Vec<Deployment>, Vec<String>) {
    let mut cut = Vec::new();
    let client = api::of_pages(pages);
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
