//! The warm start, seen from the writer: the index filled from a snapshot, and given to the next
//! one (E40-E46).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::Config;
use dataplane_core::{Change, DataSource, Index, KeptAs, Object, Relist, Resource};

use super::{Writer, unix_s};
use crate::identity;
use crate::settings;
use crate::snapshot::{self, Circumstances, Contact, Refusal, Snapshots, Stored};
use crate::status::snapshot::Loaded;

/// The Namespace whose uid names a cluster.
pub const KUBE_SYSTEM: &str = "kube-system";

/// An object of this name in a snapshot meets a defect.
#[cfg(test)]
pub(crate) const DEFECT: &str = "defect";

/// How often it is looked whether snapshots may be written again.
const PATIENCE: Duration = Duration::from_secs(1);

/// The state of the writer for snapshots.
#[derive(Debug, Default)]
pub(super) struct Warm {
    /// When the source was last heard of, by [`Resource`].
    contacts: [Option<Contact>; Resource::ALL.len()],
    /// Uid of the Namespace `kube-system`, once it is known.
    kube_system: Option<u128>,
    /// That uid is the live cluster's, and not only the snapshot's.
    is_live_cluster: bool,
    snapshots: Option<Snapshots>,
}

impl Warm {
    /// An answer has changed since the last snapshot.
    pub(super) fn changed(&mut self) {
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.changed();
        }
    }

    /// The running export is outdated.
    pub(super) fn abandon(&mut self) {
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.abandon();
        }
    }
}

/// Live data replaces what a snapshot knows, also with a lower version (E42): after etcd was restored from
/// a backup, versions are lower than they were.
fn without_version(mut object: Object) -> Object {
    let version = match &mut object {
        Object::Service(service) => &mut service.version,
        Object::Slice(slice) => &mut slice.version,
        Object::Namespace(namespace) => &mut namespace.version,
        Object::Pod(pod) => &mut pod.version,
    };
    *version = 0;
    object
}

impl Writer {
    /// The source confirmed the data of this resource.
    pub fn contact(&mut self, resource: Resource) {
        let contact = Contact { at: Instant::now(), unix_s: unix_s() };
        self.warm.contacts[resource as usize] = Some(contact);
    }

    /// The live cluster has this uid of `kube-system`. If the snapshot is of another, none of it
    /// stays (E42). If what was live is of another, it stays until lists replace it, because
    /// answers that may be old are better than none (K22); then this returns true, and everything
    /// must be listed again.
    pub fn is_of_cluster(&mut self, kube_system: u128) -> bool {
        let known = self.warm.kube_system.replace(kube_system);
        self.find_replicas(kube_system);
        let was_live = std::mem::replace(&mut self.warm.is_live_cluster, true);
        if known.is_none_or(|known| known == kube_system) {
            return false;
        }
        if was_live {
            self.expect_another_cluster();
            return true;
        }
        tracing::warn!(
            "the Namespace kube-system has another uid than in the snapshot: it is of another \
             cluster, and all of it is dropped"
        );
        self.forget_snapshot();
        false
    }

    /// Which loop probes are ours (FW50) follows from the cluster.
    fn find_replicas(&mut self, kube_system: u128) {
        let replicas = identity::of_replicas(kube_system, self.location.config_map.as_deref());
        self.index.set_replicas(replicas);
        if let Some(index) = self.renewing_index() {
            index.set_replicas(replicas);
        }
    }

    fn expect_another_cluster(&mut self) {
        tracing::warn!(
            "the Namespace kube-system has another uid than before: another cluster is behind the \
             API server's address, and its lists replace what is known"
        );
        let mut reported = self.status.read();
        reported.cluster_changes += 1;
        for (resource, feed) in Resource::ALL.into_iter().zip(&mut reported.feeds) {
            feed.is_of_former_cluster = self.index.objects(resource) > 0;
            self.index.expect_reset(resource);
            if let Some(renewal) = &mut self.renewal {
                // Lists so far may be of the cluster before.
                renewal.has_begun[resource as usize] = false;
                renewal.is_done[resource as usize] = false;
                if let Some(index) = &mut renewal.index {
                    index.expect_reset(resource);
                }
            }
        }
        // Otherwise the snapshot would have objects of two clusters under one uid.
        drop(reported);
        self.warm.abandon();
    }

    /// Removes what came from a snapshot and no live list has confirmed; visible with the next
    /// publication.
    fn forget_snapshot(&mut self) {
        self.index.forget_snapshot();
        self.status.read().snapshot.loaded = None;
        self.warm.abandon();
    }

    /// Fills the empty index from a snapshot of `folder` and publishes it, if it may be used under
    /// the configuration that runs (E41). Returns whether it is.
    pub fn load(&mut self, folder: &Path, stored: Stored) -> bool {
        // A defect that an object of the file meets would end the process at each start: the file stays on the machine.
        let loading = catch_unwind(AssertUnwindSafe(|| self.try_load(stored, unix_s())));
        match loading.unwrap_or_else(|_| Err(self.begin_again())) {
            Ok(loaded) => {
                let objects: usize =
                    Resource::ALL.map(|kind| self.index.objects(kind)).iter().sum();
                let age_s = loaded.age_s;
                tracing::info!(age_s, objects, "answering from the snapshot until lists are live");
                if loaded.is_partial {
                    tracing::warn!(
                        "the snapshot had no room for all objects: those that are missing have no records until lists are live"
                    );
                }
                true
            }
            Err(refusal) => {
                snapshot::set_aside(folder, &self.status, &refusal);
                false
            }
        }
    }

    /// After a panic while a snapshot was loaded. The index was empty before, and what is in it now may be wrong.
    fn begin_again(&mut self) -> Refusal {
        let settings = settings::at(&self.configs.borrow(), &self.location);
        match settings.map(Index::new) {
            Ok(mut index) => {
                index.set_replicas(self.index.replicas());
                self.index = index;
            }
            // Not in fact: this configuration is in use.
            Err(_) => _ = self.index.forget_snapshot(),
        }
        self.warm.kube_system = None;
        let mut reported = self.status.read();
        reported.panics += 1;
        reported.snapshot.loaded = None;
        drop(reported);
        // What was published may be of that index.
        self.is_reconfigured = true;
        self.publish();
        Refusal::Panicked
    }

    /// Loads and publishes.
    fn try_load(&mut self, stored: Stored, now_s: u64) -> Result<Loaded, Refusal> {
        let usable = stored.usable(&self.configs.borrow(), now_s)?;
        let is_partial = stored.is_partial();
        self.warm.kube_system = stored.kube_system_uid();
        if let Some(kube_system) = self.warm.kube_system {
            self.find_replicas(kube_system);
        }
        for resource in Resource::ALL {
            self.index.begin_list(resource);
        }
        self.index.expect_many();
        let read = stored.objects(|object| {
            #[cfg(test)]
            assert!(&*object.key().name != DEFECT, "a defect");
            if usable[object.resource() as usize].is_some() {
                // What of it is not served is reported when it is live.
                self.index.apply(Change::Apply(without_version(object)));
            }
        });
        for (resource, confirmed_at_s) in Resource::ALL.into_iter().zip(usable) {
            if let Some(confirmed_at_s) = confirmed_at_s {
                self.index.end_list(resource, 0, DataSource::Snapshot { confirmed_at_s });
            }
        }
        if let Err(refusal) = read {
            self.index.forget_snapshot();
            self.warm.kube_system = None;
            return Err(refusal);
        }
        let confirmed_at_s = usable.into_iter().flatten().min().unwrap_or(now_s);
        let age_s = now_s.saturating_sub(confirmed_at_s);
        let loaded = Loaded { confirmed_at_s, age_s, is_partial, at: Instant::now() };
        self.status.read().snapshot.loaded = Some(loaded);
        self.publish();
        Ok(loaded)
    }

    /// From here on snapshots are written to this folder (E40), by [`Writer::step_snapshot`].
    ///
    /// # Errors
    /// When the folder cannot be made or a thread not started; this is counted as a failure.
    pub fn keep_snapshots(&mut self, folder: &Path) -> anyhow::Result<()> {
        let config = self.configs.borrow().clone();
        let begun = Snapshots::new(folder, config, self.status.clone()).inspect_err(|error| {
            let reported = &mut self.status.read().snapshot;
            reported.failures += 1;
            reported.error = Some(format!("{error:#}"));
        });
        self.warm.snapshots = Some(begun?);
        Ok(())
    }

    /// The configuration that a restart must run, where it is not the one in use: during a canary
    /// the stable one.
    pub fn keep_configuration(&mut self, config: Arc<Config>) {
        if let Some(snapshots) = &mut self.warm.snapshots {
            snapshots.keep_configuration(config);
        }
    }

    /// Does a small part of a snapshot, if one is due; returns when to call it again at the latest, or `None` without
    /// a folder. It never waits for the disk. `is_last`: the process was asked to end, so one more snapshot is
    /// written if data was confirmed since the last one.
    pub fn step_snapshot(&mut self, is_last: bool) -> Option<Duration> {
        let snapshots = self.warm.snapshots.as_mut()?;
        if self.status.read().serves_former_cluster() {
            // The index holds objects of two clusters.
            return Some(PATIENCE);
        }
        let circumstances = Circumstances {
            config: &self.configs.borrow(),
            contacts: self.warm.contacts,
            kube_system: self.warm.kube_system,
            now: Instant::now(),
            is_last,
        };
        Some(snapshots.step(&self.index, &circumstances))
    }

    /// Drops the data of the snapshot if this configuration reads parts of objects that the snapshot does not have:
    /// no answer is better than a wrong one.
    pub(super) fn forget_snapshot_if_too_little(&mut self, old: &Config, new: &Config) {
        let (old, new) = (settings::reads_of_objects(old), settings::reads_of_objects(new));
        if let (Some(old), Some(new)) = (old, new)
            && old.relist_for(&new, KeptAs::Objects) != Relist::Nothing
        {
            self.forget_snapshot();
        }
    }

    /// Learns from a live change which cluster this is. Returns whether it is another than before.
    pub(super) fn look_for_cluster(&mut self, change: &Change) -> bool {
        match change {
            Change::Apply(Object::Namespace(namespace))
                if &*namespace.name == KUBE_SYSTEM && namespace.uid != 0 =>
            {
                self.is_of_cluster(namespace.uid)
            }
            Change::Apply(_) | Change::Delete(..) => false,
        }
    }
}
