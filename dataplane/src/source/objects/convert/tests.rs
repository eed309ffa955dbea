//! Rows of YAML in, the core's objects out.

use super::*;

fn service_from(spec: &str) -> (Service, Option<String>) {
    let text = format!("metadata: {{name: a, namespace: n}}\nspec: {spec}");
    let parsed: slim::Service = serde_saphyr::from_str(&text).expect(&text);
    let mut reasons = Reasons::default();
    let converted = service(&parsed, &mut reasons);
    (converted, reasons.text())
}

fn slice_from(text: &str) -> (Result<Option<Slice>, String>, Option<String>) {
    let text = format!(
        "metadata: {{name: s, namespace: n, labels: {{kubernetes.io/service-name: a}}}}\n{text}"
    );
    let parsed: slim::EndpointSlice = serde_saphyr::from_str(&text).expect(&text);
    let mut reasons = Reasons::default();
    let converted = slice(&parsed, &mut reasons);
    (converted, reasons.text())
}

#[test]
fn service_kinds_are_decided_by_type_and_first_cluster_ip() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let rows = [
        ("{clusterIP: 10.96.0.1}", ServiceKind::ClusterIp(vec![ip("10.96.0.1")])),
        (
            "{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00::1']}",
            ServiceKind::ClusterIp(vec![ip("10.96.0.1"), ip("fd00::1")]),
        ),
        (
            "{type: LoadBalancer, clusterIP: 10.96.0.1}",
            ServiceKind::ClusterIp(vec![ip("10.96.0.1")]),
        ),
        ("{clusterIP: None}", ServiceKind::Headless),
        ("{clusterIPs: [None]}", ServiceKind::Headless),
        ("{clusterIP: ''}", ServiceKind::ClusterIp(vec![])),
        ("{clusterIPs: null}", ServiceKind::ClusterIp(vec![])),
        (
            "{type: ExternalName, externalName: mail.example.com}",
            ServiceKind::ExternalName("mail.example.com".into()),
        ),
        ("{type: ExternalName, clusterIP: None}", ServiceKind::ExternalName("".into())),
    ];
    for (spec, kind) in rows {
        assert_eq!(service_from(spec), (service_from(spec).0, None), "{spec}: no reason");
        assert_eq!(service_from(spec).0.kind, kind, "{spec}");
    }
}

#[test]
fn what_is_wrong_in_a_service_is_named_and_the_rest_is_kept() {
    let (converted, reasons) = service_from(
        "{clusterIPs: [10.96.0.1, 10.96.0.300], ports: [{port: 80}, {port: 70000}, {port: 53, protocol: QUIC}]}",
    );
    assert_eq!(converted.kind, ServiceKind::ClusterIp(vec!["10.96.0.1".parse().unwrap()]));
    assert_eq!(converted.ports.len(), 1);
    assert_eq!(
        reasons.as_deref(),
        Some(
            "clusterIP \"10.96.0.300\" is not an IP address; port 70000 is not between 1 and \
             65535; protocol \"QUIC\" is not TCP, UDP or SCTP"
        )
    );
}

#[test]
fn reasons_of_one_object_are_bounded() {
    let ports = "{port: 0}, ".repeat(1000);
    let (_, reasons) = service_from(&format!("{{clusterIP: None, ports: [{ports}]}}"));
    assert!(reasons.unwrap().ends_with("; and 995 more"));
}

#[test]
fn rr20_a_missing_ready_condition_means_ready() {
    let (slice, _) = slice_from(
        "addressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2], conditions: {ready: null}}, \
         {addresses: [10.0.0.3], conditions: {ready: false}}, {addresses: [10.0.0.4], conditions: null}]",
    );
    let ready: Vec<bool> = slice.unwrap().unwrap().endpoints.iter().map(|e| e.ready).collect();
    assert_eq!(ready, [true, true, false, true]);
}

#[test]
fn rr35_null_ports_are_left_out_and_null_names_are_unnamed_tcp() {
    let (slice, reasons) = slice_from(
        "addressType: IPv6\nports: [{port: null, name: all}, {port: 80, name: null, protocol: null}]\nendpoints: null",
    );
    let slice = slice.unwrap().unwrap();
    let tcp = SlicePort { name: "".into(), port: 80, protocol: Protocol::Tcp };
    assert_eq!((slice.ipv6, slice.ports, reasons), (true, vec![tcp], None));
}

#[test]
fn rr20_df35_fqdn_slices_are_ignored_with_a_reason_and_unknown_types_refused() {
    let (slice, reason) = slice_from("addressType: FQDN\nendpoints: [{addresses: [www.example]}]");
    assert_eq!(slice, Ok(None));
    assert!(reason.is_some_and(|reason| reason.contains("a Service of type ExternalName")));
    assert!(slice_from("addressType: IPX").0.unwrap_err().contains("\"IPX\""));
}

#[test]
fn an_endpoint_keeps_its_hostname_and_only_a_pod_as_its_target() {
    let (slice, reasons) = slice_from(
        "addressType: IPv4\nendpoints: [{addresses: [10.0.0.1, x], hostname: db-0, \
         targetRef: {kind: Pod, namespace: n, name: db-0}}, {addresses: [10.0.0.2], targetRef: {kind: Node, name: x}}]",
    );
    let endpoints = slice.unwrap().unwrap().endpoints;
    assert_eq!(endpoints[0].hostname.as_deref(), Some("db-0"));
    assert_eq!(endpoints[0].addresses.len(), 1);
    let target = TargetRef { namespace: "n".into(), name: "db-0".into() };
    assert_eq!((&endpoints[0].target, &endpoints[1].target), (&Some(target), &None));
    assert_eq!(reasons.as_deref(), Some("endpoint address \"x\" is not an IP address"));
}

#[test]
fn endpoints_become_slices_by_subset_and_family() {
    let text = "metadata: {name: db, namespace: n}\nsubsets:\n\
                - {addresses: [{ip: 10.0.0.1, hostname: db-0}, {ip: 'fd00::1'}], notReadyAddresses: [{ip: 10.0.0.2}], ports: [{name: pg, port: 5432}]}\n\
                - {addresses: [{ip: 10.0.0.9}]}\n";
    let endpoints: slim::Endpoints = serde_saphyr::from_str(text).unwrap();
    let slices = slices_of_endpoints(&endpoints, &mut Reasons::default());
    let shape: Vec<_> = slices
        .iter()
        .map(|s| {
            (&*s.key.name, s.ipv6, s.ports.len(), s.endpoints.iter().map(|e| e.ready).collect())
        })
        .collect();
    assert_eq!(
        shape,
        [
            ("endpoints:db:0:IPv4", false, 1, vec![true, false]),
            ("endpoints:db:0:IPv6", true, 1, vec![true]),
            ("endpoints:db:1:IPv4", false, 0, vec![true]),
        ]
    );
}

#[test]
fn rr54_all_pod_ips_count_and_the_phase_says_when_they_are_gone() {
    let rows = [
        ("{podIPs: [{ip: 10.0.0.1}, {ip: 'fd00::1'}], phase: Running}", 2, false),
        ("{podIP: 10.0.0.1}", 1, false),
        ("{podIP: 10.0.0.1, phase: Succeeded}", 1, true),
        ("{podIP: 10.0.0.1, phase: Failed}", 1, true),
        ("{}", 0, false),
        ("null", 0, false),
    ];
    for (status, addresses, finished) in rows {
        let text = format!("metadata: {{name: p, namespace: n}}\nstatus: {status}");
        let parsed: slim::Pod = serde_saphyr::from_str(&text).expect(&text);
        let converted = pod(&parsed, &mut Reasons::default());
        assert_eq!(
            (converted.addresses.len(), converted.finished),
            (addresses, finished),
            "{status}"
        );
    }
}

#[test]
fn e14_uid_and_version_are_numbers_and_absent_ones_are_zero() {
    let metadata = |uid: Option<&str>, version: Option<&str>| slim::Metadata {
        uid: uid.map(str::to_owned),
        resource_version: version.map(str::to_owned),
        ..slim::Metadata::default()
    };
    let uuid = metadata(Some("00000000-0000-0000-0000-0000000000ff"), Some("42"));
    assert_eq!((uid(&uuid), version(&uuid)), (255, 42));
    let none = metadata(None, Some("opaque"));
    assert_eq!((uid(&none), version(&none)), (0, 0));
    let other = metadata(Some("not-a-uuid"), None);
    assert_ne!(uid(&other), 0);
}
