//! What an answer came from, for people who ask why. [`trace`] asks `route`, the function that decided, once more for
//! each name of the chain, and says which rules and objects that decision rested on. It answers nothing itself, and it
//! is never called while a client waits.

mod objects;
mod rules;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::decide::found::Found;
use crate::decide::route::{Route, Soa, SoaKind, group_above, group_beside, route};
use crate::decide::schema::{Lookup, Node, cluster_name};
use crate::object::Resource;
use crate::records::{Needs, Records};
use crate::relay::MAX_OWN_CNAMES;
use crate::wire::labels::Labels;
use crate::wire::message::rtype;
use crate::wire::name::Name;
use crate::wire::reverse::ReverseName;

pub use objects::Source;
pub use rules::Rule;

/// Objects that are listed of one name; all of them are counted.
pub(super) const MAX_SOURCES: usize = 32;

/// Where a name leads (docs/dns.md §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A special-use name, answered by every resolver for itself.
    SpecialUse,
    /// At or below the cluster domain (A1).
    ClusterZone,
    /// A reverse zone of ours, or a single reverse name with a PTR of ours.
    Reverse,
    /// A record that the ClusterDNS resource has.
    ExtraRecord,
    /// An upstream group: 0 for the default upstreams, `i + 1` for stub domain `i` of the settings.
    Group(usize),
    /// No group takes the name: REFUSED (N15, A20).
    NoGroup,
    /// It is not known which names are ours (E44).
    NotConfigured,
}

/// One name of the chain that an answer follows: the question first, then each CNAME target of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The name as routed, lower case.
    pub name: Name,
    /// Which row of the routing order matched.
    pub place: Place,
    /// Whether the name exists, if it is ours and that is known.
    pub exists: bool,
    /// The rules that decided, in the order in which they were asked.
    pub rules: Vec<Rule>,
    /// What hides, replaces or withholds something here, one sentence for each.
    pub notes: Vec<String>,
    /// The objects that it rests on, the first [`MAX_SOURCES`].
    pub sources: Vec<Source>,
    /// All sources, those beyond `MAX_SOURCES` included.
    pub source_count: usize,
    /// When the oldest snapshot that it depends on was confirmed, in Unix seconds (E42).
    pub snapshot_at_s: Option<u64>,
    /// Resources that it depends on and that have no data yet (N9).
    pub missing: Vec<Resource>,
}

/// The names that a question of class IN leads through, as these records decide it; at most one more than CNAMEs may be
/// followed.
pub fn trace(records: &Records, name: &Name, qtype: u16) -> Vec<Hop> {
    let mut hops = Vec::new();
    let mut next = Some(name.clone());
    while let Some(name) = next.take() {
        let labels = Labels::of(&name);
        let mut withholds = false;
        let leads = route(records, &labels, &Found::Unknown, qtype, &mut withholds);
        let (hop, target) = match leads {
            Route::Own(lookup, soa) => {
                let beside = || group_beside(records, &labels, soa, qtype);
                if let Some(group) = group_above(records, &labels, &lookup, qtype) {
                    (elsewhere(records, &labels, (group, rules::DS_OF_ZONE, ZONE), qtype), None)
                } else if let Some(group) = hops.is_empty().then(beside).flatten() {
                    (
                        elsewhere(records, &labels, (group, rules::DNSSEC_OF_OWNER, OWNER), qtype),
                        None,
                    )
                } else {
                    own(records, &labels, (lookup, soa, withholds), qtype)
                }
            }
            Route::Group(group) => {
                (forwarded(records, &labels, (Place::Group(group), withholds), qtype), None)
            }
            Route::NoGroup => {
                (forwarded(records, &labels, (Place::NoGroup, withholds), qtype), None)
            }
        };
        hops.push(hop);
        let is_new = |target: &Name| hops.iter().all(|hop| hop.name != *target);
        next = target.filter(|target| hops.len() <= MAX_OWN_CNAMES && is_new(target));
    }
    hops
}

fn hop(labels: &Labels, place: Place) -> Hop {
    Hop {
        name: labels.to_name(),
        place,
        exists: false,
        rules: Vec::new(),
        notes: Vec::new(),
        sources: Vec::new(),
        source_count: 0,
        snapshot_at_s: None,
        missing: Vec::new(),
    }
}

/// A name that upstreams answer; `withholds`: although a namespace publishes its address.
fn forwarded(
    records: &Records,
    labels: &Labels,
    (place, withholds): (Place, bool),
    qtype: u16,
) -> Hop {
    let mut hop = hop(labels, place);
    if withholds {
        objects::withheld(&mut hop);
    }
    let own_group = records.zone.stub_domains.exact(labels).filter(|_| qtype == rtype::DS);
    if let Some(&own) = own_group
        && place != Place::Group(own)
    {
        hop.rules.push(rules::DS_OF_STUB_DOMAIN);
        hop.notes.push(
            "this is a stub domain, and its own servers are never asked for its DS record".into(),
        );
    }
    match place {
        Place::Group(0) => hop.rules.push(rules::DEFAULT_UPSTREAMS),
        Place::Group(group) => {
            hop.rules.push(rules::STUB_DOMAIN);
            if let Some(domain) = records.zone.settings.stub_domains.get(group - 1) {
                hop.notes.push(format!(
                    "the longest stub domain that matches is {domain}; the default upstreams are never asked for it"
                ));
            }
        }
        _ => hop.rules.push(rules::NO_GROUP),
    }
    if let Place::Group(group) = place
        && records.zone.withholds(group, qtype)
    {
        hop.rules.push(rules::WITHHELD_TYPE);
        let field = if group == 0 { "spec.upstreams" } else { "this stub domain" };
        hop.notes.push(format!("withheldTypes of {field} has this type, so no server is asked"));
    }
    hop
}

/// Why a name of ours is asked elsewhere.
const ZONE: &str = "this is a zone of ours, and only the zone above it has its DS record; without recursion desired we deny it";
const OWNER: &str = "a record of the resource has this name, which may be the apex of a zone of others; without recursion \
                     desired we deny the type";

/// A name of ours of which a group has this type, by which rule, and why.
fn elsewhere(
    records: &Records,
    labels: &Labels,
    (group, rule, why): (usize, Rule, &str),
    qtype: u16,
) -> Hop {
    let mut hop = forwarded(records, labels, (Place::Group(group), false), qtype);
    hop.rules.insert(0, rule);
    hop.notes.insert(0, why.into());
    hop
}

/// A name of ours, and where it leads if it is an alias that is followed.
fn own<'r>(
    records: &'r Records,
    labels: &Labels,
    (lookup, soa, withholds): (Lookup<'r, '_>, Soa<'_>, bool),
    qtype: u16,
) -> (Hop, Option<Name>) {
    let place = place(records, labels, soa);
    let mut hop = hop(labels, place);
    hop.missing = missing(records, lookup.needs);
    if records.lacks(lookup.needs) {
        hop.rules.push(match records.is_configured() {
            true if lookup.needs.has(Needs::LOCATION) => rules::NO_LOCATION,
            true => rules::NOT_READY,
            false => rules::NOT_CONFIGURED,
        });
        return (hop, None);
    }
    hop.exists = lookup.node.is_some();
    hop.snapshot_at_s = records.snapshot(lookup.needs);
    let overrides = place == Place::ClusterZone
        && (records.zone.extra.overriding(labels.wire()).is_some()
            || matches!(lookup.node, Some(Node::Dname(_))));
    rules::of_own(&mut hop, lookup.node, overrides);
    match lookup.node {
        Some(node) => objects::of_node(records, node, &mut hop),
        None => objects::why_missing(records, labels, &mut hop),
    }
    if withholds {
        objects::withheld(&mut hop);
    }
    if overrides {
        replaced(records, labels, &mut hop);
    }
    if place == Place::ExtraRecord {
        hop.notes.extend(beside_stub_domain(records, labels, soa.owner));
    }
    objects::hidden_pointers(records, labels, lookup.node, &mut hop);
    let target = match lookup.node {
        _ if matches!(qtype, rtype::CNAME | rtype::ANY) => None,
        Some(Node::Alias(target, _)) => Some(Name::clone(target)),
        Some(Node::Dname(dname) | Node::Federated(dname)) => dname.substitute(labels.wire()),
        _ => None,
    };
    (hop, target)
}

/// How a record outside of the zone, with this owner, wins over the stub domain of a name. Both are at or above the name, so
/// the longer one is below the other.
fn beside_stub_domain(records: &Records, labels: &Labels, owner: &[u8]) -> Option<String> {
    let group = *records.zone.stub_domains.longest(labels, 0)?;
    let domain = records.zone.settings.stub_domains.get(group.checked_sub(1)?)?;
    Some(match domain.wire().len() > owner.len() {
        true => format!(
            "the stub domain {domain} is below this record, which answers for all names below it: that stub domain is \
             never asked for them (A17, RR85)"
        ),
        false => "the record is more specific than the stub domain above it (A17)".into(),
    })
}

fn place(records: &Records, labels: &Labels, soa: Soa<'_>) -> Place {
    let zone = &records.zone;
    match soa.kind {
        SoaKind::SpecialUse => Place::SpecialUse,
        SoaKind::Extra => Place::ExtraRecord,
        SoaKind::Cluster if !records.is_configured() => Place::NotConfigured,
        SoaKind::Cluster if labels.below(zone.apex(), zone.apex_labels).is_some() => {
            Place::ClusterZone
        }
        SoaKind::Cluster => Place::Reverse,
    }
}

/// Which resources of a set have no data.
fn missing(records: &Records, needs: Needs) -> Vec<Resource> {
    let of = |resource: &Resource| Needs::of(*resource);
    let is_missing = |resource: &Resource| needs.has(of(resource)) && records.lacks(of(resource));
    Resource::ALL.into_iter().filter(is_missing).collect()
}

/// What Kubernetes has at a name that a record of the resource replaces (A13).
fn replaced(records: &Records, labels: &Labels, hop: &mut Hop) {
    let Some(left) = labels.below(records.zone.apex(), records.zone.apex_labels) else { return };
    let Some(node) = cluster_name(records, labels, left, &Found::Unknown).node else { return };
    let mut other = self::hop(labels, hop.place);
    objects::of_node(records, node, &mut other);
    let names: Vec<String> = other.sources.iter().map(|source| format!("{source}")).collect();
    if !names.is_empty() {
        hop.notes
            .push(format!("the record replaces what Kubernetes has here: {}", names.join(", ")));
    }
}

/// The whole address of a reverse name.
fn reverse_address(labels: &Labels) -> Option<core::net::IpAddr> {
    ReverseName::of(labels)?.address()
}

#[cfg(test)]
mod tests;
