//! The one writer of the index: a source's changes and configurations in, published states out.

mod renewal;
mod retired;
mod warm;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crds::Config;
use dataplane_core::{
    Change, DataSource, Identity, Index, Key, Problem, Relist, Resource, Settings, WorkerCounters,
};
use tokio::sync::watch;

#[cfg(test)]
pub(crate) use warm::DEFECT;
pub use warm::KUBE_SYSTEM;

use crate::forward::Upstreams;
use crate::identity;
use crate::settings::{self, Location};
use crate::state::{Published, State};
use crate::status::skipped::Changes;
use crate::status::unserved::{Texts, Unserved};
use crate::status::{Skipped, Status};
use crate::telemetry;

/// The parts of the process that a writer uses.
#[derive(Clone, Debug)]
pub struct Setup {
    /// One per worker, the TCP side's last.
    pub counters: Vec<Arc<WorkerCounters>>,
    /// Who we say we are.
    pub identity: Identity,
    /// Names the default upstreams, where the configuration does not.
    pub resolv_conf: PathBuf,
    /// Where the pod is (RR97).
    pub location: Location,
    /// Where the writer reports.
    pub status: Arc<Status>,
}

/// Owns the index; lives on the source's thread.
#[derive(Debug)]
pub struct Writer {
    index: Index,
    /// The next index, which takes over when it is complete.
    renewal: Option<renewal::Renewal>,
    state: Arc<State>,
    retired: retired::Retired,
    upstreams: Arc<Upstreams>,
    resolv_conf: PathBuf,
    location: Location,
    status: Arc<Status>,
    /// Objects that the index does not serve in full, for as long as it holds them.
    problems: Unserved,
    /// Whether the list in progress began in this index. If it began in the previous index, this one lacks the
    /// objects that came before it took over.
    has_begun: [bool; Resource::ALL.len()],
    /// The configuration in use, for readers that need more than the core.
    configs: watch::Sender<Arc<Config>>,
    /// The configuration changed since the last publication.
    is_reconfigured: bool,
    /// Exports to disk, and the snapshot that was loaded at start.
    warm: warm::Warm,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// An answer of the next publication may differ from those before.
    pub is_visible: bool,
    /// The reasons why parts of the object are not served have changed.
    pub is_problem_new: bool,
    /// It is of another cluster than what is held: everything must be listed again (K22).
    pub is_of_another_cluster: bool,
}

impl Writer {
    /// A writer with an empty, published index: every cluster name gets SERVFAIL "not ready".
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub fn new(config: &Config, setup: Setup) -> Result<Writer, String> {
        let writer = Writer::of(config, setup, Index::new)?;
        // Before the first line about this configuration: a program that reads the log reads one form.
        telemetry::apply(&config.logging);
        Ok(writer)
    }

    /// A writer that expects a configuration and has none yet (E44): nothing is forwarded, and nothing is known to be ours.
    ///
    /// # Errors
    /// Never in fact: the defaults can be used.
    pub fn unconfigured(setup: Setup) -> Result<Writer, String> {
        setup.status.read().is_unconfigured = true;
        telemetry::wait_no_longer();
        Writer::of(&Config::default(), setup, Index::unconfigured)
    }

    fn of(
        config: &Config,
        setup: Setup,
        index: impl FnOnce(Settings) -> Index,
    ) -> Result<Writer, String> {
        let Setup { counters, identity, resolv_conf, location, status } = setup;
        let mut index = index(settings::at(config, &location)?);
        index.set_replicas(identity::of_one(&identity.instance_id));
        let upstreams = Arc::new(Upstreams::of(config, &resolv_conf));
        let published = Published { records: index.records(), upstreams: upstreams.clone() };
        let taps = Arc::clone(upstreams.taps());
        let state = State {
            published: Arc::new(published).into(),
            counters,
            identity,
            taps,
            inspections: Arc::default(),
        };
        Ok(Writer {
            index,
            renewal: None,
            state: Arc::new(state),
            retired: retired::Retired::default(),
            upstreams,
            resolv_conf,
            location,
            status,
            problems: Unserved::default(),
            has_begun: [false; Resource::ALL.len()],
            configs: watch::Sender::new(Arc::new(config.clone())),
            is_reconfigured: false,
            warm: warm::Warm::default(),
        })
    }

    /// The published state, which serving threads read.
    pub fn state(&self) -> Arc<State> {
        self.state.clone()
    }

    /// The configuration in use, and those that take over.
    pub fn configs(&self) -> watch::Receiver<Arc<Config>> {
        self.configs.subscribe()
    }

    /// Takes another configuration (E5), visible with the next publication. Returns which objects must be applied again.
    ///
    /// # Errors
    /// When the configuration cannot be used; then nothing changed.
    pub fn configure(&mut self, config: &Config) -> Result<Relist, String> {
        let settings = settings::at(config, &self.location)?;
        self.cancel_renewal();
        self.take_upstreams(config);
        let new = Arc::new(config.clone());
        let old = self.configs.send_replace(new.clone());
        telemetry::apply(&config.logging);
        self.status.read().is_unconfigured = false;
        self.forget_snapshot_if_too_little(&old, &new);
        self.keep_configuration(new);
        // Abandon the running export: its labels were kept for the old configuration.
        self.warm.abandon();
        Ok(self.index.configure(settings))
    }

    /// True if any object of this resource is held, also from an incomplete list.
    fn has_any(&self, resource: Resource) -> bool {
        self.source(resource) != DataSource::None || self.index.objects(resource) > 0
    }

    /// Where the data of a resource comes from.
    pub fn source(&self, resource: Resource) -> DataSource {
        self.index.source(resource)
    }

    /// Looks at resolv.conf again (FW3); another one is visible with the next publication. Returns whether it is another.
    pub fn reread_resolv_conf(&mut self) -> bool {
        let is_same = match self.upstreams.resolv_conf() {
            Some(known) => *known == known.reread(&self.resolv_conf),
            None => true,
        };
        if !is_same {
            let config = self.configs.borrow().clone();
            self.take_upstreams(&config);
        }
        !is_same
    }

    fn take_upstreams(&mut self, config: &Config) {
        self.upstreams = Arc::new(self.upstreams.next(config, &self.resolv_conf));
        self.is_reconfigured = true;
    }

    /// Upstreams that are not used, settings without effect, federations that lead nowhere.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.upstreams.problems().to_vec();
        warnings.extend(settings::without_place(&self.configs.borrow(), &self.location));
        warnings
    }

    /// A complete list of this resource begins.
    pub fn begin(&mut self, resource: Resource) {
        self.index.begin_list(resource);
        self.has_begun[resource as usize] = true;
        self.problems.begin(resource);
        if let Some(renewal) = &mut self.renewal {
            renewal.begin(resource);
        }
    }

    /// The list that began is consistent and of this version (0: it has none).
    pub fn list_is_at(&mut self, resource: Resource, version: u64) {
        self.index.list_is_at(resource, version);
        if let Some(index) = self.renewing_index() {
            index.list_is_at(resource, version);
        }
    }

    /// In a consistent read the source was below a version that it showed before, of this resource or of the
    /// configuration (K22). Objects of the other resources may be of the lost history too: the next complete list of
    /// each is a reset. Returns whether that was not known yet.
    pub fn went_back(&mut self, resource: Option<Resource>) -> bool {
        if resource.is_some_and(|resource| self.index.is_reset(resource)) {
            return false;
        }
        for resource in Resource::ALL {
            if self.has_begun[resource as usize] && !self.index.is_reset(resource) {
                self.status.read().feeds[resource as usize].resets += 1;
                self.index.expect_reset(resource);
            }
            if let Some(index) = self.renewing_index() {
                index.expect_reset(resource);
            }
        }
        true
    }

    /// An event or a bookmark says that the source is at this version (0: it does not say).
    pub fn saw_version(&mut self, resource: Resource, version: u64) {
        self.index.saw_version(resource, version);
    }

    /// The newest version of this resource that was seen; 0 before the first.
    pub fn newest_version(&self, resource: Resource) -> u64 {
        self.index.newest_version(resource)
    }

    /// Applies one change to the index (and to the one that is being filled); visible at the next `publish`.
    pub fn apply(&mut self, change: Change) -> Effect {
        let is_of_another_cluster = self.look_for_cluster(&change);
        let key = match &change {
            Change::Apply(object) => (object.resource(), object.key()),
            Change::Delete(resource, key) => (*resource, key.clone()),
        };
        // First the one that answers: a defect of the other must not keep the change from it.
        let again = self.renewal.is_some().then(|| change.clone());
        let applied = self.index.apply(change);
        let (resource, key) = key;
        if let (Some(renewal), Some(change)) = (&mut self.renewal, again) {
            renewal.apply(resource, &key, change);
        }
        let is_problem_new = self.problems.set_texts(resource, &key, texts(applied.problems));
        Effect { is_visible: applied.visible, is_problem_new, is_of_another_cluster }
    }

    /// Whether a change would take away something of its object, see [`Index::takes_away`]. Without a complete list there is
    /// nothing that is served.
    pub fn takes_away(&self, resource: Resource, change: &Change) -> bool {
        self.source(resource) != DataSource::None && self.index.takes_away(change)
    }

    /// The list in progress has this object, although it could not be applied.
    pub fn was_listed(&mut self, resource: Resource, key: &Key) {
        self.index.was_listed(resource, key);
        if let Some(index) = self.renewing_index() {
            index.was_listed(resource, key);
        }
    }

    /// Rows and ports that are held of an object, see [`Index::rows`].
    pub fn rows(&self, resource: Resource, key: &Key) -> usize {
        self.index.rows(resource, key)
    }

    /// Whether a newer object is held than one of this version (0: unknown). In a reset (K22) versions say nothing.
    pub fn is_outdated(&self, resource: Resource, key: &Key, version: u64) -> bool {
        let held = || self.index.held(resource, key).map_or(0, |(_, held)| held);
        version != 0 && !self.index.is_reset(resource) && held() > version
    }

    /// Applies the deletion of an object, or its change to one that gives no names, unless a newer one is held (K7).
    pub fn delete(&mut self, resource: Resource, key: Key, version: u64) -> Effect {
        match self.index.held(resource, &key) {
            Some((_, held)) if version != 0 && held > version => Effect::default(),
            Some(_) | None => self.apply(Change::Delete(resource, key)),
        }
    }

    /// Everything of this resource has been applied, as of this version (0: there are none): it is live. Objects that
    /// the list does not have are removed (E21). Returns how many objects that is.
    pub fn complete(&mut self, resource: Resource, list_version: u64) -> usize {
        self.status.read().feeds[resource as usize].heard();
        self.contact(resource);
        if !self.has_begun[resource as usize] {
            // The index that took over has asked for another list.
            return 0;
        }
        let removed = self.index.end_list(resource, list_version, DataSource::Live);
        if let Some(renewal) = &mut self.renewal {
            renewal.complete(resource, list_version);
        }
        self.status.read().feeds[resource as usize].is_of_former_cluster = false;
        self.problems.complete(resource, |key| self.index.held(resource, key).is_some());
        self.take_renewal();
        removed
    }

    /// Removes everything of a resource that is not needed any more.
    pub fn forget(&mut self, resource: Resource) {
        self.index.begin_list(resource);
        self.index.end_list(resource, 0, DataSource::None);
        self.problems.forget(resource);
        self.status.read().feeds[resource as usize].is_of_former_cluster = false;
        self.warm.abandon();
        self.take_renewal();
    }

    /// Publishes records and upstreams together, if a client could see a difference.
    pub fn publish(&mut self) {
        // A new index starts its own count, so continue after the last published serial (RR70).
        let last = self.state.published.load().records.serial();
        let published = self.index.publish(unix_s().max(u64::from(last) + 1));
        let mut reported = self.status.read();
        reported.objects = Resource::ALL.map(|resource| self.index.objects(resource));
        reported.namespaces_like_top_level_domains = self.index.namespaces_like_top_level_domains();
        for (feed, resource) in reported.feeds.iter_mut().zip(Resource::ALL) {
            feed.source = self.index.source(resource);
        }
        reported.is_answerable |=
            reported.feeds.iter().all(crate::status::feed::Feed::is_answerable);
        if published.is_none() && !self.is_reconfigured {
            return;
        }
        self.is_reconfigured = false;
        reported.publications += 1;
        if published.is_some() {
            // Upstreams are in no snapshot; a configuration that names some abandons the running one.
            self.warm.changed();
        }
        let records = published.unwrap_or_else(|| self.index.records());
        let upstreams = self.upstreams.clone();
        let before = self.state.published.swap(Arc::new(Published { records, upstreams }));
        drop(reported);
        self.retired.add(before);
    }

    /// Periodic work, several times a second: frees states that are no longer published, answers questions about the
    /// objects behind an answer, and ends a count of `/top` when its time is over. Returns whether the reasons of
    /// unserved objects have changed: there may be room for some now.
    pub fn tick(&mut self) -> bool {
        self.retired.free();
        self.state.inspections.answer(|sources| self.index.identify(sources));
        self.state.taps.end_top(Instant::now());
        self.problems.look_again(|resource, key| match resource {
            Resource::EndpointSlices => {
                (joined(&self.index.crowding_of(key)), self.index.rows_of(key))
            }
            Resource::Services | Resource::Namespaces | Resource::Pods => (String::new(), 0),
        })
    }

    /// The changes of unserved objects since the last call.
    pub(crate) fn changed_problems(&mut self) -> Changes {
        self.problems.take_changes()
    }

    /// The objects that the index does not serve in full.
    pub fn problems(&self) -> impl Iterator<Item = Skipped> {
        self.problems.all()
    }
}

fn texts(problems: Vec<Problem>) -> Texts {
    let is_crowded = |problem: &Problem| matches!(problem, Problem::Crowded { .. });
    let (crowded, own): (Vec<_>, Vec<_>) = problems.into_iter().partition(is_crowded);
    Texts { own: joined(&own), crowded: joined(&crowded) }
}

fn joined(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
