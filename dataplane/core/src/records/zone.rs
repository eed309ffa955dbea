//! The settings in the form that answers are made from: names composed, tables built, once per
//! configuration.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::records::extra::{Extra, NameTable};
use crate::records::federations::Federations;
use crate::relay::OwnRanges;
use crate::settings::{ServiceAddresses, Settings};
use crate::wire::address::Address;
use crate::wire::name::Name;
use crate::wire::reply::{MAILBOX_LABEL, NAME_SERVER_LABELS};
use crate::wire::reverse::ReverseRange;

/// Longest TTL of a negative answer in seconds (N31).
const MAX_NEGATIVE_TTL_S: u32 = 5;

/// The compiled configuration: names and tables are ready for lookups.
#[derive(Debug)]
pub(crate) struct Zone {
    pub(crate) settings: Settings,
    /// Number of labels of `Z`.
    pub(crate) apex_labels: usize,
    /// `ns.dns.Z` (RR71).
    pub(crate) name_server: Name,
    /// `hostmaster.Z` (RR70).
    pub(crate) mailbox: Name,
    /// `.svc.Z` behind Service and namespace, in wire form.
    pub(crate) svc: Box<[u8]>,
    /// TTL of negative answers and MINIMUM of the SOA, in seconds.
    pub(crate) negative_ttl_s: u32,
    pub(crate) extra: Extra,
    pub(crate) federations: Federations,
    /// Stub domain → group number.
    pub(crate) stub_domains: NameTable<usize>,
    /// The RA bit of replies: true if forwarding is on (WR5).
    pub(crate) recursion: bool,
    /// Ranges whose reverse names are ours (A2).
    pub(crate) reverse_ranges: Vec<ReverseRange>,
    /// Their addresses, which no name of the public DNS should have (FW43).
    pub(crate) own_ranges: OwnRanges,
    /// `serviceAddresses` when they are written down.
    pub(crate) service_addresses: Option<Vec<Address>>,
}

impl Zone {
    pub(crate) fn new(mut settings: Settings) -> Zone {
        // The layout of replies relies on these bounds (§1.1); `check` enforces them too.
        settings.udp_payload_size = settings.udp_payload_size.clamp(512, 4096);
        let apex = settings.cluster_domain.wire();
        // Z has at most 121 octets, so these prefixes always fit; the root is an unreachable fallback.
        let below = |prefix: &[u8]| Name::compose(&[prefix, apex]).unwrap_or(Name::ROOT);
        let mut stub_domains = NameTable::default();
        for (index, domain) in settings.stub_domains.iter().enumerate() {
            stub_domains.entry(domain, || index + 1);
        }
        let svc = [b"\x03svc", apex].concat();
        Zone {
            federations: Federations::of(&settings, &svc),
            apex_labels: settings.cluster_domain.labels().count(),
            name_server: below(NAME_SERVER_LABELS),
            mailbox: below(MAILBOX_LABEL),
            svc: svc.into(),
            negative_ttl_s: settings.ttl_s.min(MAX_NEGATIVE_TTL_S),
            extra: Extra::new(&settings.extra, &settings.cluster_domain),
            recursion: settings.default_upstreams || !settings.stub_domains.is_empty(),
            stub_domains,
            reverse_ranges: settings.reverse_cidrs.iter().map(ReverseRange::new).collect(),
            own_ranges: OwnRanges::of(&settings.reverse_cidrs),
            service_addresses: match &settings.service_addresses {
                ServiceAddresses::Fixed { addresses, .. } => {
                    Some(addresses.iter().map(|&address| address.into()).collect())
                }
                ServiceAddresses::OfService { .. } => None,
            },
            settings,
        }
    }

    /// Namespace and name of our own Service, as far as the configuration says them.
    pub(crate) fn own_service(&self) -> Option<(&str, &str)> {
        match &self.settings.service_addresses {
            ServiceAddresses::OfService { namespace, name } => Some((namespace, name)),
            ServiceAddresses::Fixed { service, .. } => {
                service.as_ref().map(|key| (&*key.namespace, &*key.name))
            }
        }
    }

    /// `Z` in wire form.
    pub(crate) fn apex(&self) -> &[u8] {
        self.settings.cluster_domain.wire()
    }

    /// FW45: whether this type is withheld from a group.
    pub(crate) fn withholds(&self, group: usize, qtype: u16) -> bool {
        self.settings.withheld_types.get(group).is_some_and(|types| types.contains(&qtype))
    }

    /// Whether namespace labels decide what is visible, so that Namespaces are needed (§4.4).
    pub(crate) fn selects_namespaces(&self) -> bool {
        !self.settings.exposure.namespace_selector.0.is_empty()
    }
}
