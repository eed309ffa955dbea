//! How many queries a server is given at once: halved while it answers nothing, raised while it answers, so that a slow or
//! dead server fills up alone and a recovered one is not met by a herd. Silence for some names, while others are
//! answered, halves nothing: the server is up. Pure: time comes as an argument.

use std::time::{Duration, Instant};

/// Sends in progress to one server, at most.
const MOST: usize = 1024;
/// Least number: enough to notice that it answers again.
const FEWEST: usize = 16;
/// Least time between two halvings: queries that were sent before the last one say nothing new.
const HALVED_FOR: Duration = Duration::from_millis(500);

/// The places of one server.
#[derive(Debug)]
pub(in crate::forward) struct Window {
    places: usize,
    taken: usize,
    halved: Option<Instant>,
    replied: Option<Instant>,
}

impl Default for Window {
    fn default() -> Window {
        Window { places: MOST, taken: 0, halved: None, replied: None }
    }
}

impl Window {
    /// Takes a place, unless all are taken.
    pub(in crate::forward) fn enter(&mut self) -> bool {
        let is_free = self.taken < self.places;
        self.taken += usize::from(is_free);
        is_free
    }

    /// Gives a place back.
    pub(in crate::forward) fn leave(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// It replied to a query of a client.
    pub(in crate::forward) fn replied(&mut self, now: Instant) {
        self.replied = Some(now);
        self.widen();
    }

    /// One place more: one for each reply doubles the places in a round trip.
    pub(in crate::forward) fn widen(&mut self) {
        self.places = (self.places + 1).min(MOST);
    }

    /// It did not reply in time to a query that left at `sent`, nor, if it is to have fewer places, to any other since.
    pub(in crate::forward) fn was_silent(&mut self, sent: Instant, now: Instant) {
        let answers = self.replied.is_some_and(|replied| replied >= sent);
        if !answers && self.halved.is_none_or(|halved| now >= halved + HALVED_FOR) {
            self.places = (self.places / 2).max(FEWEST);
            self.halved = Some(now);
        }
    }

    pub(in crate::forward) fn places(&self) -> usize {
        self.places
    }

    pub(in crate::forward) fn taken(&self) -> usize {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l16_a_silent_server_is_given_less_and_less_and_a_recovered_one_more_again() {
        let start = Instant::now();
        let mut window = Window::default();
        (0..MOST).for_each(|_| assert!(window.enter()));
        assert!(!window.enter(), "all places are taken");
        for (step, places) in [512, 256, 128, 64, 32, 16, 16].into_iter().enumerate() {
            let now = start + HALVED_FOR * step as u32;
            (0..100).for_each(|_| window.was_silent(start, now));
            assert_eq!(window.places(), places);
        }
        (0..MOST).for_each(|_| window.leave());
        for _ in 0..FEWEST {
            assert!(window.enter());
        }
        assert!(!window.enter());
        for _ in 0..FEWEST {
            window.leave();
            window.replied(start);
        }
        assert_eq!((window.places(), window.taken()), (2 * FEWEST, 0), "twice after a round");
        (0..2 * MOST).for_each(|_| window.widen());
        assert_eq!(window.places(), MOST);
    }

    #[test]
    fn l16_silence_for_some_names_leaves_a_server_that_answers_others_its_places() {
        let start = Instant::now();
        let mut window = Window::default();
        // One minute of 50 answers and 5 names without one in each second.
        for step in 0..60 * 50 {
            let now = start + Duration::from_millis(20) * step;
            window.replied(now);
            if step % 10 == 0 {
                window.was_silent(now - HALVED_FOR, now);
            }
        }
        assert_eq!(window.places(), MOST);
        let later = start + Duration::from_secs(61);
        window.was_silent(later, later + HALVED_FOR);
        assert_eq!(window.places(), MOST / 2, "no reply to anything since");
    }
}
