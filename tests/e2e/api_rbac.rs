//! S6: the roles in `dataplane/rbac` are enough, and each part of them is needed.

use std::path::{Path, PathBuf};

use dataplane::source::api::{Options, Wanted};
use dataplane_core::Resource;
use kube::Client;
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup, TestNamespace};
use tests::live::{Live, options};
use tests::objects::create_any;

use super::api_objects::service;

fn role(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dataplane/rbac").join(file);
    let text = std::fs::read_to_string(&path).expect("the role's file");
    serde_saphyr::from_str(&text).expect("YAML")
}

async fn post(client: &Client, path: &str, object: &Value) -> Value {
    let request = hyper::Request::post(path).body(object.to_string().into_bytes());
    let made = client.request(request.expect("a request")).await;
    made.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A kubeconfig of a new service account that has these roles, and nothing else.
async fn account(
    plane: &ControlPlane,
    namespace: &TestNamespace,
    name: &str,
    roles: &[Value],
) -> PathBuf {
    let (client, namespace) = (plane.client().await, namespace.name());
    let core = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    post(&client, &core, &json!({"metadata": {"name": name}})).await;
    let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
    for role in roles {
        let kind = role["kind"].as_str().expect("a kind");
        let unique =
            format!("{}-{namespace}-{name}", role["metadata"]["name"].as_str().expect("a name"));
        let mut role = role.clone();
        role["metadata"]["name"] = unique.clone().into();
        let (roles, bindings) = match kind {
            "ClusterRole" => ("clusterroles".to_owned(), "clusterrolebindings".to_owned()),
            _ => (
                format!("namespaces/{namespace}/roles"),
                format!("namespaces/{namespace}/rolebindings"),
            ),
        };
        let group = "/apis/rbac.authorization.k8s.io/v1";
        post(&client, &format!("{group}/{roles}"), &role).await;
        let reference =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": unique});
        let binding = json!({"kind": format!("{kind}Binding"), "metadata": {"name": unique},
            "apiVersion": "rbac.authorization.k8s.io/v1", "roleRef": reference, "subjects": subjects});
        post(&client, &format!("{group}/{bindings}"), &binding).await;
    }
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600}});
    let token = post(&client, &format!("{core}/{name}/token"), &asked).await;
    plane.kubeconfig_with_token(token["status"]["token"].as_str().expect("a token"))
}

fn start(kubeconfig: &Path, namespace: &TestNamespace) -> Live {
    let wanted = Wanted::ConfigMap {
        namespace: namespace.name().into(),
        name: "clusterdns".into(),
        mounted: None,
    };
    Live::with(Options { wanted, ..options(kubeconfig) }).expect("a start")
}

#[tokio::test]
async fn s6_the_roles_are_enough_and_a_missing_permission_is_named() {
    let setup = Setup { controllers: false, ..Setup::default() };
    let Some(plane) = ControlPlane::start(setup).await else { return };
    let namespace = plane.namespace("rights").await;
    let client = plane.client().await;
    let address = service(&client, namespace.name(), "cart").await;
    let config = json!({"format": 1, "podRecords": "Verified"}).to_string();
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"stable.json": config},
        "metadata": {"name": "clusterdns", "namespace": namespace.name()}});
    create_any(&client, &map).await.expect("created");
    let all = ["clusterrole.yaml", "clusterrole-verified-pods.yaml", "role.yaml"].map(role);

    let enough = start(&account(&plane, &namespace, "enough", &all).await, &namespace);
    enough.wait_until_ready();
    enough.wait_for(&format!("cart.{}", namespace.name()), &[&address]);

    for (number, missing) in [
        ("services", Resource::Services),
        ("endpointslices", Resource::EndpointSlices),
        ("namespaces", Resource::Namespaces),
        ("pods", Resource::Pods),
    ]
    .into_iter()
    .enumerate()
    {
        let (plural, resource) = missing;
        let less: Vec<Value> = all.iter().map(|role| without(role, plural)).collect();
        let name = format!("less-{number}");
        let live = start(&account(&plane, &namespace, &name, &less).await, &namespace);
        live.wait(plural, || live.trouble(resource).is_some_and(|text| text.contains("403")));
        let reasons = live.why_not_ready().join("\n");
        let expected = format!("no permission to list and watch {plural}");
        assert!(reasons.contains(&expected), "{reasons}");
    }

    let live = start(&account(&plane, &namespace, "no-map", &all[..2]).await, &namespace);
    let reasons = live.why_not_ready().join("\n");
    assert!(reasons.contains("no permission to list and watch configmaps"), "{reasons}");
}

/// The role without one resource.
fn without(role: &Value, plural: &str) -> Value {
    let mut role = role.clone();
    for rule in role["rules"].as_array_mut().expect("rules") {
        rule["resources"].as_array_mut().expect("resources").retain(|resource| resource != plural);
    }
    role["rules"].as_array_mut().expect("rules").retain(|rule| rule["resources"] != json!([]));
    role
}

#[test]
fn s6_the_roles_allow_reading_only_and_no_secret() {
    for file in ["clusterrole.yaml", "clusterrole-verified-pods.yaml", "role.yaml"] {
        for rule in role(file)["rules"].as_array().expect("rules") {
            let verbs = rule["verbs"].as_array().expect("verbs");
            assert!(
                verbs
                    .iter()
                    .all(|verb| ["get", "list", "watch"].contains(&verb.as_str().expect("a verb")))
            );
            assert!(!rule.to_string().contains("secrets") && !rule.to_string().contains('*'));
            assert_eq!(rule.get("resourceNames").is_some(), file == "role.yaml");
        }
    }
}
