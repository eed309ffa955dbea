//! Every watch expires at once, so everything is listed again: what that takes, and whether any answer is wrong
//! meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tests::control_plane::ControlPlane;
use tests::data_plane::DataPlane;
use tests::fault_proxy::{Fault, FaultProxy, Requests};
use tests::scale::{Cluster, check_service};

use crate::ready::wait_until_ready;
use crate::table::{row, s};

const LISTED: [&str; 3] = ["endpointslices", "services", "namespaces"];
const REST: Duration = Duration::from_secs(5);
const RELISTS: usize = 3;
/// Answering `/metrics` takes processor time of the data plane too.
const POLL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns how many answers were wrong.
pub(crate) async fn measure(plane: &ControlPlane, cluster: &Cluster) -> usize {
    let proxy = FaultProxy::start(plane).await;
    let server = DataPlane::start(proxy.kubeconfig(), &[]);
    wait_until_ready(&server);
    std::thread::sleep(REST);
    let usage = server.usage();
    let steady = usage.resident_mib();
    row("memory at rest", &format!("{steady:.1} MiB"), "40 MiB");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(cluster, &server, &is_over));
        for number in 1..=RELISTS {
            usage.forget_peak().expect("our own process");
            let (cpu, begun) = (usage.cpu(), Instant::now());
            proxy.fault_times(LISTED.len(), Requests::all().watches(), Fault::expired());
            for resource in LISTED {
                while server.relists(resource) < number as f64 {
                    assert!(begun.elapsed() < PATIENCE, "{resource} were never listed again");
                    std::thread::sleep(POLL);
                }
            }
            let (time, cpu, peak) = (begun.elapsed(), usage.cpu() - cpu, usage.peak_mib());
            let text = format!("{} , {} of processor", s(time), s(cpu));
            row(&format!("relist {number}"), &text, "");
            let text = format!("{peak:.1} MiB, {:.2} x", peak / steady);
            // The bound on memory while everything is listed again (E26).
            row("  peak memory, to that at rest", &text, "1.2 x (E26)");
        }
        is_over.store(true, Ordering::Relaxed);
        std::thread::sleep(REST);
        row("memory at rest again", &format!("{:.1} MiB", usage.resident_mib()), "");
        let (asked, wrong) = asking.join().expect("every question is answered");
        row("wrong answers during relists", &format!("{wrong} of {asked}"), "0");
        wrong
    })
}

/// Asks about one Service after the other.
fn ask(cluster: &Cluster, server: &DataPlane, is_over: &AtomicBool) -> (usize, usize) {
    let (mut asked, mut wrong) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let found = check_service(cluster, asked * 7 % cluster.services, server);
        if let (Some(found), 0) = (&found, wrong) {
            println!("{found:#?}");
        }
        wrong += usize::from(found.is_some());
        asked += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    (asked, wrong)
}
