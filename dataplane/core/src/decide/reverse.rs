//! Reverse names: who may claim an address, and the PTRs it has (docs/dns.md §3.7).

#![allow(
    clippy::indexing_slicing,
    reason = "places that a search found, in lists that do not change meanwhile"
)]

use core::cmp::Ordering;

use crate::object::Resource;
use crate::records::{
    DataSource, Kind, MAX_PUBLISHERS, Publisher, Records, Row, RowLabel, ServiceEntry,
};
use crate::settings::PodRecords;
use crate::steps::step;
use crate::wire::address::Address;
use crate::wire::message::rtype;
use crate::wire::name::Name;
use crate::wire::reply::{Full, Owner, Rdata, Reply};
use crate::wire::text::ShortText;

/// PTRs of one address; few addresses have more than a handful.
const MAX_POINTERS: usize = 64;
/// Rows looked at for one reply: all that one namespace has of an address.
const LOOKS: usize = 2 * MAX_PUBLISHERS;
/// Nearly no address has more. It is small because it is cleared for each reply.
const FEW_POINTERS: usize = 4;

/// The visible Service whose cluster IP this is; the first by name should there be two (RR60).
pub(crate) fn cluster_ip_owner<'r>(
    records: &'r Records,
    holders: &[(Address, Publisher)],
) -> Option<&'r ServiceEntry> {
    holders
        .iter()
        .take(MAX_PUBLISHERS)
        .take_while(|(_, holder)| holder.is_cluster_ip())
        .filter_map(|(_, holder)| records.services.get(holder.service))
        .filter(|entry| records.visible(entry).is_some())
        .min_by(|a, b| order_of_services(a, b))
}

/// Who may have PTRs of an address (RR63); worked out once for each question.
#[derive(Clone, Copy)]
pub(crate) struct Claims<'r> {
    /// The rows that publish it beside cluster IPs, visible or not.
    published: &'r [(Address, Publisher)],
    /// The Service of the one row, where one row alone publishes it and has a PTR: as nearly always.
    only: Option<&'r ServiceEntry>,
    /// Pods hold the address, and only the namespaces of those may claim it.
    held: bool,
    rule: Rule,
    /// Whether a namespace that publishes the address is not in it.
    pub(crate) withholds: bool,
    pub(crate) any: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// All rows that publish it.
    All,
    /// Those whose targetRef is a Pod of their own namespace.
    OwnPods,
    /// `None`: the namespace that owns the address cannot be determined.
    Withheld,
}

impl<'r> Claims<'r> {
    /// Those of an address that these publish.
    pub(crate) fn of(
        records: &'r Records,
        address: Address,
        published: &'r [(Address, Publisher)],
    ) -> Claims<'r> {
        let cluster_ips = published.iter().take_while(|(_, row)| row.is_cluster_ip()).count();
        let published = &published[cluster_ips..];
        let held = is_held(records, address);
        let (rule, only) = (Rule::All, None);
        let mut claims = Claims { published, only, held, rule, withholds: false, any: false };
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
            return;
        }
        let (mut namespaces, mut owners) = (Several::default(), Several::default());
        let (mut looks, mut rest, mut share) = (LOOKS, self.published, None);
        while let Some(&(address, row)) = rest.first() {
            let is_decided = match row.label.is_own_pod() {
                true => owners == Several::Many,
                false => namespaces == Several::Many,
            };
            if is_decided {
                break;
            }
            if looks == 0 {
                // Too many rows that are not visible: the owner cannot be determined.
                (self.rule, self.withholds, self.any) = (Rule::Withheld, true, false);
                return;
            }
            looks -= 1;
            let is_visible = pointer(records, row).is_some();
            let may_claim = !self.held || is_held_by(records, address, row.namespace, false);
            if is_visible && may_claim {
                namespaces.add(row.namespace);
                if row.label.is_own_pod() {
                    owners.add(row.namespace);
                }
            }
            self.withholds |= is_visible && !may_claim;
            // The other rows of this namespace add nothing.
            let is_first = share.replace(row.share()) != Some(row.share());
            let is_known = is_visible || !may_claim || is_first && is_hidden(records, row);
            rest = if is_known { past_share(rest) } else { &rest[1..] };
        }
        self.rule = match (namespaces, owners) {
            (Several::None | Several::One(_), _) | (_, Several::None) => Rule::All,
            (Several::Many, Several::One(_)) => Rule::OwnPods,
            (Several::Many, Several::Many) => Rule::Withheld,
        };
        self.any = namespaces != Several::None && self.rule != Rule::Withheld;
        self.withholds |= self.rule != Rule::All;
    }

    /// The Services and slices that the PTRs are made of.
    pub(crate) fn holders(
        &self,
        records: &'r Records,
    ) -> impl Iterator<Item = (&'r ServiceEntry, u32)> {
        self.pointers(records).map(|pointer| (pointer.entry, pointer.slice))
    }

    /// The rows that have a PTR; [`LOOKS`] are looked at, of a namespace that may have none only one.
    fn pointers(&self, records: &'r Records) -> impl Iterator<Item = Pointer<'r>> {
        let (held, rule, mut rest, mut looks) = (self.held, self.rule, self.published, 0..LOOKS);
        let mut share = None;
        core::iter::from_fn(move || {
            loop {
                let &(address, row) = rest.first()?;
                looks.next()?;
                let by_rule = match rule {
                    Rule::All => true,
                    Rule::OwnPods => row.label.is_own_pod(),
                    Rule::Withheld => false,
                };
                let may = by_rule && (!held || is_held_by(records, address, row.namespace, false));
                let found = if may { pointer(records, row) } else { None };
                let is_first = share.replace(row.share()) != Some(row.share());
                let is_one = found.is_some() || may && !(is_first && is_hidden(records, row));
                rest = if is_one { &rest[1..] } else { past_share(rest) };
                if found.is_some() {
                    return found;
                }
            }
        })
    }
}

/// Whether clients see nothing of the namespace of a row (N40). All rows of a share are of one namespace, so only the first
/// is asked.
fn is_hidden(records: &Records, row: Publisher) -> bool {
    records.namespaces.get(row.namespace).is_none_or(|namespace| !namespace.visible)
}

/// The rows behind those that share their places with the first.
fn past_share(rows: &[(Address, Publisher)]) -> &[(Address, Publisher)] {
    let share = rows.first().map(|(_, row)| row.share());
    &rows[rows.partition_point(|(_, row)| Some(row.share()) == share)..]
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
struct Pointer<'r> {
    entry: &'r ServiceEntry,
    slice: u32,
    label: RowLabel,
    headless: bool,
}

/// A candidate with its endpoint name.
#[derive(Clone, Copy)]
struct Named<'r> {
    entry: &'r ServiceEntry,
    label: &'r [u8],
    /// RR62: hostnames first, headless before ClusterIP.
    rank: (bool, bool),
}

impl Named<'_> {
    /// RR62: by rank, then ascending by the name as text.
    fn order(&self, other: &Named<'_>) -> Ordering {
        step(4);
        self.rank.cmp(&other.rank).then_with(|| self.order_of_names(other))
    }

    fn order_of_names(&self, other: &Named<'_>) -> Ordering {
        order_of_labels(self.label, other.label)
            .then_with(|| order_of_services(self.entry, other.entry))
    }

    fn same_name(&self, other: &Named<'_>) -> bool {
        core::ptr::eq(self.entry, other.entry) && self.label == other.label
    }
}

/// The order of two labels in names as dotted text: a dot follows the end of a label.
fn order_of_labels(a: &[u8], b: &[u8]) -> Ordering {
    let shared = a.len().min(b.len());
    let next = |label: &[u8]| label.get(shared).copied().unwrap_or(b'.');
    a[..shared].cmp(&b[..shared]).then_with(|| next(a).cmp(&next(b)))
}

/// The order of two Services by name, then namespace.
fn order_of_services(a: &ServiceEntry, b: &ServiceEntry) -> Ordering {
    let ((a, a_namespace), (b, b_namespace)) = (a.labels(), b.labels());
    order_of_labels(a, b).then_with(|| order_of_labels(a_namespace, b_namespace))
}

/// Writes the PTR of a cluster IP (RR60).
pub(crate) fn write_cluster_ip_pointer(
    records: &Records,
    entry: &ServiceEntry,
    owner: Owner<'_>,
    reply: &mut Reply<'_, '_>,
) {
    let parts = [&entry.wire[..], &records.zone.svc];
    if !write_only_pointer(records, parts, owner, reply) {
        let _ = write_pointer(records, &parts, owner, reply);
    }
}

/// Writes the PTRs of an address of endpoints, in the order of RR62.
pub(crate) fn write_pointers(
    records: &Records,
    claims: &Claims<'_>,
    owner: Owner<'_>,
    reply: &mut Reply<'_, '_>,
) {
    if let (Some(entry), &[(address, row)]) = (claims.only, claims.published)
        && write_only_endpoint(records, entry, (address, row), owner, reply)
    {
        return;
    }
    match claims.published.len() {
        0..=FEW_POINTERS => write_sorted::<FEW_POINTERS>(records, claims, owner, reply),
        _ => write_sorted::<MAX_POINTERS>(records, claims, owner, reply),
    }
}

/// Writes the PTR of the one row that publishes an address, if that can be done in one piece; whether it was.
fn write_only_endpoint(
    records: &Records,
    entry: &ServiceEntry,
    (address, publisher): (Address, Publisher),
    owner: Owner<'_>,
    reply: &mut Reply<'_, '_>,
) -> bool {
    let row = Row { address, slice: publisher.slice, label: publisher.label };
    let mut place = ShortText::EMPTY;
    let label = records.label(&row, &mut place);
    let parts = [&[label.len() as u8], label, &entry.wire, &records.zone.svc];
    write_only_pointer(records, parts, owner, reply)
}

/// Writes the only PTR of a name in one piece, where that is possible; whether it was.
fn write_only_pointer<const N: usize>(
    records: &Records,
    target: [&[u8]; N],
    owner: Owner<'_>,
    reply: &mut Reply<'_, '_>,
) -> bool {
    let ttl_s = records.zone.settings.ttl_s;
    matches!(owner, Owner::Question) && reply.answer_only_pointer(ttl_s, target).is_some()
}

#[inline(never)]
fn write_sorted<const N: usize>(
    records: &Records,
    claims: &Claims<'_>,
    owner: Owner<'_>,
    reply: &mut Reply<'_, '_>,
) {
    let Some(&(address, _)) = claims.published.first() else {
        return;
    };
    // Rows without a name of their own share the one that is made of the address.
    let derived = ShortText::of(address);
    let mut names: [Option<Named<'_>>; N] = [None; N];
    let mut count = 0;
    for Pointer { entry, slice, label, headless } in claims.pointers(records).take(N) {
        let rank = (!label.is_hostname(), !headless);
        let row = Row { address, slice, label };
        let label = records.name_of(&row).unwrap_or(derived.as_bytes());
        names[count] = Some(Named { entry, label, rank });
        count += 1;
    }
    let names = &mut names[..count];
    names.sort_unstable_by(|a, b| match (a, b) {
        (Some(a), Some(b)) => a.order(b),
        _ => Ordering::Equal,
    });
    for index in 0..count {
        let Some(name) = names[index] else {
            return;
        };
        if is_repeated(&names[..index], &name) {
            continue;
        }
        let length = [name.label.len() as u8];
        let parts = [&length[..], name.label, &name.entry.wire, &records.zone.svc];
        if write_pointer(records, &parts, owner, reply).is_err() {
            return;
        }
    }
}

/// Whether a name is among the earlier ones, which are in the order of RR62. It can only be right before this one,
/// or, if this one does not come from a `hostname`, among those that do.
fn is_repeated(before: &[Option<Named<'_>>], name: &Named<'_>) -> bool {
    let same =
        |other: &Option<Named<'_>>| other.as_ref().is_some_and(|other| name.same_name(other));
    if before.last().is_some_and(same) {
        return true;
    }
    let as_hostname = (false, name.rank.1);
    let at = before.partition_point(|other| {
        other.as_ref().is_some_and(|other| {
            other.rank.cmp(&as_hostname).then_with(|| other.order_of_names(name)).is_lt()
        })
    });
    before.get(at).is_some_and(same)
}

fn write_pointer(
    records: &Records,
    parts: &[&[u8]],
    owner: Owner<'_>,
    reply: &mut Reply<'_, '_>,
) -> Result<(), Full> {
    // Names that would be too long were not let in.
    let Some(target) = Name::compose(parts) else {
        return Ok(());
    };
    reply.answer(owner, rtype::PTR, records.zone.settings.ttl_s, Rdata::Name(target.wire()))
}
