//! Namespaces: which exist, and which are visible (N40, §4.4 note 1).

#![allow(
    clippy::indexing_slicing,
    reason = "places that the index gave itself, in lists that it filled"
)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::held::{Held, HeldNamespace};
use super::top_level_domains::is_top_level_domain;
use super::{Applied, Index, is_label, kept_labels, push_label};
use crate::object::{Key, Namespace, Problem, Resource};
use crate::records::{NamespaceEntry, hash};
use crate::settings::Settings;

impl Index {
    pub(super) fn apply_namespace(&mut self, namespace: Namespace) -> Applied {
        if !is_label(&namespace.name) {
            return Applied::refused(Problem::NotALabel(namespace.name));
        }
        let key = Key::new("", namespace.name);
        let Some(held) = self.stamp(Resource::Namespaces, &key, namespace.uid, namespace.version)
        else {
            return Applied::default();
        };
        let visible = self.hold_namespace(key, held, &namespace.labels);
        Applied { visible, problems: Vec::new() }
    }

    fn hold_namespace(&mut self, key: Key, held: Held, labels: &[(Box<str>, Box<str>)]) -> bool {
        let slot = self.namespace_slot(&key.name);
        let selector = &self.next.zone.settings.exposure.namespace_selector;
        let is_selected = selector.matches(labels);
        let labels = kept_labels(labels, [selector, &self.also_kept.namespace_selector]);
        if self.held.namespaces.get(&key).is_none() && is_top_level_domain(&key.name) {
            self.held.like_top_level_domains += 1;
        }
        self.held.namespaces.insert(key, HeldNamespace { held, slot, labels });
        self.change_namespace(slot, |entry| {
            entry.has_object = true;
            entry.is_selected = is_selected;
        })
    }

    pub(super) fn delete_namespace(&mut self, name: &str) -> bool {
        let Some(gone) = self.held.namespaces.remove(&Key::new("", name)) else {
            return false;
        };
        if is_top_level_domain(name) {
            self.held.like_top_level_domains -= 1;
        }
        let visible = self.change_namespace(gone.slot, |entry| {
            entry.has_object = false;
            entry.is_selected = false;
        });
        self.free_namespace_if_unused(gone.slot);
        visible
    }

    /// The place of a namespace, a new one if it is unknown.
    pub(super) fn namespace_slot(&mut self, name: &str) -> u32 {
        let mut label = Vec::with_capacity(name.len() + 1);
        push_label(&mut label, name);
        if let Some(slot) = self.next.namespace(&label) {
            return slot;
        }
        let slot = self.free_namespaces.take();
        let key = hash(&self.next.hasher, &label);
        self.next.namespace_names.insert(key, slot);
        let entry = NamespaceEntry {
            is_listed: is_listed(&self.next.zone.settings, &label),
            label: label.into(),
            has_object: false,
            is_selected: false,
            services: 0,
            users: 0,
            visible: false,
        };
        self.next.namespaces.set(slot, Some(Arc::new(entry)));
        slot
    }

    /// Changes an entry and works out whether it is visible now; true if that has changed.
    pub(super) fn change_namespace(
        &mut self,
        slot: u32,
        change: impl FnOnce(&mut NamespaceEntry),
    ) -> bool {
        let selects = self.next.zone.selects_namespaces();
        let Some(entry) = self.next.namespaces.get_mut(slot) else {
            return false;
        };
        let before = entry.visible;
        change(entry);
        entry.visible = entry.is_listed
            && if selects {
                entry.has_object && entry.is_selected
            } else {
                entry.has_object || entry.services > 0
            };
        entry.visible != before
    }

    /// Empties the place of a namespace that nothing refers to any more.
    pub(super) fn free_namespace_if_unused(&mut self, slot: u32) {
        let Some(entry) = self.next.namespaces.get(slot) else {
            return;
        };
        if entry.has_object || entry.users > 0 {
            return;
        }
        let key = hash(&self.next.hasher, &entry.label);
        self.next.namespace_names.remove(key, slot);
        self.next.namespaces.set(slot, None);
        self.free_namespaces.give_back(slot);
    }

    /// Works out every namespace's visibility under new settings.
    pub(super) fn select_namespaces(&mut self) {
        let zone = Arc::clone(&self.next.zone);
        let selector = &zone.settings.exposure.namespace_selector;
        let selected: Vec<(u32, bool)> = self
            .held
            .namespaces
            .values()
            .map(|namespace| (namespace.slot, selector.matches(&namespace.labels)))
            .collect();
        for (slot, is_selected) in selected {
            self.change_namespace(slot, |entry| entry.is_selected = is_selected);
        }
        for slot in 0..self.free_namespaces.bound() {
            self.change_namespace(slot, |entry| {
                entry.is_listed = is_listed(&zone.settings, &entry.label);
            });
        }
    }
}

fn is_listed(settings: &Settings, label: &[u8]) -> bool {
    let list = &settings.exposure.namespaces;
    list.is_empty() || list.iter().any(|name| name.as_bytes() == &label[1..])
}
