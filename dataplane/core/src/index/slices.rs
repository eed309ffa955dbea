//! EndpointSlices: the published endpoints of a Service (§3.3), changed row by row.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::held::HeldSlice;
use super::{Applied, Index, is_label, push_label};
use crate::object::{Endpoint, Key, Problem, Resource, Slice};
use crate::records::endpoints::MAX_LISTS;
use crate::records::{
    Listed, MAX_PUBLISHERS, Port, Publisher, Row, RowLabel, SliceEntry, address_order, name_order,
};
use crate::settings::EndpointNames;
use crate::wire::address::{Address, is_publishable};
use crate::wire::name::MAX_NAME;
use crate::wire::text::ShortText;

/// Published addresses of one slice; the API server allows 1,000 endpoints, and ten addresses
/// each are more than any endpoint has.
const MAX_ROWS: usize = 10_000;
/// Ports of one Service or slice: as many as SRV records fit into the largest reply. The names of the
/// others are NODATA instead of NXDOMAIN.
pub(super) const MAX_PORTS: usize = 1_024;
/// Problems reported of one object; more add nothing.
const MAX_PROBLEMS: usize = 10;

impl Index {
    pub(super) fn apply_slice(&mut self, slice: Slice) -> Applied {
        for name in [&slice.key.namespace, &slice.service] {
            if !is_label(name) {
                // Remove its old rows: they belong to the Service that it named before.
                let visible = self.delete_slice(&slice.key);
                return Applied { visible, ..Applied::refused(Problem::NotALabel(name.clone())) };
            }
        }
        let key = slice.key.clone();
        let Some(held) = self.stamp(Resource::EndpointSlices, &key, slice.uid, slice.version)
        else {
            return Applied::default();
        };
        let mut visible = false;
        let service = self.service_slot(&slice.key.namespace, &slice.service);
        let slot = match self.held.slices.get(&key) {
            Some(old) if old.service == service => old.slot,
            Some(_) => {
                visible |= self.delete_slice(&key);
                self.new_slice(service)
            }
            None => self.new_slice(service),
        };
        let mut built = Built::new(slot, self.most_label_octets(service));
        built.read(&slice, self.next.zone.settings.endpoint_names);
        let ports = built.ports(&slice);
        built.entry.ports = self.ports.shared(ports, slice.ports.len() > MAX_PORTS);
        let old = match self.held.slices.get_mut(&key) {
            Some(old) => {
                old.held = held;
                self.next.slices.get(slot)
            }
            None => {
                self.held.slices.insert(key, HeldSlice { held, slot, service });
                None
            }
        };
        let old_ports = old.map(|entry| Arc::clone(&entry.ports));
        visible |= self.replace_rows(service, slot, built.entry);
        if let Some(ports) = old_ports {
            self.ports.release(&ports);
        }
        let mut problems = built.problems;
        problems.extend(self.crowding(service, slot));
        Applied { visible, problems }
    }

    pub(super) fn delete_slice(&mut self, key: &Key) -> bool {
        let Some(gone) = self.held.slices.remove(key) else {
            return false;
        };
        let ports = self.next.slices.get(gone.slot).map(|entry| Arc::clone(&entry.ports));
        let visible = self.replace_rows(gone.service, gone.slot, SliceEntry::default());
        if let Some(ports) = ports {
            self.ports.release(&ports);
        }
        self.next.slices.set(gone.slot, None);
        self.free_slices.give_back(gone.slot);
        if let Some(entry) = self.next.services.get_mut(gone.service) {
            entry.slices -= 1;
        }
        self.free_service_if_unused(gone.service);
        visible
    }

    fn new_slice(&mut self, service: u32) -> u32 {
        let slot = self.free_slices.take();
        self.next.slices.set(slot, Some(Arc::new(SliceEntry::default())));
        if let Some(entry) = self.next.services.get_mut(service) {
            entry.slices += 1;
        }
        slot
    }

    /// Problems of a slice whose rows are hidden by a limit.
    fn crowding(&self, service: u32, slot: u32) -> Vec<Problem> {
        let mut problems = Vec::new();
        let (Some(entry), Some(slice)) =
            (self.next.services.get(service), self.next.slices.get(slot))
        else {
            return problems;
        };
        if entry.by_list.len() > MAX_LISTS && entry.list_count(&self.next) > MAX_LISTS {
            let what = "different lists of ports in the slices of one Service";
            problems.push(Problem::TooMany { what, limit: MAX_LISTS });
        }
        let waits =
            |row: &Row| self.waiting.contains(row.address, row.publisher(service, entry.namespace));
        if !self.waiting.is_empty() && slice.rows.iter().any(waits) {
            let what = "names of one address in one namespace, for its PTR records";
            problems.push(Problem::TooMany { what, limit: MAX_PUBLISHERS });
        }
        problems
    }

    /// How long an endpoint name of this Service may be, so that the whole name has 255 octets at most.
    fn most_label_octets(&self, service: u32) -> usize {
        let wire = self.next.services.get(service).map_or(0, |entry| entry.wire.len());
        (MAX_NAME - 1).saturating_sub(wire + self.next.zone.svc.len())
    }

    /// Replaces a slice and its rows, touching only those that differ; whether any answer may differ.
    fn replace_rows(&mut self, service: u32, slot: u32, entry: SliceEntry) -> bool {
        let held = self.next.slices.get(slot);
        // Names of endpoints that are not ready come behind those that rows point to.
        let offsets_hold = held.is_some_and(|held| entry.text.starts_with(&held.text));
        let same_ports = held.is_some_and(|held| held.ports == entry.ports);
        if held.is_some_and(|held| *held == entry) {
            return false;
        }
        let old = held.map(|held| Arc::clone(&held.rows)).unwrap_or_default();
        let new = Arc::clone(&entry.rows);
        let same_answers = old == new && (new.is_empty() || offsets_hold && same_ports);
        let was_visible = self.is_visible(service);
        let old_listed = held.and_then(|held| held.listed(slot));
        let new_listed = entry.listed(slot);
        // Names are read through the slice's text: rows leave before it changes and come after.
        let stays = |rows: &[Row], row: &Row| {
            offsets_hold && rows.binary_search_by(|other| address_order(other, row)).is_ok()
        };
        old.iter().filter(|row| !stays(&new, row)).for_each(|row| self.remove_row(service, row));
        self.next.slices.set(slot, Some(Arc::new(entry)));
        new.iter().filter(|row| !stays(&old, row)).for_each(|row| self.insert_row(service, row));
        if old_listed != new_listed
            && let Some(entry) = self.next.services.get_mut(service)
        {
            if let Some(listed) = old_listed {
                entry.by_list.remove(&listed, Ord::cmp);
            }
            if let Some(listed) = new_listed {
                entry.by_list.insert(listed, Ord::cmp);
            }
        }
        !same_answers && (was_visible || self.is_visible(service))
    }

    fn insert_row(&mut self, service: u32, row: &Row) {
        let records = &mut self.next;
        let Some(entry) = records.services.get_mut(service) else {
            return;
        };
        if entry.shares_address(row) {
            *entry.repeated(row.address) += 1;
        }
        let publisher = row.publisher(service, entry.namespace);
        self.waiting.insert(&mut records.addresses, row.address, publisher);
        entry.v4_rows += u32::from(row.address.is_v4());
        entry.by_address.insert(*row, address_order);
        if !row.label.is_derived() {
            entry.by_name.insert(*row, |a, b| name_order(&records.slices, a, b));
        }
    }

    fn remove_row(&mut self, service: u32, row: &Row) {
        let records = &mut self.next;
        let Some(entry) = records.services.get_mut(service) else {
            return;
        };
        if !entry.by_address.remove(row, address_order) {
            return;
        }
        entry.v4_rows -= u32::from(row.address.is_v4());
        if !row.label.is_derived() {
            entry.by_name.remove(row, |a, b| name_order(&records.slices, a, b));
        }
        if entry.shares_address(row) {
            *entry.repeated(row.address) -= 1;
        }
        let publisher = row.publisher(service, entry.namespace);
        self.waiting.remove(&mut records.addresses, row.address, publisher);
    }
}

impl crate::records::ServiceEntry {
    /// Whether another row has this row's address.
    fn shares_address(&self, row: &Row) -> bool {
        let at = self.by_address.seek(|other| address_order(other, row));
        let same = |other: Option<&Row>| other.is_some_and(|other| other.address == row.address);
        same(self.by_address.before(at)) || same(self.by_address.at(at))
    }

    fn repeated(&mut self, address: Address) -> &mut u32 {
        if address.is_v4() { &mut self.repeated_v4 } else { &mut self.repeated_v6 }
    }
}

impl Row {
    fn publisher(&self, service: u32, namespace: u32) -> Publisher {
        Publisher { service, namespace, slice: self.slice, label: self.label }
    }
}

impl SliceEntry {
    /// What the Service lists of this slice, unless it publishes nothing.
    fn listed(&self, slot: u32) -> Option<Listed> {
        let row = self.rows.first()?;
        Some(Listed::new(self.ports.number, !row.address.is_v4(), slot))
    }
}

/// A slice on its way into the records.
struct Built {
    slot: u32,
    most_label_octets: usize,
    entry: SliceEntry,
    rows: Vec<Row>,
    problems: Vec<Problem>,
}

impl Built {
    fn new(slot: u32, most_label_octets: usize) -> Built {
        let entry = SliceEntry::default();
        Built { slot, most_label_octets, entry, rows: Vec::new(), problems: Vec::new() }
    }

    fn read(&mut self, slice: &Slice, names: EndpointNames) {
        let mut text = Vec::new();
        for endpoint in &slice.endpoints {
            // Names of endpoints that are not ready are kept too: their places do not move when
            // readiness changes.
            let name = endpoint_name(endpoint, names);
            let at = name.as_ref().map(|(name, is_hostname)| {
                let offset = text.len();
                push_label(&mut text, name);
                (offset, *is_hostname)
            });
            if endpoint.ready {
                self.publish(slice, endpoint, at, name.map_or(0, |(name, _)| name.len()));
            }
        }
        self.entry.text = text.into();
        self.rows.sort_unstable_by(address_order);
        self.rows.dedup();
        self.entry.rows = core::mem::take(&mut self.rows).into();
    }

    fn publish(
        &mut self,
        slice: &Slice,
        endpoint: &Endpoint,
        name: Option<(usize, bool)>,
        octets: usize,
    ) {
        let own_pod = endpoint.target.as_ref().is_some_and(|target| {
            target.namespace.is_empty() || target.namespace == slice.key.namespace
        });
        for &address in &endpoint.addresses {
            if !is_publishable(address, slice.ipv6) {
                self.problem(Problem::BadAddress(address));
                continue;
            }
            if self.rows.len() >= MAX_ROWS {
                self.problem(Problem::TooMany {
                    what: "endpoint addresses in one slice",
                    limit: MAX_ROWS,
                });
                return;
            }
            let row = Address::from(address);
            let octets = match name {
                Some(_) => octets,
                None => ShortText::of(row).as_bytes().len(),
            };
            if octets > self.most_label_octets {
                self.problem(Problem::NameTooLong(
                    format!("{address} of {}", slice.service).into(),
                ));
                continue;
            }
            let label = match name {
                Some((offset, is_hostname)) => RowLabel::at(offset, is_hostname, own_pod),
                None => RowLabel::derived(own_pod),
            };
            self.rows.push(Row { address: row, slice: self.slot, label });
        }
    }

    fn ports(&mut self, slice: &Slice) -> Vec<Port> {
        if slice.ports.len() > MAX_PORTS {
            self.problem(Problem::TooMany { what: "ports in one slice", limit: MAX_PORTS });
        }
        let mut ports: Vec<Port> = Vec::new();
        for port in slice.ports.iter().take(MAX_PORTS) {
            ports.push(Port {
                name: port.name.to_ascii_lowercase().into_bytes().into(),
                number: port.port,
                protocol: port.protocol,
            });
        }
        let order = |port: &Port| (port.number, port.protocol);
        ports.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.name.cmp(&b.name)));
        ports.dedup();
        ports
    }

    fn problem(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// The name of an endpoint that is not made of its address, and whether it is a hostname (RR23).
fn endpoint_name(endpoint: &Endpoint, names: EndpointNames) -> Option<(Box<str>, bool)> {
    if let Some(hostname) = &endpoint.hostname {
        let hostname = hostname.to_ascii_lowercase();
        if is_label(&hostname) {
            return Some((hostname.into(), true));
        }
    }
    let target = endpoint.target.as_ref()?;
    (names == EndpointNames::PodName && is_label(&target.name))
        .then(|| (target.name.clone(), false))
}
