//! The life of an installation: helm, kubectl, and pods with exactly the rights of the chart, in a
//! cluster whose DNS was something else before and is again afterwards.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use serde_json::{Value, json};
use tests::argo_cd::healths;
use tests::cluster::{Cluster, NAMESPACE, Phases};
use tests::helm::Tools;
use tests::kstatus::{Kstatus, kstatus};
use tests::kubelet::{FakeNode, Settings, endpoints};
use tests::netns::inside;
use tests::objects::wait_for;
use tests::operator::{children, old_dns};

const SYSTEM: &str = "clusterdns-system";
const KUBERNETES: &str = "kubernetes.default.svc.cluster.local. A";
const GIT: &str = "git.lab.example. A";

/// Checks that Argo CD and Flux agree about every state that was seen.
fn argo_cd_says_the_same(objects: &[Value]) {
    let Some(healths) = healths(objects) else { return };
    for (object, health) in objects.iter().zip(&healths) {
        let expected = match kstatus(object) {
            Kstatus::Current => "Healthy",
            Kstatus::InProgress => "Progressing",
            Kstatus::Failed => "Degraded",
            // Argo CD runs no check for an object that is being deleted.
            Kstatus::Terminating => continue,
        };
        assert_eq!(health, expected, "{object:#}");
    }
    assert_eq!(healths.len(), objects.len());
}

/// A ClusterDNS with a stub domain, and with these fields in place of its own.
fn manifest(port: u16, fields: Value) -> String {
    let mut spec = json!({
        "service": {"adopt": true},
        "rollout": {"canary": false},
        "drainSeconds": 2,
        "scaling": {"fixed": {"replicas": 2}},
        "stubDomains": [{"domain": "lab.example", "servers": [{"address": "192.0.2.1", "port": port}]}],
    });
    for (field, value) in fields.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    named("default", &spec)
}

fn named(name: &str, spec: &Value) -> String {
    let metadata = json!({"name": name});
    json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": metadata, "spec": spec})
        .to_string()
}

fn install(cluster: &Cluster) {
    let chart = Tools::chart();
    let chart = chart.to_str().expect("a path in UTF-8");
    cluster
        .tools
        .helm(&["install", "clusterdns", chart, "--namespace", SYSTEM, "--create-namespace"])
        .ok();
    let rolled_out = [
        "rollout",
        "status",
        "--namespace",
        SYSTEM,
        "deployment/clusterdns-operator",
        "--timeout=120s",
    ];
    let ran = cluster.tools.kubectl(&rolled_out);
    assert!(ran.success, "{ran:?}\n{}", cluster.kubelet.logs());
}

async fn uninstall(cluster: &Cluster) {
    cluster.tools.helm(&["uninstall", "clusterdns", "--namespace", SYSTEM, "--wait=legacy"]).ok();
    wait_for("the operator to end", async || cluster.kubelet.pods(SYSTEM).is_empty().then_some(()))
        .await;
}

/// Everything with our name, as `kind/name`, without Events, which expire by themselves.
fn ours(tools: &Tools) -> BTreeSet<String> {
    let kinds = tools.kubectl(&["api-resources", "--verbs=list", "--output=name"]).ok();
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
    let all = tools.kubectl(&["get", &kinds.join(","), "--all-namespaces", "--output=name"]).ok();
    all.lines().filter(|name| name.contains("clusterdns")).map(str::to_owned).collect()
}

async fn service(cluster: &Cluster) -> Service {
    let services = Api::<Service>::namespaced(cluster.client.clone(), NAMESPACE);
    services.get("kube-dns").await.expect("the Service is there")
}

/// O1: specs that the API server refuses, and the words that say why.
fn refused_at_write() -> Vec<(Value, &'static str)> {
    let server = json!({"address": "192.0.2.1"});
    vec![
        (
            json!({"hosts": [{"name": "a.example", "addresses": ["10.20.0.300"]}]}),
            "spec.hosts[0].addresses",
        ),
        (json!({"ttlSeconds": 3601}), "spec.ttlSeconds"),
        (json!({"reverseCIDRs": ["10.96.0.1/16"]}), "spec.reverseCIDRs"),
        (
            json!({"stubDomains": [{"domain": "svc.cluster.local", "servers": [server]}]}),
            "spec.stubDomains",
        ),
        (
            json!({"upstreams": {"servers": [server], "none": true}}),
            "choose one of servers, fromResolvConf and none",
        ),
        (json!({"scaling": {"fixed": {"replicas": 2}, "perNode": {}}}), "spec.scaling"),
        (json!({"domain": "other.example"}), "spec.domain"),
        (json!({"service": {"adopt": true, "name": "dns"}}), "spec.service.name"),
        (json!({"colour": "red"}), "spec.colour"),
    ]
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// O2: specs that only the operator can refuse, with the reason and the field that the message names.
fn refused_by_the_operator() -> Vec<(Value, &'static str, &'static str)> {
    let tls = json!({"serverName": "dns.example", "caBundle": {"name": "no-such-bundle"}});
    vec![
        (
            json!({"records": [{"name": "a.example", "type": "CNAME", "target": "b.example"},
                {"name": "a.example", "type": "TXT", "strings": ["x"]}]}),
            "AliasBesideOtherData",
            "spec.records[1].name",
        ),
        (
            json!({"upstreams": {"servers": [{"address": "10.96.0.10"}]}}),
            "UpstreamIsOwnService",
            "spec.upstreams.servers[0]",
        ),
        (
            json!({"stubDomains": [{"domain": "lab.example",
                "servers": [{"address": "192.0.2.1", "transport": "TLS", "tls": tls}]}]}),
            "CABundleMissing",
            "spec.stubDomains",
        ),
        (
            json!({"placement": {"nodeSelector": {"pool": "none"}}, "scaling": {"perNode": {}}}),
            "PlacementMatchesNoNode",
            "spec.placement.nodeSelector",
        ),
        (
            json!({"placement": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["nod-1"]}]}]}}}},
                "scaling": {"perNode": {}}}),
            "PlacementMatchesNoNode",
            "spec.placement.affinity.nodeAffinity",
        ),
    ]
}

/// Texts that a user writes into stable.json by hand, and why a pod does not take them.
fn unusable() -> [(&'static str, &'static str); 3] {
    [
        (r#"{"format": 1, "domain"#, "not understood"),
        (r#"{"format": 99}"#, "99"),
        (r#"{"format": 1, "domain": "localhost"}"#, "localhost"),
    ]
}

/// Two pods, which stay for the whole test.
struct Pods {
    names: Vec<String>,
}

impl Pods {
    async fn answer_as_before(&self, cluster: &Cluster) {
        cluster.still_answers("kube-dns", GIT, "10.30.0.3").await;
        cluster.still_answers("kube-dns", KUBERNETES, "10.96.0.1").await;
        assert_eq!(cluster.pods_of("default").await, self.names);
        let ready = endpoints(&cluster.client, NAMESPACE, "kube-dns").await.expect("a Service");
        assert_eq!(ready.len(), 2);
        for name in &self.names {
            assert_eq!(cluster.kubelet.restarts(NAMESPACE, name), 0, "{name}");
        }
    }
}

#[test]
fn o1_o2_o5_o6_o10_o14_an_installation_survives_mistakes_and_restores_what_was() {
    inside(async || {
        let nodes = FakeNode::several("node", 2);
        let Some(cluster) = Cluster::start(&nodes, Settings::default()).await else { return };
        let lab = cluster.upstream(5303, "* *\n    answer @ 60 A 10.30.0.3\n");
        let new_lab = cluster.upstream(5304, "* *\n    answer @ 60 A 10.30.0.4\n");
        // The old pods do not answer, so every answer is from ours.
        cluster.tools.apply(&old_dns(NAMESPACE)).ok();
        let before = service(&cluster).await;

        // Installed, applied, answering.
        install(&cluster);
        let phases = Phases::start(&cluster.client, "default").await;
        cluster.tools.apply(&manifest(5304, json!({}))).ok();
        cluster.wait_until_ready("default").await;
        cluster.answers("kube-dns", KUBERNETES, "10.96.0.1").await;
        cluster.answers("kube-dns", GIT, "10.30.0.4").await;
        assert_eq!(
            service(&cluster).await.spec.and_then(|spec| spec.cluster_ip).as_deref(),
            Some("10.96.0.10")
        );

        // Edited: the other upstream answers, by the same processes.
        let pods = Pods { names: cluster.pods_of("default").await };
        cluster.tools.apply(&manifest(5303, json!({}))).ok();
        cluster.answers("kube-dns", GIT, "10.30.0.3").await;
        pods.answer_as_before(&cluster).await;
        cluster.wait_until_ready("default").await;

        // Wrong specs of every kind: the API server or the operator refuses them; nothing else changes.
        for (fields, words) in refused_at_write() {
            let refusal = cluster.tools.apply(&manifest(5303, fields.clone())).refused();
            assert!(refusal.contains(words), "{fields}: {refusal}");
        }
        pods.answer_as_before(&cluster).await;
        for (fields, reason, field) in refused_by_the_operator() {
            cluster.tools.apply(&manifest(5303, fields)).ok();
            let message = cluster.wait_until_refused("default", reason).await;
            assert!(message.starts_with(field), "{message}");
            pods.answer_as_before(&cluster).await;
        }
        cluster.tools.apply(&named("other", &json!({"service": {"name": "dns-other"}}))).ok();
        cluster.wait_until_refused("other", "NameNotManaged").await;
        cluster.tools.kubectl(&["delete", "clusterdns", "other", "--timeout=60s"]).ok();
        cluster.tools.apply(&manifest(5303, json!({}))).ok();
        let last = cluster.wait_until_ready("default").await;
        pods.answer_as_before(&cluster).await;

        // O14: a waiting tool never saw "done" too early, and never saw a failure that was none.
        let last = last["metadata"]["generation"].as_i64().expect("a generation");
        let refusals = i64::try_from(refused_by_the_operator().len()).expect("a few");
        for generation in 1..=last {
            let is_refused = (last - refusals..last).contains(&generation);
            let end = if is_refused { Kstatus::Failed } else { Kstatus::Current };
            let said = phases.of_generation(generation);
            assert_eq!(said, [Kstatus::InProgress, end], "{generation}: {:#?}", phases.all());
        }
        argo_cd_says_the_same(&phases.objects());

        // Without an operator DNS continues, and edits by hand do not break it.
        uninstall(&cluster).await;
        pods.answer_as_before(&cluster).await;
        let runs = cluster.config_of(&pods.names[0])["revision"].clone();
        for (document, words) in unusable() {
            let patch = json!({"data": {"stable.json": document}}).to_string();
            let arguments = [
                "patch",
                "configmap",
                "clusterdns-default",
                "--namespace",
                NAMESPACE,
                "--type=merge",
                "--patch",
                &patch,
            ];
            cluster.tools.kubectl(&arguments).ok();
            for pod in &pods.names {
                let refuses = |said: &Value| {
                    said["revision"] == runs && said["rejection"].to_string().contains(words)
                };
                cluster.wait_until_it_says(pod, document, refuses).await;
            }
            pods.answer_as_before(&cluster).await;
        }

        // O6: neither does a restart then.
        let killed = &pods.names[0];
        let is_kept = |said: &Value| said["snapshot"]["onDiskRevision"] == runs;
        cluster.wait_until_it_says(killed, "what it runs is on disk", is_kept).await;
        cluster.kubelet.kill(NAMESPACE, killed);
        wait_for("a restart", async || {
            let is_again = cluster.kubelet.restarts(NAMESPACE, killed) == 1;
            let ready = endpoints(&cluster.client, NAMESPACE, "kube-dns").await.ok()?;
            (is_again && ready.len() == 2).then_some(())
        })
        .await;
        cluster.answers("kube-dns", GIT, "10.30.0.3").await;
        cluster.answers("kube-dns", KUBERNETES, "10.96.0.1").await;
        let said = cluster.config_of(killed);
        assert_eq!(said["revision"], runs, "{said:#}");
        assert!(said["rejection"].is_object(), "{said:#}");

        // The next operator puts it right.
        install(&cluster);
        for pod in &pods.names {
            let is_content = |said: &Value| said["revision"] == runs && said["rejection"].is_null();
            cluster.wait_until_it_says(pod, "what it ran before", is_content).await;
        }
        cluster.wait_until_ready("default").await;

        // Deleted: everything of ours goes, and the Service is as it was found.
        cluster.tools.kubectl(&["delete", "clusterdns", "default", "--timeout=60s"]).ok();
        wait_for("nothing of ours", async || {
            let is_clean = children(&cluster.client, NAMESPACE, "default").await.is_empty()
                && cluster.kubelet.pods(NAMESPACE).keys().all(|name| name.starts_with("coredns"));
            is_clean.then_some(())
        })
        .await;
        let after = wait_for("the Service of before", async || {
            let now = service(&cluster).await;
            let selector = |service: &Service| service.spec.clone().and_then(|spec| spec.selector);
            (selector(&now) == selector(&before)).then_some(now)
        })
        .await;
        assert_eq!(after.metadata.uid, before.metadata.uid);
        assert_eq!(after.spec, before.spec);
        assert_eq!(after.metadata.annotations, before.metadata.annotations);
        wait_for("the pods of before", async || {
            let ready = endpoints(&cluster.client, NAMESPACE, "kube-dns").await.ok()?;
            (ready.len() == 2).then_some(())
        })
        .await;

        uninstall(&cluster).await;
        let kept = [
            // The API server adds this to the CustomResourceDefinition.
            "apiservice.apiregistration.k8s.io/v1alpha1.clusterdns.dev",
            "customresourcedefinition.apiextensions.k8s.io/clusterdnses.clusterdns.dev",
            "namespace/clusterdns-system",
        ];
        let kept: BTreeSet<String> = kept.map(str::to_owned).into();
        wait_for(&format!("only {kept:?}, not {:?}", ours(&cluster.tools)), async || {
            (ours(&cluster.tools) == kept).then_some(())
        })
        .await;
        drop((lab, new_lab));
    });
}
