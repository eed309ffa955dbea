//! Server blocks and servers beside those of the cluster: which `kubernetes` counts, what is below the cluster domain, and what
//! asks the server that is replaced.

use tests::scratch::Scratch;

use super::losses::imported;
use super::printed;

/// The lines of a report about one line of the file.
fn of_line(report: &str, line: usize) -> Vec<&str> {
    report.lines().filter(|it| it.starts_with(&format!("{line} "))).collect()
}

#[test]
fn o1_a_kubernetes_that_is_not_asked_for_the_cluster_domain_sets_nothing() {
    let asked = ".:53 {\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n pods verified\n ttl 30\n fallthrough in-addr.arpa \
                 ip6.arpa\n }\n forward . 10.0.0.2\n}\n";
    let beside = "otoroshi.mesh:53 {\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n pods insecure\n ttl 30\n namespaces x\n \
                  upstream\n }\n rewrite name suffix .otoroshi.mesh .otoroshi.svc.cluster.local\n}\n";
    for (corefile, first) in [(asked.to_owned() + beside, 9), (beside.to_owned() + asked, 1)] {
        let (spec, report) = imported("--corefile", &corefile);
        assert_eq!(spec["podRecords"], "Verified", "{report}");
        assert_eq!(spec["ttlSeconds"], 30, "{report}");
        assert!(spec["exposure"].is_null(), "{spec}");
        for (line, words) in [
            (first + 1, "changed: kubernetes cluster.local"),
            (
                first + 2,
                "changed: kubernetes: pods insecure: names of cluster.local are answered as the kubernetes of ",
            ),
            (first + 3, "notNeeded: kubernetes: ttl 30: that one says the same"),
            (first + 4, "changed: kubernetes: namespaces x"),
        ] {
            let found = of_line(&report, line);
            assert!(found.iter().any(|it| it.contains(words)), "{words}: {found:?}");
        }
    }
    // No name of it comes from the cluster, where no rule leads there.
    let without = beside.replace(" rewrite", " # rewrite");
    let (_, report) = imported("--corefile", &(asked.to_owned() + &without));
    assert!(report.contains("11 notNeeded: kubernetes: pods insecure"), "{report}");
}

#[test]
fn o1_a_kubernetes_for_reverse_names_sets_what_it_says_of_these() {
    let domain = "cluster.local:53 {\n kubernetes cluster.local {\n pods verified\n }\n}\n";
    let reverse = "10.96.0.0/12:53 {\n kubernetes cluster.local 10.96.0.0/12\n}\n10.244.0.0/16:53 {\n kubernetes cluster.local \
                   10.244.0.0/16\n}\n.:53 {\n forward . 10.0.0.2\n}\n";
    for corefile in [domain.to_owned() + reverse, reverse.to_owned() + domain] {
        let (spec, report) = imported("--corefile", &corefile);
        assert_eq!(spec["podRecords"], "Verified", "{report}");
        let ranges = &spec["reverseCIDRs"];
        assert_eq!(*ranges, serde_json::json!(["10.96.0.0/12", "10.244.0.0/16"]), "{report}");
    }
    // Both trees come to a kubernetes of this cluster, each in a block of its own.
    let trees = "in-addr.arpa ip6.arpa {\n kubernetes cluster.local in-addr.arpa ip6.arpa {\n fallthrough\n }\n forward . 10.0.0.2\n}\n";
    let (spec, report) = imported("--corefile", &(domain.to_owned() + trees));
    assert_eq!(spec["podRecords"], "Verified", "{report}");
    assert!(report.contains("2 kept: kubernetes cluster.local: spec.domain: "), "{report}");
    assert!(
        report.contains("7 kept: kubernetes cluster.local in-addr.arpa ip6.arpa: the reverse"),
        "{report}"
    );
    assert!(report.contains("8 kept: kubernetes: fallthrough: reverse names"), "{report}");
}

#[test]
fn o1_ranges_of_a_server_block_that_is_not_asked_for_them_are_not_kept() {
    let corefile = ".:53 {\n kubernetes cluster.local {\n pods insecure\n }\n}\na.example:53 {\n kubernetes cluster.local \
                    10.96.0.0/12\n}\n";
    let (spec, report) = imported("--corefile", corefile);
    assert!(spec["reverseCIDRs"].is_null() && spec["podRecords"].is_null(), "{report}");
}

#[test]
fn o1_of_server_blocks_that_differ_by_their_addresses_the_first_kubernetes_counts() {
    let block = |ip: &str, pods: &str| {
        format!(".:53 {{\n bind {ip}\n kubernetes cluster.local {{\n pods {pods}\n }}\n}}\n")
    };
    let corefile = block("10.0.0.1", "verified") + &block("10.0.0.2", "disabled");
    let (spec, report) = imported("--corefile", &corefile);
    assert_eq!(spec["podRecords"], "Verified", "{report}");
    assert!(report.contains("10 changed: kubernetes: pods disabled: "), "{report}");
}

#[test]
fn o1_stub_domains_below_the_cluster_domain_are_not_said_to_be_needless() {
    let east = "east.svc.cluster.local";
    let stub = format!(
        r#"{{"{east}": ["34.139.159.61"], "cluster.local": ["10.0.0.1"], "x.{east}": ["name"]}}"#
    );
    let (spec, report) = imported("--kube-dns-config", &stub);
    assert!(spec["stubDomains"].is_null(), "{spec}");
    let line = format!("notPossible: stubDomains: {east}: {east} is in the cluster domain");
    assert!(report.contains(&line) && report.contains("a domain of its own"), "{report}");
    assert!(report.contains("notNeeded: stubDomains: cluster.local: "), "{report}");
    assert!(!report.contains("go to spec.upstreams"), "{report}");
    let (_, report) =
        imported("--dnsmasq", &format!("server=/{east}/34.139.159.61\nserver=8.8.8.8\n"));
    assert!(
        report.contains(&format!("1 notPossible: --server=/{east}/34.139.159.61: {east} is in")),
        "{report}"
    );
    // The server of the cluster itself answers what is below its domain.
    for own in ["127.0.0.1#10053", "10.96.0.10"] {
        let options =
            format!("server=/cluster.local/{own}\nserver=/{east}/{own}\nserver=8.8.8.8\n");
        let (_, report) = imported("--dnsmasq", &options);
        assert!(
            report.contains("2 notNeeded: ") && !report.contains("notPossible"),
            "{own}: {report}"
        );
    }
}

#[test]
fn o1_a_server_block_below_the_cluster_domain_is_not_kept_where_others_answered_it() {
    let block = |line: &str| {
        let corefile = format!(
            ".:53 {{\n kubernetes cluster.local\n}}\neast.svc.cluster.local:53 {{\n {line}\n}}\n"
        );
        imported("--corefile", &corefile).1
    };
    let elsewhere = "4 changed: east.svc.cluster.local:53: in the cluster domain, whose names are answered from memory, where";
    let report = block("forward . 34.139.159.61");
    assert!(report.contains(elsewhere) && report.contains("5 notPossible: forward"), "{report}");
    let report = block("kubernetes cluster.local");
    assert!(report.contains("4 kept: east.svc.cluster.local:53: "), "{report}");
}

/// LocalDNS of AKS: a cache on each node, in front of CoreDNS.
const LOCAL_DNS: &str = "cluster.local:53 {\n bind 169.254.10.11\n forward . 10.0.0.10 {\n force_tcp\n }\n}\n\
                         testdomain456.com:53 {\n forward . 10.0.0.10 {\n policy sequential\n }\n}\n\
                         mixed.example:53 {\n forward . 10.0.0.10:53 10.20.0.53\n}\n.:53 {\n forward . 168.63.129.16\n}\n";

#[test]
fn o2_servers_that_are_the_server_that_is_replaced_are_left_out_of_all_groups() {
    let (spec, report) = imported("--corefile", LOCAL_DNS);
    let stubs = spec["stubDomains"].as_array().unwrap();
    assert_eq!(stubs.len(), 1, "{spec}");
    assert_eq!(stubs[0]["domain"], "mixed.example", "{spec}");
    assert_eq!(stubs[0]["servers"], serde_json::json!([{"address": "10.20.0.53"}]), "{spec}");
    assert_eq!(spec["upstreams"]["servers"][0]["address"], "168.63.129.16", "{spec}");
    for words in [
        "8 changed: forward . 10.0.0.10: 10.0.0.10: that is the server that is replaced, so names in testdomain456.com go to \
         spec.upstreams",
        "9 notNeeded: forward: policy sequential: its forward is not needed",
        "13 changed: forward . 10.0.0.10:53 10.20.0.53: 10.0.0.10:53: that is the server that is replaced, so it is left out",
    ] {
        assert!(report.contains(words), "{words}\n{report}");
    }
    let root =
        "cluster.local:53 {\n forward . 10.0.0.10\n}\n.:53 {\n forward . dns://10.0.0.10\n}\n";
    let (spec, report) = imported("--corefile", root);
    assert!(spec["upstreams"].is_null(), "{spec}");
    assert!(
        report.contains("5 notPossible: forward . dns://10.0.0.10: dns://10.0.0.10: that is the"),
        "{report}"
    );
}

/// A Service with this address, and that of NodeLocal DNSCache.
const SERVICES: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}\n\
                        spec: {clusterIP: 10.0.0.10, selector: {k8s-app: kube-dns}}\n---\n\
                        apiVersion: v1\nkind: Service\nmetadata: {name: kube-dns-upstream, namespace: kube-system}\n\
                        spec: {clusterIP: 10.0.0.77, selector: {k8s-app: kube-dns}}\n";

#[test]
fn o2_the_addresses_of_the_service_in_manifests_are_the_server_that_is_replaced() {
    let scratch = Scratch::new("import").unwrap();
    let corefile = ".:53 {\n kubernetes cluster.local\n forward . 10.0.0.2\n}\na.example:53 {\n forward . 10.0.0.10\n}\n\
                    b.example:53 {\n forward . 10.0.0.77\n}\n";
    scratch.write("Corefile", corefile).unwrap();
    scratch.write("services.yaml", SERVICES).unwrap();
    let (_, dns, report) = printed(scratch.path(), "--corefile Corefile --corefile services.yaml");
    assert!(!dns.contains("stubDomains"), "{dns}");
    for words in
        ["Corefile:6: changed: forward . 10.0.0.10: ", "Corefile:9: changed: forward . 10.0.0.77: "]
    {
        assert!(report.contains(words), "{words}\n{report}");
    }
    // Options of dnsmasq and keys of kube-dns are held against it too.
    scratch.write("dnsmasq.conf", "server=/a.example/10.0.0.10\nserver=10.0.0.2\n").unwrap();
    let (_, dns, report) =
        printed(scratch.path(), "--dnsmasq dnsmasq.conf --corefile services.yaml");
    assert!(!dns.contains("stubDomains"), "{dns}");
    assert!(report.contains("10.0.0.10 leads to the server that is replaced"), "{report}");
    scratch.write("stubs.json", r#"{"a.example": ["10.0.0.10", "10.20.0.53"]}"#).unwrap();
    let (_, dns, report) =
        printed(scratch.path(), "--kube-dns-config stubs.json --corefile services.yaml");
    assert!(dns.contains("10.20.0.53") && !dns.contains("10.0.0.10"), "{dns}");
    assert!(report.contains("10.0.0.10 leads to the server that is replaced"), "{report}");
}
