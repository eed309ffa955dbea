//! dnsmasq: its options, from a command line or a file, and its hosts files.

mod filters;
mod once;
mod options;
mod servers;
mod settings;
mod ttl;

use std::collections::HashMap;
use std::net::IpAddr;

use crds::config::RecordType;
use crds::v1alpha1::{Record, ServiceTarget};
use crds::{config::Policy, defaults};

pub(super) use options::written;
use options::{Flag, flags};
use servers::{Gathered, domains, rev_server, server, upstreams};
use ttl::LocalTtl;

use super::draft::Draft;
use super::hosts_file::{self, CLUSTER_FIRST, Reverse, Terms, Use};
use super::kube_dns::is_pod;
use super::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};
use super::values::{list, name};
use super::{Argument, Files, Look, Text};

/// Octets of a string of a TXT record (RFC 1035 §3.3).
const MAX_STRING: usize = 255;

/// Pairs of a name and an address in one option: each is one more of its name.
const MAX_PAIRS: usize = 10_000;

/// Converts all options into the draft, and reports each.
pub(super) fn convert(options: &[Argument], look: &Look<'_>, draft: &mut Draft) {
    let mut gathered = Gathered::default();
    let all = flags(options);
    let forwarded = servers::forwarded(&all);
    for server in servers::of_domain(&all, &draft.spec.domain).filter(|it| !is_pod(it)) {
        draft.replaced.add(&server.address);
    }
    let (ttl, once) = (ttl::of(&all), once::of(&all));
    for flag in all {
        if draft.is_spent() {
            return;
        }
        let is_server = ["server", "local", "rev-server"].contains(&flag.name.as_str());
        if is_server && flag.value.contains('@') {
            say(&flag, Outcome::Changed, NO_SOURCE, draft);
        }
        if let Some((outcome, message)) = once.replaced(&flag) {
            say(&flag, outcome, message, draft);
            continue;
        }
        let (outcome, message) = match flag.name.as_str() {
            "server" | "local" => match server(&flag, &mut gathered, draft) {
                Some(decided) => decided,
                None => continue,
            },
            "address" => ttl.said(address(&flag, &forwarded, ttl, draft)),
            "addn-hosts" | "hostsdir" => hosts(&flag, look, ttl, draft),
            "host-record" => host_record(&flag, ttl, draft),
            "cname" => cname(&flag, ttl, draft),
            "txt-record" => ttl.said(txt_record(&flag, ttl, draft)),
            "srv-host" => ttl.said(srv_host(&flag, ttl, draft)),
            "local-ttl" => ttl.decided(&flag),
            "rev-server" => rev_server(&flag, draft),
            "no-resolv" => {
                gathered.no_resolv = Some(flag);
                continue;
            }
            "resolv-file" => {
                gathered.resolv_files.push(flag);
                continue;
            }
            "strict-order" => {
                gathered.policy = Policy::Sequential;
                let message = "policy: Sequential of spec.upstreams".to_owned();
                gathered.settings.push((flag, Kept, message));
                continue;
            }
            "all-servers" => {
                gathered.policy = Policy::Fastest;
                let message = "one server is asked at a time, the fastest first (policy: Fastest)";
                gathered.settings.push((flag, Outcome::Changed, message.to_owned()));
                continue;
            }
            "dns-forward-max" => match servers::in_flight(&flag, &mut gathered) {
                Some(decided) => decided,
                None => continue,
            },
            name if filters::is_one(name) => continue,
            _ => settings::convert(&flag, &once, draft),
        };
        say(&flag, outcome, message, draft);
    }
    let settings = std::mem::take(&mut gathered.settings);
    upstreams(gathered, look, draft);
    filters::convert(options, draft);
    unwritten_cache(options, draft);
    for (flag, outcome, message) in settings {
        match servers::is_set(&flag, draft) {
            true => say(&flag, outcome, message, draft),
            false => say(&flag, NotPossible, NO_SERVERS, draft),
        }
    }
}

/// A line for the cache of dnsmasq where no option is about it.
fn unwritten_cache(options: &[Argument], draft: &mut Draft) {
    let all = flags(options);
    let is_written = all.iter().any(|flag| flag.name == "cache-size");
    // Hosts files that are named by themselves have this option alone.
    let is_process = all.iter().any(|flag| flag.name != "addn-hosts");
    let asks = draft.spec.upstreams.as_ref().is_none_or(|upstreams| upstreams.none != Some(true));
    let Some(first) = options.first().filter(|_| is_process && asks && !is_written) else { return };
    let cache = draft.spec.cache.as_ref();
    let entries = cache.map_or(defaults::CACHE_ENTRIES, |cache| cache.entries);
    let message = format!(
        "without cache-size dnsmasq keeps 150 names; here spec.cache.entries is {entries}; {}",
        settings::CACHE
    );
    draft.report.add(&first.place, Changed, "cache-size, which is not written", message);
}

fn say(flag: &Flag, outcome: Outcome, message: impl Into<String>, draft: &mut Draft) {
    draft.report.add(&flag.place, outcome, &flag.text(), message);
}

/// The outcome of each name of one option: a name that cannot be kept does not hide those that are kept.
#[derive(Default)]
struct Parts {
    kept: Vec<String>,
    /// Kept, except for what these sentences say.
    changed: Vec<String>,
    lost: Vec<String>,
    /// What the cluster answers itself.
    ours: Vec<String>,
}

impl Parts {
    fn add(&mut self, part: &str, made: Result<Option<String>, String>) {
        if let Ok(Some(differs)) = &made {
            self.changed.push(format!("{part}: {differs}"));
        }
        match made {
            Ok(_) if self.kept.last().is_some_and(|last| last == part) => {}
            Ok(_) => self.kept.push(part.to_owned()),
            Err(why) => self.lost.push(format!("{part}: {why}")),
        }
    }

    /// All of them, the kept ones in this field.
    fn decided(mut self, field: &str) -> (Outcome, String) {
        let outcome = match (self.lost.is_empty(), self.changed.is_empty()) {
            (false, _) => NotPossible,
            (true, false) => Changed,
            (true, true) => Kept,
        };
        if !self.kept.is_empty() {
            self.lost.push(format!("{field}: {}", list(&self.kept)));
        }
        self.lost.extend(self.changed);
        if !self.ours.is_empty() {
            self.lost.push(format!(
                "{}: names of the cluster are answered from memory",
                list(&self.ours)
            ));
        }
        (outcome, self.lost.join("; "))
    }
}

const NO_SERVERS: &str = "it is for the servers of these options, which are not asked, or another option takes its place";
const NO_SOURCE: &str = "questions leave from the address that the system chooses: the interface or address behind @ is not used";

/// A name and everything below it. `forwarded` are the domains that have servers of their own.
fn address(
    flag: &Flag,
    forwarded: &HashMap<String, String>,
    ttl: LocalTtl,
    draft: &mut Draft,
) -> (Outcome, String) {
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
    if let Some(refused) = too_many(domains.len(), ips.len()) {
        return refused;
    }
    let mut parts = Parts::default();
    for domain in &domains {
        if domain.is_empty() {
            parts.add("//", Err(servers::ONE_LABEL.to_owned()));
            continue;
        }
        let inner = forwarded.get(domain);
        if let Some(inner) = inner {
            let why = format!(
                "it would take the names of {inner}, which has servers of its own, as a record comes before a stub domain (A17): \
                 write spec.hosts for each name that is asked"
            );
            parts.add(&format!("*.{domain}"), Err(why));
        }
        let wildcard = inner.is_none().then(|| format!("*.{domain}"));
        for owner in std::iter::once(domain.clone()).chain(wildcard) {
            for ip in &ips {
                parts.add(&owner, draft.host(&owner, *ip, ttl.seconds(), false));
            }
        }
    }
    parts.decided("spec.hosts without reverse names")
}

fn too_many(names: usize, addresses: usize) -> Option<(Outcome, String)> {
    (names.saturating_mul(addresses) > MAX_PAIRS).then(|| {
        let message = format!(
            "it gives {names} names {addresses} addresses each, and {MAX_PAIRS} pairs are read of one option: write several"
        );
        (NotPossible, message)
    })
}

/// A hosts file, or all files of a folder.
fn hosts(flag: &Flag, look: &Look<'_>, ttl: LocalTtl, draft: &mut Draft) -> (Outcome, String) {
    let inside = || look(&format!("{}/*", flag.value.trim_end_matches('/')));
    let file = if flag.name == "hostsdir" { Files::default() } else { look(&flag.value) };
    // `addn-hosts` may name a folder too.
    let folder = if file.found.is_empty() { inside() } else { Files::default() };
    let is_folder = !folder.found.is_empty();
    let Files { found, unread } = if folder.is_none() { file } else { folder };
    if found.is_empty() && !unread.is_empty() {
        return (NotPossible, unread.join("; "));
    }
    for why in unread {
        say(flag, NotPossible, why, draft);
    }
    let (passed_over, read): (Vec<Text>, Vec<Text>) =
        found.into_iter().partition(|text| is_folder && is_passed_over(text));
    for text in passed_over {
        let message = format!("{}: dnsmasq passes over files with such names too", text.file);
        say(flag, NotNeeded, message, draft);
    }
    if read.is_empty() {
        let message = format!(
            "the file {} is not here: put it beside this file and import again",
            flag.value
        );
        return (NotPossible, message);
    }
    for text in &read {
        // Its inet_pton refuses an address with a zone.
        let terms = Terms { ttl: ttl.seconds(), cuts_zones: false, reverse: &|_| Reverse::Names };
        hosts_file::convert(text, terms, draft, &used);
    }
    let now =
        "its lines are spec.hosts as they are now; later changes of the file are not followed";
    ttl.said((Changed, format!("{now}; {CLUSTER_FIRST}")))
}

/// dnsmasq has wildcards in its options only.
fn used(name: &str, _: IpAddr, _: &Draft) -> Use {
    match name.starts_with("*.") {
        true => Use::Never(
            "in a hosts file dnsmasq takes * for a letter, so no name below is answered: if they are meant, write spec.hosts"
                .to_owned(),
        ),
        false => Use::Same,
    }
}

/// Files of a folder that dnsmasq does not read: what editors leave, and hidden ones.
fn is_passed_over(text: &Text) -> bool {
    let name = text.file.rsplit('/').next().unwrap_or_default();
    name.starts_with('.') || name.ends_with('~') || name.starts_with('#') && name.ends_with('#')
}

/// `NAME[,NAME],ADDRESS[,ADDRESS][,TTL]`
fn host_record(flag: &Flag, local: LocalTtl, draft: &mut Draft) -> (Outcome, String) {
    let words = flag.words();
    let ttl = words.last().and_then(|word| word.parse::<u32>().ok());
    let ips: Vec<IpAddr> = words.iter().filter_map(|word| word.parse().ok()).collect();
    // A number before the last part is a name for dnsmasq.
    let before = if ttl.is_some() { &words[..words.len() - 1] } else { &words[..] };
    let is_name = |word: &&String| word.parse::<IpAddr>().is_err();
    let names: Vec<String> = before.iter().filter(is_name).map(|word| name(word)).collect();
    if ips.is_empty() || names.is_empty() {
        return (NotPossible, "it needs a name and an address".to_owned());
    }
    if let Some(refused) = too_many(names.len(), ips.len()) {
        return refused;
    }
    let mut parts = Parts::default();
    for host in &names {
        for ip in &ips {
            parts.add(host, draft.host(host, *ip, ttl.or(local.seconds()), true));
        }
    }
    let decided = parts.decided("spec.hosts");
    if ttl.is_none() { local.said(decided) } else { decided }
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
        Ok(None) => (Kept, format!("spec.records: {owner}")),
        Ok(Some(differs)) => (Changed, format!("spec.records: {owner}: {differs}")),
        Err(why) => (NotPossible, format!("{owner}: {why}")),
    }
}

/// `ALIAS[,ALIAS],TARGET[,TTL]`
fn cname(flag: &Flag, local: LocalTtl, draft: &mut Draft) -> (Outcome, String) {
    let mut words = flag.words();
    let ttl = words.last().and_then(|word| word.parse::<u32>().ok());
    if ttl.is_some() {
        words.pop();
    }
    let Some((target, aliases)) = words.split_last().filter(|(_, aliases)| !aliases.is_empty())
    else {
        return (NotPossible, "it needs an alias and a target".to_owned());
    };
    let mut parts = Parts::default();
    for alias in aliases {
        let target = Some(name(target));
        let record = Record { target, ..record(alias, RecordType::Cname, ttl.or(local.seconds())) };
        parts.add(&record.name.clone(), draft.record(record));
    }
    let decided = parts.decided("spec.records");
    if ttl.is_none() { local.said(decided) } else { decided }
}

/// `NAME[,TEXT...]`
fn txt_record(flag: &Flag, ttl: LocalTtl, draft: &mut Draft) -> (Outcome, String) {
    let words = flag.strings();
    let Some((owner, texts)) = words.split_first().filter(|(owner, _)| !owner.is_empty()) else {
        return (NotPossible, "it needs a name".to_owned());
    };
    let texts = texts.iter().flat_map(|text| chunks(text)).collect();
    added(Record { strings: Some(texts), ..record(owner, RecordType::Txt, ttl.seconds()) }, draft)
}

/// A text as strings of a TXT record (RFC 1035 §3.3: 255 octets each); dnsmasq cuts longer ones as well.
fn chunks(text: &str) -> Vec<String> {
    let (mut chunks, mut chunk) = (Vec::new(), String::new());
    for character in text.chars() {
        if chunk.len() + character.len_utf8() > MAX_STRING {
            chunks.push(std::mem::take(&mut chunk));
        }
        chunk.push(character);
    }
    chunks.push(chunk);
    chunks
}

/// `_SERVICE._PROTOCOL.DOMAIN[,TARGET[,PORT[,PRIORITY[,WEIGHT]]]]`
fn srv_host(flag: &Flag, ttl: LocalTtl, draft: &mut Draft) -> (Outcome, String) {
    // A part may be empty: what follows keeps its place.
    let words: Vec<&str> = flag.value.split(',').map(str::trim).collect();
    let written = |at: usize| words.get(at).filter(|word| !word.is_empty());
    if words.len() > 5 {
        return (NotPossible, "it has more parts than dnsmasq reads".to_owned());
    }
    let number = |at: usize, default: u16| written(at).map_or(Ok(default), |it| it.parse::<u16>());
    let (Some(owner), Some(target)) = (written(0), written(1)) else {
        return (
            NotPossible,
            "a record without a target denies a service, which cannot be written".to_owned(),
        );
    };
    let (Ok(port), Ok(priority), Ok(weight)) = (number(2, 1), number(3, 0), number(4, 0)) else {
        return (NotPossible, "port, priority and weight are numbers".to_owned());
    };
    let service = ServiceTarget { priority, weight, port, target: name(target) };
    added(
        Record { services: Some(vec![service]), ..record(owner, RecordType::Srv, ttl.seconds()) },
        draft,
    )
}
