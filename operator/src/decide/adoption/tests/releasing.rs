//! A Service that is about to be given back: not while only our pods serve, and who leads next knows of it.

use super::deleted::reconcile;
use super::*;
use crate::decide::config_map;

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

#[test]
fn o16_a_service_deleted_after_the_patch_that_gave_it_back_is_of_others() {
    let mut observed = with(switched());
    reconcile(&mut observed, &dns(ADOPT), 0).unwrap();
    let plan = reconcile(&mut observed, &dns("{}"), 1).unwrap();
    let released = ServicePlan::Released { labels: kube_dns_label(), patch: patched(false) };
    assert_eq!(plan.service, released);
    // The patch was made, the operator ended, and the Service is deleted before the next one leads.
    observed.service = None;
    assert_eq!(reconcile(&mut observed, &dns("{}"), 2), Err("ServiceGone"));
    assert_eq!(restorable(&observed), None);
    // Who adopts it again gets it as the patch left it.
    let plan = reconcile(&mut observed, &dns(ADOPT), 3).unwrap();
    let ServicePlan::Recreated { manifest, .. } = plan.service else { panic!("{plan:?}") };
    let again: Service = from(manifest);
    assert_eq!(again.spec, kube_dns().spec);
    assert!(annotation(&again).is_none());
}

#[test]
fn o16_a_service_whose_return_is_refused_by_now_comes_back_when_deleted() {
    let mut observed = with(switched());
    reconcile(&mut observed, &dns(ADOPT), 0).unwrap();
    reconcile(&mut observed, &dns("{}"), 1).unwrap();
    assert!(config_map::state(&observed).service.is_given_back);
    // The API server refused the patch, and then the pods of the other server ended.
    observed.foreign_pods.clear();
    assert_eq!(reconcile(&mut observed, &dns("{}"), 2), Err("NoOtherServer"));
    let kept = rollout::nothing_new(&dns("{}"), &observed, at(2)).unwrap();
    write(&mut observed, &kept);
    observed.service = None;
    let again: Service = from(restorable(&observed).unwrap());
    assert_eq!(again.spec, switched().spec, "our pods serve it");
}
