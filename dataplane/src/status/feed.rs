//! The state of one stream of objects: whether it is complete, when it last received something, and its problem.
//! `/readyz`, `/config` and the metrics read it (E50, E51).

use std::time::{Duration, Instant, SystemTime};

use dataplane_core::DataSource;

use super::snapshot::since;

/// One resource, or the configuration.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Whether answers need it now; Pods are not unless verified pod records are in effect.
    pub is_wanted: bool,
    /// Whether it is read: answers need it, or a configuration waits for it.
    pub is_followed: bool,
    /// Where the data comes from.
    pub source: DataSource,
    /// The last event, bookmark, completed list or accepted watch request.
    pub last_contact: Option<Instant>,
    /// When it was to be read first.
    pub since: Instant,
    /// The problem that stops it.
    pub trouble: Option<Trouble>,
    /// Watch events applied since start, without bookmarks.
    pub events: u64,
    /// Complete lists after the first.
    pub relists: u64,
    /// Requests and streams that failed.
    pub failures: u64,
    /// Objects that were not understood at all.
    pub undecodable: u64,
    /// Lists at a lower version than was seen before: the source went back (K22).
    pub resets: u64,
    /// The data is that of the cluster before, until the next complete list (K22).
    pub is_of_former_cluster: bool,
    /// What a list for comparison found to be different (E54).
    pub differences: u64,
}

/// What is wrong with a stream.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// Time of the first failure in a row.
    pub since: Instant,
    /// The last failure, and what to do about it where that is known.
    pub reason: String,
}

impl Default for Feed {
    fn default() -> Feed {
        Feed {
            is_wanted: true,
            is_followed: true,
            source: DataSource::None,
            last_contact: None,
            since: Instant::now(),
            trouble: None,
            events: 0,
            relists: 0,
            failures: 0,
            undecodable: 0,
            resets: 0,
            is_of_former_cluster: false,
            differences: 0,
        }
    }
}

impl Feed {
    /// There is data, or none is needed.
    pub fn is_answerable(&self) -> bool {
        !self.is_wanted || self.source != DataSource::None
    }

    /// Something was received: no problem any more.
    pub fn heard(&mut self) {
        self.last_contact = Some(Instant::now());
        self.trouble = None;
    }

    /// A part of its list came that had failed before: no problem any more, though the list is not complete.
    pub fn went_on(&mut self) {
        self.trouble = None;
    }

    /// It failed. Returns whether that is news.
    pub fn failed(&mut self, reason: String) -> bool {
        self.failures += 1;
        let before = self.trouble.replace(Trouble { since: Instant::now(), reason });
        let (Some(before), Some(now)) = (before, &mut self.trouble) else { return true };
        now.since = before.since;
        now.reason != before.reason
    }

    /// Time since something was last received.
    pub fn age(&self) -> Option<Duration> {
        self.last_contact.map(|contact| contact.elapsed())
    }

    /// Time since the data was known to be complete and current, for the alert: since something was last received; before that
    /// since the snapshot was confirmed, and without one since the stream was to be read. So it does not become smaller when
    /// a process begins again without its source (E50). None where it is not read.
    pub fn staleness(&self, now: SystemTime) -> Option<Duration> {
        let waited = self.since.elapsed();
        let staleness = self.age().unwrap_or_else(|| match self.source {
            DataSource::Snapshot { confirmed_at_s } => {
                // A clock that went back makes nothing younger than this process.
                since(confirmed_at_s, now).max(waited)
            }
            DataSource::Live | DataSource::None => waited,
        });
        self.is_followed.then_some(staleness)
    }

    /// Whether answers need it from now on, and whether it is read.
    pub fn want(&mut self, is_wanted: bool, is_followed: bool) {
        let is_followed = is_wanted || is_followed;
        if is_followed && !self.is_followed {
            self.since = Instant::now();
        }
        (self.is_wanted, self.is_followed) = (is_wanted, is_followed);
    }

    /// It is not needed any more; where it is needed again, it begins without a contact.
    pub fn forget(&mut self) {
        (self.last_contact, self.trouble) = (None, None);
    }

    /// One line for a person: why it is not complete.
    pub fn explanation(&self) -> String {
        match &self.trouble {
            Some(trouble) => {
                format!("failing for {} s: {}", trouble.since.elapsed().as_secs(), trouble.reason)
            }
            None => "the first list is being read".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_trouble_is_news_once_and_keeps_its_beginning() {
        let mut feed = Feed::default();
        assert!(feed.failed("refused".into()));
        let since = feed.trouble.as_ref().unwrap().since;
        assert!(!feed.failed("refused".into()));
        assert!(feed.failed("403".into()));
        assert_eq!(feed.trouble.as_ref().unwrap().since, since);
        assert!(feed.explanation().ends_with("403"));
        feed.heard();
        assert!(feed.trouble.is_none() && feed.age().is_some());
        assert_eq!(feed.failures, 3);
    }
    #[test]
    fn e50_the_age_of_the_data_is_that_of_the_snapshot_until_something_is_received() {
        let mut feed = Feed::default();
        let hour = Duration::from_secs(3600);
        let at = |seconds| std::time::UNIX_EPOCH + Duration::from_secs(seconds);
        assert!(feed.staleness(at(10_000)).unwrap() < hour, "without data, the time that it waits");
        feed.since = Instant::now().checked_sub(hour).unwrap();
        assert!(feed.staleness(at(10_000)).unwrap() >= hour);
        feed.source = DataSource::Snapshot { confirmed_at_s: 1_000 };
        assert_eq!(feed.staleness(at(10_000)), Some(Duration::from_secs(9_000)));
        assert!(feed.staleness(at(500)).unwrap() >= hour, "the clock went back");
        feed.source = DataSource::Snapshot { confirmed_at_s: u64::MAX };
        assert!(feed.staleness(at(10_000)).unwrap() >= hour, "a file may have any number");
        feed.source = DataSource::Snapshot { confirmed_at_s: 1_000 };
        feed.heard();
        assert!(feed.staleness(at(10_000)).unwrap() < hour);
        // Needed again after a time in which it was not: the time before does not count.
        feed.last_contact = Some(feed.since);
        feed.want(false, false);
        feed.forget();
        feed.want(true, true);
        assert!(
            feed.staleness(at(10_000)).unwrap() >= Duration::from_secs(9_000),
            "still the snapshot"
        );
        feed.source = DataSource::None;
        assert!(feed.staleness(at(10_000)).unwrap() < hour);
        feed.want(false, true);
        assert!(feed.is_answerable() && feed.staleness(at(10_000)).is_some(), "it is waited for");
        feed.want(false, false);
        assert_eq!(feed.staleness(at(10_000)), None, "no alert for what is not read");
    }
}
