//! A spec with its defaults filled in, so that a default that is written out is no change, and a change shows the
//! default (pure).

use crds::v1alpha1::{GroupLimits, Proportional, Scaling, Server};
use crds::{ClusterDNSSpec, defaults};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::desired::{default_resources, default_tolerations};
use crate::import::section_defaults;

/// The spec as JSON: what is absent and has a default has it, and empty lists and sections are absent.
pub(super) fn meaning(spec: &ClusterDNSSpec) -> Value {
    let mut spec = spec.clone();
    fill(&mut spec);
    let Value::Object(mut fields) = value(&spec) else { return Value::Null };
    for (field, default) in section_defaults() {
        fields.entry(field).or_insert(default);
    }
    for (name, section) in &mut fields {
        // One pod on every node: this section is empty, and says something.
        if let (Value::Object(section), true) = (section, name != "scaling") {
            section.retain(|_, it| !is_empty(it));
        }
    }
    for stub in fields.get_mut("stubDomains").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(stub) = stub {
            stub.retain(|_, it| !is_empty(it));
        }
    }
    fields.retain(|_, it| !is_empty(it));
    Value::Object(fields)
}

/// Writes out what absent fields mean, where the empty one means something else or the meaning depends on others.
fn fill(spec: &mut ClusterDNSSpec) {
    let is_per_node = spec.scaling.as_ref().is_some_and(|scaling| scaling.per_node.is_some());
    spec.resources.get_or_insert_with(default_resources);
    spec.placement.get_or_insert_default().tolerations.get_or_insert_with(default_tolerations);
    spec.warm_start.get_or_insert_default();
    let budget = spec.pod_disruption_budget.get_or_insert_default();
    if budget.min_available.is_none() && !is_per_node {
        budget.max_unavailable.get_or_insert(IntOrString::Int(1));
    }
    let scaling = spec.scaling.get_or_insert_default();
    if *scaling == Scaling::default() {
        scaling.proportional = Some(Proportional::default());
    }
    let upstreams = spec.upstreams.get_or_insert_default();
    // False chooses nothing.
    upstreams.none = upstreams.none.filter(|is_none| *is_none);
    let is_chosen = upstreams.servers.is_some() || upstreams.none.is_some();
    upstreams.from_resolv_conf = (!is_chosen).then_some(true);
    upstreams.limits.get_or_insert_with(group_limits);
    upstreams.servers.iter_mut().flatten().for_each(fill_server);
    for stub in spec.stub_domains.iter_mut().flatten() {
        stub.limits.get_or_insert_with(group_limits);
        stub.servers.iter_mut().for_each(fill_server);
    }
}

fn fill_server(server: &mut Server) {
    server.port.get_or_insert(server.transport.default_port());
}

fn group_limits() -> GroupLimits {
    GroupLimits { in_flight: defaults::GROUP_IN_FLIGHT }
}

fn is_empty(value: &Value) -> bool {
    *value == json!([]) || *value == json!({})
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
            "scaling: {}",
            "upstreams: {}",
            "upstreams: {none: false}",
            "upstreams: {fromResolvConf: false}",
            "upstreams: {limits: {}, cache: {}, withheldTypes: []}",
            "access: {clients: []}",
            "exposure: {namespaces: [], serviceSelector: {}}",
            "placement: {podLabels: {}, tolerations: [{key: CriticalAddonsOnly, operator: Exists}, \
             {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}]}",
            "podDisruptionBudget: {maxUnavailable: 1}",
            "resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 256Mi}}",
        ] {
            assert_eq!(changed("{}", &format!("{{{section}}}")), [""; 0], "{section}");
        }
        let stub = |more: &str| format!("{{stubDomains: [{{domain: a.example, {more}}}]}}");
        let written =
            "servers: [{address: 192.0.2.1, port: 53}], limits: {}, cache: {}, withheldTypes: []";
        assert_eq!(changed(&stub("servers: [{address: 192.0.2.1}]"), &stub(written)), [""; 0]);
    }

    #[test]
    fn an_empty_value_that_is_no_default_is_a_change() {
        for (section, field) in [
            ("scaling: {perNode: {}}", "spec.scaling.perNode"),
            ("resources: {}", "spec.resources"),
            ("placement: {tolerations: []}", "spec.placement.tolerations"),
            ("metrics: {compatibility: []}", "spec.metrics.compatibility"),
        ] {
            let found = changed("{}", &format!("{{{section}}}"));
            assert!(
                found.iter().any(|it| it.starts_with(&format!("{field} "))),
                "{section}: {found:?}"
            );
        }
        let resolv_conf = "spec.upstreams.fromResolvConf";
        let withheld = changed("{}", "{upstreams: {withheldTypes: [AAAA]}}");
        assert!(!withheld.is_empty() && !withheld.concat().contains(resolv_conf), "{withheld:?}");
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
