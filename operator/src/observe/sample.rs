//! A few Services of many namespaces, for what a canary is asked. Read while one is on trial only, and kept for a while.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{Api, ListParams, PartialObjectMeta};
use kube::{Client, ResourceExt};

use crate::adoption::cluster_ips;
use crate::observed::{Sample, SampledService};
use crate::read::within;

/// Namespaces whose Services are looked at, spread over all by name.
const NAMESPACES: usize = 12;
/// Services of each.
const SERVICES: u32 = 2;
/// Namespaces in one list.
const PAGE: u32 = 500;
/// Lists of namespaces; where there are more, a namespace that is not among them may exist.
const MAX_PAGES: usize = 4;
/// A sample is used for so long.
const KEPT: Duration = Duration::from_secs(60);

/// The sample that was read last, whether or not it could be.
#[derive(Debug, Default)]
pub struct Samples {
    kept: Mutex<Option<(Instant, Sample)>>,
}

impl Samples {
    /// A sample; what could not be read is named in it.
    pub async fn read(&self, client: &Client) -> Sample {
        let kept = self.kept.lock().expect("nothing panics while holding this lock").clone();
        if let Some((at, sample)) = kept
            && at.elapsed() < KEPT
            && sample.unread.is_none()
        {
            return sample;
        }
        let sample = match read(client).await {
            Ok(sample) => sample,
            Err(error) => {
                let unread =
                    format!("it cannot list namespaces and Services to ask for: {error:#}");
                Sample { unread: Some(unread), ..Sample::default() }
            }
        };
        let newest = (Instant::now(), sample.clone());
        *self.kept.lock().expect("nothing panics while holding this lock") = Some(newest);
        sample
    }
}

async fn read(client: &Client) -> anyhow::Result<Sample> {
    let (namespaces, is_complete) = namespaces(client).await?;
    let mut services = Vec::new();
    for namespace in spread(&namespaces) {
        let all = Api::<Service>::namespaced(client.clone(), namespace);
        let listed = within(all.list(&ListParams::default().limit(SERVICES))).await;
        let listed = listed.with_context(|| format!("Services of {namespace}"))?;
        services.extend(listed.items.iter().map(|service| SampledService {
            namespace: namespace.clone(),
            name: service.name_any(),
            labels: service.labels().clone(),
            address: cluster_ips(service).next(),
        }));
    }
    Ok(Sample { namespaces, is_complete, services, unread: None })
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
