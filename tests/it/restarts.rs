//! Processes that restart while clients ask: two behind a balancer of the kernel (nftables with connection tracking, as
//! kube-proxy writes it; row D2, which needs `nft` and `conntrack`), and one that takes the port over from another (D3).

mod clients;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use clients::{Clients, Kind};
use tests::control_plane::not_installed;
use tests::data_plane::{DataPlane, wait_for};
use tests::netns::{add_address, inside};
use tests::scratch::Scratch;

/// The Service, and the two pods behind it.
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
const PODS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 244, 0, 1), Ipv4Addr::new(10, 244, 0, 2)];
const PORT: u16 = 53;
/// Longer than the balancer needs, which follows `/readyz` here.
const DRAIN: [&str; 2] = ["--drain-seconds", "7"];
/// Takes the port over, and does not wait: everybody asks the next process already.
const TAKE_OVER: [&str; 3] = ["--share-ports", "--drain-seconds", "0"];

const OBJECTS: &str = "\
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  clusterIP: 10.96.0.1
  clusterIPs: [10.96.0.1]
  ports: [{port: 80}]
";

#[test]
fn d2_no_query_is_lost_while_two_pods_behind_a_balancer_restart_in_turn() {
    inside(async || {
        let Some(Balanced { balancer, folder, mut pods, clients }) = balanced() else { return };
        for which in 0..PODS.len() {
            clients.wait_for_more();
            pods[which].process.signal("TERM");
            // What a kubelet and kube-proxy do.
            wait_until_it_leaves(&pods[which]);
            balancer.lead_to(&[PODS[1 - which]]);
            // A reply to a query whose entry is deleted meanwhile finds no way back. The pod cannot change that.
            clients.between_queries(|| balancer.forget(PODS[which]));
            end(&mut pods[which]);
            clients.wait_for_more();
            pods[which] = pod(&folder, PODS[which], &DRAIN);
            balancer.lead_to(&PODS);
        }
        clients.wait_for_more();
        let asked = clients.stop();
        assert!(asked.iter().all(|asked| asked.lost == 0), "{asked:?}");
    });
}

/// Where connection tracking forgets nothing, clients that keep a socket stay with the pod that is gone. So the test
/// above sees what a pod loses that ends too soon.
#[test]
fn d2_clients_that_keep_a_socket_lose_queries_where_the_balancer_forgets_nothing() {
    inside(async || {
        let Some(Balanced { balancer, folder: _folder, mut pods, clients }) = balanced() else {
            return;
        };
        clients.wait_for_more();
        pods[0].process.signal("TERM");
        wait_until_it_leaves(&pods[0]);
        balancer.lead_to(&PODS[1..]);
        end(&mut pods[0]);
        clients.wait_for_a_loss();
        let asked = clients.stop();
        // A new socket may take the port of an earlier one, and so its entry.
        assert!(
            asked.iter().any(|asked| asked.kind == Kind::OneSocket && asked.lost > 0),
            "{asked:?}"
        );
    });
}

#[test]
fn d3_no_query_is_lost_while_one_process_after_another_takes_over_the_port() {
    inside(async || {
        add_address(IpAddr::V4(PODS[0]));
        let folder = objects();
        let mut serving = pod(&folder, PODS[0], &TAKE_OVER);
        let kinds = [Kind::NewSockets, Kind::OneSocket, Kind::Connections];
        let clients = Clients::of(&kinds, SocketAddr::from((PODS[0], PORT)));
        for fails in [false, false, true, false, false] {
            clients.wait_for_more();
            let mut ends = pod(&folder, PODS[0], &TAKE_OVER);
            // A new process that does not work ends, and the old one stays.
            if !fails {
                std::mem::swap(&mut serving, &mut ends);
            }
            clients.wait_for_more();
            ends.process.signal("TERM");
            end(&mut ends);
        }
        clients.wait_for_more();
        let asked = clients.stop();
        assert!(asked.iter().all(|asked| asked.lost == 0), "{asked:?}");
    });
}

/// Two pods behind a balancer, and clients that ask them.
struct Balanced {
    balancer: Balancer,
    folder: Scratch,
    pods: [DataPlane; 2],
    clients: Clients,
}

/// Nothing where the balancer's programs are missing.
fn balanced() -> Option<Balanced> {
    let balancer = Balancer::start()?;
    let folder = objects();
    let pods = PODS.map(|ip| pod(&folder, ip, &DRAIN));
    let kinds = [Kind::NewSockets, Kind::OneSocket];
    let clients = Clients::of(&kinds, SocketAddr::from((SERVICE, PORT)));
    Some(Balanced { balancer, folder, pods, clients })
}

fn objects() -> Scratch {
    let folder = Scratch::new("restarts").unwrap();
    folder.write("cart.yaml", OBJECTS).unwrap();
    folder
}

fn pod(folder: &Scratch, ip: Ipv4Addr, flags: &[&str]) -> DataPlane {
    let listen = format!("{ip}:{PORT}");
    let flags = [&["--listen", &listen], flags].concat();
    let pod = DataPlane::of_manifests_with(folder.path(), &flags);
    pod.wait_until_ready();
    pod
}

fn end(pod: &mut DataPlane) {
    let status = wait_for("its end", || pod.process.exited());
    assert_eq!(status.code(), Some(0));
}

fn wait_until_it_leaves(pod: &DataPlane) {
    wait_for("it says that it leaves", || (pod.get("/readyz").0 == 503).then_some(()));
}

/// Rules of the kernel that lead each new flow to one of the pods, in turn.
struct Balancer;

impl Balancer {
    /// Leads to both pods; nothing where the programs are missing.
    fn start() -> Option<Balancer> {
        for program in ["nft", "conntrack"] {
            if run(program, &["--version"]).is_err() {
                not_installed(program);
                return None;
            }
        }
        add_address(IpAddr::V4(SERVICE));
        PODS.into_iter().for_each(|ip| add_address(IpAddr::V4(ip)));
        let balancer = Balancer;
        balancer.lead_to(&PODS);
        Some(balancer)
    }

    /// New flows go to these.
    fn lead_to(&self, pods: &[Ipv4Addr]) {
        let targets: Vec<_> =
            pods.iter().enumerate().map(|(at, ip)| format!("{at} : {ip}")).collect();
        let rules = format!(
            "table ip balancer
             delete table ip balancer
             table ip balancer {{
               chain out {{
                 type nat hook output priority -100;
                 ip daddr {SERVICE} udp dport {PORT} dnat to numgen inc mod {} map {{ {} }}
               }}
             }}",
            pods.len(),
            targets.join(", ")
        );
        run("nft", &[&rules]).unwrap_or_else(|error| panic!("nft: {error}"));
    }

    /// Flows to this pod are led again, as kube-proxy does for an endpoint that is gone.
    fn forget(&self, pod: Ipv4Addr) {
        let (service, pod) = (SERVICE.to_string(), pod.to_string());
        // Its status says whether there were any.
        let _ = run("conntrack", &["-D", "-p", "udp", "--orig-dst", &service, "--dst-nat", &pod]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).args(arguments);
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(said)
}
