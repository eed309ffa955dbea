//! `compare` as a program beside a real CoreDNS: both watch the same API server and forward to the same server. Every
//! difference is one that the contract means, and is named by its sentence.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tests::client::{Question, ask_udp};
use tests::control_plane::{ControlPlane, Setup, not_run, path_of};
use tests::data_plane::{DataPlane, wait_for};
use tests::kubelet::program;
use tests::objects::create_any;
use tests::process::Process;
use tests::scenario::Cluster;
use tests::scratch::Scratch;
use tests::upstream::{Script, ScriptedUpstream};

/// The upstream of both for names outside of the cluster.
const UPSTREAM: &str = "
www.example.org. A
    answer @ 600 A 192.0.2.80
* *
    rcode NXDOMAIN
    authority . 60 SOA a.root.example. hostmaster.example. 1 7200 1800 86400 60
";

/// What clients ask besides the names of objects: a question, its type, and the class that is expected of it.
const ASKED: &[(&str, &str, &str)] = &[
    ("nothere.shop.svc.cluster.local.", "SOA", "DF1"),
    ("cart.shop.svc.cluster.local.", "ANY", "DF18"),
    ("http.tcp.cart.shop.svc.cluster.local.", "SRV", "DF8"),
    ("_tcp.cart.shop.svc.cluster.local.", "A", "DF9"),
    ("localhost.", "A", "DF28"),
];

/// Ports that are tried: another process may take one between the look and the start.
const PORTS: usize = 5;

/// A running CoreDNS; it ends when dropped.
struct CoreDns {
    process: Process,
    address: SocketAddr,
    _folder: Scratch,
}

impl CoreDns {
    /// Starts it with the parts of the usual Corefile that decide answers. None where it is not built; this is printed.
    fn start(kubeconfig: &Path, upstream: SocketAddr) -> Option<CoreDns> {
        let program = path_of("coredns");
        if !program.exists() {
            not_run("CoreDNS; `tests/tools/build coredns` builds it");
            return None;
        }
        (0..PORTS).find_map(|_| {
            let folder = Scratch::new("coredns").expect("a scratch directory");
            let (address, kubeconfig) = (free_port()?, kubeconfig.display());
            let text = format!(
                ".:{} {{\n  bind 127.0.0.1\n  errors\n  kubernetes cluster.local in-addr.arpa ip6.arpa {{\n    \
                 kubeconfig {kubeconfig}\n    pods insecure\n    fallthrough in-addr.arpa ip6.arpa\n    ttl 30\n  }}\n  \
                 forward . {upstream}\n  cache 30\n  loadbalance\n}}\n",
                address.port()
            );
            let conf = folder.write("Corefile", text).expect("a file").display().to_string();
            let process = Process::start(&program, &["-conf", &conf], folder.path());
            let mut coredns = CoreDns { process: process.expect("it starts"), address, _folder: folder };
            wait_for("the answers of CoreDNS, or its end", || coredns.has_read_all())
                .then_some(coredns)
        })
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

fn free_port() -> Option<SocketAddr> {
    let address = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?;
    UdpSocket::bind(address).ok().map(|_| address)
}

/// What `compare` says of the two with these words, and how it ends.
fn compared(with: SocketAddr, against: SocketAddr, words: &[&str]) -> (Value, Option<i32>) {
    let servers =
        ["--with".to_owned(), with.to_string(), "--against".to_owned(), against.to_string()];
    let output = Command::new(program("clusterdns-operator"))
        .arg("compare")
        .args(servers)
        .args(["--rate", "1000", "-o", "json"])
        .args(words)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{why}"));
    (report, output.status.code())
}

/// The examples of a list of classes: class and question.
fn examples(report: &Value, list: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let classes = report[list].as_array().expect("a list").iter();
    let of = |class: &Value| {
        let examples = class["examples"].as_array().expect("a list").clone();
        let name = text(&class["class"]);
        examples.into_iter().map(move |it| (name.clone(), text(&it["question"])))
    };
    classes.flat_map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_real_coredns_only_what_the_contract_means_differs() {
    // Pods need a ServiceAccount, which only controllers make.
    let flag = "--disable-admission-plugins=ServiceAccount".to_owned();
    let setup = Setup { controllers: false, api_server_flags: vec![flag], ..Setup::default() };
    let Some(plane) = ControlPlane::start(setup).await else { return };
    let client = plane.client().await;
    let objects = Cluster::all().expect("scenarios").swap_remove(0).objects;
    for kind in ["Namespace", "Service", "EndpointSlice", "Pod"] {
        for object in objects.iter().filter(|object| object["kind"] == kind) {
            create_any(&client, object).await.expect("an object of the shop");
        }
    }

    let upstream = ScriptedUpstream::start(Script::one(UPSTREAM).unwrap()).unwrap();
    let Some(theirs) = CoreDns::start(plane.kubeconfig(), upstream.address()) else { return };
    let folder = Scratch::new("compare").unwrap();
    let (ip, port) = (upstream.address().ip(), upstream.address().port());
    let dns = format!(
        "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {{name: trial}}\nspec:\n  ttlSeconds: 30\n  \
         podRecords: Insecure\n  upstreams: {{servers: [{{address: {ip}, port: {port}}}]}}\n"
    );
    let config = folder.write("dns.yaml", dns).unwrap().display().to_string();
    let ours = DataPlane::start(plane.kubeconfig(), &["--config", &config]);
    ours.wait_until_ready();

    let kubeconfig = plane.kubeconfig().display().to_string();
    let (report, status) = compared(ours.address(), theirs.address, &["--kubeconfig", &kubeconfig]);
    let asked = report["asked"].as_u64().expect("a count");
    assert!(asked > 100, "all names of the shop: {report:#}");
    assert_eq!((examples(&report, "unknown"), status), (Vec::new(), Some(0)), "{report:#}");

    let mut log = String::new();
    for (name, kind, _) in ASKED {
        let _ = writeln!(log, r#"{{"message":"query","name":"{name}","type":"{kind}"}}"#);
    }
    let log = folder.write("queries.log", log).unwrap().display().to_string();
    let words = ["--no-names", "--questions", &log];
    let (report, status) = compared(ours.address(), theirs.address, &words);
    let found: BTreeMap<String, String> =
        examples(&report, "known").into_iter().map(|(class, question)| (question, class)).collect();
    let expected =
        ASKED.iter().map(|(name, kind, class)| (format!("{name} {kind}"), (*class).to_owned()));
    assert_eq!(found, expected.collect(), "{report:#}");
    assert_eq!((examples(&report, "unknown"), status), (Vec::new(), Some(0)), "{report:#}");

    // The same objects, but for one Service.
    let kept =
        objects.iter().filter(|it| it["kind"] != "ClusterDNS" && it["metadata"]["name"] != "cart");
    let texts: Vec<String> = kept.map(ToString::to_string).collect();
    let without_one = Scratch::new("compare-objects").unwrap();
    without_one.write("objects.yaml", texts.join("\n---\n")).unwrap();
    let ours = DataPlane::of_manifests(without_one.path());
    let lost = r#"{"message":"query","name":"cart.shop.svc.cluster.local.","type":"A"}"#;
    let lost = folder.write("lost.log", lost).unwrap().display().to_string();
    let words = ["--no-names", "--questions", &lost];
    let (report, status) = compared(ours.address(), theirs.address, &words);
    let expected = [("NXDOMAIN in place of NOERROR", "cart.shop.svc.cluster.local. A")];
    let expected = expected.map(|(class, question)| (class.to_owned(), question.to_owned()));
    assert_eq!((examples(&report, "unknown"), status), (expected.to_vec(), Some(1)), "{report:#}");
}
