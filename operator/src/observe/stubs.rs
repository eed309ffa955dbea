//! Stubs: what the caches keep of an object for which the budget has no room.

use crds::ClusterDNS;
use crds::defaults::DNS_PORT;
use crds::v1alpha1::{ClusterDNSSpec, ClusterDNSStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::names;

/// The annotation of a stub.
const MARK: &str = "clusterdns.dev/not-kept";
/// Labels that a stub keeps.
const LABELS: [&str; 3] = [names::INSTANCE, names::SERVICE_NAME, names::TEMPLATE_HASH];

/// Labels or expressions of a selector that a stub keeps, and values of such an expression: a stub is small, however large its
/// object is. A selector that is cut selects more pods, never fewer.
const MAX_PAIRS: usize = 16;
const MAX_VALUES: usize = 16;

/// Keeps only the fields that say that an object exists, and to whom it belongs.
pub(super) fn stub<K: Resource + Default>(object: &mut K) {
    let mut metadata = std::mem::take(object.meta_mut());
    slim(&mut metadata);
    *object = K::default();
    *object.meta_mut() = metadata;
}

/// The same of a Service, with what says whether it serves DNS, to whom it leads, and which addresses it has.
pub(super) fn stub_of_service(object: &mut DynamicObject) {
    slim(&mut object.metadata);
    let mut spec = spec(object);
    if let Some(spec) = spec.as_object_mut() {
        let is_read = ["selector", "clusterIP", "clusterIPs", "ports"];
        spec.retain(|field, _| is_read.contains(&field.as_str()));
    }
    keep_first(spec.get_mut("selector"));
    if let Some(ports) = spec.get_mut("ports").and_then(Value::as_array_mut) {
        // Whether it serves DNS.
        ports.retain(|port| port["port"].as_u64() == Some(DNS_PORT.into()));
        *ports = ports.first().map(|_| json!({"port": DNS_PORT})).into_iter().collect();
    }
    object.data = json!({"spec": spec});
}

/// The same of a PodDisruptionBudget, with which pods it selects, and the number of pods that must stay, if it has one.
pub(super) fn stub_of_budget(object: &mut DynamicObject) {
    slim(&mut object.metadata);
    let least = object.data.pointer("/spec/minAvailable").and_then(Value::as_i64);
    let mut selector = spec(object).get_mut("selector").map(Value::take).unwrap_or_default();
    keep_first(selector.get_mut("matchLabels"));
    let expressions = selector.get_mut("matchExpressions").and_then(Value::as_array_mut);
    if let Some(expressions) = expressions {
        let is_short = |it: &Value| it["values"].as_array().is_none_or(|it| it.len() <= MAX_VALUES);
        expressions.retain(is_short);
        expressions.truncate(MAX_PAIRS);
    }
    object.data = json!({"spec": {"selector": selector}});
    if let Some(least) = least {
        object.data["spec"]["minAvailable"] = least.into();
    }
}

/// The same of a ClusterDNS, with what it claims and whether it is acted on. It is read whole when it is reconciled.
pub(crate) fn stub_of_resource(dns: &mut ClusterDNS) {
    slim(&mut dns.metadata);
    dns.metadata.owner_references = None;
    let spec = std::mem::take(&mut dns.spec);
    dns.spec = ClusterDNSSpec {
        management_state: spec.management_state,
        service: spec.service,
        ..ClusterDNSSpec::default()
    };
    dns.status = dns.status.take().map(|status| {
        let mut conditions = status.conditions;
        conditions.retain(|condition| condition.type_ == "Accepted");
        conditions.iter_mut().for_each(|condition| condition.message = String::new());
        ClusterDNSStatus {
            cluster_ips: status.cluster_ips,
            conditions,
            ..ClusterDNSStatus::default()
        }
    });
}

fn keep_first(pairs: Option<&mut Value>) {
    let Some(pairs) = pairs.and_then(Value::as_object_mut) else { return };
    let mut left = MAX_PAIRS;
    pairs.retain(|_, _| {
        let is_kept = left > 0;
        left = left.saturating_sub(1);
        is_kept
    });
}

fn spec(object: &mut DynamicObject) -> Value {
    object.data.get_mut("spec").map(Value::take).unwrap_or_default()
}

/// Is only a part of the object kept?
pub fn is_stub(object: &impl Resource) -> bool {
    object.meta().annotations.as_ref().is_some_and(|all| all.contains_key(MARK))
}

fn slim(metadata: &mut ObjectMeta) {
    let labels = metadata.labels.get_or_insert_default();
    labels.retain(|key, _| LABELS.contains(&key.as_str()));
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.retain(|key, _| key == names::ADOPTED_BY);
    annotations.insert(MARK.to_owned(), "true".to_owned());
    let owners = metadata.owner_references.get_or_insert_default();
    owners.retain(|owner| owner.kind == "ClusterDNS");
    owners.truncate(1);
    (metadata.managed_fields, metadata.finalizers) = (None, None);
}
