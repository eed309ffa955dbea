//! Server blocks beside that of the cluster: which `kubernetes` counts.

use super::losses::imported;

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
