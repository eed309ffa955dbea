//! What waits until an upstream is asked: clients have turns. One that asks for thousands of names at once delays its own
//! queries, and not those of others (L2).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Items in the order of their clients' turns. Each holds a place (FW52), so places bound how many there are.
#[derive(Debug)]
pub(super) struct ClientQueues<T> {
    /// Clients of which something waits, the next one first.
    next: VecDeque<IpAddr>,
    of_client: HashMap<IpAddr, VecDeque<T>>,
}

impl<T> ClientQueues<T> {
    pub(super) fn new() -> Self {
        Self { next: VecDeque::new(), of_client: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    pub(super) fn push(&mut self, client: IpAddr, item: T) {
        match self.of_client.entry(client) {
            Entry::Occupied(mut waiting) => waiting.get_mut().push_back(item),
            Entry::Vacant(none) => {
                none.insert(VecDeque::from([item]));
                self.next.push_back(client);
            }
        }
    }

    /// The oldest of the client whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let client = self.next.pop_front()?;
        let Entry::Occupied(mut waiting) = self.of_client.entry(client) else { return None };
        let item = waiting.get_mut().pop_front();
        match waiting.get().is_empty() {
            true => drop(waiting.remove()),
            false => self.next.push_back(client),
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_turns_and_each_keeps_its_order() {
        let client = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut turns = ClientQueues::new();
        for (last, item) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")] {
            turns.push(client(last), item);
        }
        assert_eq!([turns.pop(), turns.pop()], [Some("a1"), Some("b1")]);
        // One that has nothing waiting begins at the end.
        turns.push(client(4), "d1");
        let rest: Vec<&str> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(rest, ["c1", "a2", "b2", "d1", "a3"]);
        assert!(turns.is_empty() && turns.of_client.is_empty(), "no client is kept");
    }
}
