//! How a configuration takes effect (E5, E43, E44, E46): the one that runs stays until another is
//! read, checked, and has the data it needs. A bad or missing one changes only what is reported.

mod pods;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::Config;
use crds::config::PodRecords;
use dataplane_core::{Relist, Resource};
use process::bounded_file;
use tokio::sync::watch;

use self::pods::AwaitsPods;
use super::decode;
use super::ingest::Ingest;
use super::pace::Pace;
use super::rollout::{CANARY, Canary, Own, ROLLOUT, STABLE, Texts};
use super::wanted::{Wanted, of_file, read};
use super::watched::Watched;
use crate::settings;
use crate::snapshot::Stored;
use crate::source::configuration::{self, Checked};
use crate::status::Running;

/// How often a file is read again.
const FILE_INTERVAL: Duration = Duration::from_secs(4);
/// A ConfigMap has at most 1 MiB in all.
const MAX_MOUNTED_OCTETS: u64 = 1 << 20;

/// The configuration that runs, and the one that will replace it.
#[derive(Debug)]
pub(super) struct Configuration {
    wanted: Wanted,
    own: Own,
    pub(super) pace: Pace,
    /// The list that is being read has the ConfigMap.
    is_listed: bool,
    /// The ConfigMap with the configuration, where there is one.
    pub(super) config_map: Option<Watched>,
    /// True while the configuration needs Pods (`verified` pod records).
    pub(super) pods_wanted: watch::Sender<bool>,
    /// The folder of the warm start, and the snapshot in it at start.
    pub(super) state_dir: Option<(PathBuf, Option<Stored>)>,
    texts: Option<Texts>,
    canary: Canary,
    choose_at: Option<Instant>,
    /// The document looked at last, good or not.
    looked_at: Option<String>,
    /// It is on trial here, and no other pod reads it.
    is_on_trial: bool,
    /// It took the place of one that was on trial here: no other pod goes back with this one.
    goes_back: bool,
    next_look: Instant,
    /// Needs new lists, which begin at this time.
    postponed: Option<(Config, Running, Instant)>,
    /// Takes over once its lists are complete.
    renewing: Option<Renewing>,
    /// In effect, except for its verified pod records: they wait for the list of Pods.
    awaits_pods: Option<AwaitsPods>,
    /// The pod records in effect.
    pod_records: Option<PodRecords>,
}

/// What to do when a configuration that waited for lists takes over.
#[derive(Debug)]
struct Renewing {
    config: Config,
    running: Running,
    pod_records: PodRecords,
    awaits_pods: Option<Config>,
}

impl Configuration {
    pub(super) fn new(wanted: Wanted, own: Own, pace: Pace) -> Configuration {
        Configuration {
            wanted,
            own,
            pace,
            is_listed: false,
            config_map: None,
            pods_wanted: watch::Sender::new(false),
            state_dir: None,
            texts: None,
            canary: Canary::with_grace(pace.canary_grace),
            choose_at: None,
            looked_at: None,
            is_on_trial: false,
            goes_back: false,
            next_look: Instant::now() + FILE_INTERVAL,
            postponed: None,
            renewing: None,
            awaits_pods: None,
            pod_records: None,
        }
    }

    /// Whether any configuration has taken effect.
    pub(super) fn is_configured(&self) -> bool {
        self.pod_records.is_some()
    }

    /// The ConfigMap, as the API server has it.
    pub(super) fn take_config_map(&mut self, ingest: &mut Ingest, text: &[u8]) {
        let read: Result<decode::ConfigMap, _> = serde_json::from_slice(text);
        self.is_listed = true;
        self.texts = Some(read.unwrap_or_default().data.unwrap_or_default());
        self.settle(ingest, Instant::now());
    }

    /// The ConfigMap is not there. What runs stays (E44).
    pub(super) fn lose_config_map(&mut self, ingest: &mut Ingest) {
        let Wanted::ConfigMap { namespace, name, .. } = &self.wanted else { return };
        let message = format!("there is no ConfigMap {namespace}/{name}");
        self.looked_at = None;
        ingest.status.shared.reject(configuration::missing(self.wanted.origin(), message));
    }

    /// A list of the ConfigMap begins.
    pub(super) fn begin_list(&mut self) {
        self.is_listed = false;
    }

    /// A list of the ConfigMap is complete; where it did not show one, there is none.
    pub(super) fn complete_list(&mut self, ingest: &mut Ingest) {
        if !self.is_listed {
            self.lose_config_map(ingest);
        }
    }

    /// The mounted copy of the ConfigMap, for a start without the API server.
    pub(super) fn take_mounted(&mut self, ingest: &mut Ingest) {
        let Wanted::ConfigMap { mounted: Some(folder), .. } = &self.wanted else { return };
        let read = |key: &str| match bounded_file::read_text(&folder.join(key), MAX_MOUNTED_OCTETS)
        {
            Ok(text) => Some((key.to_owned(), text)),
            // There is a canary only during a trial.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(%folder, key, %error, "a part of the mounted configuration cannot be read");
                None
            }
        };
        let texts: Texts = [STABLE, CANARY, ROLLOUT].into_iter().filter_map(read).collect();
        if texts.is_empty() {
            tracing::warn!(folder = %folder.display(), "the mounted copy of the configuration is empty");
            return;
        }
        tracing::info!(folder = %folder.display(), "starting with the mounted copy of the configuration");
        self.texts = Some(texts);
        self.settle(ingest, Instant::now());
    }

    /// Runs what the ConfigMap has for this pod.
    fn settle(&mut self, ingest: &mut Ingest, now: Instant) {
        let Some(texts) = self.texts.take() else { return };
        let choice = self.canary.choose(&texts, &self.own, now);
        self.choose_at = choice.until;
        let is_good = self.look_at(ingest, choice.key, choice.role, texts.get(choice.key));
        if !is_good && choice.key == CANARY && !self.is_configured() {
            // There is no last good one, and the other pods run this.
            self.instead(ingest, |this, ingest| {
                this.look_at(ingest, STABLE, "stable: the canary is refused", texts.get(STABLE))
            });
        }
        self.texts = Some(texts);
        self.keep_stable(ingest);
    }

    /// Runs a configuration because another was refused; the refusal stays reported (E46).
    pub(super) fn instead(
        &mut self,
        ingest: &mut Ingest,
        run: impl FnOnce(&mut Configuration, &mut Ingest) -> bool,
    ) {
        let refused = ingest.status.shared.read().rejection.clone();
        if run(self, ingest) && refused.is_some() {
            ingest.status.shared.read().rejection = refused;
        }
    }

    /// While a canary runs, a restart must run what every other pod runs.
    pub(super) fn keep_stable(&mut self, ingest: &mut Ingest) {
        let stable = self.texts.as_ref().and_then(|texts| texts.get(STABLE));
        if let Some(text) = stable
            && let Ok(checked) = configuration::of_document(text, STABLE.to_owned())
        {
            ingest.writer.keep_configuration(Arc::new(checked.config));
        }
    }

    /// Checks a document if it is another one. Returns whether it can run.
    fn look_at(
        &mut self,
        ingest: &mut Ingest,
        key: &str,
        role: &str,
        text: Option<&String>,
    ) -> bool {
        let origin = format!("{}, {key}", self.wanted.origin());
        let was_on_trial = std::mem::replace(&mut self.is_on_trial, key == CANARY);
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
            self.looked_at = None;
            ingest
                .status
                .shared
                .reject(configuration::missing(origin, format!("{key} is not there, or empty")));
            return false;
        };
        if self.looked_at.as_ref() == Some(text) {
            ingest.status.shared.read().role = role.to_owned();
            return true;
        }
        self.looked_at = Some(text.clone());
        self.goes_back = was_on_trial;
        match configuration::of_document(text, origin) {
            Ok(checked) => {
                ingest.status.shared.read().role = role.to_owned();
                self.adopt(ingest, checked)
            }
            Err(rejection) => {
                ingest.status.shared.reject(rejection);
                false
            }
        }
    }

    /// Runs a checked configuration as soon as it has the data it needs.
    pub(super) fn adopt(&mut self, ingest: &mut Ingest, checked: Checked) -> bool {
        let Checked { config, running } = checked;
        self.postponed = None;
        // One that still waits for lists never takes over.
        self.renewing = None;
        ingest.writer.cancel_renewal();
        if self.is_configured() {
            match ingest.writer.relist_for(&config) {
                Relist::Nothing => {}
                // At once, so that no two pods show different clusters for long (K24). It costs the
                // API server a list of Services and of Namespaces by every pod within a moment.
                Relist::Labels => {
                    ingest.status.shared.accept();
                    self.renew(ingest, &config, running);
                    return true;
                }
                Relist::Everything => {
                    let at = Instant::now() + self.delay();
                    tracing::info!(
                        revision = %running.revision,
                        "a configuration that needs every object again: it takes over when they are \
                         read"
                    );
                    ingest.status.shared.accept();
                    self.postponed = Some((config, running, at));
                    return true;
                }
            }
        }
        let origin = running.origin.clone();
        let (effective, awaits_pods) = self.with_pods(&ingest.writer, &config);
        match ingest.writer.configure(&effective) {
            // No objects are held of which more fields would be needed.
            Ok(_) => {
                self.pod_records = Some(effective.pod_records);
                // The newest document is this one, also where it waits.
                ingest.status.shared.accept();
                self.run(ingest, running, awaits_pods);
                self.want_pods(ingest, &config);
                ingest.publish();
                ingest.status.has_news();
                true
            }
            Err(error) => {
                ingest.status.shared.reject(configuration::unusable(origin, error));
                false
            }
        }
    }

    /// Handles changes that time alone brings: the end of a canary, of a delay, of new lists; a file that changed.
    pub(super) fn tick(&mut self, ingest: &mut Ingest, now: Instant) {
        if self.choose_at.is_some_and(|at| now >= at) {
            self.settle(ingest, now);
        }
        if self.postponed.as_ref().is_some_and(|(_, _, at)| now >= *at)
            && let Some((config, running, _)) = self.postponed.take()
        {
            self.renew(ingest, &config, running);
        }
        self.pods_are_complete(ingest);
        if now >= self.next_look {
            self.next_look = now + FILE_INTERVAL;
            self.look_at_file(ingest);
            look_at_resolv_conf(ingest);
        }
    }

    /// Asks for the lists that a configuration needs before it takes over.
    fn renew(&mut self, ingest: &mut Ingest, config: &Config, running: Running) {
        let (effective, awaits_pods) = self.with_pods(&ingest.writer, config);
        match ingest.writer.renew(&effective) {
            Ok(relist) => {
                let (config, pod_records) = (config.clone(), effective.pod_records);
                if settings::reads(&config, Resource::Pods) {
                    self.want_pods(ingest, &config);
                }
                self.renewing = Some(Renewing { config, running, pod_records, awaits_pods });
                ingest.relist(Resource::ALL.into_iter().filter(|kind| relist.includes(*kind)));
            }
            Err(error) => {
                ingest.status.shared.reject(configuration::unusable(running.origin, error))
            }
        }
    }

    /// A configuration that waited for lists took over: reports it, and drops the data that only the previous one
    /// read. Called in the same step, so that no answer uses parts of both (E5).
    pub(super) fn settle_renewal(&mut self, ingest: &mut Ingest) {
        if ingest.writer.is_renewing() {
            return;
        }
        let Some(renewing) = self.renewing.take() else { return };
        let Renewing { config, running, pod_records, awaits_pods } = renewing;
        self.pod_records = Some(pod_records);
        self.run(ingest, running, awaits_pods);
        self.want_pods(ingest, &config);
        self.keep_stable(ingest);
        ingest.status.has_news();
    }

    /// Reads the file of `--config` again if it changed.
    fn look_at_file(&mut self, ingest: &mut Ingest) {
        let Wanted::File(path) = self.wanted.clone() else { return };
        let text = read(&path);
        let known = text.as_ref().ok().cloned().unwrap_or_default();
        if self.looked_at.as_ref() == Some(&known) {
            return;
        }
        let is_first = self.looked_at.replace(known).is_none();
        match text.and_then(|text| of_file(&text, &path)) {
            // The content at the start already runs.
            Ok(checked)
                if is_first
                    && checked.running.revision == ingest.status.shared.read().running.revision => {
            }
            Ok(checked) => {
                self.adopt(ingest, checked);
            }
            Err(error) => {
                let origin = path.display().to_string();
                ingest.status.shared.reject(configuration::unusable(origin, format!("{error:#}")));
            }
        }
    }
}

/// FW3: another resolv.conf means other upstreams.
fn look_at_resolv_conf(ingest: &mut Ingest) {
    if ingest.writer.reread_resolv_conf() {
        tracing::info!("resolv.conf changed");
        ingest.status.has_news();
        ingest.publish();
    }
}
