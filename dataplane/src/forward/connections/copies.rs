//! How many queries to one server may be asked again alone: many while that helps. A client that it does not help has few in any
//! case (L16).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections that are made for copies at the same time.
const MAX_TURNS: usize = 4;
/// Times that a server is tried one after the other, where no copy has helped lately.
const MAX_TRIALS: u32 = 4;
/// Time until it may be tried once more.
const EVERY: Duration = Duration::from_secs(1);
/// Copies since one has helped, for all clients.
const MAX_COPIES: u32 = 128;
/// How many of these are for one client, since one has helped it.
const MAX_OF_CLIENT: u32 = 16;
/// For how many clients that is known. All others are taken for one.
const MAX_CLIENTS: usize = 256;
/// Time for which one that helped shows how the server works. Clients are forgotten after the same time.
const HELPS: Duration = Duration::from_secs(10);

/// All clients after [`MAX_CLIENTS`].
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// The copies that there may still be.
#[derive(Debug)]
pub(super) struct Copies {
    left: Mutex<Left>,
    turns: Arc<Semaphore>,
}

#[derive(Debug)]
struct Left {
    copies: u32,
    trials: u32,
    /// When `trials` was right.
    at: Option<Instant>,
    /// What each client has taken since `clients_since`, or since one has helped it.
    clients: HashMap<IpAddr, u32>,
    clients_since: Option<Instant>,
    helped: Option<Instant>,
}

impl Default for Copies {
    fn default() -> Copies {
        let left = Mutex::new(Left {
            copies: MAX_COPIES,
            trials: MAX_TRIALS,
            at: None,
            clients: HashMap::new(),
            clients_since: None,
            helped: None,
        });
        Copies { left, turns: Arc::new(Semaphore::new(MAX_TURNS)) }
    }
}

impl Copies {
    /// Waits for its turn to make a connection.
    pub(super) async fn turn(&self) -> OwnedSemaphorePermit {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        turn.expect("it is never closed")
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().expect("nothing panics while it holds this")
    }

    /// Whether the server may be tried, where no copy has helped lately.
    pub(super) fn try_one(&self, now: Instant) -> bool {
        let mut left = self.left();
        left.earn(now);
        let has_one = left.trials > 0;
        left.trials -= u32::from(has_one);
        has_one
    }

    /// Takes one for this client; whether there was one.
    pub(super) fn take(&self, client: IpAddr, now: Instant) -> bool {
        let mut left = self.left();
        left.forget(now);
        let has_one = left.copies > 0 && left.count(client);
        left.copies -= u32::from(has_one);
        has_one
    }

    /// One that was taken for this client was not sent.
    pub(super) fn give_back(&self, client: IpAddr) {
        let mut left = self.left();
        left.copies = MAX_COPIES.min(left.copies + 1);
        if let Some(taken) = left.clients.get_mut(&client) {
            *taken = taken.saturating_sub(1);
        }
    }

    /// A copy of this client was answered at once, while its query still waited on its own connection.
    pub(super) fn helped(&self, client: IpAddr, now: Instant) {
        let mut left = self.left();
        (left.copies, left.helped) = (MAX_COPIES, Some(now));
        left.clients.remove(&client);
    }

    /// Whether one has helped lately.
    pub(super) fn has_helped(&self, now: Instant) -> bool {
        let is_lately = |at| now.saturating_duration_since(at) < HELPS;
        self.left().helped.is_some_and(is_lately)
    }
}

impl Left {
    fn earn(&mut self, now: Instant) {
        let at = *self.at.get_or_insert(now);
        let more = now.saturating_duration_since(at).as_millis() / EVERY.as_millis();
        let more = u32::try_from(more).unwrap_or(MAX_TRIALS).min(MAX_TRIALS);
        self.at = Some(if more == MAX_TRIALS { now } else { at + EVERY * more });
        self.trials = MAX_TRIALS.min(self.trials + more);
    }

    /// Forgets what was taken, after a while.
    fn forget(&mut self, now: Instant) {
        let since = *self.clients_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= HELPS {
            self.clients.clear();
            (self.copies, self.clients_since) = (MAX_COPIES, Some(now));
        }
    }

    /// Counts one of this client; whether it may have one.
    fn count(&mut self, client: IpAddr) -> bool {
        let is_known = self.clients.len() < MAX_CLIENTS || self.clients.contains_key(&client);
        let client = if is_known { client } else { OTHERS };
        let taken = self.clients.entry(client).or_default();
        let may_have = *taken < MAX_OF_CLIENT;
        *taken += u32::from(may_have);
        may_have
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn l16_a_server_is_tried_a_few_times() {
        let (copies, start) = (Copies::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let tried = |ms| (0..100).filter(|_| copies.try_one(at(ms))).count();
        assert_eq!((tried(0), tried(999), tried(2_300)), (4, 0, 2));
        assert_eq!(tried(3_000), 1, "what is left of the time counts");
        assert_eq!(tried(60_000), 4);
        assert!(!copies.has_helped(at(60_000)));
        copies.helped(client(0), at(60_000));
        assert!(copies.has_helped(at(69_999)) && !copies.has_helped(at(70_000)));
    }

    #[test]
    fn l16_copies_that_do_not_help_one_client_are_left_for_others() {
        let (copies, start) = (Copies::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        let taken = |of, s| (0..100).filter(|_| copies.take(client(of), at(s))).count();
        assert_eq!((taken(1, 0), taken(1, 9), taken(2, 9)), (16, 0, 16));
        assert_eq!(taken(1, 10), 16, "ten seconds later");
        copies.helped(client(1), at(11));
        assert_eq!((taken(1, 11), taken(1, 11)), (16, 0));
        copies.helped(client(2), at(11));
        assert_eq!((taken(1, 11), taken(2, 11)), (0, 16), "it helped another one");
        let all: usize = (3..100).map(|of| taken(of, 12)).sum();
        assert_eq!(all, 128 - 16, "of all");
        assert_eq!(taken(2, 23), 16, "ten seconds later there are as many");
        copies.give_back(client(2));
        assert_eq!(taken(2, 23), 1);
        for of in 3..400 {
            copies.helped(client(0), at(24));
            taken(of, 24);
            assert!(copies.left().clients.len() <= MAX_CLIENTS + 1);
        }
    }
}
