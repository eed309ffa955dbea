//! What the operator asks of the API server, one request of each kind, as dry runs where they would write.

use hyper::Request;
use kube::client::Body;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The namespace of the Service.
const WORKLOAD: &str = "kube-system";
/// The role of a data plane that bindings refer to in these requests; somebody with every right made it.
pub(super) const SAMPLE: &str = "sample-dataplane";

/// The kinds that a ClusterDNS becomes in its namespace: path of the group, plural, kind, what it needs to be one.
fn children() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let labels = json!({"clusterdns.dev/instance": "default"});
    let selector = json!({"matchLabels": labels});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "dns", "image": "clusterdns"}]}});
    let workload = json!({"spec": {"selector": selector, "template": pod}});
    let target =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "clusterdns-default"});
    vec![
        ("/api/v1", "configmaps", "ConfigMap", json!({})),
        ("/api/v1", "serviceaccounts", "ServiceAccount", json!({})),
        (
            "/api/v1",
            "services",
            "Service",
            json!({"spec": {"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}}),
        ),
        ("/apis/apps/v1", "deployments", "Deployment", workload.clone()),
        ("/apis/apps/v1", "daemonsets", "DaemonSet", workload),
        (
            "/apis/autoscaling/v2",
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            json!({"spec": {"scaleTargetRef": target, "maxReplicas": 9}}),
        ),
        ("/apis/monitoring.coreos.com/v1", "podmonitors", "PodMonitor", json!({"spec": {}})),
        (
            "/apis/monitoring.coreos.com/v1",
            "prometheusrules",
            "PrometheusRule",
            json!({"spec": {}}),
        ),
        (
            "/apis/networking.k8s.io/v1",
            "networkpolicies",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}}}),
        ),
        (
            "/apis/policy/v1",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            json!({"spec": {"maxUnavailable": 1, "selector": selector}}),
        ),
        (RBAC, "roles", "Role", json!({"rules": role("role.yaml")})),
        (RBAC, "rolebindings", "RoleBinding", binding("Role")),
    ]
}

/// The rules of a data plane's role.
pub(super) fn role(file: &str) -> Value {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../dataplane/rbac").join(file);
    let text = std::fs::read_to_string(&path).expect("the role's file");
    let role: Value = serde_saphyr::from_str(&text).expect("YAML");
    let mut rules = role["rules"].clone();
    for rule in rules.as_array_mut().expect("rules") {
        if rule.get("resourceNames").is_some() {
            rule["resourceNames"] = json!(["clusterdns-default"]);
        }
    }
    rules
}

/// All that a data plane may have in the whole cluster.
pub(super) fn cluster_rules() -> Value {
    let files = ["clusterrole.yaml", "clusterrole-verified-pods.yaml"];
    files.iter().flat_map(|file| role(file).as_array().expect("rules").clone()).collect()
}

fn binding(kind: &str) -> Value {
    let subject =
        json!({"kind": "ServiceAccount", "name": "clusterdns-default", "namespace": WORKLOAD});
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": SAMPLE});
    json!({"roleRef": reference, "subjects": [subject]})
}

/// One request, and the words for it.
pub(super) struct Step {
    pub(super) name: String,
    method: &'static str,
    path: String,
    body: Option<Value>,
}

impl Step {
    fn read(name: String, path: String) -> Step {
        Step { name, method: "GET", path, body: None }
    }

    fn apply(
        name: String,
        path: &str,
        api: &str,
        kind: &str,
        mut object: Value,
        owner: &Value,
    ) -> Step {
        let version = api.trim_start_matches("/apis/").trim_start_matches("/api/");
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = path.rsplit('/').next().expect("a name").into();
        if !owner.is_null() {
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        let path = format!("{path}?fieldManager=clusterdns-operator&force=true&dryRun=All");
        Step { name, method: "PATCH", path, body: Some(object) }
    }

    pub(super) fn request(&self) -> Request<Body> {
        let kind = match self.method {
            "PATCH" if self.path.contains("/events/") => "application/merge-patch+json",
            "PATCH" => "application/apply-patch+yaml",
            _ => "application/json",
        };
        let body = self.body.as_ref().map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request =
            Request::builder().method(self.method).uri(&self.path).header("content-type", kind);
        request.body(Body::from(body)).expect("a request")
    }
}

/// Everything the operator does for a ClusterDNS `default`, which owns what is made.
pub(super) fn journey(owner: &Value) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut follow = |what: &str, path: &str| {
        steps.push(Step::read(format!("list {what}"), format!("{path}?limit=1")));
        steps.push(Step::read(format!("watch {what}"), format!("{path}?watch=1&timeoutSeconds=1")));
    };
    follow("ClusterDNS", "/apis/clusterdns.dev/v1alpha1/clusterdnses");
    for plural in ["nodes", "services", "namespaces", "pods"] {
        follow(plural, &format!("/api/v1/{plural}"));
    }
    follow("endpointslices", "/apis/discovery.k8s.io/v1/endpointslices");
    follow("replicasets", &format!("/apis/apps/v1/namespaces/{WORKLOAD}/replicasets"));
    for plural in ["clusterroles", "clusterrolebindings"] {
        follow(plural, &format!("{RBAC}/{plural}"));
    }
    for (api, plural, ..) in children() {
        if plural != "services" {
            follow(plural, &format!("{api}/namespaces/{WORKLOAD}/{plural}"));
        }
    }
    for (api, plural, kind, object) in children() {
        let name = if plural == "services" { "kube-dns" } else { "clusterdns-default" };
        let path = format!("{api}/namespaces/{WORKLOAD}/{plural}/{name}");
        steps.push(Step::read(format!("get a {kind}"), path.clone()));
        steps.push(Step::apply(format!("apply a {kind}"), &path, api, kind, object, owner));
        steps.push(Step {
            name: format!("delete a {kind}"),
            method: "DELETE",
            path: format!("{path}?dryRun=All"),
            body: None,
        });
    }
    for (plural, kind, object) in [
        ("clusterroles", "ClusterRole", json!({"rules": cluster_rules()})),
        ("clusterrolebindings", "ClusterRoleBinding", binding("ClusterRole")),
    ] {
        let path = format!("{RBAC}/{plural}/clusterdns-default");
        steps.push(Step::read(format!("get a {kind}"), path.clone()));
        steps.push(Step::apply(format!("apply a {kind}"), &path, RBAC, kind, object, owner));
        steps.push(Step {
            name: format!("delete a {kind}"),
            method: "DELETE",
            path: format!("{path}?dryRun=All"),
            body: None,
        });
    }
    steps.extend(about_itself());
    steps
}

/// Status, Events, the schema, the lease.
fn about_itself() -> Vec<Step> {
    let dns = "/apis/clusterdns.dev/v1alpha1/clusterdnses/default".to_owned();
    let schema =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterdnses.clusterdns.dev";
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "some", "namespace": "default"}, "type": "Normal", "reason": "Accepted",
        "action": "Reconcile", "reportingController": "clusterdns-operator", "reportingInstance": "pod",
        "eventTime": "2026-01-01T00:00:00.000000Z", "regarding": {"kind": "ClusterDNS", "name": "default",
        "apiVersion": "clusterdns.dev/v1alpha1"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/clusterdns-system/leases";
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "clusterdns-operator"}, "spec": {"holderIdentity": "pod"}});
    let own = format!("{leases}/clusterdns-operator");
    // A version that has passed: a conflict, for whoever may update it at all.
    let mut renewed = lease.clone();
    renewed["metadata"]["resourceVersion"] = "1".into();
    vec![
        Step::read("get a ClusterDNS".into(), dns.clone()),
        Step::apply(
            "report status".into(),
            &dns,
            "clusterdns.dev/v1alpha1",
            "ClusterDNS",
            json!({"status": {}}),
            &Value::Null,
        )
        .at(format!("{dns}/status?fieldManager=clusterdns-operator&force=true&dryRun=All")),
        Step::read("read the served schema".into(), schema.into()),
        Step {
            name: "emit an Event".into(),
            method: "POST",
            path: format!("{events}?dryRun=All"),
            body: Some(event),
        },
        Step {
            name: "repeat an Event".into(),
            method: "PATCH",
            path: format!("{events}/some?dryRun=All"),
            body: Some(json!({"note": "again"})),
        },
        Step {
            name: "create the lease".into(),
            method: "POST",
            path: format!("{leases}?dryRun=All"),
            body: Some(lease.clone()),
        },
        Step::read("read the lease".into(), own.clone()),
        Step {
            name: "renew the lease".into(),
            method: "PUT",
            path: format!("{own}?dryRun=All"),
            body: Some(renewed),
        },
    ]
}

impl Step {
    fn at(self, path: String) -> Step {
        Step { path, ..self }
    }
}
