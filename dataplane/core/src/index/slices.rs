//! EndpointSlices: the published endpoints of a Service (§3.3), changed row by row.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::built::{Built, MAX_PORTS};
use super::held::HeldSlice;
use super::{Applied, Index, is_label};
use crate::object::{Key, Problem, Resource, Slice};
use crate::records::endpoints::MAX_LISTS;
use crate::records::{
    Listed, MAX_PUBLISHERS, Publisher, Row, SliceEntry, address_order, name_order,
};
use crate::steps::step;
use crate::trees::chunks::Chunks;
use crate::wire::address::Address;
use crate::wire::name::MAX_NAME;

/// Published addresses of all slices of one Service: each event copies the list of their chunks.
pub(super) const MAX_SERVICE_ROWS: usize = 100_000;

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
        let old_text = self.next.slices.get(slot).map_or(&[][..], |old| &old.text);
        built.read(&slice, self.next.zone.settings.endpoint_names, old_text);
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

    /// Problems of a held slice with limits that it shares with other objects (E15).
    pub fn crowding_of(&self, key: &Key) -> Vec<Problem> {
        self.held.slices.get(key).map_or_else(Vec::new, |it| self.crowding(it.service, it.slot))
    }

    /// How many rows [`Index::crowding_of`] may look at.
    pub fn rows_of(&self, key: &Key) -> usize {
        let held = self.held.slices.get(key);
        held.and_then(|held| self.next.slices.get(held.slot)).map_or(0, |slice| slice.rows.len())
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
        if self.left_out.contains(service, slot, slice.rows.len()) {
            let what = "endpoint addresses in the slices of one Service";
            problems.push(Problem::Crowded { what, limit: MAX_SERVICE_ROWS });
        }
        if entry.by_list.len() > MAX_LISTS && entry.list_count(&self.next) > MAX_LISTS {
            let what = "different lists of ports in the slices of one Service";
            problems.push(Problem::Crowded { what, limit: MAX_LISTS });
        }
        let waits = |row: &Row| {
            step(1);
            self.waiting.contains(row.address, row.publisher(service, entry.namespace))
        };
        if !self.waiting.is_empty() && slice.rows.iter().any(waits) {
            let what = "names of one address in one namespace, for its PTR records";
            problems.push(Problem::Crowded { what, limit: MAX_PUBLISHERS });
        }
        problems
    }

    /// How long an endpoint name of this Service may be, so that the whole name has 255 octets at most.
    pub(super) fn most_label_octets(&self, service: u32) -> usize {
        let wire = self.next.services.get(service).map_or(0, |entry| entry.wire.len());
        (MAX_NAME - 1).saturating_sub(wire + self.next.zone.svc.len())
    }

    /// Replaces a slice and its rows, touching only those that differ; whether any answer may differ.
    fn replace_rows(&mut self, service: u32, slot: u32, entry: SliceEntry) -> bool {
        let held = self.next.slices.get(slot);
        // Names of endpoints that are not ready come after those that rows point to.
        let offsets_hold = held.is_some_and(|held| entry.text.starts_with(&held.text));
        let same_ports = held.is_some_and(|held| held.ports == entry.ports);
        if held.is_some_and(|held| *held == entry) {
            return false;
        }
        let mut old = held.map(|held| Arc::clone(&held.rows)).unwrap_or_default();
        let mut old_listed = held.and_then(|held| held.listed(slot));
        if self.left_out.remove(service, slot, old.len()) {
            (old, old_listed) = (Arc::default(), None);
        }
        let (mut new, mut new_listed) = (Arc::clone(&entry.rows), entry.listed(slot));
        if !self.has_room(service, new.len(), old.len()) {
            self.left_out.add(service, slot, new.len());
            (new, new_listed) = (Arc::default(), None);
        }
        let same_answers = old == new && (new.is_empty() || offsets_hold && same_ports);
        let was_visible = self.is_visible(service);
        // Names are read through the slice's text: rows leave before it changes and come after.
        let stays =
            |rows: &Arc<[Row]>| if offsets_hold { Arc::clone(rows) } else { Arc::default() };
        missing_in(&stays(&new), &old).for_each(|row| self.remove_row(service, row));
        self.next.slices.set(slot, Some(Arc::new(entry)));
        match self.is_without_rows(service) {
            true => self.insert_first_rows(service, &new),
            false => {
                missing_in(&stays(&old), &new).for_each(|row| self.insert_row(service, row));
            }
        }
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
        let took_in = new.len() < old.len() && self.take_in(service);
        let is_seen = was_visible || self.is_visible(service) || self.is_own(service);
        let concerns_others = self.waiting.take_is_crowded();
        (!same_answers || took_in) && is_seen || concerns_others
    }

    /// Whether this many rows may take the place of this many others of this Service.
    pub(super) fn has_room(&self, service: u32, new: usize, old: usize) -> bool {
        let held = self.next.services.get(service).map_or(0, |entry| entry.by_address.len());
        new <= old || held - old.min(held) + new <= MAX_SERVICE_ROWS
    }

    /// How many rows [`Index::take_in`] may add once a slice with this many rows is gone.
    pub(super) fn may_take_in(&self, service: u32, rows: usize) -> usize {
        let held = self.next.services.get(service).map_or(0, |entry| entry.by_address.len());
        let room = MAX_SERVICE_ROWS - held.saturating_sub(rows).min(MAX_SERVICE_ROWS);
        match self.left_out.smallest(service) {
            Some((least, _)) if least <= room => room,
            Some(_) | None => 0,
        }
    }

    /// Publishes slices that were left out and for which there is room now; whether there were any.
    fn take_in(&mut self, service: u32) -> bool {
        let mut any = false;
        while let Some((rows, slot)) = self.left_out.smallest(service)
            && self.has_room(service, rows, 0)
            && self.left_out.remove(service, slot, rows)
        {
            let Some(slice) = self.next.slices.get(slot) else { continue };
            let (rows, listed) = (Arc::clone(&slice.rows), slice.listed(slot));
            rows.iter().for_each(|row| self.insert_row(service, row));
            if let (Some(entry), Some(listed)) = (self.next.services.get_mut(service), listed) {
                entry.by_list.insert(listed, Ord::cmp);
            }
            any = true;
        }
        any
    }

    fn is_without_rows(&self, service: u32) -> bool {
        self.next.services.get(service).is_some_and(|entry| entry.by_address.is_empty())
    }

    /// Adds the rows of the first slice of a Service, which is the only one of most: they are sorted, so they are the
    /// Service's list by address as they are. One by one they take six times as many instructions.
    fn insert_first_rows(&mut self, service: u32, rows: &Arc<[Row]>) {
        let records = &mut self.next;
        let Some(entry) = records.services.get_mut(service).filter(|_| !rows.is_empty()) else {
            return;
        };
        for row in rows.iter() {
            let publisher = row.publisher(service, entry.namespace);
            self.waiting.insert(&mut records.addresses, row.address, publisher);
            entry.v4_rows += u32::from(row.address.is_v4());
        }
        for pair in rows.windows(2) {
            if let [before, row] = pair
                && before.address == row.address
            {
                *entry.repeated(row.address) += 1;
            }
        }
        entry.by_address = Chunks::of(rows);
        let mut named: Vec<Row> =
            rows.iter().filter(|row| !row.label.is_derived()).copied().collect();
        if !named.is_empty() {
            named.sort_unstable_by(|a, b| name_order(&records.slices, a, b));
            entry.by_name = Chunks::of(&named.into());
            let beside = rows.iter().filter(|row| row.label.is_derived()).copied();
            entry.beside_named = Chunks::of(&beside.collect());
        }
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
        let is_first_named = entry.by_name.is_empty();
        match row.label.is_derived() {
            true if is_first_named => {}
            true => entry.beside_named.insert(*row, address_order),
            false => {
                // All rows until now: both lists share them, so this costs the same for any number of rows.
                if is_first_named {
                    entry.beside_named = entry.by_address.clone();
                }
                entry.by_name.insert(*row, |a, b| name_order(&records.slices, a, b));
            }
        }
        entry.by_address.insert(*row, address_order);
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
        match row.label.is_derived() {
            true => {
                entry.beside_named.remove(row, address_order);
            }
            false => {
                entry.by_name.remove(row, |a, b| name_order(&records.slices, a, b));
                if entry.by_name.is_empty() {
                    entry.beside_named = Chunks::default();
                }
            }
        }
        if entry.shares_address(row) {
            *entry.repeated(row.address) -= 1;
        }
        let publisher = row.publisher(service, entry.namespace);
        self.waiting.remove(&mut records.addresses, row.address, publisher);
    }
}

/// The rows of one sorted list that another does not have.
pub(super) fn missing_in<'a>(other: &'a [Row], rows: &'a [Row]) -> impl Iterator<Item = &'a Row> {
    let mut other = other.iter().peekable();
    rows.iter().filter(move |row| {
        step(1);
        while other.next_if(|next| address_order(next, row) == Ordering::Less).is_some() {
            step(1);
        }
        other.peek().is_none_or(|next| address_order(next, row) != Ordering::Equal)
    })
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
    /// The entry of this slice in its Service, unless it publishes nothing.
    fn listed(&self, slot: u32) -> Option<Listed> {
        let row = self.rows.first()?;
        Some(Listed::new(self.ports.number, !row.address.is_v4(), slot))
    }
}
