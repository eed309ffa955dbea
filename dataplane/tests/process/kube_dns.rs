//! The ports of kube-dns, on the address of the HTTP port, as scrapers and probes of kube-dns use them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::harness::{Folder, Process, address, wait_for};
use super::tls::own_address;
use super::{CART, cluster_dns, service};

const HEALTH: u16 = 8081;
const SIDECAR: u16 = 10_054;
const RESOLVER: u16 = 10_055;

/// Status and body of a GET; nothing while the port is closed.
fn get(at: Ipv4Addr, port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(SocketAddr::from((at, port))).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// The report of a probe, once it has asked.
fn report(at: Ipv4Addr, label: &str) -> (u16, Value) {
    wait_for("a probe", || {
        let (status, body) = get(at, SIDECAR, &format!("/healthcheck/{label}"))?;
        let report: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        (report["Err"] != "not asked yet").then_some((status, report))
    })
}

#[test]
fn o18_the_ports_of_kube_dns_answer_as_its_sidecar_did() {
    let folder = Folder::new();
    // Not the address of other tests of this process, which are different ones of the machine.
    let [_, b, c, d] = own_address().octets();
    let at = Ipv4Addr::new(127, b ^ 0x80, c, d);
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    folder.write("dns.yaml", &cluster_dns("{metrics: {compatibility: [CoreDNS]}}"));
    let process = Process::start_at(at, &folder.0, &[]);
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    assert_eq!(get(at, SIDECAR, "/metrics"), None, "closed until it is asked for");

    let probes = format!(
        "[{{label: cart, name: {CART}, type: A, intervalSeconds: 1}}, \
         {{label: gone, name: gone.{CART}, intervalSeconds: 1}}]"
    );
    folder.write(
        "dns.yaml",
        &cluster_dns(&format!("{{metrics: {{compatibility: [KubeDNS], probes: {probes}}}}}")),
    );
    wait_for("the ports to open", || get(at, HEALTH, "/readiness")?.1.contains("ok").then_some(()));
    let (status, cart) = report(at, "cart");
    assert_eq!((status, &cart["IsOk"], &cart["Err"]), (200, &Value::Bool(true), &Value::Null));
    assert!(cart["LatencySeconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{cart}");
    let (status, gone) = report(at, "gone");
    assert_eq!((status, &gone["IsOk"]), (503, &Value::Bool(false)), "{gone}");
    assert_eq!(gone["Err"], "the response code is 3");
    assert_eq!(get(at, SIDECAR, "/healthcheck/other").unwrap().0, 404);

    wait_for("several probes to be counted", || {
        let page = get(at, SIDECAR, "/metrics")?.1;
        let value = |name: &str| -> f64 {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name}\n{page}")).parse().unwrap()
        };
        assert!(page.contains("kubedns_probe_cart_latency_ms_bucket{le=\"0.25\"}"), "{page}");
        assert!(page.contains("kubedns_dnsmasq_hits ") && !page.contains("skydns_"), "{page}");
        let counted = value("kubedns_probe_cart_latency_ms_count");
        (counted >= 2.0 && value("kubedns_probe_gone_errors") >= 2.0).then_some(())
    });
    let page = get(at, RESOLVER, "/metrics").unwrap().1;
    assert!(page.contains("skydns_skydns_dns_request_count_total{system=\"auth\"}"), "{page}");
    assert!(!page.contains("kubedns_") && !page.contains("clusterdns_"), "{page}");
    assert_eq!(get(at, HEALTH, "/cache").unwrap().0, 404, "what clients asked is not shown");

    folder.write("dns.yaml", &cluster_dns("{metrics: {compatibility: []}}"));
    wait_for("the ports to close", || get(at, HEALTH, "/readiness").is_none().then_some(()));
}
