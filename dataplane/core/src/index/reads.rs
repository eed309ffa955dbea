//! What a configuration reads of objects; only that is kept of them. [`Reads::relist_for`] alone decides what must be
//! listed again: when another configuration takes over (E5), and before a snapshot is used (E41).

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use crate::object::Resource;
use crate::settings::{EndpointNames, Selector, Settings};
use crate::wire::name::Name;

/// The parts of objects that this configuration reads beyond those that every configuration reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Keys of Namespace labels.
    pub namespace_labels: BTreeSet<Box<str>>,
    /// Keys of Service labels.
    pub service_labels: BTreeSet<Box<str>>,
    /// Names of the Pods behind endpoints.
    pub pod_names: bool,
    /// Names of objects must fit below it.
    pub cluster_domain: Name,
}

/// What must be listed again before another configuration takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relist {
    /// Nothing: all that it reads was kept.
    Nothing,
    /// Services and Namespaces, for labels that were not kept. The records stay as they are
    /// meanwhile.
    Labels,
    /// Every object: records are made in another way.
    Everything,
}

/// In which form objects were kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptAs {
    /// As records of an index: a change in how records are made needs every object again.
    Records,
    /// As objects of a snapshot, which are applied one by one: they need only hold enough.
    Objects,
}

impl Relist {
    /// Whether objects of this kind must be listed again.
    pub fn includes(self, resource: Resource) -> bool {
        match self {
            Relist::Nothing => false,
            Relist::Labels => matches!(resource, Resource::Services | Resource::Namespaces),
            Relist::Everything => true,
        }
    }
}

impl Reads {
    /// The label keys and resources that these settings depend on.
    pub fn of(settings: &Settings) -> Reads {
        let keys = |selector: &Selector| {
            selector.0.iter().map(|requirement| requirement.key.clone()).collect()
        };
        Reads {
            namespace_labels: keys(&settings.exposure.namespace_selector),
            service_labels: keys(&settings.exposure.service_selector),
            pod_names: settings.endpoint_names == EndpointNames::PodName,
            cluster_domain: settings.cluster_domain.clone(),
        }
    }

    /// What must be listed again before settings that read `new` can use what was kept for this.
    pub fn relist_for(&self, new: &Reads, kept: KeptAs) -> Relist {
        let fits_names = match kept {
            KeptAs::Records => self.pod_names == new.pod_names,
            KeptAs::Objects => self.pod_names || !new.pod_names,
        };
        if !fits_names || self.cluster_domain != new.cluster_domain {
            return Relist::Everything;
        }
        let has_labels = new.namespace_labels.is_subset(&self.namespace_labels)
            && new.service_labels.is_subset(&self.service_labels);
        if has_labels { Relist::Nothing } else { Relist::Labels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::settings;

    fn reads(services: &[&str], namespaces: &[&str], pod_names: bool) -> Reads {
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).into()).collect();
        let (service_labels, namespace_labels) = (keys(services), keys(namespaces));
        Reads { service_labels, namespace_labels, pod_names, ..Reads::of(&settings()) }
    }

    #[test]
    fn k24_only_what_was_not_kept_is_listed_again() {
        let rows = [
            (reads(&[], &[], false), Relist::Labels, Relist::Everything),
            (reads(&["tier"], &[], false), Relist::Labels, Relist::Everything),
            (reads(&["tier"], &["team"], false), Relist::Nothing, Relist::Everything),
            (reads(&["tier", "app"], &["team"], true), Relist::Everything, Relist::Nothing),
        ];
        for (kept, by_address, by_pod_name) in rows {
            let new = |pod_names| reads(&["tier"], &["team"], pod_names);
            let relist = |pod_names| kept.relist_for(&new(pod_names), KeptAs::Records);
            assert_eq!((relist(false), relist(true)), (by_address, by_pod_name), "{kept:?}");
        }
        let mut moved = reads(&[], &[], false);
        moved.cluster_domain = Name::from_text("other.example").unwrap();
        for kept_as in [KeptAs::Records, KeptAs::Objects] {
            let relist = reads(&[], &[], false).relist_for(&moved, kept_as);
            assert_eq!(relist, Relist::Everything, "{kept_as:?}");
        }
    }

    #[test]
    fn e41_a_snapshot_may_hold_more_than_is_read_and_not_less() {
        let kept = reads(&["tier"], &[], true);
        for (kept, new, relist) in [
            (&kept, reads(&[], &[], false), Relist::Nothing),
            (&kept, reads(&["tier"], &[], true), Relist::Nothing),
            (&kept, reads(&["app"], &[], false), Relist::Labels),
            (&reads(&[], &[], false), reads(&[], &[], true), Relist::Everything),
        ] {
            assert_eq!(kept.relist_for(&new, KeptAs::Objects), relist, "{kept:?} for {new:?}");
        }
    }
}
