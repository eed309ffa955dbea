//! Pods that do not start, as the kubelet, the scheduler and the API server describe them.

use serde_json::{Value, json};

use super::*;
use crate::fixtures::from;

/// A cluster in which the first of two pods has this status.
fn with_status(status: Value) -> Story {
    let mut story = Story::settled("{}");
    story.observed.pods[0].status = Some(from(status));
    story
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"containerStatuses": [{"name": "dns", "ready": false, "restartCount": 0, "image": "registry.example/dns:9",
        "imageID": "", "state": {"waiting": {"reason": reason, "message": message}}}]})
}

fn degraded(story: &mut Story, seconds: i64) -> (String, String) {
    let status = story.reconcile(seconds);
    let condition = condition(&status, "Degraded").unwrap().clone();
    assert_eq!(condition.status, "True", "{}", condition.reason);
    (condition.reason, condition.message)
}

#[test]
fn o19_an_image_that_cannot_be_pulled_is_said_with_pod_and_image() {
    let mut story = with_status(waiting("ErrImagePull", "rpc error: not found"));
    let said = degraded(&mut story, 10);
    assert_eq!(said.0, "ImagePullFailed");
    let expected = "dns-0 cannot pull the image registry.example/dns:9: kubectl -n kube-system describe pod shows the reason";
    assert_eq!(said.1, expected);
    story.observed.pods[0].status = Some(from(waiting("ImagePullBackOff", "Back-off pulling")));
    assert_eq!(degraded(&mut story, 20), said, "the kubelet alternates, the status does not");
    story.observed.pods[0].status =
        Some(from(waiting("SignatureValidationFailed", "no signature")));
    assert_eq!(degraded(&mut story, 30), said);
}

#[test]
fn o19_a_crash_loop_is_said_with_pod_and_exit_code() {
    let container = |restarts: u32, state: Value| {
        json!({"containerStatuses": [{"name": "dns", "ready": false, "restartCount": restarts, "image": "", "imageID": "",
            "state": state, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]})
    };
    let mut story = with_status(container(1, json!({"waiting": {"reason": "CrashLoopBackOff"}})));
    let said = degraded(&mut story, 10);
    assert_eq!(said.0, "CrashLoopBackOff");
    assert!(
        said.1.starts_with("dns-0 crashes repeatedly (OOMKilled, exit code 137)"),
        "{}",
        said.1
    );
    story.observed.pods[0].status = Some(from(container(5, json!({"running": {}}))));
    assert_eq!(degraded(&mut story, 20), said, "also while it runs for a moment");
    let mut story = with_status(container(1, json!({"running": {}})));
    story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
}

#[test]
fn o19_pods_that_crash_again_and_again_are_said_also_while_they_are_ready() {
    // It is ready again now. It was killed at second 600, these minutes after its start.
    let container = |restarts: u32, minutes: i64| {
        json!({"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "dns", "ready": true,
            "restartCount": restarts, "image": "", "imageID": "", "state": {"running": {}}, "lastState": {"terminated": {
            "exitCode": 137, "reason": "OOMKilled", "finishedAt": at(600).to_string(),
            "startedAt": at(600 - minutes * 60).to_string()}}}]})
    };
    let mut story = with_status(container(5, 4));
    let said = degraded(&mut story, 600 + 3 * 60);
    assert_eq!(said.0, "CrashLoopBackOff");
    assert!(said.1.starts_with("dns-0 crashes repeatedly (OOMKilled, exit code 137): kubectl"));
    assert_eq!(degraded(&mut story, 600 + 14 * 60), said, "so the alert on it can fire");
    let fine = "True=Valid True=Serving False=Complete False=AsExpected";
    story.reconcile(600 + 16 * 60);
    is(&story, fine, Kstatus::Current);
    // A node that was restarted, now and then; and the first restarts of all.
    for status in [container(5, 7 * 24 * 60), container(2, 4)] {
        let mut story = with_status(status);
        story.reconcile(600 + 3 * 60);
        is(&story, fine, Kstatus::Current);
    }
}

#[test]
fn o19_a_pod_that_runs_and_is_not_ready_is_named_with_the_page_that_says_why() {
    let mut story = Story::settled("{}");
    for pod in &mut story.observed.pods {
        pod.status = Some(from(json!({"conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": "clusterdns", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": {"running": {}}}]})));
    }
    story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap().ready_replicas = Some(0);
    let status = story.reconcile(10);
    for (kind, reason) in [("Ready", "NoPodReady"), ("Degraded", "TooFewPodsReady")] {
        let found = condition(&status, kind).unwrap();
        assert_eq!(found.reason, reason);
        for words in [
            "kubectl -n kube-system port-forward pod/dns-0 9153",
            "curl http://127.0.0.1:9153/readyz",
        ] {
            assert!(found.message.contains(words), "{words}: {}", found.message);
        }
    }
}

#[test]
fn o19_a_missing_secret_is_said_with_the_pod() {
    let mut story =
        with_status(waiting("CreateContainerConfigError", "secret \"dns-tls\" not found"));
    let (reason, message) = degraded(&mut story, 10);
    assert_eq!(reason, "ContainerNotCreated");
    assert!(
        message.contains("dns-0 container could not be created") && message.contains("dns-tls"),
        "{message}"
    );
}

#[test]
fn o19_a_pod_that_fits_on_no_node_is_said_after_30_seconds() {
    let unscheduled = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available", "lastTransitionTime": at(0).to_string()}]});
    let mut story = with_status(unscheduled);
    story.reconcile(29);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    let (reason, message) = degraded(&mut story, 30);
    assert_eq!(reason, "PodsUnschedulable");
    assert!(
        message.starts_with("dns-0 cannot be scheduled (0/3 nodes are available)"),
        "{message}"
    );
}

#[test]
fn o19_a_pod_that_its_node_refuses_is_said_while_pods_are_missing() {
    let mut story = with_status(
        json!({"phase": "Failed", "reason": "SysctlForbidden", "message": "forbidden sysctl: \"net.x\""}),
    );
    story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    let workload = story.observed.deployment.as_mut().unwrap();
    workload.status.as_mut().unwrap().ready_replicas = Some(1);
    let (reason, message) = degraded(&mut story, 20);
    assert_eq!(reason, "PodsRefused");
    assert!(
        message.starts_with("dns-0 was refused by its node (SysctlForbidden: forbidden"),
        "{message}"
    );
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"});
    story.observed.pods[0].status = Some(from(evicted));
    story.reconcile(30);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
}

#[test]
fn o19_a_pod_that_ended_with_its_node_is_not_one_that_crashes() {
    let container = json!({"name": "dns", "image": "i", "imageID": "", "ready": false, "restartCount": 4,
        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    for phase in ["Failed", "Succeeded"] {
        let mut story = with_status(json!({"phase": phase, "reason": "Terminated",
            "containerStatuses": [container]}));
        assert!(!crate::observe::pods::is_stuck(
            &story.observed,
            false,
            jiff::Timestamp::UNIX_EPOCH
        ));
        story.reconcile(10);
        is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    }
}

#[test]
fn o19_refused_admission_and_a_missed_deadline_are_said() {
    let mut story = Story::settled("{}");
    let refused = "pods \"clusterdns-default-x\" is forbidden: violates PodSecurity";
    let conditions = json!([
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": refused},
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "m"}]);
    let workload = story.observed.deployment.as_mut().unwrap();
    workload.status.as_mut().unwrap().conditions = Some(from(conditions));
    story.observed.pods[1] = unready(story.observed.pods[1].clone());
    let (reason, message) = degraded(&mut story, 10);
    assert_eq!(reason, "PodsNotAdmitted");
    assert!(message.contains(refused), "{message}");
    assert!(message.contains("no progress") && message.contains("(dns-1)"), "{message}");
}

#[test]
fn o19_a_daemon_set_whose_pods_are_not_created_is_said() {
    let mut story = Story::new("{scaling: {perNode: {}}}");
    story.observed.service = Some(own_service());
    let set = json!({"metadata": {"name": "clusterdns-default", "namespace": "kube-system", "generation": 1,
        "creationTimestamp": at(0).to_string()}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 3,
        "currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1}});
    story.observed.daemon_set = Some(from(set));
    let (reason, message) = degraded(&mut story, 60);
    assert_eq!(reason, "PodsNotAdmitted");
    assert!(message.contains("1 of 3 nodes"), "{message}");
}

#[test]
fn o19_a_daemon_set_that_makes_no_step_for_ten_minutes_is_said() {
    let mut story = Story::settled("{scaling: {perNode: {}}}");
    story.observed.deployment = None;
    for pod in &mut story.observed.pods {
        let labels = pod.metadata.labels.as_mut().unwrap();
        labels.insert("controller-revision-hash".to_owned(), "old".to_owned());
        pod.metadata.creation_timestamp = Some(from(json!(at(0).to_string())));
    }
    let set = json!({"metadata": {"name": "clusterdns-default", "namespace": "kube-system", "generation": 2,
        "managedFields": [{"manager": "clusterdns-operator", "operation": "Apply", "time": at(100).to_string()}]},
        "status": {"observedGeneration": 2, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
        "updatedNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 2}});
    story.observed.daemon_set = Some(from(set));
    story.reconcile(699);
    is(&story, "True=Valid True=Serving True=RollingOut False=AsExpected", Kstatus::InProgress);
    let said = degraded(&mut story, 700);
    assert_eq!(said.0, "ProgressDeadlineExceeded");
    let expected = "the DaemonSet made no progress for 10 minutes: 0 of 2 pods have the newest template, and it makes no others. \
                    kubectl -n kube-system describe daemonset clusterdns-default shows the reason";
    assert_eq!(said.1, expected);
    let mut surge = unready(story.observed.pods[0].clone());
    surge.metadata.name = Some("dns-surge".to_owned());
    let labels = surge.metadata.labels.as_mut().unwrap();
    labels.insert("controller-revision-hash".to_owned(), "new".to_owned());
    surge.metadata.creation_timestamp = Some(from(json!(at(110).to_string())));
    story.observed.pods.push(surge);
    let (_, message) = degraded(&mut story, 710);
    assert!(message.contains("0 of 2") && message.contains("(dns-surge)"), "{message}");
}
