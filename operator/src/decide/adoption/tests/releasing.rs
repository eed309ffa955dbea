//! A Service that is about to be given back: not while only our pods serve.

use super::*;

/// The spec moves pods from a Deployment to a DaemonSet, or back, in the same edit: those that serve are of the other template.
#[test]
fn o15_an_edit_that_also_moves_pods_takes_a_service_from_no_pods_that_serve_alone() {
    let by_deployment = Observed { foreign_pods: vec![unready(foreign_pod())], ..with(kube_dns()) };
    let spec = by_deployment.deployment.clone().and_then(|it| it.spec).unwrap();
    let template = serde_json::to_value(spec.template).unwrap();
    let by_daemon_set = Observed {
        deployment: None,
        daemon_set: Some(from(json!({"spec": {"selector": {}, "template": template}}))),
        ..by_deployment.clone()
    };
    for (spec, observed) in [
        ("{scaling: {perNode: {}}}", &by_deployment),
        ("{scaling: {fixed: {replicas: 2}}}", &by_daemon_set),
    ] {
        assert!(needs_others(&dns(spec), observed), "{spec}");
        assert_eq!(planned(spec, observed), Err("NoOtherServer"), "{spec}");
    }
}
