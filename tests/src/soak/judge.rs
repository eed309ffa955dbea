//! Whether a reply is one that the objects allow. Each object that changed since a data plane was known to have seen
//! everything may be shown in any of its versions since; a reply that no such choice explains is wrong.

use std::collections::BTreeSet;

use dataplane_core::{DataSource, Object, Resource, Settings};

use super::history::{Choice, History};
use super::matters::Matters;
use crate::oracle::expected::{Expected, Question};
use crate::oracle::{Identity, Oracle};

/// Choices that are tried for one reply, after the likely ones.
const MAX_CHOICES: usize = 1 << 17;
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
    /// The versions of every object that may be shown.
    objects: Vec<Choice<'a, Option<Object>>>,
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
        let objects: Vec<Choice<'a, Option<Object>>> = history.objects_since(seen).collect();
        let (mut pending, mut fixed) = (Vec::new(), Vec::new());
        for versions in objects.iter().copied() {
            match versions {
                [(_, object)] => fixed.extend(object.clone()),
                _ => pending.push(versions),
            }
        }
        oracle.store.objects = fixed;
        Judge { fixed: oracle.store.objects.len(), oracle, objects, pending, settings }
    }

    /// Whether some choice explains the reply: `differs` compares it with what is expected. A reply is wrong only when every
    /// choice was tried that the question can see.
    pub fn judge(
        &mut self,
        question: &Question,
        differs: &mut dyn FnMut(&Settings, &Expected) -> Vec<String>,
    ) -> Verdict {
        let newest = self.newest();
        let (_, differences) = self.try_one(question, &newest, differs);
        if differences.is_empty() {
            return Verdict::Right;
        }
        for moment in self.moments() {
            if self.try_one(question, &moment, differs).1.is_empty() {
                return Verdict::Right;
            }
        }
        let matters = Matters::of(question, &self.objects, self.settings);
        let Some(choices) = matters.choices().filter(|choices| *choices <= MAX_CHOICES) else {
            return self.judge_single_changes(question, differs);
        };
        let mut oracle = self.oracle.clone();
        for number in 0..choices {
            let (objects, settings) = matters.choose(number);
            oracle.store.objects = objects;
            oracle.settings.clone_from(settings);
            if differs(settings, &oracle.answer(question)).is_empty() {
                return Verdict::Right;
            }
        }
        let tried = format!("none of {choices} choices explains it; with the newest objects:");
        Verdict::Wrong([vec![tried], differences].concat())
    }

    /// Where there are too many choices: one object at a time is older than the rest, or newer.
    fn judge_single_changes(
        &mut self,
        question: &Question,
        differs: &mut dyn FnMut(&Settings, &Expected) -> Vec<String>,
    ) -> Verdict {
        let newest = self.newest();
        for base in [&newest, &vec![0; newest.len()]] {
            for place in 0..base.len() {
                for version in (0..=newest[place]).filter(|version| *version != base[place]) {
                    let mut chosen = base.clone();
                    chosen[place] = version;
                    if self.try_one(question, &chosen, differs).1.is_empty() {
                        return Verdict::Right;
                    }
                }
            }
        }
        Verdict::Undecided
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
    use crate::soak::questions::{plain, reverse_name};

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
        for seen in [0, history.number()] {
            let wrong = verdict(&history, seen, "10.100.0.9");
            assert!(matches!(wrong, Verdict::Wrong(_)), "{wrong:?}");
        }
    }
    /// Four Services of one namespace share an address; each has a slice of its own.
    const SHARED: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {clusterIP: 10.96.0.5}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: 10.96.0.6}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: None}
---
apiVersion: v1
kind: Service
metadata: {name: 1st, namespace: shop}
spec: {clusterIP: 10.96.0.7}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s1, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
endpoints: [{addresses: [10.244.0.1]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s2, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.244.0.1], hostname: a}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s3, namespace: shop, labels: {kubernetes.io/service-name: 1st}}
addressType: IPv4
endpoints: [{addresses: [10.244.0.1]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s4, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.244.0.1], hostname: twin}]
"#;

    #[test]
    fn l11_rr61_several_unseen_changes_together_explain_the_names_of_a_shared_address() {
        let settings = |configuration: Configuration| {
            dataplane::settings::of(&configuration.document(&[])).unwrap()
        };
        let (objects, _) = dataplane::source::objects_from_yaml(SHARED).unwrap();
        let of = |name: &str| {
            objects.iter().find(|object| &*object.key().name == name).expect("it has one").clone()
        };
        let mut history = History::new(settings(Configuration::FIRST));
        objects.iter().filter(|object| &*object.key().name != "1st").for_each(|object| {
            history.put(object.clone());
        });
        let seen = history.number();
        // A Service comes and goes, one slice goes, two move to another Service, and records get another TTL.
        history.configure(settings(Configuration { ttl_s: 0, ..Configuration::FIRST }));
        history.put(of("1st"));
        history.delete((Resource::Services, of("1st").key()));
        history.delete((Resource::EndpointSlices, of("s2").key()));
        for name in ["s4", "s3"] {
            let Object::Slice(mut slice) = of(name) else { panic!("a slice") };
            slice.service = "nothing".into();
            history.put(Object::Slice(slice));
        }
        let verdict = |seen: u64, ttl: u32, names: &[&str]| {
            let question = plain(&reverse_name([10, 244, 0, 1].into()), rtype::PTR);
            let wanted = names.iter().map(|name| format!("{name}.shop.svc.cluster.local."));
            let wanted: Vec<(String, u32)> = wanted.map(|name| (name, ttl)).collect();
            Judge::new(&history, seen, "pod").judge(&question, &mut |_, expected| {
                let Expected::Reply(reply) = expected else { return vec!["forwarded".into()] };
                let records = reply.answer.iter().flat_map(|set| &set.records);
                let found = records.filter_map(|record| match &record.data {
                    Data::Ptr(name) => Some((name.to_string(), record.ttl)),
                    _ => None,
                });
                let found: Vec<(String, u32)> = found.collect();
                if found == wanted { Vec::new() } else { vec![format!("{found:?}")] }
            })
        };
        let names = ["twin.db", "10-244-0-1.1st", "10-244-0-1.cart"];
        assert_eq!(verdict(seen, 5, &names), Verdict::Right);
        assert_eq!(verdict(seen, 0, &["a.web", "twin.db", "10-244-0-1.cart"]), Verdict::Right);
        assert_eq!(verdict(history.number(), 0, &["10-244-0-1.cart"]), Verdict::Right);
        let is_wrong = |verdict| matches!(verdict, Verdict::Wrong(_));
        assert!(is_wrong(verdict(seen, 30, &names)), "no configuration had this TTL");
        assert!(is_wrong(verdict(seen, 5, &["twin.db"])), "cart always had the address");
        assert!(is_wrong(verdict(seen, 5, &["10-244-0-1.1st", "twin.db", "10-244-0-1.cart"])));
        assert!(is_wrong(verdict(history.number(), 0, &names)), "everything was seen");
    }
}
