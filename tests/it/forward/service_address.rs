//! A resolv.conf that cannot be used, in the program itself: one that names the address of our own Service (FW50), and one
//! that names loopback only (FW3). Each test has a file system of its own, so that the program reads this resolv.conf.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::client::Transport;
use tests::data_plane::{DataPlane, wait_for};
use tests::netns::{NODE_ADDRESS, add_address, has_nft, inside, ip, nft};
use tests::scratch::Scratch;

/// Of the Service of the cluster DNS, which kubelet writes into the resolv.conf of pods.
const SERVICE_ADDRESS: &str = "10.96.0.10";
const PATH: &str = "/etc/resolv.conf";
/// A Service of the cluster.
const SERVICE: &str = "apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {clusterIP: 10.96.0.20, clusterIPs: [10.96.0.20], ports: [{port: 80}]}
";

/// The program with this resolv.conf, at port 53 of every address.
fn with_resolv_conf(text: &str) -> (Scratch, DataPlane) {
    let folder = Scratch::new("resolv-conf").expect("a folder");
    let file = folder.write("resolv.conf", text).expect("written");
    match (fs::canonicalize(PATH), fs::read_link(PATH)) {
        // A link into /run, which is another one here, and empty.
        (Err(_), Ok(link)) => {
            let target: PathBuf = Path::new("/etc").join(link);
            fs::create_dir_all(target.parent().expect("a folder")).expect("created");
            fs::write(target, text).expect("written");
        }
        (found, _) => {
            let target = found.expect("a resolv.conf");
            let bound = Command::new("mount").arg("--bind").arg(&file).arg(target).status();
            assert!(bound.is_ok_and(|status| status.success()), "{PATH} cannot be replaced");
        }
    }
    assert_eq!(fs::read_to_string(PATH).expect("readable"), text);
    let manifests = folder.path().join("manifests");
    fs::create_dir(&manifests).expect("created");
    fs::write(manifests.join("api.yaml"), SERVICE).expect("written");
    let plane = DataPlane::of_manifests_with(&manifests, &["--listen", "0.0.0.0:53"]);
    (folder, plane)
}

#[test]
fn fw50_g137_a_resolv_conf_that_names_our_own_service_is_found_at_the_first_probe() {
    inside(async || {
        // As kube-proxy does: the address is of no machine, and leads to our pod.
        if !has_nft("add table ip nat") {
            return;
        }
        add_address("192.0.2.77".parse().expect("an address"));
        ip(&["route", "add", "10.96.0.10/32", "dev", "lo", "src", "192.0.2.77"]).expect("a route");
        nft(&format!(
            "add chain ip nat out {{ type nat hook output priority -100; }}
             add rule ip nat out ip daddr {SERVICE_ADDRESS} udp dport 53 dnat to {NODE_ADDRESS}:53
             add rule ip nat out ip daddr {SERVICE_ADDRESS} tcp dport 53 dnat to {NODE_ADDRESS}:53"
        ))
        .expect("rules");
        let (_folder, plane) = with_resolv_conf(&format!("nameserver {SERVICE_ADDRESS}\n"));
        let state = wait_for("the first probe", || {
            let upstreams = plane.get("/upstreams").1;
            upstreams.contains("looping").then_some(upstreams)
        });
        assert!(state.contains(SERVICE_ADDRESS), "{state}");
        let (status, ready) = plane.get("/readyz");
        assert!(status == 200 && ready.contains("forwards to ClusterDNS itself"), "{ready}");
        let reply = plane.ask("www.example.org. A", Transport::Udp);
        assert!(format!("{reply:?}").contains("SERVFAIL"), "{reply:?}");
        let reply = plane.ask("api.shop.svc.cluster.local. A", Transport::Udp);
        assert!(format!("{reply:?}").contains("10.96.0.20"), "names of ours: {reply:?}");
    });
}

#[test]
fn fw3_readyz_says_that_a_resolv_conf_has_loopback_addresses_only() {
    inside(async || {
        let (_folder, plane) = with_resolv_conf("nameserver 127.0.0.53\nnameserver ::1\n");
        plane.wait_until_ready();
        let (status, ready) = plane.get("/readyz");
        let says = ready.lines().filter(|line| line.starts_with("warning: ")).collect::<Vec<_>>();
        assert_eq!(status, 200, "{ready}");
        for address in ["127.0.0.53", "::1"] {
            assert!(says.iter().any(|line| line.contains(address)), "{address}: {ready}");
        }
    });
}
