//! The report about the source: the configuration that runs, a refused one, and the objects that are not served, with
//! reasons. Written by the source, read by `/config`, `/readyz`, `/metrics` and the log; never by anything that
//! answers queries.

pub mod feed;
pub mod skipped;
pub(crate) mod unserved;
pub mod snapshot;
pub mod delay;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crds::without_effect::WithoutEffect;
use dataplane_core::{DataSource, Resource};
use serde::Serialize;
use serde_json::Value;

use crate::telemetry::printable;
use delay::{Delay, DelaySince};
use feed::Feed;
use skipped::Changes;
use snapshot::SnapshotStatus;

pub use skipped::{Skipped, SkippedObjects};

/// Lines one update may log about objects or files; the rest is counted in one more line.
const MAX_LINES: usize = 20;

/// Origin, revision and start of the configuration in use, for `/config`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// Content revision, 12 hex digits.
    pub revision: String,
    /// Version of the form of the document.
    pub format: u32,
    /// Where it came from, such as `shop.yaml`.
    pub origin: String,
    /// The configuration as JSON, as it runs.
    pub document: Value,
    /// Fields that this version does not know and ignores.
    pub unknown_fields: Vec<String>,
    /// Fields that this version accepts and that have no effect.
    pub without_effect: Vec<WithoutEffect>,
}

/// A configuration that was refused, or that is expected and was not given; the one before, if there is one, stays in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// `ClusterDNS "x" in file`, or the ConfigMap.
    pub origin: String,
    /// Field, reason and what to write instead.
    pub violations: Vec<Violation>,
}

impl Rejection {
    /// Nothing was written that could be refused, such as where there is no ConfigMap.
    pub fn is_of_none(&self) -> bool {
        let is_missing = |it: &Violation| it.field.is_empty() && it.reason == "Missing";
        self.violations.len() == 1 && self.violations.iter().all(is_missing)
    }

    /// What happened, and what is in use instead, for the log.
    fn summary(&self, is_unconfigured: bool) -> String {
        let what = match self.is_of_none() {
            true => "no configuration was given",
            false => "configuration refused",
        };
        let instead = match is_unconfigured {
            true => "and none is in use yet",
            false => "the last good one stays in use",
        };
        format!("{what}, {instead}")
    }
}

/// One mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Path of the field, such as `spec.stubDomains[1].domain`.
    pub field: String,
    /// One word, such as `Missing` or `Malformed`.
    pub reason: String,
    /// What is wrong and what to write instead.
    pub message: String,
    /// The line of the file, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// A file whose last good content is used, because its present one cannot be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BadFile {
    /// Path below the folder of manifests.
    pub path: String,
    /// The line, where it is known, and what is wrong there.
    pub error: String,
}

/// The whole report, replaced piece by piece. A copy shares the large parts, so that pages are written without the
/// lock.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    pub running: Arc<Running>,
    /// The last one refused, until a good one takes over.
    pub rejection: Option<Arc<Rejection>>,
    /// Configurations refused since start.
    pub rejections: u64,
    /// Configurations that took effect since start.
    pub configurations: u64,
    /// Objects, or parts of them, that are not served.
    pub skipped: SkippedObjects,
    /// Files that cannot be used as they are.
    pub bad_files: Arc<Vec<BadFile>>,
    /// Other warnings.
    pub warnings: Arc<Vec<String>>,
    /// Objects of kinds that DNS does not read.
    pub other_kinds: Arc<BTreeMap<String, usize>>,
    /// Objects held, by [`Resource`].
    pub objects: [usize; Resource::ALL.len()],
    /// Namespaces held that are called like a top-level domain (S1).
    pub namespaces_like_top_level_domains: usize,
    /// The state of each resource's stream, by [`Resource`].
    pub feeds: [Feed; Resource::ALL.len()],
    /// The same of the configuration, where the API server has it.
    pub configuration: Option<Feed>,
    /// Every resource that is needed has, or had, data; never false again (E43).
    pub is_answerable: bool,
    /// A configuration is expected and not known yet (E44).
    pub is_unconfigured: bool,
    /// What this pod runs of a rollout, such as `stable`; empty without an operator.
    pub role: String,
    /// Times that another cluster was found behind the address of the API server (K22).
    pub cluster_changes: u64,
    /// Object changes applied, since start.
    pub changes: u64,
    /// States made visible to workers, since start.
    pub publications: u64,
    /// What the process started from, and what it keeps for the next start.
    pub snapshot: SnapshotStatus,
    /// Objects and tasks of the source whose handling panicked: a defect of this program.
    pub panics: u64,
    /// Whether the source answers at all, good or bad; `None` until it was tried (E43).
    pub source_answers: Option<bool>,
}

impl Reported {
    /// Some answers are those of a cluster that is not behind the API server's address any more (K22).
    pub fn serves_former_cluster(&self) -> bool {
        self.feeds.iter().any(|feed| feed.is_of_former_cluster)
    }
}

/// The report, shared by the source and the HTTP pages.
#[derive(Debug, Default)]
pub struct Status {
    reported: Mutex<Reported>,
    /// From an event received to its effect visible (E53).
    pub event_to_visible: Delay,
    /// From what made a slice change, by its annotation, to visible.
    pub change_to_visible: DelaySince,
}

impl Status {
    /// The present report. Hold the lock briefly: the source waits for it.
    pub fn read(&self) -> MutexGuard<'_, Reported> {
        // After a panic with the lock held, the text is still valid: no decision depends on it.
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes contact with a source that is one for all resources, changed or not.
    pub fn contact(&self) {
        for feed in &mut self.read().feeds {
            feed.source = DataSource::Live;
            feed.heard();
        }
    }

    /// Replaces the lists, and logs new entries once.
    pub fn report_unserved(
        &self,
        skipped: Vec<Skipped>,
        bad_files: Vec<BadFile>,
        warnings: Vec<String>,
    ) {
        // Only the source changes it.
        let known = self.read().skipped.clone();
        let changes = known.changes_to(skipped);
        drop(known);
        let mut reported = self.read();
        let new_files = owned(added(&reported.bad_files, &bad_files));
        reported.bad_files = Arc::new(bad_files);
        drop(reported);
        self.report_changes(&changes, warnings);
        let count = new_files.len();
        log(new_files.iter().map(|f| format!("{}: {}", f.path, f.error)), count);
    }

    /// Takes the changes of unserved objects, and the warnings; logs new ones once.
    pub(crate) fn report_changes(&self, changes: &Changes, warnings: Vec<String>) {
        let mut reported = self.read();
        reported.skipped.apply(changes);
        let new_warnings = owned(added(&reported.warnings, &warnings));
        reported.warnings = Arc::new(warnings);
        // A log without a reader may block, and then `/readyz` must not wait for it.
        drop(reported);
        let lines = changes.first_new(MAX_LINES);
        let lines = lines.iter().map(|s| {
            let name = match (s.namespace.as_str(), s.name.as_str()) {
                (_, "") => "without a name".to_owned(),
                ("", name) => name.to_owned(),
                (namespace, name) => format!("{namespace}/{name}"),
            };
            format!("not served in full: {} {name}: {}", s.kind, s.reason)
        });
        log(lines, changes.new.len());
        let count = new_warnings.len();
        log(new_warnings.into_iter(), count);
    }

    /// A configuration took effect at once.
    pub fn run(&self, running: Running) {
        self.accept();
        self.take_over(running);
    }

    /// The newest configuration is not refused, though it may have to wait for lists.
    pub fn accept(&self) {
        self.read().rejection = None;
    }

    /// A configuration that was accepted took effect: logs it, once for each revision. One that came later may have been
    /// refused meanwhile, which stays reported.
    pub fn take_over(&self, running: Running) {
        let running = Arc::new(running);
        let mut reported = self.read();
        let is_same = reported.configurations > 0 && reported.running.revision == running.revision;
        let before = std::mem::replace(&mut reported.running, Arc::clone(&running));
        reported.configurations += u64::from(!is_same);
        drop(reported);
        if !is_same {
            tracing::info!(
                revision = %running.revision,
                origin = %printable(&running.origin),
                "configuration in use"
            );
        }
        // A misspelled field changes nothing that runs, so the revision stays; the user must see it nevertheless.
        if !running.unknown_fields.is_empty()
            && (!is_same || before.unknown_fields != running.unknown_fields)
        {
            let fields = running.unknown_fields.join(", ");
            tracing::warn!(
                "the configuration has fields this version does not know and ignores: {}",
                printable(&fields)
            );
        }
        if !is_same {
            let lines = ineffective(&running.without_effect);
            let count = lines.len();
            log(lines.into_iter(), count);
        }
    }

    /// A configuration was refused, or was not given: logs why, once.
    pub fn reject(&self, rejection: Rejection) {
        let rejection = Arc::new(rejection);
        let mut reported = self.read();
        if reported.rejection.as_ref() == Some(&rejection) {
            return;
        }
        reported.rejections += 1;
        reported.rejection = Some(Arc::clone(&rejection));
        let summary = rejection.summary(reported.is_unconfigured);
        drop(reported);
        for violation in rejection.violations.iter().take(MAX_LINES) {
            tracing::error!(
                origin = %printable(&rejection.origin),
                field = %printable(&violation.field),
                line = violation.line,
                reason = %violation.reason,
                "{summary}: {}",
                printable(&violation.message)
            );
        }
    }
}

/// A line for each field without effect.
fn ineffective(used: &[WithoutEffect]) -> Vec<String> {
    used.iter().map(|it| format!("{} has no effect: {}", it.field, it.instead)).collect()
}

/// The entries of `after` that are not in `before`.
fn added<'a, T: Ord>(before: &[T], after: &'a [T]) -> Vec<&'a T> {
    let before: std::collections::BTreeSet<&T> = before.iter().collect();
    after.iter().filter(|item| !before.contains(item)).collect()
}

fn owned<T: Clone>(items: Vec<&T>) -> Vec<T> {
    items.into_iter().cloned().collect()
}

/// Logs the first of this many lines.
fn log(lines: impl Iterator<Item = String>, count: usize) {
    let more = count.saturating_sub(MAX_LINES);
    for line in lines.take(MAX_LINES) {
        tracing::warn!("{}", printable(&line));
    }
    if more > 0 {
        tracing::warn!("and {more} more: see /config");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o18_the_log_names_a_field_without_effect_and_what_happens_instead() {
        // No field is without effect in this version: this is how one would be named.
        let field = "spec.ttlSeconds".to_owned();
        let lines = ineffective(&[WithoutEffect { field, instead: "every TTL is 5".into() }]);
        assert_eq!(lines, ["spec.ttlSeconds has no effect: every TTL is 5"]);
    }

    fn violation(field: &str, reason: &str) -> Violation {
        let [field, reason, message] = [field, reason, "why"].map(str::to_owned);
        Violation { field, reason, message, line: None }
    }

    #[test]
    fn e44_the_log_says_what_is_in_use_where_a_configuration_is_refused_or_not_given() {
        let summary = |violations: Vec<Violation>, is_unconfigured| {
            Rejection { origin: "it".to_owned(), violations }.summary(is_unconfigured)
        };
        let refused = || vec![violation("spec.domain", "Malformed")];
        let none = || vec![violation("", "Missing")];
        let stays = "configuration refused, the last good one stays in use";
        assert_eq!(summary(refused(), false), stays);
        assert_eq!(summary(refused(), true), "configuration refused, and none is in use yet");
        let stays = "no configuration was given, the last good one stays in use";
        assert_eq!(summary(none(), false), stays);
        assert_eq!(summary(none(), true), "no configuration was given, and none is in use yet");
        let both = vec![violation("", "Missing"), violation("", "Malformed")];
        assert!(summary(both, false).starts_with("configuration refused"));
        assert!(
            summary(vec![violation("spec", "Missing")], false).starts_with("configuration ref")
        );
    }
}
