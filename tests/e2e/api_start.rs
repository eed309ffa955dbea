//! What is answered before the data is there, and where the configuration comes from (K1, E43-E46, G148).

use std::time::Duration;

use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tests::control_plane::ControlPlane;
use tests::fault_proxy::{Fault, FaultProxy, Link, Requests};
use tests::live::{Live, options};
use tests::objects::create_any;

use dataplane::source::api::{Options, Wanted};
use dataplane_core::Resource;
use k8s_openapi::api::core::v1::ConfigMap;

use super::api_objects::{at, headless, service, slice};

fn config_map(namespace: &str, stable: &Value) -> Value {
    let data = json!({"stable.json": stable.to_string()});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
           "metadata": {"name": "clusterdns", "namespace": namespace}})
}

fn wanted(namespace: &str, mounted: Option<std::path::PathBuf>) -> Wanted {
    Wanted::ConfigMap { namespace: namespace.into(), name: "clusterdns".into(), mounted }
}

async fn patch(plane: &ControlPlane, namespace: &str, data: Value) {
    let maps: Api<ConfigMap> = Api::namespaced(plane.client().await, namespace);
    let patch = json!({"data": data});
    let patched = maps.patch("clusterdns", &PatchParams::default(), &Patch::Merge(&patch)).await;
    patched.expect("the API server takes a ConfigMap");
}

#[tokio::test]
async fn k1_without_the_api_server_nothing_of_ours_is_denied_and_the_rest_is_answered() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("start").await;
    let proxy = FaultProxy::start(plane).await;
    let address = service(&plane.client().await, namespace.name(), "cart").await;
    proxy.link(Link::Cut);

    let live = Live::start(proxy.kubeconfig());
    let cart = format!("cart.{}", namespace.name());

    let text = live.ask(&format!("{cart}.svc.cluster.local. A"));
    assert!(text.status.contains("SERVFAIL") && !text.status.contains(" aa"), "{text}");
    assert!(text.to_string().contains("EDE: 14"), "{text}");
    assert_eq!(live.a("never.there"), Err("SERVFAIL".into()));
    assert!(live.ask("localhost. A").to_string().contains("127.0.0.1"));
    // A name of others with RD=1 goes to the default group, which has no server here (N16); the reply does not say "not
    // ready".
    assert!(!live.ask("www.example.org. A").to_string().contains("EDE: 14"));
    live.wait("the reason", || live.trouble(Resource::Services).is_some());
    let reasons = live.why_not_ready().join("\n");
    assert!(reasons.contains("services") && reasons.contains("not reached"), "{reasons}");

    proxy.heal();
    live.wait_for(&cart, &[&address]);
    live.wait_until_ready();
    assert_eq!(
        live.metric("clusterdns_data_source{resource=\"services\",source=\"live\"}"),
        Some(1.0)
    );
}

#[tokio::test]
async fn e44_without_the_configmap_nothing_is_forwarded_or_denied() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("config").await;
    let name = namespace.name();
    let client = plane.client().await;
    let address = service(&client, name, "cart").await;

    let wanted = wanted(name, None);
    let live = Live::with(Options { wanted, ..options(plane.kubeconfig()) }).expect("a start");

    for question in [
        "kubernetes.default.svc.cluster.local. A",
        "www.example.org. A",
        "1.0.0.10.in-addr.arpa. PTR",
    ] {
        let text = live.ask(question);
        assert!(text.status.contains("SERVFAIL") && text.to_string().contains("EDE: 14"), "{text}");
    }
    assert!(live.ask("localhost. A").to_string().contains("127.0.0.1"));
    let reasons = live.why_not_ready().join("\n");
    assert!(reasons.contains(&format!("there is no ConfigMap {name}/clusterdns")), "{reasons}");

    let stable = json!({"format": 1, "domain": "corp.test", "upstreams": "none"});
    create_any(&client, &config_map(name, &stable)).await.expect("created");
    live.wait_until_ready();
    let found = live.ask(&format!("cart.{name}.svc.corp.test. A"));
    assert!(found.to_string().contains(&address), "{found}");
    assert!(live.ask("www.example.org. A").status.contains("REFUSED"));
    assert_eq!(live.status().read().role, "stable");
}

#[tokio::test]
async fn e44_e46_a_bad_or_deleted_configmap_is_reported_and_changes_nothing() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("config").await;
    let name = namespace.name();
    let client = plane.client().await;
    let good =
        json!({"format": 1, "hosts": [{"name": "a.corp.example", "addresses": ["192.0.2.1"]}]});
    create_any(&client, &config_map(name, &good)).await.expect("created");
    let wanted = wanted(name, None);
    let live = Live::with(Options { wanted, ..options(plane.kubeconfig()) }).expect("a start");
    live.wait_until_ready();
    let is_served = || live.ask("a.corp.example. A").to_string().contains("192.0.2.1");
    assert!(is_served());

    let bad = json!({"format": 1, "stubDomains": [{"domain": "svc.cluster.local", "group": {"servers": [{"ip": "10.0.0.1", "port": 53}]}}]});
    patch(plane, name, json!({"stable.json": bad.to_string()})).await;
    live.wait("the refusal", || live.status().read().rejection.is_some());
    assert!(is_served() && live.why_not_ready().is_empty());
    assert_eq!(live.metric("clusterdns_config_is_rejected"), Some(1.0));

    patch(plane, name, json!({"stable.json": ""})).await;
    live.wait("the refusal", || live.status().read().rejections == 2);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
    maps.delete("clusterdns", &DeleteParams::default()).await.expect("deleted");
    live.wait("the loss", || live.status().read().rejections == 3);
    assert!(is_served() && live.why_not_ready().is_empty());

    create_any(&client, &config_map(name, &good)).await.expect("created again");
    live.wait("the good one", || live.status().read().rejection.is_none());
    assert!(is_served());
}

#[tokio::test]
async fn a_mounted_copy_is_used_when_the_api_server_is_away_at_the_start() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let proxy = FaultProxy::start(plane).await;
    proxy.link(Link::Hung);
    let folder = tests::scratch::Scratch::new("mounted").expect("a folder");
    let stable =
        json!({"format": 1, "hosts": [{"name": "a.corp.example", "addresses": ["192.0.2.1"]}]});
    folder.write("stable.json", stable.to_string()).expect("written");

    let wanted = wanted("nowhere", Some(folder.path().to_owned()));
    let live = Live::with(Options { wanted, ..options(proxy.kubeconfig()) }).expect("a start");

    assert!(live.ask("a.corp.example. A").to_string().contains("192.0.2.1"));
    assert_eq!(live.a("kubernetes.default"), Err("SERVFAIL".into()));
    assert!(!live.why_not_ready().is_empty());
}

#[tokio::test]
async fn only_the_pod_of_the_canary_runs_it() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("canary").await;
    let name = namespace.name();
    let host = |address: &str| json!({"format": 1, "hosts": [{"name": "a.corp.example", "addresses": [address]}]});
    let rollout = json!({"stable": "1", "canary": "2", "canaryPod": {"name": "dns-1", "uid": "uid-1"},
                         "startedAt": "2026-01-01T00:00:00Z", "observeSeconds": 60});
    let mut map = config_map(name, &host("192.0.2.1"));
    map["data"]["canary.json"] = host("192.0.2.2").to_string().into();
    map["data"]["rollout.json"] = rollout.to_string().into();
    create_any(&plane.client().await, &map).await.expect("created");
    let start = |uid: &str| {
        let pod_uid = Some(uid.to_owned());
        let options =
            Options { wanted: wanted(name, None), pod_uid, ..options(plane.kubeconfig()) };
        Live::with(options).expect("a start")
    };
    let (chosen, other) = (start("uid-1"), start("uid-2"));
    let served =
        |live: &Live, address: &str| live.ask("a.corp.example. A").to_string().contains(address);
    assert!(served(&chosen, "192.0.2.2") && served(&other, "192.0.2.1"));
    assert_eq!(chosen.status().read().role, "canary");

    // Promoted: every pod runs what was tried.
    let promoted = host("192.0.2.2").to_string();
    patch(plane, name, json!({"stable.json": promoted, "canary.json": null, "rollout.json": null}))
        .await;
    other.wait("the promotion", || served(&other, "192.0.2.2"));
    chosen.wait("the end of the canary", || chosen.status().read().role == "stable");
    assert!(served(&chosen, "192.0.2.2"));
}

#[tokio::test]
async fn e43_verified_pod_records_take_effect_when_the_pods_are_known() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("verified").await;
    let name = namespace.name();
    let client = plane.client().await;
    let pod = json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "one", "namespace": name},
        "spec": {"containers": [{"name": "main", "image": "example.com/one"}]},
        "status": {"phase": "Running", "podIP": "10.244.9.1", "podIPs": [{"ip": "10.244.9.1"}]}});
    create_any(&client, &pod).await.expect("created");
    create_any(&client, &config_map(name, &json!({"format": 1}))).await.expect("created");
    let proxy = FaultProxy::start(plane).await;
    let wanted = wanted(name, None);
    let live = Live::with(Options { wanted, ..options(proxy.kubeconfig()) }).expect("a start");
    live.wait_until_ready();
    let answers = |address: &str| {
        let text = live.ask(&format!("{address}.{name}.pod.cluster.local. A"));
        text.status.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(
        (answers("10-244-9-1"), answers("10-244-9-2")),
        ("NOERROR".into(), "NOERROR".into())
    );
    assert_eq!(proxy.count(&Requests::to("/api/v1/pods")), 0, "Pods are not read without need");

    proxy.fault(Requests::to("/api/v1/pods"), Fault::status(403));
    patch(
        plane,
        name,
        json!({"stable.json": json!({"format": 1, "podRecords": "Verified"}).to_string()}),
    )
    .await;
    live.wait("the refusal", || {
        live.trouble(Resource::Pods).is_some_and(|text| text.contains("403"))
    });
    assert_eq!(answers("10-244-9-2"), "NOERROR", "the old setting until the Pods are known");
    assert!(live.why_not_ready().is_empty(), "readiness never drops for a configuration");

    proxy.heal();
    live.wait("verified", || answers("10-244-9-2") == "NXDOMAIN");
    assert_eq!(answers("10-244-9-1"), "NOERROR");

    patch(plane, name, json!({"stable.json": json!({"format": 1}).to_string()})).await;
    live.wait("insecure again", || answers("10-244-9-2") == "NOERROR");
    live.wait("no Pods", || live.metric("clusterdns_objects{resource=\"pods\"}") == Some(0.0));
    let before = proxy.count(&Requests::to("/api/v1/pods"));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(proxy.count(&Requests::to("/api/v1/pods")), before);
}

#[tokio::test]
async fn e5_another_exposure_takes_over_in_one_step_when_every_object_was_read_again() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("exposure").await;
    let name = namespace.name();
    let client = plane.client().await;
    let address = service(&client, name, "cart").await;
    create_any(&client, &config_map(name, &json!({"format": 1}))).await.expect("created");
    let proxy = FaultProxy::start(plane).await;
    let wanted = wanted(name, None);
    let live = Live::with(Options { wanted, ..options(proxy.kubeconfig()) }).expect("a start");
    live.wait_until_ready();
    let cart = format!("cart.{name}");
    live.wait_for(&cart, &[&address]);

    // The list that the change needs fails for a while: nothing changes for clients, and events are applied.
    proxy.fault(Requests::to("/api/v1/services").lists(), Fault::status(500));
    let hidden =
        json!({"format": 1, "exposure": {"serviceSelector": {"matchLabels": {"dns": "on"}}}});
    patch(plane, name, json!({"stable.json": hidden.to_string()})).await;
    live.wait("the failure", || live.trouble(Resource::Services).is_some());
    assert_eq!(live.a(&cart), Ok(vec![address.parse().expect("an address")]));
    assert!(live.why_not_ready().is_empty());

    proxy.heal();
    live.wait_for_denial(&cart, "NXDOMAIN");
    live.wait("the telling", || {
        let exposure = live.status().read().running.document["exposure"].clone();
        exposure["serviceSelector"]["matchLabels"]["dns"] == "on"
    });
}

#[tokio::test]
async fn e5_leaving_verified_pod_records_keeps_old_answers_until_the_lists_are_complete() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("leaves").await;
    let name = namespace.name();
    let client = plane.client().await;
    let pod = json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "one", "namespace": name},
        "spec": {"containers": [{"name": "main", "image": "example.com/one"}]},
        "status": {"phase": "Running", "podIP": "10.244.8.1", "podIPs": [{"ip": "10.244.8.1"}]}});
    create_any(&client, &pod).await.expect("created");
    headless(&client, name, "db").await;
    let made = slice(name, "db", "db-a", &[at("10.244.8.7")]);
    create_any(&client, &made).await.expect("created");
    let verified = json!({"format": 1, "podRecords": "Verified"});
    create_any(&client, &config_map(name, &verified)).await.expect("created");
    let proxy = FaultProxy::start(plane).await;
    let wanted = wanted(name, None);
    let live = Live::with(Options { wanted, ..options(proxy.kubeconfig()) }).expect("a start");
    live.wait_until_ready();
    // A Pod, no Pod, an endpoint, and an address outside of the cluster, which cannot be a Pod's.
    let answers = || {
        let pods = ["10-244-8-1", "10-244-8-2"]
            .map(|address| live.ask(&format!("{address}.{name}.pod.cluster.local. A")));
        let addresses = ["7.8.244.10", "9.2.0.192"]
            .map(|address| live.ask(&format!("{address}.in-addr.arpa. PTR")));
        pods.into_iter().chain(addresses).map(|text| text.to_string()).collect::<Vec<_>>()
    };
    let before = answers();
    let has = |number: usize, what: &str| before[number].contains(what);
    assert!(has(0, "10.244.8.1") && has(1, "NXDOMAIN") && has(2, "db."), "{before:#?}");

    let lists = Requests::to("/api/v1/services").lists();
    proxy.fault(lists.clone(), Fault::status(500));
    let count = proxy.count(&lists);
    // A label that was not kept: Services are listed again for it. A list of namespaces by name would take effect at
    // once.
    let hidden = json!([{"key": "example.com/hidden", "operator": "DoesNotExist"}]);
    let exposure = json!({"serviceSelector": {"matchExpressions": hidden}});
    let insecure = json!({"format": 1, "exposure": exposure, "podRecords": "Insecure"});
    patch(plane, name, json!({"stable.json": insecure.to_string()})).await;
    live.wait("two failures", || proxy.count(&lists) >= count + 2);
    assert_eq!(answers(), before);
    assert!(live.why_not_ready().is_empty());

    proxy.heal();
    // Kinds that are no longer read are not waited for.
    proxy.fault(Requests::to("/api/v1/pods"), Fault::status(403));
    live.wait("insecure", || answers()[1].contains("10.244.8.2"));
    live.wait("no Pods", || live.metric("clusterdns_objects{resource=\"pods\"}") == Some(0.0));
    assert!(live.why_not_ready().is_empty());
}

#[tokio::test]
async fn k2_e51_e52_a_start_without_the_api_server_answers_from_the_snapshot() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("warm").await;
    let name = namespace.name();
    let client = plane.client().await;
    let address = service(&client, name, "cart").await;
    let config = json!({"format": 1, "ttlSeconds": 9});
    create_any(&client, &config_map(name, &config)).await.expect("created");
    let proxy = FaultProxy::start(plane).await;
    let folder = tests::scratch::Scratch::new("state").expect("a folder");
    let options = Options {
        wanted: wanted(name, None),
        state_dir: Some(folder.path().to_owned()),
        ..options(proxy.kubeconfig())
    };
    let first = Live::with(options.clone()).expect("a start");
    first.wait_until_ready();
    first.wait("a snapshot", || first.metric("clusterdns_snapshot_writes_total") >= Some(1.0));
    // E52: the age of what is on disk.
    assert!(first.metric("clusterdns_snapshot_age_seconds").is_some());
    drop(first);

    proxy.link(Link::Cut);
    let second = Live::with(options).expect("a start");
    assert_eq!(second.why_not_ready(), [""; 0]);
    let text = second.ask(&format!("cart.{name}.svc.cluster.local. A")).to_string();
    assert!(text.contains(&format!(" 9 A {address}")) && text.contains("EDE: 3"), "{text}");
    // E51: where the data comes from.
    let snapshot = "clusterdns_data_source{resource=\"services\",source=\"snapshot\"}";
    assert_eq!(second.metric(snapshot), Some(1.0));

    let other = service(&client, name, "other").await;
    proxy.heal();
    second.wait_for(&format!("other.{name}"), &[&other]);
    second.wait("live data", || {
        let text = second.ask(&format!("cart.{name}.svc.cluster.local. A")).to_string();
        text.contains(&address) && !text.contains("EDE")
    });
}
