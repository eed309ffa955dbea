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

#[test]
fn fw43_addresses_of_private_networks_of_the_machine_and_of_the_link_are_removed() {
    let caps = TtlCaps { no_private_addresses: true, ..TtlCaps::default() };
    let private = [
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.1.1",
        "0.0.0.0",
        "fc00::1",
        "fdff::1",
        "fe80::1",
        "febf::1",
        "::1",
        "::",
        "::ffff:169.254.1.1",
        "0.255.255.255",
        "100.64.0.0",
        "100.100.100.200",
        "100.127.255.255",
        "198.18.0.1",
        "198.19.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "fec0::1",
        "::ffff:100.64.0.1",
        "64:ff9b::100.64.0.1",
        "64:ff9b:1::10.1.2.3",
        "64:ff9b:1:2::192.168.1.1",
        // 10.1.2.3 behind prefixes of 48, 56 and 64 bits.
        "64:ff9b:1:a01:2:300::",
        "64:ff9b:1:a:1:203::",
        "64:ff9b:1:0:a:102:300:0",
        "64:ff9b:1:0:1::10.1.2.3",
        // The same, and 10.96.1.0, where what follows makes another prefix more likely.
        "64:ff9b:1:1:a:102:302:1",
        "64:ff9b:1:a01:2:301::",
        "64:ff9b:1:1:a:6001::",
        // No prefix has this form.
        "64:ff9b:1:0:100::192.0.2.1",
        "64:ff9b:1::",
    ];
    let public = [
        "1.0.0.0",
        "9.255.255.255",
        "100.63.255.255",
        "100.128.0.0",
        "172.32.0.1",
        "192.0.2.1",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:db8::1",
        "64:ff9b::c000:201",
        "64:ff9b:1::c000:201",
        // 192.0.2.1 behind other prefixes of 96, and of 48, 56 and 64 bits.
        "64:ff9b:1:2:3:4:192.0.2.1",
        "64:ff9b:1:c000:2:100::",
        "64:ff9b:1:c0:0:201::",
        "64:ff9b:1:0:c0:2:100:0",
        "64:ff9b:2::a01:203",
        "64:ff9b:0:1::a01:203",
    ];
    let rows = private.map(|address| (address, true));
    for (address, is_private) in rows.into_iter().chain(public.map(|address| (address, false))) {
        let qtype = if address.contains(':') { RecordType::AAAA } else { RecordType::A };
        let pending = plain(client(WWW, qtype));
        let answer = format!("www.example.org. 60 {qtype} {address}");
        let reply = upstream(&pending, &[&answer], &[]).to_vec().unwrap();
        let judged = pending.judge(ID, &reply, &caps);
        let Verdict::Good(relayed) = judged else { panic!("{address}: {judged:?}") };
        assert_eq!(relayed.is_blocked(), is_private, "{address}");
    }
}

#[test]
fn fw43_addresses_of_our_own_ranges_are_removed_at_once_and_later() {
    let ranges = |texts: &[&str]| {
        OwnRanges::of(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>())
    };
    // Ranges may be in each other, in any order. Some are as wide as the internet.
    let own = ranges(&[
        "203.0.113.64/26",
        "198.51.100.0/24",
        "198.51.0.0/16",
        "198.51.0.0/24",
        "2001:db8:5::/48",
        "0.0.0.0/0",
        "192.0.0.0/7",
        "::/0",
    ]);
    for (address, is_own) in [
        ("203.0.113.63", false),
        ("203.0.113.64", true),
        ("203.0.113.127", true),
        ("203.0.113.128", false),
        ("198.50.255.255", false),
        ("198.51.0.1", true),
        ("198.51.255.255", true),
        ("198.52.0.0", false),
        ("192.0.2.1", false),
        ("2001:db8:4:ffff::1", false),
        ("2001:db8:5::1", true),
        ("2001:db8:6::", false),
        ("::ffff:198.51.100.1", true),
        ("64:ff9b::198.51.100.1", true),
        ("64:ff9b:1::198.51.100.1", true),
    ] {
        let qtype = if address.contains(':') { RecordType::AAAA } else { RecordType::A };
        let pending = plain(client(WWW, qtype));
        let answer = format!("www.example.org. 60 {qtype} {address}");
        let reply = upstream(&pending, &[&answer], &[]).to_vec().unwrap();
        let relayed = |no_private_addresses| {
            let own_ranges = own.clone();
            let caps = TtlCaps { no_private_addresses, own_ranges, ..TtlCaps::default() };
            match pending.judge(ID, &reply, &caps) {
                Verdict::Good(relayed) => relayed,
                other => panic!("{address}: {other:?}"),
            }
        };
        assert!(!relayed(false).is_blocked(), "{address}");
        assert_eq!(relayed(true).is_blocked(), is_own, "{address}");
        let later = relayed(false).without_private_addresses(&own, 65_535, 0);
        assert_eq!(later.is_blocked(), is_own, "{address}");
    }
    let hinted = plain(client(WWW, RecordType::HTTPS));
    let answer = hint(RecordType::HTTPS, 4, "198.51.100.1");
    let relayed = good(&hinted, &upstream(&hinted, &[&answer], &[]));
    assert!(relayed.without_private_addresses(&own, 65_535, 0).is_blocked());
    assert!(!relayed.without_private_addresses(&OwnRanges::NONE, 65_535, 0).is_blocked());
}

#[test]
fn fw43_of_a_reply_to_any_without_its_private_addresses_no_signature_is_left() {
    let pending = plain(Asked { do_: true, ..client(WWW, RecordType::ANY) });
    let signature = |covered: u16| format!("{WWW} 60 TYPE46 {covered:04x}{}", "ab".repeat(40));
    let (address, text) = (format!("{WWW} 60 A 10.9.9.9"), format!("{WWW} 60 TXT a"));
    let (of_address, of_text) = (signature(1), signature(16));
    for (answer, kinds) in [
        (&[&*address, &of_address][..], &[][..]),
        (&[&*address, &of_address, &text, &of_text], &[RecordType::TXT]),
        (&[&*text, &of_text], &[RecordType::TXT, RecordType::RRSIG]),
    ] {
        let reply = upstream(&pending, answer, &[]).to_vec().unwrap();
        let relayed = |no_private_addresses| {
            let caps = TtlCaps { no_private_addresses, ..TtlCaps::default() };
            match pending.judge(ID, &reply, &caps) {
                Verdict::Good(relayed) => relayed,
                other => panic!("not relayed: {other:?}"),
            }
        };
        // Removed as it came, and from what was kept with them.
        for relayed in
            [relayed(true), relayed(false).without_private_addresses(&OwnRanges::NONE, 65_535, 0)]
        {
            assert_eq!(relayed.is_blocked(), kinds.is_empty(), "{answer:?}");
            let written = written(&pending.head, &[(&relayed, FRESH)]);
            let left: Vec<_> = written.answers.iter().map(Record::record_type).collect();
            assert_eq!(left, kinds, "{answer:?}");
        }
    }
}

#[test]
fn ca3_a_denial_with_private_addresses_of_the_type_is_no_answer_either() {
    let caps = TtlCaps { no_private_addresses: true, ..TtlCaps::default() };
    let pending = plain(client(WWW, RecordType::A));
    for rcode in [ResponseCode::NXDomain, ResponseCode::YXDomain] {
        let mut reply = upstream(&pending, &["www.example.org. 60 A 10.0.0.1"], &[]);
        reply.metadata.response_code = rcode;
        let judged = pending.judge(ID, &reply.to_vec().unwrap(), &caps);
        assert!(matches!(judged, Verdict::Failed(RelayError::Unrelated)), "{rcode}: {judged:?}");
    }
}

/// A record of this type with SvcPriority 1, TargetName `.`, and one SvcParam.
fn hint(qtype: RecordType, key: u16, address: &str) -> String {
    let octets = match address.parse().unwrap() {
        std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
        std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let value: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    let number = u16::from(qtype);
    format!("www.example.org. 60 TYPE{number} 000100{key:04x}{:04x}{value}", octets.len())
}

#[test]
fn fw43_a_hint_at_a_private_address_is_removed_with_its_record() {
    for qtype in [RecordType::HTTPS, RecordType::SVCB] {
        hints_at_private_addresses_are_removed(qtype);
    }
}

fn hints_at_private_addresses_are_removed(qtype: RecordType) {
    let pending = plain(client(WWW, qtype));
    let hint = |key, address| hint(qtype, key, address);
    let caps = TtlCaps { no_private_addresses: true, ..TtlCaps::default() };
    let judged = |answer: &[&str]| {
        let reply = upstream(&pending, answer, &[]).to_vec().unwrap();
        match pending.judge(ID, &reply, &caps) {
            Verdict::Good(relayed) => relayed,
            other => panic!("not relayed: {other:?}"),
        }
    };
    let public = [hint(4, "192.0.2.1"), hint(6, "2001:db8::1"), hint(6, "64:ff9b::c000:201")];
    for good in &public {
        let relayed = judged(&[good]);
        assert!(!relayed.is_blocked() && relayed.counts().rrset == 1, "{good}");
    }
    let v6 = ["fd00::1", "::1", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "64:ff9b::127.0.0.1"];
    let v6 = v6.map(|address| hint(6, address));
    for bad in [hint(4, "10.1.2.3"), hint(4, "127.0.0.1")].into_iter().chain(v6) {
        assert!(judged(&[&bad]).is_blocked(), "{bad}");
        let relayed = judged(&[&public[0], &bad]);
        assert!(!relayed.is_blocked() && relayed.counts().rrset == 1, "{bad}");
    }
    // The hint follows other params, or the private address is the second of a list, or a length is wrong.
    let texts = [
        ("0001000001000302683200040008 01010101 0a000001", true),
        ("0001000004000401010101 00040004 0a000001", true),
        ("00010000040008 01010101", false),
        ("0001 3f", false),
        ("0001", false),
    ];
    for (rdata, is_private) in texts {
        let rdata: String = rdata.split(' ').collect();
        let relayed = judged(&[&format!("www.example.org. 60 TYPE{} {rdata}", u16::from(qtype))]);
        assert_eq!(relayed.is_blocked(), is_private, "{qtype} {rdata}");
    }
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
