//! From the text of a spec to the types of a [`Config`]: addresses, ranges, quantities, unions, filled-in ports.

mod addresses;
mod records;
mod upstreams;

use addresses::{addresses, drop_duplicates, ranges};

use super::violations::{Reason, Violations, shown};
use crate::config::{self, Config, ServiceAddresses, ServiceName};
use crate::defaults;
use crate::v1alpha1::{self, ClusterDNSSpec, Memory};

/// What the spec means. Where something cannot be read a violation is added and that part is left out.
pub(super) fn config(spec: &ClusterDNSSpec, violations: &mut Violations) -> Config {
    let limits = spec.limits.clone().unwrap_or_default();
    let identity = spec.identity.clone().unwrap_or_default();
    let logging = spec.logging.clone().unwrap_or_default();
    let access = spec.access.clone().unwrap_or_default();
    Config {
        format: config::FORMAT,
        domain: spec.domain.clone(),
        ttl_seconds: spec.ttl_seconds,
        pod_records: spec.pod_records,
        endpoint_names: spec.endpoint_names,
        hide_empty_services: spec.hide_empty_services,
        reverse_cidrs: ranges(spec.reverse_cidrs.as_deref(), "spec.reverseCIDRs", violations),
        service_addresses: service_addresses(spec, violations),
        own_service: own_service(spec),
        exposure: exposure(spec.exposure.as_ref()),
        hosts: spec
            .hosts
            .iter()
            .flatten()
            .enumerate()
            .map(|(i, host)| records::host(host, i, violations))
            .collect(),
        records: spec
            .records
            .iter()
            .flatten()
            .enumerate()
            .filter_map(|(i, record)| records::record(record, i, violations))
            .collect(),
        federations: spec.federations.iter().flatten().map(federation).collect(),
        upstreams: upstreams::upstreams(spec.upstreams.as_ref(), violations),
        stub_domains: spec
            .stub_domains
            .iter()
            .flatten()
            .enumerate()
            .map(|(i, stub)| upstreams::stub_domain(stub, i, violations))
            .collect(),
        cache: cache(spec.cache.clone().unwrap_or_default(), violations),
        access: config::Access {
            clients: ranges(access.clients.as_deref(), "spec.access.clients", violations),
            rebind_protection: access.rebind_protection,
        },
        limits: config::Limits {
            in_flight: limits.in_flight,
            in_flight_per_client: limits.in_flight_per_client,
            tcp_connections: limits.tcp_connections,
            tcp_connections_per_client: limits.tcp_connections_per_client,
            tcp_buffer_bytes: memory(&limits.tcp_buffers, "spec.limits.tcpBuffers", violations),
            udp_payload_bytes: limits.udp_payload_bytes,
            upstream_ports: limits.upstream_ports,
        },
        identity: config::Identity { chaos: identity.chaos, nsid: identity.nsid },
        listeners: listeners(spec.listeners.as_ref()),
        warm_start: config::WarmStart {
            max_age_seconds: spec.warm_start.clone().unwrap_or_default().max_age_seconds,
        },
        logging: config::Logging {
            queries: logging.queries,
            format: logging.format,
            level: logging.level,
            dnstap: logging.dnstap.as_ref().and_then(|dnstap| reader(dnstap, violations)),
        },
        metrics: metrics(spec.metrics.clone().unwrap_or_default()),
    }
}

/// The places in the spec of the records that can be read.
pub(super) fn kept_records(spec: &ClusterDNSSpec) -> Vec<usize> {
    let mut ignored = Violations::default();
    let all = spec.records.iter().flatten().enumerate();
    let kept = all.filter(|(i, record)| records::record(record, *i, &mut ignored).is_some());
    kept.map(|(i, _)| i).collect()
}

fn service_addresses(spec: &ClusterDNSSpec, violations: &mut Violations) -> ServiceAddresses {
    let mut listed =
        addresses(spec.service_addresses.iter().flatten(), "spec.serviceAddresses", violations);
    drop_duplicates(&mut listed);
    let service = spec.service.clone().unwrap_or_default();
    let cluster_ips =
        addresses(service.cluster_ips.iter().flatten(), "spec.service.clusterIPs", violations);
    if !listed.is_empty() {
        ServiceAddresses::Listed(listed)
    } else if !cluster_ips.is_empty() {
        ServiceAddresses::Listed(cluster_ips)
    } else {
        ServiceAddresses::OfService { namespace: service.namespace, name: service.name }
    }
}

/// The name of our Service, where addresses are listed that it need not have. Without such a list it is left out: the
/// document of a resource stays what older versions made of it.
fn own_service(spec: &ClusterDNSSpec) -> Option<ServiceName> {
    spec.service_addresses.as_ref().filter(|listed| !listed.is_empty())?;
    let service = spec.service.clone().unwrap_or_default();
    Some(ServiceName { namespace: service.namespace, name: service.name })
}

fn exposure(exposure: Option<&v1alpha1::Exposure>) -> config::Exposure {
    let exposure = exposure.cloned().unwrap_or_default();
    config::Exposure {
        namespaces: exposure.namespaces.unwrap_or_default(),
        namespace_selector: exposure.namespace_selector.unwrap_or_default(),
        service_selector: exposure.service_selector.unwrap_or_default(),
    }
}

fn federation(written: &v1alpha1::Federation) -> config::Federation {
    let v1alpha1::Federation { name, domain, zone, region } = written.clone();
    config::Federation { name, domain, zone, region }
}

fn metrics(written: v1alpha1::Metrics) -> config::Metrics {
    let probe = |written: v1alpha1::Probe| {
        let v1alpha1::Probe { label, name, qtype, interval_seconds } = written;
        config::Probe { label, name, qtype, interval_seconds }
    };
    config::Metrics {
        compatibility: written.compatibility,
        probes: written.probes.into_iter().flatten().map(probe).collect(),
    }
}

fn cache(cache: v1alpha1::Cache, violations: &mut Violations) -> config::Cache {
    config::Cache {
        memory_bytes: memory(&cache.memory, "spec.cache.memory", violations),
        entries: cache.entries,
        max_ttl_seconds: cache.max_ttl_seconds,
        max_negative_ttl_seconds: cache.max_negative_ttl_seconds,
        stale_seconds: cache.stale_seconds,
        prefetch: cache.prefetch,
        expose: cache.expose,
    }
}

fn listeners(listeners: Option<&v1alpha1::Listeners>) -> config::Listeners {
    let Some(v1alpha1::Listeners { tls, https, quic }) = listeners else {
        return config::Listeners::default();
    };
    config::Listeners {
        tls: tls.as_ref().map(|tls| config::TlsListener {
            port: tls.port,
            certificate: tls.certificate.name.clone(),
        }),
        https: https.as_ref().map(|https| config::HttpsListener {
            port: https.port,
            path: https.path.clone(),
            certificate: https.certificate.name.clone(),
        }),
        quic: quic.as_ref().map(|quic| config::QuicListener {
            port: quic.port,
            certificate: quic.certificate.name.clone(),
        }),
    }
}

fn reader(dnstap: &v1alpha1::Dnstap, violations: &mut Violations) -> Option<config::Dnstap> {
    let field = "spec.logging.dnstap.address";
    let ip = addresses::address(&dnstap.address, field, violations)?;
    Some(config::Dnstap { ip, port: dnstap.port })
}

fn memory(memory: &Memory, field: &str, violations: &mut Violations) -> u64 {
    memory.bytes().unwrap_or_else(|| {
        let message = format!(
            "{} is not a number of bytes: write one such as {}",
            written(memory),
            defaults::CACHE_MEMORY
        );
        violations.add(field, Reason::InvalidQuantity, message);
        0
    })
}

fn written(memory: &Memory) -> String {
    match memory {
        Memory::Bytes(bytes) => bytes.to_string(),
        Memory::Text(text) => shown(text),
    }
}
