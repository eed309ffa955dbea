//! Whether the pod is ready, and if not, why: decides `/readyz`, and is shown by `/`, `/metrics` and the pages of kube-dns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dataplane_core::{DataSource, Resource};

use crate::snapshot::waits_for_live;
use crate::status::feed::Feed;
use crate::status::{Reported, Status};

/// The conditions of `/readyz` besides the source.
#[derive(Debug, Default)]
pub struct Health {
    is_serving: AtomicBool,
    /// Once there was data, missing data is no reason any more (E43).
    had_data: AtomicBool,
    is_leaving: AtomicBool,
}

impl Health {
    /// The DNS sockets are open: `/readyz` no longer refuses because of them.
    pub fn serving(&self) {
        self.is_serving.store(true, Ordering::Relaxed);
    }

    /// The process is about to end, and clients should use other pods (E45).
    pub fn leaving(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }
}

/// E43: once ready, a refused configuration or a missing API server does not make it unready.
pub fn why_not_ready(health: &Health, status: &Status) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(reason) = why_no_configuration(&status.read()) {
        reasons.push(reason);
    }
    if !health.had_data.load(Ordering::Relaxed) {
        let missing = why_no_data(&status.read());
        health.had_data.store(missing.is_empty(), Ordering::Relaxed);
        reasons.extend(missing);
    }
    if !health.is_serving.load(Ordering::Relaxed) {
        reasons.push("the DNS sockets are not open yet".to_owned());
    }
    if health.is_leaving.load(Ordering::Relaxed) {
        reasons.push("draining: the process was asked to end".to_owned());
    }
    reasons
}

/// E44; nothing once there was one.
fn why_no_configuration(reported: &Reported) -> Option<String> {
    if !reported.is_unconfigured {
        return None;
    }
    let refused = reported.rejection.iter().flat_map(|rejection| &rejection.violations);
    let refused: Vec<&str> = refused.map(|violation| violation.message.as_str()).collect();
    let why = match refused.is_empty() {
        true => reported.configuration.as_ref().map(Feed::explanation).unwrap_or_default(),
        false => refused.join("; "),
    };
    Some(format!("the configuration is not known, so nothing is answered: {why}"))
}

/// The data is live, or from a snapshot that is young enough or has waited long enough.
fn why_no_data(reported: &Reported) -> Vec<String> {
    if is_live(reported) {
        return Vec::new();
    }
    if let Some(loaded) = reported.snapshot.loaded
        && waits_for_live(loaded, Instant::now(), reported.source_answers)
    {
        let why = match loaded.is_partial {
            true => "has not all records",
            false => "is more than 5 min old",
        };
        return vec![format!("the snapshot {why}: live data gets 10 s to arrive")];
    }
    let lacking =
        Resource::ALL.iter().zip(&reported.feeds).filter(|(_, feed)| !feed.is_answerable());
    let reason = |(resource, feed): (&Resource, &Feed)| {
        let (resource, why) = (resource.plural(), feed.explanation());
        format!("no complete list of {resource} has been read yet: {why}")
    };
    lacking.map(reason).collect()
}

pub(crate) fn is_live(reported: &Reported) -> bool {
    not_live(reported).is_empty()
}

/// The kinds of objects whose data is not live.
pub(crate) fn not_live(reported: &Reported) -> Vec<&'static str> {
    let feeds = Resource::ALL.iter().zip(&reported.feeds);
    let lacking = feeds.filter(|(_, feed)| feed.is_wanted && feed.source != DataSource::Live);
    lacking.map(|(resource, _)| resource.plural()).collect()
}
