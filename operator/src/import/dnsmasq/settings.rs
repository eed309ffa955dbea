//! Options of dnsmasq that are settings of the whole: each has one decided line.

use crds::config::QueryLog;
use crds::v1alpha1::Cache;
use crds::{ClusterDNSSpec, bounds, defaults};

use super::once::Once;
use super::options::Flag;
use crate::import::draft::Draft;
use crate::import::report::Outcome::{self, Changed, NotNeeded, NotPossible};

/// What our cache does and that of dnsmasq does not.
pub(super) const CACHE: &str = "it is bounded in octets too (spec.cache.memory); answers that are asked for often are asked for \
                                again before they expire (spec.cache.prefetch: false ends that); expired answers are served \
                                while upstreams fail, which dnsmasq does with use-stale-cache only (spec.cache.staleSeconds: 0 \
                                ends that)";

pub(super) fn convert(flag: &Flag, once: &Once, draft: &mut Draft) -> (Outcome, String) {
    let number = flag.value.parse::<u32>();
    match (flag.name.as_str(), number) {
        ("cache-size", Ok(entries)) => {
            let entries = entries.min(bounds::CACHE_ENTRIES);
            let message = format!(
                "spec.cache.entries: {entries}, of which each is all records of a name and type, where dnsmasq counts names and \
                 addresses; {CACHE}"
            );
            cache(|cache| cache.entries = entries, message, draft)
        }
        ("no-negcache", _) => cache(
            |cache| cache.max_negative_ttl_seconds = 0,
            "spec.cache.maxNegativeTTLSeconds: 0; identical questions that wait still share one lookup".to_owned(),
            draft,
        ),
        (name @ ("max-ttl" | "max-cache-ttl"), Ok(seconds)) => match once.max_ttl(name, seconds) {
            Err(why) => (NotNeeded, why),
            Ok(seconds) => {
                let differs = match name {
                    "max-ttl" => {
                        "; upstreams are asked again after that time, and dnsmasq keeps answers longer"
                    }
                    _ => ", which clients see too",
                };
                let denials = match seconds < defaults::MAX_NEGATIVE_TTL_SECONDS {
                    true => "; no denial is kept longer (spec.cache.maxNegativeTTLSeconds)",
                    false => "",
                };
                let message = format!("spec.cache.maxTTLSeconds: {seconds}{differs}{denials}");
                let change = |cache: &mut Cache| {
                    cache.max_ttl_seconds = seconds;
                    cache.max_negative_ttl_seconds = cache.max_negative_ttl_seconds.min(seconds);
                };
                cache(change, message, draft)
            }
        },
        ("neg-ttl", Ok(seconds)) => match once.negative_ttl(seconds) {
            Err(why) => (NotNeeded, why),
            Ok(seconds) => {
                let message = format!(
                    "spec.cache.maxNegativeTTLSeconds: {seconds}, as an upper bound; denials without an SOA record are not kept"
                );
                cache(|cache| cache.max_negative_ttl_seconds = seconds, message, draft)
            }
        },
        ("edns-packet-max", Ok(octets)) => {
            let octets = octets.clamp(bounds::UDP_PAYLOAD_MIN, bounds::UDP_PAYLOAD_MAX);
            let change = |spec: &mut ClusterDNSSpec| {
                spec.limits.get_or_insert_default().udp_payload_bytes = octets;
            };
            let message = format!(
                "spec.limits.udpPayloadBytes: {octets}, for replies to clients; upstreams may send 1232 octets by UDP"
            );
            changed(change, message, draft)
        }
        ("log-queries", _) => {
            let change = |spec: &mut ClusterDNSSpec| {
                spec.logging.get_or_insert_default().queries = QueryLog::All;
            };
            let message = match flag.value.as_str() {
                "" => "spec.logging.queries: All, in another form".to_owned(),
                more => format!("spec.logging.queries: All, in another form, without what {more} adds"),
            };
            changed(change, message, draft)
        }
        ("use-stale-cache", Ok(seconds)) => {
            // 0 is without an end.
            let most = bounds::WEEK_SECONDS;
            let seconds = if seconds == 0 { most } else { seconds.min(most) };
            let message = format!(
                "spec.cache.staleSeconds: {seconds}; expired answers are served while upstreams are silent or fail, not at once"
            );
            cache(|cache| cache.stale_seconds = seconds, message, draft)
        }
        ("stop-dns-rebind", _) => {
            let change = |spec: &mut ClusterDNSSpec| {
                spec.access.get_or_insert_default().rebind_protection = true;
            };
            let message = "spec.access.rebindProtection: true, for the default upstreams: private addresses leave their answers, \
                           and answers of stub domains stay as they are";
            changed(change, message.to_owned(), draft)
        }
        (name, _) => {
            let (outcome, message) = decided(name, &flag.value);
            (outcome, message.to_owned())
        }
    }
}

fn decided(name: &str, value: &str) -> (Outcome, &'static str) {
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
        "max-tcp-connections"
        | "max-procs"
        | "port-limit"
        | "fast-dns-retry"
        | "dnssec-limits"
        | "cache-rr"
        | "test" => {
            (NotNeeded, "a setting of the process of dnsmasq: here it is chosen, or in spec.limits")
        }
        "use-stale-cache" if value.is_empty() => (
            Changed,
            "expired answers are served while upstreams are silent or fail (spec.cache.staleSeconds)",
        ),
        "no-round-robin" => (Changed, "addresses of an answer begin at a random one"),
        "log-debug" | "log-malloc" | "dumpfile" | "dumpmask" => (
            Changed,
            "spec.logging.level: Debug writes details, and spec.logging.dnstap sends each query and reply",
        ),
        "do-0x20-encode" => {
            (NotPossible, "write caseRandomisation: true in spec.upstreams and in stub domains")
        }
        "no-0x20-encode" => {
            (NotNeeded, "letters of questions are changed only where caseRandomisation is true")
        }
        "localise-queries" => (NotPossible, "answers do not depend on where clients are"),
        "interface-name" | "dynamic-host" | "synth-domain" | "read-ethers" => {
            (NotPossible, "names are not made of addresses or interfaces: write them as spec.hosts")
        }
        "ipset" | "nftset" | "conntrack" | "connmark-allowlist" => {
            (NotPossible, "no firewall is changed: keep dnsmasq for this")
        }
        "no-ident" => (NotPossible, "names of CHAOS such as version.bind are answered"),
        "conf-script" => (NotPossible, "no program is run: name a file with what it writes"),
        "no-hosts" => (NotNeeded, "the hosts file of a node is never read"),
        "rebind-localhost-ok" | "rebind-domain-ok" => {
            (Changed, "answers of stub domains are left alone: write a stub domain for these names")
        }
        "min-port" | "max-port" | "query-port" => {
            (NotNeeded, "each question leaves from a random port")
        }
        "auth-ttl" | "min-cache-ttl" => (
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
        "bogus-nxdomain" | "ignore-address" | "alias" | "filterwin2k" => (
            NotPossible,
            "answers of upstreams are not changed, besides spec.access.rebindProtection",
        ),
        "conf-file" | "conf-dir" | "servers-file" => {
            (NotPossible, "name that file with one more --dnsmasq")
        }
        "dnssec"
        | "trust-anchor"
        | "dnssec-check-unsigned"
        | "dnssec-timestamp"
        | "dnssec-no-timecheck"
        | "proxy-dnssec" => (
            NotPossible,
            "signatures are passed on, not checked: name a validating server in spec.upstreams",
        ),
        "add-mac" | "add-subnet" | "add-cpe-id" | "strip-mac" | "strip-subnet" | "umbrella" => {
            (NotPossible, "options of EDNS are not added to questions")
        }
        name if name.starts_with("auth-") => {
            (NotPossible, "zones for the rest of the world are not served: keep a server for them")
        }
        name if name.starts_with("dhcp")
            || name.starts_with("tftp")
            || name.starts_with("enable-")
            || ["ra-param", "bootp-dynamic", "bridge-interface", "shared-network"]
                .contains(&name) =>
        {
            (NotPossible, "only DNS is served: keep dnsmasq for this")
        }
        _ => (NotPossible, "this program does not know this option of dnsmasq, or its value"),
    }
}

fn cache(change: impl Fn(&mut Cache), message: String, draft: &mut Draft) -> (Outcome, String) {
    changed(|spec| change(spec.cache.get_or_insert_with(Cache::default)), message, draft)
}

fn changed(
    change: impl Fn(&mut ClusterDNSSpec),
    message: String,
    draft: &mut Draft,
) -> (Outcome, String) {
    match draft.change(change) {
        Ok(()) => (Changed, message),
        Err(why) => (NotPossible, why),
    }
}
