//! A cluster of 150 Services and 1,500 endpoints, every answer compared with the objects. `make bench` does the same
//! with 10,000 and 100,000, and prints what that takes.

use std::time::Duration;

use tests::control_plane::{ControlPlane, Setup};
use tests::data_plane::DataPlane;
use tests::fault_proxy::{Fault, FaultProxy, Requests};
use tests::scale::{Cluster, check_all, check_service, fill, patch_slice};

/// A relist of all slices takes some seconds at this rate.
const SLOW: Fault = Fault::Throttle { bytes_per_s: 200_000 };
/// Services asked about between two reads of `/metrics`, which cost as much as these questions.
const AT_ONCE: usize = 10;
/// Pauses that leave the processor to the list, which takes seconds; each Service is still asked about several times.
const PAUSE: Duration = Duration::from_millis(20);
const LISTED: [&str; 3] = ["services", "endpointslices", "namespaces"];

#[tokio::test(flavor = "multi_thread")]
async fn k5_every_answer_of_a_large_cluster_stays_right_while_all_is_listed_again() {
    // A cluster of its own, because the test chooses the addresses of Services.
    let setup = Setup { controllers: false, ..Setup::default() };
    let Some(plane) = ControlPlane::start(setup).await else { return };
    let client = plane.client().await;
    let mut cluster = Cluster::new(150, "large");
    fill(&client, &cluster).await;
    let proxy = FaultProxy::start(&plane).await;
    let running = DataPlane::start(proxy.kubeconfig(), &[]);
    running.wait_until_ready();
    let (asked, wrong) = check_all(&cluster, &running);
    assert!(wrong.is_empty(), "{} of {asked} are wrong: {:#?}", wrong.len(), wrong.first());

    proxy.fault(Requests::all().lists(), SLOW);
    proxy.fault_times(LISTED.len(), Requests::all().watches(), Fault::expired());
    // All but the slices are listed soon. The slices take long enough to ask about every Service.
    let mut asked = 0;
    while LISTED.iter().any(|resource| running.relists(resource) < 1.0) {
        for _ in 0..AT_ONCE {
            let service = asked % cluster.services;
            let wrong = check_service(&cluster, service, &running);
            assert!(wrong.is_none(), "during the list: {wrong:#?}");
            asked += 1;
        }
        std::thread::sleep(PAUSE);
    }
    assert!(asked > 0, "nothing was asked during the list");
    proxy.heal();

    // Later events are seen: the watch continues at the version of the list.
    let first = cluster.headless().next().expect("a headless Service");
    let address = cluster.move_first(first);
    patch_slice(&client, &cluster, first).await;
    let name = cluster.below_svc(first);
    tests::data_plane::wait_for("the event", || {
        running.answers(&name, &address.to_string()).then_some(())
    });
    let (asked, wrong) = check_all(&cluster, &running);
    assert!(wrong.is_empty(), "{} of {asked} are wrong: {:#?}", wrong.len(), wrong.first());
}
