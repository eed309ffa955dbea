//! Clients in Pods: what kubelet writes into their resolv.conf leads through kube-proxy's rules to our pods.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tests::node::steady::{Names, Pace, Steady};
use tests::node::{BUSYBOX, CLUSTER_DNS};

use crate::site::Site;

/// Long enough for some hundred questions.
pub(crate) const A_WHILE: Duration = Duration::from_secs(2);
/// A name, and what it must lead to: the API server's Service.
pub(crate) const QUESTION: &str = "kubernetes.default.svc.cluster.local. A";
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

pub(crate) fn one_name() -> Names {
    Names::One(QUESTION.to_owned(), ADDRESS)
}

/// The test that is the client when it is run as one.
pub(crate) const CLIENT: &str = "a_client_that_asks_steadily";

fn client_pod() -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: client, namespace: default, labels: {{app: client}}}}\n\
         spec:\n  terminationGracePeriodSeconds: 0\n  containers:\n  - {{name: client, image: '{BUSYBOX}'}}\n"
    )
}

pub(crate) async fn pods_resolve_through_kube_proxy(site: &Site) {
    site.tools.apply(&client_pod()).ok();
    site.until_ready("default", "app=client", 1).await;
    let resolv_conf = site.kubectl("exec client -- cat /etc/resolv.conf");
    for line in [
        &format!("nameserver {CLUSTER_DNS}"),
        "search default.svc.cluster.local svc.cluster.local cluster.local",
        "options ndots:5",
    ] {
        assert!(resolv_conf.lines().any(|it| it.trim() == line), "no {line:?} in\n{resolv_conf}");
    }
    until_rules_lead_there(site, "client").await;

    let asking = ask_steadily(site);
    tokio::time::sleep(A_WHILE).await;
    let tallies = asking.stop();
    site.say(&format!("in peace: {}", tallies.summary()));
    tallies.lost_nothing("in peace");
}

/// kube-proxy follows what the API says within seconds; asked by a resolver of the Pod's own.
pub(crate) async fn until_rules_lead_there(site: &Site, client: &str) {
    let ask = format!("exec {client} -- nslookup kubernetes.default.svc.cluster.local.");
    site.until("an answer through the Service", || {
        let shown = site.does(&ask)?;
        shown.contains("10.96.0.1").then_some(())
    })
    .await;
}

/// From the Pod that asks, always [`one_name`].
pub(crate) fn ask_steadily(site: &Site) -> Steady {
    let server = SocketAddr::new(CLUSTER_DNS.parse().expect("an address"), 53);
    let network = site.network_of(&site.get("pod client --namespace default"));
    Steady::start(&network, CLIENT, server, one_name(), Pace::BUSY)
}
