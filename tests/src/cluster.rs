//! A cluster that runs pods, with kubectl and helm: the set-up of end-to-end tests of the operator.

mod phases;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use crds::ClusterDNS;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::Value;

pub use phases::{Phase, Phases};

use crate::client::Text;
use crate::control_plane::{ControlPlane, Setup};
use crate::helm::Tools;
use crate::http;
use crate::kstatus::{Kstatus, kstatus};
use crate::kubelet::{FakeNode, Kubelet, Settings, through_service};
use crate::netns::NODE_ADDRESS;
use crate::objects::Pauses;
use crate::upstream::{Script, ScriptedUpstream};

/// Generous: several pods start at once, beside other tests.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where DNS is installed unless a test says otherwise.
pub const NAMESPACE: &str = "kube-system";
/// Of the data plane: probes, metrics, `/config`.
const HTTP_PORT: u16 = 9153;

/// One control plane, its nodes, kubectl and helm.
pub struct Cluster {
    /// First, so that pods end before the servers that they ask.
    pub kubelet: Kubelet,
    /// helm and kubectl with every right.
    pub tools: Tools,
    /// A client with every right.
    pub client: Client,
    /// The API server and its controllers.
    pub plane: ControlPlane,
}

impl Cluster {
    /// Call it [`inside`](crate::netns::inside) a network namespace. None when programs have not been built; this is
    /// built.
    pub async fn start(nodes: &[FakeNode], settings: Settings) -> Option<Cluster> {
        Cluster::start_with(Setup::for_pods(), nodes, settings).await
    }

    /// With an API server set up in another way.
    pub async fn start_with(
        setup: Setup,
        nodes: &[FakeNode],
        settings: Settings,
    ) -> Option<Cluster> {
        let plane = ControlPlane::start(setup).await?;
        let tools = Tools::new(plane.kubeconfig())?;
        let client = plane.client().await;
        let kubelet = Kubelet::start(&plane, nodes, settings).await;
        Some(Cluster { kubelet, tools, client, plane })
    }

    /// Applies the CustomResourceDefinition of this repository, as README says.
    pub fn install_resource(&self) {
        let crd = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/clusterdns.yaml");
        let crd = crd.to_str().expect("a path in UTF-8");
        self.tools.kubectl(&["apply", "--server-side", "--filename", crd]).ok();
        self.tools.wait_until_established("crd/clusterdnses.clusterdns.dev");
    }

    /// The object as it is now.
    pub async fn clusterdns(&self, name: &str) -> Option<Value> {
        let dns = Api::<ClusterDNS>::all(self.client.clone()).get(name).await.ok()?;
        serde_json::to_value(dns).ok()
    }

    /// Waits until the present spec is reached, by its conditions and by kstatus.
    pub async fn wait_until_ready(&self, name: &str) -> Value {
        self.wait_until(&format!("ClusterDNS {name} is Ready"), name, |dns| {
            dns["status"]["observedGeneration"] == dns["metadata"]["generation"]
                && is_true(dns, "Ready")
                && kstatus(dns) == Kstatus::Current
        })
        .await
    }

    /// Waits until the present spec was refused for this reason; returns the message of the conditions.
    pub async fn wait_until_refused(&self, name: &str, reason: &str) -> String {
        let what = format!("ClusterDNS {name} is refused as {reason}");
        let dns = self
            .wait_until(&what, name, |dns| {
                let accepted = condition(dns, "Accepted");
                dns["status"]["observedGeneration"] == dns["metadata"]["generation"]
                    && accepted["status"] == "False"
                    && accepted["reason"] == reason
            })
            .await;
        assert_eq!(kstatus(&dns), Kstatus::Failed, "{dns:#}");
        condition(&dns, "Accepted")["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the object is so.
    pub async fn wait_until(
        &self,
        what: &str,
        name: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        let deadline = Instant::now() + PATIENCE;
        let mut pauses = Pauses::default();
        loop {
            let dns = self.clusterdns(name).await;
            if let Some(dns) = dns.filter(&is_so) {
                return dns;
            }
            if Instant::now() >= deadline {
                panic!("not within {PATIENCE:?}: {what}\n{}", self.story(name).await);
            }
            pauses.pause().await;
        }
    }

    /// Waits until every ready pod behind the Service says this in its reply.
    pub async fn answers(&self, service: &str, question: &str, expected: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut pauses = Pauses::default();
        loop {
            let replies = through_service(&self.client, NAMESPACE, service, question).await;
            if replies.as_ref().is_ok_and(|replies| all_say(replies, expected)) {
                return;
            }
            if Instant::now() >= deadline {
                let story = self.story("default").await;
                panic!("{question} of {service}: {replies:#?}, not {expected}\n{story}");
            }
            pauses.pause().await;
        }
    }

    /// The reply of each pod behind the Service now, without waiting.
    ///
    /// # Panics
    /// One of them does not answer so.
    pub async fn still_answers(&self, service: &str, question: &str, expected: &str) {
        let replies = through_service(&self.client, NAMESPACE, service, question).await;
        let replies = replies.unwrap_or_else(|error| panic!("{question} of {service}: {error:#}"));
        assert!(
            all_say(&replies, expected),
            "{question} of {service}: {replies:#?}, not {expected}"
        );
    }

    /// Names of the pods with this label, without those that are being deleted.
    pub async fn pods(&self, namespace: &str, selector: &str) -> Vec<String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let listed = pods.list(&ListParams::default().labels(selector)).await;
        let items = listed.map(|listed| listed.items).unwrap_or_default();
        let stays = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
        items.into_iter().filter(stays).filter_map(|pod| pod.metadata.name).collect()
    }

    /// The pods of a ClusterDNS.
    pub async fn pods_of(&self, name: &str) -> Vec<String> {
        self.pods(NAMESPACE, &format!("clusterdns.dev/instance={name}")).await
    }

    /// What a pod of ours says at `/config`.
    pub fn config_of(&self, pod: &str) -> Value {
        self.ask_config(pod).unwrap_or_else(|error| panic!("/config of {pod}: {error:#}"))
    }

    fn ask_config(&self, pod: &str) -> anyhow::Result<Value> {
        let addresses = self.kubelet.addresses(NAMESPACE, pod);
        let address = addresses.first().context("it has no address")?;
        let (_, text) = http::get((*address, HTTP_PORT).into(), "/config")?;
        serde_json::from_str(&text).with_context(|| text.clone())
    }

    /// Waits until a pod of ours says so at `/config`.
    pub async fn wait_until_it_says(&self, pod: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut pauses = Pauses::default();
        loop {
            // It may be restarting, so a missing reply is no failure.
            let said = self.ask_config(pod);
            if said.as_ref().is_ok_and(&is_so) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{pod}, not {what}: {said:#?}\n{}",
                self.kubelet.logs()
            );
            pauses.pause().await;
        }
    }

    /// An upstream for pods: on the node's address, on this port.
    pub fn upstream(&self, port: u16, rules: &str) -> ScriptedUpstream {
        let at: SocketAddr = format!("{NODE_ADDRESS}:{port}").parse().expect("an address");
        let script = Script::one(rules).unwrap_or_else(|error| panic!("{rules}: {error:#}"));
        ScriptedUpstream::start_at(at, script).expect("the port is free")
    }

    /// Everything that may explain a failure, for the message of a test that fails.
    pub async fn story(&self, name: &str) -> String {
        let said = |arguments: &[&str]| {
            let ran = self.tools.kubectl(arguments);
            ran.stdout + &ran.stderr
        };
        let described = said(&["describe", "clusterdns", name]);
        let pods = said(&["get", "pods", "--all-namespaces", "--output=wide"]);
        let events = said(&["get", "events", "--all-namespaces"]);
        format!("{described}\n{pods}\n{events}\n{}", self.kubelet.logs())
    }
}

fn all_say(replies: &[(SocketAddr, Text)], expected: &str) -> bool {
    !replies.is_empty() && replies.iter().all(|(_, text)| text.to_string().contains(expected))
}

/// A condition of an object, or null.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind)["status"] == "True"
}
