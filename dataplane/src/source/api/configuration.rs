//! How a configuration takes effect (E5, E43, E44, E46): the one that runs stays until another is
//! read, checked, and has the data it needs. A bad or missing one changes nothing but what is told.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use crds::Config;
use crds::config::PodRecords;
use dataplane_core::{DataSource, Relist, Resource};

use super::decode;
use super::ingest::Ingest;
use super::rollout::{CANARY, Canary, ROLLOUT, STABLE, Texts};
use super::{Pace, chance};
use crate::settings;
use crate::source::configuration::{self, Checked};
use crate::source::objects::documents::{self, Syntax};
use crate::status::Running;

/// What runs where nobody says otherwise.
const DEFAULTS: &str = "defaults: neither --config-map nor --config names another";
/// How often a file is read again.
const FILE_INTERVAL: Duration = Duration::from_secs(4);

/// Where the configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nowhere: defaults.
    Defaults,
    /// A file with a ClusterDNS.
    File(PathBuf),
    /// What an operator writes.
    ConfigMap {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// A mounted copy, for a start without the API server.
        mounted: Option<PathBuf>,
    },
}

/// Where the configuration stands.
#[derive(Debug)]
pub(super) struct Settling {
    wanted: Wanted,
    pod_uid: Option<String>,
    pub(super) pace: Pace,
    /// The list that is being read has the ConfigMap.
    pub(super) listed: bool,
    texts: Option<Texts>,
    canary: Canary,
    choose_at: Option<Instant>,
    /// The document looked at last, good or not.
    looked_at: Option<String>,
    next_look: Instant,
    /// Needs new lists, which begin at this time.
    postponed: Option<(Config, Running, Instant)>,
    /// Takes over once its lists are complete.
    renewing: Option<Renewing>,
    /// Its verified pod records wait for the list of Pods.
    awaits_pods: Option<Config>,
    /// The pod records in effect.
    pod_records: Option<PodRecords>,
}

/// What follows when a configuration takes over that waited for lists.
#[derive(Debug)]
struct Renewing {
    config: Config,
    running: Running,
    pod_records: PodRecords,
    awaits_pods: Option<Config>,
}

impl Settling {
    pub(super) fn new(wanted: Wanted, pod_uid: Option<String>, pace: Pace) -> Settling {
        Settling {
            wanted,
            pod_uid,
            pace,
            listed: false,
            texts: None,
            canary: Canary::with_grace(pace.canary_grace),
            choose_at: None,
            looked_at: None,
            next_look: Instant::now() + FILE_INTERVAL,
            postponed: None,
            renewing: None,
            awaits_pods: None,
            pod_records: None,
        }
    }
}

/// The configuration to start with, where it is known without the API server.
///
/// # Errors
/// The file cannot be used: there is no last good one to fall back to.
pub(super) fn first(wanted: &Wanted) -> anyhow::Result<Option<Checked>> {
    match wanted {
        Wanted::Defaults => Ok(Some(configuration::defaults(DEFAULTS))),
        Wanted::File(path) => Ok(Some(of_file(&read(path)?, path)?)),
        Wanted::ConfigMap { .. } => Ok(None),
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {} (--config)", path.display()))
}

fn of_file(text: &str, path: &Path) -> anyhow::Result<Checked> {
    let name = path.display();
    let manifests = documents::parse(text, Syntax::Yaml)
        .map_err(|error| anyhow::anyhow!("{name} (--config): {error}"))?;
    let [found] = &manifests.configurations[..] else {
        let count = manifests.configurations.len();
        anyhow::bail!("{name} (--config) holds {count} ClusterDNS objects: write exactly one");
    };
    let found = (found.clone(), name.to_string());
    configuration::of(Some(&found)).map_err(|rejection| {
        anyhow::anyhow!("the configuration is refused.\n{}", configuration::text(&rejection))
    })
}

impl Ingest {
    /// A configuration is known.
    pub(super) fn is_configured(&self) -> bool {
        self.settling.pod_records.is_some()
    }

    /// The ConfigMap, as the API server has it.
    pub(super) fn take_config_map(&mut self, text: &[u8]) {
        let read: Result<decode::ConfigMap, _> = serde_json::from_slice(text);
        self.settling.listed = true;
        self.settling.texts = Some(read.unwrap_or_default().data.unwrap_or_default());
        self.settle(Instant::now());
    }

    /// The ConfigMap is not there. What runs stays (E44).
    pub(super) fn lose_config_map(&mut self) {
        let Wanted::ConfigMap { namespace, name, .. } = &self.settling.wanted else { return };
        let message = format!("there is no ConfigMap {namespace}/{name}");
        self.settling.looked_at = None;
        self.status.reject(configuration::missing(self.origin(), message));
    }

    fn origin(&self) -> String {
        match &self.settling.wanted {
            Wanted::ConfigMap { namespace, name, .. } => format!("ConfigMap {namespace}/{name}"),
            Wanted::File(path) => path.display().to_string(),
            Wanted::Defaults => DEFAULTS.to_owned(),
        }
    }

    /// The mounted copy of the ConfigMap, for a start without the API server.
    pub(super) fn take_mounted(&mut self) {
        let Wanted::ConfigMap { mounted: Some(folder), .. } = &self.settling.wanted else { return };
        let read =
            |key: &str| Some((key.to_owned(), std::fs::read_to_string(folder.join(key)).ok()?));
        let texts: Texts = [STABLE, CANARY, ROLLOUT].into_iter().filter_map(read).collect();
        if texts.is_empty() {
            tracing::warn!(folder = %folder.display(), "the mounted copy of the configuration is empty");
            return;
        }
        tracing::info!(folder = %folder.display(), "starting with the mounted copy of the configuration");
        self.settling.texts = Some(texts);
        self.settle(Instant::now());
    }

    /// Runs what the ConfigMap has for this pod.
    fn settle(&mut self, now: Instant) {
        let Some(texts) = self.settling.texts.take() else { return };
        let pod_uid = self.settling.pod_uid.clone();
        let choice = self.settling.canary.choose(&texts, pod_uid.as_deref(), now);
        self.settling.choose_at = choice.until;
        let is_good = self.look_at(choice.key, choice.role, texts.get(choice.key));
        if !is_good && choice.key == CANARY && !self.is_configured() {
            // There is no last good one, and the other pods run this.
            self.instead(|ingest| {
                ingest.look_at(STABLE, "stable: the canary is refused", texts.get(STABLE))
            });
        }
        self.settling.texts = Some(texts);
        self.keep_stable();
    }

    /// Runs a configuration because another was refused; that stays told (E46).
    pub(super) fn instead(&mut self, run: impl FnOnce(&mut Ingest) -> bool) {
        let refused = self.status.read().rejection.clone();
        if run(self) && refused.is_some() {
            self.status.read().rejection = refused;
        }
    }

    /// While a canary runs, a restart is to run what every other pod runs.
    pub(super) fn keep_stable(&mut self) {
        let stable = self.settling.texts.as_ref().and_then(|texts| texts.get(STABLE));
        if let Some(text) = stable
            && let Ok(checked) = configuration::of_document(text, STABLE.to_owned())
        {
            self.writer.keep_configuration(Arc::new(checked.config));
        }
    }

    /// Checks a document if it is another one. Returns whether it can run.
    fn look_at(&mut self, key: &str, role: &str, text: Option<&String>) -> bool {
        let origin = format!("{}, {key}", self.origin());
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
            self.settling.looked_at = None;
            self.status
                .reject(configuration::missing(origin, format!("{key} is not there, or empty")));
            return false;
        };
        if self.settling.looked_at.as_ref() == Some(text) {
            self.status.read().role = role.to_owned();
            return true;
        }
        self.settling.looked_at = Some(text.clone());
        match configuration::of_document(text, origin) {
            Ok(checked) => {
                self.status.read().role = role.to_owned();
                self.adopt(checked)
            }
            Err(rejection) => {
                self.status.reject(rejection);
                false
            }
        }
    }

    /// Runs a checked configuration as soon as it has the data it needs.
    pub(super) fn adopt(&mut self, checked: Checked) -> bool {
        let Checked { config, running } = checked;
        self.settling.postponed = None;
        // One that still waits for lists never takes over.
        self.settling.renewing = None;
        self.writer.cancel_renewal();
        if self.is_configured() {
            match self.writer.relist_for(&config) {
                Relist::Nothing => {}
                // At once, so that no two pods show different clusters for long (K24). It costs the
                // API server a list of Services and of Namespaces by every pod within a moment.
                Relist::Labels => {
                    self.renew(&config, running, Relist::Labels);
                    return true;
                }
                Relist::Everything => {
                    let at = Instant::now() + self.settling.pace.spread.mul_f64(chance());
                    tracing::info!(
                        revision = %running.revision,
                        "a configuration that needs every object again: it takes over when they are \
                         read"
                    );
                    self.settling.postponed = Some((config, running, at));
                    return true;
                }
            }
        }
        let origin = running.origin.clone();
        let (effective, awaits_pods) = self.with_pods(&config);
        match self.writer.configure(&effective) {
            // Nothing is held of which more would be read.
            Ok(_) => {
                self.settling.pod_records = Some(effective.pod_records);
                self.settling.awaits_pods = awaits_pods;
                self.status.run(running);
                self.want_pods(&config);
                self.publish();
                self.has_news();
                true
            }
            Err(error) => {
                self.status.reject(configuration::unusable(origin, error));
                false
            }
        }
    }

    /// E43: names of Pods are answered by the old setting until the Pods are known. What is to run,
    /// and what once they are.
    fn with_pods(&self, config: &Config) -> (Config, Option<Config>) {
        let mut effective = config.clone();
        let (new, old) = (config.pod_records, self.settling.pod_records);
        let has_pods = self.writer.source(Resource::Pods) != DataSource::None;
        if new == PodRecords::Verified
            && !has_pods
            && let Some(old) = old.filter(|old| *old != PodRecords::Verified)
        {
            effective.pod_records = old;
            return (effective, Some(config.clone()));
        }
        (effective, None)
    }

    fn want_pods(&mut self, config: &Config) {
        let is_wanted = settings::reads(config, Resource::Pods);
        let is_needed = self.settling.pod_records == Some(PodRecords::Verified);
        self.status.read().feeds[Resource::Pods as usize].is_wanted = is_needed;
        self.pods_wanted
            .send_if_modified(|wanted| std::mem::replace(wanted, is_wanted) != is_wanted);
    }

    /// The Pods are known: a setting that waited for them takes effect.
    pub(super) fn pods_are_complete(&mut self) {
        if self.writer.is_renewing() || self.writer.source(Resource::Pods) == DataSource::None {
            return;
        }
        let Some(config) = self.settling.awaits_pods.take() else { return };
        if self.writer.configure(&config).is_ok() {
            self.settling.pod_records = Some(config.pod_records);
            self.want_pods(&config);
            self.keep_stable();
            self.publish();
            tracing::info!("the Pods are known: verified pod records are in effect");
        }
    }

    /// What time alone brings: the end of a canary, of a delay, of new lists; a file that changed.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.settling.choose_at.is_some_and(|at| now >= at) {
            self.settle(now);
        }
        if self.settling.postponed.as_ref().is_some_and(|(_, _, at)| now >= *at)
            && let Some((config, running, _)) = self.settling.postponed.take()
        {
            self.renew(&config, running, Relist::Everything);
        }
        self.pods_are_complete();
        if now >= self.settling.next_look {
            self.settling.next_look = now + FILE_INTERVAL;
            self.look_at_file();
            self.look_at_resolv_conf();
        }
    }

    /// Asks for the lists that a configuration needs before it takes over.
    fn renew(&mut self, config: &Config, running: Running, relist: Relist) {
        let (effective, awaits_pods) = self.with_pods(config);
        match self.writer.renew(&effective) {
            Ok(()) => {
                let (config, pod_records) = (config.clone(), effective.pod_records);
                if settings::reads(&config, Resource::Pods) {
                    self.want_pods(&config);
                }
                self.settling.renewing =
                    Some(Renewing { config, running, pod_records, awaits_pods });
                self.relists.send_modify(|counts| {
                    let needed = Resource::ALL.iter().filter(|kind| relist.includes(**kind));
                    needed.for_each(|resource| counts[*resource as usize] += 1);
                });
            }
            Err(error) => self.status.reject(configuration::unusable(running.origin, error)),
        }
    }

    /// In the same step in which what waited for lists took over: it is told, and what it does not
    /// read is let go, on which the answers until then rested.
    pub(super) fn settle_renewal(&mut self) {
        if self.writer.is_renewing() {
            return;
        }
        let Some(renewing) = self.settling.renewing.take() else { return };
        let Renewing { config, running, pod_records, awaits_pods } = renewing;
        self.settling.pod_records = Some(pod_records);
        self.settling.awaits_pods = awaits_pods;
        self.status.run(running);
        self.want_pods(&config);
        self.keep_stable();
        self.has_news();
    }

    /// Takes what `--config` names if it changed.
    fn look_at_file(&mut self) {
        let Wanted::File(path) = self.settling.wanted.clone() else { return };
        let text = read(&path);
        let known = text.as_ref().ok().cloned().unwrap_or_default();
        if self.settling.looked_at.as_ref() == Some(&known) {
            return;
        }
        let is_first = self.settling.looked_at.replace(known).is_none();
        match text.and_then(|text| of_file(&text, &path)) {
            // What it held at the start runs already.
            Ok(checked)
                if is_first && checked.running.revision == self.status.read().running.revision => {}
            Ok(checked) => {
                self.adopt(checked);
            }
            Err(error) => {
                let origin = path.display().to_string();
                self.status.reject(configuration::unusable(origin, format!("{error:#}")));
            }
        }
    }
}
