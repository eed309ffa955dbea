//! Faults and changes of a cluster of three nodes, dual stack, with clients on every living node that ask ClusterDNS and, beside
//! it, CoreDNS. `make cluster` runs all scenarios, or those that `CLUSTERDNS_TEST_SCENARIOS` names, and prints a table.

mod table;
mod coredns;
mod clients;
mod connections;
mod taken_out;
mod phases;
mod frozen;
mod timeline;
mod answers;
mod killed;
mod partitioned;
mod moving;
mod earlier;
mod nearby;
mod nodelocal;
mod outage;

use tests::node::{CLUSTER_DNS, CLUSTER_DNS_V6};

use crate::installed::{self, DNS_NAMESPACE, DNS_PODS, OPERATORS, SYSTEM};
use crate::resolving::until_rules_lead_there;
use crate::site::Site;
use crate::{adopting, everything_that_one_node_shows};
use moving::until_none_ends;
use table::Table;

/// Names of scenarios, with spaces between.
const WANTED: &str = "CLUSTERDNS_TEST_SCENARIOS";
const SCENARIOS: [&str; 15] = [
    "quiet",
    "partitioned",
    "frozen",
    "frozen-leader",
    "killed",
    "outage",
    "drained",
    "scaled",
    "upgraded",
    "earlier",
    "ipv6",
    "full",
    "restarted",
    "nearby",
    "nodelocal",
];

/// Those that run.
pub(crate) struct Scenarios(Vec<String>);

impl Scenarios {
    /// Those that the environment names, or all.
    ///
    /// # Panics
    /// It names one that does not exist.
    pub(crate) fn wanted() -> Scenarios {
        let wanted = std::env::var(WANTED).unwrap_or_default();
        let wanted: Vec<String> = wanted.split_whitespace().map(str::to_owned).collect();
        let unknown = wanted.iter().find(|name| !SCENARIOS.contains(&name.as_str()));
        assert_eq!(unknown, None, "{WANTED}: there are {}", SCENARIOS.join(" "));
        Scenarios(wanted)
    }

    fn has(&self, name: &str) -> bool {
        assert!(SCENARIOS.contains(&name), "{name} is missing in the list");
        self.0.is_empty() || self.0.iter().any(|it| it == name)
    }
}

/// Of both families, with this many pods.
pub(crate) fn cluster_dns(replicas: usize) -> String {
    document("", &format!("{{fixed: {{replicas: {replicas}}}}}"))
}

/// The same, whose clients prefer some pods.
fn cluster_dns_with(distribution: &str, scaling: &str) -> String {
    document(&format!(", trafficDistribution: {distribution}"), scaling)
}

fn document(more: &str, scaling: &str) -> String {
    let service = format!("{{clusterIPs: [{CLUSTER_DNS}, '{CLUSTER_DNS_V6}']{more}}}");
    installed::cluster_dns(&service) + &format!("  scaling: {scaling}\n")
}

pub(crate) async fn run(site: &mut Site, scenarios: &Scenarios) {
    let is_wanted = |name: &str| scenarios.has(name);
    let mut table = Table::default();
    serves(site).await;
    if is_wanted("quiet") {
        clients::in_peace(site, &mut table).await;
    }
    if is_wanted("partitioned") {
        partitioned::d9_an_operator_that_is_cut_off_removes_nothing(site, &mut table).await;
        partitioned::d9_a_slow_pod_is_left_alone(site, &mut table).await;
    }
    if is_wanted("frozen") {
        frozen::d8_a_node_without_the_leader_dies(site, &mut table).await;
        frozen::without_the_feature(site, &mut table).await;
    }
    if is_wanted("frozen-leader") {
        frozen::d8_the_leaders_node_dies(site, &mut table).await;
    }
    if is_wanted("killed") {
        killed::what_ends_comes_back(site, &mut table).await;
    }
    if is_wanted("outage") {
        outage::processes_die_without_the_api_server(site, &mut table).await;
    }
    if is_wanted("drained") {
        moving::a_drained_node_loses_nothing(site, &mut table).await;
    }
    if is_wanted("scaled") {
        moving::more_and_fewer_pods_lose_nothing(site, &mut table).await;
    }
    if is_wanted("upgraded") {
        moving::d10_upgrades_and_rollbacks_lose_nothing(site, &mut table).await;
    }
    if is_wanted("earlier") {
        earlier::d10_an_earlier_commit_is_upgraded_to_and_back(site, &mut table).await;
    }
    if is_wanted("ipv6") {
        outage::clients_without_ipv4_are_served(site, &mut table).await;
    }
    if is_wanted("full") {
        outage::a_full_volume_costs_the_warm_start_only(site, &mut table).await;
    }
    if is_wanted("restarted") {
        across_nodes(site).await;
    }
    if is_wanted("nearby") {
        nearby::the_pods_of_a_zone_are_gone(site, &mut table).await;
        nearby::the_pod_of_a_node_is_gone(site, &mut table).await;
        nearby::a_node_is_added(site, &mut table).await;
    }
    // The last one: nothing is as it was after it.
    if is_wanted("nodelocal") {
        nodelocal::caches_on_nodes_keep_their_dns(site, &mut table).await;
    }
    site.print(&table.markdown());
}

/// All that `make node` does after its installation, and what runs as `restricted`; then everything is as before.
async fn across_nodes(site: &Site) {
    // It takes no pods of the CoreDNS beside us, until the adoption begins; those that run may stay.
    installed::only_restricted_pods(site);
    installed::all_run_as_restricted(site).await;
    everything_that_one_node_shows(site).await;
    adopting::coredns_goes(site).await;
    let label = "pod-security.kubernetes.io/enforce-";
    site.kubectl(&format!("label namespace {SYSTEM} {label}"));
    we_serve(site).await;
}

/// Both DNS servers, each with two pods on two nodes, and a client on every node.
async fn serves(site: &Site) {
    site.kubectl(&format!("create namespace {SYSTEM}"));
    installed::install(site);
    coredns::start(site);
    clients::start_pods(site);
    for node in &site.nodes {
        site.until_ready("default", &clients::label(node), 1).await;
    }
    we_serve(site).await;
    site.say("ClusterDNS and CoreDNS serve, and clients run on every node");
}

/// Two pods of each, and the rules of a node lead to ours.
async fn we_serve(site: &Site) {
    site.tools.apply(&cluster_dns(2)).ok();
    site.until_ready(SYSTEM, OPERATORS, 2).await;
    site.until_condition("Ready", "True", "Serving").await;
    site.until_ready(DNS_NAMESPACE, DNS_PODS, 2).await;
    site.until_ready(DNS_NAMESPACE, coredns::PODS, 2).await;
    until_rules_lead_there(site, &clients::name(&site.nodes[0])).await;
}
