//! A second writer of fields that are ours, such as a GitOps tool with another manifest, or an autoscaler. Each would undo the
//! edits of the other once a second, without end. A field that was put back several times is put back after a growing pause,
//! and is reported (O4). The memory is lost with the process. Pure but for the clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::core::DynamicObject;
use serde_json::Value;

use super::fingerprint::{self, Taken};
use crate::desired::Kind;

/// How often a field is put back at once: a person who edits it, and tries again, sees it at once.
const AT_ONCE: u32 = 3;
/// Pause before it is put back once more; doubled with each more.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A field that was not edited for this time counts from the beginning, and is not reported any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// Objects that are remembered.
const MAX_REMEMBERED: usize = 1_000;
/// Field managers that are remembered of one object.
const MAX_MANAGERS: usize = 8;
/// The name of a field that another client removed: nothing in the object names it.
const REMOVED: &str = "a field that was removed";

/// Kind, namespace and name of an object.
pub(super) type Key = (Kind, String, String);

/// An object that another client and we write in turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contested {
    /// Kind, namespace and name, for people.
    pub what: String,
    /// The field managers of the other clients.
    pub managers: Vec<String>,
    pub fields: Vec<String>,
}

/// What another client did to an object of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Edit {
    fields: BTreeSet<String>,
    managers: BTreeSet<String>,
    /// Clients get other answers, or none, until it is put back.
    is_urgent: bool,
}

/// How often a field was put back.
#[derive(Clone, Copy, Debug)]
struct PutBack {
    times: u32,
    last: Instant,
}

#[derive(Debug, Default)]
struct Contest {
    fields: BTreeMap<String, PutBack>,
    managers: BTreeSet<String>,
}

/// Which fields of which objects were put back, and when.
#[derive(Debug)]
pub(super) struct Contention {
    contests: Mutex<HashMap<Key, Contest>>,
    now: fn() -> Instant,
}

impl Default for Contention {
    fn default() -> Contention {
        Contention::by(Instant::now)
    }
}

impl Edit {
    /// `editor`: who wrote the object last.
    pub(super) fn of(
        kind: Kind,
        (wanted, live): (&DynamicObject, &DynamicObject),
        editor: Option<String>,
    ) -> Edit {
        let value = |object| serde_json::to_value::<&DynamicObject>(object).unwrap_or(Value::Null);
        let Taken { mut fields, mut managers } = fingerprint::taken(&value(wanted), &value(live));
        if fields.is_empty() {
            fields.insert(REMOVED.to_owned());
            managers.extend(editor);
        }
        let is_urgent = is_urgent(kind, &fields);
        Edit { fields, managers, is_urgent }
    }
}

/// Pods follow the ConfigMap within a second, and clients are led by these fields of the Service. They are reported all the
/// same.
fn is_urgent(kind: Kind, fields: &BTreeSet<String>) -> bool {
    let leads = |field: &String| {
        ["spec.selector", "spec.ports", REMOVED].iter().any(|start| field.starts_with(start))
    };
    kind == Kind::ConfigMap || kind == Kind::Service && fields.iter().any(leads)
}

impl Contention {
    /// With this clock.
    pub(super) fn by(now: fn() -> Instant) -> Contention {
        Contention { contests: Mutex::default(), now }
    }

    /// How long to wait before this edit is put back; none: it is put back at once.
    pub(super) fn pause(&self, key: &Key, edit: &Edit) -> Option<Duration> {
        let (contests, now) = (self.lock(), (self.now)());
        let contest = contests.get(key).filter(|_| !edit.is_urgent)?;
        let fields = edit.fields.iter().filter_map(|field| contest.fields.get(field));
        let until = fields.filter(|it| it.counts(now)).map(|it| it.last + pause(it.times)).max()?;
        Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// This edit was put back.
    pub(super) fn put_back(&self, key: Key, edit: &Edit) {
        let (mut contests, now) = (self.lock(), (self.now)());
        if contests.len() >= MAX_REMEMBERED && !contests.contains_key(&key) {
            contests.retain(|_, contest| contest.fields.values().any(|it| it.counts(now)));
            if contests.len() >= MAX_REMEMBERED {
                contests.clear();
            }
        }
        let contest = contests.entry(key).or_default();
        contest.fields.retain(|_, it| it.counts(now));
        if contest.fields.is_empty() {
            contest.managers.clear();
        }
        for field in &edit.fields {
            let before = contest.fields.get(field).map_or(0, |it| it.times);
            let times = before.saturating_add(1);
            contest.fields.insert(field.clone(), PutBack { times, last: now });
        }
        let room = MAX_MANAGERS.saturating_sub(contest.managers.len());
        contest.managers.extend(edit.managers.iter().take(room).cloned());
    }

    /// What of this object, as people call it, is put back again and again. No counts and no times: an unchanged status must not differ.
    pub(super) fn of(&self, key: &Key, what: &str) -> Option<Contested> {
        let (contests, now) = (self.lock(), (self.now)());
        let contest = contests.get(key)?;
        let is_many = |it: &PutBack| it.times >= AT_ONCE && it.counts(now);
        let fields = contest.fields.iter().filter(|(_, it)| is_many(it));
        let fields: Vec<String> = fields.map(|(field, _)| field.clone()).collect();
        (!fields.is_empty()).then(|| Contested {
            what: what.to_owned(),
            managers: contest.managers.iter().cloned().collect(),
            fields,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Contest>> {
        self.contests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PutBack {
    fn counts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < FORGOTTEN_AFTER
    }
}

/// The pause after a field was put back this many times.
fn pause(times: u32) -> Duration {
    let Some(doublings) = times.checked_sub(AT_ONCE) else { return Duration::ZERO };
    FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::LazyLock;

    use super::*;

    thread_local! {
        static SECONDS: Cell<u64> = const { Cell::new(0) };
    }
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    fn at(seconds: u64) {
        SECONDS.set(seconds);
    }

    fn contention() -> Contention {
        Contention::by(|| *BEGIN + Duration::from_secs(SECONDS.get()))
    }

    fn key() -> Key {
        (Kind::Deployment, "dns".to_owned(), "clusterdns-a".to_owned())
    }

    fn edit(field: &str) -> Edit {
        Edit {
            fields: [field.to_owned()].into(),
            managers: ["argocd".to_owned()].into(),
            is_urgent: false,
        }
    }

    /// How often a field is put back in this many seconds, where another client edits it every second.
    fn writes(contention: &Contention, seconds: u64, edit: &Edit) -> usize {
        let is_written = |second: u64| {
            at(second);
            let is_due = contention.pause(&key(), edit).is_none();
            if is_due {
                contention.put_back(key(), edit);
            }
            is_due
        };
        (0..seconds).filter(|second| is_written(*second)).count()
    }

    #[test]
    fn o4_a_field_that_another_client_edits_without_end_is_put_back_once_a_minute() {
        let contention = contention();
        assert_eq!(writes(&contention, 600, &edit("spec.replicas")), 16);
        let expected = Contested {
            what: "it".to_owned(),
            managers: vec!["argocd".to_owned()],
            fields: vec!["spec.replicas".to_owned()],
        };
        assert_eq!(contention.of(&key(), "it"), Some(expected));
        at(600 + FORGOTTEN_AFTER.as_secs());
        assert_eq!(contention.of(&key(), "it"), None, "it stopped");
        assert_eq!(contention.pause(&key(), &edit("spec.replicas")), None);
    }

    #[test]
    fn o4_single_edits_are_put_back_at_once_and_are_no_contest() {
        let contention = contention();
        for n in 0..50 {
            at(n);
            let edit = edit(&format!("metadata.labels.l{n}"));
            assert_eq!(contention.pause(&key(), &edit), None, "{n}");
            contention.put_back(key(), &edit);
        }
        assert_eq!(contention.of(&key(), "it"), None, "each was another field");
        // A tool that writes the same every six minutes.
        for n in 1..50 {
            at(1_000 + n * 360);
            assert_eq!(contention.pause(&key(), &edit("spec.replicas")), None, "{n}");
            contention.put_back(key(), &edit("spec.replicas"));
            assert_eq!(contention.of(&key(), "it"), None, "{n}");
        }
    }

    #[test]
    fn o4_what_leads_clients_is_put_back_at_once_and_reported() {
        let fields = |field: &str| [field.to_owned()].into();
        for (kind, field, expected) in [
            (Kind::ConfigMap, "data.stable.json", true),
            (Kind::Service, "spec.selector.clusterdns.dev/instance", true),
            (Kind::Service, "spec.ports[port=53,protocol=UDP].targetPort", true),
            (Kind::Service, REMOVED, true),
            (Kind::Service, "metadata.labels.app", false),
            (Kind::Deployment, "spec.selector.matchLabels.a", false),
        ] {
            assert_eq!(is_urgent(kind, &fields(field)), expected, "{field}");
        }
        let (contention, edit) = (contention(), Edit { is_urgent: true, ..edit("spec.selector") });
        assert_eq!(writes(&contention, 60, &edit), 60);
        assert!(contention.of(&key(), "it").is_some());
    }

    #[test]
    fn what_is_remembered_of_contests_is_bounded() {
        let contention = contention();
        at(0);
        for n in 0..=MAX_REMEMBERED {
            contention.put_back((Kind::Service, "n".to_owned(), n.to_string()), &edit("f"));
        }
        assert!(contention.lock().len() <= MAX_REMEMBERED);
        for n in 0..=MAX_MANAGERS {
            let managers = [format!("m{n}")].into();
            contention.put_back(key(), &Edit { managers, ..edit("f") });
        }
        assert!(contention.of(&key(), "it").unwrap().managers.len() == MAX_MANAGERS);
    }
}
