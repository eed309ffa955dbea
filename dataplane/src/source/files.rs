//! A folder of manifests as the source of objects, for a laptop, a test or a machine without a
//! cluster. Changes on disk are live within a second, by the file system's events; a scan every
//! 10 s finds what events miss, as on network file systems.
//!
//! Services, EndpointSlices, Endpoints, Namespaces, Pods and a ClusterDNS are read; other kinds are
//! counted. Workloads (Deployments, StatefulSets) hold no addresses: the endpoints of a Service are
//! its EndpointSlices, else its Endpoints, else the folder's Pods that its selector matches and
//! that have `status.podIPs`. Nothing is invented: a Pod without an address gives no name.

mod folder;
mod scan;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, bail};
use dataplane_core::{Change, Key, Object, Relist, Resource};

use super::configuration;
use super::objects::assemble::World;
use super::objects::documents;
use super::objects::encoded::Kept;
use super::writer::{Setup, Writer};
use crate::first_thread::Job;
use crate::state::State;
use crate::status::{Rejection, Skipped, Status};
use folder::Folder;

pub use watch::Watch;

const CONFIGURATION_IS_GONE: &str = "the ClusterDNS of the folder is gone: the configuration that \
     ran stays in use; for the defaults write a ClusterDNS with spec: {}, or start again";

/// A folder whose objects have been applied; [`Files::watch`] keeps them up to date.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    folder: Folder,
    writer: Writer,
    status: Arc<Status>,
    /// The objects that the index holds, to compare the folder with.
    applied: BTreeMap<(Resource, Key), Kept>,
    /// The ClusterDNS looked at last, good or not; `None`: there is none in the folder.
    looked_at: Option<documents::UncheckedConfiguration>,
    /// The name of the ClusterDNS that runs: the last one that was not refused.
    in_use: Option<String>,
}

impl Files {
    /// Reads the folder, applies all of it, and publishes.
    ///
    /// # Errors
    /// When the folder cannot be read, or its configuration cannot be used: there is no last good
    /// one to fall back to yet, and running another than the one written could send private names
    /// to public servers.
    pub fn open(root: &Path, setup: Setup) -> anyhow::Result<Files> {
        std::fs::read_dir(root).with_context(|| {
            format!(
                "cannot read the folder {} (--manifests): name a folder of YAML or JSON manifests \
                 that this user may read",
                root.display()
            )
        })?;
        tracing::debug!(folder = %root.display(), "reading manifests");
        let mut folder = Folder::new(root);
        folder.scan(SystemTime::now());
        if let Some(hidden) = folder.hidden_configuration() {
            bail!(
                "{}: {}. It mentions a ClusterDNS, so the configuration is not known: correct the \
                 file, or take it out of the folder",
                hidden.path,
                hidden.error
            );
        }
        let world = folder.world(None);
        let checked = configuration::of(world.configuration.as_ref()).map_err(refused)?;
        let status = setup.status.clone();
        let writer = Writer::new(&checked.config, setup)
            .map_err(|error| anyhow::anyhow!("the configuration cannot be used: {error}"))?;
        status.run(checked.running);
        let looked_at = world.configuration.as_ref().map(|(found, _)| found.clone());
        let in_use = looked_at.as_ref().map(|found| found.name.clone());
        let (root, applied) = (root.to_owned(), BTreeMap::new());
        let mut files = Files { root, folder, writer, status, applied, looked_at, in_use };
        files.apply_first(world);
        Ok(files)
    }

    /// The published state, which serving threads read.
    pub fn state(&self) -> Arc<State> {
        self.writer.state()
    }

    /// The configuration in use, and those that take over.
    pub fn configs(&self) -> tokio::sync::watch::Receiver<Arc<crds::Config>> {
        self.writer.configs()
    }

    /// The content of the folder, for the table of names.
    pub fn objects(&self) -> impl Iterator<Item = Object> {
        self.applied.values().map(Kept::object)
    }

    /// Follows the folder from a thread of its own until the result is dropped.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn watch(self) -> std::io::Result<Watch> {
        let thread = std::thread::Builder::new().name("source".into());
        watch::start(self, |follow| thread.spawn(follow).map(Some))
    }

    /// The same; `begin` begins the work on a thread that does nothing else until the result is dropped.
    ///
    /// # Errors
    /// Those of `begin`.
    pub fn watch_on(
        self,
        begin: impl FnOnce(Job) -> std::io::Result<()>,
    ) -> std::io::Result<Watch> {
        watch::start(self, |follow| begin(follow).map(|()| None))
    }

    /// The first complete list of every resource.
    fn apply_first(&mut self, mut world: World) {
        for resource in Resource::ALL {
            self.writer.begin(resource);
        }
        self.apply(&mut world, false);
        for resource in Resource::ALL {
            self.writer.complete(resource, 0);
        }
        self.finish(world);
        tracing::info!(
            files = self.folder.len(),
            objects = self.applied.len(),
            folder = %self.root.display(),
            "manifests read"
        );
    }

    /// Scans the folder, and publishes the changes.
    fn refresh(&mut self) {
        let is_changed = self.folder.scan(SystemTime::now());
        self.status.contact();
        if is_changed {
            self.apply_folder();
        }
    }

    /// FW3: when resolv.conf changes, upstreams and their problems change too.
    fn refresh_resolv_conf(&mut self) {
        if self.writer.reread_resolv_conf() {
            tracing::info!("resolv.conf changed");
            self.apply_folder();
        }
    }

    /// Periodic work of the writer. A reason that another object has ended is not shown any more, though the folder is the same.
    fn tick(&mut self) {
        if self.writer.tick() {
            self.apply_folder();
        }
    }

    fn apply_folder(&mut self) {
        let mut world = self.folder.world(self.in_use.as_deref());
        let all_again = self.configure(&world);
        self.apply(&mut world, all_again);
        self.finish(world);
    }

    /// Takes the folder's configuration if it is another one; a bad one leaves the last good one.
    /// Returns whether every object must be applied again.
    fn configure(&mut self, world: &World) -> bool {
        let found = world.configuration.as_ref().map(|(found, _)| found);
        // If the ClusterDNS is gone, its configuration stays (E44). With the defaults, names of its private stub
        // domains would go to public servers while an editor saves the file.
        if found.is_none() || found == self.looked_at.as_ref() {
            return false;
        }
        self.looked_at = found.cloned();
        let checked = match configuration::of(world.configuration.as_ref()) {
            Ok(checked) => checked,
            Err(rejection) => {
                self.status.reject(rejection);
                return false;
            }
        };
        match self.writer.configure(&checked.config) {
            Ok(relist) => {
                self.in_use = found.map(|found| found.name.clone());
                self.status.run(checked.running);
                relist != Relist::Nothing
            }
            Err(error) => {
                self.status.reject(configuration::unusable(checked.running.origin, error));
                false
            }
        }
    }

    /// Compares with what the index holds and applies the difference. `all_again` applies what is the
    /// same too, as another configuration may ask; what is gone is deleted either way.
    /// The index then holds the objects of `world`.
    fn apply(&mut self, world: &mut World, all_again: bool) {
        let mut changes = 0;
        for (key, kept) in &world.objects {
            if all_again || self.applied.get(key) != Some(kept) {
                self.writer.apply(Change::Apply(kept.object()));
                changes += 1;
            }
        }
        for (resource, key) in self.applied.keys() {
            if !world.objects.contains_key(&(*resource, key.clone())) {
                self.writer.apply(Change::Delete(*resource, key.clone()));
                changes += 1;
            }
        }
        self.applied = std::mem::take(&mut world.objects);
        if changes > 0 {
            self.status.read().changes += changes;
            tracing::debug!(changes, "objects changed");
        }
    }

    /// Publishes, and reports what is not served and why.
    fn finish(&mut self, world: World) {
        self.writer.publish();
        self.status.contact();
        self.status.read().other_kinds = world.other_kinds.into();
        let mut skipped: Vec<Skipped> = world.skipped;
        skipped.extend(self.writer.problems());
        skipped.sort();
        skipped.dedup();
        let mut warnings = world.warnings;
        if world.configuration.is_none() && self.looked_at.is_some() {
            warnings.push(CONFIGURATION_IS_GONE.to_owned());
        }
        warnings.extend(self.writer.warnings());
        self.status.report_unserved(skipped, self.folder.bad_files(), warnings);
    }
}

fn refused(rejection: Rejection) -> anyhow::Error {
    anyhow::anyhow!("the configuration is refused.\n{}", configuration::text(&rejection))
}

#[cfg(test)]
mod tests;
