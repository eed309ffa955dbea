//! Rebind protection: what a reply of the public DNS may not lead to (FW43).

use super::*;

const WWW: &str = "www.example.org.";

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
        // Where tunnels send it: 10.1.2.3 of 6to4, and IPv4-compatible.
        "2002:a01:203::1",
        "::10.1.2.3",
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
        "2002:c000:201::a01:203",
        "::192.0.2.1",
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
    // The hint follows other params, or the private address is the second of a list.
    let texts = [
        ("0001000001000302683200040008 01010101 0a000001", true),
        ("0001000004000401010101 00040004 0a000001", true),
        ("0001000001000302683200040004 01010101", false),
        ("0001 0161 00 00040004 01010101", false),
        ("000100", false),
    ];
    for (rdata, is_private) in texts {
        let rdata: String = rdata.split(' ').collect();
        let relayed = judged(&[&format!("www.example.org. 60 TYPE{} {rdata}", u16::from(qtype))]);
        assert_eq!(relayed.is_blocked(), is_private, "{qtype} {rdata}");
    }
    // A client may read what we cannot: a TargetName that is compressed, a value of half an address, a length that is wrong.
    let unreadable = [
        "0001 c00c 00040004 0a000001",
        "0001 0161 c00c 00040004 01010101",
        "000100 00040005 0a00000101",
        "000100 00040008 01010101",
        "000100 000400",
        "0001 3f",
        "0001",
    ];
    for rdata in unreadable {
        let rdata: String = rdata.split(' ').collect();
        let relayed = judged(&[&format!("www.example.org. 60 TYPE{} {rdata}", u16::from(qtype))]);
        assert!(relayed.is_blocked(), "{qtype} {rdata}");
    }
}
