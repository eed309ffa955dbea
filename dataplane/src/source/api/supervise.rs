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
/// An API server that was restarted says 410 to the watches of all pods at once. So a list after that waits up to this for
/// each page of the list before, the first one excepted ...
const SPREAD_OF_PAGE: Duration = Duration::from_millis(500);
/// ... and up to this in all. Meanwhile answers stay as they are.
const MAX_SPREAD: Duration = Duration::from_secs(15);
/// Doublings until the longest wait.
const MAX_DOUBLINGS: u32 = 5;
/// A server's Retry-After is honoured up to this: a longer one is taken for a mistake.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);
/// A client waits up to this part of it longer, at random: a busy API server may ask all clients for the same time.
const RETRY_SPREAD: f64 = 0.5;
/// Time without a failure after which the next one counts as the first.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);
/// A watch that ends in order sooner than this is a failure: the server would be asked in a loop.
const SHORTEST_WATCH: Duration = Duration::from_secs(5);
/// A watch that ends in order sooner than this before the time that it asked for did not end by its own time: API servers may
/// have been restarted, with another etcd (K22).
const EARLY: Duration = Duration::from_secs(10);

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
    /// Too many events came while a list was read beside a watch.
    Overtaken,
    /// A new list is needed, or was requested.
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
        /// How long it asked to be.
        asked: Duration,
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
    /// Pages of the last complete list.
    pages: u32,
    /// The API server may not have the version held any more, and would accept a watch there and stay silent (K22).
    is_in_doubt: bool,
}

impl Supervisor {
    /// A list is complete, of this many pages.
    pub(super) fn listed(&mut self, pages: u32) {
        self.pages = pages;
        self.moved();
        self.confirmed();
    }

    /// The data has changed: another version is held now.
    pub(super) fn moved(&mut self) {
        self.failed_starts = 0;
        self.relists = 0;
    }

    /// Whether a look must confirm the version held before a watch continues at it.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// The API server has the version held.
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
            During::Watch { since, .. } => now.saturating_duration_since(since) >= HEALTHY_AFTER,
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
            (Failure::End, During::Watch { since, .. }) => {
                now.saturating_duration_since(since) >= SHORTEST_WATCH
            }
            _ => false,
        };
        let after = if is_harmless { Duration::ZERO } else { self.wait(failure, chance) };
        Next { after: after + self.spread(failure, during).mul_f64(chance), relist }
    }

    /// The time within which the list after this failure begins at random. A list that failed has waits of its own.
    fn spread(&self, failure: &Failure, during: During) -> Duration {
        match (failure, during) {
            (Failure::Status { code: 410, .. }, During::Start | During::Watch { .. }) => {
                SPREAD_OF_PAGE.saturating_mul(self.pages.saturating_sub(1)).min(MAX_SPREAD)
            }
            _ => Duration::ZERO,
        }
    }

    /// Whether a watch can begin at the version held no more.
    fn is_version_lost(&mut self, failure: &Failure, during: During) -> bool {
        let verdict = match failure {
            Failure::Relist => Verdict::Lost,
            Failure::Status { code, message, .. } => version::verdict(*code, message),
            Failure::Link(_) | Failure::End | Failure::Silence | Failure::Overtaken => {
                Verdict::SaysNothing
            }
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
                let asked = (*asked).min(MAX_RETRY_AFTER);
                asked + most.max(asked.mul_f64(RETRY_SPREAD)).mul_f64(chance)
            }
            Failure::Status { code: 401 | 403, .. } | Failure::Garbage(_) => {
                jitter.max(SHORTEST_WAIT)
            }
            Failure::Status { .. }
            | Failure::Link(_)
            | Failure::End
            | Failure::Silence
            | Failure::Overtaken
            | Failure::Relist => jitter,
        }
    }
}

/// Whether API servers may have been restarted before this failure. A watch that ends by its own time after events or
/// bookmarks says that the API server had the version held; and so does one that refuses the client.
fn raises_doubt(failure: &Failure, during: During, now: Instant) -> bool {
    match (failure, during) {
        (Failure::Relist | Failure::Status { code: 401 | 403 | 429, .. }, _) => false,
        (Failure::End, During::Watch { since, asked }) => {
            now.saturating_duration_since(since) + EARLY < asked
        }
        _ => true,
    }
}

impl Failure {
    /// The API server has too much to do, and says so; a request that comes later may succeed.
    pub(super) fn asks_for_patience(&self) -> bool {
        matches!(
            self,
            Failure::Status { code: 429, .. }
                | Failure::Status { code: 503, retry_after: Some(_), .. }
        )
    }

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
            Failure::Overtaken => "too much changed while a list was read".to_owned(),
            Failure::Relist => "listed again".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
