//! Lookups that wait for a place at a server. A place that becomes free is given to one of them, before any other query can
//! take it. Clients have turns: each that has lookups here gets one place, then the next client. So a client with a thousand
//! lookups delays one of another client by one place. The lookups of one client have places in the order in which they came.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::{Sent, Server, ServerState};

/// Those who wait. While there are any, no place is free. Lookups that wait bound its size: it has only clients with one.
#[derive(Debug, Default)]
pub(super) struct PlaceQueue {
    /// Clients by their turns; the lowest is next.
    turns: BTreeMap<u64, IpAddr>,
    clients: HashMap<IpAddr, OfClient>,
    /// The next turn of a client, and the next number of a lookup.
    next: u64,
}

/// The lookups of one client, at least one.
#[derive(Debug)]
struct OfClient {
    turn: u64,
    /// By their numbers; the lowest came first.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

impl PlaceQueue {
    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Adds a lookup of this client behind its others; returns its number. A client that has none here comes after all other
    /// clients, once.
    fn join(&mut self, client: IpAddr, give: oneshot::Sender<()>) -> u64 {
        let number = self.next;
        self.next += 1;
        let of_client = self.clients.entry(client).or_insert_with(|| {
            self.turns.insert(number, client);
            OfClient { turn: number, waiting: BTreeMap::new() }
        });
        of_client.waiting.insert(number, give);
        number
    }

    /// Takes the first lookup of the client that is next, which then comes after all other clients.
    fn pop(&mut self) -> Option<oneshot::Sender<()>> {
        let (_, client) = self.turns.pop_first()?;
        let Entry::Occupied(mut of_client) = self.clients.entry(client) else { return None };
        let first = of_client.get_mut().waiting.pop_first();
        if of_client.get().waiting.is_empty() {
            of_client.remove();
        } else {
            of_client.get_mut().turn = self.next;
            self.turns.insert(self.next, client);
            self.next += 1;
        }
        first.map(|(_, give)| give)
    }

    /// Takes out a lookup that ended; false if it was given a place before.
    fn leave(&mut self, client: IpAddr, number: u64) -> bool {
        let Entry::Occupied(mut of_client) = self.clients.entry(client) else { return false };
        let is_there = of_client.get_mut().waiting.remove(&number).is_some();
        if of_client.get().waiting.is_empty() {
            self.turns.remove(&of_client.remove().turn);
        }
        is_there
    }
}

impl ServerState {
    /// Gives free places to those who wait. It must be called after all that may have made one free.
    pub(super) fn give_places(&mut self) {
        while !self.turns.is_empty() && self.window.enter() {
            if let Some(next) = self.turns.pop() {
                // It is there: who leaves takes itself off this list first.
                let _ = next.send(());
            }
        }
    }
}

/// A lookup in the queue of a server. As a future it is ready when it has a place. Dropped it leaves the queue, and a place
/// that it did not use is for the next.
#[derive(Debug)]
pub(in crate::forward) struct Waiting {
    server: Arc<Server>,
    client: IpAddr,
    number: u64,
    given: oneshot::Receiver<()>,
    is_used: bool,
}

impl Server {
    /// Joins the queue for places, as a lookup of this client: behind all of its others.
    pub(in crate::forward) fn wait(self: &Arc<Self>, client: IpAddr) -> Waiting {
        let (give, given) = oneshot::channel();
        let mut state = self.state();
        let number = state.turns.join(client, give);
        // One may be free since the lookup has looked.
        state.give_places();
        drop(state);
        Waiting { server: Arc::clone(self), client, number, given, is_used: false }
    }
}

impl Waiting {
    /// Uses the place for one query of a client. It must be ready.
    pub(in crate::forward) fn send(mut self, with_edns: bool) -> Sent {
        self.is_used = true;
        self.server.sent_now(with_edns)
    }
}

impl Future for Waiting {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.given).poll(context).map(|_| ())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_used {
            return;
        }
        let mut state = self.server.state();
        if !state.turns.leave(self.client, self.number) {
            state.window.leave();
            state.give_places();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::now;
    use super::super::tests::full;
    use super::*;

    fn client(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[tokio::test]
    async fn fw52_a_client_with_many_lookups_delays_another_by_one_place() {
        let (server, mut taken) = full();
        let mut many: Vec<Waiting> = (0..100).map(|_| server.wait(client(1))).collect();
        let mut one = server.wait(client(2));
        drop(taken.pop());
        assert!(futures::poll!(&mut many[0]).is_ready() && futures::poll!(&mut one).is_pending());
        drop(taken.pop());
        assert!(futures::poll!(&mut one).is_ready(), "the second place");
        // It asks again and again, one name at a time. Both have every other place.
        let mut used = vec![one.send(true)];
        for round in 1..5 {
            let mut one = server.wait(client(2));
            drop(taken.pop());
            assert!(futures::poll!(&mut many[round]).is_ready(), "round {round}");
            assert!(futures::poll!(&mut one).is_pending(), "round {round}");
            drop(taken.pop());
            assert!(futures::poll!(&mut one).is_ready(), "round {round}");
            assert!(futures::poll!(&mut many[round + 1]).is_pending(), "round {round}");
            used.push(one.send(true));
        }
    }

    #[tokio::test]
    async fn fw52_who_leaves_the_queue_changes_no_turn_of_others_and_leaves_nothing() {
        let (server, mut taken) = full();
        let mut of_one: Vec<Waiting> = (0..5).map(|_| server.wait(client(1))).collect();
        let mut of_two: Vec<Waiting> = (0..2).map(|_| server.wait(client(2))).collect();
        let mut of_three = server.wait(client(3));
        // From the middle, from the front, and the only one of a client.
        drop((of_one.remove(2), of_one.remove(0), server.wait(client(4))));
        let clients = server.state().turns.clients.len();
        assert_eq!(clients, 3);
        let [a, b, c] = &mut of_one[..] else { panic!("three are left") };
        let [d, e] = &mut of_two[..] else { panic!("two") };
        for next in [a, d, &mut of_three, b, e, c] {
            assert!(futures::poll!(&mut *next).is_pending());
            drop(taken.pop());
            assert!(futures::poll!(next).is_ready());
        }
        let left = {
            let turns = &server.state().turns;
            (turns.turns.len(), turns.clients.len())
        };
        assert_eq!(left, (0, 0));
        drop((of_one, of_two, of_three));
        assert_eq!(server.seen(now()).in_flight, taken.len());
    }

    /// Its lookups end after four seconds without a place. That costs it no turn.
    #[tokio::test]
    async fn fw52_a_client_whose_lookups_never_had_a_place_keeps_its_turn() {
        let (server, mut taken) = full();
        let mut last = server.wait(client(1));
        let mut first_of_other = server.wait(client(2));
        let mut second_of_other = server.wait(client(2));
        for _ in 0..1_000 {
            // The one before leaves after that.
            last = server.wait(client(1));
        }
        for next in [&mut last, &mut first_of_other, &mut second_of_other] {
            drop(taken.pop());
            assert!(futures::poll!(next).is_ready());
        }
    }
}
