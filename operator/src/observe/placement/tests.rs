//! Which nodes fit.

use super::*;
use crate::fixtures::{dns, from};
use serde_json::{Value, json};

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

fn node(taints: Value) -> SlimNode {
    let labels = json!({"kubernetes.io/os": "linux", "pool": "infra", "cores": "16"});
    from(json!({"metadata": {"name": "a", "labels": labels}, "spec": {"taints": taints}}))
}

#[test]
fn o2_only_nodes_on_which_a_pod_may_run_count_as_pods() {
    let wanted =
        Wanted::of(&dns("{placement: {nodeSelector: {pool: dns}}, scaling: {perNode: {}}}"));
    let node = |labels: Value| -> SlimNode { from(json!({"metadata": {"labels": labels}})) };
    let fits = node(json!({"kubernetes.io/os": "linux", "pool": "dns"}));
    let other = node(json!({"kubernetes.io/os": "linux"}));
    let is_virtual =
        node(json!({"kubernetes.io/os": "linux", "pool": "dns", "type": "virtual-kubelet"}));
    let misfit = Some(Misfit::NodeSelector);
    for (nodes, (count, misfit), none_takes_pods) in [
        (vec![], (0, None), false),
        (vec![&other, &other], (0, misfit), true),
        (vec![&other, &fits, &other, &fits, &is_virtual], (2, None), false),
        (vec![&is_virtual], (0, None), false),
    ] {
        let fit = fit(nodes, &wanted);
        assert_eq!((fit.count, fit.misfit, fit.none_takes_pods), (count, misfit, none_takes_pods));
    }
}

#[test]
fn o19_nodes_that_take_a_new_pod_have_no_taint_and_a_ready_kubelet() {
    let wanted = Wanted::of(&dns("{placement: {tolerations: [{key: dedicated}]}}"));
    let node = |spec: Value, ready: &str| -> SlimNode {
        from(json!({"metadata": {"labels": {"kubernetes.io/os": "linux"}}, "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
    };
    let taint = |key: &str| json!({"taints": [{"key": key, "effect": "NoSchedule"}]});
    for (spec, ready, takes) in [
        (json!({}), "True", 1),
        (json!({}), "Unknown", 0),
        (json!({"unschedulable": true}), "True", 0),
        (taint("dedicated"), "True", 1),
        (taint("gpu"), "True", 0),
        (taint("node.kubernetes.io/disk-pressure"), "True", 0),
    ] {
        let node = node(spec.clone(), ready);
        assert_eq!(fit([&node], &wanted).take_new_pods, takes, "{spec} {ready}");
    }
}

#[test]
fn o2_nodes_on_which_a_daemonset_never_has_a_pod_do_not_count() {
    let wanted = Wanted::of(&dns("{scaling: {perNode: {}}}"));
    let linux = json!({"kubernetes.io/os": "linux"});
    let taint = |key: &str| json!([{"key": key, "value": "x", "effect": "NoSchedule"}]);
    let mut nodes: Vec<SlimNode> = vec![from(json!({"metadata": {"labels": linux}})); 499];
    for key in ["eks.amazonaws.com/compute-type", "dedicated"] {
        nodes.push(from(json!({"metadata": {"labels": linux}, "spec": {"taints": taint(key)}})));
    }
    assert_eq!(fit(&nodes, &wanted), Fit { count: 499, take_new_pods: 499, ..Fit::default() });
}

#[test]
fn o2_nodes_that_are_not_ready_fit_and_take_no_pod_now() {
    let tainted = |key: &str| node(json!([{"key": key, "effect": "NoSchedule"}]));
    let (dead, reserved) = (tainted(PASSING[1]), tainted("dedicated"));
    let of = |spec: &str, nodes: &[&SlimNode]| {
        let fit = fit(nodes.iter().copied(), &Wanted::of(&dns(spec)));
        (fit.count, fit.misfit, fit.none_takes_pods)
    };
    let default = "{scaling: {perNode: {}}}";
    assert_eq!(of(default, &[&dead, &reserved]), (1, None, true));
    assert_eq!(of(default, &[&reserved]), (0, Some(Misfit::Tolerations), true));
    let all = "{scaling: {perNode: {}}, placement: {tolerations: [{operator: Exists}]}}";
    assert_eq!(of(all, &[&dead, &reserved]), (2, None, false));
}

#[test]
fn o7_a_daemonset_counts_the_nodes_that_its_own_template_tolerates() {
    let set = |tolerations: Value| -> DaemonSet {
        let pod = json!({"containers": [], "nodeSelector": {"pool": "infra"}, "tolerations": tolerations});
        from(json!({"metadata": {}, "spec": {"selector": {}, "template": {"spec": pod}}}))
    };
    let takes = |tolerations: Value, key: &str, effect: &str| {
        let node = node(json!([{"key": key, "effect": effect}]));
        Wanted::of_daemon_set(&set(tolerations)).takes_pod(&node)
    };
    let default = || json!([{"key": "CriticalAddonsOnly", "operator": "Exists"}]);
    assert!(takes(default(), PASSING[0], NO_EXECUTE));
    assert!(!takes(default(), PASSING[0], NO_SCHEDULE));
    assert!(takes(json!([{"operator": "Exists"}]), PASSING[0], NO_SCHEDULE));
    assert!(takes(default(), "node.kubernetes.io/unschedulable", NO_SCHEDULE));
    assert!(!takes(default(), "node.kubernetes.io/network-unavailable", NO_SCHEDULE));
    assert!(!takes(json!(null), "CriticalAddonsOnly", NO_SCHEDULE));
    let elsewhere: SlimNode = from(json!({"metadata": {"labels": {"pool": "web"}}}));
    assert!(!Wanted::of_daemon_set(&set(default())).takes_pod(&elsewhere));
    let tainted = node(json!([{"key": "dedicated", "effect": NO_SCHEDULE}]));
    let misfit = fit([&tainted], &Wanted::of_daemon_set(&set(default()))).misfit;
    assert_eq!(misfit, Some(Misfit::Tolerations));
}

fn misfit(spec: &str, taints: Value) -> Option<Misfit> {
    Wanted::of(&dns(spec)).misfit(&node(taints))
}

#[test]
fn o2_required_affinity_to_nodes_is_read_as_kubernetes_reads_it() {
    let affinity = |terms: &str| {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        format!("affinity: {{nodeAffinity: {{{required}: {{nodeSelectorTerms: [{terms}]}}}}}}")
    };
    let label = |requirement: &str| format!("{{matchExpressions: [{{{requirement}}}]}}");
    let (fits, no) = (None, Some(Misfit::NodeAffinity));
    for (terms, expected) in [
        (label("key: pool, operator: In, values: [web, infra]"), fits),
        (label("key: pool, operator: In, values: [infa]"), no),
        (label("key: pol, operator: In, values: [infra]"), no),
        (label("key: pool, operator: NotIn, values: [infra]"), no),
        (label("key: pool, operator: NotIn, values: [web]"), fits),
        (label("key: pol, operator: NotIn, values: [infra]"), fits),
        (label("key: pool, operator: Exists"), fits),
        (label("key: pol, operator: Exists"), no),
        (label("key: pool, operator: DoesNotExist"), no),
        (label("key: pol, operator: DoesNotExist"), fits),
        (label("key: cores, operator: Gt, values: ['15']"), fits),
        (label("key: cores, operator: Gt, values: ['16']"), no),
        (label("key: cores, operator: Lt, values: ['17']"), fits),
        (label("key: cores, operator: Lt, values: ['16']"), no),
        (label("key: pool, operator: Gt, values: ['1']"), no),
        (label("key: pol, operator: Lt, values: ['1']"), no),
        ("{matchFields: [{key: metadata.name, operator: In, values: [a]}]}".to_owned(), fits),
        ("{matchFields: [{key: metadata.name, operator: In, values: [b]}]}".to_owned(), no),
        ("{matchFields: [{key: metadata.name, operator: NotIn, values: [b]}]}".to_owned(), fits),
        ("{}".to_owned(), no),
        (
            "{matchExpressions: [{key: pool, operator: Exists}, {key: pol, operator: Exists}]}"
                .to_owned(),
            no,
        ),
        (
            format!(
                "{}, {}",
                label("key: pol, operator: Exists"),
                label("key: pool, operator: Exists")
            ),
            fits,
        ),
    ] {
        for scaling in ["{perNode: {}}", "{fixed: {replicas: 2}}"] {
            let spec = format!("{{scaling: {scaling}, placement: {{{}}}}}", affinity(&terms));
            assert_eq!(misfit(&spec, json!([])), expected, "{terms}");
        }
    }
    let spec = format!("{{placement: {{nodeSelector: {{pool: web}}, {}}}}}", affinity("{}"));
    assert_eq!(misfit(&spec, json!([])), Some(Misfit::NodeSelector), "the first that is wrong");
}

#[test]
fn o2_a_taint_that_is_not_tolerated_is_a_misfit_where_each_node_has_a_pod() {
    let taint = |key: &str, effect: &str| json!([{"key": key, "value": "dns", "effect": effect}]);
    let (fits, no) = (None, Some(Misfit::Tolerations));
    for (tolerations, taints, expected) in [
        ("[]", json!([]), fits),
        ("[]", json!(null), fits),
        ("[]", taint("pool", "NoExecute"), no),
        ("[]", taint("pool", "NoSchedule"), no),
        ("[]", taint("pool", "PreferNoSchedule"), fits),
        ("[]", taint("node.kubernetes.io/unschedulable", "NoSchedule"), fits),
        ("[]", taint("node.kubernetes.io/memory-pressure", "NoSchedule"), fits),
        ("[]", taint("node.kubernetes.io/not-ready", "NoSchedule"), fits),
        ("[]", taint("node.kubernetes.io/unreachable", "NoSchedule"), fits),
        ("[]", taint("node.kubernetes.io/network-unavailable", "NoSchedule"), no),
        ("[{key: dedicated, operator: Exists}]", taint(CONTROL_PLANE, "NoSchedule"), no),
        ("[{key: pool, operator: Exists, effect: NoSchedule}]", taint("pool", "NoSchedule"), fits),
        ("[{key: pool, operator: Exists, effect: NoExecute}]", taint("pool", "NoSchedule"), no),
        ("[]", taint("node.kubernetes.io/not-ready", "NoExecute"), fits),
        ("[]", taint("node.kubernetes.io/unreachable", "NoExecute"), fits),
        ("[]", taint("node.kubernetes.io/out-of-service", "NoExecute"), no),
        ("[{operator: Exists}]", taint("pool", "NoExecute"), fits),
        ("[{key: pool, operator: Exists}]", taint("pool", "NoExecute"), fits),
        ("[{key: pol, operator: Exists}]", taint("pool", "NoExecute"), no),
        ("[{key: pool, operator: Exists, effect: NoSchedule}]", taint("pool", "NoExecute"), no),
        ("[{key: pool, value: dns}]", taint("pool", "NoExecute"), fits),
        ("[{key: pool, value: web}]", taint("pool", "NoExecute"), no),
        (
            "[{key: pool, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]",
            taint("pool", "NoExecute"),
            fits,
        ),
    ] {
        let placement = format!("placement: {{tolerations: {tolerations}}}");
        let spec = format!("{{scaling: {{perNode: {{}}}}, {placement}}}");
        assert_eq!(misfit(&spec, taints.clone()), expected, "{tolerations} {taints}");
        let spec = format!("{{scaling: {{fixed: {{replicas: 2}}}}, {placement}}}");
        assert_eq!(misfit(&spec, taints), None, "a Deployment");
    }
    let by_default = |key: &str| misfit("{scaling: {perNode: {}}}", taint(key, "NoExecute"));
    assert_eq!([by_default("CriticalAddonsOnly"), by_default("pool")], [fits, no]);
    let by_default = misfit("{scaling: {perNode: {}}}", taint(CONTROL_PLANE, "NoSchedule"));
    assert_eq!(by_default, fits);
}

#[test]
fn o2_only_a_taint_that_ends_pods_ends_those_that_run() {
    let wanted = Wanted::of(&dns("{scaling: {perNode: {}}}"));
    let ends = |effect: &str| wanted.ends_pods(&node(json!([{"key": "pool", "effect": effect}])));
    assert_eq!([NO_EXECUTE, NO_SCHEDULE].map(ends), [Some(Misfit::Tolerations), None]);
}
