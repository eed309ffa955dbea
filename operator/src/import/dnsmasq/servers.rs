//! The servers of dnsmasq: for all names, for a domain, and those of files. Options that depend on others are
//! decided after all of them.

use std::collections::HashMap;
use std::net::IpAddr;

use crds::config::Policy;
use crds::v1alpha1::{GroupLimits, Server, Upstreams};
use crds::{ClusterDNSSpec, bounds};

use super::options::Flag;
use super::{Parts, say};
use crate::import::draft::Draft;
use crate::import::kube_dns::{ORDER, add_stub};
use crate::import::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};
use crate::import::values::{
    ServerError, is_at_or_below, list, name, name_servers, no_address, shared_places, without_zone,
    zones,
};
use crate::import::{Files, Look};

/// Why an option for names without a domain, `//`, has no counterpart.
pub(super) const ONE_LABEL: &str = "it is for names of one label only, which go to the upstreams here: pods ask such names \
                                    with their search path first";
/// The file with the servers of the node, which dnsmasq reads unless another is named.
const NODE: &str = "/etc/resolv.conf";

/// Settings that are decided after all options were read.
#[derive(Default)]
pub(super) struct Gathered {
    /// The servers for all names.
    servers: Vec<(Flag, Server)>,
    /// The order in which they are asked.
    pub(super) policy: Policy,
    /// How many queries they get at once.
    pub(super) in_flight: Option<u32>,
    /// What becomes of the options for these two, where the servers have them.
    pub(super) settings: Vec<(Flag, Outcome, String)>,
    /// The servers of the node are not asked.
    pub(super) no_resolv: Option<Flag>,
    /// Files with more servers.
    pub(super) resolv_files: Vec<Flag>,
    /// Domains whose names go to the servers for all names.
    defaults: Vec<(Flag, Vec<String>)>,
}

/// `dns-forward-max`, which is decided with the servers, or what is wrong with it.
pub(super) fn in_flight(flag: &Flag, gathered: &mut Gathered) -> Option<(Outcome, String)> {
    match flag.value.parse::<u32>() {
        Ok(number @ 1..=bounds::IN_FLIGHT) => {
            gathered.in_flight = Some(number);
            let message = format!(
                "limits: {{inFlight: {number}}} of spec.upstreams; more are answered SERVFAIL, and stub domains have limits of \
                 their own{}",
                shared_places(number)
            );
            gathered.settings.push((flag.clone(), Changed, message));
            None
        }
        Ok(_) | Err(_) => Some((NotPossible, "it is no number of queries".to_owned())),
    }
}

/// The servers for all names, from all options together.
pub(super) fn upstreams(gathered: Gathered, look: &Look<'_>, draft: &mut Draft) {
    for (flag, domains) in &gathered.defaults {
        let (outcome, message) = to_upstreams(domains, draft);
        say(flag, outcome, message, draft);
    }
    let Gathered { servers, policy, in_flight, no_resolv, resolv_files, .. } = gathered;
    let (flags, mut servers): (Vec<Flag>, Vec<Server>) = servers.into_iter().unzip();
    // Of the servers of the node, or of others in their place.
    let is_unread = no_resolv.is_some() || servers.is_empty() && draft.has_upstreams();
    let mut read_files = Vec::new();
    for flag in resolv_files {
        let is_looked_for = !is_unread && flag.value != NODE;
        let Files { found: texts, unread } =
            if is_looked_for { look(&flag.value) } else { Files::default() };
        let (found, lost): (Vec<_>, Vec<_>) = texts.iter().map(name_servers).unzip();
        let (found, lost) = (found.concat(), [unread, lost.concat()].concat());
        let is_said = !lost.is_empty();
        for why in lost {
            say(&flag, NotPossible, why, draft);
        }
        if found.is_empty() && is_said {
            continue;
        }
        if found.is_empty() {
            let (outcome, message) = resolv_file(&flag.value, is_unread, !servers.is_empty());
            say(&flag, outcome, message, draft);
            continue;
        }
        let count = servers.len();
        let (usable, lost) = draft.usable(servers.into_iter().chain(found).collect());
        servers = usable;
        for why in lost {
            say(&flag, NotPossible, why, draft);
        }
        if servers.len() > count {
            read_files.push(flag);
        }
    }
    let limits = in_flight.map(|in_flight| GroupLimits { in_flight });
    let count = servers.len();
    // kube-dns gives dnsmasq the default servers of its ConfigMap.
    if servers.is_empty() && draft.has_upstreams() {
        let change = |spec: &mut ClusterDNSSpec| {
            let Some(known) = &mut spec.upstreams else { return };
            known.limits = limits.clone().or(known.limits.take());
            if policy != Policy::default() {
                known.policy = policy;
            }
        };
        // Where they cannot be had, the lines of these settings say so.
        let _ = draft.change(change);
        if let Some(flag) = &no_resolv {
            say(flag, NotNeeded, "spec.upstreams names the servers", draft);
        }
        return;
    }
    let is_none = servers.is_empty() && no_resolv.is_some();
    let upstreams = Upstreams {
        servers: Some(servers).filter(|servers| !servers.is_empty()),
        none: is_none.then_some(true),
        policy: if is_none { Policy::default() } else { policy },
        limits: limits.filter(|_| !is_none),
        ..Upstreams::default()
    };
    let added = match upstreams == Upstreams::default() {
        true => Ok(None),
        false => draft.upstreams(upstreams),
    };
    for flag in &read_files {
        let (outcome, message) = match &added {
            Ok(_) => (
                Changed,
                "its servers are in spec.upstreams.servers as they are now; later changes of the file are not followed",
            ),
            Err(why) => (NotPossible, why.as_str()),
        };
        say(flag, outcome, message, draft);
    }
    let (outcome, message) = match (&added, no_resolv.is_some() || !read_files.is_empty()) {
        (Ok(Some(differs)), _) => {
            (Changed, format!("spec.upstreams.servers, {count} in all; {differs}"))
        }
        (Ok(None), true) if count > 1 && policy == Policy::default() => {
            (Changed, format!("spec.upstreams.servers, {count} in all; {ORDER}"))
        }
        (Ok(None), true) => (Kept, format!("spec.upstreams.servers, {count} in all")),
        (Ok(None), false) => (
            Changed,
            format!(
                "spec.upstreams.servers, {count} in all; without no-resolv dnsmasq asks the servers of the node as well, \
                 and here they are not asked"
            ),
        ),
        (Err(why), _) => (NotPossible, why.clone()),
    };
    for flag in &flags {
        say(flag, outcome, message.as_str(), draft);
    }
    let Some(flag) = &no_resolv else { return };
    let (outcome, message) = match (added, is_none) {
        (Err(why), _) => (NotPossible, why),
        (Ok(_), true) => (Kept, "spec.upstreams.none: true: other names are refused".to_owned()),
        (Ok(_), false) => (Kept, "the servers of the node are not asked".to_owned()),
    };
    say(flag, outcome, message, draft);
}

/// Whether the servers for all names have what an option set.
pub(super) fn is_set(flag: &Flag, draft: &Draft) -> bool {
    let upstreams = draft.spec.upstreams.as_ref().filter(|it| it.none != Some(true));
    upstreams.is_some_and(|upstreams| match flag.name.as_str() {
        "strict-order" => upstreams.policy == Policy::Sequential,
        "all-servers" => upstreams.policy == Policy::Fastest,
        _ => {
            let in_flight = upstreams.limits.as_ref().map(|limits| limits.in_flight);
            in_flight.is_some() && in_flight == flag.value.parse().ok()
        }
    })
}

fn resolv_file(file: &str, is_unread: bool, has_servers: bool) -> (Outcome, &'static str) {
    match (is_unread, has_servers, file) {
        (true, _, _) => {
            (NotNeeded, "its servers are not asked: no-resolv or spec.upstreams says so")
        }
        (false, true, NODE) => (
            NotPossible,
            "the servers of a file and written ones cannot be mixed: add those of the file to spec.upstreams.servers",
        ),
        (false, false, NODE) => {
            (Kept, "the servers of the node are asked (spec.upstreams.fromResolvConf)")
        }
        (false, _, _) => (
            NotPossible,
            "this file is not here, or no nameserver is in it: put it beside this file and import again, or write its servers \
             in spec.upstreams.servers",
        ),
    }
}

/// `#` as the server of a domain: needed only where a stub domain is above.
fn to_upstreams(domains: &[String], draft: &Draft) -> (Outcome, String) {
    let stubs = || draft.spec.stub_domains.iter().flatten();
    let above = |domain: &String| stubs().find(|stub| is_at_or_below(domain, &stub.domain));
    let lost: Vec<String> = domains
        .iter()
        .filter_map(|domain| {
            Some(format!("{domain} is in the stub domain {}", above(domain)?.domain))
        })
        .collect();
    match lost.is_empty() {
        true => (NotNeeded, "names without a stub domain go to the upstreams".to_owned()),
        false => (
            NotPossible,
            format!(
                "{}, whose servers are asked: write a stub domain for it with the servers that know it",
                list(&lost)
            ),
        ),
    }
}

/// `/DOMAIN/DOMAIN/REST`: the domains and the rest; without slashes there are no domains. An empty domain means names
/// of one label.
pub(super) fn domains(value: &str) -> (Vec<String>, &str) {
    match value.strip_prefix('/').and_then(|inside| inside.rsplit_once('/')) {
        Some((domains, rest)) => {
            let domains = domains.split('/');
            (domains.map(|it| name(it.trim_start_matches('.'))).collect(), rest)
        }
        None => (Vec::new(), value),
    }
}

/// The domains that have servers of their own, by each name above them: the first one below it.
pub(super) fn forwarded(flags: &[Flag]) -> HashMap<String, String> {
    let of_servers = flags.iter().filter(|it| ["server", "local"].contains(&it.name.as_str()));
    let read = of_servers.map(|flag| domains(&flag.value));
    let some = read.filter(|(_, rest)| !rest.is_empty()).flat_map(|(domains, _)| domains);
    let mut below = HashMap::new();
    // A longer one is no name.
    for domain in some.filter(|domain| (1..=bounds::DOMAIN_NAME).contains(&domain.len())) {
        let mut rest = domain.as_str();
        while let Some((_, name)) = rest.split_once('.') {
            rest = name;
            below.entry(name.to_owned()).or_insert_with(|| domain.clone());
        }
    }
    below
}

/// The servers of the cluster domain itself: they are the server that is replaced.
pub(super) fn of_domain<'a>(
    flags: &'a [Flag],
    domain: &'a str,
) -> impl Iterator<Item = Server> + 'a {
    let of_servers = flags.iter().filter(|it| ["server", "local"].contains(&it.name.as_str()));
    let read = of_servers.map(|flag| domains(&flag.value));
    let own = read.filter(move |(domains, _)| domains.iter().any(|it| it == domain));
    own.filter_map(|(_, rest)| one_server(rest).ok())
}

/// `ADDRESS#PORT@INTERFACE`
///
/// # Errors
/// Why it cannot be asked.
fn one_server(text: &str) -> Result<Server, String> {
    let text = text.split('@').next().unwrap_or_default();
    let (ip, port) = text.split_once('#').map_or((text, None), |(ip, port)| (ip, Some(port)));
    let other = || no_address(&ServerError::NoAddress);
    let ip = without_zone(ip).map_err(|why| no_address(&why))?;
    let ip: IpAddr = ip.parse().map_err(|_| other())?;
    let port: Option<u16> = match port {
        None => None,
        Some(port) => Some(port.parse().map_err(|_| other())?),
    };
    let port = port.filter(|port| *port != 53);
    Ok(Server { address: ip.to_string(), port, transport: Default::default(), tls: None })
}

/// `None` for a server that is reported after all options.
pub(super) fn server(
    flag: &Flag,
    gathered: &mut Gathered,
    draft: &mut Draft,
) -> Option<(Outcome, String)> {
    let (mut domains, rest) = domains(&flag.value);
    if domains.is_empty() {
        return match one_server(rest) {
            Ok(_) if gathered.servers.len() >= crds::bounds::SERVERS => {
                let most = crds::bounds::SERVERS;
                Some((
                    NotPossible,
                    format!("at most {most} servers are possible, and this is one more"),
                ))
            }
            Ok(server) => match draft.can_ask(&server) {
                Ok(()) => {
                    gathered.servers.push((flag.clone(), server));
                    None
                }
                Err(why) => Some((NotPossible, why)),
            },
            Err(why) => Some((NotPossible, why)),
        };
    }
    let mut parts = Parts::default();
    if domains.iter().any(String::is_empty) {
        domains.retain(|domain| !domain.is_empty());
        parts.add("//", Err(ONE_LABEL.to_owned()));
        if domains.is_empty() {
            return Some(parts.decided(""));
        }
    }
    if rest == "#" {
        if parts.lost.is_empty() {
            gathered.defaults.push((flag.clone(), domains));
            return None;
        }
        parts.lost.push(to_upstreams(&domains, draft).1);
        return Some(parts.decided(""));
    }
    if rest.is_empty() {
        let message = format!(
            "names in {} go to the upstreams when no host or record has them: forward the suffix to a server that denies them",
            list(&domains)
        );
        return Some((NotPossible, message));
    }
    let server = match one_server(rest) {
        Ok(server) => server,
        Err(why) => return Some((NotPossible, why)),
    };
    Some(stubs(&domains, &server, parts, draft))
}

/// Stub domains of one server, each reported.
fn stubs(
    domains: &[String],
    server: &Server,
    mut parts: Parts,
    draft: &mut Draft,
) -> (Outcome, String) {
    for domain in domains {
        match more_servers(domain, server, draft) {
            (NotPossible, why) => parts.lost.push(why),
            (NotNeeded, _) => parts.ours.push(domain.clone()),
            (Kept, _) => parts.kept.push(domain.clone()),
            (Changed, differs) => {
                parts.kept.push(domain.clone());
                parts.changed.push(format!("{domain}: {differs}"));
            }
        }
    }
    match parts.kept.is_empty() && parts.lost.is_empty() {
        true => (NotNeeded, "names of the cluster are answered from memory".to_owned()),
        false => parts.decided("spec.stubDomains"),
    }
}

/// Several options for one domain are several servers of it.
fn more_servers(domain: &str, server: &Server, draft: &mut Draft) -> (Outcome, String) {
    let can_ask = draft.can_ask(server);
    let known = draft.spec.stub_domains.iter_mut().flatten().find(|it| it.domain == domain);
    let Some(stub) = known else { return add_stub(domain, vec![server.clone()], draft) };
    if let Err(why) = can_ask {
        return (NotPossible, format!("{domain}: {why}"));
    }
    match stub {
        stub if stub.servers.contains(server) => (Kept, String::new()),
        stub if stub.servers.len() < crds::bounds::SERVERS => {
            stub.servers.push(server.clone());
            (Changed, ORDER.to_owned())
        }
        _ => (NotPossible, format!("{domain} has as many servers as a stub domain may have")),
    }
}

/// `RANGE,SERVER`: a single address is a range of one.
pub(super) fn rev_server(flag: &Flag, draft: &mut Draft) -> (Outcome, String) {
    let Some((range, rest)) = flag.value.split_once(',') else {
        return (NotPossible, "it is no range and server".to_owned());
    };
    let server = match one_server(rest) {
        Ok(server) => server,
        Err(why) => return (NotPossible, why),
    };
    let range = match range.parse::<IpAddr>() {
        Ok(ip) => ipnet::IpNet::from(ip).to_string(),
        Err(_) => range.to_owned(),
    };
    stubs(&zones(&range), &server, Parts::default(), draft)
}
