//! What a cache keeps of a reply, for how long, and what its age changes (CA1 to CA3, CA40, FW44).

use super::*;

#[test]
fn ca2_what_was_in_a_cache_of_http_counts_down_before_it_is_kept() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let records = ["www.example.org. 300 CNAME a.example.", "a.example. 60 A 192.0.2.1"];
    let reply = upstream(&pending, &records, &[]).to_vec().unwrap();
    let rows = [
        (0, 86_400, [300, 60], 60),
        (50, 86_400, [250, 10], 10),
        // The cap applies to the remaining time: 250 s are more than the cap.
        (50, 100, [100, 10], 10),
        (u32::MAX, 86_400, [0, 0], 0),
    ];
    for (age_s, max_s, ttls, lifetime_s) in rows {
        let caps = TtlCaps { max_s, ..TtlCaps::default() };
        let judged = pending.key.judge_as(ID, QueryForm::USUAL, &reply, &caps, age_s);
        let Verdict::Good(relayed) = judged else { panic!("{age_s}: {judged:?}") };
        let mut buffer = [0; 512];
        let fresh = Freshness::Fresh { age_s: 0 };
        let length = relayed.write(&pending.head, fresh, 0, &mut buffer).octets;
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        let shown: Vec<u32> = reply.answers.iter().map(|record| record.ttl).collect();
        assert_eq!((&shown[..], relayed.lifetime_s()), (&ttls[..], lifetime_s), "{age_s} {max_s}");
    }
}

#[test]
fn ca3_a_denial_from_a_cache_of_http_has_the_time_that_is_left() {
    let pending = plain(client("nothere.example.org.", RecordType::A));
    let soa = "example.org. 7200 SOA ns.example.org. h.example.org. 1 2 3 4 3600";
    let mut message = upstream(&pending, &[], &[soa]);
    message.metadata.response_code = ResponseCode::NXDomain;
    let reply = message.to_vec().unwrap();
    for (age_s, max_negative_s, left) in [(0, 1800, 1800), (600, 86_400, 3000), (600, 1800, 1800)] {
        let caps = TtlCaps { max_negative_s, ..TtlCaps::default() };
        let judged = pending.key.judge_as(ID, QueryForm::USUAL, &reply, &caps, age_s);
        let Verdict::Good(relayed) = judged else { panic!("{age_s}: {judged:?}") };
        assert_eq!(relayed.lifetime_s(), left, "{age_s} {max_negative_s}");
    }
}

/// `maxTTLSeconds` is of answers, in front of a denial too: 0 of it keeps the denials of names without an alias.
#[test]
fn ca3_a_denial_has_a_bound_of_its_own() {
    let alias = "www.example.org. 900 CNAME a.example.org.";
    let soa = "example.org. 900 SOA ns.example.org. h.example.org. 1 2 3 4 900";
    let proof = "example.org. 900 TYPE47 00";
    let signature = "example.org. 900 TYPE46 0006";
    for (max_s, max_negative_s, answer, kept_s) in [
        (30, 600, &[][..], 600),
        (0, 600, &[], 600),
        (600, 30, &[], 30),
        (600, 0, &[], 0),
        (30, 600, &[alias], 30),
        (0, 600, &[alias], 0),
    ] {
        let caps = TtlCaps { max_s, max_negative_s, ..TtlCaps::default() };
        for do_ in [false, true] {
            let pending = plain(Asked { do_, ..client("www.example.org.", RecordType::A) });
            let reply = upstream(&pending, answer, &[soa, signature, proof]).to_vec().unwrap();
            let judged = pending.judge(ID, &reply, &caps);
            let Verdict::Good(relayed) = judged else { panic!("{caps:?}: {judged:?}") };
            assert_eq!(relayed.lifetime_s(), kept_s, "{caps:?} {answer:?} DO {do_}");
            let authority = written(&pending.head, &[(&relayed, FRESH)]).authorities;
            assert_eq!(authority.len(), if do_ { 3 } else { 1 });
            assert!(authority.iter().all(|record| record.ttl == max_negative_s), "{authority:?}");
        }
    }
}

/// With its SOA and its proofs, a positive answer that a wildcard made is bounded as an answer.
#[test]
fn fw44_what_proves_a_wildcard_is_no_denial() {
    let caps = TtlCaps { max_s: 600, max_negative_s: 30, ..TtlCaps::default() };
    let pending = plain(Asked { do_: true, ..client("www.example.org.", RecordType::A) });
    let answer = ["www.example.org. 900 A 192.0.2.1"];
    let proof = "example.org. 900 TYPE47 00";
    let reply = upstream(&pending, &answer, &[proof]).to_vec().unwrap();
    let Verdict::Good(relayed) = pending.judge(ID, &reply, &caps) else { panic!("not relayed") };
    assert_eq!(relayed.lifetime_s(), 600);
}

#[test]
fn ca2_ttls_of_signatures_count_where_they_are_relayed() {
    let answer = ["www.example.org. 60 A 192.0.2.1", "www.example.org. 20 TYPE46 000100"];
    for (do_, kept_s) in [(false, 60), (true, 20)] {
        let pending = plain(Asked { do_, ..client("www.example.org.", RecordType::A) });
        let relayed = good(&pending, &upstream(&pending, &answer, &[]));
        assert_eq!(relayed.lifetime_s(), kept_s, "DO {do_}");
    }
}

#[test]
fn ca3_a_denial_is_kept_for_the_least_of_its_ttls_the_minimum_and_the_cap() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let alias = "www.example.org. 4 CNAME a.example.org.";
    for (ttl_s, minimum_s, answer, shown_s, kept_s) in [
        (900, 7_200, &[][..], 30, 30),
        (900, 20, &[], 20, 20),
        (5, 20, &[], 5, 5),
        (900, 20, &[alias], 20, 4),
        (900, 0, &[], 0, 0),
    ] {
        let soa =
            format!("example.org. {ttl_s} SOA ns.example.org. h.example.org. 1 2 3 4 {minimum_s}");
        for rcode in [ResponseCode::NoError, ResponseCode::NXDomain] {
            let mut message = upstream(&pending, answer, &[&soa]);
            message.metadata.response_code = rcode;
            let reply = relay(&pending, &message);
            assert_eq!(reply.authorities[0].ttl, shown_s, "{soa} {rcode}");
            assert_eq!(good(&pending, &message).lifetime_s(), kept_s, "{soa} {rcode} {answer:?}");
        }
    }
}

/// A time above 2^31 - 1 is 0 (RFC 2181 §8).
#[test]
fn ca3_a_denial_whose_minimum_is_too_large_is_not_kept() {
    let pending = plain(client("www.example.org.", RecordType::A));
    // MNAME and RNAME are the root; serial, refresh, retry and expire are 1.
    for (minimum, kept_s) in [("7fffffff", 30), ("80000000", 0)] {
        let soa = format!("example.org. 900 TYPE6 0000{}{minimum}", "00000001".repeat(4));
        let message = upstream(&pending, &[], &[&soa]);
        assert_eq!(good(&pending, &message).lifetime_s(), kept_s, "{minimum}");
    }
}

#[test]
fn fw44_ttls_count_down_to_one_and_a_ttl_of_zero_stays() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let answer = ["www.example.org. 600 CNAME a.example.", "a.example. 90 A 192.0.2.1"];
    let relayed = good(&pending, &upstream(&pending, &answer, &[]));
    assert_eq!(relayed.lifetime_s(), 90);
    for (age_s, ttls) in [(0, [600, 90]), (10, [590, 80]), (90, [510, 1]), (u32::MAX, [1, 1])] {
        let reply = written(&pending.head, &[(&relayed, Freshness::Fresh { age_s })]);
        assert_eq!([reply.answers[0].ttl, reply.answers[1].ttl], ttls, "{age_s}");
        assert_eq!(ede(&reply), None);
    }
    let zero = good(&pending, &upstream(&pending, &["www.example.org. 0 A 192.0.2.1"], &[]));
    assert_eq!(written(&pending.head, &[(&zero, FRESH)]).answers[0].ttl, 0);
    assert_eq!(zero.lifetime_s(), 0);
}

#[test]
fn ca40_a_stale_reply_has_ttls_of_30_and_says_so() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let answer = ["www.example.org. 600 A 192.0.2.1"];
    let relayed = good(&pending, &upstream(&pending, &answer, &[]));
    let reply = written(&pending.head, &[(&relayed, Freshness::Stale)]);
    assert_eq!((reply.answers[0].ttl, ede(&reply)), (30, Some((3, String::new()))));
    let mut denial = upstream(&pending, &[], &[SOA]);
    denial.metadata.response_code = ResponseCode::NXDomain;
    let relayed = good(&pending, &denial);
    let reply = written(&pending.head, &[(&relayed, Freshness::Stale)]);
    assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!((reply.authorities[0].ttl, ede(&reply)), (30, Some((19, String::new()))));
}

#[test]
fn wr6_a_stale_reply_is_not_authentic_nor_a_chain_with_a_stale_part() {
    let of = |name| Asked { ad: true, do_: true, ..client(name, RecordType::A) };
    let (first, second) = (plain(of("www.example.org.")), plain(of("a.example.")));
    let authentic = |client: &Client, record: &str| {
        let mut reply = upstream(client, &[record], &[]);
        reply.metadata.authentic_data = true;
        good(client, &reply)
    };
    let alias = authentic(&first, "www.example.org. 600 CNAME a.example.");
    let end = authentic(&second, "a.example. 600 A 192.0.2.1");
    let stale = Freshness::Stale;
    for (of_alias, of_end, expected) in [
        (FRESH, FRESH, "rd ra ad"),
        (FRESH, stale, "rd ra"),
        (stale, FRESH, "rd ra"),
        (stale, stale, "rd ra"),
    ] {
        let reply = written(&first.head, &[(&alias, of_alias), (&end, of_end)]);
        assert_eq!(flags(&reply), expected, "{of_alias:?} {of_end:?}");
    }
    assert_eq!(flags(&written(&second.head, &[(&end, stale)])), "rd ra");
}

#[test]
fn ca3_f16_a_denial_is_kept_for_the_ttl_of_its_soa_and_not_without_one() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let lifetime_s = |answer: &[&str], authority: &[&str], rcode| {
        let mut reply = upstream(&pending, answer, authority);
        reply.metadata.response_code = rcode;
        good(&pending, &reply).lifetime_s()
    };
    let (found, missing) = (ResponseCode::NoError, ResponseCode::NXDomain);
    assert_eq!(lifetime_s(&[], &[SOA], found), 20);
    assert_eq!(lifetime_s(&[], &[SOA], missing), 20);
    assert_eq!((lifetime_s(&[], &[], found), lifetime_s(&[], &[], missing)), (0, 0));
    let alias = ["www.example.org. 7 CNAME a.example.org."];
    assert_eq!(lifetime_s(&alias, &[SOA], missing), 7, "the CNAME in front counts too");
    assert_eq!(lifetime_s(&alias, &[], missing), 0);
}

#[test]
fn ca1_what_is_kept_knows_the_key_that_it_answers() {
    let pending = plain(Asked { do_: true, ..client("www.example.org.", RecordType::A) });
    let relayed = good(&pending, &upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[]));
    assert!(relayed.is_for(&pending.key) && relayed.key() == pending.key);
    let of = |text, qtype, dnssec, cd| LookupKey::new(name(text), qtype, dnssec, cd);
    for other in [
        of("ww.example.org", 1, true, false),
        of("www.example.org", 28, true, false),
        of("www.example.org", 1, false, false),
        of("www.example.org", 1, true, true),
    ] {
        assert!(!relayed.is_for(&other), "{other:?}");
    }
    let failure = Relayed::failure(&pending.key);
    assert!(failure.is_for(&pending.key) && failure.is_failure() && failure.lifetime_s() == 0);
}
