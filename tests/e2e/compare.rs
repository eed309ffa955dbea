//! `compare` as a program beside a real CoreDNS: both watch the same API server and forward to the same server. Every
//! difference is one that the contract means, and is named by its sentence.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;
use tests::data_plane::DataPlane;
use tests::kubelet::program;
use tests::scratch::Scratch;
use tests::upstream::{Script, ScriptedUpstream};

use crate::coredns::{self, CoreDns, Plugins};

/// The upstream of both for names outside of the cluster.
const UPSTREAM: &str = "
www.example.org. A
    answer @ 600 A 192.0.2.80
* *
    rcode NXDOMAIN
    authority . 60 SOA a.root.example. hostmaster.example. 1 7200 1800 86400 60
";

/// The same in both: here it is a record.
const REWRITE: &str = "rewrite name old.example.org www.example.org";

/// What clients ask besides the names of objects: a question, its type, and the class that is expected of it.
const ASKED: &[(&str, &str, &str)] = &[
    ("nothere.shop.svc.cluster.local.", "SOA", "DF1"),
    ("cart.shop.svc.cluster.local.", "ANY", "DF18"),
    ("http.tcp.cart.shop.svc.cluster.local.", "SRV", "DF8"),
    ("_tcp.cart.shop.svc.cluster.local.", "A", "DF9"),
    ("localhost.", "A", "DF28"),
    ("old.example.org.", "A", "RR77"),
];

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
    let Some((plane, objects)) = coredns::shop().await else { return };

    let upstream = ScriptedUpstream::start(Script::one(UPSTREAM).unwrap()).unwrap();
    let plugins = Plugins { forward: upstream.address().to_string(), cache: "30", more: REWRITE };
    let Some(theirs) = CoreDns::start(plane.kubeconfig(), &plugins) else { return };
    let folder = Scratch::new("compare").unwrap();
    let (ip, port) = (upstream.address().ip(), upstream.address().port());
    let dns = format!(
        "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {{name: trial}}\nspec:\n  ttlSeconds: 30\n  \
         podRecords: Insecure\n  upstreams: {{servers: [{{address: {ip}, port: {port}}}]}}\n  records: [{{name: \
         old.example.org, type: CNAME, target: www.example.org}}]\n"
    );
    let config = folder.write("dns.yaml", dns).unwrap().display().to_string();
    let ours = DataPlane::start(plane.kubeconfig(), &["--config", &config]);
    ours.wait_until_ready();

    let kubeconfig = plane.kubeconfig().display().to_string();
    let (report, status) =
        compared(ours.address(), theirs.address(), &["--kubeconfig", &kubeconfig]);
    let asked = report["asked"].as_u64().expect("a count");
    assert!(asked > 100, "all names of the shop: {report:#}");
    assert_eq!((examples(&report, "unknown"), status), (Vec::new(), Some(0)), "{report:#}");

    let mut log = String::new();
    for (name, kind, _) in ASKED {
        let _ = writeln!(log, r#"{{"message":"query","name":"{name}","type":"{kind}"}}"#);
    }
    let log = folder.write("queries.log", log).unwrap().display().to_string();
    let words = ["--no-names", "--questions", &log];
    let (report, status) = compared(ours.address(), theirs.address(), &words);
    let found: BTreeMap<String, String> =
        examples(&report, "known").into_iter().map(|(class, question)| (question, class)).collect();
    let expected =
        ASKED.iter().map(|(name, kind, class)| (format!("{name} {kind}"), (*class).to_owned()));
    assert_eq!(found, expected.collect(), "{report:#}");
    assert_eq!((examples(&report, "unknown"), status), (Vec::new(), Some(0)), "{report:#}");

    // The same objects, except for one Service.
    let kept =
        objects.iter().filter(|it| it["kind"] != "ClusterDNS" && it["metadata"]["name"] != "cart");
    let texts: Vec<String> = kept.map(ToString::to_string).collect();
    let without_one = Scratch::new("compare-objects").unwrap();
    without_one.write("objects.yaml", texts.join("\n---\n")).unwrap();
    let ours = DataPlane::of_manifests(without_one.path());
    let lost = r#"{"message":"query","name":"cart.shop.svc.cluster.local.","type":"A"}"#;
    let lost = folder.write("lost.log", lost).unwrap().display().to_string();
    let words = ["--no-names", "--questions", &lost];
    let (report, status) = compared(ours.address(), theirs.address(), &words);
    let expected = [("NXDOMAIN in place of NOERROR", "cart.shop.svc.cluster.local. A")];
    let expected = expected.map(|(class, question)| (class.to_owned(), question.to_owned()));
    assert_eq!((examples(&report, "unknown"), status), (expected.to_vec(), Some(1)), "{report:#}");
}
