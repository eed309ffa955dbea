//! Which objects can matter for one question, and which of their versions it cannot tell apart (pure). What is left out
//! changes no answer of the oracle: a test holds the answers with and without it side by side. So few choices remain that
//! all of them can be tried, and a reply that none explains is proved wrong.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dataplane_core::{ExtraData, Key, Object, ServiceKind, Settings};

use super::history::Choice;
use super::objects::CONFIG_MARK;
use crate::oracle::expected::Question;
use crate::oracle::names::Name;

/// What can matter for a question.
#[derive(Clone, Debug, Default)]
pub struct Matters {
    /// Objects that look the same in every version.
    pub fixed: Vec<Object>,
    /// The others: everything that each may look like, if it exists.
    pub objects: Vec<Vec<Option<Object>>>,
    pub settings: Vec<Settings>,
}

impl Matters {
    /// Of all these objects and configurations for this question. Selectors of the configuration must be empty.
    pub fn of<'h>(
        question: &Question,
        objects: &[Choice<'h, Option<Object>>],
        settings: Choice<'h, Settings>,
    ) -> Matters {
        let mut scope = Scope::of(question, objects);
        let settings = distinct(settings.iter().map(|(_, settings)| scope.settings(settings)));
        scope.keeps_rows = settings.iter().any(|settings| settings.hide_empty_services);
        let mut matters = Matters { settings, ..Matters::default() };
        for versions in objects.iter().filter(|versions| scope.has_any(versions)) {
            let seen = versions.iter().map(|(_, object)| scope.part(object.as_ref()?));
            match &distinct(seen)[..] {
                [object] => matters.fixed.extend(object.clone()),
                several => matters.objects.push(several.to_vec()),
            }
        }
        matters
    }

    /// Number of choices; nothing where it is more than fits.
    pub fn choices(&self) -> Option<usize> {
        let objects = self.objects.iter().map(Vec::len);
        objects.chain([self.settings.len()]).try_fold(1_usize, usize::checked_mul)
    }

    /// The objects and the configuration of one choice, by its number.
    pub fn choose(&self, mut number: usize) -> (Vec<Object>, &Settings) {
        let mut next = |count: usize| {
            let place = number % count;
            number /= count;
            place
        };
        let settings = &self.settings[next(self.settings.len())];
        let chosen = self.objects.iter().filter_map(|seen| seen[next(seen.len())].clone());
        let mut objects = self.fixed.clone();
        objects.extend(chosen);
        (objects, settings)
    }
}

/// The names and addresses that a question leads to.
struct Scope {
    /// Labels of its name.
    labels: BTreeSet<String>,
    name: Name,
    /// Services, by namespace and name.
    services: BTreeSet<Key>,
    /// The address of a reverse name.
    reverse: Option<IpAddr>,
    /// The address that the first label means.
    pod: Option<IpAddr>,
    /// Whether an endpoint of another address decides too: Services without one are hidden.
    keeps_rows: bool,
}

impl Scope {
    fn of(question: &Question, objects: &[Choice<'_, Option<Object>>]) -> Scope {
        let name = Name::wire(&question.name);
        let mut scope = Scope {
            labels: BTreeSet::new(),
            name: name.clone(),
            services: BTreeSet::new(),
            reverse: reverse(&name),
            pod: name.0.first().and_then(|label| address(std::str::from_utf8(label).ok()?)),
            keeps_rows: true,
        };
        scope.add(&name);
        // What one object leads to may lead on.
        while objects.iter().filter(|versions| scope.widen(versions)).count() > 0 {}
        scope
    }

    /// Adds the Services that a name can be of, or be below.
    fn add(&mut self, name: &Name) {
        let labels: Vec<String> =
            name.0.iter().map(|label| String::from_utf8_lossy(label).into_owned()).collect();
        self.services.extend(labels.windows(2).map(|two| Key::new(&*two[1], &*two[0])));
        self.labels.extend(labels);
    }

    /// Adds what an object leads to that matters; whether that is new.
    fn widen(&mut self, versions: Choice<'_, Option<Object>>) -> bool {
        let before = (self.services.len(), self.labels.len());
        for (_, object) in versions {
            match object {
                Some(Object::Service(service)) if self.services.contains(&service.key) => {
                    if let ServiceKind::ExternalName(target) = &service.kind {
                        self.add(&Name::text(target));
                    }
                }
                Some(Object::Service(service)) if self.is_reverse_of(cluster_ips(service)) => {
                    self.services.insert(service.key.clone());
                }
                Some(Object::Slice(slice)) => {
                    let addresses = slice.endpoints.iter().flat_map(|row| &row.addresses);
                    if self.is_reverse_of(addresses) {
                        let service = Key::new(slice.key.namespace.clone(), slice.service.clone());
                        self.services.insert(service);
                    }
                }
                Some(Object::Service(_) | Object::Pod(_) | Object::Namespace(_)) | None => {}
            }
        }
        before != (self.services.len(), self.labels.len())
    }

    fn is_reverse_of<'a>(&self, mut addresses: impl Iterator<Item = &'a IpAddr>) -> bool {
        self.reverse.is_some_and(|reverse| addresses.any(|address| *address == reverse))
    }

    /// Whether any version of an object can matter.
    fn has_any(&self, versions: Choice<'_, Option<Object>>) -> bool {
        versions.iter().filter_map(|(_, object)| object.as_ref()).any(|object| self.has(object))
    }

    fn has(&self, object: &Object) -> bool {
        match object {
            Object::Service(service) => self.services.contains(&service.key),
            Object::Slice(slice) => {
                let service = Key::new(slice.key.namespace.clone(), slice.service.clone());
                self.services.contains(&service)
            }
            Object::Pod(pod) => pod
                .addresses
                .iter()
                .any(|address| [self.reverse, self.pod].contains(&Some(*address))),
            // It exists, whether or not a Service of it matters.
            Object::Namespace(namespace) => {
                self.labels.contains(&*namespace.name)
                    || self.services.iter().any(|service| service.namespace == namespace.name)
            }
        }
    }

    /// What the question can see of an object; nothing where that is as if it did not exist.
    fn part(&self, object: &Object) -> Option<Object> {
        if !self.has(object) {
            return None;
        }
        let mut object = object.clone();
        match &mut object {
            Object::Namespace(namespace) => namespace.labels.clear(),
            Object::Service(service) => {
                service.labels.clear();
                if self.reverse.is_some() {
                    service.ports.clear();
                    if let ServiceKind::ClusterIp(addresses) = &mut service.kind {
                        addresses.retain(|address| Some(*address) == self.reverse);
                    }
                }
            }
            Object::Slice(slice) if self.reverse.is_some() => {
                slice.ports.clear();
                if !self.keeps_rows {
                    slice
                        .endpoints
                        .retain(|row| row.ready && self.is_reverse_of(row.addresses.iter()));
                    if slice.endpoints.is_empty() {
                        return None;
                    }
                }
            }
            Object::Slice(_) => {}
            Object::Pod(pod) => {
                if pod.finished {
                    return None;
                }
                pod.addresses.retain(|address| [self.reverse, self.pod].contains(&Some(*address)));
            }
        }
        Some(object)
    }

    /// The configuration without the record that only says which one it is.
    fn settings(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        settings.extra.retain(|record| {
            let addresses = match &record.data {
                ExtraData::Addresses(addresses) => &addresses[..],
                _ => &[],
            };
            Name::of(&record.owner) != Name::text(CONFIG_MARK)
                || self.name == Name::text(CONFIG_MARK)
                || self.is_reverse_of(addresses.iter())
        });
        settings
    }
}

fn cluster_ips(service: &dataplane_core::Service) -> std::slice::Iter<'_, IpAddr> {
    match &service.kind {
        ServiceKind::ClusterIp(addresses) => addresses.iter(),
        ServiceKind::Headless | ServiceKind::ExternalName(_) => [].iter(),
    }
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

/// The address of a label such as `10-244-0-1` or `fd00-244--1`.
fn address(label: &str) -> Option<IpAddr> {
    let v4 = label.replace('-', ".").parse::<Ipv4Addr>().map(IpAddr::from);
    v4.or_else(|_| label.replace('-', ":").parse::<Ipv6Addr>().map(IpAddr::from)).ok()
}

/// The address of a reverse name, or of one below it.
fn reverse(name: &Name) -> Option<IpAddr> {
    let octets = |suffix: &str, radix, count: usize| {
        let labels = name.left_of(&Name::text(suffix))?;
        let labels = labels.get(labels.len().checked_sub(count)?..)?;
        let number =
            |label: &Vec<u8>| u8::from_str_radix(std::str::from_utf8(label).ok()?, radix).ok();
        labels.iter().rev().map(number).collect::<Option<Vec<u8>>>()
    };
    if let Some(v4) = octets("in-addr.arpa", 10, 4) {
        return Some(IpAddr::from(<[u8; 4]>::try_from(v4).ok()?));
    }
    let nibbles = octets("ip6.arpa", 16, 32)?;
    Some(
        Ipv6Addr::from(nibbles.iter().fold(0, |all: u128, nibble| all << 4 | u128::from(*nibble)))
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::Random;
    use crate::oracle::{Identity, Oracle};
    use crate::soak::churn::{Change, change};
    use crate::soak::history::History;
    use crate::soak::objects::{Configuration, fixed, marks};
    use crate::soak::questions;

    fn settings(configuration: Configuration) -> Settings {
        dataplane::settings::of(&configuration.document(&[])).unwrap()
    }

    /// A history in which the last changes were not seen, and from which change on that is.
    fn history(random: &mut Random) -> (History, u64) {
        let mut history = History::new(settings(Configuration::FIRST));
        fixed().into_iter().chain(marks(1)).for_each(|object| history.put(object));
        let mut seen = 0;
        for number in 0..160 {
            match change(random, number) {
                Change::Put(object) => history.put(object),
                Change::Delete(resource, key) => history.delete((resource, key)),
                Change::Configure(configuration) => history.configure(settings(configuration)),
            }
            if number == 100 {
                seen = history.number();
            }
        }
        (history, seen)
    }

    #[test]
    fn l11_what_is_left_out_of_a_judgement_changes_no_answer() {
        let mut random = Random::new(7);
        let (mut reversed, mut narrowed) = (0, 0);
        for _ in 0..12 {
            let (history, seen) = history(&mut random);
            let objects: Vec<_> = history.objects_since(seen).collect();
            let configurations = history.settings_since(seen);
            for _ in 0..60 {
                let question = questions::own(&mut random);
                let matters = Matters::of(&question, &objects, configurations);
                let mut scope = Scope::of(&question, &objects);
                scope.keeps_rows = matters.settings.iter().any(|one| one.hide_empty_services);
                for _ in 0..4 {
                    // Everything as it may be, and the same through what was narrowed.
                    let mut at = |count: usize| random.below(count);
                    let chosen: Vec<Option<Object>> =
                        objects.iter().map(|all| all[at(all.len())].1.clone()).collect();
                    let settings = &configurations[at(configurations.len())].1;
                    let whole =
                        answer(chosen.iter().flatten().cloned().collect(), settings, &question);
                    let seen = chosen.iter().flatten().filter_map(|object| scope.part(object));
                    let seen: Vec<Object> = seen.collect();
                    let held =
                        matters.fixed.iter().chain(matters.objects.iter().flatten().flatten());
                    let held: Vec<&Object> = held.collect();
                    assert!(seen.iter().all(|object| held.contains(&object)), "{question:?}");
                    let settings = scope.settings(settings);
                    assert!(matters.settings.contains(&settings), "{question:?}");
                    assert_eq!(answer(seen, &settings, &question), whole, "{question:?}");
                }
                reversed += usize::from(scope.reverse.is_some());
                narrowed += usize::from(matters.choices().is_some_and(|choices| choices < 1 << 17));
            }
        }
        assert!(reversed > 60, "{reversed} reverse names");
        assert!(narrowed > 12 * 60 * 99 / 100, "{narrowed} of {}", 12 * 60);
    }

    fn answer(objects: Vec<Object>, settings: &Settings, question: &Question) -> String {
        let mut oracle = Oracle::new(settings.clone(), Identity::default());
        for resource in dataplane_core::Resource::ALL {
            oracle.store.begin_list(resource);
            oracle.store.end_list(resource, 0, dataplane_core::DataSource::Live);
        }
        oracle.store.objects = objects;
        format!("{:?}", oracle.answer(question))
    }

    #[test]
    fn the_address_of_a_reverse_name_is_read() {
        for (name, address) in [
            ("1.0.244.10.in-addr.arpa", Some("10.244.0.1")),
            ("x.1.0.244.10.in-addr.arpa", Some("10.244.0.1")),
            ("0.244.10.in-addr.arpa", None),
            ("cart.shop.svc.cluster.local", None),
        ] {
            let wanted = address.map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(reverse(&Name::text(name)), wanted, "{name}");
        }
        let nibbles = format!("1.{}4.4.2.0.0.0.d.f.ip6.arpa", "0.".repeat(23));
        assert_eq!(reverse(&Name::text(&nibbles)), Some("fd00:244::1".parse().unwrap()));
    }
}
