//! One row per rule: what `check` says about a spec, and about a change of one. The same rows, with what the API server
//! says, run against a real API server in the package `tests`.

mod table;

use crds::{check_resource, check_update};
use table::{Row, rows};

/// What `check` says about a row: about the resource itself, or about the change to it.
fn said(row: &Row) -> Vec<(String, String, String)> {
    let resource = row.resource();
    let found = check_resource(&resource).map(drop);
    let found = match row.old_spec() {
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
    // InvalidPath and the like: a reason that nothing gives is dead, one without a row is untested.
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
