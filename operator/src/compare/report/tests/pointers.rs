//! Which name an address has: the cluster's, or that of a host.

use super::class;

#[test]
fn df29_a_name_of_the_cluster_in_place_of_that_of_a_host_is_known() {
    let reply = |target: &str| format!("NOERROR; 1.0.0.10.in-addr.arpa. 5 PTR {target}");
    let (ours, host) = (reply("10-0-0-1.kubernetes.default.svc.c.example."), reply("node-a."));
    let both = format!("{ours}; 1.0.0.10.in-addr.arpa. 5 PTR node-a.");
    let of = |with: &str, against: &str| class("1.0.0.10.in-addr.arpa. PTR", with, against);
    assert_eq!(of(&ours, &host), (true, "DF29".to_owned()));
    assert!(!of(&host, &ours).0, "the cluster has a name that is not answered");
    assert!(!of(&both, &host).0, "names of both");
    assert!(!of(&reply("node-b."), &host).0, "two hosts");
}
