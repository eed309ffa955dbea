//! O7: a listener gets another port. Pods that start before the change has passed its trial have the port of before.

use std::net::{IpAddr, TcpStream};

use super::*;

/// Longest wait for a connection to a pod.
const CONNECT: Duration = Duration::from_secs(2);

/// Whether DNS over TLS is served at this port, and the pod declares it, so that the Service leads there. It needs no certificate
/// to accept connections.
fn serves_tls_at(pod: &Pod, port: u16) -> bool {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    let Some(address) = address.and_then(|it| it.parse::<IpAddr>().ok()) else { return false };
    operator::observe::pods::port(pod, "dns-tls") == Some(port)
        && TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT).is_ok()
}

#[test]
fn o7_pods_serve_tls_at_the_port_they_declare_before_and_after_a_trial() {
    inside(async || {
        let nodes = FakeNode::several("node", 2);
        let Some(scene) = Scene::start(&nodes, Settings::default()).await else { return };
        let at = SocketAddr::new(NODE_ADDRESS.parse().expect("an address"), 0);
        let good = ScriptedUpstream::start_at(at, Script::one(GOOD).expect("a script"));
        let good = good.expect("a port");
        let listen_at = async |port: u16| {
            let more = json!({"scaling": {"fixed": {"replicas": 2}},
                "listeners": {"tls": {"port": port, "certificate": {"name": "no-such-secret"}}}});
            let spec = with(spec("192.0.2.1", good.address(), 20), more);
            apply(&scene.client, NAME, spec).await;
        };
        let until_served_at = async |port: u16| {
            let all = async || {
                let pods = scene.pods(NAME).await;
                let serve = pods.len() == 2 && pods.iter().all(|pod| serves_tls_at(pod, port));
                serve.then_some(pods)
            };
            scene.until("TLS at each pod", all).await
        };
        listen_at(853).await;
        scene.until_condition(NAME, "Progressing", "False", "Complete").await;
        let before: BTreeSet<String> =
            until_served_at(853).await.iter().filter_map(ResourceExt::uid).collect();

        listen_at(8853).await;
        scene.until_condition(NAME, "Progressing", "True", "CanaryOnTrial").await;
        let meanwhile = until_served_at(853).await;
        let uids: BTreeSet<String> = meanwhile.iter().filter_map(ResourceExt::uid).collect();
        assert_eq!(uids, before, "no pod is replaced for a trial");
        until_served_at(8853).await;
        scene.until_condition(NAME, "Progressing", "False", "Complete").await;
    });
}
