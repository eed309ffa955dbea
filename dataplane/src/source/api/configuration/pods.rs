//! Verified pod records take effect when the Pods are known. Before that, the configuration that asks for them is not reported as
//! the one that runs (E43): the operator judges a trial by that report.

use std::time::Duration;

use crds::Config;
use crds::config::PodRecords;
use dataplane_core::{DataSource, Resource};

use super::Configuration;
use crate::settings;
use crate::source::api::ingest::Ingest;
use crate::source::api::pace::chance;
use crate::source::writer::Writer;
use crate::status::Running;

/// A configuration that is in effect, except for its verified pod records.
#[derive(Debug)]
pub(super) struct AwaitsPods {
    config: Config,
    running: Running,
}

impl Configuration {
    /// A random time, so that pods do not all list at once (E43). The one pod of a trial is alone, and the trial waits for its list.
    /// When it goes back it is alone too, and until its list is complete it runs what failed (O7).
    pub(in crate::source::api) fn delay(&self) -> Duration {
        match self.is_on_trial || self.goes_back {
            true => Duration::ZERO,
            false => self.pace.spread.mul_f64(chance()),
        }
    }

    /// E43: names of Pods are answered by the old setting until the Pods are known. What must run,
    /// and what once they are.
    pub(super) fn with_pods(&self, writer: &Writer, config: &Config) -> (Config, Option<Config>) {
        let mut effective = config.clone();
        let (new, old) = (config.pod_records, self.pod_records);
        let has_pods = writer.source(Resource::Pods) != DataSource::None;
        if new == PodRecords::Verified
            && !has_pods
            && let Some(old) = old.filter(|old| *old != PodRecords::Verified)
        {
            effective.pod_records = old;
            return (effective, Some(config.clone()));
        }
        (effective, None)
    }

    /// The Pods are followed from now on where this configuration reads them. Answers and readiness need them only once its setting
    /// is in effect.
    pub(super) fn want_pods(&mut self, ingest: &mut Ingest, config: &Config) {
        let is_followed = settings::reads(config, Resource::Pods);
        let is_needed = self.pod_records == Some(PodRecords::Verified);
        ingest.status.shared.read().feeds[Resource::Pods as usize].want(is_needed, is_followed);
        self.pods_wanted
            .send_if_modified(|wanted| std::mem::replace(wanted, is_followed) != is_followed);
    }

    /// Reports a configuration that took effect, at once or when its Pods are known.
    pub(super) fn run(
        &mut self,
        ingest: &mut Ingest,
        running: Running,
        awaits_pods: Option<Config>,
    ) {
        let Some(config) = awaits_pods else {
            self.awaits_pods = None;
            ingest.status.shared.take_over(running);
            return;
        };
        tracing::info!(
            revision = %running.revision,
            "a configuration with verified pod records: names of Pods follow the setting before, and the revision before is \
             reported, until the list of Pods is complete"
        );
        self.awaits_pods = Some(AwaitsPods { config, running });
    }

    /// The Pods are known: a setting that waited for them takes effect, and its configuration is reported.
    pub(in crate::source::api) fn pods_are_complete(&mut self, ingest: &mut Ingest) {
        if ingest.writer.is_renewing() || ingest.writer.source(Resource::Pods) == DataSource::None {
            return;
        }
        let Some(AwaitsPods { config, running }) = self.awaits_pods.take() else { return };
        if ingest.writer.configure(&config).is_ok() {
            self.pod_records = Some(config.pod_records);
            ingest.status.shared.take_over(running);
            self.want_pods(ingest, &config);
            self.keep_stable(ingest);
            ingest.publish();
            ingest.status.has_news();
            tracing::info!("the Pods are known: verified pod records are in effect");
        }
    }
}
