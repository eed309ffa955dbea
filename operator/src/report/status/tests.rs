//! What people, kstatus, Argo CD and Flux read, reconcile by reconcile.

use super::*;
use crate::apply::outcome::{PutBack, Restored};
use crate::decide::config_map;
use crate::decide::decide;
use crate::decide::plan::{Refusal, RolloutState};
use crate::fixtures::{
    at, config, deploy, dns, expose, first_status, foreign_pod, kube_dns, own_service, reported,
    says, settings, unready, write,
};
use crds::bounds::{LABEL, MESSAGE, OBJECT_NAME};
use crds::v1alpha1::SkippedObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// A port of kstatus, which the tests with a real API server read as well.
#[path = "../../../../tests/src/kstatus.rs"]
#[expect(unreachable_pub, reason = "it is public where it lies")]
mod kstatus_rules;

use kstatus_rules::Kstatus;

mod adoption;
mod certificates;
mod clients_excluded;
mod failing_pods;
mod moving;
mod nodes;
mod operator_lacks;
mod outages;
mod outdated_pods;
mod problems;
mod silent_pods;
mod trials;
mod traffic;
mod upstreams;
mod words;

fn kstatus(dns: &ClusterDNS) -> Kstatus {
    kstatus_rules::kstatus(&serde_json::to_value(dns).unwrap())
}

fn condition<'a>(status: &'a ClusterDNSStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == kind)
}

/// Plays reconciles of a cluster, as the operator does.
struct Story {
    observed: Observed,
    dns: ClusterDNS,
    applied: Applied,
}

impl Story {
    fn new(spec: &str) -> Self {
        let dns = ClusterDNS { status: Some(first_status()), ..dns(spec) };
        Self { observed: Observed::default(), dns, applied: Applied::default() }
    }

    /// A cluster in which all is well.
    fn settled(spec: &str) -> Self {
        let mut story = Self::new(spec);
        story.observed.service = Some(own_service());
        deploy(&mut story.observed, 2);
        story.reconcile(0);
        story.pods_follow();
        story.reconcile(1);
        story
    }

    fn reconcile(&mut self, seconds: i64) -> ClusterDNSStatus {
        let now = at(seconds);
        let status = match crds::check_resource(&self.dns) {
            Err(violations) => {
                rejected(&self.dns, &violations, &self.observed, &PutBack::default(), now)
            }
            Ok(config) => match decide(&self.dns, &config, &self.observed, &settings(), now) {
                Err(refusal) => {
                    refused(&self.dns, &refusal, &self.observed, &PutBack::default(), now)
                }
                Ok((config, plan)) => {
                    if !self.applied.has_failed(Kind::ConfigMap) {
                        write(&mut self.observed, &plan.rollout);
                    }
                    of(&self.dns, &config, &plan, &self.applied, &self.observed, now)
                }
            },
        };
        self.dns.status = Some(status.clone());
        status
    }

    fn edit(&mut self, spec: &str) {
        let (generation, status) = (self.dns.metadata.generation, self.dns.status.take());
        self.dns = dns(spec);
        self.dns.metadata.generation = generation.map(|generation| generation + 1);
        self.dns.status = status;
    }

    fn pods_follow(&mut self) {
        let RolloutState { stable, .. } = config_map::state(&self.observed);
        for pod in self.observed.pods.clone() {
            says(&mut self.observed, pods::name(&pod), &stable);
        }
    }
}

/// `Accepted Ready Progressing Degraded`, then what kstatus makes of it.
fn summary(story: &Story) -> (String, Kstatus) {
    let status = story.dns.status.clone().unwrap_or_default();
    let shown = ["Accepted", "Ready", "Progressing", "Degraded"].map(|kind| {
        let condition =
            condition(&status, kind).expect("every condition is there from the first visit");
        assert_eq!(condition.observed_generation, story.dns.metadata.generation);
        assert!(
            !condition.reason.is_empty() && condition.reason.chars().all(char::is_alphanumeric)
        );
        format!("{}={}", &condition.status, condition.reason)
    });
    assert_eq!(status.observed_generation, story.dns.metadata.generation);
    (shown.join(" "), kstatus(&story.dns))
}

fn is(story: &Story, expected: &str, computed: Kstatus) {
    assert_eq!(summary(story), (expected.to_owned(), computed));
}

#[test]
fn o14_from_the_first_visit_to_ready() {
    let mut story = Story::new("{}");
    story.reconcile(0);
    is(
        &story,
        "True=Valid False=ServiceMissing True=RollingOut False=AsExpected",
        Kstatus::InProgress,
    );
    story.observed.service = Some(own_service());
    deploy(&mut story.observed, 2);
    for pod in &mut story.observed.pods {
        *pod = unready(pod.clone());
    }
    story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap().ready_replicas = Some(0);
    story.reconcile(1);
    is(&story, "True=Valid False=NoPodReady True=Starting False=AsExpected", Kstatus::InProgress);
    deploy(&mut story.observed, 2);
    story.pods_follow();
    let status = story.reconcile(2);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    // No one asked there as a client does.
    let said = &condition(&status, "Ready").unwrap().message;
    assert!(said.ends_with("at 10.96.0.10 has ready pods behind it: 2"), "{said}");
    assert_eq!(status.cluster_ips, ["10.96.0.10"]);
    assert_eq!(status.domain.as_deref(), Some("cluster.local"));
    assert_eq!(status.replicas.unwrap().summary, "2/2");
    let revision = status.revision.unwrap();
    assert_eq!(
        (revision.desired.as_str(), revision.canary.as_str()),
        (revision.stable.as_str(), "")
    );
    assert!(condition(story.dns.status.as_ref().unwrap(), "Stalled").is_none());
}

#[test]
fn o14_a_new_clusterdns_is_not_ready_by_the_first_of_many_pods() {
    let mut story = Story::new("{scaling: {fixed: {replicas: 8}}}");
    story.observed.service = Some(own_service());
    deploy(&mut story.observed, 8);
    for pod in &mut story.observed.pods[1..] {
        *pod = unready(pod.clone());
    }
    let status = story.reconcile(0);
    let ready = condition(&status, "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "TooFewPodsReady"));
}

#[test]
fn o14_a_status_of_an_unchanged_cluster_is_the_same_at_every_time() {
    let mut story = Story::settled("{}");
    let before = story.reconcile(10);
    assert_eq!(story.reconcile(100_000), before, "so it is not written");
}

#[test]
fn o14_a_transition_is_a_change_of_the_value_and_nothing_else() {
    let mut story = Story::settled("{}");
    let since = |story: &Story, kind: &str| {
        let status = story.dns.status.clone().unwrap();
        condition(&status, kind).unwrap().last_transition_time.0
    };
    assert_eq!(since(&story, "Ready"), at(0));
    story.applied.failures = vec![("Deployment kube-system/x".to_owned(), "no".to_owned())];
    story.reconcile(50);
    assert_eq!((since(&story, "Ready"), since(&story, "Degraded")), (at(0), at(50)));
    story.observed.offers.crd_is_outdated = true;
    story.applied.failures.clear();
    story.reconcile(60);
    is(&story, "True=Valid True=Serving False=Complete True=CRDOutdated", Kstatus::Current);
    let status = story.dns.status.clone().unwrap();
    let message = &condition(&status, "Degraded").unwrap().message;
    // Helm, which installed it, owns its fields.
    assert!(message.contains("--server-side --force-conflicts"), "{message}");
    assert_eq!(since(&story, "Degraded"), at(50), "another reason is no transition");
}

#[test]
fn o14_a_new_generation_is_in_progress_until_it_was_looked_at() {
    let mut story = Story::settled("{}");
    story.dns.metadata.generation = Some(9);
    assert_eq!(kstatus(&story.dns), Kstatus::InProgress);
}

#[test]
fn o1_a_rejected_spec_is_reported_by_field_and_pods_continue() {
    let mut story = Story::settled("{}");
    let servers: Vec<String> =
        (0..15).map(|n| format!("{{address: 10.0.0.{n}, port: 0}}")).collect();
    let stub = |n: u32| format!("{{domain: d{n}.example, servers: [{}]}}", servers.join(", "));
    story.edit(&format!("{{stubDomains: [{}, {}]}}", stub(1), stub(2)));
    let status = story.reconcile(10);
    is(&story, "False=OutOfRange True=Serving False=NotAccepted True=OutOfRange", Kstatus::Failed);
    assert_eq!(status.violations.len(), 20);
    assert_eq!(status.violations[0].field, "spec.stubDomains[0].servers[0].port");
    assert!(condition(&status, "Accepted").unwrap().message.ends_with("(and 29 more)"));
    assert_eq!(
        (status.domain.as_deref(), status.cluster_ips.len()),
        (Some("cluster.local"), 1),
        "what is served"
    );
    assert_eq!(status.replicas.unwrap().on_stable_revision, 2);

    story.edit("{}");
    story.reconcile(11);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
}

#[test]
fn o2_a_refused_spec_is_reported_with_its_reason() {
    let mut story = Story::settled("{}");
    story.edit("{upstreams: {servers: [{address: 10.96.0.10}]}}");
    let status = story.reconcile(10);
    let expected =
        "False=UpstreamIsOwnService True=Serving False=NotAccepted True=UpstreamIsOwnService";
    is(&story, expected, Kstatus::Failed);
    assert_eq!(status.violations[0].field, "spec.upstreams.servers[0].address");
}

#[test]
fn conditions_do_not_flap_during_a_rollout() {
    let mut story = Story::settled("{scaling: {fixed: {replicas: 2}}}");
    // A new image: one more pod, then one less, and for a moment only one is ready.
    story.deployment_status(0, 2);
    story.reconcile(10);
    is(&story, "True=Valid True=Serving True=RollingOut False=AsExpected", Kstatus::InProgress);
    story.deployment_status(1, 3);
    story.observed.pods.pop();
    story.reconcile(20);
    is(&story, "True=Valid True=Serving True=RollingOut False=AsExpected", Kstatus::InProgress);
    // Eight more pods that have yet to start are no loss.
    story.edit("{scaling: {fixed: {replicas: 10}}}");
    story.observed.deployment.as_mut().unwrap().spec.as_mut().unwrap().replicas = Some(10);
    story.deployment_status(2, 3);
    story.reconcile(30);
    is(&story, "True=Valid True=Serving True=RollingOut False=AsExpected", Kstatus::InProgress);
    // A pod that is evicted from a drained node changes nothing.
    let mut story = Story::settled("{}");
    story.observed.pods[0] = unready(story.observed.pods[0].clone());
    story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap().ready_replicas = Some(1);
    story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    story.observed.pods.clear();
    story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap().ready_replicas = Some(0);
    story.reconcile(11);
    is(
        &story,
        "True=Valid False=NoPodReady False=Complete True=TooFewPodsReady",
        Kstatus::InProgress,
    );
}

#[test]
fn o19_an_outage_of_all_pods_is_said_until_they_are_ready_again() {
    let mut story = Story::settled("{}");
    let ready = story.observed.clone();
    story.observed.pods = story.observed.pods.iter().cloned().map(unready).collect();
    story.observed.deployment.as_mut().unwrap().status.as_mut().unwrap().ready_replicas = Some(0);
    let first = story.reconcile(10);
    let out = "True=Valid False=NoPodReady False=Complete True=TooFewPodsReady";
    is(&story, out, Kstatus::InProgress);
    assert_eq!(story.reconcile(40), first, "it has not changed");
    // A person tries another image, and those pods crash: another reason comes first.
    story.deployment_status(0, 2);
    let crash = serde_json::json!({"containerStatuses": [{"name": "dns", "ready": false, "restartCount": 9, "image": "",
        "imageID": "", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
    story.observed.pods[0].status = Some(crate::fixtures::from(crash));
    let crashing = story.reconcile(70);
    assert_eq!(condition(&crashing, "Degraded").unwrap().reason, "CrashLoopBackOff");
    story.observed.pods[0] = unready(ready.pods[0].clone());
    story.deployment_status(2, 2);
    let again = story.reconcile(100);
    is(&story, out, Kstatus::InProgress);
    for (before, after) in [(&first, &crashing), (&crashing, &again)] {
        let changes = crate::report::changes::of(Some(before), after, &[], None);
        assert!(changes.iter().all(|change| change.reason != "Recovered"), "{changes:?}");
    }
    story.observed.pods = ready.pods;
    story.observed.deployment = ready.deployment;
    let after = story.reconcile(130);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    let changes = crate::report::changes::of(Some(&again), &after, &[], None);
    assert_eq!(changes[0].reason, "Recovered");
}

#[test]
fn o7_a_canary_is_progress_and_its_failure_waits_for_a_person() {
    let mut story = Story::settled("{}");
    story.edit("{ttlSeconds: 7}");
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving True=CanaryOnTrial False=AsExpected", Kstatus::InProgress);
    let revision = status.revision.unwrap();
    assert_eq!(revision.canary, revision.desired);
    let revision = config(&story.dns).revision();
    says(&mut story.observed, "dns-0", &revision);
    story.observed.comparison = Some(crate::fixtures::compared("dns-0", &revision, false, true));
    story.reconcile(20);
    is(&story, "True=Valid True=Serving True=CanaryOnTrial False=AsExpected", Kstatus::InProgress);
    let status = story.reconcile(24);
    is(&story, "True=Valid True=Serving True=TakingOver True=CanaryFailed", Kstatus::Failed);
    assert_eq!(status.revision.clone().unwrap().canary, "");
    assert!(
        condition(&status, "Degraded")
            .unwrap()
            .message
            .contains("pod dns-0: example.com. A: SERVFAIL")
    );
    story.pods_follow();
    story.reconcile(21);
    is(&story, "True=Valid True=Serving False=TrialFailed True=CanaryFailed", Kstatus::Failed);
}

#[test]
fn o14_a_change_is_in_progress_until_every_ready_pod_reports_it() {
    let mut story = Story::settled("{rollout: {canary: false}}");
    story.edit("{rollout: {canary: false}, ttlSeconds: 7}");
    story.reconcile(10);
    is(&story, "True=Valid True=Serving True=TakingOver False=AsExpected", Kstatus::InProgress);
    story.pods_follow();
    story.reconcile(11);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    // One that cannot be asked does not delay the condition.
    story.observed.pod_reports.clear();
    story.reconcile(12);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
}

#[test]
fn o14_what_is_unmanaged_shows_what_runs_and_is_on_no_way() {
    let mut story = Story::settled("{ttlSeconds: 5}");
    let runs = config_map::state(&story.observed).stable;
    story.edit("{ttlSeconds: 7, managementState: Unmanaged}");
    let status = story.reconcile(10);
    assert!(status.conditions.iter().all(|it| CONDITIONS.contains(&it.type_.as_str())));
    let revision = status.revision.clone().unwrap();
    is(&story, "True=Valid True=Serving False=Unmanaged False=AsExpected", Kstatus::Current);
    let accepted = &condition(&status, "Accepted").unwrap().message;
    assert_eq!(accepted, "the spec is valid; managementState is Unmanaged, so it is not acted on");
    assert!(revision.stable == runs && revision.desired != runs && revision.canary.is_empty());
}

#[test]
fn an_object_that_cannot_be_written_is_named() {
    let mut story = Story::settled("{}");
    story.applied.failures =
        vec![("Deployment kube-system/clusterdns-default".to_owned(), "forbidden".to_owned())];
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=ApplyFailed", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("Deployment kube-system/clusterdns-default: forbidden"), "{message}");
    let message = &condition(&status, "Progressing").unwrap().message;
    assert!(!message.contains("as the spec says"), "{message}");
    assert!(message.ends_with("is in progress: Degraded says what is wrong"), "{message}");
    story.applied.failures.clear();
    let message = condition(&story.reconcile(11), "Progressing").unwrap().message.clone();
    assert!(message.ends_with("is in progress"), "{message}");
}

#[test]
fn o5_pods_that_refuse_their_configuration_are_named() {
    let mut story = Story::settled("{}");
    reported(&mut story.observed, "dns-1").rejection = Some("format 9".to_owned());
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=PodsRefuse", Kstatus::Current);
    assert!(
        condition(&status, "Degraded").unwrap().message.contains(": dns-1 (format 9). Correct")
    );
}
