//! Another exposure while pods run (K24): every pod shows the same cluster at once, and lists only what it does not hold.

use std::time::Duration;

use dataplane::source::api::{Options, Pace, Wanted};
use dataplane_core::Resource;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tests::control_plane::ControlPlane;
use tests::live::{Live, options};
use tests::objects::create_any;
use tests::scale::create_all;
use tests::scripted_api::ScriptedApi;

use super::api_scripted::{cluster_ip, shop};

fn config_map(exposure: &Value) -> Value {
    let document = json!({"format": 1, "exposure": exposure}).to_string();
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"namespace": "dns", "name": "clusterdns"}, "data": {"stable.json": document}})
}

fn of_tier(name: &str, address: &str, tier: &str) -> Value {
    let mut service = cluster_ip(name, address);
    service["metadata"]["labels"] = json!({ "tier": tier });
    service
}

#[test]
fn k24_another_exposure_takes_effect_on_all_pods_at_once_without_a_list_of_slices() {
    let api = ScriptedApi::start(&shop());
    api.put(of_tier("front", "10.96.0.31", "front"));
    api.put(of_tier("back", "10.96.0.32", "back"));
    api.put(config_map(&json!({})));
    let wanted =
        Wanted::ConfigMap { namespace: "dns".into(), name: "clusterdns".into(), mounted: None };
    // Lists that pods spread over an hour are not these.
    let pace = Pace::with_spread(Duration::from_secs(3600));
    let start = || {
        let options = Options { wanted: wanted.clone(), pace, ..options(api.kubeconfig()) };
        Live::with(options).expect("a data plane starts")
    };
    let pods = [start(), start()];
    for pod in &pods {
        pod.wait_until_ready();
        pod.wait_for("back.shop", &["10.96.0.32"]);
    }
    api.put(config_map(&json!({"serviceSelector": {"matchLabels": {"tier": "front"}}})));
    for pod in &pods {
        pod.wait_for_denial("back.shop", "NXDOMAIN");
        assert_eq!(pod.a("front.shop"), Ok(vec!["10.96.0.31".parse().expect("an address")]));
    }
    let (services, namespaces) = (api.lists("Service"), api.lists("Namespace"));

    // The label is known now: nothing is listed.
    api.put(config_map(&json!({"serviceSelector": {"matchLabels": {"tier": "back"}}})));
    for pod in &pods {
        pod.wait_for_denial("front.shop", "NXDOMAIN");
        assert_eq!(pod.a("back.shop"), Ok(vec!["10.96.0.32".parse().expect("an address")]));
        assert_eq!(pod.relists(Resource::EndpointSlices), 0);
    }
    assert_eq!((api.lists("Service"), api.lists("Namespace")), (services, namespaces));
    assert_eq!(api.lists("EndpointSlice"), pods.len());
}

/// Enough for lists of several pages.
const SERVICES: usize = 300;

/// `make bench SET=all` measures the same with 10,000 Services.
#[tokio::test]
async fn k24_beside_a_real_api_server_a_change_is_one_list_of_each_pod_and_all_follow() {
    let Some(plane) = ControlPlane::shared().await else { return };
    let namespace = plane.namespace("exposure").await;
    let (client, name) = (plane.client().await, namespace.name());
    let services = (0..SERVICES).map(|number| {
        let tier = if number % 2 == 0 { "even" } else { "odd" };
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("service-{number}"), "namespace": name,
                "labels": {"k24-tier": tier}},
            "spec": {"ports": [{"port": 80}]}})
    });
    create_all(&client, services).await;
    let mut map = config_map(&json!({}));
    map["metadata"]["namespace"] = name.into();
    create_any(&client, &map).await.expect("the API server takes it");
    let wanted =
        Wanted::ConfigMap { namespace: name.into(), name: "clusterdns".into(), mounted: None };
    let pace = Pace::with_spread(Duration::from_secs(3600));
    let start = || {
        let options = Options { wanted: wanted.clone(), pace, ..options(plane.kubeconfig()) };
        Live::with(options).expect("a data plane starts")
    };
    let pods = [start(), start()];
    let (even, odd) = (format!("service-0.{name}"), format!("service-1.{name}"));
    for pod in &pods {
        pod.wait_until_ready();
        pod.wait("both", || pod.a(&even).is_ok() && pod.a(&odd).is_ok());
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
    // The second data plane reads only what was kept for the first.
    for (shown, hidden, tier) in [(&even, &odd, "even"), (&odd, &even, "odd")] {
        let exposure = json!({"serviceSelector": {"matchLabels": {"k24-tier": tier}}});
        let patch = Patch::Merge(json!({"data": config_map(&exposure)["data"]}));
        maps.patch("clusterdns", &PatchParams::default(), &patch).await.expect("a patch");
        for pod in &pods {
            pod.wait_for_denial(hidden, "NXDOMAIN");
            assert!(pod.a(shown).is_ok(), "in one step");
            let lists = [Resource::Services, Resource::Namespaces, Resource::EndpointSlices];
            assert_eq!(lists.map(|resource| pod.relists(resource)), [1, 1, 0]);
        }
    }
}
