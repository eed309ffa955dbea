//! Which zone or upstream group a name belongs to. The steps are those of docs/dns.md §2.2 in their order (A10-A20); the
//! first that matches decides. Ours are the zones and names of A1-A5.

use crate::decide::found::Found;
use crate::decide::reverse::{Claims, cluster_ip_owner, is_cluster_ip};
use crate::decide::schema::{Lookup, Node, cluster_name};
use crate::records::extra::{ExtraOwner, Match};
use crate::records::zone::Zone;
use crate::records::{Needs, Records};
use crate::wire::address::Address;
use crate::wire::labels::Labels;
use crate::wire::message::rtype;
use crate::wire::reverse::{ReverseName, ReverseRange};

/// Whose name it is: ours, an upstream group's, or no group's (N15).
pub(crate) enum Route<'r, 'q> {
    /// It is ours, for every outcome.
    Own(Lookup<'r, 'q>, Soa<'q>),
    /// An upstream group answers, for ANY too (A18, A19, WR31).
    Group(usize),
    /// No group is left: neither a stub domain matches nor are there upstreams (A20).
    NoGroup,
}

/// The SOA of the zone a name of ours belongs to (N30).
#[derive(Clone, Copy)]
pub(crate) struct Soa<'q> {
    /// Its owner in wire form.
    pub(crate) owner: &'q [u8],
    pub(crate) kind: SoaKind,
}

/// The kinds of SOA, which decide serial and TTL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SoaKind {
    /// That of the cluster zone or of a reverse zone (RR70).
    Cluster,
    /// That of an extra record outside the zone (RR83).
    Extra,
    /// That of a special-use name (docs/dns.md §2.3).
    SpecialUse,
}

/// Decides where a name leads; `found` is what the trees have for it.
///
/// Sets `withholds` where a namespace that publishes the address of a reverse name has no PTR of it (RR63), also where none is
/// left and the name is routed on; never where data is missing. As a part of the result it would cost every reply some twenty
/// instructions.
pub(crate) fn route<'r: 'q, 'q>(
    records: &'r Records,
    name: &'q Labels,
    found: &Found<'r>,
    qtype: u16,
    withholds: &mut bool,
) -> Route<'r, 'q> {
    let reverse = found.reverse(name);
    let special = match &reverse {
        Some(reverse) => loopback_reverse(name, reverse),
        None => special_use(name, records.replicas()),
    };
    if let Some((lookup, owner)) = special {
        return Route::Own(lookup, Soa { owner, kind: SoaKind::SpecialUse });
    }
    let zone = &records.zone;
    if !records.is_configured() {
        let soa = Soa { owner: zone.apex(), kind: SoaKind::Cluster };
        return Route::Own(Lookup::missing(Needs::CONFIGURATION), soa);
    }
    if let Some(left) = found.left(records, name) {
        let lookup = match zone.extra.overriding(name.wire()) {
            Some(owner) => Lookup::found(extra_node(owner), Needs::NOTHING),
            None => match zone.extra.inner_dname(name) {
                Some(dname) => Lookup::found(Node::Dname(dname), Needs::NOTHING),
                None => cluster_name(records, name, left, found),
            },
        };
        return Route::Own(lookup, Soa { owner: zone.apex(), kind: SoaKind::Cluster });
    }
    if let Some(reverse) = &reverse
        && let Some(route) = reverse_name(records, name, (reverse, found), qtype, withholds)
    {
        return route;
    }
    if let Some(found) = zone.extra.find(name) {
        let (owner, node) = match found {
            Match::Owner(owner) => (&owner.name, extra_node(owner)),
            Match::Below(dname) => (&dname.owner, Node::Dname(dname)),
        };
        let soa = Soa { owner: owner.wire(), kind: SoaKind::Extra };
        return Route::Own(Lookup::found(node, Needs::NOTHING), soa);
    }
    group(zone, name, qtype).map_or(Route::NoGroup, Route::Group)
}

/// A18 to A20. The DS record of a stub domain is at the servers of the names above it (RFC 4035 §3.1.4.1): its own servers have
/// none and cannot sign that, so a validating resolver would refuse every name below.
fn group(zone: &Zone, name: &Labels, qtype: u16) -> Option<usize> {
    let at_or_above = || zone.stub_domains.longest(name, 0).copied();
    let default = zone.settings.default_upstreams.then_some(0);
    match qtype {
        rtype::DS => zone.stub_domains.longest(name, 1).copied().or(default).or_else(at_or_above),
        _ => at_or_above().or(default),
    }
}

/// The group that is asked for the DS record of a zone of ours, if there is one (RR75): as of a stub domain, the zone above has
/// it. A name below an apex is no zone of its own, so its DS record is for us to deny.
#[inline]
pub(crate) fn group_above(
    records: &Records,
    name: &Labels,
    lookup: &Lookup<'_, '_>,
    qtype: u16,
) -> Option<usize> {
    match (qtype, &lookup.node) {
        (rtype::DS, Some(Node::Apex)) => group(&records.zone, name, qtype),
        _ => None,
    }
}

/// The group that is asked for the DS and DNSKEY records at the owner of an extra record outside `Z`, if there is one (RR81). That
/// name may be the apex of a zone whose other names are not ours: without these two records a validating resolver behind us
/// would refuse all of them.
#[inline]
pub(crate) fn group_beside(
    records: &Records,
    name: &Labels,
    soa: Soa<'_>,
    qtype: u16,
) -> Option<usize> {
    match qtype {
        // Of a wildcard and of a DNAME above, the SOA has another owner.
        rtype::DS | rtype::DNSKEY if soa.kind == SoaKind::Extra && soa.owner == name.wire() => {
            group(&records.zone, name, qtype)
        }
        _ => None,
    }
}

fn extra_node<'r, 'q>(owner: &'r ExtraOwner) -> Node<'r, 'q> {
    match &owner.cname {
        Some((target, ttl_s)) => Node::Alias(target, *ttl_s),
        None => Node::Extra(owner),
    }
}

/// A12: names that never leave this process (RFC 6761, §2.3), with the owner of their SOA; reverse names have their own.
fn special_use(name: &Labels, replicas: u64) -> Option<(Lookup<'static, '_>, &[u8])> {
    let top = name.count().checked_sub(1)?;
    let found = |node, apex| Some((Lookup::found(node, Needs::NOTHING), name.suffix(apex)));
    let missing = |apex| Some((Lookup::missing(Needs::NOTHING), name.suffix(apex)));
    match name.label(top) {
        b"localhost" => found(Node::Localhost, top),
        b"invalid" | b"onion" if top == 0 => found(Node::EmptyNonTerminal, top),
        b"invalid" | b"onion" => missing(top),
        b"clusterdns-loop" if top == 0 => found(Node::EmptyNonTerminal, top),
        // Those of another ClusterDNS are asked elsewhere: if that leads back to it, it sees them again (FW50).
        b"clusterdns-loop" if !is_number(name.label(top - 1), replicas) => None,
        b"clusterdns-loop" if top == 1 => found(Node::EmptyNonTerminal, top),
        b"clusterdns-loop" => found(Node::LoopProbe(name.label(top - 2)), top),
        // A client reads NODATA at any name as "no designated resolver" (RFC 9462 §4, §6.4).
        b"arpa" if top > 0 && name.label(top - 1) == b"resolver" => {
            found(Node::EmptyNonTerminal, top - 1)
        }
        _ => None,
    }
}

/// Whether a label is this number in 16 hexadecimal digits.
fn is_number(label: &[u8], number: u64) -> bool {
    let digit = |octet: &u8| char::from(*octet).to_digit(16).map(u64::from);
    let read = label.iter().try_fold(0_u64, |read, octet| Some((read << 4) | digit(octet)?));
    label.len() == 16 && read == Some(number)
}

/// The reverse names of the loopback addresses (A41).
fn loopback_reverse<'q>(
    name: &'q Labels,
    reverse: &ReverseName,
) -> Option<(Lookup<'static, 'q>, &'q [u8])> {
    let apex = reverse.left().checked_sub(reverse.loopback_labels()?)?;
    let node = match reverse.address() {
        Some(_) if reverse.is_localhost() => Some(Node::LocalhostPointer),
        Some(_) => None,
        None => reverse.is_partial().then_some(Node::EmptyNonTerminal),
    };
    Some((Lookup { node, needs: Needs::NOTHING }, name.suffix(apex)))
}

/// A15 and A16; `None` routes on.
fn reverse_name<'r: 'q, 'q>(
    records: &'r Records,
    name: &'q Labels,
    (reverse, found): (&ReverseName, &Found<'r>),
    qtype: u16,
    withholds: &mut bool,
) -> Option<Route<'r, 'q>> {
    let ranges = &records.zone.reverse_ranges;
    let owned = ranges.iter().filter_map(|range| range.apex_labels(reverse)).max();
    let address = reverse.publishable();
    if owned.is_none() && (qtype != rtype::PTR || address.is_none()) {
        return None;
    }
    let apex = reverse.left() - owned.unwrap_or(reverse.left());
    let soa = Soa { owner: name.suffix(apex), kind: SoaKind::Cluster };
    let lookup = match address {
        Some(address) => {
            let lookup = pointers(records, address, found, withholds);
            match (&lookup.node, owned) {
                (None, None) if !records.lacks(lookup.needs) => return None,
                // Only NXDOMAIN depends on Namespaces (§4.4 note 1).
                (None, Some(_)) => Lookup::missing(lookup.needs.and(Needs::NAMESPACES)),
                (None, None) | (Some(_), _) => lookup,
            }
        }
        None if apex == 0 => Lookup::found(Node::Apex, Needs::NOTHING),
        None if reverse.is_partial() => Lookup::found(Node::EmptyNonTerminal, Needs::NOTHING),
        // RFC 2317: a name such as `0-63.5.168.192.in-addr.arpa` belongs to the servers that have the rest of the /24.
        None if !whole_apex(ranges, reverse) => return None,
        None => Lookup::missing(Needs::NOTHING),
    };
    Some(Route::Own(lookup, soa))
}

/// Whether a range that makes this name ours has all addresses below its apex.
fn whole_apex(ranges: &[ReverseRange], name: &ReverseName) -> bool {
    ranges.iter().any(|range| range.has_whole_apex && range.apex_labels(name).is_some())
}

/// The PTRs of one address: a cluster IP's, else those of endpoints, else automatic ones (RR60-RR64).
fn pointers<'r, 'q>(
    records: &'r Records,
    address: Address,
    found: &Found<'r>,
    withholds: &mut bool,
) -> Lookup<'r, 'q> {
    let published = found.publishers(records, address);
    if let Some(entry) = cluster_ip_owner(records, published) {
        return Lookup::found(Node::ClusterIpPointer(entry), Needs::of_service(&records.zone));
    }
    let needs = Needs::of_pointer(&records.zone);
    // The cluster IP of a Service that is hidden or empty is still its own: endpoints cannot claim it (RR60).
    if !is_cluster_ip(published) {
        let claims = Claims::of(records, address, published);
        *withholds |= claims.withholds && !records.lacks(needs);
        if claims.any {
            return Lookup::found(Node::Pointers(claims), needs);
        }
    }
    match records.zone.extra.pointers(address) {
        Some(pointers) => Lookup::found(Node::ExtraPointers(pointers), needs),
        None => Lookup::missing(needs),
    }
}
