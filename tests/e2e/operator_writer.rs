//! S14: what a user gets who may write a ClusterDNS and nothing else. The API server accepts what the user writes; the
//! operator refuses it by field and makes no pod, or makes one without what the user wanted.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::SecretVolumeSource;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::fault_proxy::{FaultProxy, Requests};
use tests::objects::{create_any, wait_for};
use tests::operator::{Operator, apply, prepare, wait_until_accepted};

const NAMESPACE: &str = "dns";

/// A cluster with a running operator. Pods are only desired: no controller makes any.
struct Site {
    client: Client,
    proxy: FaultProxy,
    operator: Operator,
    _plane: ControlPlane,
}

impl Site {
    async fn start() -> Option<Site> {
        let plane = ControlPlane::start(Setup::default()).await?;
        let client = plane.client().await;
        prepare(&client, NAMESPACE).await;
        let proxy = FaultProxy::start(&plane).await;
        let operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
        Some(Site { client, proxy, operator, _plane: plane })
    }

    /// Writes a spec, and waits until it is refused with this reason at this field.
    async fn is_refused(&self, name: &str, spec: Value, reason: &str, field: &str) {
        let shown = spec.to_string();
        apply(&self.client, name, spec).await;
        let all = Api::<crds::ClusterDNS>::all(self.client.clone());
        wait_for(&format!("{reason} at {field} for {shown}"), async || {
            let dns = all.get(name).await.ok()?;
            let status = dns.status?;
            let refused =
                status.violations.iter().any(|it| it.field == field && it.reason == reason);
            let accepted = status.conditions.into_iter().find(|it| it.type_ == "Accepted")?;
            (status.observed_generation == dns.metadata.generation
                && refused
                && (accepted.status.as_str(), accepted.reason.as_str()) == ("False", reason))
                .then_some(())
        })
        .await;
    }

    async fn deployment(&self, name: &str) -> Option<Deployment> {
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), NAMESPACE);
        deployments.get_opt(&format!("clusterdns-{name}")).await.expect("the API server answers")
    }

    async fn secret(&self, name: &str, kind: &str, labels: Value) {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "stringData": {"tls.crt": "a", "tls.key": "b", "password": "c"}});
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
        let request = hyper::Request::post(path).body(object.to_string().into_bytes());
        self.client.request::<Value>(request.expect("a request")).await.expect("a Secret");
    }

    /// The Secrets that the pods of a ClusterDNS would mount.
    async fn mounted(&self, name: &str) -> Vec<SecretVolumeSource> {
        let deployment = self.deployment(name).await.expect("a Deployment");
        let pod = deployment.spec.unwrap().template.spec.unwrap();
        pod.volumes.into_iter().flatten().filter_map(|volume| volume.secret).collect()
    }

    async fn labels(&self, name: &str) -> Option<BTreeMap<String, String>> {
        self.deployment(name).await?.spec?.template.metadata?.labels
    }
}

/// A ClusterDNS on a Service of its own, with these fields added.
fn spec(name: &str, more: Value) -> Value {
    let mut spec = json!({"service": {"name": format!("dns-{name}"), "namespace": NAMESPACE}});
    spec.as_object_mut().unwrap().extend(more.as_object().expect("fields").clone());
    spec
}

fn certificate(name: &str) -> Value {
    json!({"listeners": {"tls": {"certificate": {"name": name}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn s14_a_writer_gets_no_foreign_image_no_secret_and_no_other_service() {
    let Some(site) = Site::start().await else { return };
    let marked = json!({"clusterdns.dev/certificate": "true"});
    site.secret("passwords", "Opaque", marked.clone()).await;
    site.secret("of-others", "kubernetes.io/tls", json!({})).await;
    site.secret("for-dns", "kubernetes.io/tls", marked.clone()).await;
    let other = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "metrics-server", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "metrics-server"}, "ports": [{"port": 443}]}});
    create_any(&site.client, &other).await.expect("a Service");

    // The attack that was found: a foreign image that mounts a Secret.
    let mut both = certificate("passwords");
    both["image"] = "attacker.example/x".into();
    site.is_refused("a", spec("a", both), "ImageNotAllowed", "spec.image").await;
    for image in ["clusterdns-evil:1", "clusterdns/evil"] {
        let wanted = spec("a", json!({"image": image}));
        site.is_refused("a", wanted, "ImageNotAllowed", "spec.image").await;
    }
    let field = "spec.listeners.tls.certificate.name";
    for secret in ["passwords", "of-others"] {
        let wanted = spec("a", certificate(secret));
        site.is_refused("a", wanted, "CertificateNotAllowed", field).await;
    }
    let inject = json!({"placement": {"podAnnotations": {"sidecar.istio.io/inject": "true"}}});
    let field = "spec.placement.podAnnotations";
    site.is_refused("a", spec("a", inject), "PodMetadataNotAllowed", field).await;
    let joins = json!({"placement": {"podLabels": {"app": "metrics-server"}}});
    let field = "spec.placement.podLabels";
    site.is_refused("a", spec("a", joins), "PodLabelsSelected", field).await;
    assert!(site.deployment("a").await.is_none(), "no pod was asked for\n{}", site.operator.log());

    // A Secret that is marked for this is mounted, and only its key pair.
    apply(&site.client, "a", spec("a", certificate("for-dns"))).await;
    wait_until_accepted(&site.client, "a").await;
    wait_for("a Deployment", async || site.deployment("a").await).await;
    let [secret] = &site.mounted("a").await[..] else { panic!("one Secret") };
    assert_eq!(secret.secret_name.as_deref(), Some("for-dns"));
    let keys: Vec<&str> = secret.items.iter().flatten().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["tls.crt", "tls.key"]);

    // A later edit that is refused leaves what runs as it is.
    let field = "spec.listeners.tls.certificate.name";
    let wanted = spec("a", certificate("passwords"));
    site.is_refused("a", wanted, "CertificateNotAllowed", field).await;
    assert_eq!(site.mounted("a").await[0].secret_name.as_deref(), Some("for-dns"));
    // Once the owner of the Secret marks it, it is taken without another edit.
    let wanted = spec("a", certificate("of-others"));
    site.is_refused("a", wanted, "CertificateNotAllowed", field).await;
    let secrets =
        Api::<k8s_openapi::api::core::v1::Secret>::namespaced(site.client.clone(), NAMESPACE);
    let mark = json!({"metadata": {"labels": marked}});
    let marked = secrets.patch("of-others", &PatchParams::default(), &Patch::Merge(&mark)).await;
    marked.expect("a label");
    wait_until_accepted(&site.client, "a").await;

    // One Secret at a time, by name: never all of them, and never the content.
    let asked = site.proxy.seen(&Requests::all());
    let asked: Vec<_> = asked.iter().filter(|one| one.path.contains("/secrets")).collect();
    assert!(!asked.is_empty());
    for one in asked {
        assert!(one.path.ends_with("/secrets") && one.query.contains("metadata.name"), "{one:?}");
        assert!(!one.query.contains("watch=true"), "{one:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kube_dns_of_our_own_is_found_by_label_unless_another_service_gets_its_pods() {
    let Some(site) = Site::start().await else { return };
    let own = json!({"service": {"namespace": NAMESPACE}});
    let label = async || site.labels("a").await?.get("k8s-app").cloned();

    // Beside the Service of another DNS server no pod of ours answers for it.
    let other = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "coredns", "namespace": NAMESPACE},
        "spec": {"selector": {"k8s-app": "kube-dns"}, "ports": [{"port": 53, "protocol": "UDP"}]}});
    create_any(&site.client, &other).await.expect("a Service");
    apply(&site.client, "a", own).await;
    wait_for("a Deployment", async || site.deployment("a").await).await;
    assert_eq!(label().await, None);

    // When that one is gone they are found as those of the cluster's DNS. When it is back they stay so while no pod but
    // ours is behind it: without them its clients would have no DNS.
    let services =
        Api::<k8s_openapi::api::core::v1::Service>::namespaced(site.client.clone(), NAMESPACE);
    services.delete("coredns", &Default::default()).await.expect("it can be deleted");
    wait_for("the label", async || label().await.filter(|label| label == "kube-dns")).await;
    create_any(&site.client, &other).await.expect("a Service");
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "coredns-1", "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": "coredns"}},
        "endpoints": [{"addresses": ["10.244.9.9"],
            "targetRef": {"kind": "Pod", "name": "coredns-5d78c9869d-abcde", "uid": "theirs"}}]});
    create_any(&site.client, &slice).await.expect("its endpoints");
    wait_for("no label", async || label().await.is_none().then_some(())).await;

    // A trial on a Service of its own never has it.
    apply(&site.client, "b", spec("b", json!({}))).await;
    wait_for("a Deployment", async || site.deployment("b").await).await;
    assert_eq!(site.labels("b").await.expect("labels").get("k8s-app"), None);
}
