//! The crate `domain` reads what we read and what we write, beside hickory-proto (row W11): where both of those share a
//! mistake, a third reader shows it.

use std::collections::BTreeSet;

use dataplane_core::{Action, Reason, Transport};
use domain::base::name::ToName;
use domain::base::opt::Opt;
use domain::base::rdata::ComposeRecordData;
use domain::base::{Message, ParsedRecord, Rtype};
use domain::rdata::AllRecordData;
use hickory_proto::rr::Record;
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder, NameEncoding};
use tests::fuzzing::{fixture, question_alone, rejected};

use super::mutations::run;

/// Why we refuse messages that `domain` reads, with the rule of docs/dns.md. It reads messages of every kind.
const REJECTED_BY_US: [(Reason, &str); 7] = [
    (Reason::IsResponse, "N1: answering replies makes loops"),
    (Reason::Opcode, "N2: NOTIMP, with anything after the header"),
    (Reason::Counts, "N3: a query has one question and no answer"),
    (Reason::Question, "N4: a pointer in the question"),
    (Reason::QueryType, "N5: type 0, OPT and TSIG"),
    (Reason::EdnsVersion, "N6: BADVERS; only its version is read"),
    (Reason::Additional, "N5: two OPT, or one whose owner is not one zero octet"),
];

/// All records of a message as `domain` reads them, in order.
fn records<'m>(message: &'m Message<&[u8]>) -> Result<Vec<ParsedRecord<'m, &'m [u8]>>, String> {
    let mut records = Vec::new();
    let mut section = Some(message.answer().map_err(|error| error.to_string())?);
    while let Some(mut one) = section {
        for record in one.by_ref() {
            records.push(record.map_err(|error| error.to_string())?);
        }
        section = one.next_section().map_err(|error| error.to_string())?;
    }
    Ok(records)
}

/// Type and class of the one question of a message, and how many OPT records it has, as `domain` reads them.
fn read(message: &[u8]) -> Result<(u16, u16, usize), String> {
    let message = Message::from_octets(message).map_err(|error| error.to_string())?;
    let question = message.sole_question().map_err(|error| error.to_string())?;
    let mut opts = 0;
    for record in records(&message)?.iter().filter(|record| record.rtype() == Rtype::OPT) {
        // Options end where the OPT ends. What is in them is for those that know them.
        record.to_record::<Opt<_>>().map_err(|error| error.to_string())?;
        opts += 1;
    }
    Ok((question.qtype().to_int(), question.qclass().to_int(), opts))
}

#[test]
fn w11_domain_agrees_on_what_a_query_is() {
    let mut both = 0;
    let (mut differing, mut unread) = (BTreeSet::new(), 0);
    run("query", |message| {
        let mut buffer = vec![0; 65_535];
        let (action, reason) = fixture().decide(message, Transport::Tcp, 0, &mut buffer);
        let reply = if let Action::Reply(length) = action { Some(length) } else { None };
        match (rejected(message, reason).is_none(), read(message)) {
            (true, Ok((rtype, class, opts))) => {
                both += 1;
                let Some(length) = reply else { return };
                // The reply repeats what we read: the question, and an OPT where the query has one (WR12).
                let repeated = read(&buffer[..length]).expect("domain reads what we write");
                assert_eq!(repeated, (rtype, class, opts), "{message:02x?}");
            }
            (true, Err(why)) => {
                // Of a record in the additional section that is no OPT we read the extent only, not where the pointers in
                // its owner lead. Without that section both read the same.
                assert_ne!(message[10..12], [0, 0], "{why}: {message:02x?}");
                read(&question_alone(message)).expect("domain reads its question");
                unread += 1;
            }
            (false, Ok(_)) => {
                let listed = REJECTED_BY_US.iter().any(|(listed, _)| *listed == reason);
                assert!(listed, "domain reads what we refuse as {reason:?}: {message:02x?}");
                differing.insert(format!("{reason:?}"));
            }
            (false, Err(_)) => {}
        }
    });
    assert!(both > 1000, "{both} messages are queries to both");
    assert!(unread > 0, "remove a difference that no longer exists from the test");
    let listed: BTreeSet<_> =
        REJECTED_BY_US.iter().map(|(reason, _)| format!("{reason:?}")).collect();
    assert_eq!(differing, listed, "remove a difference that no longer exists from the list");
}

/// A record with its names uncompressed and in lower case: owner, type, class, TTL, data.
type Plain = (Vec<u8>, u16, u16, u32, Vec<u8>);

fn as_domain_reads(record: &ParsedRecord<'_, &[u8]>) -> Plain {
    let (mut owner, mut octets) = (Vec::new(), Vec::new());
    record.owner().compose_canonical(&mut owner).expect("a vector grows");
    let data = record.to_any_record::<AllRecordData<_, _>>().expect("data of its type");
    data.data().compose_canonical_rdata(&mut octets).expect("a vector grows");
    let (rtype, class) = (record.rtype().to_int(), record.class().to_int());
    (owner, rtype, class, record.ttl().as_secs(), octets.to_ascii_lowercase())
}

/// hickory-proto does not know DNAME: its octets are compared, and its name must not be compressed (RFC 6672 section 2.5).
fn as_hickory_reads(record: &Record) -> Plain {
    let plain = |part: &dyn BinEncodable| {
        let mut octets = Vec::new();
        let mut encoder = BinEncoder::new(&mut octets);
        encoder.set_canonical_form(true);
        encoder.set_name_encoding(NameEncoding::UncompressedLowercase);
        part.emit(&mut encoder).expect("a vector grows");
        octets.to_ascii_lowercase()
    };
    let (rtype, class) = (record.record_type().into(), record.dns_class.into());
    (plain(&record.name), rtype, class, record.ttl, plain(&record.data))
}

#[test]
fn w11_domain_and_hickory_proto_read_the_same_records_in_what_we_write() {
    let mut types = BTreeSet::new();
    run("respond", |input| {
        let Some((&first, message)) = input.split_first() else { return };
        let transport = if first & 1 == 0 { Transport::Udp } else { Transport::Tcp };
        let mut buffer = vec![0; 65_535];
        let (action, _) = fixture().decide(message, transport, u64::from(first) << 56, &mut buffer);
        let Action::Reply(length) = action else { return };
        let reply = &buffer[..length];
        let second = Message::from_octets(reply).expect("a header");
        let second = records(&second).expect("domain reads what we write");
        let first = hickory_proto::op::Message::from_vec(reply).expect("hickory-proto does");
        let sections = [&first.answers, &first.authorities, &first.additionals];
        let mut first: Vec<_> = sections.into_iter().flatten().map(as_hickory_reads).collect();
        // hickory-proto takes the OPT out of its section.
        let without_opt = second.iter().filter(|record| record.rtype() != Rtype::OPT);
        let mut other: Vec<_> = without_opt.clone().map(as_domain_reads).collect();
        types.extend(without_opt.map(|record| record.rtype().to_string()));
        first.sort();
        other.sort();
        assert_eq!(first, other, "{message:02x?}");
    });
    for rtype in ["A", "AAAA", "SRV", "PTR", "CNAME", "NS", "SOA", "TXT", "HINFO", "DNAME"] {
        assert!(types.contains(rtype), "no reply had {rtype}: {types:?}");
    }
}
