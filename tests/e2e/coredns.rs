//! The real CoreDNS, where it is built: it watches the same API server as a data plane, and forwards to the same servers.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use serde_json::Value;
use tests::client::{Question, ask_udp};
use tests::control_plane::{ControlPlane, Setup, not_run, path_of};
use tests::data_plane::wait_for;
use tests::http;
use tests::objects::{create_any, is_taken};
use tests::process::Process;
use tests::scenario::Cluster;
use tests::scratch::Scratch;

/// Ports that are tried: another process may take one between the look and the start.
const PORTS: usize = 5;

/// What of the usual Corefile differs from test to test.
pub(super) struct Plugins {
    /// The servers, and the block of options if there is one.
    pub(super) forward: String,
    /// The arguments of `cache`, and its block.
    pub(super) cache: &'static str,
    /// More plugins.
    pub(super) more: &'static str,
}

/// A control plane with the objects of the shop, and these. None where it is not built; this is printed.
pub(super) async fn shop() -> Option<(ControlPlane, Vec<Value>)> {
    // Pods need a ServiceAccount, which only controllers make.
    let flag = "--disable-admission-plugins=ServiceAccount".to_owned();
    let setup = Setup { controllers: false, api_server_flags: vec![flag], ..Setup::default() };
    let plane = ControlPlane::start(setup).await?;
    let client = plane.client().await;
    let mut objects = Cluster::all().expect("scenarios").swap_remove(0).objects;
    objects.retain(is_taken);
    for kind in ["Namespace", "Service", "EndpointSlice", "Pod"] {
        for object in objects.iter().filter(|object| object["kind"] == kind) {
            create_any(&client, object).await.expect("an object of the shop");
        }
    }
    Some((plane, objects))
}

/// A running CoreDNS; it ends when dropped.
pub(super) struct CoreDns {
    process: Process,
    address: SocketAddr,
    metrics: SocketAddr,
    _folder: Scratch,
}

impl CoreDns {
    /// Starts it with the plugins of the usual Corefile. None where it is not built; this is printed.
    pub(super) fn start(kubeconfig: &Path, plugins: &Plugins) -> Option<CoreDns> {
        let program = path_of("coredns");
        if !program.exists() {
            not_run("CoreDNS; `tests/tools/build coredns` builds it");
            return None;
        }
        (0..PORTS).find_map(|_| {
            let folder = Scratch::new("coredns").expect("a scratch directory");
            let [address, metrics, health, ready] =
                [free_port()?, free_port()?, free_port()?, free_port()?];
            let Plugins { forward, cache, more } = plugins;
            let text = format!(
                ".:{port} {{\n  bind 127.0.0.1\n  errors\n  health {health}\n  ready {ready}\n  kubernetes cluster.local \
                 in-addr.arpa ip6.arpa {{\n    kubeconfig {kubeconfig}\n    pods insecure\n    fallthrough in-addr.arpa \
                 ip6.arpa\n    ttl 30\n  }}\n  prometheus {metrics}\n  forward . {forward}\n  cache {cache}\n  loop\n  \
                 reload\n  loadbalance\n  {more}\n}}\n",
                port = address.port(),
                kubeconfig = kubeconfig.display(),
            );
            let conf = folder.write("Corefile", text).expect("a file").display().to_string();
            let process = Process::start(&program, &["-conf", &conf], folder.path());
            let process = process.expect("it starts");
            let mut coredns = CoreDns { process, address, metrics, _folder: folder };
            wait_for("the answers of CoreDNS, or its end", || coredns.has_read_all())
                .then_some(coredns)
        })
    }

    /// Where it answers questions.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its page of metrics.
    pub(super) fn metrics(&self) -> String {
        let (status, page) = http::get_whole(self.metrics, "/metrics").expect("its metrics");
        assert_eq!(status, 200, "{page}");
        page
    }

    /// Whether it knows Services and their endpoints; false once it has ended, as where its port is taken.
    fn has_read_all(&mut self) -> Option<bool> {
        if self.process.exited().is_some() {
            return Some(false);
        }
        let has_answer = |name: &str| {
            let question = Question::parse(&format!("{name}.svc.cluster.local. A")).unwrap();
            let reply = ask_udp(self.address, &question.packet, false).ok().flatten();
            // The count of answers in the header (RFC 1035 section 4.1.1).
            reply.is_some_and(|reply| reply.get(6..8).is_some_and(|count| count != [0, 0]))
        };
        ["cart.shop", "db.data"].into_iter().all(has_answer).then_some(true)
    }
}

/// An address of loopback that nothing listens on over UDP or TCP.
pub(super) fn free_port() -> Option<SocketAddr> {
    let address = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?;
    UdpSocket::bind(address).ok().map(|_| address)
}
