//! Services: their names, kinds and cluster IPs.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::built::MAX_PORTS;
use super::held::HeldService;
use super::{Applied, Index, is_label, kept_labels, push_label};
use crate::object::{Key, Problem, Resource, Service, ServiceKind, ServicePort};
use crate::records::{
    ClusterIps, Kind, Port, Ports, Publisher, ServiceEntry, ServiceObject, ServiceWire, hash,
};
use crate::trees::chunks::Chunks;
use crate::wire::address::Address;
use crate::wire::name::Name;

impl Index {
    pub(super) fn apply_service(&mut self, service: Service) -> Applied {
        for name in [&service.key.namespace, &service.key.name] {
            if !is_label(name) {
                return Applied::refused(Problem::NotALabel(name.clone()));
            }
        }
        let key = service.key.clone();
        let Some(held) = self.stamp(Resource::Services, &key, service.uid, service.version) else {
            return Applied::default();
        };
        let mut problems = Vec::new();
        let selector = &self.next.zone.settings.exposure.service_selector;
        let is_selected = selector.matches(&service.labels);
        let labels = kept_labels(&service.labels, [selector, &self.also_kept.service_selector]);
        let is_cut = service.ports.len() > MAX_PORTS;
        if is_cut {
            problems.push(Problem::TooMany { what: "ports in one Service", limit: MAX_PORTS });
        }
        let ports = service.ports.iter().take(MAX_PORTS).map(port_of).collect();
        let ports = self.ports.shared(ports, is_cut);
        let object = object_of(service.kind, ports, is_selected, &mut problems);
        let slot = self.service_slot(&key.namespace, &key.name);
        self.held.services.insert(key, HeldService { held, slot, labels });
        let visible = self.replace_object(slot, Some(object));
        Applied { visible, problems }
    }

    pub(super) fn delete_service(&mut self, key: &Key) -> bool {
        let Some(gone) = self.held.services.remove(key) else {
            return false;
        };
        let visible = self.replace_object(gone.slot, None);
        self.free_service_if_unused(gone.slot);
        visible
    }

    /// Replaces the object of an entry and releases the ports of the old one.
    fn replace_object(&mut self, slot: u32, object: Option<ServiceObject>) -> bool {
        let old = self.next.services.get(slot).and_then(|entry| entry.object.as_ref());
        let old = old.map(|object| Arc::clone(&object.ports));
        let visible = self.set_object(slot, object);
        if let Some(ports) = old {
            self.ports.release(&ports);
        }
        visible
    }

    /// Replaces the object of an entry in one step; whether any answer may differ.
    fn set_object(&mut self, slot: u32, object: Option<ServiceObject>) -> bool {
        let Some(entry) = self.next.services.get(slot) else {
            return false;
        };
        if entry.object == object {
            return false;
        }
        let was_seen = self.next.visible(entry).is_some() || self.is_own(slot);
        let (namespace, old) = (entry.namespace, entry.object.clone());
        let (had, has) = (old.is_some(), object.is_some());
        let holder = Publisher::cluster_ip(slot, namespace);
        let (had_ips, has_ips) = (cluster_ips(old.as_ref()), cluster_ips(object.as_ref()));
        for &address in had_ips {
            self.waiting.remove(&mut self.next.addresses, address, holder);
        }
        for &address in has_ips {
            self.waiting.insert(&mut self.next.addresses, address, holder);
        }
        // RR60: the cluster IP of a hidden Service takes the PTRs of all others that publish the address, and gives them back.
        let only_had = had_ips.iter().filter(|address| !has_ips.contains(address));
        let only_has = has_ips.iter().filter(|address| !had_ips.contains(address));
        let is_contested =
            only_had.chain(only_has).any(|&address| self.has_other_publisher(address, holder));
        let concerns_others = self.waiting.take_is_crowded() || is_contested;
        if let Some(entry) = self.next.services.get_mut(slot) {
            entry.object = object;
        }
        let namespace_changed = self.change_namespace(namespace, |entry| {
            entry.services = entry.services + u32::from(has) - u32::from(had);
        });
        was_seen
            || namespace_changed
            || concerns_others
            || self.is_visible(slot)
            || self.is_own(slot)
    }

    fn has_other_publisher(&self, address: Address, holder: Publisher) -> bool {
        self.next.addresses.get(address).iter().take(2).any(|(_, row)| *row != holder)
    }

    /// Whether this Service is ours, hidden or not: it may give `ns.dns.Z` its addresses (RR72, N43), and its endpoints are
    /// those that this pod looks at (O20).
    pub(super) fn is_own(&self, slot: u32) -> bool {
        let Some(entry) = self.next.services.get(slot) else {
            return false;
        };
        let zone = &self.next.zone;
        match zone.own_service() {
            Some((namespace, name)) => entry.labels() == (name.as_bytes(), namespace.as_bytes()),
            None => {
                let addresses = cluster_ips(entry.object.as_ref());
                zone.service_addresses.iter().flatten().any(|own| addresses.contains(own))
            }
        }
    }

    pub(super) fn is_visible(&self, slot: u32) -> bool {
        self.next.services.get(slot).is_some_and(|entry| self.next.visible(entry).is_some())
    }

    /// The place of a Service, a new one if neither it nor a slice of it is known.
    pub(super) fn service_slot(&mut self, namespace: &str, name: &str) -> u32 {
        let mut wire = Vec::with_capacity(namespace.len() + name.len() + 2);
        push_label(&mut wire, name);
        push_label(&mut wire, namespace);
        if let Some((slot, _)) = self.next.service(&wire) {
            return slot;
        }
        let namespace = self.namespace_slot(namespace);
        self.change_namespace(namespace, |entry| entry.users += 1);
        let slot = self.free_services.take();
        self.next.service_names.insert(hash(&self.next.hasher, &wire), slot);
        let entry = ServiceEntry {
            wire: ServiceWire::new(&wire, 0),
            namespace,
            object: None,
            by_list: Chunks::default(),
            beside_named: Chunks::default(),
            slices: 0,
            by_address: Chunks::default(),
            by_name: Chunks::default(),
            v4_rows: 0,
            repeated_v4: 0,
            repeated_v6: 0,
        };
        self.next.services.set(slot, Some(Arc::new(entry)));
        slot
    }

    /// Empties the place of a Service that has neither an object nor slices.
    pub(super) fn free_service_if_unused(&mut self, slot: u32) {
        let Some(entry) = self.next.services.get(slot) else {
            return;
        };
        if entry.object.is_some() || entry.slices > 0 {
            return;
        }
        let (key, namespace) = (hash(&self.next.hasher, &entry.wire), entry.namespace);
        self.next.service_names.remove(key, slot);
        self.next.services.set(slot, None);
        self.free_services.give_back(slot);
        self.change_namespace(namespace, |entry| entry.users -= 1);
        self.free_namespace_if_unused(namespace);
    }

    /// Works out which Services match a new selector.
    pub(super) fn select_services(&mut self) {
        let zone = Arc::clone(&self.next.zone);
        let selector = &zone.settings.exposure.service_selector;
        let selected: Vec<(u32, bool)> = self
            .held
            .services
            .values()
            .map(|service| (service.slot, selector.matches(&service.labels)))
            .collect();
        for (slot, is_selected) in selected {
            let Some(entry) = self.next.services.get_mut(slot) else {
                continue;
            };
            if let Some(object) = &mut entry.object {
                object.is_selected = is_selected;
            }
        }
    }
}

pub(super) fn cluster_ips(object: Option<&ServiceObject>) -> &[Address] {
    match object.map(|object| &object.kind) {
        Some(Kind::ClusterIp(addresses)) => addresses,
        Some(Kind::Headless | Kind::ExternalName(_) | Kind::Unserved) | None => &[],
    }
}

fn object_of(
    kind: ServiceKind,
    ports: Arc<Ports>,
    is_selected: bool,
    problems: &mut Vec<Problem>,
) -> ServiceObject {
    let kind = match kind {
        ServiceKind::ClusterIp(addresses) => Kind::ClusterIp(distinct(&addresses)),
        ServiceKind::Headless => Kind::Headless,
        ServiceKind::ExternalName(name) => match external_name(&name) {
            Some(target) => Kind::ExternalName(Arc::new(target)),
            None => {
                problems.push(Problem::BadExternalName(name));
                Kind::Unserved
            }
        },
    };
    ServiceObject { kind, ports, is_selected }
}

fn port_of(port: &ServicePort) -> Port {
    Port {
        name: port.name.to_ascii_lowercase().into_bytes().into(),
        number: port.port,
        protocol: port.protocol,
    }
}

fn distinct(addresses: &[IpAddr]) -> ClusterIps {
    let mut distinct: Vec<Address> = addresses.iter().map(|&address| address.into()).collect();
    distinct.sort_unstable();
    distinct.dedup();
    ClusterIps::new(&distinct, IpAddr::from([0; 4]).into())
}

/// The target of an ExternalName Service; `None` for a text that is no domain name (RR47).
fn external_name(text: &str) -> Option<Name> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_host = text.bytes().all(|o| o.is_ascii_alphanumeric() || b"-_.".contains(&o));
    if text.is_empty() || !is_host || text.parse::<IpAddr>().is_ok() {
        return None;
    }
    Name::from_text(text).ok()
}
