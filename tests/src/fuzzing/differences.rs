//! Where our reader and hickory-proto do not agree on what a query is: a list with reasons, and the check that there
//! are no others (row W11).

use dataplane_core::Reason;
use hickory_proto::op::Message;

/// A kind of message that one reader takes and the other does not.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    pub what: &'static str,
    pub why: &'static str,
}

/// hickory-proto takes them, we do not. The first six are rules about queries; it reads messages of every kind.
pub const REJECTED_BY_US: [Difference; 8] = [
    Difference { what: "a reply", why: "N1: answering replies makes loops" },
    Difference { what: "another opcode", why: "N2: NOTIMP, with anything after the header" },
    Difference { what: "section counts", why: "N3: a query has one question and no answer" },
    Difference { what: "a type that is no question", why: "N5: type 0, OPT and TSIG" },
    Difference { what: "an EDNS version", why: "N6: BADVERS; only its version is read" },
    Difference {
        what: "a pointer in the question",
        why: "N4: before the first name there is only the header, in which there is no name to point to",
    },
    Difference {
        what: "the owner of an OPT",
        why: "N5: the root is one zero octet (RFC 6891 section 6.1.2); hickory-proto follows pointers to one, and takes any name where the OPT is empty",
    },
    Difference {
        what: "an option past the end of the OPT",
        why: "N5: hickory-proto drops such options, or reads them past the end of the OPT",
    },
];

/// We take them, hickory-proto does not.
pub const ACCEPTED_BY_US: [Difference; 2] = [
    Difference {
        what: "a record in the additional section that is not an OPT",
        why: "only its extent is read: its content is not needed, and pointers in its owner are not followed",
    },
    Difference {
        what: "what is in an option",
        why: "options not named in WR12-WR15 are opaque; hickory-proto reads client subnets and others",
    },
];

/// The difference between the two for a message, and our counted reason for it.
///
/// # Panics
/// They differ, and it is in neither list.
pub(super) fn between(message: &[u8], reason: Reason) -> Option<&'static Difference> {
    let theirs = Message::from_vec(message);
    let listed = |what| {
        let found = REJECTED_BY_US.iter().chain(&ACCEPTED_BY_US).find(|one| one.what == what);
        assert!(found.is_some(), "{what} is not in the lists");
        found
    };
    match rejected(message, reason) {
        None => accepted(message, theirs).and_then(listed),
        Some(what) => theirs.is_ok().then(|| listed(what)).flatten(),
    }
}

/// What a message is that we take for no query; none where we do, with any reply.
pub fn rejected(message: &[u8], reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::Short => Some("a short message"),
        Reason::IsResponse => Some("a reply"),
        Reason::Opcode => Some("another opcode"),
        Reason::Counts => Some("section counts"),
        Reason::Question => Some("a pointer in the question"),
        Reason::QueryType => Some("a type that is no question"),
        Reason::EdnsVersion => Some("an EDNS version"),
        Reason::Additional => Some(why_additional(message)),
        Reason::SourcePortZero
        | Reason::Client
        | Reason::Transfer
        | Reason::Class
        | Reason::Chaos
        | Reason::SpecialUse
        | Reason::NotReady
        | Reason::Found
        | Reason::NoData
        | Reason::NxDomain
        | Reason::Cname
        | Reason::CnameLoop
        | Reason::RecursionNotDesired
        | Reason::NoGroup
        | Reason::Withheld
        | Reason::Forward => None,
    }
}

/// The header and the question of a message that we read, without its records.
pub fn question_alone(message: &[u8]) -> Vec<u8> {
    rebuilt(message, &[], false)
}

/// We read it: hickory-proto does too, at least without what only it reads, and reads the same.
fn accepted(
    message: &[u8],
    theirs: Result<Message, impl std::fmt::Display>,
) -> Option<&'static str> {
    let records = records(message).expect("we read this");
    let with_opt = |options| rebuilt(message, &records, options);
    let attempts = [
        (None, theirs.map_err(|error| error.to_string())),
        (Some(ACCEPTED_BY_US[0].what), read(&with_opt(true))),
        (Some(ACCEPTED_BY_US[1].what), read(&with_opt(false))),
    ];
    let last = attempts[2].1.clone();
    let taken = attempts.into_iter().find_map(|(what, read)| Some((what, read.ok()?)));
    let (what, read) =
        taken.unwrap_or_else(|| panic!("we take what hickory-proto refuses: {last:?}"));
    let [question] = read.queries.as_slice() else { panic!("{} questions", read.queries.len()) };
    let own = question_of(message);
    assert_eq!(question.query_type(), own.0.into());
    assert_eq!(u16::from(question.query_class()), own.1);
    let opts = records.iter().filter(|record| record.rtype == OPT).count();
    assert_eq!(usize::from(read.edns.is_some()), opts);
    what
}

fn read(message: &[u8]) -> Result<Message, String> {
    Message::from_vec(message).map_err(|error| error.to_string())
}

const OPT: u16 = 41;

/// The extent of a record behind the question.
struct Record<'m> {
    /// Owner, type, class, TTL.
    head: &'m [u8],
    root: bool,
    rtype: u16,
    rdata: &'m [u8],
}

/// Type and class of the question, and with it where the question ends.
fn question_of(message: &[u8]) -> (u16, u16, usize) {
    let end = name_end(message, 12).expect("we read this");
    let number = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    (number(end), number(end + 2), end + 4)
}

/// Every record behind the question; `None` when they end too early.
fn records(message: &[u8]) -> Option<Vec<Record<'_>>> {
    let number = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    let mut at = question_of(message).2;
    let mut records = Vec::new();
    for _ in 0..u32::from(number(6)?) + u32::from(number(8)?) + u32::from(number(10)?) {
        let end = name_end(message, at)?;
        let rdata = end + 10..end + 10 + usize::from(number(end + 8)?);
        records.push(Record {
            head: &message[at..end + 8],
            root: message[at] == 0,
            rtype: number(end)?,
            rdata: message.get(rdata.clone())?,
        });
        at = rdata.end;
    }
    Some(records)
}

/// Where a name ends, pointers not followed.
fn name_end(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += usize::from(length) + 1,
            64..=191 => return None,
            192.. => return Some(at + 2),
        }
    }
}

/// The message with its question and its OPT alone, with or without options.
fn rebuilt(message: &[u8], records: &[Record<'_>], options: bool) -> Vec<u8> {
    let mut packet = message[..question_of(message).2].to_vec();
    packet[6..12].fill(0);
    for opt in records.iter().filter(|record| record.rtype == OPT) {
        packet[11] += 1;
        packet.extend(opt.head);
        let rdata = if options { opt.rdata } else { &[] };
        packet.extend((rdata.len() as u16).to_be_bytes());
        packet.extend(rdata);
    }
    packet
}

/// Which of the rules on the additional section a message breaks that hickory-proto takes.
fn why_additional(message: &[u8]) -> &'static str {
    let records = records(message).unwrap_or_default();
    let opt = records.iter().find(|record| record.rtype == OPT);
    match opt {
        Some(opt) if !opt.root => "the owner of an OPT",
        Some(opt) if !options_end(opt.rdata) => "an option past the end of the OPT",
        Some(_) | None => "something else in the additional section",
    }
}

fn options_end(mut rest: &[u8]) -> bool {
    while let [_, _, high, low, tail @ ..] = rest {
        let Some(next) = tail.get(usize::from(u16::from_be_bytes([*high, *low]))..) else {
            return false;
        };
        rest = next;
    }
    rest.is_empty()
}
