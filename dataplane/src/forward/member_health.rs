//! Whether a server answers the queries of one group with errors only (FW28), or not at all, though it answers its probes (FW27).
//! It may refuse the names of one group and answer those of another, so each group knows this of each of its servers. Pure: time
//! comes as an argument.

use std::time::{Duration, Instant};

use super::plan::Standing;
use super::server::Heard;

/// Consecutive error Rcodes to queries of one group, after which the server is failing in it (FW28).
const ERRORS: u32 = 10;
/// Different names of one group in a row whose queries are overdue, after which the server is asked behind others (FW27).
const SILENT_NAMES: usize = 20;
/// Between probes of a server for one group in which it is failing (FW28), and the time for which a silent one is asked behind
/// others (FW27).
const WAIT: Duration = Duration::from_secs(5);
/// The same after several turns that queries of clients proved wrong: each doubles the time, up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// From the query that has the turn of a silent server until another one has it, where nothing came of the first: it found no
/// port, or was not sent for another reason. Longer than a query waits until it is overdue.
const TURN: Duration = Duration::from_secs(1);
/// Between a good probe and the one that ends it where no client asks the server. Shorter than the time for which a server must
/// be failing before the status names it.
const PROBATION: Duration = Duration::from_secs(30);

/// What replies to the queries of one group say about one server.
#[derive(Debug, Default)]
pub(super) struct MemberHealth {
    errors: u32,
    since: Option<Instant>,
    probe_at: Option<Instant>,
    /// Since a good probe, until a reply to a query that was sent after it decides.
    probation_since: Option<Instant>,
    /// Probations that an error ended.
    put_back: u32,
    silence: Silence,
}

/// Queries that are overdue, and no reply to any query of the group between them. It says nothing about whether the server is up:
/// the names may be those of dead domains.
#[derive(Debug, Default)]
struct Silence {
    /// Hashes of the names: one name that is asked again and again is no more than one.
    names: Vec<u64>,
    /// Other servers are asked first until then; in its turn after that, it has one query to reply to.
    behind_until: Option<Instant>,
    /// When a lookup took that turn.
    turn: Option<Instant>,
    put_back: u32,
}

impl Silence {
    fn overdue(&mut self, name: u64, sent: Instant, now: Instant) {
        match self.behind_until {
            Some(_) if self.turn.is_some_and(|turn| turn <= sent) => {
                self.put_back = self.put_back.saturating_add(1);
            }
            // It was sent before, or to the last server that was left.
            Some(_) => return,
            None if self.names.contains(&name) => return,
            None => {
                self.names.push(name);
                if self.names.len() < SILENT_NAMES {
                    return;
                }
            }
        }
        self.turn = None;
        self.behind_until = Some(now + wait(self.put_back));
    }

    /// How a lookup that begins now ranks the server. The first one after each wait takes the turn: clients of others need not
    /// wait to learn what its query shows.
    fn rank(&mut self, now: Instant) -> Standing {
        match self.behind_until {
            None => Standing::Healthy,
            Some(until) if now < until => Standing::Avoided,
            Some(_) => {
                self.turn = Some(now);
                self.behind_until = Some(now + TURN);
                Standing::InTurn
            }
        }
    }
}

/// Until the next turn of a server that had this many turns without a good reply.
fn wait(put_back: u32) -> Duration {
    WAIT.saturating_mul(1 << put_back.min(4)).min(LONGEST_WAIT)
}

impl MemberHealth {
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// How a lookup that begins now ranks the server, which is up. One on probation is asked as a healthy one: a broken resolver
    /// may answer a probe from its cache, so the reply to the next query of a client decides.
    pub(super) fn rank(&mut self, now: Instant) -> Standing {
        match self.since.is_some() && self.probation_since.is_none() {
            true => Standing::Avoided,
            false => self.silence.rank(now),
        }
    }

    /// Records that the query of a client for the name with this hash, which was sent then, is overdue.
    pub(super) fn was_silent(&mut self, name: u64, sent: Instant, now: Instant) {
        self.silence.overdue(name, sent, now);
    }

    /// Records that the server is down: silence before that says nothing about what it answers afterwards.
    pub(super) fn went_down(&mut self) {
        self.silence = Silence::default();
    }

    /// When the next probe is due; none while there is no reason, or one is on its way.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        self.probe_at
    }

    pub(super) fn probe_started(&mut self) {
        self.probe_at = None;
    }

    /// Records a reply to the query of a client, which was sent then.
    pub(super) fn replied(&mut self, is_error: bool, sent: Instant, now: Instant) {
        if !is_error {
            *self = MemberHealth::default();
            return;
        }
        self.silence = Silence::default();
        self.errors = self.errors.saturating_add(1);
        if self.errors >= ERRORS && self.since.is_none() {
            self.since = Some(now);
            self.probe_at = Some(now + wait(self.put_back));
        }
        // An error to a query that was sent before the good probe is no news.
        if self.probation_since.take_if(|since| *since <= sent).is_some() {
            self.put_back = self.put_back.saturating_add(1);
            self.probe_at = Some(now + wait(self.put_back));
        }
    }

    /// Records what came of a probe.
    pub(super) fn probe_ended(&mut self, heard: Heard, now: Instant) {
        // A client's query has ended it, or put the server back, while the probe was on its way.
        if self.since.is_none() || self.probe_at.is_some() {
            return;
        }
        match heard {
            Heard::Good if self.probation_since.is_some() => {
                let silence = std::mem::take(&mut self.silence);
                *self = MemberHealth { silence, ..MemberHealth::default() };
            }
            Heard::Good => {
                self.probation_since = Some(now);
                self.probe_at = Some(now + PROBATION);
            }
            Heard::Error => {
                self.probation_since = None;
                self.probe_at = Some(now + wait(self.put_back));
            }
            Heard::Nothing => self.probe_at = Some(now + wait(self.put_back)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn is_avoided(health: &mut MemberHealth, now: Instant) -> bool {
        health.rank(now) == Standing::Avoided
    }

    /// Failing since then, with a probe on its way.
    fn probed(start: Instant) -> MemberHealth {
        let mut health = MemberHealth::default();
        (0..10).for_each(|_| health.replied(true, start, start));
        health.probe_started();
        health
    }

    #[test]
    fn fw28_ten_errors_in_a_row_are_failing_until_one_good_reply() {
        let start = Instant::now();
        let mut health = MemberHealth::default();
        (0..9).for_each(|_| health.replied(true, start, start));
        assert_eq!(health.since, None);
        health.replied(false, start, start);
        (0..10).for_each(|_| health.replied(true, start, start));
        assert_eq!((health.since, health.probe_at), (Some(start), Some(start + WAIT)));
        assert!(is_avoided(&mut health, start));
        health.probe_started();
        health.replied(true, start + WAIT, start + WAIT);
        assert_eq!(health.probe_at, None, "one probe at a time");
        health.probe_ended(Heard::Error, start + WAIT);
        assert_eq!((health.since, health.probe_at), (Some(start), Some(start + 2 * WAIT)));
        health.probe_started();
        health.replied(false, start, start);
        assert_eq!((health.since, health.probe_at), (None, None), "a query of a client");
        for heard in [Heard::Good, Heard::Error, Heard::Nothing] {
            health.probe_ended(heard, start);
            assert_eq!((health.since, health.probe_at), (None, None), "nothing is left");
        }
    }

    #[test]
    fn fw28_after_a_good_probe_the_next_reply_to_a_client_decides() {
        let start = Instant::now();
        let mut health = probed(start);
        let mut at = start + WAIT;
        for wait_s in [10, 20, 40, 60, 60] {
            health.probe_ended(Heard::Good, at);
            assert!(!is_avoided(&mut health, at) && health.since == Some(start), "it has its turn");
            health.replied(true, at, at);
            assert!(is_avoided(&mut health, at), "one error is enough");
            health.replied(true, after(at, 1), after(at, 1));
            assert_eq!(health.probe_at, Some(after(at, wait_s)));
            at = after(at, wait_s);
            health.probe_started();
            health.probe_ended(Heard::Nothing, at);
            assert_eq!(health.probe_at, Some(after(at, wait_s)), "silence changes nothing");
            health.probe_started();
        }
        assert_eq!(health.since, Some(start), "it is failing all the time");
        health.probe_ended(Heard::Good, at);
        health.replied(false, at, at);
        assert_eq!((health.since, health.probe_at), (None, None));
        (0..10).for_each(|_| health.replied(true, at, at));
        assert_eq!(health.probe_at, Some(at + WAIT), "as if it were the first time");
    }

    #[test]
    fn fw28_a_second_good_probe_ends_it_where_no_client_asks() {
        let start = Instant::now();
        for (second, is_over) in [(Heard::Good, true), (Heard::Error, false)] {
            let mut health = probed(start);
            health.probe_ended(Heard::Good, start);
            assert_eq!(health.probe_at, Some(start + PROBATION));
            health.probe_started();
            health.probe_ended(second, start + PROBATION);
            assert_eq!(
                (health.since.is_none(), is_avoided(&mut health, start + PROBATION)),
                (is_over, !is_over)
            );
        }
    }

    #[test]
    fn fw28_a_probe_that_was_on_its_way_does_not_outweigh_an_error_to_a_client() {
        let start = Instant::now();
        let mut health = probed(start);
        health.probe_ended(Heard::Good, start);
        health.probe_started();
        health.replied(true, start + PROBATION, start + PROBATION);
        health.probe_ended(Heard::Good, start + PROBATION);
        assert!(is_avoided(&mut health, start + PROBATION));
        assert_eq!(health.probe_at, Some(start + PROBATION + 2 * WAIT));
    }

    #[test]
    fn fw28_an_error_to_a_query_that_was_sent_before_the_good_probe_is_no_news() {
        let start = Instant::now();
        let mut health = probed(start);
        let good = start + WAIT;
        health.probe_ended(Heard::Good, good);
        health.replied(true, after(start, 4), after(good, 1));
        assert!(!is_avoided(&mut health, after(good, 1)), "it keeps its turn");
        assert_eq!(health.probe_at, Some(good + PROBATION));
        health.replied(true, good, after(good, 2));
        assert!(is_avoided(&mut health, after(good, 2)), "sent after it");
    }

    fn silent(names: std::ops::Range<u64>, at: Instant, health: &mut MemberHealth) {
        names.for_each(|name| health.was_silent(name, at, at));
    }

    #[test]
    fn fw27_twenty_names_without_a_reply_in_a_row_are_behind_others_until_one_reply() {
        let start = Instant::now();
        for is_error in [false, true] {
            let mut health = MemberHealth::default();
            silent(0..19, start, &mut health);
            silent(0..19, start, &mut health);
            assert!(!is_avoided(&mut health, start), "each name counts once");
            health.replied(is_error, start, start);
            silent(1..20, start, &mut health);
            assert!(!is_avoided(&mut health, start), "from the beginning");
            silent(20..21, start, &mut health);
            assert!(is_avoided(&mut health, start) && !is_avoided(&mut health, start + WAIT));
            assert_eq!((health.since, health.probe_at), (None, None), "it is not failing");
            health.replied(is_error, start, start);
            assert!(!is_avoided(&mut health, start), "a late reply ends it");
        }
    }

    #[test]
    fn fw27_a_silent_server_has_its_turn_again_ever_more_seldom_up_to_a_minute() {
        let mut at = Instant::now();
        let mut health = MemberHealth::default();
        silent(0..20, at, &mut health);
        for wait_s in [5, 10, 20, 40, 60, 60] {
            silent(30..90, at, &mut health);
            let turn = after(at, wait_s);
            assert!(is_avoided(&mut health, turn - Duration::from_millis(1)), "{wait_s}");
            // Sent before the turn, or to the last server that was left.
            health.was_silent(0, turn - Duration::from_millis(1), turn);
            assert_eq!(health.rank(turn), Standing::InTurn, "{wait_s}");
            assert!(is_avoided(&mut health, turn), "one query is enough");
            health.was_silent(0, turn - Duration::from_millis(1), turn);
            at = turn;
            silent(0..1, at, &mut health);
        }
        health.replied(false, at, at);
        silent(0..20, at, &mut health);
        assert_eq!(health.rank(at + WAIT), Standing::InTurn, "as if it were the first time");
    }

    #[test]
    fn fw27_a_turn_of_which_nothing_came_is_for_another_query_soon() {
        let start = Instant::now();
        let mut health = MemberHealth::default();
        silent(0..20, start, &mut health);
        let turn = start + WAIT;
        for second in 0..3 {
            assert_eq!(health.rank(after(turn, second)), Standing::InTurn);
            let before_next = after(turn, second) + Duration::from_millis(999);
            assert!(is_avoided(&mut health, before_next));
        }
        silent(0..1, after(turn, 2), &mut health);
        assert!(is_avoided(&mut health, after(turn, 11)), "the second wait");
        assert_eq!(health.rank(after(turn, 12)), Standing::InTurn);
        health.replied(false, after(turn, 12), after(turn, 12));
        assert_eq!(health.rank(after(turn, 12)), Standing::Healthy, "its reply ends it");
    }

    #[test]
    fn fw27_a_server_that_is_failing_too_keeps_its_turn_until_it_is_not() {
        let start = Instant::now();
        let mut health = probed(start);
        silent(0..20, start, &mut health);
        assert!(is_avoided(&mut health, after(start, 6)));
        health.probe_ended(Heard::Good, after(start, 6));
        assert_eq!(health.rank(after(start, 6)), Standing::InTurn);
        assert!(is_avoided(&mut health, after(start, 6)));
    }
}
