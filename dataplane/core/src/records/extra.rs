//! Extra records, written in the resource instead of derived from Kubernetes (docs/dns.md §3.9),
//! and the tables that find them and stub domains by name.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use crate::settings::{ExtraData, ExtraRecord, SrvData};
use crate::steps::step;
use crate::wire::address::Address;
use crate::wire::dname::Dname;
use crate::wire::labels::Labels;
use crate::wire::name::Name;

/// Values by owner name, found exactly or by longest suffix.
#[derive(Debug)]
pub(crate) struct NameTable<V> {
    by_wire: HashMap<Box<[u8]>, V, RandomState>,
    /// Bit `n` is set when some name has `n` labels: only those suffixes are looked up.
    depths: u128,
}

impl<V> Default for NameTable<V> {
    fn default() -> Self {
        NameTable { by_wire: HashMap::default(), depths: 0 }
    }
}

impl<V> NameTable<V> {
    /// The value of this name, made if there is none.
    pub(crate) fn entry(&mut self, name: &Name, value: impl FnOnce() -> V) -> &mut V {
        self.depths |= 1 << name.labels().count();
        self.by_wire.entry(name.wire().into()).or_insert_with(value)
    }

    /// The value of exactly this name.
    pub(crate) fn exact(&self, name: &Labels) -> Option<&V> {
        if self.depths >> name.count() & 1 == 0 {
            return None;
        }
        self.by_wire(name.wire())
    }

    /// The value of exactly this name in wire form.
    pub(crate) fn by_wire(&self, wire: &[u8]) -> Option<&V> {
        step(1 + wire.len() / 8);
        self.by_wire.get(wire)
    }

    /// The value of the longest suffix without the first `skip` labels or more (A17, A18).
    pub(crate) fn longest(&self, name: &Labels, skip: usize) -> Option<&V> {
        let most = name.count().checked_sub(skip)?;
        // A name has at most 127 labels, so that the shift is at most 127.
        let mut depths = self.depths & (u128::MAX >> (127 - most));
        while depths != 0 {
            let depth = depths.ilog2();
            if let Some(value) = self.by_wire(name.suffix(name.count() - depth as usize)) {
                return Some(value);
            }
            depths &= !(1 << depth);
        }
        None
    }
}

/// All extra RRsets of one owner.
#[derive(Debug)]
pub(crate) struct ExtraOwner {
    /// The owner; for a wildcard, the name below which it matches. It also owns the SOA (RR83).
    pub(crate) name: Name,
    /// Declared to replace the cluster's data (A13).
    pub(crate) overrides: bool,
    /// A and AAAA, each with its TTL.
    pub(crate) addresses: Vec<(Address, u32)>,
    pub(crate) cname: Option<(Arc<Name>, u32)>,
    /// For the owner itself; names below it are found by [`Extra::find`].
    pub(crate) dname: Option<Arc<Dname>>,
    pub(crate) txt: Option<(Vec<Box<[u8]>>, u32)>,
    pub(crate) srv: Option<(Box<[SrvData]>, u32)>,
}

/// The automatic PTRs of an address: one RRset, which has one TTL (RFC 2181 §5.2).
#[derive(Debug)]
pub(crate) struct ExtraPointers {
    /// In written order (RR79).
    pub(crate) names: Vec<Name>,
    /// The least of its records.
    pub(crate) ttl_s: u32,
}

/// The record that answers for a name outside the cluster domain.
pub(crate) enum Match<'r> {
    /// An owner of its own, or a wildcard.
    Owner(&'r ExtraOwner),
    /// A DNAME above it (RR85).
    Below(&'r Arc<Dname>),
}

/// All extra records, in a table for each kind of lookup.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    exact: NameTable<ExtraOwner>,
    /// By the name without `*`.
    wildcards: NameTable<ExtraOwner>,
    /// DNAMEs outside the cluster domain, by their owners.
    dnames: NameTable<Arc<Dname>>,
    /// DNAMEs inside the cluster domain, by their owners.
    inner_dnames: NameTable<Arc<Dname>>,
    /// Ancestors of overriding owners inside `Z`: they exist (RR84).
    ancestors: HashSet<Box<[u8]>, RandomState>,
    pointers: HashMap<Address, ExtraPointers, RandomState>,
    overriding: bool,
}

impl Extra {
    /// Builds the tables; records inside `zone` that do not override it are left out (A30).
    pub(crate) fn new(records: &[ExtraRecord], zone: &Name) -> Extra {
        let mut extra = Extra::default();
        for record in records {
            let inside = record.owner.is_at_or_below(zone);
            if inside && (!record.override_cluster_zone || record.wildcard) {
                continue;
            }
            extra.add(record);
            extra.add_dname(record, inside);
            if inside {
                extra.overriding = true;
                extra.add_ancestors(&record.owner, zone);
            }
        }
        extra
    }

    fn add(&mut self, record: &ExtraRecord) {
        let table = if record.wildcard { &mut self.wildcards } else { &mut self.exact };
        let owner = table.entry(&record.owner, || ExtraOwner {
            name: record.owner.clone(),
            overrides: false,
            addresses: Vec::new(),
            cname: None,
            dname: None,
            txt: None,
            srv: None,
        });
        owner.overrides |= record.override_cluster_zone;
        match &record.data {
            ExtraData::Addresses(addresses) => {
                for &address in addresses {
                    let address = Address::from(address);
                    if owner.addresses.iter().all(|(known, _)| *known != address) {
                        owner.addresses.push((address, record.ttl_s));
                    }
                }
            }
            ExtraData::Cname(target) => {
                owner.cname = Some((Arc::new(target.clone()), record.ttl_s))
            }
            ExtraData::Dname(target) => {
                let (target, ttl_s) = (target.clone(), record.ttl_s);
                owner.dname = Some(Arc::new(Dname { owner: record.owner.clone(), target, ttl_s }));
            }
            ExtraData::Txt(strings) => owner.txt = Some((strings.clone(), record.ttl_s)),
            ExtraData::Srv(services) => owner.srv = Some((services.clone().into(), record.ttl_s)),
        }
        if let ExtraData::Addresses(addresses) = &record.data
            && record.reverse
            && !record.wildcard
        {
            self.add_pointers(addresses, record);
        }
    }

    /// Names below its owner are found by it, too.
    fn add_dname(&mut self, record: &ExtraRecord, inside: bool) {
        let table = if inside { &mut self.inner_dnames } else { &mut self.dnames };
        if let Some(owner) = self.exact.by_wire(record.owner.wire())
            && let Some(dname) = &owner.dname
        {
            table.entry(&record.owner, || Arc::clone(dname));
        }
    }

    fn add_pointers(&mut self, addresses: &[IpAddr], record: &ExtraRecord) {
        for &address in addresses {
            let ttl_s = record.ttl_s;
            let new = || ExtraPointers { names: Vec::new(), ttl_s };
            let pointers = self.pointers.entry(address.into()).or_insert_with(new);
            pointers.ttl_s = pointers.ttl_s.min(ttl_s);
            if !pointers.names.contains(&record.owner) {
                pointers.names.push(record.owner.clone());
            }
        }
    }

    fn add_ancestors(&mut self, owner: &Name, zone: &Name) {
        let labels = Labels::of(owner);
        let below = labels.count() - zone.labels().count();
        for index in 1..below {
            self.ancestors.insert(labels.suffix(index).into());
        }
    }

    /// The owner that replaces the cluster's data at this name (A13).
    pub(crate) fn overriding(&self, wire: &[u8]) -> Option<&ExtraOwner> {
        if !self.overriding {
            return None;
        }
        self.exact.by_wire(wire).filter(|owner| owner.overrides)
    }

    /// Whether an overriding owner lies below this name (RR84).
    pub(crate) fn is_ancestor(&self, name: &Labels) -> bool {
        self.overriding && self.ancestors.contains(name.wire())
    }

    /// The DNAME above this name of the cluster domain, which replaces the cluster's data (A13, RR85).
    pub(crate) fn inner_dname(&self, name: &Labels) -> Option<&Arc<Dname>> {
        if !self.overriding {
            return None;
        }
        self.inner_dnames.longest(name, 1)
    }

    /// A17: the exact owner, else the wildcard or DNAME with the most labels. Nothing else is below a DNAME (RR85).
    pub(crate) fn find(&self, name: &Labels) -> Option<Match<'_>> {
        if let Some(owner) = self.exact.exact(name) {
            return Some(Match::Owner(owner));
        }
        let wildcard = self.wildcards.longest(name, 1);
        let Some(dname) = self.dnames.longest(name, 1) else { return wildcard.map(Match::Owner) };
        // Both end the name: the longer one has more labels.
        let is_longer = |owner: &&ExtraOwner| owner.name.wire().len() > dname.owner.wire().len();
        Some(wildcard.filter(is_longer).map_or(Match::Below(dname), Match::Owner))
    }

    /// Whether there are records of this very name.
    pub(crate) fn has_owner(&self, name: &Labels) -> bool {
        self.exact.exact(name).is_some()
    }

    /// Automatic PTRs of an address (RR64).
    pub(crate) fn pointers(&self, address: Address) -> Option<&ExtraPointers> {
        self.pointers.get(&address)
    }
}
