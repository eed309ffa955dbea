//! S6, S7: the operator lives a full life with exactly the chart's rights, and its requests are compared with
//! the rules: each request is allowed by one, and without any one of them a request would have been refused. The pods
//! that it makes are given what they need to read, and nothing else.

mod needs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PropagationPolicy};
use operator::desired::Kind;
use operator::runtime::resources;
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::fault_proxy::{Answered, FaultProxy, Requests};
use tests::helm::Tools;
use tests::kubelet::{FakeNode, Kubelet, Play, Settings};
use tests::netns::inside;
use tests::objects::wait_for;
use tests::operator::{MONITORING_KINDS, Operator, apply, condition, old_dns, wait_until_accepted};

use needs::{Right, needs, rights};

/// Where the chart is installed, and where the Service is.
const OWN: &str = "clusterdns-system";
const NAMESPACE: &str = "kube-system";
const NAME: &str = "default";
const CHILD: &str = "clusterdns-default";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The roles of the chart.
const ROLES: [&str; 4] = [
    "clusterroles/clusterdns:operator",
    "namespaces/clusterdns-system/roles/clusterdns:operator-lease",
    "namespaces/default/roles/clusterdns:operator-events",
    "namespaces/kube-system/roles/clusterdns:operator-workload",
];
const GOLDEN: &str = "golden/chart/rights.txt";

/// The operator's pod is only an object here, and those of the data plane say that they are ready.
fn play(pod: &Pod) -> Play {
    match pod.metadata.namespace.as_deref() {
        Some(OWN) => Play::Ignore,
        Some(_) | None => Play::Pretend { ready_after: Some(Default::default()) },
    }
}

/// A ClusterDNS with these fields added.
fn spec(more: Value) -> Value {
    let mut spec = json!({"scaling": {"fixed": {"replicas": 2}}, "rollout": {"canary": false}});
    let fields = more.as_object().expect("fields").clone();
    spec.as_object_mut().expect("an object").extend(fields);
    spec
}

struct Life {
    _plane: ControlPlane,
    tools: Tools,
    client: Client,
    proxy: FaultProxy,
    _kubelet: Kubelet,
}

impl Life {
    async fn begin() -> Option<Life> {
        // As some distributions have it: owner references that block deletion need a right of their own.
        let flag = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement";
        let setup = Setup { api_server_flags: vec![flag.into()], ..Setup::for_pods() };
        let plane = ControlPlane::start(setup).await?;
        let tools = Tools::new(plane.kubeconfig())?;
        let client = plane.client().await;
        let settings = Settings { play: Box::new(play), ..Settings::default() };
        let kubelet = Kubelet::start(&plane, &FakeNode::several("node", 2), settings).await;
        let proxy = FaultProxy::start(&plane).await;
        Some(Life { _plane: plane, tools, client, proxy, _kubelet: kubelet })
    }

    /// The operator, as its pod would run.
    fn operator(&self) -> Operator {
        let token = ["create", "token", "clusterdns-operator", "--namespace", OWN];
        let token = self.tools.kubectl(&token).ok();
        let kubeconfig = self.proxy.kubeconfig_with_token(token.trim());
        Operator::start_in(OWN, &kubeconfig, NAMESPACE)
    }

    async fn becomes(&self, more: Value) {
        apply(&self.client, NAME, spec(more)).await;
        wait_until_accepted(&self.client, NAME).await;
    }

    async fn child(&self, kind: Kind) -> Option<Value> {
        let cluster = resources::CLUSTER.contains(&kind);
        let name = if kind == Kind::Service { "kube-dns" } else { CHILD };
        let namespace = if cluster { "" } else { NAMESPACE };
        let found = resources::api(&self.client, kind, namespace).get_opt(name).await.ok()??;
        serde_json::to_value(found).ok()
    }

    /// Waits until these children are there, and those are not.
    async fn wait_for_children(&self, there: &[Kind], gone: &[Kind]) {
        for kind in there {
            wait_for(&format!("{kind:?}"), async || self.child(*kind).await).await;
        }
        for kind in gone {
            wait_for(&format!("no {kind:?}"), async || {
                self.child(*kind).await.is_none().then_some(())
            })
            .await;
        }
    }

    /// Another client changes a label of ours on every child that there is, and takes away its owner (but of the Service, whose
    /// owner the operator cannot write); returns when each is as it was.
    async fn edit_all(&self, edited: &mut BTreeSet<Kind>) {
        let all = resources::NAMESPACED.into_iter().chain(resources::CLUSTER);
        for kind in all.chain(resources::MONITORING) {
            let Some(child) = self.child(kind).await else { continue };
            let label = "app.kubernetes.io/component";
            let owners = child["metadata"]["ownerReferences"].clone();
            let left = if kind == Kind::Service { owners.clone() } else { Value::Null };
            let theirs =
                json!({"metadata": {"labels": {label: "theirs"}, "ownerReferences": left}});
            let name = child["metadata"]["name"].as_str().expect("a name");
            let namespace = child["metadata"]["namespace"].as_str().unwrap_or_default();
            let objects = resources::api(&self.client, kind, namespace);
            objects
                .patch(name, &PatchParams::default(), &Patch::Merge(&theirs))
                .await
                .expect("an edit");
            wait_for(&format!("our label on the {kind:?}"), async || {
                let child = self.child(kind).await?;
                let is_owned = child["metadata"]["ownerReferences"] == owners;
                (child["metadata"]["labels"][label] == "dataplane" && is_owned).then_some(())
            })
            .await;
            edited.insert(kind);
        }
    }

    /// The uid of the ClusterDNS.
    async fn uid(&self) -> String {
        let all = Api::<crds::ClusterDNS>::all(self.client.clone());
        all.get(NAME).await.expect("a ClusterDNS").metadata.uid.expect("a uid")
    }

    /// Waits until these children are of the ClusterDNS that there is.
    async fn wait_for_owner(&self, uid: &str, kinds: &[Kind]) {
        for kind in kinds {
            wait_for(&format!("the owner of the {kind:?}"), async || {
                let child = self.child(*kind).await?;
                (child["metadata"]["ownerReferences"][0]["uid"] == uid).then_some(())
            })
            .await;
        }
    }

    /// Deleted without its children, and created again: it owns them again. The Service waits for a person, see docs/switching.md.
    async fn is_orphaned_and_created_again(&self) {
        let mut there = Vec::new();
        for kind in resources::NAMESPACED.into_iter().chain(resources::CLUSTER) {
            if kind != Kind::Service && self.child(kind).await.is_some() {
                there.push(kind);
            }
        }
        let before = self.uid().await;
        let all = Api::<crds::ClusterDNS>::all(self.client.clone());
        let orphan = Some(PropagationPolicy::Orphan);
        let leaving = DeleteParams { propagation_policy: orphan, ..DeleteParams::default() };
        all.delete(NAME, &leaving).await.expect("it can be deleted");
        wait_for("it is gone", async || all.get_opt(NAME).await.ok()?.is_none().then_some(()))
            .await;
        apply(&self.client, NAME, spec(json!({}))).await;
        let uid = self.uid().await;
        assert_ne!(uid, before);
        self.wait_for_owner(&uid, &there).await;
        let says_who_writes_it = async || {
            let conditions = all.get(NAME).await.ok()?.status?.conditions;
            let degraded = conditions.into_iter().find(|it| it.type_ == "Degraded")?;
            Some(degraded.message.contains("docs/switching.md (OpenShift)"))
        };
        wait_for("who writes the owner", async || says_who_writes_it().await?.then_some(())).await;
        let owner = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "name": NAME, "uid": uid,
            "controller": true, "blockOwnerDeletion": true});
        let patch = json!({"metadata": {"ownerReferences": [owner]}}).to_string();
        let service = ["--namespace", NAMESPACE, "patch", "service", "kube-dns"];
        self.tools.kubectl(&[&service[..], &["--type=merge", "-p", &patch]].concat()).ok();
        let is_written = async || (!says_who_writes_it().await?).then_some(());
        wait_for("the Service is written", is_written).await;
    }

    async fn get(&self, path: &str) -> Value {
        let request = hyper::Request::get(path).body(Vec::new()).expect("a request");
        self.client.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// What the rules of our pods' roles give: to grant a right one must hold it.
    async fn granted(&self) -> BTreeSet<Right> {
        let everywhere = self.child(Kind::ClusterRole).await.expect("a ClusterRole");
        let here = self.child(Kind::Role).await.expect("a Role");
        let mut all = rights(&everywhere["rules"], None);
        all.extend(rights(&here["rules"], Some(NAMESPACE)));
        all
    }

    /// What the API server says our pods may do, beyond what any ServiceAccount may.
    fn pods_may(&self) -> BTreeSet<String> {
        let list = |account: &str| -> BTreeSet<String> {
            let who = format!("--as=system:serviceaccount:{NAMESPACE}:{account}");
            let asked = ["auth", "can-i", "--list", "--no-headers", "--namespace", NAMESPACE, &who];
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            self.tools.kubectl(&asked).ok().lines().map(words).collect()
        };
        list(CHILD).difference(&list("nobody-in-particular")).cloned().collect()
    }
}

/// What a data plane reads, and its configuration.
const PODS_MAY: [&str; 4] = [
    "configmaps [] [clusterdns-default] [get list watch]",
    "endpointslices.discovery.k8s.io [] [] [list watch]",
    "namespaces [] [] [list watch]",
    "services [] [] [list watch]",
];

#[test]
fn s6_s7_a_full_life_needs_every_right_of_the_chart_and_no_other() {
    inside(async || {
        let Some(life) = Life::begin().await else { return };
        life.tools.apply(MONITORING_KINDS).ok();
        life.tools.wait_until_established("crd/podmonitors.monitoring.coreos.com");
        life.tools.wait_until_established("crd/prometheusrules.monitoring.coreos.com");
        let chart = Tools::chart().display().to_string();
        let certificate = "certificates.names={dns-tls}";
        let install = ["install", "clusterdns", &chart, "--namespace", OWN, "--create-namespace"];
        life.tools.helm(&[&install[..], &["--set", certificate]].concat()).ok();
        let operator = life.operator();
        let mut granted = BTreeSet::new();
        let mut edited = BTreeSet::new();

        // Created, with pods that may read little; then with every object that can be beside a Deployment.
        life.becomes(json!({})).await;
        life.wait_for_children(&[Kind::Deployment, Kind::Service, Kind::PodMonitor], &[]).await;
        assert_eq!(life.pods_may(), PODS_MAY.map(str::to_owned).into());
        granted.extend(life.granted().await);
        let most = json!({"podRecords": "Verified", "networkPolicy": true, "scaling": {"load": {}},
            "hosts": [{"name": "git.corp.example", "addresses": ["192.0.2.1"]}]});
        life.becomes(most).await;
        life.wait_for_children(&[Kind::HorizontalPodAutoscaler, Kind::NetworkPolicy], &[]).await;
        let verified = PODS_MAY.into_iter().chain(["pods [] [] [list watch]"]);
        assert_eq!(life.pods_may(), verified.map(str::to_owned).collect());
        granted.extend(life.granted().await);
        let owner = &life.child(Kind::ConfigMap).await.expect("a ConfigMap")["metadata"]["ownerReferences"]
            [0];
        assert_eq!(
            owner["blockOwnerDeletion"], true,
            "or it would not need the right to finalizers"
        );
        life.edit_all(&mut edited).await;

        // A listener, whose certificate its owner marked for it and the administrator named.
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "dns-tls", "namespace": NAMESPACE,
                "labels": {"clusterdns.dev/certificate": "true"}},
            "stringData": {"tls.crt": "", "tls.key": ""}});
        life.tools.apply(&secret.to_string()).ok();
        life.becomes(json!({"listeners": {"tls": {"certificate": {"name": "dns-tls"}}}})).await;

        // Fewer objects: a budget of others, no policy, no monitoring, no autoscaler.
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "theirs", "namespace": NAMESPACE}, "spec": {"maxUnavailable": 1,
                "selector": {"matchLabels": {"clusterdns.dev/instance": NAME}}}});
        life.tools.apply(&budget.to_string()).ok();
        life.becomes(json!({"metrics": {"podMonitor": false, "prometheusRule": false}})).await;
        let fewer = [
            Kind::PodDisruptionBudget,
            Kind::NetworkPolicy,
            Kind::PodMonitor,
            Kind::PrometheusRule,
            Kind::HorizontalPodAutoscaler,
        ];
        life.wait_for_children(&[], &fewer).await;

        // A pod per node, and back.
        life.becomes(json!({"scaling": {"perNode": {}}})).await;
        life.wait_for_children(&[Kind::DaemonSet], &[Kind::Deployment]).await;
        life.edit_all(&mut edited).await;
        life.becomes(json!({})).await;
        life.wait_for_children(&[Kind::Deployment], &[Kind::DaemonSet]).await;
        assert_eq!(edited.len(), 14, "{edited:?}");
        life.is_orphaned_and_created_again().await;

        // Two refusals with one reason: an Event, and the same one again.
        for bundle in ["one", "another"] {
            let server = json!({"address": "192.0.2.53", "transport": "TLS",
                "tls": {"serverName": "dns.example", "caBundle": {"name": bundle}}});
            let stub = json!({"stubDomains": [{"domain": "corp.example", "servers": [server]}]});
            apply(&life.client, NAME, spec(stub)).await;
            wait_for("a refusal", async || {
                let (status, reason) = condition(&life.client, NAME, "Accepted").await?;
                (status == "False" && reason == "CABundleMissing").then_some(())
            })
            .await;
        }

        // Deleted, and once more, behind the Service of another.
        let all = Api::<crds::ClusterDNS>::all(life.client.clone());
        all.delete(NAME, &DeleteParams::default()).await.expect("it can be deleted");
        life.wait_for_children(&[], &[Kind::Service, Kind::Deployment, Kind::ClusterRole]).await;
        life.tools.apply(&old_dns(NAMESPACE)).ok();
        let services = Api::<Service>::namespaced(life.client.clone(), NAMESPACE);
        for adopts in [true, false, true] {
            life.becomes(json!({"service": {"adopt": adopts}})).await;
            wait_for(&format!("a Service that is adopted: {adopts}"), async || {
                let selector = services.get("kube-dns").await.ok()?.spec?.selector?;
                (selector.contains_key("clusterdns.dev/instance") == adopts).then_some(())
            })
            .await;
        }
        all.delete(NAME, &DeleteParams::default()).await.expect("it can be deleted");
        life.wait_for_children(&[Kind::Service], &[Kind::Deployment, Kind::ClusterRole]).await;
        wait_for("a Service that was given back", async || {
            let selector = services.get("kube-dns").await.ok()?.spec?.selector?;
            (!selector.contains_key("clusterdns.dev/instance")).then_some(())
        })
        .await;

        judge(&life, &granted, &operator).await;
    });
}

/// Compares the requests with the chart's rules.
async fn judge(life: &Life, granted: &BTreeSet<Right>, operator: &Operator) {
    let answered = life.proxy.answered(&Requests::all());
    let is_of_service = |one: &&Answered| one.request.path.ends_with("/services/kube-dns");
    let refused = answered.iter().filter(|one| one.status == 403);
    let (of_service, refused): (Vec<_>, Vec<_>) = refused.partition(is_of_service);
    assert!(!of_service.is_empty(), "the API server checks changes of owners");
    assert!(refused.is_empty(), "{refused:#?}\n{}", operator.log());

    let mut held = Vec::new();
    for path in ROLES {
        let namespace = path.strip_prefix("namespaces/").and_then(|rest| rest.split('/').next());
        held.extend(rights(&life.get(&format!("{RBAC}/{path}")).await["rules"], namespace));
    }
    let asked: BTreeSet<Right> = answered.iter().flat_map(needs).collect();
    let mut owners = BTreeSet::from([Right {
        namespace: None,
        group: "clusterdns.dev".into(),
        resource: "clusterdnses/finalizers".into(),
        verb: "update".into(),
        name: Some(NAME.into()),
    }]);
    let owned = resources::NAMESPACED.into_iter().chain(resources::CLUSTER);
    let owned = owned.chain(resources::MONITORING).filter(|kind| *kind != Kind::Service);
    owners.extend(owned.map(|kind| Right {
        namespace: (!resources::CLUSTER.contains(&kind)).then(|| NAMESPACE.to_owned()),
        group: resources::resource(kind).group,
        resource: resources::resource(kind).plural,
        verb: "delete".into(),
        name: Some(CHILD.into()),
    }));
    let needed =
        [("asked", asked), ("granted to pods", granted.clone()), ("owner references", owners)];
    // The API server allowed all of them; this checks our reading of the rules.
    for (why, needed) in &needed {
        let unheld = needed.iter().filter(|need| !held.iter().any(|right| right.gives(need)));
        let unheld: Vec<String> = unheld.map(Right::words).collect();
        assert!(unheld.is_empty(), "{why}, and no rule allows it: {unheld:#?}");
    }

    // Which requests would another rule still allow without this one?
    let mut table = BTreeMap::new();
    for (at, right) in held.iter().enumerate() {
        let others = || held.iter().enumerate().filter(|(other, _)| *other != at);
        let depends =
            |need: &&Right| right.gives(need) && !others().any(|(_, other)| other.gives(need));
        let whys = needed.iter().filter(|(_, needed)| needed.iter().any(|need| depends(&need)));
        let whys: Vec<&str> = whys.map(|(why, _)| *why).collect();
        table.insert(right.words(), whys.join(", "));
    }
    let useless: Vec<_> = table.iter().filter(|(_, whys)| whys.is_empty()).collect();
    assert!(useless.is_empty(), "nothing needs these: {useless:#?}");

    let mut text = String::from(
        "# Each right of the operator, and why it cannot be without: it was seen to ask for it, it grants it to pods, or\n\
         # what it creates has an owner. Made by the test of tests/e2e/operator_rights.rs from what the operator asked.\n",
    );
    text.extend(table.iter().map(|(right, whys)| format!("{right}: {whys}\n")));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&golden, &text).expect("the file is writable");
    }
    let committed = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(committed == text, "tests/{GOLDEN} is not what happens:\n{text}");
}
