//! What the program asks the system for, and must not make by itself. No test of behaviour shows the difference on every machine:
//! numbers that continue one another by arithmetic are as well spread as drawn ones, though who has seen some of them knows the
//! next; and a clock that leaves out suspension shows the same time on a machine that was never suspended.

use super::rust_files;
use super::sources::{nowhere, program};

/// Draws what queries to upstreams have: ids, ports and case (FW10, FW14).
const DRAWS: &str = "dataplane/src/forward/random.rs";

/// Files that place what others name, in tables of a size that grows, and hash with keys of their own.
const PLACES: [&str; 3] =
    ["dataplane/core/src/", "dataplane/src/forward/cache", "dataplane/src/forward/table"];

/// Files of these that hash without a key, and why.
const WITHOUT_KEY: [&str; 4] = [
    // The hashes that come here are keyed already.
    "dataplane/src/forward/cache/shard/index.rs",
    // The same; its tests have two tables with other hashes for one key.
    "dataplane/src/forward/table.rs",
    // A number that all data planes have alike; its table has a key.
    "dataplane/core/src/index/ports.rs",
    // Compares a record with 64 others at most, whose hashes are in a row.
    "dataplane/core/src/relay/select.rs",
];

#[test]
fn fw10_fw14_each_number_is_drawn_from_the_system_and_made_of_no_other() {
    let lines: Vec<String> = program(DRAWS).into_iter().map(|(_, line)| line).collect();
    let fills = lines.iter().filter(|line| line.contains("getrandom::fill(&mut self.octets)"));
    assert_eq!(fills.count(), 1, "{DRAWS} asks the system for octets");
    let gives = lines.iter().filter(|line| line.contains("from_ne_bytes("));
    assert_eq!(gives.count(), 1, "{DRAWS} gives out these octets");
    let arithmetic = ["wrapping_", "rotate_", " ^", "<<", ">>", "Hash", "hash", "u64 = ", "seed"];
    nowhere([DRAWS.to_owned()], &arithmetic, "a number is made of another");
}

#[test]
fn fw10_fw14_queries_to_upstreams_have_no_other_generator() {
    let others = rust_files("dataplane/src/forward/").into_iter().filter(|path| path != DRAWS);
    let generators = ["getrandom", "rand::", "fastrand", "rand_core", "subsec_nanos"];
    nowhere(others, &generators, "only random.rs draws");
}

#[test]
fn names_that_meet_in_one_place_of_a_table_cannot_be_chosen() {
    let files = rust_files("").into_iter().filter(|path| {
        PLACES.iter().any(|place| path.starts_with(place)) && !WITHOUT_KEY.contains(&path.as_str())
    });
    let without_key = ["DefaultHasher", "BuildHasherDefault", "FixedState", "SeedableRandomState"];
    nowhere(files, &without_key, "hashes without a key of this process");
}

/// Beside the test in a time namespace, which not every system lets a test make.
#[test]
fn ca6_the_clock_of_the_cache_is_the_one_that_counts_suspension() {
    let boot = "dataplane/udp/src/boot.rs";
    let asks = |(_, line): &(usize, String)| line.contains("clock_gettime(libc::CLOCK_BOOTTIME,");
    assert_eq!(program(boot).iter().filter(|line| asks(line)).count(), 1, "{boot}");
    nowhere([boot.to_owned()], &["CLOCK_MONOTONIC", "CLOCK_REALTIME"], "another clock");
}
