//! The same final objects by different ways: another order, duplicates, objects that came and
//! went, and a resync. Answers must not depend on the way.

use std::fmt;

use dataplane_core::{Change, DataSource, Object, Resource, Settings, Transport};
use proptest::collection::vec;
use proptest::prelude::*;
use tests::oracle::compare::Actual;
use tests::oracle::expected::{Data, Question, Record};

use crate::configurations::{ZONES, settings};
use crate::questions::question;
use crate::subject::Subject;
use crate::universe::{describe, object, stamped};

/// A version that is newer than all objects that came and went.
const LIST_VERSION: u64 = 1_000_000;

/// One final state and a second way to it.
#[derive(Clone)]
pub(crate) struct Arrival {
    settings: Settings,
    objects: Vec<Object>,
    /// The same with duplicates, in another order.
    shuffled: Vec<Object>,
    gone: Vec<Object>,
    lists: Vec<Resource>,
    questions: Vec<Question>,
}

/// The last object of each key, with versions that grow.
fn final_objects(objects: Vec<Object>) -> Vec<Object> {
    let mut held: Vec<Object> = Vec::new();
    for (at, object) in objects.into_iter().enumerate() {
        let number = 1000 + at as u64;
        held.retain(|other| (other.resource(), other.key()) != (object.resource(), object.key()));
        held.push(stamped(object, u128::from(number), number));
    }
    held
}

pub(crate) fn arrival(questions: usize) -> impl Strategy<Value = Arrival> {
    let zone = ZONES[0];
    let objects = vec(object(zone), 4..40).prop_map(final_objects);
    let objects = objects.prop_flat_map(|objects| {
        let twice = objects.iter().step_by(3).chain(&objects).cloned().collect::<Vec<_>>();
        (Just(objects), Just(twice).prop_shuffle())
    });
    let gone = vec(object(zone), 0..10);
    let lists = Just(Resource::ALL.to_vec()).prop_shuffle();
    (settings(zone), objects, gone, lists, vec(question(zone), questions)).prop_map(
        |(settings, (objects, shuffled), gone, lists, questions)| Arrival {
            settings,
            objects,
            shuffled,
            gone,
            lists,
            questions,
        },
    )
}

fn apply(subject: &mut Subject, objects: &[Object]) {
    for object in objects {
        subject.index.apply(Change::Apply(object.clone()));
    }
}

fn list(subject: &mut Subject, resources: &[Resource], objects: &[Object]) -> usize {
    for resource in resources {
        subject.index.begin_list(*resource);
    }
    apply(subject, objects);
    let end =
        |resource: &Resource| subject.index.end_list(*resource, LIST_VERSION, DataSource::Live);
    resources.iter().map(end).sum()
}

impl Arrival {
    /// These objects as they are, and in the opposite order.
    pub(crate) fn reversed(
        settings: Settings,
        objects: Vec<Object>,
        questions: Vec<Question>,
    ) -> Arrival {
        let shuffled = objects.iter().rev().cloned().collect();
        let (gone, lists) = (Vec::new(), Resource::ALL.to_vec());
        Arrival { settings, objects, shuffled, gone, lists, questions }
    }

    pub(crate) fn run(&self) -> Result<(), String> {
        let mut straight = Subject::new(self.settings.clone());
        list(&mut straight, &Resource::ALL, &self.objects);
        straight.publish();

        let mut crooked = Subject::new(self.settings.clone());
        for (at, object) in self.gone.iter().enumerate() {
            let object = stamped(object.clone(), at as u128 + 1, at as u64 + 1);
            crooked.index.apply(Change::Apply(object));
            crooked.publish();
        }
        list(&mut crooked, &self.lists, &self.shuffled);
        crooked.publish();
        self.compare(&mut straight, &mut crooked)?;

        // A resync is silent and changes nothing (E14, E21).
        let removed = list(&mut crooked, &self.lists, &self.shuffled);
        if removed > 0 {
            return Err(format!("a resync removed {removed} objects"));
        }
        if crooked.publish() {
            return Err("a resync that changes nothing published something".into());
        }
        self.compare(&mut straight, &mut crooked)
    }

    fn compare(&self, straight: &mut Subject, crooked: &mut Subject) -> Result<(), String> {
        for question in &self.questions {
            let mut ask = |question: &Question| -> Result<_, String> {
                let (one, other) = (straight.ask(question, 1)?, crooked.ask(question, 2)?);
                Ok((normalised(&one), normalised(&other)))
            };
            let (one, other) = ask(question)?;
            let mut equal = one == other;
            if !equal && one.head == other.head {
                // Both are asked, because both count their replies.
                let whole = Question { transport: Transport::Tcp, ..question.clone() };
                let (whole, other_whole) = ask(&whole)?;
                equal = whole == other_whole
                    && (one.is_truncated || one.answer == other.answer)
                    && [&one, &other].iter().all(|it| it.is_part_of(&whole));
            }
            if !equal {
                return Err(format!("{question:?}\nin order: {one:#?}\nshuffled: {other:#?}"));
            }
        }
        Ok(())
    }
}

/// What must be equal: everything but serials, counters and the order inside rotated RRsets. What
/// does not fit is left out, with TC (WR21) or, of additional addresses, without (RR38). Which and
/// how many records those are is a matter of that order; over TCP all are there.
#[derive(Debug, PartialEq)]
struct Normalised {
    head: Vec<String>,
    is_truncated: bool,
    answer: Vec<String>,
    additional: Vec<String>,
}

impl Normalised {
    /// Whether `whole` has all of these records, and more.
    fn is_part_of(&self, whole: &Normalised) -> bool {
        let is_part = |one: &[String], of: &[String]| one.iter().all(|record| of.contains(record));
        let count = |it: &Normalised| it.answer.len() + it.additional.len();
        count(self) < count(whole)
            && is_part(&self.answer, &whole.answer)
            && is_part(&self.additional, &whole.additional)
    }
}

fn normalised(actual: &Actual) -> Normalised {
    let only = |line: String| Normalised {
        head: vec![line],
        is_truncated: false,
        answer: Vec::new(),
        additional: Vec::new(),
    };
    let reply = match actual {
        Actual::Drop => return only("dropped".into()),
        Actual::Forward { group, name, qtype, failure } => {
            return only(format!("group {group} {name} {qtype} {:?}", failure.answer));
        }
        Actual::Reply(reply) => reply,
    };
    let mut head = vec![format!("rcode {} aa {} tc {}", reply.rcode, reply.aa, reply.tc)];
    head.push(format!("{:?}", reply.opt));
    head.extend(section(&reply.authority));
    Normalised {
        head,
        is_truncated: reply.tc,
        answer: section(&reply.answer),
        additional: section(&reply.additional),
    }
}

fn section(records: &[Record]) -> Vec<String> {
    let mut records = records.to_vec();
    for record in &mut records {
        if let Data::Soa(_, _, serial, _) = &mut record.data {
            *serial = None;
        }
    }
    let rotates = |record: &Record| matches!(record.data, Data::Address(_) | Data::Srv(..));
    if records.iter().any(rotates) {
        records.sort_by_key(|record| (!matches!(record.data, Data::Cname(_)), record.clone()));
    }
    records.iter().map(|record| format!("{record:?}")).collect()
}

impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nunder {:?}", self.settings)?;
        for object in &self.gone {
            writeln!(f, "  before: {}", describe(object))?;
        }
        for object in &self.objects {
            writeln!(f, "  in order: {}", describe(object))?;
        }
        for object in &self.shuffled {
            writeln!(f, "  shuffled: {}", describe(object))?;
        }
        write!(f, "asked {:?}", self.questions)
    }
}
