//! Whether a reply is one that the objects allow. Each object that changed since a data plane was known to have seen
//! everything may be shown in any of its versions since; a reply that no such choice explains is wrong.

use std::collections::BTreeSet;

use dataplane_core::{DataSource, Object, Resource, Settings};

use super::history::{Choice, History};
use crate::oracle::expected::{Expected, Question};
use crate::oracle::{Identity, Oracle};

/// Choices that are tried for one reply, after the likely ones.
const MAX_CHOICES: usize = 4096;
/// Moments that are tried.
const MAX_MOMENTS: usize = 600;

/// What a reply is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Right,
    /// How it differs from what the newest objects say.
    Wrong(Vec<String>),
    /// There are too many choices.
    Undecided,
}

/// Asks the oracle about choices.
pub struct Judge<'a> {
    oracle: Oracle,
    /// Objects of the oracle that have one version; those chosen come after them.
    fixed: usize,
    pending: Vec<Choice<'a, Option<Object>>>,
    settings: Choice<'a, Settings>,
}

/// The place of the version that is chosen, for each object that has several, and at last for the configuration.
type Chosen = Vec<usize>;

impl<'a> Judge<'a> {
    /// For a data plane of this name that has seen everything up to a change.
    pub fn new(history: &'a History, seen: u64, pod_name: &str) -> Judge<'a> {
        let settings = history.settings_since(seen);
        let identity = Identity { pod_name: pod_name.to_owned(), ..Identity::default() };
        let mut oracle = Oracle::new(settings[0].1.clone(), identity);
        for resource in Resource::ALL {
            oracle.store.begin_list(resource);
            oracle.store.end_list(resource, 0, DataSource::Live);
        }
        let (mut pending, mut objects) = (Vec::new(), Vec::new());
        for versions in history.objects_since(seen) {
            match versions {
                [(_, object)] => objects.extend(object.clone()),
                _ => pending.push(versions),
            }
        }
        oracle.store.objects = objects;
        Judge { fixed: oracle.store.objects.len(), oracle, pending, settings }
    }

    /// Whether some choice explains the reply: `differs` compares it with what is expected.
    pub fn judge(
        &mut self,
        question: &Question,
        differs: &mut dyn FnMut(&Settings, &Expected) -> Vec<String>,
    ) -> Verdict {
        let newest = self.newest();
        let (expected, differences) = self.try_one(question, &newest, differs);
        if differences.is_empty() {
            return Verdict::Right;
        }
        let mut relevant: BTreeSet<usize> = BTreeSet::new();
        for moment in self.moments() {
            if self.try_one(question, &moment, differs).1.is_empty() {
                return Verdict::Right;
            }
        }
        // One object at a time is older than the rest, or newer.
        let oldest = vec![0; newest.len()];
        let (expected_first, _) = self.try_one(question, &oldest, differs);
        for (base, expected) in [(&newest, expected), (&oldest, expected_first)] {
            for place in 0..base.len() {
                for version in (0..=newest[place]).filter(|version| *version != base[place]) {
                    let mut chosen = base.clone();
                    chosen[place] = version;
                    let (other, found) = self.try_one(question, &chosen, differs);
                    if found.is_empty() {
                        return Verdict::Right;
                    }
                    if other != expected {
                        relevant.insert(place);
                    }
                }
            }
        }
        let places: Vec<usize> = relevant.into_iter().collect();
        let choices = places
            .iter()
            .try_fold(1_usize, |all, place| all.checked_mul(newest[*place] + 1))
            .filter(|choices| *choices <= MAX_CHOICES);
        let Some(choices) = choices else { return Verdict::Undecided };
        for mut number in 0..choices {
            let mut chosen = newest.clone();
            for place in &places {
                chosen[*place] = number % (newest[*place] + 1);
                number /= newest[*place] + 1;
            }
            if self.try_one(question, &chosen, differs).1.is_empty() {
                return Verdict::Right;
            }
        }
        // Where more has changed, two of those changes may explain it together.
        let changed = self.pending.len() + usize::from(self.settings.len() > 1);
        if places.len() < changed { Verdict::Undecided } else { Verdict::Wrong(differences) }
    }

    /// Whether the newest objects say that upstreams are asked.
    pub fn is_of_others(&mut self, question: &Question) -> bool {
        let newest = self.newest();
        let (expected, _) = self.try_one(question, &newest, &mut |_, _| Vec::new());
        matches!(expected, Expected::Forward { .. })
    }

    fn newest(&self) -> Chosen {
        let of_objects = self.pending.iter().map(|versions| versions.len() - 1);
        of_objects.chain([self.settings.len() - 1]).collect()
    }

    /// What there was after each change, the newest first.
    fn moments(&self) -> Vec<Chosen> {
        let of_objects =
            self.pending.iter().flat_map(|versions| versions.iter().map(|(number, _)| *number));
        let of_settings = self.settings.iter().map(|(number, _)| *number);
        let numbers: BTreeSet<u64> = of_objects.chain(of_settings).collect();
        let at = |number: u64| {
            let last = |later: usize| later.saturating_sub(1);
            let of_objects = self
                .pending
                .iter()
                .map(|versions| last(versions.partition_point(|(made, _)| *made <= number)));
            let of_settings = last(self.settings.partition_point(|(made, _)| *made <= number));
            of_objects.chain([of_settings]).collect()
        };
        numbers.into_iter().rev().take(MAX_MOMENTS).map(at).collect()
    }

    fn try_one(
        &mut self,
        question: &Question,
        chosen: &Chosen,
        differs: &mut dyn FnMut(&Settings, &Expected) -> Vec<String>,
    ) -> (Expected, Vec<String>) {
        self.oracle.store.objects.truncate(self.fixed);
        let objects = self.pending.iter().zip(chosen);
        let objects = objects.filter_map(|(versions, place)| versions[*place].1.clone());
        self.oracle.store.objects.extend(objects);
        let settings = &self.settings[chosen[chosen.len() - 1]].1;
        self.oracle.settings.clone_from(settings);
        let expected = self.oracle.answer(question);
        let differences = differs(settings, &expected);
        (expected, differences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::expected::{Data, rtype};
    use crate::soak::objects::{Configuration, marks};
    use crate::soak::questions::plain;

    /// The verdict on a reply with this address, when everything was seen up to a change.
    fn verdict(history: &History, seen: u64, address: &str) -> Verdict {
        let address = Data::Address(address.parse().unwrap());
        let question = plain("mark.shop.svc.cluster.local", rtype::A);
        Judge::new(history, seen, "pod").judge(&question, &mut |_, expected| {
            let Expected::Reply(reply) = expected else { return vec!["forwarded".into()] };
            let records = reply.answer.iter().flat_map(|set| &set.records);
            match records.map(|record| &record.data).eq([&address]) {
                true => Vec::new(),
                false => vec![format!("{expected:?}")],
            }
        })
    }

    #[test]
    fn l11_an_old_answer_is_right_only_until_the_change_was_seen() {
        let settings = dataplane::settings::of(&Configuration::FIRST.document(&[])).unwrap();
        let mut history = History::new(settings);
        let mut seen = Vec::new();
        for mark in 1..4 {
            marks(mark).into_iter().for_each(|object| history.put(object));
            seen.push(history.number());
        }
        for (at, known) in seen.iter().enumerate() {
            for mark in 1..4 {
                let right = mark > at;
                let verdict = verdict(&history, *known, &format!("10.100.0.{mark}"));
                assert_eq!(verdict == Verdict::Right, right, "{at} {mark}: {verdict:?}");
            }
        }
        let wrong = verdict(&history, history.number(), "10.100.0.9");
        assert!(matches!(wrong, Verdict::Wrong(_)), "{wrong:?}");
    }
}
