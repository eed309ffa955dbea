//! What this API server offers, read every few minutes: a kind appears with its CRD, and a CRD may change with an
//! upgrade. A broken aggregated API is common in clusters, so nothing here waits long for one: the API server's own
//! list of groups shows whether there is a metrics API, and the last known answer counts where another cannot be read.

mod custom_metrics;

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use kube::api::Api;
use serde_json::Value;

use crate::desired::Kind;
use crate::observe::observed::Offers;
use crate::runtime::time_limit::within;

/// Time between two reads of what the API server offers.
const EVERY: Duration = Duration::from_secs(300);
/// While the schema is outdated, because a person is about to apply the new one; and while something could not be read.
const SOON: Duration = Duration::from_secs(10);
const MONITORING: &str = "monitoring.coreos.com";
const CUSTOM_METRICS: &str = "custom.metrics.k8s.io";

/// What the API server offered at the latest look, and whether all of it could be read.
#[derive(Debug)]
pub struct Read {
    /// What is offered; what could not be read is as before.
    pub offers: Offers,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

impl Read {
    /// Until it is read again.
    pub fn again_in(&self) -> Duration {
        let is_settled = self.unread.is_empty() && !self.offers.crd_is_outdated;
        if is_settled { EVERY } else { SOON }
    }
}

/// Asks the API server.
///
/// # Errors
/// When it does not list its own groups; the last known answer stays in use.
pub async fn read(client: &Client, before: Offers) -> anyhow::Result<Read> {
    let version = client.apiserver_version();
    let version = within(version).await.context("cannot read its version")?;
    let groups = client.list_api_groups();
    let groups = within(groups).await.context("cannot read its API groups")?.groups;
    let serves = |name: &str, version: &str| {
        let mut versions =
            groups.iter().filter(|group| group.name == name).flat_map(|group| &group.versions);
        versions.any(|served| served.version == version)
    };
    let metrics_api = groups.iter().find(|group| group.name == CUSTOM_METRICS);
    // The version that the controller of autoscalers asks.
    let metrics_api = metrics_api
        .and_then(|group| group.preferred_version.as_ref().or(group.versions.first()))
        .map(|version| version.group_version.as_str());
    let (monitoring, crd_is_outdated, queries_per_second) = futures::join!(
        monitoring_kinds(client, serves(MONITORING, "v1")),
        crd_is_outdated(client),
        queries_per_second(client, metrics_api, before.queries_per_second)
    );
    let mut unread = Vec::new();
    let (pod_monitor, prometheus_rule) =
        or_before(monitoring, (before.pod_monitor, before.prometheus_rule), &mut unread);
    let offers = Offers {
        pod_monitor,
        prometheus_rule,
        queries_per_second,
        minor: minor(emulated(&version)),
        crd_is_outdated: or_before(crd_is_outdated, before.crd_is_outdated, &mut unread),
    };
    Ok(Read { offers, unread })
}

fn or_before<T>(read: anyhow::Result<T>, before: T, unread: &mut Vec<String>) -> T {
    read.unwrap_or_else(|error| {
        unread.push(format!("{error:#}"));
        before
    })
}

/// Whether pods have this metric. A broken metrics API, of which many clusters have one, is no reason to look again soon.
async fn queries_per_second(
    client: &Client,
    group_version: Option<&str>,
    before: Option<bool>,
) -> Option<bool> {
    let Some(group_version) = group_version else { return Some(false) };
    match custom_metrics::has_queries_per_second(client, group_version).await {
        // An adapter that has just started lists less than it has: one look is no proof.
        Ok(false) if before == Some(true) => None,
        Ok(has) => Some(has),
        Err(error) => {
            tracing::warn!(
                "autoscalers keep their metrics: cannot read {group_version}: {error:#}"
            );
            before
        }
    }
}

/// Whether PodMonitor and PrometheusRule exist.
async fn monitoring_kinds(client: &Client, is_served: bool) -> anyhow::Result<(bool, bool)> {
    if !is_served {
        return Ok((false, false));
    }
    let group = format!("{MONITORING}/v1");
    let resources = within(client.list_api_group_resources(&group)).await;
    let resources =
        resources.with_context(|| format!("cannot read the kinds of {group}"))?.resources;
    let has = |kind: &str| resources.iter().any(|resource| resource.kind == kind);
    Ok((has("PodMonitor"), has("PrometheusRule")))
}

/// Kinds of the Prometheus operator that exist.
pub fn monitoring(offers: &Offers) -> Vec<Kind> {
    let kinds =
        [(offers.pod_monitor, Kind::PodMonitor), (offers.prometheus_rule, Kind::PrometheusRule)];
    kinds.into_iter().filter(|(exists, _)| *exists).map(|(_, kind)| kind).collect()
}

/// The version whose functions it has: during an upgrade of the control plane in two steps, a newer program emulates the version
/// before (KEP-4330), and refuses values that only its own version knows.
fn emulated(version: &Info) -> &str {
    let emulated = version.emulation_minor.as_deref().filter(|minor| !minor.is_empty());
    emulated.unwrap_or(&version.minor)
}

/// `33`, or `33+` where a vendor has changed something.
fn minor(text: &str) -> u32 {
    let digits = text.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

async fn crd_is_outdated(client: &Client) -> anyhow::Result<bool> {
    let known = crds::v1alpha1::crd();
    let name = known.metadata.name.clone().unwrap_or_default();
    let all = Api::<CustomResourceDefinition>::all(client.clone());
    let served = within(all.get(&name)).await;
    let served =
        served.with_context(|| format!("cannot read the CustomResourceDefinition {name}"))?;
    Ok(has_gaps(&schema(&served), &schema(&known)))
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let version = crd.spec.versions.iter().find(|version| version.name == crds::v1alpha1::VERSION);
    let schema = version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    schema.map(|schema| serde_json::to_value(schema).unwrap_or_default()).unwrap_or_default()
}

/// Whether a field that we know is missing, at any depth.
fn has_gaps(served: &Value, known: &Value) -> bool {
    let properties = known["properties"].as_object().into_iter().flatten();
    let mut fields = properties.map(|(name, known)| (&served["properties"][name.as_str()], known));
    fields.any(|(served, known)| served.is_null() || has_gaps(served, known))
        || ["items", "additionalProperties"]
            .iter()
            .any(|inner| known[inner].is_object() && has_gaps(&served[inner], &known[inner]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::api::{self, Reply};

    /// An API server whose metrics API gives this answer; none: it has no metrics API.
    fn server(metrics_api: Option<(u16, Value)>) -> Client {
        api::client(move |asked| {
            let group = json!({"name": CUSTOM_METRICS, "versions": [
                {"groupVersion": "custom.metrics.k8s.io/v1beta2", "version": "v1beta2"}]});
            let groups: Vec<Value> = metrics_api.iter().map(|_| group.clone()).collect();
            match (asked.path.as_str(), &metrics_api) {
                ("/version", _) => Reply::ok(json!({"major": "1", "minor": "36"})),
                ("/apis", _) => Reply::ok(json!({"kind": "APIGroupList", "groups": groups})),
                ("/apis/custom.metrics.k8s.io/v1beta2", Some((code, reply))) => {
                    Reply::ok(reply).with_code(*code)
                }
                _ => Reply::not_found(),
            }
        })
    }

    #[tokio::test]
    async fn o12_the_metrics_api_is_asked_whether_it_has_queries_per_second() {
        let list = |names: &[&str]| {
            let all: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            Some((200, json!({"kind": "APIResourceList", "resources": all})))
        };
        let ours = format!("pods/{}", crate::names::QUERIES_PER_SECOND);
        let of_services = format!("services/{}", crate::names::QUERIES_PER_SECOND);
        for (what, reply, before, expected) in [
            ("no metrics API", None, Some(true), Some(false)),
            ("other metrics", list(&["pods/other", &of_services]), None, Some(false)),
            ("it is not listed any more", list(&["pods/other"]), Some(true), None),
            ("and stays away", list(&["pods/other"]), Some(false), Some(false)),
            ("no metrics", list(&[]), None, Some(false)),
            ("the metric", list(&["pods/other", &ours]), None, Some(true)),
            ("it is broken, and was not", Some((503, json!({}))), Some(true), Some(true)),
            ("it was always broken", Some((503, json!({}))), None, None),
            ("it gives something else", Some((200, json!([]))), None, None),
        ] {
            let before = Offers { queries_per_second: before, ..Offers::default() };
            let read = read(&server(reply), before).await.unwrap();
            assert_eq!(read.offers.queries_per_second, expected, "{what}");
        }
    }

    #[test]
    fn o11_a_served_schema_without_a_field_of_ours_is_outdated_and_a_newer_one_is_not() {
        let known = schema(&crds::v1alpha1::crd());
        assert!(known["properties"]["spec"]["properties"]["stubDomains"].is_object(), "a schema");
        assert!(!has_gaps(&known, &known));

        let mut older = known.clone();
        let server =
            &mut older["properties"]["spec"]["properties"]["stubDomains"]["items"]["properties"];
        server.as_object_mut().unwrap().remove("servers").unwrap();
        assert!(has_gaps(&older, &known));

        let mut newer = known.clone();
        newer["properties"]["spec"]["properties"]["fromTheFuture"] =
            serde_json::json!({"type": "string"});
        assert!(!has_gaps(&newer, &known));
        assert!(has_gaps(&Value::Null, &known), "not served at all");
    }

    #[test]
    fn o18_the_version_that_the_api_server_emulates_counts() {
        for (emulated, expected) in [
            (serde_json::json!({"minor": "34", "emulationMinor": "33"}), 33),
            (serde_json::json!({"minor": "34+", "emulationMinor": ""}), 34),
            (serde_json::json!({"minor": "34"}), 34),
        ] {
            let mut version = serde_json::json!({"major": "1", "gitVersion": "", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
            version.as_object_mut().unwrap().extend(emulated.as_object().unwrap().clone());
            let version: Info = serde_json::from_value(version).unwrap();
            assert_eq!(minor(super::emulated(&version)), expected, "{emulated}");
        }
    }

    #[test]
    fn vendors_write_a_plus() {
        assert_eq!([minor("33"), minor("33+"), minor("")], [33, 33, 0]);
    }
}
