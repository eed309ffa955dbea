//! A configuration that needs lists before it takes over (E5, K24), seen from the writer.

use std::sync::Arc;

use crds::Config;
use dataplane_core::{
    Change, DataSource, Exposure, Index, KeptAs, Key, Relist, Resource, Settings,
};

use super::Writer;
use crate::settings;
use crate::status::unserved::Unserved;
use crate::telemetry;

/// A configuration that reads parts of objects that were not kept. It takes over in one step when new lists have
/// brought them (E5).
#[derive(Debug)]
pub(super) struct Renewal {
    config: Arc<Config>,
    settings: Settings,
    relist: Relist,
    /// Filled beside the index that answers, which it replaces. `None` where labels are all that is
    /// missing: they are kept with the objects that are held, so that nothing is held twice (K24).
    pub(super) index: Option<Index>,
    /// What that index does not serve in full: which names are too long depends on the configuration.
    problems: Unserved,
    /// A list that began before does not count.
    pub(super) has_begun: [bool; Resource::ALL.len()],
    pub(super) is_done: [bool; Resource::ALL.len()],
}

impl Renewal {
    pub(super) fn begin(&mut self, resource: Resource) {
        self.has_begun[resource as usize] = true;
        if let Some(index) = &mut self.index {
            index.begin_list(resource);
            self.problems.begin(resource);
        }
    }

    pub(super) fn apply(&mut self, resource: Resource, key: &Key, change: Change) {
        if let Some(index) = &mut self.index {
            let applied = index.apply(change);
            self.problems.set_texts(resource, key, super::texts(applied.problems));
        }
    }

    /// A list is complete, as of this version; it counts if it began here.
    pub(super) fn complete(&mut self, resource: Resource, list_version: u64) {
        if !self.has_begun[resource as usize] {
            return;
        }
        self.is_done[resource as usize] = true;
        if let Some(index) = &mut self.index {
            index.end_list(resource, list_version, DataSource::Live);
            self.problems.complete(resource, |key| index.held(resource, key).is_some());
        }
    }
}

impl Writer {
    /// What must be listed again before this configuration takes over, see [`Writer::renew`].
    pub fn relist_for(&self, config: &Config) -> Relist {
        let has_data = Resource::ALL.into_iter().any(|resource| self.has_any(resource));
        let kept = settings::reads_of_objects(&self.configs.borrow());
        match (kept, settings::reads_of_objects(config)) {
            (Some(kept), Some(new)) if has_data => kept.relist_for(&new, KeptAs::Records),
            _ => Relist::Nothing,
        }
    }

    /// Takes another configuration over once every resource that it needs more of, and that has
    /// data now, has been listed again; until then the present one answers. Returns what to list.
    ///
    /// # Errors
    /// When the configuration cannot be used; then nothing changed.
    pub fn renew(&mut self, config: &Config) -> Result<Relist, String> {
        let settings = settings::at(config, &self.location)?;
        let relist = self.relist_for(config);
        self.cancel_renewal();
        let index = match relist {
            Relist::Nothing | Relist::Labels => {
                self.index.keep_labels_of(settings.exposure.clone());
                None
            }
            Relist::Everything => {
                let mut index = Index::new(settings.clone());
                index.set_replicas(self.index.replicas());
                Some(index)
            }
        };
        let nothing = [false; Resource::ALL.len()];
        let config = Arc::new(config.clone());
        self.renewal = Some(Renewal {
            config,
            settings,
            relist,
            index,
            problems: Unserved::default(),
            has_begun: nothing,
            is_done: nothing,
        });
        Ok(relist)
    }

    /// A configuration waits for lists, see [`Writer::renew`].
    pub fn is_renewing(&self) -> bool {
        self.renewal.is_some()
    }

    /// The configuration that waits for lists is not wanted any more.
    pub fn cancel_renewal(&mut self) {
        self.renewal = None;
        self.index.keep_labels_of(Exposure::default());
    }

    /// The index that is being filled beside the one that answers, if there is one.
    pub(super) fn renewing_index(&mut self) -> Option<&mut Index> {
        self.renewal.as_mut().and_then(|renewal| renewal.index.as_mut())
    }

    /// E5: in one step, once every resource that is held and that its answers need was listed again.
    pub(super) fn take_renewal(&mut self) {
        let Some(renewal) = &self.renewal else { return };
        let is_missing = |resource| {
            renewal.relist.includes(resource)
                && settings::reads(&renewal.config, resource)
                && self.has_any(resource)
                && !renewal.is_done[resource as usize]
        };
        let is_complete = !Resource::ALL.into_iter().any(is_missing);
        if is_complete && let Some(renewal) = self.renewal.take() {
            match renewal.index {
                Some(index) => {
                    self.index = index;
                    self.problems.become_those(renewal.problems);
                    self.has_begun = renewal.has_begun;
                }
                None => {
                    self.index.configure(renewal.settings);
                    self.index.keep_labels_of(Exposure::default());
                }
            }
            // In another index objects have other places, and this index may keep fewer parts of them.
            self.warm.abandon();
            self.take_upstreams(&renewal.config);
            self.configs.send_replace(renewal.config.clone());
            telemetry::apply(&renewal.config.logging);
            self.keep_configuration(renewal.config);
            tracing::info!("what was missing was listed: the configuration is in effect");
        }
    }
}
