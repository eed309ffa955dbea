//! NodeLocal DNSCache and the autoscaler of a DNS server among workloads: neither is behind the Service that pods ask.

use super::manifests::Object;

/// The names of its DaemonSet, and the values of the label `k8s-app` of its pods: the second is that of kubespray and KubeKey.
const NAMES: [&str; 2] = ["node-local-dns", "nodelocaldns"];
/// The flag by which it is given the addresses on which it listens.
const LOCAL_IP: &str = "localip";

/// Is it the DaemonSet of NodeLocal DNSCache?
pub(super) fn is_node_local(object: &Object) -> bool {
    let label = object.value["spec"]["template"]["metadata"]["labels"]["k8s-app"].as_str();
    let is_its = |word: &str| {
        let word = word.trim_start_matches('-');
        word == LOCAL_IP || word.starts_with("localip=")
    };
    object.kind() == "DaemonSet"
        && (NAMES.contains(&object.name())
            || label.is_some_and(|it| NAMES.contains(&it))
            || object.words().any(is_its))
}

/// Has it the flags of an autoscaler in proportion to the cluster?
pub(super) fn is_autoscaler(object: &Object) -> bool {
    object.words().any(|word| word.trim_start_matches('-').starts_with("target"))
}

/// The name of the ConfigMap by which an autoscaler in proportion to the cluster scales one of these workloads.
pub(super) fn rules_of<'a>(autoscaler: &'a Object, workloads: &[&str]) -> Option<&'a str> {
    let value = |flag: &str| {
        let mut words = autoscaler.words().map(|word| word.trim_start_matches('-'));
        while let Some(word) = words.next() {
            match word.strip_prefix(flag) {
                Some("") => return words.next(),
                Some(rest) if rest.starts_with('=') => return rest.strip_prefix('='),
                Some(_) | None => {}
            }
        }
        None
    };
    // `deployment/coredns`, or several with commas between them.
    let mut targets = value("target")?.split(',').filter_map(|it| Some(it.split_once('/')?.1));
    targets.any(|it| workloads.contains(&it)).then(|| value("configmap")).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(kind: &str, name: &str, label: &str, args: Value) -> Object {
        let template = json!({"metadata": {"labels": {"k8s-app": label}},
            "spec": {"containers": [{"name": "a", "args": args}]}});
        let value =
            json!({"kind": kind, "metadata": {"name": name}, "spec": {"template": template}});
        Object { file: String::new(), value, places: None, is_named: false }
    }

    #[test]
    fn the_cache_of_nodes_is_known_by_name_label_or_flag() {
        let daemon_set = |name, label, args| is_node_local(&object("DaemonSet", name, label, args));
        let flags = [json!(["-localip", "169.254.20.10"]), json!(["--localip=169.254.25.10"])];
        assert!(daemon_set("node-local-dns", "x", json!([])));
        assert!(daemon_set("nodelocaldns", "nodelocaldns", json!([])), "of KubeKey");
        assert!(daemon_set("x", "nodelocaldns", json!([])));
        assert!(daemon_set("x", "node-local-dns", json!([])));
        for args in flags {
            assert!(daemon_set("cache", "cache", args.clone()), "{args}");
            assert!(!is_node_local(&object("Deployment", "cache", "cache", args)));
        }
        assert!(!daemon_set("kube-proxy", "kube-proxy", json!(["--localipvs"])));
    }

    #[test]
    fn the_rules_of_an_autoscaler_are_those_of_the_server_that_it_scales() {
        let of = |args: Value, workloads: &[&str]| {
            let autoscaler = object("Deployment", "dns-autoscaler", "x", args);
            rules_of(&autoscaler, workloads).map(str::to_owned)
        };
        let args = json!(["--configmap=dns-autoscaler", "--target=Deployment/coredns"]);
        assert_eq!(of(args.clone(), &["coredns"]).as_deref(), Some("dns-autoscaler"));
        assert_eq!(of(args, &["typha"]), None);
        let words = json!(["--target", "deployment/a,deployment/coredns", "--configmap", "rules"]);
        assert_eq!(of(words, &["coredns"]).as_deref(), Some("rules"));
        assert_eq!(of(json!(["--target=deployment/coredns"]), &["coredns"]), None);
        assert_eq!(of(json!([]), &["coredns"]), None);
    }
}
