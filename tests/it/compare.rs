//! `compare` over sockets: a data plane beside another one with the same objects, beside a server that answers by script,
//! and beside nothing.

use std::net::{SocketAddr, UdpSocket};

use clap::Parser;
use operator::args::{Args, Command};
use operator::compare::{KNOWN, NOT_SEEN, compared};
use operator::offline::Severity;
use tests::scenario::objects::read;
use tests::scenario::{Plane, folder};
use tests::scratch::Scratch;
use tests::upstream::{Script, ScriptedUpstream};

/// The flags as the program reads them.
async fn printed(words: &[&str]) -> (Severity, String, String) {
    let program = ["clusterdns-operator", "compare", "--rate", "1000"];
    let args = match Args::try_parse_from(program.iter().chain(words)).map(|args| args.command) {
        Ok(Command::Compare(args)) => args,
        other => panic!("{other:?}"),
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let outcome = compared(&args, &mut out, &mut err).await.unwrap();
    (outcome, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn shop() -> String {
    folder().join("shop").display().to_string()
}

/// The files of the golden cluster.
fn manifests() -> Vec<String> {
    ["services.yaml", "endpointslices.yaml", "clusterdns.yaml"]
        .map(|file| format!("{}/{file}", shop()))
        .to_vec()
}

fn plane() -> Plane {
    Plane::start(&read(&folder().join("stub-domains")).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_with_the_same_objects_differ_in_nothing_but_cut_rrsets() {
    let (one, other) = (plane(), plane());
    let (with, against) = (one.address().to_string(), other.address().to_string());
    let files = manifests();
    let mut words = vec!["--with", &*with, "--against", &*against, "--manifests"];
    words.extend(files.iter().map(String::as_str));
    let (outcome, out, err) = printed(&words).await;
    assert_eq!((outcome, err.as_str()), (Severity::Fine, ""), "{out}");
    // What is cached counts down while the other server is asked: on a busy machine its TTL may be lower there (RR74).
    let unexplained = |out: &str| {
        let first = out.lines().next().unwrap().to_owned();
        assert!(first.ends_with(" 0 differ and nothing explains it"), "{out}");
        assert!(out.contains("\n  WR23 (3): ") && out.contains("big.data.svc."), "{out}");
        let is_class = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
        let classes = out.lines().filter(is_class);
        assert!(
            classes.map(str::to_owned).all(|it| ["  WR23 ", "  RR74 "].contains(&&it[..7])),
            "{out}"
        );
        first.split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let count = unexplained(&out);
    assert!(count > 100, "{count}");
    let folder = shop();
    let words = ["--with", &*with, "--against", &*against, "--manifests", &*folder];
    let (outcome, of_folder, err) = printed(&words).await;
    assert_eq!((outcome, err.as_str()), (Severity::Fine, ""), "the folder of the files");
    assert_eq!(unexplained(&of_folder), count);
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_are_named_by_class_and_unknown_ones_end_a_pipeline() {
    let ours = plane();
    let script = "
cart.shop.svc.cluster.local. A
    answer @ 30 A 10.96.10.1
api.shop.svc.cluster.local. A
    answer @ 30 A 192.0.2.99
* *
    rcode NXDOMAIN
    authority . 60 SOA a.root.example. hostmaster.example. 1 7200 1800 86400 60
";
    let other = ScriptedUpstream::start(Script::one(script).unwrap()).unwrap();
    let scratch = Scratch::new("compare").unwrap();
    let log = r#"{"message":"query","name":"cart.shop.svc.cluster.local.","type":"A"}
[INFO] 10.0.0.1:1 - 1 "A IN api.shop.svc.cluster.local. udp 45 false 512" NOERROR qr 1 0.1s
[INFO] 10.0.0.1:1 - 1 "A IN nothere.shop.svc.cluster.local. udp 45 false 512" NXDOMAIN qr 1 0.1s
[INFO] plugin/reload: Running configuration
"#;
    scratch.write("queries.log", log).unwrap();
    let file = scratch.path().join("queries.log").display().to_string();
    let (with, against) = (ours.address().to_string(), other.address().to_string());
    let words =
        ["--with", &with, "--against", &against, "--no-names", "-o", "json", "--questions", &file];
    let (outcome, out, err) = printed(&words).await;
    assert_eq!((outcome, err.as_str()), (Severity::Wrong, ""), "{out}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["asked"], &report["alike"]), (&3.into(), &0.into()), "{out}");
    let classes = |list: &str| -> Vec<String> {
        let list = report[list].as_array().unwrap().iter();
        list.map(|class| class["class"].as_str().unwrap().to_owned()).collect()
    };
    // The differences: the TTL of one name, the flags of the missing name, and another address.
    assert_eq!(classes("known"), ["DF17", "RR74"]);
    assert_eq!(classes("unknown"), ["other A records"]);
    assert_eq!(report["unknown"][0]["examples"][0]["question"], "api.shop.svc.cluster.local. A");
    let note = report["notes"][0].as_str().unwrap();
    assert!(
        note.ends_with(": 1 packets or lines are no question of a client that can be read"),
        "{note}"
    );
    // Only these queries reached it.
    assert_eq!(other.asked().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn df36_a_name_without_a_server_is_refused_where_coredns_fails() {
    let mut objects = read(&folder().join("stub-domains")).unwrap();
    let dns = objects.iter_mut().find(|it| it["kind"] == "ClusterDNS").unwrap();
    dns["spec"]["upstreams"] = serde_json::json!({"none": true});
    let ours = Plane::start(&objects).unwrap();
    let other = ScriptedUpstream::start(Script::one("* *\n    rcode SERVFAIL\n").unwrap()).unwrap();
    let scratch = Scratch::new("compare").unwrap();
    let log = r#"{"message":"query","name":"git.node.internal.","type":"A"}"#;
    scratch.write("queries.log", log).unwrap();
    let file = scratch.path().join("queries.log").display().to_string();
    let (with, against) = (ours.address().to_string(), other.address().to_string());
    let words =
        ["--with", &with, "--against", &against, "--no-names", "-o", "json", "--questions", &file];
    let (outcome, out, err) = printed(&words).await;
    assert_eq!((outcome, err.as_str()), (Severity::Fine, ""), "{out}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["known"][0]["class"], "DF36", "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_of_both_servers_and_unreadable_files_are_said() {
    // A port that nothing listens on any more.
    let closed: SocketAddr = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = closed.to_string();
    let scratch = Scratch::new("compare").unwrap();
    scratch.write("queries.log", "{\"message\":\"query\",\"name\":\"a.\",\"type\":\"A\"}").unwrap();
    let file = scratch.path().join("queries.log").display().to_string();
    let servers = ["--with", &closed, "--against", &closed, "--no-names", "--questions"];
    let (outcome, out, err) = printed(&[&servers[..], &[&file]].concat()).await;
    assert_eq!((outcome, out.as_str()), (Severity::Unreadable, ""));
    assert!(err.starts_with("neither 127.0.0.1:") && err.contains("reachable"), "{err}");

    let missing = scratch.path().join("none.pcap").display().to_string();
    let (outcome, _, err) = printed(&[&servers[..], &[&missing]].concat()).await;
    assert_eq!(outcome, Severity::Unreadable);
    assert!(err.contains("none.pcap: "), "{err}");
}

#[test]
fn each_known_difference_is_a_rule_of_the_contract() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/dns.md");
    let page = std::fs::read_to_string(page).unwrap();
    for known in KNOWN {
        let anchor = format!("<a id=\"{}\"></a>", known.id.to_lowercase());
        assert!(page.contains(&anchor), "{}: {}", known.id, known.words);
    }
}

#[test]
fn each_difference_of_the_contract_is_known_or_named_as_not_seen() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/dns.md");
    let page = std::fs::read_to_string(page).unwrap();
    let differences = page.split("<a id=\"df").skip(1).map(|rest| {
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        format!("DF{number}")
    });
    let mut count = 0;
    for id in differences {
        let is_known = KNOWN.iter().any(|known| known.id == id);
        assert_ne!(is_known, NOT_SEEN.contains(&id.as_str()), "{id}");
        count += 1;
    }
    assert!(count > 30, "{count} differences");
}
