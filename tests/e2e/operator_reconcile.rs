//! The operator against a real API server: what it writes, what it leaves alone, and what remains without it. No pod
//! runs here: Deployments stay without ready pods.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use operator::desired::Kind;
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::fault_proxy::FaultProxy;
use tests::objects::wait_for;
use tests::operator::{
    Operator, apply, children, condition, prepare, quiet, versions, wait_until_accepted, writes,
};

const NAMESPACE: &str = "dns";
const CONTAINER: &str = "clusterdns";

fn spec() -> Value {
    json!({"service": {"name": "dns", "namespace": NAMESPACE}, "scaling": {"fixed": {"replicas": 3}}})
}

struct Started {
    plane: ControlPlane,
    client: Client,
    proxy: FaultProxy,
    operator: Operator,
}

/// A cluster with an operator that has finished its work for the ClusterDNS `a`.
async fn settled() -> Option<Started> {
    let plane = ControlPlane::start(Setup::default()).await?;
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    let proxy = FaultProxy::start(&plane).await;
    apply(&client, "a", spec()).await;
    let operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
    wait_until_accepted(&client, "a").await;
    quiet(&proxy).await;
    Some(Started { plane, client, proxy, operator })
}

#[tokio::test(flavor = "multi_thread")]
async fn o13_everything_is_created_once_and_then_nothing_is_written() {
    let Some(Started { client, proxy, operator, plane: _plane }) = settled().await else { return };
    let made = children(&client, NAMESPACE, "a").await;
    let kinds: Vec<Kind> = made.keys().map(|(kind, _)| *kind).collect();
    let expected = [
        Kind::ServiceAccount,
        Kind::ClusterRole,
        Kind::ClusterRoleBinding,
        Kind::Role,
        Kind::RoleBinding,
        Kind::ConfigMap,
        Kind::Service,
        Kind::PodDisruptionBudget,
        Kind::Deployment,
    ];
    assert_eq!(kinds, expected, "{}", operator.log());
    for ((kind, name), object) in &made {
        assert_eq!(object["metadata"]["ownerReferences"][0]["name"], "a", "{kind:?} {name}");
    }

    // Reasons to look again: a foreign condition in the status, and a label.
    let (before, written) = (versions(&made), proxy.count(&writes()));
    let all = Api::<crds::ClusterDNS>::all(client.clone());
    let theirs = json!({"type": "Audited", "status": "True", "reason": "Audited", "message": "theirs",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let audited = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
        "status": {"conditions": [theirs]}});
    let auditor = PatchParams::apply("auditor");
    all.patch_status("a", &auditor, &Patch::Apply(&audited)).await.expect("a condition");
    for round in 0..3 {
        let label = json!({"metadata": {"labels": {"round": round.to_string()}}});
        all.patch("a", &PatchParams::default(), &Patch::Merge(&label)).await.expect("a label");
        quiet(&proxy).await;
    }
    assert_eq!(versions(&children(&client, NAMESPACE, "a").await), before);
    let seen = proxy.seen(&writes());
    assert_eq!(seen.len(), written, "{:?}", &seen[written..]);
    assert_eq!(condition(&client, "a", "Audited").await.expect("it stays").1, "Audited");
}

/// ClusterDNS side by side, and edits of one of them.
const MANY: u32 = 12;
const EDITS: u32 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn o13_what_concerns_one_of_many_wakes_only_that_one() {
    let Some(Started { client, proxy, operator, plane: _plane }) = settled().await else { return };
    for n in 1..MANY {
        let name = format!("other-{n}");
        let service = json!({"name": format!("dns-{n}"), "namespace": NAMESPACE});
        apply(&client, &name, json!({"service": service})).await;
        wait_until_accepted(&client, &name).await;
    }
    quiet(&proxy).await;

    let (before, began) = (operator.reconciles(), std::time::Instant::now());
    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    for edit in 0..EDITS {
        let theirs = json!({"metadata": {"labels": {"app.kubernetes.io/component": "theirs"}}});
        maps.patch("clusterdns-a", &PatchParams::default(), &Patch::Merge(&theirs))
            .await
            .expect("an edit");
        wait_for(&format!("our label after edit {edit}"), async || {
            let map = maps.get("clusterdns-a").await.ok()?;
            (map.labels()["app.kubernetes.io/component"] == "dataplane").then_some(())
        })
        .await;
    }
    let looks = operator.reconciles() - before;
    // Each edit is one reconcile and its undoing another; every ClusterDNS is reconciled each 30 s anyway. If every event
    // woke all, it would be MANY reconciles for each edit.
    let anyway = f64::from(MANY) * (began.elapsed().as_secs_f64() / 30.0).ceil();
    let most = f64::from(3 * EDITS) + anyway;
    assert!(looks <= most, "{looks} looks, at most {most} are needed\n{}", operator.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn o4_a_foreign_edit_is_undone_and_foreign_fields_stay() {
    let Some(Started { client, proxy, mut operator, plane: _plane }) = settled().await else {
        return;
    };
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    let image = async || {
        let deployment = deployments.get("clusterdns-a").await.expect("a Deployment");
        let template = deployment.spec.expect("a spec").template;
        template.spec.expect("a pod").containers[0].image.clone().expect("an image")
    };
    let ours = image().await;

    let edit = json!({
        "metadata": {"annotations": {"example.com/theirs": "stays"}},
        "spec": {"revisionHistoryLimit": 3, "template": {"metadata": {"annotations": {"restarted": "now"}},
            "spec": {"containers": [{"name": CONTAINER, "image": "example.com/other:1"}]}}},
    });
    let params =
        PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    let edited = deployments.patch("clusterdns-a", &params, &Patch::Strategic(&edit)).await;
    let containers = edited.expect("an edit").spec.unwrap().template.spec.unwrap().containers;
    assert_eq!(containers.len(), 1, "the edit was about our container");

    wait_for("our image again", async || (image().await == ours).then_some(())).await;
    quiet(&proxy).await;
    let after = deployments.get("clusterdns-a").await.expect("a Deployment");
    assert_eq!(after.annotations()["example.com/theirs"], "stays", "{}", operator.log());
    let after = after.spec.expect("a spec");
    assert_eq!(after.revision_history_limit, Some(3));
    let template = after.template.metadata.expect("metadata");
    assert_eq!(template.annotations.expect("annotations")["restarted"], "now");

    // What is deleted comes back.
    let maps = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let before = maps.get("clusterdns-a").await.expect("a ConfigMap");
    maps.delete("clusterdns-a", &DeleteParams::default()).await.expect("it can be deleted");
    let again =
        wait_for("the ConfigMap again", async || maps.get_opt("clusterdns-a").await.ok()?).await;
    assert_eq!(
        again.data.as_ref().map(|data| &data["stable.json"]),
        before.data.as_ref().map(|data| &data["stable.json"])
    );
    operator.process().ensure_running().expect("the operator runs");
}

/// What server-side apply leaves of another manager beside ours, the API server refuses.
#[tokio::test(flavor = "multi_thread")]
async fn o4_an_edit_beside_which_ours_is_refused_is_undone() {
    let Some(Started { client, proxy, operator, plane: _plane }) = settled().await else { return };
    let services = Api::<Service>::namespaced(client.clone(), NAMESPACE);
    let budgets = Api::<PodDisruptionBudget>::namespaced(client.clone(), NAMESPACE);
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    let service = async || services.get("dns").await.expect("a Service").spec.expect("a spec");
    let budget =
        async || budgets.get("clusterdns-a").await.expect("a budget").spec.expect("a spec");
    let template = async || {
        let found = deployments.get("clusterdns-a").await.expect("a Deployment");
        found.spec.expect("a spec").template.spec.expect("a pod")
    };
    let (ports, bound, pod) = (service().await.ports, budget().await, template().await);
    let addresses = service().await.cluster_ips;
    let params = PatchParams { field_manager: Some("a-page".into()), ..PatchParams::default() };

    let mut moved = ports.clone().expect("ports");
    moved
        .iter_mut()
        .filter(|port| port.protocol.as_deref() == Some("UDP"))
        .for_each(|port| port.port = 5353);
    let theirs = Patch::Merge(json!({"spec": {"ports": moved}}));
    services.patch("dns", &params, &theirs).await.expect("it may");
    let theirs = Patch::Merge(json!({"spec": {"minAvailable": 1, "maxUnavailable": null}}));
    budgets.patch("clusterdns-a", &params, &theirs).await.expect("it may");
    let probe = json!({"httpGet": null, "exec": {"command": ["true"]}});
    let theirs = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [
        {"name": CONTAINER, "livenessProbe": probe}]}}}}));
    deployments.patch("clusterdns-a", &params, &theirs).await.expect("it may");

    let is_back = async || {
        let is =
            service().await.ports == ports && budget().await == bound && template().await == pod;
        is.then_some(())
    };
    wait_for("ours again", is_back).await;

    // The API server takes the addresses of such a Service.
    let theirs =
        Patch::Merge(json!({"spec": {"type": "ExternalName", "externalName": "dns.example"}}));
    services.patch("dns", &params, &theirs).await.expect("it may");
    let is_back = async || {
        let found = service().await;
        (found.type_.as_deref() == Some("ClusterIP") && found.cluster_ips == addresses)
            .then_some(())
    };
    wait_for("the Service with its addresses", is_back).await;
    quiet(&proxy).await;
    assert_eq!(service().await.cluster_ips, addresses, "{}", operator.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn unmanaged_writes_nothing_but_status() {
    let Some(Started { client, proxy, operator: _operator, plane: _plane }) = settled().await
    else {
        return;
    };
    let before = versions(&children(&client, NAMESPACE, "a").await);
    let but_status = writes().except("/apis/clusterdns.dev/v1alpha1/clusterdnses/a/status");
    let written = proxy.count(&but_status);
    let mut unmanaged = spec();
    unmanaged["managementState"] = json!("Unmanaged");
    unmanaged["hosts"] = json!([{"name": "git.corp.example", "addresses": ["192.0.2.7"]}]);
    apply(&client, "a", unmanaged).await;
    wait_until_accepted(&client, "a").await;
    quiet(&proxy).await;
    assert_eq!(versions(&children(&client, NAMESPACE, "a").await), before);
    let seen = proxy.seen(&but_status);
    assert_eq!(seen.len(), written, "no Event either: {:?}", &seen[written..]);
    let progressing = condition(&client, "a", "Progressing").await.expect("a condition");
    assert_eq!(progressing, ("False".to_owned(), "Unmanaged".to_owned()));

    let mut managed = spec();
    managed["hosts"] = json!([{"name": "git.corp.example", "addresses": ["192.0.2.7"]}]);
    apply(&client, "a", managed).await;
    wait_for("the configuration", async || {
        (versions(&children(&client, NAMESPACE, "a").await) != before).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o3_the_older_claim_to_a_service_wins() {
    let Some(Started { client, proxy, operator: _operator, plane: _plane }) = settled().await
    else {
        return;
    };
    apply(&client, "b", spec()).await;
    let refused = wait_for("a refusal", async || {
        condition(&client, "b", "Accepted").await.filter(|(status, _)| status == "False")
    })
    .await;
    assert_eq!(refused.1, "Conflict");
    assert_eq!(children(&client, NAMESPACE, "b").await.len(), 0);
    quiet(&proxy).await;
    assert_eq!(condition(&client, "a", "Accepted").await.expect("a condition").0, "True");
}
