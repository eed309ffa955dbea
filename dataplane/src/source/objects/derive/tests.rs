//! A Service and Pods in, the slices that a controller would make of them out; one line per endpoint.

use super::*;

const POD: &str = "metadata: {name: db-0, namespace: data, labels: {app: db, tier: back}}
spec: {hostname: db-0, subdomain: db, containers: [{ports: [{name: pg, containerPort: 5432}]}]}
status: {podIPs: [{ip: 10.244.1.21}, {ip: 'fd00:244::21'}], phase: Running}";

fn pod(text: &str) -> slim::Pod {
    serde_saphyr::from_str(text).expect(text)
}

/// Those that have not finished.
fn kept(pods: &[slim::Pod]) -> Vec<Pod> {
    let converted = |pod| (pod, convert::pod(pod, &mut Reasons::default()));
    let unfinished = pods.iter().map(converted).filter(|(_, converted)| !converted.finished);
    unfinished.map(|(pod, converted)| Pod::of(pod, &converted)).collect()
}

/// `address hostname|- ready|not port/number…` for each endpoint of each slice.
fn derived(spec: &str, pods: &[slim::Pod]) -> Vec<String> {
    let text = format!("metadata: {{name: db, namespace: data}}\nspec: {spec}");
    let service: slim::Service = serde_saphyr::from_str(&text).expect(&text);
    let mut lines = Vec::new();
    for slice in slices(&Selecting::of(&service), kept(pods).iter()) {
        assert_eq!(&*slice.service, "db");
        let ports: Vec<String> =
            slice.ports.iter().map(|port| format!(" {}/{}", port.name, port.port)).collect();
        for endpoint in &slice.endpoints {
            assert_eq!(endpoint.addresses[0].is_ipv6(), slice.ipv6);
            lines.push(format!(
                "{} {} {}{}",
                endpoint.addresses[0],
                endpoint.hostname.as_deref().unwrap_or("-"),
                if endpoint.ready { "ready" } else { "not" },
                ports.concat()
            ));
        }
    }
    lines
}

#[test]
fn a_headless_service_gets_every_address_of_the_pods_it_selects() {
    let spec = "{clusterIP: None, selector: {app: db}, ports: [{name: sql, port: 5432}]}";
    assert_eq!(
        derived(spec, &[pod(POD)]),
        ["10.244.1.21 db-0 ready sql/5432", "fd00:244::21 db-0 ready sql/5432"]
    );
}

#[test]
fn every_label_of_the_selector_must_match_in_the_same_namespace() {
    let rows = [
        ("{app: db}", POD.to_owned(), 2),
        ("{app: db, tier: back}", POD.to_owned(), 2),
        ("{app: db, tier: front}", POD.to_owned(), 0),
        ("{app: db}", POD.replace("namespace: data", "namespace: other"), 0),
    ];
    for (selector, text, endpoints) in rows {
        let spec = format!("{{clusterIP: None, selector: {selector}}}");
        assert_eq!(derived(&spec, &[pod(&text)]).len(), endpoints, "{selector} {text}");
    }
}

#[test]
fn families_are_written_or_those_of_the_cluster_ips() {
    let rows: [(&str, &[&str]); 4] = [
        ("clusterIP: 10.96.0.1", &["10.244.1.21 db-0 ready"]),
        ("clusterIPs: ['fd00:96::1']", &["fd00:244::21 db-0 ready"]),
        ("clusterIP: None, ipFamilies: [IPv6]", &["fd00:244::21 db-0 ready"]),
        (
            "clusterIPs: [10.96.0.1, 'fd00:96::1']",
            &["10.244.1.21 db-0 ready", "fd00:244::21 db-0 ready"],
        ),
    ];
    for (spec, expected) in rows {
        let spec = format!("{{{spec}, selector: {{app: db}}}}");
        assert_eq!(derived(&spec, &[pod(POD)]), expected, "{spec}");
    }
}

#[test]
fn readiness_is_the_condition_or_assumed_and_ended_pods_are_left_out() {
    let status = |text: &str| POD.replace("phase: Running", text);
    let rows: [(String, &[&str]); 5] = [
        (status("phase: Pending"), &["10.244.1.21 db-0 ready"]),
        (status("conditions: [{type: Ready, status: 'True'}]"), &["10.244.1.21 db-0 ready"]),
        (status("conditions: [{type: Ready, status: 'False'}]"), &["10.244.1.21 db-0 not"]),
        (status("phase: Succeeded"), &[]),
        (
            POD.replace(
                "{name: db-0, names",
                "{deletionTimestamp: '2026-01-01T00:00:00Z', name: db-0, names",
            ),
            &["10.244.1.21 db-0 not"],
        ),
    ];
    for (text, expected) in rows {
        let spec = "{clusterIP: None, ipFamilies: [IPv4], selector: {app: db}}";
        assert_eq!(derived(spec, &[pod(&text)]), expected, "{text}");
    }
}

#[test]
fn rr21_publish_not_ready_addresses_makes_every_endpoint_ready() {
    let text = POD.replace("phase: Running", "conditions: [{type: Ready, status: 'False'}]");
    let spec = "{clusterIP: None, ipFamilies: [IPv4], publishNotReadyAddresses: true, selector: {app: db}}";
    assert_eq!(derived(spec, &[pod(&text)]), ["10.244.1.21 db-0 ready"]);
}

#[test]
fn rr26_a_hostname_counts_only_with_the_subdomain_of_this_service() {
    let text = POD.replace("subdomain: db", "subdomain: other");
    let spec = "{clusterIP: None, ipFamilies: [IPv4], selector: {app: db}}";
    assert_eq!(derived(spec, &[pod(&text)]), ["10.244.1.21 - ready"]);
}

#[test]
fn target_ports_are_numbers_or_names_looked_up_in_each_pod() {
    let other = POD.replace("db-0", "db-1").replace("5432", "6432").replace("1.21", "1.22");
    let rows: [(&str, &[&str]); 4] = [
        (
            "{port: 80, targetPort: 5432}",
            &["10.244.1.21 db-0 ready /5432", "10.244.1.22 db-1 ready /5432"],
        ),
        ("{port: 80}", &["10.244.1.21 db-0 ready /80", "10.244.1.22 db-1 ready /80"]),
        (
            "{port: 80, targetPort: pg}",
            &["10.244.1.21 db-0 ready /5432", "10.244.1.22 db-1 ready /6432"],
        ),
        ("{port: 80, targetPort: none}", &["10.244.1.21 db-0 ready", "10.244.1.22 db-1 ready"]),
    ];
    for (port, expected) in rows {
        let spec = format!("{{clusterIP: 10.96.0.1, selector: {{app: db}}, ports: [{port}]}}");
        assert_eq!(derived(&spec, &[pod(POD), pod(&other)]), expected, "{port}");
    }
}
