//! Special-use names (§2.3) and the names of class CH (§2.4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::expected::{Data, Record, RrSet, rtype};
use super::names::Name;
use super::{Local, Node, Oracle, rrset};

/// The values of the process that CHAOS names show, and the number of its loop probes.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// `version.bind.` without its prefix.
    pub version: String,
    /// `hostname.bind.` and NSID.
    pub pod_name: String,
    /// See `Index::set_replicas`.
    pub replicas: u64,
    /// The character-strings of `servers.bind.` (A55).
    pub servers: Vec<String>,
}

const WEEK_S: u32 = 604_800;

impl Oracle {
    /// A12; `None` routes on.
    pub(super) fn special_use(&self, name: &Name) -> Option<Local> {
        let at = |apex: &str| {
            let apex = Name::text(apex);
            let below = name.left_of(&apex)?.len();
            Some((apex, below))
        };
        // `localhost` and all names below it (A40).
        if let Some((apex, _)) = at("localhost") {
            let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            return Some(
                self.special(apex, Node::Exists(self.addresses(name, &addresses, WEEK_S))),
            );
        }
        // The reverse names of the loopback addresses (A41).
        let pointer = || {
            let localhost = Data::Ptr(Name::text("localhost"));
            Node::Exists(rrset(name, WEEK_S, vec![localhost]).into_iter().collect())
        };
        if let Some((apex, below)) = at("127.in-addr.arpa") {
            let octet = |label: &Vec<u8>| {
                std::str::from_utf8(label).is_ok_and(|text| {
                    text.parse::<u8>().is_ok_and(|number| number.to_string() == text)
                })
            };
            let node = if *name == Name::text("1.0.0.127.in-addr.arpa") {
                pointer()
            } else if below < 3 && name.0[..below].iter().all(octet) {
                Node::Exists(Vec::new())
            } else {
                Node::Missing
            };
            return Some(self.special(apex, node));
        }
        if let Some((apex, below)) = at(&format!("1{}.ip6.arpa", ".0".repeat(31))) {
            let node = if below == 0 { pointer() } else { Node::Missing };
            return Some(self.special(apex, node));
        }
        // Names that must never leave the resolver (A42).
        if let Some((apex, below)) = at("invalid").or_else(|| at("onion")) {
            let node = if below == 0 { Node::Exists(Vec::new()) } else { Node::Missing };
            return Some(self.special(apex, node));
        }
        if let Some((apex, _)) = at("resolver.arpa") {
            return Some(self.special(apex, Node::Exists(Vec::new())));
        }
        // Loop probes (A43).
        let (apex, below) = at("clusterdns-loop")?;
        let sets = below.checked_sub(2).and_then(|label| {
            let backwards = name.0[label].iter().rev().copied().collect();
            rrset(name, 0, vec![Data::Txt(vec![backwards])])
        });
        let ours = format!("{:016x}", self.identity.replicas);
        if below > 0 && name.0[below - 1] != ours.as_bytes() {
            return None;
        }
        Some(self.special(apex, Node::Exists(sets.into_iter().collect())))
    }

    fn special(&self, apex: Name, node: Node) -> Local {
        let mut soa = self.soa(apex);
        soa.ttl = 300;
        if let Data::Soa(_, _, serial, timers) = &mut soa.data {
            *serial = Some(1);
            timers[3] = 300;
        }
        Local { node, soa, needs: Vec::new(), may_need: Vec::new() }
    }

    /// A50-A55: the answer section, `None` for REFUSED.
    pub(super) fn chaos(&self, name: &Name, qtype: u16) -> Option<Vec<RrSet>> {
        if !self.settings.chaos {
            return None;
        }
        let text = |text: String| Data::Txt(vec![text.into_bytes()]);
        let identity = &self.identity;
        let data = match &*name.to_string() {
            "version.bind." | "version.server." => text(format!("clusterdns-{}", identity.version)),
            "hostname.bind." | "id.server." => text(identity.pod_name.clone()),
            "cachesize.bind." => text(self.settings.cache_entries.to_string()),
            "hits.bind." | "misses.bind." | "insertions.bind." | "evictions.bind." => Data::Number,
            "servers.bind." => Data::Txt(
                identity.servers.iter().map(|server| server.clone().into_bytes()).collect(),
            ),
            _ => return None,
        };
        if !matches!(qtype, rtype::TXT | rtype::ANY) {
            return Some(Vec::new());
        }
        let record = Record { owner: name.clone(), class: rtype::CLASS_CH, ttl: 0, data };
        Some(vec![RrSet { records: vec![record], ordered: true }])
    }
}
