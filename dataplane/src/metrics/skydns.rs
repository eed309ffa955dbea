//! The metrics of kube-dns: those of its resolver (SkyDNS), and those that its sidecar read from dnsmasq. docs/metrics.md
//! says what each means here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Sources, traffic};
use crate::forward::cache::CacheResult;
use crate::origin::Origin;
use crate::rcode;
use crate::serve::Totals;
use crate::sidecar_probe::Probe;
use process::histogram::Distribution;
use process::metrics::{Page, Part};

/// Which part of kube-dns would have answered, by where a reply came from here.
const SYSTEMS: [(&str, &[Origin]); 3] = [
    ("auth", &[Origin::Own]),
    ("cache", &[Origin::Cache, Origin::Stale]),
    ("recursive", &[Origin::Upstream, Origin::Failed]),
];

/// One of the two pages of kube-dns.
#[derive(Clone, Debug)]
pub enum KubeDnsPage {
    /// That of its resolver, on port 10055.
    Resolver,
    /// That of its sidecar, on port 10054, with what these probes found.
    Sidecar(Arc<[Arc<Probe>]>),
}

/// Writes the metrics of the resolver, with their whole names.
#[derive(Debug)]
pub(super) struct Resolver(pub(super) Arc<Sources>);

/// Writes what the sidecar read from dnsmasq.
#[derive(Debug)]
pub(super) struct Dnsmasq(pub(super) Arc<Sources>);

/// Writes what probes found.
#[derive(Debug)]
pub(super) struct Probes(pub(super) Arc<[Arc<Probe>]>);

impl Part for Probes {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|probe| {
            let name = format!("kubedns_probe_{}_latency_ms", probe.label);
            page.histogram(&name, "Milliseconds until a reply", &probe.latency_ms())?;
            let name = format!("kubedns_probe_{}_errors", probe.label);
            // kube-dns shows a counter without a suffix, which the text format for counters cannot.
            page.gauge(&name, "Questions without an answer", probe.errors() as f64)
        })
    }
}

impl Part for Resolver {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let totals: Vec<Totals> =
            traffic::shown(&self.0).map(|over| self.0.serving.traffic.read(over)).collect();
        let count = |origins: &[Origin], rcode: &str| {
            let place = rcode::LABELS.iter().position(|label| *label == rcode).unwrap_or_default();
            let of = |totals: &Totals| {
                origins.iter().map(|origin| totals.by_rcode[*origin as usize][place]).sum::<u64>()
            };
            totals.iter().map(of).sum::<u64>()
        };
        let durations = |origins: &[Origin]| {
            let all = totals.iter().flat_map(|totals| {
                origins.iter().map(|origin| &totals.durations[*origin as usize])
            });
            all.fold(Distribution::default(), |sum, more| sum.plus(more))
        };
        let rows = SYSTEMS.map(|(system, origins)| {
            let all = rcode::LABELS.iter().map(|rcode| count(origins, rcode)).sum();
            ([("system", system)], all)
        });
        page.counters("skydns_skydns_dns_request_count", "Replies", rows)?;
        let rows = SYSTEMS.map(|(system, origins)| ([("system", system)], durations(origins)));
        page.histograms("skydns_skydns_dns_request_duration_seconds", "From query to reply", rows)?;
        let sizes = totals.iter().fold(Distribution::default(), |sum, it| sum.plus(&it.replies));
        let rows = [([("system", "auth")], sizes)];
        page.histograms("skydns_skydns_dns_response_size_bytes", "Octets of replies", rows)?;
        let causes = [("nxdomain", "NXDOMAIN"), ("refused", "REFUSED"), ("servfail", "SERVFAIL")];
        let rows = SYSTEMS.into_iter().flat_map(|(system, origins)| {
            causes.map(|(cause, rcode)| {
                ([("system", system), ("cause", cause)], count(origins, rcode))
            })
        });
        page.counters(
            "skydns_skydns_dns_error_count",
            "Replies without an answer, by cause",
            rows,
        )?;
        let outcomes = self.0.forwarder.cache().outcomes();
        let misses = outcomes[CacheResult::Miss as usize] + outcomes[CacheResult::Refresh as usize];
        let rows = [([("cache", "response")], misses)];
        page.counters("skydns_skydns_dns_cachemiss_count", "Look-ups for an upstream", rows)
    }
}

impl Part for Dnsmasq {
    /// dnsmasq held answers of the cluster too: own answers count as its hits, as in the CHAOS name `hits.bind.` (A53).
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let cache = self.0.forwarder.cache();
        let own = self.0.state.counters.iter().flat_map(|worker| {
            let answers = dataplane_core::Reason::ALL.into_iter().filter(|it| it.is_own_answer());
            answers.map(|reason| worker.count(reason)).chain([worker.cached()])
        });
        let outcomes = cache.outcomes();
        let misses = outcomes[CacheResult::Miss as usize] + outcomes[CacheResult::Refresh as usize];
        let entries = self.0.configs.borrow().cache.entries;
        let counters = cache.counters();
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        for (name, help, value) in [
            ("hits", "Answers from memory", own.sum::<u64>()),
            ("misses", "Cache misses", misses),
            ("evictions", "Unexpired replies removed to make room", load(&counters.evictions)),
            ("insertions", "Replies put in the cache", load(&counters.insertions)),
            ("max_size", "Entries that the cache may have", u64::from(entries)),
            ("errors", "Always 0: no other process is asked for these numbers", 0),
        ] {
            // kube-dns shows them as gauges, without a suffix.
            page.gauge(&format!("kubedns_dnsmasq_{name}"), help, value as f64)?;
        }
        Ok(())
    }
}
