//! Row L12, upstreams: RRsets of many names. Those that honest servers send are within what their octets may cost; one that
//! costs more is a failure of its attempt, and not a wrong message.

use super::messages::{Message, pointer};
use super::*;
use crate::relay::{LookupKey, RelayError, TtlCaps, Verdict};
use crate::wire::message::HEADER;

const NS: u16 = 2;
const MX: u16 = 15;

/// A message with this many records of the type, whose names end alike: behind the first they are compressed.
fn names(key: &LookupKey, count: usize, suffix: &[u8], label: impl Fn(usize) -> String) -> Vec<u8> {
    let mut message = Message::about(key);
    let preference: &[u8] = if key.qtype() == MX { &[0, 10] } else { &[] };
    let mut shared = None;
    for number in 0..count {
        let label = label(number);
        // Owner, type, class, TTL and length take twelve octets.
        let suffix_at = message.octets.len() + 12 + preference.len() + label.len();
        let suffix = match shared {
            None => suffix.to_vec(),
            Some(at) => pointer(at).to_vec(),
        };
        shared.get_or_insert(suffix_at);
        let rdata = [preference, label.as_bytes(), &suffix].concat();
        message.record(0, &pointer(HEADER), key.qtype(), &rdata);
    }
    message.finish()
}

/// Labels of usual lengths that take this many octets together, and the root.
fn suffix(mut octets: usize) -> Vec<u8> {
    let mut suffix = Vec::new();
    while octets > 0 {
        // No label takes a single octet.
        let label = if octets == 10 { 8 } else { octets.min(9) };
        suffix.push(label as u8 - 1);
        suffix.resize(suffix.len() + label - 1, b'x');
        octets -= label;
    }
    suffix.push(0);
    suffix
}

fn judged(key: &LookupKey, message: &[u8]) -> Verdict {
    key.judge(0, message, &TtlCaps::default())
}

#[test]
fn l12_rrsets_of_many_names_of_one_length_are_relayed() {
    for (name, qtype) in
        [("7.2.0.10.in-addr.arpa", rtype::PTR), ("example.com", MX), ("example.com", NS)]
    {
        let key = LookupKey::new(Name::from_text(name).unwrap(), qtype, false, false);
        for octets in (20..=120).step_by(10) {
            // The label in front takes nine octets, and the root one.
            let suffix = suffix(octets - 10);
            for count in (2..=200).step_by(3) {
                let message = names(&key, count, &suffix, |number| format!("\x08node-{number:03}"));
                let verdict = judged(&key, &message);
                assert!(
                    matches!(verdict, Verdict::Good(_)),
                    "{qtype}, {count} names of {octets} octets: {verdict:?}"
                );
            }
        }
    }
}

#[test]
fn l12_an_rrset_that_costs_too_much_fails_its_attempt_and_is_no_wrong_message() {
    let key = LookupKey::new(Name::from_text("evil.example").unwrap(), MX, false, false);
    let labels = [&b"\x01a".repeat(120)[..], &[0]].concat();
    let mut refused = 0;
    for count in 2..=200 {
        match judged(&key, &names(&key, count, &labels, |_| String::new())) {
            Verdict::Good(_) => {}
            Verdict::Failed(RelayError::Chain) => refused += 1,
            verdict => panic!("{count}: {verdict:?}"),
        }
    }
    assert!(refused > 100, "{refused} are refused");
}
