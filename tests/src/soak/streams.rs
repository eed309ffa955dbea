//! The writer of a data plane in process, with one stream for each kind of object, as its watches are: each is behind by
//! some changes of its own. After every step the PTRs of all addresses are asked for. They must be what the oracle says of
//! exactly the objects that were read, and the judge of a soak, which only knows what changed, must not call them wrong.

use std::collections::VecDeque;
use std::net::IpAddr;

use dataplane::source::writer::{Setup, Writer};
use dataplane_core::{Action, Change, DataSource, Object, Relist, Resource, Settings, Transport};

use super::churn::{self, CLUSTER_V4, CLUSTER_V6, V4, V6};
use super::history::History;
use super::judge::{Judge, Verdict};
use super::objects::{Configuration, fixed};
use super::questions::{plain, reverse_name};
use super::replies::{Allowed, Reply};
use crate::in_process::{InProcess, identity};
use crate::mutate::Random;
use crate::oracle::decode::decode;
use crate::oracle::expected::{Expected, Question, rtype};
use crate::oracle::{Identity, Oracle};

const STEPS: usize = 120;
const ID: u16 = 7;
/// One step in this many is held against the judge too, which tries many choices.
const JUDGED: usize = 9;

/// A cluster, and a data plane that has read a part of what happened in it.
struct Play {
    writer: Writer,
    /// What was read, by the rules.
    oracle: Oracle,
    /// The newest configuration, while it needs lists.
    waiting: Option<Configuration>,
    /// The kinds that were listed since.
    listed: [bool; Resource::ALL.len()],
    history: History,
    /// Changes that each stream has not brought yet.
    streams: [VecDeque<Change>; Resource::ALL.len()],
    /// Everything up to this change was read.
    seen: u64,
    version: u64,
}

fn settings(configuration: Configuration) -> Settings {
    dataplane::settings::of(&configuration.document(&[])).unwrap()
}

/// The object at this version; a kind and a name have one uid.
fn stamped(mut object: Object, version: u64) -> Object {
    let (uid, own) = match &mut object {
        Object::Service(service) => (&mut service.uid, &mut service.version),
        Object::Slice(slice) => (&mut slice.uid, &mut slice.version),
        Object::Namespace(namespace) => (&mut namespace.uid, &mut namespace.version),
        Object::Pod(pod) => (&mut pod.uid, &mut pod.version),
    };
    (*uid, *own) = (1, version);
    object
}

impl Play {
    fn new() -> Play {
        let setup = Setup {
            counters: Vec::new(),
            identity: identity(),
            resolv_conf: "/nonexistent".into(),
            location: Default::default(),
            status: Default::default(),
        };
        let first = Configuration::FIRST;
        let names = Identity { pod_name: "pod".into(), ..Identity::default() };
        let mut play = Play {
            writer: Writer::new(&first.document(&[]), setup).unwrap(),
            oracle: Oracle::new(settings(first), names),
            waiting: None,
            listed: Default::default(),
            history: History::new(settings(first)),
            streams: Default::default(),
            seen: 0,
            version: 0,
        };
        fixed().into_iter().for_each(|object| play.make(Change::Apply(object)));
        Resource::ALL.into_iter().for_each(|resource| play.list(resource, 1));
        play
    }

    /// A change in the cluster, which its stream brings later.
    fn make(&mut self, change: Change) {
        self.version += 1;
        let change = match change {
            Change::Apply(object) => {
                self.history.put(object.clone());
                Change::Apply(stamped(object, self.version))
            }
            Change::Delete(resource, key) => {
                self.history.delete((resource, key.clone()));
                Change::Delete(resource, key)
            }
        };
        let resource = match &change {
            Change::Apply(object) => object.resource(),
            Change::Delete(resource, _) => *resource,
        };
        self.streams[resource as usize].push_back(change);
    }

    /// The stream of one kind brings some of its changes, in their order.
    fn bring(&mut self, resource: Resource, count: usize) {
        for _ in 0..count {
            let Some(change) = self.streams[resource as usize].pop_front() else { break };
            self.read(change);
        }
    }

    fn read(&mut self, change: Change) {
        self.oracle.store.apply(change.clone());
        self.writer.apply(change);
    }

    /// The stream has ended, and everything of its kind is listed. After each `shown` objects what was read is shown.
    fn list(&mut self, resource: Resource, shown: usize) {
        self.streams[resource as usize].clear();
        let objects = self.history.now();
        let objects = objects.into_iter().filter(|((of, _), _)| *of == resource);
        self.writer.begin(resource);
        self.oracle.store.begin_list(resource);
        self.writer.list_is_at(resource, self.version);
        for (number, (_, object)) in objects.enumerate() {
            self.read(Change::Apply(stamped(object, self.version)));
            if number % shown == 0 {
                self.compare();
            }
        }
        self.writer.complete(resource, self.version);
        self.oracle.store.end_list(resource, self.version, DataSource::Live);
        self.listed[resource as usize] = true;
        if self.waiting.is_some() && !self.writer.is_renewing() {
            let configuration = self.waiting.take().expect("it waits");
            self.oracle.settings = settings(configuration);
        }
    }

    /// Another configuration, which may need every object again before it is in use.
    fn configure(&mut self, configuration: Configuration) {
        let document = configuration.document(&[]);
        self.history.configure(settings(configuration));
        if self.writer.relist_for(&document) == Relist::Nothing {
            self.writer.configure(&document).unwrap();
            self.oracle.settings = settings(configuration);
            self.waiting = None;
        } else {
            self.writer.renew(&document).unwrap();
            (self.waiting, self.listed) = (Some(configuration), Default::default());
        }
    }

    /// Everything that happened is read.
    fn settle(&mut self) {
        Resource::ALL.into_iter().for_each(|resource| self.bring(resource, usize::MAX));
        for resource in Resource::ALL {
            // What came after a list is not listed again.
            if self.waiting.is_some() && !self.listed[resource as usize] {
                self.list(resource, 3);
            }
        }
        assert!(self.waiting.is_none(), "the configuration is in use");
        self.compare();
        self.seen = self.history.number();
    }

    fn step(&mut self, random: &mut Random) {
        let resource = *random.choose(&Resource::ALL);
        match random.below(20) {
            0..=9 => match churn::change(random, 0) {
                churn::Change::Put(object) => self.make(Change::Apply(object)),
                churn::Change::Delete(resource, key) => {
                    if self.history.holds(&(resource, key.clone())) {
                        self.make(Change::Delete(resource, key));
                    }
                }
                churn::Change::Configure(configuration) => self.configure(configuration),
            },
            // A configuration that waits is in use after a list of each kind; much comes between them.
            10..=11 if self.waiting.is_some() => self.list(resource, 3),
            10..=16 => self.bring(resource, 1 + random.below(3)),
            17 => self.list(resource, 1 + random.below(4)),
            18 => {
                let by_pod_name = random.below(2) == 0;
                self.configure(Configuration { by_pod_name, ..Configuration::FIRST });
            }
            _ => self.settle(),
        }
        self.compare();
    }

    /// Every PTR is what the objects say that were read.
    fn compare(&mut self) {
        self.writer.publish();
        for address in addresses() {
            let question = question(address);
            let expected = self.oracle.answer(&question);
            let found = self.differs(&question, &self.oracle.settings, &expected);
            assert!(found.is_empty(), "{question:?}: {found:#?}\n{:#?}", self.oracle.store.objects);
        }
    }

    /// No PTR is one that the judge of a soak calls wrong.
    fn judge(&self) {
        for address in addresses() {
            let question = question(address);
            let mut judge = Judge::new(&self.history, self.seen, "pod");
            let verdict = judge.judge(&question, &mut |settings, expected| {
                self.differs(&question, settings, expected)
            });
            assert!(!matches!(verdict, Verdict::Wrong(_)), "{question:?}: {verdict:#?}");
        }
    }

    /// In what the reply of the data plane is another than expected.
    fn differs(
        &self,
        question: &Question,
        settings: &Settings,
        expected: &Expected,
    ) -> Vec<String> {
        let core = InProcess::new(self.writer.state().published.load().records.clone());
        let (packet, mut buffer) = (question.packet(ID), vec![0; 4_096]);
        let action = core.decide(&packet, Transport::Udp, 1, &mut buffer).0;
        let length = match (action, expected) {
            (Action::Reply(length), _) => length,
            (Action::Forward(_), Expected::Forward { .. }) => return Vec::new(),
            (Action::Forward(_) | Action::Drop, _) => return vec!["it has no answer".into()],
        };
        let decoded = decode(&buffer[..length]).unwrap();
        let allowed = Allowed::default();
        Reply { question, id: ID, decoded: &decoded, pod_name: "pod", allowed }
            .differs(settings, expected)
    }
}

/// Those that Services and Pods of a soak share.
fn addresses() -> impl Iterator<Item = IpAddr> {
    let all = V4.iter().chain(&V6).chain(&CLUSTER_V4[..2]).chain(&CLUSTER_V6[..1]);
    all.map(|text| text.parse().expect("an address of the pools"))
}

fn question(address: IpAddr) -> Question {
    plain(&reverse_name(address), rtype::PTR)
}

#[test]
fn k21_rr61_ptrs_of_shared_addresses_are_right_at_every_step_of_every_stream() {
    for seed in 0..12 {
        let (mut play, mut random) = (Play::new(), Random::new(seed));
        for step in 0..STEPS {
            play.step(&mut random);
            if step % JUDGED == 0 {
                play.judge();
            }
        }
        play.settle();
    }
}
