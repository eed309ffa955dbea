//! What the cache takes of memory (C1, CA5), as the allocator counts it. `make bench` asks the system the same with ten million
//! names.

use allocation_counter::AllocationInfo;
use dataplane::forward::cache::{Cache, CacheLimits, Member};
use dataplane_core::{CacheRules, LookupKey, Name, Relayed, TtlCaps, Verdict};
use hickory_proto::rr::RecordType;

const RULES: CacheRules = CacheRules { stale_s: 3_600, prefetch: true };

/// What an upstream says of the TXT record of a name: this many octets of text.
fn text_reply(name: &str, octets: u16) -> Relayed {
    let key = LookupKey::new(Name::from_text(name).unwrap(), RecordType::TXT.into(), false, false);
    let mut message = key.upstream_query(9).wire;
    // Without the OPT, which has 11 octets.
    message.truncate(message.len() - 11);
    (message[2], message[7], message[11]) = (0x81, 1, 0);
    message.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 2, 88]);
    message.extend(octets.to_be_bytes());
    message.resize(message.len() + usize::from(octets), 0);
    match key.judge(9, &message, &TtlCaps::default()) {
        Verdict::Good(relayed) => relayed,
        other => panic!("{other:?}"),
    }
}

/// A cache after this, and what was allocated for it.
fn filled(fill: impl FnOnce(&Cache)) -> (Cache, AllocationInfo) {
    let mut cache = None;
    let measured = allocation_counter::measure(|| {
        let it = Cache::default();
        fill(&it);
        cache = Some(it);
    });
    (cache.expect("it was filled"), measured)
}

#[test]
fn c1_ca5_the_cache_takes_no_more_than_it_counts() {
    for (entries, octets) in [(20_000, 40), (2_000, 4_000)] {
        let limits = CacheLimits { octets: 1 << 30, entries, rules: RULES };
        let (cache, measured) = filled(|cache| {
            // Twice as many as fit: what was removed is given back.
            for n in 0..2 * entries {
                let reply = text_reply(&format!("n{n}.example"), octets);
                cache.keep(1, (&reply, Member::at(0)), u32::MAX, 0, &limits);
            }
        });
        let taken = usize::try_from(measured.bytes_current).unwrap();
        assert_eq!(cache.entries(), entries);
        // What removed names leave is a fixed part, beside what is counted: 32 KiB for each of 16 parts. Hash tables
        // double at sizes that the random keys of their hash decide.
        let counted = cache.octets() + (16 << 15);
        assert!(taken <= counted, "{taken} octets are taken, {counted} counted");
        assert!(counted <= taken * 3 / 2, "{taken} octets are taken, {counted} counted");
    }
}

#[test]
fn c1_names_without_end_take_the_budget_of_the_cache_and_five_percent() {
    const BUDGET: usize = 16 << 20;
    // Six times what fits; ten million in `make bench`.
    const NAMES: u64 = 300_000;
    let limits = CacheLimits { octets: BUDGET, entries: 10_000_000, rules: RULES };
    let (cache, measured) = filled(|cache| {
        for number in 0..NAMES {
            let reply = text_reply(&format!("n{number}.example"), 40);
            cache.keep(1, (&reply, Member::at(0)), u32::MAX, number, &limits);
        }
    });
    assert!((cache.entries() as u64) < NAMES / 4, "{} names fit", cache.entries());
    assert!(cache.octets() > BUDGET / 20 * 19, "{} octets: it is not full", cache.octets());
    // At its end, and at any time before.
    for taken in [measured.bytes_current as u64, measured.bytes_max] {
        assert!(taken <= BUDGET as u64 / 20 * 21, "{taken} octets are taken of {BUDGET}");
    }
}

#[test]
fn c1_replies_that_become_larger_take_the_budget_of_the_cache_and_five_percent() {
    const BUDGET: usize = 16 << 20;
    let limits = CacheLimits { octets: BUDGET, entries: 10_000_000, rules: RULES };
    // Of each size twice what fits. The smallest replies leave room for three times as many entries as the next ones.
    for sizes in [[40, 700], [40, 4_000], [700, 4_000]] {
        let (cache, measured) = filled(|cache| {
            let mut number = 0;
            for octets in sizes {
                for _ in 0..2 * BUDGET / (usize::from(octets) + 150) {
                    let reply = text_reply(&format!("n{number}.example"), octets);
                    cache.keep(1, (&reply, Member::at(0)), u32::MAX, number, &limits);
                    number += 1;
                }
            }
            // As time passes.
            (0..16).for_each(|turn| cache.tidy(turn));
        });
        assert!(cache.octets() > BUDGET / 20 * 19, "{} octets: it is not full", cache.octets());
        let taken = measured.bytes_current as u64;
        assert!(
            taken <= BUDGET as u64 / 20 * 21,
            "{sizes:?}: {taken} octets are taken of {BUDGET}"
        );
    }
}
