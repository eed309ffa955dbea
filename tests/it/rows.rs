//! Every golden example of docs/dns.md §9.3-9.9 is asked somewhere.

use std::collections::BTreeSet;

use tests::scenario::Cluster;

use crate::architecture::tests;

/// Rows that are not tested as text: counts, statistics, ports and time. Each is a test in this package that is named by
/// its row.
const TESTS_OF_THEIR_OWN: [u32; 9] = [97, 103, 104, 105, 106, 107, 119, 120, 173];
/// G1 to G120; §9.10 and §9.11 are tested with forwarding and with watching.
const LAST: u32 = 120;
/// Rows of forwarding, then those of watching: G97, whose name leads to another route, has a test of its own above.
const NAMED: std::ops::RangeInclusive<u32> = 121..=164;
/// Rows of DNAME records, those of federations, two of stub domains, one of types that are withheld, and one of DNSSEC.
const LATER: std::ops::RangeInclusive<u32> = 165..=184;

#[test]
fn every_golden_example_has_a_test() {
    let mut rows: BTreeSet<u32> = Cluster::all()
        .unwrap()
        .iter()
        .flat_map(|cluster| &cluster.scenarios)
        .flat_map(|scenario| scenario.answers.blocks())
        .flat_map(|block| &block.questions)
        .map(|(row, _)| row.trim_start_matches('G').parse().unwrap())
        .collect();
    for row in TESTS_OF_THEIR_OWN {
        assert!(rows.insert(row), "G{row} is a scenario, so it does not belong into this list");
    }
    let wanted: BTreeSet<u32> = (1..=LAST).chain(LATER).collect();
    let missing: Vec<&u32> = wanted.difference(&rows).collect();
    let beyond: Vec<&u32> = rows.difference(&wanted).collect();
    assert!(missing.is_empty(), "no scenario asks these rows of docs/dns.md: {missing:?}");
    assert!(beyond.is_empty(), "extend the ranges above for these rows: {beyond:?}");
}

/// §9.10 and §9.11 have upstreams, events and time in them, so each row is in the name of a test, as those above are that no
/// scenario asks.
#[test]
fn every_golden_example_that_no_scenario_asks_is_in_the_name_of_a_test() {
    let names = tests();
    let has = |row: u32| {
        let part = format!("g{row}");
        names.iter().any(|name| name.split('_').any(|of| of == part))
    };
    let wanted = NAMED.chain(TESTS_OF_THEIR_OWN);
    let missing: Vec<u32> = wanted.filter(|row| !has(*row)).collect();
    assert!(missing.is_empty(), "no test is named by these rows of docs/dns.md: {missing:?}");
}
