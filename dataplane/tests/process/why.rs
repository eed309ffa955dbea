//! The pages for people: `/explain` and `/`, of a program that runs.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Folder, Process, wait_for};

const CHROMIUM: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

const OBJECTS: &str = "\
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {type: ClusterIP, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1]}
---
apiVersion: v1
kind: Service
metadata: {name: broken, namespace: shop}
spec: {type: ExternalName, externalName: \"<b>no name</b>\"}
";

fn start() -> (Folder, Process) {
    let folder = Folder::new();
    folder.write("a.yaml", OBJECTS);
    let process = Process::start(&folder.0, &[]);
    (folder, process)
}

#[test]
fn an_answer_is_explained_with_the_objects_that_it_rests_on() {
    let (_folder, process) = start();
    // A folder has neither uids nor versions; a busy source has not said so yet.
    let object = "object Service shop/cart, uid -, version -\n";
    let text = wait_for("the objects of an explanation", || {
        let (status, text) = process.get("/explain?name=cart.shop.svc.cluster.local");
        assert_eq!(status, 200, "{text}");
        text.contains(object).then_some(text)
    });
    assert!(text.contains("cart.shop.svc.cluster.local. 5 IN A 10.96.0.1\n"), "{text}");

    let path = "/explain?name=cart.shop.svc.cluster.local&type=AAAA&format=json";
    let json: Value = wait_for("the state of the object", || {
        let (_, text) = process.get(path);
        let json: Value = serde_json::from_str(&text).unwrap();
        (json["steps"][0]["objects"][0]["state"] == "held").then_some(json)
    });
    assert_eq!((&json["reason"], &json["rule"]["id"]), (&"no_data".into(), &"N11".into()));
}

#[test]
fn nonsense_is_a_400_that_says_what_is_wrong() {
    let (_folder, process) = start();
    for (path, expected) in [
        ("/explain", "name is missing"),
        ("/explain?name=a..b", "a..b"),
        ("/explain?name=a&type=B", "no record type"),
        ("/explain?name=a&client=me", "no IP address"),
    ] {
        let (status, text) = process.get(path);
        assert_eq!(status, 400, "{path}: {text}");
        assert!(text.contains(expected), "{path}: {text}");
    }
}

#[test]
fn an_explanation_counts_no_query() {
    let (_folder, process) = start();
    let before = process.metric("clusterdns_queries_total{transport=\"udp\",reason=\"found\"}");
    assert_eq!(process.get("/explain?name=cart.shop.svc.cluster.local").0, 200);
    assert_eq!(
        process.metric("clusterdns_queries_total{transport=\"udp\",reason=\"found\"}"),
        before
    );
}

#[test]
fn the_page_shows_what_runs_and_escapes_what_others_wrote() {
    let (_folder, process) = start();
    let page = wait_for("the skipped object to be reported", || {
        let (status, page) = process.get("/?name=%3Cscript%3Ealert(1)%3C/script%3E");
        assert_eq!(status, 200);
        page.contains("shop/broken").then_some(page)
    });
    assert!(page.contains("State: ready."), "{page}");
    assert!(!page.contains("<script") && !page.contains("<b>no name"), "{page}");
    for foreign in ["src=", "http://", "https://", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign} in {page}");
    }
    let head = process.head("/");
    let policy = head.lines().find(|line| line.starts_with("content-security-policy: ")).unwrap();
    assert!(policy.contains("default-src 'none'; style-src 'nonce-"), "{policy}");
    let nonce = policy.split("nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert_eq!(nonce.len(), 16);
    assert!(!process.head("/").contains(nonce), "another one for each page");
}

#[test]
fn the_page_tells_upstreams_at_one_address_apart() {
    let folder = Folder::new();
    let server = |name| {
        format!("{{address: 127.0.0.1, port: 1, transport: TLS, tls: {{serverName: {name}}}}}")
    };
    let servers = ["one.example", "two.example"].map(server).join(", ");
    folder.write(
        "a.yaml",
        &format!(
            "{{apiVersion: clusterdns.dev/v1alpha1, kind: ClusterDNS, metadata: {{name: a}}, \
             spec: {{upstreams: {{servers: [{servers}]}}}}}}\n"
        ),
    );
    let process = Process::start(&folder.0, &[]);
    let (_, page) = process.get("/");
    for name in ["one.example", "two.example"] {
        assert!(page.contains(&format!("<td>127.0.0.1:1 TLS {name}</td>")), "{page}");
    }
}

#[test]
fn what_was_typed_into_the_box_stays_there_when_it_is_wrong() {
    let (_folder, process) = start();
    let boxes = |query: &str| {
        let (_, page) = process.get(&format!("/?{query}"));
        let value = |name: &str| {
            let rest = page.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        (value("name"), value("type"))
    };
    let typed = |name: &str, qtype: &str| (name.to_owned(), qtype.to_owned());
    assert_eq!(boxes("name=a..b&type=A"), typed("a..b", "A"));
    assert_eq!(boxes("name=cart.shop&type=zz"), typed("cart.shop", "zz"));
    assert_eq!(boxes("name=&type=AAAA"), typed("", "AAAA"));
    assert_eq!(boxes("type="), typed("", "A"), "the usual one");
    assert_eq!(boxes("name=%22%3E&type=zz"), typed("&quot;&gt;", "zz"), "escaped");
}

#[test]
fn the_page_explains_an_answer_in_a_real_browser() {
    let found = CHROMIUM.into_iter().find(|name| {
        let mut command = Command::new(name);
        let version = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    });
    let Some(browser) = found else {
        eprintln!("not run: none of {CHROMIUM:?} is installed");
        return;
    };
    let (folder, process) = start();
    let profile = Folder::new();
    let url = format!("http://{}/?name=cart.shop.svc.cluster.local&type=A", process.http);
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--window-size=360,640", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.0.display()))
        .arg(url)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    assert!(dom.contains("<pre id=\"explained\">cart.shop.svc.cluster.local. A"), "{dom}");
    assert!(dom.contains("object Service shop/cart, uid -, version -"), "{dom}");
    assert!(
        dom.contains("value=\"cart.shop.svc.cluster.local.\""),
        "the box keeps the name: {dom}"
    );
    drop(folder);
}
