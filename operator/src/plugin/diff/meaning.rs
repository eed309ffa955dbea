//! A spec with its defaults filled in, so that a default that is written out is no change, and a change shows the
//! default (pure).

use crds::ClusterDNSSpec;
use crds::v1alpha1::{Placement, PodDisruptionBudget, Proportional, WarmStart};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::import::section_defaults;

/// The spec as JSON: sections that are absent have their defaults, empty lists and sections are absent.
pub(super) fn meaning(spec: &ClusterDNSSpec) -> Value {
    let Value::Object(mut fields) = value(spec) else { return Value::Null };
    for (field, default) in sections() {
        let section = fields.entry(field).or_insert(Value::Null);
        if section.is_null() {
            *section = default;
        }
    }
    fields.retain(|_, it| *it != json!([]) && *it != json!({}));
    Value::Object(fields)
}

/// What an absent section means.
fn sections() -> impl Iterator<Item = (&'static str, Value)> {
    let others = [
        ("placement", value(&Placement::default())),
        ("warmStart", value(&WarmStart::default())),
        ("podDisruptionBudget", value(&PodDisruptionBudget::default())),
        ("scaling", json!({"proportional": value(&Proportional::default())})),
        (
            "upstreams",
            json!({"fromResolvConf": true, "policy": "Random", "caseRandomisation": false}),
        ),
    ];
    section_defaults().into_iter().chain(others)
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or(Value::Object(Map::new()))
}

#[cfg(test)]
mod tests {
    use super::super::settings::settings;
    use super::*;

    fn changed(before: &str, after: &str) -> Vec<String> {
        let spec = |text: &str| serde_saphyr::from_str::<ClusterDNSSpec>(text).expect(text);
        settings(&meaning(&spec(before)), &meaning(&spec(after)), &["spec.service.name"])
            .into_iter()
            .map(|it| format!("{} {:?} {:?} {}", it.field, it.before, it.after, it.is_immutable))
            .collect()
    }

    #[test]
    fn a_default_that_is_written_out_is_no_change() {
        for section in [
            "cache: {}",
            "access: {}",
            "limits: {}",
            "identity: {}",
            "logging: {}",
            "service: {name: kube-dns}",
            "rollout: {}",
            "metrics: {}",
            "placement: {}",
            "warmStart: {}",
            "podDisruptionBudget: {}",
            "scaling: {proportional: {}}",
            "upstreams: {fromResolvConf: true}",
            "listeners: {}",
            "hosts: []",
            "stubDomains: []",
        ] {
            assert_eq!(changed("{}", &format!("{{{section}}}")), [""; 0], "{section}");
        }
    }

    #[test]
    fn a_changed_default_shows_its_old_value_and_whether_it_may_change() {
        assert_eq!(
            changed("{}", "{service: {name: other-dns}}"),
            [r#"spec.service.name Some("kube-dns") Some("other-dns") true"#]
        );
        assert_eq!(
            changed("{cache: {memory: 32Mi}}", "{}"),
            [r#"spec.cache.memory Some("32Mi") Some("16Mi") false"#]
        );
    }
}
