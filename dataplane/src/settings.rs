//! The configuration as the core reads it. `crds::check` has refused what is wrong already; what
//! is still invalid here (an unchecked document) is an error, never a guess.

mod federations;

use std::iter;
use std::net::IpAddr;

use crds::Config;
use crds::config as written;
use crds::rrtype::RrType;
use dataplane_core::{
    EndpointNames, Exposure, ExtraData, ExtraRecord, Key, Name, PodRecords, Reads, Requirement,
    Resource, Selector, SelectorOperator, ServiceAddresses, Settings, SrvData,
};

pub use federations::{Location, without_place};

use crate::serve;

/// The settings of a configuration where this process knows nothing of its place.
///
/// # Errors
/// The field that cannot be used, and why.
pub fn of(config: &Config) -> Result<Settings, String> {
    at(config, &Location::default())
}

/// The settings of a configuration at this place.
///
/// # Errors
/// The field that cannot be used, and why.
pub fn at(config: &Config, location: &Location) -> Result<Settings, String> {
    // Without `..`, so that a new field forces a decision here.
    let Config {
        format: _,
        domain,
        ttl_seconds,
        pod_records,
        endpoint_names,
        hide_empty_services,
        reverse_cidrs,
        service_addresses,
        own_service,
        exposure,
        hosts,
        records,
        federations,
        upstreams,
        stub_domains,
        cache,
        access,
        limits,
        identity,
        // Not the core's: how the process runs, and what the forwarder does.
        listeners: _,
        warm_start: _,
        logging: _,
        metrics: _,
    } = config;
    let hosts = hosts.iter().map(extra_host);
    let records = records.iter().map(extra_record);
    Ok(Settings {
        cluster_domain: name("domain", domain)?,
        ttl_s: *ttl_seconds,
        pods: pods(*pod_records),
        endpoint_names: names_of_endpoints(*endpoint_names),
        hide_empty_services: *hide_empty_services,
        reverse_cidrs: reverse_cidrs.clone(),
        service_addresses: addresses_of_service(service_addresses, own_service.as_ref()),
        exposure: exposed(exposure),
        extra: hosts.chain(records).collect::<Result<_, _>>()?,
        federations: federations
            .iter()
            .map(|federation| federations::of(federation, location))
            .collect::<Result<_, _>>()?,
        stub_domains: stub_domains
            .iter()
            .map(|stub| name("stubDomains", &stub.domain))
            .collect::<Result<_, _>>()?,
        withheld_types: withheld_types(upstreams, stub_domains),
        default_upstreams: match upstreams {
            written::Upstreams::FromResolvConf(_) | written::Upstreams::Servers(_) => true,
            written::Upstreams::None => false,
        },
        udp_payload_size: u16::try_from(limits.udp_payload_bytes)
            .ok()
            .filter(|size| (512..=4096).contains(size))
            .ok_or("limits.udpPayloadBytes is not between 512 and 4096")?,
        chaos: identity.chaos,
        nsid: identity.nsid,
        clients: access.clients.clone(),
        // A CHAOS answer shows it; `forward/upstreams.rs` gives the cache its size.
        cache_entries: cache.entries,
    })
}

/// By the number of the group.
fn withheld_types(
    upstreams: &written::Upstreams,
    stub_domains: &[written::StubDomain],
) -> Vec<Vec<u16>> {
    let stubs = stub_domains.iter().map(|stub| Some(&stub.group.options));
    let types = |options: Option<&written::GroupOptions>| {
        options
            .into_iter()
            .flat_map(|it| &it.withheld_types)
            .map(|RrType(number)| *number)
            .collect()
    };
    iter::once(upstreams.options()).chain(stubs).map(types).collect()
}

/// What this configuration reads of objects; `None` for one that cannot be used.
pub fn reads_of_objects(config: &Config) -> Option<Reads> {
    of(config).ok().map(|settings| Reads::of(&settings))
}

/// Whether answers under this configuration rest on objects of this kind.
pub fn reads(config: &Config, resource: Resource) -> bool {
    match resource {
        Resource::Services | Resource::EndpointSlices | Resource::Namespaces => true,
        Resource::Pods => config.pod_records == written::PodRecords::Verified,
    }
}

/// What the configuration bounds of the listening side of a process that may have this many descriptors. Connections of clients
/// take half of them at most: what asks upstreams, and the HTTP port, need others (WR44).
pub fn limits(config: &Config, descriptors: u64) -> serve::Limits {
    let limits = &config.limits;
    let half = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
    serve::Limits {
        tcp_connections: half.min(limits.tcp_connections as usize),
        tcp_connections_per_client: limits.tcp_connections_per_client as usize,
        tcp_buffer_bytes: usize::try_from(limits.tcp_buffer_bytes).unwrap_or(usize::MAX),
        ..serve::Limits::default()
    }
}

fn name(field: &str, text: &str) -> Result<Name, String> {
    Name::from_text(text).map_err(|error| format!("{field}: {text:?}: {error}"))
}

fn pods(from: written::PodRecords) -> PodRecords {
    match from {
        written::PodRecords::Disabled => PodRecords::Disabled,
        written::PodRecords::Insecure => PodRecords::Insecure,
        written::PodRecords::Verified => PodRecords::Verified,
    }
}

fn names_of_endpoints(from: written::EndpointNames) -> EndpointNames {
    match from {
        written::EndpointNames::Address => EndpointNames::Address,
        written::EndpointNames::PodName => EndpointNames::PodName,
    }
}

fn addresses_of_service(
    from: &written::ServiceAddresses,
    own: Option<&written::ServiceName>,
) -> ServiceAddresses {
    match from {
        written::ServiceAddresses::Listed(addresses) => ServiceAddresses::Fixed {
            addresses: addresses.clone(),
            service: own.map(|own| Key::new(own.namespace.as_str(), own.name.as_str())),
        },
        written::ServiceAddresses::OfService { namespace, name } => ServiceAddresses::OfService {
            namespace: namespace.as_str().into(),
            name: name.as_str().into(),
        },
    }
}

fn exposed(from: &written::Exposure) -> Exposure {
    let written::Exposure { namespaces, namespace_selector, service_selector } = from;
    Exposure {
        namespaces: namespaces.iter().map(|name| name.as_str().into()).collect(),
        namespace_selector: selector(namespace_selector),
        service_selector: selector(service_selector),
    }
}

fn selector(from: &written::LabelSelector) -> Selector {
    let written::LabelSelector { match_labels, match_expressions } = from;
    let labels = match_labels.iter().map(|(key, value)| Requirement {
        key: key.as_str().into(),
        operator: SelectorOperator::In(vec![value.as_str().into()]),
    });
    Selector(labels.chain(match_expressions.iter().map(requirement)).collect())
}

fn requirement(from: &written::LabelRequirement) -> Requirement {
    let written::LabelRequirement { key, operator, values } = from;
    let values = values.iter().map(|value| value.as_str().into()).collect();
    Requirement {
        key: key.as_str().into(),
        operator: match operator {
            written::SelectorOperator::In => SelectorOperator::In(values),
            written::SelectorOperator::NotIn => SelectorOperator::NotIn(values),
            written::SelectorOperator::Exists => SelectorOperator::Exists,
            written::SelectorOperator::DoesNotExist => SelectorOperator::DoesNotExist,
        },
    }
}

fn extra_host(from: &written::Host) -> Result<ExtraRecord, String> {
    let written::Host { name, addresses, ttl_seconds, reverse, override_cluster_zone } = from;
    let (owner, wildcard) = owner("hosts", name)?;
    Ok(ExtraRecord {
        owner,
        wildcard,
        ttl_s: *ttl_seconds,
        data: ExtraData::Addresses(addresses.clone()),
        reverse: *reverse,
        override_cluster_zone: *override_cluster_zone,
    })
}

fn extra_record(from: &written::Record) -> Result<ExtraRecord, String> {
    let written::Record { name, data, ttl_seconds, reverse, override_cluster_zone } = from;
    let (owner, wildcard) = owner("records", name)?;
    Ok(ExtraRecord {
        owner,
        wildcard,
        ttl_s: *ttl_seconds,
        data: extra_data(data)?,
        reverse: *reverse,
        override_cluster_zone: *override_cluster_zone,
    })
}

/// The owner, and whether it was written with `*.` (RR82).
fn owner(field: &str, text: &str) -> Result<(Name, bool), String> {
    match text.strip_prefix("*.") {
        Some(rest) => Ok((name(field, rest)?, true)),
        None => Ok((name(field, text)?, false)),
    }
}

fn extra_data(from: &written::RecordData) -> Result<ExtraData, String> {
    Ok(match from {
        written::RecordData::A(addresses) => {
            ExtraData::Addresses(addresses.iter().copied().map(IpAddr::V4).collect())
        }
        written::RecordData::Aaaa(addresses) => {
            ExtraData::Addresses(addresses.iter().copied().map(IpAddr::V6).collect())
        }
        written::RecordData::Cname(target) => ExtraData::Cname(name("records.target", target)?),
        written::RecordData::Dname(target) => ExtraData::Dname(name("records.target", target)?),
        written::RecordData::Txt(strings) => {
            ExtraData::Txt(strings.iter().map(|text| text.as_bytes().into()).collect())
        }
        written::RecordData::Srv(services) => {
            ExtraData::Srv(services.iter().map(srv).collect::<Result<_, _>>()?)
        }
    })
}

fn srv(from: &written::ServiceTarget) -> Result<SrvData, String> {
    let written::ServiceTarget { priority, weight, port, target } = from;
    Ok(SrvData {
        priority: *priority,
        weight: *weight,
        port: *port,
        target: name("records.services.target", target)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> Config {
        Config::from_json(json).expect(json).0
    }

    #[test]
    fn the_default_configuration_has_the_defaults_of_the_rules() {
        let settings = of(&Config::default()).unwrap();
        assert_eq!(settings.cluster_domain, Name::from_text("cluster.local").unwrap());
        assert_eq!((settings.ttl_s, settings.udp_payload_size), (5, 1232));
        assert_eq!(settings.pods, PodRecords::Insecure);
        assert_eq!(settings.endpoint_names, EndpointNames::Address);
        assert!(settings.default_upstreams && settings.chaos && settings.nsid);
        assert!(settings.extra.is_empty() && settings.stub_domains.is_empty());
        assert_eq!(settings.exposure, Exposure::default());
        assert_eq!(settings.cache_entries, 16_384);
    }

    #[test]
    fn wr44_the_listening_side_has_the_limits_of_the_configuration() {
        let json = r#"{"format":1,"limits":{"tcpConnections":71,"tcpConnectionsPerClient":17,
            "tcpBufferBytes":1234567}}"#;
        let expected = serve::Limits {
            tcp_connections: 71,
            tcp_connections_per_client: 17,
            tcp_buffer_bytes: 1_234_567,
            ..serve::Limits::default()
        };
        assert_eq!(limits(&config(json), u64::MAX), expected);
        assert_eq!(limits(&config(json), 142), expected);
        let half = serve::Limits { tcp_connections: 70, ..expected };
        assert_eq!(limits(&config(json), 140), half, "half of the descriptors");
    }

    #[test]
    fn a20_upstreams_none_leaves_no_default_group() {
        assert!(!of(&config(r#"{"format":1,"upstreams":"none"}"#)).unwrap().default_upstreams);
    }

    #[test]
    fn fw45_types_are_withheld_by_the_number_of_their_group() {
        let json = r#"{"format":1,"upstreams":{"fromResolvConf":{"withheldTypes":["AAAA","TYPE65534"]}},
            "stubDomains":[{"domain":"a.example","group":{"servers":[{"ip":"10.0.0.1","port":53}]}},
            {"domain":"b.example","group":{"servers":[{"ip":"10.0.0.1","port":53}],
            "options":{"withheldTypes":["A"]}}}]}"#;
        let settings = of(&config(json)).unwrap();
        assert_eq!(settings.withheld_types, [vec![28, 65_534], vec![], vec![1]]);
    }

    #[test]
    fn rr82_a_star_in_front_is_a_wildcard_below_the_rest() {
        let json =
            r#"{"format":1,"hosts":[{"name":"*.apps.corp.example","addresses":["10.20.0.80"]}]}"#;
        let extra = of(&config(json)).unwrap().extra;
        assert!(extra[0].wildcard);
        assert_eq!(extra[0].owner, Name::from_text("apps.corp.example").unwrap());
        assert_eq!(extra[0].ttl_s, 30, "RR80");
    }

    #[test]
    fn n40_match_labels_are_requirements_with_one_value() {
        let json = r#"{"format":1,"exposure":{"serviceSelector":{"matchLabels":{"dns":"on"},
            "matchExpressions":[{"key":"old","operator":"DoesNotExist"}]}}}"#;
        let selector = of(&config(json)).unwrap().exposure.service_selector;
        let on = [(Box::from("dns"), Box::from("on"))];
        let old = [(Box::from("dns"), Box::from("on")), (Box::from("old"), Box::from("1"))];
        assert!(selector.matches(&on));
        assert!(!selector.matches(&old) && !selector.matches(&[]));
    }

    #[test]
    fn an_unchecked_name_is_an_error_that_names_the_field() {
        let unchecked = Config { domain: "a..b".into(), ..Config::default() };
        let error = of(&unchecked).unwrap_err();
        assert!(error.starts_with("domain: \"a..b\""), "{error}");
    }
}
