//! A sample of Services from many namespaces: the questions for a canary. Read while one is on trial only, and
//! kept for a while.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use crds::config::{Exposure, LabelSelector, SelectorOperator};
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams, PartialObjectMeta};
use kube::{Client, ResourceExt};
use serde::Deserialize;
use tokio::time::timeout;

use super::lists::Lists;
use crate::decide::adoption::cluster_ips;
use crate::names::SERVICE_NAME;
use crate::observe::observed::{Sample, SampledService};
use crate::runtime::time_limit::within;

/// Namespaces whose Services are read, spread over all by name.
const NAMESPACES: usize = 12;
/// Services of each namespace that are asked for.
const SERVICES: usize = 2;
/// Services of each namespace that are read to find them: not every type is asked for.
const LISTED: u32 = 10;
/// Time to read all that is needed of one namespace, or the versions of one Service. Its owners decide how large its objects are.
const PATIENCE: Duration = Duration::from_secs(10);
/// Namespaces in one list.
const PAGE: u32 = 500;
/// Lists of namespaces; a namespace that is not in them may exist.
const MAX_PAGES: usize = 4;
/// EndpointSlices of a sampled Service whose versions are compared; where it has more, the version of the list counts for the
/// others.
const SLICES: u32 = 20;
/// Namespaces of a spec that are looked for one by one.
const MAX_LOOKED_FOR: usize = 100;
/// Octets of the labels of a sampled Service or namespace; one with more is passed over. The API server allows 1.5 MiB, and
/// some hundred of them are kept.
const LABEL_OCTETS: usize = 16 << 10;
/// A sample is used for this time.
const KEPT: Duration = Duration::from_secs(60);

/// The type of a Service that is an alias of a name elsewhere.
const EXTERNAL_NAME: &str = "ExternalName";

/// Selectors that are remembered: each ClusterDNS on trial has one at most.
const MAX_SELECTORS: usize = 256;

/// The sample that was read last, whether or not it could be.
#[derive(Debug, Default)]
pub struct Samples {
    kept: Mutex<Option<(Instant, Sample)>>,
    /// Selectors that selected a Service, and when. That one selects nothing is not kept: a user mends it and tries again.
    selects: Mutex<HashMap<String, Instant>>,
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
        let by = &exposure.namespace_selector;
        if sample.unread.is_none() && !sample.namespaces.values().any(|labels| by.matches(labels)) {
            match namespaces(client, lists, ListParams::default().labels(&as_text(by))).await {
                Ok(found) => sample.namespaces.extend(found),
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
        if kept.is_some_and(|at| at.elapsed() < KEPT) {
            return Ok(true);
        }
        let all = Api::<Service>::all(client.clone());
        let params = ListParams::default().labels(selector).limit(1);
        let selects = !versions(client, lists, all.resource_url(), &params).await?.is_empty();
        let mut kept = self.selects.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_SELECTORS {
            kept.clear();
        }
        if selects {
            kept.insert(selector.to_owned(), Instant::now());
        }
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
    let namespaces = namespaces(client, lists, ListParams::default()).await?;
    let (mut services, mut unread) = (Vec::new(), 0);
    let chosen = spread(&namespaces);
    for namespace in &chosen {
        let reading = timeout(PATIENCE, of_namespace(client, lists, namespace));
        match reading.await.unwrap_or_else(|_| Err(too_slow())) {
            Ok(found) => services.extend(found),
            Err(error) => {
                unread += 1;
                // The owners of one namespace must not decide whether a trial is judged.
                if unread * 2 > chosen.len() {
                    return Err(error);
                }
                tracing::warn!("the trial asks for no Service of {namespace}: {error:#}");
            }
        }
    }
    Ok(Sample { namespaces, services, ..Sample::default() })
}

fn too_slow() -> anyhow::Error {
    anyhow::anyhow!("the API server did not answer within {} s", PATIENCE.as_secs())
}

/// The first Services of a namespace, with their versions.
async fn of_namespace(
    client: &Client,
    lists: &Lists,
    namespace: &str,
) -> anyhow::Result<Vec<SampledService>> {
    let mut services = services_of(client, lists, namespace).await?;
    for service in &mut services {
        service.version = version(client, lists, namespace, &service.name).await?;
    }
    Ok(services)
}

/// What is read of a Service. Its owner writes the rest, and no value of it may keep a list from being read.
#[derive(Deserialize)]
struct Listed {
    metadata: NameAndLabels,
    #[serde(default)]
    spec: ServiceSpec,
}

#[derive(Deserialize)]
struct NameAndLabels {
    name: String,
    labels: Option<BTreeMap<String, String>>,
}

/// The first Services of a namespace that are answered from memory alone, without their versions. The answer for an ExternalName
/// comes from the servers of its target: its owner may choose a name that they answer differently each time.
async fn services_of(
    client: &Client,
    lists: &Lists,
    namespace: &str,
) -> anyhow::Result<Vec<SampledService>> {
    let all = Api::<Service>::namespaced(client.clone(), namespace);
    let mut found = Vec::new();
    let take = |Listed { metadata, spec }| {
        let labels = metadata.labels.unwrap_or_default();
        let is_external = spec.type_.as_deref() == Some(EXTERNAL_NAME);
        if found.len() < SERVICES && !is_external && is_small(&labels) {
            let service = Service { spec: Some(spec), ..Service::default() };
            found.push(SampledService {
                namespace: namespace.to_owned(),
                name: metadata.name,
                labels,
                address: cluster_ips(&service).next(),
                version: String::new(),
            });
        }
    };
    let params = ListParams::default().limit(LISTED);
    let listed = within(lists.page(client, all.resource_url(), &params, take)).await;
    listed.with_context(|| format!("Services of {namespace}"))?;
    Ok(found)
}

/// Anyone who may edit a namespace may give its objects labels without end.
fn is_small(labels: &BTreeMap<String, String>) -> bool {
    labels.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() <= LABEL_OCTETS
}

/// Those of these namespaces that do not exist. Each that is not in the sample is looked for: there may be more than are listed,
/// and a user may have created it since the sample was read.
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
        if versions(client, lists, all.resource_url(), &by_name(name)).await?.is_empty() {
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
    let reading = timeout(PATIENCE, all_versions(client, lists, namespace, name));
    reading.await.unwrap_or_else(|_| Err(too_slow()))
}

async fn all_versions(
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
    let page = listed.with_context(|| format!("versions of {path}"))?;
    found.sort();
    if page.token.is_some() {
        found.push(format!("more@{}", page.version));
    }
    Ok(found.join(","))
}

/// Names and labels of the first namespaces that are asked for so.
async fn namespaces(
    client: &Client,
    lists: &Lists,
    asked: ListParams,
) -> anyhow::Result<BTreeMap<String, BTreeMap<String, String>>> {
    let all = Api::<Namespace>::all(client.clone());
    let mut params = asked.limit(PAGE);
    let mut found = BTreeMap::new();
    for _ in 0..MAX_PAGES {
        let take = |namespace: PartialObjectMeta<Namespace>| {
            if is_small(namespace.labels()) {
                found.insert(namespace.name_any(), namespace.labels().clone());
            }
        };
        let page = lists.metadata_page(client, all.resource_url(), &params, take);
        match within(page).await.context("namespaces")?.token {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    Ok(found)
}

/// Some of them, evenly by name; always the same ones for the same namespaces.
fn spread(namespaces: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<&String> {
    let step = namespaces.len().div_ceil(NAMESPACES).max(1);
    namespaces.keys().step_by(step).collect()
}

#[cfg(test)]
mod tests;
