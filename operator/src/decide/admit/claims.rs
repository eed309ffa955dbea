//! Two ClusterDNS that claim one Service or one address: one of them is acted on, the other gets `Conflict` (O3). Who has it
//! keeps it, also where the other one is older; where none of them has it yet, the older wins, then the smaller uid. All is read from objects of the cluster, so that
//! each operator, and each of the two, sees the same. Pure.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;

use crds::ClusterDNS;
use serde_json::Value;

use super::was_accepted;
use crate::decide::plan::Refusal;
use crate::names;
use crate::observe::named_services::NamedService;
use crate::observe::observed::Observed;
use crate::shortened::shortened;

/// Octets of a message that name the finalizers of another ClusterDNS: its writer chooses them.
const MAX_FINALIZERS: usize = 200;

/// # Errors
/// `Conflict`: another one has what this one claims.
pub(super) fn are_free(dns: &ClusterDNS, observed: &Observed) -> Result<(), Refusal> {
    let service = observed.service.as_ref().map(|service| {
        let spec = serde_json::to_value(&service.spec).unwrap_or(Value::Null);
        NamedService::of(&service.metadata, &spec)
    });
    let own = Claim::of(dns, service.as_ref());
    let others = observed.others.iter().map(|other| {
        let name = other.metadata.name.as_deref().unwrap_or_default();
        match names::service(other) == names::service(dns) {
            true => Claim::of(other, service.as_ref()),
            false => Claim::of(other, observed.services_of_others.get(name)),
        }
    });
    match winner(&own, others.collect()) {
        Some(other) => Err(conflict(&own, &other)),
        None => Ok(()),
    }
}

/// Addresses as written, and those that were reported.
pub(crate) fn claimed_ips(dns: &ClusterDNS) -> BTreeSet<IpAddr> {
    let written = dns.spec.service.iter().flat_map(|service| service.cluster_ips.iter().flatten());
    written.filter_map(|text| text.parse().ok()).chain(reported_ips(dns)).collect()
}

fn reported_ips(dns: &ClusterDNS) -> impl Iterator<Item = IpAddr> {
    let reported = dns.status.iter().flat_map(|status| &status.cluster_ips);
    reported.filter_map(|text| text.parse().ok())
}

/// What one ClusterDNS claims.
#[derive(Clone)]
struct Claim<'a> {
    dns: &'a ClusterDNS,
    service: (String, String),
    /// The Service of this name, if it exists.
    found: Option<&'a NamedService>,
    addresses: BTreeSet<IpAddr>,
}

/// How firmly one has what two of them claim: what comes first counts more.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Hold {
    /// The Service belongs to it.
    owns: bool,
    /// The selector of the Service leads to its pods.
    serves: bool,
    /// The Service says that it adopted it.
    adopted: bool,
    /// Its operator acts on its name and namespace. No edit of it could mend that it does not.
    is_managed: bool,
    /// The Service that it names has the address.
    has: bool,
    /// This spec of it was acted on: its Service was deleted, or has not moved to it yet.
    is_accepted: bool,
    /// It served at addresses and is refused for another reason now: the other one has waited.
    is_no_newcomer: bool,
}

impl Hold {
    /// The Service itself says so.
    fn is_shown(&self) -> bool {
        self.owns || self.serves || self.adopted
    }
}

impl<'a> Claim<'a> {
    fn of(dns: &'a ClusterDNS, found: Option<&'a NamedService>) -> Claim<'a> {
        let mut known: BTreeSet<IpAddr> = reported_ips(dns).collect();
        known.extend(found.iter().flat_map(|service| &service.addresses));
        // Kubernetes changes no address of a Service. So one that is written beside another of its family never comes
        // (`ClusterIPsDiffer`), and a second ClusterDNS may have it.
        let comes = |ip: &IpAddr| known.iter().all(|it| it.is_ipv4() != ip.is_ipv4());
        let mut addresses = claimed_ips(dns);
        addresses.retain(comes);
        addresses.extend(known);
        Claim { dns, service: names::service(dns), found, addresses }
    }

    fn conflicts(&self, other: &Claim<'_>) -> bool {
        self.service == other.service || !self.addresses.is_disjoint(&other.addresses)
    }

    fn hold(&self, other: &Claim<'_>) -> Hold {
        let is_claimed = |service: &&&NamedService| {
            self.service == other.service || !service.addresses.is_disjoint(&other.addresses)
        };
        let service = self.found.as_ref().filter(is_claimed);
        let (name, uid) = (&self.dns.metadata.name, self.dns.metadata.uid.as_ref());
        let conditions = self.dns.status.iter().flat_map(|status| &status.conditions);
        let accepted = conditions.filter(|it| it.type_ == "Accepted");
        let reasons: Vec<&str> = accepted.map(|it| it.reason.as_str()).collect();
        let is_unmanaged = |reason| ["NameNotManaged", "NamespaceNotManaged"].contains(reason);
        let shown = Hold {
            owns: service.is_some_and(|it| uid.is_some_and(|uid| it.owners.contains(uid))),
            serves: service.is_some_and(|it| it.leads_to.is_some() && it.leads_to == *name),
            adopted: service.is_some_and(|it| it.adopted_by.is_some() && it.adopted_by == *name),
            is_managed: !reasons.iter().any(is_unmanaged),
            ..Hold::default()
        };
        // A Service of others that it does not adopt, or has given back: it is never acted on with that one, and keeps nothing.
        let adopts = self.dns.spec.service.as_ref().is_some_and(|service| service.adopt);
        // Another client may have replaced all of its own that shows whose it is: that is put back.
        let serves_there = |it: &&NamedService| {
            was_accepted(self.dns) && reported_ips(self.dns).any(|ip| it.addresses.contains(&ip))
        };
        let is_of_others = service.is_some_and(|it| !serves_there(it)) && !shown.is_shown();
        if is_of_others && !adopts {
            return shown;
        }
        let has_served = self.dns.status.as_ref().is_some_and(|it| !it.cluster_ips.is_empty());
        Hold {
            has: service.is_some(),
            is_accepted: was_accepted(self.dns),
            // One that is unknown is no refusal: it is so while a namespace cannot be read.
            is_no_newcomer: has_served && !reasons.contains(&"Conflict"),
            ..shown
        }
    }

    /// Never true of both.
    fn beats(&self, other: &Claim<'_>) -> bool {
        let strength = |one: &Claim<'_>, two: &Claim<'_>| (one.hold(two), Reverse(one.age()));
        self.conflicts(other) && strength(self, other) > strength(other, self)
    }

    fn age(&self) -> (i64, String) {
        let metadata = &self.dns.metadata;
        let created =
            metadata.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second());
        (created, metadata.uid.clone().unwrap_or_default())
    }
}

/// The one that is acted on instead of this one. One that is refused itself keeps nothing from others, so each that is refused
/// conflicts with one that is acted on, and no two of those conflict.
fn winner<'a>(own: &Claim<'a>, mut far: Vec<Claim<'a>>) -> Option<Claim<'a>> {
    let (mut near, mut at) = (vec![own.clone()], 0);
    while at < near.len() {
        let (found, rest): (Vec<_>, Vec<_>) =
            far.into_iter().partition(|it| it.conflicts(&near[at]));
        far = rest;
        near.extend(found);
        at += 1;
    }
    near.sort_by_key(Claim::age);
    while !near.is_empty() {
        let is_free = |claim: &Claim<'_>| !near.iter().any(|other| other.beats(claim));
        // None, where each claims what the next one has: then the oldest.
        let next = near.iter().position(is_free).unwrap_or(0);
        let next = near.remove(next);
        if next.dns.metadata.name == own.dns.metadata.name {
            return None;
        }
        if next.conflicts(own) {
            return Some(next);
        }
        near.retain(|other| !other.conflicts(&next));
    }
    None
}

fn conflict(own: &Claim<'_>, other: &Claim<'_>) -> Refusal {
    let name = other.dns.metadata.name.as_deref().unwrap_or_default();
    let hold = other.hold(own);
    let has = if hold.is_shown() { "has" } else { "claims" };
    let has = if hold > own.hold(other) { has.to_owned() } else { format!("is older and {has}") };
    let (is_leaving, that_one) = leaving(other.dns);
    if own.service == other.service {
        let (namespace, service) = &own.service;
        return Refusal::new(
            "Conflict",
            "spec.service.name",
            format!(
                "ClusterDNS {name} {has} Service {namespace}/{service}{is_leaving}: delete this one and create it with another \
                 service.name, or {that_one}"
            ),
        );
    }
    let shared = own.addresses.intersection(&other.addresses).next();
    let shared = shared.map(IpAddr::to_string).unwrap_or_default();
    Refusal::new(
        "Conflict",
        "spec.service.clusterIPs",
        format!(
            "ClusterDNS {name} {has} {shared}{is_leaving}: delete this one and create it with another address, or {that_one}"
        ),
    )
}

/// Whether the other one is being deleted already, and what a person does about it.
fn leaving(other: &ClusterDNS) -> (String, &'static str) {
    if other.metadata.deletion_timestamp.is_none() {
        return (String::new(), "delete that one");
    }
    let finalizers = other.metadata.finalizers.clone().unwrap_or_default();
    let is_leaving = match finalizers.is_empty() {
        true => " and is being deleted".to_owned(),
        false => format!(
            " and is being deleted, which waits for the finalizers {}",
            shortened(&finalizers.join(", "), MAX_FINALIZERS)
        ),
    };
    (is_leaving, "wait until that one is gone")
}

#[cfg(test)]
mod tests;
