//! Rows W1 to W10: messages that are no valid queries (A10: they are looked at before anything else).

use dataplane_core::{Action, Reason};
use tests::client::{Question, Transport};

use super::{BOTH, SOA, gets, reason, reply, shop};

/// `cart.shop.svc.cluster.local.`
const CART: &[u8] = b"\x04cart\x04shop\x03svc\x07cluster\x05local\x00";
/// Type A, class IN.
const A_IN: &[u8] = &[0, 1, 0, 1];
/// An OPT of version 0 with 1232 octets.
const OPT: &[u8] = &[0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0];

/// A message with ID 0x1234, RD, these section counts, and these octets after the header.
fn message(counts: [u16; 4], parts: &[&[u8]]) -> Vec<u8> {
    let mut packet = vec![0x12, 0x34, 1, 0];
    packet.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
    packet.extend(parts.concat());
    packet
}

/// FORMERR in 12 octets, over both transports, and for this reason.
fn formerr_header_only(packet: &[u8], expected: Reason) {
    let core = shop();
    for transport in BOTH {
        let came = reply(core, packet, transport);
        assert_eq!(came, [0x12, 0x34, 0x81, 0x81, 0, 0, 0, 0, 0, 0, 0, 0], "{packet:02x?}");
        assert_eq!(reason(core, packet, transport), expected);
    }
}

/// FORMERR with the question and nothing else.
fn formerr_with_question(packet: &[u8]) {
    let core = shop();
    for transport in BOTH {
        let header = [0x12, 0x34, 0x81, 0x81, 0, 1, 0, 0, 0, 0, 0, 0];
        let expected = [&header, CART, A_IN].concat();
        assert_eq!(reply(core, packet, transport), expected, "{packet:02x?}");
        assert_eq!(reason(core, packet, transport), Reason::Additional);
    }
}

/// The answer of `cart.shop`, with any other content in the message.
fn is_answered(packet: &[u8]) {
    let core = shop();
    for transport in BOTH {
        let came = reply(core, packet, transport);
        assert_eq!(came[3] & 0x0f, 0, "{packet:02x?}");
        assert_eq!(came[6..8], [0, 1], "{packet:02x?}");
        assert!(came.windows(4).any(|octets| octets == [10, 96, 10, 1]));
    }
}

#[test]
fn w1_fewer_than_twelve_octets_are_dropped_and_counted() {
    let core = shop();
    let query = message([1, 0, 0, 0], &[CART, A_IN]);
    for length in 0..12 {
        for transport in BOTH {
            let (action, reason) = core.decide(&query[..length], transport, 1, &mut [0; 4096]);
            assert!(matches!(action, Action::Drop), "{length} octets: {action:?}");
            assert_eq!(reason, Reason::Short);
        }
    }
    // The first length that gets a reply is a whole header.
    assert_eq!(reason(core, &query[..12], Transport::Udp), Reason::Question);
}

#[test]
fn w2_no_reply_is_ever_answered() {
    let core = shop();
    let questions = [
        "cart.shop.svc.cluster.local. A",
        "nothere.shop.svc.cluster.local. A",
        "cart.shop.svc.cluster.local. A +edns=1",
        "cart.shop.svc.cluster.local. OPT",
        "cart.shop.svc.cluster.local. A +opcode=UPDATE",
        "cart.shop.svc.cluster.local. NONE A",
        "loop-a.shop.svc.cluster.local. A",
        "hex 1234 0100 0000 0000 0000 0000",
    ];
    for question in questions {
        let query = Question::parse(question).unwrap().packet;
        // An error reply that comes back to us, for example from another instance of ours, must not be answered with an
        // error.
        let came = reply(core, &query, Transport::Udp);
        for transport in BOTH {
            let (action, reason) = core.decide(&came, transport, 1, &mut vec![0; 65_535]);
            assert!(matches!(action, Action::Drop), "{question}: {action:?}");
            assert_eq!(reason, Reason::IsResponse);
        }
    }
    // Even when nothing behind the bit makes sense.
    let (action, _) = core.decide(&[0xff; 12], Transport::Udp, 1, &mut [0; 4096]);
    assert!(matches!(action, Action::Drop));
}

#[test]
fn w3_a10_question_count_other_than_one_is_formerr() {
    for questions in [0, 2, 3, 255, 65_535] {
        formerr_header_only(&message([questions, 0, 0, 0], &[CART, A_IN]), Reason::Counts);
        let two = message([questions, 0, 0, 0], &[CART, A_IN, CART, A_IN]);
        formerr_header_only(&two, Reason::Counts);
    }
    // Cookie-only (RFC 7873 section 5.4): we have no cookies.
    let cookie = [&OPT[..9], &[0, 12, 0, 10, 0, 8], b"8 octets"].concat();
    formerr_header_only(&message([0, 0, 0, 1], &[&cookie]), Reason::Counts);
}

#[test]
fn w4_counts_that_lie_are_formerr_and_trailing_octets_are_ignored() {
    for answers in [1, 2, 65_535] {
        formerr_header_only(&message([1, answers, 0, 0], &[CART, A_IN]), Reason::Counts);
        formerr_header_only(&message([1, 0, answers, 0], &[CART, A_IN]), Reason::Counts);
        // No record, one record less than the counts say, and one that ends in the middle.
        formerr_with_question(&message([1, 0, 0, answers], &[CART, A_IN]));
        formerr_with_question(&message([1, 0, 0, answers.saturating_add(1)], &[CART, A_IN, OPT]));
        let half = message([1, 0, 0, answers], &[CART, A_IN, &OPT[..OPT.len() - 1]]);
        formerr_with_question(&half);
    }
    // RDATA that would end behind the message.
    let long = [&OPT[..9], &[0xff, 0xff]].concat();
    formerr_with_question(&message([1, 0, 0, 1], &[CART, A_IN, &long]));
    is_answered(&message([1, 0, 0, 0], &[CART, A_IN, b"trailing octets"]));
    is_answered(&message([1, 0, 0, 0], &[CART, A_IN, OPT]));
    is_answered(&message([1, 0, 0, 1], &[CART, A_IN, OPT, &[0xff; 30]]));
}

#[test]
fn w5_a_compression_pointer_in_the_question_is_formerr() {
    // Pointers to themselves, forward, into the header, to the end, and past the end; then the same behind a label.
    for target in [12, 14, 0, 4, 18, 0x3fff_u16] {
        let pointer = (0xc000 | target).to_be_bytes();
        formerr_header_only(&message([1, 0, 0, 0], &[&pointer, A_IN]), Reason::Question);
        let behind = [b"\x04cart".as_slice(), &pointer].concat();
        formerr_header_only(&message([1, 0, 0, 0], &[&behind, A_IN]), Reason::Question);
    }
    // Two that point to one another.
    let ring = [0xc0, 14, 0xc0, 12];
    formerr_header_only(&message([1, 0, 0, 0], &[&ring, A_IN]), Reason::Question);
    // In the additional section pointers may lead backwards, where they are not followed, and nowhere else.
    let owner = |target: u16| {
        let record = [0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 192, 0, 2, 1];
        [&(0xc000 | target).to_be_bytes()[..], &record].concat()
    };
    let at = 12 + (CART.len() + A_IN.len()) as u16;
    is_answered(&message([1, 0, 0, 1], &[CART, A_IN, &owner(12)]));
    for target in [at, at + 2, 0x3fff] {
        formerr_with_question(&message([1, 0, 0, 1], &[CART, A_IN, &owner(target)]));
    }
}

/// A name of this many octets in wire form.
fn name_of(octets: usize) -> Vec<u8> {
    let mut name = Vec::new();
    while name.len() + 1 < octets {
        let label = (octets - name.len() - 2).min(63);
        // No label may be left without an octet.
        let label = if octets - name.len() - 2 - label == 1 { label - 1 } else { label };
        name.push(label as u8);
        name.extend(vec![b'a'; label]);
    }
    name.push(0);
    assert_eq!(name.len(), octets);
    name
}

#[test]
fn w6_names_beyond_the_limits_are_formerr() {
    let unreadable = |name: &[u8]| {
        formerr_header_only(&message([1, 0, 0, 0], &[name, A_IN]), Reason::Question);
    };
    // Label types 01 and 10, the first of which is also a length of 64.
    for first in [64, 0x41, 0x7f, 0x80, 0xbf] {
        unreadable(&[&[first][..], &[b'a'; 70], &[0]].concat());
        unreadable(&[b"\x04cart", &[first][..], &[b'a'; 70], &[0]].concat());
    }
    for octets in [256, 257, 300, 1000] {
        unreadable(&name_of(octets));
    }
    // No root label, no type, half a class, no question at all.
    for cut in [CART.len() - 1, CART.len(), CART.len() + 3, 0, 3] {
        let question = [CART, A_IN].concat();
        let packet = message([1, 0, 0, 0], &[&question[..cut]]);
        formerr_header_only(&packet, Reason::Question);
    }
    let core = shop();
    let longest = message([1, 0, 0, 0], &[&name_of(255), &[0, 1, 0, 3]]);
    assert_eq!(reason(core, &longest, Transport::Udp), Reason::Class, "255 octets are a name");
}

#[test]
fn w6_a_dot_or_nul_inside_a_label_is_not_a_label_boundary() {
    gets(
        shop(),
        r"cart\.shop.svc.cluster.local. A
          cart\.shop\.svc.cluster.local. A
          cart\000.shop.svc.cluster.local. A
          \000.cart.shop.svc.cluster.local. A
          cart.shop\000.svc.cluster.local. A
          10\.244\.1\.11.shop.pod.cluster.local. A
          _http._tcp\.cart.shop.svc.cluster.local. SRV
          dns-version\000.cluster.local. TXT",
        &format!("status: NXDOMAIN  flags: qr aa rd ra\n{SOA}"),
    );
}

#[test]
fn w7_every_opcode_but_query_is_notimp_with_the_id_and_opcode_sent() {
    let core = shop();
    for opcode in 1..=15_u8 {
        let mut packet = message([1, 0, 0, 0], &[CART, A_IN]);
        packet[2] |= opcode << 3;
        // A header alone, wrong counts and the sections of an UPDATE get the same reply.
        for packet in [&packet[..], &packet[..12], &packet[..20]] {
            for transport in BOTH {
                let expected = [0x12, 0x34, 0x81 | opcode << 3, 0x84, 0, 0, 0, 0, 0, 0, 0, 0];
                assert_eq!(reply(core, packet, transport), expected, "opcode {opcode}");
            }
        }
    }
}

#[test]
fn w8_classes_other_than_in_are_refused_except_chaos_names_of_ours() {
    let core = shop();
    gets(
        core,
        "cart.shop.svc.cluster.local. CH A
         version.bind.cluster.local. CH TXT
         nosuch.bind. CH TXT
         cart.shop.svc.cluster.local. ANY A
         cart.shop.svc.cluster.local. NONE A
         cart.shop.svc.cluster.local. HS A
         version.bind. HS TXT",
        "status: REFUSED  flags: qr rd ra\nEDE: 21",
    );
    gets(
        core,
        "version.bind. CH TXT",
        "status: NOERROR  flags: qr aa rd ra
ANSWER      version.bind. 0 CH TXT \"clusterdns-<version>\"",
    );
    for class in [0, 2, 5, 252, 253, 254, 255, 256, 65_280, 65_535_u16] {
        let tail = [&[0, 1][..], &class.to_be_bytes()].concat();
        let came = reply(core, &message([1, 0, 0, 0], &[CART, &tail]), Transport::Udp);
        assert_eq!(came[3] & 0x0f, 5, "class {class}");
    }
}

#[test]
fn w9_a_second_misplaced_or_named_opt_is_formerr() {
    formerr_with_question(&message([1, 0, 0, 2], &[CART, A_IN, OPT, OPT]));
    // With other records between them, and with any versions.
    let a_record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 192, 0, 2, 1];
    formerr_with_question(&message([1, 0, 0, 3], &[CART, A_IN, OPT, &a_record, OPT]));
    let mut version_1 = OPT.to_vec();
    version_1[6] = 1;
    formerr_with_question(&message([1, 0, 0, 2], &[CART, A_IN, &version_1, OPT]));
    formerr_header_only(&message([1, 1, 0, 0], &[CART, A_IN, OPT]), Reason::Counts);
    formerr_header_only(&message([1, 0, 1, 0], &[CART, A_IN, OPT]), Reason::Counts);
    // An owner that is not the root, and a pointer to a root label: RFC 6891 section 6.1.2 requires the octet 0.
    let at_root_of_cart = 12 + CART.len() as u8 - 1;
    for owner in [b"\x01x\x00".as_slice(), CART, &[0xc0, 12], &[0xc0, at_root_of_cart]] {
        formerr_with_question(&message([1, 0, 0, 1], &[CART, A_IN, owner, &OPT[1..]]));
    }
    // IXFR may carry its SOA in the authority section, but no OPT.
    let ixfr = message([1, 0, 1, 0], &[CART, &[0, 251, 0, 1], OPT]);
    let came = reply(shop(), &ixfr, Transport::Tcp);
    assert_eq!((came[3] & 0x0f, came.len()), (1, 12 + CART.len() + 4));
}

/// An OPT with these options.
fn opt_with(options: &[u8]) -> Vec<u8> {
    [&OPT[..9], &(options.len() as u16).to_be_bytes(), options].concat()
}

#[test]
fn w10_options_may_be_many_but_must_end_within_the_opt() {
    // docs/dns.md WR12: options not named there are ignored, however many.
    let many = [0xfd, 0xe9, 0, 0].repeat(4000);
    let packet = message([1, 0, 0, 1], &[CART, A_IN, &opt_with(&many)]);
    is_answered(&packet);
    // A datagram is read up to 4,096 octets (WR40): the rest of this one is missing.
    formerr_with_question(&packet[..4096]);
    // What is complete without the rest is answered.
    let packet = message([1, 0, 0, 0], &[CART, A_IN, &[0xff; 9000]]);
    is_answered(&packet[..4096]);
    // One NSID, whether it is asked for once or 4,000 times.
    let nsid = [0, 3, 0, 0].repeat(4000);
    let came =
        reply(shop(), &message([1, 0, 0, 1], &[CART, A_IN, &opt_with(&nsid)]), Transport::Tcp);
    let once =
        reply(shop(), &message([1, 0, 0, 1], &[CART, A_IN, &opt_with(&nsid[..4])]), Transport::Tcp);
    assert_eq!(came, once);
    let past: [&[u8]; 6] =
        [&[0], &[0, 3], &[0, 3, 0], &[0, 3, 0, 1], &[0, 3, 0xff, 0xff], &[0, 10, 0, 2, 1]];
    for options in past {
        formerr_with_question(&message([1, 0, 0, 1], &[CART, A_IN, &opt_with(options)]));
        let behind = [&[0xfd, 0xe9, 0, 1, 7], options].concat();
        formerr_with_question(&message([1, 0, 0, 1], &[CART, A_IN, &opt_with(&behind)]));
        // Nor may it end in what follows the OPT.
        let packet = message([1, 0, 0, 1], &[CART, A_IN, &opt_with(options), &[0; 300]]);
        formerr_with_question(&packet);
    }
    // Of an OPT of another version, only the version is read (N6).
    let mut version_1 = opt_with(&[0, 3, 0xff, 0xff]);
    version_1[6] = 1;
    let packet = message([1, 0, 0, 1], &[CART, A_IN, &version_1]);
    assert_eq!(reason(shop(), &packet, Transport::Udp), Reason::EdnsVersion);
}
