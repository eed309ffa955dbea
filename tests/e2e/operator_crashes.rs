//! O8: the operator dies before and after each of its writes, and the next one finishes the work and does none
//! of it twice. Each life of the operator tests several ClusterDNS, each at a write of its own, because a restart takes
//! long.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::Client;
use kube::api::{Api, ListParams};
use operator::desired::Kind;
use operator::runtime::resources;
use serde_json::{Value, json};
use tests::control_plane::{ControlPlane, Setup};
use tests::fault_proxy::{Fault, FaultProxy, Requests};
use tests::objects::wait_for;
use tests::operator::{
    Operator, all_children, apply, condition, free_the_lease, prepare, quiet, wait_until_accepted,
    writes,
};

const NAMESPACE: &str = "dns";
/// The ClusterDNS that is not disturbed.
const CALM: &str = "sweep-calm";
/// Writes that are lost in one life of the operator, each in two ways: it reconciles four ClusterDNS at a time.
const AT_ONCE: usize = 2;
/// Time without a write after which the operator has finished.
const DONE: Duration = Duration::from_secs(4);

/// Where the operator dies during a write.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// The write never reaches the API server.
    Before,
    /// The API server has written; the operator does not learn of it.
    After,
}

/// A ClusterDNS during whose write `write` the operator dies.
#[derive(Clone, Debug)]
struct Point {
    name: String,
    write: usize,
    death: Death,
}

impl Point {
    fn writes(&self) -> Requests {
        writes().naming(&self.name)
    }

    fn set(&self, proxy: &FaultProxy) {
        match self.death {
            Death::Before => proxy.fault_from(self.write, self.writes(), Fault::LoseRequest),
            Death::After => {
                proxy.fault_from(self.write + 1, self.writes(), Fault::LoseRequest);
                proxy.fault_at(self.write, self.writes(), Fault::LoseReply);
            }
        }
    }
}

fn spec(name: &str, host: &str) -> Value {
    json!({"service": {"name": format!("dns-{name}"), "namespace": NAMESPACE}, "scaling": {"fixed": {"replicas": 2}},
        "rollout": {"canary": false}, "hosts": [{"name": "git.corp.example", "addresses": [host]}]})
}

/// Everything of one ClusterDNS, a line per field, without what differs between ClusterDNS.
fn shape(name: &str, children: Option<&BTreeMap<(Kind, String), Value>>) -> Vec<String> {
    let mut lines = Vec::new();
    for ((kind, child), object) in children.into_iter().flatten() {
        let mut object = object.clone();
        // A Service's addresses are the API server's choice.
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.retain(|field, _| !["clusterIP", "clusterIPs"].contains(&field.as_str()));
        }
        let state = object["data"]["rollout.json"].as_str().map(serde_json::from_str::<Value>);
        let state = state.and_then(Result::ok);
        if let Some(mut state) = state.clone() {
            // So are those of the Service that is remembered.
            state["service"] = state["service"]["isOurs"].clone();
            if let Some(account) = state.get_mut("account") {
                account["uid"] = json!("of its ServiceAccount");
            }
            object["data"]["rollout.json"] = state.to_string().into();
        }
        let content = ["spec", "data", "rules", "roleRef"].map(|field| object[field].clone());
        let mut text = format!("{kind:?} {child} {:#}", json!(content)).replace(name, CALM);
        // It covers the name of the Service.
        if let Some(revision) = state.map(|state| state["stable"].clone()) {
            text = text.replace(revision.as_str().expect("a revision"), "REVISION");
        }
        lines.extend(text.lines().map(str::to_owned));
    }
    lines
}

struct Sweep {
    _plane: ControlPlane,
    client: Client,
    proxy: FaultProxy,
}

impl Sweep {
    async fn start() -> Option<Sweep> {
        let plane = ControlPlane::start(Setup::default()).await?;
        let client = plane.client().await;
        prepare(&client, NAMESPACE).await;
        let proxy = FaultProxy::start(&plane).await;
        Some(Sweep { _plane: plane, client, proxy })
    }

    async fn operator(&self) -> Operator {
        free_the_lease(&self.client).await;
        Operator::start(self.proxy.kubeconfig(), NAMESPACE)
    }

    /// One life of the operator: the ClusterDNS of every point is applied, and the operator is killed once each has lost
    /// its write. Returns those that were finished with fewer writes than that.
    async fn live_and_die(&self, points: &[Point], host: &str) -> Vec<Point> {
        let began = Instant::now();
        for point in points {
            point.set(&self.proxy);
            apply(&self.client, &point.name, spec(&point.name, host)).await;
        }
        let mut operator = self.operator().await;
        let mut last: BTreeMap<&str, (usize, Instant)> = BTreeMap::new();
        let mut rested = Vec::new();
        for point in points {
            loop {
                if self.proxy.lost(&point.writes()) > 0 {
                    break;
                }
                let count = self.proxy.count(&point.writes());
                let seen = last.entry(&point.name).or_insert((count, Instant::now()));
                if seen.0 != count {
                    *seen = (count, Instant::now());
                }
                let accepted = condition(&self.client, &point.name, "Accepted").await;
                if accepted.is_some_and(|(status, _)| status == "True") && seen.1.elapsed() > DONE {
                    rested.push(point.clone());
                    break;
                }
                assert!(
                    began.elapsed() < Duration::from_secs(90),
                    "{point:?}: neither lost nor at rest\n{}",
                    operator.log()
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        operator.process().kill();
        self.proxy.heal();
        rested
    }

    /// Tests every write of the ClusterDNS that `name` gives, in turn; returns their names, and how many writes there
    /// are.
    async fn every_write(
        &self,
        host: &str,
        mut name: impl FnMut(usize, Death) -> String,
    ) -> (Vec<String>, usize) {
        let mut names = Vec::new();
        for first in (1..).step_by(AT_ONCE) {
            let deaths = (first..first + AT_ONCE)
                .flat_map(|write| [(write, Death::Before), (write, Death::After)]);
            let points: Vec<Point> = deaths
                .map(|(write, death)| Point { name: name(write, death), write, death })
                .collect();
            names.extend(points.iter().map(|point| point.name.clone()));
            let rested = self.live_and_die(&points, host).await;
            if let Some(fewest) = rested.iter().map(|point| point.write - 1).min() {
                return (names, fewest);
            }
        }
        unreachable!("writes end")
    }

    /// Waits until all of these are as the undisturbed one.
    async fn wait_until_converged(&self, names: &[String], operator: &Operator) {
        for name in names {
            wait_until_accepted(&self.client, name).await;
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let all = all_children(&self.client, NAMESPACE).await;
            let shape = |name: &str| shape(name, all.get(name));
            let expected = shape(CALM);
            assert!(!expected.is_empty(), "the calm one has no children");
            let Some(other) = names.iter().find(|name| shape(name) != expected) else { return };
            let shape = shape(other);
            let differ = |(is, should): &(&String, &String)| is != should;
            let differences: Vec<_> = shape.iter().zip(&expected).filter(differ).take(5).collect();
            assert!(
                Instant::now() < deadline,
                "{other}: {} lines, not {}: {differences:#?}\n{}",
                shape.len(),
                expected.len(),
                operator.log()
            );
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
    }

    /// How many objects of each kind there are, of all owners.
    async fn population(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let namespaced = resources::NAMESPACED.map(|kind| (kind, NAMESPACE));
        for (kind, namespace) in
            namespaced.into_iter().chain(resources::CLUSTER.map(|kind| (kind, "")))
        {
            let all = resources::api(&self.client, kind, namespace);
            let all = all.list(&ListParams::default()).await.expect("a list");
            counts.insert(format!("{kind:?}"), all.items.len());
        }
        let sets = Api::<ReplicaSet>::namespaced(self.client.clone(), NAMESPACE);
        let sets = sets.list(&ListParams::default()).await.expect("ReplicaSets");
        counts.insert("ReplicaSet".into(), sets.items.len());
        counts
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o8_after_a_death_at_any_write_the_next_operator_converges_without_duplicates() {
    let Some(sweep) = Sweep::start().await else { return };
    let client = &sweep.client;
    // The controllers fill a new namespace by themselves.
    wait_for("the namespace's own objects", async || {
        let count = sweep.population().await;
        (count["ConfigMap"] > 0 && count["ServiceAccount"] > 0).then_some(())
    })
    .await;
    let before = sweep.population().await;

    // The result without a disturbance.
    let mut operator = sweep.operator().await;
    apply(client, CALM, spec(CALM, "192.0.2.1")).await;
    wait_until_accepted(client, CALM).await;
    quiet(&sweep.proxy).await;
    let calm = sweep.population().await;
    operator.process().kill();

    // A creation, cut off at every write.
    let name = |write: usize, death: Death| format!("sweep-{write:02}-{death:?}").to_lowercase();
    let (names, created) = sweep.every_write("192.0.2.1", name).await;
    assert!(created >= 10, "only {created} writes");
    let mut operator = sweep.operator().await;
    sweep.wait_until_converged(&names, &operator).await;

    // A change, cut off at every write: each of those ClusterDNS is changed once.
    apply(client, CALM, spec(CALM, "192.0.2.2")).await;
    wait_until_accepted(client, CALM).await;
    quiet(&sweep.proxy).await;
    operator.process().kill();
    let mut next = names.iter();
    let (changed, writes_of_a_change) = sweep
        .every_write("192.0.2.2", |_, _| next.next().expect("more than a change writes").clone())
        .await;
    assert!(writes_of_a_change >= 2, "the configuration and the status");
    let mut operator = sweep.operator().await;
    sweep.wait_until_converged(&changed, &operator).await;

    // When all is finished, nothing is there twice.
    quiet(&sweep.proxy).await;
    operator.process().ensure_running().expect("the last one lives");
    for (kind, count) in sweep.population().await {
        let each = calm[&kind] - before[&kind];
        let expected = before[&kind] + each * (1 + names.len());
        assert_eq!(count, expected, "{kind}: {each} of each of {} and the calm one", names.len());
    }
}
