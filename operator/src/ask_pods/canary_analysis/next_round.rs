//! Whose round of questions is next where fewer may run than there are trials. A ClusterDNS that is edited again and again always
//! has a trial: several of them must not keep those of others waiting. Pure.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One that did not ask for its turn for this time does not wait any more: those that wait ask every 2 s.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// Those that wait, in the order in which they came, and when they asked last.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Vec<(String, Instant)>>);

impl Turns {
    /// Whether it is the turn of this one, where this many rounds may begin. If not, it waits from now on.
    pub(super) fn is_next(&self, dns: &str, free: usize, now: Instant) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|(name, asked)| {
            name == dns || now.saturating_duration_since(*asked) < FORGOTTEN_AFTER
        });
        match waiting.iter().position(|(name, _)| name == dns) {
            Some(place) => {
                waiting[place].1 = now;
                place < free
            }
            None => {
                waiting.push((dns.to_owned(), now));
                waiting.len() <= free
            }
        }
    }

    /// Its round begins.
    pub(super) fn begins(&self, dns: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(name, _)| name != dns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o17_one_that_waits_has_its_turn_before_those_that_had_theirs() {
        let (turns, begin) = (Turns::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let has_turn = |dns: &str, free, seconds| {
            let is_next = turns.is_next(dns, free, at(seconds));
            if is_next {
                turns.begins(dns);
            }
            is_next
        };
        assert!(has_turn("a", 2, 0) && has_turn("b", 1, 0));
        assert!(!has_turn("c", 0, 1));
        // The round of a is over: it asks again at once, and c, which waits, a moment later.
        assert!(!has_turn("a", 1, 2));
        assert!(has_turn("c", 1, 3));
        assert!(has_turn("a", 1, 4));
        // One that waited and is gone keeps a place for a moment only.
        assert!(!has_turn("d", 0, 5));
        assert!(!has_turn("a", 1, 6) && has_turn("a", 2, 7));
        assert!(!has_turn("d", 0, 20) && !has_turn("a", 1, 29));
        assert!(has_turn("a", 1, 30));
    }
}
