//! Objects from the API server to the writer: decoded, applied, and explained where they are not served.

use std::time::Instant;

use dataplane_core::{Change, DataSource, Key, Resource};
use tokio::sync::watch;

use super::decode::{self, Decoded, Undecodable};
use super::status::StreamStatus;
use super::watched::{KINDS, Watched};
use crate::source::objects::convert;
use crate::source::writer::{Effect, Writer};

/// Feeds the writer; one for all streams of a thread.
#[derive(Debug)]
pub(super) struct Ingest {
    pub(super) writer: Writer,
    pub(super) status: StreamStatus,
    /// Counts requests to list again, by [`Watched::number`].
    pub(super) relists: watch::Sender<[u64; KINDS]>,
}

impl Ingest {
    pub(super) fn new(writer: Writer, status: StreamStatus) -> Ingest {
        Ingest { writer, status, relists: watch::Sender::new([0; KINDS]) }
    }

    /// Marks the start of a list: objects not applied until `complete` are removed then (E21).
    pub(super) fn begin(&mut self, resource: Resource) {
        self.writer.begin(resource);
        self.status.begin(resource);
    }

    /// The API server is at this version of its Namespaces, in a consistent read, and the Namespace
    /// `kube-system` has this uid. If the version is below what was seen, or the uid is another,
    /// everything is listed again (K22).
    pub(super) fn look_at_cluster(&mut self, version: u64, uid: Option<u128>) {
        let went_back = version < self.writer.newest_version(Resource::Namespaces);
        let is_another = uid.is_some_and(|uid| self.writer.is_of_cluster(uid));
        if went_back || is_another {
            self.relist_all();
        }
    }

    /// Asks for a list of each of these resources.
    pub(super) fn relist(&self, resources: impl Iterator<Item = Resource>) {
        self.relists.send_modify(|counts| {
            resources.for_each(|resource| counts[resource as usize] += 1);
        });
    }

    /// Asks for a list of everything, the ConfigMap as well.
    fn relist_all(&self) {
        self.relists.send_modify(|counts| counts.iter_mut().for_each(|count| *count += 1));
    }

    /// Applies an object of a list, or of an event, as JSON. Returns whether an answer may differ.
    pub(super) fn apply(&mut self, resource: Resource, text: &[u8]) -> bool {
        let Decoded { key, object, reasons, last_change } = match decode::object(resource, text) {
            Ok(decoded) => decoded,
            Err(undecodable) => return self.skip(resource, undecodable),
        };
        self.status.explain(resource, &key, reasons);
        let effect = self.writer.apply(match object {
            Some(object) => Change::Apply(object),
            None => Change::Delete(resource, key),
        });
        self.note(effect);
        if let Some(began) = last_change.filter(|_| effect.is_visible && self.is_live(resource)) {
            self.status.changed_since(&began);
        }
        effect.is_visible
    }

    /// A list shows the past: its objects do not count as late.
    pub(super) fn is_live(&self, resource: Resource) -> bool {
        self.writer.source(resource) == DataSource::Live
    }

    /// An object that cannot be read must not stall the stream: it is named, counted and not
    /// served, and what was served of it before is removed.
    fn skip(&mut self, resource: Resource, undecodable: Undecodable) -> bool {
        let Undecodable { key, error } = undecodable;
        self.status.feed(&Watched::Objects(resource), |feed| feed.undecodable += 1);
        let Some(key) = key else { return false };
        self.status.explain(resource, &key, Some(format!("it cannot be read: {error}")));
        let effect = self.writer.apply(Change::Delete(resource, key));
        self.note(effect);
        effect.is_visible
    }

    /// Applies the deletion of an object, as an event shows it.
    pub(super) fn delete(&mut self, resource: Resource, text: &str) {
        let Some(named) = decode::named(text.as_bytes()) else { return };
        let key: Key = convert::key(&named.metadata);
        self.status.explain(resource, &key, None);
        let effect = self.writer.delete(resource, key, convert::version(&named.metadata));
        self.note(effect);
    }

    fn note(&mut self, effect: Effect) {
        self.status.applied(effect.is_problem_new);
        if effect.is_of_another_cluster {
            self.relist_all();
        }
    }

    /// A list is complete, as of this version. Returns how many objects vanished.
    pub(super) fn complete(&mut self, resource: Resource, version: &str) -> usize {
        let removed = self.writer.complete(resource, decode::version(Some(version)));
        self.status.complete(resource);
        removed
    }

    /// A resource is not needed any more: its objects are removed.
    pub(super) fn forget(&mut self, resource: Resource) {
        self.writer.forget(resource);
        self.status.forget(resource);
    }

    /// Makes everything so far visible.
    pub(super) fn publish(&mut self) {
        self.writer.publish();
    }

    /// Makes visible the events that were received at this time (E13).
    pub(super) fn publish_since(&mut self, received: Instant) {
        self.writer.publish();
        self.status.visible_since(received);
    }
}
