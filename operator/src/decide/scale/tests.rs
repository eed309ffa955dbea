//! Numbers of pods by tables of clusters.

use super::*;
use crate::fixtures::{deploy, dns, from};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::json;

fn cluster(nodes: u32, cores: u32) -> Observed {
    let size = ClusterSize { nodes, schedulable_nodes: nodes, cores, schedulable_cores: cores };
    Observed { size, ..Observed::default() }
}

fn running(mut observed: Observed, count: u32) -> Observed {
    deploy(&mut observed, count);
    observed
}

fn replicas_of(scaling: &str, observed: &Observed) -> u32 {
    match size(&dns(&format!("{{scaling: {scaling}}}")).spec, observed) {
        Size::Replicas(count) => count,
        other => panic!("{other:?}"),
    }
}

/// What is held of a size that an autoscaler owns.
fn held(spec: &ClusterDNSSpec, observed: &Observed) -> Option<u32> {
    match size(spec, observed) {
        Size::Autoscaled { hold, .. } => hold,
        other => panic!("{other:?}"),
    }
}

fn wanted_by_autoscaler(count: i32) -> HorizontalPodAutoscaler {
    from(json!({"spec": {"maxReplicas": 9, "scaleTargetRef": {"kind": "Deployment", "name": "a"}},
        "status": {"desiredReplicas": count, "currentReplicas": count}}))
}

#[test]
fn o12_proportional_is_the_larger_of_cores_and_nodes_within_bounds() {
    // The proportional autoscaler's DNS defaults: 256 cores and 16 nodes a pod.
    let rule = "{proportional: {coresPerReplica: 256, nodesPerReplica: 16, minReplicas: 1, maxReplicas: 1000}}";
    for (nodes, cores, expected) in [
        (1, 4, 1),
        (2, 8, 2),
        (16, 64, 2),
        (33, 64, 3),
        (10, 1024, 4),
        (10, 1025, 5),
        (5000, 20_000, 313),
        (5000, 160_000, 625),
    ] {
        assert_eq!(
            replicas_of(rule, &cluster(nodes, cores)),
            expected,
            "{nodes} nodes, {cores} cores"
        );
    }
    let alone = "{proportional: {minReplicas: 1, preventSinglePointOfFailure: false}}";
    assert_eq!(replicas_of(alone, &cluster(2, 8)), 1);
    let few = "{proportional: {nodesPerReplica: 1, maxReplicas: 5}}";
    assert_eq!(replicas_of(few, &cluster(500, 8)), 5);
    let one = "{proportional: {minReplicas: 1, maxReplicas: 1}}";
    assert_eq!(replicas_of(one, &cluster(9, 8)), 1, "the bound in the spec counts most");
}

#[test]
fn o12_the_bound_is_named_where_it_keeps_pods_from_following_the_cluster() {
    let of = |spec: &str, nodes, cores| ceiling(&dns(spec).spec, cluster(nodes, cores).size);
    assert_eq!([of("{}", 2_048, 8_192), of("{}", 0, 0)], [None, None]);
    assert_eq!([of("{}", 2_049, 8_192), of("{}", 100, 32_769)], [Some(32), Some(32)]);
    let more = "{scaling: {proportional: {maxReplicas: 100}}}";
    assert_eq!([of(more, 6_400, 8_192), of(more, 6_401, 8_192)], [None, Some(100)]);
    // Two against a single point of failure are not what the size gives.
    let one = "{scaling: {proportional: {minReplicas: 1, maxReplicas: 1}}}";
    assert_eq!([of(one, 3, 8), of(one, 65, 8)], [None, Some(1)]);
    for other in
        ["{fixed: {replicas: 3}}", "{perNode: {}}", "{load: {minReplicas: 2, maxReplicas: 4}}"]
    {
        assert_eq!(of(&format!("{{scaling: {other}}}"), 5_000, 20_000), None, "{other}");
    }
}

#[test]
fn o12_an_empty_spec_is_proportional_and_never_below_two() {
    for (nodes, cores, expected) in
        [(0, 0, 2), (1, 4, 2), (128, 512, 2), (129, 512, 3), (5000, 20_000, 32)]
    {
        let size = size(&dns("{}").spec, &cluster(nodes, cores));
        assert_eq!(size, Size::Replicas(expected), "{nodes} nodes");
    }
}

#[test]
fn o12_nodes_that_take_no_pods_count_when_asked_for() {
    let size = ClusterSize { nodes: 40, schedulable_nodes: 20, cores: 80, schedulable_cores: 40 };
    let observed = Observed { size, ..Observed::default() };
    assert_eq!(replicas_of("{proportional: {nodesPerReplica: 10}}", &observed), 2);
    let all = "{proportional: {nodesPerReplica: 10, includeUnschedulableNodes: true}}";
    assert_eq!(replicas_of(all, &observed), 4);
    let ladder = "{ladder: {nodesToReplicas: [{nodes: 1, replicas: 1}, {nodes: 30, replicas: 7}]";
    assert_eq!(replicas_of(&format!("{ladder}}}}}"), &observed), 1);
    assert_eq!(
        replicas_of(&format!("{ladder}, includeUnschedulableNodes: true}}}}"), &observed),
        7
    );
}

#[test]
fn o12_cordoned_nodes_take_no_pod_away_before_they_are_gone() {
    let size = |nodes, schedulable_nodes| ClusterSize {
        nodes,
        schedulable_nodes,
        cores: nodes * 4,
        schedulable_cores: schedulable_nodes * 4,
    };
    let proportional = "{proportional: {nodesPerReplica: 8, minReplicas: 1}}";
    let ladder = "{ladder: {nodesToReplicas: [{nodes: 1, replicas: 1}, {nodes: 30, replicas: 7}]}}";
    for (rule, nodes, schedulable, runs, expected) in [
        (proportional, 160, 0, 20, 20),
        (proportional, 160, 8, 20, 20),
        (proportional, 320, 160, 20, 20),
        (proportional, 80, 80, 20, 11),
        (ladder, 40, 0, 7, 7),
        (ladder, 40, 20, 7, 7),
        (ladder, 20, 20, 7, 1),
        (ladder, 40, 30, 2, 7),
    ] {
        let size = size(nodes, schedulable);
        let observed = running(Observed { size, ..Observed::default() }, runs);
        assert_eq!(replicas_of(rule, &observed), expected, "{rule} {schedulable} of {nodes}");
    }
    let falls = "{ladder: {nodesToReplicas: [{nodes: 1, replicas: 5}, {nodes: 30, replicas: 2}]}}";
    let size = size(40, 20);
    let observed = running(Observed { size, ..Observed::default() }, 6);
    assert_eq!(replicas_of(falls, &observed), 5, "what is up at once is not taken away first");
}

#[test]
fn o12_a_ladder_is_the_highest_step_reached_and_the_larger_of_both() {
    let steps = [(512, 5), (1, 1), (64, 3), (1024, 7), (2048, 10), (4096, 15)];
    let cores: Vec<String> =
        steps.iter().map(|(c, r)| format!("{{cores: {c}, replicas: {r}}}")).collect();
    let ladder = format!(
        "{{ladder: {{coresToReplicas: [{}], nodesToReplicas: [{{nodes: 1, replicas: 1}}, {{nodes: 2, replicas: 2}}]}}}}",
        cores.join(", ")
    );
    for (nodes, cores, expected) in [
        (1, 1, 1),
        (2, 1, 2),
        (100, 400, 3),
        (100, 511, 3),
        (100, 512, 5),
        (1, 63, 1),
        (1, 64, 3),
        (9, 99_999, 15),
    ] {
        assert_eq!(
            replicas_of(&ladder, &cluster(nodes, cores)),
            expected,
            "{nodes} nodes, {cores} cores"
        );
    }
    let late = "{ladder: {nodesToReplicas: [{nodes: 10, replicas: 4}]}}";
    assert_eq!(replicas_of(late, &cluster(3, 12)), 4, "below the first step");
}

#[test]
fn o12_up_at_once_and_down_only_when_a_larger_cluster_would_need_fewer() {
    let rule = "{proportional: {nodesPerReplica: 10}}";
    let size = |nodes, runs| replicas_of(rule, &running(cluster(nodes, 1), runs));
    assert_eq!(size(51, 5), 6, "up at once");
    assert_eq!(size(50, 6), 6, "50 nodes and a tenth more need 6");
    assert_eq!(size(46, 6), 6);
    assert_eq!(size(45, 6), 5);
    assert_eq!(size(20, 6), 3, "as far as a larger cluster allows");
    assert_eq!(size(20, 3), 3, "and that is where it stays");
    assert_eq!(
        replicas_of(rule, &running(Observed::default(), 6)),
        6,
        "pods run, so there are nodes"
    );
}

#[test]
fn o12_one_node_of_a_small_cluster_that_comes_and_goes_is_a_large_part_of_it() {
    let rule = "{proportional: {coresPerReplica: 32}}";
    assert_eq!(replicas_of(rule, &cluster(3, 3 * 64)), 6);
    assert_eq!(replicas_of(rule, &running(cluster(2, 2 * 64), 6)), 6);
    assert_eq!(replicas_of(rule, &running(cluster(1, 64), 6)), 4, "two are gone");
}

#[test]
fn o12_flapping_nodes_never_flap_pods() {
    let spec = dns(
        "{scaling: {proportional: {coresPerReplica: 64, nodesPerReplica: 8, maxReplicas: 1000}}}",
    )
    .spec;
    for most in [1_u32, 2, 3, 8, 9, 17, 64, 65, 129, 641, 5000] {
        // A tenth of the nodes, and one at least, come and go in every order.
        let fewest = most - (most / 11).max(1).min(most - 1);
        let mut runs = None;
        let mut changes = 0;
        for round in 0..60_u32 {
            let few = fewest + (round.wrapping_mul(2_654_435_761) >> 7) % (most - fewest + 1);
            let nodes = if round == 0 { most } else { few };
            let mut observed = cluster(nodes, 8 * nodes);
            if let Some(count) = runs {
                deploy(&mut observed, count);
            }
            let Size::Replicas(count) = size(&spec, &observed) else { panic!("not a number") };
            changes += u32::from(runs.is_some_and(|before| before > count));
            assert!(count >= 2);
            runs = Some(count);
        }
        assert_eq!(changes, 0, "{most} nodes");
    }
}

#[test]
fn o12_a_fixed_number_is_that_number() {
    assert_eq!(replicas_of("{fixed: {replicas: 1}}", &running(cluster(5000, 1), 7)), 1);
}

#[test]
fn o12_per_node_is_a_daemon_set() {
    assert_eq!(size(&dns("{scaling: {perNode: {}}}").spec, &cluster(3, 3)), Size::PerNode);
}

#[test]
fn o12_load_holds_what_runs_until_our_manager_has_let_go() {
    let spec = dns("{scaling: {load: {maxReplicas: 9, cpuMillicoresPerReplica: 450, queriesPerSecondPerReplica: 20000}}}").spec;
    let scaled = |hold, queries_per_second| Size::Autoscaled {
        min: 2,
        max: 9,
        cpu_millicores: 450,
        queries_per_second,
        hold,
    };
    let owned_by = |observed: &mut Observed, manager: &str| {
        let deployment = observed.deployment.as_mut().unwrap();
        deployment.metadata.managed_fields = Some(vec![from(json!({"manager": manager,
            "fieldsV1": {"f:spec": {"f:replicas": {}}}}))]);
    };
    let mut observed = cluster(9, 9);
    assert_eq!(
        size(&spec, &observed),
        scaled(Some(2), None),
        "a Deployment starts with two pods, not one"
    );
    for (nodes, first) in [(1, 2), (7, 7), (40, 9)] {
        let status = json!({"status": {"desiredNumberScheduled": nodes, "currentNumberScheduled": nodes,
            "numberMisscheduled": 0, "numberReady": nodes}});
        observed.daemon_set = Some(from(status));
        let what = "as many as a pod on each node has been, within the bounds";
        assert_eq!(size(&spec, &observed), scaled(Some(first), None), "{what}");
    }
    observed.daemon_set = None;
    deploy(&mut observed, 5);
    owned_by(&mut observed, FIELD_MANAGER);
    assert_eq!(size(&spec, &observed), scaled(Some(5), None));
    owned_by(&mut observed, crate::names::HANDOVER_MANAGER);
    observed.offers.queries_per_second = Some(true);
    assert_eq!(size(&spec, &observed), scaled(None, Some(20_000)));
    deploy(&mut observed, 1);
    owned_by(&mut observed, FIELD_MANAGER);
    assert_eq!(size(&spec, &observed), scaled(Some(2), Some(20_000)), "never below two");
}

#[test]
fn o12_load_puts_back_a_number_of_zero_because_an_autoscaler_never_does() {
    let spec = dns("{scaling: {load: {minReplicas: 3, maxReplicas: 9}}}").spec;
    let scaled_to = |count: u32, manager: &str| {
        let mut observed = cluster(9, 9);
        deploy(&mut observed, count);
        observed.deployment.as_mut().unwrap().metadata.managed_fields = Some(vec![from(
            json!({"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}}),
        )]);
        observed
    };
    for (what, count, manager, autoscaler, expected) in [
        ("nothing is wrong", 3, "kubectl", Some(3), None),
        ("the autoscaler raises it", 1, "kubectl", Some(3), None),
        ("no autoscaler has looked", 0, "kubectl", None, Some(3)),
        ("the autoscaler says what it wanted", 0, "kubectl", Some(7), Some(7)),
        ("it has seen the 0", 0, "kube-downscaler", Some(0), Some(3)),
        ("more than the spec has by now", 0, "kubectl", Some(20), Some(9)),
        ("ours", 0, FIELD_MANAGER, Some(7), Some(3)),
    ] {
        let mut observed = scaled_to(count, manager);
        observed.autoscaler = autoscaler.map(wanted_by_autoscaler);
        assert_eq!(held(&spec, &observed), expected, "{what}");
    }
}

#[test]
fn o12_load_creates_a_deleted_deployment_with_as_many_pods_as_load_asked_for() {
    let spec = dns("{scaling: {load: {minReplicas: 3, maxReplicas: 9}}}").spec;
    for (what, nodes, autoscaler, expected) in [
        ("a first install", None, None, 3),
        ("no autoscaler has looked", None, Some(0), 3),
        ("another client deleted it under load", None, Some(7), 7),
        ("more than the spec has by now", None, Some(20), 9),
        ("a DaemonSet had more", Some(8), Some(5), 8),
        ("a DaemonSet had fewer", Some(4), Some(6), 6),
    ] {
        let mut observed = cluster(9, 9);
        observed.daemon_set = nodes.map(|nodes| {
            from(
                json!({"status": {"desiredNumberScheduled": nodes, "currentNumberScheduled": nodes,
                "numberMisscheduled": 0, "numberReady": nodes}}),
            )
        });
        observed.autoscaler = autoscaler.map(wanted_by_autoscaler);
        assert_eq!(held(&spec, &observed), Some(expected), "{what}");
    }
}

#[test]
fn o12_load_counts_queries_only_where_the_metric_exists_or_was_there_before() {
    let spec = dns("{scaling: {load: {queriesPerSecondPerReplica: 20000}}}").spec;
    let counts = |observed: &Observed| match size(&spec, observed) {
        Size::Autoscaled { queries_per_second, .. } => queries_per_second.is_some(),
        other => panic!("{other:?}"),
    };
    let by_queries: HorizontalPodAutoscaler = from(json!({"spec": {"maxReplicas": 9,
        "scaleTargetRef": {"kind": "Deployment", "name": "a"},
        "metrics": [{"type": "Resource"}, {"type": "Pods", "pods": {
            "metric": {"name": QUERIES_PER_SECOND}, "target": {"type": "AverageValue"}}}]}}));
    let by_cpu: HorizontalPodAutoscaler = from(json!({"spec": {"maxReplicas": 9,
        "scaleTargetRef": {"kind": "Deployment", "name": "a"}, "metrics": [{"type": "Resource"}]}}));
    for (what, offered, autoscaler, expected) in [
        ("the metric exists", Some(true), &by_cpu, true),
        ("other metrics exist", Some(false), &by_queries, false),
        ("the metrics API is broken, and was not", None, &by_queries, true),
        ("the metrics API is broken", None, &by_cpu, false),
    ] {
        let mut observed = cluster(9, 9);
        observed.offers.queries_per_second = offered;
        observed.autoscaler = Some(autoscaler.clone());
        assert_eq!(counts(&observed), expected, "{what}");
    }
}
