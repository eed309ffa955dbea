//! The real Prometheus scrapes real programs while clients ask them: what people ask of CoreDNS gives a series, with the
//! value that was counted, and the alerts that the operator writes find theirs.

mod native;
mod ours;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::client::{Question, Transport};
use tests::control_plane::{ControlPlane, Setup, not_run, path_of};
use tests::crd::install;
use tests::data_plane::DataPlane;
use tests::http;
use tests::operator::{Operator, apply};
use tests::process::Process;
use tests::scratch::Scratch;
use tests::upstream::{Script, ScriptedUpstream};
use tests::usage::Usage;

/// Generous: Prometheus starts slowly on a busy machine, and needs two scrapes for a rate.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);
/// Rounds of the questions below that each data plane is asked: what is counted is known before.
const ROUNDS: usize = 400;
/// How many ask each data plane at a time; they share the rounds.
const CLIENTS: usize = 4;
/// What one round asks, each over UDP: its name and type.
const QUESTIONS: [&str; 5] = [
    "web.shop.svc.cluster.local. A",
    "web.shop.svc.cluster.local. AAAA",
    "nothere.shop.svc.cluster.local. A",
    "www.example.org. A",
    "bad.example.net. TXT",
];
const UPSTREAM: &str = "\
www.example.org. A
    answer @ 600 A 192.0.2.80
bad.example.net. *
    rcode SERVFAIL
";
/// The pod of the operator.
const OPERATOR: &str = "clusterdns-operator-0";
/// What people use against CoreDNS: a source and an expression each line.
const EXPRESSIONS: &str = include_str!("../it/metrics/coredns.txt");

/// A Service of the cluster, and the ClusterDNS that sends everything else to this server.
fn manifests(upstream: SocketAddr) -> String {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ports": [{"name": "http", "port": 80}]}});
    let servers = json!([{"address": upstream.ip().to_string(), "port": upstream.port()}]);
    let dns = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": "a"},
        "spec": {"upstreams": {"servers": servers}, "hosts": [{"name": "a.example", "addresses": ["192.0.2.1"]}]}});
    format!("{service}\n---\n{dns}\n")
}

/// What is scraped under one name.
struct Job<'a> {
    name: &'a str,
    targets: Vec<SocketAddr>,
    /// The pod that all of them are said to be.
    pod: &'a str,
    /// More settings of it; empty for none.
    more: &'a str,
}

impl Job<'_> {
    fn new(name: &str, targets: Vec<SocketAddr>) -> Job<'_> {
        Job { name, targets, pod: "clusterdns-a", more: "" }
    }
}

/// A running Prometheus and where it answers; both end when dropped.
struct Prometheus {
    process: Process,
    address: SocketAddr,
    _folder: Scratch,
}

impl Prometheus {
    /// Scrapes these programs every second. `None` where it is not built; this is printed.
    fn start(jobs: &[Job<'_>]) -> Option<Prometheus> {
        let program = path_of("prometheus");
        if !program.exists() {
            not_run("prometheus; `make tools` builds it");
            return None;
        }
        let folder = Scratch::new("prometheus").expect("a scratch directory");
        let mut text = String::from("global: {scrape_interval: 1s}\nscrape_configs:\n");
        for Job { name, targets, pod, more } in jobs {
            let targets: Vec<String> = targets.iter().map(|it| format!("'{it}'")).collect();
            // The labels that a PodMonitor gives.
            let namespace = if *pod == OPERATOR { "clusterdns-system" } else { "kube-system" };
            let labels = format!("pod: {pod}, namespace: {namespace}");
            let _ = writeln!(
                text,
                "- {{job_name: {name}, static_configs: [{{targets: [{}], labels: {{{labels}}}}}], {more}}}",
                targets.join(", ")
            );
        }
        folder.write("prometheus.yml", text).expect("a file");
        let flags = [
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            "--web.listen-address=127.0.0.1:0",
        ];
        let process = Process::start(&program, &flags, folder.path()).expect("it starts");
        let address = until("the address of Prometheus", || {
            // msg="Listening on" address=127.0.0.1:40123
            let log = process.printed();
            let line = log.lines().find(|line| line.contains("Listening on"))?;
            let rest = line.split("address=").nth(1)?;
            rest.split_whitespace().next()?.trim_matches('"').parse().ok()
        });
        Some(Prometheus { process, address, _folder: folder })
    }

    /// The values of an instant query by their labels, as text; `None` while it gives none.
    fn query(&self, expression: &str) -> Option<Vec<(Value, f64)>> {
        let (status, body) =
            http::get(self.address, &format!("/api/v1/query?query={}", encoded(expression)))
                .ok()?;
        // 503 until it has read its storage.
        if status == 503 {
            return None;
        }
        assert_eq!(status, 200, "{expression}: {body}\n{}", self.process.log_tail());
        let reply: Value =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        let rows = reply["data"]["result"].as_array().expect("a vector").iter().map(|row| {
            let value = row["value"][1].as_str().expect("a value");
            (row["metric"].clone(), value.parse().unwrap_or(f64::NAN))
        });
        Some(rows.collect::<Vec<_>>()).filter(|rows| !rows.is_empty())
    }

    /// Waits until an expression has this one value.
    fn expect(&self, expression: &str, expected: f64) {
        let mut last = None;
        let deadline = Instant::now() + PATIENCE;
        while last.as_ref().is_none_or(|rows: &Vec<(Value, f64)>| {
            rows.len() != 1 || rows.iter().any(|(_, value)| (value - expected).abs() > 1e-9)
        }) {
            assert!(Instant::now() < deadline, "{expression} is {last:?}, not {expected}");
            std::thread::sleep(POLL);
            last = self.query(expression);
        }
    }
}

/// Waits until there is something.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(POLL);
    }
}

/// An expression as part of a URL (RFC 3986 §2.1).
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, octet| {
        match octet.is_ascii_alphanumeric() {
            true => all.push(char::from(octet)),
            false => {
                let _ = write!(all, "%{octet:02X}");
            }
        }
        all
    })
}

/// Asks each data plane each question of each round, several clients at a time; how often each response code came.
fn ask(planes: &[DataPlane]) -> BTreeMap<&'static str, f64> {
    let ask = |plane: &DataPlane, question: &str, over: Transport| {
        let reply = plane.ask(question, over);
        let code =
            ["NOERROR", "NXDOMAIN", "SERVFAIL"].into_iter().find(|it| reply.status.contains(it));
        code.unwrap_or("other")
    };
    let rounds = |plane: &DataPlane| {
        let questions = (0..ROUNDS / CLIENTS).flat_map(|_| QUESTIONS);
        questions.map(|question| ask(plane, question, Transport::Udp)).collect::<Vec<_>>()
    };
    let mut codes = std::thread::scope(|scope| {
        let clients = planes.iter().flat_map(|plane| [plane; CLIENTS]);
        let clients: Vec<_> = clients.map(|plane| scope.spawn(move || rounds(plane))).collect();
        let heard = clients.into_iter().map(|client| client.join().expect("a client"));
        heard.flatten().collect::<Vec<_>>()
    });
    codes.extend(planes.iter().map(|plane| ask(plane, QUESTIONS[0], Transport::Tcp)));
    let mut heard = BTreeMap::new();
    for code in codes {
        *heard.entry(code).or_insert(0.0) += 1.0;
    }
    heard
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_prometheus_finds_what_people_ask_of_coredns_with_its_values() {
    let setup = Setup { controllers: false, ..Setup::default() };
    let Some(control_plane) = ControlPlane::start(setup).await else { return };
    let client = control_plane.client().await;
    install(&client).await;
    let mut operator = Operator::start(control_plane.kubeconfig(), "kube-system");
    let operator_at = until("the address of the operator", || {
        let log = operator.process().printed();
        let line = log.lines().find(|line| line.contains("serving probes and metrics"))?;
        let port = line.split("127.0.0.1:").nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
    });

    let upstream = ScriptedUpstream::start(Script::one(UPSTREAM).unwrap()).unwrap();
    let folder = Scratch::new("prometheus-manifests").unwrap();
    folder.write("objects.yaml", manifests(upstream.address())).unwrap();
    let planes = [(); 2].map(|()| DataPlane::of_manifests(folder.path()));
    let of_planes = || planes.iter().map(DataPlane::http).collect();
    let jobs = [
        Job::new("kube-dns", of_planes()),
        Job::new(ours::JOB, of_planes()),
        Job { pod: OPERATOR, ..Job::new("clusterdns-operator", vec![operator_at]) },
        Job {
            pod: OPERATOR,
            more: native::NATIVE,
            ..Job::new("operator-native", vec![operator_at])
        },
    ];
    // The operator has something to do: conditions and writes.
    apply(&client, "default", json!({})).await;
    // Scraped before, during and after the questions.
    let Some(prometheus) = Prometheus::start(&jobs) else { return };
    prometheus.expect(r#"sum(up{job="kube-dns"})"#, 2.0);
    prometheus.expect(r#"sum(up{job="clusterdns-operator"})"#, 1.0);
    let heard = ask(&planes);
    // An upstream that a busy machine delays may fail; what clients heard is what must be counted.
    let code = |name: &str| heard.get(name).copied().unwrap_or_default();
    let all: f64 = heard.values().sum();
    let rounds = (planes.len() * ROUNDS) as f64;
    assert!((all - rounds * 5.0 - 2.0).abs() < 1e-9 && code("SERVFAIL") >= rounds, "{heard:?}");
    // The questions of all rounds, and the two over TCP.
    let octets =
        |question: &str| Question::parse(question).expect("a question").packet.len() as f64;
    let octets = rounds * QUESTIONS.map(octets).iter().sum::<f64>() + 2.0 * octets(QUESTIONS[0]);
    // The upstream gives NOERROR for one name only.
    let given = upstream.times_asked("www.example.org.") as f64;
    let server = r#"job="kube-dns",server="dns://:53",zone=".",view="""#;
    let cache = r#"job="kube-dns",server="dns://:53",zones=".",view="""#;
    for (expression, value) in [
        (format!("sum(coredns_dns_requests_total{{{server}}})"), all),
        (format!(r#"sum(coredns_dns_requests_total{{{server},proto="udp",type="A"}})"#), rounds * 3.0),
        (format!(r#"sum(coredns_dns_requests_total{{{server},proto="tcp"}})"#), 2.0),
        (format!(r#"sum(coredns_dns_responses_total{{{server},rcode="NXDOMAIN"}})"#), code("NXDOMAIN")),
        (format!(r#"sum(coredns_dns_responses_total{{{server},rcode="SERVFAIL"}})"#), code("SERVFAIL")),
        (format!(r#"sum(coredns_dns_responses_total{{{server},plugin="kubernetes"}})"#), rounds * 3.0 + 2.0),
        (format!("sum(coredns_dns_request_duration_seconds_count{{{server}}})"), all),
        (format!("sum(coredns_cache_requests_total{{{cache}}})"), rounds * 2.0),
        (r#"sum(clusterdns_questions_total{job="kube-dns"})"#.to_owned(), all),
        (r#"sum(coredns_hosts_entries{job="kube-dns"})"#.to_owned(), 2.0),
        (
            format!("sum(coredns_cache_hits_total{{{cache}}}) + sum(coredns_cache_misses_total{{{cache}}})"),
            rounds * 2.0,
        ),
        (r#"sum(coredns_cache_entries{job="kube-dns",type="success"})"#.to_owned(), 2.0),
        (format!("sum(coredns_dns_request_size_bytes_sum{{{server}}})"), octets),
        (format!("sum(coredns_dns_request_size_bytes_count{{{server}}})"), all),
        (format!("sum(coredns_dns_response_size_bytes_count{{{server}}})"), all),
        (r#"sum(coredns_forward_responses_total{job="kube-dns",rcode="NOERROR"})"#.to_owned(), given),
        (
            r#"sum(coredns_proxy_request_duration_seconds_count{job="kube-dns",rcode="NOERROR"})"#.to_owned(),
            given,
        ),
        (r#"count(coredns_build_info{job="kube-dns"})"#.to_owned(), 2.0),
        (r#"sum(coredns_panics_total{job="kube-dns"})"#.to_owned(), 0.0),
        (r#"sum(coredns_dns_do_requests_total{job="kube-dns"})"#.to_owned(), 0.0),
        (r#"sum(coredns_cache_evictions_total{job="kube-dns"})"#.to_owned(), 0.0),
        (r#"sum(coredns_forward_max_concurrent_rejects_total{job="kube-dns"})"#.to_owned(), 0.0),
        // The share of SERVFAIL, as the mixin's alert computes it, but from the start.
        (
            r#"sum(coredns_dns_responses_total{rcode="SERVFAIL"}) / sum(coredns_dns_responses_total)"#
                .to_owned(),
            code("SERVFAIL") / all,
        ),
    ] {
        prometheus.expect(&expression, value);
    }

    let expressions = EXPRESSIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut count = 0;
    for line in expressions {
        let (source, expression) = line.split_once(' ').expect("a source and an expression");
        // Few octets, however many series there are.
        let counted = format!("count({expression})");
        until(&format!("a series of {source} {expression}"), || prometheus.query(&counted));
        count += 1;
    }
    assert!(count > 60, "{count} expressions");
    ours::find_their_series(&prometheus);
    let process = operator.process().pid().expect("the operator runs");
    ours::show_what_the_operator_uses(&prometheus, operator_at, Usage::of(process));
    // Of the same scrape, so the native and the classic histogram have the same count.
    let of = "clusterdns_operator_reconcile_duration_seconds";
    prometheus.expect(
        &format!(
            r#"count(histogram_count({of}{{job="operator-native"}}) == {of}_count{{job="operator-native"}})"#
        ),
        1.0,
    );
    prometheus.expect(r#"count(clusterdns_operator_is_leader{job="clusterdns-operator"})"#, 1.0);
    assert_eq!(
        prometheus.query(r#"absent(up{job="kube-dns"} == 1)"#),
        None,
        "CoreDNSDown of the mixin"
    );
}
