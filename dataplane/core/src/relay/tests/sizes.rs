//! Replies at and over the limit of their client: what is cut, and what fits (R12, WR21, WR23, WR24, RR48).

use super::*;

fn many_addresses(count: usize) -> Vec<String> {
    (0..count)
        .map(|i| format!("mail.example.com. 60 A 192.0.{}.{}", i / 250, i % 250 + 1))
        .collect()
}

#[test]
fn r12_a_target_over_the_limit_sets_tc_and_keeps_whole_records() {
    for (limit, edns) in [(512, false), (512, true), (1232, true)] {
        let query = client("legacy.shop.svc.cluster.local.", RecordType::A);
        let pending = legacy(Asked { limit, edns, ..query });
        let answer = many_addresses(100);
        let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
        let mut buffer = [0; 4096];
        let relayed = good(&pending, &upstream(&pending, &answer, &[]));
        let length = pending.write(&relayed, 7, &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        assert_eq!(flags(&reply), "aa tc rd ra");
        assert!(length <= limit && length > limit - 16, "{length} of {limit}");
        assert_eq!(reply.answers[0].record_type(), RecordType::CNAME);
        assert_eq!(reply.answers[1].record_type(), RecordType::CNAME);
        assert!(reply.answers.len() > 20 && reply.edns.is_some() == edns);

        let pending = legacy(Asked { limit: 65_535, edns, ..query });
        let reply = relay(&pending, &upstream(&pending, &answer, &[]));
        assert_eq!((flags(&reply).as_str(), reply.answers.len()), ("aa rd ra", 102));
    }
}

#[test]
fn wr23_over_tcp_what_exceeds_a_message_is_cut_without_tc() {
    // Compressed by the upstream, these fit in a message; a SRV target is never compressed by us.
    let target = format!("{}.{}.example.", "x".repeat(60), "y".repeat(60));
    let answer: Vec<String> =
        (0..600).map(|i| format!("s.example. 60 SRV 0 0 {i} {target}")).collect();
    let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
    let query = client("s.example.", RecordType::SRV);
    let pending = plain(Asked { limit: 65_535, ..query });
    let mut message = upstream(&pending, &[], &[]).to_vec().unwrap();
    message[7] = answer.len() as u8;
    message[6] = (answer.len() >> 8) as u8;
    // Written by hand: hickory follows RFC 2782 and does not compress the target either.
    let records_at = message.len() - OPT;
    let opt = message.split_off(records_at);
    let target_wire = HickoryName::from_ascii(&target).unwrap().to_bytes().unwrap();
    let first_target_at = records_at + 12 + 6;
    for i in 0..answer.len() {
        message.extend([0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60]);
        let pointer = (0xc000 | first_target_at as u16).to_be_bytes();
        let target = if i == 0 { &target_wire[..] } else { &pointer };
        message.extend((6 + target.len() as u16).to_be_bytes());
        message.extend([0, 0, 0, 0]);
        message.extend((i as u16).to_be_bytes());
        message.extend(target);
    }
    message.extend(opt);
    let Verdict::Good(relayed) = pending.judge(ID, &message, &TtlCaps::default()) else {
        panic!("not relayed");
    };
    let mut buffer = vec![0; 65_535];
    let length = pending.write(&relayed, 0, &mut buffer);
    let reply = Message::from_vec(&buffer[..length]).unwrap();
    assert!(length > 65_000 && reply.answers.len() < 600 && !reply.metadata.truncation);
    assert_eq!(texts(&reply.answers)[1], answer[1]);
}

#[test]
fn wr21_a_negative_reply_that_does_not_fit_is_truncated() {
    let long = ["l".repeat(60), "m".repeat(60), "n".repeat(60)].join(".");
    let soa = format!("example.org. 60 SOA {long}.a. {long}.b. 1 2 3 4 5");
    let question = format!("{long}.example.org.");
    let query = client(&question, RecordType::A);
    let pending = plain(Asked { limit: 512, edns: false, ..query });
    let reply = relay(&pending, &upstream(&pending, &[], &[&soa]));
    assert_eq!((flags(&reply).as_str(), reply.authorities.len()), ("tc rd ra", 0));
}

#[test]
fn wr24_address_sets_start_anywhere_and_lose_nothing() {
    let pending = plain(client("mail.example.com.", RecordType::A));
    let answer = many_addresses(4);
    let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
    let relayed = good(&pending, &upstream(&pending, &answer, &[]));
    let mut firsts = alloc::collections::BTreeMap::new();
    for quarter in 0..4_u64 {
        let mut buffer = [0; 1232];
        let length = pending.write(&relayed, (quarter << 62) + 1, &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        let mut all = texts(&reply.answers);
        *firsts.entry(all[0].clone()).or_insert(0) += 1;
        all.sort();
        assert_eq!(all, answer);
    }
    assert_eq!(firsts.len(), 4, "each address leads once: {firsts:?}");
}

/// HAProxy uses a cut reply, does not ask over TCP, and takes servers that are missing for gone.
#[test]
fn wr24_srv_records_that_do_not_fit_a_datagram_are_the_same_in_each_reply() {
    const QUESTION: &str = "_http._tcp.example.com.";
    let answer: Vec<String> =
        (0..40).map(|i| format!("{QUESTION} 60 SRV 0 100 80 pod-{i}.example.com.")).collect();
    let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
    let pending = plain(client(QUESTION, RecordType::SRV));
    let relayed = good(&pending, &upstream(&pending, &answer, &[]));
    for eighth in 0..8_u64 {
        let mut buffer = [0; 1232];
        let length = pending.write(&relayed, eighth << 61, &mut buffer);
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        let cut = texts(&reply.answers);
        assert!(reply.metadata.truncation && cut.len() > 10, "{cut:?}");
        assert_eq!(cut, answer[..cut.len()], "from the first one on");
    }
}

/// Public addresses have the same chance each, wherever the private ones are that were removed, and whether all fit or not.
#[test]
fn wr24_fw43_public_addresses_among_private_ones_start_anywhere() {
    const SEEDS: u64 = 1_000;
    for (limit, most) in [(1_232, 1_232), (512, 60)] {
        let pending = plain(Asked { limit, ..client("mail.example.com.", RecordType::A) });
        let of =
            |place: usize| if place.is_multiple_of(4) || place == 1 { "192.0.2" } else { "10.0.0" };
        let answer: Vec<String> = (0..16)
            .map(|place| format!("mail.example.com. 60 A {}.{}", of(place), place + 1))
            .collect();
        let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
        let relayed = good(&pending, &upstream(&pending, &answer, &[]));
        let mut firsts = alloc::collections::BTreeMap::new();
        for seed in (0..SEEDS).map(|number| number * (u64::MAX / SEEDS)) {
            let public = relayed.without_private_addresses(&OwnRanges::NONE, most, seed);
            let mut buffer = [0; 1232];
            let length = pending.write(&public, seed, &mut buffer);
            let reply = Message::from_vec(&buffer[..length]).unwrap();
            *firsts.entry(texts(&reply.answers)[0].clone()).or_insert(0) += 1;
        }
        assert_eq!(firsts.len(), 5, "{firsts:?}");
        assert!(firsts.values().all(|times| (140..260).contains(times)), "{firsts:?}");
    }
}

#[test]
fn w12_thousands_of_owners_and_targets_are_read_and_written() {
    let pending = plain(Asked { limit: 65_535, ..client("ns.example.", RecordType::NS) });
    let answer: Vec<String> =
        (0..1000).map(|i| format!("ns.example. 60 NS a.b.c.d.e.f{i}.example.")).collect();
    let answer: Vec<&str> = answer.iter().map(String::as_str).collect();
    let reply = relay(&pending, &upstream(&pending, &answer, &[]));
    assert_eq!(texts(&reply.answers), answer);
}

#[test]
fn rr48_ten_cnames_of_the_longest_names_fit() {
    let mut pending = plain(Asked { limit: 65_535, ..client("a.example.", RecordType::A) });
    let long = ["l".repeat(63), "m".repeat(63), "n".repeat(63), "o".repeat(60)].join(".");
    for i in 0..10 {
        pending.push_cname(i, name(&format!("{}{i}", &long[..long.len() - 1])));
    }
    pending.head.form.limit = 4096;
    let reply = fail(&pending, 0, "");
    assert_eq!(reply.answers.len(), 10);
    assert_eq!(reply.answers[9].ttl, 9);
}
