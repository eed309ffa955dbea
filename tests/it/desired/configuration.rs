//! The ConfigMap, which the planes share, and what Prometheus asks for, which must be what pods serve.

use k8s_openapi::api::core::v1::ConfigMap;
use operator::decide::plan::CanaryPod;

use super::*;

#[test]
fn a_canary_is_in_the_config_map_while_there_is_one() {
    let data = |canary: Option<&str>| {
        let desired = desired(&dns("{}"), &observed(), |plan| {
            plan.rollout.stable = "S".to_owned();
            plan.rollout.canary = canary.map(str::to_owned);
            plan.rollout.state.canary_pod = canary.map(|_| CanaryPod {
                name: "p".to_owned(),
                uid: "u".to_owned(),
                ..CanaryPod::default()
            });
        });
        object::<ConfigMap>(&desired, Kind::ConfigMap).data.unwrap()
    };
    assert!(data(None).keys().eq(["rollout.json", "stable.json"]));
    let data = data(Some("C"));
    assert_eq!((data["stable.json"].as_str(), data["canary.json"].as_str()), ("S", "C"));
    let state: serde_json::Value = serde_json::from_str(&data["rollout.json"]).unwrap();
    assert_eq!(state["canaryPod"], serde_json::json!({"name": "p", "uid": "u"}));
}

#[test]
fn what_a_pod_is_given_is_a_configuration_that_it_reads() {
    for (name, dns) in examples() {
        let desired = desired(&dns, &observed(), |_| ());
        let data = object::<ConfigMap>(&desired, Kind::ConfigMap).data.unwrap();
        let (_, unknown) =
            Config::from_json(&data["stable.json"]).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(unknown.is_empty(), "{name}");
    }
}

#[test]
fn prometheus_gets_what_its_kinds_are_there_for_and_asked_for() {
    let kinds = |spec: &str, is_there: bool| {
        let mut observed = observed();
        observed.offers.pod_monitor = is_there;
        observed.offers.prometheus_rule = is_there;
        let desired = desired(&dns(spec), &observed, |_| ());
        [Kind::PodMonitor, Kind::PrometheusRule].map(|kind| desired.get(kind).is_some())
    };
    assert_eq!(kinds("{}", true), [true, true]);
    assert_eq!(kinds("{}", false), [false, false]);
    assert_eq!(kinds("{metrics: {podMonitor: false}}", true), [false, false], "its alerts need it");
    assert_eq!(kinds("{metrics: {prometheusRule: false}}", true), [true, false]);
}
