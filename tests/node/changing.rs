//! A ClusterDNS is edited on a real node: one pod tries it first, which the operator asks from a pod of its own, and then
//! all have it, without a restart. Names of others go where the resolv.conf that kubelet wrote for our pods says.

use std::net::SocketAddr;

use serde_json::Value;
use tests::netns::NODE_ADDRESS;
use tests::upstream::{Script, ScriptedUpstream};

use crate::installed::{DNS_NAMESPACE, DNS_PODS, usual};
use crate::resolving::ask_steadily;
use crate::site::{Site, text};

const OUTSIDE: &str = "198.51.100.1";
const HOST: &str = "registry.corp.example";
/// Short, because nothing fails here.
const MORE: &str = "  rollout: {observeSeconds: 5}\n  hosts:\n  - {name: registry.corp.example, addresses: [10.20.0.5]}\n";

pub(crate) async fn one_pod_tries_an_edit_and_all_have_it(site: &Site) {
    let script = Script::one(&format!("* *\n  answer @ 60 A {OUTSIDE}")).expect("a script");
    let node = SocketAddr::new(NODE_ADDRESS.parse().expect("an address"), 53);
    let upstream = ScriptedUpstream::start_at(node, script).expect("its port is free");
    let outside = site.kubectl("exec client -- nslookup -type=a www.example.org.");
    assert!(outside.contains(OUTSIDE), "{outside}");

    let before = containers(site);
    let asking = ask_steadily(site);
    site.tools.apply(&(usual(site) + MORE)).ok();
    site.until("a canary", || holds(site, "canary.json").then_some(())).await;
    site.until("its promotion", || holds(site, "stable.json").then_some(())).await;
    site.say("an edit was tried by one pod, and promoted");
    site.until_condition("Ready", "True", "Serving").await;
    site.until("the new name from every pod", || {
        // Each asks one of the pods.
        let every = (0..8).all(|_| {
            let asked = site.does(&format!("exec client -- nslookup -type=a {HOST}."));
            asked.is_some_and(|said| said.contains("10.20.0.5"))
        });
        every.then_some(())
    })
    .await;
    let tallies = asking.stop();
    site.say(&format!("an edit: {}", tallies.summary()));
    tallies.lost_nothing("an edit");
    assert_eq!(containers(site), before, "nothing restarts for an edit");
    drop(upstream);
}

/// Whether the new host is in one of the documents that the pods run.
fn holds(site: &Site, document: &str) -> bool {
    let map = site.get(&format!("configmap clusterdns-default --namespace {DNS_NAMESPACE}"));
    map["data"][document].as_str().is_some_and(|text| text.contains(HOST))
}

fn containers(site: &Site) -> Vec<String> {
    let pods: Vec<Value> = site.pods(DNS_NAMESPACE, DNS_PODS);
    let id = |pod: &Value| text(pod, "/status/containerStatuses/0/containerID").to_owned();
    let mut ids: Vec<String> = pods.iter().map(id).collect();
    ids.sort();
    ids
}
