//! Kubernetes Events about a ClusterDNS: each text once an hour, and a few per minute at most, of one reason fewer still. A lost
//! Event is no failure.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crds::ClusterDNS;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};

use crate::decide::plan::Notice;
use crate::names;
use crate::report::changes::Change;
use crate::runtime::write::Writes;
use crate::shortened::shortened;

/// The same text is sent again only after this time.
const SAME_AGAIN: Duration = Duration::from_secs(3_600);
/// Events about one ClusterDNS in [`WINDOW`].
const MOST: usize = 20;
/// Of these with one reason. Some messages quote what others write, who may change it all the time: other news have room.
const MOST_OF_REASON: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Octets of one; the API server takes 1,024.
const MAX_NOTE: usize = 1_024;
/// What was published and is remembered.
const MAX_REMEMBERED: usize = 5_000;

/// Writes Kubernetes Events, limited per text and per minute.
pub struct Events {
    client: Client,
    reporter: Reporter,
    writes: Writes,
    published: Mutex<Published>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("published", &self.published).finish_non_exhaustive()
    }
}

/// What was published when, oldest first.
#[derive(Debug, Default)]
struct Published(VecDeque<One>);

#[derive(Debug)]
struct One {
    at: Instant,
    uid: String,
    reason: String,
    message: String,
}

impl Published {
    /// Whether this may be published now about the object with this uid.
    fn admits(&mut self, uid: &str, (reason, message): (&str, &str), now: Instant) -> bool {
        let age = |at: &Instant| now.saturating_duration_since(*at);
        self.0.retain(|it| age(&it.at) < SAME_AGAIN);
        let of_it = || self.0.iter().filter(|it| it.uid == uid);
        let of_reason = |it: &&One| it.reason == reason;
        let is_new = of_it().filter(of_reason).all(|it| it.message != message);
        let lately = || of_it().filter(|it| age(&it.at) < WINDOW);
        is_new && lately().count() < MOST && lately().filter(of_reason).count() < MOST_OF_REASON
    }

    /// Remembers that an Event was published.
    fn add(&mut self, uid: &str, (reason, message): (&str, &str), at: Instant) {
        if self.0.len() >= MAX_REMEMBERED {
            self.0.pop_front();
        }
        let (reason, message) = (reason.to_owned(), message.to_owned());
        self.0.push_back(One { at, uid: uid.to_owned(), reason, message });
    }
}

impl Events {
    /// Published in the name of this process.
    pub fn new(client: Client, process: &str, writes: Writes) -> Events {
        let reporter = Reporter {
            controller: names::FIELD_MANAGER.to_owned(),
            instance: Some(process.to_owned()),
        };
        Events { client, reporter, writes, published: Mutex::default() }
    }

    /// The Events of a rollout.
    pub async fn publish(&self, dns: &ClusterDNS, notices: &[Notice]) {
        for notice in notices {
            self.send(dns, notice.is_warning, notice.reason, &notice.message).await;
        }
    }

    /// What was written, and how the status has changed.
    pub async fn publish_changes(&self, dns: &ClusterDNS, all: &[Change]) {
        for Change { is_warning, reason, message } in all {
            self.send(dns, *is_warning, reason, message).await;
        }
    }

    /// Publishes an Event of type Warning.
    pub async fn warn(&self, dns: &ClusterDNS, reason: &str, message: &str) {
        self.send(dns, true, reason, message).await;
    }

    async fn send(&self, dns: &ClusterDNS, is_warning: bool, reason: &str, message: &str) {
        let uid = dns.metadata.uid.as_deref().unwrap_or_default();
        // What is remembered of it has a bound too: it may quote what others write, of any length.
        let message = shortened(message, MAX_NOTE);
        let what = (reason, message.as_str());
        let now = Instant::now();
        if !self.published.lock().unwrap_or_else(PoisonError::into_inner).admits(uid, what, now) {
            return;
        }
        let event = Event {
            type_: if is_warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(message.clone()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let reference = dns.object_ref(&());
        // A recorder that is kept would count other news of the same reason as the same Event, with the old text.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        let published = self.writes.send("Event", recorder.publish(&event, &reference)).await;
        match published {
            // If it was not written, the next news with the same text may be.
            Err(error) => tracing::debug!("an Event was not written: {error}"),
            Ok(_) => {
                self.published.lock().unwrap_or_else(PoisonError::into_inner).add(uid, what, now)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fixtures::{api, dns};
    use crate::runtime::lease::Leadership;

    #[tokio::test]
    async fn k23_of_an_event_that_quotes_much_no_more_is_remembered_than_is_sent() {
        let client = api::client(api::empty);
        let leadership = Arc::new(Leadership::new(Instant::now));
        leadership.renewed(Instant::now());
        let writes = Writes::new(leadership, Arc::default());
        let events = Events::new(client, "operator", writes);
        events.warn(&dns("{}"), "PodLabelsSelected", &"x".repeat(1_000_000)).await;
        let published = events.published.lock().unwrap();
        let octets: Vec<usize> = published.0.iter().map(|it| it.message.len()).collect();
        assert_eq!(octets, [MAX_NOTE]);
    }

    #[test]
    fn the_same_news_is_published_once_an_hour_and_not_too_much_at_once() {
        let (mut published, begin) = (Published::default(), Instant::now());
        let mut publish = |uid: &str, reason: &str, at| {
            let admits = published.admits(uid, (reason, "m"), at);
            if admits {
                published.add(uid, (reason, "m"), at);
            }
            admits
        };
        assert!(publish("u", "a", begin));
        assert!(!publish("u", "a", begin + Duration::from_secs(3_599)));
        assert!(publish("u", "a", begin + SAME_AGAIN));
        let later = begin + SAME_AGAIN * 3;
        let admitted = (0..100).filter(|n| publish("u", &format!("n{n}"), later)).count();
        assert_eq!(admitted, MOST);
        assert!(publish("u", "n99", later + WINDOW), "what was not published may be later");
        // Two hundred ClusterDNS that start together: none takes the others' room.
        let all = (0..200).filter(|n| publish(&format!("u{n}"), "Created", later + WINDOW));
        assert_eq!(all.count(), 200);
    }

    #[test]
    fn o14_an_event_that_was_not_written_may_be_written_later() {
        let (mut published, now) = (Published::default(), Instant::now());
        let what = ("a", "m");
        assert!(published.admits("u", what, now));
        assert!(published.admits("u", what, now), "it was only asked whether it may");
        published.add("u", what, now);
        assert!(!published.admits("u", what, now));
    }

    #[test]
    fn o19_news_whose_text_others_change_takes_no_room_from_other_news() {
        let (mut published, now) = (Published::default(), Instant::now());
        let texts = (0..100).filter(|n| {
            let message = n.to_string();
            let admits = published.admits("u", ("PodsUnschedulable", &message), now);
            if admits {
                published.add("u", ("PodsUnschedulable", &message), now);
            }
            admits
        });
        assert_eq!(texts.count(), MOST_OF_REASON);
        assert!(published.admits("u", ("CanaryFailed", "m"), now));
        assert!(published.admits("u", ("PodsUnschedulable", "x"), now + WINDOW));
    }
}
