//! Every scenario, its objects created through a real API server, gives the same answers as from a folder.

use tests::client::{Question, Transport};
use tests::control_plane::{ControlPlane, Setup};
use tests::objects::{create_any, is_taken};
use tests::scenario::{Block, Cluster, Plane};

/// Pods need a ServiceAccount, which only controllers make; and the slices are the scenario's own.
fn setup() -> Setup {
    let flag = "--disable-admission-plugins=ServiceAccount".to_owned();
    Setup { controllers: false, api_server_flags: vec![flag], ..Setup::default() }
}

#[tokio::test]
async fn every_scenario_holds_with_objects_from_a_real_api_server() {
    let Some(plane) = ControlPlane::start(setup()).await else { return };
    let client = plane.client().await;
    let clusters = Cluster::all().expect("scenarios");
    let mut refused = Vec::new();
    // What an older Kubernetes does not take, and so cannot answer.
    let mut left_out = Vec::new();
    // All scenarios take place in the shop: only their configurations differ.
    let order = ["Namespace", "Service", "EndpointSlice", "Pod"];
    for kind in order {
        for object in clusters[0].objects.iter().filter(|object| object["kind"] == kind) {
            if !is_taken(object) {
                left_out.push(format!(
                    "{}.shop.",
                    object["metadata"]["name"].as_str().expect("a name")
                ));
                continue;
            }
            if let Err(reason) = create_any(&client, object).await {
                refused.push(reason);
            }
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
    let mut differences = Vec::new();
    let mut count = 0;
    for cluster in clusters {
        for transport in [Transport::Udp, Transport::Tcp] {
            // One data plane for each, so that its cache is empty, as the rows expect (docs/dns.md §9.2).
            let watching =
                Plane::watching(plane.kubeconfig(), &cluster.objects).expect("a data plane");
            let ask = |question: &Question, block: &Block| {
                count += 1;
                watching.ask(&question.packet, transport, block.expects_silence())
            };
            let mut ask = ask;
            for scenario in &cluster.scenarios {
                differences
                    .extend(scenario.check(transport, watching.names(), &mut ask).expect("asked"));
            }
        }
    }
    differences.retain(|text| !left_out.iter().any(|name| text.contains(name)));
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    assert!(count > 100, "only {count} questions");
}
