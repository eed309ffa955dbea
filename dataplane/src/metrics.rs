//! `/metrics`: read from the counters of every thread when asked, so that answering pays nothing
//! for it. Label sets are fixed; no name of a query and no client is ever a label (WR47).

mod traffic;
mod upstreams;
mod listeners;
mod coredns;
mod skydns;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use crds::Config;
use crds::config::MetricNames;
use dataplane_core::{DataSource, Discard, Reason, Resource, Unusable, WorkerCounters};
use tokio::sync::watch;

use crate::forward::cache::CacheResult;
use crate::forward::{Forwarder, Limit};
use crate::readiness::{Health, why_not_ready};
use crate::serve::{self, CloseReason, ServeCounters, ServedOver, Totals};
use crate::state::State;
use crate::status::Status;
use crate::status::feed::Feed;
use crate::telemetry::lost_lines;
use coredns::CoreDns;
pub use process::metrics::Form;
use process::metrics::{Page, Part, Process, REVISION, Section, Started};
pub use skydns::KubeDnsPage;
use skydns::{Dnsmasq, Probes, Resolver};

/// Writes `/metrics`: reads every thread's counters when asked.
#[derive(Debug)]
pub struct Metrics {
    own: Section,
    process: Section,
    coredns: Section,
    /// The two pages of kube-dns: its resolver's and its sidecar's.
    resolver: Section,
    dnsmasq: Section,
    sources: Arc<Sources>,
}

#[derive(Debug)]
pub struct Sources {
    /// Counters of the workers, and who we are.
    pub state: Arc<State>,
    pub serving: Arc<ServeCounters>,
    pub forwarder: Arc<Forwarder>,
    pub status: Arc<Status>,
    /// Whether the pod is ready, with the status.
    pub health: Arc<Health>,
    pub configs: watch::Receiver<Arc<Config>>,
}

impl Sources {
    /// Panics of everything that has met one.
    fn panics(&self) -> u64 {
        let messages = self.serving.panics.load(Ordering::Relaxed);
        let tasks = self.status.read().panics + self.state.taps.panics();
        let servers = self.state.published.load().upstreams.panics();
        messages + self.forwarder.panics() + servers + tasks
    }
}

impl Metrics {
    pub fn new(sources: Sources) -> Metrics {
        let sources = Arc::new(sources);
        let process = Process::default();
        let scrape = Scrape { sources: Arc::clone(&sources), started: process.started() };
        Metrics {
            own: Section::of("clusterdns", scrape),
            process: Section::of("", process),
            coredns: Section::of("coredns", CoreDns(Arc::clone(&sources))),
            resolver: Section::of("", Resolver(Arc::clone(&sources))),
            dnsmasq: Section::of("", Dnsmasq(Arc::clone(&sources))),
            sources,
        }
    }

    /// What was counted of a transport.
    pub fn traffic(&self, over: ServedOver) -> Totals {
        self.sources.serving.traffic.read(over)
    }

    /// What a scraper reads, in this form.
    pub fn page(&self, form: Form) -> Vec<u8> {
        let names = self.sources.configs.borrow().metrics.compatibility.clone();
        let mut sections = vec![&self.own, &self.process];
        if names.contains(&MetricNames::CoreDNS) {
            sections.push(&self.coredns);
        }
        if names.contains(&MetricNames::KubeDNS) {
            sections.extend([&self.resolver, &self.dnsmasq]);
        }
        Section::page(&sections, form)
    }

    /// The page of one of the two ports on which kube-dns showed metrics.
    pub fn kube_dns(&self, page: &KubeDnsPage, form: Form) -> Vec<u8> {
        match page {
            KubeDnsPage::Resolver => Section::page(&[&self.resolver, &self.process], form),
            KubeDnsPage::Sidecar(probes) => {
                let of_probes = Section::of("", Probes(Arc::clone(probes)));
                Section::page(&[&self.dnsmasq, &of_probes, &self.process], form)
            }
        }
    }
}

#[derive(Debug)]
struct Scrape {
    sources: Arc<Sources>,
    started: Started,
}

impl Part for Scrape {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        self.process(page)?;
        self.queries(page)?;
        traffic::write(page, &self.sources)?;
        self.sockets(page)?;
        self.forwarding(page)?;
        self.cache(page)?;
        self.taps(page)?;
        self.source(page)?;
        self.snapshot(page)
    }
}

impl Scrape {
    fn process(&self, page: &mut Page<'_>) -> fmt::Result {
        let version = self.sources.state.identity.version.as_str();
        let labels = [("version", version), ("revision", REVISION)];
        page.gauges("build_info", "Version and source revision", [(labels, 1.0)])?;
        let help = "When this process started, in seconds since 1970";
        page.gauge("process_start_time_seconds", help, self.started.unix_s())?;
        let is_ready = why_not_ready(&self.sources.health, &self.sources.status).is_empty();
        let help = "1 while the pod is ready: /readyz says why if it is not";
        page.gauge("is_ready", help, f64::from(u8::from(is_ready)))?;
        let help = "Log lines lost because standard error was not read in time or refused them";
        page.counter("log_lines_lost", help, lost_lines())?;
        let rows = process::http::refusals().map(|(reason, count)| ([("reason", reason)], count));
        let help = "Connections and requests of the HTTP port refused or cut short, by reason";
        page.counters("http_refusals", help, rows)
    }

    /// Every query is counted once, under the reason for what became of it.
    fn queries(&self, page: &mut Page<'_>) -> fmt::Result {
        let workers = &self.sources.state.counters;
        let sum = |workers: &[Arc<WorkerCounters>], value: fn(&WorkerCounters) -> u64| {
            workers.iter().map(|worker| value(worker)).sum::<u64>()
        };
        let mut rows = Vec::with_capacity(ServedOver::ALL.len() * Reason::ALL.len());
        for over in traffic::shown(&self.sources) {
            let workers = serve::counters_over(workers, over);
            for reason in Reason::ALL {
                let count = workers.iter().map(|worker| worker.count(reason)).sum();
                rows.push(([("transport", over.label()), ("reason", reason.label())], count));
            }
        }
        page.counters("queries", "Queries received, by the reason for their reply or drop", rows)?;
        let totals = ServedOver::ALL.map(|over| self.sources.serving.traffic.read(over));
        let help = "UDP replies sent with TC=1, of our own data and of upstreams";
        page.counter("truncated_replies", help, totals.iter().map(|it| it.truncated).sum())?;
        let late: u64 = totals.iter().map(|it| it.capped).sum();
        let help = "Replies over streams whose RRset was shortened: to fit 65,535 octets, to bound what it costs, or because an \
                    upstream gave a part only";
        page.counter("capped_rrsets", help, late + sum(workers, WorkerCounters::capped_rrsets))?;
        let help = "Reverse questions for which a name was left out because the address is of another namespace, or its owner is not known";
        page.counter("withheld_ptrs", help, sum(workers, WorkerCounters::withheld_ptrs))
    }

    fn sockets(&self, page: &mut Page<'_>) -> fmt::Result {
        let serving = &self.sources.serving;
        let help = "Datagrams dropped by the kernel because the socket buffer was full";
        page.counter("udp_dropped", help, serving.udp_drops())?;
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let help = "Datagrams dropped because they waited longer than clients wait for a reply";
        page.counter("udp_stale", help, load(&serving.udp_stale))?;
        let help = "UDP replies that could not be sent";
        page.counter("udp_send_failed", help, load(&serving.udp_send_failed))?;
        let help = "UDP replies withheld because no machine answers for the address of the client, while many replies wait";
        page.counter("udp_withheld", help, load(&serving.udp_withheld))?;
        let help = "Failed receives from UDP sockets";
        page.counter("udp_receive_failed", help, load(&serving.udp_receive_failed))?;
        let help = "Messages, objects and tasks whose handling panicked, a defect of this program";
        let panics = self.sources.panics();
        page.counter("panics", help, panics)?;
        let help = "TCP connections accepted";
        page.counter("tcp_accepted", help, load(&serving.tcp_accepted))?;
        let help = "Failed accepts of TCP connections";
        page.counter("tcp_accept_failed", help, load(&serving.tcp_accept_failed))?;
        let closed = CloseReason::ALL
            .map(|reason| ([("reason", reason.label())], serving.tcp_closed(reason)));
        page.counters("tcp_closed", "TCP connections closed, by reason", closed)?;
        let help = "TCP connections open now";
        page.gauge("tcp_connections", help, load(&serving.tcp_open) as f64)?;
        let help = "Octets held for TCP connections now";
        page.gauge("tcp_buffered_bytes", help, load(&serving.tcp_buffered) as f64)?;
        listeners::write(page, serving)
    }

    fn forwarding(&self, page: &mut Page<'_>) -> fmt::Result {
        let forwarder = &self.sources.forwarder;
        let help = "Forwarded queries in progress";
        page.gauge("forwarded_in_progress", help, forwarder.in_flight() as f64)?;
        let help = "Forwarded lookups that got a usable reply";
        page.counter("forwarded_resolved", help, forwarder.resolved())?;
        let rows = forwarder.unresolved().map(|(reason, count)| ([("reason", reason)], count));
        page.counters("forwarded_unresolved", "Forwarded lookups that failed, by reason", rows)?;
        // What was not believed (FW13), and lookups that found no place (FW52).
        let upstreams = Arc::clone(&self.sources.state.published.load().upstreams);
        let rows =
            Discard::ALL.map(|reason| ([("reason", reason.label())], upstreams.discarded(reason)));
        let help = "Messages from upstreams that were not the expected reply, by reason";
        page.counters("upstream_discarded", help, rows)?;
        let rows = Unusable::ALL
            .map(|reason| ([("reason", reason.label())], upstreams.unusable_replies(reason)));
        let help =
            "Replies of upstreams that are no answer though their code is no error, by reason";
        page.counters("upstream_unusable_replies", help, rows)?;
        let rows = Limit::ALL.map(|limit| ([("limit", limit.label())], forwarder.limited(limit)));
        page.counters(
            "limited",
            "Queries of clients refused at a limit of forwarding, by limit",
            rows,
        )?;
        let rows = Limit::ALL
            .map(|limit| ([("limit", limit.label())], forwarder.limited_prefetches(limit)));
        let help =
            "Hits on entries that expire soon and were not asked for again, by limit of forwarding";
        page.counters("prefetches_limited", help, rows)?;
        let servers = upstreams.servers().iter();
        let servers: Vec<_> = servers.map(|server| (server.address.to_string(), server)).collect();
        let rows = servers.iter().map(|(address, server)| {
            ([("upstream", address.as_str())], server.sent.load(Ordering::Relaxed))
        });
        page.counters("upstream_queries", "Queries sent to an upstream", rows)?;
        let rows = servers.iter().map(|(address, server)| {
            ([("upstream", address.as_str())], server.failed.load(Ordering::Relaxed))
        });
        page.counters("upstream_failures", "Queries an upstream failed to answer", rows)?;
        upstreams::write(page, forwarder, &upstreams)
    }

    fn taps(&self, page: &mut Page<'_>) -> fmt::Result {
        let taps = &self.sources.state.taps;
        let (log, dnstap) = (taps.query_log(), taps.dnstap());
        page.counter("query_log_lines", "Lines of the query log written", log.written())?;
        let help = "Queries missing in the query log because standard output was not read in time or refused them";
        page.counter("query_log_lost", help, log.lost())?;
        let help = "Query-reply pairs written to the dnstap connection";
        page.counter("dnstap_sent", help, dnstap.sent())?;
        let help = "Queries not sent as dnstap messages because the reader was away or slow";
        page.counter("dnstap_lost", help, dnstap.lost())?;
        let help = "1 while a reader of dnstap messages is connected";
        page.gauge("dnstap_connected", help, f64::from(u8::from(dnstap.is_connected())))
    }

    fn cache(&self, page: &mut Page<'_>) -> fmt::Result {
        let cache = self.sources.forwarder.cache();
        let outcomes = CacheResult::ALL.into_iter().zip(cache.outcomes());
        let rows = outcomes.map(|(outcome, count)| ([("outcome", outcome.label())], count));
        page.counters("cache_lookups", "Forwarded queries, by cache result", rows)?;
        page.gauge("cache_entries", "Entries of the cache", cache.entries() as f64)?;
        let help = "Octets that the entries of the cache take";
        page.gauge("cache_bytes", help, cache.octets() as f64)?;
        let (counters, load) = (cache.counters(), Ordering::Relaxed);
        let help = "Replies put in the cache";
        page.counter("cache_insertions", help, counters.insertions.load(load))?;
        let help = "Unexpired replies removed from the cache to make room";
        page.counter("cache_evictions", help, counters.evictions.load(load))
    }

    fn source(&self, page: &mut Page<'_>) -> fmt::Result {
        let reported = self.sources.status.read().clone();
        let objects = Resource::ALL.iter().zip(reported.objects);
        let rows = objects.map(|(kind, count)| ([("resource", kind.plural())], count as f64));
        page.gauges("objects", "Objects in memory", rows)?;
        let help = "Namespaces called like a top-level domain: their Services answer for names of the internet in Pods \
            with a search list";
        let like = reported.namespaces_like_top_level_domains;
        page.gauge("namespaces_like_top_level_domains", help, like as f64)?;
        let help = "Objects that are not served in full; /config names them";
        page.gauge("skipped_objects", help, reported.skipped.len() as f64)?;
        let help =
            "Times that an object was not served in full, and too many others were to list it";
        page.counter("skipped_objects_not_listed", help, reported.skipped.not_listed())?;
        let help = "Files that cannot be read as they are; their last good content is used";
        page.gauge("unusable_files", help, reported.bad_files.len() as f64)?;
        page.counter("object_changes", "Objects added, changed or deleted", reported.changes)?;
        let help = "Published states: changes that clients can see";
        page.counter("publications", help, reported.publications)?;
        let revision = reported.running.revision.as_str();
        let help = "Revision of the running configuration";
        page.gauges("config_info", help, [([("revision", revision)], 1.0)])?;
        let help = "Configurations taken into use";
        page.counter("config_accepted", help, reported.configurations)?;
        page.counter("config_rejected", "Configurations refused", reported.rejections)?;
        let help = "1 while the newest configuration is refused and an older one is in use";
        page.gauge("config_is_rejected", help, f64::from(u8::from(reported.rejection.is_some())))?;
        self.feeds(page)
    }

    /// E50, E51, E54: one stream per resource, and one for the configuration where the API has it.
    fn feeds(&self, page: &mut Page<'_>) -> fmt::Result {
        let reported = self.sources.status.read().clone();
        let resources = Resource::ALL.iter().map(|kind| kind.plural()).zip(&reported.feeds);
        let all: Vec<(&str, &Feed)> = resources
            .clone()
            .chain(reported.configuration.iter().map(|feed| ("configmaps", feed)))
            .collect();
        let now = SystemTime::now();
        let ages = all.iter().filter_map(|(name, feed)| {
            Some(([("resource", *name)], feed.staleness(now)?.as_secs_f64()))
        });
        let help = "Seconds since the last list, event or bookmark of a watch; before the first since the snapshot was \
                    confirmed, or since the start; healthy below 180";
        page.gauges("watch_age_seconds", help, ages)?;
        let rows = resources.flat_map(|(name, feed)| {
            let (live, snapshot, none) = match feed.source {
                DataSource::Live => (1.0, 0.0, 0.0),
                DataSource::Snapshot { .. } => (0.0, 1.0, 0.0),
                DataSource::None => (0.0, 0.0, 1.0),
            };
            [("live", live), ("snapshot", snapshot), ("none", none)]
                .map(|(source, is)| ([("resource", name), ("source", source)], is))
        });
        page.gauges("data_source", "1 for the source of the data of a resource", rows)?;
        type Count = fn(&Feed) -> u64;
        let counts: [(&str, &str, Count); 6] = [
            ("watch_events", "Watch events applied, without bookmarks", |feed| feed.events),
            ("relists", "Complete lists after the first", |feed| feed.relists),
            ("watch_failures", "Failed lists and watches", |feed| feed.failures),
            ("decode_failures", "Objects that could not be read", |feed| feed.undecodable),
            ("relist_differences", "Differences found by lists for comparison", |feed| {
                feed.differences
            }),
            (
                "version_resets",
                "Lists with a lower resourceVersion than before (etcd was restored)",
                |feed| feed.resets,
            ),
        ];
        for (name, help, count) in counts {
            let rows = all.iter().map(|(resource, feed)| ([("resource", *resource)], count(feed)));
            page.counters(name, help, rows)?;
        }
        let help = "1 while a configuration is expected and none is known: nothing is forwarded";
        page.gauge("config_is_missing", help, f64::from(u8::from(reported.is_unconfigured)))?;
        let help = "Times that another cluster answered at the API server's address";
        page.counter("cluster_changes", help, reported.cluster_changes)?;
        let help = "1 while some answers are still those of the cluster before the change";
        let serves_former = f64::from(u8::from(reported.serves_former_cluster()));
        page.gauge("serves_former_cluster", help, serves_former)?;
        // How late data is: since an event came (E53), and since the change behind a slice (E13).
        let status = &self.sources.status;
        let help = "Seconds from receiving an event until clients see its effect";
        page.histogram("event_to_visible_seconds", help, &status.event_to_visible.0.read())?;
        let help = "Seconds from the change behind an EndpointSlice, by its annotation, until clients see it";
        let changes = &status.change_to_visible;
        page.histogram("change_to_visible_seconds", help, &changes.delays.0.read())?;
        let help = "EndpointSlices changed at a time, by their annotation, that cannot be";
        page.counter("change_times_ignored", help, changes.ignored())
    }

    /// E52; nothing without a folder for it.
    fn snapshot(&self, page: &mut Page<'_>) -> fmt::Result {
        let reported = self.sources.status.read().snapshot.clone();
        if reported.folder.is_none() {
            return Ok(());
        }
        if let Some(confirmed_at_s) = reported.on_disk_confirmed_at_s {
            let help = "Seconds since the API server last confirmed the snapshot on disk";
            let age_s = unix_s().saturating_sub(confirmed_at_s);
            page.gauge("snapshot_age_seconds", help, age_s as f64)?;
        }
        page.gauge("snapshot_bytes", "Size of the snapshot on disk", reported.octets as f64)?;
        let help = "Objects that are not in the snapshot; /config names some of them";
        page.gauge("snapshot_left_out_objects", help, reported.left_out as f64)?;
        page.counter("snapshot_writes", "Snapshots written", reported.writes)?;
        let help = "Failed writes of a snapshot; /config says why";
        page.counter("snapshot_write_failures", help, reported.failures)
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
