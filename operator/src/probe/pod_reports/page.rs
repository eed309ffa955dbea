//! What a pod says at `/config`, and how much of it is kept: each list and text has a bound (K23). Pure.

use std::fmt;

use crds::config;
use crds::v1alpha1::SkippedObject;
use jiff::Timestamp;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::size;
use crate::observe::observed::{DownServer, EmptyGroup, Reported, UsedCertificate};
use crate::shortened::shortened;

/// Skipped objects that are kept of one pod: the first ones, as many as status shows of all pods.
const MAX_SKIPPED: usize = crds::bounds::REPORTED;
/// Octets of the reason of each.
const MAX_SKIP_REASON: usize = crds::bounds::MESSAGE;
/// Rows of a list that are held while the page is read: of upstreams and groups, those that matter; of skipped objects more
/// than are kept, because they are sorted first.
const MAX_ROWS: usize = 1_000;
/// Octets of all upstreams and groups: entries beyond that are left out.
const MAX_UPSTREAM_OCTETS: usize = 128 << 10;
/// Octets of a word, such as a revision or a transport; of a name or an address.
const MAX_WORD: usize = 64;
const MAX_NAME: usize = 255;
/// Octets of the text that says why a pod refuses its configuration: status has room for less.
const MAX_REJECTION: usize = 4_096;
/// Time after which an upstream counts as down: a moment without answers is nothing to report.
const DOWN_S: u64 = 60;
/// Longest remedy for an upstream, in characters.
const MAX_REMEDY: usize = 200;
/// Certificates that are kept of one pod: one for each encrypted listener.
const MAX_CERTIFICATES: usize = 3;
/// Octets of the text that says why a certificate is not in use.
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
    skipped_objects: Vec<SkippedObject>,
    #[serde(default, deserialize_with = "long_down")]
    upstreams_down: Vec<Down>,
    #[serde(default, deserialize_with = "first")]
    upstreams_looping: Vec<Down>,
    #[serde(default, deserialize_with = "first")]
    upstreams_without_servers: Vec<WithoutServers>,
    #[serde(default, deserialize_with = "first")]
    certificates: Vec<Mounted>,
}

#[derive(Deserialize)]
struct Rejection {
    #[serde(default, deserialize_with = "first")]
    violations: Vec<Violation>,
}

#[derive(Deserialize)]
struct Violation {
    field: String,
    message: String,
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

/// The first elements of a list; the others are read and left out.
fn first<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    first_of(deserializer, |_| true)
}

/// The first upstreams that are down for long.
fn long_down<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Down>, D::Error> {
    first_of(deserializer, |down: &Down| down.seconds >= DOWN_S)
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
        mut skipped_objects,
        upstreams_down,
        upstreams_looping,
        upstreams_without_servers,
        certificates,
    } = serde_json::from_slice(body)?;
    skipped_objects
        .sort_by(|a, b| (&a.kind, &a.namespace, &a.name).cmp(&(&b.kind, &b.namespace, &b.name)));
    skipped_objects.truncate(MAX_SKIPPED);
    let skipped = skipped_objects.iter().map(|it| SkippedObject {
        kind: shortened(&it.kind, MAX_WORD),
        namespace: shortened(&it.namespace, MAX_NAME),
        name: shortened(&it.name, MAX_NAME),
        reason: shortened(&it.reason, MAX_SKIP_REASON),
    });
    let violations = |rejection: Rejection| {
        let mut text = String::new();
        for Violation { field, message } in rejection.violations {
            let separator = if text.is_empty() { "" } else { "; " };
            text.push_str(&format!("{separator}{field}: {message}"));
            if text.len() > MAX_REJECTION {
                break;
            }
        }
        shortened(&text, MAX_REJECTION)
    };
    let mut room = MAX_UPSTREAM_OCTETS;
    // First those that are wrong until a person changes the spec. Where many servers are down, some of them say enough.
    let empty = upstreams_without_servers.into_iter().map(WithoutServers::read);
    let upstreams_without_servers = within(&mut room, empty, size::empty);
    let looping = upstreams_looping.into_iter().map(Down::read);
    let upstreams_looping = within(&mut room, looping, size::down);
    let down = upstreams_down.into_iter().map(Down::read);
    let upstreams_down = within(&mut room, down, size::down);
    Ok(Reported {
        process: shortened(&instance_id, MAX_WORD),
        revision: shortened(&revision, MAX_WORD),
        max_format,
        role: shortened(&role, MAX_WORD),
        rejection: rejection.map(violations),
        skipped: skipped.collect(),
        upstreams_down,
        upstreams_looping,
        upstreams_without_servers,
        certificates: certificates.into_iter().take(MAX_CERTIFICATES).map(Mounted::used).collect(),
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
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn o4_a_document_is_taken_from_a_pod_only_with_its_own_revision() {
        let written = crds::Config::default().to_json();
        let shown = |revision: &str| {
            let document: serde_json::Value = serde_json::from_str(&written).unwrap();
            let page = json!({"revision": revision, "maxFormat": 1, "document": document});
            document_of(&serde_json::to_string_pretty(&page).unwrap())
        };
        fn document_of(page: &str) -> Option<String> {
            document(page.as_bytes()).unwrap()
        }
        assert_eq!(shown(&config::revision_of(&written)).as_deref(), Some(written.as_str()));
        assert_eq!(shown("0123456789ab"), None);
        assert_eq!(document_of(r#"{"revision": "0123456789ab"}"#), None, "it does not say");
    }

    #[test]
    fn what_a_data_plane_shows_is_read() {
        let shown = json!({"revision": "0123456789ab", "format": 1, "maxFormat": 2, "role": "stable", "document": {},
            "rejection": {"origin": "stable.json", "violations": [
                {"field": "spec.domain", "reason": "Invalid", "message": "no"}]},
            "skippedObjects": [{"kind": "Service", "namespace": "n", "name": "s", "reason": "r"}],
            "upstreamsDown": [{"group": "upstreams", "server": "192.0.2.1", "seconds": 61},
                {"group": "upstreams", "server": "192.0.2.2", "seconds": 59},
                {"group": "upstreams", "server": "192.0.2.3", "transport": "TLS", "serverName": "dns.example",
                    "groupServers": 3, "seconds": 99, "remedy": "renew it"}],
            "upstreamsLooping": [{"group": "upstreams", "server": "192.0.2.4", "groupServers": 3, "seconds": 1,
                "remedy": "point it elsewhere"}],
            "upstreamsWithoutServers": [{"group": "corp.example", "why": "correct tls"}],
            "certificates": [{"secret": "dns-tls", "notBeforeSeconds": 5, "notAfterSeconds": 7, "trouble": null},
                {"secret": "doh", "notBeforeSeconds": null, "notAfterSeconds": null, "trouble": "not PEM"}]});
        let reported = read(shown.to_string().as_bytes()).unwrap();
        assert_eq!(reported.process, "", "as of a version that does not say");
        let mut newer = shown.clone();
        newer["instanceId"] = json!("5e11");
        newer["fromTheFuture"] = json!({});
        assert_eq!(read(newer.to_string().as_bytes()).unwrap().process, "5e11");
        assert_eq!(
            (reported.revision.as_str(), reported.max_format, reported.role.as_str()),
            ("0123456789ab", 2, "stable")
        );
        assert_eq!(reported.rejection.as_deref(), Some("spec.domain: no"));
        assert_eq!(reported.skipped[0].name, "s");
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let [good, bad] = &reported.certificates[..] else { panic!("two certificates") };
        assert_eq!((good.secret.as_str(), good.validity), ("dns-tls", Some((at(5), at(7)))));
        assert_eq!((bad.validity, bad.trouble.as_deref()), (None, Some("not PEM")));
        let down =
            |server: &str, transport: &str, group_servers, remedy: Option<&str>| DownServer {
                group: "upstreams".to_owned(),
                server: server.to_owned(),
                transport: transport.to_owned(),
                group_servers,
                remedy: remedy.map(str::to_owned),
                ..DownServer::default()
            };
        let mut over_tls = down("192.0.2.3", "TLS", 3, Some("renew it"));
        over_tls.server_name = "dns.example".to_owned();
        let expected = [down("192.0.2.1", "", 0, None), over_tls];
        assert_eq!(reported.upstreams_down, expected);
        let looping = down("192.0.2.4", "", 3, Some("point it elsewhere"));
        assert_eq!(reported.upstreams_looping, [looping], "at once: a probe has shown it");
        let empty = EmptyGroup { group: "corp.example".to_owned(), why: "correct tls".to_owned() };
        assert_eq!(reported.upstreams_without_servers, [empty]);
    }

    #[test]
    fn k23_a_report_is_bounded_also_where_a_pod_answers_with_much() {
        let long = "x".repeat(2_000);
        let down = json!({"group": long, "server": long, "transport": long, "serverName": long,
            "seconds": 61, "remedy": long});
        let skipped = json!({"kind": long, "namespace": long, "name": long, "reason": long});
        let shown = json!({"instanceId": long, "revision": long, "maxFormat": 1, "role": long,
            "rejection": {"violations": vec![json!({"field": long, "message": long}); 9]},
            "skippedObjects": vec![skipped; 25], "upstreamsDown": vec![down.clone(); 300],
            "upstreamsLooping": vec![down; 300],
            "upstreamsWithoutServers": vec![json!({"group": long, "why": long}); 300],
            "certificates": vec![json!({"secret": long, "trouble": long}); 9]});
        let reported = Ok(read(shown.to_string().as_bytes()).unwrap());
        let octets = size::Size::default().with(&reported);
        assert!(octets < 176 << 10, "{octets}");

        let short = json!({"group": "", "server": "", "seconds": 61});
        let many = json!({"revision": "r", "maxFormat": 1, "upstreamsDown": vec![short; 100_000]});
        let reported = read(many.to_string().as_bytes()).unwrap();
        assert_eq!((reported.upstreams_down.len(), reported.revision.as_str()), (MAX_ROWS, "r"));
        let reported = size::Size::default().with(&Ok(reported));
        assert!(reported < 176 << 10, "{reported}");
    }

    #[test]
    fn k23_servers_that_are_down_for_a_moment_take_no_row_of_those_that_are_down() {
        let down = |server: &str, seconds: u64| json!({"group": "g", "server": server, "seconds": seconds, "remedy": "x".repeat(150)});
        let mut all = vec![down("192.0.2.1", DOWN_S - 1); MAX_ROWS];
        all.push(down("192.0.2.2", DOWN_S));
        let shown = json!({"revision": "r", "maxFormat": 1, "upstreamsDown": all});
        let reported = read(shown.to_string().as_bytes()).unwrap();
        let servers: Vec<&str> =
            reported.upstreams_down.iter().map(|it| it.server.as_str()).collect();
        assert_eq!(servers, ["192.0.2.2"]);

        let shown = json!({"revision": "r", "maxFormat": 1,
            "upstreamsDown": vec![down("192.0.2.3", DOWN_S); MAX_ROWS],
            "upstreamsLooping": [down("192.0.2.4", 1)],
            "upstreamsWithoutServers": [{"group": "corp.example", "why": "correct tls"}]});
        let reported = read(shown.to_string().as_bytes()).unwrap();
        assert!(reported.upstreams_down.len() < MAX_ROWS, "there is no room for all");
        assert_eq!(
            (reported.upstreams_looping.len(), reported.upstreams_without_servers.len()),
            (1, 1)
        );
    }

    #[test]
    fn k23_of_a_page_with_many_rows_few_are_held_while_it_is_read() {
        let skipped = json!({"kind": "", "namespace": "", "name": "", "reason": ""});
        let shown = json!({"revision": "r", "maxFormat": 1, "skippedObjects": vec![skipped; 5_000],
            "rejection": {"violations": vec![json!({"field": "", "message": ""}); 5_000]}});
        let shown: Shown = serde_json::from_value(shown).unwrap();
        let violations = shown.rejection.unwrap().violations.len();
        assert_eq!((shown.skipped_objects.len(), violations), (MAX_ROWS, MAX_ROWS));
    }
}
