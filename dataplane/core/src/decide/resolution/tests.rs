//! Chains as tables: what upstreams said, what is asked next, what the client gets.

mod home;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};

use super::*;
use crate::index::Index;
use crate::object::Resource;
use crate::records::DataSource;
use crate::relay::{Cnames, ReplyForm};
use crate::settings::{ExtraData, ExtraRecord, Settings};
use crate::testing::settings;

const A: u16 = 1;

fn name(text: &str) -> Name {
    Name::from_text(text).unwrap()
}

fn key(text: &str) -> LookupKey {
    LookupKey::new(name(text), A, false, false)
}

/// A stub domain `corp.example`, and names of ours: `www.own.example` with an address, `alias.own.example`, a CNAME to
/// `www.example.org`, and `old.own.example`, a DNAME to `example.org`.
fn settings_of_tests() -> Settings {
    let extra = |owner: &str, data| ExtraRecord {
        owner: name(owner),
        wildcard: false,
        ttl_s: 30,
        data,
        reverse: false,
        override_cluster_zone: false,
    };
    Settings {
        stub_domains: vec![name("corp.example")],
        extra: vec![
            extra("www.own.example", ExtraData::Addresses(vec!["192.0.2.7".parse().unwrap()])),
            extra("inside.own.example", ExtraData::Addresses(vec!["10.96.0.7".parse().unwrap()])),
            extra("alias.own.example", ExtraData::Cname(name("www.example.org"))),
            extra("old.own.example", ExtraData::Dname(name("example.org"))),
            extra("long.own.example", ExtraData::Dname(name(&[&*"x".repeat(63); 3].join(".")))),
        ],
        ..settings()
    }
}

/// The reply of an upstream that knows only this CNAME.
fn alias(owner: &str, target: &str) -> Relayed {
    match key(owner).judge(0, &cname(&key(owner), &[], &name(target), 60), &TtlCaps::default()) {
        Verdict::Good(relayed) => relayed,
        other => panic!("{other:?}"),
    }
}

fn address(owner: &str) -> Relayed {
    let mut reply = cname(&key(owner), &[], &name("unused.example"), 60);
    reply.truncate(HEADER + name(owner).wire().len() + 4);
    reply.extend([0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 80]);
    match key(owner).judge(0, &reply, &TtlCaps::default()) {
        Verdict::Good(relayed) => relayed,
        other => panic!("{other:?}"),
    }
}

/// The answer section that the client gets: owner, type, data.
fn answers(resolution: &Resolution, asked: &str) -> Vec<String> {
    let reply = reply(resolution, asked);
    let line = |record: &hickory_proto::rr::Record| {
        let kind: RecordType = record.record_type();
        format!("{} {kind} {}", record.name, record.data)
    };
    reply.answers.iter().map(line).collect()
}

/// What the client gets.
fn reply(resolution: &Resolution, asked: &str) -> Message {
    reply_with(resolution, asked, false)
}

/// The same, if it wants signatures.
fn reply_with(resolution: &Resolution, asked: &str, do_: bool) -> Message {
    let form = ReplyForm {
        id: 1,
        rd: true,
        cd: false,
        ad: false,
        do_,
        edns: true,
        qtype: A,
        limit: 1232,
        udp_payload_size: 1232,
        ra: true,
        snapshot_age_s: None,
        is_ours: false,
    };
    let asked = name(asked);
    let head = ReplyHead { form, question: asked.wire(), nsid: None, cnames: Cnames::NONE };
    let mut buffer = [0; 4096];
    let octets = resolution.write(&head, 0, &mut buffer).octets;
    let reply = Message::from_vec(&buffer[..octets]).unwrap();
    assert!(!reply.metadata.authoritative, "an upstream began it");
    reply
}

/// The Extended DNS Error in it: the code, then its text.
fn ede(reply: &Message) -> Option<&[u8]> {
    let option = reply.edns.as_ref().unwrap().options().get(EdnsCode::Unknown(15))?;
    match option {
        EdnsOption::Unknown(_, octets) => Some(octets),
        other => panic!("{other:?}"),
    }
}

#[test]
fn fw43_a_public_name_cannot_lead_to_a_private_address_of_ours() {
    with_surroundings(|around| {
        for (target, left) in [("inside.own.example", 0), ("www.own.example", 2)] {
            for is_protected in [true, false] {
                let mut resolution = Resolution::default();
                if is_protected {
                    resolution.protect();
                }
                let fresh = Freshness::Fresh { age_s: 0 };
                let step = resolution.answered(alias("evil.example", target), fresh, around);
                assert_eq!(step, Step::Done);
                let answers = answers(&resolution, "evil.example");
                let expected = if is_protected { left } else { 2 };
                assert_eq!(answers.len(), expected, "{target} {is_protected} {answers:?}");
            }
        }
    });
}

/// Runs `test` with what surrounds a resolution.
fn with_surroundings(test: impl FnOnce(&Surroundings<'_>)) {
    let index = Index::new(settings_of_tests());
    let records = index.records();
    test(&Surroundings { records: &records, now_s: 0, seed: 0, limit: 1232 });
}

const FRESH: Freshness = Freshness::Fresh { age_s: 0 };

#[test]
fn g97_a_chain_that_leaves_a_stub_domain_is_asked_where_it_leads() {
    with_surroundings(|around| {
        let mut resolution = Resolution::default();
        let half = alias("half.corp.example", "www.example.org");
        let next = Step::Ask { group: 0, key: key("www.example.org") };
        assert_eq!(resolution.answered(half, FRESH, around), next);
        assert_eq!(resolution.answered(address("www.example.org"), FRESH, around), Step::Done);
        assert_eq!(
            answers(&resolution, "half.corp.example"),
            ["half.corp.example. CNAME www.example.org.", "www.example.org. A 192.0.2.80"]
        );
    });
}

#[test]
fn fw42_a_chain_into_a_stub_domain_or_to_a_name_of_ours_is_followed() {
    with_surroundings(|around| {
        let mut resolution = Resolution::default();
        let next = Step::Ask { group: 1, key: key("wiki.corp.example") };
        let alias_of = |target| alias("a.example.org", target);
        assert_eq!(resolution.answered(alias_of("wiki.corp.example"), FRESH, around), next);

        let mut resolution = Resolution::default();
        assert_eq!(resolution.answered(alias_of("www.own.example"), FRESH, around), Step::Done);
        assert_eq!(
            answers(&resolution, "a.example.org"),
            ["a.example.org. CNAME www.own.example.", "www.own.example. A 192.0.2.7"]
        );

        // The chain passes a CNAME of ours, which leads to a name of others again.
        let mut resolution = Resolution::default();
        let next = Step::Ask { group: 0, key: key("www.example.org") };
        assert_eq!(resolution.answered(alias_of("alias.own.example"), FRESH, around), next);
        assert_eq!(resolution.answered(address("www.example.org"), FRESH, around), Step::Done);
        assert_eq!(answers(&resolution, "a.example.org").len(), 3);
    });
}

#[test]
fn rr85_a_chain_to_a_name_below_a_dname_of_ours_is_followed() {
    with_surroundings(|around| {
        let alias_of = |target: &str| alias("a.example.org", target);
        let mut resolution = Resolution::default();
        let next = Step::Ask { group: 0, key: key("www.example.org") };
        assert_eq!(resolution.answered(alias_of("www.old.own.example"), FRESH, around), next);
        assert_eq!(resolution.answered(address("www.example.org"), FRESH, around), Step::Done);
        let answers_now = answers(&resolution, "a.example.org");
        assert_eq!(answers_now.len(), 4, "{answers_now:?}");
        assert_eq!(
            [&answers_now[0], &answers_now[2], &answers_now[3]],
            [
                "a.example.org. CNAME www.old.own.example.",
                "www.old.own.example. CNAME www.example.org.",
                "www.example.org. A 192.0.2.80"
            ]
        );
        assert!(answers_now[1].starts_with("old.own.example. "), "{answers_now:?}");

        // A name that would be too long: YXDOMAIN, with the DNAME.
        let mut resolution = Resolution::default();
        let long = format!("{}.long.own.example", "y".repeat(63));
        assert_eq!(resolution.answered(alias_of(&long), FRESH, around), Step::Done);
        assert_eq!(answers(&resolution, "a.example.org").len(), 2);
    });
}

#[test]
fn fw42_a_name_that_is_denied_by_us_ends_the_chain_with_our_soa() {
    with_surroundings(|around| {
        let mut resolution = Resolution::default();
        let invalid = alias("a.example.org", "x.invalid");
        assert_eq!(resolution.answered(invalid, FRESH, around), Step::Done);
        assert_eq!(answers(&resolution, "a.example.org"), ["a.example.org. CNAME x.invalid."]);
    });
}

#[test]
fn fw42_a_loop_over_several_lookups_and_more_than_ten_hops_are_servfail() {
    with_surroundings(|around| {
        let mut resolution = Resolution::default();
        let there = alias("a.example.org", "b.corp.example");
        assert!(matches!(resolution.answered(there, FRESH, around), Step::Ask { .. }));
        let back = alias("b.corp.example", "a.example.org");
        assert!(matches!(resolution.answered(back, FRESH, around), Step::Failed { ede: 0, .. }));

        let mut resolution = Resolution::default();
        let mut asked = 0;
        loop {
            let hop =
                alias(&format!("n{asked}.example.org"), &format!("n{}.example.org", asked + 1));
            match resolution.answered(hop, FRESH, around) {
                Step::Ask { .. } => asked += 1,
                Step::Failed { .. } => break,
                Step::Done => panic!("it never ends"),
            }
        }
        assert_eq!(asked, MAX_HOPS);
    });
}

/// The reply of an upstream that knows only this CNAME and its signatures, which have this many octets in all.
fn signed_alias(owner: &str, target: &str, octets: usize) -> Relayed {
    let key = LookupKey::new(name(owner), A, true, false);
    let mut reply = cname(&key, &[], &name(target), 60);
    let mut left = octets;
    while left > 0 {
        let now = left.min(8_000);
        reply.extend([0xc0, HEADER as u8, 0, 46, 0, 1, 0, 0, 0, 60]);
        reply.extend((now as u16).to_be_bytes());
        reply.extend(rtype::CNAME.to_be_bytes());
        reply.resize(reply.len() + now - 2, 0);
        reply[ANSWER_COUNT] += 1;
        left -= now;
    }
    match key.judge(0, &reply, &TtlCaps::default()) {
        Verdict::Good(relayed) => relayed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn fw42_a_chain_that_is_not_finished_keeps_16_kib_at_most() {
    with_surroundings(|around| {
        for octets in [100, 2_000, 5_000, 15_000, 60_000] {
            let mut resolution = Resolution::default();
            let mut asked = 0;
            let end = loop {
                let (owner, target) =
                    (format!("n{asked}.example.org"), format!("n{}.example.org", asked + 1));
                match resolution.answered(signed_alias(&owner, &target, octets), FRESH, around) {
                    Step::Ask { .. } => asked += 1,
                    end => break end,
                }
                let kept = resolution.octets();
                assert!(kept <= MAX_UNFINISHED, "{kept} octets while upstreams are asked");
            };
            let Step::Failed { ede: 0, text } = end else { panic!("{end:?}") };
            let expected = if octets == 100 { MAX_HOPS } else { MAX_UNFINISHED / (octets + 70) };
            assert_eq!(asked, expected, "{octets} octets each: {text}");
        }
    });
}

#[test]
fn fw42_the_end_of_a_chain_may_be_as_large_as_a_message() {
    with_surroundings(|around| {
        let mut resolution = Resolution::default();
        let first = resolution.answered(alias("a.example.org", "www.example.org"), FRESH, around);
        assert!(matches!(first, Step::Ask { .. }));
        let mut reply = cname(&key("www.example.org"), &[], &name("unused.example"), 60);
        reply.truncate(HEADER + name("www.example.org").wire().len() + 4);
        let records = 4_000_u16;
        for number in 0..records {
            let [high, low] = number.to_be_bytes();
            reply.extend([0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, high, low]);
        }
        reply[ANSWER_COUNT - 1..=ANSWER_COUNT].copy_from_slice(&records.to_be_bytes());
        let Verdict::Good(end) = key("www.example.org").judge(0, &reply, &TtlCaps::default())
        else {
            panic!("not relayed");
        };
        assert!(end.octets() > 4 * MAX_UNFINISHED);
        assert_eq!(resolution.answered(end, FRESH, around), Step::Done);
    });
}

/// NXDOMAIN, with the SOA of its zone.
fn denial(owner: &str) -> Relayed {
    let mut reply = cname(&key(owner), &[], &name("unused.example"), 60);
    reply.truncate(HEADER + name(owner).wire().len() + 4);
    // One record, in the authority section.
    (reply[3], reply[ANSWER_COUNT], reply[ANSWER_COUNT + 2]) = (3, 0, 1);
    reply.extend([0, 0, 6, 0, 1, 0, 0, 0, 60, 0, 22, 0, 0]);
    reply.extend([0; 16]);
    reply.extend(60_u32.to_be_bytes());
    match key(owner).judge(0, &reply, &TtlCaps::default()) {
        Verdict::Good(relayed) => relayed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ca40_the_code_of_a_stale_nxdomain_is_for_one_that_is_stale_itself() {
    let stale = Freshness::Stale;
    for (first, last, code) in [
        (FRESH, FRESH, None),
        (stale, FRESH, Some(3)),
        (FRESH, stale, Some(19)),
        (stale, stale, Some(19)),
    ] {
        with_surroundings(|around| {
            let mut resolution = Resolution::default();
            let there = alias("a.example.org", "gone.corp.example");
            assert!(matches!(resolution.answered(there, first, around), Step::Ask { .. }));
            let step = resolution.answered(denial("gone.corp.example"), last, around);
            assert_eq!(step, Step::Done);
            let reply = reply(&resolution, "a.example.org");
            assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
            assert_eq!(ede(&reply).map(|octets| octets[1]), code, "{first:?} {last:?}");
        });
    }
}

#[test]
fn n9_a_chain_into_the_cluster_before_its_data_is_there_is_servfail() {
    with_surroundings(|around| {
        let mut resolution = Resolution::default();
        let inside = alias("a.example.org", "cart.shop.svc.cluster.local");
        let step = resolution.answered(inside, FRESH, around);
        assert!(matches!(step, Step::Failed { ede: 14, .. }), "{step:?}");
    });
}

#[test]
fn e42_a_chain_that_passes_data_of_a_snapshot_tells_its_age() {
    let mut index = Index::new(settings_of_tests());
    for resource in Resource::ALL {
        index.begin_list(resource);
        index.end_list(resource, 1, DataSource::Snapshot { confirmed_at_s: 90 });
    }
    let records = index.publish(1).expect("other records");
    let around = Surroundings { records: &records, now_s: 100, seed: 0, limit: 1232 };
    for (target, age) in [
        ("cart.shop.svc.cluster.local", Some(&b"\0\x03snapshot 10s"[..])),
        ("www.own.example", None),
    ] {
        let mut resolution = Resolution::default();
        let inside = alias("a.example.org", target);
        assert_eq!(resolution.answered(inside, FRESH, &around), Step::Done);
        let reply = reply(&resolution, "a.example.org");
        assert_eq!(ede(&reply), age, "{target}");
    }
}

#[test]
fn fw45_fw42_a_chain_ends_without_data_where_its_type_is_withheld() {
    let withheld_types = vec![vec![A], Vec::new()];
    let records = Index::new(Settings { withheld_types, ..settings_of_tests() }).records();
    let around = Surroundings { records: &records, now_s: 0, seed: 0, limit: 1232 };
    let mut resolution = Resolution::default();
    let half = alias("half.corp.example", "www.example.org");
    assert_eq!(resolution.answered(half, FRESH, &around), Step::Done, "no server is asked");
    let reply = reply(&resolution, "half.corp.example");
    let sections = (reply.answers.len(), reply.authorities.len());
    assert_eq!((reply.metadata.response_code, sections), (ResponseCode::NoError, (1, 0)));
    assert_eq!(ede(&reply), Some(&b"\0\x11"[..]));
    // The stub domain is asked.
    let step = resolution.answered(alias("a.example.org", "b.corp.example"), FRESH, &around);
    assert!(matches!(step, Step::Ask { group: 1, .. }), "{step:?}");
}
