//! What every reconcile works with.

use std::sync::{Arc, PoisonError, RwLock};

use kube::Client;

use crate::apply::memory::Memory;
use crate::ask_pods::canary_analysis::RoundPermits;
use crate::ask_pods::pod_reports::PodReports;
use crate::controller::attempts::Attempts;
use crate::controller::backoff::Backoff;
use crate::controller::large::Turns;
use crate::lost_pods::PolicyStanding;
use crate::observe::caches::Caches;
use crate::observe::certificates::Certificates;
use crate::observe::last_documents::LastDocuments;
use crate::observe::lists::Lists;
use crate::observe::observed::Offers;
use crate::observe::sample::Samples;
use crate::observe::spare_nodes::SeveralSince;
use crate::report::events::Events;
use crate::report::last_written::LastWritten;
use crate::runtime::metrics::Metrics;
use crate::runtime::write::Writes;
use crate::settings::Settings;

/// What every reconcile works with.
pub struct Context {
    /// For reads; writes go through [`Context::writes`].
    pub client: Client,
    /// Reads lists of what others write, in bounded memory.
    pub lists: Arc<Lists>,
    /// What the operator was started with.
    pub settings: Settings,
    /// The one way to write.
    pub writes: Writes,
    pub caches: Caches,
    pub pod_reports: PodReports,
    /// What `stable.json` was before another client changed it.
    pub last_documents: LastDocuments,
    /// Some of the cluster's Services, for what a canary is asked.
    pub samples: Samples,
    /// What the certificates of listeners were when they were last seen.
    pub certificates: Certificates,
    /// Who may ask canaries now.
    pub rounds: RoundPermits,
    /// What was applied, so that nothing is written without a change.
    pub memory: Memory,
    /// The status that was written last, by ClusterDNS.
    pub last_written: LastWritten,
    /// How long to wait after failures.
    pub backoff: Backoff,
    /// What could not be written, and how long each of them waits.
    pub attempts: Attempts,
    /// Since when several nodes take new pods.
    pub several_nodes: SeveralSince,
    pub events: Events,
    pub metrics: Arc<Metrics>,
    /// What happens to pods that no longer answer.
    pub lost_pods: Arc<PolicyStanding>,
    pub(crate) offers: RwLock<Offers>,
    /// Turns of those ClusterDNS of which only a stub is kept.
    pub(crate) large: Turns,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}

impl Context {
    /// What the API server offers.
    pub fn offers(&self) -> Offers {
        *self.offers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// This ClusterDNS is gone: nothing is remembered of it.
    pub fn forget(&self, name: &str) {
        self.metrics.gone(name);
        self.backoff.forget(name);
        self.attempts.forget_all();
        self.last_written.forget(name);
        self.memory.let_go(name);
        self.several_nodes.retain(|it| it != name);
    }

    /// Forgets what a reconcile that was in progress has said or counted since its ClusterDNS was forgotten. What else it may have
    /// remembered has a uid, and counts for no other one.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.metrics.retain(&is_there);
        self.backoff.retain(&is_there);
        self.several_nodes.retain(&is_there);
    }

    /// It offers this now; whether that is news.
    pub fn offered(&self, offers: Offers) -> bool {
        let mut known = self.offers.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = *known != offers;
        *known = offers;
        is_new
    }
}
