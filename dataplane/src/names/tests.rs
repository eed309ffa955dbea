//! Which names a table asks for, and how its page reads.

use super::*;
use crate::source::objects_from_yaml;

const SHOP: &str = "
{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}, {port: 81}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: db, namespace: data}, spec: {clusterIP: None}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: db-x, namespace: data, labels: {kubernetes.io/service-name: db}}, addressType: IPv4, endpoints: [{addresses: [10.244.0.1], hostname: db-0}]}
";

fn config(json: &str) -> Config {
    Config::from_json(json).expect(json).0
}

#[test]
fn names_come_from_services_endpoints_ports_and_extra_records() {
    let (objects, _) = objects_from_yaml(SHOP).unwrap();
    let config = config(
        r#"{"format":1,"domain":"c.example","hosts":[{"name":"registry.corp.example","addresses":["10.20.0.5"]}]}"#,
    );
    let questions = questions(&config, objects.into_iter());
    let names: Vec<&str> = questions.iter().map(|question| question.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "db.data.svc.c.example",
            "db-0.db.data.svc.c.example",
            "cart.shop.svc.c.example",
            "_http._tcp.cart.shop.svc.c.example",
            "registry.corp.example",
        ]
    );
}

fn row(name: &str, kind: &'static str) -> Row {
    Row { name: name.into(), kind, value: "x".into() }
}

#[test]
fn three_lines_to_try_name_the_address_that_listens() {
    let rows = [row("a", "A"), row("b", "AAAA"), row("_c", "SRV"), row("d", "TXT")];
    let lines = |address: &str| {
        let text = tries(&rows, &[address.parse().unwrap()], None);
        text.lines().filter(|l| l.starts_with("  dig")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        lines("127.0.0.1:5300"),
        [
            "  dig @127.0.0.1 -p 5300 a A",
            "  dig @127.0.0.1 -p 5300 _c SRV",
            "  dig @127.0.0.1 -p 5300 d TXT"
        ]
    );
    assert_eq!(lines("0.0.0.0:53")[0], "  dig @127.0.0.1 -p 53 a A");
    assert_eq!(lines("[::]:53")[0], "  dig @::1 -p 53 a A");
}

#[test]
fn the_page_that_explains_answers_is_shown_as_this_machine_reaches_it() {
    let shown = [
        ("127.0.0.1:9153", "http://127.0.0.1:9153/"),
        ("0.0.0.0:9154", "http://127.0.0.1:9154/"),
        ("[::]:9153", "http://[::1]:9153/"),
    ];
    for (http, page) in shown {
        let text = tries(&[row("a", "A")], &[http.parse().unwrap()], Some(http.parse().unwrap()));
        assert!(
            text.contains(&format!("\nWhy is an answer as it is? {page} explains it.\n")),
            "{text}"
        );
    }
}

#[test]
fn long_tables_are_cut_and_say_so() {
    let text = table(&[row("a.b", "A")], 7);
    assert_eq!(text, "\nNAME  TYPE   ANSWER\na.b   A      x\n... and 7 more\n");
}

#[test]
fn what_is_asked_elsewhere_is_shown() {
    let config = config(
        r#"{"format":1,"upstreams":"none","stubDomains":[{"domain":"corp.example","group":{"servers":[{"ip":"10.20.0.53","port":53}]}}]}"#,
    );
    let text = elsewhere(&config, None);
    assert!(text.contains("  corp.example and all below: 10.20.0.53:53\n"), "{text}");
    assert!(text.contains("  everything else: no upstream, it is refused\n"), "{text}");
}

#[test]
fn fw3_the_servers_that_resolv_conf_names_are_shown_or_why_none_can_be_asked() {
    let file = std::env::temp_dir().join(format!("names-resolv.conf-{}", std::process::id()));
    let shown = |text: &str| {
        std::fs::write(&file, text).unwrap();
        elsewhere(&config(r#"{"format":1}"#), Some(&ResolvConf::read(&file)))
    };
    let text = shown("nameserver 127.0.0.53\nnameserver 10.0.0.2\nnameserver fd00::2\n");
    assert!(text.contains("  everything else: 10.0.0.2:53, [fd00::2]:53\n"), "{text}");
    // As Docker writes it.
    let text = shown("nameserver 127.0.0.11\n");
    std::fs::remove_file(&file).unwrap();
    for words in [
        "  everything else: no server, it gets SERVFAIL\n",
        "nameserver 127.0.0.11: it is an address of this machine",
        "write servers under upstreams instead\n",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
