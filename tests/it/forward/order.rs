//! Which server of a group is asked first (FW22), seen at the servers. The order itself is a table in
//! `dataplane/src/forward/plan/tests.rs`.

use crds::config::{Policy, Upstreams};
use futures::future::join_all;
use hickory_proto::rr::RecordType;

use super::stage::{FIRST, SECOND, Stage, THIRD, answers, undisturbed, waiting};

/// Each answers at once, so no other one is asked.
const THREE: &str = "server 10.0.0.2 10.0.0.3 10.0.0.4\n* *\n  answer @ 60 A 192.0.2.1";

const ORDERS: [(Policy, [[u8; 4]; 6]); 2] = [
    (Policy::Sequential, [FIRST; 6]),
    (Policy::RoundRobin, [FIRST, SECOND, THIRD, FIRST, SECOND, THIRD]),
];

#[tokio::test]
async fn fw22_round_robin_begins_one_server_further_at_each_lookup() {
    for (policy, order) in ORDERS {
        let stage = Stage::with(THREE, |config| match &mut config.upstreams {
            Upstreams::Servers(group) => group.options.policy = policy,
            other => panic!("{other:?}"),
        });
        for (number, first) in order.into_iter().enumerate() {
            let name = format!("n{number}.example");
            let query = waiting(0, &name, RecordType::A);
            // Neither one that joins the lookup nor a hit of the cache is another turn.
            tokio::join!(stage.ask_cached(&query), stage.ask_cached(&query));
            stage.ask_cached(&query).await;
            let asked = stage.upstream(first).times_asked(&format!("{name}."));
            assert!(asked > 0, "{policy:?}: lookup {number} began elsewhere");
        }
    }
}

/// The first knows the names of a company, and what it forwards itself does not work. The second says of all names that they do
/// not exist.
#[tokio::test]
async fn fw22_with_sequential_names_without_an_answer_send_no_other_name_elsewhere() {
    for broken in ["rcode SERVFAIL", "silent"] {
        let stage = Stage::new(&format!(
            "server 10.0.0.2\n* *\n  {broken}\nwiki.corp. A\n  answer @ 60 A 192.0.2.2\n\
             server 10.0.0.3\n* *\n  rcode NXDOMAIN"
        ));
        // Of errors ten make a server failing, and 20 names without a reply rank it behind others elsewhere.
        for first in [0, 12, 24] {
            let names = (first..first + 12).map(|n| format!("n{n}.example"));
            join_all(names.map(async |name| stage.ask(0, &name, RecordType::A).await)).await;
        }
        let ask = async || stage.ask(0, "wiki.corp", RecordType::A).await;
        let reply = undisturbed(ask).await;
        assert!(stage.upstream(FIRST).times_asked("wiki.corp.") > 0, "{broken}: not asked first");
        assert_eq!(answers(&reply), ["192.0.2.2"], "{broken}");
    }
}
