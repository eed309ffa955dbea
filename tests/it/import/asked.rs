//! Which servers are asked, and which domain is the cluster's: `golden/import/who-is-asked` has the longer cases.

use super::losses::imported;

#[test]
fn o1_a_cluster_domain_that_nothing_names_is_said_to_be_assumed() {
    let assumed = "1 changed: domain: spec.domain: cluster.local is assumed";
    let rendered = "k8s.example:53 {\n forward . 10.96.0.10\n}\n.:53 {\n forward . 8.8.8.8\n}\n";
    for (flag, text) in [
        ("--kube-dns-config", r#"{"corp.example":["10.0.0.1"]}"#),
        ("--dnsmasq", "server=8.8.8.8\n"),
        ("--corefile", rendered),
    ] {
        let (_, report) = imported(flag, text);
        assert!(report.contains(assumed) && report.contains("--domain DOMAIN"), "{flag}: {report}");
    }
    let known = ".:53 {\n kubernetes k8s.example\n}\n";
    let (spec, report) = imported("--corefile", known);
    assert!(spec["domain"] == "k8s.example" && !report.contains("is assumed, and"), "{report}");
}

#[test]
fn o1_flags_of_kube_dns_in_two_words_are_read() {
    let pod = |words: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: kube-dns}}\nspec: {{containers: [{{name: kubedns, command: [/kube-dns], \
             args: [{words}]}}]}}\n"
        )
    };
    let words = "--domain, k8s.example, --logtostderr, --v, '2', --nameservers, 10.0.0.9";
    let (spec, report) = imported("--kube-dns-config", &pod(words));
    assert_eq!(spec["domain"], "k8s.example", "{report}");
    assert_eq!(spec["upstreams"]["servers"][0]["address"], "10.0.0.9", "{report}");
    assert!(report.contains("kept: kubedns --domain=k8s.example: "), "{report}");
    assert!(!report.contains("notPossible") && !report.contains("is assumed, and"), "{report}");
    // The default of kube-dns.
    let (spec, report) = imported("--kube-dns-config", &pod("--logtostderr"));
    assert!(spec["domain"] == "cluster.local" && !report.contains("is assumed, and"), "{report}");
}

#[test]
fn o1_a_manifest_on_one_line_is_a_manifest() {
    let map = r#"{"apiVersion":"v1","data":{"stubDomains":"{\"corp.example\":[\"10.0.0.1\"]}"},"kind":"ConfigMap","metadata":{"name":"kube-dns"}}"#;
    let (spec, report) = imported("--kube-dns-config", map);
    assert_eq!(spec["stubDomains"][0]["domain"], "corp.example", "{report}");
    assert!(!report.contains("notPossible"), "{report}");
    let stub = r#"{"kind":["10.0.0.1"],"apiVersion":["10.0.0.2"]}"#;
    let (spec, report) = imported("--kube-dns-config", stub);
    assert_eq!(spec["stubDomains"].as_array().map(Vec::len), Some(2), "{report}");
}

#[test]
fn o1_a_block_that_a_forward_of_the_same_process_asks_is_named_as_its_servers() {
    let corefile = ".:53 {\n kubernetes cluster.local\n forward . 127.0.0.1:5301 127.0.0.1:5302\n}\n\
                    .:5301 {\n forward . tls://8.8.8.8 {\n tls_servername dns.google\n }\n}\n\
                    .:5302 {\n bind 127.0.0.1\n forward . tls://9.9.9.9\n}\n.:5303 {\n forward . 10.0.0.1\n}\n";
    let (_, report) = imported("--corefile", corefile);
    let line = "notPossible: .:5301: the line forward . 127.0.0.1:5301 127.0.0.1:5302 asks this block: write the servers of \
                this block's forward in spec.upstreams.servers";
    assert!(report.contains(line), "{report}");
    assert!(report.contains(&line.replace(".:5301:", ".:5302:")), "{report}");
    assert!(report.contains(".:5303: port 53 has another block"), "{report}");
    let corefile = ".:53 {\n kubernetes cluster.local\n}\ncorp.example:53 {\n forward . 127.0.0.1:5301\n}\n\
                    .:5301 {\n forward . tls://9.9.9.9\n}\n";
    let (_, report) = imported("--corefile", corefile);
    assert!(report.contains("this block's forward in spec.stubDomains"), "{report}");
}

#[test]
fn o1_a_forward_that_is_asked_after_some_replies_is_not_possible() {
    let corefile = ".:53 {\n kubernetes cluster.local\n forward . 10.0.0.1 {\n next NXDOMAIN\n }\n forward corp.example 10.0.0.2 {\n \
                    force_tcp\n }\n}\n";
    let (spec, report) = imported("--corefile", corefile);
    assert!(spec["stubDomains"].is_null(), "{spec}");
    assert!(
        report.contains("6 notPossible: forward corp.example 10.0.0.2: CoreDNS asks these"),
        "{report}"
    );
    assert!(report.contains("7 notPossible: forward: force_tcp: "), "{report}");
}

#[test]
fn o1_an_option_that_coredns_refuses_is_refused_also_where_its_forward_is_not_asked() {
    let scratch = tests::scratch::Scratch::new("import").unwrap();
    let corefile =
        ".:53 {\n forward . 10.0.0.1\n forward corp.example 10.0.0.2 {\n colour red\n }\n}\n";
    scratch.write("Corefile", corefile).unwrap();
    let (outcome, _, why) = super::printed(scratch.path(), "--corefile Corefile");
    assert_eq!(outcome, operator::offline::Severity::Wrong);
    assert!(why.contains("Corefile:4: colour"), "{why}");
}

#[test]
fn o1_a_hosts_file_of_dnsmasq_has_no_wildcards() {
    let scratch = tests::scratch::Scratch::new("import").unwrap();
    scratch.write("hosts", "10.0.0.1 *.apps.example a.example\n").unwrap();
    let (_, dns, report) = super::printed(scratch.path(), "--dnsmasq hosts");
    assert!(dns.contains("a.example") && !dns.contains("*.apps"), "{dns}");
    assert!(
        report.contains("hosts:1: not needed: ") && report.contains("*.apps.example: "),
        "{report}"
    );
}

#[test]
fn o1_the_ttl_of_a_stub_domain_is_not_said_to_be_above_that_of_the_whole_cache() {
    let stub = "corp.example {\n forward . 10.0.0.2\n cache 600\n}\n";
    let root = |cache: &str| {
        format!(".:53 {{\n kubernetes cluster.local\n forward . 10.0.0.1\n {cache}\n}}\n")
    };
    for corefile in [root("cache 30") + stub, stub.to_owned() + &root("cache 30")] {
        let (spec, report) = imported("--corefile", &corefile);
        assert!(spec["stubDomains"][0]["cache"].is_null(), "{spec}");
        assert!(report.contains("changed: cache 600: TTLs are at most 30 s "), "{report}");
    }
    let (spec, report) = imported("--corefile", &(stub.to_owned() + &root("cache 900")));
    assert_eq!(spec["stubDomains"][0]["cache"]["maxTTLSeconds"], 600, "{report}");
}

/// The Corefile that Huawei writes for its clusters has these.
#[test]
fn addresses_of_the_process_need_no_value() {
    let corefile = ".:5353 {\n bind {$POD_IP}\n health {$POD_IP}:8080 {\n lameduck 30s\n }\n ready {$POD_IP}:8081\n prometheus \
                    {$POD_IP}:9153\n pprof {$POD_IP}:6053\n kubernetes cluster.local\n forward . {$UPSTREAM}\n}\n";
    let (spec, report) = imported("--corefile", corefile);
    assert_eq!(spec["drainSeconds"], 30, "{report}");
    for line in [
        "2 notNeeded: bind",
        "3 notNeeded: health",
        "4 changed: health: lameduck 30s",
        "6 notNeeded: ready",
        "7 changed: prometheus",
        "8 notNeeded: pprof",
        "10 notPossible: forward . {$UPSTREAM}: the value of an environment variable",
    ] {
        assert!(report.lines().any(|it| it.starts_with(line)), "{line}\n{report}");
    }
    let unknown = ".:53 {\n health {\n lameduck {$SECONDS}\n }\n}\n";
    let (_, report) = imported("--corefile", unknown);
    assert!(report.contains("3 notPossible: health: lameduck {$SECONDS}"), "{report}");
}

#[test]
fn the_interface_behind_a_global_address_of_a_server_is_left_out() {
    let forward = |server: &str| {
        let corefile = format!(".:53 {{\n kubernetes cluster.local\n forward . {server}\n}}\n");
        imported("--corefile", &corefile)
    };
    let (spec, report) = forward("2001:db8::53%eth0");
    assert_eq!(spec["upstreams"]["servers"][0]["address"], "2001:db8::53", "{report}");
    let (spec, report) = forward("fe80::53%eth0");
    assert!(spec["upstreams"].is_null(), "{spec}");
    let line =
        "3 notPossible: forward . fe80::53%eth0: fe80::53%eth0 is of one interface of a node";
    assert!(report.contains(line) && !report.contains("by name"), "{report}");
    let options = "server=2001:db8::53%eth0\nserver=/a.example/fe80::53%eth0\n";
    let (spec, report) = imported("--dnsmasq", options);
    assert_eq!(spec["upstreams"]["servers"][0]["address"], "2001:db8::53", "{report}");
    assert!(report.contains("2 notPossible: ") && report.contains("of one interface"), "{report}");
    let (_, report) = imported("--kube-dns-config", r#"["fe80::53%eth0", "2001:db8::53%eth0"]"#);
    assert!(
        report.contains("notPossible: upstreamNameservers: \"fe80::53%eth0\" is of one"),
        "{report}"
    );
}

/// Names end in a dot where CoreDNS compares them, and they are in lower case.
#[test]
fn o1_an_expression_that_matches_no_name_in_coredns_takes_no_name_here() {
    let corefile = ".:53 {\n kubernetes cluster.local\n rewrite name regex ^db\\.corp\\.example$ db.shop.svc.cluster.local\n \
                    rewrite name regex (.*)\\.Apps\\.example\\.$ {1}.shop.svc.cluster.local\n template IN A {\n match \
                    ^note\\.corp\\.example$\n answer \"{{ .Name }} 60 IN A 10.0.0.7\"\n fallthrough\n }\n hosts {\n 10.0.0.8 \
                    db.corp.example\n 10.0.0.9 a.apps.example\n 10.0.0.10 note.corp.example\n fallthrough\n }\n forward . 10.0.0.2\n}\n";
    let (spec, report) = imported("--corefile", corefile);
    assert!(spec["records"].is_null(), "{spec}");
    let hosts = spec["hosts"].as_array().into_iter().flatten();
    let hosts = hosts.map(|host| format!("{} {}", host["name"], host["addresses"]));
    assert_eq!(
        hosts.collect::<Vec<_>>(),
        [
            r#""db.corp.example" ["10.0.0.8"]"#,
            r#""a.apps.example" ["10.0.0.9"]"#,
            r#""note.corp.example" ["10.0.0.10"]"#
        ],
        "{report}"
    );
    for line in 3..=8 {
        let is_said = |it: &str| {
            it.starts_with(&format!("{line} notNeeded: "))
                && it.contains("it matches no name, so CoreDNS")
        };
        assert!(report.lines().any(is_said), "{line}\n{report}");
    }
    let two = ".:53 {\n template IN A {\n match ^a\\.example$ ^b\\.example\\.$\n answer \"{{ .Name }} 60 IN A 10.0.0.7\"\n }\n \
               forward . 10.0.0.2\n}\n";
    let (spec, report) = imported("--corefile", two);
    assert_eq!(spec["hosts"].as_array().map(Vec::len), Some(1), "{spec}");
    assert_eq!(spec["hosts"][0]["name"], "b.example");
    assert!(report.contains(r"3 changed: template: match ^a\.example$ ^b\.example\.$: names: b.example; ^a\.example$: it"), "{report}");
}

#[test]
fn o1_a_cache_for_some_names_of_a_server_block_is_not_that_of_the_others() {
    let of = |lines: &str| {
        imported("--corefile", &format!(".:53 {{\n forward . 10.0.0.2\n {lines}\n}}\n"))
    };
    let (spec, report) = of("cache 10 corp.example");
    assert!(spec["cache"].is_null(), "{spec}");
    assert!(
        report.contains("which CoreDNS did for corp.example only (spec.upstreams.cache: "),
        "{report}"
    );
    let lost = "3 notPossible: cache 10 corp.example: no stub domain is for corp.example alone, ";
    assert!(report.contains(lost) && report.contains("cache: {maxTTLSeconds: 10}"), "{report}");
    let (_, report) = of("cache corp.example {\n success 1000 10 5\n }");
    assert!(
        report.contains("4 notPossible: cache: success 1000 10 5: no stub domain is"),
        "{report}"
    );
    let (_, report) = of("cache 3600 corp.example");
    assert!(report.contains("3 notNeeded: cache 3600 corp.example: TTLs of all names"), "{report}");
    let stub = "forward a.corp.example 10.0.0.3\n forward . 10.0.0.2\n cache 10 corp.example";
    let (spec, report) = imported("--corefile", &format!(".:53 {{\n {stub}\n}}\n"));
    assert_eq!(spec["stubDomains"][0]["cache"]["maxTTLSeconds"], 10, "{report}");
    assert!(
        report.contains("corp.example: cache: {maxTTLSeconds: 10} of the stub domain; no stub"),
        "{report}"
    );
    let (spec, report) =
        imported("--corefile", "corp.example {\n forward . 10.0.0.3\n cache 10 corp.example\n}\n");
    assert_eq!(spec["stubDomains"][0]["cache"]["maxTTLSeconds"], 10, "{report}");
    assert!(!report.contains("notPossible") && !report.contains("which CoreDNS did"), "{report}");
}

#[test]
fn o1_of_two_services_of_cluster_dns_the_source_has_a_flag_of_its_own() {
    let scratch = tests::scratch::Scratch::new("import").unwrap();
    let service = |name: &str, ip: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: kube-system, labels: {{k8s-app: kube-dns}}}}\n\
             spec: {{clusterIP: {ip}, selector: {{k8s-app: kube-dns}}}}\n---\n"
        )
    };
    let corefile = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns}\ndata: {Corefile: \". {\\n forward . 8.8.8.8\\n}\\n\"}\n";
    let both = service("coredns-a", "10.96.0.10") + &service("coredns-b", "10.96.0.11") + corefile;
    scratch.write("dns.yaml", &both).unwrap();
    let of = |words: &str| super::printed(scratch.path(), &format!("--corefile dns.yaml {words}"));
    let (outcome, _, why) = of("--service dns-trial");
    assert_eq!(outcome, operator::offline::Severity::Unreadable);
    assert!(why.contains("name the one that pods ask with --from-service"), "{why}");
    let (_, dns, report) = of("--from-service coredns-a --service dns-trial");
    assert!(dns.contains("name: dns-trial") && !dns.contains("adopt"), "{dns}{report}");
    let (_, dns, report) = of("--from-service kube-system/coredns-b");
    assert!(dns.contains("name: coredns-b") && dns.contains("adopt: true"), "{dns}{report}");
    // Also where no manifest shows it.
    scratch.write("Corefile", ". {\n forward . 8.8.8.8\n}\n").unwrap();
    let (_, dns, report) =
        super::printed(scratch.path(), "--corefile Corefile --from-service rke2-coredns");
    assert!(dns.contains("name: rke2-coredns") && dns.contains("adopt: true"), "{dns}{report}");
}
