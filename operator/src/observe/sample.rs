//! A sample of Services from many namespaces: the questions for a canary. Read while one is on trial only, and
//! kept for a while.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use crds::config::{Exposure, LabelSelector, SelectorOperator};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams, PartialObjectMeta};
use kube::{Client, Resource, ResourceExt};
use serde::Deserialize;

use super::lists::Lists;
use crate::controller::triggers::SERVICE_NAME;
use crate::decide::adoption::cluster_ips;
use crate::observe::observed::{Sample, SampledService};
use crate::runtime::time_limit::within;

/// Namespaces whose Services are read, spread over all by name.
const NAMESPACES: usize = 12;
/// Services that are read of each namespace.
const SERVICES: u32 = 2;
/// Namespaces in one list.
const PAGE: u32 = 500;
/// Lists of namespaces; where there are more, a namespace that is not among them may exist.
const MAX_PAGES: usize = 4;
/// EndpointSlices of a sampled Service whose versions are compared.
const SLICES: u32 = 20;
/// Namespaces of a spec that are looked for one by one.
const MAX_LOOKED_FOR: usize = 100;
/// Octets of the labels of a sampled Service or namespace; one with more is passed over. The API server allows 1.5 MiB, and
/// some hundred of them are kept.
const LABEL_OCTETS: usize = 16 << 10;
/// A sample is used for this time.
const KEPT: Duration = Duration::from_secs(60);

/// Selectors that are remembered: each ClusterDNS on trial has one at most.
const MAX_SELECTORS: usize = 256;

/// The sample that was read last, whether or not it could be.
#[derive(Debug, Default)]
pub struct Samples {
    kept: Mutex<Option<(Instant, Sample)>>,
    selects: Mutex<HashMap<String, (Instant, bool)>>,
}

impl Samples {
    /// A sample; whether the selector of what is on trial selects any Service; and which of the namespaces it names do not
    /// exist. What could not be read is named in it.
    pub async fn read(&self, client: &Client, lists: &Lists, exposure: &Exposure) -> Sample {
        let selector = &exposure.service_selector;
        let mut sample = self.sample(client, lists).await;
        if sample.unread.is_none() {
            match missing(client, lists, &sample, &exposure.namespaces).await {
                Ok(missing) => sample.missing = missing,
                Err(error) => sample.unread = Some(unread(&error)),
            }
        }
        if sample.unread.is_none() && !selector.is_empty() {
            match self.selects(client, lists, &as_text(selector)).await {
                Ok(selects) => sample.selects = Some(selects),
                Err(error) => sample.unread = Some(unread(&error)),
            }
        }
        sample
    }

    async fn selects(
        &self,
        client: &Client,
        lists: &Lists,
        selector: &str,
    ) -> anyhow::Result<bool> {
        let kept =
            self.selects.lock().unwrap_or_else(PoisonError::into_inner).get(selector).copied();
        if let Some((at, selects)) = kept
            && at.elapsed() < KEPT
        {
            return Ok(selects);
        }
        let all = Api::<Service>::all(client.clone());
        let params = ListParams::default().labels(selector).limit(1);
        let selects = !versions(client, lists, all.resource_url(), &params).await?.is_empty();
        let mut kept = self.selects.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_SELECTORS {
            kept.clear();
        }
        kept.insert(selector.to_owned(), (Instant::now(), selects));
        Ok(selects)
    }

    async fn sample(&self, client: &Client, lists: &Lists) -> Sample {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, sample)) = kept
            && at.elapsed() < KEPT
            && sample.unread.is_none()
        {
            return sample;
        }
        let sample = match read(client, lists).await {
            Ok(sample) => sample,
            Err(error) => Sample { unread: Some(unread(&error)), ..Sample::default() },
        };
        let newest = (Instant::now(), sample.clone());
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(newest);
        sample
    }
}

fn unread(error: &anyhow::Error) -> String {
    format!("it cannot list namespaces and Services to ask for: {error:#}")
}

/// The selector in the form of the parameter `labelSelector`.
fn as_text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
    let requirements = selector.match_expressions.iter().map(|requirement| {
        let (key, values) = (&requirement.key, requirement.values.join(","));
        match requirement.operator {
            SelectorOperator::In => format!("{key} in ({values})"),
            SelectorOperator::NotIn => format!("{key} notin ({values})"),
            SelectorOperator::Exists => key.clone(),
            SelectorOperator::DoesNotExist => format!("!{key}"),
        }
    });
    labels.chain(requirements).collect::<Vec<_>>().join(",")
}

async fn read(client: &Client, lists: &Lists) -> anyhow::Result<Sample> {
    let (namespaces, is_complete) = namespaces(client, lists).await?;
    let mut services = Vec::new();
    for namespace in spread(&namespaces) {
        for mut service in services_of(client, lists, namespace).await? {
            service.version = version(client, lists, namespace, &service.name).await?;
            services.push(service);
        }
    }
    Ok(Sample { namespaces, is_complete, services, ..Sample::default() })
}

/// The first Services of a namespace, without their versions.
async fn services_of(
    client: &Client,
    lists: &Lists,
    namespace: &str,
) -> anyhow::Result<Vec<SampledService>> {
    let all = Api::<Service>::namespaced(client.clone(), namespace);
    let mut found = Vec::new();
    let take = |service: Service| {
        if is_small(service.meta()) {
            found.push(SampledService {
                namespace: namespace.to_owned(),
                name: service.name_any(),
                labels: service.labels().clone(),
                address: cluster_ips(&service).next(),
                version: String::new(),
            });
        }
    };
    let params = ListParams::default().limit(SERVICES);
    let listed = within(lists.page(client, all.resource_url(), &params, take)).await;
    listed.with_context(|| format!("Services of {namespace}"))?;
    Ok(found)
}

/// Anyone who may edit a namespace may give its objects labels without end.
fn is_small(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.iter().flatten();
    labels.map(|(key, value)| key.len() + value.len()).sum::<usize>() <= LABEL_OCTETS
}

/// Those of these namespaces that do not exist. Where there are more namespaces than are listed, each is looked for.
async fn missing(
    client: &Client,
    lists: &Lists,
    sample: &Sample,
    named: &[String],
) -> anyhow::Result<BTreeSet<String>> {
    let unknown = named.iter().filter(|name| !sample.namespaces.contains_key(*name));
    let mut missing = BTreeSet::new();
    let all = Api::<Namespace>::all(client.clone());
    for name in unknown.take(MAX_LOOKED_FOR) {
        let exists = !sample.is_complete
            && !versions(client, lists, all.resource_url(), &by_name(name)).await?.is_empty();
        if !exists {
            missing.insert(name.clone());
        }
    }
    Ok(missing)
}

/// The versions of all objects that decide the answer for a Service, as one text: it differs after every change.
///
/// # Errors
/// The API server does not answer.
pub async fn version(
    client: &Client,
    lists: &Lists,
    namespace: &str,
    name: &str,
) -> anyhow::Result<String> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let of_namespace =
        versions(client, lists, namespaces.resource_url(), &by_name(namespace)).await;
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let of_service = versions(client, lists, services.resource_url(), &by_name(name)).await;
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), namespace);
    let its = ListParams::default().labels(&format!("{SERVICE_NAME}={name}")).limit(SLICES);
    let of_slices = versions(client, lists, slices.resource_url(), &its).await;
    Ok(format!("{} {} {}", of_namespace?, of_service?, of_slices?))
}

/// An object by its name, with the right to list.
fn by_name(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}")).limit(1)
}

/// What is read of an object whose version counts, however much is in it.
#[derive(Deserialize)]
struct Versioned {
    metadata: NameAndVersion,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NameAndVersion {
    name: String,
    resource_version: String,
}

/// Which objects there are, and in which versions; empty: none.
async fn versions(
    client: &Client,
    lists: &Lists,
    path: &str,
    params: &ListParams,
) -> anyhow::Result<String> {
    let mut found = Vec::new();
    let take = |Versioned { metadata }| {
        found.push(format!("{}@{}", metadata.name, metadata.resource_version));
    };
    let listed = within(lists.metadata_page(client, path, params, take)).await;
    listed.with_context(|| format!("versions of {path}"))?;
    found.sort();
    Ok(found.join(","))
}

/// Their names and labels, and whether these are all.
async fn namespaces(
    client: &Client,
    lists: &Lists,
) -> anyhow::Result<(BTreeMap<String, BTreeMap<String, String>>, bool)> {
    let all = Api::<Namespace>::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let (mut found, mut are_all) = (BTreeMap::new(), true);
    for _ in 0..MAX_PAGES {
        let take = |namespace: PartialObjectMeta<Namespace>| {
            let is_small = is_small(namespace.meta());
            are_all &= is_small;
            if is_small {
                found.insert(namespace.name_any(), namespace.labels().clone());
            }
        };
        let page = lists.metadata_page(client, all.resource_url(), &params, take);
        match within(page).await.context("namespaces")?.token {
            Some(token) => params = params.continue_token(&token),
            None => return Ok((found, are_all)),
        }
    }
    Ok((found, false))
}

/// Some of them, evenly by name; always the same ones for the same namespaces.
fn spread(namespaces: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<&String> {
    let step = namespaces.len().div_ceil(NAMESPACES).max(1);
    namespaces.keys().step_by(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn o17_a_selector_is_written_as_the_api_server_reads_it() {
        let selector = serde_json::json!({"matchLabels": {"team": "shop"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["x", "y"]},
            {"key": "b", "operator": "NotIn", "values": ["z"]},
            {"key": "c", "operator": "Exists"},
            {"key": "d", "operator": "DoesNotExist"}]});
        let selector = serde_json::from_value(selector).unwrap();
        assert_eq!(as_text(&selector), "team=shop,a in (x,y),b notin (z),c,!d");
    }

    #[test]
    fn o17_the_sample_is_spread_over_all_namespaces() {
        let of = |count: usize| {
            let named = (0..count).map(|n| (format!("n{n:04}"), BTreeMap::new()));
            spread(&named.collect()).into_iter().cloned().collect::<Vec<String>>()
        };
        assert_eq!(of(2), ["n0000", "n0001"]);
        let many = of(1_000);
        assert_eq!((many.len(), many[0].as_str(), many[11].as_str()), (12, "n0000", "n0924"));
    }

    /// What an API server would list of these kinds, each object with labels of this many octets.
    fn listed(path: &str, octets: usize) -> Value {
        let kind = path.rsplit('/').next().unwrap_or_default();
        let object = |name: &str, labels: Value| json!({"metadata": {"name": name, "resourceVersion": "7", "labels": labels}});
        let many: serde_json::Map<String, Value> =
            (0..octets / 10).map(|number| (format!("l{number:07}"), json!("1"))).collect();
        let items = match kind {
            "namespaces" => vec![object("shop", json!({"team": "a"})), object("wide", many.into())],
            "services" => vec![object("cart", json!({"app": "b"})), object("wide", many.into())],
            "endpointslices" => (0..20).map(|_| object("cart-1", many.clone().into())).collect(),
            other => panic!("{other}"),
        };
        json!({"metadata": {"resourceVersion": "9"}, "items": items})
    }

    #[tokio::test]
    async fn l12_of_objects_with_thousands_of_labels_a_sample_keeps_versions_at_most() {
        let server = tower::service_fn(|request: hyper::Request<kube::client::Body>| async move {
            let list = listed(request.uri().path(), 3 * LABEL_OCTETS).to_string();
            Ok::<_, std::convert::Infallible>(hyper::Response::new(kube::client::Body::from(
                list.into_bytes(),
            )))
        });
        let client = Client::new(server, "default");
        let samples = Samples::default();
        let sample = samples.read(&client, &Lists::default(), &Exposure::default()).await;
        assert_eq!(sample.unread, None);
        assert_eq!(sample.namespaces.keys().collect::<Vec<_>>(), ["shop"]);
        assert!(!sample.is_complete, "another one exists");
        let named: Vec<_> = sample.services.iter().map(|it| (&*it.name, it.labels.len())).collect();
        assert_eq!(named, [("cart", 1)]);
        let version = &sample.services[0].version;
        assert!(version.starts_with("shop@7,wide@7 cart@7,wide@7 cart-1@7"), "{version}");
    }
}
