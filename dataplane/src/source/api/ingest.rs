//! Where the streams of one thread meet: objects go to the writer, configurations are settled, and
//! what people should know is reported to the status.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use dataplane_core::{Change, Key, Resource};
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::configuration::Settling;
use super::decode::{self, Decoded, Undecodable};
use super::items::MAX_OBJECT;
use super::watched::{KINDS, Watched};
use crate::snapshot::Stored;
use crate::source::configuration;
use crate::source::writer::{Effect, Writer};
use crate::status::Status;
use crate::status::feed::Feed;
use crate::status::unserved::Unserved;

/// Shared by the streams of one thread; borrowed for the length of a call, never over an await.
#[derive(Debug)]
pub(super) struct Ingest {
    pub(super) writer: Writer,
    pub(super) status: Arc<Status>,
    pub(super) settling: Settling,
    /// The ConfigMap with the configuration, where there is one.
    pub(super) config_map: Option<Watched>,
    /// The folder of the warm start, and what it had for this start.
    pub(super) state_dir: Option<(PathBuf, Option<Stored>)>,
    /// Counts requests to list again, by [`Watched::number`].
    pub(super) relists: watch::Sender<[u64; KINDS]>,
    /// Whether Pods are watched.
    pub(super) pods_wanted: watch::Sender<bool>,
    /// What the source did not understand of objects.
    reasons: Unserved,
    /// Something in the lists of what is not served changed.
    has_news: bool,
}

impl Ingest {
    pub(super) fn new(writer: Writer, status: Arc<Status>, settling: Settling) -> Ingest {
        status.read().feeds[Resource::Pods as usize].is_wanted = false;
        Ingest {
            writer,
            status,
            settling,
            config_map: None,
            state_dir: None,
            relists: watch::Sender::new([0; KINDS]),
            pods_wanted: watch::Sender::new(false),
            reasons: Unserved::default(),
            has_news: true,
        }
    }

    /// The configuration is in this ConfigMap.
    pub(super) fn follow_config_map(&mut self, watched: Watched) {
        self.feed(&watched, |_| ());
        self.config_map = Some(watched);
    }

    /// Changes what is known of a stream.
    pub(super) fn feed<T>(&self, watched: &Watched, change: impl FnOnce(&mut Feed) -> T) -> T {
        let mut reported = self.status.read();
        match watched {
            Watched::Objects(resource) => change(&mut reported.feeds[*resource as usize]),
            Watched::ConfigMap { .. } => {
                change(reported.configuration.get_or_insert_with(Feed::default))
            }
        }
    }

    /// A stream was heard of, with so many events. Returns whether it was in trouble before.
    pub(super) fn heard(&mut self, watched: &Watched, events: u64) -> bool {
        if let Watched::Objects(resource) = watched {
            self.writer.contact(*resource);
        }
        self.feed(watched, |feed| {
            let was_in_trouble = feed.trouble.is_some();
            feed.events += events;
            feed.heard();
            was_in_trouble
        })
    }

    /// A list begins.
    pub(super) fn begin(&mut self, watched: &Watched) {
        match watched {
            Watched::Objects(resource) => {
                self.writer.begin(*resource);
                self.reasons.begin(*resource);
            }
            Watched::ConfigMap { .. } => self.settling.listed = false,
        }
    }

    /// The list that began is consistent and of this version. Returns whether it must begin again,
    /// because it is a reset and `has_objects` of it were applied already (K22).
    pub(super) fn list_is_at(
        &mut self,
        watched: &Watched,
        version: u64,
        has_objects: bool,
    ) -> bool {
        match watched {
            Watched::Objects(resource) => self.writer.list_is_at(*resource, version, has_objects),
            Watched::ConfigMap { .. } => false,
        }
    }

    /// An event or a bookmark has this version.
    pub(super) fn saw_version(&mut self, watched: &Watched, version: u64) {
        if let Watched::Objects(resource) = watched {
            self.writer.saw_version(*resource, version);
        }
    }

    /// What the API server says now of the Namespace `kube-system`, in a consistent list of this
    /// version: if that is below what was seen, or the uid is another, everything is listed again (K22).
    pub(super) fn look_at_cluster(&mut self, version: u64, uid: Option<u128>) {
        let went_back = version < self.writer.newest_version(Resource::Namespaces);
        let is_another = uid.is_some_and(|uid| self.writer.is_of_cluster(uid));
        if went_back || is_another {
            self.relist_all();
        }
    }

    /// Everything is listed again, the configuration as well.
    fn relist_all(&mut self) {
        self.relists.send_modify(|counts| counts.iter_mut().for_each(|count| *count += 1));
    }

    /// An object of a list, or of an event, as JSON. Returns whether an answer may differ.
    pub(super) fn apply(&mut self, watched: &Watched, object: &[u8]) -> bool {
        match watched {
            Watched::Objects(resource) => self.apply_object(*resource, object),
            Watched::ConfigMap { .. } => {
                self.take_config_map(object);
                false
            }
        }
    }

    /// An object of a list is longer than any can be: it is counted, and not served.
    pub(super) fn skip_too_long(&mut self, watched: &Watched) {
        let resource = watched.plural();
        tracing::warn!(resource, limit = MAX_OBJECT, "an object is too long to be read");
        self.feed(watched, |feed| feed.undecodable += 1);
    }

    fn apply_object(&mut self, resource: Resource, text: &[u8]) -> bool {
        let Decoded { key, object, reasons, last_change } = match decode::object(resource, text) {
            Ok(decoded) => decoded,
            Err(undecodable) => return self.skip(resource, undecodable),
        };
        self.explain(resource, &key, reasons);
        let effect = self.writer.apply(match object {
            Some(object) => Change::Apply(object),
            None => Change::Delete(resource, key),
        });
        self.note(effect);
        if let Some(began) = last_change.filter(|_| effect.is_visible && self.is_live(resource)) {
            self.status.change_to_visible.add_since(&began, SystemTime::now());
        }
        effect.is_visible
    }

    /// A list shows the past: what it brings is not late.
    fn is_live(&self, resource: Resource) -> bool {
        self.writer.source(resource) == dataplane_core::DataSource::Live
    }

    /// One object nobody can read must not stall the stream: it is named, counted and not served,
    /// whatever was served of it before.
    fn skip(&mut self, resource: Resource, undecodable: Undecodable) -> bool {
        let Undecodable { key, error } = undecodable;
        self.status.read().feeds[resource as usize].undecodable += 1;
        let Some(key) = key else { return false };
        self.explain(resource, &key, Some(format!("it cannot be read: {error}")));
        let effect = self.writer.apply(Change::Delete(resource, key));
        self.note(effect);
        effect.is_visible
    }

    /// A deletion that an event tells of.
    pub(super) fn delete(&mut self, watched: &Watched, object: &RawValue) -> bool {
        let named = decode::named(object.get().as_bytes());
        let (Watched::Objects(resource), Some(named)) = (watched, named) else {
            if matches!(watched, Watched::ConfigMap { .. }) {
                self.lose_config_map();
            }
            return false;
        };
        let key = crate::source::objects::convert::key(&named.metadata);
        self.explain(*resource, &key, None);
        let version = crate::source::objects::convert::version(&named.metadata);
        let effect = self.writer.delete(*resource, key, version);
        self.note(effect);
        effect.is_visible
    }

    fn explain(&mut self, resource: Resource, key: &Key, reason: Option<String>) {
        self.has_news |= self.reasons.set(resource, key, reason);
    }

    fn note(&mut self, effect: Effect) {
        self.has_news |= effect.is_problem_new;
        if effect.is_of_another_cluster {
            self.relist_all();
        }
        self.status.read().changes += 1;
    }

    /// A list is complete, as of this version. Returns how many objects vanished.
    pub(super) fn complete(&mut self, watched: &Watched, version: &str) -> usize {
        match watched {
            Watched::Objects(resource) => {
                let is_first = !self.is_live(*resource);
                let removed = self.writer.complete(*resource, decode::version(Some(version)));
                self.reasons.complete(*resource, |_| false);
                self.settle_renewal();
                self.feed(watched, |feed| feed.relists += u64::from(!is_first));
                if *resource == Resource::Pods {
                    self.pods_are_complete();
                }
                self.has_news = true;
                self.publish();
                if is_first {
                    let objects = self.status.read().objects[*resource as usize];
                    tracing::info!(
                        resource = resource.plural(),
                        objects,
                        "the first list is complete"
                    );
                }
                removed
            }
            Watched::ConfigMap { .. } => {
                if !self.settling.listed {
                    self.lose_config_map();
                }
                self.feed(watched, Feed::heard);
                0
            }
        }
    }

    /// A resource is not needed any more.
    pub(super) fn forget(&mut self, resource: Resource) {
        self.writer.forget(resource);
        self.settle_renewal();
        self.reasons.forget(resource);
        self.has_news = true;
        self.publish();
    }

    /// Makes everything so far visible.
    pub(super) fn publish(&mut self) {
        self.writer.publish();
    }

    /// The same, of events that came at this time (E13).
    pub(super) fn publish_since(&mut self, received: Instant) {
        self.writer.publish();
        self.status.event_to_visible.add(received.elapsed());
    }

    /// Reports what is not served, if that changed since the last report.
    pub(super) fn report(&mut self) {
        if !std::mem::take(&mut self.has_news) {
            return;
        }
        let mut all: Vec<_> = self.writer.problems().collect();
        all.extend(self.reasons.all());
        all.sort();
        let warnings = self.writer.upstream_problems().to_vec();
        self.status.report_unserved(all, Vec::new(), warnings);
    }

    /// FW3.
    pub(super) fn look_at_resolv_conf(&mut self) {
        if self.writer.reread_resolv_conf() {
            tracing::info!("resolv.conf changed");
            self.has_news = true;
            self.publish();
        }
    }

    /// What this machine knows is in use before the first request is sent. A newer configuration
    /// takes over when it is read.
    pub(super) fn start_with_what_is_kept(&mut self) {
        if !self.is_configured() {
            self.take_mounted();
        }
        self.warm_start();
    }

    /// E41, E46: answers from the snapshot until lists are live, under the configuration in it where
    /// none is known; and begins to write the next one. The mounted copy comes before the snapshot.
    pub(super) fn warm_start(&mut self) {
        let Some((folder, stored)) = self.state_dir.take() else { return };
        if let (false, Some(stored)) = (self.is_configured(), &stored) {
            match stored.configuration() {
                Ok(config) => {
                    let origin = format!("the snapshot in {}", folder.display());
                    self.instead(|ingest| ingest.adopt(configuration::stored(config, origin)));
                }
                Err(error) => {
                    tracing::warn!("the configuration in the snapshot cannot run: {error}")
                }
            }
        }
        if !self.is_configured() {
            // Neither answers nor a snapshot without one; tried again when there is one.
            self.state_dir = Some((folder, stored));
            return;
        }
        if let Some(stored) = stored {
            self.writer.load(&folder, stored);
        }
        match self.writer.keep_snapshots(&folder) {
            Ok(()) => self.keep_stable(),
            Err(error) => tracing::error!("no snapshots are written: {error:#}"),
        }
    }

    /// Something of the configuration changed what there is to tell.
    pub(super) fn has_news(&mut self) {
        self.has_news = true;
    }
}

#[cfg(test)]
mod tests;
