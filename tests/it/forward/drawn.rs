//! Ports and ids that no one can guess (F5), as an upstream sees them.

use std::collections::{BTreeMap, BTreeSet};

use hickory_proto::rr::RecordType;
use tests::netns::inside;
use tests::upstream::UpstreamTransport;

use super::stage::{FIRST, GOLDEN, Stage, options};

#[tokio::test]
async fn f5_ports_and_ids_are_drawn_from_the_whole_range() {
    const LOOKUPS: usize = 400;
    let stage = Stage::new(GOLDEN);
    for number in 0..LOOKUPS {
        stage.ask(0, &format!("n{number}.example.org"), RecordType::A).await;
    }
    let asked = stage.upstream(FIRST).asked();
    let ports: Vec<u16> = asked.iter().map(|asked| asked.from.port()).collect();
    let ids: Vec<u16> =
        asked.iter().map(|a| u16::from_be_bytes([a.packet[0], a.packet[1]])).collect();
    for (what, values, lowest) in [("ports", ports, 1024), ("ids", ids, 0)] {
        // 400 draws of 64,512: about 1.2 pairs meet; every eighth of the range is hit, or the
        // chance is below 10^-22 each.
        let distinct: BTreeSet<u16> = values.iter().copied().collect();
        assert!(distinct.len() > LOOKUPS - 20, "{what}: {} distinct", distinct.len());
        assert!(values.iter().all(|value| *value >= lowest), "{what}");
        let eighths: BTreeSet<u16> = values.iter().map(|value| value / 8192).collect();
        assert_eq!(eighths.len(), 8, "{what}: {eighths:?}");
        // No difference between two ports in a row is frequent, and up is as likely as down: 200 of 399, within five
        // deviations.
        let steps = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
        let mut often: BTreeMap<u16, usize> = BTreeMap::new();
        steps.for_each(|step| *often.entry(step).or_default() += 1);
        assert!(often.values().all(|count| *count <= 4), "{what}: {often:?}");
        let ups = values.windows(2).filter(|pair| pair[1] > pair[0]).count();
        assert!((140..260).contains(&ups), "{what}: {ups} steps up");
    }
}

#[tokio::test]
async fn f19_fw14_the_spelling_of_a_name_says_nothing_about_that_of_the_next_one() {
    const LOOKUPS: usize = 64;
    const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzabcdef";
    let stage = Stage::with(GOLDEN, |config| options(config).case_randomisation = true);
    for number in 0..LOOKUPS {
        stage.ask(0, &format!("n{number:02}.{LETTERS}.example.org"), RecordType::A).await;
    }
    let asked = stage.upstream(FIRST).asked();
    // Behind the header: a label of three characters, and the length of the next one.
    let letters = |packet: &[u8]| packet[12 + 4 + 1..][..LETTERS.len()].to_vec();
    let spelled: Vec<Vec<u8>> = asked.iter().map(|asked| letters(&asked.packet)).collect();
    let is_name = |octets: &Vec<u8>| octets.eq_ignore_ascii_case(LETTERS.as_bytes());
    assert!(spelled.len() >= LOOKUPS && spelled.iter().all(is_name), "{spelled:?}");
    // Two of 64 draws of 2^32 meet once in two million runs, five pairs never.
    let distinct: BTreeSet<&Vec<u8>> = spelled.iter().collect();
    assert!(distinct.len() > spelled.len() - 5, "{} of {}", distinct.len(), spelled.len());
    // Each letter is a capital in about half of them: in none, or in all, once in 10^17 runs.
    for place in 0..LETTERS.len() {
        let capitals = spelled.iter().filter(|it| it[place].is_ascii_uppercase()).count();
        assert!((1..spelled.len()).contains(&capitals), "{place}: {capitals}");
    }
}

/// Ports are ours to draw, so a small range of the system (`ip_local_port_range`) makes none of them easier to guess.
#[tokio::test]
async fn f5_ports_do_not_come_from_the_range_of_the_system() {
    const LOOKUPS: usize = 200;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let range: Vec<usize> = range.split_whitespace().map(|end| end.parse().unwrap()).collect();
    let (all, inside) = (65_536 - 1024, range[1].saturating_sub(range[0].max(1024)) + 1);
    let stage = Stage::new(GOLDEN);
    for number in 0..LOOKUPS {
        stage.ask(0, &format!("n{number}.example.org"), RecordType::A).await;
    }
    let asked = stage.upstream(FIRST).asked();
    let is_outside = |port: usize| port < range[0] || port > range[1];
    let outside = asked.iter().filter(|asked| is_outside(asked.from.port().into())).count();
    // Half of what is drawn at random would be: on most systems 112 are outside.
    assert!(outside >= LOOKUPS * (all - inside) / all / 2, "{outside} of {LOOKUPS}: {range:?}");
}

#[test]
fn f5_a_small_range_of_the_system_takes_no_bit_from_ports() {
    inside(async || {
        const LOOKUPS: usize = 1_000;
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40063").unwrap();
        let stage = Stage::new(GOLDEN);
        for number in 0..LOOKUPS {
            stage.ask(0, &format!("n{number}.example.org"), RecordType::A).await;
        }
        let asked = stage.upstream(FIRST).asked();
        let over_udp = asked.iter().filter(|asked| asked.transport == UpstreamTransport::Udp);
        let ports: Vec<u16> = over_udp.map(|asked| asked.from.port()).collect();
        assert!(ports.len() >= LOOKUPS);
        // 1,000 draws of 64,512 meet 7.7 times. At 14 bits they would meet 30 times: one run in 10^9. Of 64 ports, 7,800 times.
        let mut times: BTreeMap<u16, usize> = BTreeMap::new();
        ports.iter().for_each(|port| *times.entry(*port).or_default() += 1);
        let met: usize = times.values().map(|times| times * (times - 1) / 2).sum();
        let pairs = ports.len() * (ports.len() - 1) / 2;
        assert!(met << 14 <= pairs, "{met} of {pairs} pairs of ports are equal");
    });
}
