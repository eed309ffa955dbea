//! What a pod says at `/config`, and how much of it is kept: each list and text has a bound (K23). Pure.

use std::fmt;

use crds::config;
use crds::v1alpha1::SkippedObject;
use jiff::Timestamp;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::size;
use crate::observe::observed::{
    ClosedListener, CutOff, DownServer, EmptyGroup, Reported, UsedCertificate,
};
use crate::shortened::shortened;

/// Skipped objects that are kept of one pod: the first ones, as many as status shows of all pods.
const MAX_SKIPPED: usize = crds::bounds::REPORTED;
/// Octets of the reason of each.
const MAX_SKIP_REASON: usize = crds::bounds::MESSAGE;
/// Rows of a list that are held while the page is read: of upstreams and groups, those that matter.
const MAX_ROWS: usize = 1_000;
/// Octets of all upstreams and groups: entries beyond that are left out.
const MAX_UPSTREAM_OCTETS: usize = 128 << 10;
/// Octets of a word, such as a revision or a transport; of a name or an address.
const MAX_WORD: usize = 64;
const MAX_NAME: usize = 255;
/// Octets of the text that says why a pod refuses its configuration: status has room for less.
const MAX_REJECTION: usize = 4_096;
/// Fields that a pod does not know, which are kept of one pod: the first ones.
const MAX_IGNORED: usize = 8;
/// Time after which an upstream counts as down or failing: a moment without usable answers is nothing to report.
const DOWN_S: u64 = 60;
/// Longest remedy for an upstream, in characters.
const MAX_REMEDY: usize = 200;
/// The resource of the watch of the configuration.
const CONFIGURATION: &str = "configmaps";
/// The reason of a data plane that was given no document.
const MISSING: &str = "Missing";
/// Encrypted listeners that are kept of one pod, and certificates: one for each.
const MAX_LISTENERS: usize = 3;
/// Octets of the text that says why a certificate is not in use, or a listener not open.
const MAX_TROUBLE: usize = 200;

/// `/config`, as far as it is read. Data planes of other versions may say more, or less.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    #[serde(default)]
    instance_id: String,
    revision: String,
    max_format: u32,
    #[serde(default)]
    role: String,
    rejection: Option<Rejection>,
    #[serde(default, deserialize_with = "first")]
    unknown_fields: Vec<String>,
    #[serde(default, deserialize_with = "first")]
    skipped_objects: Vec<SkippedObject>,
    #[serde(default, deserialize_with = "long_down")]
    upstreams_down: Vec<Down>,
    /// Empty: its version may not say.
    #[serde(default, deserialize_with = "long_down")]
    upstreams_failing: Vec<Down>,
    #[serde(default, deserialize_with = "first")]
    upstreams_looping: Vec<Down>,
    #[serde(default, deserialize_with = "first")]
    upstreams_without_servers: Vec<WithoutServers>,
    #[serde(default, deserialize_with = "first")]
    certificates: Vec<Mounted>,
    /// Empty: its version may not say.
    #[serde(default, deserialize_with = "first")]
    closed_listeners: Vec<Closed>,
    #[serde(default, deserialize_with = "of_configuration")]
    watches: Vec<Watch>,
}

/// A stream of objects.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Watch {
    resource: String,
    #[serde(default)]
    trouble: Option<String>,
    #[serde(default)]
    trouble_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct Rejection {
    #[serde(default, deserialize_with = "first")]
    violations: Vec<Violation>,
}

#[derive(Deserialize)]
struct Violation {
    field: String,
    #[serde(default)]
    reason: String,
    message: String,
}

impl Violation {
    /// There is no document at all. A field that is missing in one has a name.
    fn is_of_no_document(&self) -> bool {
        self.field.is_empty() && self.reason == MISSING
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Down {
    group: String,
    server: String,
    /// Empty: its version does not say.
    #[serde(default)]
    transport: String,
    #[serde(default)]
    server_name: String,
    /// Servers of the group; 0: its version does not say.
    #[serde(default)]
    group_servers: usize,
    seconds: u64,
    /// What a person should do.
    #[serde(default)]
    remedy: Option<String>,
}

/// A group of upstreams.
#[derive(Deserialize)]
struct WithoutServers {
    group: String,
    why: String,
}

/// The certificate of a listener.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mounted {
    secret: String,
    #[serde(default)]
    not_before_seconds: Option<i64>,
    #[serde(default)]
    not_after_seconds: Option<i64>,
    #[serde(default)]
    trouble: Option<String>,
}

/// An encrypted listener.
#[derive(Deserialize)]
struct Closed {
    listener: String,
    port: u16,
    why: String,
}

/// The first elements of a list; the others are read and left out.
fn first<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    first_of(deserializer, |_| true)
}

/// The first upstreams that have been unusable for long.
fn long_down<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Down>, D::Error> {
    first_of(deserializer, |down: &Down| down.seconds >= DOWN_S)
}

/// The watch of the configuration, if it fails.
fn of_configuration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Watch>, D::Error> {
    first_of(deserializer, |watch: &Watch| {
        watch.resource == CONFIGURATION && watch.trouble.is_some()
    })
}

/// The first elements that count.
fn first_of<'de, D, T>(deserializer: D, counts: fn(&T) -> bool) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct First<T>(fn(&T) -> bool);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for First<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Vec<T>, A::Error> {
            let mut kept = Vec::new();
            while kept.len() < MAX_ROWS {
                let Some(next) = all.next_element()? else { return Ok(kept) };
                if (self.0)(&next) {
                    kept.push(next);
                }
            }
            while all.next_element::<IgnoredAny>()?.is_some() {}
            Ok(kept)
        }
    }
    deserializer.deserialize_seq(First(counts))
}

impl Mounted {
    fn used(self) -> UsedCertificate {
        let Mounted { secret, not_before_seconds, not_after_seconds, trouble } = self;
        let time = |seconds: Option<i64>| Timestamp::from_second(seconds?).ok();
        UsedCertificate {
            secret: shortened(&secret, MAX_NAME),
            validity: time(not_before_seconds).zip(time(not_after_seconds)),
            trouble: trouble.map(|text| shortened(&text, MAX_TROUBLE)),
        }
    }
}

impl Watch {
    /// What follows the first colon are the words of the API server or of the system, which may differ each time.
    fn cut_off(self) -> Option<CutOff> {
        let trouble = self.trouble?;
        let kind = trouble.split(": ").next().unwrap_or_default();
        let seconds = self.trouble_seconds.unwrap_or_default();
        Some(CutOff { why: shortened(kind, MAX_TROUBLE), seconds })
    }
}

impl Closed {
    fn read(self) -> ClosedListener {
        let Closed { listener, port, why } = self;
        let (listener, why) = (shortened(&listener, MAX_WORD), shortened(&why, MAX_TROUBLE));
        ClosedListener { listener, port, why }
    }
}

impl Down {
    fn read(self) -> DownServer {
        let remedy = self.remedy.map(|text| text.chars().take(MAX_REMEDY).collect());
        DownServer {
            group: shortened(&self.group, MAX_NAME),
            server: shortened(&self.server, MAX_NAME),
            transport: shortened(&self.transport, MAX_WORD),
            server_name: shortened(&self.server_name, MAX_NAME),
            group_servers: self.group_servers,
            remedy,
        }
    }
}

impl WithoutServers {
    fn read(self) -> EmptyGroup {
        let why = self.why.chars().take(MAX_REMEDY).collect();
        EmptyGroup { group: shortened(&self.group, MAX_NAME), why }
    }
}

pub(super) fn read(body: &[u8]) -> serde_json::Result<Reported> {
    let Shown {
        instance_id,
        revision,
        max_format,
        role,
        rejection,
        unknown_fields,
        skipped_objects,
        upstreams_down,
        upstreams_failing,
        upstreams_looping,
        upstreams_without_servers,
        certificates,
        closed_listeners,
        watches,
    } = serde_json::from_slice(body)?;
    // In the order of the page, which shows objects of each namespace in turn.
    let skipped = skipped_objects.iter().take(MAX_SKIPPED).map(|it| SkippedObject {
        kind: shortened(&it.kind, MAX_WORD),
        namespace: shortened(&it.namespace, MAX_NAME),
        name: shortened(&it.name, MAX_NAME),
        reason: shortened(&it.reason, MAX_SKIP_REASON),
    });
    let violations = |rejection: Rejection| {
        let mut text = String::new();
        for Violation { field, reason: _, message } in rejection.violations {
            let separator = if text.is_empty() { "" } else { "; " };
            let colon = if field.is_empty() { "" } else { ": " };
            text.push_str(&format!("{separator}{field}{colon}{message}"));
            if text.len() > MAX_REJECTION {
                break;
            }
        }
        shortened(&text, MAX_REJECTION)
    };
    let is_of_none = |rejection: &Rejection| {
        let violations = &rejection.violations;
        !violations.is_empty() && violations.iter().all(Violation::is_of_no_document)
    };
    let has_no_document = rejection.as_ref().is_some_and(is_of_none);
    let mut room = MAX_UPSTREAM_OCTETS;
    // First those that are wrong until a person changes something. Where many servers are down, some of them say enough.
    let empty = upstreams_without_servers.into_iter().map(WithoutServers::read);
    let upstreams_without_servers = within(&mut room, empty, size::empty);
    let looping = upstreams_looping.into_iter().map(Down::read);
    let upstreams_looping = within(&mut room, looping, size::down);
    let failing = upstreams_failing.into_iter().map(Down::read);
    let upstreams_failing = within(&mut room, failing, size::down);
    let down = upstreams_down.into_iter().map(Down::read);
    let upstreams_down = within(&mut room, down, size::down);
    Ok(Reported {
        process: shortened(&instance_id, MAX_WORD),
        revision: shortened(&revision, MAX_WORD),
        max_format,
        role: shortened(&role, MAX_WORD),
        rejection: rejection.map(violations),
        has_no_document,
        ignored: unknown_fields
            .iter()
            .take(MAX_IGNORED)
            .map(|field| shortened(field, MAX_NAME))
            .collect(),
        cut_off: watches.into_iter().find_map(Watch::cut_off),
        skipped: skipped.collect(),
        upstreams_down,
        upstreams_failing,
        upstreams_looping,
        upstreams_without_servers,
        certificates: certificates.into_iter().take(MAX_LISTENERS).map(Mounted::used).collect(),
        closed_listeners: closed_listeners
            .into_iter()
            .take(MAX_LISTENERS)
            .map(Closed::read)
            .collect(),
    })
}

/// As many of them as there is room for.
fn within<T>(room: &mut usize, all: impl Iterator<Item = T>, octets: fn(&T) -> usize) -> Vec<T> {
    let fits = |it: &T| {
        let left = room.checked_sub(octets(it));
        *room = left.unwrap_or(0);
        left.is_some()
    };
    all.take_while(fits).collect()
}

/// A document whose revision is not the reported one is not the one that was written.
pub(super) fn document(body: &[u8]) -> serde_json::Result<Option<String>> {
    #[derive(Deserialize)]
    struct Running {
        revision: String,
        #[serde(default)]
        document: serde_json::Value,
    }
    let Running { revision, document } = serde_json::from_slice(body)?;
    let text = config::canonical(&document);
    Ok(Some(text).filter(|text| config::revision_of(text) == revision))
}

#[cfg(test)]
mod tests;
