//! States of a Service, and what is decided about its selector.

mod addresses;
mod annotation;
mod clocks;
mod deleted;
mod platforms;
mod releasing;
mod traffic;

use super::*;
use crate::decide::plan::RolloutPlan;
use crate::decide::rollout;
use crate::fixtures::{
    at, config, deploy, dns, expose, foreign_pod, from, kube_dns, own_service, settings, unready,
    write,
};
use serde_json::json;

const ADOPT: &str = "{service: {adopt: true}}";

fn planned(spec: &str, observed: &Observed) -> Result<ServicePlan, &'static str> {
    plan(&dns(spec), observed, at(0)).map_err(|refusal| {
        assert!(refusal.field.starts_with("spec.service."), "{refusal:?}");
        refusal.reason
    })
}

fn with(service: Service) -> Observed {
    let mut observed = Observed {
        service: Some(service),
        foreign_pods: vec![foreign_pod()],
        ..Observed::default()
    };
    deploy(&mut observed, 2);
    expose(&mut observed);
    observed
}

fn kube_dns_label() -> BTreeMap<String, String> {
    [("k8s-app".to_owned(), "kube-dns".to_owned())].into()
}

fn patched(add: bool) -> Option<SelectorPatch> {
    Some(SelectorPatch { resource_version: "100".to_owned(), add })
}

/// As our patch leaves it.
fn switched() -> Service {
    let mut service = kube_dns();
    let selector = service.spec.as_mut().and_then(|spec| spec.selector.as_mut()).unwrap();
    selector.insert(INSTANCE.to_owned(), "default".to_owned());
    service.metadata.annotations = Some([(ADOPTED_BY.to_owned(), "default".to_owned())].into());
    service
}

/// As an addon manager leaves it: our annotation stays, our key does not.
fn reset() -> Service {
    let mut service = switched();
    service.spec = kube_dns().spec;
    service.metadata.resource_version = Some("200".to_owned());
    service
}

#[test]
fn a_service_that_is_not_there_or_ours_is_ours() {
    assert_eq!(planned("{}", &Observed::default()), Ok(ServicePlan::Own));
    assert_eq!(planned("{}", &with(own_service())), Ok(ServicePlan::Own));
    assert_eq!(planned(ADOPT, &with(own_service())), Ok(ServicePlan::Own));
}

#[test]
fn a_service_that_was_left_behind_by_one_of_the_same_name_is_ours_again() {
    let mut left = own_service();
    left.metadata.owner_references = None;
    left.metadata.labels = Some(crate::names::labels("default"));
    left.spec.as_mut().unwrap().selector = Some(crate::names::selector("default"));
    assert_eq!(planned("{}", &with(left.clone())), Ok(ServicePlan::Own));
    assert_eq!(planned(ADOPT, &with(left.clone())), Ok(ServicePlan::Own));
    left.metadata.labels = Some(crate::names::labels("second"));
    left.spec.as_mut().unwrap().selector = Some(crate::names::selector("second"));
    assert_eq!(planned("{}", &with(left)), Err("Conflict"), "another's");
}

#[test]
fn o3_a_service_whose_selector_and_annotation_differ_is_not_refused_to_both() {
    let named = |name: &str, day: u32| {
        let mut dns = dns(ADOPT);
        let created = json!(format!("2026-01-{day:02}T00:00:00Z"));
        dns.metadata.creation_timestamp = Some(from(created));
        (dns.metadata.name, dns.metadata.uid) =
            (Some(name.to_owned()), Some(format!("{name}-uid")));
        dns
    };
    let mut service = switched();
    let selector = service.spec.as_mut().and_then(|spec| spec.selector.as_mut()).unwrap();
    selector.insert(INSTANCE.to_owned(), "young".to_owned());
    service.metadata.annotations = Some([(ADOPTED_BY.to_owned(), "old".to_owned())].into());
    let decided = |dns: &ClusterDNS, other: &ClusterDNS| {
        let others = vec![std::sync::Arc::new(other.clone())];
        let observed = Observed { others, ..with(service.clone()) };
        let decided = crate::decide::decide(dns, &config(dns), &observed, &settings(), at(0));
        decided.map(|(_, plan)| plan.service).map_err(|refusal| refusal.reason)
    };
    let (old, mut young) = (named("old", 1), named("young", 2));
    let adopted = Ok(ServicePlan::Adopted { labels: kube_dns_label(), patch: patched(true) });
    assert_eq!((decided(&old, &young), decided(&young, &old)), (Err("Conflict"), adopted));
    // Its finalizers still run: the Service is not given back yet.
    young.metadata.deletion_timestamp = old.metadata.creation_timestamp.clone();
    let mut annotated = service.clone();
    annotated.spec = kube_dns().spec;
    annotated.metadata.annotations = Some([(ADOPTED_BY.to_owned(), "young".to_owned())].into());
    let others = vec![std::sync::Arc::new(young)];
    assert_eq!(planned(ADOPT, &Observed { others, ..with(annotated) }), Err("Conflict"));
}

#[test]
fn a_foreign_service_is_not_touched_unless_the_spec_says_so() {
    let observed = Observed { service: Some(kube_dns()), ..Observed::default() };
    assert_eq!(planned("{}", &observed), Err("ServiceExists"));
}

#[test]
fn o15_the_switch_waits_for_a_complete_rollout_with_its_labels_and_two_ready_pods() {
    let adopted = |patch| Ok(ServicePlan::Adopted { labels: kube_dns_label(), patch });
    let ready = with(kube_dns());
    assert_eq!(planned(ADOPT, &ready), adopted(patched(true)));
    let nothing_yet = Observed { deployment: None, pods: Vec::new(), ..ready.clone() };
    assert_eq!(planned(ADOPT, &nothing_yet), adopted(None));
    let mut one_ready = ready.clone();
    one_ready.pods[1] = unready(one_ready.pods[1].clone());
    assert_eq!(planned(ADOPT, &one_ready), adopted(None));
    let mut unheard = ready.clone();
    unheard.slices[0].endpoints.pop();
    assert_eq!(planned(ADOPT, &unheard), adopted(None), "one is not behind the Service yet");
    expose(&mut one_ready);
    unheard.slices = one_ready.slices;
    assert_eq!(planned(ADOPT, &unheard), adopted(None), "one is not ready there yet");
    let mut rolling = ready.clone();
    rolling.deployment.as_mut().unwrap().status.as_mut().unwrap().replicas = Some(3);
    assert_eq!(planned(ADOPT, &rolling), adopted(None), "an old pod is still there");
    let mut young = ready.clone();
    young.deployment.as_mut().unwrap().status.as_mut().unwrap().available_replicas = Some(1);
    assert_eq!(planned(ADOPT, &young), adopted(None), "one became ready a moment ago");
    let mut unseen = ready.clone();
    unseen.deployment.as_mut().unwrap().metadata.generation = Some(2);
    assert_eq!(planned(ADOPT, &unseen), adopted(None));
    let mut unlabelled = ready.clone();
    for pod in &mut unlabelled.pods {
        pod.metadata.labels.as_mut().unwrap().remove("k8s-app");
    }
    assert_eq!(planned(ADOPT, &unlabelled), adopted(None), "they would not be behind it");
    let mut old_template = ready.clone();
    let spec = old_template.deployment.as_mut().unwrap().spec.as_mut().unwrap();
    spec.template.metadata.as_mut().unwrap().labels.as_mut().unwrap().remove("k8s-app");
    assert_eq!(planned(ADOPT, &old_template), adopted(None));
    assert_eq!(planned(ADOPT, &with(switched())), adopted(None), "done");
}

#[test]
fn o15_who_asks_for_one_pod_is_not_kept_waiting_for_a_second() {
    let mut observed = with(kube_dns());
    deploy(&mut observed, 1);
    expose(&mut observed);
    let patch = |spec: &str| match planned(spec, &observed) {
        Ok(ServicePlan::Adopted { patch, .. }) => patch,
        other => panic!("{other:?}"),
    };
    assert_eq!(patch("{service: {adopt: true}, scaling: {fixed: {replicas: 1}}}"), patched(true));
    assert_eq!(patch(ADOPT), None);
}

#[test]
fn o15_a_service_that_our_pods_cannot_answer_for_is_refused() {
    let changed = |change: &dyn Fn(&mut Service)| {
        let mut service = kube_dns();
        change(&mut service);
        planned(ADOPT, &with(service)).err()
    };
    let port = |port: serde_json::Value| {
        changed(&move |service| {
            service.spec.as_mut().unwrap().ports = Some(vec![from(port.clone())])
        })
    };
    let unserved = Some("ServicePortsUnserved");
    assert_eq!(port(json!({"port": 53, "protocol": "UDP"})), None);
    assert_eq!(port(json!({"port": 5300, "protocol": "UDP", "targetPort": "dns"})), None);
    assert_eq!(port(json!({"port": 53, "targetPort": "dns-tcp"})), None, "TCP is the default");
    assert_eq!(port(json!({"port": 80, "targetPort": 9153})), None);
    assert_eq!(port(json!({"port": 53, "targetPort": "dns"})), unserved, "that name is UDP's");
    assert_eq!(port(json!({"port": 53, "protocol": "UDP", "targetPort": 10053})), unserved);
    assert_eq!(port(json!({"port": 853, "targetPort": 853})), unserved);
    let unadoptable = Some("ServiceNotAdoptable");
    assert_eq!(changed(&|service| service.spec.as_mut().unwrap().selector = None), unadoptable);
    let headless = |service: &mut Service| {
        let spec = service.spec.as_mut().unwrap();
        (spec.cluster_ip, spec.cluster_ips) =
            (Some("None".to_owned()), Some(vec!["None".to_owned()]));
    };
    assert_eq!(changed(&headless), unadoptable);
    let listening = "{service: {adopt: true}, listeners: {tls: {certificate: {name: a}}}}";
    let mut with_tls = kube_dns();
    with_tls.spec.as_mut().unwrap().ports =
        Some(vec![from(json!({"port": 853, "targetPort": 853}))]);
    assert!(planned(listening, &with(with_tls)).is_ok());
    let moved = "{service: {adopt: true, podPort: 1053}}";
    assert_eq!(planned(moved, &with(kube_dns())), Err("ServicePortsUnserved"));
}

#[test]
fn o15_an_adopted_service_keeps_its_addresses_and_is_not_widened() {
    let spec = |ips: &str| format!("{{service: {{adopt: true, clusterIPs: [{ips}]}}}}");
    assert!(planned(&spec("10.96.0.10"), &with(kube_dns())).is_ok());
    assert_eq!(planned(&spec("10.96.0.11"), &with(kube_dns())), Err("ClusterIPsDiffer"));
    assert_eq!(
        planned(&spec("10.96.0.10, \"fd00::a\""), &with(kube_dns())),
        Err("ClusterIPsDiffer")
    );
}

#[test]
fn o1_addresses_that_kubernetes_does_not_give_to_our_service_are_refused() {
    let asked = |ips: &str| {
        let spec = format!("{{service: {{clusterIPs: [{ips}]}}}}");
        planned(&spec, &with(own_service())).err()
    };
    let differ = Some("ClusterIPsDiffer");
    for (ips, refused) in [
        ("10.96.0.10", None),
        ("10.96.0.10, \"fd00::a\"", None),
        ("10.96.0.11", differ),
        ("\"fd00::a\"", differ),
        ("\"fd00::a\", 10.96.0.10", differ),
    ] {
        assert_eq!(asked(ips), refused, "{ips}");
    }
    let mut second = own_service();
    second.spec.as_mut().unwrap().cluster_ips =
        Some(vec!["10.96.0.10".to_owned(), "fd00::b".to_owned()]);
    let spec = "{service: {clusterIPs: [10.96.0.10, \"fd00::a\"]}}";
    assert_eq!(planned(spec, &with(second)).err(), differ, "the second one does not change either");
}

#[test]
fn a_service_of_another_cluster_dns_is_a_conflict() {
    let mut theirs = kube_dns();
    theirs.metadata.annotations = Some([(ADOPTED_BY.to_owned(), "second".to_owned())].into());
    let unreadable = ["second".to_owned()].into();
    assert_eq!(planned(ADOPT, &Observed { unreadable, ..with(theirs) }), Err("Conflict"));
}

#[test]
fn giving_back_takes_the_key_first_and_the_labels_after_it() {
    let released = |labels, patch| Ok(ServicePlan::Released { labels, patch });
    assert_eq!(planned("{}", &with(switched())), released(kube_dns_label(), patched(false)));
    assert_eq!(planned("{}", &with(kube_dns())), released(BTreeMap::new(), None));
    let alone = |service, labels: bool| {
        let mut observed = Observed { foreign_pods: vec![unready(foreign_pod())], ..with(service) };
        if !labels {
            let spec = observed.deployment.as_mut().unwrap().spec.as_mut().unwrap();
            spec.template.metadata.as_mut().unwrap().labels.as_mut().unwrap().remove("k8s-app");
        }
        planned("{}", &observed)
    };
    assert_eq!(alone(switched(), true), Err("NoOtherServer"));
    assert_eq!(alone(kube_dns(), true), Err("NoOtherServer"), "our pods are all that is behind it");
    assert_eq!(
        alone(kube_dns(), false),
        released(BTreeMap::new(), None),
        "it does not need us any more"
    );
}

#[test]
fn o10_the_key_of_a_cluster_dns_that_is_gone_is_taken_out() {
    let instances = |name: &str| [name.to_owned()];
    assert_eq!(leave(&switched(), &instances("default")), None);
    assert_eq!(leave(&switched(), &instances("other")), patched(false));
    assert_eq!(leave(&kube_dns(), &[]), None, "never adopted");
}

/// Plays reconciles of a cluster: what is decided is written, as the operator does.
struct Story {
    observed: Observed,
}

impl Story {
    fn reconcile(&mut self, seconds: i64) -> Option<SelectorPatch> {
        let dns = dns(ADOPT);
        let now = at(seconds);
        let service = plan(&dns, &self.observed, now).unwrap();
        let rollout: RolloutPlan = rollout::plan(&dns, &config(&dns), &self.observed, now);
        write(&mut self.observed, &rollout);
        match service {
            ServicePlan::Adopted { patch, .. } => patch,
            other => panic!("{other:?}"),
        }
    }

    fn becomes(&mut self, mut service: Service, version: &str) {
        service.metadata.resource_version = Some(version.to_owned());
        self.observed.service = Some(service);
    }

    fn reset_by(&self, seconds: i64) -> Option<(String, Option<i64>)> {
        let (manager, until) = reset_by(&dns(ADOPT), &self.observed, at(seconds))?;
        Some((manager, until.map(|until| until.as_second() - at(0).as_second())))
    }
}

#[test]
fn o15_a_reset_selector_is_reported_with_its_manager_and_retried_ever_more_seldom() {
    let mut story = Story { observed: with(kube_dns()) };
    assert_eq!(story.reconcile(0), patched(true));
    story.becomes(switched(), "101");
    assert_eq!(story.reconcile(1), None);
    assert_eq!(story.reset_by(1), None);
    let mut version = 200;
    let mut now = 10;
    for wait in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
        story.becomes(reset(), &version.to_string());
        assert_eq!(story.reconcile(now), None, "not fought");
        assert_eq!(story.reset_by(now), Some(("kubeadm".to_owned(), Some(now + wait))));
        assert_eq!(story.reconcile(now + wait - 1), None, "every leader remembers");
        let patch = story.reconcile(now + wait).expect("tried again");
        assert_eq!(patch.resource_version, version.to_string());
        assert!(patch.add);
        story.becomes(switched(), &(version + 1).to_string());
        now += wait + 10;
        assert_eq!(story.reconcile(now - 5), None);
        version += 2;
    }
    // The selector stays for hours: the next reset counts as the first one.
    assert_eq!(story.reconcile(now + 5 * 3_600), None);
    story.becomes(reset(), "900");
    assert_eq!(story.reconcile(now + 6 * 3_600), None);
    assert_eq!(story.reset_by(now + 6 * 3_600).unwrap().1, Some(now + 6 * 3_600 + 60));
}

#[test]
fn o15_a_patch_that_was_never_applied_is_no_reset() {
    let mut story = Story { observed: with(kube_dns()) };
    assert_eq!(story.reconcile(0), patched(true));
    // The operator was killed before it wrote: the Service is as it was.
    assert_eq!(story.reconcile(1), patched(true));
    assert_eq!(story.reset_by(1), None);
}

#[test]
fn o15_a_patch_that_conflicts_with_an_edit_of_others_is_no_reset() {
    let mut story = Story { observed: with(kube_dns()) };
    assert_eq!(story.reconcile(0), patched(true));
    // Another client wrote a label between our read and our patch.
    story.becomes(kube_dns(), "101");
    story.observed.conflict = Some("100".to_owned());
    assert_eq!(story.reset_by(1), None);
    assert_eq!(story.reconcile(1).expect("tried again").resource_version, "101");
    // That one was made, and the Service was replaced before a watch showed it.
    story.becomes(kube_dns(), "300");
    assert_eq!(story.reconcile(2), None);
    assert_eq!(story.reset_by(2).unwrap().1, Some(62));
}

#[test]
fn o15_a_service_replaced_with_its_annotations_is_not_fought_either() {
    let mut story = Story { observed: with(kube_dns()) };
    assert_eq!(story.reconcile(0), patched(true));
    story.becomes(kube_dns(), "300");
    assert_eq!(story.reconcile(1), None);
    assert_eq!(story.reset_by(1).unwrap().1, Some(61));
}

#[test]
fn two_disruption_budgets_never_select_our_pods() {
    let budget_with = |name: &str, selector: serde_json::Value| {
        let observed = Observed {
            budgets: vec![from(
                json!({"metadata": {"name": name}, "spec": {"selector": selector}}),
            )],
            ..Observed::default()
        };
        let service = ServicePlan::Adopted { labels: kube_dns_label(), patch: None };
        // The operator sets the second label itself, so what people write for it does not count.
        let spec = "{placement: {podLabels: {team: net, app.kubernetes.io/name: web}}}";
        crate::decide::disruption_budget::budget(&dns(spec), &observed, &service)
    };
    let kube_dns = json!({"matchLabels": {"k8s-app": "kube-dns"}});
    assert!(!budget_with("coredns", kube_dns.clone()));
    assert!(budget_with("clusterdns-default", kube_dns), "that is ours");
    assert!(budget_with("web", json!({"matchLabels": {"app.kubernetes.io/name": "web"}})));
    assert!(!budget_with("all", json!({})));
    let expression = |operator: &str, key: &str| json!({"matchExpressions": [{"key": key, "operator": operator, "values": ["net", "web"]}]});
    assert!(!budget_with("x", expression("In", "team")));
    assert!(budget_with("x", expression("NotIn", "team")));
    assert!(!budget_with("x", expression("NotIn", "other")));
    assert!(!budget_with("x", expression("Exists", "team")));
    assert!(budget_with("x", expression("Exists", "other")));
    assert!(!budget_with("x", expression("DoesNotExist", "other")));
}
