//! Good replies and denials are counted apart.

use super::*;

/// An NXDOMAIN for this key, with an SOA that lets it be kept.
fn denial(key: &LookupKey) -> Relayed {
    let mut message = key.upstream_query(9).wire;
    // Without the OPT, which has 11 octets.
    message.truncate(message.len() - 11);
    (message[2], message[3], message[9], message[11]) = (0x81, 3, 1, 0);
    // An SOA of the root, with a TTL and a minimum of 600 s.
    message.extend([0, 0, 6, 0, 1, 0, 0, 2, 88, 0, 22, 0, 0]);
    message.extend([0; 16]);
    message.extend([0, 0, 2, 88]);
    match key.judge(9, &message, &TtlCaps::default()) {
        Verdict::Good(relayed) => relayed,
        other => panic!("{other:?}"),
    }
}

fn deny(cache: &Cache, name: &str, limits: &CacheLimits) {
    cache.keep(ROUTE, (&denial(&key(name)), SERVER), u32::MAX, 0, limits);
}

/// Metrics show each as a counter: one that falls looks like a process that was started again.
#[test]
fn a_flood_of_denials_moves_no_count_of_good_replies() {
    let few = CacheLimits { entries: 160, ..LIMITS };
    let cache = Cache::default();
    fill(&cache, "n", 400, 9, &few);
    // Only denials are left, and looked for.
    for n in 0..2_000 {
        deny(&cache, &format!("first{n}.example"), &few);
    }
    let [before, denials] = cache.by_kind();
    let all = cache.counters().evictions.load(Ordering::Relaxed);
    assert_eq!((before.entries, before.evictions), (0, 400));
    assert_eq!(before.evictions + denials.evictions, all);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            for n in 0..20_000 {
                let name = format!("m{n}.example");
                deny(&cache, &name, &few);
                cache.find(ROUTE, &key(&name), 0, 0, &few);
            }
        });
        while !flood.is_finished() {
            assert_eq!(cache.by_kind()[0], before);
        }
    });
    let [_, after] = cache.by_kind();
    assert!(after.hits > denials.hits && after.evictions > denials.evictions + 10_000);
}

#[test]
fn hits_are_counted_by_the_kind_of_what_was_found() {
    let cache = Cache::default();
    keep(&cache, "good.example", 9, 0, &LIMITS);
    deny(&cache, "none.example", &LIMITS);
    cache.note_failure(ROUTE, &key("fails.example"), true, (0, 0), &LIMITS);
    for name in ["good.example", "good.example", "none.example", "fails.example", "miss.example"] {
        cache.find(ROUTE, &key(name), 0, 0, &LIMITS);
    }
    let [good, denials] = cache.by_kind();
    assert_eq!((good.entries, good.hits), (1, 2));
    assert_eq!((denials.entries, denials.hits), (2, 2));
}
