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

/// An upstream that has an A record for each name.
fn answering_upstream() -> u16 {
    const OPT: usize = 11;
    let upstream = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = upstream.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((octets, from)) = upstream.recv_from(&mut buffer) {
            let mut reply = buffer[..octets - OPT].to_vec();
            (reply[2], reply[3], reply[7], reply[11]) = (0x81, 0x80, 1, 0);
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4, 192, 0, 2, 9]);
            let _ = upstream.send_to(&reply, from);
        }
    });
    port
}

#[test]
fn the_pages_of_the_cache_show_every_entry_once_and_the_group_that_gave_it() {
    const NAMES: usize = 600;
    let (folder, port) = (Folder::new(), answering_upstream());
    let server = format!("[{{address: 127.0.0.1, port: {port}}}]");
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let spec = format!(
        "{{cache: {{expose: true}}, upstreams: {{servers: {server}}}, \
         stubDomains: [{{domain: corp.example, servers: {server}}}]}}"
    );
    folder.write("dns.yaml", &super::cluster_dns(&spec));
    let process = Process::start(&folder.0, &[]);
    let names: BTreeSet<String> = (0..NAMES)
        .map(|number| match number % 3 {
            0 => format!("n{number}.corp.example"),
            _ => format!("n{number}.example"),
        })
        .collect();
    for name in &names {
        assert_eq!(process.ask(name), address("192.0.2.9"), "{name}");
    }
    let read = |page: &str| -> serde_json::Value {
        let (status, text) = process.get(page);
        assert_eq!(status, 200, "{page}: {text}");
        serde_json::from_str(&text).unwrap()
    };
    let groups = read("/upstreams");
    let route = |name: &str| {
        let groups = groups["groups"].as_array().unwrap();
        groups.iter().find(|group| group["name"] == name).unwrap()["route"].clone()
    };
    let (mut shown, mut pages, mut from) = (BTreeSet::new(), 0, 0);
    loop {
        // A client may add parameters of its own.
        let page = read(&format!("/cache?pretty=1&from={from}"));
        for entry in page["entries"].as_array().unwrap() {
            let name = entry["name"].as_str().unwrap().trim_end_matches('.').to_owned();
            let group = if name.ends_with("corp.example") { "corp.example" } else { "upstreams" };
            assert_eq!(entry["route"], route(group), "{name}");
            assert!(shown.insert(name), "{entry} is shown twice");
        }
        pages += 1;
        match page["next"].as_u64() {
            Some(next) => from = next,
            None => break,
        }
    }
    assert!(pages > 1, "one page has at most 256 entries");
    assert!(names.is_subset(&shown), "{:?}", names.difference(&shown));
    for page in ["/cache?from=", "/cache?from=x", "/cache?from=-1", "/upstreams?format=xml"] {
        assert_eq!(process.get(page).0, 400, "{page}");
    }
    let text = process.get("/upstreams?a=b&format=text").1;
    assert!(text.starts_with("upstreams  Random"), "{text}");
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
