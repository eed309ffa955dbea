//! CHAOS names that monitors and dnsmasq's users ask for (docs/dns.md §2.4).

use core::fmt::Write;
use core::sync::atomic::Ordering::Relaxed;

use crate::counters::{Counters, Reason, WorkerCounters};
use crate::records::Records;
use crate::wire::labels::Labels;
use crate::wire::message::rtype;
use crate::wire::reply::{Rdata, Reply};
use crate::wire::text::ShortText;

/// Whether a CHAOS name is answered; writes its TXT record if the type asks for it.
pub(crate) fn write_chaos(
    records: &Records,
    name: &Labels,
    qtype: u16,
    counters: &Counters<'_>,
    reply: &mut Reply<'_, '_>,
) -> bool {
    if !records.zone.settings.chaos || name.count() != 2 {
        return false;
    }
    let mut text = ShortText::EMPTY;
    let identity = counters.identity;
    let version;
    let strings: &[&[u8]] = match (name.label(0), name.label(1)) {
        (b"version", b"bind" | b"server") => {
            // Long enough for any version; text that does not fit is left out.
            let _ = write!(text, "clusterdns-{}", identity.version);
            version = [text.as_bytes()];
            &version
        }
        (b"hostname", b"bind") | (b"id", b"server") => &[identity.pod_name.as_bytes()],
        (b"cachesize", b"bind") => {
            return number(u64::from(records.zone.settings.cache_entries), qtype, reply);
        }
        (b"hits", b"bind") => return number(sum(counters, own_answers), qtype, reply),
        (b"misses", b"bind") => return number(sum(counters, forwarded), qtype, reply),
        (b"insertions", b"bind") => {
            return number(counters.cache.insertions.load(Relaxed), qtype, reply);
        }
        (b"evictions", b"bind") => {
            return number(counters.cache.evictions.load(Relaxed), qtype, reply);
        }
        (b"servers", b"bind") => {
            if is_text(qtype) {
                let _ = reply.chaos_answer(Rdata::Servers(counters.servers));
            }
            return true;
        }
        _ => return false,
    };
    if is_text(qtype) {
        let _ = reply.chaos_answer(Rdata::Strings(strings));
    }
    true
}

fn is_text(qtype: u16) -> bool {
    matches!(qtype, rtype::TXT | rtype::ANY)
}

fn number(number: u64, qtype: u16, reply: &mut Reply<'_, '_>) -> bool {
    let mut text = ShortText::EMPTY;
    let _ = write!(text, "{number}");
    if is_text(qtype) {
        let _ = reply.chaos_answer(Rdata::Strings(&[text.as_bytes()]));
    }
    true
}

fn sum(counters: &Counters<'_>, of: fn(&WorkerCounters) -> u64) -> u64 {
    counters.all.iter().map(|worker| of(worker)).sum()
}

/// A53: answered without asking an upstream.
fn own_answers(worker: &WorkerCounters) -> u64 {
    let own = Reason::ALL.iter().filter(|reason| reason.is_own_answer());
    own.map(|&reason| worker.count(reason)).sum::<u64>() + worker.cached()
}

/// A53: needed an upstream.
fn forwarded(worker: &WorkerCounters) -> u64 {
    worker.count(Reason::Forward).saturating_sub(worker.cached())
}
