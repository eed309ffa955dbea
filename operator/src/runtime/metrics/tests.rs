//! What the page shows, and when a row goes.

use super::*;

fn dns() -> ClusterDNS {
    let mut dns = ClusterDNS::default();
    dns.metadata.name = Some("cluster".into());
    dns
}

fn with_true(kinds: &[&str]) -> ClusterDNSStatus {
    let condition = |kind: &&str| {
        let condition = serde_json::json!({"type": kind, "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        serde_json::from_value(condition).unwrap()
    };
    let conditions = kinds.iter().map(condition).collect();
    ClusterDNSStatus { conditions, ..ClusterDNSStatus::default() }
}

#[test]
fn o14_a_condition_that_left_the_status_is_0() {
    let metrics = Metrics::default();
    let line = |kind: &str, value: &str| {
        format!("clusterdns_operator_condition{{name=\"cluster\",condition=\"{kind}\"}} {value}")
    };
    metrics.reported(&dns(), &with_true(&["Ready", "Stalled"]));
    assert!(metrics.text().contains(&line("Stalled", "1.0")), "{}", metrics.text());
    metrics.reported(&dns(), &with_true(&["Ready"]));
    assert!(metrics.text().contains(&line("Stalled", "0.0")), "{}", metrics.text());
    assert!(metrics.text().contains(&line("Ready", "1.0")), "{}", metrics.text());
}

#[test]
fn k23_accepted_has_no_value_while_nothing_says_whether_the_spec_is_accepted() {
    let (metrics, dns) = (Metrics::default(), dns());
    let accepted = "clusterdns_operator_condition{name=\"cluster\",condition=\"Accepted\"}";
    let mut status = with_true(&["Accepted"]);
    metrics.reported(&dns, &status);
    assert!(metrics.text().contains(accepted), "{}", metrics.text());
    status.conditions[0].status = "Unknown".into();
    metrics.reported(&dns, &status);
    assert!(!metrics.text().contains(accepted), "{}", metrics.text());
}

#[test]
fn o14_up_to_date_has_no_value_while_the_operator_is_not_to_apply_the_spec() {
    let metrics = Metrics::default();
    let mut status = with_true(&["UpToDate", "Ready"]);
    let of = |kind: &str| {
        format!("clusterdns_operator_condition{{name=\"cluster\",condition=\"{kind}\"}}")
    };
    let mut dns = dns();
    // A spec that is refused is not looked at any further.
    for reason in ["Unmanaged", "NotAccepted"] {
        dns.spec.management_state = ManagementState::Managed;
        metrics.reported(&dns, &status);
        assert!(metrics.text().contains(&of("UpToDate")), "{}", metrics.text());
        dns.spec.management_state = ManagementState::Unmanaged;
        status.conditions[0].status = "False".into();
        status.conditions[0].reason = reason.into();
        metrics.reported(&dns, &status);
        assert!(!metrics.text().contains(&of("UpToDate")), "{}", metrics.text());
        assert!(metrics.text().contains(&of("Ready")), "{}", metrics.text());
    }
}

#[test]
fn o15_ready_has_no_value_while_another_dns_server_answers_its_clients() {
    let (metrics, dns) = (Metrics::default(), dns());
    let ready = "clusterdns_operator_condition{name=\"cluster\",condition=\"Ready\"}";
    let mut status = with_true(&["Ready", "UpToDate"]);
    for reason in SERVED_OTHERWISE {
        (status.conditions[0].status, status.conditions[0].reason) =
            ("False".into(), reason.into());
        metrics.reported(&dns, &status);
        assert!(!metrics.text().contains(ready), "{reason}: {}", metrics.text());
        status.conditions[0].reason = "ServiceWithoutPods".into();
        metrics.reported(&dns, &status);
        assert!(metrics.text().contains(&format!("{ready} 0.0")), "{}", metrics.text());
    }
}

#[test]
fn o14_each_outcome_of_a_reconcile_has_a_row_from_the_start() {
    let metrics = Metrics::default();
    let line = |outcome: &str, count: u64| {
        format!("clusterdns_operator_reconciles_total{{outcome=\"{outcome}\"}} {count}\n")
    };
    for outcome in OUTCOMES {
        assert!(metrics.text().contains(&line(outcome, 0)), "{}", metrics.text());
        metrics.reconciled(outcome, Duration::from_millis(20));
        assert!(metrics.text().contains(&line(outcome, 1)), "{}", metrics.text());
    }
}

#[test]
fn conditions_of_what_is_gone_go() {
    let (metrics, dns, status) = (Metrics::default(), dns(), with_true(&["Ready"]));
    let line = r#"clusterdns_operator_condition{name="cluster",condition="Ready"} 1.0"#;
    metrics.reported(&dns, &status);
    assert!(metrics.text().contains(line), "{}", metrics.text());
    metrics.gone("cluster");
    assert!(!metrics.text().contains(line));
}

#[test]
fn durations_have_bounds_that_a_reconcile_may_reach_and_native_buckets() {
    let metrics = Metrics::default();
    metrics.reconciled("applied", Duration::from_millis(20));
    metrics.reconciled("applied", Duration::from_secs(100));
    let text = metrics.text();
    let bucket = |bound: &str| format!("reconcile_duration_seconds_bucket{{le=\"{bound}\"}}");
    for (bound, count) in [("0.004", 0), ("0.016", 0), ("0.032", 1), ("32.768", 1), ("+Inf", 2)] {
        let line = format!("clusterdns_operator_{} {count}\n", bucket(bound));
        assert!(text.contains(&line), "{line}{text}");
    }
    assert_eq!(text.matches("_bucket{").count(), BOUNDS + 1);
    // The name of the family and the schema of its native buckets: 3, as a zigzag varint of field 5.
    let messages = metrics.page(Form::Messages);
    let name = b"clusterdns_operator_reconcile_duration_seconds";
    let at = messages.windows(name.len()).position(|octets| octets == name);
    let family = &messages[at.expect("the family")..];
    assert!(family.windows(2).any(|octets| octets == [5 << 3, 6]), "{family:?}");
}
