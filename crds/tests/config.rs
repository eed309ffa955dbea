//! The document between the planes: what it leaves out, what it refuses, and that its revision depends on its content
//! only.

use crds::config::{Config, FORMAT, PodRecords, ServiceAddresses, ServiceName, Upstreams};
use crds::document::ConfigError;
use crds::{ClusterDNSSpec, check, check_resource, manifest};

fn of_spec(yaml: &str) -> Config {
    let spec: ClusterDNSSpec = serde_saphyr::from_str(yaml).expect(yaml);
    check(&spec).unwrap_or_else(|violations| panic!("{violations}"))
}

/// Revisions that clusters run: when one of these changes, every cluster that is upgraded sees a new revision without
/// having changed anything. A new field must be left out at its default.
#[test]
fn a_new_version_alone_does_not_change_the_revision() {
    let empty = of_spec("{}");
    assert_eq!(empty.to_json(), r#"{"format":1}"#);
    assert_eq!(empty.revision(), "3f0a99256bee");
    let (full, _) = manifest::read(include_str!("../examples/full.yaml"), "full.yaml")
        .expect("the full example");
    let full = check_resource(&full).expect("the full example is accepted");
    assert_eq!(full.revision(), "45caa5af5800");
}

/// What a document means that leaves these fields out. Pods of two versions run the same document during an upgrade, so a default
/// of another value needs a new `FORMAT`: else the same revision is two configurations.
#[test]
fn what_a_document_leaves_out_means_the_same_in_every_version() {
    let servers = r#"{"servers":[{"ip":"10.0.0.2","port":53}]}"#;
    let short = r#"{"format":1,
        "hosts":[{"name":"a.example","addresses":["10.0.0.1"]}],
        "records":[{"name":"b.example","data":{"A":["10.0.0.1"]}}],
        "metrics":{"probes":[{"label":"l","name":"n.example"}]},
        "stubDomains":[{"domain":"corp.example","group":SERVERS}]}"#;
    let long = r#"{"format":1,"domain":"cluster.local","ttlSeconds":5,"podRecords":"Insecure","endpointNames":"Address",
        "hideEmptyServices":false,
        "hosts":[{"name":"a.example","addresses":["10.0.0.1"],"ttlSeconds":30,"reverse":true}],
        "records":[{"name":"b.example","data":{"A":["10.0.0.1"]},"ttlSeconds":30,"reverse":true}],
        "cache":{"memoryBytes":16777216,"entries":16384,"maxTTLSeconds":3600,"maxNegativeTTLSeconds":30,"staleSeconds":86400,
            "prefetch":true,"expose":false},
        "limits":{"inFlight":4096,"inFlightPerClient":1024,"tcpConnections":4096,"tcpConnectionsPerClient":256,
            "tcpBufferBytes":33554432,"udpPayloadBytes":1232,"upstreamPorts":8192},
        "warmStart":{"maxAgeSeconds":86400},
        "logging":{"queries":"None","format":"JSON","level":"Info"},
        "metrics":{"compatibility":["CoreDNS"],
            "probes":[{"label":"l","name":"n.example","type":"A","intervalSeconds":5}]},
        "stubDomains":[{"domain":"corp.example","group":{"servers":[{"ip":"10.0.0.2","port":53,"transport":"UDP"}],
            "options":{"policy":"Random","caseRandomisation":false,"limits":{"inFlight":2048},"cache":{},
                "withheldTypes":[]}}}]}"#;
    let read = |text: &str| {
        let (config, unknown) = Config::from_json(&text.replace("SERVERS", servers)).expect(text);
        assert!(unknown.is_empty(), "{unknown}");
        config
    };
    assert_eq!((read(short), FORMAT), (read(long), 1));
}

#[test]
fn an_empty_spec_is_the_default_configuration() {
    assert_eq!(of_spec("{}"), Config::default());
    assert_eq!(Config::from_json(r#"{"format":1}"#).expect("all defaults").0, Config::default());
}

#[test]
fn writing_a_default_out_changes_nothing() {
    let written_out = "{domain: cluster.local, ttlSeconds: 5, podRecords: Insecure, cache: {memory: 16384Ki}, \
                       hosts: [{name: a.example, addresses: [10.0.0.1], ttlSeconds: 30, reverse: true}], \
                       service: {name: kube-dns}, upstreams: {fromResolvConf: true}, limits: {udpPayloadBytes: 1232}}";
    let short = of_spec("{hosts: [{name: a.example, addresses: [10.0.0.1]}]}");
    assert_eq!(of_spec(written_out).revision(), short.revision());
    assert_eq!(
        short.to_json(),
        r#"{"format":1,"hosts":[{"addresses":["10.0.0.1"],"name":"a.example"}]}"#
    );
}

#[test]
fn every_setting_changes_the_revision() {
    let mut seen = vec![of_spec("{}").revision()];
    for spec in [
        "{domain: c.example}",
        "{ttlSeconds: 6}",
        "{podRecords: Verified}",
        "{endpointNames: PodName}",
        "{hideEmptyServices: true}",
        "{reverseCIDRs: [10.0.0.0/8]}",
        "{serviceAddresses: [10.0.0.1]}",
        "{exposure: {namespaces: [shop]}}",
        "{hosts: [{name: a.example, addresses: [10.0.0.1]}]}",
        "{records: [{name: a.example, type: A, addresses: [10.0.0.1]}]}",
        "{upstreams: {none: true}}",
        "{upstreams: {withheldTypes: [AAAA]}}",
        "{stubDomains: [{domain: a.example, servers: [{address: 10.0.0.1}]}]}",
        "{cache: {prefetch: false}}",
        "{access: {rebindProtection: true}}",
        "{limits: {inFlight: 1}}",
        "{identity: {chaos: false}}",
        "{listeners: {tls: {certificate: {name: a}}}}",
        "{service: {name: dns}}",
        "{warmStart: {maxAgeSeconds: 0}}",
        "{logging: {queries: All}}",
    ] {
        let revision = of_spec(spec).revision();
        assert!(
            revision.len() == 12 && revision.bytes().all(|octet| octet.is_ascii_hexdigit()),
            "{revision}"
        );
        assert!(!seen.contains(&revision), "{spec}");
        seen.push(revision);
    }
}

#[test]
fn what_only_the_operator_reads_is_not_in_it() {
    let spec = "{scaling: {fixed: {replicas: 5}}, rollout: {canary: false}, drainSeconds: 5, networkPolicy: true, \
                service: {adopt: true, podPort: 5353}, placement: {topologySpread: false}, managementState: Unmanaged}";
    assert_eq!(of_spec(spec), Config::default());
}

#[test]
fn service_addresses_are_those_written_or_the_cluster_ips_or_the_services() {
    let listed = |ip: &str| ServiceAddresses::Listed(vec![ip.parse().expect(ip)]);
    assert_eq!(
        of_spec("{serviceAddresses: [10.1.1.1], service: {clusterIPs: [10.96.0.10]}}")
            .service_addresses,
        listed("10.1.1.1")
    );
    assert_eq!(
        of_spec("{serviceAddresses: [\"FD00::5\", \"fd00:0::5\"]}").service_addresses,
        listed("fd00::5"),
        "ns.dns has one record of each address"
    );
    assert_eq!(
        of_spec("{service: {clusterIPs: [10.96.0.10]}}").service_addresses,
        listed("10.96.0.10")
    );
    let of_service =
        ServiceAddresses::OfService { namespace: "dns".to_owned(), name: "kube-dns".to_owned() };
    assert_eq!(of_spec("{service: {namespace: dns}}").service_addresses, of_service);
}

/// Listed addresses need not be those of our Service, so they do not say which one it is. Other documents say it already, and
/// stay what they were.
#[test]
fn o20_a_document_with_listed_addresses_names_our_service_beside_them() {
    let named = |namespace: &str, name: &str| {
        Some(ServiceName { namespace: namespace.to_owned(), name: name.to_owned() })
    };
    let own = |spec| of_spec(spec).own_service;
    assert_eq!(own("{serviceAddresses: [169.254.20.10]}"), named("kube-system", "kube-dns"));
    let elsewhere = "{serviceAddresses: [10.1.1.1], service: {namespace: dns, name: trial, clusterIPs: [10.96.0.10]}}";
    assert_eq!(own(elsewhere), named("dns", "trial"));
    for other in ["{}", "{serviceAddresses: []}", "{service: {clusterIPs: [10.96.0.10]}}"] {
        assert_eq!(own(other), None, "{other}");
    }
    let document = of_spec(elsewhere).to_json();
    assert!(document.contains(r#""ownService":{"name":"trial","namespace":"dns"}"#), "{document}");
    let (read, unknown) = Config::from_json(&document).expect("its own document");
    assert_eq!((read, unknown.is_empty()), (of_spec(elsewhere), true));
}

#[test]
fn rr76_addresses_that_are_there_twice_are_dropped() {
    let config = of_spec("{hosts: [{name: a.example, addresses: [10.0.0.1, 10.0.0.2, 10.0.0.1]}]}");
    assert_eq!(config.hosts[0].addresses.len(), 2);
}

#[test]
fn unknown_fields_are_ignored_listed_and_counted() {
    let text = r#"{"format":1,"colour":"red","podRecords":"Disabled",
        "stubDomains":[{"domain":"a.example","shape":{"round":true},"group":{"servers":[{"ip":"10.0.0.1","port":53}]}}]}"#;
    let (config, unknown) = Config::from_json(text).expect("only unknown fields");
    assert_eq!(config.pod_records, PodRecords::Disabled);
    assert_eq!(unknown.paths, ["colour", "stubDomains.0.shape"]);
    assert_eq!(unknown.to_string(), "colour, stubDomains.0.shape");

    let many: Vec<_> = (0..100).map(|index| format!(r#""x{index}":0"#)).collect();
    let (_, unknown) = Config::from_json(&format!(r#"{{"format":1,{}}}"#, many.join(",")))
        .expect("unknown fields");
    assert_eq!((unknown.paths.len(), unknown.count), (32, 100));
    assert!(unknown.to_string().ends_with(" and 68 more"));
}

#[test]
fn a_newer_format_is_refused_and_says_what_to_upgrade() {
    let newer = format!(r#"{{"format":{},"domain":7}}"#, FORMAT + 1);
    let error = Config::from_json(&newer).expect_err("newer");
    assert!(
        matches!(error, ConfigError::NewerFormat { format } if format == FORMAT + 1),
        "{error}"
    );
    assert!(error.to_string().contains("upgrade the data plane first"), "{error}");
}

#[test]
fn documents_that_are_none_are_refused_with_a_reason() {
    for (text, reason) in [
        ("", "not understood"),
        ("{}", "no `format`"),
        (r#"{"format":1"#, "not understood"),
        (r#"{"format":1} {}"#, "not understood"),
        (r#"{"format":1,"ttlSeconds":-1}"#, "not understood"),
        (r#"{"format":1,"podRecords":"Maybe"}"#, "unknown variant `Maybe`"),
        (
            r#"{"format":1,"upstreams":{"servers":{"servers":[{"ip":"dns.corp","port":53}]}}}"#,
            "invalid IP address",
        ),
    ] {
        let error = Config::from_json(text).expect_err(text).to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    let long = format!(r#"{{"format":1,"x":"{}"}}"#, "a".repeat(1024 * 1024));
    assert!(matches!(Config::from_json(&long), Err(ConfigError::TooLong { .. })));
}

#[test]
fn g159_a_document_that_breaks_a_rule_is_refused_naming_the_field() {
    for (text, field, reason) in [
        (
            r#"{"format":1,"stubDomains":[{"domain":"svc.cluster.local","group":{"servers":[{"ip":"10.0.0.1","port":53}]}}]}"#,
            "spec.stubDomains[0].domain",
            "UnderClusterDomain",
        ),
        (
            r#"{"format":1,"hosts":[{"name":"x.localhost","addresses":["10.0.0.1"]}]}"#,
            "spec.hosts[0].name",
            "SpecialName",
        ),
        (r#"{"format":1,"domain":"Cluster.Local."}"#, "spec.domain", "InvalidName"),
        (
            r#"{"format":1,"limits":{"udpPayloadBytes":65535}}"#,
            "spec.limits.udpPayloadBytes",
            "OutOfRange",
        ),
        (
            r#"{"format":1,"upstreams":{"servers":{"servers":[{"ip":"10.0.0.1","port":853,"transport":"TLS"}]}}}"#,
            "spec.upstreams.servers[0].tls",
            "Missing",
        ),
    ] {
        let Err(ConfigError::Invalid(violations)) = Config::from_json(text) else {
            panic!("accepted: {text}")
        };
        let [violation] = violations.listed() else { panic!("{violations}") };
        assert_eq!(
            (violation.field.as_str(), violation.reason.to_string().as_str()),
            (field, reason)
        );
    }
}

#[test]
fn a34_addresses_that_only_the_cluster_knows_are_checked_too() {
    let config = of_spec("{upstreams: {servers: [{address: 10.0.0.2}, {address: 10.96.0.10}]}}");
    let own = "10.96.0.10".parse().expect("an address");
    let violations = crds::check::check_own_addresses(&config, &[own]).expect_err("it is ours");
    assert_eq!(violations.listed()[0].field, "spec.upstreams.servers[1].address");
    assert!(crds::check::check_own_addresses(&config, &[]).is_ok());
}

#[test]
fn a_group_keeps_its_policy_when_the_servers_come_from_resolv_conf() {
    let config = of_spec("{upstreams: {policy: Sequential}}");
    let Upstreams::FromResolvConf(options) = config.upstreams else {
        panic!("{:?}", config.upstreams)
    };
    assert_eq!(options.policy, crds::config::Policy::Sequential);
}
