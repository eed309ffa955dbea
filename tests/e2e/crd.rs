//! The CustomResourceDefinition on a real API server: what it takes, what it refuses, and that the largest legal
//! resource stays within the cost and size that an API server allows.

use crds::bounds::CONFIG_BYTES;
use crds::config::MetricNames;
use crds::{ClusterDNS, check_resource};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tests::control_plane::ControlPlane;
use tests::crd::{FIELD_MANAGER, install};
use tests::helm::Tools;
use tests::largest::largest;

/// The rows of the package `crds`: what `check` says about each, and what the API server must do with it.
#[path = "../../crds/tests/table/mod.rs"]
#[allow(dead_code, reason = "the tests of crds read the other columns")]
mod table;
const RULES: &str = include_str!("../../crds/tests/rules.yaml");
const LEGAL: &str = include_str!("../../crds/tests/legal.yaml");
/// Numbers as text, because kubectl decides how they are sent, and whether they are taken.
const NUMBERS: &str = include_str!("../../crds/tests/numbers.yaml");

#[tokio::test]
async fn o1_the_api_server_refuses_the_mistakes_it_can_see_and_names_the_field() {
    let Some(client) = cluster().await else { return };
    let mut wrong = Vec::new();
    for (number, row) in table::rows(RULES).iter().enumerate() {
        let outcome = match row.old_document() {
            Some(old) => change(&client, &format!("row-{number}"), old, row.document()).await,
            None => create(&client, row.document(), true).await,
        };
        let right = match row.server.as_str() {
            "Accepts" => outcome.is_ok(),
            _ => outcome.as_ref().is_err_and(|error| names_field(error, &row.field)),
        };
        if !right {
            wrong.push(format!("{}\n  {} at {}, but {outcome:?}", row.rule, row.server, row.field));
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn the_api_server_takes_what_only_looks_wrong() {
    let Some(client) = cluster().await else { return };
    for (number, row) in table::rows(LEGAL).iter().enumerate() {
        let outcome = match row.old_document() {
            Some(old) => change(&client, &format!("legal-{number}"), old, row.document()).await,
            None => create(&client, row.document(), true).await,
        };
        assert!(outcome.is_ok(), "{}: {outcome:?}", row.rule);
    }
}

#[tokio::test]
async fn the_api_server_takes_from_kubectl_the_numbers_that_check_takes() {
    #[derive(serde::Deserialize)]
    struct Numbers {
        spec: String,
        is_taken: bool,
    }
    let Some(control_plane) = ControlPlane::shared().await else { return };
    install(&control_plane.client().await).await;
    let Some(tools) = Tools::new(control_plane.kubeconfig()) else { return };
    let rows: Vec<Numbers> = serde_saphyr::from_str(NUMBERS).expect("rows");
    let document = |(number, row): (usize, &Numbers)| {
        format!(
            "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {{name: number-{number}}}\nspec: {{{}}}\n---\n",
            row.spec
        )
    };
    let documents: String = rows.iter().enumerate().map(document).collect();
    let file = tools.folder().join("numbers.yaml");
    std::fs::write(&file, documents).expect("the folder is ours");
    let file = file.to_str().expect("a path of text");
    let ran = tools.kubectl(&["create", "--dry-run=server", "--filename", file]);
    let mut wrong = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let is_taken = ran.stdout.contains(&format!("/number-{number} created"));
        if is_taken != row.is_taken {
            wrong.push(format!("number-{number}: {}", row.spec));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), ran.stderr);
}

#[tokio::test]
async fn defaults_may_be_written_down_later_and_a_cluster_ip_set_once() {
    let Some(client) = cluster().await else { return };
    for (number, (before, after)) in [
        (json!({}), json!({"domain": "cluster.local", "service": {"name": "kube-dns", "namespace": "kube-system"}})),
        (json!({}), json!({"service": {"clusterIPs": ["10.96.0.10"]}})),
        (json!({"service": {"clusterIPs": []}}), json!({"service": {"clusterIPs": ["10.96.0.10"]}})),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("changed-{number}");
        let outcome = change(&client, &name, resource(&name, before), resource(&name, after)).await;
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_list_that_is_applied_later_takes_the_place_of_its_stored_default() {
    let Some(client) = cluster().await else { return };
    let all: Api<ClusterDNS> = Api::all(client);
    let apply = async |metrics: Value| {
        let one = resource("metrics", json!({"metrics": metrics}));
        let patch = (PatchParams::apply(FIELD_MANAGER), Patch::Apply(&one));
        let dns = all.patch("metrics", &patch.0, &patch.1).await.expect("it is legal");
        dns.spec.metrics.expect("metrics").compatibility
    };
    let default = apply(json!({"podMonitor": false})).await;
    assert_eq!(default, [MetricNames::CoreDNS]);
    let names = apply(json!({"podMonitor": false, "compatibility": ["KubeDNS"]})).await;
    assert_eq!(names, [MetricNames::KubeDNS]);
    assert_eq!(apply(json!({"podMonitor": false, "compatibility": []})).await, []);
    all.delete("metrics", &DeleteParams::default()).await.expect("it can be deleted");
}

#[tokio::test]
async fn the_largest_legal_resources_are_taken_and_can_be_changed() {
    let Some(client) = cluster().await else { return };
    let all: Api<ClusterDNS> = Api::all(client);
    let apply = PatchParams::apply(FIELD_MANAGER);
    for (name, mut largest) in largest() {
        let dns: ClusterDNS = serde_json::from_value(largest.clone()).expect("a ClusterDNS");
        let config = check_resource(&dns)
            .unwrap_or_else(|violations| panic!("{name} is not legal: {violations}"));
        let size = serde_json::to_vec(&config).expect("a Config is JSON").len();
        assert!(size > CONFIG_BYTES / 2, "{name} is no longer large: {size} bytes");
        let applied = all.patch(name, &apply, &Patch::Apply(&largest)).await;
        applied.unwrap_or_else(|error| panic!("{name} at first: {error}"));
        // The rules about changes see the old and the new one at once.
        largest["spec"]["ttlSeconds"] = json!(7);
        let applied = all.patch(name, &apply, &Patch::Apply(&largest)).await;
        applied.unwrap_or_else(|error| panic!("{name} changed: {error}"));
        all.delete(name, &DeleteParams::default()).await.expect("it can be deleted");
    }
}

#[tokio::test]
async fn two_owners_apply_a_stub_domain_each() {
    let Some(client) = cluster().await else { return };
    let all: Api<ClusterDNS> = Api::all(client);
    for (owner, domain) in [("team-a", "a.example"), ("team-b", "b.example")] {
        let stub_domains = json!([{"domain": domain, "servers": [{"address": "10.0.0.1"}]}]);
        let one = resource("shared", json!({"stubDomains": stub_domains}));
        all.patch("shared", &PatchParams::apply(owner), &Patch::Apply(&one))
            .await
            .expect("each owns its entry");
    }
    let domains = async || {
        let stub_domains =
            all.get("shared").await.expect("it is there").spec.stub_domains.unwrap_or_default();
        stub_domains.into_iter().map(|stub| stub.domain).collect::<Vec<_>>()
    };
    assert_eq!(domains().await, ["a.example", "b.example"]);

    let nothing = resource("shared", json!({}));
    all.patch("shared", &PatchParams::apply("team-a"), &Patch::Apply(&nothing))
        .await
        .expect("team-a lets go");
    assert_eq!(domains().await, ["b.example"]);
    all.delete("shared", &DeleteParams::default()).await.expect("it can be deleted");
}

/// A cluster that knows the resource.
async fn cluster() -> Option<Client> {
    let client = ControlPlane::shared().await?.client().await;
    install(&client).await;
    Some(client)
}

fn resource(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": name}, "spec": spec})
}

/// Creates it, or only asks whether that is possible. It is sent as written, because our own types cannot hold some
/// mistakes.
async fn create(client: &Client, resource: Value, dry_run: bool) -> kube::Result<()> {
    let api = kube::discovery::ApiResource::erase::<ClusterDNS>(&());
    let all: Api<kube::core::DynamicObject> = Api::all_with(client.clone(), &api);
    let object = serde_json::from_value(resource).expect("an object");
    let params = PostParams { dry_run, ..PostParams::default() };
    all.create(&params, &object).await.map(|_| ())
}

/// Replaces one by the other, under this name.
async fn change(
    client: &Client,
    name: &str,
    mut before: Value,
    mut after: Value,
) -> kube::Result<()> {
    before["metadata"]["name"] = json!(name);
    after["metadata"]["name"] = json!(name);
    let status = json!({"status": before["status"]});
    create(client, before, false).await.expect("the state before is legal");
    let all: Api<ClusterDNS> = Api::all(client.clone());
    let patch = Patch::Merge(&status);
    all.patch_status(name, &PatchParams::default(), &patch).await.expect("a status");
    let mut changed: ClusterDNS = serde_json::from_value(after).expect("a ClusterDNS");
    changed.metadata.resource_version =
        all.get(name).await.expect("it is there").resource_version();
    let outcome = all.replace(name, &PostParams::default(), &changed).await.map(|_| ());
    all.delete(name, &DeleteParams::default()).await.expect("it can be deleted");
    outcome
}

/// Whether the refusal names this field, or what contains it where a list is too long for a rule that names
/// the entry. A rule about metadata has no field for the API server; its message says the name.
fn names_field(refusal: &kube::Error, field: &str) -> bool {
    let kube::Error::Api(refusal) = refusal else { return false };
    let causes =
        refusal.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let points_at_it = |cause: &kube::core::response::StatusCause| match cause.field.as_str() {
        "<nil>" => cause.message.contains(field),
        named => named.len() > "spec".len() && field.starts_with(named),
    };
    causes.iter().any(points_at_it)
}
