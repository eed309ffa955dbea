//! A second writer of fields that are ours, such as a GitOps tool with another manifest, or an autoscaler. Each would undo the
//! edits of the other once a second, without end. A field that was put back several times is put back after a growing pause,
//! and is reported (O4). The memory is lost with the process. Pure except for the clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::core::DynamicObject;
use serde_json::Value;

use super::fingerprint::{self, Owners};
use super::last_applied::KINDS;
use super::urgent::is_urgent;
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
/// Field managers that are remembered of one field.
const MAX_MANAGERS: usize = 8;
/// A field of which the object does not show that another client wrote or removed it, as where that client uses our own name.
const UNNAMED: &str = "a field that managedFields do not name";
/// In place of a field where the object was deleted.
const DELETED: &str = "the whole object, by deleting it";

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
    /// Each with who wrote or removed it.
    fields: Owners,
    /// Clients get other answers, or none, until it is put back.
    is_urgent: bool,
}

/// How often a field was put back, and who had edited it.
#[derive(Clone, Debug)]
struct PutBack {
    times: u32,
    last: Instant,
    managers: BTreeSet<String>,
}

/// By field.
type Contest = BTreeMap<String, PutBack>;

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
        let (wanted, live) = (value(wanted), value(live));
        let mut fields = fingerprint::taken(&wanted, &live);
        // Nothing says who removed a field: it is most likely the client that wrote last.
        let editor: BTreeSet<String> = editor.into_iter().collect();
        let removed = fingerprint::removed(&wanted, &live);
        fields.extend(removed.into_iter().map(|path| (path, editor.clone())));
        if fields.is_empty() {
            fields.insert(UNNAMED.to_owned(), editor);
        }
        Edit { fields, is_urgent: is_urgent(kind, &wanted, &live) }
    }

    /// Nothing says who deleted it.
    pub(super) fn deletion(kind: Kind) -> Edit {
        let is_urgent = kind == Kind::ConfigMap || KINDS.contains(&kind);
        Edit { fields: [(DELETED.to_owned(), BTreeSet::new())].into(), is_urgent }
    }
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
        // A field that was not put back lately is put back at once, and all others with it.
        let until = |field| {
            let it = contest.get(field).filter(|it| it.counts(now))?;
            Some(it.last + pause(it.times))
        };
        let until: Option<Vec<Instant>> = edit.fields.keys().map(until).collect();
        let until = until?.into_iter().min()?;
        Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// This edit was put back.
    pub(super) fn put_back(&self, key: Key, edit: &Edit) {
        let (mut contests, now) = (self.lock(), (self.now)());
        if contests.len() >= MAX_REMEMBERED && !contests.contains_key(&key) {
            contests.retain(|_, contest| contest.values().any(|it| it.counts(now)));
            if contests.len() >= MAX_REMEMBERED {
                contests.clear();
            }
        }
        let contest = contests.entry(key).or_default();
        contest.retain(|_, it| it.counts(now));
        for (field, managers) in &edit.fields {
            let never = || PutBack { times: 0, last: now, managers: BTreeSet::new() };
            let it = contest.entry(field.clone()).or_insert_with(never);
            (it.times, it.last) = (it.times.saturating_add(1), now);
            let room = MAX_MANAGERS.saturating_sub(it.managers.len());
            let new: Vec<_> = managers.difference(&it.managers).take(room).cloned().collect();
            it.managers.extend(new);
        }
    }

    /// What of this object, as people call it, is put back again and again. No counts and no times: an unchanged status must not differ.
    pub(super) fn of(&self, key: &Key, what: &str) -> Option<Contested> {
        let (contests, now) = (self.lock(), (self.now)());
        let contest = contests.get(key)?;
        let is_many = |it: &PutBack| it.times >= AT_ONCE && it.counts(now);
        let many = || contest.iter().filter(|(_, it)| is_many(it));
        let managers: BTreeSet<&String> = many().flat_map(|(_, it)| &it.managers).collect();
        let fields: Vec<String> = many().map(|(field, _)| field.clone()).collect();
        (!fields.is_empty()).then(|| Contested {
            what: what.to_owned(),
            managers: managers.into_iter().cloned().collect(),
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

    use serde_json::json;

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
        edit_by("argocd", &[field])
    }

    fn edit_by(manager: &str, fields: &[&str]) -> Edit {
        let field = |field: &&str| ((*field).to_owned(), [manager.to_owned()].into());
        Edit { fields: fields.iter().map(field).collect(), is_urgent: false }
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
    fn o4_what_clients_depend_on_is_put_back_at_once_and_reported() {
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
            contention.put_back(key(), &edit_by(&format!("m{n}"), &["f"]));
        }
        assert!(contention.of(&key(), "it").unwrap().managers.len() == MAX_MANAGERS);
    }

    #[test]
    fn o4_a_single_edit_is_put_back_at_once_beside_a_contested_field() {
        let contention = contention();
        writes(&contention, 600, &edit("spec.replicas"));
        assert!(contention.pause(&key(), &edit("spec.replicas")).is_some());
        let both = edit_by("argocd", &["spec.replicas", "spec.paused"]);
        assert_eq!(contention.pause(&key(), &both), None, "the second one is new");
        contention.put_back(key(), &both);
        let paused = edit("spec.paused");
        assert_eq!(contention.pause(&key(), &paused), None, "it was put back once");
        assert_eq!(contention.pause(&key(), &both), None);
        at(600 + FORGOTTEN_AFTER.as_secs());
        contention.put_back(key(), &edit("spec.paused"));
        assert_eq!(contention.pause(&key(), &both), None, "the first one does not count any more");
    }

    #[test]
    fn o4_managers_are_named_with_the_fields_that_they_contest_and_no_others() {
        let contention = contention();
        at(0);
        contention.put_back(key(), &edit_by("kubectl", &["spec.paused"]));
        for _ in 0..AT_ONCE {
            contention.put_back(key(), &edit_by("argocd", &["spec.replicas"]));
        }
        let contested = contention.of(&key(), "it").unwrap();
        assert_eq!(
            (&contested.managers[..], &contested.fields[..]),
            (&["argocd".to_owned()][..], &["spec.replicas".to_owned()][..])
        );
        // One that is known takes no place of a new one.
        let all = |count: usize| Edit {
            fields: [("f".to_owned(), (0..count).map(|n| format!("m{n}")).collect())].into(),
            is_urgent: false,
        };
        contention.put_back(key(), &all(MAX_MANAGERS - 1));
        for _ in 0..AT_ONCE {
            contention.put_back(key(), &all(MAX_MANAGERS));
        }
        let managers = contention.of(&key(), "it").unwrap().managers;
        let is_last = |it: &String| *it == format!("m{}", MAX_MANAGERS - 1);
        assert!(managers.iter().any(is_last), "{managers:?}");
    }

    #[test]
    fn o4_two_removed_fields_are_two_and_no_single_one() {
        let object = |value| serde_json::from_value::<DynamicObject>(value).unwrap();
        let wanted = object(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"paused": false, "replicas": 2}}),
        );
        let live = |owned: &str| {
            let ours = json!({"f:spec": {owned: {}}});
            object(
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "managedFields": [
                {"manager": "clusterdns-operator", "operation": "Apply", "fieldsV1": ours}]}}),
            )
        };
        let removed = |owned| {
            let edit =
                Edit::of(Kind::Deployment, (&wanted, &live(owned)), Some("kubectl".to_owned()));
            edit.fields
        };
        assert_eq!(removed("f:replicas"), edit_by("kubectl", &["spec.paused"]).fields);
        assert_eq!(removed("f:paused"), edit_by("kubectl", &["spec.replicas"]).fields);
    }
}
