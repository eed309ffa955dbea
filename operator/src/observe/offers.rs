//! What this API server offers, read every few minutes: kinds come with their CRDs, and CRDs with upgrades.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::Api;
use serde_json::Value;

use crate::desired::Kind;
use crate::observed::Offers;

/// How often.
const EVERY: Duration = Duration::from_secs(300);
/// While the schema is outdated: somebody is about to apply the new one, and looks whether that helped.
const EVERY_WHILE_OUTDATED: Duration = Duration::from_secs(10);
const MONITORING: &str = "monitoring.coreos.com";
const CUSTOM_METRICS: &str = "custom.metrics.k8s.io";

/// When to ask again.
pub fn again_in(offers: &Offers) -> Duration {
    if offers.crd_is_outdated { EVERY_WHILE_OUTDATED } else { EVERY }
}

/// Asks the API server.
///
/// # Errors
/// When it does not answer; what was known before stays true enough.
pub async fn read(client: &Client) -> anyhow::Result<Offers> {
    let version = client.apiserver_version().await.context("cannot read its version")?;
    let groups = client.list_api_groups().await.context("cannot read its API groups")?;
    let versions = |name: &str| {
        let group = groups.groups.iter().find(|group| group.name == name);
        group.map(|group| group.versions.as_slice()).unwrap_or_default()
    };
    let mut offers = Offers {
        minor: minor(&version.minor),
        custom_metrics: !versions(CUSTOM_METRICS).is_empty(),
        crd_is_outdated: crd_is_outdated(client).await?,
        ..Offers::default()
    };
    if versions(MONITORING).iter().any(|version| version.version == "v1") {
        let resources = client.list_api_group_resources(&format!("{MONITORING}/v1")).await;
        let resources =
            resources.context("cannot read the kinds of monitoring.coreos.com")?.resources;
        let has = |kind: &str| resources.iter().any(|resource| resource.kind == kind);
        offers.pod_monitor = has("PodMonitor");
        offers.prometheus_rule = has("PrometheusRule");
    }
    Ok(offers)
}

/// Kinds of the Prometheus operator that exist.
pub fn monitoring(offers: &Offers) -> Vec<Kind> {
    let kinds =
        [(offers.pod_monitor, Kind::PodMonitor), (offers.prometheus_rule, Kind::PrometheusRule)];
    kinds.into_iter().filter(|(exists, _)| *exists).map(|(_, kind)| kind).collect()
}

/// `33`, or `33+` where a vendor has changed something.
fn minor(text: &str) -> u32 {
    let digits = text.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

async fn crd_is_outdated(client: &Client) -> anyhow::Result<bool> {
    let known = crds::v1alpha1::crd();
    let name = known.metadata.name.clone().unwrap_or_default();
    let served = Api::<CustomResourceDefinition>::all(client.clone()).get(&name).await;
    let served =
        served.with_context(|| format!("cannot read the CustomResourceDefinition {name}"))?;
    Ok(lacks(&schema(&served), &schema(&known)))
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let version = crd.spec.versions.iter().find(|version| version.name == crds::v1alpha1::VERSION);
    let schema = version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    schema.map(|schema| serde_json::to_value(schema).unwrap_or_default()).unwrap_or_default()
}

/// Whether a field that we know is missing, at any depth.
fn lacks(served: &Value, known: &Value) -> bool {
    let properties = known["properties"].as_object().into_iter().flatten();
    let mut fields = properties.map(|(name, known)| (&served["properties"][name.as_str()], known));
    fields.any(|(served, known)| served.is_null() || lacks(served, known))
        || ["items", "additionalProperties"]
            .iter()
            .any(|inner| known[inner].is_object() && lacks(&served[inner], &known[inner]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o11_a_served_schema_that_lacks_a_field_of_ours_is_outdated_and_a_newer_one_is_not() {
        let known = schema(&crds::v1alpha1::crd());
        assert!(known["properties"]["spec"]["properties"]["stubDomains"].is_object(), "a schema");
        assert!(!lacks(&known, &known));

        let mut older = known.clone();
        let server =
            &mut older["properties"]["spec"]["properties"]["stubDomains"]["items"]["properties"];
        server.as_object_mut().unwrap().remove("servers").unwrap();
        assert!(lacks(&older, &known));

        let mut newer = known.clone();
        newer["properties"]["spec"]["properties"]["fromTheFuture"] =
            serde_json::json!({"type": "string"});
        assert!(!lacks(&newer, &known));
        assert!(lacks(&Value::Null, &known), "not served at all");
    }

    #[test]
    fn vendors_write_a_plus() {
        assert_eq!([minor("33"), minor("33+"), minor("")], [33, 33, 0]);
    }
}
