//! Numbers in their ranges, lists and texts within their bounds, and the whole within its own.

use super::violations::{Reason, Violations};
use crate::bounds as limit;
use crate::config::{Config, Group, GroupOptions, RecordData, Upstreams};

/// Adds what is out of bounds.
pub(super) fn check(config: &Config, violations: &mut Violations) {
    numbers(config, violations);
    lists(config, violations);
    records(config, violations);
    match &config.upstreams {
        Upstreams::FromResolvConf(options) => {
            options_in_range(options, "spec.upstreams", violations);
        }
        Upstreams::Servers(group) => group_in_bounds(group, "spec.upstreams", violations),
        Upstreams::None => {}
    }
    for (index, stub) in config.stub_domains.iter().enumerate() {
        group_in_bounds(&stub.group, &format!("spec.stubDomains[{index}]"), violations);
    }
    let bytes = config.to_json().len();
    if bytes > limit::CONFIG_BYTES {
        let message = format!(
            "the configuration has {bytes} bytes and may have {}: move hosts and records to a DNS server of their own \
             behind a stub domain",
            limit::CONFIG_BYTES
        );
        violations.add("spec", Reason::TooLarge, message);
    }
}

fn numbers(config: &Config, violations: &mut Violations) {
    let Config { cache, limits, warm_start, .. } = config;
    let day = limit::RECORD_TTL_SECONDS;
    for (field, value, least, most) in [
        ("ttlSeconds", config.ttl_seconds, 0, limit::TTL_SECONDS),
        ("cache.entries", cache.entries, 0, limit::CACHE_ENTRIES),
        ("cache.maxTTLSeconds", cache.max_ttl_seconds, 0, day),
        ("cache.maxNegativeTTLSeconds", cache.max_negative_ttl_seconds, 0, day),
        ("cache.staleSeconds", cache.stale_seconds, 0, limit::WEEK_SECONDS),
        ("limits.inFlight", limits.in_flight, 1, limit::IN_FLIGHT),
        ("limits.inFlightPerClient", limits.in_flight_per_client, 1, limit::IN_FLIGHT),
        ("limits.tcpConnections", limits.tcp_connections, 1, limit::TCP_CONNECTIONS),
        (
            "limits.tcpConnectionsPerClient",
            limits.tcp_connections_per_client,
            1,
            limit::TCP_CONNECTIONS,
        ),
        (
            "limits.udpPayloadBytes",
            limits.udp_payload_bytes,
            limit::UDP_PAYLOAD_MIN,
            limit::UDP_PAYLOAD_MAX,
        ),
        (
            "limits.upstreamPorts",
            limits.upstream_ports,
            limit::UPSTREAM_PORTS_MIN,
            limit::UPSTREAM_PORTS,
        ),
        ("warmStart.maxAgeSeconds", warm_start.max_age_seconds, 0, limit::WEEK_SECONDS),
    ] {
        in_range(&format!("spec.{field}"), value, least, most, violations);
    }
    memory("spec.cache.memory", cache.memory_bytes, 0, "0", violations);
    memory(
        "spec.limits.tcpBuffers",
        limits.tcp_buffer_bytes,
        limit::TCP_BUFFERS_MIN,
        "1Mi",
        violations,
    );
}

fn lists(config: &Config, violations: &mut Violations) {
    let Config { exposure, .. } = config;
    for (field, count, most) in [
        ("reverseCIDRs", config.reverse_cidrs.len(), limit::REVERSE_CIDRS),
        ("access.clients", config.access.clients.len(), limit::CLIENTS),
        ("exposure.namespaces", exposure.namespaces.len(), limit::NAMESPACES),
        ("stubDomains", config.stub_domains.len(), limit::STUB_DOMAINS),
        ("metrics.probes", config.metrics.probes.len(), limit::PROBES),
        ("federations", config.federations.len(), limit::FEDERATIONS),
    ] {
        if count > most {
            violations.add(
                format!("spec.{field}"),
                Reason::TooMany,
                format!("{count} entries; at most {most} are served"),
            );
        }
    }
    let shown = &config.metrics.compatibility;
    for (index, names) in shown.iter().enumerate() {
        if shown[..index].contains(names) {
            let message = format!("{names:?} is there twice: leave one out");
            violations.add(
                format!("spec.metrics.compatibility[{index}]"),
                Reason::Duplicate,
                message,
            );
        }
    }
    let extra = config.hosts.len() + config.records.len();
    if extra > limit::EXTRA_RECORDS {
        let message = format!(
            "{} hosts and {} records are {extra} together; at most {} are served: use a wildcard, or a DNS server of \
             their own behind a stub domain",
            config.hosts.len(),
            config.records.len(),
            limit::EXTRA_RECORDS
        );
        violations.add("spec.hosts", Reason::TooMany, message);
    }
}

fn records(config: &Config, violations: &mut Violations) {
    for (index, host) in config.hosts.iter().enumerate() {
        let field = format!("spec.hosts[{index}]");
        some_of("addresses", &field, host.addresses.len(), limit::RECORD_ADDRESSES, violations);
        in_range(
            &format!("{field}.ttlSeconds"),
            host.ttl_seconds,
            0,
            limit::RECORD_TTL_SECONDS,
            violations,
        );
    }
    for (index, record) in config.records.iter().enumerate() {
        let field = format!("spec.records[{index}]");
        in_range(
            &format!("{field}.ttlSeconds"),
            record.ttl_seconds,
            0,
            limit::RECORD_TTL_SECONDS,
            violations,
        );
        match &record.data {
            RecordData::A(addresses) => {
                some_of("addresses", &field, addresses.len(), limit::RECORD_ADDRESSES, violations);
            }
            RecordData::Aaaa(addresses) => {
                some_of("addresses", &field, addresses.len(), limit::RECORD_ADDRESSES, violations);
            }
            RecordData::Cname(_) | RecordData::Dname(_) => {}
            RecordData::Txt(strings) => {
                some_of("strings", &field, strings.len(), limit::TEXT_STRINGS, violations);
                for (index, text) in
                    strings.iter().enumerate().filter(|(_, text)| text.len() > limit::TEXT_OCTETS)
                {
                    let message = format!(
                        "{} octets; a string of a TXT record has at most {}: split it in several",
                        text.len(),
                        limit::TEXT_OCTETS
                    );
                    violations.add(format!("{field}.strings[{index}]"), Reason::TooLong, message);
                }
            }
            RecordData::Srv(services) => {
                some_of("services", &field, services.len(), limit::RECORD_ADDRESSES, violations);
            }
        }
    }
}

fn group_in_bounds(group: &Group, field: &str, violations: &mut Violations) {
    some_of("servers", field, group.servers.len(), limit::SERVERS, violations);
    options_in_range(&group.options, field, violations);
}

fn options_in_range(options: &GroupOptions, field: &str, violations: &mut Violations) {
    in_range(
        &format!("{field}.limits.inFlight"),
        options.limits.in_flight,
        1,
        limit::IN_FLIGHT,
        violations,
    );
    if let Some(seconds) = options.cache.max_ttl_seconds {
        in_range(
            &format!("{field}.cache.maxTTLSeconds"),
            seconds,
            0,
            limit::RECORD_TTL_SECONDS,
            violations,
        );
    }
}

/// A list that needs an entry and has a bound.
fn some_of(what: &str, field: &str, count: usize, most: usize, violations: &mut Violations) {
    let field = format!("{field}.{what}");
    if count == 0 {
        violations.add(field, Reason::Missing, format!("write 1-{most} {what}"));
    } else if count > most {
        violations.add(
            field,
            Reason::TooMany,
            format!("{count} {what}; at most {most} are served"),
        );
    }
}

/// A number that has a range.
pub(super) fn in_range(
    field: &str,
    value: u32,
    least: u32,
    most: u32,
    violations: &mut Violations,
) {
    if !(least..=most).contains(&value) {
        violations.add(field, Reason::OutOfRange, format!("{value} is not in {least}-{most}"));
    }
}

fn memory(field: &str, bytes: u64, least: u64, least_text: &str, violations: &mut Violations) {
    if !(least..=limit::MEMORY_BYTES).contains(&bytes) {
        violations.add(
            field,
            Reason::OutOfRange,
            format!("{bytes} bytes are not in {least_text}-64Gi"),
        );
    }
}

/// Adds that a list is too long.
pub(super) fn at_most(count: usize, most: usize, field: &str, violations: &mut Violations) {
    if count > most {
        violations.add(field, Reason::TooMany, format!("{count} entries; at most {most} are read"));
    }
}
