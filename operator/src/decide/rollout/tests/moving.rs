//! Pods move between a Deployment and a DaemonSet, and the new ones do not serve: for how long a configuration waits for them.

use super::*;
use k8s_openapi::api::core::v1::Pod;

const PER_NODE: &str = "{scaling: {perNode: {}}, ttlSeconds: 5}";
const PER_NODE_NEW: &str = "{scaling: {perNode: {}}, ttlSeconds: 7}";

/// As a DaemonSet makes it for this node, in second 2.
fn on_node(node: &str, pod: Pod) -> Pod {
    crate::fixtures::on_node(node, pod, 2)
}

fn without_image(pod: &mut Pod) {
    let waiting = json!([{"name": "clusterdns", "ready": false, "restartCount": 0, "image": "x", "imageID": "",
        "state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
    pod.status.as_mut().unwrap().container_statuses = Some(from(waiting));
}

/// Three pods of a Deployment serve. Since second 2 there is a DaemonSet, which wants three and has made these.
fn to_each_node(made: Vec<Pod>) -> Story {
    let mut story = Story::with_pods(3);
    story.edit(PER_NODE);
    story.reconcile(1);
    story.observed.daemon_set = Some(from(json!({
        "metadata": {"name": "clusterdns-default", "generation": 1, "creationTimestamp": at(2).to_string(),
            "managedFields": [{"manager": "clusterdns-operator", "operation": "Apply", "time": at(2).to_string()}]},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, "currentNumberScheduled": made.len(),
            "updatedNumberScheduled": made.len(), "numberMisscheduled": 0, "numberReady": 0}})));
    story.observed.pods.extend(made);
    story
}

/// None of them is ready.
fn starting() -> Vec<Pod> {
    ["a", "b", "c"].map(|node| on_node(node, unready(pod(&format!("on-{node}"), 2, 0)))).into()
}

/// The pod that tries the edit, if it is tried in this second.
fn tries(story: &mut Story, seconds: i64) -> Option<String> {
    story.reconcile(seconds);
    story.canary()
}

#[test]
fn o17_a_daemon_set_whose_pods_stay_pending_keeps_no_edit_from_a_deployment() {
    let mut story = to_each_node(starting());
    story.edit(PER_NODE_NEW);
    assert_eq!(tries(&mut story, 601), None, "its pods may be about to be replaced");
    assert_eq!(tries(&mut story, 602).as_deref(), Some("dns-0"));
    story.pods_follow();
    story.compare(true, true);
    story.reconcile(610);
    assert_eq!(story.reconcile(632).state.stable, revision(PER_NODE_NEW), "all have it");
}

#[test]
fn o17_a_daemon_set_whose_image_is_missing_keeps_no_edit_from_a_deployment() {
    let mut story = to_each_node(starting());
    without_image(&mut story.observed.pods[3]);
    story.edit(PER_NODE_NEW);
    assert_eq!(tries(&mut story, 10).as_deref(), Some("dns-0"), "at once");
    // The image is there, so the move continues: what a pod of before says proves little of those that replace it.
    story.observed.pods[3].status.as_mut().unwrap().container_statuses = None;
    assert_eq!(tries(&mut story, 20), None);
}

#[test]
fn o17_a_daemon_set_that_has_no_pod_keeps_no_edit_from_a_deployment() {
    for wanted in [3, 0] {
        let mut story = to_each_node(Vec::new());
        let status = story.observed.daemon_set.as_mut().unwrap().status.as_mut().unwrap();
        status.desired_number_scheduled = wanted;
        story.edit(PER_NODE_NEW);
        assert_eq!(tries(&mut story, 601), None, "{wanted}");
        assert_eq!(tries(&mut story, 602).as_deref(), Some("dns-0"), "{wanted}");
    }
}

#[test]
fn o17_a_daemon_set_that_cannot_be_made_keeps_no_edit_from_a_deployment() {
    let mut story = to_each_node(Vec::new());
    story.observed.daemon_set = None;
    story.edit(PER_NODE_NEW);
    assert_eq!(tries(&mut story, 3).as_deref(), Some("dns-0"), "an admission webhook refuses it");
}

#[test]
fn o17_pods_that_crash_before_the_first_of_a_daemon_set_do_not_end_the_wait() {
    let mut story = to_each_node(Vec::new());
    story.observed.pods[2] = unready(story.observed.pods[2].clone());
    without_image(&mut story.observed.pods[2]);
    story.edit(PER_NODE_NEW);
    assert_eq!(tries(&mut story, 10), None, "that one is of the Deployment");
}

#[test]
fn o17_a_pod_of_the_new_workload_that_is_ready_tries_an_edit_before_others() {
    let mut made = starting();
    without_image(&mut made[0]);
    made[1] = on_node("b", pod("on-b", 5, 0));
    let mut story = to_each_node(made);
    story.pods_follow();
    story.edit(PER_NODE_NEW);
    assert_eq!(tries(&mut story, 10).as_deref(), Some("on-b"), "it stays");
}

/// Three pods of a DaemonSet serve, and a Deployment has this many of three, none of them ready.
fn to_deployment(made: u32) -> Story {
    let mut story = Story::with_pods(3);
    let serving = story.observed.pods.drain(..).zip(["a", "b", "c"]);
    story.observed.pods = serving.map(|(pod, node)| on_node(node, pod)).collect();
    story.observed.daemon_set = Some(from(
        json!({"metadata": {"name": "clusterdns-default", "generation": 1},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
            "updatedNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 3, "numberAvailable": 3}}),
    ));
    let made_count = i32::try_from(made).unwrap();
    let status = story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap();
    (status.replicas, status.updated_replicas) = (Some(made_count), Some(made_count));
    (status.ready_replicas, status.available_replicas) = (None, None);
    story.observed.replica_sets = vec![from(json!({"metadata": {
        "annotations": {"deployment.kubernetes.io/revision": "1"}, "labels": {"pod-template-hash": "new"}}}))];
    let made = (0..made).map(|n| unready(pod(&format!("new-{n}"), 2, 0)));
    story.observed.pods.extend(made);
    story
}

#[test]
fn o17_a_deployment_whose_pods_do_not_start_keeps_no_edit_from_a_daemon_set() {
    for made in [3, 0] {
        let mut story = to_deployment(made);
        story.edit(NEW);
        assert_eq!(tries(&mut story, 601), None, "{made}: its controller works on it");
        let deployment = story.observed.deployment.as_mut().unwrap();
        deployment.status.as_mut().unwrap().conditions = Some(from(json!([
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}])));
        assert_eq!(tries(&mut story, 602).as_deref(), Some("dns-0"), "{made}");
        assert_eq!(tries(&mut story, 604).as_deref(), Some("dns-0"), "{made}: it continues");
    }
    let mut story = to_deployment(3);
    without_image(&mut story.observed.pods[3]);
    story.edit(NEW);
    assert_eq!(tries(&mut story, 10).as_deref(), Some("dns-0"), "an image is missing");
    let mut story = to_deployment(3);
    story.observed.pods[2] = unready(story.observed.pods[2].clone());
    without_image(&mut story.observed.pods[2]);
    story.edit(NEW);
    assert_eq!(tries(&mut story, 10), None, "only a pod of the DaemonSet fails");
    let mut story = to_deployment(0);
    story.observed.deployment = None;
    story.edit(NEW);
    assert_eq!(tries(&mut story, 10).as_deref(), Some("dns-0"), "it cannot be made");
}
