//! A Service that was deleted, reconcile by reconcile.

use super::super::deleted::last_seen;
use super::*;
use crate::decide::config_map;
use crate::decide::plan::Plan;
use crate::desired::{Desired, Kind};
use serde_json::Value;

/// What is decided is written, as the operator does.
pub(super) fn reconcile(
    observed: &mut Observed,
    dns: &ClusterDNS,
    seconds: i64,
) -> Result<Plan, &'static str> {
    let plan = crate::decide::plan(dns, &config(dns), observed, at(seconds));
    let plan = plan.map_err(|refusal| refusal.reason)?;
    write(observed, &plan.rollout);
    Ok(plan)
}

/// The Service that is applied.
pub(super) fn applied(observed: &Observed, dns: &ClusterDNS, plan: &Plan) -> Option<Value> {
    let config = config(dns);
    let settings = crate::fixtures::settings();
    let desired = Desired::build(dns, &config, observed, plan, &settings);
    desired.get(Kind::Service).map(|service| service.data["spec"].clone())
}

pub(super) fn reported(spec: &str, addresses: &[&str]) -> ClusterDNS {
    let mut dns = dns(spec);
    let cluster_ips = addresses.iter().map(|ip| (*ip).to_owned()).collect();
    dns.status = Some(crds::v1alpha1::ClusterDNSStatus { cluster_ips, ..Default::default() });
    dns
}

#[test]
fn o16_adopting_a_service_that_does_not_exist_is_refused() {
    assert_eq!(planned(ADOPT, &Observed::default()), Err("NothingToAdopt"));
    assert_eq!(planned("{}", &Observed::default()), Ok(ServicePlan::Own));
}

#[test]
fn o16_a_deleted_service_of_ours_is_applied_with_its_former_addresses() {
    for spec in ["{}", ADOPT] {
        let dns = dns(spec);
        let mut observed = Observed { service: Some(own_service()), ..Observed::default() };
        let plan = reconcile(&mut observed, &dns, 0).unwrap();
        let before = applied(&observed, &dns, &plan).unwrap();
        assert!(before.get("clusterIPs").is_none(), "the API server chose them: {before}");
        observed.service = None;
        for second in 1..3 {
            let plan = reconcile(&mut observed, &dns, second).unwrap();
            let again = applied(&observed, &dns, &plan).unwrap();
            assert_eq!(again["clusterIPs"], json!(["10.96.0.10"]), "{spec}");
        }
        observed.service = Some(own_service());
        let plan = reconcile(&mut observed, &dns, 3).unwrap();
        let after = applied(&observed, &dns, &plan).unwrap();
        assert_eq!(after["clusterIPs"], json!(["10.96.0.10"]), "or the field would be let go");
    }
}

#[test]
fn o16_a_service_deleted_while_the_spec_is_refused_is_created_again_as_it_was() {
    for (spec, service) in [("{}", own_service()), (ADOPT, switched())] {
        let mut observed = with(service.clone());
        reconcile(&mut observed, &dns(spec), 0).unwrap();
        assert_eq!(restorable(&observed), None, "it is there");
        observed.service = None;
        let again: Service = serde_json::from_value(restorable(&observed).unwrap()).unwrap();
        assert_eq!(again.spec, service.spec);
        assert_eq!(again.metadata.owner_references, service.metadata.owner_references);
    }
}

#[test]
fn o16_addresses_that_rollout_json_lost_are_those_of_the_status() {
    let dns = reported("{}", &["10.96.0.10", "fd00:96::a"]);
    let mut observed = Observed::default();
    let plan = reconcile(&mut observed, &dns, 0).unwrap();
    let again = applied(&observed, &dns, &plan).unwrap();
    assert_eq!(again["clusterIPs"], json!(["10.96.0.10", "fd00:96::a"]));
    assert_eq!(again["ipFamilyPolicy"], "RequireDualStack");
}

#[test]
fn o16_a_deleted_adopted_service_is_created_as_it_was_and_stays_foreign() {
    let dns = dns(ADOPT);
    let mut service = switched();
    service.metadata.labels = Some([("app".to_owned(), "coredns".to_owned())].into());
    let mut observed = with(service.clone());
    reconcile(&mut observed, &dns, 0).unwrap();
    observed.service = None;
    let plan = reconcile(&mut observed, &dns, 1).unwrap();
    let ServicePlan::Recreated { labels, manifest } = &plan.service else { panic!("{plan:?}") };
    assert_eq!(labels, &kube_dns_label());
    assert_eq!(applied(&observed, &dns, &plan), None, "nothing of it is ours");
    let mut again: Service = serde_json::from_value(manifest.clone()).unwrap();
    assert_eq!((&again.spec, again.status.as_ref()), (&service.spec, None));
    assert_eq!(again.metadata.labels, service.metadata.labels);
    assert_eq!(again.metadata.owner_references, None);
    assert_eq!(again.metadata.resource_version, None);
    // Adopted as before: our key and annotation are in it.
    again.metadata.uid = Some("another".to_owned());
    observed.service = Some(again);
    let plan = reconcile(&mut observed, &dns, 2).unwrap();
    assert_eq!(plan.service, ServicePlan::Adopted { labels: kube_dns_label(), patch: None });
}

#[test]
fn o16_a_service_that_is_being_deleted_does_not_replace_its_last_state() {
    let dns = dns(ADOPT);
    let mut observed = with(switched());
    reconcile(&mut observed, &dns, 0).unwrap();
    let before = config_map::state(&observed).service;
    let service = observed.service.as_mut().unwrap();
    service.metadata.deletion_timestamp = Some(from(json!("2026-01-01T00:00:00Z")));
    assert_eq!(last_seen(&dns, &observed), before);
}

#[test]
fn o16_what_an_adopted_service_was_being_unknown_the_refusal_has_the_command() {
    let dns = reported(ADOPT, &["10.96.0.10"]);
    let refusal = plan(&dns, &Observed::default(), at(0)).unwrap_err();
    assert_eq!(refusal.reason, "ServiceGone");
    assert!(refusal.message.contains("pods still ask 10.96.0.10"), "{}", refusal.message);
    assert!(refusal.message.contains("kubectl patch clusterdns default"), "{}", refusal.message);
}

#[test]
fn o16_a_service_of_other_addresses_does_not_make_the_known_ones_forgotten() {
    let mut observed = with(switched());
    reconcile(&mut observed, &dns(ADOPT), 0).unwrap();
    let spec = observed.service.as_mut().unwrap().spec.as_mut().unwrap();
    spec.cluster_ip = Some("10.96.7.7".to_owned());
    spec.cluster_ips = Some(vec!["10.96.7.7".to_owned()]);
    reconcile(&mut observed, &dns(ADOPT), 1).unwrap();
    assert_eq!(lost_addresses(&dns(ADOPT), &observed), ["10.96.0.10"]);
    assert_eq!(config_map::state(&observed).service.cluster_ips, ["10.96.0.10"]);
    // A person writes the new addresses into the spec.
    let meant = dns("{service: {adopt: true, clusterIPs: [10.96.7.7]}}");
    reconcile(&mut observed, &meant, 2).unwrap();
    assert_eq!(config_map::state(&observed).service.cluster_ips, ["10.96.7.7"]);
    assert_eq!(lost_addresses(&meant, &observed), [] as [String; 0]);
}

/// Adopted, given back, and the reconcile after that.
pub(super) fn given_back() -> Observed {
    let mut observed = with(switched());
    reconcile(&mut observed, &dns(ADOPT), 0).unwrap();
    let plan = reconcile(&mut observed, &dns("{}"), 1).unwrap();
    let patch = Some(SelectorPatch { resource_version: "100".to_owned(), add: false });
    assert_eq!(plan.service, ServicePlan::Released { labels: kube_dns_label(), patch });
    observed.service = Some(kube_dns());
    reconcile(&mut observed, &dns("{}"), 2).unwrap();
    observed
}

#[test]
fn o16_no_service_of_ours_takes_the_name_of_one_that_was_given_back_and_deleted() {
    let mut observed = given_back();
    observed.service = None;
    for second in 3..5 {
        let refusal = plan(&dns("{}"), &observed, at(second)).unwrap_err();
        assert_eq!(refusal.reason, "ServiceGone");
        assert!(refusal.message.contains("pods still ask 10.96.0.10"), "{}", refusal.message);
        assert_eq!(reconcile(&mut observed, &dns("{}"), second), Err("ServiceGone"));
        assert_eq!(restorable(&observed), None, "nor while the spec is refused");
    }
    let ours = dns("{service: {clusterIPs: [10.96.0.10]}}");
    assert_eq!(
        plan(&ours, &observed, at(5)).unwrap(),
        ServicePlan::Own,
        "it has the address that clients ask"
    );
    // The other server creates it again, with any addresses: it is its own.
    observed.service = Some(replaced("another", "10.96.7.7", json!({"app": "x"})));
    let released = ServicePlan::Released { labels: BTreeMap::new(), patch: None };
    assert_eq!(reconcile(&mut observed, &dns("{}"), 5).unwrap().service, released);
    assert_eq!(lost_addresses(&dns("{}"), &observed), [] as [String; 0]);
    assert_eq!(config_map::state(&observed).service.cluster_ips, ["10.96.7.7"]);
}

#[test]
fn o16_a_service_that_was_never_adopted_may_be_deleted_for_one_of_ours() {
    let mut observed = with(kube_dns());
    reconcile(&mut observed, &dns("{}"), 0).unwrap();
    observed.service = None;
    assert_eq!(reconcile(&mut observed, &dns("{}"), 1).unwrap().service, ServicePlan::Own);
}

#[test]
fn o16_a_service_given_back_and_deleted_comes_back_as_it_was_when_adopted_again() {
    let mut observed = given_back();
    observed.service = None;
    let plan = reconcile(&mut observed, &dns(ADOPT), 3).unwrap();
    let ServicePlan::Recreated { labels, manifest } = &plan.service else { panic!("{plan:?}") };
    assert_eq!(labels, &kube_dns_label());
    let mut again: Service = serde_json::from_value(manifest.clone()).unwrap();
    assert_eq!(again.spec, kube_dns().spec, "without our key: our pods may have lost its labels");
    (again.metadata.uid, again.metadata.resource_version) =
        (Some("another".to_owned()), Some("200".to_owned()));
    observed.service = Some(again);
    reconcile(&mut observed, &dns(ADOPT), 4).unwrap();
    let state = config_map::state(&observed).service;
    assert!(!state.is_given_back && !state.is_ours, "{state:?}");
}

#[test]
fn o16_an_adopted_service_deleted_before_it_is_given_back_keeps_its_addresses() {
    let mut observed = with(switched());
    reconcile(&mut observed, &dns(ADOPT), 0).unwrap();
    observed.foreign_pods.clear();
    assert_eq!(reconcile(&mut observed, &dns("{}"), 1), Err("NoOtherServer"));
    observed.service = None;
    let plan = reconcile(&mut observed, &dns("{}"), 2).unwrap();
    let again = applied(&observed, &dns("{}"), &plan).unwrap();
    assert_eq!(again["clusterIPs"], json!(["10.96.0.10"]));
}

/// Its ConfigMap as `kubectl delete --cascade=orphan` leaves it, as another ClusterDNS of this name sees it.
pub(super) fn created_again(observed: &mut Observed, spec: &str) -> ClusterDNS {
    let mut again = dns(spec);
    again.metadata.uid = Some("another".to_owned());
    let map = observed.config_map.take().unwrap();
    let service = observed.service.as_ref();
    observed.config_map = Some(crate::observe::believed(map, &again, service));
    again
}

#[test]
fn o15_what_a_deleted_clusterdns_did_to_the_service_is_no_reset_for_the_next_one() {
    let mut observed = with(switched());
    reconcile(&mut observed, &dns(ADOPT), 0).unwrap();
    assert!(config_map::state(&observed).switch.is_made);
    let documents = config_map::state(&observed).stable;
    // Our key was taken out of it, because its ClusterDNS was gone.
    observed.service = Some(kube_dns());
    let again = created_again(&mut observed, ADOPT);
    assert_eq!(reset_by(&again, &observed, at(1)), None);
    assert_eq!(config_map::state(&observed).stable, documents, "pods run them");
    let plan = reconcile(&mut observed, &again, 1).unwrap();
    let (labels, patch) = (kube_dns_label(), patched(true));
    assert_eq!(plan.service, ServicePlan::Adopted { labels, patch }, "at once");
}

#[test]
fn o16_the_addresses_of_a_deleted_clusterdns_are_those_of_its_own_service_only() {
    for (spec, expected) in [
        ("{}", json!(["10.96.0.10"])),
        ("{service: {name: another}}", Value::Null),
        ("{service: {namespace: dns}}", Value::Null),
    ] {
        let mut observed = with(ours());
        reconcile(&mut observed, &dns("{}"), 0).unwrap();
        observed.service = None;
        let again = created_again(&mut observed, spec);
        let plan = reconcile(&mut observed, &again, 1).unwrap();
        assert_eq!(plan.service, ServicePlan::Own);
        let service = applied(&observed, &again, &plan).unwrap();
        assert_eq!(service.get("clusterIPs").cloned().unwrap_or_default(), expected, "{spec}");
    }
}

#[test]
fn o16_what_a_clusterdns_wrote_itself_counts_as_a_whole() {
    let mut observed = with(switched());
    reconcile(&mut observed, &dns(ADOPT), 0).unwrap();
    let mut map = observed.config_map.take().unwrap();
    map.metadata.owner_references = own_service().metadata.owner_references;
    assert_eq!(crate::observe::believed(map.clone(), &dns(ADOPT), None), map);
}

#[test]
fn o16_a_service_too_large_to_be_remembered_keeps_its_addresses_when_given_back() {
    let large = |mut service: Service| {
        let ranges = (0..9_000).map(|n| format!("192.0.2.{n}/32")).collect();
        service.spec.as_mut().unwrap().load_balancer_source_ranges = Some(ranges);
        service
    };
    let mut observed = with(large(switched()));
    reconcile(&mut observed, &dns(ADOPT), 0).unwrap();
    assert_eq!(config_map::state(&observed).service.manifest, None);
    reconcile(&mut observed, &dns("{}"), 1).unwrap();
    observed.service = Some(large(kube_dns()));
    reconcile(&mut observed, &dns("{}"), 2).unwrap();
    let last = config_map::state(&observed).service;
    assert!(last.is_given_back && last.cluster_ips == ["10.96.0.10"], "{last:?}");
}

/// Our Service, as the API server made it.
pub(super) fn ours() -> Service {
    let mut service = own_service();
    service.metadata.uid = Some("ours".to_owned());
    service.metadata.labels = Some(crate::names::labels("default"));
    service.spec.as_mut().unwrap().selector = Some(crate::names::selector("default"));
    service
}

/// As another client writes it in place of ours: without owner and labels, and with its own selector.
fn replaced(uid: &str, address: &str, selector: Value) -> Service {
    from(
        json!({"metadata": {"name": "kube-dns", "namespace": "kube-system", "uid": uid, "resourceVersion": "300"},
        "spec": {"clusterIP": address, "clusterIPs": [address], "selector": selector}}),
    )
}

#[test]
fn o16_our_service_without_owner_and_labels_is_put_back_as_after_any_edit() {
    for (spec, selector) in [
        ("{}", json!({"app": "x"})),
        (ADOPT, json!({"app": "x"})),
        ("{}", json!({INSTANCE: "default"})),
    ] {
        let dns = dns(spec);
        let mut observed = with(ours());
        reconcile(&mut observed, &dns, 0).unwrap();
        let before = config_map::state(&observed).service;
        assert!(before.is_ours && before.uid == "ours", "{before:?}");
        observed.service = Some(replaced("ours", "10.96.0.10", selector));
        let plan = reconcile(&mut observed, &dns, 1).unwrap();
        assert_eq!(plan.service, ServicePlan::Own, "{spec}");
        let again = applied(&observed, &dns, &plan).unwrap();
        assert_eq!(again["selector"], json!({INSTANCE: "default"}));
        let after = config_map::state(&observed).service;
        assert_eq!(after, before, "not as the other client left it");
    }
}

#[test]
fn o16_what_others_created_in_place_of_our_service_is_not_given_back() {
    let dns = dns("{}");
    let mut observed = with(ours());
    reconcile(&mut observed, &dns, 0).unwrap();
    let before = config_map::state(&observed).service;
    for (address, selector) in [
        ("10.96.0.10", json!({"app": "x"})),
        ("10.96.7.7", json!({"app": "x"})),
        ("10.96.7.7", json!({"k8s-app": "kube-dns"})),
        ("10.96.7.7", json!({INSTANCE: "default"})),
    ] {
        observed.service = Some(replaced("another", address, selector.clone()));
        let refused = reconcile(&mut observed, &dns, 1);
        assert_eq!(refused, Err("ServiceReplaced"), "{address} {selector}");
        assert_eq!(last_seen(&dns, &observed), before, "{address} {selector}");
    }
    // A person deletes it, as the refusal says.
    observed.service = None;
    let plan = reconcile(&mut observed, &dns, 2).unwrap();
    let again = applied(&observed, &dns, &plan).unwrap();
    assert_eq!(again["clusterIPs"], json!(["10.96.0.10"]));
}

#[test]
fn o16_what_replaced_our_service_and_was_adopted_since_is_given_back() {
    let mut observed = with(ours());
    reconcile(&mut observed, &dns("{}"), 0).unwrap();
    let mut adopted = replaced("another", "10.96.7.7", json!({"app": "x", INSTANCE: "default"}));
    adopted.metadata.annotations = switched().metadata.annotations;
    observed.service = Some(adopted.clone());
    let plan = reconcile(&mut observed, &dns("{}"), 1).unwrap();
    let labels: BTreeMap<String, String> = [("app".to_owned(), "x".to_owned())].into();
    let patch = Some(SelectorPatch { resource_version: "300".to_owned(), add: false });
    assert_eq!(plan.service, ServicePlan::Released { labels, patch });
    observed.service = Some(replaced("another", "10.96.7.7", json!({"app": "x"})));
    let plan = reconcile(&mut observed, &dns("{}"), 2).unwrap();
    assert_eq!(plan.service, ServicePlan::Released { labels: BTreeMap::new(), patch: None });
}

#[test]
fn o16_a_service_that_lost_its_second_family_was_not_replaced() {
    for (spec, service) in [("{}", own_service()), (ADOPT, switched())] {
        let dns = dns(spec);
        let mut service = service;
        let both = ["10.96.0.10", "fd00:96::a"].map(str::to_owned);
        service.metadata.uid = Some("first".to_owned());
        service.spec.as_mut().unwrap().cluster_ips = Some(both.to_vec());
        let mut observed = with(service);
        reconcile(&mut observed, &dns, 0).unwrap();
        assert_eq!(config_map::state(&observed).service.cluster_ips, both);
        // The first address of an object stays, so a person took the second one away.
        let one = vec![both[0].clone()];
        observed.service.as_mut().unwrap().spec.as_mut().unwrap().cluster_ips = Some(one.clone());
        assert_eq!(lost_addresses(&dns, &observed), [""; 0], "{spec}");
        let uid = |observed: &mut Observed, uid: &str| {
            observed.service.as_mut().unwrap().metadata.uid = Some(uid.to_owned());
        };
        uid(&mut observed, "another");
        assert_eq!(lost_addresses(&dns, &observed), ["fd00:96::a"], "{spec}");
        uid(&mut observed, "first");
        reconcile(&mut observed, &dns, 1).unwrap();
        let last = config_map::state(&observed).service;
        assert_eq!(last.cluster_ips, one, "{spec}");
        let manifest = last.manifest.expect("the Service as it is now");
        assert_eq!(manifest.pointer("/spec/clusterIPs"), Some(&json!(one)), "{spec}");
    }
}
