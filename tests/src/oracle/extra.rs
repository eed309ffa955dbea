//! Extra records (§3.9): exact owners, wildcards, overrides inside `Z`, automatic PTRs.

use std::net::IpAddr;

use dataplane_core::{ExtraData, ExtraRecord};

use super::expected::{Data, Record, RrSet};
use super::names::Name;
use super::{Local, Node, Oracle, record, rrset};

impl Oracle {
    /// A13: an exact owner inside `Z` that says so.
    pub(super) fn overriding_extra(&self, name: &Name) -> Option<Local> {
        let records: Vec<&ExtraRecord> = self
            .settings
            .extra
            .iter()
            .filter(|extra| {
                extra.override_cluster_zone && !extra.wildcard && Name::of(&extra.owner) == *name
            })
            .collect();
        self.extra_node(name, &records, self.zone())
    }

    /// Whether an overriding owner lies below this name of `Z` (RR84).
    pub(super) fn has_override_below(&self, name: &Name) -> bool {
        self.settings.extra.iter().any(|extra| {
            extra.override_cluster_zone && !extra.wildcard && Name::of(&extra.owner).is_below(name)
        })
    }

    /// A13, RR85: below an owner inside `Z` of a DNAME that says so.
    pub(super) fn overriding_dname(&self, name: &Name) -> Option<Local> {
        let zone = self.zone();
        self.dname(name, |owner| *owner == zone || owner.is_below(&zone), zone.clone())
    }

    /// The DNAME with the most labels above a name (RR85).
    fn dname(&self, name: &Name, is_of: impl Fn(&Name) -> bool, soa: Name) -> Option<Local> {
        let above = self.settings.extra.iter().filter_map(|extra| match &extra.data {
            ExtraData::Dname(target) => Some((Name::of(&extra.owner), target, extra.ttl_s)),
            _ => None,
        });
        let above = above.filter(|(owner, ..)| name.is_below(owner) && is_of(owner));
        let (owner, target, ttl) = above.max_by_key(|(owner, ..)| owner.0.len())?;
        let soa = if soa == self.zone() { soa } else { owner.clone() };
        let node = Node::Below(record(&owner, ttl, Data::Dname(Name::of(target))));
        Some(Local { node, soa: self.soa(soa), needs: Vec::new(), may_need: Vec::new() })
    }

    /// A17: the exact owner, else the wildcard or DNAME with the most labels (RR82, RR85).
    pub(super) fn extra(&self, name: &Name) -> Option<Local> {
        let extra = &self.settings.extra;
        let exact: Vec<&ExtraRecord> = extra
            .iter()
            .filter(|extra| !extra.wildcard && Name::of(&extra.owner) == *name)
            .collect();
        if !exact.is_empty() {
            return self.extra_node(name, &exact, name.clone());
        }
        // Nothing else is below a DNAME.
        if let Some(below) = self.dname(name, |_| true, name.clone()) {
            return Some(below);
        }
        let suffix = extra
            .iter()
            .filter(|extra| extra.wildcard && name.is_below(&Name::of(&extra.owner)))
            .map(|extra| Name::of(&extra.owner))
            .max_by_key(|suffix| suffix.0.len())?;
        let matched: Vec<&ExtraRecord> = extra
            .iter()
            .filter(|extra| extra.wildcard && Name::of(&extra.owner) == suffix)
            .collect();
        self.extra_node(name, &matched, suffix)
    }

    /// All records at one owner; the SOA is that of RR83.
    fn extra_node(&self, name: &Name, records: &[&ExtraRecord], soa: Name) -> Option<Local> {
        if records.is_empty() {
            return None;
        }
        let mut sets: Vec<RrSet> = Vec::new();
        let mut alias = None;
        for extra in records {
            let ttl = extra.ttl_s;
            match &extra.data {
                ExtraData::Addresses(addresses) => {
                    sets.extend(self.addresses(name, addresses, ttl))
                }
                ExtraData::Cname(target) => {
                    alias = Some(record(name, ttl, Data::Cname(Name::of(target))));
                }
                ExtraData::Dname(target) => {
                    sets.extend(rrset(name, ttl, vec![Data::Dname(Name::of(target))]));
                }
                ExtraData::Txt(strings) => {
                    let strings = strings.iter().map(|string| string.to_vec()).collect();
                    sets.extend(rrset(name, ttl, vec![Data::Txt(strings)]));
                }
                ExtraData::Srv(records) => {
                    let srv = records.iter().map(|srv| {
                        Data::Srv(srv.priority, srv.weight, srv.port, Name::of(&srv.target))
                    });
                    sets.extend(rrset(name, ttl, srv.collect()));
                }
            }
        }
        let node = match alias {
            Some(cname) => Node::Alias(cname),
            None => Node::Exists(sets),
        };
        Some(Local { node, soa: self.soa(soa), needs: Vec::new(), may_need: Vec::new() })
    }

    /// RR79: owners of this address in written order, and the least of their TTLs.
    pub(super) fn extra_names(&self, address: IpAddr) -> (Vec<Name>, u32) {
        let (mut names, mut least) = (Vec::new(), u32::MAX);
        for extra in self.settings.extra.iter().filter(|extra| extra.reverse && !extra.wildcard) {
            let ExtraData::Addresses(addresses) = &extra.data else { continue };
            let owner = Name::of(&extra.owner);
            if !addresses.contains(&address) {
                continue;
            }
            least = least.min(extra.ttl_s);
            if !names.contains(&owner) {
                names.push(owner);
            }
        }
        (names, least)
    }
}

/// The CNAME that a DNAME above a name makes, unless it is too long.
pub(super) fn below(name: &Name, dname: &Record) -> Option<Record> {
    let Data::Dname(target) = &dname.data else { unreachable!() };
    let left = name.left_of(&dname.owner).expect("a name below the DNAME");
    let next = Name([left, &target.0[..]].concat());
    next.fits().then(|| record(name, dname.ttl, Data::Cname(next)))
}
