//! An outage of all pods is not forgotten while the spec is refused, or while the operator cannot look.

use super::*;
use crate::report::changes;

const REFUSED: &str = "{upstreams: {servers: [{address: 10.96.0.10}]}}";
const OUT: &str = "True=Valid False=NoPodReady False=Complete True=TooFewPodsReady";
const STARTS: &str = "True=Valid False=NoPodReady True=Starting False=AsExpected";

/// No pod is ready.
fn pods_go(story: &mut Story) {
    story.observed.pods = story.observed.pods.iter().cloned().map(unready).collect();
    story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap().ready_replicas = Some(0);
}

/// Statuses of looks that see nothing, or act on nothing. The reasons that come from outside may be as long as there is room.
const INTERRUPTIONS: [fn(&mut Story, i64) -> ClusterDNSStatus; 3] = [
    |story, second| {
        story.edit(REFUSED);
        let status = story.reconcile(second);
        story.edit("{}");
        status
    },
    |story, second| {
        let message = failing::of_error(&"no answer. ".repeat(MESSAGE));
        let status = unread::of(&story.dns, failing::REASON, &message, at(second));
        story.dns.status.insert(status).clone()
    },
    |story, second| {
        let message = unreadable::message(&"no type. ".repeat(MESSAGE));
        let status = unreadable::of(&story.dns, &message, at(second));
        story.dns.status.insert(status).clone()
    },
];

#[test]
fn o19_an_outage_of_all_pods_outlives_looks_that_see_nothing() {
    for (number, interrupted) in INTERRUPTIONS.iter().enumerate() {
        let mut story = Story::settled("{}");
        pods_go(&mut story);
        story.reconcile(10);
        is(&story, OUT, Kstatus::InProgress);
        for second in [20, 22] {
            let degraded = condition(&interrupted(&mut story, second), "Degraded").cloned();
            let degraded = degraded.unwrap();
            assert_ne!(degraded.reason, "TooFewPodsReady", "{number}: another reason comes first");
            assert!(degraded.message.contains("fewer than half"), "{number}: {}", degraded.message);
        }
        let before = story.dns.status.clone().unwrap();
        let after = story.reconcile(30);
        is(&story, OUT, Kstatus::InProgress);
        let changes = changes::of(Some(&before), &after, &[], None);
        assert!(changes.iter().all(|it| it.reason != "Recovered"), "{number}: {changes:?}");
    }
}

#[test]
fn o19_an_outage_that_begins_while_no_look_sees_it_is_an_outage() {
    for interrupted in INTERRUPTIONS {
        let mut story = Story::settled("{}");
        interrupted(&mut story, 10);
        pods_go(&mut story);
        interrupted(&mut story, 20);
        story.reconcile(30);
        is(&story, OUT, Kstatus::InProgress);
    }
}

#[test]
fn o19_pods_that_were_never_ready_start_also_after_looks_that_see_nothing() {
    for interrupted in INTERRUPTIONS {
        for is_first in [true, false] {
            let mut story = Story::new("{}");
            story.observed.service = Some(own_service());
            deploy(&mut story.observed, 2);
            pods_go(&mut story);
            if !is_first {
                story.reconcile(0);
                is(&story, STARTS, Kstatus::InProgress);
            }
            interrupted(&mut story, 10);
            story.reconcile(20);
            is(&story, STARTS, Kstatus::InProgress);
        }
    }
}
