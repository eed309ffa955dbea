//! Random histories of what the API shows and what people configure, played to index and oracle alike.

use std::fmt;
use std::net::IpAddr;

use dataplane_core::{Change, DataSource, Key, Object, Relist, Resource, Settings};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tests::oracle::Oracle;
use tests::oracle::compare::differences;
use tests::oracle::expected::Question;

use crate::configurations::{ZONES, settings};
use crate::questions::question;
use crate::subject::{ID, NOW_S, Subject, identity};
use crate::universe::{
    claim, describe, namespace, object, object_key, pod, service, service_key, slice, stamp,
    stamped,
};

/// One event; the index publishes after each.
#[derive(Clone)]
pub(crate) enum Step {
    /// An object is added or changed; or deleted and made again, unnoticed.
    Apply { object: Object, again_after_delete: bool },
    /// An object is deleted, known or not.
    Delete(Resource, Key),
    /// The object held at this place comes once more as it is.
    Repeat(usize),
    /// An older version of an object arrives late (E14).
    Late(Object),
    /// A complete list: the held objects that the bits select, and new or changed ones.
    Relist { resource: Resource, keep: u32, objects: Vec<Object>, source: DataSource },
    /// A list that fails after some objects (E22).
    FailedList { resource: Resource, keep: u32 },
    /// A Service, which may be hidden, gets the address of an endpoint as its cluster IP (RR60).
    Claim(Key, usize),
    /// Another configuration (E5).
    Configure(Box<Settings>),
}

/// A configuration, what happens under it, and what is asked after every step.
#[derive(Clone)]
pub(crate) struct History {
    pub(crate) settings: Settings,
    pub(crate) steps: Vec<Step>,
    pub(crate) questions: Vec<Question>,
    /// Whether questions come before the first lists are complete as well.
    pub(crate) asked_early: bool,
    /// Decides the rotation of RRsets.
    pub(crate) seed: u64,
}

fn source() -> impl Strategy<Value = DataSource> {
    prop_oneof![
        12 => Just(DataSource::Live),
        1 => Just(DataSource::Snapshot { confirmed_at_s: NOW_S - 90 }),
    ]
}

fn resource() -> impl Strategy<Value = Resource> {
    select(Resource::ALL.to_vec())
}

fn step(zone: &'static str) -> impl Strategy<Value = Step> {
    let relist = (resource(), any::<u32>(), vec(object(zone), 0..4), source());
    prop_oneof![
        8 => (object(zone), prop::bool::weighted(0.1))
            .prop_map(|(object, again_after_delete)| Step::Apply { object, again_after_delete }),
        3 => object_key().prop_map(|(resource, key)| Step::Delete(resource, key)),
        1 => any::<usize>().prop_map(Step::Repeat),
        1 => object(zone).prop_map(Step::Late),
        2 => relist.prop_map(|(resource, keep, mut objects, source)| {
            objects.retain(|object| object.resource() == resource);
            Step::Relist { resource, keep, objects, source }
        }),
        1 => (resource(), any::<u32>())
            .prop_map(|(resource, keep)| Step::FailedList { resource, keep }),
        2 => (service_key(), any::<usize>()).prop_map(|(key, at)| Step::Claim(key, at)),
        2 => settings(zone).prop_map(|settings| Step::Configure(Box::new(settings))),
    ]
}

/// The first lists: objects of every kind, some resources perhaps missing or from a snapshot.
fn first_lists(zone: &'static str) -> impl Strategy<Value = Vec<Step>> {
    let sources = [source(), source(), source(), source()];
    let missing = prop_oneof![
        9 => Just(vec![]),
        1 => proptest::sample::subsequence(Resource::ALL.to_vec(), 1..4),
    ];
    let [a, b, c, d] = Resource::ALL;
    let order = select(vec![[a, b, c, d], [b, a, d, c], [c, a, d, b], [d, c, b, a]]);
    let objects =
        (vec(service(zone), 0..24), vec(slice(), 0..24), vec(namespace(), 0..6), vec(pod(), 0..8));
    (objects, sources, missing, order).prop_map(
        |((services, slices, namespaces, pods), sources, missing, order)| {
            let list = |(resource, source): (Resource, DataSource)| {
                let objects = match resource {
                    Resource::Services => services.clone(),
                    Resource::EndpointSlices => slices.clone(),
                    Resource::Namespaces => namespaces.clone(),
                    Resource::Pods => pods.clone(),
                };
                Step::Relist { resource, keep: 0, objects, source }
            };
            let lists = order.into_iter().zip(sources);
            lists.filter(|(resource, _)| !missing.contains(resource)).map(list).collect()
        },
    )
}

fn early() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.2)
}

/// A history of at most `steps` steps after the first lists.
pub(crate) fn history(steps: usize, questions: usize) -> impl Strategy<Value = History> {
    let zone = prop_oneof![6 => Just(ZONES[0]), 1 => Just(ZONES[1]), 2 => Just(ZONES[2])];
    zone.prop_flat_map(move |zone| {
        let steps = (first_lists(zone), vec(step(zone), 0..=steps));
        (settings(zone), steps, vec(question(zone), 1..=questions), any::<u64>(), early()).prop_map(
            |(settings, (mut first, then), questions, seed, asked_early)| {
                first.extend(then);
                History { settings, steps: first, questions, asked_early, seed }
            },
        )
    })
}

impl History {
    /// Whether the questions are asked after this step.
    pub(crate) fn is_asked_after(&self, step: usize) -> bool {
        self.asked_early || step + 1 >= Resource::ALL.len().min(self.steps.len())
    }
}

/// Index and oracle side by side.
pub(crate) struct Play {
    pub(crate) subject: Subject,
    pub(crate) oracle: Oracle,
    version: u64,
}

impl Play {
    pub(crate) fn new(settings: Settings) -> Play {
        let oracle = Oracle::new(settings.clone(), identity());
        Play { subject: Subject::new(settings), oracle, version: 1000 }
    }

    fn held(&self, object: &Object) -> Option<&Object> {
        self.oracle
            .store
            .objects
            .iter()
            .find(|held| held.resource() == object.resource() && held.key() == object.key())
    }

    fn held_of(&self, resource: Resource) -> Vec<Object> {
        let objects = self.oracle.store.objects.iter();
        objects.filter(|object| object.resource() == resource).cloned().collect()
    }

    /// All that slices list, of Services that are visible or not.
    fn endpoint_addresses(&self) -> Vec<IpAddr> {
        let slices = self.oracle.store.objects.iter().filter_map(|object| match object {
            Object::Slice(slice) => Some(slice),
            Object::Service(_) | Object::Namespace(_) | Object::Pod(_) => None,
        });
        let endpoints = slices.flat_map(|slice| &slice.endpoints);
        endpoints.flat_map(|endpoint| endpoint.addresses.iter().copied()).collect()
    }

    /// The object as the API would send it now: the uid it has, or a new one, and a new version.
    fn fresh(&mut self, object: Object, new_uid: bool) -> Object {
        self.version += 1;
        let uid = match self.held(&object) {
            Some(held) if !new_uid => stamp(held).0,
            _ => u128::from(self.version),
        };
        stamped(object, uid, self.version)
    }

    fn change(&mut self, change: Change) -> bool {
        self.oracle.store.apply(change.clone());
        self.subject.index.apply(change).visible
    }

    fn relist(&mut self, resource: Resource, keep: u32, objects: Vec<Object>) {
        self.subject.index.begin_list(resource);
        self.oracle.store.begin_list(resource);
        for (at, object) in self.held_of(resource).into_iter().enumerate() {
            if keep >> (at % 32) & 1 == 1 {
                self.change(Change::Apply(object));
            }
        }
        for object in objects {
            let object = self.fresh(object, false);
            self.change(Change::Apply(object));
        }
    }

    pub(crate) fn step(&mut self, step: &Step) -> Result<(), String> {
        let mut must_be_quiet = false;
        match step.clone() {
            Step::Apply { object, again_after_delete } => {
                let object = self.fresh(object, again_after_delete);
                self.change(Change::Apply(object));
            }
            Step::Delete(resource, key) => {
                let known = self
                    .oracle
                    .store
                    .objects
                    .iter()
                    .any(|object| object.resource() == resource && object.key() == key);
                must_be_quiet = !known;
                self.change(Change::Delete(resource, key));
            }
            Step::Repeat(at) => {
                let objects = &self.oracle.store.objects;
                if !objects.is_empty() {
                    must_be_quiet = true;
                    let object = objects[at % objects.len()].clone();
                    self.change(Change::Apply(object));
                }
            }
            Step::Late(object) => {
                if let Some(held) = self.held(&object) {
                    let (uid, version) = stamp(held);
                    must_be_quiet = true;
                    self.change(Change::Apply(stamped(object, uid, version - 1)));
                }
            }
            Step::Relist { resource, keep, objects, source } => {
                self.relist(resource, keep, objects);
                self.version += 1;
                self.subject.index.end_list(resource, self.version, source);
                self.oracle.store.end_list(resource, self.version, source);
            }
            Step::FailedList { resource, keep } => {
                self.relist(resource, keep, Vec::new());
                must_be_quiet = true;
            }
            Step::Claim(key, at) => {
                let mut addresses = self.endpoint_addresses();
                // No API server gives a Service an IPv4-mapped address.
                addresses.retain(|address| address.to_canonical() == *address);
                if !addresses.is_empty() {
                    let object = claim(key, addresses[at % addresses.len()]);
                    let object = self.fresh(object, false);
                    self.change(Change::Apply(object));
                }
            }
            Step::Configure(settings) => {
                self.oracle.settings = (*settings).clone();
                if self.subject.index.configure(*settings) != Relist::Nothing {
                    for object in self.oracle.store.objects.clone() {
                        self.subject.index.apply(Change::Apply(object));
                    }
                }
            }
        }
        let shown = self.subject.publish();
        // E14: a change without effect publishes nothing.
        if must_be_quiet && shown { Err("something new was published".into()) } else { Ok(()) }
    }

    /// Asks and compares; the error shows both answers.
    pub(crate) fn ask(&mut self, question: &Question, seed: u64) -> Result<(), String> {
        let expected = self.oracle.answer(question);
        let actual = self.subject.ask(question, seed)?;
        let pod_name = &self.oracle.identity.pod_name;
        let found = differences(&self.oracle.settings, pod_name, question, ID, &expected, &actual);
        if found.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{question:?}\n  {}\nthe rules: {expected:?}\nthe core: {actual:?}",
            found.join("\n  ")
        ))
    }

    pub(crate) fn run(history: &History) -> Result<(), String> {
        let mut play = Play::new(history.settings.clone());
        if history.asked_early {
            play.ask_all(history).map_err(|error| format!("before anything: {error}"))?;
        }
        for (at, step) in history.steps.iter().enumerate() {
            play.step(step).map_err(|error| format!("in step {at}: {error}"))?;
            if history.is_asked_after(at) {
                play.ask_all(history).map_err(|error| format!("after step {at}: {error}"))?;
            }
        }
        Ok(())
    }

    fn ask_all(&mut self, history: &History) -> Result<(), String> {
        history.questions.iter().try_for_each(|question| self.ask(question, history.seed))
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Apply { object, again_after_delete } => {
                let again = if *again_after_delete { " (deleted and made again)" } else { "" };
                write!(f, "apply{again} {}", describe(object))
            }
            Step::Delete(resource, key) => write!(f, "delete {} {key}", resource.plural()),
            Step::Repeat(at) => write!(f, "repeat object {at}"),
            Step::Late(object) => write!(f, "late {}", describe(object)),
            Step::Relist { resource, keep, objects, source } => {
                write!(f, "list {} keeping {keep:#b}, {source:?}", resource.plural())?;
                objects.iter().try_for_each(|object| write!(f, "\n      {}", describe(object)))
            }
            Step::FailedList { resource, keep } => {
                write!(f, "failed list of {} keeping {keep:#b}", resource.plural())
            }
            Step::Claim(key, at) => write!(f, "service {key} claims endpoint address {at}"),
            Step::Configure(settings) => write!(f, "configure {settings:?}"),
        }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nunder {:?}", self.settings)?;
        for (at, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {at}: {step:?}")?;
        }
        write!(f, "asked {:?}", self.questions)
    }
}
