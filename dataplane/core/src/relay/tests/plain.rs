//! Replies that are copied from their entry in one piece are those that the writer of chains makes record by record.

use super::*;
use crate::relay::write::copy_plain;

/// Both writers, for each size of a reply and each start of the RRset. Returns how many replies were copied.
fn compare(client: &Client, relayed: &Relayed, freshness: Freshness) -> usize {
    let (mut copied, mut other) = ([0xaa; 4096], [0xaa; 4096]);
    let mut count = 0;
    for limit in (40..700).chain([1232, 4096, 65_535]) {
        for seed in (0..8).map(|eighth| eighth << 61) {
            let mut head = client.head;
            head.form.limit = limit;
            let Some(written) = copy_plain(relayed, &head, freshness, seed, &mut copied) else {
                continue;
            };
            let expected = write_chain(&head, &[(relayed, freshness)], seed, &mut other);
            assert_eq!(written, expected, "at most {limit} octets, seed {seed:x}");
            assert!(copied[..written.octets] == other[..written.octets], "{limit}, {seed:x}");
            count += 1;
        }
    }
    count
}

#[test]
fn wr24_a_copied_reply_is_the_same_as_one_that_is_written_record_by_record() {
    let aged = Freshness::Fresh { age_s: 17 };
    let many: Vec<String> =
        (1..=9).map(|n| format!("host.example.net. {} A 192.0.2.{n}", 10 * n)).collect();
    let behind_an_alias: Vec<&str> = ["www.example.org. 600 CNAME host.example.net."]
        .into_iter()
        .chain(many.iter().map(String::as_str))
        .collect();
    let one = ["www.example.org. 1 A 192.0.2.80"];
    let text = ["www.example.org. 60 TXT one", "www.example.org. 60 TXT two"];
    let signature =
        |owner, covered: u16| format!("{owner} 90 TYPE46 {covered:04x}{}", "ab".repeat(40));
    let signatures = [("www.example.org.", 5), ("host.example.net.", 1), ("host.example.net.", 47)];
    let signatures = signatures.map(|(owner, covered)| signature(owner, covered));
    let signed: Vec<&str> = [behind_an_alias[0], &signatures[0]]
        .into_iter()
        .chain(many.iter().map(String::as_str))
        .chain([&*signatures[1]])
        .collect();
    let proof = ["host.example.net. 300 TYPE47 01780000", &signatures[2]];
    let services: Vec<String> = (1..=5)
        .map(|n| format!("www.example.org. {n}0 SRV {n} 5 5060 host{n}.Example.net."))
        .collect();
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    let cases = [
        (RecordType::A, &one[..], &[][..]),
        (RecordType::A, &behind_an_alias[..], &[][..]),
        (RecordType::TXT, &text[..], &[][..]),
        (RecordType::A, &[][..], &[SOA][..]),
        (RecordType::A, &signed[..], &proof[..]),
        (RecordType::SRV, &services[..], &[][..]),
    ];
    for (qtype, answer, authority) in cases {
        for (edns, do_, ad) in [(false, false, false), (true, false, true), (true, true, false)] {
            let client = plain(Asked { edns, do_, ad, ..client("wWw.example.org.", qtype) });
            let mut message = upstream(&client, answer, authority);
            message.metadata.authentic_data = ad;
            let relayed = good(&client, &message);
            for freshness in [FRESH, aged] {
                assert!(compare(&client, &relayed, freshness) > 1_000, "{answer:?}");
            }
            assert_eq!(compare(&client, &relayed, Freshness::Stale), 0, "its TTLs are others");
        }
    }
}

/// Anything that is added to the records, or taken away from them, is for the other writer.
#[test]
fn wr13_a_reply_with_more_than_its_entry_is_not_copied() {
    let client = plain(client("www.example.org.", RecordType::A));
    let answer = upstream(&client, &["www.example.org. 60 A 192.0.2.80"], &[]);
    let relayed = good(&client, &answer);
    let is_copied = |client: &Client, relayed: &Relayed| compare(client, relayed, FRESH) > 0;
    assert!(is_copied(&client, &relayed));
    let with = |change: fn(&mut Client)| {
        let mut other = client.clone();
        change(&mut other);
        other
    };
    for other in [
        with(|it| it.head.nsid = Some(b"pod")),
        with(|it| it.head.form.snapshot_age_s = Some(60)),
        with(|it| it.head.form.is_ours = true),
        with(|it| it.push_cname(5, name("other.example."))),
    ] {
        assert!(!is_copied(&other, &relayed), "{:?}", other.head);
    }
    let partial = upstream(&client, &["www.example.org. 60 CNAME host.example.net."], &[]);
    for entry in [relayed.cut(), Relayed::withheld(&client.key), good(&client, &partial)] {
        assert!(!is_copied(&client, &entry), "{entry:?}");
    }
}
