//! GitOps by Argo CD: the health check of docs/gitops.md says of each state what kstatus says, which Flux reads.

use serde_json::{Value, json};
use tests::argo_cd::healths;

/// A ClusterDNS of generation 3 with this status.
fn with(status: Value) -> Value {
    json!({"metadata": {"name": "default", "generation": 3}, "spec": {}, "status": status})
}

fn conditions(generation: u32, conditions: &[(&str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status)| json!({"type": kind, "status": status, "reason": "R", "message": "it's \"so\"\n"}))
        .collect();
    with(json!({"observedGeneration": generation, "conditions": conditions}))
}

#[test]
fn argo_cd_waits_rests_or_fails_as_the_status_says() {
    let table = [
        ("Progressing", json!({"metadata": {"generation": 1}, "spec": {}})),
        ("Progressing", with(json!({"conditions": null}))),
        ("Progressing", conditions(2, &[("Ready", "True")])),
        ("Progressing", conditions(3, &[("Ready", "False"), ("Reconciling", "True")])),
        ("Progressing", conditions(3, &[("Ready", "Unknown")])),
        ("Progressing", conditions(3, &[("Ready", "True"), ("Reconciling", "True")])),
        ("Healthy", conditions(3, &[("Ready", "True")])),
        (
            "Healthy",
            conditions(3, &[("Stalled", "False"), ("Ready", "True"), ("Degraded", "True")]),
        ),
        ("Degraded", conditions(3, &[("Ready", "False"), ("Stalled", "True")])),
        ("Degraded", conditions(3, &[("Ready", "True"), ("Stalled", "True")])),
    ];
    let (expected, objects): (Vec<&str>, Vec<Value>) = table.into_iter().unzip();
    let Some(healths) = healths(&objects) else { return };
    assert_eq!(healths, expected);
}
