//! Pod names (§3.6): an address as a label below its namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dataplane_core::{Object, Pod, PodRecords, Resource};

use super::names::Name;
use super::{Node, Oracle};

/// An IPv4 address as four dashed numbers, else an IPv6 address with dashes for colons (RR50).
fn address(label: &str) -> Option<IpAddr> {
    let groups: Vec<&str> = label.split('-').collect();
    let all_digits = groups
        .iter()
        .all(|group| !group.is_empty() && group.bytes().all(|octet| octet.is_ascii_digit()));
    if groups.len() == 4 && all_digits {
        // Rust's reading has no leading zeros and no values past 255, as the rule wants.
        return groups.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    }
    let address: Ipv6Addr = label.replace('-', ":").parse().ok()?;
    address.to_ipv4_mapped().is_none().then_some(IpAddr::V6(address))
}

impl Oracle {
    pub(super) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.store.objects.iter().filter_map(|object| match object {
            Object::Pod(pod) => Some(pod),
            _ => None,
        })
    }

    /// A pod name has the one family of its label; whether it exists depends on `podRecords` (RR11, RR51-RR54).
    pub(super) fn pod(&self, name: &Name, label: &str, namespace: &str) -> (Node, Vec<Resource>) {
        let mut needs = vec![Resource::Services, Resource::Namespaces];
        let verified = self.settings.pods == PodRecords::Verified;
        if verified {
            needs.push(Resource::Pods);
        }
        let Some(address) = address(label) else { return (Node::Missing, needs) };
        let exists = self.namespace_is_visible(namespace)
            && (!verified
                || self.pods().any(|pod| {
                    &*pod.key.namespace == namespace
                        && !pod.finished
                        && pod.addresses.contains(&address)
                }));
        if !exists {
            return (Node::Missing, needs);
        }
        (Node::Exists(self.addresses(name, &[address], self.settings.ttl_s)), needs)
    }
}
