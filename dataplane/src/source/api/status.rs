//! The state of the streams for people, and the objects that are not served.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use dataplane_core::{Key, Resource};

use super::watched::Watched;
use crate::source::writer::Writer;
use crate::status::Status;
use crate::status::feed::Feed;
use crate::status::unserved::Unserved;

/// Reports on the streams of one thread.
#[derive(Debug)]
pub(super) struct StreamStatus {
    pub(super) shared: Arc<Status>,
    /// Objects that were not understood, or not in full.
    unreadable: Unserved,
    /// What is not served differs from the last report.
    is_changed: bool,
}

impl StreamStatus {
    pub(super) fn new(shared: Arc<Status>) -> StreamStatus {
        shared.read().feeds[Resource::Pods as usize].want(false, false);
        StreamStatus { shared, unreadable: Unserved::default(), is_changed: true }
    }

    /// Changes what is known of a stream.
    pub(super) fn feed<T>(&self, watched: &Watched, change: impl FnOnce(&mut Feed) -> T) -> T {
        let mut reported = self.shared.read();
        match watched {
            Watched::Objects(resource) => change(&mut reported.feeds[*resource as usize]),
            Watched::ConfigMap { .. } => {
                change(reported.configuration.get_or_insert_with(Feed::default))
            }
        }
    }

    /// The API server answered a request, or did not; a refusal is an answer (E43).
    pub(super) fn requested(&self, is_answered: bool) {
        self.shared.read().source_answers = Some(is_answered);
    }

    /// A stream was heard of, with this many events. Returns whether it was in trouble before.
    pub(super) fn heard(&self, watched: &Watched, events: u64) -> bool {
        self.feed(watched, |feed| {
            let was_in_trouble = feed.trouble.is_some();
            feed.events += events;
            feed.heard();
            was_in_trouble
        })
    }

    /// Forgets nothing yet: reasons of objects that the list lacks go at `complete`.
    pub(super) fn begin(&mut self, resource: Resource) {
        self.unreadable.begin(resource);
    }

    /// Ends a list: objects that were not listed are removed.
    pub(super) fn complete(&mut self, resource: Resource) {
        self.unreadable.complete(resource, |_| false);
        self.is_changed = true;
    }

    /// A resource is not needed any more.
    pub(super) fn forget(&mut self, resource: Resource) {
        self.unreadable.forget(resource);
        self.shared.read().feeds[resource as usize].forget();
        self.is_changed = true;
    }

    /// Why an object, or a part of it, is not understood; `None` if all of it is.
    pub(super) fn explain(&mut self, resource: Resource, key: &Key, reason: Option<String>) {
        self.is_changed |= self.unreadable.set(resource, key, reason);
    }

    /// Problems of objects that did not change may differ.
    pub(super) fn reasons_changed(&mut self, is_problem_new: bool) {
        self.is_changed |= is_problem_new;
    }

    /// One object was applied or removed.
    pub(super) fn applied(&mut self, is_problem_new: bool) {
        self.is_changed |= is_problem_new;
        self.shared.read().changes += 1;
    }

    /// Records the delay from this change (RFC 3339) until its answer was visible (E53).
    pub(super) fn changed_since(&self, began: &str) {
        self.shared.change_to_visible.add(began, SystemTime::now());
    }

    /// Events that were received at this time are visible (E13).
    pub(super) fn visible_since(&self, received: Instant) {
        self.shared.event_to_visible.add(received.elapsed());
    }

    /// Warnings about upstreams or settings may differ.
    pub(super) fn has_news(&mut self) {
        self.is_changed = true;
    }

    /// Reports what is not served, if that changed since the last report.
    pub(super) fn report(&mut self, writer: &mut Writer) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let warnings = writer.warnings();
        let changes = writer.changed_problems().and(self.unreadable.take_changes());
        self.shared.report_changes(&changes, warnings);
    }
}
