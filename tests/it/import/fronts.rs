//! CoreDNS behind NodeLocal DNSCache, and names of addresses: what pods got before is what the report compares with.

use super::losses::imported;
use super::printed;
use tests::scratch::Scratch;

const NODE_LOCAL: &str = "cluster.local:53 {\n bind 169.254.20.10\n forward . 10.96.0.10\n}\nin-addr.arpa:53 {\n forward . 10.96.0.10\n}\n\
                          ip6.arpa:53 {\n forward . 10.96.0.10\n}\n.:53 {\n forward . __PILLAR__UPSTREAM__SERVERS__\n}\n";

/// What both Corefiles become, in either order.
fn both(coredns: &str, node_local: &str) -> (serde_json::Value, String) {
    let scratch = Scratch::new("import").unwrap();
    scratch.write("coredns", coredns).unwrap();
    scratch.write("node-local", node_local).unwrap();
    let of = |files: [&str; 2]| {
        let [first, second] = files;
        let report = scratch.path().join("report.txt");
        let words =
            format!("--corefile {first} --corefile {second} -o json --report {}", report.display());
        let (_, dns, _) = printed(scratch.path(), &words);
        let dns: serde_json::Value = serde_json::from_str(&dns).unwrap();
        let report: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
        let field = |it: &serde_json::Value, name: &str| it[name].as_str().unwrap().to_owned();
        let lines = report["lines"].as_array().unwrap().iter();
        let lines = lines.map(|it| {
            format!("{}: {}: {}\n", field(it, "outcome"), field(it, "what"), field(it, "message"))
        });
        (dns["spec"].clone(), lines.collect::<String>())
    };
    let (spec, report) = of(["coredns", "node-local"]);
    assert_eq!(spec, of(["node-local", "coredns"]).0, "{report}");
    (spec, report)
}

#[test]
fn the_usual_coredns_behind_node_local_has_no_line_that_is_not_possible() {
    let coredns = ".:53 {\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n fallthrough in-addr.arpa ip6.arpa\n }\n \
                   forward . /etc/resolv.conf {\n max_concurrent 1000\n }\n cache 30\n}\n";
    let (spec, report) = both(coredns, NODE_LOCAL);
    assert_eq!(spec["upstreams"]["fromResolvConf"], true, "{report}");
    assert!(spec["upstreams"].get("limits").is_none(), "{report}");
    assert!(!report.contains("notPossible: "), "{report}");
}

#[test]
fn names_that_node_local_asks_elsewhere_are_not_those_of_the_coredns_behind_it() {
    let coredns = ".:53 {\n kubernetes cluster.local in-addr.arpa ip6.arpa\n hosts {\n 10.1.2.3 git.example\n 10.1.2.4 x.svc.cluster.local\n \
                   fallthrough\n }\n rewrite name old.example new.example\n forward . 10.0.0.2\n}\n\
                   corp.example:53 {\n forward . 10.0.0.7\n}\n";
    let (spec, report) = both(coredns, NODE_LOCAL);
    assert_eq!(spec["upstreams"]["fromResolvConf"], true, "{report}");
    let names = |list: &str, field: &str| -> Vec<String> {
        let all = spec[list].as_array().into_iter().flatten();
        all.map(|it| it[field].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("stubDomains", "domain"), ["in-addr.arpa", "ip6.arpa"], "{report}");
    assert_eq!(names("hosts", "name"), ["x.svc.cluster.local"], "{report}");
    assert!(names("records", "name").is_empty(), "{report}");
    for words in [
        "changed: .:53: pods ask NodeLocal DNSCache, which sends only names of cluster.local, in-addr.arpa, ip6.arpa here, and \
         others to __PILLAR__UPSTREAM__SERVERS__",
        "notPossible: forward . 10.0.0.7: pods ask NodeLocal DNSCache, which sends these names to __PILLAR__UPSTREAM__SERVERS__",
    ] {
        assert!(report.contains(words), "{words}\n{report}");
    }
}

#[test]
fn a_line_of_node_local_for_one_zone_leaves_it_to_coredns() {
    let node_local = "cluster.local:53 {\n forward . 10.96.0.10\n}\n\
                      .:53 {\n forward corp.example 10.96.0.10\n forward . /etc/resolv.conf\n}\n";
    let coredns = ".:53 {\n kubernetes cluster.local in-addr.arpa ip6.arpa\n forward . 10.0.0.2\n}\n\
                   corp.example:53 {\n forward . 10.0.0.7\n}\n";
    let (spec, report) = both(coredns, node_local);
    assert_eq!(spec["stubDomains"][0]["domain"], "corp.example", "{report}");
    assert_eq!(spec["upstreams"]["fromResolvConf"], true, "{report}");
}

#[test]
fn names_that_neither_node_local_nor_coredns_asks_others_for_are_refused() {
    let node_local =
        "cluster.local:53 {\n forward . 10.96.0.10\n}\n.:53 {\n forward . 10.96.0.10\n}\n";
    let coredns = ".:53 {\n kubernetes cluster.local in-addr.arpa ip6.arpa\n}\n";
    let (spec, report) = both(coredns, node_local);
    assert_eq!(spec["upstreams"]["none"], true, "{report}");
}

#[test]
fn a_node_local_alone_that_sends_all_names_to_coredns_lets_no_name_be_refused() {
    let (spec, report) = imported(
        "--corefile",
        "cluster.local:53 {\n forward . 10.96.0.10\n}\n.:53 {\n forward . 10.96.0.10\n}\n",
    );
    assert!(spec["upstreams"].get("none").is_none(), "{report}");
}

#[test]
fn a_node_local_that_sends_all_names_to_coredns_leaves_it_all_of_them() {
    let node_local =
        "cluster.local:53 {\n forward . 10.96.0.10\n}\n.:53 {\n forward . 10.96.0.10\n}\n";
    let coredns = ".:53 {\n kubernetes cluster.local in-addr.arpa ip6.arpa\n forward . 10.0.0.2\n}\n\
                   corp.example:53 {\n forward . 10.0.0.7\n}\n";
    let (spec, report) = both(coredns, node_local);
    assert_eq!(spec["upstreams"]["servers"][0]["address"], "10.0.0.2", "{report}");
    assert_eq!(spec["stubDomains"][0]["domain"], "corp.example", "{report}");
    assert!(!report.contains("NodeLocal") && !report.contains("notPossible: "), "{report}");
}

#[test]
fn of_two_lines_for_the_same_servers_the_report_says_which_option_decides() {
    let corefile = ".:53 {\n bind 10.9.0.1\n forward . 10.0.0.2 {\n max_concurrent 9\n }\n}\n\
                    .:53 {\n bind 10.9.0.2\n forward . 10.0.0.2 {\n policy sequential\n }\n}\n";
    let (_, report) = imported("--corefile", corefile);
    let words = "a line before names these servers too: the policy is Random, that of the first line, not Sequential; \
                 limits.inFlight is 9, that of the first line, not 2048";
    assert!(report.contains(words) && !report.contains("notPossible: "), "{report}");
}

#[test]
fn an_address_whose_reverse_name_others_are_asked_for_gets_none() {
    let of = |zones: &str, option: &str| {
        let corefile = format!(
            "{zones} {{\n hosts {{\n 10.1.2.3 git.example\n {option}\n fallthrough\n }}\n forward . 10.0.0.2\n}}\n.:53 {{\n \
             kubernetes cluster.local in-addr.arpa ip6.arpa\n forward . 10.0.0.3\n}}\n"
        );
        let (spec, report) = imported("--corefile", &corefile);
        (spec["hosts"][0]["reverse"].clone(), report)
    };
    let first = "the reverse name leads to the name in the cluster";
    let (reverse, report) = of("git.example:53", "");
    assert_eq!(reverse, false, "{report}");
    assert!(report.contains("spec.hosts: git.example; reverse: false, because"), "{report}");
    assert!(!report.contains(first), "{report}");
    let (reverse, report) = of("git.example:53 10.1.0.0/16:53", "");
    assert!(reverse.is_null() && report.contains(first), "{report}");
    let (reverse, report) = of("git.example:53 10.1.0.0/16:53", "no_reverse");
    assert!(reverse == false && !report.contains(first), "{report}");
}

#[test]
fn reverse_names_of_the_cluster_are_kept_only_where_all_of_them_came_to_it() {
    for (zones, outcome) in [
        (".:53 { kubernetes cluster.local in-addr.arpa ip6.arpa", "kept"),
        (".:53 { kubernetes", "kept"),
        (".:53 { kubernetes cluster.local", "changed"),
        (".:53 { kubernetes cluster.local 10.96.0.0/12", "changed"),
        ("cluster.local:53 { kubernetes cluster.local in-addr.arpa ip6.arpa", "changed"),
    ] {
        let corefile = format!("{}\n}}\n", zones.replace('{', "{\n"));
        let (_, report) = imported("--corefile", &corefile);
        let found =
            report.lines().find(|it| it.contains("kubernetes") && it.contains("spec.domain: "));
        let found = found.unwrap_or_else(|| panic!("{zones}: {report}"));
        assert!(found.contains(&format!(" {outcome}: kubernetes")), "{zones}: {found}");
    }
}

#[test]
fn transports_of_servers_that_are_not_written_are_not_kept() {
    let of = |servers: &str, option: &str| {
        let corefile = format!(".:53 {{\n forward . {servers} {{\n {option}\n }}\n}}\n");
        let (_, report) = imported("--corefile", &corefile);
        report.lines().find(|it| it.starts_with("3 ")).unwrap().to_owned()
    };
    for (servers, option, expected) in [
        ("/etc/resolv.conf", "force_tcp", "3 notPossible: "),
        ("__PILLAR__UPSTREAM__SERVERS__", "force_tcp", "3 notPossible: "),
        ("10.0.0.2", "force_tcp", "3 kept: forward: force_tcp: transport: TCP"),
        ("tls://9.9.9.9", "force_tcp", "3 notNeeded: "),
        ("/etc/resolv.conf", "tls_servername a.example", "3 notNeeded: "),
        ("10.0.0.2", "tls_servername a.example", "3 notNeeded: "),
        ("tls://10.0.0.2", "tls_servername a.example", "3 kept: "),
    ] {
        let line = of(servers, option);
        assert!(line.starts_with(expected), "{servers} {option}: {line}");
    }
}
