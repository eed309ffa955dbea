//! Limits of forwarded queries that other limits bound first (FW52): one that is raised alone changes nothing. Defaults fit each
//! other, so they are never named.

use crds::ClusterDNS;
use crds::defaults::{GROUP_IN_FLIGHT, IN_FLIGHT, IN_FLIGHT_PER_CLIENT};
use crds::v1alpha1::GroupLimits;
use crds::without_effect::WithoutEffect;

const NO_SERVER: &str = "with none: true and without stub domains no server is asked";

/// The limit of one group of servers.
struct Group {
    field: String,
    limit: u32,
}

/// The limits that have no effect beside the others.
pub(super) fn of_places(dns: &ClusterDNS) -> Vec<WithoutEffect> {
    let limits = dns.spec.limits.clone().unwrap_or_default();
    let (total, of_client) = (limits.in_flight, limits.in_flight_per_client);
    let groups = groups(dns);
    let mut found = Vec::new();
    let mut name = |field: &str, instead: String| {
        found.push(WithoutEffect { field: field.to_owned(), instead: instead.into() });
    };
    if groups.is_empty() {
        if total != IN_FLIGHT {
            name("spec.limits.inFlight", NO_SERVER.to_owned());
        }
        if of_client != IN_FLIGHT_PER_CLIENT {
            name("spec.limits.inFlightPerClient", NO_SERVER.to_owned());
        }
        return found;
    }
    let (sum, most) = in_groups(&groups);
    // Where a group has a limit that people wrote, they may want places that no group uses.
    let is_alone = groups.iter().all(|group| group.limit == GROUP_IN_FLIGHT);
    if total > IN_FLIGHT && u64::from(total) > most && (is_alone || most <= IN_FLIGHT.into()) {
        name(
            "spec.limits.inFlight",
            format!(
                "the groups of servers may have {sum} queries in progress together: raise limits.inFlight of spec.upstreams or of \
                 the stub domain too"
            ),
        );
    }
    // The data plane rounds up.
    let half = total.div_ceil(2);
    let (bound, why) = match groups.len() {
        1 => (total, format!("spec.limits.inFlight, {total}, bounds all queries")),
        _ => (half, format!("beside others a group gets half of spec.limits.inFlight, {half}")),
    };
    for group in &groups {
        if group.limit != GROUP_IN_FLIGHT && group.limit > bound {
            name(&group.field, format!("{why}: raise that one too, or write at most {bound} here"));
        }
    }
    let in_group = |group: &Group| u64::from(group.limit.min(bound).div_ceil(2));
    let most = groups.iter().map(in_group).sum::<u64>().min(half.into());
    if of_client != IN_FLIGHT_PER_CLIENT && u64::from(of_client) > most {
        name(
            "spec.limits.inFlightPerClient",
            format!(
                "one client gets half of the places of each group and half of spec.limits.inFlight, {most} here: raise \
                 limits.inFlight of the group and spec.limits.inFlight too"
            ),
        );
    }
    found
}

/// Those of the servers for all names and of the stub domains, as far as there are such groups.
fn groups(dns: &ClusterDNS) -> Vec<Group> {
    let limit = |limits: Option<&GroupLimits>| limits.map_or(GROUP_IN_FLIGHT, |it| it.in_flight);
    let upstreams = dns.spec.upstreams.as_ref();
    let is_none = upstreams.is_some_and(|it| it.none == Some(true));
    let default = Group {
        field: "spec.upstreams.limits.inFlight".to_owned(),
        limit: limit(upstreams.and_then(|it| it.limits.as_ref())),
    };
    let stubs = dns.spec.stub_domains.iter().flatten().enumerate().map(|(index, stub)| Group {
        field: format!("spec.stubDomains[{index}].limits.inFlight"),
        limit: limit(stub.limits.as_ref()),
    });
    Some(default).filter(|_| !is_none).into_iter().chain(stubs).collect()
}

/// How many queries all groups together may have in progress, and from which limit of all on each group always gets its own:
/// beside others it may hold no more places than are free.
fn in_groups(groups: &[Group]) -> (u64, u64) {
    let sum = groups.iter().map(|group| u64::from(group.limit)).sum();
    let largest = groups.iter().map(|group| u64::from(group.limit)).max().unwrap_or_default();
    (sum, if groups.len() > 1 { sum + largest } else { sum })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{dns, fields};

    const STUB: &str = "{domain: a.example, servers: [{address: 192.0.2.1}]}";

    #[test]
    fn o18_limits_of_forwarding_that_others_bound_first_are_named() {
        let (total, client) = ("limits.inFlight", "limits.inFlightPerClient");
        let of_upstreams = "upstreams.limits.inFlight";
        let of_stub = "stubDomains[0].limits.inFlight";
        for (spec, expected) in [
            ("limits: {inFlight: 20000}", &[total][..]),
            ("limits: {inFlight: 20000}, stubDomains: [STUB]", &[total]),
            ("limits: {inFlight: 6000}, stubDomains: [STUB]", &[]),
            ("limits: {inFlight: 20000}, upstreams: {limits: {inFlight: 1000}}", &[total]),
            ("limits: {inFlight: 20000}, upstreams: {limits: {inFlight: 10000}}", &[]),
            ("limits: {inFlight: 512}", &[]),
            ("limits: {inFlight: 512, inFlightPerClient: 256}", &[]),
            ("upstreams: {limits: {inFlight: 4096}}", &[]),
            ("upstreams: {limits: {inFlight: 20000}}", &[of_upstreams]),
            ("upstreams: {limits: {inFlight: 3000}}, stubDomains: [STUB]", &[of_upstreams]),
            ("upstreams: {limits: {inFlight: 900}}, limits: {inFlight: 500}", &[of_upstreams]),
            ("upstreams: {none: true}, stubDomains: [STUB9]", &[of_stub]),
            (
                "upstreams: {limits: {inFlight: 20000}}, limits: {inFlight: 40000}, stubDomains: [STUB]",
                &[],
            ),
            ("limits: {inFlightPerClient: 4096}", &[client]),
            ("limits: {inFlightPerClient: 2048}, stubDomains: [STUB]", &[]),
            ("limits: {inFlightPerClient: 2049}, stubDomains: [STUB]", &[client]),
            ("limits: {inFlightPerClient: 300, inFlight: 500}", &[client]),
            (
                "limits: {inFlightPerClient: 4096, inFlight: 8192}, upstreams: {limits: {inFlight: 8192}}",
                &[],
            ),
            ("upstreams: {none: true}, limits: {inFlight: 9}", &[total]),
            ("upstreams: {none: true}, limits: {inFlightPerClient: 9}", &[client]),
        ] {
            let large = STUB.replace("servers", "limits: {inFlight: 9000}, servers");
            let spec = format!("{{{spec}}}").replace("STUB9", &large).replace("STUB", STUB);
            assert_eq!(fields(&of_places(&dns(&spec))), expected, "{spec}");
        }
    }

    #[test]
    fn o18_a_limit_of_forwarding_without_effect_says_what_bounds_it() {
        let instead = |spec: &str| of_places(&dns(spec)).remove(0).instead;
        for (spec, words) in [
            ("{limits: {inFlight: 20000}}", "may have 2048 queries in progress together"),
            ("{upstreams: {limits: {inFlight: 20000}}}", "write at most 4096 here"),
            ("{limits: {inFlightPerClient: 4096}}", "1024 here: raise"),
        ] {
            assert!(instead(spec).contains(words), "{words}: {}", instead(spec));
        }
    }
}
