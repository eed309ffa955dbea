//! What came and what was answered, in our own names.

use std::fmt;

use dataplane_core::{QuestionType, WorkerCounters};

use super::Sources;
use crate::origin::Origin;
use crate::rcode;
use crate::serve::{self, ServedOver, Totals};
use process::metrics::Page;

/// Transports that have rows: UDP and TCP always, the others once a query came over them.
pub(super) fn shown(sources: &Sources) -> impl Iterator<Item = ServedOver> {
    ServedOver::ALL.into_iter().filter(|over| match over {
        ServedOver::Udp | ServedOver::Tcp => true,
        ServedOver::Tls | ServedOver::Https | ServedOver::Quic => {
            sources.serving.traffic.read(*over).queries.count() > 0
        }
    })
}

/// Both address families of clients: the label, and whether it is IPv6.
const FAMILIES: [(&str, bool); 2] = [("ipv4", false), ("ipv6", true)];

/// Queries that could be read, of one type and address family, over one transport.
pub(super) fn questions(
    sources: &Sources,
    over: ServedOver,
    over_ipv6: bool,
    qtype: QuestionType,
) -> u64 {
    let workers = serve::counters_over(&sources.state.counters, over);
    workers.iter().map(|worker| worker.questions(over_ipv6, qtype)).sum()
}

pub(super) fn write(page: &mut Page<'_>, sources: &Sources) -> fmt::Result {
    let totals: Vec<(&str, Totals)> =
        shown(sources).map(|over| (over.label(), sources.serving.traffic.read(over))).collect();
    let rows = shown(sources).flat_map(|over| {
        FAMILIES.into_iter().flat_map(move |(family, is_ipv6)| {
            QuestionType::ALL.map(|qtype| {
                let labels =
                    [("transport", over.label()), ("family", family), ("type", qtype.label())];
                (labels, questions(sources, over, is_ipv6, qtype))
            })
        })
    });
    page.counters("questions", "Queries that could be read, by their type", rows)?;
    let workers = &sources.state.counters;
    let dnssec_ok = workers.iter().map(|worker| WorkerCounters::dnssec_ok(worker)).sum();
    page.counter("dnssec_ok_queries", "Queries with the DO bit", dnssec_ok)?;
    let rows = totals.iter().flat_map(|(transport, totals)| {
        Origin::ALL.into_iter().flat_map(move |origin| {
            let counts = totals.by_rcode[origin as usize];
            rcode::LABELS.into_iter().zip(counts).map(move |(rcode, count)| {
                let labels =
                    [("transport", *transport), ("origin", origin.label()), ("rcode", rcode)];
                (labels, count)
            })
        })
    });
    page.counters("replies", "Replies, by where they came from and by response code", rows)?;
    let rows = totals.iter().flat_map(|(transport, totals)| {
        Origin::ALL.into_iter().map(move |origin| {
            let labels = [("transport", *transport), ("origin", origin.label())];
            (labels, totals.durations[origin as usize].clone())
        })
    });
    let help = "Seconds from receiving a query to sending its reply, by origin";
    page.histograms("query_duration_seconds", help, rows)?;
    let rows = totals.iter().map(|(over, totals)| ([("transport", *over)], totals.queries.clone()));
    page.histograms("query_size_bytes", "Octets of queries", rows)?;
    let rows = totals.iter().map(|(over, totals)| ([("transport", *over)], totals.replies.clone()));
    page.histograms("reply_size_bytes", "Octets of replies", rows)
}
