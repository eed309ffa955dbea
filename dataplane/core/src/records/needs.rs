//! Which data must be complete for an answer to be true (docs/dns.md §4.4).

use crate::object::Resource;
use crate::records::zone::Zone;
use crate::settings::PodRecords;

/// A set of resources that an answer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs(pub(super) u8);

impl Needs {
    pub(crate) const NOTHING: Needs = Needs(0);
    pub(crate) const SERVICES: Needs = Needs(1 << Resource::Services as u8);
    pub(crate) const SLICES: Needs = Needs(1 << Resource::EndpointSlices as u8);
    pub(crate) const NAMESPACES: Needs = Needs(1 << Resource::Namespaces as u8);
    pub(crate) const PODS: Needs = Needs(1 << Resource::Pods as u8);
    /// Which names are ours at all (E44).
    pub(crate) const CONFIGURATION: Needs = Needs(1 << Resource::ALL.len());

    /// Zone and region of the cluster (RR97). This need is never met: only names that miss them have it.
    pub(crate) const LOCATION: Needs = Needs(1 << (Resource::ALL.len() + 1));

    pub(super) const OBJECTS: Needs = Needs((1 << Resource::ALL.len()) - 1);

    pub(crate) const fn and(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }

    pub(super) const fn without(self, other: Needs) -> Needs {
        Needs(self.0 & !other.0)
    }

    pub(crate) const fn of(resource: Resource) -> Needs {
        Needs(1 << resource as u8)
    }

    /// Whether it has anything of another set.
    pub(crate) const fn has(self, other: Needs) -> bool {
        self.0 & other.0 != 0
    }

    /// The text of EDE 14 for an answer that cannot be given yet (RFC 8914 §4.15).
    pub(crate) const fn what_is_missing(self) -> &'static str {
        match self.has(Needs::LOCATION) {
            true => "zone or region of the cluster is not known",
            false => "the cluster's data is not complete yet",
        }
    }

    /// The data that every answer about a Service depends on (§4.4 note 1).
    pub(crate) fn of_alias(zone: &Zone) -> Needs {
        match zone.selects_namespaces() {
            true => Needs::SERVICES.and(Needs::NAMESPACES),
            false => Needs::SERVICES,
        }
    }

    /// The same for ClusterIP Services, and for missing ones, which may be empty ones that are hidden (RR15).
    pub(crate) fn of_service(zone: &Zone) -> Needs {
        let needs = Needs::of_alias(zone);
        match zone.settings.hide_empty_services {
            true => needs.and(Needs::SLICES),
            false => needs,
        }
    }

    /// The data that every answer about a reverse name depends on, unless it is that of a cluster IP (§4.4).
    pub(crate) fn of_pointer(zone: &Zone) -> Needs {
        let needs = Needs::of_service(zone).and(Needs::SLICES);
        match zone.settings.pods {
            PodRecords::Verified => needs.and(Needs::PODS),
            PodRecords::Disabled | PodRecords::Insecure => needs,
        }
    }
}
