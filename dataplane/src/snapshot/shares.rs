//! Which objects a snapshot has where not all of them fit: each namespace has a share, so that large objects of one
//! namespace do not push out those of another. Within a share small objects come first. Pure.

use std::collections::{BTreeMap, HashMap};

use dataplane_core::Object;

/// Octets of an object up to which it is small: a slice of 1,000 endpoints without names has 20 KB.
const SMALL: u64 = 32 << 10;
/// Objects that were left out and that are named; all are counted.
const MAX_NAMED: usize = 20;

/// Octets of the objects of one namespace.
#[derive(Clone, Copy, Debug, Default)]
struct Octets {
    small: u64,
    large: u64,
}

impl Octets {
    fn all(self) -> u64 {
        self.small + self.large
    }

    fn add(&mut self, octets: u64) {
        match octets <= SMALL {
            true => self.small += octets,
            false => self.large += octets,
        }
    }
}

/// The state of the passes of one snapshot. The first pass takes everything; if everything fits, there is no second
/// one.
#[derive(Debug)]
pub(super) struct Shares {
    /// Octets for all objects.
    room: u64,
    taken: u64,
    /// Octets of each namespace, taken or not; once the second pass has begun, those of the first.
    offered: HashMap<Box<str>, Octets>,
    /// In the second pass, what a namespace may take, and has taken.
    second: Option<(u64, HashMap<Box<str>, Octets>)>,
    is_over: bool,
}

impl Shares {
    pub(super) fn new(room: u64) -> Shares {
        Shares { room, taken: 0, offered: HashMap::new(), second: None, is_over: false }
    }

    /// Whether an object of this size is taken.
    pub(super) fn take(&mut self, namespace: &str, octets: u64) -> bool {
        let fits = self.taken + octets <= self.room;
        let is_taken = match &mut self.second {
            None => {
                entry(&mut self.offered, namespace).add(octets);
                self.is_over |= !fits;
                fits
            }
            Some((share, used)) => {
                // No room was planned for objects that are new since the first pass.
                let small = self.offered.get(namespace).map_or(0, |offered| offered.small);
                let used = entry(used, namespace);
                let is_in_share = match octets <= SMALL {
                    true => used.all() + octets <= *share,
                    false => used.large + octets + small.max(used.small) <= *share,
                };
                if fits && is_in_share {
                    used.add(octets);
                }
                fits && is_in_share
            }
        };
        self.taken += if is_taken { octets } else { 0 };
        is_taken
    }

    /// An object fits into no snapshot.
    pub(super) fn refuse(&mut self) {
        self.is_over |= self.second.is_none();
    }

    /// In the first pass: not everything fits. The result of this pass is dropped, and a second pass is needed.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The second pass, which takes what fits into equal shares.
    pub(super) fn second(self) -> Shares {
        let share = fair_share(self.offered.values().map(|octets| octets.all()), self.room);
        Shares { taken: 0, second: Some((share, HashMap::new())), is_over: false, ..self }
    }
}

fn entry<'a>(of: &'a mut HashMap<Box<str>, Octets>, namespace: &str) -> &'a mut Octets {
    if !of.contains_key(namespace) {
        of.insert(namespace.into(), Octets::default());
    }
    of.get_mut(namespace).expect("it is there now")
}

/// The largest share with which everything fits; namespaces that need less take less.
fn fair_share(needed: impl Iterator<Item = u64>, room: u64) -> u64 {
    let mut needed: Vec<u64> = needed.collect();
    needed.sort_unstable();
    let (mut left, mut others) = (room, needed.len() as u64);
    for need in needed {
        if need > left / others {
            return left / others;
        }
        left -= need;
        others -= 1;
    }
    u64::MAX
}

/// The namespace whose share an object takes; that of Namespaces is the empty one.
pub(super) fn namespace_of(object: &Object) -> &str {
    match object {
        Object::Service(service) => &service.key.namespace,
        Object::Slice(slice) => &slice.key.namespace,
        Object::Namespace(_) => "",
        Object::Pod(pod) => &pod.key.namespace,
    }
}

/// Objects that are not in a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) count: usize,
    /// Some of them, such as `endpointslices shop/cart-0`, by namespace.
    named: BTreeMap<Box<str>, Vec<String>>,
}

impl LeftOut {
    pub(super) fn add(&mut self, object: &Object) {
        self.count += 1;
        let most = self.named.values().map(Vec::len).max().unwrap_or(0);
        let has_room = self.named.values().map(Vec::len).sum::<usize>() < MAX_NAMED;
        let own = self.named.get(namespace_of(object)).map_or(0, Vec::len);
        if !has_room {
            // The namespace with most names gives one up for one with fewer.
            let largest = self.named.values_mut().find(|names| names.len() == most);
            if own + 1 >= most || largest.and_then(Vec::pop).is_none() {
                return;
            }
        }
        let name = format!("{} {}", object.resource().plural(), object.key());
        self.named.entry(namespace_of(object).into()).or_default().push(name);
    }

    /// Some of them, of as many namespaces as there is room for.
    pub(super) fn named(&self) -> Vec<String> {
        self.named.values().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_need_less_than_the_share_leave_the_rest_to_others() {
        let share = |needed: &[u64], room| fair_share(needed.iter().copied(), room);
        assert_eq!(share(&[10, 20, 30], 60), u64::MAX, "all fit");
        assert_eq!(share(&[10, 20, 30], 50), 20);
        assert_eq!(share(&[1_000, 2, 3], 105), 100);
        assert_eq!(share(&[1_000, 1_000], 105), 52);
        assert_eq!(share(&[], 5), u64::MAX);
    }

    /// Runs both passes over objects, each a namespace and a size; returns which were taken.
    fn taken(room: u64, objects: &[(&str, u64)]) -> Vec<bool> {
        let mut first = Shares::new(room);
        for &(namespace, octets) in objects {
            first.take(namespace, octets);
        }
        assert!(first.is_over());
        let mut second = first.second();
        objects.iter().map(|&(namespace, octets)| second.take(namespace, octets)).collect()
    }

    #[test]
    fn e40_a_namespace_of_large_objects_leaves_out_only_its_own() {
        const LARGE: u64 = 200 << 10;
        let objects =
            [("evil", LARGE), ("evil", LARGE), ("shop", 500), ("evil", 9_000), ("shop", LARGE)];
        assert_eq!(taken(2 * LARGE + 20_000, &objects), [true, false, true, true, true]);
        assert_eq!(taken(30_000, &objects), [false, false, true, true, false], "small ones first");
    }

    #[test]
    fn what_is_new_in_the_second_pass_takes_no_more_than_the_room() {
        let mut first = Shares::new(1_000);
        assert!(first.take("a", 900) && !first.take("b", 900));
        let mut second = first.second();
        let taken: u64 = (0..100).filter(|_| second.take("c", 90)).map(|_| 90).sum();
        assert!(taken <= 500, "{taken}");
        let all = ["a", "b", "d", "e", "f"].into_iter().filter(|of| second.take(of, 300)).count();
        assert!(taken + 300 * all as u64 <= 1_000);
    }

    #[test]
    fn e40_what_one_namespace_left_out_does_not_hide_what_another_did() {
        let service = |namespace: &str, name: &str| {
            Object::Service(dataplane_core::Service {
                key: dataplane_core::Key::new(namespace, name),
                uid: 1,
                version: 1,
                labels: Vec::new(),
                kind: dataplane_core::ServiceKind::Headless,
                ports: Vec::new(),
            })
        };
        let mut left_out = LeftOut::default();
        for number in 0..50 {
            left_out.add(&service("evil", &format!("large-{number}")));
        }
        assert_eq!(left_out.named().len(), MAX_NAMED);
        left_out.add(&service("shop", "cart"));
        left_out.add(&service("shop", "till"));
        left_out.add(&service("evil", "one-more"));
        let named = left_out.named();
        assert_eq!((left_out.count, named.len()), (53, MAX_NAMED));
        assert_eq!(named[MAX_NAMED - 2..], ["services shop/cart", "services shop/till"]);
    }
}
