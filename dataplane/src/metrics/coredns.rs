//! The metrics that dashboards and alerts for CoreDNS read: its names and exactly its labels. docs/metrics.md says what
//! each means here, and where that differs from CoreDNS.
//!
//! CoreDNS answers from plugins and labels by them; here our own records have the label `kubernetes`. It counts by
//! server block and zone: the one server block of the add-on serves the zone `.`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dataplane_core::{QuestionType, WorkerCounters};

use super::{Sources, traffic};
use crate::forward::Limit;
use crate::forward::cache::{CacheResult, OfKind};
use crate::origin::Origin;
use crate::rcode;
use crate::serve::{self, ServedOver, Totals};
use process::histogram::Distribution;
use process::metrics::{Page, Part, REVISION};

/// The lowest of CoreDNS' bounds of durations, and how many it has: each is twice the one before.
const DURATIONS: (f64, usize) = (0.000_25, 16);
/// The same for how late a change of a Service is seen.
const PROGRAMMING: (f64, usize) = (0.001, 20);
/// The one zone of the server block.
const ZONE: (&str, &str) = ("zone", ".");
const ZONES: (&str, &str) = ("zones", ".");
const VIEW: (&str, &str) = ("view", "");
const SERVER: &str = "dns://:53";

/// CoreDNS plugins that have an equivalent here.
const PLUGINS: [&str; 6] = ["cache", "errors", "forward", "kubernetes", "loop", "prometheus"];

/// Writes the metrics, without their common prefix.
#[derive(Debug)]
pub(super) struct CoreDns(pub(super) Arc<Sources>);

impl Part for CoreDns {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        self.process(page)?;
        self.queries(page)?;
        self.replies(page)?;
        self.cache(page)?;
        self.upstreams(page)?;
        self.changes(page)
    }
}

/// The server block that listens for this transport. Its port is the usual one, also if the pod listens on another.
const fn server(over: ServedOver) -> &'static str {
    match over {
        ServedOver::Udp | ServedOver::Tcp => SERVER,
        ServedOver::Tls => "tls://:853",
        ServedOver::Https => "https://:443",
        ServedOver::Quic => "quic://:853",
    }
}

const fn protocol(over: ServedOver) -> &'static str {
    match over {
        ServedOver::Udp | ServedOver::Quic => "udp",
        ServedOver::Tcp | ServedOver::Tls | ServedOver::Https => "tcp",
    }
}

/// The plugin that would have written the reply; none where the server itself refused the query.
fn plugin(origin: Origin, rcode: &str) -> &'static str {
    match origin {
        Origin::Own if matches!(rcode, "FORMERR" | "NOTIMP" | "REFUSED" | "BADVERS") => "",
        Origin::Own => "kubernetes",
        Origin::Cache | Origin::Stale => "cache",
        Origin::Upstream | Origin::Failed => "forward",
    }
}

impl CoreDns {
    fn process(&self, page: &mut Page<'_>) -> fmt::Result {
        let version = self.0.state.identity.version.as_str();
        // Dashboards show the version alone; this program has no version of Go.
        let labels = [("version", version), ("revision", REVISION), ("goversion", "none")];
        page.gauges("build_info", "Version of the server", [(labels, 1.0)])?;
        let panics = self.0.panics();
        page.counter("panics", "Messages whose handling panicked", panics)?;
        let rows = PLUGINS.map(|name| ([("server", SERVER), ZONE, VIEW, ("name", name)], 1.0));
        page.gauges("plugin_enabled", "CoreDNS plugins that have an equivalent here", rows)
    }

    fn queries(&self, page: &mut Page<'_>) -> fmt::Result {
        let sources = &*self.0;
        let rows = traffic::shown(sources).flat_map(|over| {
            [("1", false), ("2", true)].into_iter().flat_map(move |(family, is_ipv6)| {
                QuestionType::ALL.map(|qtype| {
                    let labels = [
                        ("server", server(over)),
                        ZONE,
                        VIEW,
                        ("proto", protocol(over)),
                        ("family", family),
                        ("type", qtype.label()),
                    ];
                    (labels, traffic::questions(sources, over, is_ipv6, qtype))
                })
            })
        });
        page.counters("dns_requests", "Queries that could be read", rows)?;
        let rows = by_server(sources, |over| {
            let workers = serve::counters_over(&sources.state.counters, over);
            workers.iter().map(|worker| WorkerCounters::dnssec_ok(worker)).sum::<u64>()
        });
        let rows = rows.into_iter().map(|(server, counts)| {
            ([("server", server), ZONE, VIEW], counts.into_iter().sum::<u64>())
        });
        page.counters("dns_do_requests", "Queries with the DO bit", rows)
    }

    fn replies(&self, page: &mut Page<'_>) -> fmt::Result {
        let sources = &*self.0;
        let totals: Vec<(ServedOver, Totals)> = traffic::shown(sources)
            .map(|over| (over, sources.serving.traffic.read(over)))
            .collect();
        let mut replies = BTreeMap::new();
        for (over, totals) in &totals {
            for origin in Origin::ALL {
                let counts = totals.by_rcode[origin as usize];
                for (rcode, count) in rcode::LABELS.into_iter().zip(counts) {
                    let key = (server(*over), rcode, plugin(origin, rcode));
                    *replies.entry(key).or_insert(0) += count;
                }
            }
        }
        let rows = replies.into_iter().map(|((server, rcode, plugin), count)| {
            ([("server", server), ZONE, VIEW, ("rcode", rcode), ("plugin", plugin)], count)
        });
        page.counters("dns_responses", "Replies by response code", rows)?;
        let encrypted = &sources.serving.encrypted;
        let seen = encrypted.https_responses().into_iter().filter(|(_, count)| *count > 0);
        let https = ("server", server(ServedOver::Https));
        let rows = seen.map(|(status, count)| ([https, ("status", status)], count));
        page.counters("dns_https_responses", "Responses of DNS over HTTPS", rows)?;
        let seen = encrypted.quic_responses().into_iter().filter(|(_, count)| *count > 0);
        let quic = ("server", server(ServedOver::Quic));
        let rows = seen.map(|(code, count)| ([quic, ("status", code)], count));
        page.counters("dns_quic_responses", "Streams of DNS over QUIC, by code", rows)?;

        let mut durations: BTreeMap<&str, Distribution> = BTreeMap::new();
        for (over, totals) in &totals {
            for of_origin in &totals.durations {
                let sum = durations.entry(server(*over)).or_default();
                *sum = std::mem::take(sum).plus(of_origin);
            }
        }
        let rows = durations.into_iter().map(|(server, sum)| {
            ([("server", server), ZONE, VIEW], sum.coarser(DURATIONS.0, DURATIONS.1))
        });
        page.histograms("dns_request_duration_seconds", "From query to reply", rows)?;
        let labels = |over| [("server", server(over)), ZONE, VIEW, ("proto", protocol(over))];
        let rows = totals.iter().map(|(over, totals)| (labels(*over), totals.queries.clone()));
        page.histograms("dns_request_size_bytes", "Octets of queries", rows)?;
        let rows = totals.iter().map(|(over, totals)| (labels(*over), totals.replies.clone()));
        page.histograms("dns_response_size_bytes", "Octets of replies", rows)
    }

    /// Our cache holds forwarded names only; CoreDNS' holds those of the cluster as well.
    fn cache(&self, page: &mut Page<'_>) -> fmt::Result {
        let cache = self.0.forwarder.cache();
        let [good, denials] = cache.by_kind();
        let outcomes = cache.outcomes();
        let count = |outcome: CacheResult| outcomes[outcome as usize];
        let misses = count(CacheResult::Miss) + count(CacheResult::Refresh);
        let of = |kind| [("server", SERVER), ("type", kind), ZONES, VIEW];
        let both = |part: fn(&OfKind) -> u64| {
            [(of("success"), part(&good)), (of("denial"), part(&denials))]
        };
        let entries = both(|kind| kind.entries).map(|(labels, count)| (labels, count as f64));
        page.gauges("cache_entries", "Entries of the cache", entries)?;
        let all = [("server", SERVER), ZONES, VIEW];
        page.counters("cache_requests", "Look-ups in the cache", [(all, outcomes.iter().sum())])?;
        page.counters("cache_hits", "Look-ups answered from the cache", both(|kind| kind.hits))?;
        let help = "Cache misses";
        page.counters("cache_misses", help, [(all, misses)])?;
        let help = "Entries asked for again before they expired";
        page.counters("cache_prefetch", help, [(all, self.0.forwarder.prefetches())])?;
        let stale = traffic::shown(&self.0).map(|over| {
            let totals = self.0.serving.traffic.read(over);
            totals.by_rcode[Origin::Stale as usize].iter().sum::<u64>()
        });
        page.counters("cache_served_stale", "Expired replies served", [(all, stale.sum())])?;
        let help = "Unexpired replies removed to make room";
        page.counters("cache_evictions", help, both(|kind| kind.evictions))
    }

    fn upstreams(&self, page: &mut Page<'_>) -> fmt::Result {
        let forwarder = &self.0.forwarder;
        let upstreams = Arc::clone(&self.0.state.published.load().upstreams);
        let help = "Lookups begun while every server of the group was down";
        page.counter("forward_healthcheck_broken", help, forwarder.begun_without_a_server_up())?;
        let rejects = Limit::ALL.into_iter().map(|limit| forwarder.limited(limit)).sum();
        let help = "Queries refused at a limit of forwarding";
        page.counter("forward_max_concurrent_rejects", help, rejects)?;

        let servers = upstreams.by_address();
        let replies = || {
            servers.iter().flat_map(|(to, server)| {
                let codes = rcode::LABELS.into_iter().zip(&server.replies);
                let seen =
                    codes.filter(|(rcode, replies)| *rcode == "NOERROR" || replies.count() > 0);
                seen.map(move |(rcode, replies)| (to.as_str(), rcode, replies))
            })
        };
        let sent = servers.iter().map(|(to, server)| ([("to", to.as_str())], server.sent));
        page.counters("forward_requests", "Queries sent to an upstream", sent)?;
        let rows =
            replies().map(|(to, rcode, replies)| ([("to", to), ("rcode", rcode)], replies.count()));
        page.counters("forward_responses", "Replies of an upstream", rows)?;
        let rows = replies().map(|(to, rcode, replies)| {
            ([("to", to), ("rcode", rcode)], replies.coarser(DURATIONS.0, DURATIONS.1))
        });
        let help = "From a query to the reply of an upstream";
        page.histograms("forward_request_duration_seconds", help, rows)?;
        let failures = || servers.iter().map(|(to, server)| (to.as_str(), server.failed_probes));
        let rows = failures().map(|(to, count)| ([("to", to)], count));
        page.counters("forward_healthcheck_failures", "Probes without a reply", rows)?;

        let forward = ("proxy_name", "forward");
        let rows = replies().map(|(to, rcode, replies)| {
            let labels = [forward, ("to", to), ("rcode", rcode)];
            (labels, replies.coarser(DURATIONS.0, DURATIONS.1))
        });
        page.histograms("proxy_request_duration_seconds", help, rows)?;
        let rows = failures().map(|(to, count)| ([forward, ("to", to)], count));
        page.counters("proxy_healthcheck_failures", "Probes without a reply", rows)
    }

    fn changes(&self, page: &mut Page<'_>) -> fmt::Result {
        let programming = self.0.status.change_to_visible.delays.0.read();
        let row = (
            [("service_kind", "headless_with_selector")],
            programming.coarser(PROGRAMMING.0, PROGRAMMING.1),
        );
        let help = "From the change behind an EndpointSlice until clients see it";
        page.histograms("kubernetes_dns_programming_duration_seconds", help, [row])?;
        let rejections = self.0.status.read().rejections;
        page.counter("reload_failed", "Configurations refused", rejections)?;
        let hosts = self.0.configs.borrow().hosts.len();
        // In CoreDNS this is the path of a file.
        let rows = [([("hostsfile", "spec.hosts")], hosts as f64)];
        page.gauges("hosts_entries", "Host records of the resource", rows)
    }
}

/// A value of each transport, by the server that listens for it.
fn by_server<T>(
    sources: &Sources,
    value: impl Fn(ServedOver) -> T,
) -> BTreeMap<&'static str, Vec<T>> {
    let mut servers: BTreeMap<&str, Vec<T>> = BTreeMap::new();
    for over in traffic::shown(sources) {
        servers.entry(server(over)).or_default().push(value(over));
    }
    servers
}
