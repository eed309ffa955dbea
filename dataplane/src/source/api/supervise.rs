//! What to do after a request or a stream failed: wait how long, and then continue from the last
//! version or list again (E23). Pure: time and chance are arguments.

use std::time::{Duration, Instant};

use process::items::NoList;
use process::version::{self, MAX_STARTS, Verdict};

/// The first wait is anywhere below this, the next ones below its doubles ...
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// ... up to this.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Shortest wait if the API server refuses us or does not make sense, because a random wait may be zero.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
/// New lists in a row without a wait, if an answer asks for them; further ones wait as after a failure.
const MAX_RELISTS_AT_ONCE: u32 = 3;
/// Doublings until the longest wait.
const MAX_DOUBLINGS: u32 = 5;
/// A server's Retry-After is honoured up to this: a longer one is taken for a mistake.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);
/// Time without a failure after which the next one counts as the first.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);
/// A watch that ends in order sooner than this is a failure: the server would be asked in a loop.
const SHORTEST_WATCH: Duration = Duration::from_secs(5);
/// A watch that ends in order sooner than this did not end by its own time: API servers may have been restarted, with
/// another etcd (K22). A little less than the time that it asks for.
const WHOLE_WATCH: Duration = Duration::from_secs(170);

/// Why a list or a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The API server said so.
    Status {
        /// HTTP status, or the `code` of an error event.
        code: u16,
        /// The message of the Status object.
        message: String,
        /// Retry-After, where there was one.
        retry_after: Option<Duration>,
    },
    /// No connection, or none any more.
    Link(String),
    /// The answer makes no sense.
    Garbage(String),
    /// A watch ended in order.
    End,
    /// A watch gave nothing for longer than bookmarks take.
    Silence,
    /// A new list is due, or was requested.
    Relist,
}

impl From<NoList> for Failure {
    fn from(error: NoList) -> Failure {
        Failure::Garbage(error.to_string())
    }
}

/// What the stream was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum During {
    /// A list of objects, page by page.
    List,
    /// A look at the version held, before a watch. It names no version, so its failure says nothing about one.
    Look,
    /// A watch that was not accepted yet.
    Start,
    /// An accepted watch, since then.
    Watch {
        /// When the API server accepted it.
        since: Instant,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// How long to wait first.
    pub(super) after: Duration,
    /// List; otherwise watch from the last version.
    pub(super) relist: bool,
}

/// The memory of one stream's failures.
#[derive(Debug, Default)]
pub(super) struct Supervisor {
    failures: u32,
    failed_starts: u32,
    /// Lists again that a list itself asked for, since the last one that was complete.
    relists: u32,
    /// The API server may not have the version held any more, and would accept a watch there and stay silent (K22).
    is_in_doubt: bool,
}

impl Supervisor {
    /// The data has changed: another version is held now.
    pub(super) fn moved(&mut self) {
        self.failed_starts = 0;
        self.relists = 0;
    }

    /// Whether a look must confirm the version held before a watch continues at it.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// The API server has the version held, or everything was listed.
    pub(super) fn confirmed(&mut self) {
        self.is_in_doubt = false;
    }

    /// Decides; `chance` is in [0, 1).
    pub(super) fn next(
        &mut self,
        failure: &Failure,
        during: During,
        now: Instant,
        chance: f64,
    ) -> Next {
        let was_healthy = match during {
            During::Watch { since } => now.saturating_duration_since(since) >= HEALTHY_AFTER,
            During::List | During::Look | During::Start => false,
        };
        if was_healthy {
            self.failures = 0;
        }
        self.is_in_doubt |= raises_doubt(failure, during, now);
        let relist = during == During::List || self.is_version_lost(failure, during);
        if relist {
            self.failed_starts = 0;
        }
        let is_harmless = match (failure, during) {
            // It is a reset (K22): one whose versions go down each time would be listed in a loop.
            (Failure::Relist, During::List) => {
                self.relists = self.relists.saturating_add(1);
                self.relists <= MAX_RELISTS_AT_ONCE
            }
            (Failure::Relist, During::Look | During::Start | During::Watch { .. }) => true,
            (Failure::Silence, During::Watch { .. }) => true,
            (Failure::End, During::Watch { since }) => {
                now.saturating_duration_since(since) >= SHORTEST_WATCH
            }
            _ => false,
        };
        let after = if is_harmless { Duration::ZERO } else { self.wait(failure, chance) };
        Next { after, relist }
    }

    /// Whether a watch can begin at the version held no more.
    fn is_version_lost(&mut self, failure: &Failure, during: During) -> bool {
        let verdict = match failure {
            Failure::Relist => Verdict::Lost,
            Failure::Status { code, message, .. } => version::verdict(*code, message),
            Failure::Link(_) | Failure::End | Failure::Silence => Verdict::SaysNothing,
            Failure::Garbage(_) => Verdict::MayBeLost,
        };
        match verdict {
            Verdict::Lost => true,
            Verdict::SaysNothing => false,
            Verdict::MayBeLost => {
                if matches!(during, During::Start | During::Watch { .. }) {
                    self.failed_starts += 1;
                }
                self.failed_starts >= MAX_STARTS
            }
        }
    }

    /// Full jitter: clients that failed together come back at different times.
    fn wait(&mut self, failure: &Failure, chance: f64) -> Duration {
        let most = (FIRST_WAIT * (1 << self.failures.min(MAX_DOUBLINGS))).min(MAX_WAIT);
        self.failures = self.failures.saturating_add(1);
        let jitter = most.mul_f64(chance);
        match failure {
            Failure::Status { retry_after: Some(asked), .. } => {
                (*asked).min(MAX_RETRY_AFTER) + jitter
            }
            Failure::Status { code: 401 | 403, .. } | Failure::Garbage(_) => {
                jitter.max(SHORTEST_WAIT)
            }
            Failure::Status { .. }
            | Failure::Link(_)
            | Failure::End
            | Failure::Silence
            | Failure::Relist => jitter,
        }
    }
}

/// Whether API servers may have been restarted before this failure. A watch that ends by its own time after events or
/// bookmarks says that the API server had the version held; and so does one that refuses the client.
fn raises_doubt(failure: &Failure, during: During, now: Instant) -> bool {
    match (failure, during) {
        (Failure::Relist | Failure::Status { code: 401 | 403 | 429, .. }, _) => false,
        (Failure::End, During::Watch { since }) => {
            now.saturating_duration_since(since) < WHOLE_WATCH
        }
        _ => true,
    }
}

impl Failure {
    /// One line for the log and `/readyz`; `what` is the plural of the resource.
    pub(super) fn text(&self, what: &str) -> String {
        match self {
            Failure::Status { code: 401, message, .. } => {
                format!("the API server does not accept the credentials (401): {message}")
            }
            Failure::Status { code: 403, message, .. } => format!(
                "no permission to list and watch {what} (403): {message}; give the service account the \
                 data plane's ClusterRole and Role"
            ),
            Failure::Status { code, message, .. } => {
                format!("the API server answers {code}: {message}")
            }
            Failure::Link(error) => format!("the API server is not reached: {error}"),
            Failure::Garbage(error) => {
                format!("the API server's answer is not understood: {error}")
            }
            Failure::End => "the API server ended the watch at once".to_owned(),
            Failure::Silence => "nothing came through the watch".to_owned(),
            Failure::Relist => "listed again".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> Failure {
        Failure::Status { code, message: message.into(), retry_after: None }
    }

    fn next(supervisor: &mut Supervisor, failure: &Failure, during: During) -> Next {
        supervisor.next(failure, during, Instant::now(), 0.5)
    }

    #[test]
    fn e23_waits_double_to_five_seconds_with_full_jitter() {
        let mut supervisor = Supervisor::default();
        let link = Failure::Link("refused".into());
        let waits: Vec<u128> =
            (0..8).map(|_| next(&mut supervisor, &link, During::Start).after.as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 2500, 2500, 2500]);
        assert_eq!(
            supervisor.next(&link, During::Start, Instant::now(), 0.0).after,
            Duration::ZERO
        );
    }

    #[test]
    fn e23_a_server_that_refuses_or_makes_no_sense_is_never_asked_without_a_pause() {
        for failure in [status(401, ""), status(403, ""), Failure::Garbage("<html>".into())] {
            for during in [During::List, During::Start] {
                let next = Supervisor::default().next(&failure, during, Instant::now(), 0.0);
                assert_eq!(next.after.as_millis(), 100, "{failure:?}");
            }
        }
    }

    #[test]
    fn k22_lists_that_ask_for_another_list_each_time_wait_after_the_third() {
        let mut supervisor = Supervisor::default();
        let mut list = || next(&mut supervisor, &Failure::Relist, During::List).after.as_millis();
        let waits: Vec<u128> = (0..6).map(|_| list()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 400]);
        supervisor.moved();
        let next = next(&mut supervisor, &Failure::Relist, During::List);
        assert_eq!(next.after, Duration::ZERO, "a list was complete since");
    }

    #[test]
    fn e23_a_minute_of_health_resets_the_wait() {
        let mut supervisor = Supervisor::default();
        let link = Failure::Link("reset".into());
        for _ in 0..6 {
            next(&mut supervisor, &link, During::Start);
        }
        let since = Instant::now();
        let short = supervisor.next(&link, During::Watch { since }, since + HEALTHY_AFTER / 2, 0.5);
        assert_eq!(short.after.as_millis(), 2500);
        let healthy = supervisor.next(&link, During::Watch { since }, since + HEALTHY_AFTER, 0.5);
        assert_eq!(healthy.after.as_millis(), 100);
    }

    #[test]
    fn k9_retry_after_is_honoured_and_bounded() {
        let mut supervisor = Supervisor::default();
        let asked = |seconds| Failure::Status {
            code: 429,
            message: String::new(),
            retry_after: Some(Duration::from_secs(seconds)),
        };
        let wait = next(&mut supervisor, &asked(7), During::List).after;
        assert_eq!(wait, Duration::from_millis(7100));
        assert!(
            next(&mut supervisor, &asked(86_400), During::List).after < Duration::from_secs(126)
        );
    }

    #[test]
    fn k5_what_says_that_the_version_is_lost_leads_to_a_list() {
        let watch = During::Watch { since: Instant::now() };
        let lost = [
            status(410, "Expired"),
            status(400, "invalid"),
            status(422, "invalid"),
            status(504, "Too large resource version: 9, current: 7"),
        ];
        for failure in lost {
            for during in [During::Start, watch] {
                assert!(next(&mut Supervisor::default(), &failure, during).relist, "{failure:?}");
            }
        }
        let kept = [status(503, ""), status(504, "timeout"), status(403, ""), status(401, "")];
        for failure in kept {
            assert!(!next(&mut Supervisor::default(), &failure, During::Start).relist);
        }
        assert!(!next(&mut Supervisor::default(), &Failure::End, watch).relist);
        assert!(next(&mut Supervisor::default(), &status(503, ""), During::List).relist);
    }

    #[test]
    fn k5_five_refusals_at_one_version_lead_to_a_list_an_outage_does_not() {
        let refusals = |failure: Failure, during| {
            let mut supervisor = Supervisor::default();
            (0..20).map(|_| next(&mut supervisor, &failure, during).relist).collect::<Vec<_>>()
        };
        let refused = refusals(status(500, "boom"), During::Start);
        assert_eq!(refused.iter().position(|relist| *relist), Some(4));
        assert!(refused[9], "and again after five more");
        let harmless = [403, 429, 502, 503, 504].map(|code| status(code, ""));
        for harmless in harmless.into_iter().chain([Failure::Link("refused".into())]) {
            assert!(!refusals(harmless, During::Start).contains(&true));
        }
        // A look names no version.
        assert!(!refusals(status(500, "boom"), During::Look).contains(&true));
        let mut supervisor = Supervisor::default();
        for _ in 0..20 {
            assert!(!next(&mut supervisor, &status(500, ""), During::Start).relist);
            supervisor.moved();
        }
    }

    #[test]
    fn k22_a_watch_that_ends_by_its_own_time_raises_no_doubt_about_its_version() {
        let since = Instant::now();
        let raises = |failure: &Failure, seconds| {
            let mut supervisor = Supervisor::default();
            let now = since + Duration::from_secs(seconds);
            supervisor.next(failure, During::Watch { since }, now, 0.5);
            supervisor.is_in_doubt()
        };
        assert!(!raises(&Failure::End, 180));
        assert!(raises(&Failure::End, 100), "API servers may have been restarted");
        assert!(raises(&Failure::Silence, 180));
        assert!(raises(&Failure::Link("reset".into()), 180));
        assert!(raises(&status(503, ""), 180), "of a balancer without API servers");
        for refused in [401, 403, 429] {
            assert!(!raises(&status(refused, ""), 1), "{refused}");
        }
    }

    #[test]
    fn a_watch_that_ends_in_order_continues_at_once_unless_it_was_short() {
        let since = Instant::now();
        let mut supervisor = Supervisor::default();
        let end = |supervisor: &mut Supervisor, seconds| {
            let now = since + Duration::from_secs(seconds);
            supervisor.next(&Failure::End, During::Watch { since }, now, 0.5).after
        };
        assert_eq!(end(&mut supervisor, 180), Duration::ZERO);
        assert!(end(&mut supervisor, 0) > Duration::ZERO);
    }
}
