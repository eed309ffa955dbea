//! dnsmasq: its options, from a command line or a file, and its hosts files.

mod options;
mod settings;

use std::net::IpAddr;

use crds::config::RecordType;
use crds::v1alpha1::{GroupLimits, Record, Server, ServiceTarget, Upstreams};
use crds::{config::Policy, defaults};

pub(super) use options::written;
use options::{Flag, flags};

use super::draft::Draft;
use super::hosts_file::{self, Terms};
use super::kube_dns::add_stub;
use super::report::Outcome::{self, Kept, NotNeeded, NotPossible};
use super::words::{list, name, zones};
use super::{Argument, Look};

/// What is known only after all options.
#[derive(Default)]
struct Gathered {
    servers: Vec<(Flag, Server)>,
    policy: Policy,
    in_flight: Option<u32>,
    no_resolv: Option<Flag>,
}

/// Converts all options.
pub(super) fn convert(options: &[Argument], look: &Look<'_>, draft: &mut Draft) {
    let mut gathered = Gathered::default();
    for flag in flags(options) {
        let (outcome, message) = match flag.name.as_str() {
            "server" | "local" => match server(&flag, &mut gathered, draft) {
                Some(decided) => decided,
                None => continue,
            },
            "address" => address(&flag, draft),
            "addn-hosts" | "hostsdir" => hosts(&flag, look, draft),
            "host-record" => host_record(&flag, draft),
            "cname" => cname(&flag, draft),
            "txt-record" => txt_record(&flag, draft),
            "srv-host" => srv_host(&flag, draft),
            "rev-server" => rev_server(&flag, draft),
            "no-resolv" => {
                gathered.no_resolv = Some(flag);
                continue;
            }
            "strict-order" => {
                gathered.policy = Policy::Sequential;
                (Kept, "policy: Sequential of spec.upstreams".to_owned())
            }
            "all-servers" => {
                gathered.policy = Policy::Fastest;
                (
                    Outcome::Changed,
                    "one server is asked at a time, the fastest first (policy: Fastest)".to_owned(),
                )
            }
            "dns-forward-max" => match flag.value.parse::<u32>() {
                Ok(number @ 1..=crds::bounds::IN_FLIGHT) => {
                    gathered.in_flight = Some(number);
                    (Kept, format!("limits: {{inFlight: {number}}} of spec.upstreams"))
                }
                Ok(_) | Err(_) => (NotPossible, "it is no number of queries".to_owned()),
            },
            _ => settings::convert(&flag, draft),
        };
        say(&flag, outcome, message, draft);
    }
    upstreams(gathered, draft);
}

fn say(flag: &Flag, outcome: Outcome, message: impl Into<String>, draft: &mut Draft) {
    draft.report.add(&flag.place, outcome, &flag.text(), message);
}

/// The default servers, and whether those of the node are asked.
fn upstreams(gathered: Gathered, draft: &mut Draft) {
    let Gathered { servers, policy, in_flight, no_resolv } = gathered;
    let (flags, servers): (Vec<Flag>, Vec<Server>) = servers.into_iter().unzip();
    let limits = in_flight.map(|in_flight| GroupLimits { in_flight });
    let count = servers.len();
    // kube-dns gives dnsmasq the default servers of its ConfigMap.
    if let Some(known) = draft.spec.upstreams.as_mut().filter(|_| servers.is_empty()) {
        known.limits = limits.or(known.limits.take());
        if policy != Policy::default() {
            known.policy = policy;
        }
        if let Some(flag) = &no_resolv {
            say(flag, NotNeeded, "spec.upstreams names the servers", draft);
        }
        return;
    }
    let is_none = servers.is_empty() && no_resolv.is_some();
    let upstreams = Upstreams {
        servers: Some(servers).filter(|servers| !servers.is_empty()),
        none: is_none.then_some(true),
        policy,
        limits: limits.filter(|_| !is_none),
        ..Upstreams::default()
    };
    let added = match upstreams == Upstreams::default() {
        true => Ok(()),
        false => draft.upstreams(upstreams),
    };
    let (outcome, message) = match &added {
        Ok(()) => (Kept, format!("spec.upstreams.servers, {count} in all")),
        Err(why) => (NotPossible, why.clone()),
    };
    for flag in &flags {
        say(flag, outcome, message.as_str(), draft);
    }
    let Some(flag) = &no_resolv else { return };
    let (outcome, message) = match (added, is_none) {
        (Err(why), _) => (NotPossible, why),
        (Ok(()), true) => (Kept, "spec.upstreams.none: true: other names are refused".to_owned()),
        (Ok(()), false) => (Kept, "the servers of the node are not asked".to_owned()),
    };
    say(flag, outcome, message, draft);
}

/// `/DOMAIN/DOMAIN/REST`: the domains and the rest; without slashes there are no domains.
fn domains(value: &str) -> (Vec<String>, &str) {
    match value.strip_prefix('/').and_then(|inside| inside.rsplit_once('/')) {
        Some((domains, rest)) => {
            let domains = domains.split('/').filter(|it| !it.is_empty());
            (domains.map(|it| name(it.trim_start_matches('.'))).collect(), rest)
        }
        None => (Vec::new(), value),
    }
}

/// `ADDRESS#PORT@INTERFACE`
fn one_server(text: &str) -> Option<Server> {
    let text = text.split('@').next().unwrap_or_default();
    let (ip, port) = text.split_once('#').map_or((text, None), |(ip, port)| (ip, Some(port)));
    let ip: IpAddr = ip.parse().ok()?;
    let port: Option<u16> = match port {
        None => None,
        Some(port) => Some(port.parse().ok()?),
    };
    let port = port.filter(|port| *port != 53);
    Some(Server { address: ip.to_string(), port, transport: Default::default(), tls: None })
}

/// Nothing for a default server, which is reported with all of them.
fn server(flag: &Flag, gathered: &mut Gathered, draft: &mut Draft) -> Option<(Outcome, String)> {
    let (domains, rest) = domains(&flag.value);
    if domains.is_empty() {
        return match one_server(rest) {
            Some(server) => {
                gathered.servers.push((flag.clone(), server));
                None
            }
            None => Some((
                NotPossible,
                "it is no IP address: write the address of the server".to_owned(),
            )),
        };
    }
    if rest == "#" {
        return Some((NotNeeded, "names without a stub domain go to the upstreams".to_owned()));
    }
    if rest.is_empty() {
        let message = format!(
            "names in {} go to the upstreams when no host or record has them: forward the suffix to a server that denies them",
            list(&domains)
        );
        return Some((NotPossible, message));
    }
    let Some(server) = one_server(rest) else {
        return Some((
            NotPossible,
            "it is no IP address: write the address of the server".to_owned(),
        ));
    };
    let mut worst = (NotNeeded, "names of the cluster are answered from memory".to_owned());
    for domain in &domains {
        let decided = more_servers(domain, &server, draft);
        let is_worse = decided.0 == NotPossible || worst.0 == NotNeeded;
        if is_worse {
            worst = decided;
        }
    }
    if worst.0 == Kept {
        worst.1 = format!("spec.stubDomains: {}", list(&domains));
    }
    Some(worst)
}

/// Several options for one domain are several servers of it.
fn more_servers(domain: &str, server: &Server, draft: &mut Draft) -> (Outcome, String) {
    let known = draft.spec.stub_domains.iter_mut().flatten().find(|it| it.domain == domain);
    match known {
        Some(stub) if stub.servers.contains(server) => (Kept, String::new()),
        Some(stub) if stub.servers.len() < crds::bounds::SERVERS => {
            stub.servers.push(server.clone());
            (Kept, String::new())
        }
        Some(_) => (NotPossible, format!("{domain} has as many servers as a stub domain may have")),
        None => add_stub(domain, vec![server.clone()], draft),
    }
}

fn rev_server(flag: &Flag, draft: &mut Draft) -> (Outcome, String) {
    let Some((range, rest)) = flag.value.split_once(',') else {
        return (NotPossible, "it is no range and server".to_owned());
    };
    let Some(server) = one_server(rest) else {
        return (NotPossible, "it is no IP address: write the address of the server".to_owned());
    };
    let zones = if range.contains('/') { zones(range) } else { zones(&format!("{range}/32")) };
    for zone in &zones {
        let (outcome, message) = more_servers(zone, &server, draft);
        if outcome == NotPossible {
            return (outcome, message);
        }
    }
    (Kept, format!("spec.stubDomains: {}", list(&zones)))
}

/// A name and everything below it.
fn address(flag: &Flag, draft: &mut Draft) -> (Outcome, String) {
    let (domains, rest) = domains(&flag.value);
    if domains.is_empty() || domains.iter().any(|domain| domain == "#") {
        let message = "every name of the world would have this address: write spec.hosts for the names that are meant";
        return (NotPossible, message.to_owned());
    }
    let ips: Result<Vec<IpAddr>, _> = rest.split(',').map(str::parse).collect();
    let Ok(ips) = ips else {
        let message = "names cannot be denied: forward their suffix to a server that denies them (spec.stubDomains)";
        return (NotPossible, message.to_owned());
    };
    for domain in &domains {
        for ip in &ips {
            for owner in [domain.clone(), format!("*.{domain}")] {
                if let Err(why) = draft.host(&owner, *ip, None, false) {
                    return (NotPossible, format!("{owner}: {why}"));
                }
            }
        }
    }
    (Kept, format!("spec.hosts: {} and all names below, without reverse names", list(&domains)))
}

fn hosts(flag: &Flag, look: &Look<'_>, draft: &mut Draft) -> (Outcome, String) {
    let pattern = match flag.name.as_str() {
        "hostsdir" => format!("{}/*", flag.value.trim_end_matches('/')),
        _ => flag.value.clone(),
    };
    let files = look(&pattern);
    if files.is_empty() {
        let message = format!(
            "the file {} is not here: put it beside this file and import again",
            flag.value
        );
        return (NotPossible, message);
    }
    for text in &files {
        hosts_file::convert(text, Terms { ttl: None, reverse: true }, draft, &|_| None);
    }
    (Kept, "its lines are spec.hosts, live within a second of a change".to_owned())
}

/// `NAME[,NAME],ADDRESS[,ADDRESS][,TTL]`
fn host_record(flag: &Flag, draft: &mut Draft) -> (Outcome, String) {
    let words = flag.words();
    let ttl = words.last().and_then(|word| word.parse::<u32>().ok());
    let ips: Vec<IpAddr> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let is_name = |word: &&String| word.parse::<IpAddr>().is_err() && word.parse::<u32>().is_err();
    let names: Vec<String> = words.iter().filter(is_name).map(|word| name(word)).collect();
    if ips.is_empty() || names.is_empty() {
        return (NotPossible, "it needs a name and an address".to_owned());
    }
    for host in &names {
        for ip in &ips {
            if let Err(why) = draft.host(host, *ip, ttl, true) {
                return (NotPossible, format!("{host}: {why}"));
            }
        }
    }
    (Kept, format!("spec.hosts: {}", list(&names)))
}

fn record(owner: &str, record_type: RecordType, ttl: Option<u32>) -> Record {
    Record {
        name: name(owner),
        record_type,
        addresses: None,
        target: None,
        strings: None,
        services: None,
        ttl_seconds: ttl.unwrap_or(defaults::RECORD_TTL_SECONDS),
        reverse: true,
        override_cluster_zone: false,
    }
}

fn added(record: Record, draft: &mut Draft) -> (Outcome, String) {
    let owner = record.name.clone();
    match draft.record(record) {
        Ok(()) => (Kept, format!("spec.records: {owner}")),
        Err(why) => (NotPossible, format!("{owner}: {why}")),
    }
}

/// `ALIAS[,ALIAS],TARGET[,TTL]`
fn cname(flag: &Flag, draft: &mut Draft) -> (Outcome, String) {
    let mut words = flag.words();
    let ttl = words.last().and_then(|word| word.parse::<u32>().ok());
    if ttl.is_some() {
        words.pop();
    }
    let Some((target, aliases)) = words.split_last().filter(|(_, aliases)| !aliases.is_empty())
    else {
        return (NotPossible, "it needs an alias and a target".to_owned());
    };
    let mut last = (NotPossible, String::new());
    for alias in aliases {
        let target = Some(name(target));
        last = added(Record { target, ..record(alias, RecordType::Cname, ttl) }, draft);
        if last.0 == NotPossible {
            return last;
        }
    }
    last
}

/// `NAME[,TEXT...]`
fn txt_record(flag: &Flag, draft: &mut Draft) -> (Outcome, String) {
    let words = flag.words();
    let Some((owner, texts)) = words.split_first() else {
        return (NotPossible, "it needs a name".to_owned());
    };
    let texts = texts.iter().map(|text| text.trim_matches('"').to_owned()).collect();
    added(Record { strings: Some(texts), ..record(owner, RecordType::Txt, None) }, draft)
}

/// `_SERVICE._PROTOCOL.DOMAIN[,TARGET[,PORT[,PRIORITY[,WEIGHT]]]]`
fn srv_host(flag: &Flag, draft: &mut Draft) -> (Outcome, String) {
    let words = flag.words();
    let number = |at: usize| words.get(at).map_or(Ok(0), |word| word.parse::<u16>());
    let (Some(owner), Some(target)) = (words.first(), words.get(1)) else {
        return (
            NotPossible,
            "a record without a target denies a service, which cannot be written".to_owned(),
        );
    };
    let (Ok(port), Ok(priority), Ok(weight)) = (number(2), number(3), number(4)) else {
        return (NotPossible, "port, priority and weight are numbers".to_owned());
    };
    let port = if words.len() > 2 { port } else { 1 };
    let service = ServiceTarget { priority, weight, port, target: name(target) };
    added(Record { services: Some(vec![service]), ..record(owner, RecordType::Srv, None) }, draft)
}
