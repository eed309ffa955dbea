//! Reverse names: who may claim an address, and the PTRs it has (docs/dns.md §3.7).

#![allow(
    clippy::indexing_slicing,
    reason = "places that a search found, in lists that do not change meanwhile"
)]

mod claims;

use core::cmp::Ordering;

use crate::records::{MAX_PUBLISHERS, Publisher, Records, Row, ServiceEntry};
use crate::steps::step;
use crate::wire::address::Address;
use crate::wire::message::rtype;
use crate::wire::name::Name;
use crate::wire::reply::{Full, Owner, Rdata, Reply};
use crate::wire::text::ShortText;
use claims::Pointer;
pub(crate) use claims::{Claims, is_held_by};

/// PTRs of one address; few addresses have more than a handful.
const MAX_POINTERS: usize = 64;
/// Nearly no address has more. It is small because it is cleared for each reply.
const FEW_POINTERS: usize = 4;

/// Whether an address is a cluster IP, also of a Service that is not visible: those rows come first.
pub(crate) fn is_cluster_ip(holders: &[(Address, Publisher)]) -> bool {
    holders.first().is_some_and(|(_, holder)| holder.is_cluster_ip())
}

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
