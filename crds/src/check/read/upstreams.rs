//! Upstreams and stub domains: one choice of a union, ports filled in by transport.

use super::addresses::address;
use crate::check::violations::{Reason, Violations, shown};
use crate::config;
use crate::rrtype::{self, RrType};
use crate::v1alpha1;

/// Where other names go; one choice.
pub(super) fn upstreams(
    upstreams: Option<&v1alpha1::Upstreams>,
    violations: &mut Violations,
) -> config::Upstreams {
    let Some(upstreams) = upstreams else { return config::Upstreams::default() };
    let options = group_options(
        upstreams.policy,
        upstreams.case_randomisation,
        upstreams.limits.as_ref(),
        upstreams.cache.as_ref(),
        withheld(upstreams.withheld_types.as_deref(), "spec.upstreams", violations),
    );
    let from_resolv_conf = upstreams.from_resolv_conf == Some(true);
    let none = upstreams.none == Some(true);
    if usize::from(upstreams.servers.is_some()) + usize::from(from_resolv_conf) + usize::from(none)
        > 1
    {
        let message = "choose one of servers, fromResolvConf and none: leave the others out";
        violations.add("spec.upstreams", Reason::MoreThanOneMember, message);
    }
    match &upstreams.servers {
        Some(written) => config::Upstreams::Servers(config::Group {
            servers: servers(written, "spec.upstreams", violations),
            options,
        }),
        None if none => config::Upstreams::None,
        None => config::Upstreams::FromResolvConf(options),
    }
}

/// A suffix and its servers.
pub(super) fn stub_domain(
    stub: &v1alpha1::StubDomain,
    index: usize,
    violations: &mut Violations,
) -> config::StubDomain {
    let field = format!("spec.stubDomains[{index}]");
    config::StubDomain {
        domain: stub.domain.clone(),
        group: config::Group {
            servers: servers(&stub.servers, &field, violations),
            options: group_options(
                stub.policy,
                stub.case_randomisation,
                stub.limits.as_ref(),
                stub.cache.as_ref(),
                withheld(stub.withheld_types.as_deref(), &field, violations),
            ),
        },
    }
}

fn group_options(
    policy: config::Policy,
    case_randomisation: bool,
    limits: Option<&v1alpha1::GroupLimits>,
    cache: Option<&v1alpha1::GroupCache>,
    withheld_types: Vec<RrType>,
) -> config::GroupOptions {
    config::GroupOptions {
        policy,
        case_randomisation,
        limits: limits.map_or_else(config::GroupLimits::default, |limits| config::GroupLimits {
            in_flight: limits.in_flight,
        }),
        cache: config::GroupCache {
            max_ttl_seconds: cache.and_then(|cache| cache.max_ttl_seconds),
        },
        withheld_types,
    }
}

/// The texts that are record types; each other one becomes a violation.
fn withheld(written: Option<&[String]>, field: &str, violations: &mut Violations) -> Vec<RrType> {
    let read = |(index, text): (usize, &String)| {
        let read = rrtype::read(text);
        if read.is_none() {
            let message = format!(
                "{} is no record type: write one such as AAAA or HTTPS, and others as TYPE and their number",
                shown(text)
            );
            let field = format!("{field}.withheldTypes[{index}]");
            violations.add(field, Reason::InvalidType, message);
        }
        read.map(RrType)
    };
    written.unwrap_or_default().iter().enumerate().filter_map(read).collect()
}

fn servers(
    written: &[v1alpha1::Server],
    field: &str,
    violations: &mut Violations,
) -> Vec<config::Server> {
    let read = |(index, server): (usize, &v1alpha1::Server)| {
        let field = format!("{field}.servers[{index}].address");
        Some(config::Server {
            ip: address(&server.address, &field, violations)?,
            port: server.port.unwrap_or(server.transport.default_port()),
            transport: server.transport,
            tls: server.tls.as_ref().map(|tls| config::ServerTls {
                server_name: tls.server_name.clone(),
                ca_bundle: tls.ca_bundle.as_ref().map(|bundle| config::CaBundle::ConfigMap {
                    name: bundle.name.clone(),
                    key: bundle.key.clone(),
                }),
            }),
        })
    };
    written.iter().enumerate().filter_map(read).collect()
}
