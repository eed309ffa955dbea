//! `kubernetes`: the names of the cluster. `beside` has those in server blocks that are not asked for these.

mod beside;

use crds::config::{EndpointNames, LabelSelector, PodRecords};
use crds::{ClusterDNSSpec, bounds};

use super::parse::Directive;
use super::scope::Scope;
use crate::import::Refused;
use crate::import::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};
use crate::import::selector::selector;
use crate::import::values::{REVERSE_TREES, is_reverse, list, zones as zones_of};

/// Converts it. `zones` are those that it serves.
pub(super) fn convert(
    directive: &Directive,
    zones: &[String],
    scope: &mut Scope<'_>,
) -> Result<(), Refused> {
    if zones.iter().all(|zone| is_reverse(zone)) {
        return Err(directive.refused("a zone that is not reverse must be among its zones"));
    }
    let has = |name: &str| directive.body.iter().any(|line| line.name == name);
    if has("namespaces") && has("namespace_labels") {
        return Err(directive.refused("namespaces and namespace_labels together: keep one"));
    }
    let is_ours = |zone: &String| zone.is_empty() || *zone == scope.draft.spec.domain;
    if !zones.iter().any(is_ours) {
        return another_cluster(directive, zones, scope);
    }
    if let Some(first) = beside::of_domain(scope)
        && !std::ptr::eq(first, directive)
    {
        well_formed(directive, scope)?;
        beside::convert(directive, zones, first, scope);
        return Ok(());
    }
    head(directive, zones, scope);
    // CoreDNS answers no names of pods where nothing is written.
    if !directive.body.iter().any(|line| line.name == "pods") {
        let disabled = |spec: &mut ClusterDNSSpec| spec.pod_records = PodRecords::Disabled;
        let message = "spec.podRecords: Disabled, because no line pods is written";
        kept(directive, directive, disabled, message, scope);
    }
    ranges(directive, zones, scope);
    for line in &directive.body {
        body(directive, line, scope)?;
    }
    Ok(())
}

/// An error for an option that CoreDNS refuses, where none of them changes the draft.
fn well_formed(directive: &Directive, scope: &Scope<'_>) -> Result<(), Refused> {
    let (others, blocks) = (&[], &[]);
    let (mut unused, directives) = (scope.draft.empty(), scope.directives);
    let (zones, led, look, draft) = (Vec::new(), scope.led, scope.look, &mut unused);
    let mut scope = Scope { zones, others, directives, blocks, led, look, draft };
    directive.body.iter().try_for_each(|line| body(directive, line, &mut scope))
}

/// Its options are for another domain than that of the cluster.
fn another_cluster(
    directive: &Directive,
    zones: &[String],
    scope: &mut Scope<'_>,
) -> Result<(), Refused> {
    let others: Vec<String> = zones.iter().filter(|zone| !is_reverse(zone)).cloned().collect();
    scope.say(directive, NotPossible, one_domain(&others));
    for line in &directive.body {
        scope.say_of(directive, line, NotPossible, "for the other cluster domain only");
    }
    Ok(())
}

fn one_domain(others: &[String]) -> String {
    format!(
        "one ClusterDNS serves one cluster domain: write a second one for {}, with a Service of its own, and a stub \
         domain to it in the first",
        list(others)
    )
}

fn head(directive: &Directive, zones: &[String], scope: &mut Scope<'_>) {
    let domain = scope.draft.spec.domain.clone();
    let others: Vec<String> =
        zones.iter().filter(|zone| **zone != domain && !is_reverse(zone)).cloned().collect();
    let own = format!("spec.domain: {domain}, and the reverse names of its addresses");
    // A15: they are answered in any zone, before stub domains and upstreams.
    let (outcome, message) = match REVERSE_TREES.iter().all(|tree| beside::has_reverse(tree, scope))
    {
        true => (Kept, own),
        false => (
            Changed,
            format!(
                "{own}: here those of all Services and endpoints, wherever their addresses are, where CoreDNS asked other \
                 servers for the reverse names outside of its zones"
            ),
        ),
    };
    scope.say(directive, outcome, message);
    if others == [""] {
        let message = "the root as a cluster domain: names that are not in the cluster are for spec.upstreams here";
        scope.say(directive, Changed, message);
    } else if !others.is_empty() {
        scope.say(directive, NotPossible, one_domain(&others));
    }
}

/// Ranges of addresses are reverse zones in which CoreDNS denies what it does not know, unless it falls through.
fn ranges(directive: &Directive, zones: &[String], scope: &mut Scope<'_>) {
    let is_asked = |range: &&String| zones_of(range).iter().any(|it| beside::is_asked(it, scope));
    let ranges = directive.args.iter().filter(|arg| arg.parse::<ipnet::IpNet>().is_ok());
    let ranges: Vec<String> = ranges.filter(is_asked).cloned().collect();
    if directive.body.iter().any(|line| line.name == "fallthrough") {
        return;
    }
    if ranges.is_empty() {
        if zones.iter().any(|zone| is_reverse(zone) && beside::is_asked(zone, scope)) {
            let message = "reverse names that are not of this cluster go to the upstreams; without fallthrough they were \
                           denied: write their ranges in spec.reverseCIDRs";
            scope.say(directive, Changed, message);
        }
        return;
    }
    let message = format!("spec.reverseCIDRs: [{}]", list(&ranges));
    // Several server blocks may have ranges of their own.
    let change = |spec: &mut ClusterDNSSpec| {
        let known = spec.reverse_cidrs.get_or_insert_default();
        let new: Vec<&String> = ranges.iter().filter(|it| !known.contains(it)).collect();
        known.extend(new.into_iter().cloned());
    };
    kept(directive, directive, change, &message, scope);
}

fn body(directive: &Directive, line: &Directive, scope: &mut Scope<'_>) -> Result<(), Refused> {
    let args = &line.args;
    let one = || match &args[..] {
        [one] => Ok(one.as_str()),
        _ => Err(line.refused("one word must follow")),
    };
    match line.name.as_str() {
        "pods" => {
            let pods = match one()? {
                "disabled" => PodRecords::Disabled,
                "insecure" => PodRecords::Insecure,
                "verified" => PodRecords::Verified,
                _ => return Err(line.refused("write disabled, insecure or verified")),
            };
            let message = format!("spec.podRecords: {pods:?}");
            kept(directive, line, |spec| spec.pod_records = pods, &message, scope);
        }
        "ttl" => {
            let ttl = one()?.parse::<u32>().ok().filter(|ttl| *ttl <= bounds::TTL_SECONDS);
            let Some(ttl) = ttl else { return Err(line.refused("write seconds, 0-3600")) };
            let message = format!("spec.ttlSeconds: {ttl}");
            kept(directive, line, |spec| spec.ttl_seconds = ttl, &message, scope);
        }
        "endpoint_pod_names" => {
            let change = |spec: &mut ClusterDNSSpec| spec.endpoint_names = EndpointNames::PodName;
            kept(directive, line, change, "spec.endpointNames: PodName", scope);
        }
        "namespaces" if !args.is_empty() => {
            let mut names: Vec<String> = Vec::new();
            for name in args {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            let change = |spec: &mut ClusterDNSSpec| {
                spec.exposure.get_or_insert_default().namespaces = Some(names.clone());
            };
            let message = "spec.exposure.namespaces; hidden names are hidden in reverse too, where CoreDNS shows them";
            changed(directive, line, Changed, change, message, scope);
        }
        "labels" | "namespace_labels" => labels(directive, line, scope)?,
        "ignore" => {
            if one()? != "empty_service" {
                return Err(line.refused("write empty_service"));
            }
            let change = |spec: &mut ClusterDNSSpec| spec.hide_empty_services = true;
            kept(directive, line, change, "spec.hideEmptyServices: true", scope);
        }
        "fallthrough" => fallthrough(directive, line, scope),
        name => {
            let Some((outcome, message)) = other(name) else {
                return Err(line.refused("CoreDNS does not know this option of kubernetes"));
            };
            scope.say_of(directive, line, outcome, message);
        }
    }
    Ok(())
}

fn labels(directive: &Directive, line: &Directive, scope: &mut Scope<'_>) -> Result<(), Refused> {
    let text = line.args.join(" ");
    let Some(read) = selector(&text) else { return Err(line.refused("not a label selector")) };
    let is_namespaces = line.name == "namespace_labels";
    let change = |spec: &mut ClusterDNSSpec| {
        let exposure = spec.exposure.get_or_insert_default();
        let field: &mut Option<LabelSelector> = match is_namespaces {
            true => &mut exposure.namespace_selector,
            false => &mut exposure.service_selector,
        };
        *field = Some(read.clone());
    };
    let message = match is_namespaces {
        true => {
            "spec.exposure.namespaceSelector; hidden names are hidden in reverse too, where CoreDNS shows them"
        }
        false => {
            "spec.exposure.serviceSelector, for Services: CoreDNS wants these labels at EndpointSlices and Pods too"
        }
    };
    changed(directive, line, Changed, change, message, scope);
    Ok(())
}

const FALLS_THROUGH: &str = "reverse names that are not of this cluster go to the upstreams; spec.reverseCIDRs would end that";

fn fallthrough(directive: &Directive, line: &Directive, scope: &mut Scope<'_>) {
    let is_only_reverse = !line.args.is_empty() && line.args.iter().all(|zone| is_reverse(zone));
    let (outcome, message) = match is_only_reverse {
        true => (Kept, FALLS_THROUGH),
        false => (
            NotPossible,
            "a name of the cluster domain that does not exist is denied and never asked elsewhere: write such names as \
             spec.hosts or spec.records with overrideClusterZone: true, or use another domain for them",
        ),
    };
    scope.say_of(directive, line, outcome, message);
}

/// Options with nothing to convert.
fn other(name: &str) -> Option<(Outcome, &'static str)> {
    Some(match name {
        "endpoint" | "tls" | "kubeconfig" => {
            (NotNeeded, "pods reach the API server by their service account")
        }
        "apiserver_qps" | "apiserver_burst" | "apiserver_max_inflight" => {
            (NotNeeded, "one list and one watch for each kind need no limit")
        }
        "resyncperiod" => (NotNeeded, "changes arrive by watches, without resynchronisation"),
        "startup_timeout" => (NotNeeded, "a pod is ready when everything has been listed"),
        "upstream" => (NotNeeded, "targets of CNAME records are always looked up"),
        "noendpoints" => (
            NotPossible,
            "Endpoints are always answered: headless Services have no addresses without them",
        ),
        "zonal" => {
            (NotPossible, "Endpoints have no names by their zone: ask for the name of the Service")
        }
        "multicluster" => (
            NotPossible,
            "the zone of several clusters is not served: keep that server for it and name it as a stub domain",
        ),
        "transfer" => (NotPossible, "zone transfers are refused: secondary servers cannot be fed"),
        _ => return None,
    })
}

/// Makes a change after which it is as before, or reports why it cannot be made.
fn kept(
    directive: &Directive,
    line: &Directive,
    change: impl Fn(&mut ClusterDNSSpec),
    message: &str,
    scope: &mut Scope<'_>,
) {
    changed(directive, line, Kept, change, message, scope);
}

/// Makes a change with this outcome, or reports why it cannot be made.
fn changed(
    directive: &Directive,
    line: &Directive,
    outcome: Outcome,
    change: impl Fn(&mut ClusterDNSSpec),
    message: &str,
    scope: &mut Scope<'_>,
) {
    let (outcome, message) = match scope.draft.change(change) {
        Ok(()) => (outcome, message.to_owned()),
        Err(why) => (NotPossible, why),
    };
    match std::ptr::eq(directive, line) {
        true => scope.say(directive, outcome, message),
        false => scope.say_of(directive, line, outcome, message),
    }
}
