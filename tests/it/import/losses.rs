//! What the importer cannot keep costs only itself, and no line of the report says that it was kept.

use operator::offline::Severity;
use tests::scratch::Scratch;

use super::printed;

/// The spec and the report of one file.
pub(super) fn imported(flag: &str, text: &str) -> (serde_json::Value, String) {
    let scratch = Scratch::new("import").unwrap();
    scratch.write("file", text).unwrap();
    let report = scratch.path().join("report.txt");
    let words = format!("{flag} file -o json --report {}", report.display());
    let (outcome, dns, why) = printed(scratch.path(), &words);
    assert_eq!((outcome, why.as_str()), (Severity::Fine, ""), "{text}");
    let report = std::fs::read_to_string(report).unwrap();
    let lines: serde_json::Value = serde_json::from_str(&report).unwrap();
    let line = |it: &serde_json::Value| {
        let field = |name: &str| it[name].as_str().unwrap_or_default().to_owned();
        format!("{} {}: {}: {}\n", it["line"], field("outcome"), field("what"), field("message"))
    };
    let lines = lines["lines"].as_array().unwrap().iter().map(line).collect();
    let dns: serde_json::Value = serde_json::from_str(&dns).unwrap();
    (dns["spec"].clone(), lines)
}

fn addresses(group: &serde_json::Value) -> Vec<&str> {
    let servers = group["servers"].as_array().into_iter().flatten();
    servers.filter_map(|server| server["address"].as_str()).collect()
}

#[test]
fn servers_are_those_of_the_port_that_pods_ask_in_any_order_of_blocks() {
    let kubernetes = ".:53 {\n kubernetes cluster.local\n forward . 8.8.8.8\n}\n";
    for other in [
        "tls://.:853 {\n tls a b\n forward . 10.0.0.6\n}\n",
        ".:5353 {\n forward . 9.9.9.9\n}\n",
        ".:53 {\n bind 127.0.0.1\n forward . 9.9.9.9\n}\n",
        ".:5353 {\n kubernetes other.example\n forward . 9.9.9.9\n}\n",
    ] {
        for corefile in [format!("{other}{kubernetes}"), format!("{kubernetes}{other}")] {
            let (spec, report) = imported("--corefile", &corefile);
            assert_eq!(addresses(&spec["upstreams"]), ["8.8.8.8"], "{corefile}{report}");
            assert_eq!(spec["domain"], "cluster.local", "{corefile}");
        }
    }
    let only = ".:5353 {\n kubernetes cluster.local\n forward . 8.8.8.8\n}\n";
    assert_eq!(addresses(&imported("--corefile", only).0["upstreams"]), ["8.8.8.8"]);
}

#[test]
fn without_a_forward_on_the_port_that_pods_ask_other_names_are_refused() {
    let corefile = ".:53 {\n kubernetes cluster.local\n}\n.:5353 {\n forward . 9.9.9.9\n}\n";
    assert_eq!(imported("--corefile", corefile).0["upstreams"]["none"], true);
}

#[test]
fn a_mistake_in_a_block_of_another_port_is_still_refused() {
    let scratch = Scratch::new("import").unwrap();
    let corefile = ".:53 {\n kubernetes cluster.local\n}\n.:5353 {\n forward . 9.9.9.9 {\n colour red\n }\n}\n";
    scratch.write("Corefile", corefile).unwrap();
    let (outcome, _, why) = printed(scratch.path(), "--corefile Corefile");
    assert_eq!(outcome, Severity::Wrong);
    assert!(why.contains("Corefile:6: colour"), "{why}");
}

#[test]
fn no_option_is_kept_of_a_forward_that_is_not_possible() {
    let corefile = ".:53 {\n bind eth0\n forward . 8.8.8.8\n}\n.:53 {\n bind eth1\n forward corp.example 127.0.0.1 {\n \
                    policy sequential\n }\n forward . 9.9.9.9 {\n max_concurrent 77\n policy sequential\n force_tcp\n }\n}\n";
    let (_, report) = imported("--corefile", corefile);
    for line in [8, 11, 12, 13] {
        assert!(report.contains(&format!("\n{line} notPossible: forward: ")), "{report}");
    }
}

#[test]
fn options_of_dnsmasq_are_kept_only_where_servers_have_them() {
    let (_, report) = imported("--dnsmasq", "no-resolv\nstrict-order\ndns-forward-max=77\n");
    assert!(report.contains("notPossible: --strict-order"), "{report}");
    assert!(report.contains("notPossible: --dns-forward-max=77"), "{report}");
    let (spec, report) = imported("--dnsmasq", "server=8.8.8.8\ndns-forward-max=77\n");
    assert_eq!(spec["upstreams"]["limits"]["inFlight"], 77);
    assert!(report.contains("changed: --dns-forward-max=77"), "{report}");
}

#[test]
fn more_places_than_half_of_all_are_not_promised_to_one_group() {
    let words = "; spec.limits.inFlight is 4096 by default, and with stub domains each group gets at most half of that";
    for (number, is_said) in [(2_048, false), (2_049, true), (3_000, true)] {
        let corefile =
            format!(".:53 {{\n forward . 8.8.8.8 {{\n max_concurrent {number}\n }}\n}}\n");
        let (_, report) = imported("--corefile", &corefile);
        assert_eq!(report.contains(&format!("not REFUSED{words}")), is_said, "{report}");
        let (_, report) =
            imported("--dnsmasq", &format!("server=8.8.8.8\ndns-forward-max={number}\n"));
        assert_eq!(report.contains(&format!("of their own{words}")), is_said, "{report}");
    }
}

#[test]
fn a_server_that_cannot_be_asked_costs_only_itself() {
    let corp = |spec: &serde_json::Value| addresses(&spec["stubDomains"][0]).join(" ");
    let upstreams = |spec: &serde_json::Value| addresses(&spec["upstreams"]).join(" ");
    let list = imported("--kube-dns-config", r#"["8.8.8.8","8.8.4.4","127.0.0.1"]"#);
    let stub = imported("--kube-dns-config", r#"{"corp.example":["10.0.0.1","127.0.0.1"]}"#);
    let corefile = ".:53 {\n kubernetes cluster.local\n forward . 8.8.8.8 127.0.0.1\n}\n";
    let corefile = imported("--corefile", corefile);
    let servers = imported("--dnsmasq", "--server=8.8.8.8 --server=127.0.0.1");
    let domain = "--server=/corp.example/10.0.0.1 --server=/corp.example/127.0.0.1#5353";
    let domain = imported("--dnsmasq", domain);
    assert_eq!(upstreams(&list.0), "8.8.8.8 8.8.4.4");
    assert_eq!(corp(&stub.0), "10.0.0.1");
    assert_eq!(upstreams(&corefile.0), "8.8.8.8");
    assert_eq!(upstreams(&servers.0), "8.8.8.8");
    assert_eq!(corp(&domain.0), "10.0.0.1");
    for (_, report) in [list, stub, corefile, servers, domain] {
        let lost: Vec<&str> = report.lines().filter(|line| line.contains("notPossible")).collect();
        assert!(lost.len() == 1 && lost[0].contains("127.0.0.1 is the pod itself"), "{report}");
    }
}

#[test]
fn servers_of_the_node_beside_written_ones_are_named() {
    let corefile = ".:53 {\n kubernetes cluster.local\n forward corp.example 10.0.0.1 /etc/resolv.conf\n forward . 8.8.8.8\n}\n";
    let (spec, report) = imported("--corefile", corefile);
    assert_eq!(addresses(&spec["stubDomains"][0]), ["10.0.0.1"]);
    assert!(report.contains("3 notPossible: forward corp.example"), "{report}");
}

#[test]
fn an_empty_part_of_a_record_of_dnsmasq_keeps_the_others_in_their_place() {
    let option = "srv-host=_ldap._tcp.corp.example,ldap.corp.example,389,,5\n";
    let (spec, _) = imported("--dnsmasq", option);
    let service = &spec["records"][0]["services"][0];
    assert_eq!((&service["port"], &service["weight"]), (&389.into(), &5.into()), "{spec}");
    assert!(service["priority"].is_null() || service["priority"] == 0, "{spec}");
}

#[test]
fn keys_of_config_maps_that_nothing_names_have_a_line() {
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns}\ndata:\n  Corefile: |\n    . {\n      forward . 8.8.8.8\n    }\n  \
               extra.conf: |\n    server=10.0.0.9\nbinaryData:\n  blob: aGVsbG8=\n";
    let (_, report) = imported("--corefile", map);
    assert!(report.contains("10 notNeeded: ConfigMap coredns extra.conf: "), "{report}");
    assert!(report.contains("12 notPossible: ConfigMap coredns blob: "), "{report}");
}

#[test]
fn what_a_second_address_cannot_have_is_named() {
    let options = "host-record=a.example,10.0.0.1,60\nhost-record=a.example,10.0.0.2,300\naddress=/b.example/10.0.0.3\n\
                   host-record=b.example,10.0.0.4\nsrv-host=_x._tcp.c.example,c.example,1\n";
    let (spec, report) = imported("--dnsmasq", options);
    assert_eq!(spec["hosts"][0]["addresses"][1], "10.0.0.2");
    assert!(report.contains("2 changed: --host-record=a.example,10.0.0.2,300: spec.hosts: a.example; a.example: the TTL is 60 s"), "{report}");
    assert!(
        report.contains("4 changed: ") && report.contains("it has no reverse name"),
        "{report}"
    );
    assert!(report.contains("5 changed: "), "{report}");
}

#[test]
fn of_one_option_for_several_domains_those_of_the_cluster_are_named() {
    let (_, report) = imported("--dnsmasq", "server=/corp.example/x.cluster.local/10.0.0.1\n");
    let line = "notPossible: --server=/corp.example/x.cluster.local/10.0.0.1: x.cluster.local is in the cluster domain";
    assert!(
        report.contains(line) && report.contains("; spec.stubDomains: corp.example"),
        "{report}"
    );
    let (_, report) =
        imported("--dnsmasq", "server=/2.0.192.in-addr.arpa/x.cluster.local/127.0.0.1\n");
    assert!(
        report.contains("notNeeded: ") && report.contains(": names of the cluster"),
        "{report}"
    );
}

#[test]
fn of_server_blocks_that_differ_by_their_addresses_the_first_has_the_cache() {
    let block = |ip: &str, ttl: u32| {
        format!(
            ".:53 {{\n bind {ip}\n forward . 8.8.8.8\n cache {ttl} {{\n denial 100 5\n }}\n}}\n"
        )
    };
    let (spec, report) = imported("--corefile", &(block("10.0.0.1", 60) + &block("10.0.0.2", 90)));
    assert_eq!(
        (&spec["cache"]["maxTTLSeconds"], &spec["cache"]["maxNegativeTTLSeconds"]),
        (&60.into(), &5.into())
    );
    assert!(
        report.contains("11 notPossible: cache 90: ")
            && report.contains("12 notPossible: cache: denial"),
        "{report}"
    );
    let (same, report) = imported("--corefile", &(block("10.0.0.1", 60) + &block("10.0.0.2", 60)));
    assert_eq!(same["cache"], spec["cache"]);
    assert!(report.contains("12 changed: cache: denial 100 5"), "{report}");
}

#[test]
fn the_names_of_the_metrics_of_kube_dns_stay_or_are_said_to_end() {
    let (_, report) = imported("--kube-dns-config", r#"{"corp.example":["10.0.0.1"]}"#);
    assert!(
        report.contains("changed: metrics of kube-dns: skydns_* and kubedns_* end"),
        "{report}"
    );
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: kube-dns}\nspec: {containers: [{name: kubedns, args: [--domain=cluster.local.]}]}\n";
    let (spec, report) = imported("--kube-dns-config", pod);
    assert_eq!(spec["metrics"]["compatibility"], serde_json::json!(["CoreDNS", "KubeDNS"]));
    assert!(report.contains("changed: metrics of kube-dns: "), "{report}");
}

#[test]
fn variables_of_config_maps_are_known_and_host_aliases_have_a_line() {
    let manifest = r#"apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: coredns}, data: {Corefile: ". {\n  kubernetes {$ZONE}\n  forward . {$P_UP} {$ONE}\n}\n"}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: env}, data: {UP: 10.0.0.1, ONE: 10.0.0.2}}
- apiVersion: v1
  kind: Pod
  metadata: {name: coredns}
  spec:
    hostAliases: [{ip: 10.0.0.9, hostnames: [a.example]}]
    initContainers: [{name: first, image: x}]
    volumes: [{name: config, configMap: {name: coredns}}]
    containers:
    - name: coredns
      args: [-conf, /etc/coredns/Corefile]
      volumeMounts: [{name: config, mountPath: /etc/coredns}]
      envFrom: [{prefix: P_, configMapRef: {name: env}}]
      env: [{name: ZONE, value: c.example}, {name: ONE, valueFrom: {configMapKeyRef: {name: env, key: ONE}}}]
"#;
    let (spec, report) = imported("--corefile", manifest);
    assert_eq!(spec["domain"], "c.example");
    assert_eq!(addresses(&spec["upstreams"]), ["10.0.0.1", "10.0.0.2"], "{report}");
    assert!(report.contains("notPossible: hostAliases 10.0.0.9: "), "{report}");
    assert!(report.contains("notNeeded: initContainers first: "), "{report}");
}
