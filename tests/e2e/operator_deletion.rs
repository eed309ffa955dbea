//! O10: our objects go with their ClusterDNS, with and without the operator. An adopted Service stays. No deletion hangs.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PropagationPolicy};
use kube::{Client, ResourceExt};
use operator::desired::Kind;
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::fault_proxy::FaultProxy;
use tests::helm::Tools;
use tests::kubelet::{FakeNode, Kubelet, Play, Settings, endpoints};
use tests::netns::inside;
use tests::objects::{create_any, wait_for};
use tests::operator::{
    Operator, apply, children, condition, free_the_lease, old_dns, prepare, quiet,
    wait_until_accepted,
};

const NAMESPACE: &str = "dns";

fn spec(service: &str) -> Value {
    json!({"service": {"name": service, "namespace": NAMESPACE}, "scaling": {"fixed": {"replicas": 2}},
        "rollout": {"canary": false}})
}

/// Deletes a ClusterDNS; returns when it and all that is labelled as its own has gone.
async fn delete(client: &Client, name: &str) {
    let all = Api::<crds::ClusterDNS>::all(client.clone());
    // Its deletion may have begun already.
    let _ = all.delete(name, &DeleteParams::default()).await;
    wait_for("no ClusterDNS", async || all.get_opt(name).await.ok()?.is_none().then_some(())).await;
    wait_for("no children", async || {
        children(client, NAMESPACE, name).await.is_empty().then_some(())
    })
    .await;
}

async fn delete_namespace(client: &Client) {
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.delete(NAMESPACE, &DeleteParams::default()).await.expect("it can be deleted");
    wait_for("no namespace", async || {
        namespaces.get_opt(NAMESPACE).await.ok()?.is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o10_resources_and_their_namespace_can_be_deleted_with_and_without_the_operator() {
    let Some(plane) = ControlPlane::start(Setup::default()).await else { return };
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    let proxy = FaultProxy::start(&plane).await;
    let mut operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
    for name in ["a", "b", "c"] {
        apply(&client, name, spec(&format!("dns-{name}"))).await;
        wait_until_accepted(&client, name).await;
    }
    quiet(&proxy).await;
    delete(&client, "c").await;

    // Orphaned on purpose: a new one of the same name owns the children again, and the Service stays.
    let all = Api::<crds::ClusterDNS>::all(client.clone());
    let orphan = Some(PropagationPolicy::Orphan);
    let leaving = DeleteParams { propagation_policy: orphan, ..DeleteParams::default() };
    let left = children(&client, NAMESPACE, "a").await;
    all.delete("a", &leaving).await.expect("it can be deleted");
    wait_for("no ClusterDNS", async || all.get_opt("a").await.ok()?.is_none().then_some(())).await;
    let again = apply(&client, "a", spec("dns-a")).await;
    let owned = wait_for("an owner again", async || {
        let owned = children(&client, NAMESPACE, "a").await;
        let is_owned = |object: &Value| {
            object["metadata"]["ownerReferences"][0]["uid"].as_str()
                == again.metadata.uid.as_deref()
        };
        owned.values().all(is_owned).then_some(owned)
    })
    .await;
    let uids = |all: &BTreeMap<_, Value>| -> Vec<String> {
        all.values().map(|object| object["metadata"]["uid"].to_string()).collect()
    };
    assert_eq!(uids(&owned), uids(&left));
    wait_until_accepted(&client, "a").await;

    // Its namespace is deleted: the status says so, and everything is created again with the namespace.
    delete_namespace(&client).await;
    wait_for("Degraded", async || {
        condition(&client, "a", "Degraded").await.filter(|(status, _)| status == "True")
    })
    .await;
    operator.process().ensure_running().expect("the operator runs");
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    create_any(&client, &namespace).await.expect("a namespace");
    for name in ["a", "b"] {
        wait_for("all children again", async || {
            (children(&client, NAMESPACE, name).await.len() == 9).then_some(())
        })
        .await;
    }
    quiet(&proxy).await;
    assert_eq!(children(&client, NAMESPACE, "c").await.len(), 0, "nothing of it came back");

    // It hands the lease over and ends in order.
    operator.stop().await;
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-system");
    let lease = leases.get("clusterdns-operator").await.expect("a Lease").spec.expect("a spec");
    assert_eq!(lease.holder_identity.as_deref(), Some(""));

    // Without an operator nothing blocks a deletion.
    delete(&client, "a").await;
    assert_eq!(children(&client, NAMESPACE, "b").await.len(), 9, "each owns its own");
    delete_namespace(&client).await;
    delete(&client, "b").await;
}

fn adopting() -> Value {
    let mut adopting = spec("kube-dns");
    adopting["service"]["adopt"] = json!(true);
    adopting
}

async fn wait_until_moved(client: &Client, is_ours: bool) -> Service {
    let services = Api::<Service>::namespaced(client.clone(), NAMESPACE);
    wait_for(if is_ours { "our selector" } else { "the old selector" }, async || {
        let service = services.get("kube-dns").await.ok()?;
        let selector = service.spec.clone()?.selector?;
        (selector.contains_key("clusterdns.dev/instance") == is_ours).then_some(service)
    })
    .await
}

/// Name, addresses and ports are what they were, and it has no owner.
fn is_the_same(now: &Service, before: &Service) {
    let (now_spec, before_spec) = (now.spec.clone().unwrap(), before.spec.clone().unwrap());
    assert_eq!(now.uid(), before.uid());
    assert_eq!(now_spec.cluster_ip, before_spec.cluster_ip);
    assert_eq!(now_spec.ports, before_spec.ports);
    assert!(now.owner_references().is_empty());
}

#[test]
fn o10_an_adopted_service_survives_its_clusterdns_with_and_without_the_operator() {
    inside(async || {
        let Some(plane) = ControlPlane::start(Setup::for_pods()).await else { return };
        let Some(tools) = Tools::new(plane.kubeconfig()) else { return };
        let client = plane.client().await;
        prepare(&client, NAMESPACE).await;
        let play = Box::new(|_: &_| Play::Pretend { ready_after: Some(Default::default()) });
        let settings = Settings { play, ..Settings::default() };
        let _kubelet = Kubelet::start(&plane, &FakeNode::several("node", 2), settings).await;
        tools.apply(&old_dns(NAMESPACE)).ok();
        let before = wait_until_moved(&client, false).await;
        let mut operator = Operator::start(plane.kubeconfig(), NAMESPACE);
        apply(&client, "a", adopting()).await;
        wait_until_moved(&client, true).await;

        // Deleted while no operator runs: its pods go, the Service stays, and the next operator gives it back.
        operator.process().kill();
        delete(&client, "a").await;
        is_the_same(&wait_until_moved(&client, true).await, &before);
        free_the_lease(&client).await;
        let operator = Operator::start(plane.kubeconfig(), NAMESPACE);
        is_the_same(&wait_until_moved(&client, false).await, &before);
        wait_for("the old pods behind it", async || {
            let behind = endpoints(&client, NAMESPACE, "kube-dns").await.ok()?;
            (behind.len() == 2).then_some(())
        })
        .await;

        // It is given back as soon as the deletion begins, also if that is delayed: the pods may go before the
        // ClusterDNS.
        apply(&client, "a", adopting()).await;
        wait_until_moved(&client, true).await;
        let all = Api::<crds::ClusterDNS>::all(client.clone());
        let held = |by: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": by}}));
        let hold = held(&["example.com/hold"]);
        all.patch("a", &PatchParams::default(), &hold).await.expect("a finalizer");
        all.delete("a", &DeleteParams::default()).await.expect("it can be deleted");
        is_the_same(&wait_until_moved(&client, false).await, &before);
        assert!(all.get("a").await.is_ok(), "it is still there");
        wait_for("it says that it is being deleted", async || {
            condition(&client, "a", "Degraded").await.filter(|(_, why)| why == "BeingDeleted")
        })
        .await;
        all.patch("a", &PatchParams::default(), &held(&[])).await.expect("no finalizer");
        delete(&client, "a").await;

        // And deleted while the operator runs.
        apply(&client, "a", adopting()).await;
        wait_until_moved(&client, true).await;
        delete(&client, "a").await;
        let after = wait_until_moved(&client, false).await;
        is_the_same(&after, &before);
        assert!(
            !after.annotations().contains_key("clusterdns.dev/adopted-by"),
            "{}",
            operator.log()
        );
        let left = children(&client, NAMESPACE, "a").await;
        assert!(left.keys().all(|(kind, _)| *kind == Kind::Service), "{:?}", left.keys());
    });
}
