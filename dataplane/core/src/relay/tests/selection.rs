//! Which records of a reply are relayed, in what order and with which TTL (FW40, FW41, FW42, FW44).

use super::*;

#[test]
fn fw40_records_off_the_chain_are_dropped() {
    let pending = plain(client("junk.example.net.", RecordType::A));
    let mut reply = upstream(
        &pending,
        &[
            "www.example.org. 60 A 203.0.113.66",
            "junk.example.net. 60 A 192.0.2.86",
            "junk.example.net. 60 TXT x",
        ],
        &["example.net. 60 NS ns.example.net.", SOA],
    );
    reply.add_additional(record("www.example.org. 60 A 203.0.113.66"));
    let reply = relay(&pending, &reply);
    assert_eq!(texts(&reply.answers), ["junk.example.net. 60 A 192.0.2.86"]);
    assert_eq!((reply.authorities.len(), reply.additionals.len()), (0, 0));
}

#[test]
fn fw40_the_soa_beside_an_answer_is_dropped() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let reply = upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[SOA]);
    let relayed = relay(&pending, &reply);
    assert_eq!((relayed.answers.len(), relayed.authorities.len()), (1, 0));
    // So its TTL does not count.
    assert_eq!(good(&pending, &reply).lifetime_s(), 60);
}

#[test]
fn fw41_the_chain_is_put_in_order() {
    let pending = plain(client("a.example.", RecordType::A));
    let reply = upstream(
        &pending,
        &[
            "c.example. 3 A 192.0.2.1",
            "b.example. 2 CNAME C.example.",
            "a.example. 1 CNAME b.example.",
        ],
        &[],
    );
    assert_eq!(
        texts(&relay(&pending, &reply).answers),
        [
            "a.example. 1 CNAME b.example.",
            "b.example. 2 CNAME C.example.",
            "C.example. 3 A 192.0.2.1"
        ]
    );
}

#[test]
fn fw41_seventeen_cnames_or_a_loop_fail_the_attempt() {
    let pending = plain(client("n0.example.", RecordType::A));
    let chain = |length: usize| -> Vec<String> {
        (0..length).map(|i| format!("n{i}.example. 60 CNAME n{}.example.", i + 1)).collect()
    };
    let reply = |records: &[String]| {
        upstream(&pending, &records.iter().map(String::as_str).collect::<Vec<_>>(), &[])
    };
    let mut sixteen = chain(16);
    sixteen.push("n16.example. 60 A 192.0.2.1".into());
    assert_eq!(relay(&pending, &reply(&sixteen)).answers.len(), 17);
    let mut seventeen = chain(17);
    seventeen.push("n17.example. 60 A 192.0.2.1".into());
    assert_eq!(failed(&pending, &reply(&seventeen)), RelayError::Chain);
    let round = ["n0.example. 60 CNAME n1.example.", "n1.example. 60 CNAME n0.example."];
    assert_eq!(failed(&pending, &upstream(&pending, &round, &[])), RelayError::Chain);
}

#[test]
fn fw40_a_dname_stays_with_the_cname_it_explains() {
    let pending = plain(client("www.old.example.", RecordType::A));
    let dname = "old.example. 60 DNAME new.example.";
    let address = "www.new.example. 60 A 192.0.2.1";
    let cname = "www.old.example. 60 CNAME www.new.example.";
    let whole = relay(&pending, &upstream(&pending, &[dname, cname, address], &[]));
    assert_eq!(whole.answers.len(), 3);
    assert_eq!(whole.answers[0].record_type(), RecordType::DNAME);
    assert_eq!(texts(&whole.answers[1..]), [cname, address]);
    // Without the CNAME, clients that do not know DNAME could not follow.
    let made = relay(&pending, &upstream(&pending, &[address, dname], &[]));
    assert_eq!(texts(&made.answers[1..]), [cname, address]);
    // A DNAME that leads elsewhere is not on the chain.
    let other = "old.example. 60 DNAME other.example.";
    let without = relay(&pending, &upstream(&pending, &[other, cname, address], &[]));
    assert_eq!(texts(&without.answers), [cname, address]);
}

#[test]
fn fw40_a_cname_that_was_asked_for_comes_with_the_dname_it_was_made_of() {
    let (dname, cname) =
        ("old.example. 60 DNAME new.example.", "www.old.example. 30 CNAME www.new.example.");
    let signature = "old.example. 60 TYPE46 0027aabb";
    for qtype in [RecordType::CNAME, RecordType::ANY] {
        let pending = plain(Asked { do_: true, ..client("www.old.example.", qtype) });
        // Whichever comes first in the message.
        for answer in [[dname, signature, cname], [cname, signature, dname]] {
            let reply = relay(&pending, &upstream(&pending, &answer, &[]));
            let types: Vec<_> = reply.answers.iter().map(Record::record_type).collect();
            assert_eq!(types, [RecordType::DNAME, RecordType::RRSIG, RecordType::CNAME], "{qtype}");
            assert_eq!(texts(&reply.answers[2..]), [cname]);
        }
        // Without signatures a client still sees where it comes from.
        let pending = plain(client("www.old.example.", qtype));
        let relayed = good(&pending, &upstream(&pending, &[dname, cname], &[]));
        assert_eq!((relayed.lifetime_s(), relayed.is_negative()), (30, false));
        assert_eq!(relay(&pending, &upstream(&pending, &[dname, cname], &[])).answers.len(), 2);
        // One that has nothing to do with it is not relayed.
        let other = "old.example. 60 DNAME other.example.";
        let without = relay(&pending, &upstream(&pending, &[other, cname], &[]));
        assert_eq!(texts(&without.answers), [cname]);
    }
    // A server that makes no CNAME: ours answers, and nothing is followed.
    let pending = plain(client("www.old.example.", RecordType::CNAME));
    let made = good(&pending, &upstream(&pending, &[dname], &[]));
    assert!(!made.is_partial() && !made.is_negative());
    let made = relay(&pending, &upstream(&pending, &[dname], &[]));
    assert_eq!(texts(&made.answers[1..]), ["www.old.example. 60 CNAME www.new.example."]);
    // With NXDOMAIN its target is what does not exist.
    let mut denial = upstream(&pending, &[dname], &[SOA]);
    denial.metadata.response_code = ResponseCode::NXDomain;
    assert_eq!(relay(&pending, &denial).metadata.response_code, ResponseCode::NXDomain);
    // Records of the name itself have no need of a DNAME above it.
    let pending = plain(client("www.old.example.", RecordType::ANY));
    let address = "www.old.example. 60 A 192.0.2.1";
    assert_eq!(
        texts(&relay(&pending, &upstream(&pending, &[dname, address], &[])).answers),
        [address]
    );
}

#[test]
fn fw40_a_dname_that_is_used_for_several_names_is_relayed_once() {
    let pending = plain(Asked { do_: true, ..client("www.old.example.", RecordType::A) });
    let signature = format!("old.example. 60 TYPE46 0027{}", "00".repeat(2_000));
    let answer = [
        "old.example. 60 DNAME sub.old.example.",
        &signature,
        "www.old.example. 60 CNAME www.sub.old.example.",
        "www.sub.old.example. 60 CNAME www.sub.sub.old.example.",
        "www.sub.sub.old.example. 60 CNAME www.sub.sub.sub.old.example.",
        "www.sub.sub.sub.old.example. 60 A 192.0.2.1",
    ];
    let relayed = good(&pending, &upstream(&pending, &answer, &[]));
    assert!(relayed.octets() < 2_500, "{} octets", relayed.octets());
    let pending = Client {
        head: ReplyHead { form: ReplyForm { limit: 4096, ..pending.head.form }, ..pending.head },
        ..pending
    };
    let answers = relay(&pending, &upstream(&pending, &answer, &[])).answers;
    let types: Vec<String> =
        answers.iter().map(|record| record.record_type().to_string()).collect();
    assert_eq!(types, ["DNAME", "RRSIG", "CNAME", "CNAME", "CNAME", "A"]);
}

#[test]
fn fw40_any_relays_every_rrset_of_the_name() {
    let pending = plain(client("www.example.org.", RecordType::ANY));
    let answer = [
        "www.example.org. 60 A 192.0.2.1",
        "www.example.org. 60 TXT x",
        "www.example.org. 60 MX 10 mail.example.org.",
        "other.example.org. 60 A 192.0.2.2",
    ];
    assert_eq!(texts(&relay(&pending, &upstream(&pending, &answer, &[])).answers), &answer[..3]);
}

#[test]
fn fw40_signatures_and_denials_only_with_do() {
    // RRSIG over A and over SOA, and an NSEC; only the type covered matters here.
    let (over_a, over_soa, over_nsec) = ("0001", "0006", "002f");
    let rrsig =
        |owner: &str, covered: &str| format!("{owner} 60 TYPE46 {covered}{}", "00".repeat(20));
    let signatures = [
        rrsig("www.example.org.", over_a),
        rrsig("example.org.", over_soa),
        rrsig("www.example.org.", over_nsec),
    ];
    let nsec = "www.example.org. 60 TYPE47 00";
    for (do_, answers, authorities) in [(false, 1, 0), (true, 2, 2)] {
        let pending = plain(Asked { do_, ..client("www.example.org.", RecordType::A) });
        let answer = ["www.example.org. 60 A 192.0.2.1", &signatures[0]];
        let authority = [nsec, signatures[2].as_str(), "example.org. 60 NS ns.example.org."];
        let reply = relay(&pending, &upstream(&pending, &answer, &authority));
        assert_eq!((reply.answers.len(), reply.authorities.len()), (answers, authorities), "{do_}");
        assert_eq!(reply.edns.unwrap().flags().dnssec_ok, do_);
    }
    for (do_, authorities) in [(false, 1), (true, 4)] {
        let pending = plain(Asked { do_, ..client("www.example.org.", RecordType::AAAA) });
        let authority = [SOA, &signatures[1], nsec, &signatures[2]];
        let reply = relay(&pending, &upstream(&pending, &[], &authority));
        assert_eq!(reply.authorities.len(), authorities, "{do_}");
        assert_eq!(texts(&reply.authorities[..1]), [SOA_RELAYED]);
    }
}

#[test]
fn fw44_ttls_are_capped_and_absurd_ones_count_as_zero() {
    let pending = plain(client("www.example.org.", RecordType::A));
    for (ttl, relayed) in [("0", 0), ("3600", 3600), ("864000", 3600), ("2147483648", 0)] {
        let text = format!("www.example.org. {ttl} A 192.0.2.1");
        assert_eq!(relay(&pending, &upstream(&pending, &[&text], &[])).answers[0].ttl, relayed);
    }
}

#[test]
fn fw42_hops_of_several_lookups_make_one_reply() {
    let first = legacy(client("Legacy.shop.svc.cluster.local.", RecordType::MX));
    let half = ["mail.example.com. 60 CNAME Big.example.org."];
    let one = good(&first, &upstream(&first, &half, &[]));
    assert_eq!((one.unresolved_target(), one.lifetime_s()), (Some(name("big.example.org")), 60));
    let second = plain(client("big.example.org.", RecordType::MX));
    let whole = [
        "big.example.org. 50 CNAME c.example.org.",
        "c.example.org. 40 MX 1 d.c.example.org.",
        "c.example.org. 40 MX 2 big.example.org.",
    ];
    let two = good(&second, &upstream(&second, &whole, &[]));
    assert_eq!(two.unresolved_target(), None);
    let hops = [(&one, Freshness::Fresh { age_s: 9 }), (&two, FRESH)];
    let reply = written(&first.head, &hops);
    assert_eq!(
        texts(&reply.answers),
        [
            "Legacy.shop.svc.cluster.local. 5 CNAME alias.shop.svc.cluster.local.",
            "alias.shop.svc.cluster.local. 30 CNAME mail.example.com.",
            "mail.example.com. 51 CNAME Big.example.org.",
            "Big.example.org. 50 CNAME c.example.org.",
            "c.example.org. 40 MX 1 d.c.example.org.",
            "c.example.org. 40 MX 2 big.example.org.",
        ]
    );
}

/// A signature over records of this type, and some octets.
fn signature(owner: &str, covered: u16) -> String {
    format!("{owner} 60 TYPE46 {covered:04x}{}", "ab".repeat(40))
}

/// The first part of a chain: a CNAME that a wildcard of a signed zone made, with its proof.
fn of_wildcard(pending: &Client) -> Relayed {
    let answer = [
        "shop.apps.corp.example. 60 CNAME lb.example.net.",
        &signature("shop.apps.corp.example.", 5),
    ];
    let authority = [
        "a.apps.corp.example. 60 TYPE47 01780000",
        &signature("a.apps.corp.example.", 47),
        "*.apps.corp.example. 60 TYPE47 01790000",
        &signature("*.apps.corp.example.", 47),
        "apps.corp.example. 60 NS ns.corp.example.",
    ];
    good(pending, &upstream(pending, &answer, &authority))
}

/// Owners and types.
fn kinds(records: &[Record]) -> Vec<String> {
    records.iter().map(|r| format!("{} {}", r.name, r.record_type())).collect()
}

const PROOF: [&str; 4] = [
    "a.apps.corp.example. NSEC",
    "a.apps.corp.example. RRSIG",
    "*.apps.corp.example. NSEC",
    "*.apps.corp.example. RRSIG",
];

#[test]
fn fw42_a_chain_over_lookups_keeps_the_proof_of_each_part() {
    for (do_, ours) in [(true, false), (true, true), (false, false), (false, true)] {
        let of = |name| Asked { do_, limit: 4096, ..client(name, RecordType::A) };
        let target = "shop.apps.corp.example";
        let asked = if ours { "alias.shop.svc.cluster.local." } else { "shop.apps.corp.example." };
        let mut first = Client::new(of(asked), name(target));
        if ours {
            first.push_cname(5, name(target));
        }
        let second = plain(of("lb.example.net."));
        let one = of_wildcard(&first);
        assert_eq!(one.unresolved_target(), Some(name("lb.example.net")));
        let answer = ["lb.example.net. 60 A 192.0.2.1", &signature("lb.example.net.", 1)];
        let two = good(&second, &upstream(&second, &answer, &[]));
        let aged = Freshness::Fresh { age_s: 9 };
        let reply = written(&first.head, &[(&one, aged), (&two, FRESH)]);
        let answers = 2 + 2 * usize::from(do_) + usize::from(ours);
        assert_eq!(reply.answers.len(), answers, "{:?}", kinds(&reply.answers));
        let expected: &[&str] = if do_ { &PROOF } else { &[] };
        assert_eq!(kinds(&reply.authorities), expected, "{do_} {ours}");
        // Nothing of them is lost or changed.
        let octets = |record: &Record| record.data.to_bytes().unwrap().len();
        let lengths: Vec<usize> = reply.authorities.iter().map(octets).collect();
        assert_eq!(lengths, if do_ { vec![4, 42, 4, 42] } else { Vec::new() });
        assert!(reply.authorities.iter().all(|record| record.ttl == 51), "as old as its part");

        // With a denial at the end, its SOA and its proof are there too.
        let authority = [
            "example.net. 900 SOA ns.example.net. hostmaster.example.net. 1 7200 1800 86400 20",
            &signature("example.net.", 6),
            "k.example.net. 60 TYPE47 016c0000",
            &signature("k.example.net.", 47),
        ];
        let mut denial = upstream(&second, &[], &authority);
        denial.metadata.response_code = ResponseCode::NXDomain;
        let two = good(&second, &denial);
        let reply = written(&first.head, &[(&one, FRESH), (&two, FRESH)]);
        let mut expected = vec!["example.net. SOA"];
        if do_ {
            expected.extend(["example.net. RRSIG", "k.example.net. NSEC", "k.example.net. RRSIG"]);
            expected.extend(PROOF);
        }
        assert_eq!(kinds(&reply.authorities), expected, "{do_} {ours}");
        let soa = reply.authorities[0].data.to_string();
        assert!(soa.starts_with("ns.example.net. hostmaster.example.net. 1 "), "{soa}");

        // All of the proof, or nothing of it and TC.
        let mut cut = 0;
        for limit in 512..800 {
            let form = ReplyForm { limit, ..first.head.form };
            let head = ReplyHead { form, ..first.head };
            let reply = written(&head, &[(&one, FRESH), (&two, FRESH)]);
            let nothing = reply.authorities.is_empty();
            let whole = reply.authorities.len() == expected.len();
            assert!(whole || nothing, "{limit}: {:?}", kinds(&reply.authorities));
            assert_eq!(reply.metadata.truncation, nothing, "{limit}");
            cut += usize::from(nothing);
        }
        assert!(cut < 288 && (cut > 0) == do_, "{cut} were cut");
    }
}
