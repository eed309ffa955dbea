//! How many pods the other server had, and where: the golden case `size` has the lines, and these the cases beside it.

use tests::scratch::Scratch;

use super::losses::imported;
use super::printed;

/// A cache on each node, as KubeKey has it, with the address on which it listens.
fn cache(bind: &str) -> String {
    format!(
        r#"apiVersion: v1
kind: ConfigMap
metadata: {{name: nodelocaldns, namespace: kube-system}}
data:
  Corefile: |
    cluster.local:53 {{
        bind {bind}
        forward . __PILLAR__CLUSTER__DNS__
    }}
    .:53 {{
        bind {bind}
        forward . __PILLAR__UPSTREAM__SERVERS__
    }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: nodelocaldns, namespace: kube-system}}
spec:
  template:
    metadata: {{labels: {{k8s-app: nodelocaldns}}}}
    spec:
      containers:
      - name: node-cache
        args: [-localip, 169.254.25.10, -conf, /etc/coredns/Corefile]
        volumeMounts: [{{name: config, mountPath: /etc/coredns}}]
      volumes: [{{name: config, configMap: {{name: nodelocaldns}}}}]
"#
    )
}

#[test]
fn a_cache_on_each_node_is_a_pod_on_each_node_with_any_address() {
    let policy = "---\napiVersion: cilium.io/v2\nkind: CiliumLocalRedirectPolicy\nmetadata: {name: nodelocaldns}\n";
    for bind in ["0.0.0.0", "169.254.25.10"] {
        let (spec, report) = imported("--corefile", &(cache(bind) + policy));
        assert_eq!(spec["scaling"], serde_json::json!({"perNode": {}}), "{bind}: {report}");
        assert_eq!(spec["service"]["trafficDistribution"], "PreferSameNode", "{bind}: {report}");
        let of_daemon_set = report.contains("changed: DaemonSet nodelocaldns: a pod on each node");
        assert_eq!(of_daemon_set, bind == "0.0.0.0", "said once: {report}");
        let line = "notPossible: CiliumLocalRedirectPolicy nodelocaldns: ";
        assert!(report.contains(line) && report.contains("delete this policy"), "{report}");
    }
}

#[test]
fn rules_of_an_autoscaler_are_those_of_spec_scaling() {
    let coredns = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns, namespace: kube-system}\ndata:\n  Corefile: |\n    .:53 \
                   {\n      kubernetes cluster.local\n    }\n---\n";
    let map = |name: &str, key: &str, rules: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: kube-system}}\ndata:\n  {key}: '{rules}'\n---\n"
        )
    };
    let linear = map("dns-autoscaler", "linear", r#"{"coresPerReplica":256,"nodesPerReplica":16}"#);
    let ladder = map("coredns-autoscaler", "ladder", r#"{"nodesToReplicas":[[1,2],[8,3]]}"#);
    let (spec, report) = imported("--corefile", &(coredns.to_owned() + &ladder));
    let steps = serde_json::json!([{"nodes": 1, "replicas": 2}, {"nodes": 8, "replicas": 3}]);
    assert_eq!(spec["scaling"]["ladder"]["nodesToReplicas"], steps, "{report}");
    assert!(
        report.contains("changed: ConfigMap coredns-autoscaler ladder: spec.scaling.ladder"),
        "{report}"
    );
    // One of another server, one too many, one that says nothing, and a cache on each node.
    let typha = map("calico-typha-autoscaler", "ladder", r#"{"nodesToReplicas":[[1,1]]}"#);
    let (spec, report) = imported("--corefile", &(coredns.to_owned() + &typha));
    assert!(spec["scaling"].is_null(), "{spec}");
    assert!(
        report.contains("notNeeded: ConfigMap calico-typha-autoscaler ladder: nothing that"),
        "{report}"
    );
    let (spec, report) = imported("--corefile", &(coredns.to_owned() + &linear + &ladder));
    assert_eq!(spec["scaling"]["proportional"]["nodesPerReplica"], 16, "{report}");
    assert!(
        report.contains("notPossible: ConfigMap coredns-autoscaler ladder: spec.scaling has"),
        "{report}"
    );
    let (spec, report) =
        imported("--corefile", &(coredns.to_owned() + &map("dns", "linear", "{}")));
    assert!(
        spec["scaling"].is_null() && report.contains("notPossible: ConfigMap dns linear: "),
        "{report}"
    );
    let (spec, report) = imported("--corefile", &(cache("0.0.0.0") + "---\n" + &linear));
    assert_eq!(spec["scaling"], serde_json::json!({"perNode": {}}), "{report}");
    assert!(
        report.contains("notNeeded: ConfigMap dns-autoscaler linear: a pod runs on each"),
        "{report}"
    );
}

#[test]
fn a_daemon_set_behind_the_service_has_a_line_about_its_pods() {
    let scratch = Scratch::new("import").unwrap();
    let workload = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: coredns, namespace: kube-system}\nspec:\n  template:\n    \
                    metadata: {labels: {k8s-app: kube-dns}}\n    spec: {containers: [{name: coredns, args: []}]}\n";
    scratch.write("coredns.yaml", workload).unwrap();
    scratch.write("Corefile", ".:53 {\n kubernetes cluster.local\n}\n").unwrap();
    let (_, dns, report) = printed(scratch.path(), "--corefile Corefile --corefile coredns.yaml");
    assert!(!dns.contains("scaling"), "{dns}");
    let line = "changed: DaemonSet coredns: a pod on each node before; here there is a pod for every 64 nodes";
    assert!(report.contains(line) && report.contains("{perNode: {}} keeps that"), "{report}");
}

#[test]
fn only_rules_of_an_autoscaler_are_no_configuration_of_dns() {
    let scratch = Scratch::new("import").unwrap();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dns-autoscaler}\ndata: {linear: '{\"nodesPerReplica\":16}'}\n";
    scratch.write("rules.yaml", map).unwrap();
    let (outcome, _, why) = printed(scratch.path(), "--corefile rules.yaml");
    assert_eq!(outcome, operator::offline::Severity::Wrong);
    assert!(why.contains("neither a Corefile"), "{why}");
}
