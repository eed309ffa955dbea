//! Which HTTP connections there are, and which is closed when there are too many: shares by client, so that a client
//! that opens many closes its own. Kubelet is a client of its own, as every address is.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most connections of all clients together.
    pub(super) connections: usize,
    pub(super) per_client: usize,
}

/// Open connections, each with a mark; dropping the mark closes it.
#[derive(Debug)]
pub(super) struct Places<M> {
    limits: Limits,
    /// By number, so the oldest is first.
    open: VecDeque<Place<M>>,
    of_client: HashMap<IpAddr, usize>,
    next: u64,
}

#[derive(Debug)]
struct Place<M> {
    number: u64,
    client: IpAddr,
    _mark: M,
}

impl<M> Places<M> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: VecDeque::new(), of_client: HashMap::new(), next: 0 }
    }

    /// Adds a new connection, and closes another one if there are too many; returns its number.
    pub(super) fn admit(&mut self, client: IpAddr, mark: M) -> u64 {
        if let Some(index) = self.gives_way(client) {
            self.remove(index);
        }
        let number = self.next;
        self.next += 1;
        self.open.push_back(Place { number, client, _mark: mark });
        *self.of_client.entry(client).or_insert(0) += 1;
        number
    }

    /// Gives a place back that may be gone already.
    pub(super) fn leave(&mut self, number: u64) {
        if let Ok(index) = self.open.binary_search_by_key(&number, |place| place.number) {
            self.remove(index);
        }
    }

    /// Which connection closes. At the limit of a client: its oldest. At the limit of all: the newest of the client
    /// with the most; if no client has more than this one would have, the oldest of the clients that have as many.
    fn gives_way(&self, client: IpAddr) -> Option<usize> {
        let of = |client: &IpAddr| self.of_client.get(client).copied().unwrap_or(0);
        let would_have = of(&client) + 1;
        if would_have > self.limits.per_client {
            return self.open.iter().position(|place| place.client == client);
        }
        if self.open.len() < self.limits.connections {
            return None;
        }
        let most = self.of_client.values().copied().max().unwrap_or(0);
        if most > would_have {
            return self.open.iter().rposition(|place| of(&place.client) == most);
        }
        self.open.iter().position(|place| place.client == client || of(&place.client) == most)
    }

    fn remove(&mut self, index: usize) {
        let Some(place) = self.open.remove(index) else { return };
        if let Some(count) = self.of_client.get_mut(&place.client) {
            *count -= 1;
            if *count == 0 {
                self.of_client.remove(&place.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { connections: 6, per_client: 3 };

    /// The numbers of the connections that are open after these clients connected one after another.
    fn after(clients: &[u8]) -> Vec<u64> {
        let mut places = Places::new(LIMITS);
        for client in clients {
            places.admit([10, 0, 0, *client].into(), ());
        }
        assert_eq!(places.of_client.values().sum::<usize>(), places.open.len());
        places.open.iter().map(|place| place.number).collect()
    }

    #[test]
    fn l14_each_client_gives_way_to_itself_and_the_largest_to_others() {
        for (clients, left) in [
            (&[1, 2, 1][..], &[0, 1, 2][..]),
            // A client at its limit: its oldest connection closes.
            (&[2, 1, 1, 1, 1, 1], &[0, 3, 4, 5]),
            // All places are taken: the newest connection of the client with the most closes.
            (&[1, 1, 1, 2, 2, 3, 4], &[0, 1, 3, 4, 5, 6]),
            // Six clients with one connection each: the oldest closes.
            (&[1, 2, 3, 4, 5, 6, 7, 8], &[2, 3, 4, 5, 6, 7]),
            // The new client would itself have the most: its oldest closes.
            (&[1, 1, 2, 2, 3, 3, 1], &[1, 2, 3, 4, 5, 6]),
        ] {
            assert_eq!(after(clients), left, "{clients:?}");
        }
    }

    #[test]
    fn l14_the_one_connection_of_a_client_stays_when_another_opens_many() {
        let flood = [&[9][..], &[1; 1000]].concat();
        assert_eq!(after(&flood)[0], 0);
    }

    #[test]
    fn a_place_given_back_is_free_and_may_be_given_back_twice() {
        let mut places = Places::new(LIMITS);
        let client = IpAddr::from([10, 0, 0, 1]);
        for _ in 0..3 {
            let first = places.admit(client, ());
            places.leave(first);
            places.leave(first);
        }
        assert!(places.open.is_empty() && places.of_client.is_empty());
    }
}
