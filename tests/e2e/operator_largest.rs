//! The largest legal ClusterDNS: the API server takes it, the operator acts on it, and its objects fit.

use std::time::{Duration, Instant};

use crds::ClusterDNS;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use operator::desired::Kind;
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::largest::largest;
use tests::objects::wait_for;
use tests::operator::{Operator, apply, children, condition, prepare};

const NAMESPACE: &str = "dns";

/// On a Service of this cluster, and without certificates, which would have to exist.
fn at_home(mut resource: Value) -> Value {
    let spec = &mut resource["spec"];
    spec["service"] = json!({"name": "dns", "namespace": NAMESPACE, "clusterIPs": ["10.96.0.10"]});
    spec["rollout"] = json!({"canary": false});
    for stub in spec["stubDomains"].as_array_mut().into_iter().flatten() {
        for server in stub["servers"].as_array_mut().into_iter().flatten() {
            server["tls"].as_object_mut().map(|tls| tls.remove("caBundle"));
        }
    }
    resource
}

/// The configuration that pods are given.
async fn stable(client: &kube::Client, name: &str) -> Option<String> {
    let made = children(client, NAMESPACE, name).await;
    let map = made.get(&(Kind::ConfigMap, format!("clusterdns-{name}")))?;
    map["data"]["stable.json"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_legal_resources_are_accepted_and_two_owners_share_one() {
    let Some(plane) = ControlPlane::start(Setup::default()).await else { return };
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    let operator = Operator::start(plane.kubeconfig(), NAMESPACE);
    let all = Api::<ClusterDNS>::all(client.clone());
    // Only one of them, because each takes the API server seconds.
    if let Some((name, resource)) = largest().into_iter().next() {
        let resource = at_home(resource);
        let dns: ClusterDNS = serde_json::from_value(resource.clone()).expect("a ClusterDNS");
        let wanted = crds::check_resource(&dns).unwrap_or_else(|violations| panic!("{violations}"));
        let params = PatchParams::apply("tests").force();
        all.patch(name, &params, &Patch::Apply(&resource)).await.expect("it is taken");
        let deadline = Instant::now() + Duration::from_secs(120);
        let verdict = loop {
            if let Some(verdict) = condition(&client, name, "Accepted").await {
                break verdict;
            }
            assert!(Instant::now() < deadline, "{name}: no verdict\n{}", operator.log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        let status = all.get(name).await.expect("it is there").status;
        assert_eq!(verdict.0, "True", "{name}: {:#?}", status.map(|status| status.conditions));
        let config = wait_for("its configuration", async || stable(&client, name).await).await;
        let written: crds::Config = serde_json::from_str(&config).expect("a Config");
        assert_eq!(written.hosts.len(), wanted.hosts.len(), "{name}");
        assert_eq!(written.stub_domains.len(), wanted.stub_domains.len(), "{name}");
        // Its listeners name a Secret that is not there.
        let degraded = condition(&client, name, "Degraded").await.map(|(_, reason)| reason);
        assert_eq!(degraded.as_deref(), Some("CertificateMissing"), "{}", operator.log());
        all.delete(name, &DeleteParams::default()).await.expect("it can be deleted");
        wait_for("no children", async || {
            children(&client, NAMESPACE, name).await.is_empty().then_some(())
        })
        .await;
    }

    // Two teams with a stub domain each; one leaves.
    let spec =
        json!({"service": {"name": "dns", "namespace": NAMESPACE}, "rollout": {"canary": false}});
    apply(&client, "shared", spec).await;
    let of = |domains: &[&str]| {
        let stub =
            |domain: &&str| json!({"domain": domain, "servers": [{"address": "192.0.2.53"}]});
        json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": "shared"},
            "spec": {"stubDomains": domains.iter().map(stub).collect::<Vec<_>>()}})
    };
    let sends = async |owner: &str, resource: Value| {
        let (params, body) = (PatchParams::apply(owner), Patch::Apply(&resource));
        let applied = all.patch("shared", &params, &body);
        applied.await.expect("each owns its entry");
    };
    let wait_until = async |has: &[&str], has_not: &[&str]| {
        wait_for("the stub domains in the configuration", async || {
            let config = stable(&client, "shared").await?;
            let holds = |domain: &&&str| config.contains(**domain);
            (has.iter().all(|domain| holds(&domain))
                && !has_not.iter().any(|domain| holds(&domain)))
            .then_some(())
        })
        .await;
    };
    sends("team-a", of(&["a.example"])).await;
    sends("team-b", of(&["b.example"])).await;
    wait_until(&["a.example", "b.example"], &[]).await;
    let nothing = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": "shared"}});
    sends("team-a", nothing).await;
    wait_until(&["b.example"], &["a.example"]).await;
}
