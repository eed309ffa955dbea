//! A cluster with nodes that run Pods and an operator behind a proxy that counts its writes: what the tests about adoption,
//! scaling and canaries have in common.

use std::time::{Duration, Instant};

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::api::{Api, ListParams};
use operator::names;
use serde_json::Value;

use super::Operator;
use crate::control_plane::{ControlPlane, Setup};
use crate::crd::install;
use crate::fault_proxy::FaultProxy;
use crate::kubelet::{FakeNode, Kubelet, Settings};
use crate::objects::Pauses;

pub const NAMESPACE: &str = "kube-system";
/// Time for what may need several reconciles, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(150);

/// All of it; gone when dropped.
pub struct Scene {
    pub operator: Operator,
    /// Between the operator and the API server.
    pub proxy: FaultProxy,
    pub kubelet: Kubelet,
    /// With every right, past the proxy.
    pub client: Client,
    /// The API server and its controllers.
    pub plane: ControlPlane,
}

impl Scene {
    /// With the resource, nodes and a running operator that works in [`NAMESPACE`]. None where no
    /// control plane has been built; this is printed. Call it [`inside`](crate::netns::inside) a network namespace.
    pub async fn start(nodes: &[FakeNode], settings: Settings) -> Option<Scene> {
        let plane = ControlPlane::start(Setup::for_pods()).await?;
        let client = plane.client().await;
        install(&client).await;
        let kubelet = Kubelet::start(&plane, nodes, settings).await;
        let proxy = FaultProxy::start(&plane).await;
        let operator = Operator::start(proxy.kubeconfig(), NAMESPACE);
        Some(Scene { operator, proxy, kubelet, client, plane })
    }

    /// Asks again and again until there is an answer.
    ///
    /// # Panics
    /// With all that is known, when none comes.
    pub async fn until<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        mut ask: impl FnMut() -> F,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut pauses = Pauses::default();
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            if Instant::now() >= deadline {
                panic!("{what}: not within {PATIENCE:?}\n{}", self.story().await);
            }
            pauses.pause().await;
        }
    }

    /// Waits until the present spec has this condition; returns its message.
    pub async fn until_condition(
        &self,
        name: &str,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> String {
        let what = format!("{name}: {kind}={status}, {reason}");
        self.until(&what, async || {
            let condition = self.condition(name, kind).await?;
            (condition.0 == status && condition.1 == reason).then_some(condition.2)
        })
        .await
    }

    /// Status, reason and message of a condition about the present spec.
    pub async fn condition(&self, name: &str, kind: &str) -> Option<(String, String, String)> {
        let dns = Api::<ClusterDNS>::all(self.client.clone()).get(name).await.ok()?;
        let status = dns.status.filter(|it| it.observed_generation == dns.metadata.generation)?;
        let condition = status.conditions.into_iter().find(|it| it.type_ == kind)?;
        Some((condition.status, condition.reason, condition.message))
    }

    /// A document of the configuration ConfigMap, such as `rollout.json`.
    pub async fn document(&self, name: &str, key: &str) -> Option<Value> {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), NAMESPACE);
        let map = maps.get_opt(&names::child(name)).await.ok()??;
        serde_json::from_str(map.data?.get(key)?).ok()
    }

    /// The pods of a ClusterDNS that are not being deleted.
    pub async fn pods(&self, name: &str) -> Vec<Pod> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
        let of_it = ListParams::default().labels(&format!("{}={name}", names::INSTANCE));
        let pods = pods.list(&of_it).await.expect("pods can be listed").items;
        pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    /// Ends the operator in order; it gives its lease back.
    pub async fn stop_operator(&mut self) {
        self.operator.stop().await;
    }

    /// Starts another one in its place.
    pub fn start_operator(&mut self) {
        self.operator = Operator::start(self.proxy.kubeconfig(), NAMESPACE);
    }

    /// Everything that could explain why something did not happen.
    async fn story(&self) -> String {
        let all = Api::<ClusterDNS>::all(self.client.clone()).list(&ListParams::default()).await;
        let statuses: Vec<String> = all
            .map(|all| all.items)
            .unwrap_or_default()
            .iter()
            .map(|dns| format!("{:?}: {:#?}", dns.metadata.name, dns.status))
            .collect();
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
        let pods = pods.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default();
        let pods: Vec<String> = pods
            .iter()
            .map(|pod| {
                let status = pod.status.clone().unwrap_or_default();
                let ready = status.conditions.iter().flatten().find(|it| it.type_ == "Ready");
                let metadata = &pod.metadata;
                format!(
                    "{:?} ready {:?} ends {:?} {:?}",
                    metadata.name,
                    ready.map(|ready| &ready.status),
                    metadata.deletion_timestamp,
                    metadata.labels
                )
            })
            .collect();
        format!(
            "{}\n{}\n{}\n{}",
            statuses.join("\n"),
            pods.join("\n"),
            self.operator.log(),
            self.kubelet.logs()
        )
    }
}
