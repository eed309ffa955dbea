//! Directives with one value: `health`, `bufsize`, `prometheus`, `chaos`, `nsid`, `bind`.

use std::net::IpAddr;

use crds::{ClusterDNSSpec, bounds, defaults};

use super::parse::Directive;
use super::scope::Scope;
use crate::import::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};
use crate::import::values::{list, seconds};
use crate::import::{Refused, per_node};

/// Adds a directive that is one setting to the draft.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) -> Result<(), Refused> {
    let (outcome, message) = match directive.name.as_str() {
        "health" => return health(directive, scope),
        "bufsize" => bufsize(directive, scope)?,
        "prometheus" => prometheus(),
        "bind" => bind(directive, scope),
        "chaos" => (
            Changed,
            "the names of CHAOS are answered with the version of ClusterDNS (spec.identity.chaos)"
                .to_owned(),
        ),
        _ => (Changed, "NSID is the name of the pod (spec.identity.nsid)".to_owned()),
    };
    scope.say(directive, outcome, message);
    for line in &directive.body {
        scope.say_of(directive, line, outcome, format!("as {} above", directive.name));
    }
    Ok(())
}

fn health(directive: &Directive, scope: &mut Scope<'_>) -> Result<(), Refused> {
    scope.say(directive, NotNeeded, "the pods have /livez on port 9153, and kubelets ask it");
    for line in &directive.body {
        if line.name != "lameduck" {
            return Err(line.refused("CoreDNS does not know this option of health"));
        }
        // CoreDNS takes a negative duration for none.
        let lameduck = line.args.first().and_then(|text| seconds(text)).unwrap_or_default();
        let drain = lameduck.clamp(defaults::DRAIN_SECONDS, bounds::DRAIN_SECONDS);
        let message = match lameduck > defaults::DRAIN_SECONDS {
            false => format!(
                "a pod that is stopped answers everything for {drain} s, until clients are gone"
            ),
            true => {
                scope.draft.spec.drain_seconds = scope.draft.spec.drain_seconds.max(drain);
                format!("spec.drainSeconds: {drain}, in which everything is answered")
            }
        };
        scope.say_of(directive, line, Changed, message);
    }
    Ok(())
}

fn bufsize(directive: &Directive, scope: &mut Scope<'_>) -> Result<(Outcome, String), Refused> {
    let number = match directive.args.first() {
        None => defaults::UDP_PAYLOAD_BYTES,
        Some(text) => text
            .parse::<u32>()
            .ok()
            .filter(|number| (512..=4096).contains(number))
            .ok_or_else(|| directive.refused("a number, 512-4096, must follow"))?,
    };
    let known = scope.draft.spec.limits.as_ref().map(|limits| limits.udp_payload_bytes);
    if let Some(known) = known.filter(|known| *known != number) {
        let message = format!("spec.limits.udpPayloadBytes is {known} already, for all names");
        return Ok((NotPossible, message));
    }
    let change = |spec: &mut ClusterDNSSpec| {
        spec.limits.get_or_insert_default().udp_payload_bytes = number;
    };
    Ok(match scope.draft.change(change) {
        Ok(()) => (Kept, format!("spec.limits.udpPayloadBytes: {number}")),
        Err(why) => (NotPossible, why),
    })
}

fn prometheus() -> (Outcome, String) {
    (
        Changed,
        "port 9153, with the names and labels of CoreDNS (spec.metrics.compatibility); go_* and a few others have no \
         counterpart: docs/metrics.md says what to use in place of each"
            .to_owned(),
    )
}

/// NodeLocal DNSCache listens on a link-local address of each node.
fn bind(directive: &Directive, scope: &mut Scope<'_>) -> (Outcome, String) {
    let is_link_local = |text: &String| match text.parse() {
        Ok(IpAddr::V4(ip)) => ip.is_link_local(),
        Ok(IpAddr::V6(ip)) => ip.is_unicast_link_local(),
        Err(_) => text == "__PILLAR__LOCAL__DNS__",
    };
    if !directive.args.iter().any(is_link_local) {
        return (NotNeeded, "pods listen on all of their addresses".to_owned());
    }
    let addresses = list(&directive.args);
    match per_node::add(scope.draft) {
        Ok(message) => (
            Changed,
            format!(
                "{message}; nothing listens on {addresses}: kubelets that name one of these need the address of the Service, and \
                 pods keep what they have until they start again, so the cache goes last: docs/switching.md (Leave NodeLocal \
                 DNSCache)"
            ),
        ),
        Err(why) => (NotPossible, why),
    }
}
