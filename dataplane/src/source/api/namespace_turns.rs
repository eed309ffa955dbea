//! Events of the watches wait here for their turn: round robin by namespace, in octets. One thread applies the events of
//! all, so without turns a user who edits large objects without end would delay the events of all others (L18).

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use dataplane_core::{Key, Resource};

/// Octets of events that wait, in all; with more, reading waits until some are applied.
const MAX_WAITING: usize = 16 << 20;
/// Octets that one event takes besides its text.
const EVENT_OCTETS: usize = 512;
/// Octets of events that a namespace may apply in its turn. One event may be larger: its namespace then pays with later
/// turns.
const TURN_OCTETS: i64 = 16 << 10;
/// Octets of a namespace that wait until an edit replaces one of the same object that waits; before that each is applied, in
/// the order in which they came.
const REPLACED_PAST: usize = 256 << 10;

/// One event of a watch, as it was read.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) resource: Resource,
    pub(super) key: Key,
    /// The object is gone; otherwise it is new or was changed.
    pub(super) is_deleted: bool,
    /// The object as JSON.
    pub(super) text: Box<str>,
    pub(super) received: Instant,
}

impl Event {
    /// Octets that it takes while it waits; applying it costs at least as much.
    pub(super) fn octets(&self) -> usize {
        self.text.len() + EVENT_OCTETS
    }
}

/// Events that wait, by namespace.
#[derive(Debug, Default)]
pub(super) struct Turns {
    namespaces: HashMap<Box<str>, Waiting>,
    /// Namespaces that have events, or used more than a turn; the first one is next.
    order: VecDeque<Box<str>>,
    events: usize,
    octets: usize,
}

/// The events of one namespace that wait.
#[derive(Debug, Default)]
struct Waiting {
    /// An object for each event, the oldest first.
    order: VecDeque<(Resource, Key)>,
    events: HashMap<(Resource, Key), VecDeque<Event>>,
    octets: usize,
    /// Octets that it may still apply in this turn; negative after a large event.
    credit: i64,
    /// How many of them, from the oldest on, are seen together: one replaced another, so it comes before events that are older
    /// than itself. An endpoint that it no longer has may be in one of these (E11).
    together: usize,
}

impl Turns {
    /// Adds an event behind those of its namespace.
    pub(super) fn add(&mut self, event: Event) {
        let namespace = match self.namespaces.get_mut(&event.key.namespace) {
            Some(namespace) => namespace,
            None => {
                self.order.push_back(event.key.namespace.clone());
                let new = Waiting { credit: TURN_OCTETS, ..Waiting::default() };
                self.namespaces.entry(event.key.namespace.clone()).or_insert(new)
            }
        };
        let octets = event.octets();
        let place = (event.resource, event.key.clone());
        let of_object = namespace.events.entry(place.clone()).or_default();
        let freed = match of_object.back_mut() {
            Some(last) if namespace.octets > REPLACED_PAST => {
                let freed = last.octets();
                *last = Event { received: last.received, ..event };
                namespace.together = namespace.order.len();
                freed
            }
            Some(_) | None => {
                of_object.push_back(event);
                namespace.order.push_back(place);
                self.events += 1;
                0
            }
        };
        namespace.octets = namespace.octets + octets - freed;
        self.octets = self.octets + octets - freed;
    }

    /// The next event whose turn it is. Say what it cost before the one after it. Events that are seen together begin a round,
    /// so that what was applied before does not wait for them.
    pub(super) fn next(&mut self, begins_round: bool) -> Option<Event> {
        while self.events > 0 {
            let name = self.order.pop_front()?;
            let Some(namespace) = self.namespaces.get_mut(&name) else { continue };
            if namespace.credit > 0 && namespace.together > 0 && !begins_round {
                self.order.push_front(name);
                return None;
            }
            if namespace.credit > 0
                && let Some(event) = namespace.take()
            {
                self.events -= 1;
                self.octets -= event.octets();
                self.order.push_front(name);
                return Some(event);
            }
            namespace.credit = (namespace.credit + TURN_OCTETS).min(TURN_OCTETS);
            match namespace.order.is_empty() && namespace.credit == TURN_OCTETS {
                true => drop(self.namespaces.remove(&name)),
                false => self.order.push_back(name),
            }
        }
        // No event waits: debts are cleared.
        self.namespaces.clear();
        self.order.clear();
        None
    }

    /// The event behind the one that [`Turns::next`] returned, if clients must not see one without the other.
    pub(super) fn next_together(&mut self) -> Option<Event> {
        let namespace = self.namespaces.get_mut(self.order.front()?)?;
        if namespace.together == 0 {
            return None;
        }
        let event = namespace.take()?;
        self.events -= 1;
        self.octets -= event.octets();
        Some(event)
    }

    /// An event of this namespace was applied and cost as much as this many octets.
    pub(super) fn charge(&mut self, namespace: &str, octets: usize) {
        if let Some(namespace) = self.namespaces.get_mut(namespace) {
            namespace.credit -= octets as i64;
        }
    }

    /// More wait than may: some must be applied before more is read.
    pub(super) fn is_full(&self) -> bool {
        self.octets > MAX_WAITING
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events == 0
    }
}

impl Waiting {
    fn take(&mut self) -> Option<Event> {
        let place = self.order.pop_front()?;
        self.together = self.together.saturating_sub(1);
        let of_object = self.events.get_mut(&place)?;
        let event = of_object.pop_front();
        if of_object.is_empty() {
            self.events.remove(&place);
        }
        self.octets -= event.as_ref().map_or(0, Event::octets);
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(namespace: &str, name: &str, octets: usize) -> Event {
        Event {
            resource: Resource::EndpointSlices,
            key: Key::new(namespace, name),
            is_deleted: false,
            text: "x".repeat(octets).into(),
            received: Instant::now(),
        }
    }

    /// Takes the next event and charges its namespace for it.
    fn apply(turns: &mut Turns) -> Option<Event> {
        let event = turns.next(true)?;
        turns.charge(&event.key.namespace, event.octets());
        Some(event)
    }

    #[test]
    fn l18_an_event_waits_for_one_large_event_of_each_other_namespace_at_most() {
        let mut turns = Turns::default();
        for number in 0..100 {
            turns.add(event("evil", &format!("slice-{number}"), 100_000));
            turns.add(event("evil-2", &format!("slice-{number}"), 100_000));
        }
        assert_eq!(apply(&mut turns).unwrap().key.name.as_ref(), "slice-0");
        turns.add(event("victim", "cart", 1_000));
        let before = (0..).take_while(|_| &*apply(&mut turns).unwrap().key.namespace != "victim");
        assert_eq!(before.count(), 1);
    }

    #[test]
    fn l18_one_that_edits_without_end_gets_no_more_octets_than_others_who_wait() {
        let mut turns = Turns::default();
        // A busy namespace with much to do, and one object that is edited again after each turn.
        for number in 0..1_000 {
            turns.add(event("busy", &format!("slice-{number}"), 1_000));
        }
        let (mut evil, mut busy) = (0, 0);
        while busy < 1_000 {
            if !turns.namespaces.contains_key("evil") || turns.namespaces["evil"].order.is_empty() {
                turns.add(event("evil", "wide", 300_000));
            }
            match &*apply(&mut turns).unwrap().key.namespace {
                "evil" => evil += 1,
                _ => busy += 1,
            }
        }
        assert!(evil <= 1_000 * 1_512 / 300_000 + 2, "{evil} large events");
    }

    #[test]
    fn l18_of_many_edits_that_wait_the_last_of_each_object_is_applied() {
        let mut turns = Turns::default();
        for number in 0..10_000 {
            let mut edit = event("evil", &format!("slice-{}", number % 7), 50_000);
            edit.is_deleted = number == 9_999;
            turns.add(edit);
            assert!(turns.octets < REPLACED_PAST + 8 * 51_000, "{} octets", turns.octets);
        }
        let applied: Vec<Event> = std::iter::from_fn(|| apply(&mut turns)).collect();
        assert!(applied.len() < 20, "{} edits", applied.len());
        assert!(applied.iter().any(|last| last.is_deleted), "the last one of all");
        assert!(turns.is_empty() && turns.octets == 0 && turns.namespaces.is_empty());
    }

    #[test]
    fn e11_one_that_replaces_another_is_seen_with_all_that_came_before_itself() {
        let mut turns = Turns::default();
        let fillers = (0..6).map(|number| event("shop", &format!("filler-{number}"), 50_000));
        let before = [event("shop", "a", 100)].into_iter().chain(fillers);
        before.chain([event("shop", "b", 100)]).for_each(|event| turns.add(event));
        turns.add(Event { is_deleted: true, ..event("shop", "a", 100) });
        turns.add(event("shop", "later", 100));
        turns.add(event("other", "cart", 100));
        let first = apply(&mut turns).unwrap();
        assert!(&*first.key.name == "a" && first.is_deleted, "{first:?}");
        let together: Vec<Event> = std::iter::from_fn(|| turns.next_together()).collect();
        assert_eq!(together.len(), 7);
        assert_eq!(&*together[6].key.name, "b");
        together.iter().for_each(|event| turns.charge("shop", event.octets()));
        // Its namespace pays for them.
        assert_eq!(&*apply(&mut turns).unwrap().key.namespace, "other");
        assert!(turns.next_together().is_none());
        assert_eq!(&*apply(&mut turns).unwrap().key.name, "later");
        assert!(turns.next_together().is_none() && turns.is_empty() && turns.octets == 0);
    }

    #[test]
    fn events_of_a_namespace_that_is_not_crowded_are_all_applied_in_their_order() {
        let mut turns = Turns::default();
        let names = ["a", "b", "a", "c", "b", "a"];
        for (number, name) in names.into_iter().enumerate() {
            turns.add(event("shop", name, number));
        }
        let applied = std::iter::from_fn(|| apply(&mut turns));
        let seen: Vec<_> = applied.map(|event| (event.key.name, event.text.len())).collect();
        let wanted = names.into_iter().enumerate().map(|(octets, name)| (name.into(), octets));
        assert_eq!(seen, wanted.collect::<Vec<_>>());
    }

    #[test]
    fn what_waits_is_bounded_in_octets() {
        let mut turns = Turns::default();
        let mut added = 0;
        while !turns.is_full() {
            turns.add(event(&format!("shop-{added}"), "cart", 1_000_000));
            added += 1;
        }
        assert_eq!(added, MAX_WAITING / 1_000_512 + 1);
    }
}
