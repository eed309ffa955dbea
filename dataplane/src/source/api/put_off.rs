//! Objects of lists that take something away from what is served: a later object of the list may have it, so they wait for
//! the end of the list, and a list that breaks off takes nothing away, up to five in a row (E21, E22).

use std::time::{Duration, Instant};

use dataplane_core::Resource;

/// Octets of the objects that wait, of all lists together. Nearly no list has such objects: it comes after a time in which
/// nothing was heard.
const MAX_PUT_OFF: usize = 8 << 20;

/// Lists in a row in which objects wait. What is new in them would not be served for as long as lists break off; after these,
/// that is worse than what E22 promises.
const MAX_LISTS: usize = 5;
/// A list that breaks off counts once more for each time as long as this that it took: a busy API server may take minutes for one.
const LIST_TIME: Duration = Duration::from_secs(48);

/// The objects that wait, by resource.
#[derive(Debug, Default)]
pub(super) struct PutOff {
    objects: [Vec<Box<[u8]>>; Resource::ALL.len()],
    octets: usize,
    /// Lists of each resource that broke off while objects of them waited, since a complete one.
    broken_off: [usize; Resource::ALL.len()],
    /// When the present list began.
    begun: [Option<Instant>; Resource::ALL.len()],
    /// Whether objects of the present list were dropped with their page.
    dropped: [bool; Resource::ALL.len()],
}

impl PutOff {
    /// A list begins: what waits is of one that broke off. One of which nothing arrived has put nothing off.
    pub(super) fn begin(&mut self, resource: Resource, now: Instant) {
        let has_dropped = std::mem::take(&mut self.dropped[resource as usize]);
        let begun = self.begun[resource as usize].replace(now);
        if !self.take(resource).is_empty() || has_dropped {
            let took = begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun));
            let times = usize::try_from(took.as_secs() / LIST_TIME.as_secs()).unwrap_or(usize::MAX);
            let broken_off = &mut self.broken_off[resource as usize];
            *broken_off = broken_off.saturating_add(1).saturating_add(times);
        }
    }

    /// The list is given up, and was not needed: what is new does not wait for the next one.
    pub(super) fn give_up(&mut self, resource: Resource) {
        self.take(resource);
        self.dropped[resource as usize] = false;
    }

    /// The list is complete.
    pub(super) fn complete(&mut self, resource: Resource) {
        (self.broken_off[resource as usize], self.dropped[resource as usize]) = (0, false);
    }

    /// Keeps an object, as JSON; false when it must not wait, or there is no room.
    pub(super) fn keep(&mut self, resource: Resource, text: &[u8]) -> bool {
        let is_late = self.broken_off[resource as usize] >= MAX_LISTS;
        if is_late || self.octets + text.len() > MAX_PUT_OFF {
            return false;
        }
        self.octets += text.len();
        self.objects[resource as usize].push(text.into());
        true
    }

    /// How many wait.
    pub(super) fn waiting(&self, resource: Resource) -> usize {
        self.objects[resource as usize].len()
    }

    /// Only the first ones still wait: the others are of a page that broke off, and come again with it.
    pub(super) fn truncate(&mut self, resource: Resource, waiting: usize) {
        let objects = &mut self.objects[resource as usize];
        let dropped = objects.drain(waiting.min(objects.len())..);
        self.dropped[resource as usize] |= dropped.len() > 0;
        self.octets -= dropped.map(|text| text.len()).sum::<usize>();
    }

    /// Those of a resource, which do not wait any more.
    pub(super) fn take(&mut self, resource: Resource) -> Vec<Box<[u8]>> {
        let taken = std::mem::take(&mut self.objects[resource as usize]);
        self.octets -= taken.iter().map(|text| text.len()).sum::<usize>();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e22_nothing_waits_after_several_lists_that_broke_off() {
        let (mut put_off, now) = (PutOff::default(), Instant::now());
        let pods = Resource::Pods;
        for list in 0..MAX_LISTS {
            put_off.begin(pods, now);
            assert!(put_off.keep(pods, b"{}"));
            if list % 2 == 0 {
                // The page that breaks off is the one that it came with.
                put_off.truncate(pods, 0);
            }
        }
        put_off.begin(pods, now);
        assert!(!put_off.keep(pods, b"{}"));
        put_off.begin(Resource::Services, now);
        assert!(put_off.keep(Resource::Services, b"{}"), "each resource for itself");
        assert!(put_off.take(pods).is_empty(), "dropped with its list");
        put_off.complete(pods);
        put_off.begin(pods, now);
        assert!(put_off.keep(pods, b"{}"));
    }

    #[test]
    fn e22_nothing_waits_after_a_list_of_minutes_that_broke_off() {
        let (mut put_off, pods, begun) = (PutOff::default(), Resource::Pods, Instant::now());
        for (seconds, waits) in [(0, true), (40, true), (180, true), (360, false)] {
            put_off.begin(pods, begun + Duration::from_secs(seconds));
            assert_eq!(put_off.keep(pods, b"{}"), waits, "after {seconds} s");
        }
    }

    #[test]
    fn e22_lists_that_were_not_needed_and_broke_off_do_not_count() {
        let (mut put_off, pods, now) = (PutOff::default(), Resource::Pods, Instant::now());
        for _ in 0..=2 * MAX_LISTS {
            put_off.begin(pods, now);
            assert!(put_off.keep(pods, b"{}") && put_off.keep(pods, b"{}"));
            put_off.truncate(pods, 1);
            put_off.give_up(pods);
            assert_eq!((put_off.octets, put_off.waiting(pods)), (0, 0));
        }
    }

    #[test]
    fn e21_a_page_that_is_tried_again_takes_room_once() {
        let (mut put_off, pods) = (PutOff::default(), Resource::Pods);
        let text = vec![b'x'; MAX_PUT_OFF / 4];
        assert!(put_off.keep(pods, b"{}"));
        for _ in 0..5 {
            let waiting = put_off.waiting(pods);
            assert!(put_off.keep(pods, &text));
            put_off.truncate(pods, waiting);
        }
        assert_eq!((put_off.octets, put_off.take(pods).len()), (2, 1));
    }

    #[test]
    fn e21_lists_that_an_absent_api_server_refuses_put_nothing_off() {
        let (mut put_off, now) = (PutOff::default(), Instant::now());
        for _ in 0..=2 * MAX_LISTS {
            put_off.begin(Resource::EndpointSlices, now);
        }
        assert!(put_off.keep(Resource::EndpointSlices, b"{}"));
    }

    #[test]
    fn e21_what_waits_is_bounded_and_what_was_taken_leaves_room() {
        let mut put_off = PutOff::default();
        let text = vec![b'x'; MAX_PUT_OFF / 4];
        for resource in [Resource::EndpointSlices, Resource::Pods] {
            assert!(put_off.keep(resource, &text) && put_off.keep(resource, &text));
        }
        assert!(!put_off.keep(Resource::Services, b"{}"));
        assert_eq!(put_off.take(Resource::Pods).len(), 2);
        assert!(put_off.take(Resource::Pods).is_empty());
        assert!(put_off.keep(Resource::Services, b"{}"));
    }
}
