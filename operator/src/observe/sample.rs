//! A sample of Services from many namespaces: the questions for a canary. Read while one is on trial only, and
//! kept for a while.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use crds::config::{Exposure, LabelSelector, SelectorOperator};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams, PartialObjectMeta};
use kube::{Client, ResourceExt};

use crate::controller::triggers::SERVICE_NAME;
use crate::decide::adoption::cluster_ips;
use crate::observe::observed::{Sample, SampledService};
use crate::runtime::read::within;

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
    pub async fn read(&self, client: &Client, exposure: &Exposure) -> Sample {
        let selector = &exposure.service_selector;
        let mut sample = self.sample(client).await;
        if sample.unread.is_none() {
            match missing(client, &sample, &exposure.namespaces).await {
                Ok(missing) => sample.missing = missing,
                Err(error) => sample.unread = Some(unread(&error)),
            }
        }
        if sample.unread.is_none() && !selector.is_empty() {
            match self.selects(client, &as_text(selector)).await {
                Ok(selects) => sample.selects = Some(selects),
                Err(error) => sample.unread = Some(unread(&error)),
            }
        }
        sample
    }

    async fn selects(&self, client: &Client, selector: &str) -> anyhow::Result<bool> {
        let kept =
            self.selects.lock().unwrap_or_else(PoisonError::into_inner).get(selector).copied();
        if let Some((at, selects)) = kept
            && at.elapsed() < KEPT
        {
            return Ok(selects);
        }
        let all = Api::<Service>::all(client.clone());
        let params = ListParams::default().labels(selector).limit(1);
        let listed = within(all.list_metadata(&params)).await.context("Services by label")?;
        let selects = !listed.items.is_empty();
        let mut kept = self.selects.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_SELECTORS {
            kept.clear();
        }
        kept.insert(selector.to_owned(), (Instant::now(), selects));
        Ok(selects)
    }

    async fn sample(&self, client: &Client) -> Sample {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, sample)) = kept
            && at.elapsed() < KEPT
            && sample.unread.is_none()
        {
            return sample;
        }
        let sample = match read(client).await {
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

/// As the API server takes it in `labelSelector`.
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

async fn read(client: &Client) -> anyhow::Result<Sample> {
    let (namespaces, is_complete) = namespaces(client).await?;
    let mut services = Vec::new();
    for namespace in spread(&namespaces) {
        let all = Api::<Service>::namespaced(client.clone(), namespace);
        let listed = within(all.list(&ListParams::default().limit(SERVICES))).await;
        let listed = listed.with_context(|| format!("Services of {namespace}"))?;
        for service in &listed.items {
            let name = service.name_any();
            services.push(SampledService {
                namespace: namespace.clone(),
                version: version(client, namespace, &name).await?,
                name,
                labels: service.labels().clone(),
                address: cluster_ips(service).next(),
            });
        }
    }
    Ok(Sample { namespaces, is_complete, services, ..Sample::default() })
}

/// Those of these namespaces that do not exist. Where there are more namespaces than are listed, each is looked for.
async fn missing(
    client: &Client,
    sample: &Sample,
    named: &[String],
) -> anyhow::Result<BTreeSet<String>> {
    let unknown = named.iter().filter(|name| !sample.namespaces.contains_key(*name));
    let mut missing = BTreeSet::new();
    let all = Api::<Namespace>::all(client.clone());
    for name in unknown.take(MAX_LOOKED_FOR) {
        let exists = !sample.is_complete && !versions(&all, &by_name(name)).await?.is_empty();
        if !exists {
            missing.insert(name.clone());
        }
    }
    Ok(missing)
}

/// What decides how the name of a Service is answered, as one text that differs after every change.
///
/// # Errors
/// The API server does not answer.
pub async fn version(client: &Client, namespace: &str, name: &str) -> anyhow::Result<String> {
    let of_namespace = versions(&Api::<Namespace>::all(client.clone()), &by_name(namespace)).await;
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let of_service = versions(&services, &by_name(name)).await;
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), namespace);
    let its = ListParams::default().labels(&format!("{SERVICE_NAME}={name}")).limit(SLICES);
    let of_slices = versions(&slices, &its).await;
    Ok(format!("{} {} {}", of_namespace?, of_service?, of_slices?))
}

/// An object by its name, with the right to list.
fn by_name(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}")).limit(1)
}

/// Which objects there are, and in which versions; empty: none.
async fn versions<K>(all: &Api<K>, params: &ListParams) -> anyhow::Result<String>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let listed = within(all.list_metadata(params)).await;
    let listed = listed.with_context(|| format!("versions of {}", all.resource_url()))?;
    let version = |it: &PartialObjectMeta<K>| {
        format!("{}@{}", it.name_any(), it.resource_version().unwrap_or_default())
    };
    let mut found: Vec<String> = listed.items.iter().map(version).collect();
    found.sort();
    Ok(found.join(","))
}

/// Their names and labels, and whether these are all.
async fn namespaces(
    client: &Client,
) -> anyhow::Result<(BTreeMap<String, BTreeMap<String, String>>, bool)> {
    let all = Api::<Namespace>::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut found = BTreeMap::new();
    for _ in 0..MAX_PAGES {
        let page = within(all.list_metadata(&params)).await.context("namespaces")?;
        let named = |it: &PartialObjectMeta<Namespace>| (it.name_any(), it.labels().clone());
        found.extend(page.items.iter().map(named));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok((found, true)),
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
}
