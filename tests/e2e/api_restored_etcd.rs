//! An etcd that is really restored from an older copy (K22), under a data plane and an operator. `api_restored` has the
//! cases one by one, with a scripted API server.

use std::path::Path;

use hyper::Request;
use kube::Client;
use serde_json::{Value, json};
use tests::client::Transport;
use tests::control_plane::{ControlPlane, Setup};
use tests::data_plane::{DataPlane, wait_for};
use tests::objects::create_any;
use tests::operator::{Operator, apply, prepare};
use tests::scratch::Scratch;

const NAMESPACE: &str = "dns";
const NAME: &str = "a";
/// Versions between the copy and the end: far more than are written before every watch was opened again.
const LATER: usize = 300;

fn spec(host: &str) -> Value {
    json!({"service": {"name": "dns", "namespace": NAMESPACE}, "scaling": {"fixed": {"replicas": 2}},
        "rollout": {"canary": false}, "hosts": [{"name": "git.corp.example", "addresses": [host]}]})
}

async fn create(client: &Client, name: &str) {
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"ports": [{"port": 80}]}});
    create_any(client, &service).await.expect("a Service");
}

async fn delete(client: &Client, name: &str) {
    let path = format!("/api/v1/namespaces/default/services/{name}");
    let request = Request::delete(path).body(Vec::new()).expect("a well-formed request");
    client.request::<Value>(request).await.expect("a Service is deleted");
}

fn follow(kubeconfig: &Path) -> DataPlane {
    let config_map = format!("{NAMESPACE}/clusterdns-{NAME}");
    let flags = ["--config-map", &config_map, "--list-spread-seconds", "0"];
    DataPlane::start(kubeconfig, &flags)
}

/// Waits until a name below the cluster domain exists, or does not.
fn until(data_plane: &DataPlane, name: &str, exists: bool) {
    let wanted = if exists { "NOERROR" } else { "NXDOMAIN" };
    wait_for(name, || data_plane.ask_a(name).to_string().contains(wanted).then_some(()));
}

/// Whether the configuration has this address for a host.
fn is_configured(data_plane: &DataPlane, host: &str) -> Option<()> {
    let reply = data_plane.ask("git.corp.example. A", Transport::Udp);
    reply.to_string().contains(host).then_some(())
}

#[tokio::test(flavor = "multi_thread")]
async fn k22_a_data_plane_and_an_operator_follow_an_etcd_that_was_restored() {
    let setup = Setup { controllers: false, ..Setup::default() };
    let Some(mut plane) = ControlPlane::start(setup).await else { return };
    let client = plane.client().await;
    prepare(&client, NAMESPACE).await;
    let mut operator = Operator::start(plane.kubeconfig(), NAMESPACE);
    apply(&client, NAME, spec("192.0.2.1")).await;
    create(&client, "old").await;
    let mut data_plane = follow(plane.kubeconfig());
    until(&data_plane, "old.default", true);
    wait_for("the first configuration", || is_configured(&data_plane, "192.0.2.1"));

    let copies = Scratch::new("etcd-copy").expect("a scratch directory");
    let copy = copies.path().join("data");
    plane.save_etcd(&copy);
    delete(&client, "old").await;
    create(&client, "new").await;
    apply(&client, NAME, spec("192.0.2.2")).await;
    for number in 0..LATER {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("later-{number}"), "namespace": "default"}});
        create_any(&client, &map).await.expect("a ConfigMap");
    }
    until(&data_plane, "old.default", false);
    until(&data_plane, "new.default", true);
    wait_for("the second configuration", || is_configured(&data_plane, "192.0.2.2"));

    plane.restore_etcd(&copy).await;
    until(&data_plane, "old.default", true);
    until(&data_plane, "new.default", false);
    wait_for("the first configuration", || is_configured(&data_plane, "192.0.2.1"));
    assert!(
        data_plane.metric("clusterdns_version_resets_total{resource=\"services\"}") > Some(0.0)
    );

    create(&client, "later").await;
    until(&data_plane, "later.default", true);
    apply(&client, NAME, spec("192.0.2.3")).await;
    wait_for("the third configuration", || {
        // One that could not renew its lease meanwhile has ended, and a kubelet starts it again.
        if operator.process().exited().is_some() {
            operator = Operator::start(plane.kubeconfig(), NAMESPACE);
        }
        is_configured(&data_plane, "192.0.2.3")
    });
    data_plane.process.ensure_running().expect("it was never restarted");
}
