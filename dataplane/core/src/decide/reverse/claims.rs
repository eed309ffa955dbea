//! Who may claim an address (RR63): which of the rows that publish it have a PTR.

#![allow(
    clippy::indexing_slicing,
    reason = "places that a search found, in lists that do not change meanwhile"
)]

use crate::object::Resource;
use crate::records::{
    DataSource, Kind, MAX_PUBLISHERS, Publisher, Records, RowLabel, ServiceEntry,
};
use crate::settings::PodRecords;
use crate::steps::step;
use crate::wire::address::Address;

/// What is looked at for one reply until it is known who may have PTRs: all rows that two namespaces have of an address, or twice
/// as many namespaces that are hidden.
const LOOKS: usize = 4 * MAX_PUBLISHERS * ROW;
/// The same for the PTRs, from the first row on that has one.
const POINTER_LOOKS: usize = LOOKS / 2;
/// How many looks a row takes. A hidden namespace takes one: its rows are passed over together.
const ROW: usize = 2;

/// Namespaces whose Pods hold one address and that are looked at: a cluster gives an address to one Pod.
const HOLDERS: usize = 4;
/// Rows of other namespaces that are looked at for what is counted.
const FEW_LOOKS: usize = 8;

/// Who may have PTRs of an address (RR63); worked out once for each question.
#[derive(Clone, Copy)]
pub(crate) struct Claims<'r> {
    /// The rows that publish it, visible or not; none of them is a cluster IP.
    pub(super) published: &'r [(Address, Publisher)],
    /// The Service of the one row, where one row alone publishes it and has a PTR: as nearly always.
    pub(super) only: Option<&'r ServiceEntry>,
    /// Pods hold the address, and only the namespaces of those may claim it.
    held: bool,
    rule: Rule,
    /// Where its PTRs begin.
    start: Start,
    /// Whether a namespace that publishes the address has no PTR of it.
    pub(crate) withholds: bool,
    /// Whether any has one.
    pub(crate) any: bool,
}

/// Where the first row is that has a PTR: nothing before has to be looked at again.
#[derive(Clone, Copy, Default)]
struct Start {
    /// See [`Claims::part`].
    part: u8,
    /// Rows of this part before it: those of as many namespaces as are looked at fit.
    before: u16,
}

const _: () = assert!(LOOKS * MAX_PUBLISHERS <= u16::MAX as usize);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// All rows that publish it.
    All,
    /// Those of Pods of their own namespace ([`is_own`]).
    OwnPods,
    /// `None`: the namespace that owns the address cannot be determined.
    Withheld,
}

impl<'r> Claims<'r> {
    /// Those of an address that these publish, which is no cluster IP (RR60).
    pub(crate) fn of(
        records: &'r Records,
        address: Address,
        published: &'r [(Address, Publisher)],
    ) -> Claims<'r> {
        let held = is_held(records, address);
        let (rule, only, start) = (Rule::All, None, Start::default());
        let mut claims =
            Claims { published, only, held, rule, start, withholds: false, any: false };
        claims.decide(records);
        claims
    }

    /// Looks at one visible row of each namespace, those of own Pods first.
    fn decide(&mut self, records: &'r Records) {
        // Nearly every address has one row, which no other namespace can claim.
        if let &[(address, row)] = self.published {
            let visible = pointer(records, row);
            let may_claim = !self.held || is_held_by(records, address, row.namespace, false);
            self.only = visible.filter(|_| may_claim).map(|pointer| pointer.entry);
            (self.any, self.withholds) = (self.only.is_some(), visible.is_some() && !may_claim);
        } else {
            self.decide_among(records);
        }
    }

    /// The same of several rows. Not part of the above, which would cost every PTR some instructions.
    #[inline(never)]
    fn decide_among(&mut self, records: &'r Records) {
        let (mut namespaces, mut owners) = (Several::default(), Several::default());
        let (mut first, mut first_own) = (Start::default(), Start::default());
        let (mut looks, mut share, mut is_cut) = (LOOKS, None, false);
        let is_of_no_pod = self.is_of_no_pod(records);
        let parts = (0..).map_while(|part| Some((part, self.part(records, part)?)));
        'parts: for (part, rows) in parts {
            let mut rest = rows;
            while let Some(&(address, row)) = rest.first() {
                let may_be_own = row.label.is_own_pod() && !is_of_no_pod;
                let is_decided = match may_be_own {
                    true => owners == Several::Many,
                    // All that may be owners were looked at: without any, one row is as good as several.
                    false => match owners {
                        Several::None => namespaces != Several::None,
                        Several::One(_) | Several::Many => namespaces == Several::Many,
                    },
                };
                if is_decided {
                    break;
                }
                // The other rows of a namespace add nothing, once it is known to be hidden or seen.
                let is_first = share.replace(row.share()) != Some(row.share());
                let hides_all = is_first && is_hidden(records, row);
                let Some(left) = looks.checked_sub(if hides_all { 1 } else { ROW }) else {
                    is_cut = true;
                    if may_be_own {
                        // The owner is perhaps among those that were not looked at.
                        owners = Several::Many;
                    }
                    break 'parts;
                };
                looks = left;
                let is_visible = !hides_all && pointer(records, row).is_some();
                if is_visible {
                    let here = Start { part, before: (rows.len() - rest.len()) as u16 };
                    if namespaces == Several::None {
                        first = here;
                    }
                    namespaces.add(row.namespace);
                    if is_own(records, address, row) {
                        if owners == Several::None {
                            first_own = here;
                        }
                        owners.add(row.namespace);
                    }
                }
                rest = if hides_all || is_visible { past_share(rest) } else { &rest[1..] };
            }
        }
        (self.rule, self.start) = match (namespaces, owners) {
            (_, Several::None) => (Rule::All, first),
            (Several::None | Several::One(_), Several::One(_)) if !is_cut => (Rule::All, first),
            (_, Several::One(_)) => (Rule::OwnPods, first_own),
            (_, Several::Many) => (Rule::Withheld, first),
        };
        self.any = namespaces != Several::None && self.rule != Rule::Withheld;
        self.withholds =
            is_cut || self.rule != Rule::All || self.held && self.has_other_claims(records);
    }

    /// Whether it is certain that no Pod has the address: then no row is that of an own Pod, also where it says so.
    fn is_of_no_pod(&self, records: &Records) -> bool {
        records.zone.settings.pods == PodRecords::Verified
            && records.source(Resource::Pods) != DataSource::None
            && (self.published.first())
                .is_some_and(|&(address, _)| records.pod_addresses.get(address).is_empty())
    }

    /// The rows that may claim the address: all in one part, or, where Pods hold it, those of the first [`HOLDERS`] namespaces
    /// of these Pods, each two parts, own Pods first. `None` after the last part.
    fn part(&self, records: &'r Records, part: u8) -> Option<&'r [(Address, Publisher)]> {
        let part = usize::from(part);
        let &(address, _) = self.published.first()?;
        if !self.held {
            return (part == 0).then_some(self.published);
        }
        let is_own_pod = match part / HOLDERS {
            0 => true,
            1 => false,
            _ => return None,
        };
        let Some(namespace) = holder(records, address, part % HOLDERS) else {
            return Some(&[]);
        };
        let wanted = Publisher::share_of(is_own_pod, namespace);
        let rest =
            &self.published[self.published.partition_point(|(_, row)| row.share() < wanted)..];
        Some(&rest[..rest.partition_point(|(_, row)| row.share() == wanted)])
    }

    /// Whether a namespace without a Pod that holds the address publishes it too, as far as a few looks show.
    fn has_other_claims(&self, records: &Records) -> bool {
        let mut rest = self.published;
        (0..FEW_LOOKS)
            .map_while(|_| {
                let &(address, row) = rest.first()?;
                rest = past_share(rest);
                let may_claim = is_held_by(records, address, row.namespace, false);
                Some(!may_claim && pointer(records, row).is_some())
            })
            .any(|is_claim| is_claim)
    }

    /// The Services and slices that the PTRs are made of.
    pub(crate) fn holders(
        &self,
        records: &'r Records,
    ) -> impl Iterator<Item = (&'r ServiceEntry, u32)> {
        self.pointers(records).map(|pointer| (pointer.entry, pointer.slice))
    }

    /// The rows that have a PTR, as far as [`POINTER_LOOKS`] show.
    pub(super) fn pointers(&self, records: &'r Records) -> impl Iterator<Item = Pointer<'r>> {
        let (claims, mut looks, mut share) = (*self, POINTER_LOOKS, None);
        let Start { mut part, before } = self.start;
        let mut before = usize::from(before);
        let mut rest: &[(Address, Publisher)] = &[];
        core::iter::from_fn(move || {
            loop {
                while rest.is_empty() {
                    rest = claims.part(records, part)?.get(before..)?;
                    (part, before) = (part + 1, 0);
                }
                let &(address, row) = rest.first()?;
                let may = match claims.rule {
                    Rule::All => true,
                    Rule::OwnPods => is_own(records, address, row),
                    Rule::Withheld => return None,
                };
                let is_first = share.replace(row.share()) != Some(row.share());
                if !may || is_first && is_hidden(records, row) {
                    looks = looks.checked_sub(1)?;
                    rest = past_share(rest);
                    continue;
                }
                looks = looks.checked_sub(ROW)?;
                rest = &rest[1..];
                let found = pointer(records, row);
                if found.is_some() {
                    return found;
                }
            }
        })
    }
}

/// Whether a row is of a Pod of its own namespace. Its targetRef says so, and anyone may write that; where Pods are known, one of
/// them must have the address.
fn is_own(records: &Records, address: Address, row: Publisher) -> bool {
    row.label.is_own_pod()
        && (records.zone.settings.pods != PodRecords::Verified
            || is_held_by(records, address, row.namespace, false)
            || is_held_by(records, address, row.namespace, true))
}

/// Whether clients see nothing of the namespace of a row (N40). All rows of a share are of one namespace, so only the first
/// is asked.
fn is_hidden(records: &Records, row: Publisher) -> bool {
    records.namespaces.get(row.namespace).is_none_or(|namespace| !namespace.visible)
}

/// The rows behind those that share their places with the first; these are [`MAX_PUBLISHERS`] at most.
fn past_share(rows: &[(Address, Publisher)]) -> &[(Address, Publisher)] {
    let share = rows.first().map(|(_, row)| row.share());
    let most = &rows[..rows.len().min(MAX_PUBLISHERS)];
    &rows[most.partition_point(|(_, row)| Some(row.share()) == share)..]
}

/// Whether Pods decide who may claim the address.
fn is_held(records: &Records, address: Address) -> bool {
    records.zone.settings.pods == PodRecords::Verified
        && records.source(Resource::Pods) != DataSource::None
        && records.pod_addresses.get(address).first().is_some_and(|(_, pod)| !pod.host_network)
}

/// Whether a Pod of this namespace has the address, as its own or as its node's.
pub(crate) fn is_held_by(
    records: &Records,
    address: Address,
    namespace: u32,
    host_network: bool,
) -> bool {
    let pods = records.pod_addresses.get(address);
    let wanted = (host_network, namespace);
    let at = pods.partition_point(|(_, pod)| (pod.host_network, pod.namespace) < wanted);
    pods.get(at).is_some_and(|(_, pod)| (pod.host_network, pod.namespace) == wanted)
}

/// A namespace with a Pod that holds the address, those with Pods of the network of their node aside.
fn holder(records: &Records, address: Address, number: usize) -> Option<u32> {
    let mut rest = records.pod_addresses.get(address);
    for _ in 0..number {
        let (_, known) = rest.first()?;
        rest = &rest[rest.partition_point(|(_, pod)| {
            (pod.host_network, pod.namespace) == (known.host_network, known.namespace)
        })..];
    }
    rest.first().filter(|(_, pod)| !pod.host_network).map(|(_, pod)| pod.namespace)
}

/// None, one or several namespaces.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Several {
    #[default]
    None,
    One(u32),
    Many,
}

impl Several {
    fn add(&mut self, namespace: u32) {
        *self = match *self {
            Several::None => Several::One(namespace),
            Several::One(known) if known == namespace => *self,
            Several::One(_) | Several::Many => Several::Many,
        }
    }
}

/// A row as a candidate for a PTR, if its Service is visible (RR61, RR65).
fn pointer<'r>(records: &'r Records, row: Publisher) -> Option<Pointer<'r>> {
    step(1);
    let entry = records.services.get(row.service)?;
    let headless = match records.visible(entry)?.kind {
        Kind::Headless => true,
        Kind::ClusterIp(_) => false,
        Kind::ExternalName(_) | Kind::Unserved => return None,
    };
    Some(Pointer { entry, slice: row.slice, label: row.label, headless })
}

/// One candidate for a PTR.
#[derive(Clone, Copy)]
pub(super) struct Pointer<'r> {
    pub(super) entry: &'r ServiceEntry,
    pub(super) slice: u32,
    pub(super) label: RowLabel,
    pub(super) headless: bool,
}
