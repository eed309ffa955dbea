//! What the conditions say about edits, refusals, fields without effect, and servers that can never be asked.

use super::*;
use crate::observe::observed::EmptyGroup;
use crate::report::changes;

/// A pod has refused the configuration that it tried, at second 20.
pub(super) fn failed_trial() -> Story {
    let mut story = Story::settled("{}");
    story.edit("{ttlSeconds: 7}");
    story.reconcile(10);
    reported(&mut story.observed, "dns-0").rejection = Some("no".to_owned());
    story.reconcile(20);
    story
}

#[test]
fn o19_a_command_about_pods_names_their_namespace() {
    let mut story = Story::settled("{}");
    let conditions = serde_json::json!([{"type": "Progressing", "status": "False",
        "reason": "ProgressDeadlineExceeded"}]);
    let deployment = story.observed.deployment.as_mut().unwrap();
    deployment.status.as_mut().unwrap().conditions = Some(crate::fixtures::from(conditions));
    story.observed.pods[1] = unready(story.observed.pods[1].clone());
    let status = story.reconcile(10);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("kubectl -n kube-system describe pod dns-1 shows"), "{message}");
}

#[test]
fn o19_what_is_wrong_beside_a_failed_trial_is_named_first_and_is_news() {
    let mut story = Story::settled("{}");
    story.edit("{ttlSeconds: 7}");
    story.reconcile(10);
    reported(&mut story.observed, "dns-0").rejection = Some("x".repeat(2_000));
    let before = story.reconcile(20);
    reported(&mut story.observed, "dns-0").rejection = None;
    let before_alone = story.reconcile(21);
    let empty = EmptyGroup { group: "upstreams".to_owned(), why: "y".repeat(300) };
    for pod in ["dns-0", "dns-1"] {
        reported(&mut story.observed, pod).upstreams_without_servers = vec![empty.clone()];
    }
    let after = story.reconcile(22);
    let degraded = condition(&after, "Degraded").unwrap();
    assert_eq!(degraded.reason, "CanaryFailed");
    assert!(degraded.message.starts_with("also: NoUsableUpstream; configuration "), "{degraded:?}");
    assert!(degraded.message.len() <= MESSAGE);
    let changes = changes::of(Some(&before), &before_alone, &[], None);
    assert_eq!(changes, [], "rollout has an Event of it");
    let changes = changes::of(Some(&before_alone), &after, &[], None);
    assert!(changes.len() == 1 && changes[0].message == degraded.message, "{changes:?}");
}

fn up_to_date(story: &Story) -> (String, String) {
    let status = story.dns.status.clone().unwrap();
    let condition = condition(&status, "UpToDate").expect("it is there from the first visit");
    assert_eq!(condition.observed_generation, story.dns.metadata.generation);
    (condition.status.clone(), condition.reason.clone())
}

fn shows(story: &Story, status: &str, reason: &str) {
    assert_eq!(up_to_date(story), (status.to_owned(), reason.to_owned()));
}

#[test]
fn o14_up_to_date_is_false_from_the_edit_until_every_ready_pod_runs_it() {
    let mut story = Story::settled("{}");
    shows(&story, "True", "AllPodsCurrent");
    story.edit("{ttlSeconds: 7}");
    story.reconcile(10);
    shows(&story, "False", "CanaryOnTrial");
    story.edit("{rollout: {canary: false}, ttlSeconds: 7}");
    story.reconcile(11);
    shows(&story, "False", "TakingOver");
    story.pods_follow();
    // Of many pods, some are asked in each look.
    let report = story.observed.pod_reports.remove("dns-1-uid").expect("a report");
    story.reconcile(12);
    shows(&story, "False", "TakingOver");
    assert_eq!(kstatus(&story.dns), Kstatus::InProgress);
    story.observed.pod_reports.insert("dns-1-uid".to_owned(), report);
    story.reconcile(13);
    shows(&story, "True", "AllPodsCurrent");
    story.observed.pod_reports.remove("dns-1-uid");
    story.reconcile(14);
    shows(&story, "True", "AllPodsCurrent");
    story.edit("{ttlSeconds: 5000}");
    story.reconcile(13);
    shows(&story, "False", "NotAccepted");
}

#[test]
fn o16_up_to_date_is_true_once_the_service_is_given_back_also_with_broken_pods() {
    let mut story = Story::new("{service: {adopt: true}}");
    story.observed.service = Some(kube_dns());
    story.observed.foreign_pods = vec![foreign_pod()];
    deploy(&mut story.observed, 2);
    // People go back because our pods are broken: none is ready, and no rollout of them ends.
    story.observed.pods = story.observed.pods.iter().cloned().map(unready).collect();
    story.deployment_status(1, 3);
    story.reconcile(0);
    shows(&story, "False", "RollingOut");
    let selector = |story: &mut Story| {
        let spec = story.observed.service.as_mut().and_then(|service| service.spec.as_mut());
        spec.and_then(|spec| spec.selector.take()).unwrap_or_default()
    };
    let mut switched = selector(&mut story);
    let own = switched.clone();
    switched.insert(crate::names::INSTANCE.to_owned(), "default".to_owned());
    story.observed.service.as_mut().unwrap().spec.as_mut().unwrap().selector = Some(switched);
    story.edit("{}");
    story.reconcile(1);
    assert_eq!(up_to_date(&story).0, "False", "our key is in it");
    story.observed.service.as_mut().unwrap().spec.as_mut().unwrap().selector = Some(own);
    super::adoption::expose_only_other(&mut story);
    story.reconcile(2);
    shows(&story, "True", "Released");
    story.deployment_status(2, 2);
    story.reconcile(3);
    shows(&story, "True", "Released");
    story.applied.failures.push(("Deployment x".to_owned(), "denied".to_owned()));
    story.reconcile(4);
    assert_eq!(up_to_date(&story).0, "False", "an object cannot be written");
}

#[test]
fn o4_an_edit_of_the_configuration_by_another_client_is_degraded_for_a_while() {
    let mut story = Story::settled("{}");
    let before = config(&story.dns).to_json();
    let edit = |story: &mut Story| {
        let data = story.observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
        data.insert("stable.json".to_owned(), "{\"format\":1,\"ttlSeconds\":99}".to_owned());
    };
    edit(&mut story);
    story.observed.lost_document = Some(before);
    let status = story.reconcile(10);
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(
        (degraded.status.as_str(), degraded.reason.as_str()),
        ("True", "ConfigurationEdited")
    );
    let words = "stable.json of ConfigMap kube-system/clusterdns-default, which all pods follow. The operator wrote the right";
    assert!(degraded.message.contains(words), "{}", degraded.message);
    story.observed.lost_document = None;
    let status = story.reconcile(700);
    assert_eq!(condition(&status, "Degraded").unwrap().reason, "AsExpected");
    // If the document before is not known, this is reported until the one of the spec is in its place.
    story.edit("{ttlSeconds: 7}");
    edit(&mut story);
    for seconds in [800, 2_000] {
        let status = story.reconcile(seconds);
        let degraded = condition(&status, "Degraded").unwrap();
        assert!(degraded.message.contains("runs what that client wrote"), "{}", degraded.message);
    }
}

#[test]
fn o4_degraded_says_so_where_nothing_can_be_written_back() {
    let mut story = Story::settled("{}");
    story.edit("{ttlSeconds: 7}");
    let failed =
        serde_json::json!({"stable": "0123456789ab", "failed": config(&story.dns).revision()});
    let data = story.observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
    data.insert("stable.json".to_owned(), "not JSON".to_owned());
    data.insert("rollout.json".to_owned(), failed.to_string());
    let status = story.reconcile(10);
    let degraded = condition(&status, "Degraded").unwrap();
    let words = "every pod keeps what it runs, and a pod that starts gets nothing";
    assert!(degraded.message.contains(words), "{}", degraded.message);
}

#[test]
fn o17_what_failed_and_waits_for_pods_says_so_and_needs_no_person() {
    let mut story = failed_trial();
    reported(&mut story.observed, "dns-0").rejection = None;
    let waits = |story: &mut Story, second, progressing: &str| {
        let status = story.reconcile(second);
        let expected = format!("True=Valid True=Serving True={progressing} True=CanaryFailed");
        is(story, &expected, Kstatus::InProgress);
        let message = &condition(&status, "Degraded").unwrap().message;
        let words = "The next trial begins when two pods are ready and no rollout of pods is in";
        assert!(message.contains(words), "{message}");
        assert!(!message.contains("only one pod"), "{message}");
    };
    story.deployment_status(1, 3);
    // Another spec is tried at once, and waits only for the rollout.
    story.edit("{ttlSeconds: 7, drainSeconds: 30}");
    waits(&mut story, 30, "RollingOut");
    // It failed before another one was asked for.
    story.edit("{ttlSeconds: 9}");
    story.reconcile(40);
    story.edit("{ttlSeconds: 7}");
    waits(&mut story, 50, "RollingOut");
    story.deployment_status(2, 2);
    let ready = story.observed.pods[1].clone();
    story.observed.pods[1] = unready(ready.clone());
    waits(&mut story, 60, "WaitingForCanary");
    story.observed.pods[1] = ready;
    story.reconcile(70);
    is(&story, "True=Valid True=Serving True=CanaryOnTrial False=AsExpected", Kstatus::InProgress);
}

#[test]
fn o17_what_failed_and_is_unmanaged_since_waits_for_a_person() {
    let mut story = failed_trial();
    story.edit("{ttlSeconds: 7, managementState: Unmanaged}");
    let status = story.reconcile(30);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("no trial while managementState is Unmanaged"), "{message}");
    assert!(condition(&status, "Stalled").is_some());
}

#[test]
fn o14_pods_that_cannot_be_asked_are_not_up_to_date_but_stay_so() {
    let mut story = Story::settled("{}");
    let silence = |story: &mut Story| {
        for answer in story.observed.pod_reports.values_mut() {
            answer.reported = Err("no route".to_owned());
        }
    };
    silence(&mut story);
    story.reconcile(10);
    shows(&story, "True", "AllPodsCurrent");
    story.edit("{rollout: {canary: false}, ttlSeconds: 7}");
    story.reconcile(11);
    shows(&story, "False", "PodsSilent");
}

#[test]
fn o14_a_refused_edit_leaves_ready_true_while_the_service_leads_to_our_pods() {
    let mut story = Story::settled("{}");
    story.edit("{ttlSeconds: 5000}");
    let status = story.reconcile(10);
    let ready = condition(&status, "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("True", "Serving"));
    assert!(ready.message.contains("as an earlier spec says: 2;"), "{}", ready.message);
    story.observed.pods.clear();
    let status = story.reconcile(11);
    assert_eq!(condition(&status, "Ready").unwrap().status, "False");
    let mut first = Story::new("{ttlSeconds: 5000}");
    let status = first.reconcile(0);
    assert_eq!(condition(&status, "Ready").unwrap().status, "False", "nothing ran before");
    assert_eq!(kstatus(&first.dns), Kstatus::Failed);
}

#[test]
fn o18_fields_without_effect_are_named_by_the_condition_accepted() {
    // No field is without effect in this version: this is how one would be named.
    let used =
        |field: &str| WithoutEffect { field: field.to_owned(), instead: "every TTL is 5".into() };
    let message = "the spec is valid and acted on. Fields without effect: spec.ttlSeconds (every TTL is 5), \
                   spec.cache.stale (every TTL is 5)";
    assert_eq!(
        accepted(ACTED_ON, &[used("spec.ttlSeconds"), used("spec.cache.stale")], &[]),
        ConditionState::yes("FieldsWithoutEffect", message)
    );
    let valid = ConditionState::yes("Valid", "the spec is valid and acted on");
    assert_eq!(accepted(ACTED_ON, &[], &[]), valid);
}

#[test]
fn o18_monitors_that_the_api_server_cannot_have_are_named_by_the_condition_accepted() {
    let accepted = |spec: &str, pod_monitor: bool| {
        let mut story = Story::settled(spec);
        story.observed.offers.pod_monitor = pod_monitor;
        story.observed.offers.prometheus_rule = true;
        let status = story.reconcile(10);
        let accepted = condition(&status, "Accepted").unwrap();
        (accepted.reason.clone(), accepted.message.clone())
    };
    let valid = ("Valid".to_owned(), "the spec is valid and acted on".to_owned());
    assert_eq!(accepted("{}", true), valid);
    assert_eq!(accepted("{metrics: {podMonitor: false, prometheusRule: false}}", false), valid);
    let (reason, message) = accepted("{}", false);
    assert_eq!(reason, "Valid", "it is the default, so nothing that was asked for is lost");
    assert!(message.contains("the kind: PodMonitor (spec.metrics.podMonitor, and"), "{message}");
    let (reason, message) = accepted("{metrics: {intervalSeconds: 30}}", false);
    assert_eq!(reason, "FieldsWithoutEffect");
    for words in
        ["spec.metrics.intervalSeconds (the API server does not have", "PodMonitor (spec.met"]
    {
        assert!(message.contains(words), "{message}");
    }
    let (reason, message) = accepted("{metrics: {podMonitor: false, intervalSeconds: 30}}", false);
    assert_eq!(reason, "FieldsWithoutEffect");
    assert!(message.contains("spec.metrics.intervalSeconds (podMonitor is false"), "{message}");
}

#[test]
fn o18_a_canary_is_observed_for_as_long_as_the_spec_says() {
    let mut story = Story::settled("{rollout: {observeSeconds: 60}}");
    story.edit("{rollout: {observeSeconds: 60}, ttlSeconds: 7}");
    story.reconcile(10);
    assert_eq!(config_map::state(&story.observed).observe_seconds, 60);
}

#[test]
fn what_pods_skip_is_listed_once_in_one_order_and_at_most_twenty() {
    let mut story = Story::settled("{}");
    let object = |n: usize| SkippedObject {
        kind: "Service".to_owned(),
        namespace: "shop".to_owned(),
        name: format!("s{n:02}"),
        reason: "x".repeat(5_000),
    };
    reported(&mut story.observed, "dns-0").skipped = (0..30).rev().map(object).collect();
    reported(&mut story.observed, "dns-1").skipped = (0..30).map(object).collect();
    let listed = story.reconcile(10).skipped_objects;
    let names: Vec<String> = listed.iter().map(|object| object.name.clone()).collect();
    assert_eq!(names, (0..20).map(|n| format!("s{n:02}")).collect::<Vec<_>>());
    assert!(listed.iter().all(|object| object.reason.len() <= MESSAGE));
}

#[test]
fn e15_objects_of_one_namespace_hide_none_of_another_in_status() {
    let mut story = Story::settled("{}");
    let object = |namespace: &str, n: usize| SkippedObject {
        kind: "Service".to_owned(),
        namespace: namespace.to_owned(),
        name: format!("s{n:02}"),
        reason: "r".to_owned(),
    };
    reported(&mut story.observed, "dns-0").skipped = (0..20).map(|n| object("a", n)).collect();
    let of_other = (10..29).map(|n| object("a", n)).chain([object("shop", 7)]);
    reported(&mut story.observed, "dns-1").skipped = of_other.collect();
    let listed = story.reconcile(10).skipped_objects;
    let mut expected: Vec<SkippedObject> = (0..19).map(|n| object("a", n)).collect();
    expected.push(object("shop", 7));
    assert_eq!(listed, expected);
}

#[test]
fn k23_who_fills_the_cache_cannot_change_the_status_by_edits() {
    let mut story = Story::settled("{}");
    story.observed.not_kept = ["configmaps", "services"].map(str::to_owned).into();
    let status = story.reconcile(10);
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!((degraded.reason.as_str(), degraded.status.as_str()), ("CacheFull", "True"));
    assert!(degraded.message.contains("(configmaps, services)"), "{}", degraded.message);
    let has_number = degraded.message.chars().any(|it| it.is_ascii_digit());
    assert!(!has_number, "a number changes with what others write: {}", degraded.message);
    assert!(degraded.message.contains("Delete what is not needed"), "{}", degraded.message);
}

#[test]
fn k23_where_the_cluster_fills_the_cache_the_status_asks_for_no_deletion() {
    let mut story = Story::settled("{}");
    story.observed.not_kept = ["services".to_owned()].into();
    story.observed.is_cache_mostly_needed = true;
    let status = story.reconcile(10);
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(degraded.reason, "CacheFull");
    assert!(degraded.message.contains("Nodes and objects with the label"), "{}", degraded.message);
    assert!(!degraded.message.contains("Delete"), "{}", degraded.message);
}

#[test]
fn a_long_refusal_is_cut_to_what_the_api_server_takes() {
    let story = Story::settled("{}");
    let instances: Vec<String> = (0..40).map(|n| format!("{n:02}{}", "x".repeat(38))).collect();
    let refusal =
        Refusal::new("NameNotManaged", "metadata.name", format!("not {}", instances.join(", ")));
    let status = refused(&story.dns, &refusal, &story.observed, &PutBack::default(), at(20));
    let message = &status.violations[0].message;
    assert!(message.starts_with("not 00x") && message.len() <= MESSAGE, "{}", message.len());
}

#[test]
fn what_pods_call_an_object_is_cut_to_what_the_api_server_takes() {
    let mut story = Story::settled("{}");
    let long = |octets: usize| "x".repeat(octets + 1);
    let skipped = SkippedObject {
        kind: long(LABEL),
        namespace: long(LABEL),
        name: long(OBJECT_NAME),
        reason: long(MESSAGE),
    };
    reported(&mut story.observed, "dns-0").skipped = [skipped].into();
    let listed = &story.reconcile(30).skipped_objects[0];
    let octets =
        [&listed.kind, &listed.namespace, &listed.name, &listed.reason].map(|text| text.len());
    assert_eq!(octets, [LABEL, LABEL, OBJECT_NAME, MESSAGE]);
}

#[test]
fn o12_a_cluster_that_is_too_large_for_max_replicas_says_so() {
    let mut story = Story::settled("{scaling: {proportional: {maxReplicas: 2}}}");
    let says = |story: &mut Story| {
        let status = story.reconcile(60);
        let it = condition(&status, "Progressing").unwrap();
        (
            it.reason.clone(),
            it.message.contains("maxReplicas of spec.scaling.proportional allows (2)"),
        )
    };
    assert_eq!(says(&mut story), ("Complete".to_owned(), false));
    story.observed.size.schedulable_nodes = 1_000;
    assert_eq!(says(&mut story), ("Complete".to_owned(), true));
}
