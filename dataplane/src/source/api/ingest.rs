//! Objects from the API server to the writer: decoded, applied, and explained where they are not served.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use dataplane_core::{Change, DataSource, Key, Resource};
use tokio::sync::watch;

use super::decode::{self, Decoded, Named, Undecodable};
use super::meanwhile::Meanwhile;
use super::put_off::PutOff;
use super::status::StreamStatus;
use super::watched::{KINDS, Watched};
use crate::source::objects::convert;
use crate::source::writer::{Effect, Writer};

/// Why an object is not served that met a panic.
const DEFECT: &str = "a defect of ClusterDNS: handling this object panicked, so it may not be served as it is; please report it";

/// Feeds the writer; one for all streams of a thread.
#[derive(Debug)]
pub(super) struct Ingest {
    pub(super) writer: Writer,
    pub(super) status: StreamStatus,
    /// Objects of lists in progress.
    put_off: PutOff,
    /// Events that came while lists were read beside watches.
    pub(super) meanwhile: Meanwhile,
    /// Counts requests to list again, by [`Watched::number`].
    pub(super) relists: watch::Sender<[u64; KINDS]>,
}

impl Ingest {
    pub(super) fn new(writer: Writer, status: StreamStatus) -> Ingest {
        let (put_off, relists) = (PutOff::default(), watch::Sender::new([0; KINDS]));
        Ingest { writer, status, put_off, meanwhile: Meanwhile::default(), relists }
    }

    /// Marks the start of a list: objects not applied until `complete` are removed then (E21).
    pub(super) fn begin(&mut self, resource: Resource) {
        self.put_off.begin(resource, Instant::now());
        self.writer.begin(resource);
        self.status.begin(resource);
    }

    /// The Namespace `kube-system` has this uid, 0 if it was not listed. If it had another, everything is listed again
    /// (K22).
    pub(super) fn look_at_cluster(&mut self, uid: u128) {
        if uid != 0 && self.writer.is_of_cluster(uid) {
            self.relist_all();
        }
    }

    /// The list that began is consistent and of this version. Returns whether it must begin again, because it is a reset
    /// and `has_objects` of it were applied already (K22).
    pub(super) fn list_is_at(
        &mut self,
        resource: Resource,
        version: u64,
        has_objects: bool,
    ) -> bool {
        let newest = self.writer.newest_version(resource);
        let is_back = version != 0 && version < newest;
        let is_news = is_back && self.went_back(&Watched::Objects(resource), version, newest);
        self.writer.list_is_at(resource, version);
        is_news && has_objects
    }

    /// In a consistent read, the API server was at a version below the one that was seen: versions mean nothing any more,
    /// and everything is listed again (K22), this by the stream that noticed it. Returns whether that is news.
    pub(super) fn went_back(&mut self, watched: &Watched, version: u64, seen: u64) -> bool {
        let is_news = self.writer.went_back(watched.resource());
        if is_news {
            tracing::warn!(
                resource = watched.plural(),
                version,
                seen,
                "the API server is at a lower version than it showed before: its etcd was restored from a backup; lists \
                 replace what is known"
            );
            self.relists.send_modify(|counts| {
                let others = (0..KINDS).filter(|number| *number != watched.number());
                others.for_each(|number| counts[number] += 1);
            });
        }
        is_news
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

    /// Applies an object, as JSON. Returns whether an answer may differ.
    pub(super) fn apply(&mut self, resource: Resource, text: &[u8]) -> bool {
        self.guarded(resource, text, |ingest| ingest.read(resource, text, false))
    }

    /// The same of an object of a list. One that takes something away is applied at the end of the list (E21).
    pub(super) fn apply_of_list(&mut self, resource: Resource, text: &[u8]) -> bool {
        self.guarded(resource, text, |ingest| ingest.read(resource, text, true))
    }

    /// A defect must not keep the objects that come next from being served: what met it is named and counted, and what is
    /// held of it may be wrong until it is applied again.
    fn guarded(
        &mut self,
        resource: Resource,
        text: &[u8],
        apply: impl FnOnce(&mut Ingest) -> bool,
    ) -> bool {
        if let Ok(is_visible) = catch_unwind(AssertUnwindSafe(|| apply(self))) {
            return is_visible;
        }
        self.status.shared.read().panics += 1;
        if let Ok(Some(named)) = catch_unwind(|| decode::named(text)) {
            let key = convert::key(&named.metadata);
            tracing::error!(resource = resource.plural(), namespace = %key.namespace, name = %key.name, "{DEFECT}");
            // It exists: the end of a list must not take it for gone.
            self.writer.was_listed(resource, &key);
            self.status.explain(resource, &key, Some(DEFECT.to_owned()));
        }
        true
    }

    fn read(&mut self, resource: Resource, text: &[u8], may_wait: bool) -> bool {
        let decoded = match decode::object(resource, text) {
            Ok(decoded) => decoded,
            Err(undecodable) => return self.skip(resource, undecodable),
        };
        let Decoded { key, version, object, reasons, last_change } = decoded;
        let change = match object {
            Some(object) => Change::Apply(object),
            None => Change::Delete(resource, key.clone()),
        };
        if may_wait
            && self.writer.takes_away(resource, &change)
            && self.put_off.keep(resource, text)
        {
            return true;
        }
        if !self.writer.is_outdated(resource, &key, version) {
            self.status.explain(resource, &key, reasons);
        }
        let effect = match change {
            Change::Apply(_) => self.writer.apply(change),
            Change::Delete(resource, key) => self.writer.delete(resource, key, version),
        };
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
        let Undecodable { key, version, error } = undecodable;
        self.status.feed(&Watched::Objects(resource), |feed| feed.undecodable += 1);
        let Some(key) = key else { return false };
        if !self.writer.is_outdated(resource, &key, version) {
            self.status.explain(resource, &key, Some(format!("it cannot be read: {error}")));
        }
        let effect = self.writer.delete(resource, key, version);
        self.note(effect);
        effect.is_visible
    }

    /// Applies the deletion of an object, as an event shows it.
    pub(super) fn delete(&mut self, resource: Resource, text: &str) {
        self.guarded(resource, text.as_bytes(), |ingest| ingest.delete_now(resource, text));
    }

    fn delete_now(&mut self, resource: Resource, text: &str) -> bool {
        let Some(named) = decode::named(text.as_bytes()) else { return false };
        let key: Key = convert::key(&named.metadata);
        let version = convert::version(&named.metadata);
        if !self.writer.is_outdated(resource, &key, version) {
            self.status.explain(resource, &key, None);
        }
        let effect = self.writer.delete(resource, key, version);
        self.note(effect);
        effect.is_visible
    }

    fn note(&mut self, effect: Effect) {
        self.status.applied(effect.is_problem_new);
        if effect.is_of_another_cluster {
            self.relist_all();
        }
    }

    /// A list is complete, as of this version. Returns how many objects vanished.
    pub(super) fn complete(&mut self, resource: Resource, version: &str) -> usize {
        for text in self.put_off.take(resource) {
            if !self.is_outdated(resource as usize, &text) {
                self.apply(resource, &text);
            }
        }
        self.put_off.complete(resource);
        let removed = self.writer.complete(resource, decode::version(Some(version)));
        self.status.complete(resource);
        removed
    }

    /// Whether an event said something newer of an object of a list that is read beside the watch.
    pub(super) fn is_outdated(&self, number: usize, text: &[u8]) -> bool {
        let is_remembering = self.meanwhile.is_remembering(number);
        let named = is_remembering.then(|| decode::named(text)).flatten();
        named.is_some_and(|Named { metadata }| {
            let (key, version) = (convert::key(&metadata), convert::version(&metadata));
            self.meanwhile.is_outdated(number, &key, version)
        })
    }

    /// Its list is given up: the watch continues, so no list is needed.
    pub(super) fn give_up(&mut self, resource: Resource) {
        self.put_off.give_up(resource);
    }

    /// Objects of its list that wait for its end.
    pub(super) fn waiting(&self, resource: Resource) -> usize {
        self.put_off.waiting(resource)
    }

    /// A page of its list broke off, before which this many waited.
    pub(super) fn wait_no_more(&mut self, resource: Resource, waiting: usize) {
        self.put_off.truncate(resource, waiting);
    }

    /// A resource is not needed any more: its objects are removed.
    pub(super) fn forget(&mut self, resource: Resource) {
        self.put_off.take(resource);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::source::writer::Setup;
    use crate::status::Status;

    fn service(name: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop"}},"spec":{{"clusterIP":"10.96.0.1"}}}}"#
        )
    }

    #[test]
    fn an_object_that_meets_a_defect_is_named_and_those_after_it_are_applied() {
        let status = Arc::<Status>::default();
        let writer = Writer::unconfigured(Setup::reporting_to(Arc::clone(&status))).unwrap();
        let mut ingest = Ingest::new(writer, StreamStatus::new(Arc::clone(&status)));
        let cart = service("cart");
        let defect = |_: &mut Ingest| panic!("a defect");
        assert!(ingest.guarded(Resource::Services, cart.as_bytes(), defect));
        assert!(ingest.guarded(Resource::Services, b"no object", defect));
        ingest.apply(Resource::Services, service("till").as_bytes());
        ingest.publish();
        ingest.status.report(&mut ingest.writer);
        let reported = status.read();
        assert_eq!((reported.panics, reported.objects[Resource::Services as usize]), (2, 1));
        let skipped = reported.skipped.first(10);
        assert_eq!(skipped.len(), 1);
        assert!(skipped[0].reason.starts_with("a defect of ClusterDNS"), "{:?}", skipped[0]);
    }
}
