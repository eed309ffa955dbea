//! The program as people run it: flags, a folder that changes, signals.
#![allow(clippy::print_stderr)]

#[path = "../shared/missing.rs"]
mod missing;
mod harness;
mod namespaces;
mod start;
mod top;
mod why;
mod log;
mod taps;
mod tls;
mod http2;
mod flood;
mod descriptors;
mod load;
mod overload;
mod stopped;
mod fstrm;
mod pages;
mod kube_dns;
mod confined;
mod first_page;

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::{Answer, Folder, Process, address, wait_for};
use namespaces::in_namespaces;

fn service(name: &str, ip: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{clusterIP: {ip}}}\n---\n"
    )
}

fn cluster_dns(spec: &str) -> String {
    format!(
        "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {{name: main}}\nspec: {spec}\n"
    )
}

/// The port of an upstream on 127.0.0.1 that denies every name.
fn denying_upstream() -> u16 {
    let upstream = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = upstream.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((octets, from)) = upstream.recv_from(&mut buffer) {
            buffer[2] |= 0x80;
            buffer[3] = buffer[3] & 0xf0 | 3;
            let _ = upstream.send_to(&buffer[..octets], from);
        }
    });
    port
}

const CART: &str = "cart.shop.svc.cluster.local";

/// A process that answers for one Service, and its folder.
fn serving() -> (Folder, Process) {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let process = Process::start(&folder.0, &[]);
    (folder, process)
}

#[test]
fn changes_on_disk_are_live() {
    let (folder, process) = serving();
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    folder.write("a.yaml", &service("cart", "10.96.0.2"));
    process.wait_for_answer(CART, address("10.96.0.2"));
    folder.write("b.yaml", &service("web", "10.96.0.3"));
    process.wait_for_answer("web.shop.svc.cluster.local", address("10.96.0.3"));
    folder.remove("a.yaml");
    process.wait_for_answer(CART, Answer::NxDomain);
    assert_eq!(process.ask("web.shop.svc.cluster.local"), address("10.96.0.3"));
    assert_eq!(process.metric("clusterdns_objects{resource=\"services\"}"), 1.0);
}

/// A user namespace that may not have any file event; the scan comes every 10 s.
#[test]
fn changes_on_disk_are_live_without_file_events() {
    let script = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"";
    let Some(namespace) = in_namespaces("-r", script) else { return };
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let process = Process::start_by(&namespace, &folder.0, &[]);
    process.wait_for_log("no events from the file system");
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    folder.write("a.yaml", &service("cart", "10.96.0.2"));
    process.wait_for_answer(CART, address("10.96.0.2"));
}

#[test]
fn a_file_that_stops_parsing_keeps_its_last_good_content() {
    let (folder, process) = serving();
    folder.write("a.yaml", "kind: Service\n  metadata: [\n");
    let files = wait_for("the broken file to be reported", || {
        let files = process.config()["files"].clone();
        (!files.as_array().unwrap().is_empty()).then_some(files)
    });
    assert_eq!(files[0]["path"], "a.yaml");
    assert!(files[0]["error"].as_str().unwrap().starts_with("line 2"), "{files}");
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    assert_eq!(process.get("/readyz").0, 200, "D5");
    process.wait_for_log("a.yaml: line 2");
    folder.write("a.yaml", &service("cart", "10.96.0.9"));
    process.wait_for_answer(CART, address("10.96.0.9"));
    assert_eq!(process.metric("clusterdns_unusable_files"), 0.0);
}

#[test]
fn a_bad_cluster_dns_keeps_the_last_good_configuration() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let good = "{hosts: [{name: registry.corp.example, addresses: [10.20.0.5]}]}";
    folder.write("dns.yaml", &cluster_dns(good));
    let process = Process::start(&folder.0, &[]);
    let revision = process.config()["revision"].clone();
    assert_eq!(process.ask("registry.corp.example"), address("10.20.0.5"));

    folder.write(
        "dns.yaml",
        &cluster_dns("{stubDomains: [{domain: cluster.local, servers: [{address: 10.0.0.1}]}]}"),
    );
    let rejection = wait_for("the rejection to be reported", || {
        let rejection = process.config()["rejection"].clone();
        (!rejection.is_null()).then_some(rejection)
    });
    assert_eq!(rejection["violations"][0]["field"], "spec.stubDomains[0].domain");
    assert_eq!(rejection["violations"][0]["line"], 4);
    assert_eq!(process.config()["revision"], revision);
    assert_eq!(process.ask("registry.corp.example"), address("10.20.0.5"));
    assert_eq!(process.metric("clusterdns_config_rejected_total"), 1.0);
    assert_eq!(process.metric("clusterdns_config_is_rejected"), 1.0);
    assert_eq!(process.get("/readyz").0, 200, "D5");
    process.wait_for_log("configuration refused");
    let (_, page) = process.get("/");
    for part in ["Refused: ClusterDNS", "spec.stubDomains[0].domain", "UnderClusterDomain"] {
        assert!(page.contains(part), "{part} on the page: {page}");
    }

    folder.write(
        "dns.yaml",
        &cluster_dns("{hosts: [{name: registry.corp.example, addresses: [10.20.0.6]}]}"),
    );
    process.wait_for_answer("registry.corp.example", address("10.20.0.6"));
    assert!(process.config()["rejection"].is_null());
    assert_eq!(process.metric("clusterdns_config_is_rejected"), 0.0);
    assert!(!process.get("/").1.contains("Refused"));
}

#[test]
fn o1_a_misspelled_field_in_a_live_edit_is_logged_and_on_the_page() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    folder.write("dns.yaml", &cluster_dns("{ttlSeconds: 30}"));
    let process = Process::start(&folder.0, &[]);
    let revision = process.config()["revision"].clone();
    folder.write("dns.yaml", &cluster_dns("{ttlSeconds: 30, ttlSecond: 60}"));
    process.wait_for_log("fields this version does not know and ignores: spec.ttlSecond");
    assert_eq!(process.config()["revision"], revision, "nothing that runs has changed");
    let (_, page) = process.get("/");
    assert!(page.contains("spec.ttlSecond: this version does not know it"), "{page}");
    folder.write("dns.yaml", &cluster_dns("{ttlSeconds: 30, ttlSecondz: 60}"));
    process.wait_for_log("ignores: spec.ttlSecondz");
    assert_eq!(process.log().matches("does not know and ignores").count(), 2, "each list once");
}

#[test]
fn what_is_deleted_together_with_a_change_of_configuration_is_gone() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    folder.write("b.yaml", &service("old", "10.96.0.2"));
    let process = Process::start(&folder.0, &[]);
    assert_eq!(process.ask("old.shop.svc.cluster.local"), address("10.96.0.2"));
    // In one step, as a mounted ConfigMap changes: hidden files are not read.
    folder.write(".next", &cluster_dns("{domain: other.test}"));
    folder.remove("b.yaml");
    folder.rename(".next", "dns.yaml");
    process.wait_for_answer("cart.shop.svc.other.test", address("10.96.0.1"));
    process.wait_for_answer("old.shop.svc.other.test", Answer::NxDomain);
    assert_eq!(process.metric("clusterdns_objects{resource=\"services\"}"), 1.0);
}

#[test]
fn e44_a_cluster_dns_that_is_deleted_leaves_the_configuration_that_ran() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    folder.write("dns.yaml", &cluster_dns("{domain: other.test}"));
    let process = Process::start(&folder.0, &[]);
    folder.remove("dns.yaml");
    let warnings = wait_for("the loss to be logged", || {
        let warnings = process.config()["warnings"].clone();
        (!warnings.as_array().unwrap().is_empty()).then_some(warnings)
    });
    assert!(warnings[0].as_str().unwrap().contains("is gone"), "{warnings}");
    assert_eq!(process.ask("cart.shop.svc.other.test"), address("10.96.0.1"));
    folder.write("dns.yaml", &cluster_dns("{}"));
    process.wait_for_answer(CART, address("10.96.0.1"));
    assert_eq!(process.config()["warningCount"], 0);
}

#[test]
fn a34_an_upstream_that_is_the_process_itself_is_not_asked() {
    let folder = Folder::new();
    let process = Process::start(&folder.0, &[]);
    let port = process.dns.port();
    let upstreams = format!("{{upstreams: {{servers: [{{address: 127.0.0.1, port: {port}}}]}}}}");
    folder.write("dns.yaml", &cluster_dns(&upstreams));
    wait_for("the upstream", || {
        process.config()["document"]["upstreams"].is_object().then_some(())
    });
    assert_eq!(process.ask("www.example.org"), Answer::Other(2), "SERVFAIL");
    let forwarded = "clusterdns_queries_total{transport=\"udp\",reason=\"forward\"}";
    assert_eq!(process.metric(forwarded), 1.0, "and did not come back");
    process.wait_for_log("is an address this process answers on");
}

#[test]
fn a_folder_that_is_deleted_keeps_answering_and_one_made_again_is_followed() {
    let above = Folder::new();
    let folder = above.0.join("manifests");
    let write = |ip: &str| {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.yaml"), service("cart", ip)).unwrap();
    };
    write("10.96.0.1");
    let process = Process::start(&folder, &[]);
    std::fs::remove_dir_all(&folder).unwrap();
    wait_for("the loss to be logged", || {
        (process.metric("clusterdns_unusable_files") == 1.0).then_some(())
    });
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    write("10.96.0.2");
    process.wait_for_answer(CART, address("10.96.0.2"));
    assert_eq!(process.metric("clusterdns_unusable_files"), 0.0);
}

#[test]
fn e15_what_is_not_served_is_named_and_the_rest_is_served() {
    let folder = Folder::new();
    let malformed = "apiVersion: v1\nkind: Service\nmetadata: {name: bad, namespace: shop}\nspec: {ports: [{port: http}]}\n---\n";
    folder.write("a.yaml", &format!("{malformed}{}", service("cart", "10.96.0.1")));
    folder.write("b.yaml", &service("pending", "''"));
    folder.write(
        "c.yaml",
        &service("byip", "10.96.0.2")
            .replace("clusterIP: 10.96.0.2", "type: ExternalName, externalName: 192.0.2.77"),
    );
    let process = Process::start(&folder.0, &[]);
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    let config = process.config();
    let listed: Vec<String> = config["skippedObjects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["name"].to_string())
        .collect();
    assert_eq!(listed, ["\"bad\"", "\"byip\"", "\"pending\""]);
    assert_eq!(config["skippedObjectCount"], 3);
    process.wait_for_log("shop/pending");
    assert_eq!(process.log().matches("not served in full: Service shop/bad").count(), 1);
}

#[test]
fn wr47_http_says_how_it_is_and_nothing_more() {
    let (_folder, process) = serving();
    assert_eq!(process.get("/livez"), (200, "ok\n".to_owned()));
    assert_eq!(process.get("/readyz"), (200, "ready\n".to_owned()));
    for absent in ["/index.html", "/debug/pprof/", "/debug/vars", "/quit"] {
        assert_eq!(process.get(absent).0, 404, "S11: {absent}");
    }
    process.ask(CART);
    process.ask("nothere.shop.svc.cluster.local");
    let found = "clusterdns_queries_total{transport=\"udp\",reason=\"found\"}";
    assert_eq!(process.metric(found), 1.0);
    assert_eq!(
        process.metric("clusterdns_data_source{resource=\"services\",source=\"live\"}"),
        1.0
    );
    // WR47: no name is a label.
    let (_, metrics) = process.get("/metrics");
    assert!(!metrics.contains("cart") && !metrics.contains("nothere"));
}

#[test]
fn d6_a_client_that_holds_every_http_connection_cannot_keep_probes_out() {
    let folder = Folder::new();
    let process = Process::start(&folder.0, &[]);
    let held: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(process.http).unwrap();
            stream.write_all(b"GET /livez HT").unwrap();
            stream
        })
        .collect();
    assert_eq!(process.get("/livez").0, 200);
    assert_eq!(process.get("/readyz").0, 200);
    drop(held);
}

#[test]
fn e45_sigterm_answers_for_the_whole_period_and_ends_well() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let mut process = Process::start(&folder.0, &["--drain-seconds", "2"]);
    process.signal("TERM");
    let start = Instant::now();
    let (mut answered, mut last) = (0, start);
    while start.elapsed() < Duration::from_millis(1900) {
        last = Instant::now();
        assert_eq!(process.ask(CART), address("10.96.0.1"), "every query is answered");
        answered += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(answered > 0 && !process.has_ended(), "the period is not over");
    assert_eq!(process.get("/readyz").0, 200, "not before 5 s");
    let status = process.wait();
    assert!(last.elapsed() >= Duration::from_millis(900), "a second without a query");
    assert!(start.elapsed() >= Duration::from_millis(1900), "the whole period");
    assert_eq!(status.code(), Some(0));
}

/// The drain is 8 s instead of 20, and G121 is left to the tests of the forwarder: a drain treats that question like all
/// others.
#[test]
fn g164_after_sigterm_everything_is_answered_while_readiness_ends() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let mut process = Process::start(&folder.0, &["--drain-seconds", "8"]);
    // Before the signal: sending it takes a moment.
    let start = Instant::now();
    process.signal("TERM");
    let mut unready_after = None;
    while start.elapsed() < Duration::from_millis(7900) {
        assert_eq!(process.ask(CART), address("10.96.0.1"), "every query is answered");
        if unready_after.is_none() && process.get("/readyz").0 == 503 {
            unready_after = Some(start.elapsed());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!process.has_ended(), "the period is not over");
    assert!(unready_after.expect("not ready any more") >= Duration::from_millis(4900));
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn sigint_ends_well_and_hurries_a_drain() {
    let (folder, mut process) = serving();
    process.signal("INT");
    assert_eq!(process.wait().code(), Some(0));

    let mut process = Process::start(&folder.0, &["--drain-seconds", "3600"]);
    process.signal("TERM");
    wait_for("the drain to begin", || process.log().contains("draining").then_some(()));
    process.signal("INT");
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn the_quickstart_is_served_without_a_complaint_and_shown_as_a_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/examples/quickstart");
    let process = Process::start(&folder, &["--print-names"]);
    let config = process.config();
    for complaint in ["skippedObjects", "files", "warnings", "unknownFields"] {
        assert_eq!(config[complaint].as_array().unwrap().len(), 0, "{complaint}: {config}");
    }
    let table = wait_for("the table", || {
        let output = process.output();
        output.contains("Ctrl-C").then_some(output)
    });
    let rows = [
        ("cart.shop.svc.cluster.local", "A", "10.96.10.1"),
        ("api.shop.svc.cluster.local", "AAAA", "fd00:96::102"),
        ("db-0.db.data.svc.cluster.local", "A", "10.244.1.21"),
        ("mail.shop.svc.cluster.local", "CNAME", "mail.example.com"),
        ("_http._tcp.cart.shop.svc.cluster.local", "SRV", "port 80 of cart.shop.svc.cluster.local"),
        ("registry.corp.example", "A", "10.20.0.5"),
    ];
    for (name, kind, answer) in rows {
        let is_row = |line: &str| {
            let (left, right) = line.split_once("  ").unwrap_or_default();
            left == name
                && right.trim_start().starts_with(kind)
                && line.ends_with(&format!("  {answer}"))
        };
        assert!(table.lines().any(is_row), "{name} {kind} {answer} in\n{table}");
    }
    assert!(!table.contains("db-2."), "an endpoint that is not ready has no name");
    assert_eq!(table.lines().filter(|line| line.starts_with("  dig @127.0.0.1 -p ")).count(), 3);
    assert_eq!(process.ask("cart.shop.svc.cluster.local"), address("10.96.10.1"));
}
