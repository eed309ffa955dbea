//! Memory that a smaller bound gives back, and how hashes are spread over the tables.

use super::*;

#[test]
fn ca5_a_much_smaller_bound_gives_the_memory_of_slots_back_and_keeps_what_it_may() {
    let cache = Cache::default();
    let many = CacheLimits { entries: 40_000, octets: 64 << 20, ..LIMITS };
    fill(&cache, "n", 40_000, 40, &many);
    let few = CacheLimits { entries: 1_600, ..many };
    let room = |cache: &Cache| {
        let rooms = cache.shards.iter().map(|shard| lock(shard).room());
        rooms.fold([0; 3], |sum, room| [sum[0] + room[0], sum[1] + room[1], sum[2] + room[2]])
    };
    assert!(room(&cache).iter().all(|places| *places >= 40_000), "{:?}", room(&cache));
    let mut sweep = Sweep::default();
    while sweep.step(&cache, 0, &few, |_| true) {}
    let (octets, entries) = (cache.octets(), cache.entries());
    let kept: Vec<u32> =
        (0..40_000).filter(|n| is_fresh(&cache, &format!("n{n}.example"), 0, &few)).collect();
    assert!(entries <= 1_600 && kept.len() == entries, "{} of {entries}", kept.len());
    assert!(room(&cache).iter().all(|places| *places < 8_000), "{:?}", room(&cache));
    // The next entries find their places, and what is counted stays right.
    fill(&cache, "m", 40_000, 40, &few);
    assert!(cache.entries() <= 1_600 && cache.octets() <= octets, "{octets}");
    let mut sweep = Sweep::default();
    while sweep.step(&cache, 0, &few, |_| false) {}
    assert_eq!((cache.octets(), cache.entries()), (0, 0));
}

#[test]
fn ca5_memory_of_smaller_replies_is_given_back_and_larger_ones_stay_in_their_order() {
    let cache = Cache::default();
    let limits = CacheLimits { octets: 16 << 20, entries: 1_000_000, ..LIMITS };
    fill(&cache, "n", 40_000, 40, &limits);
    fill(&cache, "m", 40_000, 2_000, &limits);
    let fresh = || -> Vec<u32> {
        (0..40_000).filter(|n| is_fresh(&cache, &format!("m{n}.example"), 0, &limits)).collect()
    };
    let slots = || cache.shards.iter().map(|shard| lock(shard).room()[0]).sum::<usize>();
    let (entries, octets, kept, before) = (cache.entries(), cache.octets(), fresh(), slots());
    (0..SHARDS).for_each(|turn| cache.tidy(turn));
    assert_eq!((cache.entries(), cache.octets(), fresh()), (entries, octets, kept));
    assert!(
        slots() < entries * 5 / 4 + SHARDS * 128 && slots() * 2 < before,
        "{} of {before}, {entries} entries",
        slots()
    );
}

/// The tables of the standard library compare the highest seven bits of a hash before they read a row.
#[test]
fn hashes_of_one_shard_differ_in_the_bits_that_its_table_compares() {
    let cache = Cache::default();
    let hashes = (0..20_000).map(|n| cache.hash(ROUTE, &key(&format!("n{n}.example"))));
    let of_first = hashes.filter(|&hash| place_of(hash) == 0);
    let tags: std::collections::BTreeSet<u64> = of_first.map(|hash| hash >> 57).collect();
    assert!(tags.len() > 64, "{}", tags.len());
}
