//! Trials whose rounds another client ends: the reconcile whose round ended, and the next one.

use super::*;
use crate::decide::plan::RolloutPlan;
use crate::decide::rollout;
use crate::fixtures::{at, from};
use serde_json::json;

/// A trial since second 10, and the document that all the others run.
fn planned() -> (ClusterDNS, Observed, String) {
    let mut observed = Observed { service: Some(own_service()), ..Observed::default() };
    deploy(&mut observed, 3);
    for (place, pod) in observed.pods.iter_mut().enumerate() {
        pod.status.as_mut().unwrap().pod_ip = Some(format!("127.0.0.{}", place + 1));
    }
    let mut plan = RolloutPlan::default();
    for (spec, second) in [("{ttlSeconds: 5}", 0), ("{ttlSeconds: 7}", 10)] {
        plan = decided(&dns(spec), &observed, second);
        write(&mut observed, &plan);
        let canary = plan.state.canary_pod.as_ref().map(|pod| pod.name.clone());
        for name in ["dns-0", "dns-1", "dns-2"] {
            let is_canary = canary.as_deref() == Some(name);
            let revision = if is_canary { &plan.state.canary } else { &plan.state.stable };
            says(&mut observed, name, revision);
        }
    }
    (dns("{ttlSeconds: 7}"), observed, plan.stable)
}

fn decided(dns: &ClusterDNS, observed: &Observed, second: i64) -> RolloutPlan {
    rollout::plan(dns, &config(dns), observed, at(second))
}

/// What is decided where no round may begin.
fn unasked(
    dns: &ClusterDNS,
    observed: &mut Observed,
    rounds: &RoundPermits,
    second: i64,
) -> RolloutPlan {
    observed.comparison = match look(dns, observed, rounds) {
        None => None,
        Some(Look::Postponed(comparison)) => Some(comparison),
        Some(Look::Round(_)) => panic!("a round keeps clients waiting"),
    };
    decided(dns, observed, second)
}

fn by(plan: &RolloutPlan) -> Option<HeldBy> {
    plan.held.as_ref().map(|held| held.by)
}

#[test]
fn o17_a_trial_whose_rounds_another_client_ends_again_and_again_has_a_reason() {
    let (dns, observed, rounds) = (dns("{}"), on_trial(), RoundPermits::default());
    let ended = || rounds.ended(&dns, &observed);
    assert_eq!((ended(), ended()), (None, None));
    assert_eq!(ended().and_then(|it| it.unreachable).map(|it| it.by), Some(HeldBy::Interrupted));
    rounds.trials.heard(Trial::of(&dns, &config_map::state(&observed)));
    assert_eq!(ended(), None, "a round came to its end");
}

#[test]
fn o17_rounds_that_end_count_though_a_deleted_configmap_begins_the_trial_again() {
    let (dns, mut observed, _) = planned();
    let rounds = RoundPermits::default();
    for second in [20, 30] {
        assert_eq!(rounds.ended(&dns, &observed), None);
        let mut state = config_map::state(&observed);
        state.started_at = at(second).to_string();
        let again = RolloutPlan { state, ..decided(&dns, &observed, second) };
        write(&mut observed, &again);
    }
    assert!(rounds.ended(&dns, &observed).is_some());
}

#[test]
fn o17_the_reconcile_that_undoes_an_edit_writes_since_when_the_trial_waits() {
    let (dns, mut observed, stable) = planned();
    let rounds = RoundPermits::default();
    for _ in 0..MAX_ENDED {
        observed.comparison = rounds.ended(&dns, &observed);
    }
    assert_eq!(by(&decided(&dns, &observed, 20)), Some(HeldBy::Interrupted));
    // That was not written: another client has edited the ConfigMap since.
    let edit = |observed: &mut Observed| {
        let data = observed.config_map.as_mut().unwrap().data.as_mut().unwrap();
        data.insert("stable.json".to_owned(), "{\"format\":1,\"ttlSeconds\":99}".to_owned());
        observed.lost_document = Some(stable.clone());
    };
    edit(&mut observed);
    let undone = unasked(&dns, &mut observed, &rounds, 21);
    assert_eq!(by(&undone), Some(HeldBy::Interrupted));
    assert_eq!(undone.state.held_since, at(21).to_string());
    write(&mut observed, &undone);
    edit(&mut observed);
    let undone = unasked(&dns, &mut observed, &rounds, 100);
    assert_eq!(undone.state.held_since, at(21).to_string(), "not since now");
    write(&mut observed, &undone);
    edit(&mut observed);
    let over = unasked(&dns, &mut observed, &rounds, 330);
    assert_eq!((over.canary, over.state.unjudged_by.as_str()), (None, "TrialInterrupted"));
}

#[test]
fn o17_no_round_begins_about_a_configuration_that_the_spec_does_not_want_tried() {
    let (_, observed, _) = planned();
    for (spec, expected) in [
        ("{ttlSeconds: 7}", true),
        ("{ttlSeconds: 7, drainSeconds: 30}", true),
        ("{ttlSeconds: 5}", false),
        ("{ttlSeconds: 9}", false),
        ("{ttlSeconds: 7, rollout: {canary: false}}", false),
        ("{ttlSeconds: 7, managementState: Unmanaged}", false),
        ("{ttlSeconds: 7, scaling: {fixed: {replicas: 1}}}", false),
        ("{ttlSeconds: 5000}", false),
    ] {
        let rounds = RoundPermits::default();
        let begins = matches!(look(&dns(spec), &observed, &rounds), Some(Look::Round(_)));
        assert_eq!(begins, expected, "{spec}");
    }
}

#[test]
fn o16_a_deleted_service_is_created_again_before_a_round_begins() {
    let (mut dns, mut observed, _) = planned();
    let rounds = RoundPermits::default();
    let asks = |dns: &ClusterDNS, observed: &Observed| {
        matches!(look(dns, observed, &rounds), Some(Look::Round(_)))
    };
    assert!(asks(&dns, &observed));
    observed.service = None;
    assert_eq!(by(&unasked(&dns, &mut observed, &rounds, 20)), None, "the first time");
    for _ in 0..MAX_ENDED {
        rounds.ended(&dns, &observed);
    }
    let again = unasked(&dns, &mut observed, &rounds, 20);
    assert_eq!(by(&again), Some(HeldBy::Interrupted));
    assert_eq!(again.state.held_since, at(20).to_string());
    // It cannot be created: trials go on meanwhile.
    for (reason, expected) in [("Contended", false), ("ServiceGone", true), ("ApplyFailed", true)] {
        dns.status = Some(from(
            json!({"conditions": [{"type": "Degraded", "status": "True", "reason": reason,
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        ));
        assert_eq!(asks(&dns, &observed), expected, "{reason}");
    }
}
