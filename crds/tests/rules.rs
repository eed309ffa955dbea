//! One row per rule: what `check` says about a spec, and about a change of one. The same rows, with what the API server
//! says, run against a real API server in the package `tests`.

mod table;

use crds::{check_resource, check_update};
use table::{Row, rows};

/// What `check` says about a row: about the resource itself, or about the change to it.
fn said(row: &Row) -> Vec<(String, String, String)> {
    let resource = row.resource();
    let found = check_resource(&resource).map(drop);
    let found = match row.old_resource() {
        Some(old) => found.and_then(|()| check_update(&old, &resource.spec)),
        None => found,
    };
    let violations = found.err().unwrap_or_default();
    violations
        .listed()
        .iter()
        .map(|v| (v.field.clone(), v.reason.to_string(), v.message.clone()))
        .collect()
}

#[test]
fn every_rule_names_the_field_the_reason_and_what_to_write() {
    let rows = rows(include_str!("rules.yaml"));
    let mut wrong = Vec::new();
    for row in &rows {
        let said = said(row);
        let right = matches!(
            said.as_slice(),
            [(field, reason, message)] if *field == row.field && *reason == row.reason && message.contains(&row.message)
        );
        if !right {
            let expected = (&row.field, &row.reason, &row.message);
            wrong.push(format!("{}\n  expected {expected:?}\n  said     {said:?}", row.rule));
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn what_looks_wrong_and_is_not_is_accepted() {
    for row in rows(include_str!("legal.yaml")) {
        assert_eq!(said(&row), [], "{}", row.rule);
    }
}

#[test]
fn rows_have_names_of_their_own_and_say_what_the_server_does() {
    let mut names = std::collections::HashSet::new();
    for row in rows(include_str!("rules.yaml")) {
        assert!(
            ["Schema", "CEL", "Accepts"].contains(&row.server.as_str()),
            "{}: server {:?}",
            row.rule,
            row.server
        );
        assert!(names.insert(row.rule.clone()), "{} is there twice", row.rule);
    }
}

#[test]
fn every_reason_has_a_row() {
    // Reasons such as InvalidPath: one that no rule gives is dead code, and one without a row is untested.
    let source = include_str!("../src/check/violations.rs");
    let body = source
        .split("pub enum Reason {")
        .nth(1)
        .and_then(|rest| rest.split('}').next())
        .expect("the enum");
    let rows = rows(include_str!("rules.yaml"));
    for reason in body.lines().filter_map(|line| line.trim().strip_suffix(',')) {
        assert!(rows.iter().any(|row| row.reason == reason), "{reason} has no row in rules.yaml");
    }
}

#[test]
fn o1_mistakes_of_reading_do_not_hide_the_others() {
    let spec = "{hosts: [{name: a.example, addresses: [10.0.0.256]}, {name: localhost, addresses: [10.0.0.1]}], \
                records: [{name: b.example, type: A}, {name: onion, type: TXT, strings: [x]}], \
                stubDomains: [{domain: svc.cluster.local, servers: [{address: 10.0.0.1}]}], ttlSeconds: 9999}";
    let spec = serde_saphyr::from_str(spec).expect("a spec");
    let found = crds::check(&spec).expect_err("mistakes");
    let fields: Vec<&str> = found.listed().iter().map(|v| v.field.as_str()).collect();
    let expected = [
        "spec.hosts[0].addresses[0]",
        "spec.records[0].addresses",
        "spec.ttlSeconds",
        "spec.stubDomains[0].domain",
        "spec.hosts[1].name",
        "spec.records[1].name",
    ];
    for field in expected {
        assert!(fields.contains(&field), "{field} of {fields:?}");
    }
    assert_eq!((fields.len(), found.count()), (expected.len(), expected.len()), "{fields:?}");
}

/// A data plane on a laptop may ask a resolver on the same machine.
#[test]
fn a34_a_local_data_plane_may_ask_its_own_machine() {
    let text = "{apiVersion: clusterdns.dev/v1alpha1, kind: ClusterDNS, metadata: {name: a}, \
                spec: {upstreams: {servers: [{address: 127.0.0.53}, {address: 169.254.169.253}]}}}";
    let (dns, _) = crds::manifest::read(text, "a").expect("a ClusterDNS");
    assert!(crds::check_local(&dns).is_ok());
    assert_eq!(check_resource(&dns).expect_err("in a pod").count(), 1);
}

/// API servers of Kubernetes 1.35 take such a name, and it cannot be changed.
#[test]
fn a_service_that_is_there_may_have_a_name_that_begins_with_a_digit() {
    let text = "{apiVersion: clusterdns.dev/v1alpha1, kind: ClusterDNS, metadata: {name: a}, \
                spec: {service: {name: 1dns}}}";
    let (mut dns, _) = crds::manifest::read(text, "a").expect("a ClusterDNS");
    assert_eq!(check_resource(&dns).expect_err("it is not there").count(), 1);
    dns.metadata.uid = Some("it is there".to_owned());
    assert!(check_resource(&dns).is_ok());
}
