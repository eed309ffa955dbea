//! The addresses of the spec beside those that clients know: an edit that was refused takes no effect by a deletion.

use super::super::deleted::last_seen;
use super::deleted::{applied, created_again, given_back, ours, reconcile, reported};
use super::*;
use crate::decide::config_map;

const OTHER: &str = "{service: {clusterIPs: [10.96.0.11]}}";

#[test]
fn o16_other_addresses_that_were_refused_take_no_effect_when_the_service_is_deleted() {
    let other_and_adopt = "{service: {adopt: true, clusterIPs: [10.96.0.11]}}";
    for (spec, edited, service) in [
        ("{}", OTHER, ours()),
        (ADOPT, other_and_adopt, ours()),
        // Adopted, and to be given back, but it is not yet.
        (ADOPT, OTHER, switched()),
    ] {
        let mut observed = with(service.clone());
        reconcile(&mut observed, &dns(spec), 0).unwrap();
        observed.service = None;
        let refusal = plan(&dns(edited), &observed, at(1)).unwrap_err();
        assert_eq!(
            (refusal.reason, refusal.field.as_str()),
            ("ClusterIPsDiffer", "spec.service.clusterIPs")
        );
        let again: Service = serde_json::from_value(restorable(&observed).unwrap()).unwrap();
        assert_eq!(again.spec, service.spec, "as it was: {edited}");
        // With the second family, as Kubernetes gives it to one that exists.
        let wider = dns("{service: {clusterIPs: [10.96.0.10, \"fd00:96::a\"]}}");
        assert_eq!(plan(&wider, &observed, at(2)).unwrap(), ServicePlan::Own, "{spec}");
    }
}

#[test]
fn o16_a_service_that_is_being_deleted_does_not_come_back_with_other_addresses() {
    let mut leaving = own_service();
    leaving.metadata.deletion_timestamp = Some(from(json!("2026-01-01T00:00:00Z")));
    assert_eq!(planned(OTHER, &with(leaving)), Err("ClusterIPsDiffer"));
}

#[test]
fn o16_where_rollout_json_is_lost_too_the_refusal_names_the_addresses_of_the_status() {
    let refusal = plan(&reported(OTHER, &["10.96.0.10"]), &Observed::default(), at(0)).unwrap_err();
    assert_eq!(refusal.reason, "ClusterIPsDiffer");
    assert!(refusal.message.contains("pods still ask 10.96.0.10"), "{}", refusal.message);
    let mut observed = Observed::default();
    let taken_back = reported("{}", &["10.96.0.10"]);
    let plan = reconcile(&mut observed, &taken_back, 1).unwrap();
    let service = applied(&observed, &taken_back, &plan).unwrap();
    assert_eq!(service["clusterIPs"], json!(["10.96.0.10"]));
}

/// Addresses that no Service had yet can be corrected.
#[test]
fn o16_addresses_that_no_client_knows_keep_nothing_from_another_choice() {
    assert_eq!(planned(OTHER, &Observed::default()), Ok(ServicePlan::Own));
    let mut observed = given_back();
    observed.service = None;
    assert_eq!(planned(OTHER, &observed), Err("ServiceGone"), "pods ask those of that server");
}

#[test]
fn o16_a_clusterdns_that_is_made_again_gets_the_addresses_that_it_asks_for() {
    let mut observed = with(ours());
    reconcile(&mut observed, &dns("{}"), 0).unwrap();
    observed.service = None;
    let again = created_again(&mut observed, OTHER);
    let plan = reconcile(&mut observed, &again, 1).unwrap();
    let service = applied(&observed, &again, &plan).unwrap();
    assert_eq!(service["clusterIPs"], json!(["10.96.0.11"]));
}

/// Ours, with these addresses.
fn ours_at(addresses: &[&str]) -> Service {
    let mut service = ours();
    let texts: Vec<String> = addresses.iter().map(|text| (*text).to_owned()).collect();
    let spec = service.spec.as_mut().unwrap();
    (spec.cluster_ip, spec.cluster_ips) = (texts.first().cloned(), Some(texts));
    service
}

/// What is applied of addresses and families where this spec is reconciled.
fn asks_for(observed: &mut Observed, dns: &ClusterDNS, second: i64) -> serde_json::Value {
    let plan = reconcile(observed, dns, second).unwrap();
    let service = applied(observed, dns, &plan).unwrap();
    json!([service["clusterIPs"], service["ipFamilies"], service["ipFamilyPolicy"]])
}

#[test]
fn o1_a_list_of_one_address_takes_the_other_family_from_no_client() {
    const SHORT: &str = "{service: {clusterIPs: [10.96.0.10]}}";
    let both = json!([["10.96.0.10", "fd00:96::a"], ["IPv4", "IPv6"], "RequireDualStack"]);
    let mut observed = with(ours_at(&["10.96.0.10", "fd00:96::a"]));
    assert_eq!(asks_for(&mut observed, &dns(SHORT), 0), both, "it is there");
    observed.service = None;
    assert_eq!(asks_for(&mut observed, &dns(SHORT), 1), both, "it was deleted");
    let again = created_again(&mut observed, SHORT);
    assert_eq!(asks_for(&mut observed, &again, 2), both, "so was the ClusterDNS");
    let lost = reported(SHORT, &["10.96.0.10", "fd00:96::a"]);
    assert_eq!(asks_for(&mut Observed::default(), &lost, 3), both, "rollout.json is lost too");
    // A person takes the family out of the Service itself.
    let one = json!([["10.96.0.10"], ["IPv4"], "SingleStack"]);
    let mut narrowed = with(ours_at(&["10.96.0.10", "fd00:96::a"]));
    reconcile(&mut narrowed, &dns(SHORT), 4).unwrap();
    narrowed.service = Some(ours_at(&["10.96.0.10"]));
    assert_eq!(asks_for(&mut narrowed, &dns(SHORT), 5), one);
}

#[test]
fn o1_an_address_is_asked_for_in_the_words_of_the_service() {
    let asks = |has: &[&str], ip: &str| {
        let spec = format!("{{service: {{clusterIPs: [\"{ip}\"]}}}}");
        let service = (!has.is_empty()).then(|| ours_at(has));
        let mut observed = Observed { service, ..Observed::default() };
        asks_for(&mut observed, &dns(&spec), 0)[0].clone()
    };
    for ip in ["fd00:96::a", "fd00:96:0::a", "FD00:96::A"] {
        for has in ["fd00:96::a", "fd00:96:0::a"] {
            assert_eq!(asks(&[has], ip), json!([has]), "{ip}");
        }
        assert_eq!(asks(&[], ip), json!(["fd00:96::a"]), "the usual words");
    }
    assert_eq!(asks(&["fd00:96::a", "10.96.0.10"], "fd00:96:0::a")[0], "fd00:96::a");
}

#[test]
fn o16_another_second_address_is_reported_also_where_the_spec_writes_the_first() {
    let mut observed = with(ours_at(&["10.96.0.10", "fd00:96::a"]));
    reconcile(&mut observed, &dns("{}"), 0).unwrap();
    let mut another = ours_at(&["10.96.0.10", "fd00:96::b"]);
    another.metadata.uid = Some("another".to_owned());
    observed.service = Some(another);
    let lost = |spec: &str| lost_addresses(&dns(spec), &observed);
    assert_eq!(lost("{service: {clusterIPs: [10.96.0.10]}}"), ["fd00:96::a"]);
    let meant = "{service: {clusterIPs: [10.96.0.10, \"fd00:96::b\"]}}";
    assert_eq!(lost(meant), [""; 0]);
}

/// As another client leaves ours with the type ExternalName: the API server takes every address from it.
fn external_name(mut service: Service) -> Service {
    service.spec = Some(from(json!({"type": "ExternalName", "externalName": "dns.example"})));
    service
}

#[test]
fn o16_a_service_of_ours_that_lost_every_address_gets_those_that_clients_know() {
    let mut unmarked = external_name(ours());
    (unmarked.metadata.labels, unmarked.metadata.owner_references) = (None, None);
    for emptied in [external_name(ours()), unmarked] {
        let mut observed = with(ours());
        reconcile(&mut observed, &dns("{}"), 0).unwrap();
        observed.service = Some(emptied);
        assert_eq!(
            planned(OTHER, &observed),
            Err("ClusterIPsDiffer"),
            "an edit that was refused before takes no effect by it"
        );
        for second in 1..3 {
            let plan = reconcile(&mut observed, &dns("{}"), second).unwrap();
            let again = applied(&observed, &dns("{}"), &plan).unwrap();
            assert_eq!(again["clusterIPs"], json!(["10.96.0.10"]), "the API server would choose");
            assert_eq!(
                (&again["clusterIP"], &again["type"]),
                (&json!("10.96.0.10"), &json!("ClusterIP"))
            );
            let last = config_map::state(&observed).service;
            assert!(last.is_ours && last.is_pinned && last.uid == "ours", "{last:?}");
        }
    }
}

#[test]
fn o16_a_service_of_others_without_addresses_is_not_written() {
    let mut observed = with(switched());
    reconcile(&mut observed, &dns(ADOPT), 0).unwrap();
    let before = config_map::state(&observed).service;
    observed.service = Some(external_name(switched()));
    assert_eq!(planned(ADOPT, &observed), Err("ServiceNotAdoptable"));
    assert_eq!(last_seen(&dns(ADOPT), &observed), before, "its addresses stay known");
}

/// A backup of another cluster brings its ConfigMap; the ClusterDNS has another uid here, and the Service other addresses.
#[test]
fn o16_addresses_that_a_backup_of_another_cluster_brought_are_not_those_of_clients() {
    for (spec, before, here) in [(ADOPT, switched(), kube_dns()), ("{}", ours(), ours())] {
        let mut observed = with(before);
        reconcile(&mut observed, &dns(spec), 0).unwrap();
        let mut here = here;
        let spec_here = here.spec.as_mut().unwrap();
        spec_here.cluster_ip = Some("172.20.0.10".to_owned());
        spec_here.cluster_ips = Some(vec!["172.20.0.10".to_owned()]);
        here.metadata.uid = Some("here".to_owned());
        here.metadata.owner_references = None;
        observed.service = Some(here);
        let again = created_again(&mut observed, spec);
        assert_eq!(lost_addresses(&again, &observed), [""; 0], "{spec}");
        reconcile(&mut observed, &again, 1).unwrap();
        let last = config_map::state(&observed).service;
        assert_eq!(last.cluster_ips, ["172.20.0.10"], "{spec}");
    }
    // Beside a Service that has them they count, and so they do where there is none.
    for service in [Some(switched()), None] {
        let mut observed = with(switched());
        reconcile(&mut observed, &dns(ADOPT), 0).unwrap();
        observed.service = service;
        created_again(&mut observed, ADOPT);
        assert_eq!(config_map::state(&observed).service.cluster_ips, ["10.96.0.10"]);
    }
}
