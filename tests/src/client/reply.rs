//! A reply as text, much as `dig` prints it, in one form for what is expected and what came.
//!
//! ```text
//! status: NOERROR  flags: qr aa rd ra
//! ANSWER      cart.shop.svc.cluster.local. 5 A 10.96.10.1
//! AUTHORITY   …
//! ADDITIONAL  …
//! EDE: 21
//! ```
//! Not shown: the id and the question come back octet for octet, and an OPT of version 0
//! with 1232 octets and no flags. Anything else gets a line: `header only`, `EDNS: none`, `NSID: …`, `too long: …`.

use std::fmt;

use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

use super::record::record_text;
use super::{Question, Transport};

/// `udpPayloadBytes`, which an ordinary OPT advertises.
const ADVERTISED: u16 = 1232;
/// Extended DNS Errors, RFC 8914.
const EDE: u16 = 15;

/// What replies call the server, written in texts as `<version>` and `<pod name>`.
#[derive(Clone, Debug)]
pub struct Names {
    /// Version of the program.
    pub version: String,
    /// Pod or host name.
    pub pod_name: String,
}

impl Names {
    /// The part of an identity that answers show.
    pub(crate) fn of(identity: &dataplane_core::Identity) -> Names {
        Names { version: identity.version.clone(), pod_name: identity.pod_name.clone() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Answer,
    Authority,
    Additional,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    pub status: String,
    /// Records as `owner ttl [class] type data`, RRset after RRset.
    pub records: [Vec<String>; 3],
    /// The lines after the records.
    pub notes: Vec<String>,
}

impl Section {
    /// In the order of the message.
    pub const ALL: [Section; 3] = [Section::Answer, Section::Authority, Section::Additional];

    fn title(self) -> &'static str {
        match self {
            Section::Answer => "ANSWER",
            Section::Authority => "AUTHORITY",
            Section::Additional => "ADDITIONAL",
        }
    }
}

/// Reads a reply (`None`: silence) to this question.
pub fn read(
    question: &Question,
    reply: Option<&[u8]>,
    transport: Transport,
    names: &Names,
) -> Text {
    let Some(reply) = reply else {
        return Text { status: "no reply".into(), ..Text::default() };
    };
    let mut decoder = BinDecoder::new(reply);
    let message = match Message::read(&mut decoder) {
        Ok(message) if decoder.is_empty() => message,
        Ok(_) => return unreadable("octets follow the last record", reply),
        Err(error) => return unreadable(&error.to_string(), reply),
    };
    let mut text = Text { status: status(&message, reply), ..Text::default() };
    text.records = [&message.answers, &message.authorities, &message.additionals]
        .map(|section| section.iter().map(|record| record_text(record, names)).collect());
    text.notes.extend(echo(&question.packet, reply));
    if transport == Transport::Udp && reply.len() > question.udp_limit {
        text.notes.push(format!("too long: {} of {} octets", reply.len(), question.udp_limit));
    }
    text.notes.extend(edns_notes(message.edns.as_ref(), reply.len() == 12, names));
    text.in_order()
}

fn unreadable(why: &str, reply: &[u8]) -> Text {
    let octets: String = reply.iter().map(|octet| format!("{octet:02x}")).collect();
    Text { status: format!("unreadable: {why}: {octets}"), ..Text::default() }
}

fn status(message: &Message, reply: &[u8]) -> String {
    let header = &message.metadata;
    let opcode = match reply[2] >> 3 & 15 {
        0 => String::new(),
        2 => "opcode: STATUS  ".into(),
        4 => "opcode: NOTIFY  ".into(),
        5 => "opcode: UPDATE  ".into(),
        other => format!("opcode: {other}  "),
    };
    let flags = [
        ("qr", reply[2] & 0x80 != 0),
        ("aa", header.authoritative),
        ("tc", header.truncation),
        ("rd", header.recursion_desired),
        ("ra", header.recursion_available),
        ("z", reply[3] & 0x40 != 0),
        ("ad", header.authentic_data),
        ("cd", header.checking_disabled),
    ];
    let flags: Vec<&str> = flags.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
    format!("{opcode}status: {}  flags: {}", rcode(header.response_code), flags.join(" "))
}

fn rcode(code: ResponseCode) -> String {
    match u16::from(code) {
        0 => "NOERROR".into(),
        1 => "FORMERR".into(),
        2 => "SERVFAIL".into(),
        3 => "NXDOMAIN".into(),
        4 => "NOTIMP".into(),
        5 => "REFUSED".into(),
        6 => "YXDOMAIN".into(),
        16 => "BADVERS".into(),
        other => format!("RCODE{other}"),
    }
}

/// The line for an id or question that does not come back as it was sent (WR1, WR2).
fn echo(query: &[u8], reply: &[u8]) -> Vec<String> {
    let mut notes = Vec::new();
    if reply[..2] != query[..2] {
        notes.push("another id".into());
    }
    let counts = &reply[4..12];
    if counts == [0; 8] && reply.len() == 12 {
        notes.push("header only".into());
    } else if counts[..2] != [0, 1] {
        notes.push(format!("{} questions", u16::from_be_bytes([counts[0], counts[1]])));
    } else if question_octets(query).is_none_or(|asked| !reply[12..].starts_with(asked)) {
        notes.push("another question".into());
    }
    notes
}

/// The octets of the first question, if it has no compression.
fn question_octets(packet: &[u8]) -> Option<&[u8]> {
    let mut at = 12;
    while let length @ 1.. = *packet.get(at)? {
        at += usize::from(length) + 1;
    }
    packet.get(12..at + 5)
}

fn edns_notes(edns: Option<&Edns>, header_only: bool, names: &Names) -> Vec<String> {
    let Some(edns) = edns else {
        return if header_only { Vec::new() } else { vec!["EDNS: none".into()] };
    };
    let mut notes = Vec::new();
    let flags = u16::from(*edns.flags());
    if edns.version() != 0 || edns.max_payload() != ADVERTISED || flags != 0 {
        let shown = match flags {
            0 => String::new(),
            0x8000 => ", flags do".into(),
            other => format!(", flags {other:04x}"),
        };
        notes.push(format!("EDNS: version {}, udp {}{shown}", edns.version(), edns.max_payload()));
    }
    notes.extend(edns.options().as_ref().iter().map(|(code, value)| option(*code, value, names)));
    notes
}

fn option(code: EdnsCode, value: &EdnsOption, names: &Names) -> String {
    match value {
        EdnsOption::NSID(id) if id.as_ref() == names.pod_name.as_bytes() => {
            "NSID: <pod name>".into()
        }
        EdnsOption::NSID(id) => format!("NSID: {}", id.as_ref().escape_ascii()),
        // The text after the code is for people and may change.
        EdnsOption::Unknown(EDE, value) if value.len() >= 2 => {
            format!("EDE: {}", u16::from_be_bytes([value[0], value[1]]))
        }
        _ => format!("option {}", u16::from(code)),
    }
}

impl Text {
    /// Reads the lines that [`fmt::Display`] writes.
    pub fn parse(lines: &[&str]) -> Text {
        let mut text = Text::default();
        let mut section = None;
        for line in lines {
            let mut words = line.split_whitespace().peekable();
            let titled =
                Section::ALL.into_iter().find(|section| words.peek() == Some(&section.title()));
            if titled.is_some() {
                words.next();
                section = titled;
            }
            let rest: Vec<&str> = words.collect();
            match section {
                Some(section) if titled.is_some() || line.starts_with(' ') => {
                    text.records[section as usize].push(rest.join(" "));
                }
                _ if text.status.is_empty() => text.status = (*line).to_owned(),
                _ => text.notes.push((*line).to_owned()),
            }
        }
        text.in_order()
    }

    /// One order for records that may come in any order: RRsets are sets, and so are the RRsets of the additional
    /// section, which follow targets in random order (WR24). PTRs stay as they are (RR62), and so does the order of a
    /// CNAME chain.
    fn in_order(mut self) -> Text {
        for records in &mut self.records {
            for rrset in records.chunk_by_mut(|a, b| rrset(a) == rrset(b)) {
                if rrset_type(&rrset[0]) != "PTR" {
                    rrset.sort();
                }
            }
        }
        self.records[Section::Additional as usize].sort();
        self
    }
}

/// Owner and type of a record.
fn rrset(record: &str) -> (&str, &str) {
    (record.split(' ').next().unwrap_or(""), rrset_type(record))
}

fn rrset_type(record: &str) -> &str {
    record.split(' ').skip(2).find(|word| *word != "CH").unwrap_or("")
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for section in Section::ALL {
            for (position, record) in self.records[section as usize].iter().enumerate() {
                let title = if position == 0 { section.title() } else { "" };
                writeln!(f, "{title:12}{record}")?;
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "\
status: NOERROR  flags: qr aa rd ra
ANSWER      a.example. 5 A 192.0.2.2
            a.example. 5 A 192.0.2.1
AUTHORITY   example. 7 SOA ns.example. hostmaster.example. <serial> 1 2 3 4
EDE: 21
";

    fn parse(text: &str) -> Text {
        Text::parse(&text.lines().collect::<Vec<_>>())
    }

    #[test]
    fn rrsets_are_sets_and_everything_else_counts() {
        let text = parse(WRITTEN);
        assert_eq!(parse(&text.to_string()), text);
        let swapped = WRITTEN.replace(".2\n", ".x\n").replace(".1\n", ".2\n").replace(".x", ".1");
        assert_eq!(parse(&swapped), text);
        for (from, to) in
            [("a.example. 5 A", "A.example. 5 A"), ("21", "22"), ("aa ", ""), ("4\n", "5\n")]
        {
            let changed = parse(&WRITTEN.replacen(from, to, 1));
            assert_ne!(changed, text, "{from} to {to}");
        }
        let twice = format!("{WRITTEN}            ")
            .replace("AUTHORITY", "            a.example. 5 A 192.0.2.1\nAUTHORITY");
        assert_ne!(parse(&twice), text, "a record given twice");
    }

    #[test]
    fn the_order_of_ptrs_counts() {
        let text = parse("s\nANSWER  r. 5 PTR b.\n        r. 5 PTR a.\n");
        assert_ne!(parse("s\nANSWER  r. 5 PTR a.\n        r. 5 PTR b.\n"), text);
    }

    #[test]
    fn a_reply_is_read_with_all_that_is_odd_about_it() {
        let question = Question::parse("a.example. A").unwrap();
        let names = Names { version: "1".into(), pod_name: "pod".into() };
        let mut reply = question.packet.clone();
        reply[2] |= 0x84;
        let text = read(&question, Some(&reply), Transport::Udp, &names);
        assert_eq!(text.to_string(), "status: NOERROR  flags: qr aa rd\n");
        reply[13] = b'A';
        reply[0] ^= 1;
        let text = read(&question, Some(&reply), Transport::Udp, &names);
        assert_eq!(text.notes, ["another id", "another question"]);
        assert_eq!(read(&question, None, Transport::Udp, &names).to_string(), "no reply\n");
        let header = [&reply[..2], &[0x81, 0x84, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        let text = read(&question, Some(&header), Transport::Tcp, &names);
        assert_eq!(text.notes, ["another id", "header only"]);
        assert_eq!(text.status, "status: NOTIMP  flags: qr rd ra");
    }
}
