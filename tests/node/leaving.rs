//! The release is tested, uninstalled and installed again; then the ClusterDNS is deleted. DNS stays until that deletion.

use crate::installed::{DNS_NAMESPACE, DNS_PODS, OPERATORS, REPLICAS, SYSTEM, install};
use crate::resolving::ask_steadily;
use crate::site::{Site, text};

pub(crate) async fn dns_outlives_the_release(site: &Site) {
    let tested = site.tools.helm(&["test", "clusterdns", "--namespace", SYSTEM, "--timeout=120s"]);
    assert!(tested.success, "{}{}\n{}", tested.stdout, tested.stderr, site.story());
    assert!(tested.stdout.contains("Succeeded"), "{}", tested.stdout);
    site.say("helm test succeeded");

    let names = || {
        let mut names: Vec<String> = site
            .pods(DNS_NAMESPACE, DNS_PODS)
            .iter()
            .map(|pod| text(pod, "/metadata/uid").to_owned())
            .collect();
        names.sort();
        names
    };
    let before = names();
    let asking = ask_steadily(site);
    site.tools.helm(&["uninstall", "clusterdns", "--namespace", SYSTEM, "--wait"]).ok();
    site.until_none(SYSTEM, OPERATORS).await;
    assert_eq!(names(), before);
    install(site);
    site.until_ready(SYSTEM, OPERATORS, 2).await;
    site.until_condition("Ready", "True", "Serving").await;
    let tallies = asking.stop();
    site.say(&format!("uninstalled and installed again: {}", tallies.summary()));
    tallies.lost_nothing("uninstalled and installed again");
    assert_eq!(names(), before, "no pod had to restart");
}

/// All of its objects go with it, and no deletion hangs.
pub(crate) async fn a_deleted_cluster_dns_leaves_nothing(site: &Site) {
    site.until_ready(DNS_NAMESPACE, DNS_PODS, REPLICAS).await;
    site.kubectl("delete clusterdns default --timeout=120s");
    site.until_none(DNS_NAMESPACE, DNS_PODS).await;
    site.until("the end of its Service", || {
        site.does(&format!("get service kube-dns --namespace {DNS_NAMESPACE}"))
            .is_none()
            .then_some(())
    })
    .await;
    site.say("the ClusterDNS is gone, with its pods and Service");
}
