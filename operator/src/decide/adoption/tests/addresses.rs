//! The addresses of the spec beside those that clients know: an edit that was refused takes no effect by a deletion.

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
