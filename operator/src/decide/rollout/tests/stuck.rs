//! A workload whose pods are not all replaced: for how long a configuration waits for that.

use super::*;

#[test]
fn o17_a_workload_that_is_stuck_does_not_keep_configurations_from_its_pods() {
    for reason in ["ImagePullBackOff", "SignatureValidationFailed"] {
        with_a_pod_that_waits(reason);
    }
}

fn with_a_pod_that_waits(reason: &str) {
    let mut story = Story::with_pods(3);
    let mut starting = unready(pod("dns-new", 0, 0));
    let waiting = json!([{"name": "dns", "ready": false, "restartCount": 0, "image": "x", "imageID": "",
        "state": {"waiting": {"reason": reason}}}]);
    starting.status.as_mut().unwrap().container_statuses = Some(from(waiting));
    starting.metadata.labels.as_mut().unwrap().insert("pod-template-hash".into(), "newer".into());
    story.observed.pods.push(starting);
    story.observed.replica_sets = vec![from(json!({"metadata": {
        "annotations": {"deployment.kubernetes.io/revision": "2"}, "labels": {"pod-template-hash": "newer"}}}))];
    let status = story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap();
    (status.replicas, status.updated_replicas) = (Some(4), Some(1));
    story.edit(NEW);
    assert!(
        story.reconcile(100).canary.is_some(),
        "{reason}: the new image cannot be pulled, and clients wait"
    );
    story.pods_follow();
    story.compare(true, true);
    story.reconcile(110);
    assert_eq!(story.reconcile(130).state.stable, revision(NEW));
}

#[test]
fn o17_pods_of_a_deployment_that_are_missing_keep_no_configuration_waiting() {
    let mut story = Story::with_pods(2);
    let deployment = story.observed.deployment.as_mut().unwrap();
    deployment.spec.as_mut().unwrap().replicas = Some(3);
    let status = deployment.status.as_mut().unwrap();
    status.conditions = Some(from(json!([
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}])));
    status.updated_replicas = Some(1);
    story.edit(NEW);
    assert!(story.reconcile(100).canary.is_none(), "the other one is about to be replaced");
    let status = story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap();
    status.updated_replicas = Some(2);
    assert!(story.reconcile(102).canary.is_some(), "only the third one is missing");
}

#[test]
fn o17_a_deployment_that_is_not_observed_keeps_a_configuration_waiting_ten_minutes() {
    let mut story = Story::with_pods(3);
    let metadata = &mut story.observed.deployment.as_mut().unwrap().metadata;
    metadata.generation = Some(2);
    metadata.managed_fields = Some(from(json!([
        {"manager": "clusterdns-operator", "operation": "Apply", "time": at(0).to_string()}])));
    story.edit(NEW);
    assert!(story.reconcile(599).canary.is_none(), "its pods may be about to be replaced");
    let mut deleted = story.observed.clone();
    let metadata = &mut deleted.deployment.as_mut().unwrap().metadata;
    metadata.deletion_timestamp = Some(from(json!(at(590).to_string())));
    assert!(!pods::is_stuck(&deleted, false, at(600)), "its pods are about to go");
    assert!(story.reconcile(600).canary.is_some(), "its controller is away");
}

/// Three nodes with a pod each, of an older template on the node `c`, as a DaemonSet counts them.
fn per_node(story: &mut Story) {
    story.observed.deployment = None;
    for (pod, (node, hash)) in
        story.observed.pods.iter_mut().zip([("a", "new"), ("b", "new"), ("c", "old")])
    {
        let labels = pod.metadata.labels.as_mut().unwrap();
        labels.insert("controller-revision-hash".to_owned(), hash.to_owned());
        labels.remove("pod-template-hash");
        let created = if hash == "new" { at(5) } else { at(0) };
        pod.metadata.creation_timestamp = Some(from(json!(created.to_string())));
        pod.spec = Some(from(json!({"nodeName": node, "containers": []})));
    }
    story.observed.daemon_set = Some(from(
        json!({"metadata": {"name": "clusterdns-default", "generation": 1},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
            "updatedNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2,
            "numberAvailable": 2}}),
    ));
}

#[test]
fn o7_with_a_pod_on_each_node_a_dead_node_keeps_no_edit_waiting() {
    const PER_NODE: &str = "{scaling: {perNode: {}}, ttlSeconds: 5}";
    let mut story = Story::with_pods(3);
    per_node(&mut story);
    story.edit(PER_NODE);
    story.reconcile(1);
    story.pods_follow();
    story.edit("{scaling: {perNode: {}}, ttlSeconds: 7}");
    story.observed.pods[2] = unready(story.observed.pods[2].clone());
    assert!(
        story.reconcile(10).canary.is_none(),
        "the template is still on its way to a node that lives"
    );
    story.observed.dead_nodes = ["c".to_owned()].into();
    let progress = pods::progress(&story.observed, true);
    assert!(progress.is_complete() && progress.left_out == 1, "{progress:?}");
    assert!(story.reconcile(12).canary.is_some(), "it is tried without the dead node");
    // It has a taint that its pod does not tolerate, as by default: the status counts it nowhere, and two other pods are wanted.
    story.observed.uncounted_nodes = ["c".to_owned()].into();
    let status = story.observed.daemon_set.as_mut().unwrap().status.as_mut().unwrap();
    let counted = status.clone();
    (status.desired_number_scheduled, status.number_misscheduled) = (2, 1);
    (status.updated_number_scheduled, status.number_available) = (Some(1), Some(1));
    let progress = pods::progress(&story.observed, true);
    assert!(!progress.has_newest_pods() && !progress.is_complete(), "{progress:?}");
    story.observed.uncounted_nodes.clear();
    story.observed.daemon_set.as_mut().unwrap().status = Some(counted);
    // One that a Deployment made is not counted by a DaemonSet.
    let labels = story.observed.pods[2].metadata.labels.as_mut().unwrap();
    labels.remove("controller-revision-hash");
    assert!(!pods::progress(&story.observed, true).has_newest_pods());
    // A dead node whose pod is of the newest template takes the place of no other.
    let labels = story.observed.pods[2].metadata.labels.as_mut().unwrap();
    labels.insert("controller-revision-hash".to_owned(), "new".to_owned());
    assert!(!pods::progress(&story.observed, true).has_newest_pods());
    // Where every node is dead nothing serves.
    story.observed.pods = story.observed.pods.drain(..).map(unready).collect();
    story.observed.dead_nodes = ["a", "b", "c"].map(str::to_owned).into();
    let status = story.observed.daemon_set.as_mut().unwrap().status.as_mut().unwrap();
    (status.updated_number_scheduled, status.number_available) = (Some(3), Some(0));
    assert!(!pods::progress(&story.observed, true).is_complete());
}

/// Nodes in a row whose pods are replaced one after the other: `updated` of three are of the newest template, and the surge pod
/// of the next one began at this second and is not ready.
fn rolls_out(story: &mut Story, updated: u32, began: i64) {
    per_node(story);
    let mut surge = unready(pod("dns-surge", 0, 0));
    let labels = surge.metadata.labels.as_mut().unwrap();
    labels.insert("controller-revision-hash".to_owned(), "new".to_owned());
    surge.metadata.creation_timestamp = Some(from(json!(at(began).to_string())));
    let condition = &mut surge.status.as_mut().unwrap().conditions.as_mut().unwrap()[0];
    condition.last_transition_time = Some(from(json!(at(began).to_string())));
    surge.spec = Some(from(json!({"nodeName": "c", "containers": []})));
    story.observed.pods.push(surge);
    let set = story.observed.daemon_set.as_mut().unwrap();
    let status = set.status.as_mut().unwrap();
    status.updated_number_scheduled = Some(i32::try_from(updated).unwrap());
    set.metadata.managed_fields = Some(from(json!([
        {"manager": "clusterdns-operator", "operation": "Apply", "time": at(0).to_string()},
        {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
            "time": at(590).to_string()}])));
}

#[test]
fn o7_with_a_pod_on_each_node_one_that_never_is_ready_keeps_no_edit_waiting() {
    let mut story = Story::with_pods(3);
    rolls_out(&mut story, 2, 5);
    story.edit("{scaling: {perNode: {}}, ttlSeconds: 5}");
    story.reconcile(1);
    story.pods_follow();
    story.edit("{scaling: {perNode: {}}, ttlSeconds: 7}");
    assert!(story.reconcile(604).canary.is_none(), "ten minutes are for the rollout");
    let plan = story.reconcile(605);
    let canary = plan.state.canary_pod.expect("it is tried beside the pod that waits");
    assert_ne!(canary.name, "dns-surge");
}

#[test]
fn o7_with_a_pod_on_each_node_a_rollout_that_makes_steps_is_waited_for() {
    let stalled = |observed: &Observed, seconds| pods::has_stalled(observed, at(seconds));
    let mut story = Story::with_pods(3);
    rolls_out(&mut story, 2, 300);
    assert!(!stalled(&story.observed, 899) && stalled(&story.observed, 900));
    // Its node died: that pod is no reason, but no other one is made either.
    story.observed.dead_nodes = ["c".to_owned()].into();
    assert!(stalled(&story.observed, 900));
    let mut elsewhere = pod("dns-9", 0, 0);
    elsewhere
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert("controller-revision-hash".into(), "new".into());
    elsewhere.metadata.creation_timestamp = Some(from(json!(at(890).to_string())));
    story.observed.pods.push(elsewhere);
    assert!(!stalled(&story.observed, 900), "a pod was made ten seconds ago");
    story.observed.dead_nodes.clear();
    assert!(stalled(&story.observed, 900), "also where nodes come, whose pods are new");
    // The older pod there is not ready: it is deleted, and the rollout continues on other nodes.
    let elder = story.observed.pods[2].clone();
    story.observed.pods[2] = unready(elder.clone());
    assert!(!stalled(&story.observed, 900), "no node waits for a pod that is not ready");
    // The same for one that has no image: only beside a ready one it stops all others.
    let crashes = json!([{"name": "dns", "ready": false, "restartCount": 0, "image": "x", "imageID": "",
        "state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
    let surge = story.observed.pods.iter_mut().find(|pod| pods::name(pod) == "dns-surge").unwrap();
    surge.status.as_mut().unwrap().container_statuses = Some(from(crashes));
    assert!(!pods::is_stuck(&story.observed, true, at(400)));
    story.observed.pods[2] = elder;
    assert!(pods::is_stuck(&story.observed, true, at(400)));
    finds_no_room(&story);
    // An admission webhook refuses pods: none waits, and none comes.
    story.observed.pods.retain(|pod| pods::is_ready(pod) && pods::name(pod) != "dns-9");
    assert!(!stalled(&story.observed, 599) && stalled(&story.observed, 605));
    // A new template that was written a moment ago.
    let set = story.observed.daemon_set.as_mut().unwrap();
    set.metadata.managed_fields.as_mut().unwrap()[0].time = Some(from(json!(at(880).to_string())));
    assert!(!stalled(&story.observed, 900));
}

/// The pod that waits has no node: its affinity names the one for which it was made.
fn finds_no_room(story: &Story) {
    for (node, expected) in [("c", true), ("new", false)] {
        let mut observed = story.observed.clone();
        let surge = observed.pods.iter_mut().find(|pod| pods::name(pod) == "dns-surge").unwrap();
        surge.status.as_mut().unwrap().container_statuses = None;
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let required = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        let nodes = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
        surge.spec = Some(from(json!({"containers": [], "affinity": {"nodeAffinity": nodes}})));
        assert_eq!(pods::has_stalled(&observed, at(900)), expected, "{node}");
    }
}

#[test]
fn o7_with_a_pod_on_each_node_a_client_that_always_writes_hides_no_waiting_pod() {
    let stalled = |observed: &Observed, seconds| pods::has_stalled(observed, at(seconds));
    let mut story = Story::with_pods(3);
    rolls_out(&mut story, 2, 300);
    let written_by = |story: &mut Story, fields: serde_json::Value| {
        let set = story.observed.daemon_set.as_mut().unwrap();
        let all = set.metadata.managed_fields.as_mut().unwrap();
        all.push(from(
            json!({"manager": "argocd", "operation": "Update", "time": at(890).to_string(),
            "fieldsV1": fields}),
        ));
    };
    written_by(&mut story, json!({"f:spec": {"f:minReadySeconds": {}}}));
    assert!(!stalled(&story.observed, 899) && stalled(&story.observed, 900), "ten minutes");
    // A template that its controller has not seen yet may have repaired it.
    story.observed.daemon_set.as_mut().unwrap().metadata.generation = Some(2);
    assert!(!stalled(&story.observed, 900));
    // Its controller does nothing at all.
    assert!(!stalled(&story.observed, 1489) && stalled(&story.observed, 1490));
    // No pod waits, and none is made: what stamps annotations is no new template.
    let mut story = Story::with_pods(3);
    rolls_out(&mut story, 2, 300);
    story.observed.pods.retain(pods::is_ready);
    written_by(&mut story, json!({"f:metadata": {"f:annotations": {"f:stamp": {}}}}));
    assert!(stalled(&story.observed, 900));
}

#[test]
fn o17_a_paused_deployment_does_not_keep_configurations_from_its_pods() {
    let mut story = Story::with_pods(3);
    let deployment = story.observed.deployment.as_mut().unwrap();
    deployment.status.as_mut().unwrap().updated_replicas = Some(0);
    story.edit(NEW);
    assert!(story.reconcile(100).canary.is_none(), "its pods are about to be replaced");
    let deployment = story.observed.deployment.as_mut().unwrap();
    deployment.spec.as_mut().unwrap().paused = Some(true);
    assert!(story.reconcile(102).canary.is_some(), "they stay until a person resumes it");
}

#[test]
fn o17_a_daemon_set_that_wants_no_pod_is_no_reason_to_skip_the_trial() {
    let mut story = Story::with_pods(3);
    per_node(&mut story);
    story.edit("{scaling: {perNode: {}}, ttlSeconds: 5}");
    story.reconcile(1);
    let status = story.observed.daemon_set.as_mut().unwrap().status.as_mut().unwrap();
    (status.desired_number_scheduled, status.updated_number_scheduled) = (0, Some(0));
    story.observed.pods.clear();
    story.edit("{scaling: {perNode: {}}, ttlSeconds: 7}");
    for second in [100, 159] {
        assert_eq!(story.reconcile(second).state.stable, revision(OLD), "it waits for a pod");
    }
}

#[test]
fn o17_a_daemon_set_that_was_set_back_begins_no_trial_again_and_again() {
    let mut story = Story::with_pods(4);
    per_node(&mut story);
    story.edit("{scaling: {perNode: {}}, ttlSeconds: 5}");
    story.reconcile(1);
    // A pod of the template that was set back is younger than all others, and is leaving.
    for (n, pod) in story.observed.pods.iter_mut().enumerate() {
        let hash = if n == 3 { "tried" } else { "back" };
        let labels = pod.metadata.labels.as_mut().unwrap();
        labels.insert("controller-revision-hash".to_owned(), hash.to_owned());
        labels.remove("pod-template-hash");
        let created = at(n as i64 + 1).to_string();
        pod.metadata.creation_timestamp = Some(from(json!(created)));
    }
    story.observed.pods[3].metadata.deletion_timestamp = Some(from(json!(at(5).to_string())));
    let status = story.observed.daemon_set.as_mut().unwrap().status.as_mut().unwrap();
    status.updated_number_scheduled = Some(3);
    story.pods_follow();
    story.edit("{scaling: {perNode: {}}, ttlSeconds: 7}");
    let first = story.reconcile(10);
    assert!(first.canary.is_some());
    let second = story.reconcile(12);
    assert_eq!(second.state.started_at, first.state.started_at);
    assert_eq!(second.notices.len(), 0, "{:?}", second.notices);
}
