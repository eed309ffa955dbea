//! `kubectl clusterdns`: its screens from recorded pages, and the program against a data plane that runs.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::Pod;
use operator::plugin::{Explained, Libc, Outcome, Pages, ResolvConf, Screen, Search, questions};
use serde::Deserialize;
use serde_json::Value;
use tests::client::Transport;
use tests::data_plane::DataPlane;
use tests::kubelet::program;
use tests::scratch::Scratch;

use crate::desired::is_golden;

const POD: &str = "\
nameserver 10.96.0.10
search shop.svc.cluster.local svc.cluster.local cluster.local lan.example
options ndots:5
";

fn recorded(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/plugin");
    std::fs::read_to_string(folder.join(file)).unwrap()
}

/// What is printed for a name, from pages that a data plane gave for the quickstart.
fn explained(name: &str, libc: Libc, types: &[&str]) -> String {
    explained_by(&serde_json::from_str(&recorded("explain.json")).unwrap(), name, libc, types)
}

fn explained_by(pages: &BTreeMap<String, Value>, name: &str, libc: Libc, types: &[&str]) -> String {
    let conf = ResolvConf::read(POD);
    let search = Search::new(name, &conf, libc).unwrap();
    let mut ask = async |name: &str, qtype: &str| {
        Ok(pages.get(&format!("{name} {qtype}")).expect("a recorded page").to_string())
    };
    let (questions, result) =
        futures::executor::block_on(questions(search, types, &mut ask)).unwrap();
    let explained = Explained {
        name: name.to_owned(),
        from: Some("pod shop/web-0".to_owned()),
        libc: Some(if libc == Libc::Musl { "musl" } else { "glibc" }),
        resolv_conf: Some(conf),
        asked_of: "pod kube-system/clusterdns-default-a".to_owned(),
        notes: Vec::new(),
        questions,
        result,
    };
    explained.text()
}

#[test]
fn explain_shows_every_question_its_answer_why_and_what_it_costs() {
    let both = ["A", "AAAA"];
    is_golden("plugin/explain.txt", &explained("db.data", Libc::Glibc, &both));
    let upstream = explained("www.example.org", Libc::Glibc, &both);
    is_golden("plugin/explain-upstream.txt", &upstream);
    assert!(upstream.contains("after 10 questions and 5 names"), "{upstream}");
}

#[test]
fn what_a_failure_costs_a_program_with_musl_is_said() {
    let page = recorded("explain.json");
    let pages: BTreeMap<String, Value> = serde_json::from_str(&page).unwrap();
    let mut failed = pages.values().next().unwrap().clone();
    failed["status"] = "SERVFAIL".into();
    let pages = BTreeMap::from([("git.lab.example. A".to_owned(), failed)]);
    let last = |libc| {
        let text = explained_by(&pages, "git.lab.example.", libc, &["A"]);
        text.lines().last().unwrap().to_owned()
    };
    assert_eq!(
        last(Libc::Musl),
        "failed when the timeout of musl ended (by default 5 s), after 1 question and 1 name"
    );
    assert_eq!(last(Libc::Glibc), "failed, after 1 question and 1 name");
}

#[test]
fn explain_shows_cache_age_and_server_of_each_part_of_a_chain() {
    // What a data plane writes: the golden file of its own test.
    let page = recorded("../explain/chain-cached-json.txt");
    let page = serde_json::from_str(&page).unwrap();
    let pages = BTreeMap::from([("www.example.org. A".to_owned(), page)]);
    let text = explained_by(&pages, "www.example.org.", Libc::Glibc, &["A"]);
    is_golden("plugin/explain-chain.txt", &text);
}

#[derive(Deserialize)]
struct Recorded {
    dns: crds::ClusterDNS,
    pods: Vec<RecordedPod>,
}

#[derive(Deserialize)]
struct RecordedPod {
    pod: Pod,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    upstreams: Value,
    #[serde(default)]
    metrics: String,
    failure: Option<String>,
}

#[test]
fn status_shows_pods_revisions_upstreams_cache_and_what_is_skipped() {
    let recorded: Recorded = serde_saphyr::from_str(&recorded("status.yaml")).unwrap();
    let pages = |it: RecordedPod| match it.failure {
        Some(why) => (it.pod, Err(why)),
        None => {
            let pages = Pages::read(&it.config.to_string(), &it.upstreams.to_string(), &it.metrics);
            (it.pod, Ok(pages.unwrap()))
        }
    };
    let pods: Vec<_> = recorded.pods.into_iter().map(pages).collect();
    is_golden("plugin/status.txt", &Screen::of_pods(&recorded.dns, &pods).text());
}

/// A data plane that serves the quickstart.
fn data_plane() -> DataPlane {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/examples/quickstart");
    DataPlane::of_manifests(&folder)
}

/// Output, errors and status of the plugin.
fn plugin(words: &[&str], stdin: &str) -> (String, String, Option<i32>) {
    let mut child = Command::new(program("kubectl-clusterdns"))
        .args(words)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn the_program_asks_a_running_data_plane_and_refuses_nonsense() {
    let data_plane = data_plane();
    let http = data_plane.http().to_string();
    let at = ["--address", &http];
    let run = |words: &[&str], stdin: &str| plugin(&[&at, words].concat(), stdin);

    let (text, why, code) = run(&["explain", "db.data", "--resolv-conf", "-"], POD);
    assert_eq!(code, Some(0), "{why}");
    assert!(text.contains("2. db.data.shop.svc.cluster.local. AAAA: NXDOMAIN\n"), "{text}");
    assert!(text.contains("db.data.svc.cluster.local. 5 IN A 10.244.1.21\n"), "{text}");
    assert!(
        text.ends_with("found as db.data.svc.cluster.local. after 4 questions and 2 names\n"),
        "{text}"
    );

    let (text, _, _) = run(&["explain", "cart.shop.svc.cluster.local", "SRV", "-o", "json"], "");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["questions"][0]["name"], "cart.shop.svc.cluster.local.");
    assert_eq!(json["questions"][0]["explanation"]["steps"][0]["objects"][0]["name"], "cart");

    let (text, why, code) = run(&["status"], "");
    assert_eq!(code, Some(0), "{why}");
    assert!(text.contains("corp.example  10.20.0.53:53"), "{text}");

    for (words, says) in [
        (&["explain", "a..b"][..], "error: the name \"a..b\" has an empty label"),
        (&["explain", "cart", "NONSENSE"], "error: type \"NONSENSE\" is no record type"),
        (
            &["explain", "cart", "--resolv-conf", "/nonexistent"],
            "error: /nonexistent: cannot be read",
        ),
    ] {
        let (text, why, code) = run(words, "");
        assert_eq!((text.as_str(), code), ("", Some(1)), "{words:?}");
        assert!(why.starts_with(says), "{why}");
    }
    let scratch = Scratch::new("no-user").unwrap();
    let kubeconfig = r#"{"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}"#;
    let kubeconfig = scratch.write("kubeconfig", kubeconfig).unwrap().display().to_string();
    let words = ["status", "--as-group", "viewers", "--kubeconfig", &kubeconfig];
    let (_, why, code) = plugin(&words, "");
    assert_eq!(code, Some(1));
    assert!(why.contains("--as-group needs --as"), "{why}");
    for command in [&["explain", "cart"][..], &["status"]] {
        let (_, why, code) = plugin(&[command, &["--address", "127.0.0.1:1"]].concat(), "");
        assert_eq!(code, Some(1));
        assert!(why.contains("is a data plane's HTTP port there?"), "{why}");
    }
}

#[test]
fn a_word_that_is_not_utf_8_is_a_mistake_and_no_defect() {
    use std::os::unix::ffi::OsStrExt;
    let word = std::ffi::OsStr::from_bytes(b"\xff");
    let output = Command::new(program("kubectl-clusterdns")).arg(word).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

const BEFORE: &str = "crds/examples/quickstart/dns.yaml";
const EDITED: &str = "tests/golden/plugin/edited.yaml";

#[test]
fn diff_shows_settings_names_and_answers_and_ends_as_kubectl_diff_does() {
    let (text, why, code) = plugin(&["diff", "-f", EDITED, "--against", BEFORE], "");
    assert_eq!(code, Some(1), "{why}");
    is_golden("plugin/diff.txt", &text);

    let data_plane = data_plane();
    let http = data_plane.http().to_string();
    let at = ["diff", "-f", EDITED, "--against", BEFORE, "--address", &http];
    let (text, why, code) = plugin(&at, "");
    assert_eq!(code, Some(1), "{why}");
    is_golden("plugin/diff-today.txt", &text);

    // The data plane lets these clients ask only.
    let before = recorded("../../../crds/examples/quickstart/dns.yaml");
    let restricted = before.replacen("spec:\n", "spec:\n  access: {clients: [10.244.0.0/16]}\n", 1);
    assert_ne!(restricted, before);
    let scratch = Scratch::new("restricted").unwrap();
    let file = scratch.write("dns.yaml", restricted).unwrap();
    let data_plane = DataPlane::of_manifests(scratch.path());
    let (http, file) = (data_plane.http().to_string(), file.display().to_string());
    let run = |words: &[&str]| plugin(&[words, &["--address", &http]].concat(), "");
    let (text, why, _) = run(&["diff", "-f", EDITED, "--against", &file]);
    assert!(text.contains("ANSWERED TODAY") && !text.contains("REFUSED"), "{text}{why}");
    assert!(text.contains("asked as the client 10.244.0.1"), "{text}");
    let (text, why, _) =
        run(&["explain", "kubernetes.default.svc.cluster.local", "--client", "10.244.7.7"]);
    assert!(!text.contains("REFUSED") && !text.is_empty(), "{text}{why}");

    let (text, _, code) = plugin(&["diff", "-f", BEFORE, "--against", BEFORE], "");
    assert_eq!(code, Some(0));
    assert!(text.contains("nothing would change"), "{text}");
    for (edit, says) in [
        ("kind: Service\napiVersion: v1\n", "standard input has no ClusterDNS"),
        (
            "kind: ClusterDNS\napiVersion: clusterdns.dev/v1alpha1\nmetadata: {name: quickstart}\nspec: {ttlSeconds: -1}\n",
            "ttlSeconds",
        ),
        (
            "kind: ClusterDNS\napiVersion: clusterdns.dev/v1alpha1\nmetadata: {name: quickstart}\nspec: {domain: a..b}\n",
            "spec.domain",
        ),
        (
            "kind: ClusterDNS\napiVersion: clusterdns.dev/v1alpha1\nmetadata: {name: other}\nspec: {}\n",
            "has not one ClusterDNS other",
        ),
        (
            "kind: ClusterDNS\napiVersion: clusterdns.dev/v1alpha1\nmetadata: {name: quickstart}\nspec: {ttlSecond: 9}\n",
            "standard input:4: error: spec.ttlSecond: UnknownField",
        ),
        (
            "kind: ClusterDNS\napiVersion: clusterdns.dev/v1alpha1\nmetadata: {name: quickstart}\n",
            "error: spec: Missing",
        ),
    ] {
        let (text, why, code) = plugin(&["diff", "-f", "-", "--against", BEFORE], edit);
        assert_eq!((text.as_str(), code), ("", Some(2)), "{edit}");
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn top_shows_what_a_data_plane_was_asked_since_it_counts() {
    let data_plane = data_plane();
    let http = data_plane.http();
    // For longer than this test takes.
    let mut stream = TcpStream::connect(http).unwrap();
    let begin = "POST /top?seconds=600 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(begin.as_bytes()).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains("\"isOn\": true"), "{page}");
    for _ in 0..3 {
        data_plane.ask("db.data.svc.cluster.local. A", Transport::Udp);
    }
    data_plane.ask("none.data.svc.cluster.local. A", Transport::Tcp);

    let top = |kind: &str| {
        let (text, why, code) =
            plugin(&["top", kind, "--for", "1s", "--address", &http.to_string()], "");
        assert_eq!(code, Some(0), "{why}");
        text
    };
    let names = top("names");
    assert!(names.starts_with("names of "), "{names}");
    assert!(names.contains("1 pod: 4 queries\n"), "{names}");
    assert!(names.contains("3        -      75.0 %  db.data.svc.cluster.local. A\n"), "{names}");
    let denials = top("denials");
    assert!(denials.contains("25.0 %  none.data.svc.cluster.local. A\n"), "{denials}");
    assert!(!denials.contains("db.data"), "{denials}");
    assert!(top("clients").contains("100.0 %  127.0.0.1\n"));
    let (_, why, code) = plugin(&["top", "--for", "1h", "--address", &http.to_string()], "");
    assert_eq!(code, Some(1));
    assert!(why.contains("write 1s to 570s"), "{why}");
}

#[test]
fn shells_complete_what_the_program_offers() {
    let folder = program("kubectl-clusterdns").parent().unwrap().to_owned();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let run = |shell: &str, script: &str| {
        let output = Command::new(shell).arg("-c").arg(script).env("PATH", &path).output();
        String::from_utf8(output.expect("it runs").stdout).unwrap()
    };
    let bash = "source <(kubectl-clusterdns completion bash); COMP_WORDS=(kubectl-clusterdns explain cart --libc m); \
        COMP_CWORD=4; _kubectl_clusterdns; echo \"${COMPREPLY[@]}\"";
    assert_eq!(run("bash", bash), "musl\n");
    // kubectl runs the program that it finds with the words so far; the program prints the values, and that they are no
    // files.
    let kubectl = "kubectl-clusterdns completion kubectl > \"$0\" && sh \"$0\" top d";
    let scratch = Scratch::new("completion").unwrap();
    let file = scratch.path().join("kubectl_complete-clusterdns");
    let output = Command::new("sh").arg("-c").arg(kubectl).arg(&file).env("PATH", &path).output();
    let text = String::from_utf8(output.expect("it runs").stdout).unwrap();
    assert_eq!(text, "denials\tNames and types that are answered with NXDOMAIN\n:4\n");
}

#[test]
fn an_alias_without_records_of_the_type_leads_to_the_next_name() {
    let mut ask = async |name: &str, _: &str| {
        Ok(match name {
            "a.x." => r#"{"type": "AAAA", "status": "NOERROR", "answer": ["a.x. 5 IN CNAME only-ipv4.example."]}"#,
            "a.y." => r#"{"type": "AAAA", "status": "NOERROR", "answer": ["a.y. 5 IN AAAA 2001:db8::1"]}"#,
            _ => r#"{"status": "NXDOMAIN"}"#,
        }
        .to_owned())
    };
    let search = Search::new("a", &ResolvConf::read("search x y z\n"), Libc::Glibc).unwrap();
    let (asked, result) =
        futures::executor::block_on(questions(search, &["AAAA"], &mut ask)).unwrap();
    let names: Vec<_> = asked.iter().map(|it| (it.name.as_str(), it.outcome)).collect();
    assert_eq!(names, [("a.x.", Outcome::NoData), ("a.y.", Outcome::Found)]);
    assert_eq!(result, Outcome::Found);
}

#[test]
fn a_type_may_be_written_as_the_data_plane_takes_it() {
    let record = "_http._tcp.cart.shop. 5 IN SRV 0 100 80 cart.shop.";
    for (written, read) in [("srv", "SRV"), ("TYPE33", "SRV"), ("33", "SRV"), ("any", "ANY")] {
        let mut ask = async |_: &str, asked: &str| {
            assert_eq!(asked, written);
            let page = serde_json::json!({"type": read, "status": "NOERROR", "answer": [record]});
            Ok(page.to_string())
        };
        let conf = ResolvConf::read("search x y\noptions ndots:9\n");
        let search = Search::new("_http._tcp.cart.shop", &conf, Libc::Glibc).unwrap();
        let (asked, result) =
            futures::executor::block_on(questions(search, &[written], &mut ask)).unwrap();
        assert_eq!((asked.len(), result), (1, Outcome::Found), "{written}: the search ends");
        assert_eq!((asked[0].qtype.as_str(), asked[0].outcome), (read, Outcome::Found));
    }
}

#[test]
fn a_name_that_an_upstream_decides_is_not_said_to_be_missing() {
    let mut ask = async |name: &str, _: &str| {
        Ok(match name {
            "www.example.com." => r#"{"status": null, "origin": "unasked"}"#,
            _ => r#"{"status": "NXDOMAIN"}"#,
        }
        .to_owned())
    };
    let conf = ResolvConf::read("search x y\noptions ndots:2\n");
    let search = Search::new("www.example.com", &conf, Libc::Glibc).unwrap();
    let (asked, result) = futures::executor::block_on(questions(search, &["A"], &mut ask)).unwrap();
    assert_eq!((asked.len(), result), (3, Outcome::Unknown));
}
