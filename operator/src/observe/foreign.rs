//! The pods of the other DNS server: those that the Service would select without our key. They carry labels of somebody
//! else's choice, so no watch of ours covers them; they are listed, from the API server's cache and at most every 10 s while
//! the Service is ours to keep.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::names;
use crate::read::within;

const YOUNG: Duration = Duration::from_secs(10);
/// More pods than any Service of cluster DNS has; the rest is not looked at.
const PAGE: u32 = 500;
/// Selectors that are remembered: one per adopted Service.
const MAX_REMEMBERED: usize = 100;

/// By namespace and name of the Service: when they were listed, and the pods.
type Listed = HashMap<(String, String), (Instant, Vec<Pod>)>;

/// What was listed last, by namespace and selector.
#[derive(Debug, Default)]
pub struct Foreign {
    listed: Mutex<Listed>,
}

impl Foreign {
    /// Pods that this Service would select without our key and that are not ours. `must_be_new`: a Service is about to be
    /// left to them, so what was listed before does not count.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn pods(
        &self,
        client: &Client,
        service: &Service,
        must_be_new: bool,
    ) -> anyhow::Result<Vec<Pod>> {
        let Some(selector) = without_ours(service) else { return Ok(Vec::new()) };
        let key = (service.namespace().unwrap_or_default(), selector);
        if !must_be_new
            && let Some((at, pods)) = self.lock().get(&key)
            && at.elapsed() < YOUNG
        {
            return Ok(pods.clone());
        }
        let params = ListParams::default().labels(&key.1).limit(PAGE).match_any();
        let pods = Api::<Pod>::namespaced(client.clone(), &key.0);
        let listed = within(pods.list(&params)).await;
        let listed = listed.context("cannot list the pods that the Service selects")?;
        let is_foreign = |pod: &Pod| !pod.labels().contains_key(names::INSTANCE);
        let pods: Vec<Pod> = listed.items.into_iter().filter(is_foreign).collect();
        let mut remembered = self.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(key, (Instant::now(), pods.clone()));
        Ok(pods)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Listed> {
        self.listed.lock().expect("nothing panics while holding this lock")
    }
}

/// Its selector as text; none where it selects only by our key, or nothing.
fn without_ours(service: &Service) -> Option<String> {
    let selector = service.spec.as_ref()?.selector.as_ref()?;
    let others = selector.iter().filter(|(key, _)| *key != names::INSTANCE);
    let text: Vec<String> = others.map(|(key, value)| format!("{key}={value}")).collect();
    (!text.is_empty()).then(|| text.join(","))
}
