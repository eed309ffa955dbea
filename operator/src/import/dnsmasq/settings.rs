//! Options of dnsmasq that are settings of the whole: each has one decided line.

use crds::config::QueryLog;
use crds::v1alpha1::Cache;
use crds::{ClusterDNSSpec, bounds};

use super::options::Flag;
use crate::import::draft::Draft;
use crate::import::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};

pub(super) fn convert(flag: &Flag, draft: &mut Draft) -> (Outcome, String) {
    let number = flag.value.parse::<u32>();
    match (flag.name.as_str(), number) {
        ("cache-size", Ok(entries)) => {
            let entries = entries.min(bounds::CACHE_ENTRIES);
            cache(|cache| cache.entries = entries, format!("spec.cache.entries: {entries}"), draft)
        }
        ("no-negcache", _) => cache(
            |cache| cache.max_negative_ttl_seconds = 0,
            "spec.cache.maxNegativeTTLSeconds: 0; identical questions that wait still share one lookup".to_owned(),
            draft,
        ),
        ("max-ttl" | "max-cache-ttl", Ok(seconds)) => {
            let seconds = seconds.min(bounds::RECORD_TTL_SECONDS);
            cache(|cache| cache.max_ttl_seconds = seconds, format!("spec.cache.maxTTLSeconds: {seconds}"), draft)
        }
        ("neg-ttl", Ok(seconds)) => {
            let seconds = seconds.min(bounds::RECORD_TTL_SECONDS);
            let message = format!("spec.cache.maxNegativeTTLSeconds: {seconds}, as an upper bound");
            let (_, message) = cache(|cache| cache.max_negative_ttl_seconds = seconds, message, draft);
            (Changed, message)
        }
        ("edns-packet-max", Ok(octets)) => {
            let octets = octets.clamp(bounds::UDP_PAYLOAD_MIN, bounds::UDP_PAYLOAD_MAX);
            let change = |spec: &mut ClusterDNSSpec| {
                spec.limits.get_or_insert_default().udp_payload_bytes = octets;
            };
            kept(change, format!("spec.limits.udpPayloadBytes: {octets}"), draft)
        }
        ("log-queries", _) => {
            let change = |spec: &mut ClusterDNSSpec| {
                spec.logging.get_or_insert_default().queries = QueryLog::All;
            };
            kept(change, "spec.logging.queries: All".to_owned(), draft)
        }
        ("stop-dns-rebind", _) => {
            let change = |spec: &mut ClusterDNSSpec| {
                spec.access.get_or_insert_default().rebind_protection = true;
            };
            kept(change, "spec.access.rebindProtection: true".to_owned(), draft)
        }
        (name, _) => {
            let (outcome, message) = decided(name);
            (outcome, message.to_owned())
        }
    }
}

fn decided(name: &str) -> (Outcome, &'static str) {
    match name {
        "keep-in-foreground" | "no-daemon" | "user" | "group" | "pid-file" | "no-poll"
        | "clear-on-reload" => {
            (NotNeeded, "a setting of the process: here it is part of the image")
        }
        "listen-address" | "interface" | "except-interface" | "bind-interfaces"
        | "bind-dynamic" | "port" | "local-service" => {
            (NotNeeded, "pods listen on port 53 of all of their addresses")
        }
        "log-facility" | "log-async" => {
            (NotNeeded, "log lines go to standard error; spec.logging says which")
        }
        "dns-loop-detect" => {
            (NotNeeded, "upstreams that lead back here are found, reported and not asked")
        }
        "no-hosts" => (NotNeeded, "the hosts file of a node is never read"),
        "rebind-localhost-ok" | "rebind-domain-ok" => {
            (Changed, "answers of stub domains are left alone: write a stub domain for these names")
        }
        "min-port" | "max-port" | "query-port" => {
            (NotNeeded, "each question leaves from a random port")
        }
        "local-ttl" | "auth-ttl" | "min-cache-ttl" => (
            NotPossible,
            "TTLs are spec.ttlSeconds and ttlSeconds of each host and record; those of upstreams are never raised",
        ),
        "bogus-priv" => (
            NotPossible,
            "write the private ranges of the cluster in spec.reverseCIDRs: their unknown reverse names are denied here",
        ),
        "domain-needed" => (
            NotPossible,
            "names of one label go to the upstreams: pods ask such names with their search path first",
        ),
        "domain" | "expand-hosts" => {
            (NotPossible, "names are written in full: add the domain to names of one label")
        }
        "ptr-record" => (
            NotPossible,
            "reverse names follow from the addresses of hosts: reverse: false leaves one out",
        ),
        "mx-host" | "mx-target" | "localmx" | "selfmx" | "naptr-record" | "caa-record"
        | "dns-rr" => (
            NotPossible,
            "records of this type are not served: keep a server for them and name it as a stub domain",
        ),
        "bogus-nxdomain" | "ignore-address" | "alias" | "filter-A" | "filter-AAAA"
        | "filterwin2k" => (
            NotPossible,
            "answers of upstreams are not changed, besides spec.access.rebindProtection",
        ),
        "conf-file" | "conf-dir" => (NotPossible, "name that file with one more --dnsmasq"),
        "dnssec" | "trust-anchor" | "dnssec-check-unsigned" => (
            NotPossible,
            "signatures are passed on, not checked: name a validating server in spec.upstreams",
        ),
        "add-mac" | "add-subnet" | "add-cpe-id" => {
            (NotPossible, "options of EDNS are not added to questions")
        }
        name if name.starts_with("dhcp")
            || name.starts_with("tftp")
            || name.starts_with("enable-") =>
        {
            (NotPossible, "only DNS is served: keep dnsmasq for this")
        }
        _ => (NotPossible, "this program does not know this option of dnsmasq, or its value"),
    }
}

fn cache(change: impl Fn(&mut Cache), message: String, draft: &mut Draft) -> (Outcome, String) {
    kept(|spec| change(spec.cache.get_or_insert_with(Cache::default)), message, draft)
}

fn kept(
    change: impl Fn(&mut ClusterDNSSpec),
    message: String,
    draft: &mut Draft,
) -> (Outcome, String) {
    match draft.change(change) {
        Ok(()) => (Kept, message),
        Err(why) => (NotPossible, why),
    }
}
