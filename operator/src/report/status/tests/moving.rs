//! What is reported while pods move between a Deployment and a DaemonSet.

use super::*;
use crate::fixtures::from;
use serde_json::json;

impl Story {
    pub(super) fn deployment_status(&mut self, updated: i32, all: i32) {
        let status = self.observed.deployment.as_mut().unwrap().status.as_mut().unwrap();
        (status.updated_replicas, status.replicas) = (Some(updated), Some(all));
    }
}

/// Two pods of a Deployment serve, and a DaemonSet has two that are not ready, since second 5.
fn to_each_node() -> Story {
    let mut story = Story::settled("{}");
    story.observed.size.nodes = 2;
    story.edit("{scaling: {perNode: {}}}");
    let made = |node: &str| {
        let pod = crate::fixtures::pod(&format!("on-{node}"), 5, 0);
        crate::fixtures::on_node(node, unready(pod), 5)
    };
    story.observed.pods.extend(["a", "b"].map(made));
    story.observed.daemon_set = Some(from(
        json!({"metadata": {"name": "clusterdns-default", "generation": 1},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
            "updatedNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 0}}),
    ));
    story
}

fn message(status: &ClusterDNSStatus, kind: &str) -> String {
    condition(status, kind).unwrap().message.clone()
}

const MOVES: &str = "pods move from the Deployment to the DaemonSet";
const STAY: &str = "Those of the Deployment stay until all of the DaemonSet are";

#[test]
fn o14_pods_that_move_are_a_rollout_until_all_of_the_new_ones_serve() {
    let mut story = to_each_node();
    let status = story.reconcile(10);
    let moves = "True=Valid True=Serving True=RollingOut False=AsExpected";
    is(&story, moves, Kstatus::InProgress);
    let expected = format!("{MOVES}: 0 of 2 pods of the DaemonSet are ready. {STAY}");
    assert_eq!(message(&status, "Progressing"), expected);
    story.edit("{scaling: {perNode: {}}, ttlSeconds: 7}");
    let status = story.reconcile(20);
    let revision = status.revision.clone().unwrap();
    let waits = format!(
        ". After that, or when the new pods do not start or make no step for 10 minutes, a pod tries configuration {}; until \
         then pods run {}",
        revision.desired, revision.stable
    );
    assert_eq!(message(&status, "UpToDate"), format!("{expected}{waits}"));
    let status = story.reconcile(605);
    is(
        &story,
        &moves.replace("False=AsExpected", "True=ProgressDeadlineExceeded"),
        Kstatus::InProgress,
    );
    assert!(!status.revision.clone().unwrap().canary.is_empty(), "it is tried");
    assert_eq!(message(&status, "Progressing"), expected);
    let begin = "the DaemonSet made no progress for 10 minutes: 2 of 2 pods have the newest template, and some do not become \
                 ready (on-a, on-b)";
    assert!(message(&status, "Degraded").starts_with(begin), "{}", message(&status, "Degraded"));
    story.observed.daemon_set = None;
    story.observed.pods.truncate(2);
    let status = story.reconcile(620);
    let expected = format!("{MOVES}, which does not exist yet. {STAY}");
    assert_eq!(message(&status, "Progressing"), expected);
}

#[test]
fn o19_too_few_pods_are_said_of_those_that_serve_while_pods_move() {
    let mut story = to_each_node();
    let ready = |story: &mut Story, before: i32, after: i32| {
        let deployment = story.observed.deployment.as_mut().unwrap();
        deployment.status.as_mut().unwrap().ready_replicas = Some(before);
        let set = story.observed.daemon_set.as_mut().unwrap();
        set.status.as_mut().unwrap().number_ready = after;
    };
    let degraded = |story: &mut Story, seconds| {
        let status = story.reconcile(seconds);
        let degraded = condition(&status, "Degraded").unwrap().clone();
        (degraded.reason, degraded.message)
    };
    assert_eq!(degraded(&mut story, 10).0, "AsExpected");
    ready(&mut story, 0, 0);
    let (reason, message) = degraded(&mut story, 20);
    assert_eq!(reason, "TooFewPodsReady");
    assert!(message.starts_with("0 of 2 pods are ready"), "{message}");
    ready(&mut story, 0, 1);
    assert_eq!(degraded(&mut story, 30).0, "AsExpected", "half of the new ones serve");
}
