//! The one writer of the index: a source's changes and configurations in, published states out.

mod warm;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crds::Config;
use dataplane_core::{Change, DataSource, Identity, Index, Key, Resource, WorkerCounters};
use tokio::sync::watch;

use super::Skipped;
use super::report::Report;
use crate::forward::{ResolvConf, Upstreams};
use crate::settings;
use crate::state::{Published, State};

/// What a writer needs to know of the process.
#[derive(Clone, Debug)]
pub struct Setup {
    /// One per worker, the TCP side's last.
    pub counters: Vec<Arc<WorkerCounters>>,
    /// Who we say we are.
    pub identity: Identity,
    /// Names the default upstreams, where the configuration does not.
    pub resolv_conf: PathBuf,
    /// Where to tell what happens.
    pub report: Arc<Report>,
}

/// Owns the index; lives on the source's thread.
#[derive(Debug)]
pub struct Writer {
    index: Index,
    state: Arc<State>,
    upstreams: Arc<Upstreams>,
    resolv_conf: PathBuf,
    report: Arc<Report>,
    /// What the index does not serve of an object, for as long as it holds it.
    problems: BTreeMap<(Resource, Key), String>,
    /// The configuration in use, for those who need more of it than the core.
    configs: watch::Sender<Arc<Config>>,
    /// The configuration changed since the last publication.
    is_reconfigured: bool,
    /// The warm start.
    warm: warm::Warm,
}

impl Writer {
    /// A writer of an empty index, which is published already: its questions are "not ready".
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub fn new(config: &Config, setup: Setup) -> Result<Writer, String> {
        let Setup { counters, identity, resolv_conf, report } = setup;
        let index = Index::new(settings::of(config)?);
        let upstreams = Arc::new(Upstreams::of(config, &resolv_conf));
        let published = Published { records: index.records(), upstreams: upstreams.clone() };
        let state = State { published: Arc::new(published).into(), counters, identity };
        Ok(Writer {
            index,
            state: Arc::new(state),
            upstreams,
            resolv_conf,
            report,
            problems: BTreeMap::new(),
            configs: watch::Sender::new(Arc::new(config.clone())),
            is_reconfigured: false,
            warm: warm::Warm::default(),
        })
    }

    /// What workers read.
    pub fn state(&self) -> Arc<State> {
        self.state.clone()
    }

    /// The configuration in use, and those that take over.
    pub fn configs(&self) -> watch::Receiver<Arc<Config>> {
        self.configs.subscribe()
    }

    /// Takes another configuration (E5), visible with the next publication. Returns whether every
    /// object must be applied again.
    ///
    /// # Errors
    /// When the configuration cannot be used; then nothing changed.
    pub fn configure(&mut self, config: &Config) -> Result<bool, String> {
        let settings = settings::of(config)?;
        self.take_upstreams(config);
        let new = Arc::new(config.clone());
        let old = self.configs.send_replace(new.clone());
        self.forget_what_lacks(&old, &new);
        self.keep_configuration(new);
        Ok(self.index.configure(settings))
    }

    /// Looks at resolv.conf again (FW3); another one is visible with the next publication. Returns
    /// whether it is another.
    pub fn reread_resolv_conf(&mut self) -> bool {
        let is_same = match self.upstreams.resolv_conf() {
            Some(known) => *known == ResolvConf::read(&self.resolv_conf),
            None => true,
        };
        if !is_same {
            let config = self.configs.borrow().clone();
            self.take_upstreams(&config);
        }
        !is_same
    }

    fn take_upstreams(&mut self, config: &Config) {
        let upstreams = Upstreams::of(config, &self.resolv_conf);
        self.upstreams = Arc::new(upstreams.continuing(&self.upstreams));
        self.is_reconfigured = true;
    }

    /// Upstreams that are not used, and settings without effect.
    pub fn upstream_problems(&self) -> &[String] {
        self.upstreams.problems()
    }

    /// A complete list of this resource begins.
    pub fn begin(&mut self, resource: Resource) {
        self.index.begin_list(resource);
    }

    /// Applies one change.
    pub fn apply(&mut self, change: Change) {
        self.look_for_cluster(&change);
        let key = match &change {
            Change::Apply(object) => (object.resource(), object.key()),
            Change::Delete(resource, key) => (*resource, key.clone()),
        };
        let problems = self.index.apply(change).problems;
        if problems.is_empty() {
            self.problems.remove(&key);
        } else {
            let reasons: Vec<String> = problems.iter().map(ToString::to_string).collect();
            self.problems.insert(key, reasons.join("; "));
        }
    }

    /// Everything of this resource has been applied: it is live.
    pub fn complete(&mut self, resource: Resource) {
        self.index.end_list(resource, 0, DataSource::Live);
        self.contact(resource);
    }

    /// Makes what changed visible, records and upstreams together, if anything visible did.
    pub fn publish(&mut self) {
        let published = self.index.publish(unix_s());
        let mut told = self.report.read();
        told.objects = Resource::ALL.map(|resource| self.index.objects(resource));
        if published.is_none() && !self.is_reconfigured {
            return;
        }
        self.is_reconfigured = false;
        told.publications += 1;
        self.warm.changed();
        let records = published.unwrap_or_else(|| self.index.records());
        let upstreams = self.upstreams.clone();
        self.state.published.store(Arc::new(Published { records, upstreams }));
    }

    /// What the index does not serve.
    pub fn problems(&self) -> impl Iterator<Item = Skipped> {
        self.problems.iter().map(|((resource, key), reason)| Skipped {
            kind: kind(*resource),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            reason: reason.clone(),
        })
    }
}

fn kind(resource: Resource) -> &'static str {
    match resource {
        Resource::Services => "Service",
        Resource::EndpointSlices => "EndpointSlice",
        Resource::Namespaces => "Namespace",
        Resource::Pods => "Pod",
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
