//! Reverse names: who may claim an address, and the PTRs it has (docs/dns.md §3.7).

use crate::address::Address;
use crate::message::rtype;
use crate::name::Name;
use crate::object::Resource;
use crate::records::{DataSource, Kind, Needs, Publisher, Records, Row, ServiceEntry};
use crate::reply::{Full, Owner, Rdata, Reply};
use crate::schema::service_needs;
use crate::settings::PodRecords;
use crate::text::ShortText;

/// Names considered for the PTRs of one address; few addresses have more than a handful.
const MAX_POINTERS: usize = 1024;
/// What nearly all addresses have at most: kept small, because it is cleared for each reply.
const FEW_POINTERS: usize = 4;

/// What every PTR verdict that is not a cluster IP depends on (§4.4).
pub(crate) fn pointer_needs(records: &Records) -> Needs {
    let needs = service_needs(records).and(Needs::SLICES);
    match records.zone.settings.pods {
        PodRecords::Verified => needs.and(Needs::PODS),
        PodRecords::Disabled | PodRecords::Insecure => needs,
    }
}

/// The visible Service whose cluster IP this is; the first by name should there be two (RR60).
pub(crate) fn cluster_ip_owner<'r>(
    records: &'r Records,
    holders: &[(Address, Publisher)],
) -> Option<&'r ServiceEntry> {
    holders
        .iter()
        .filter(|(_, holder)| holder.is_cluster_ip())
        .filter_map(|(_, holder)| records.services.get(holder.service))
        .filter(|entry| records.visible(entry).is_some())
        .min_by(|a, b| text(b"", a).cmp(text(b"", b)))
}

/// Who may have PTRs of an address (RR63); worked out once for each question.
#[derive(Clone, Copy)]
pub(crate) struct Claims<'r> {
    /// What publishes it, visible or not.
    published: &'r [(Address, Publisher)],
    /// Pods hold the address, and only the namespaces of those may claim it.
    held: bool,
    rule: Rule,
    /// Whether anybody who publishes the address goes without.
    pub(crate) withholds: bool,
    pub(crate) any: bool,
}

#[derive(Clone, Copy)]
enum Rule {
    /// Everybody who publishes it.
    All,
    /// Those whose targetRef is a Pod of their own namespace.
    OwnPods,
    /// The owner cannot be told.
    Nobody,
}

impl<'r> Claims<'r> {
    /// Those of an address that these publish.
    pub(crate) fn of(
        records: &'r Records,
        address: Address,
        published: &'r [(Address, Publisher)],
    ) -> Claims<'r> {
        let held = is_held(records, address);
        // Of one row nobody else can claim the address: the rule is not worth a second look.
        let rule = if published.len() < 2 { Rule::All } else { rule(records, published, held) };
        let mut claims = Claims { published, held, rule, withholds: false, any: false };
        for pointer in visible_rows(records, published) {
            if claims.allows(records, &pointer) {
                claims.any = true;
            } else {
                claims.withholds = true;
            }
        }
        claims
    }

    fn allows(&self, records: &Records, pointer: &Pointer<'_>) -> bool {
        let (address, namespace) = (pointer.row.address, pointer.entry.namespace);
        if self.held && !is_holder(records, address, namespace) {
            return false;
        }
        match self.rule {
            Rule::All => true,
            Rule::OwnPods => pointer.row.label.is_own_pod(),
            Rule::Nobody => false,
        }
    }
}

/// Whether Pods decide who may claim the address.
fn is_held(records: &Records, address: Address) -> bool {
    records.zone.settings.pods == PodRecords::Verified
        && records.source(Resource::Pods) != DataSource::None
        && records.pod_addresses.get(address).iter().any(|(_, pod)| !pod.host_network)
}

/// Whether a Pod of this namespace has the address.
fn is_holder(records: &Records, address: Address, namespace: u32) -> bool {
    let mut pods = records.pod_addresses.get(address).iter();
    pods.any(|(_, pod)| !pod.host_network && pod.namespace == namespace)
}

fn rule(records: &Records, published: &[(Address, Publisher)], held: bool) -> Rule {
    let (mut namespaces, mut owners) = (Several::default(), Several::default());
    for Pointer { entry, row, .. } in visible_rows(records, published) {
        if held && !is_holder(records, row.address, entry.namespace) {
            continue;
        }
        namespaces.add(entry.namespace);
        if row.label.is_own_pod() {
            owners.add(entry.namespace);
        }
    }
    match (namespaces, owners) {
        (Several::None | Several::One(_), _) | (_, Several::None) => Rule::All,
        (Several::Many, Several::One(_)) => Rule::OwnPods,
        (Several::Many, Several::Many) => Rule::Nobody,
    }
}

/// None, one or several namespaces.
#[derive(Clone, Copy, Default)]
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

/// Every row of an address in visible Services (RR61, RR65).
fn visible_rows<'r>(
    records: &'r Records,
    published: &'r [(Address, Publisher)],
) -> impl Iterator<Item = Pointer<'r>> {
    let rows = published.iter().filter(|(_, publisher)| !publisher.is_cluster_ip());
    rows.filter_map(|&(address, Publisher { service, slice, label })| {
        let entry = records.services.get(service)?;
        let headless = match records.visible(entry)?.kind {
            Kind::Headless => true,
            Kind::ClusterIp(_) => false,
            Kind::ExternalName(_) | Kind::Unserved => return None,
        };
        Some(Pointer { entry, row: Row { address, slice, label }, headless })
    })
}

/// One candidate for a PTR.
#[derive(Clone, Copy)]
struct Pointer<'r> {
    entry: &'r ServiceEntry,
    row: Row,
    headless: bool,
}

impl Pointer<'_> {
    /// RR62: hostnames first, headless before ClusterIP, then ascending by the name as text.
    fn order(&self, other: &Pointer<'_>, records: &Records) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank()).then_with(|| self.order_of_names(other, records))
    }

    fn rank(&self) -> (bool, bool) {
        (!self.row.label.is_hostname(), !self.headless)
    }

    fn order_of_names(&self, other: &Pointer<'_>, records: &Records) -> std::cmp::Ordering {
        let (mut own, mut others) = (ShortText::EMPTY, ShortText::EMPTY);
        let own_label = records.label(&self.row, &mut own);
        let other_label = records.label(&other.row, &mut others);
        text(own_label, self.entry).cmp(text(other_label, other.entry))
    }

    fn same_name(&self, other: &Pointer<'_>, records: &Records) -> bool {
        let (mut own, mut others) = (ShortText::EMPTY, ShortText::EMPTY);
        std::ptr::eq(self.entry, other.entry)
            && records.label(&self.row, &mut own) == records.label(&other.row, &mut others)
    }
}

/// The octets of an endpoint's name as dotted text, without the part all share.
fn text<'a>(label: &'a [u8], entry: &'a ServiceEntry) -> impl Iterator<Item = u8> + 'a {
    let (service, namespace) = entry.labels();
    [label, b".", service, b".", namespace, b"."].into_iter().flatten().copied()
}

/// Writes the PTR of a cluster IP (RR60).
pub(crate) fn write_cluster_ip_pointer(
    records: &Records,
    entry: &ServiceEntry,
    owner: Owner<'_>,
    reply: &mut Reply<'_, '_>,
) {
    let _ = write_pointer(records, &[&entry.wire, &records.zone.svc], owner, reply);
}

/// Writes the PTRs of an address of endpoints, in the order of RR62.
pub(crate) fn write_pointers(
    records: &Records,
    claims: &Claims<'_>,
    owner: Owner<'_>,
    reply: &mut Reply<'_, '_>,
) {
    match claims.published.len() {
        0..=FEW_POINTERS => write_sorted::<FEW_POINTERS>(records, claims, owner, reply),
        _ => write_sorted::<MAX_POINTERS>(records, claims, owner, reply),
    }
}

#[inline(never)]
fn write_sorted<const N: usize>(
    records: &Records,
    claims: &Claims<'_>,
    owner: Owner<'_>,
    reply: &mut Reply<'_, '_>,
) {
    let mut pointers: [Option<Pointer<'_>>; N] = [None; N];
    let mut count = 0;
    let rows = visible_rows(records, claims.published);
    for pointer in rows.filter(|pointer| claims.allows(records, pointer)).take(N) {
        pointers[count] = Some(pointer);
        count += 1;
    }
    let pointers = &mut pointers[..count];
    pointers.sort_unstable_by(|a, b| match (a, b) {
        (Some(a), Some(b)) => a.order(b, records),
        _ => std::cmp::Ordering::Equal,
    });
    for index in 0..count {
        let Some(pointer) = pointers[index] else {
            return;
        };
        if is_repeated(&pointers[..index], &pointer, records) {
            continue;
        }
        let mut place = ShortText::EMPTY;
        let label = records.label(&pointer.row, &mut place);
        let parts = [&[label.len() as u8], label, &pointer.entry.wire, &records.zone.svc];
        if write_pointer(records, &parts, owner, reply).is_err() {
            return;
        }
    }
}

/// Whether a name stands among those before it, which are in the order of RR62: right before, or, when
/// it came from no `hostname`, among those that did. Anyone may write a thousand names of one address.
fn is_repeated(before: &[Option<Pointer<'_>>], pointer: &Pointer<'_>, records: &Records) -> bool {
    let same = |other: &Option<Pointer<'_>>| {
        other.as_ref().is_some_and(|other| pointer.same_name(other, records))
    };
    if before.last().is_some_and(same) {
        return true;
    }
    let as_hostname = (false, !pointer.headless);
    let at = before.partition_point(|other| {
        other.as_ref().is_some_and(|other| {
            let order = other.rank().cmp(&as_hostname);
            order.then_with(|| other.order_of_names(pointer, records)).is_lt()
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
