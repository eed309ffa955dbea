//! The options in the body of one `forward`: each becomes a setting of the group, or a line of the report says why not.

use std::net::IpAddr;

use crds::config::Transport;
use crds::{bounds, defaults};

use super::super::parse::Directive;
use super::super::scope::Scope;
use super::{Read, is_for, tls};
use crate::import::Refused;
use crate::import::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};
use crate::import::values::{is_at_or_below, list, policy, seconds, shared_places, zones};

/// Reads one option: what becomes of it if its `forward` is possible.
///
/// # Errors
/// CoreDNS would refuse it.
pub(super) fn convert(
    directive: &Directive,
    line: &Directive,
    read: &mut Read,
    scope: &Scope<'_>,
) -> Result<(Outcome, String), Refused> {
    well_formed(line)?;
    option(directive, line, read, scope)
}

/// Checks the words of an option without a counterpart, as CoreDNS would.
fn well_formed(line: &Directive) -> Result<(), Refused> {
    let first = line.args.first().map(String::as_str);
    match line.name.as_str() {
        "expire" | "health_check" | "max_age" if first.and_then(seconds).is_none() => {
            Err(line.refused("a duration such as 10s must follow"))
        }
        "read_timeout" if first.and_then(seconds).is_none_or(|it| it == 0) => {
            Err(line.refused("a duration such as 2s must follow"))
        }
        "doh_method" if !first.is_some_and(|it| ["GET", "POST"].contains(&it)) => {
            Err(line.refused("write GET or POST"))
        }
        "source_address" if first.and_then(|it| it.parse::<IpAddr>().ok()).is_none() => {
            Err(line.refused("an IP address must follow"))
        }
        "max_fails" | "max_connect_attempts" | "max_idle_conns"
            if first.and_then(|text| text.parse::<u32>().ok()).is_none() =>
        {
            Err(line.refused("a number must follow"))
        }
        "except" | "next" | "failover" if first.is_none() => {
            Err(line.refused("one word or more must follow"))
        }
        "force_tcp" | "prefer_udp" | "failfast_all_unhealthy_upstreams" | "next_on_nodata"
            if first.is_some() =>
        {
            Err(line.refused("nothing may follow"))
        }
        _ => Ok(()),
    }
}

fn option(
    directive: &Directive,
    line: &Directive,
    read: &mut Read,
    scope: &Scope<'_>,
) -> Result<(Outcome, String), Refused> {
    let first = line.args.first().map(String::as_str);
    Ok(match line.name.as_str() {
        "policy" => {
            let Some(chosen) = first.and_then(policy) else {
                return Err(line.refused("write random, round_robin or sequential"));
            };
            read.policy = chosen;
            (Kept, format!("policy: {chosen:?}"))
        }
        "force_tcp" => force_tcp(read),
        "prefer_udp" => (NotNeeded, "UDP is asked first, and TCP where a reply is truncated".to_owned()),
        "max_concurrent" => max_concurrent(line, read)?,
        "except" => except(directive, line, scope),
        "tls_servername" => {
            let Some(name) = first else { return Err(line.refused("one name must follow")) };
            tls::names(&mut read.servers, name)
        }
        "tls" => tls::authorities(line, &read.servers, &mut read.authorities, scope.look)?,
        "health_check" | "max_fails" | "expire" | "max_age" | "max_connect_attempts"
        | "max_idle_conns" | "read_timeout" => (
            Changed,
            "servers that are silent or fail are found out, asked last and probed, without settings".to_owned(),
        ),
        "next" | "failover" => after_replies(line),
        "next_on_nodata" => (NotPossible, "an answer without data is final".to_owned()),
        "doh_method" => (NotNeeded, "how a question is sent over HTTPS has no setting".to_owned()),
        "source_address" => (
            NotPossible,
            "questions leave from the address that the system chooses: allow the pods at these servers".to_owned(),
        ),
        "failfast_all_unhealthy_upstreams" => (
            Changed,
            "servers are asked also while all seem down; expired answers are served meanwhile".to_owned(),
        ),
        "resolver" | "resolve_interval" => {
            (NotNeeded, "servers are written by their addresses, so none is looked up".to_owned())
        }
        "protocol" | "spray" | "fail_timeout" => {
            (Changed, "set by the transport and the policy of the servers".to_owned())
        }
        _ if directive.name == "proxy" => {
            (NotPossible, "this program does not know this option of proxy".to_owned())
        }
        _ => return Err(line.refused("CoreDNS does not know this option of forward")),
    })
}

/// Changes the servers that are written; those of the node are not known here.
fn force_tcp(read: &mut Read) -> (Outcome, String) {
    if read.servers.is_empty() && read.has_resolv_conf {
        let message = "the servers of the node are asked over UDP first: write them in spec.upstreams.servers with transport: TCP";
        return (NotPossible, message.to_owned());
    }
    let mut is_any = false;
    for server in read.servers.iter_mut().filter(|it| it.transport == Transport::Udp) {
        server.transport = Transport::Tcp;
        is_any = true;
    }
    match is_any {
        true => (Kept, "transport: TCP".to_owned()),
        false => (NotNeeded, "encrypted servers are not asked over UDP".to_owned()),
    }
}

fn max_concurrent(line: &Directive, read: &mut Read) -> Result<(Outcome, String), Refused> {
    let number = line.args.first().and_then(|text| text.parse::<u32>().ok());
    let Some(number) = number else { return Err(line.refused("a number must follow")) };
    if number == 0 {
        let most = defaults::GROUP_IN_FLIGHT;
        return Ok((
            Changed,
            format!("there is always a limit: limits.inFlight, by default {most}"),
        ));
    }
    let number = number.min(bounds::IN_FLIGHT);
    read.in_flight = Some(number);
    Ok((
        Changed,
        format!(
            "limits: {{inFlight: {number}}}; more are answered SERVFAIL, not REFUSED{}",
            shared_places(number)
        ),
    ))
}

/// `failover`: after which replies another server is asked.
fn after_replies(line: &Directive) -> (Outcome, String) {
    let is_ours =
        |code: &String| ["SERVFAIL", "REFUSED"].iter().any(|it| code.eq_ignore_ascii_case(it));
    let outcome = if line.args.iter().all(is_ours) { Changed } else { NotPossible };
    let message = "the next server of the list is asked after SERVFAIL, REFUSED and silence; other replies are final";
    (outcome, message.to_owned())
}

/// Zones whose names are not forwarded: those of another server block, or of a longer `forward` beside this one, are not
/// forwarded here either.
fn except(of: &Directive, line: &Directive, scope: &Scope<'_>) -> (Outcome, String) {
    let from = of.args.first().map_or(Vec::new(), |from| zones(from));
    let is_longer = |beside: &&Directive| {
        let zones = beside.args.first().map_or(Vec::new(), |from| zones(from));
        zones != from && zones.iter().all(|zone| from.iter().all(|from| is_at_or_below(zone, from)))
    };
    let (mut reasons, mut lost) = (Vec::new(), Vec::new());
    for zone in line.args.iter().flat_map(|zone| zones(zone)) {
        let mut beside = scope.directives.iter().filter(is_longer);
        if scope.draft.is_ours(&zone) {
            reasons.push("names of the cluster domain are never forwarded".to_owned());
        } else if let Some(why) = scope.elsewhere(&zone) {
            reasons.push(format!("{zone}: {why}"));
        } else if let Some(beside) = beside.find(|beside| is_for(beside, &zone)) {
            reasons.push(format!("{zone}: the line {} is for it", beside.text()));
        } else {
            lost.push(zone);
        }
    }
    reasons.dedup();
    if lost.is_empty() {
        return (NotNeeded, reasons.join("; "));
    }
    let message = format!(
        "names in {} would be forwarded too: give them a stub domain with the servers that know them",
        list(&lost)
    );
    reasons.insert(0, message);
    (NotPossible, reasons.join("; "))
}
