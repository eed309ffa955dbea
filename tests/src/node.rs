//! A real node: containerd, runc, kubelet and kube-proxy beside a real control plane and scheduler, so that Pods are what
//! they are in a cluster. Nothing is simulated; [`crate::kubelet`] simulates, for the many tests that need no more.
//!
//! A test has one, in its own network namespace, or several in namespaces of theirs ([`Place`]).
//!
//! All of it runs below a process 1 of its own and ends with that. Its files are in tmpfs of its own mounts, its network
//! is the test's own; only cgroups are the machine's, below one that is removed.

pub(crate) mod cgroup;
mod images;
mod place;
pub mod steady;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Client;
use kube::api::Api;
use serde_json::json;

use crate::control_plane::{ControlPlane, Setup, path_of};
use crate::netns::{API_SERVER_ADDRESS, NODE_ADDRESS, has_all_users};
use crate::objects::create_any;
use crate::process::Process;
use crate::scratch::Scratch;
use cgroup::Cgroup;
pub use images::{
    AGNHOST, BUSYBOX, COREDNS, EARLIER_TAG, Earlier, GLIBC, Images, OURS_NAME, OURS_TAG, Release,
};
pub use place::{CLUSTER_DNS_V6, MOST_NODES, Place, make_switch};

/// The DNS server that kubelet gives to Pods.
pub const CLUSTER_DNS: &str = "10.96.0.10";
/// Says how kube-proxy writes its rules where that is not `iptables`: `nftables` works too.
pub const PROXY_MODE: &str = "CLUSTERDNS_TEST_PROXY_MODE";
/// It takes 12 s on two idle cores.
const READY_WITHIN: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(200);
/// In `/proc`, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// What must be there besides our own tools; `tests/tools/node-packages` installs it.
const PACKAGES: [&str; 8] = [
    "/usr/bin/containerd",
    "/usr/bin/ctr",
    "/usr/sbin/runc",
    "/usr/lib/cni/ptp",
    "/usr/sbin/iptables",
    "/usr/sbin/conntrack",
    images::BUSYBOX_PROGRAM,
    "/usr/bin/strip",
];

/// The programs of Kubernetes that a node and its control plane take besides those of every test.
const PROGRAMS: [&str; 4] = ["kubelet", "kube-proxy", "kube-scheduler", "coredns"];

/// What the DNS tests of Kubernetes take besides, of the machine and of Kubernetes.
const SUITE_PACKAGES: [&str; 2] = ["/usr/bin/dig", "/usr/bin/getent"];
const SUITE_PROGRAMS: [&str; 2] = ["e2e.test", "agnhost"];

/// The running node. Fields are dropped in order: the processes are gone before their cgroup is removed.
#[derive(Debug)]
pub struct Node {
    machine: Process,
    _cgroup: Cgroup,
    scratch: Scratch,
    place: Place,
}

/// A control plane that Pods reach and whose kubelets have the rights of kubelets.
pub fn setup() -> Setup {
    let mut setup = Setup { real_nodes: true, ..Setup::for_pods() };
    setup.api_server_flags.extend([
        "--enable-admission-plugins=NodeRestriction".into(),
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--allow-privileged".into(),
    ]);
    setup
}

/// What a node needs and this machine does not have, with what to do about it.
pub fn lacking() -> Vec<String> {
    let mut lacking = Vec::new();
    if !has_all_users() {
        lacking.push("root".to_owned());
    }
    if !cgroup::are_there() {
        lacking.push("cgroups below /sys/fs/cgroup".to_owned());
    }
    lacking.extend(not_installed(&PACKAGES, "tests/tools/node-packages"));
    lacking.extend(not_built(&PROGRAMS));
    lacking
}

/// The same for nodes on which the DNS tests of Kubernetes run.
pub fn lacking_with_suite() -> Vec<String> {
    let mut lacking = lacking();
    lacking.extend(not_installed(&SUITE_PACKAGES, "tests/tools/node-packages conformance"));
    lacking.extend(not_built(&SUITE_PROGRAMS));
    lacking
}

fn not_installed(programs: &[&str], by: &str) -> impl Iterator<Item = String> {
    let missing = programs.iter().filter(|program| !Path::new(program).exists());
    missing.map(move |program| format!("{program} (as root: {by})"))
}

fn not_built(programs: &[&str]) -> impl Iterator<Item = String> {
    let missing = programs.iter().filter(|program| !path_of(program).exists());
    missing.map(|program| format!("{program} (tests/tools/build {program})"))
}

impl Node {
    /// Starts one; returns when kubelet says that it is ready. Call it [`inside`](crate::netns::inside) a network namespace,
    /// after [`lacking`] found nothing. kube-proxy waits this long between two changes of rules, such as `1s`.
    ///
    /// # Panics
    /// With the logs of all programs, when it does not start.
    pub async fn start(plane: &ControlPlane, place: Place, images: &Images, pause: &str) -> Node {
        let scratch = Scratch::new(&place.name()).expect("a scratch directory");
        let cgroup = Cgroup::new(place.number()).expect("a cgroup that root may create");
        let files = write_files(&scratch, plane, &cgroup, &place, pause);
        files.expect("the scratch directory is ours");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/node/machine.sh");
        let mut words: Vec<String> =
            ["--pid", "--fork", "--kill-child=KILL", "--mount-proc"].map(str::to_owned).into();
        if let Some(network) = place.network() {
            words.extend(["nsenter".to_owned(), format!("--net={network}")]);
        }
        let paths =
            [&script, scratch.path(), images.path(), &path_of("kubelet"), &path_of("kube-proxy")];
        words.push("sh".to_owned());
        words.extend(paths.map(|path| path.display().to_string()));
        let addresses: Vec<String> = place.addresses().iter().map(IpAddr::to_string).collect();
        words.extend([
            format!("--hostname-override={}", place.name()),
            format!("--node-ip={}", addresses.join(",")),
            format!("--node-labels={}", place.labels()),
        ]);
        let machine = Process::start(Path::new("/usr/bin/unshare"), &words, scratch.path());
        let machine = machine.expect("unshare starts");
        let mut node = Node { machine, _cgroup: cgroup, scratch, place };
        if let Err(error) = node.until_ready(&plane.client().await).await {
            panic!("{} did not start: {error:#}\n{}", node.name(), node.logs());
        }
        node
    }

    pub fn name(&self) -> String {
        self.place.name()
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Dies as a machine does: its cable is out and no process of it runs any more, until [`Node::thaw`].
    ///
    /// # Panics
    /// It is alone: then the test has no other way to it.
    pub fn freeze(&self) {
        self.place.set_link("down");
        self.signal_all("STOP");
    }

    /// Everything continues where it was.
    ///
    /// # Panics
    /// As [`Node::freeze`].
    pub fn thaw(&self) {
        self.signal_all("CONT");
        self.place.set_link("up");
    }

    /// To every process but process 1 of the machine, which is checked to be one: elsewhere it would reach everything.
    fn signal_all(&self, signal: &str) {
        let script = format!("grep -q machine.sh /proc/1/cmdline && kill -s {signal} -- -1");
        self.run_inside(&["sh", "-c", &script]);
    }

    /// Runs a program in the machine: its network, mounts and processes.
    ///
    /// # Panics
    /// It fails.
    pub fn run_inside(&self, words: &[&str]) -> String {
        let target = self.process_1().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &target, "--pid", "--mount", "--net"]).args(words);
        let output = command.output().expect("nsenter of util-linux");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}\n{}", self.logs());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    async fn until_ready(&mut self, client: &Client) -> Result<()> {
        let nodes = Api::<NodeObject>::all(client.clone());
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            self.machine.ensure_running()?;
            let node = nodes.get_opt(&self.place.name()).await?;
            let status = node.and_then(|node| node.status).unwrap_or_default();
            let mut conditions = status.conditions.into_iter().flatten();
            if conditions.any(|it| it.type_ == "Ready" && it.status == "True") {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "kubelet is not ready in time");
            tokio::time::sleep(POLL).await;
        }
    }

    /// The network namespace of the Pod with this address, as `nsenter --net=` wants it.
    ///
    /// # Panics
    /// There is none.
    pub fn network_of(&self, address: IpAddr) -> PathBuf {
        let address = address.to_string();
        let all = std::fs::read_dir(self.path_to("run/netns")).into_iter().flatten().flatten();
        let found = all.map(|entry| entry.path()).find(|network| {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net={}", network.display()));
            let shown = command.args(["ip", "-oneline", "address"]).output();
            shown.is_ok_and(|shown| {
                let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
                shown.split(&[' ', '/'][..]).any(|word| word == address)
            })
        });
        found.unwrap_or_else(|| panic!("no Pod has {address}\n{}", self.logs()))
    }

    /// A file or folder of the machine, as the test sees it.
    pub fn path_to(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/{inside}", self.process_1()))
    }

    /// When the first process of a container started, as [`steady::now`] counts: exact to 10 ms.
    ///
    /// # Panics
    /// No such container runs.
    pub fn process_started(&self, container: &str) -> f64 {
        let stat = self.with_process_of(container, "cat /proc/$pid/stat");
        // Its second field, the name, may have spaces; the 22nd is the time.
        let fields = stat.rsplit_once(')').expect("a name").1;
        let ticks = fields.split_whitespace().nth(19).and_then(|ticks| ticks.parse::<f64>().ok());
        ticks.expect("a number") / TICKS_PER_SECOND
    }

    /// `/proc/PID/status` of the first process of a container.
    ///
    /// # Panics
    /// No such container runs.
    pub fn process_status(&self, container: &str) -> String {
        self.with_process_of(container, "cat /proc/$pid/status")
    }

    /// The number of the first process of a container, in the machine.
    ///
    /// # Panics
    /// No such container runs.
    pub fn process_of(&self, container: &str) -> String {
        self.with_process_of(container, "echo $pid").trim().to_owned()
    }

    /// Kills the first process of a container, as the kernel does when memory is short.
    ///
    /// # Panics
    /// No such container runs.
    pub fn kill(&self, container: &str) {
        self.signal(container, "KILL");
    }

    /// Sends the first process of a container a signal, named as `kill` names it.
    ///
    /// # Panics
    /// No such container runs.
    pub fn signal(&self, container: &str, signal: &str) {
        self.with_process_of(container, &format!("kill -s {signal} $pid"));
    }

    fn with_process_of(&self, container: &str, script: &str) -> String {
        let find =
            "pid=$(ctr --namespace k8s.io tasks list | awk -v id=\"$1\" '$1 == id {print $2}')";
        let script = format!("set -e; {find}; {script}");
        let id = container.trim_start_matches("containerd://");
        self.run_inside(&["sh", "-c", &script, "sh", id])
    }

    /// Process 1 of the node, as the test sees it.
    fn process_1(&self) -> u32 {
        let unshare = self.machine.pid().expect("the node runs");
        let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"));
        let children = children.expect("its children");
        children.trim().parse().unwrap_or_else(|_| panic!("one child, not {children:?}"))
    }

    /// The end of every log, for messages.
    pub fn logs(&self) -> String {
        let mut logs = self.machine.log_tail();
        for name in ["containerd", "kubelet", "kube-proxy"] {
            let log = std::fs::read_to_string(self.scratch.path().join(format!("{name}.log")));
            let log = log.unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
            logs.push_str(&format!("\nthe end of {name}.log:\n{}\n", tail.join("\n")));
        }
        logs
    }
}

/// As much of each log as a failed test should print.
const LOG_TAIL_LINES: usize = 40;

fn write_files(
    scratch: &Scratch,
    plane: &ControlPlane,
    cgroup: &Cgroup,
    place: &Place,
    pause: &str,
) -> Result<()> {
    let directory = scratch.path().display().to_string();
    let mode = std::env::var(PROXY_MODE).unwrap_or_else(|_| "iptables".to_owned());
    let address = place.addresses()[0].to_string();
    let fill = |template: &str| {
        template
            .replace("{directory}", &directory)
            .replace("{cgroup}", &cgroup.path())
            .replace("{address}", &address)
            .replace("{name}", &place.name())
            .replace("{cluster_dns}", &place.cluster_dns())
            .replace("{cluster_cidr}", place.cluster_cidr())
            .replace("{pause}", pause)
            .replace("{mode}", &mode)
    };
    scratch.write("containerd.toml", fill(include_str!("node/containerd.toml")))?;
    scratch.write("kubelet.yaml", fill(include_str!("node/kubelet.yaml")))?;
    scratch.write("kube-proxy.yaml", fill(include_str!("node/kube-proxy.yaml")))?;
    std::fs::create_dir(scratch.path().join("cni"))?;
    scratch.write("cni/10-pods.conflist", place.network_of_pods().to_string())?;
    // What a node's own resolver asks: something that the test serves, or nothing.
    scratch.write("resolv.conf", format!("nameserver {NODE_ADDRESS}\n"))?;
    for (program, user) in [("kubelet", place.name()), ("kube-proxy", "kube-proxy".to_owned())] {
        let document = plane.kubeconfig_at(NODE_ADDRESS, &format!("{user}-token"));
        scratch.write(&format!("{program}.kubeconfig"), document)?;
    }
    Ok(())
}

/// From now on the Service `kubernetes` leads to the API server through kube-proxy, not by an address of this namespace. Once,
/// before the first node.
///
/// # Errors
/// The address is gone already, or the API server refuses.
pub async fn route_api_server(plane: &ControlPlane) -> Result<()> {
    crate::netns::ip(&["address", "del", &format!("{API_SERVER_ADDRESS}/32"), "dev", "lo"])?;
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "ports": [{"name": "https", "port": plane.port(), "protocol": "TCP"}],
        "endpoints": [{"addresses": [NODE_ADDRESS], "conditions": {"ready": true}}]});
    let created = create_any(&plane.client().await, &slice).await;
    created.map_err(anyhow::Error::msg).context("the API server's own EndpointSlice")
}
