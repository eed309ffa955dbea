//! Another exposure while pods run (K24): every pod shows the same cluster at once, and lists only what it does not hold.

use std::time::Duration;

use dataplane::source::api::{Options, Pace, Wanted};
use dataplane_core::Resource;
use serde_json::{Value, json};
use tests::live::{Live, options};
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
    // What spreads lists out over an hour leaves these alone.
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
