//! How many handshakes a client may begin: each costs a signature, so each client has a bucket of tokens. Time is an
//! argument.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::super::super::Limits;

/// Clients whose buckets are kept. Those for whom there is no place share one bucket.
const MAX_CLIENTS: usize = 4096;
/// Between two removals of buckets that are full again: it walks all of them.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Handshakes that a connection counts as which was closed because its client made it expensive: it may open one a second.
const COSTLY: u32 = 64;

/// The buckets of all clients. A client is one address, as in the table of connections.
#[derive(Debug)]
pub(in super::super) struct Rates(Mutex<Buckets>);

/// A bucket is kept as the time when it is full again: there is nothing to refill.
#[derive(Debug)]
struct Buckets {
    full_at: HashMap<IpAddr, Instant>,
    others_full_at: Instant,
    sweep_at: Instant,
}

impl Rates {
    pub(in super::super) fn new(now: Instant) -> Rates {
        let full_at = HashMap::new();
        Rates(Mutex::new(Buckets { full_at, others_full_at: now, sweep_at: now }))
    }

    /// Takes a token of this client; whether there was one.
    pub(in super::super) fn may_begin(
        &self,
        client: IpAddr,
        limits: &Limits,
        now: Instant,
    ) -> bool {
        let every = limits.handshake_every;
        let capacity = every * limits.handshake_burst;
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.of(client, now);
        let next = (*full_at).max(now) + every;
        let has_token = next <= now + capacity;
        if has_token {
            *full_at = next;
        }
        has_token
    }

    /// Takes more tokens of a client whose connection was expensive, also some that it does not have yet.
    pub(in super::super) fn charge(&self, client: IpAddr, limits: &Limits, now: Instant) {
        let every = limits.handshake_every;
        let most = 2 * every * limits.handshake_burst;
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.of(client, now);
        *full_at = ((*full_at).max(now) + every * COSTLY).min(now + most);
    }
}

impl Buckets {
    fn of(&mut self, client: IpAddr, now: Instant) -> &mut Instant {
        if self.full_at.len() >= MAX_CLIENTS && now >= self.sweep_at {
            self.sweep_at = now + SWEEP_EVERY;
            // A full bucket means the same as no bucket.
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        let has_place = self.full_at.len() < MAX_CLIENTS || self.full_at.contains_key(&client);
        if has_place { self.full_at.entry(client).or_insert(now) } else { &mut self.others_full_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + number).to_be_bytes())
    }

    /// Asks to begin this many handshakes at this time; returns how many may.
    fn begun(rates: &Rates, client: IpAddr, tries: u32, now: Instant) -> usize {
        let limits = Limits::default();
        (0..tries).filter(|_| rates.may_begin(client, &limits, now)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn t8_a_client_begins_256_handshakes_at_once_and_64_each_second() {
        let now = Instant::now();
        let rates = Rates::new(now);
        assert_eq!(begun(&rates, client(1), 1000, now), 256);
        assert_eq!(begun(&rates, client(2), 10, now), 10, "others have their own");
        assert_eq!(begun(&rates, client(1), 1000, now + Duration::from_millis(500)), 32);
        assert_eq!(begun(&rates, client(1), 1000, now + Duration::from_millis(1500)), 64);
        let later = now + Duration::from_secs(3600);
        assert_eq!(begun(&rates, client(1), 1000, later), 256, "no more is saved than a burst");
    }

    #[tokio::test(start_paused = true)]
    async fn t8_a_client_whose_connections_are_expensive_begins_few() {
        let (rates, limits) = (Rates::new(Instant::now()), Limits::default());
        let costly = |now| {
            let begins = rates.may_begin(client(1), &limits, now);
            if begins {
                rates.charge(client(1), &limits, now);
            }
            begins
        };
        let now = Instant::now();
        assert_eq!((0..1000).filter(|_| costly(now)).count(), 4, "of 256 at once");
        let later = |second| now + Duration::from_secs(second);
        let tries = (1..=100).flat_map(|second| [second; 100]).map(later);
        assert!((90..=100).contains(&tries.filter(|now| costly(*now)).count()), "one a second");
        for _ in 0..1000 {
            rates.charge(client(1), &limits, later(100));
        }
        assert_eq!(begun(&rates, client(1), 1000, later(104)), 0);
        assert_eq!(begun(&rates, client(1), 1000, later(108)), 256, "it is not refused for long");
        assert_eq!(begun(&rates, client(2), 1000, later(100)), 256, "others have their own");
    }

    #[tokio::test(start_paused = true)]
    async fn t8_buckets_of_handshakes_are_bounded_and_a_crowd_gains_nothing_by_size() {
        let now = Instant::now();
        let rates = Rates::new(now);
        let count = |rates: &Rates| rates.0.lock().unwrap().full_at.len();
        for number in 0..MAX_CLIENTS as u32 {
            assert_eq!(begun(&rates, client(number), 1, now), 1);
        }
        // Clients without a bucket of their own share one, however many they are.
        let crowd = MAX_CLIENTS as u32..10 * MAX_CLIENTS as u32;
        let all: usize = crowd.map(|number| begun(&rates, client(number), 1, now)).sum();
        assert_eq!((all, count(&rates)), (256, MAX_CLIENTS));
        assert_eq!(begun(&rates, client(0), 1000, now), 255, "a known client keeps its own");
        let later = now + Duration::from_secs(1);
        assert_eq!(begun(&rates, client(1_000_000), 1000, later), 256, "there is a place again");
        assert_eq!(count(&rates), 2, "full buckets are not kept");
    }
}
