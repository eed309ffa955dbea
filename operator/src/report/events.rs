//! Kubernetes Events about a ClusterDNS: each text once an hour, and a few per minute at most. A lost Event is no failure.

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
/// Events in [`WINDOW`].
const MOST: usize = 20;
const WINDOW: Duration = Duration::from_secs(60);
/// Octets of one; the API server takes 1,024.
const MAX_NOTE: usize = 1_024;
/// What was published and is remembered.
const MAX_REMEMBERED: usize = 200;

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
struct Published(VecDeque<(Instant, String)>);

impl Published {
    /// Whether this may be published now; then it counts as published.
    fn admit(&mut self, what: String, now: Instant) -> bool {
        let age = |at: &Instant| now.saturating_duration_since(*at);
        self.0.retain(|(at, _)| age(at) < SAME_AGAIN);
        let is_new = self.0.iter().all(|(_, published)| *published != what);
        let recent = self.0.iter().filter(|(at, _)| age(at) < WINDOW).count();
        if !is_new || recent >= MOST {
            return false;
        }
        if self.0.len() >= MAX_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((now, what));
        true
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

    /// What a rollout has to say.
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

    /// Warns of something that stands in the way.
    pub async fn warn(&self, dns: &ClusterDNS, reason: &str, message: &str) {
        self.send(dns, true, reason, message).await;
    }

    async fn send(&self, dns: &ClusterDNS, is_warning: bool, reason: &str, message: &str) {
        let uid = dns.metadata.uid.as_deref().unwrap_or_default();
        let what = format!("{uid} {reason} {message}");
        let is_admitted = self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .admit(what, Instant::now());
        if !is_admitted {
            return;
        }
        let event = Event {
            type_: if is_warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(shortened(message, MAX_NOTE)),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let reference = dns.object_ref(&());
        // A recorder that lives on would count other news of the same reason as the same and keep the old text.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        let published = self.writes.send("Event", recorder.publish(&event, &reference)).await;
        if let Err(error) = published {
            tracing::debug!("an Event was not written: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_news_is_published_once_an_hour_and_not_too_much_at_once() {
        let (mut published, begin) = (Published::default(), Instant::now());
        assert!(published.admit("a".into(), begin));
        assert!(!published.admit("a".into(), begin + Duration::from_secs(3_599)));
        assert!(published.admit("a".into(), begin + SAME_AGAIN));
        let later = begin + SAME_AGAIN * 3;
        let admitted = (0..100).filter(|n| published.admit(format!("n{n}"), later)).count();
        assert_eq!(admitted, MOST);
        assert!(
            published.admit("n99".into(), later + WINDOW),
            "what was not published may be published later"
        );
    }
}
