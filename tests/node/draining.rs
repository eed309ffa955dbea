//! Pods of ours end and start while a client asks: real endpoints, real rules, a real conntrack table that remembers where
//! a socket's first question went.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::installed::{DNS_NAMESPACE, DNS_PODS, REPLICAS};
use crate::resolving::{A_WHILE, ask_steadily};
use crate::site::{Site, text};

pub(crate) async fn pods_come_and_go(site: &Site) {
    a_rolling_restart_loses_nothing(site).await;
    a_deleted_pod_loses_nothing(site).await;
    a_killed_process_starts_again_warm(site).await;
}

fn names(pods: &[Value]) -> BTreeSet<String> {
    pods.iter().map(|pod| text(pod, "/metadata/name").to_owned()).collect()
}

/// Waits until none of these exists, also none that still ends.
async fn until_gone(site: &Site, gone: &BTreeSet<String>) {
    site.until(&format!("the end of {gone:?}"), || {
        let list =
            format!("get pods --namespace {DNS_NAMESPACE} --selector {DNS_PODS} --output=name");
        let there = site.kubectl(&list);
        let is_there = |name: &String| there.lines().any(|line| line.ends_with(name.as_str()));
        (!gone.iter().any(is_there)).then_some(())
    })
    .await;
}

async fn a_rolling_restart_loses_nothing(site: &Site) {
    let before = site.pods(DNS_NAMESPACE, DNS_PODS);
    let asking = ask_steadily(site);
    site.kubectl(&format!(
        "rollout restart deployment/clusterdns-default --namespace {DNS_NAMESPACE}"
    ));
    site.kubectl(&format!(
        "rollout status deployment/clusterdns-default --namespace {DNS_NAMESPACE} --timeout=120s"
    ));
    site.say("the rolling restart is complete");
    until_gone(site, &names(&before)).await;
    let tallies = asking.stop();
    site.say(&format!("a rolling restart: {}", tallies.summary()));
    tallies.lost_nothing("a rolling restart");
    site.until_condition("Ready", "True", "Serving").await;
    let after = site.until_ready(DNS_NAMESPACE, DNS_PODS, REPLICAS).await;
    assert!(names(&before).is_disjoint(&names(&after)));
}

async fn a_deleted_pod_loses_nothing(site: &Site) {
    let before = site.pods(DNS_NAMESPACE, DNS_PODS);
    let gone = names(&before[..1]);
    let asking = ask_steadily(site);
    let pod = gone.first().expect("one");
    // Returns when it is gone.
    site.kubectl(&format!("delete pod {pod} --namespace {DNS_NAMESPACE} --timeout=120s"));
    site.until_ready(DNS_NAMESPACE, DNS_PODS, REPLICAS).await;
    let tallies = asking.stop();
    site.say(&format!("a deleted pod: {}", tallies.summary()));
    tallies.lost_nothing("a deleted pod");
}

async fn a_killed_process_starts_again_warm(site: &Site) {
    let pods = site.pods(DNS_NAMESPACE, DNS_PODS);
    let name = text(&pods[0], "/metadata/name");
    let asking = ask_steadily(site);
    let began = std::time::Instant::now();
    site.node_of(&pods[0]).kill(text(&pods[0], "/status/containerStatuses/0/containerID"));
    site.until("kubelet starts it again", || {
        let pod = site.get(&format!("pod {name} --namespace {DNS_NAMESPACE}"));
        (pod["status"]["containerStatuses"][0]["restartCount"] == 1).then_some(())
    })
    .await;
    site.until_ready(DNS_NAMESPACE, DNS_PODS, REPLICAS).await;
    site.say(&format!("killed, and ready again {:.1} s later", began.elapsed().as_secs_f32()));
    let tallies = asking.stop();
    site.say(&format!("a killed process: {}", tallies.summary()));
    // Until kubelet notices, half of the tries meet a closed port, which no server can avoid. Nothing is asserted about
    // these, but that they stop once the pod is ready again.
    let asking = ask_steadily(site);
    tokio::time::sleep(A_WHILE).await;
    asking.stop().lost_nothing("after a killed process");
    let log = site.kubectl(&format!("logs {name} --namespace {DNS_NAMESPACE}"));
    let at = |what: &str| log.find(what).unwrap_or_else(|| panic!("no {what:?} in\n{log}"));
    let warm = at("answering from the snapshot until lists are live");
    assert!(warm < at("\"answering\"") && warm < at("the first list is complete"), "{log}");
}
