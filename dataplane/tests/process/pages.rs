//! What the HTTP pages show after any questions: no secrets (S11), and no more series for more names (L6).

use std::collections::BTreeSet;

use super::harness::{Answer, Folder, Process, address, wait_for};
use super::tls::{PORT, own_address};
use super::{CART, service};

#[test]
fn s11_no_page_shows_a_key_and_nothing_else_is_served() {
    let (folder, certificates) = (Folder::new(), Folder::new());
    let made = rcgen::generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
    let (secret, key) = (certificates.0.join("dns-tls"), made.signing_key.serialize_pem());
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(secret.join("tls.key"), &key).unwrap();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let port = PORT + 3;
    let listeners =
        format!("{{listeners: {{tls: {{port: {port}, certificate: {{name: dns-tls}}}}}}}}");
    folder.write("dns.yaml", &super::cluster_dns(&listeners));
    let flags = ["--certificates-dir", certificates.0.to_str().unwrap(), "--expose-cache"];
    let process = Process::start_at(own_address(), &folder.0, &flags);
    wait_for("the certificate to be shown", || {
        process.config()["certificates"].as_array().is_some_and(|all| !all.is_empty()).then_some(())
    });
    assert_eq!(process.ask(CART), address("10.96.0.1"));

    let parts: Vec<&str> = key.lines().filter(|line| !line.starts_with("---")).collect();
    let explain = format!("/explain?name={CART}&type=A");
    let pages = ["/", "/livez", "/readyz", "/metrics", "/config", "/upstreams", "/cache", &explain];
    for page in pages {
        let (status, text) = process.get(page);
        assert_eq!(status, 200, "{page}");
        assert!(!text.is_empty() && !text.contains("PRIVATE KEY"), "{page}: {text}");
        assert!(parts.iter().all(|part| !text.contains(part)), "{page} shows the key");
    }
    let nothing = [
        "/debug/pprof",
        "/debug/pprof/profile",
        "/debug/vars",
        "/env",
        "/environ",
        "/dump",
        "/heap",
        "/quit",
        "/quitquitquit",
        "/shutdown",
        "/reload",
        "/health",
        "/static/",
        "/tls.key",
        "/certificates/dns-tls/tls.key",
        "/../certificates/dns-tls/tls.key",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/proc/self/environ",
        "/config/",
        "/config/document",
        "/metrics/all",
    ];
    for page in nothing {
        let (status, text) = process.get(page);
        assert!(matches!(status, 400 | 404), "{page}: {status} {text}");
        assert!(!text.contains("root:"), "{page}");
    }
}

#[test]
fn the_cache_is_shown_where_the_resource_says_so() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    folder.write("dns.yaml", &super::cluster_dns("{}"));
    let process = Process::start(&folder.0, &[]);
    let (status, text) = process.get("/cache");
    assert_eq!(status, 404);
    assert!(text.contains("spec.cache.expose") && text.contains("--expose-cache"), "{text}");
    for (spec, wanted) in [("{cache: {expose: true}}", 200), ("{cache: {expose: false}}", 404)] {
        folder.write("dns.yaml", &super::cluster_dns(spec));
        wait_for(spec, || (process.get("/cache").0 == wanted).then_some(()));
    }
}

/// Every series of the metrics, without its value.
fn series(process: &Process) -> BTreeSet<String> {
    let page = process.get("/metrics").1;
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
}

#[test]
fn l6_thousands_of_names_make_no_more_series_and_no_more_lines() {
    const NAMES: usize = 2_000;
    let folder = Folder::new();
    let port = super::denying_upstream();
    let spec = format!("{{upstreams: {{servers: [{{address: 127.0.0.1, port: {port}}}]}}}}");
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    folder.write("dns.yaml", &super::cluster_dns(&spec));
    let process = Process::start(&folder.0, &[]);
    let ask = |number: usize| {
        assert_eq!(process.ask(&format!("here-{number}.svc.cluster.local")), Answer::NxDomain);
        assert_eq!(process.ask(&format!("there-{number}.example")), Answer::NxDomain);
    };
    ask(0);
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    let before = series(&process);
    let lines = process.log().lines().count();
    (1..=NAMES).for_each(ask);
    let after = series(&process);
    let new: Vec<_> = after.difference(&before).collect();
    // Some series appear with the first event of their kind, such as a probe. No series is there for a name.
    assert!(new.len() < NAMES / 100, "{new:?}");
    assert!(new.iter().all(|series| !series.contains("here-")), "{new:?}");
    let log = process.log();
    assert!(log.lines().count() < lines + NAMES / 100, "{log}");
    assert!(!log.contains("there-"), "{log}");
}
