//! Lists of ports, each kept once: a cluster has thousands of Services and few lists.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::{FixedState, RandomState};
use hashbrown::{Equivalent, HashMap, HashSet};

use crate::records::{Port, Ports};

/// Room of the table that is kept although it is empty.
const KEPT_ROOM: usize = 64;

/// Every list that an object held has, with the number of those objects.
///
/// The objects are counted here, because a state that was published before still has the lists of
/// what has changed since.
#[derive(Debug, Default)]
pub(super) struct PortLists {
    users: HashMap<Arc<Ports>, u32, RandomState>,
    /// Their numbers.
    numbers: HashSet<u32, RandomState>,
}

impl PortLists {
    /// The one copy of these ports for one more object; [`PortLists::release`] ends its use.
    pub(super) fn shared(&mut self, ports: Vec<Port>, is_cut: bool) -> Arc<Ports> {
        // Most objects have a list that is known: it is not made again for each of them.
        let wanted = Wanted { ports: &ports, is_cut };
        if let Some((known, users)) = self.users.get_key_value_mut(&wanted) {
            *users += 1;
            return Arc::clone(known);
        }
        let number = self.number(&wanted);
        let mut ports = Ports::new(ports, is_cut);
        ports.number = number;
        let ports = Arc::new(ports);
        self.users.insert(Arc::clone(&ports), 1);
        ports
    }

    /// The number of a new list: a hash of what it has, so that all data planes leave out the same lists of a Service that has
    /// too many. Where another list has it, one that cannot be foreseen, so that lists cannot be written that meet again and again.
    fn number(&mut self, wanted: &Wanted<'_>) -> u32 {
        let known = FixedState::default().hash_one(wanted);
        let drawn = (0_u32..).map(|time| self.users.hasher().hash_one((time, wanted)));
        let numbers = core::iter::once(known).chain(drawn).map(|hash| (hash >> 32) as u32);
        let mut free = numbers.filter(|number| !self.numbers.contains(number));
        let number = free.next().unwrap_or_default();
        self.numbers.insert(number);
        number
    }

    /// One object fewer has this list; without objects it is removed.
    pub(super) fn release(&mut self, ports: &Arc<Ports>) {
        let Some(users) = self.users.get_mut(ports) else {
            return;
        };
        *users -= 1;
        if *users > 0 {
            return;
        }
        if let Some((gone, _)) = self.users.remove_entry(ports) {
            self.numbers.remove(&gone.number);
        }
        self.shrink();
    }

    /// Whether no list is in use.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    fn shrink(&mut self) {
        if self.users.capacity() > KEPT_ROOM && self.users.len() < self.users.capacity() / 8 {
            self.users.shrink_to(KEPT_ROOM.max(2 * self.users.len()));
            self.numbers.shrink_to(KEPT_ROOM.max(2 * self.numbers.len()));
        }
    }
}

/// A list that is looked for; it has the hash of [`Ports`].
struct Wanted<'p> {
    ports: &'p [Port],
    is_cut: bool,
}

impl Hash for Wanted<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ports.hash(state);
        self.is_cut.hash(state);
    }
}

impl Equivalent<Arc<Ports>> for Wanted<'_> {
    fn equivalent(&self, known: &Arc<Ports>) -> bool {
        *self.ports == *known.all && self.is_cut == known.is_cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Protocol;

    fn port(number: u16) -> Port {
        Port { name: b"http".as_slice().into(), number, protocol: Protocol::Tcp }
    }

    #[test]
    fn lists_have_the_same_numbers_in_any_order_and_none_has_that_of_another() {
        let numbers = |order: &mut dyn Iterator<Item = u16>| {
            let mut lists = PortLists::default();
            let number = |of| (of, lists.shared(vec![port(of)], false).number);
            order.map(number).collect::<alloc::collections::BTreeMap<_, _>>()
        };
        let upwards = numbers(&mut (0..100));
        assert_eq!(upwards, numbers(&mut (0..100).rev()));
        // One that has the number of another, as two of some 77,000 lists have, gets a number of its own.
        let mut lists = PortLists::default();
        lists.numbers.insert(upwards[&7]);
        assert_ne!(lists.shared(vec![port(7)], false).number, upwards[&7]);
        assert_eq!(lists.numbers.len(), 2);
    }

    #[test]
    fn l13_equal_lists_are_one_and_each_is_removed_with_its_last_user() {
        let mut lists = PortLists::default();
        let kept = lists.shared(vec![port(80), port(80), port(81)], false);
        assert_eq!(*kept.numbers, [80, 81]);
        for number in 0..1_000 {
            let published = lists.shared(vec![port(number)], false);
            lists.release(&published);
        }
        let again = lists.shared(vec![port(80), port(80), port(81)], false);
        assert!(Arc::ptr_eq(&kept, &again));
        assert_eq!(lists.users.len(), 1);
        lists.release(&again);
        assert_eq!(lists.users.len(), 1, "one user is left");
        lists.release(&kept);
        assert!(lists.users.is_empty() && lists.numbers.is_empty());
    }
}
