//! A Service whose clients are led to pods of their own node only: when it moves, and what is reported.

use super::*;

#[test]
fn o15_a_service_that_leads_clients_to_pods_of_their_node_only_does_not_move() {
    let as_local = |mut service: Service| {
        service.spec.as_mut().unwrap().internal_traffic_policy = Some("Local".to_owned());
        with(service)
    };
    let local = as_local(kube_dns());
    assert_eq!(planned(ADOPT, &local), Err("ServiceNotAdoptable"));
    assert_eq!(planned(ADOPT, &as_local(reset())), Err("ServiceNotAdoptable"), "not once more");
    let message = plan(&dns(ADOPT), &local, at(0)).unwrap_err().message;
    let command = "kubectl -n kube-system patch service kube-dns -p '{\"spec\":{\"internalTrafficPolicy\":\"Cluster\"}}'";
    assert!(message.ends_with(command), "{message}");
    let moved = as_local(switched());
    let adopted = Ok(ServicePlan::Adopted { labels: kube_dns_label(), patch: None });
    assert_eq!(planned(ADOPT, &moved), adopted, "a refusal would not help");
    let released = |service| planned("{service: {adopt: false}}", &as_local(service)).is_ok();
    assert!(released(switched()), "it can be given back");
    for (spec, observed, expected) in [
        (ADOPT, &moved, true),
        (ADOPT, &with(switched()), false),
        (ADOPT, &local, false),
        ("{}", &moved, false),
    ] {
        assert_eq!(leads_to_own_node_only(&dns(spec), observed), expected, "{spec}");
    }
}
