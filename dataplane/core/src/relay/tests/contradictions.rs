//! Replies that say two things, or the same thing twice, and chains that do not fit: what a client must never see.

use super::*;

const WWW: &str = "www.example.org.";

#[test]
fn ca3_a_denial_with_records_of_the_type_is_no_answer() {
    let pending = plain(client(WWW, RecordType::A));
    let address = "www.example.org. 300 A 192.0.2.1";
    let alias = ["www.example.org. 300 CNAME a.example.org.", "a.example.org. 300 A 192.0.2.1"];
    for rcode in [ResponseCode::NXDomain, ResponseCode::YXDomain] {
        for answer in [&[address][..], &alias] {
            for authority in [&[][..], &[SOA]] {
                let mut reply = upstream(&pending, answer, authority);
                reply.metadata.response_code = rcode;
                assert_eq!(failed(&pending, &reply), RelayError::Unrelated, "{rcode} {answer:?}");
            }
        }
    }
    // The chain alone says where the name that does not exist was looked for (RFC 6604 §3), and so it does with its signatures
    // and with records of other names.
    let signature = "a.example.org. 300 TYPE46 000100";
    let beside = [alias[0], signature, "b.example.org. 300 A 192.0.2.1"];
    for answer in [&alias[..1], &beside] {
        let mut reply = upstream(&pending, answer, &[SOA]);
        reply.metadata.response_code = ResponseCode::NXDomain;
        assert_eq!(good(&pending, &reply).lifetime_s(), 20, "{answer:?}");
    }
}

/// NXDOMAIN says that the name has no records of any type (RFC 2308 §2.1).
#[test]
fn ca3_a_denial_of_a_name_with_records_of_other_types_is_no_answer() {
    let pending = plain(client(WWW, RecordType::AAAA));
    let address = "www.example.org. 300 A 192.0.2.1";
    let alias = ["www.example.org. 300 CNAME a.example.org.", "a.example.org. 300 A 192.0.2.1"];
    for answer in [&[address][..], &alias] {
        for authority in [&[][..], &[SOA]] {
            let mut reply = upstream(&pending, answer, authority);
            reply.metadata.response_code = ResponseCode::NXDomain;
            assert_eq!(failed(&pending, &reply), RelayError::Unrelated, "{answer:?}");
        }
    }
}

/// A load balancer that knows addresses of IPv4 only may answer a question for AAAA with them (RFC 4074 §4).
#[test]
fn fw40_a_reply_with_other_types_at_the_name_denies_this_type() {
    let pending = plain(client(WWW, RecordType::AAAA));
    let (address, of_other) =
        ("www.example.org. 300 A 192.0.2.1", "a.example.org. 300 A 192.0.2.1");
    let alias = "www.example.org. 300 CNAME a.example.org.";
    let ns = "example.org. 900 NS ns.example.org.";
    for (answer, aliases) in [(&[address][..], 0), (&[alias, of_other], 1), (&[of_other, alias], 1)]
    {
        for authority in [&[][..], &[ns], &[SOA]] {
            let message = upstream(&pending, answer, authority);
            let relayed = good(&pending, &message);
            assert!(relayed.is_negative() && !relayed.is_partial(), "{answer:?} {authority:?}");
            let has_soa = authority == [SOA];
            assert_eq!(relayed.lifetime_s(), if has_soa { 20 } else { 0 }, "{answer:?}");
            let reply = relay(&pending, &message);
            assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
            let counts = (reply.answers.len(), reply.authorities.len());
            assert_eq!(counts, (aliases, usize::from(has_soa)), "{answer:?} {authority:?}");
        }
    }
    // Records of other names say nothing about this one, and neither do signatures alone.
    let signature = "www.example.org. 300 TYPE46 000100";
    for answer in [[of_other], [signature]] {
        assert_eq!(failed(&pending, &upstream(&pending, &answer, &[])), RelayError::Unrelated);
    }
    // Nor does the end of a chain that has none at all: it is asked for by itself (FW42).
    assert!(good(&pending, &upstream(&pending, &[alias, address], &[])).is_partial());
}

#[test]
fn fw40_ad_is_not_relayed_where_the_records_that_it_was_about_are_dropped() {
    let pending = plain(Asked { ad: true, ..client(WWW, RecordType::AAAA) });
    for (answer, expected) in
        [(&[][..], "rd ra ad"), (&["www.example.org. 300 A 192.0.2.1"], "rd ra")]
    {
        let mut reply = upstream(&pending, answer, &[SOA]);
        reply.metadata.authentic_data = true;
        assert_eq!(flags(&relay(&pending, &reply)), expected, "{answer:?}");
    }
}

#[test]
fn fw40_equal_records_of_an_rrset_are_relayed_once() {
    let pending = plain(client(WWW, RecordType::A));
    let [one, two] = ["www.example.org. 60 A 192.0.2.1", "www.example.org. 60 A 192.0.2.2"];
    let reply = relay(&pending, &upstream(&pending, &[one, two, one, one, two], &[]));
    assert_eq!(texts(&reply.answers), [one, two]);
    // In a reply to ANY, records of another type with the same octets stay.
    let pending = plain(client(WWW, RecordType::ANY));
    let answer =
        ["www.example.org. 60 TYPE1000 c0000201", one, "www.example.org. 60 TYPE1000 c0000201"];
    let reply = relay(&pending, &upstream(&pending, &answer, &[]));
    assert_eq!(reply.answers.len(), 2);
}

#[test]
fn fw40_records_of_another_class_are_not_in_a_reply() {
    let pending = plain(client(WWW, RecordType::A));
    let address = "www.example.org. 60 A 192.0.2.1";
    let of_chaos = |record: &mut Record| record.dns_class = hickory_proto::rr::DNSClass::CH;
    let mut reply = upstream(&pending, &["www.example.org. 60 A 192.0.2.66", address], &[]);
    of_chaos(&mut reply.answers[0]);
    assert_eq!(texts(&relay(&pending, &reply).answers), [address]);
    let alias = ["www.example.org. 60 CNAME a.example.org.", "a.example.org. 60 A 192.0.2.66"];
    let mut reply = upstream(&pending, &alias, &[]);
    of_chaos(&mut reply.answers[0]);
    assert_eq!(failed(&pending, &reply), RelayError::Unrelated);
    // A SOA says how long a denial may be kept.
    let mut reply = upstream(&pending, &[], &[SOA]);
    of_chaos(&mut reply.authorities[0]);
    assert_eq!(good(&pending, &reply).lifetime_s(), 0);
}

/// A chain with enough long CNAMEs that no compression pointer reaches the name at its end.
#[test]
fn wr23_a_chain_without_its_end_is_no_answer_over_tcp() {
    let long = |link: usize| {
        // No two of them share a suffix.
        let label = |letter: &str| format!("{}{link}", letter.repeat(60));
        format!("{}.{}.{}.", label("a"), label("b"), label("c"))
    };
    let hops: Vec<Relayed> = (0..10)
        .map(|hop| {
            let asked = plain(client(&long(hop * 10), RecordType::A));
            let link = |n: usize| format!("{} 60 CNAME {}", long(n), long(n + 1));
            let mut answer: Vec<String> = (hop * 10..hop * 10 + 10).map(link).collect();
            if hop == 9 {
                answer.push(format!("{} 60 A 192.0.2.1", long(100)));
            }
            let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
            good(&asked, &upstream(&asked, &answer, &[]))
        })
        .collect();
    let first = plain(Asked { limit: 65_535, ..client(&long(0), RecordType::A) });
    let all: Vec<(&Relayed, Freshness)> = hops.iter().map(|hop| (hop, FRESH)).collect();
    let mut buffer = vec![0; 65_535];
    let failed = write_chain(&first.head, &all, 0, &mut buffer);
    let reply = Message::from_vec(&buffer[..failed.octets]).unwrap();
    assert_eq!(reply.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(ede(&reply).unwrap().1, "the chain of CNAMEs is too long for one message");
    // A shorter chain is relayed to its end; over UDP the client must use TCP.
    let whole = write_chain(&first.head, &all[..5], 0, &mut buffer);
    assert!(!failed.is_cut && !whole.is_cut, "no RRset is shortened");
    assert_eq!(Message::from_vec(&buffer[..whole.octets]).unwrap().answers.len(), 50);
    let over_udp = plain(client(&long(0), RecordType::A));
    assert!(written(&over_udp.head, &all).metadata.truncation);
}
