//! Where the streams of one thread meet: objects go to the ingest, the ConfigMap to the configuration.

use std::rc::Rc;
use std::time::Instant;

use dataplane_core::{Key, Resource};
use process::items::MAX_OBJECT;
use tokio::sync::{Notify, watch};

use super::configuration::Configuration;
use super::ingest::Ingest;
use super::namespace_turns::{Event, Turns};
use super::watched::{KINDS, Watched};
use crate::status::feed::Feed;

/// Shared by the streams of one thread; borrowed for the length of a call, never over an await.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) ingest: Ingest,
    pub(super) configuration: Configuration,
    /// Events that were read and not applied yet.
    turns: Turns,
    /// Events may wait.
    has_events: Rc<Notify>,
}

/// An event of a watch, as it was read.
#[derive(Debug)]
pub(super) struct Read<'a> {
    /// The key of its object; `None` if its metadata cannot be read.
    pub(super) key: Option<Key>,
    /// Its version; 0 if it has none.
    pub(super) version: u64,
    /// The object is gone; otherwise it is new or was changed.
    pub(super) is_deleted: bool,
    /// The object as JSON.
    pub(super) text: &'a str,
    pub(super) received: Instant,
}

/// Octets of events that are applied until the streams are read again; one event may be larger.
const ROUND_OCTETS: usize = 64 << 10;
/// The same of events that clients see together.
const MAX_TOGETHER: usize = 1 << 20;
/// What a row of an object that is held counts, in octets: about what it takes as JSON.
const ROW_OCTETS: usize = 64;

impl Sink {
    pub(super) fn new(ingest: Ingest, configuration: Configuration) -> Sink {
        let (turns, has_events) = (Turns::default(), Rc::default());
        Sink { ingest, configuration, turns, has_events }
    }

    /// Requests to list again, by [`Watched::number`].
    pub(super) fn relists(&self) -> watch::Receiver<[u64; KINDS]> {
        self.ingest.relists.subscribe()
    }

    /// Changes what is known of a stream.
    pub(super) fn feed<T>(&self, watched: &Watched, change: impl FnOnce(&mut Feed) -> T) -> T {
        self.ingest.status.feed(watched, change)
    }

    /// A stream was heard of, with this many events. Returns whether it was in trouble before.
    pub(super) fn heard(&mut self, watched: &Watched, events: u64) -> bool {
        if let Watched::Objects(resource) = watched {
            self.ingest.writer.contact(*resource);
        }
        self.ingest.status.heard(watched, events)
    }

    /// Marks the start of a list: objects not applied until `complete` are removed then (E21).
    pub(super) fn begin(&mut self, watched: &Watched) {
        // Earlier events come before the list.
        while self.apply_round() {}
        self.ingest.meanwhile.end(watched.number());
        match watched {
            Watched::Objects(resource) => self.ingest.begin(*resource),
            Watched::ConfigMap { .. } => self.configuration.begin_list(),
        }
    }

    /// The same of a list that is read while a watch is open.
    pub(super) fn begin_beside(&mut self, watched: &Watched) {
        self.begin(watched);
        self.ingest.meanwhile.begin(watched.number());
    }

    /// Such a list is given up: what is known comes from the watch alone.
    pub(super) fn give_up_beside(&mut self, watched: &Watched) {
        self.ingest.meanwhile.end(watched.number());
        match watched {
            Watched::Objects(resource) => self.ingest.give_up(*resource),
            Watched::ConfigMap { .. } => {}
        }
    }

    /// Whether too many events came while such a list was read: it cannot be used.
    pub(super) fn is_overtaken(&self, watched: &Watched) -> bool {
        self.ingest.meanwhile.is_overtaken(watched.number())
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
            Watched::Objects(resource) => self.ingest.list_is_at(*resource, version, has_objects),
            Watched::ConfigMap { .. } => false,
        }
    }

    /// The API server has gone back to this version, see [`Ingest::went_back`].
    pub(super) fn went_back(&mut self, watched: &Watched, version: u64, seen: u64) {
        self.ingest.went_back(watched, version, seen);
    }

    /// An event or a bookmark has this version.
    pub(super) fn saw_version(&mut self, watched: &Watched, version: u64) {
        if let Watched::Objects(resource) = watched {
            self.ingest.writer.saw_version(*resource, version);
        }
    }

    /// An event of a watch: one about an object waits for its turn, the ConfigMap has none.
    pub(super) fn receive(&mut self, watched: &Watched, read: Read<'_>) {
        let Read { key, version, is_deleted, text, received } = read;
        if let Some(key) = &key {
            self.ingest.meanwhile.add(watched.number(), key, version);
        }
        match (watched, key, is_deleted) {
            (Watched::Objects(resource), Some(key), is_deleted) => {
                let resource = *resource;
                self.turns.add(Event { resource, key, is_deleted, text: text.into(), received });
                while self.turns.is_full() {
                    self.apply_round();
                }
                self.has_events.notify_one();
            }
            (Watched::Objects(_), None, true) => {}
            (Watched::Objects(resource), None, false) => {
                self.ingest.apply(*resource, text.as_bytes());
            }
            (Watched::ConfigMap { .. }, _, true) => {
                self.configuration.lose_config_map(&mut self.ingest);
                self.ingest.publish_since(received);
            }
            (Watched::ConfigMap { .. }, _, false) => {
                self.configuration.take_config_map(&mut self.ingest, text.as_bytes());
                self.ingest.publish_since(received);
            }
        }
    }

    /// Wakes the task that calls [`Sink::apply_round`].
    pub(super) fn has_events(&self) -> Rc<Notify> {
        Rc::clone(&self.has_events)
    }

    /// Applies some of the events that wait, and makes them visible together. Returns whether more wait.
    pub(super) fn apply_round(&mut self) -> bool {
        let mut spent = 0;
        let mut first: Option<Instant> = None;
        let mut next = self.turns.next(true);
        while let Some(event) = next {
            first = Some(first.map_or(event.received, |first| first.min(event.received)));
            // A small edit may take many rows away.
            let rows = self.ingest.writer.rows(event.resource, &event.key);
            let cost = event.octets().max(rows * ROW_OCTETS);
            match event.is_deleted {
                true => self.ingest.delete(event.resource, &event.text),
                false => {
                    self.ingest.apply(event.resource, event.text.as_bytes());
                }
            }
            self.turns.charge(&event.key.namespace, cost);
            spent += cost;
            let together = (spent < MAX_TOGETHER).then(|| self.turns.next_together()).flatten();
            next = match together {
                None if spent < ROUND_OCTETS => self.turns.next(false),
                together => together,
            };
        }
        if let Some(received) = first {
            self.ingest.publish_since(received);
        }
        !self.turns.is_empty()
    }

    /// An object of a list, as JSON. Returns whether an answer may differ.
    pub(super) fn apply_of_list(&mut self, watched: &Watched, object: &[u8]) -> bool {
        if self.ingest.is_outdated(watched.number(), object) {
            return false;
        }
        match watched {
            Watched::Objects(resource) => self.ingest.apply_of_list(*resource, object),
            Watched::ConfigMap { .. } => {
                self.configuration.take_config_map(&mut self.ingest, object);
                false
            }
        }
    }

    /// Objects of a list that wait for its end.
    pub(super) fn waiting(&self, watched: &Watched) -> usize {
        match watched {
            Watched::Objects(resource) => self.ingest.waiting(*resource),
            Watched::ConfigMap { .. } => 0,
        }
    }

    /// A page of a list broke off, before which this many objects waited.
    pub(super) fn wait_no_more(&mut self, watched: &Watched, waiting: usize) {
        match watched {
            Watched::Objects(resource) => self.ingest.wait_no_more(*resource, waiting),
            Watched::ConfigMap { .. } => {}
        }
    }

    /// An object is longer than any can be: it is counted, and not served. Only news are logged.
    pub(super) fn skip_too_long(&mut self, watched: &Watched, is_news: bool) {
        let resource = watched.plural();
        if is_news {
            tracing::warn!(resource, limit = MAX_OBJECT, "an object is too long to be read");
        }
        self.feed(watched, |feed| feed.undecodable += 1);
    }

    /// A list is complete, as of this version. Returns how many objects vanished.
    pub(super) fn complete(&mut self, watched: &Watched, version: &str) -> usize {
        // Events that came while it was read.
        while self.apply_round() {}
        let removed = match watched {
            Watched::Objects(resource) => self.complete_objects(*resource, version),
            Watched::ConfigMap { .. } => {
                self.configuration.complete_list(&mut self.ingest);
                self.feed(watched, Feed::heard);
                0
            }
        };
        self.ingest.meanwhile.end(watched.number());
        removed
    }

    /// A configuration that waited for this list takes over in the same step in which the list becomes visible (E5).
    fn complete_objects(&mut self, resource: Resource, version: &str) -> usize {
        let is_first = !self.ingest.is_live(resource);
        let removed = self.ingest.complete(resource, version);
        self.configuration.settle_renewal(&mut self.ingest);
        let watched = Watched::Objects(resource);
        self.feed(&watched, |feed| feed.relists += u64::from(!is_first));
        if resource == Resource::Pods {
            self.configuration.pods_are_complete(&mut self.ingest);
        }
        self.ingest.publish();
        if is_first {
            let objects = self.ingest.status.shared.read().objects[resource as usize];
            tracing::info!(resource = resource.plural(), objects, "the first list is complete");
        }
        removed
    }

    /// A resource is not needed any more.
    pub(super) fn forget(&mut self, resource: Resource) {
        while self.apply_round() {}
        self.ingest.meanwhile.end(resource as usize);
        self.ingest.forget(resource);
        self.configuration.settle_renewal(&mut self.ingest);
        self.ingest.publish();
    }

    /// Starts from what this machine kept, now that a configuration may be known.
    pub(super) fn warm_start(&mut self) {
        self.configuration.warm_start(&mut self.ingest);
    }

    /// Changes that time alone brings, see [`Configuration::tick`].
    pub(super) fn tick(&mut self, now: Instant) {
        self.configuration.tick(&mut self.ingest, now);
        let has_news = self.ingest.writer.tick();
        self.ingest.status.reasons_changed(has_news);
    }

    /// Reports what is not served, if that changed.
    pub(super) fn report(&mut self) {
        self.ingest.status.report(&mut self.ingest.writer);
    }
}

#[cfg(test)]
pub(super) mod tests;
