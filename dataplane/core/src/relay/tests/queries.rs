//! Our queries to upstreams, which replies to them are believed, and which of these fail the attempt (FW1, FW12, FW21).

use super::*;

#[test]
fn fw1_the_query_is_a_new_message() {
    let pending = plain(Asked {
        cd: true,
        do_: true,
        rd: false,
        nsid: Some(b"me"),
        ..client("WWW.Example.ORG.", RecordType::A)
    });
    let query = Message::from_vec(&pending.upstream_query(ID).wire).unwrap();
    assert_eq!((query.metadata.id, query.metadata.message_type), (ID, MessageType::Query));
    assert_eq!(flags(&query), "rd ad cd");
    let mut asked =
        Query::query(HickoryName::from_ascii("www.example.org.").unwrap(), RecordType::A);
    asked.set_query_class(hickory_proto::rr::DNSClass::IN);
    assert_eq!(query.queries, [asked]);
    assert_eq!(query.queries[0].name().to_ascii(), "www.example.org.");
    let edns = query.edns.unwrap();
    assert_eq!((edns.max_payload(), edns.flags().dnssec_ok), (1232, true));
    assert!(edns.options().as_ref().is_empty());
}

#[test]
fn fw25_a_small_query_asks_for_as_much_as_one_without_opt_gets() {
    let key = LookupKey::new(Name::from_text(".").unwrap(), 2, false, false);
    let small = QueryForm { is_small: true, ..QueryForm::USUAL };
    let query = Message::from_vec(&key.upstream_query_as(ID, small).wire).unwrap();
    assert_eq!(query.edns.unwrap().max_payload(), 512);
}

#[test]
fn fw1_queries_to_encrypted_servers_are_padded_to_128_octets() {
    let padded = QueryForm { padded: true, ..QueryForm::USUAL };
    for label in 1..=63 {
        for labels in 1..=3 {
            let name = vec!["x".repeat(label); labels].join(".");
            let key = LookupKey::new(Name::from_text(&name).unwrap(), 1, true, false);
            let wire = key.upstream_query_as(ID, padded).wire;
            assert!(wire.len().is_multiple_of(128), "{name}: {}", wire.len());
            let query = Message::from_vec(&wire).unwrap();
            let edns = query.edns.unwrap();
            let codes: Vec<_> = edns.options().as_ref().iter().map(|(code, _)| *code).collect();
            assert_eq!(codes, [hickory_proto::rr::rdata::opt::EdnsCode::Padding]);
            assert_eq!((edns.max_payload(), edns.flags().dnssec_ok), (1232, true));
        }
    }
    let without = QueryForm { edns: false, ..padded };
    let key = LookupKey::new(Name::from_text("a.example").unwrap(), 1, false, false);
    assert!(Message::from_vec(&key.upstream_query_as(ID, without).wire).unwrap().edns.is_none());
}

#[test]
fn fw12_only_the_reply_to_our_query_is_believed() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let right = || upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[]);
    good(&pending, &right());

    let mut reply = right();
    reply.metadata.id = ID + 1;
    assert_eq!(discarded(&pending, &reply), Discard::Id);
    let mut reply = right();
    reply.metadata.message_type = MessageType::Query;
    assert_eq!(discarded(&pending, &reply), Discard::Malformed);
    let mut reply = right();
    reply.metadata.op_code = OpCode::Notify;
    assert_eq!(discarded(&pending, &reply), Discard::Malformed);
    let mut reply = right();
    reply.queries[0].set_query_type(RecordType::AAAA);
    assert_eq!(discarded(&pending, &reply), Discard::Question);
    let mut reply = right();
    reply.queries[0].set_query_class(hickory_proto::rr::DNSClass::CH);
    assert_eq!(discarded(&pending, &reply), Discard::Question);
    let mut reply = right();
    reply.queries[0].set_name(HickoryName::from_ascii("www.example.net.").unwrap());
    assert_eq!(discarded(&pending, &reply), Discard::Question);
    let mut reply = right();
    reply.queries.clear();
    assert_eq!(discarded(&pending, &reply), Discard::Question);
    let mut reply = right();
    reply.add_query(reply.queries[0].clone());
    assert_eq!(discarded(&pending, &reply), Discard::Question);

    // Another case of the same name is the same question.
    let mut reply = right();
    reply.queries[0].set_name(HickoryName::from_ascii("WWW.example.ORG.").unwrap());
    good(&pending, &reply);
}

#[test]
fn fw12_a_message_cut_before_its_additional_section_is_no_reply() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let whole = upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[SOA]).to_vec().unwrap();
    let question_end = HEADER + pending.head.question.len() + 4;
    // Only the OPT record is there.
    let additional = whole.len() - OPT;
    for length in 0..=whole.len() {
        let verdict = pending.judge(ID, &whole[..length], &TtlCaps::default());
        // Behind the question it is the reply, and its records cannot be read.
        let is_right = match verdict {
            Verdict::Discard(_) => length < question_end,
            Verdict::Failed(RelayError::Malformed) => (question_end..additional).contains(&length),
            Verdict::Failed(_) => false,
            Verdict::Good(_) => length >= additional,
        };
        assert!(is_right, "{length}: {verdict:?}");
    }
}

/// As of servers that copy the counts of the query and write no OPT record, over UDP and over connections.
#[test]
fn fw12_an_additional_section_that_cannot_be_read_says_nothing_about_the_answer() {
    const OPT_OF_5: [u8; OPT] = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 5];
    let pending = plain(client("www.example.org.", RecordType::A));
    let mut reply = upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[]);
    reply.edns = None;
    let whole = reply.to_vec().unwrap();
    let short_a = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192];
    for (count, octets) in [
        (1, &[][..]),
        (0xff, &[]),
        (1, &OPT_OF_5[..3]),
        (1, &OPT_OF_5),
        (2, &[&OPT_OF_5[..], &[0, 15, 0, 1]].concat()),
        (1, &short_a),
        (1, &[0xff; 40]),
        (1, &[0x80, 0, 0, 1]),
    ] {
        let mut message = [&whole[..], octets].concat();
        message[11] = count;
        let verdict = pending.judge(ID, &message, &TtlCaps::default());
        let Verdict::Good(relayed) = verdict else { panic!("{count} {octets:?}: {verdict:?}") };
        let mut buffer = [0; 1232];
        let length = pending.write(&relayed, 0, &mut buffer);
        let answer = Message::from_vec(&buffer[..length]).unwrap();
        assert_eq!(texts(&answer.answers), ["www.example.org. 60 A 192.0.2.1"], "{octets:?}");
        assert_eq!((answer.authorities.len(), answer.additionals.len()), (0, 0));
    }
}

#[test]
fn fw21_an_rcode_in_the_opt_record_counts_also_where_its_options_are_cut() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let mut reply = upstream(&pending, &[], &[SOA]);
    reply.metadata.response_code = ResponseCode::BADVERS;
    let mut message = reply.to_vec().unwrap();
    *message.last_mut().unwrap() = 9;
    let verdict = pending.judge(ID, &message, &TtlCaps::default());
    assert!(matches!(verdict, Verdict::Failed(RelayError::Rcode(16))), "{verdict:?}");
    // Where it is cut before, the Rcode is the one of the header.
    message.truncate(message.len() - 1);
    let verdict = pending.judge(ID, &message, &TtlCaps::default());
    assert!(matches!(verdict, Verdict::Good(_)), "{verdict:?}");
}

#[test]
fn fw12_names_that_loop_do_not_parse() {
    let pending = plain(client("a.example.", RecordType::A));
    let query = pending.upstream_query(ID).wire;
    let question_end = query.len() - OPT;
    let owner_at = question_end as u8;
    for owner in [
        [0xc0, owner_at],     // itself
        [0xc0, owner_at + 2], // forward
        [0xc0, 0x02],         // the header
        [0xff, 0xff],         // past the end
        [0x80, 0x00],         // label type 10
    ] {
        let mut reply = query[..question_end].to_vec();
        reply[2] = 0x81;
        reply[7] = 1;
        reply[11] = 0;
        reply.extend(owner);
        reply.extend([0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
        let verdict = pending.judge(ID, &reply, &TtlCaps::default());
        let is_malformed = matches!(verdict, Verdict::Failed(RelayError::Malformed));
        assert!(is_malformed, "{owner:?}: {verdict:?}");
    }
}

#[test]
fn fw21_what_is_no_answer_fails_the_attempt() {
    let pending = plain(client("www.example.org.", RecordType::A));
    for rcode in [
        ResponseCode::ServFail,
        ResponseCode::Refused,
        ResponseCode::NotImp,
        ResponseCode::FormErr,
        ResponseCode::NotAuth,
    ] {
        let mut reply = upstream(&pending, &[], &[]);
        reply.metadata.response_code = rcode;
        assert_eq!(failed(&pending, &reply), RelayError::Rcode(rcode.into()));
        // A server that did not understand the question may leave it out (FW12).
        reply.queries.clear();
        assert_eq!(failed(&pending, &reply), RelayError::Rcode(rcode.into()));
    }
    let mut reply = upstream(&pending, &[], &[]);
    reply.metadata.response_code = ResponseCode::BADVERS;
    assert_eq!(failed(&pending, &reply), RelayError::Rcode(16));
    // Its header alone would be one of NOERROR, which needs its question.
    reply.queries.clear();
    assert_eq!(failed(&pending, &reply), RelayError::Rcode(16));
    for good in [ResponseCode::NoError, ResponseCode::NXDomain, ResponseCode::YXDomain] {
        reply.metadata.response_code = good;
        assert_eq!(discarded(&pending, &reply), Discard::Question, "{good}");
    }

    let referral = ["example.org. 900 NS ns.example.org."];
    assert_eq!(failed(&pending, &upstream(&pending, &[], &referral)), RelayError::Referral);
    let unrelated = ["www.example.net. 60 A 192.0.2.1"];
    assert_eq!(failed(&pending, &upstream(&pending, &unrelated, &[])), RelayError::Unrelated);
    let mut reply = upstream(&pending, &["www.example.org. 60 A 192.0.2.1"], &[]);
    reply.metadata.truncation = true;
    assert_eq!(failed(&pending, &reply), RelayError::Truncated);
}

/// As of servers and middleboxes that keep nothing of what has no room, and of some that leave the counts of the query.
#[test]
fn fw12_an_error_and_a_truncated_reply_may_leave_the_question_out() {
    let pending = plain(client("www.example.org.", RecordType::A));
    for questions in [0, 1] {
        for (flags, error) in [
            ([0x83, 0x80], RelayError::Truncated),
            ([0x83, 0x83], RelayError::Truncated),
            ([0x81, 0x82], RelayError::Rcode(2)),
            ([0x83, 0x81], RelayError::Rcode(1)),
        ] {
            let [high, low] = ID.to_be_bytes();
            let reply = [high, low, flags[0], flags[1], 0, questions, 0, 0, 0, 0, 0, 0];
            let judge = |id, reply: &[u8]| pending.judge(id, reply, &TtlCaps::default());
            let verdict = judge(ID, &reply);
            assert!(matches!(verdict, Verdict::Failed(of) if of == error), "{flags:?} {verdict:?}");
            assert!(matches!(judge(ID + 1, &reply), Verdict::Discard(Discard::Id)));
            let part = pending.key.judge_cut(ID, QueryForm::USUAL, &reply, &TtlCaps::default(), 0);
            assert!(part.is_none());
        }
    }
    // An answer needs its question.
    let [high, low] = ID.to_be_bytes();
    for (questions, discard) in [(0, Discard::Question), (1, Discard::Malformed)] {
        let reply = [high, low, 0x81, 0x80, 0, questions, 0, 0, 0, 0, 0, 0];
        let verdict = pending.judge(ID, &reply, &TtlCaps::default());
        assert!(matches!(verdict, Verdict::Discard(of) if of == discard), "{verdict:?}");
    }
    // With an OPT record and no question, its Rcode is what counts.
    let mut reply = upstream(&pending, &[], &[]);
    reply.metadata.truncation = true;
    reply.queries.clear();
    assert_eq!(failed(&pending, &reply), RelayError::Truncated);
    reply.metadata.response_code = ResponseCode::BADVERS;
    assert_eq!(failed(&pending, &reply), RelayError::Rcode(16));
}

#[test]
fn fw26_of_a_reply_that_is_cut_where_no_larger_one_comes_its_records_are_kept() {
    let asked = client("www.example.org.", RecordType::A);
    let records = ["www.example.org. 60 A 192.0.2.1", "www.example.org. 60 A 192.0.2.2"];
    for (limit, expected) in [(1232, "tc rd ra"), (65_535, "rd ra")] {
        let pending = plain(Asked { ad: true, limit, ..asked });
        let judge = |answer: &[&str], authority: &[&str]| {
            let mut reply = upstream(&pending, answer, authority);
            (reply.metadata.truncation, reply.metadata.authentic_data) = (true, true);
            let octets = reply.to_vec().unwrap();
            pending.key.judge_cut(ID, QueryForm::USUAL, &octets, &TtlCaps::default(), 0)
        };
        let part = judge(&records, &[]).expect("a part");
        assert_eq!(cache::lifetime_s(&part), None, "it is not kept");
        let mut buffer = vec![0; 65_535];
        let length = pending.write(&part, 0, &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        assert_eq!(
            (texts(&reply.answers), flags(&reply)),
            (records.map(String::from).into(), expected.into())
        );
        // Nothing that answers the question: a failure as before.
        for (answer, authority) in [
            (&[][..], &[][..]),
            (&[], &[SOA]),
            (&["www.example.org. 60 CNAME a.example.org."], &[]),
            (&["www.example.net. 60 A 192.0.2.1"], &[]),
        ] {
            assert!(judge(answer, authority).is_none(), "{answer:?}");
        }
    }
}

#[test]
fn fw41_names_in_rdata_are_decompressed_and_keep_their_case() {
    // hickory compresses MX and NS names towards the question; TYPE1000 stays as it is.
    for (qtype, data) in [
        (RecordType::MX, "MX 10 mail.example.org."),
        (RecordType::NS, "NS Ns.Example.org."),
        (RecordType::SRV, "SRV 1 2 3 srv.example.org."),
        (RecordType::Unknown(1000), "TYPE1000 c00c"),
    ] {
        let pending = plain(client("WWW.EXAMPLE.org.", qtype));
        let text = format!("www.example.org. 60 {data}");
        let reply = relay(&pending, &upstream(&pending, &[&text], &[]));
        let expected = record(&text);
        assert_eq!(reply.answers[0].data.to_string(), expected.data.to_string(), "{data}");
    }
}

#[test]
fn fw41_addresses_of_another_size_do_not_parse() {
    let pending = plain(client("www.example.org.", RecordType::A));
    let mut reply = upstream(&pending, &[], &[]);
    let data = RData::Unknown { code: RecordType::A, rdata: NULL::with(vec![1, 2, 3]) };
    reply.add_answer(Record::from_rdata(
        HickoryName::from_ascii("www.example.org.").unwrap(),
        1,
        data,
    ));
    assert_eq!(failed(&pending, &reply), RelayError::Malformed);
}

/// For any reply of an upstream: no panic, and what we write can be read.
#[test]
fn mutated_replies_never_panic_and_never_make_us_write_nonsense() {
    let query = client("www.old.example.", RecordType::A);
    let mut client_queries = vec![
        plain(Asked { do_: true, limit: 512, ..query }),
        plain(Asked { limit: 65_535, nsid: Some(&[b'n'; 255]), ..query }),
        plain(Asked { qtype: 255, edns: false, ..query }),
    ];
    let mut behind = Client::new(query, name("www.old.example"));
    behind.push_cname(5, name("www.old.example"));
    client_queries.push(behind);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut buffer = vec![0; 65_535];
    let mut relayed = 0;
    for pending in &client_queries {
        let answer = [
            "old.example. 60 DNAME new.example.",
            "www.old.example. 60 CNAME www.new.example.",
            "www.new.example. 60 A 192.0.2.1",
            "www.new.example. 60 MX 1 a.new.example.",
            "www.new.example. 60 SRV 1 1 1 a.new.example.",
        ];
        let soa = "new.example. 60 SOA a.new.example. b.new.example. 1 2 3 4 5";
        let whole = upstream(pending, &answer, &[soa]).to_vec().unwrap();
        for _ in 0..20_000 {
            let mut message = whole.clone();
            for _ in 0..=random() % 4 {
                // The header and question mostly survive, or nothing behind them would be reached.
                let at = 4 + random() as usize % (message.len() - 4);
                message[at] = random() as u8;
            }
            if random() % 4 == 0 {
                message.truncate(random() as usize % (message.len() + 1));
            }
            if let Verdict::Good(good) = pending.judge(ID, &message, &TtlCaps::default()) {
                relayed += 1;
                let length = pending.write(&good, random(), &mut buffer);
                assert!(length <= pending.head.form.limit);
                let end = HEADER + pending.head.question.len() + 4;
                assert!(read::Message::read(&buffer[..length], end).is_ok());
            }
        }
    }
    assert!(relayed > 1000, "the mutations leave enough intact: {relayed}");
}

#[test]
fn keys_that_differ_in_one_part_have_different_hashes() {
    let mut hashes = std::collections::HashSet::new();
    let state = foldhash::quality::FixedState::with_seed(1);
    let mut keys = 0;
    for name in [".", "a.", "b.", "a.b.", "b.a.", "ab."] {
        for (qtype, flags) in
            [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (4, 0), (256, 0), (65_535, 3)]
        {
            let name = Name::from_text(name).unwrap();
            let key = LookupKey::new(name, qtype, flags & 1 != 0, flags & 2 != 0);
            hashes.insert(core::hash::BuildHasher::hash_one(&state, &key));
            keys += 1;
        }
    }
    assert_eq!(hashes.len(), keys);
}
