//! What waits until an upstream is asked: clients have turns. One that asks for thousands of names at once delays its own
//! queries, and not those of others (L2). As in FQ-CoDel (RFC 8290, section 4.1), a client of which nothing waited comes before
//! those that wait for their next turn.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Of this many items one is of a client that waits for its next turn: others that come all the time must not stop it.
const IN_TURN: u8 = 4;

/// Clients for which there is room also while nothing waits.
const USUAL_CLIENTS: usize = 64;

/// Items in the order of their clients' turns. Each holds a place (FW52), so places bound how many there are, and the clients
/// that are remembered without any: they are forgotten when their next turn comes.
#[derive(Debug)]
pub(super) struct ClientQueues<T> {
    /// Clients that have had no turn yet, the next one first.
    new: VecDeque<IpAddr>,
    /// Those that have had one.
    old: VecDeque<IpAddr>,
    /// What waits of each of them. Nothing does of those that have just had their first turn: they are not new again before
    /// their next turn would have come.
    of_client: HashMap<IpAddr, VecDeque<T>>,
    items: usize,
    /// Items of new clients in a row.
    new_in_row: u8,
}

impl<T> ClientQueues<T> {
    pub(super) fn new() -> Self {
        let (new, old) = (VecDeque::new(), VecDeque::new());
        Self { new, old, of_client: HashMap::new(), items: 0, new_in_row: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items == 0
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.items
    }

    pub(super) fn push(&mut self, client: IpAddr, item: T) {
        self.items += 1;
        match self.of_client.entry(client) {
            Entry::Occupied(mut waiting) => waiting.get_mut().push_back(item),
            Entry::Vacant(none) => {
                none.insert(VecDeque::from([item]));
                self.new.push_back(client);
            }
        }
    }

    /// The oldest of the client whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        loop {
            let (client, is_new) = self.next_client()?;
            let Entry::Occupied(mut waiting) = self.of_client.entry(client) else { continue };
            let item = waiting.get_mut().pop_front();
            let is_over = waiting.get().is_empty();
            let Some(item) = item else {
                waiting.remove();
                continue;
            };
            self.items -= 1;
            self.new_in_row = if is_new { self.new_in_row.saturating_add(1) } else { 0 };
            match is_over && !is_new {
                true => drop(waiting.remove()),
                false => self.old.push_back(client),
            }
            if self.items == 0 {
                self.forget();
            }
            return Some(item);
        }
    }

    /// Nothing waits: each client is new. Clearing a map costs as much as it has room, which a flood of addresses leaves.
    fn forget(&mut self) {
        self.new_in_row = 0;
        self.old.clear();
        match self.of_client.capacity() > USUAL_CLIENTS {
            true => self.of_client = HashMap::new(),
            false => self.of_client.clear(),
        }
    }

    /// Whose turn it is, and whether it has had none yet.
    fn next_client(&mut self) -> Option<(IpAddr, bool)> {
        let is_turn_of_old = self.new.is_empty() || self.new_in_row >= IN_TURN - 1;
        let old = if is_turn_of_old { self.old.pop_front() } else { None };
        match old {
            Some(client) => Some((client, false)),
            None => self.new.pop_front().map(|client| (client, true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn queues(items: &[(u8, &'static str)]) -> ClientQueues<&'static str> {
        let mut queues = ClientQueues::new();
        for (last, item) in items {
            queues.push(client(*last), *item);
        }
        queues
    }

    fn rest(queues: &mut ClientQueues<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queues.pop()).collect()
    }

    #[test]
    fn clients_have_turns_and_each_keeps_its_order() {
        let mut turns = queues(&[(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")]);
        assert_eq!(rest(&mut turns), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert!(turns.is_empty() && turns.of_client.is_empty(), "no client is kept");
        assert!(turns.new.is_empty() && turns.old.is_empty());
    }

    #[test]
    fn a_client_of_which_nothing_waited_comes_before_those_that_had_a_turn() {
        let mut turns = queues(&[(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (2, "b2")]);
        assert_eq!([turns.pop(), turns.pop()], [Some("a1"), Some("b1")]);
        turns.push(client(3), "c1");
        assert_eq!(turns.pop(), Some("c1"));
        // It is not new again before its turn has come.
        turns.push(client(3), "c2");
        turns.push(client(4), "d1");
        assert_eq!(rest(&mut turns), ["a2", "d1", "b2", "c2", "a3"]);
    }

    #[test]
    fn new_clients_without_end_do_not_stop_one_that_had_a_turn() {
        let mut turns = queues(&[(1, "a"), (1, "a"), (1, "a")]);
        let mut came = Vec::new();
        for last in 2..=9 {
            turns.push(client(last), "new");
            turns.push(client(last + 100), "new");
            came.extend(turns.pop());
        }
        let of_first = came.iter().filter(|item| **item == "a").count();
        assert_eq!(of_first, 2 + 1, "{came:?}");
    }

    #[test]
    fn a_client_that_is_alone_has_its_turn_however_often_it_comes() {
        let mut turns = queues(&[]);
        for _ in 0..300 {
            turns.push(client(1), "a");
            assert_eq!(turns.pop(), Some("a"));
        }
        (1..=200).for_each(|last| turns.push(client(last), "a"));
        assert_eq!(rest(&mut turns).len(), 200);
        assert!(turns.of_client.capacity() <= USUAL_CLIENTS);
        // New ones only, of which always one waits.
        turns.push([10, 1, 0, 0].into(), "a");
        for number in 1..600_u16 {
            let [high, low] = number.to_be_bytes();
            turns.push([10, 1, high, low].into(), "a");
            assert_eq!(turns.pop(), Some("a"));
        }
    }

    #[test]
    fn l2_addresses_without_end_are_not_remembered() {
        const MANY: usize = 10;
        let mut turns = queues(&[(1, "a"); 20_000]);
        (2..=MANY as u8).for_each(|last| (0..20_000).for_each(|_| turns.push(client(last), "a")));
        for number in 0..20_000_u32 {
            for network in [[10, 1], [10, 2]] {
                let host = (number as u16).to_be_bytes();
                turns.push([network[0], network[1], host[0], host[1]].into(), "new");
            }
            assert!(turns.pop().is_some() && turns.pop().is_some());
        }
        let (of_client, waiting) = (turns.of_client.len(), turns.new.len());
        assert_eq!(turns.old.len(), of_client - waiting);
        assert!(turns.old.len() <= MANY * usize::from(IN_TURN), "{}", turns.old.len());
    }
}
