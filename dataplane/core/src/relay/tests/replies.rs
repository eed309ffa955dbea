//! What the client gets: flags, response codes, our own CNAMEs before the records, and Extended DNS Errors.

use super::*;

#[test]
fn n17_a_forwarded_answer_has_the_question_as_asked_and_no_aa() {
    let pending = plain(client("WwW.example.org.", RecordType::A));
    let answer = ["www.example.org. 600 A 192.0.2.80", "www.example.org. 600 A 192.0.2.81"];
    let reply = relay(&pending, &upstream(&pending, &answer, &[]));
    assert_eq!(reply.metadata.id, CLIENT_ID);
    assert_eq!(flags(&reply), "rd ra");
    assert_eq!(reply.queries[0].name().to_ascii(), "WwW.example.org.");
    assert_eq!(
        texts(&reply.answers),
        ["WwW.example.org. 600 A 192.0.2.80", "WwW.example.org. 600 A 192.0.2.81"]
    );
    assert_eq!((reply.authorities.len(), reply.additionals.len()), (0, 0));
    assert_eq!(reply.edns.unwrap().max_payload(), 1232);
}

#[test]
fn n17_negative_replies_keep_rcode_and_soa() {
    let pending = plain(client("nx.example.org.", RecordType::A));
    let mut nx = upstream(&pending, &[], &[SOA]);
    nx.metadata.response_code = ResponseCode::NXDomain;
    let reply = relay(&pending, &nx);
    assert_eq!((reply.metadata.response_code, reply.answers.len()), (ResponseCode::NXDomain, 0));
    assert_eq!(texts(&reply.authorities), [SOA_RELAYED]);
    // Without an SOA, and with one of another zone.
    nx.authorities.clear();
    for authority in [&[][..], &[record("example.com. 900 SOA a. b. 1 2 3 4 5")]] {
        nx.authorities = authority.to_vec();
        assert_eq!(relay(&pending, &nx).authorities.len(), 0);
        assert_eq!(good(&pending, &nx).lifetime_s(), 0, "it is not kept");
    }
}

#[test]
fn wr6_ad_only_for_clients_that_ask_for_it() {
    for (ad, do_, expected) in
        [(false, false, "rd ra"), (true, false, "rd ra ad"), (false, true, "rd ra ad")]
    {
        let pending = plain(Asked { ad, do_, ..client("www.example.org.", RecordType::A) });
        let mut reply = upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[]);
        reply.metadata.authentic_data = true;
        assert_eq!(flags(&relay(&pending, &reply)), expected);
        reply.metadata.authentic_data = false;
        assert_eq!(flags(&relay(&pending, &reply)), "rd ra");
    }
}

#[test]
fn wr10_no_opt_without_opt_and_nsid_where_asked() {
    let query = client("www.example.org.", RecordType::A);
    let pending = plain(Asked { edns: false, limit: 512, cd: true, ..query });
    let answer = ["www.example.org. 60 A 192.0.2.1"];
    let reply = relay(&pending, &upstream(&pending, &answer, &[]));
    assert!(reply.edns.is_none());
    assert_eq!(flags(&reply), "rd ra cd");
    assert!(fail(&pending, 22, "no server").edns.is_none());

    let pending = plain(Asked { nsid: Some(b"pod-1"), ..query });
    let reply = relay(&pending, &upstream(&pending, &answer, &[]));
    let edns = reply.edns.unwrap();
    let nsid = edns.options().get(EdnsCode::NSID).unwrap();
    assert_eq!(<Vec<u8>>::try_from(nsid).unwrap(), b"pod-1");
}

#[test]
fn rr40_our_cnames_come_first_and_set_aa() {
    let pending =
        legacy(Asked { ad: true, ..client("Legacy.shop.svc.cluster.local.", RecordType::A) });
    let mut reply = upstream(&pending, &["mail.example.com. 300 A 192.0.2.25"], &[]);
    reply.metadata.authentic_data = true;
    let reply = relay(&pending, &reply);
    assert_eq!(flags(&reply), "aa rd ra");
    assert_eq!(
        texts(&reply.answers),
        [
            "Legacy.shop.svc.cluster.local. 5 CNAME alias.shop.svc.cluster.local.",
            "alias.shop.svc.cluster.local. 30 CNAME mail.example.com.",
            "mail.example.com. 300 A 192.0.2.25",
        ]
    );
}

#[test]
fn rr41_a_negative_target_gives_its_rcode_and_soa() {
    let pending = legacy(client("legacy.shop.svc.cluster.local.", RecordType::AAAA));
    let soa = "example.com. 900 SOA ns.example.com. hostmaster.example.com. 1 7200 1800 86400 600";
    let mut upstream_reply = upstream(&pending, &[], &[soa]);
    let reply = relay(&pending, &upstream_reply);
    assert_eq!((flags(&reply).as_str(), reply.answers.len()), ("aa rd ra", 2));
    assert!(texts(&reply.authorities)[0].starts_with("example.com. 30 SOA "));
    upstream_reply.metadata.response_code = ResponseCode::NXDomain;
    let reply = relay(&pending, &upstream_reply);
    assert_eq!((reply.metadata.response_code, reply.answers.len()), (ResponseCode::NXDomain, 2));
}

#[test]
fn rr42_a_failure_keeps_our_cnames_without_aa_and_soa() {
    let pending = legacy(client("legacy.shop.svc.cluster.local.", RecordType::A));
    let reply = fail(&pending, 22, "no upstream answered");
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    assert_eq!((flags(&reply).as_str(), reply.answers.len()), ("rd ra", 2));
    assert_eq!((reply.authorities.len(), reply.additionals.len()), (0, 0));
    assert_eq!(ede(&reply), Some((22, "no upstream answered".into())));
}

#[test]
fn rr81_no_upstream_denies_a_name_that_has_records_of_ours_or_leads_away_from_it() {
    let asked = Asked { do_: true, ad: true, ..client("corp.example.org.", RecordType::DS) };
    let mut pending = plain(asked);
    pending.head.form.is_ours = true;
    let key = "0102080200000000";
    let ds = format!("corp.example.org. 60 TYPE43 {key}");
    for (rcode, answer, relayed) in [
        (ResponseCode::NXDomain, &[][..], false),
        (ResponseCode::NoError, &["corp.example.org. 60 CNAME www.example.org."], false),
        (ResponseCode::NoError, &[&*ds], true),
        (ResponseCode::NoError, &[], true),
    ] {
        let mut reply = upstream(&pending, answer, &[SOA]);
        reply.metadata.response_code = rcode;
        reply.metadata.authentic_data = true;
        let reply = relay(&pending, &reply);
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
        let expected =
            if relayed { ("rd ra ad", None) } else { ("rd ra", Some((17, String::new()))) };
        assert_eq!((&*flags(&reply), ede(&reply)), expected, "{answer:?}");
        let records = (reply.answers.len(), reply.authorities.len());
        let has_answer = usize::from(relayed && !answer.is_empty());
        assert_eq!(records, (has_answer, usize::from(relayed) - has_answer), "{answer:?}");
    }
}

#[test]
fn wr15_text_then_the_code_make_way_for_records() {
    let query = client("legacy.shop.svc.cluster.local.", RecordType::A);
    let whole = fail(&legacy(query), 22, &"ü".repeat(40));
    assert_eq!(ede(&whole), Some((22, "ü".repeat(32))), "at most 64 octets, whole characters");
    let size = whole.to_vec().unwrap().len();
    let cases = [(size, Some(64)), (size - 1, Some(0)), (size - 64, Some(0)), (size - 65, None)];
    for (limit, text) in cases {
        let pending = legacy(Asked { limit, ..query });
        let mut buffer = [0; 4096];
        let length = pending.fail(22, &"ü".repeat(32), &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        assert!(length <= limit && reply.answers.len() == 2 && !reply.metadata.truncation);
        assert_eq!(ede(&reply).map(|(_, text)| text.len()), text, "{limit}");
    }
}

#[test]
fn n18_codes_of_an_upstream_make_way_first() {
    let query = client("legacy.shop.svc.cluster.local.", RecordType::A);
    let sent = ErrorCodes::of(&{
        let mut reply = upstream(&plain(query), &[], &[]);
        let mut edns = Edns::new();
        for code in [6u8, 23, 9] {
            edns.options_mut().insert(EdnsOption::Unknown(15, vec![0, code]));
        }
        reply.set_edns(edns);
        reply.to_vec().unwrap()
    });
    assert_eq!(sent.as_slice(), [6, 23, 9]);
    let at = |limit: usize| {
        let pending = legacy(Asked { limit, ..query });
        let mut buffer = [0; 4096];
        let length = pending.head.fail_behind(23, "text", sent, &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        assert!(length <= limit && reply.answers.len() == 2);
        (length, edes(&reply))
    };
    let (size, whole) = at(1232);
    assert_eq!(whole, [(23, 4), (6, 0), (9, 0)], "ours once, and first");
    assert_eq!(at(size - 1).1, [(23, 4), (6, 0)]);
    assert_eq!(at(size - 7).1, [(23, 4)]);
    assert_eq!(at(size - 13).1, [(23, 0)]);
}

#[test]
fn e42_a_reply_behind_a_cname_from_a_snapshot_tells_its_age() {
    let query = client("legacy.shop.svc.cluster.local.", RecordType::A);
    let aged = |query| {
        let mut pending = legacy(query);
        pending.head.form.snapshot_age_s = Some(90);
        pending
    };
    let pending = aged(query);
    let reply = upstream(&pending, &["mail.example.com. 60 A 192.0.2.1"], &[]);
    assert_eq!(ede(&relay(&pending, &reply)), Some((3, "snapshot 90s".into())));
    // They come after the reason of the failure, and are left out first where room is short.
    let whole = fail(&pending, 22, "silence");
    assert_eq!(edes(&whole), [(22, 7), (3, 12)]);
    let size = whole.to_vec().unwrap().len();
    for (limit, expected) in [
        (size, vec![(22, 7), (3, 12)]),
        (size - 1, vec![(22, 0), (3, 12)]),
        (size - 8, vec![(3, 12)]),
    ] {
        let reply = fail(&aged(Asked { limit, ..query }), 22, "silence");
        assert_eq!((reply.answers.len(), edes(&reply)), (2, expected), "{limit}");
    }
    let small = fail(&aged(Asked { limit: size - 14, ..query }), 22, "");
    assert!(small.metadata.truncation && edes(&small).contains(&(3, 12)), "as of our own answers");
    let without = fail(&aged(Asked { edns: false, ..query }), 22, "");
    assert!(without.edns.is_none() && without.answers.len() == 2);
}
