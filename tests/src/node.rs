//! A real node: containerd, runc, kubelet and kube-proxy beside a real control plane and scheduler, so that Pods are what
//! they are in a cluster. It plays nothing; [`crate::kubelet`] is what plays, for the many tests that need no more.
//!
//! All of it runs below a process 1 of its own and ends with that. Its files are in tmpfs of its own mounts, its network
//! is the test's own; only cgroups are the machine's, below one that is removed.

mod cgroup;
mod images;
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

use crate::control_plane::programs::not_run;
use crate::control_plane::{ControlPlane, Setup, path_of};
use crate::netns::{API_SERVER_ADDRESS, NODE_ADDRESS, has_all_users};
use crate::objects::create_any;
use crate::process::Process;
use crate::scratch::Scratch;
use cgroup::Cgroup;
pub use images::{BUSYBOX, COREDNS, OURS_NAME, OURS_TAG};

pub const NAME: &str = "node-1";
/// Whom kubelet sends Pods to for DNS.
pub const CLUSTER_DNS: &str = "10.96.0.10";
/// Says how kube-proxy writes its rules where that is not `iptables`: `nftables` works too.
pub const PROXY_MODE: &str = "CLUSTERDNS_TEST_PROXY_MODE";
/// It takes 12 s on two idle cores.
const READY_WITHIN: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(200);
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

/// The running node. Fields are dropped in order: the processes are gone before their cgroup is removed.
#[derive(Debug)]
pub struct Node {
    scheduler: Process,
    machine: Process,
    _cgroup: Cgroup,
    scratch: Scratch,
}

/// A control plane that Pods reach and whose kubelets have the rights of kubelets.
pub fn setup() -> Setup {
    let mut setup = Setup::for_pods();
    setup.api_server_flags.extend([
        "--enable-admission-plugins=NodeRestriction".into(),
        // Taints a new node until a controller sees it ready, which does not run here.
        "--disable-admission-plugins=TaintNodesByCondition".into(),
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--allow-privileged".into(),
    ]);
    setup
}

impl Node {
    /// Starts one, with the image of our programs; returns when kubelet says that it is ready. Call it
    /// [`inside`](crate::netns::inside) a network namespace, as root.
    ///
    /// None, after saying so, when something that it needs is not installed.
    ///
    /// # Panics
    /// With the logs of all programs, when it does not start.
    pub async fn start(plane: &ControlPlane) -> Option<Node> {
        if !has_all_users() {
            not_run("root: `make node` as root");
            return None;
        }
        if !cgroup::is_version_1() {
            not_run("cgroups of version 1");
            return None;
        }
        let programs = ["kubelet", "kube-proxy", "kube-scheduler", "coredns"].map(path_of);
        let needed = programs.iter().cloned().chain(PACKAGES.map(PathBuf::from));
        for program in needed {
            if !program.exists() {
                not_run(&format!("{}; `make node` sees to that", program.display()));
                return None;
            }
        }
        let [kubelet, kube_proxy, scheduler, coredns] = programs;
        let scratch = Scratch::new("node").expect("a scratch directory");
        let cgroup = Cgroup::new().expect("a cgroup (version 1) that root may create");
        write_files(&scratch, plane, &cgroup).expect("the scratch directory is ours");
        images::write(scratch.path(), &coredns).expect("the images can be made");
        route_api_server(plane).await.expect("a route to the API server");
        let scheduler = Process::start(
            &scheduler,
            &["--kubeconfig=scheduler.kubeconfig", "--leader-elect=false", "--secure-port=0"],
            scratch.path(),
        );
        let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/node/machine.sh");
        let machine = ["sh".into(), machine, scratch.path().to_owned(), kubelet, kube_proxy]
            .map(|path| path.display().to_string());
        let flags = ["--pid", "--fork", "--kill-child=KILL", "--mount-proc"].map(str::to_owned);
        let machine = [&flags[..], &machine[..]].concat();
        let machine = Process::start(Path::new("/usr/bin/unshare"), &machine, scratch.path());
        let mut node = Node {
            scheduler: scheduler.expect("the scheduler starts"),
            machine: machine.expect("unshare starts"),
            _cgroup: cgroup,
            scratch,
        };
        if let Err(error) = node.until_ready(&plane.client().await).await {
            panic!("the node did not start: {error:#}\n{}", node.logs());
        }
        Some(node)
    }

    async fn until_ready(&mut self, client: &Client) -> Result<()> {
        let nodes = Api::<NodeObject>::all(client.clone());
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            self.machine.ensure_running()?;
            self.scheduler.ensure_running()?;
            let node = nodes.get_opt(NAME).await?;
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
        let inside = PathBuf::from(format!("/proc/{}/root", self.process_1()));
        let address = address.to_string();
        let all = std::fs::read_dir(inside.join("run/netns")).into_iter().flatten().flatten();
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

    /// `/proc/PID/status` of the first process of a container.
    ///
    /// # Panics
    /// No such container runs.
    pub fn process_status(&self, container: &str) -> String {
        self.with_process_of(container, "cat /proc/$pid/status")
    }

    /// Kills the first process of a container, as the kernel does when memory is short.
    ///
    /// # Panics
    /// No such container runs.
    pub fn kill(&self, container: &str) {
        self.with_process_of(container, "kill -s KILL $pid");
    }

    fn with_process_of(&self, container: &str, script: &str) -> String {
        let target = self.process_1().to_string();
        let find =
            "pid=$(ctr --namespace k8s.io tasks list | awk -v id=\"$1\" '$1 == id {print $2}')";
        let script = format!("set -e; {find}; {script}");
        let id = container.trim_start_matches("containerd://");
        let mut command = Command::new("nsenter");
        command.args(["--target", &target, "--pid", "--mount", "sh", "-c", &script, "sh", id]);
        let output = command.output().expect("nsenter of util-linux");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{container}: {said}\n{}", self.logs());
        String::from_utf8_lossy(&output.stdout).into_owned()
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
        for name in ["containerd", "kubelet", "kube-proxy", "kube-scheduler"] {
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

fn write_files(scratch: &Scratch, plane: &ControlPlane, cgroup: &Cgroup) -> Result<()> {
    let directory = scratch.path().display().to_string();
    let fill = |template: &str| {
        template
            .replace("{directory}", &directory)
            .replace("{cgroup}", &cgroup.path())
            .replace("{cluster_dns}", CLUSTER_DNS)
    };
    scratch.write("containerd.toml", fill(include_str!("node/containerd.toml")))?;
    scratch.write("kubelet.yaml", fill(include_str!("node/kubelet.yaml")))?;
    let mode = std::env::var(PROXY_MODE).unwrap_or_else(|_| "iptables".to_owned());
    let kube_proxy = include_str!("node/kube-proxy.yaml").replace("{mode}", &mode);
    scratch.write("kube-proxy.yaml", kube_proxy)?;
    std::fs::create_dir(scratch.path().join("cni"))?;
    scratch.write("cni/10-pods.conflist", include_str!("node/cni.conflist"))?;
    // What a node's own resolver asks: something that the test serves, or nothing.
    scratch.write("resolv.conf", format!("nameserver {NODE_ADDRESS}\n"))?;
    for user in ["kubelet", "kube-proxy", "scheduler"] {
        let file = plane.kubeconfig_with_token(&format!("{user}-token"));
        std::fs::copy(file, scratch.path().join(format!("{user}.kubeconfig")))?;
    }
    Ok(())
}

/// The Service `kubernetes` leads to the API server through kube-proxy, not by an address of this namespace.
async fn route_api_server(plane: &ControlPlane) -> Result<()> {
    crate::netns::ip(&["address", "del", &format!("{API_SERVER_ADDRESS}/32"), "dev", "lo"])?;
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "ports": [{"name": "https", "port": plane.port(), "protocol": "TCP"}],
        "endpoints": [{"addresses": [NODE_ADDRESS], "conditions": {"ready": true}}]});
    let created = create_any(&plane.client().await, &slice).await;
    created.map_err(anyhow::Error::msg).context("the API server's own EndpointSlice")
}
