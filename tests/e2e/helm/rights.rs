//! S7: with exactly the chart's rights the operator can do everything it does, and without any one of them something
//! fails, which `tests/golden/chart/rights.txt` names.

use std::fmt::Write;
use std::path::Path;

use futures::StreamExt;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tests::objects::wait_for;

use super::journey::{SAMPLE, Step, cluster_rules, journey, role};
use super::{NAMESPACE, OPERATOR, Site};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The roles of the chart.
const ROLES: [&str; 4] = [
    "clusterroles/clusterdns:operator",
    "namespaces/clusterdns-system/roles/clusterdns:operator-lease",
    "namespaces/default/roles/clusterdns:operator-events",
    "namespaces/kube-system/roles/clusterdns:operator-workload",
];
/// Requests at a time: the API server takes most of the time of each.
const AT_ONCE: usize = 8;
const GOLDEN: &str = "golden/chart/rights.txt";

/// One verb on one resource, with or without a name, in all namespaces or one.
#[derive(Clone, Debug)]
struct Right {
    namespace: Option<String>,
    group: String,
    resource: String,
    verb: String,
    name: Option<String>,
}

impl Right {
    fn words(&self) -> String {
        let resource = match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        };
        let name = self.name.iter().map(|name| format!(" {name}")).collect::<String>();
        let place =
            self.namespace.as_deref().map_or("everywhere".into(), |name| format!("in {name}"));
        format!("{} {resource}{name} {place}", self.verb)
    }

    async fn is_held(&self, client: &Client, user: &str) -> bool {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": {
            "namespace": self.namespace, "group": self.group, "resource": resource, "subresource": subresource,
            "verb": self.verb, "name": self.name}}});
        let review: SubjectAccessReview = serde_json::from_value(review).expect("a review");
        let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
        let review = reviews.create(&PostParams::default(), &review).await.expect("an answer");
        review.status.expect("an answer").allowed
    }
}

/// Sends it with this identity; the status, and what was said.
async fn ask(client: &Client, step: &Step) -> (u16, String) {
    let response = client.send(step.request()).await.expect("the API server answers");
    let status = response.status().as_u16();
    // A watch goes on: what it would say is not waited for.
    let body = if status == 200 {
        Vec::new()
    } else {
        use http_body_util::BodyExt;
        response.into_body().collect().await.expect("a body").to_bytes().to_vec()
    };
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// The steps that are forbidden. Any other refusal would say that the step tests nothing.
async fn forbidden(client: &Client, steps: &[Step]) -> Vec<String> {
    let answers = steps.iter().map(async |step| {
        // 429: the storage of a kind that has just come is not ready.
        let answer = wait_for(&step.name, async || {
            let answer = ask(client, step).await;
            (answer.0 != 429).then_some(answer)
        });
        match answer.await {
            (200 | 201 | 404 | 409, _) => None,
            (403, _) => Some(step.name.clone()),
            (status, body) => panic!("{}: {status} {body}", step.name),
        }
    });
    let answers = futures::stream::iter(answers).buffered(AT_ONCE);
    answers.filter_map(async |name| name).collect().await
}

async fn get(client: &Client, path: &str) -> Value {
    let request = hyper::Request::get(path).body(Vec::new()).expect("a request");
    client.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

async fn set_rules(client: &Client, path: &str, rules: &[Value]) {
    let patch = json!({"rules": rules}).to_string().into_bytes();
    let request = hyper::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(patch);
    let changed: kube::Result<Value> = client.request(request.expect("a request")).await;
    changed.unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Each right of these rules, and the rules without it.
fn one_less(rules: &[Value], namespace: Option<&str>) -> Vec<(Right, Vec<Value>)> {
    let texts = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .into_iter()
            .flatten()
            .map(|text| text.as_str().expect("a text").to_owned())
            .collect()
    };
    let mut found = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let (resources, verbs) = (texts(&rule["resources"]), texts(&rule["verbs"]));
        for resource in &resources {
            for verb in &verbs {
                let mut less = rules.to_vec();
                // The rule, split into: other resources, and this one with the other verbs.
                let mut others = rule.clone();
                others["resources"] =
                    resources.iter().filter(|other| *other != resource).cloned().collect();
                let mut same = rule.clone();
                same["resources"] = json!([resource]);
                same["verbs"] = verbs.iter().filter(|other| *other != verb).cloned().collect();
                less.splice(at..=at, [others, same]);
                less.retain(|rule| rule["resources"] != json!([]) && rule["verbs"] != json!([]));
                let right = Right {
                    namespace: namespace.map(str::to_owned),
                    group: texts(&rule["apiGroups"]).concat(),
                    resource: resource.clone(),
                    verb: verb.clone(),
                    name: texts(&rule["resourceNames"]).into_iter().next(),
                };
                found.push((right, less));
            }
        }
    }
    found
}

/// A cluster with the chart, a ClusterDNS, the kinds of the Prometheus operator, and roles for bindings to name.
async fn prepared() -> Option<(Site, Value)> {
    let site = Site::start().await?;
    site.helm("install", &["--set", "clusterDNS.create=true"]);
    let mut documents = vec![
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": SAMPLE},
            "rules": cluster_rules()}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": role("role.yaml"),
            "metadata": {"name": SAMPLE, "namespace": "kube-system"}}),
    ];
    for (plural, kind) in [("podmonitors", "PodMonitor"), ("prometheusrules", "PrometheusRule")] {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
        documents.push(
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com"),
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
            "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced", "versions": [version],
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind}}}),
        );
    }
    let text: String = documents.iter().map(|document| format!("---\n{document}\n")).collect();
    let file = site.home.write("prepared.yaml", text).expect("the folder is ours");
    site.run("kubectl", &["apply", "--server-side", "--filename", file.to_str().expect("UTF-8")]);
    let established = ["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"];
    site.run("kubectl", &established);
    let client = site.plane.client().await;
    let dns = get(&client, "/apis/clusterdns.dev/v1alpha1/clusterdnses/default").await;
    let owner = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "name": "default",
        "uid": dns["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
    Some((site, owner))
}

/// A client that is the operator, as far as the API server can tell.
async fn as_operator(site: &Site) -> Client {
    let file = kube::config::Kubeconfig::read_from(site.plane.kubeconfig()).expect("a kubeconfig");
    let options = kube::config::KubeConfigOptions::default();
    let mut config =
        kube::Config::from_custom_kubeconfig(file, &options).await.expect("a configuration");
    config.auth_info.impersonate = Some(OPERATOR.into());
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

#[tokio::test]
async fn s7_the_rights_of_the_chart_are_enough_and_each_is_needed() {
    let Some((site, owner)) = prepared().await else { return };
    let (admin, operator) = (site.plane.client().await, as_operator(&site).await);
    let steps = journey(&owner);
    assert_eq!(forbidden(&operator, &steps).await, Vec::<String>::new(), "all rights are there");

    let mut table = String::from(
        "# Without this right of the operator: what fails. Made by the test of the same name.\n",
    );
    let mut useless = Vec::new();
    for path in ROLES {
        let namespace = path.strip_prefix("namespaces/").and_then(|rest| rest.split('/').next());
        let path = format!("{RBAC}/{path}");
        let whole = get(&admin, &path).await["rules"].as_array().expect("rules").clone();
        for (right, less) in one_less(&whole, namespace) {
            set_rules(&admin, &path, &less).await;
            wait_for("a right less", async || {
                (!right.is_held(&admin, OPERATOR).await).then_some(())
            })
            .await;
            let fails = forbidden(&operator, &steps).await;
            if fails.is_empty() {
                useless.push(right.words());
            }
            writeln!(table, "{}: {}", right.words(), fails.join(", ")).unwrap();
            set_rules(&admin, &path, &whole).await;
            wait_for("the right again", async || {
                right.is_held(&admin, OPERATOR).await.then_some(())
            })
            .await;
        }
    }
    assert!(useless.is_empty(), "nothing needs these: {useless:#?}");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&golden, &table).expect("the file is writable");
    }
    let committed = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(committed == table, "tests/{GOLDEN} is not what happens:\n{table}");
}

#[tokio::test]
async fn s7_the_operator_is_refused_what_is_not_its_own() {
    let Some((site, _)) = prepared().await else { return };
    let admin = site.plane.client().await;
    for (verb, group, resource, namespace, name) in [
        ("get", "", "secrets", "kube-system", ""),
        ("list", "", "secrets", NAMESPACE, ""),
        ("create", "", "pods", "kube-system", ""),
        ("create", "", "pods/exec", "kube-system", "some"),
        ("get", "", "nodes/proxy", "", "some"),
        ("patch", "apps", "deployments", "kube-system", "coredns"),
        ("delete", "", "services", "kube-system", "metrics-server"),
        ("create", "apps", "deployments", "default", ""),
        ("create", "apps", "deployments", NAMESPACE, ""),
        ("list", "", "configmaps", "", ""),
        ("patch", "rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin"),
        ("patch", "rbac.authorization.k8s.io", "clusterroles", "", "clusterdns:operator"),
        ("escalate", "rbac.authorization.k8s.io", "clusterroles", "", "clusterdns-default"),
        ("bind", "rbac.authorization.k8s.io", "clusterroles", "", "cluster-admin"),
        ("bind", "rbac.authorization.k8s.io", "roles", "kube-system", "clusterdns-default"),
        ("impersonate", "", "users", "", "somebody"),
        ("update", "coordination.k8s.io", "leases", NAMESPACE, "another"),
        ("update", "clusterdns.dev", "clusterdnses", "", "default"),
        ("patch", "clusterdns.dev", "clusterdnses", "", "default"),
        ("delete", "clusterdns.dev", "clusterdnses", "", "default"),
        (
            "patch",
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "",
            "clusterdnses.clusterdns.dev",
        ),
    ] {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let right = Right {
            namespace: some(namespace),
            group: group.into(),
            resource: resource.into(),
            verb: verb.into(),
            name: some(name),
        };
        assert!(!right.is_held(&admin, OPERATOR).await, "the operator may {}", right.words());
    }
}
