//! `forward` (and `proxy`, its older form): which servers are asked. `options` reads its body, and `order` says which names come
//! to it.

mod anyway;
mod gone;
mod options;
mod order;
mod tls;
mod uncached;

use crds::config::Policy;
use crds::defaults;
use crds::v1alpha1::{CaBundle, GroupLimits, Server, StubDomain, Upstreams};

use super::parse::Directive;
use super::scope::Scope;
use crate::import::draft::Draft;
use crate::import::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};
use crate::import::values::{
    LINK_LOCAL, ServerError, is_at_or_below, is_reverse, name_servers, server, zones,
};
use crate::import::{Files, Refused};
use anyway::{are_asked_anyway, to_node};
use order::{hidden, still_asked};
use uncached::was_not_cached;

/// What NodeLocal DNSCache replaces by the address of the server of the cluster.
const CLUSTER_DNS: [&str; 2] = ["__PILLAR__CLUSTER__DNS__", "__PILLAR__DNS__SERVER__"];
/// What NodeLocal DNSCache replaces by the servers of the node.
const NODE_DNS: &str = "__PILLAR__UPSTREAM__SERVERS__";

/// The file with the servers of the node, in a pod with `dnsPolicy: Default`.
const NODE_RESOLV_CONF: &str = "/etc/resolv.conf";

/// Does it forward to the DNS server of the cluster, by the words of NodeLocal DNSCache?
pub(super) fn is_to_cluster_dns(directive: &Directive) -> bool {
    directive.name == "forward"
        && directive.args.iter().any(|it| CLUSTER_DNS.contains(&it.as_str()))
}

/// The servers that it names, as written.
pub(super) fn servers(directive: &Directive) -> Vec<String> {
    let is_forward = ["forward", "proxy"].contains(&directive.name.as_str());
    directive.args.iter().skip(1).filter(|_| is_forward).cloned().collect()
}

/// Are all of its servers those of the node?
pub(super) fn is_to_node(directive: &Directive) -> bool {
    let servers = servers(directive);
    !servers.is_empty() && servers.iter().all(|it| is_node(it))
}

fn is_node(server: &str) -> bool {
    [NODE_RESOLV_CONF, NODE_DNS].contains(&server)
}

/// Is it the DNS server of the cluster, which is replaced?
pub(super) fn is_replaced(server: &str, draft: &Draft) -> bool {
    CLUSTER_DNS.contains(&server) || draft.replaced.has(server)
}

/// Are names of this zone forwarded by it, in a server block that serves the zone?
pub(super) fn is_for(directive: &Directive, zone: &str) -> bool {
    let is_forward = ["forward", "proxy", "grpc", "fanout"].contains(&directive.name.as_str());
    let from = directive.args.first().filter(|_| is_forward);
    from.is_some_and(|from| zones(from).iter().any(|from| is_at_or_below(zone, from)))
}

/// What is read of one `forward`.
#[derive(Default)]
struct Read {
    servers: Vec<Server>,
    has_resolv_conf: bool,
    policy: Policy,
    in_flight: Option<u32>,
    /// Who may have signed the certificates of encrypted servers; none for the public authorities.
    authorities: Option<CaBundle>,
}

/// Adds `forward` to the draft: `spec.upstreams` or a stub domain.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) -> Result<(), Refused> {
    let Some((from, to)) = directive.args.split_first().filter(|(_, to)| !to.is_empty()) else {
        return Err(directive.refused("a zone and one server or more must follow"));
    };
    let from = zones(from).into_iter().next().unwrap_or_default();
    let domains = domains(&from, scope);
    if let Some(why) = not_needed(&domains, to, scope) {
        return aside(directive, NotNeeded, why, scope);
    }
    let (domains, above) = still_asked(directive, domains, scope);
    if let Some(above) = above {
        let (outcome, why) = hidden(above);
        if domains.is_empty() {
            return aside(directive, outcome, &why, scope);
        }
        scope.say(directive, outcome, why);
    }
    let Some(to) = gone::left(directive, &domains, to, scope) else {
        return its_options(directive, NotNeeded, ITS_FORWARD_IS_NOT_NEEDED, scope);
    };
    let mut read = Read::default();
    let name = directive.body.iter().find(|line| line.name == "tls_servername");
    let name = name.and_then(|line| line.args.first()).map(String::as_str);
    for text in to {
        one_server(directive, text, name, &mut read, scope);
    }
    let (servers, lost) = scope.draft.usable(read.servers);
    read.servers = servers;
    for why in lost {
        scope.say(directive, NotPossible, why);
    }
    let mut options = Vec::new();
    for line in &directive.body {
        options.push((line, options::convert(directive, line, &mut read, scope)?));
    }
    for tls in read.servers.iter_mut().filter_map(|server| server.tls.as_mut()) {
        tls.ca_bundle.clone_from(&read.authorities);
    }
    let added: Vec<Outcome> =
        domains.iter().map(|domain| add(directive, domain, &read, scope)).collect();
    let is_added = added.iter().any(|it| [Kept, Changed].contains(it));
    let is_lost = added.contains(&NotPossible);
    for (line, (outcome, message)) in options {
        match (is_added, is_lost) {
            (true, _) => scope.say_of(directive, line, outcome, message),
            (false, true) => scope.say_of(directive, line, NotPossible, ITS_FORWARD_IS_LOST),
            (false, false) => scope.say_of(directive, line, NotNeeded, ITS_FORWARD_IS_NOT_NEEDED),
        }
    }
    Ok(())
}

const ITS_FORWARD_IS_LOST: &str = "its forward is not possible";
const ITS_FORWARD_IS_NOT_NEEDED: &str = "its forward is not needed";

/// Reports a line that makes nothing, and its options.
///
/// # Errors
/// CoreDNS would refuse an option.
fn aside(
    directive: &Directive,
    outcome: Outcome,
    why: &str,
    scope: &mut Scope<'_>,
) -> Result<(), Refused> {
    scope.say(directive, outcome, why);
    let its_forward = match outcome {
        NotPossible => ITS_FORWARD_IS_LOST,
        Kept | Changed | NotNeeded => ITS_FORWARD_IS_NOT_NEEDED,
    };
    its_options(directive, outcome, its_forward, scope)
}

/// Reports the options of a line that makes nothing.
fn its_options(
    directive: &Directive,
    outcome: Outcome,
    its_forward: &str,
    scope: &mut Scope<'_>,
) -> Result<(), Refused> {
    for line in &directive.body {
        options::convert(directive, line, &mut Read::default(), scope)?;
        scope.say_of(directive, line, outcome, its_forward);
    }
    Ok(())
}

/// The suffixes whose names it forwards: within those of its server block.
fn domains(from: &str, scope: &Scope<'_>) -> Vec<String> {
    let mut domains = Vec::new();
    for zone in &scope.zones {
        if is_at_or_below(from, zone) {
            domains.push(from.to_owned());
        } else if is_at_or_below(zone, from) {
            domains.push(zone.clone());
        }
    }
    domains.dedup();
    // What a cache in front leaves to this server is the cluster domain, and more.
    let is_other = |domain: &String| !scope.draft.is_ours(domain);
    if scope.draft.front.is_some() && domains.iter().any(is_other) {
        domains.retain(is_other);
    }
    // Whether a zone needs servers of its own depends on those of the root.
    domains.sort_by_key(|domain| !domain.is_empty());
    domains
}

fn not_needed(domains: &[String], to: &[String], scope: &Scope<'_>) -> Option<&'static str> {
    let is_replaced = |server: &String| is_replaced(server, scope.draft);
    let is_cluster = |domain: &String| {
        let is_below = !domain.is_empty() && scope.draft.is_ours(domain);
        *domain == scope.draft.spec.domain || is_below && to.iter().all(is_replaced)
    };
    if domains.is_empty() {
        return Some("its zone is not in that of its server block, so it is never asked");
    }
    if domains.iter().all(is_cluster) {
        return Some("names of the cluster domain are answered from memory");
    }
    if scope.draft.is_front && to.iter().all(is_replaced) {
        return Some("the server that it asks is read too, and its lines say what becomes of them");
    }
    if domains.iter().all(|domain| is_reverse(domain)) && to.iter().all(is_replaced) {
        return Some(
            "reverse names of the cluster are answered from memory, others go to the upstreams",
        );
    }
    None
}

fn one_server(
    directive: &Directive,
    text: &str,
    name: Option<&str>,
    read: &mut Read,
    scope: &mut Scope<'_>,
) {
    if is_node(text) {
        read.has_resolv_conf = true;
        return;
    }
    if text.starts_with('/') {
        return of_file(directive, text, read, scope);
    }
    let (text, name) = match named(text) {
        Some((server, name)) => (server, Some(name)),
        None => (text.to_owned(), name.map(str::to_owned)),
    };
    let message = match server(&text, name.as_deref()) {
        Ok(server) => {
            read.servers.push(server);
            return;
        }
        Err(ServerError::NoName) => format!(
            "{text}: an encrypted server needs the name in its certificate: add tls_servername NAME and import again"
        ),
        Err(ServerError::Transport(scheme)) => {
            format!("{text}: {scheme} is not spoken: ask that server over TLS or TCP")
        }
        Err(ServerError::LinkLocal) => format!("{text} {LINK_LOCAL}"),
        Err(ServerError::NoAddress) if text.starts_with("__") => {
            format!("{text}: write the address that the cluster has in this place")
        }
        Err(ServerError::NoAddress) => {
            format!("{text}: a server by name would need DNS to be found: write its IP address")
        }
    };
    scope.say(directive, NotPossible, message);
}

/// The servers of a file in the form of resolv.conf, if the file can be found.
fn of_file(directive: &Directive, file: &str, read: &mut Read, scope: &mut Scope<'_>) {
    let Files { found: texts, unread } = (scope.look)(file);
    let (found, lost): (Vec<_>, Vec<_>) = texts.iter().map(name_servers).unzip();
    let (found, lost) = (found.concat(), lost.concat());
    let is_said = !unread.is_empty() || !lost.is_empty();
    for why in unread.into_iter().chain(lost) {
        scope.say(directive, NotPossible, why);
    }
    if found.is_empty() && !is_said {
        let message = format!(
            "{file}: this file is not here, or no nameserver is in it: put it beside the Corefile and import again, or \
             write its servers in place of it"
        );
        scope.say(directive, NotPossible, message);
    }
    read.servers.extend(found);
}

/// `tls://ADDRESS%NAME[:PORT]`: the server without the name, and the name in its certificate.
fn named(text: &str) -> Option<(String, String)> {
    let (server, name) = text.rsplit_once('%').filter(|_| text.starts_with("tls://"))?;
    match name.split_once(':') {
        Some((name, port)) => Some((format!("{server}:{port}"), name.to_owned())),
        None => Some((server.to_owned(), name.to_owned())),
    }
}

/// Adds it for one domain, and says what became of it.
fn add(directive: &Directive, domain: &str, read: &Read, scope: &mut Scope<'_>) -> Outcome {
    let limits = read.in_flight.filter(|it| *it != defaults::GROUP_IN_FLIGHT);
    let limits = limits.map(|in_flight| GroupLimits { in_flight });
    let servers = read.servers.clone();
    let policy = read.policy;
    if domain.is_empty() {
        return add_upstreams(directive, servers, read.has_resolv_conf, policy, limits, scope);
    }
    if servers.is_empty() && !read.has_resolv_conf {
        let message =
            format!("{domain}: no server is left of it, so its names go to spec.upstreams");
        scope.say(directive, NotPossible, message);
        return NotPossible;
    }
    if servers.is_empty() {
        let (outcome, message) = to_node(domain, scope.draft);
        scope.say(directive, outcome, message);
        return outcome;
    }
    if scope.draft.front.is_some() && are_asked_anyway(domain, &servers, scope.draft) {
        let message =
            format!("{domain}: its names go to spec.upstreams, which are these servers too");
        scope.say(directive, NotNeeded, message);
        return NotNeeded;
    }
    if read.has_resolv_conf {
        let message = format!(
            "{domain}: the servers of the node's file are not asked for it: add them to the servers of this stub domain"
        );
        scope.say(directive, NotPossible, message);
    }
    let stub = StubDomain {
        domain: domain.to_owned(),
        servers,
        policy,
        case_randomisation: false,
        limits,
        cache: None,
        withheld_types: None,
    };
    let (outcome, message) = match scope.draft.stub_domain(stub) {
        Ok(differs) => {
            let message = format!("spec.stubDomains: {domain}");
            let ends = "cache: {maxTTLSeconds: 0}";
            differing(message, differs, directive, (domain, (ends, ends)), scope)
        }
        Err(why) => (NotPossible, format!("{domain}: {why}")),
    };
    scope.say(directive, outcome, message);
    outcome
}

fn add_upstreams(
    directive: &Directive,
    servers: Vec<Server>,
    has_resolv_conf: bool,
    policy: Policy,
    limits: Option<GroupLimits>,
    scope: &mut Scope<'_>,
) -> Outcome {
    if servers.is_empty() && !has_resolv_conf {
        let message =
            "no server is left of it: names elsewhere are asked at the servers of the node";
        scope.say(directive, NotPossible, message);
        return NotPossible;
    }
    let message = match (servers.is_empty(), has_resolv_conf) {
        (true, _) => "spec.upstreams.fromResolvConf: true, the servers of the node".to_owned(),
        (false, false) => "spec.upstreams.servers".to_owned(),
        (false, true) => {
            let message = "the servers of a file and written ones cannot be mixed: add those of the file to spec.upstreams.servers";
            scope.say(directive, NotPossible, message);
            "spec.upstreams.servers, as far as they are written here".to_owned()
        }
    };
    let from_resolv_conf = servers.is_empty().then_some(true);
    let servers = Some(servers).filter(|servers| !servers.is_empty());
    let upstreams = Upstreams { servers, from_resolv_conf, policy, limits, ..Upstreams::default() };
    let (outcome, message) = match scope.draft.upstreams(upstreams) {
        Ok(differs) => {
            let ends = (
                "spec.cache: {maxTTLSeconds: 0, maxNegativeTTLSeconds: 0}",
                "spec.upstreams.cache: {maxTTLSeconds: 0}",
            );
            differing(message, differs, directive, ("", ends), scope)
        }
        Err(why) => (NotPossible, why),
    };
    scope.say(directive, outcome, message);
    outcome
}

/// With what is not as CoreDNS does it where nothing is written.
fn differing(
    message: String,
    of_first_line: Option<String>,
    directive: &Directive,
    (domain, ends_cache): (&str, (&str, &str)),
    scope: &Scope<'_>,
) -> (Outcome, String) {
    let mut all: Vec<String> = [message].into_iter().chain(of_first_line).collect();
    all.extend(was_not_cached(domain, ends_cache, scope));
    if !directive.body.iter().any(|line| line.name == "max_concurrent") {
        all.push(format!(
            "at most {} questions are in progress, where CoreDNS has no bound without max_concurrent (limits.inFlight)",
            defaults::GROUP_IN_FLIGHT
        ));
    }
    (if all.len() > 1 { Changed } else { Kept }, all.join("; "))
}
