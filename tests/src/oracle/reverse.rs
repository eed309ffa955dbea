//! Reverse names: owned zones (A2, RR66, RR67) and which names an address has (RR60-RR65).

use std::net::IpAddr;

use dataplane_core::{PodRecords, Resource, Service, ServiceKind};
use ipnet::IpNet;

use super::expected::{Data, RrSet, rtype};
use super::names::Name;
use super::{Local, Node, Oracle, record};

/// The numbers of a reverse name from the right: octets below `in-addr.arpa.`, nibbles below `ip6.arpa.`.
struct Reverse {
    ipv6: bool,
    /// `None` where a label is no number.
    units: Vec<Option<u8>>,
}

impl Reverse {
    fn parse(name: &Name) -> Option<Reverse> {
        let (labels, ipv6) = match name.left_of(&Name::text("in-addr.arpa")) {
            Some(labels) => (labels, false),
            None => (name.left_of(&Name::text("ip6.arpa"))?, true),
        };
        let unit = |label: &Vec<u8>| {
            let text = std::str::from_utf8(label).ok()?;
            if ipv6 {
                let digit = text.len() == 1 && text.as_bytes()[0].is_ascii_hexdigit();
                return digit.then(|| u8::from_str_radix(text, 16).expect("a hex digit"));
            }
            let number: u8 = text.parse().ok()?;
            (number.to_string() == text).then_some(number)
        };
        Some(Reverse { ipv6, units: labels.iter().rev().map(unit).collect() })
    }

    fn unit_bits(&self) -> usize {
        if self.ipv6 { 4 } else { 8 }
    }

    fn full_len(&self) -> usize {
        if self.ipv6 { 32 } else { 4 }
    }

    /// The address made of the first `count` units and zeros, if they are all numbers.
    fn prefix(&self, count: usize) -> Option<IpAddr> {
        let mut bits: u128 = 0;
        for unit in &self.units[..count] {
            bits = bits << self.unit_bits() | u128::from((*unit)?);
        }
        bits <<= self.unit_bits() * (self.full_len() - count);
        Some(if self.ipv6 {
            IpAddr::V6(bits.into())
        } else {
            IpAddr::V4(u32::try_from(bits).expect("four octets").into())
        })
    }

    fn address(&self) -> Option<IpAddr> {
        if self.units.len() == self.full_len() { self.prefix(self.full_len()) } else { None }
    }

    /// How many units the apex has in the zone of this range that the name lies in.
    fn apex_len(&self, range: &IpNet) -> Option<usize> {
        let range = range.trunc();
        if range.addr().is_ipv6() != self.ipv6 {
            return None;
        }
        let length = usize::from(range.prefix_len());
        let (least, most) = if self.ipv6 { (4, 31) } else { (1, 3) };
        let apex = length.div_ceil(self.unit_bits()).clamp(least, most);
        if self.units.len() < apex {
            return None;
        }
        let prefix = self.prefix(apex)?;
        if length <= apex * self.unit_bits() {
            return range.contains(&prefix).then_some(apex);
        }
        // Longer than the longest zone: the enclosing zone, but only the addresses inside.
        let enclosing = IpNet::new(range.addr(), (apex * self.unit_bits()) as u8).ok()?.trunc();
        if enclosing.addr() != prefix {
            return None;
        }
        // A name below the name of a whole address belongs to that address.
        let is_whole = self.units.len() >= self.full_len();
        let address = is_whole.then(|| self.prefix(self.full_len())).flatten();
        address.is_none_or(|address| range.contains(&address)).then_some(apex)
    }
}

impl Oracle {
    /// A15, A16; `None` routes on.
    pub(super) fn reverse(&self, name: &Name, qtype: u16) -> Option<Local> {
        let reverse = Reverse::parse(name)?;
        let apex_len =
            self.settings.reverse_cidrs.iter().filter_map(|range| reverse.apex_len(range)).max();
        let apex = apex_len.map(|len| {
            // Both suffixes have two labels.
            Name(name.0[name.0.len() - 2 - len..].to_vec())
        });
        let soa = self.soa(apex.clone().unwrap_or_else(|| name.clone()));
        if let Some(address) = reverse.address() {
            let (set, mut needs) = self.ptr(name, address);
            return match (set, apex) {
                (Some(set), Some(_)) => {
                    Some(Local { node: Node::Exists(vec![set]), soa, needs, may_need: Vec::new() })
                }
                (None, Some(_)) => {
                    needs.push(Resource::Namespaces);
                    Some(Local { node: Node::Missing, soa, needs, may_need: Vec::new() })
                }
                // A3: single names only for PTR; SERVFAIL while that is not known (§4.4).
                _ if qtype != rtype::PTR => None,
                (Some(set), None) => {
                    Some(Local { node: Node::Exists(vec![set]), soa, needs, may_need: Vec::new() })
                }
                (None, None) if !self.ready(&needs) => {
                    Some(Local { node: Node::Missing, soa, needs, may_need: Vec::new() })
                }
                (None, None) => None,
            };
        }
        // In an owned reverse zone partial names exist and other shapes do not (RR67); where no CIDR has the whole of it, they
        // may be delegated to someone else.
        let apex = apex?;
        let is_partial =
            reverse.units.len() < reverse.full_len() && reverse.units.iter().all(Option::is_some);
        if *name != apex
            && !is_partial
            && !self.settings.reverse_cidrs.iter().any(|range| {
                let length = usize::from(range.prefix_len());
                reverse.apex_len(range).is_some_and(|apex| length <= apex * reverse.unit_bits())
            })
        {
            return None;
        }
        let node = if *name == apex {
            Node::Exists(self.apex(name))
        } else if is_partial {
            Node::Exists(Vec::new())
        } else {
            Node::Missing
        };
        Some(Local { node, soa, needs: Vec::new(), may_need: Vec::new() })
    }

    /// The PTR RRset of an address: Kubernetes first, else extra records.
    fn ptr(&self, owner: &Name, address: IpAddr) -> (Option<RrSet>, Vec<Resource>) {
        let (names, needs) = self.kubernetes_names(address);
        let (names, ttl) = match names.is_empty() {
            true => self.extra_names(address),
            false => (names, self.settings.ttl_s),
        };
        let records: Vec<_> =
            names.into_iter().map(|name| record(owner, ttl, Data::Ptr(name))).collect();
        let set = (!records.is_empty()).then_some(RrSet { records, ordered: true });
        (set, needs)
    }

    /// The names that an address points to, in their order; hidden objects give none (RR60-RR63, RR65).
    fn kubernetes_names(&self, address: IpAddr) -> (Vec<Name>, Vec<Resource>) {
        let mut needs = self.needs_of_services();
        let hide_empty = self.settings.hide_empty_services;
        // A cluster IP belongs to its Service alone (RR60).
        let owner = self
            .visible_services()
            .filter(|service| has_cluster_ip(service, address))
            .filter(|service| !hide_empty || !self.endpoints(service).is_empty())
            .map(|service| self.service_name(service))
            // Two Services with one cluster IP are two events of one move: the first by name (RR62).
            .min_by_key(|name| name.to_string());
        if let Some(owner) = owner {
            if hide_empty {
                needs.push(Resource::EndpointSlices);
            }
            return (vec![owner], needs);
        }
        needs.push(Resource::EndpointSlices);
        if self.settings.pods == PodRecords::Verified {
            needs.push(Resource::Pods);
        }
        // Also where its Service is not visible: endpoints cannot claim it (RR60).
        if self.known_services().any(|service| has_cluster_ip(service, address)) {
            return (Vec::new(), needs);
        }
        (self.endpoint_names(address), needs)
    }

    /// One name per published endpoint that may claim the address, hostnames first (RR61-RR63).
    fn endpoint_names(&self, address: IpAddr) -> Vec<Name> {
        let mut entries: Vec<Entry> = Vec::new();
        for service in self.visible_services() {
            for endpoint in self.endpoints(service) {
                let name = self.service_name(service).child(&endpoint.label);
                if endpoint.address == address && name.fits() {
                    entries.push(Entry {
                        not_from_hostname: !endpoint.from_hostname,
                        not_headless: !matches!(service.kind, ServiceKind::Headless),
                        text: name.to_string(),
                        name,
                        namespace: service.key.namespace.to_string(),
                        own_pod: endpoint.own_pod,
                    });
                }
            }
        }
        if self.settings.pods == PodRecords::Verified {
            entries.retain(|entry| !self.is_foreign(address, &entry.namespace));
            for entry in &mut entries {
                entry.own_pod &= self.has_pod_at(address, &entry.namespace);
            }
        }
        if namespaces(&entries) > 1 && entries.iter().any(|entry| entry.own_pod) {
            entries.retain(|entry| entry.own_pod);
            if namespaces(&entries) > 1 {
                entries.clear();
            }
        }
        // RR62: the sort key of a name that several entries give is its best one.
        entries.sort();
        let mut names: Vec<Name> = Vec::new();
        for entry in entries {
            if !names.contains(&entry.name) {
                names.push(entry.name);
            }
        }
        names
    }

    /// RR63: held by Pods of other namespaces and by none of its own.
    fn is_foreign(&self, address: IpAddr, namespace: &str) -> bool {
        let holders: Vec<&str> = self
            .pods()
            .filter(|pod| !pod.finished && !pod.host_network && pod.addresses.contains(&address))
            .map(|pod| &*pod.key.namespace)
            .collect();
        !holders.is_empty() && !holders.contains(&namespace)
    }

    /// A Pod of this namespace has the address, as its own or as its node's.
    fn has_pod_at(&self, address: IpAddr, namespace: &str) -> bool {
        let mut pods = self.pods();
        pods.any(|pod| {
            !pod.finished && &*pod.key.namespace == namespace && pod.addresses.contains(&address)
        })
    }
}

fn has_cluster_ip(service: &Service, address: IpAddr) -> bool {
    match &service.kind {
        ServiceKind::ClusterIp(addresses) => addresses.contains(&address),
        ServiceKind::Headless | ServiceKind::ExternalName(_) => false,
    }
}

/// One slice entry that holds an address; its order is that of RR62.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    not_from_hostname: bool,
    not_headless: bool,
    text: String,
    name: Name,
    namespace: String,
    own_pod: bool,
}

fn namespaces(entries: &[Entry]) -> usize {
    let mut seen: Vec<&str> = entries.iter().map(|entry| &*entry.namespace).collect();
    seen.sort_unstable();
    seen.dedup();
    seen.len()
}
