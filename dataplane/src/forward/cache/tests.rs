//! The cache by itself: what is found by which key, its bounds, what goes first, and what its pages show.

use dataplane_core::{Name, TtlCaps, Verdict};

use super::*;

mod hashes;
mod kinds;
mod shrink;

const ROUTE: RouteId = 7;
const SERVER: Member = Member(0);
const LIMITS: CacheLimits = CacheLimits {
    octets: 1 << 20,
    entries: 1_000,
    rules: CacheRules { stale_s: 3_600, prefetch: true },
};

fn key(name: &str) -> LookupKey {
    LookupKey::new(Name::from_text(name).unwrap(), 16, false, false)
}

/// A reply with one TXT record of this many octets.
fn reply(key: &LookupKey, ttl_s: u32, octets: usize) -> Relayed {
    let mut message = key.upstream_query(9).wire;
    // Without the OPT, which has 11 octets.
    message.truncate(message.len() - 11);
    (message[2], message[7], message[11]) = (0x81, 1, 0);
    message.extend([0xc0, 12, 0, 16, 0, 1]);
    message.extend(ttl_s.to_be_bytes());
    message.extend((octets as u16).to_be_bytes());
    message.resize(message.len() + octets, 0);
    match key.judge(9, &message, &TtlCaps::default()) {
        Verdict::Good(relayed) => relayed,
        other => panic!("{other:?}"),
    }
}

fn keep(cache: &Cache, name: &str, octets: usize, now_ms: u64, limits: &CacheLimits) {
    cache.keep(ROUTE, (&reply(&key(name), 600, octets), SERVER), u32::MAX, now_ms, limits);
}

/// Keeps replies of this size for as many names, which begin with this.
fn fill(cache: &Cache, prefix: &str, names: usize, octets: usize, limits: &CacheLimits) {
    for n in 0..names {
        keep(cache, &format!("{prefix}{n}.example"), octets, 0, limits);
    }
}

fn is_fresh(cache: &Cache, name: &str, now_ms: u64, limits: &CacheLimits) -> bool {
    let found = cache.find(ROUTE, &key(name), now_ms, 0, limits);
    matches!(found, Found::Reply { freshness: Freshness::Fresh { .. }, .. })
}

#[test]
fn ca1_an_entry_is_found_by_its_route_and_key_only() {
    let cache = Cache::default();
    keep(&cache, "a.example", 9, 0, &LIMITS);
    assert!(is_fresh(&cache, "a.example", 0, &LIMITS) && is_fresh(&cache, "A.example", 0, &LIMITS));
    assert!(!is_fresh(&cache, "b.example", 0, &LIMITS));
    let name = || Name::from_text("a.example").unwrap();
    for (route, key) in [
        (8, key("a.example")),
        (ROUTE, LookupKey::new(name(), 1, false, false)),
        (ROUTE, LookupKey::new(name(), 16, true, false)),
        (ROUTE, LookupKey::new(name(), 16, false, true)),
    ] {
        assert!(
            matches!(cache.find(route, &key, 0, 0, &LIMITS), Found::Nothing),
            "{route} {key:?}"
        );
    }
    assert_eq!(cache.outcomes(), [2, 0, 0, 0, 0, 5]);
}

#[test]
fn ca4_ca5_neither_octets_nor_entries_pass_their_bounds() {
    for (octets, limits) in [
        (100, LIMITS),
        (4_096, LIMITS),
        (100, CacheLimits { octets: 64 << 10, ..LIMITS }),
        (100, CacheLimits { entries: 3, ..LIMITS }),
        (100, CacheLimits { octets: 300, ..LIMITS }),
    ] {
        let cache = Cache::default();
        for n in 0..3_000 {
            keep(&cache, &format!("n{n}.example"), octets, n, &limits);
            assert!(cache.octets() <= limits.octets && cache.entries() <= limits.entries);
        }
        let counters = cache.counters();
        let inserted = counters.insertions.load(Ordering::Relaxed);
        let evicted = counters.evictions.load(Ordering::Relaxed);
        assert_eq!((inserted, evicted), (3_000, 3_000 - cache.entries() as u64));
        // The counts match what is held, and a cache whose bound has room for entries keeps some.
        let held: usize = cache.shards.iter().map(|shard| lock(shard).len()).sum();
        assert_eq!(held, cache.entries());
        assert!(cache.entries() > 0 || limits.octets < 1_000, "{octets} {limits:?}");
        let less = CacheLimits { octets: 2_000, ..limits };
        keep(&cache, "less.example", 9, 0, &less);
        assert!(cache.octets() <= 2_000, "a smaller bound holds from the next insertion on");
        keep(&cache, "off.example", 9, 0, &CacheLimits { entries: 0, ..limits });
        assert_eq!((cache.octets(), cache.entries()), (0, 0));
    }
}

#[test]
fn ca4_a_message_over_16_kib_is_not_kept() {
    let cache = Cache::default();
    let kept = |octets| {
        keep(&cache, "long.example", octets, 0, &LIMITS);
        is_fresh(&cache, "long.example", 0, &LIMITS)
    };
    assert!(kept(16_000));
    assert!(!kept(17_000), "and what was there is gone");
    assert!(kept(9));
}

#[test]
fn c2_a_scan_of_unique_names_leaves_what_is_asked_for_again() {
    let cache = Cache::default();
    let hot: Vec<String> = (0..500).map(|n| format!("hot{n}.example")).collect();
    let mut hits = [0; 2];
    let mut scanned = 0;
    for round in 0..40 {
        for name in &hot {
            if is_fresh(&cache, name, 0, &LIMITS) {
                hits[usize::from(round >= 20)] += 1;
            } else {
                keep(&cache, name, 9, 0, &LIMITS);
            }
            // In the second half, ten names that are asked once come with each hot name.
            for _ in 0..if round >= 20 { 10 } else { 0 } {
                scanned += 1;
                keep(&cache, &format!("scan{scanned}.example"), 9, 0, &LIMITS);
            }
        }
    }
    assert!(hits[0] >= 19 * 500, "before: {hits:?}");
    assert!(hits[1] * 100 >= 95 * 20 * 500, "less than five points are lost: {hits:?}");
}

#[test]
fn ca5_what_the_hot_set_becomes_is_kept_after_a_while() {
    let cache = Cache::default();
    let small = CacheLimits { entries: 200, ..LIMITS };
    let mut hits = 0;
    for round in 0..60 {
        for n in 0..100 {
            let name = format!("{}-{n}.example", if round < 30 { "old" } else { "new" });
            match is_fresh(&cache, &name, 0, &small) {
                true => hits += usize::from(round >= 40),
                false => keep(&cache, &name, 9, 0, &small),
            }
        }
    }
    assert!(hits >= 19 * 100, "{hits} of 2,000");
}

#[test]
fn ca20_a_failure_is_remembered_and_an_answer_ends_it() {
    let cache = Cache::default();
    let a = key("a.example");
    let find = |now_ms, recoveries| cache.find(ROUTE, &a, now_ms, recoveries, &LIMITS);
    cache.note_failure(ROUTE, &a, true, (0, 0), &LIMITS);
    assert!(
        matches!(find(999, 0), Found::Failed { was_silent: true })
            && matches!(find(1_000, 0), Found::Nothing)
    );
    cache.note_failure(ROUTE, &a, true, (1_000, 0), &LIMITS);
    assert!(matches!(find(2_999, 0), Found::Failed { was_silent: true }));
    assert!(matches!(find(2_999, 1), Found::Nothing), "a server came back (FW29)");
    cache.note_failure(ROUTE, &a, true, (3_000, 1), &LIMITS);
    cache.keep(ROUTE, (&reply(&a, 600, 9), SERVER), u32::MAX, 3_000, &LIMITS);
    assert!(is_fresh(&cache, "a.example", 3_001, &LIMITS));
    assert_eq!(cache.entries(), 1, "the answer took the place of the failure");
}

#[test]
fn ca2_ca41_a_good_reply_that_is_not_kept_ends_what_was_kept() {
    let cache = Cache::default();
    let a = key("a.example");
    let is_stale = || {
        let found = cache.find(ROUTE, &a, 700_000, 0, &LIMITS);
        matches!(found, Found::Reply { freshness: Freshness::Stale, .. })
    };
    keep(&cache, "a.example", 9, 0, &LIMITS);
    assert!(is_stale());
    cache.note_failure(ROUTE, &a, true, (700_000, 0), &LIMITS);
    assert!(is_stale(), "a failure never takes its place");
    cache.keep(ROUTE, (&reply(&a, 0, 9), SERVER), u32::MAX, 700_000, &LIMITS);
    assert!(!is_stale() && matches!(cache.find(ROUTE, &a, 0, 0, &LIMITS), Found::Nothing));
}

#[test]
fn ca5_a_smaller_bound_leaves_each_part_of_the_cache_as_much() {
    let cache = Cache::default();
    let most = CacheLimits { octets: 16 << 20, entries: 16_000, ..LIMITS };
    for n in 0..8_000 {
        keep(&cache, &format!("n{n}.example"), 9, 0, &most);
        // All of them were asked for again.
        for _ in 0..3 {
            assert!(is_fresh(&cache, &format!("n{n}.example"), 0, &most));
        }
    }
    let less = CacheLimits { entries: 1_600, ..most };
    // An insert removes some of them, and the rest expire.
    keep(&cache, "one.example", 9, 0, &less);
    let evicted = cache.counters().evictions.load(Ordering::Relaxed) as usize;
    assert!((1..=(2 * SHARDS + 1) * TURNS).contains(&evicted), "{evicted}");
    assert!(cache.entries() > 1_600, "{}", cache.entries());
    assert!(is_fresh(&cache, "one.example", 0, &less), "what came now stays");
    let mut sweep = Sweep::default();
    while sweep.step(&cache, 0, &less, |_| true) {}
    assert_eq!(cache.entries(), 1_600);
    let each: Vec<usize> = cache.shards.iter().map(|shard| lock(shard).len()).collect();
    assert!(each.iter().all(|entries| (99..=101).contains(entries)), "{each:?}");
}

#[test]
fn ca5_no_lock_is_held_for_more_than_a_few_turns() {
    let mut shard = Shard::default();
    for n in 0..1_000 {
        let key = key(&format!("n{n}.example"));
        shard.keep(n, ROUTE, (reply(&key, 600, 9), SERVER), 600, 0);
        let at = Moment { now_ms: 0, recoveries: 0, rules: LIMITS.rules };
        (0..3).for_each(|_| _ = shard.find(n, ROUTE, &key, at));
    }
    // Every entry was asked for again: each turn moves one, and the last turn removes the one that it finds.
    let mut turns = TURNS;
    assert!(shard.evict(0, &mut turns));
    assert_eq!((turns, shard.len()), (0, 999));
}

#[test]
fn ca1_entries_on_routes_that_are_no_more_leave_step_by_step() {
    let cache = Cache::default();
    let other = ROUTE + 1;
    let name = |n: u64| format!("n{n}.example");
    for n in 0..600 {
        keep(&cache, &name(n), 9, 0, &LIMITS);
        if n % 3 == 0 {
            cache.keep(other, (&reply(&key(&name(n)), 600, 9), SERVER), u32::MAX, 0, &LIMITS);
        }
    }
    // Some of them were asked for again, and are in the other queue after a round of evictions.
    (0..600).for_each(|n| assert!(is_fresh(&cache, &name(n), 0, &LIMITS)));
    cache.note_failure(other, &key("failed.example"), true, (0, 0), &LIMITS);
    let (octets, entries) = (cache.octets(), cache.entries());
    let evictions = || cache.counters().evictions.load(Ordering::Relaxed);
    let before = evictions();
    assert_eq!(entries, 801);
    let (mut sweep, mut steps, mut fewest) = (Sweep::default(), 0, entries);
    while sweep.step(&cache, 0, &LIMITS, |route| route == ROUTE) {
        steps += 1;
        assert!(fewest - cache.entries() <= 2 * TURNS, "a step is short");
        fewest = cache.entries();
    }
    assert!(steps >= SHARDS - 1, "{steps}");
    assert_eq!(cache.entries(), 600);
    assert!(cache.octets() < octets);
    assert_eq!(evictions(), before, "they left, but not to make room");
    assert!((0..600).all(|n| is_fresh(&cache, &name(n), 0, &LIMITS)));
    let shown = cache.page(0, 0);
    assert!(shown.entries.iter().all(|entry| entry.route == ROUTE) && shown.total_entries == 600);
    assert!(matches!(cache.find(other, &key(&name(0)), 0, 0, &LIMITS), Found::Nothing));
    let held: usize = cache.shards.iter().map(|shard| lock(shard).len()).sum();
    assert_eq!(held, cache.entries(), "what is held is what is counted");
}

#[test]
fn ca5_a_smaller_bound_holds_soon_though_nothing_is_inserted() {
    let cache = Cache::default();
    fill(&cache, "n", 900, 9, &LIMITS);
    for less in [CacheLimits { entries: 90, ..LIMITS }, CacheLimits { octets: 0, ..LIMITS }] {
        let mut sweep = Sweep::default();
        while sweep.step(&cache, 0, &less, |_| true) {}
        assert!(cache.octets() <= less.octets && cache.entries() <= less.entries);
    }
}

#[test]
fn c1_names_that_come_and_go_do_not_enlarge_the_index() {
    const ENTRIES: usize = 60 * SHARDS;
    let (cache, limits) = (Cache::default(), CacheLimits { entries: ENTRIES, ..LIMITS });
    for number in 0..30 * ENTRIES as u64 {
        keep(&cache, &format!("n{number}.example"), 10, number, &limits);
    }
    let places: usize = cache.shards.iter().map(|shard| lock(shard).places_of_index()).sum();
    // Tables have room for 7/8 of a power of two: for 56, or for 112.
    assert!(places <= ENTRIES * 5 / 2, "{places} places for {ENTRIES} entries");
}

#[test]
fn ca2_names_that_come_and_go_do_not_pass_the_bounds() {
    let cache = Cache::default();
    for n in 0..10_000 {
        let a = key(&format!("n{}.example", n % 7));
        cache.keep(ROUTE, (&reply(&a, n % 2 * 60, 9), SERVER), u32::MAX, 0, &LIMITS);
        assert!(cache.entries() <= LIMITS.entries);
    }
}

#[test]
fn the_pages_of_the_cache_are_bounded_and_show_each_entry_once() {
    let cache = Cache::default();
    for n in 0..900 {
        keep(&cache, &format!("n{n}.example"), 9, 1_000, &LIMITS);
    }
    let (mut from, mut names, mut pages) = (Some(0), Vec::new(), 0);
    while let Some(at) = from {
        let page = cache.page(at, 11_500);
        assert!(page.entries.len() <= page::MAX_ENTRIES && page.total_entries == 900);
        assert!(page.entries.iter().all(|e| (e.age_seconds, e.lifetime_seconds) == (10, 600)));
        names.extend(page.entries.into_iter().map(|entry| entry.name));
        (from, pages) = (page.next, pages + 1);
    }
    names.sort();
    names.dedup();
    assert_eq!((names.len(), pages), (900, 4));
    assert!(cache.page(usize::MAX, 0).entries.len() <= page::MAX_ENTRIES);
}

#[test]
fn ca20_a_failure_that_is_no_longer_remembered_is_on_no_page() {
    let cache = Cache::default();
    cache.note_failure(ROUTE, &key("failed.example"), true, (0, 0), &LIMITS);
    let shown = |now_ms| {
        let entries = cache.page(0, now_ms).entries;
        entries.into_iter().map(|e| (e.rcode, e.age_seconds, e.lifetime_seconds)).next()
    };
    assert_eq!(shown(999), Some((2, 0, 0)));
    assert_eq!(shown(1_000), None);
}

#[test]
fn a_page_looks_at_a_bounded_number_of_slots_also_where_most_are_empty() {
    const ENTRIES: usize = 2 * page::MAX_SLOTS;
    let cache = Cache::default();
    let large = CacheLimits { entries: ENTRIES, octets: usize::MAX, ..LIMITS };
    fill(&cache, "n", ENTRIES, 9, &large);
    // Not by a sweep, which moves what is left together.
    let few = CacheLimits { entries: 20, ..large };
    while cache.is_over(&few) {
        keep(&cache, "again.example", 9, 0, &few);
    }
    let (mut from, mut shown, mut pages) = (Some(0), 0, 0);
    while let Some(at) = from {
        let page = cache.page(at, 0);
        (from, shown, pages) = (page.next, shown + page.entries.len(), pages + 1);
    }
    assert_eq!(shown, cache.entries());
    assert!(pages >= 2, "{shown} entries on {pages} pages");
}

#[test]
fn ca5_fw11_a_cache_that_is_off_says_that_it_keeps_nothing() {
    for limits in [CacheLimits { octets: 0, ..LIMITS }, CacheLimits { entries: 0, ..LIMITS }] {
        let (cache, key) = (Cache::default(), key("a.example"));
        // So the result is given to those who came before, in another way.
        assert!(!cache.keep(ROUTE, (&reply(&key, 600, 9), SERVER), u32::MAX, 0, &limits));
        assert!(!cache.note_failure(ROUTE, &key, true, (0, 0), &limits));
        assert_eq!((cache.octets(), cache.entries()), (0, 0));
        assert_eq!(cache.counters().insertions.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn ca20_after_a_good_reply_the_next_failure_is_the_first_again() {
    let cache = Cache::default();
    let limits = CacheLimits { rules: CacheRules { stale_s: 0, ..LIMITS.rules }, ..LIMITS };
    let key = key("a.example");
    let fail = |now_ms| cache.note_failure(ROUTE, &key, true, (now_ms, 0), &limits);
    let is_remembered = |now_ms| {
        matches!(cache.find(ROUTE, &key, now_ms, 0, &limits), Found::Failed { was_silent: true })
    };
    assert!(fail(0) && fail(1_000));
    assert!(is_remembered(2_999) && !is_remembered(3_000), "the second one for 2 s");
    keep(&cache, "a.example", 9, 3_000, &limits);
    // Its TTL is 600 s.
    let expired = 603_000;
    assert!(!is_remembered(expired) && fail(expired));
    assert!(is_remembered(expired + 999) && !is_remembered(expired + 1_000));
}

#[test]
fn ca5_a_name_that_returns_soon_after_it_was_evicted_outlives_a_scan() {
    let cache = Cache::default();
    let is_kept = || cache.peek(ROUTE, &key("a.example"), (0, 0), &LIMITS).is_some();
    let mut scanned = (0..).map(|n| keep(&cache, &format!("n{n}.example"), 9, 0, &LIMITS));
    keep(&cache, "a.example", 9, 0, &LIMITS);
    while is_kept() {
        scanned.next();
    }
    keep(&cache, "a.example", 9, 0, &LIMITS);
    scanned.take(10 * LIMITS.entries).for_each(drop);
    assert!(is_kept(), "though no client has asked for it again");
}
