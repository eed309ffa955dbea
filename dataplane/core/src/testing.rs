//! Fixtures that several tests of this crate share.

use crate::settings::{EndpointNames, Exposure, PodRecords, ServiceAddresses, Settings};
use crate::wire::name::Name;

/// The defaults, with one upstream group.
pub(crate) fn settings() -> Settings {
    Settings {
        cluster_domain: Name::from_text("cluster.local").unwrap(),
        ttl_s: 5,
        pods: PodRecords::Insecure,
        endpoint_names: EndpointNames::Address,
        hide_empty_services: false,
        reverse_cidrs: Vec::new(),
        service_addresses: ServiceAddresses::Fixed { addresses: Vec::new(), service: None },
        exposure: Exposure::default(),
        federations: Vec::new(),
        extra: Vec::new(),
        stub_domains: Vec::new(),
        withheld_types: Vec::new(),
        default_upstreams: true,
        udp_payload_size: 1232,
        chaos: true,
        nsid: true,
        clients: Vec::new(),
        cache_entries: 16_384,
    }
}
