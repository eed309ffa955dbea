//! How many queries a server is given at once: halved while it answers nothing, doubled as fast while it answers, so that a
//! dead server fills up alone and a recovered one is not met by a herd. Silence for some names, while others are answered,
//! halves nothing: the server is up. A reply that comes late undoes what its query halved: the server is slow. Pure: time
//! comes as an argument.

use std::time::{Duration, Instant};

/// Sends in progress to one server, at most, for all of its groups together: half of the ids of one port.
const MOST: usize = 32_768;
/// Fewest places: enough to notice that the server answers again.
const FEWEST: usize = 16;
/// Least time between two halvings, and between a halving or a doubling and the next doubling. A server that has replied to
/// anything within this time is not silent.
const PERIOD: Duration = Duration::from_millis(500);

/// The places of one server.
#[derive(Debug)]
pub(in crate::forward) struct Window {
    /// Limit of `places`.
    most: usize,
    places: usize,
    taken: usize,
    halved: Option<Halved>,
    /// When a reply last doubled them.
    doubled: Option<Instant>,
    replied: Option<Instant>,
}

/// When the window was last halved.
#[derive(Clone, Copy, Debug)]
struct Halved {
    at: Instant,
    /// How many places there were before the server was silent.
    before: usize,
}

impl Default for Window {
    fn default() -> Window {
        Window { most: MOST, places: MOST, taken: 0, halved: None, doubled: None, replied: None }
    }
}

impl Window {
    /// `most` is how many queries its groups may have in progress. A server that had all its places has all of them again; others
    /// must earn more.
    pub(in crate::forward) fn configure(&mut self, most: usize) {
        let most = most.clamp(FEWEST, MOST);
        let is_full = self.places == self.most;
        self.places = if is_full { most } else { self.places.min(most) };
        self.most = most;
    }

    /// Whether a place can be taken.
    pub(in crate::forward) fn is_free(&self) -> bool {
        self.taken < self.places
    }

    /// Takes a place, unless all are taken.
    pub(in crate::forward) fn enter(&mut self) -> bool {
        let is_free = self.is_free();
        self.taken += usize::from(is_free);
        is_free
    }

    /// A query ended: its place is free.
    pub(in crate::forward) fn leave(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// It replied to a query of a client, or to a probe: both show that it answers. Each reply gives one place more. The first
    /// one of each period doubles them, so that a server that has few queries gets its places back as fast as it lost them.
    /// Where all places are in use, one for each reply doubles them in a round trip anyway: so no herd comes from this.
    pub(in crate::forward) fn replied(&mut self, now: Instant) {
        self.replied = Some(now);
        let changed = self.halved.map(|halved| halved.at).max(self.doubled);
        let more = match changed.is_none_or(|at| now >= at + PERIOD) {
            true => {
                self.doubled = Some(now);
                self.places
            }
            false => 1,
        };
        self.places = (self.places + more).min(self.most);
    }

    /// It replied late to a query that was sent at `sent`: it gets back the places that it lost because of that query.
    pub(in crate::forward) fn was_slow(&mut self, sent: Instant) {
        if let Some(halved) = &mut self.halved
            && sent <= halved.at
        {
            self.places = self.places.max(halved.before).min(self.most);
            halved.before = self.places;
        }
    }

    /// It did not reply in time to a query that was sent at `sent`, or that query failed. Its places are halved only if it has
    /// replied to no other query since then, nor within the last period: a query may fail right after it was sent, when no other
    /// could have had its reply.
    pub(in crate::forward) fn was_silent(&mut self, sent: Instant, now: Instant) {
        let is_sign = |replied: Instant| replied >= sent || now < replied + PERIOD;
        let answers = self.replied.is_some_and(is_sign);
        if !answers && self.halved.is_none_or(|halved| now >= halved.at + PERIOD) {
            let before = self.halved.map_or(0, |halved| halved.before).max(self.places);
            self.halved = Some(Halved { at: now, before });
            self.places = (self.places / 2).max(FEWEST);
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

    /// The places of a server whose groups may have this many queries in progress.
    const ALL: usize = 1024;

    fn window() -> Window {
        let mut window = Window::default();
        window.configure(ALL);
        window
    }

    #[test]
    fn l16_a_slow_server_keeps_its_places() {
        let start = Instant::now();
        let mut window = window();
        // A minute in which one query a second is answered after 700 ms, and nothing else is asked.
        for second in 0..60 {
            let sent = start + Duration::from_secs(second);
            window.was_silent(sent, sent + PERIOD);
            assert_eq!(window.places(), ALL / 2, "in second {second}");
            window.was_slow(sent);
            window.replied(sent + Duration::from_millis(700));
            assert_eq!(window.places(), ALL, "in second {second}");
        }
        // Several queries in a row got no reply. The first late reply undoes every halving.
        for step in 0..3 {
            let sent = start + Duration::from_secs(61) + PERIOD * step;
            window.was_silent(sent, sent + PERIOD);
        }
        assert_eq!(window.places(), ALL / 8);
        window.was_slow(start + Duration::from_secs(61));
        assert_eq!(window.places(), ALL);
        // A query that was sent after the halving does not undo it.
        window.was_silent(start + Duration::from_secs(70), start + Duration::from_secs(71));
        window.was_slow(start + Duration::from_secs(72));
        assert_eq!(window.places(), ALL / 2);
    }

    #[test]
    fn fw52_a_server_is_given_what_its_groups_may_have_in_progress() {
        let mut window = Window::default();
        for (most, places) in [(4_096, 4_096), (100, 100), (5_000, 5_000), (1, FEWEST)] {
            window.configure(most);
            assert_eq!(window.places(), places);
        }
        window.configure(usize::MAX);
        assert_eq!(window.places(), MOST);
        let start = Instant::now();
        window.was_silent(start, start + PERIOD);
        window.configure(MOST - 1);
        assert_eq!(window.places(), MOST / 2, "more only for replies");
    }

    #[test]
    fn l16_a_silent_server_is_given_less_and_less_and_a_recovered_one_more_again() {
        let start = Instant::now();
        let mut window = window();
        (0..ALL).for_each(|_| assert!(window.enter()));
        assert!(!window.enter(), "all places are taken");
        for (step, places) in [512, 256, 128, 64, 32, 16, 16].into_iter().enumerate() {
            let now = start + PERIOD * step as u32;
            (0..100).for_each(|_| window.was_silent(start, now));
            assert_eq!(window.places(), places);
        }
        (0..ALL).for_each(|_| window.leave());
        for _ in 0..FEWEST {
            assert!(window.enter());
        }
        assert!(!window.enter());
        // It was halved for the last time half a period ago.
        let now = start + PERIOD * 6 + PERIOD / 2;
        for _ in 0..FEWEST {
            window.leave();
            window.replied(now);
        }
        assert_eq!((window.places(), window.taken()), (2 * FEWEST, 0), "twice after a round");
        (0..2 * ALL).for_each(|_| window.replied(now));
        assert_eq!(window.places(), ALL);
    }

    #[test]
    fn l16_a_server_gets_its_places_back_as_fast_as_it_lost_them() {
        let start = Instant::now();
        let mut window = window();
        let halvings = (ALL / FEWEST).ilog2();
        (1..=halvings).for_each(|step| window.was_silent(start, start + PERIOD * step));
        assert_eq!(window.places(), FEWEST);
        // Few clients ask it: it replies ten times a second.
        let answers_from = start + PERIOD * (halvings + 1);
        for period in 0..halvings {
            let before = window.places();
            for reply in 0..5 {
                window.replied(answers_from + PERIOD * period + PERIOD / 5 * reply);
            }
            assert_eq!(window.places(), (2 * before + 4).min(ALL), "in period {period}");
        }
        assert_eq!(window.places(), ALL);
    }

    #[test]
    fn l16_a_server_that_answers_again_gets_no_herd() {
        let start = Instant::now();
        let mut window = window();
        (1..=20).for_each(|step| window.was_silent(start, start + PERIOD * step));
        // It was away for ten seconds. A hundred replies come at the same moment.
        let now = start + PERIOD * 60;
        (0..100).for_each(|_| window.replied(now));
        assert_eq!(window.places(), 2 * FEWEST + 99, "doubled once");
        window.replied(now + PERIOD - Duration::from_millis(1));
        assert_eq!(window.places(), 2 * FEWEST + 100, "not yet again");
        window.replied(now + PERIOD);
        assert_eq!(window.places(), 2 * (2 * FEWEST + 100));
    }

    #[test]
    fn l16_a_server_that_answers_keeps_its_places_while_streams_to_it_fail_at_once() {
        let start = Instant::now();
        let mut window = window();
        // One minute of 50 answers and 50 refused connections in each second.
        for step in 0..60 * 50 {
            let now = start + Duration::from_millis(20) * step;
            window.replied(now);
            let refused = now + Duration::from_millis(1);
            window.was_silent(refused, refused + Duration::from_micros(100));
        }
        assert_eq!(window.places(), ALL);
        let last = start + Duration::from_millis(20) * (60 * 50 - 1);
        window.was_silent(last + PERIOD, last + PERIOD);
        assert_eq!(window.places(), ALL / 2, "it has answered nothing for a period");
    }

    #[test]
    fn l16_silence_for_some_names_leaves_a_server_that_answers_others_its_places() {
        let start = Instant::now();
        let mut window = window();
        // One minute of 50 answers and 5 names without one in each second.
        for step in 0..60 * 50 {
            let now = start + Duration::from_millis(20) * step;
            window.replied(now);
            if step % 10 == 0 {
                window.was_silent(now - PERIOD, now);
            }
        }
        assert_eq!(window.places(), ALL);
        let later = start + Duration::from_secs(61);
        window.was_silent(later, later + PERIOD);
        assert_eq!(window.places(), ALL / 2, "no reply to anything since");
    }
}
