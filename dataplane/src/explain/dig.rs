//! A reply as `dig` prints it, for people. Names are read with their compression, which leads backwards only; a record
//! of a type that is not known here is shown in the form of RFC 3597 §5.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::rrtype;

/// Octets of a DNS header (RFC 1035 §4.1.1).
const HEADER: usize = 12;
/// The type of an OPT record (RFC 6891 §6.1.2).
const OPT: u16 = 41;
/// Option Extended DNS Error (RFC 8914 §2).
const EDE: u16 = 15;

/// A reply as text, and the parts that `/explain` shows separately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// As `dig` prints it.
    pub text: String,
    /// The status, such as `NXDOMAIN`.
    pub status: String,
    /// The records of the answer section, a line each.
    pub answer: Vec<String>,
    /// The smallest TTL of the answer section, else of the authority section.
    pub ttl_s: Option<u32>,
}

/// One record of a reply; its name and data are text as `dig` prints them.
pub(crate) struct Record {
    pub(crate) owner: String,
    class: u16,
    pub(crate) rtype: u16,
    ttl_s: u32,
    pub(crate) data: String,
}

impl Record {
    fn line(&self) -> String {
        let (class, rtype) = (class_text(self.class), rrtype::text(self.rtype));
        format!("{} {} {class} {rtype} {}", self.owner, self.ttl_s, self.data)
    }
}

/// A message, read: its questions as lines, and its records by section, the OPT record aside.
struct Message {
    counts: [u16; 4],
    rcode: u16,
    questions: String,
    sections: [Vec<Record>; 3],
    edns: String,
}

/// The records of the answer section; `None` when the message cannot be read.
pub(crate) fn answers(message: &[u8]) -> Option<Vec<Record>> {
    let [answers, _, _] = read(message)?.sections;
    Some(answers)
}

/// Prints a message; `None` when it cannot be read.
pub fn print(message: &[u8]) -> Option<Printed> {
    let Message { counts, rcode, questions, sections, edns } = read(message)?;
    let status = crds::rcode::text(rcode);
    let mut text = format!(";; status: {status}\n;; flags: {}; ", flags(message)?);
    let [asked, answers, authority, additional] = counts;
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "QUERY: {asked}, ANSWER: {answers}, AUTHORITY: {authority}, ADDITIONAL: {additional}"
    );
    text.push_str(&edns);
    let _ = write!(text, ";; QUESTION SECTION:\n{questions}");
    for (title, section) in ["ANSWER", "AUTHORITY", "ADDITIONAL"].into_iter().zip(&sections) {
        if !section.is_empty() {
            let _ = writeln!(text, ";; {title} SECTION:");
        }
        for record in section {
            let _ = writeln!(text, "{}", record.line());
        }
    }
    let least = |section: &[Record]| section.iter().map(|record| record.ttl_s).min();
    let ttl_s = least(&sections[0]).or_else(|| least(&sections[1]));
    let answer = sections[0].iter().map(Record::line).collect();
    Some(Printed { text, status, answer, ttl_s })
}

fn read(message: &[u8]) -> Option<Message> {
    let count = |place: usize| u16_at(message, 4 + 2 * place);
    let counts = [count(0)?, count(1)?, count(2)?, count(3)?];
    let mut at = HEADER;
    let mut questions = String::new();
    for _ in 0..counts[0] {
        let (name, after) = name(message, at)?;
        let (qtype, class) = (u16_at(message, after)?, u16_at(message, after + 2)?);
        let _ = writeln!(questions, ";{name} {} {}", class_text(class), rrtype::text(qtype));
        at = after + 4;
    }
    let mut rcode = u16::from(*message.get(3)? & 0xf);
    let mut sections: [Vec<Record>; 3] = Default::default();
    let mut edns = String::new();
    for (section, count) in sections.iter_mut().zip(&counts[1..]) {
        for _ in 0..*count {
            let (owner, after) = name(message, at)?;
            let [rtype, class] = [u16_at(message, after)?, u16_at(message, after + 2)?];
            let ttl_s = u32::from(u16_at(message, after + 4)?) << 16
                | u32::from(u16_at(message, after + 6)?);
            let data = after + 10;
            at = data + usize::from(u16_at(message, after + 8)?);
            let octets = message.get(data..at)?;
            if rtype == OPT {
                rcode |= u16::from((ttl_s >> 24) as u8) << 4;
                edns = edns_text(class, ttl_s, octets)?;
                continue;
            }
            let data = data_text(message, rtype, data, octets)?;
            section.push(Record { owner, class, rtype, ttl_s, data });
        }
    }
    Some(Message { counts, rcode, questions, sections, edns })
}

fn flags(message: &[u8]) -> Option<String> {
    let (high, low) = (*message.get(2)?, *message.get(3)?);
    let flags = [
        ("qr", high & 0x80),
        ("aa", high & 0x04),
        ("tc", high & 0x02),
        ("rd", high & 0x01),
        ("ra", low & 0x80),
        ("ad", low & 0x20),
        ("cd", low & 0x10),
    ];
    let set: Vec<&str> = flags.iter().filter(|(_, bit)| *bit != 0).map(|(name, _)| *name).collect();
    Some(set.join(" "))
}

fn class_text(class: u16) -> String {
    match class {
        1 => "IN".to_owned(),
        3 => "CH".to_owned(),
        other => format!("CLASS{other}"),
    }
}

fn edns_text(payload: u16, ttl_s: u32, mut options: &[u8]) -> Option<String> {
    let dnssec_ok = if ttl_s & 0x8000 != 0 { " do" } else { "" };
    let version = ttl_s >> 16 & 0xff;
    let mut text = format!("; EDNS: version: {version}, flags:{dnssec_ok}; udp: {payload}\n");
    while !options.is_empty() {
        let code = u16_at(options, 0)?;
        let end = 4 + usize::from(u16_at(options, 2)?);
        let value = options.get(4..end)?;
        options = &options[end..];
        let _ = match (code, u16_at(value, 0)) {
            (EDE, Some(error)) if value.len() == 2 => writeln!(text, "; EDE: {error}"),
            (EDE, Some(error)) => {
                writeln!(text, "; EDE: {error}: ({})", shown(&value[2..]))
            }
            _ => writeln!(text, "; OPT={code}: {}", shown(value)),
        };
    }
    Some(text)
}

/// Text from others, without control characters.
fn shown(octets: &[u8]) -> String {
    octets.escape_ascii().to_string()
}

/// The data of a record that begins at `at` and is `octets`.
fn data_text(message: &[u8], rtype: u16, at: usize, octets: &[u8]) -> Option<String> {
    let name_at = |at: usize| name(message, at).map(|(name, _)| name);
    let number = |place: usize| u16_at(octets, place);
    Some(match rrtype::text(rtype).as_str() {
        "A" => Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).to_string(),
        "AAAA" => Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).to_string(),
        "NS" | "CNAME" | "PTR" | "DNAME" => name_at(at)?,
        "MX" => format!("{} {}", number(0)?, name_at(at + 2)?),
        "SRV" => format!("{} {} {} {}", number(0)?, number(2)?, number(4)?, name_at(at + 6)?),
        "SOA" => {
            let (server, after) = name(message, at)?;
            let (mailbox, mut after) = name(message, after)?;
            let mut text = format!("{server} {mailbox}");
            for _ in 0..5 {
                let number = u32::from(u16_at(message, after)?) << 16
                    | u32::from(u16_at(message, after + 2)?);
                let _ = write!(text, " {number}");
                after += 4;
            }
            text
        }
        "TXT" | "HINFO" => strings(octets)?,
        _ => {
            let digits: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
            format!("\\# {} {digits}", octets.len()).trim_end().to_owned()
        }
    })
}

/// Character-strings (RFC 1035 §3.3).
fn strings(mut octets: &[u8]) -> Option<String> {
    let mut texts = Vec::new();
    while let Some((length, rest)) = octets.split_first() {
        let (text, after) = rest.split_at_checked(usize::from(*length))?;
        texts.push(format!("\"{}\"", shown(text)));
        octets = after;
    }
    Some(texts.join(" "))
}

/// A name as text, and where the next field begins.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut after = None;
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => {
                let text = if text.is_empty() { ".".to_owned() } else { text };
                return Some((text, after.unwrap_or(at + 1)));
            }
            0xc0.. => {
                let target = usize::from(u16_at(message, at)? & 0x3fff);
                // Only backwards, so that it ends.
                if target >= at {
                    return None;
                }
                after = after.or(Some(at + 2));
                at = target;
            }
            0x40.. => return None,
            _ => {
                let label = message.get(at + 1..at + 1 + length)?;
                text.push_str(&shown(label).replace('.', "\\."));
                text.push('.');
                // Four characters an octet at most.
                if text.len() > 4 * 255 {
                    return None;
                }
                at += 1 + length;
            }
        }
    }
}

fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_printed_as_dig_does() {
        let mut reply = vec![0, 0, 0x85, 0x83, 0, 1, 0, 3, 0, 1, 0, 1];
        reply.extend(b"\x01a\x01b\0\0\x01\0\x01");
        reply.extend(b"\xc0\x0c\0\x05\0\x01\0\0\0\x1e\0\x04\x01x\xc0\x0e");
        reply.extend(b"\xc0\x0c\0\x21\0\x01\0\0\0\x05\0\x0a\0\0\0\x64\0\x50\x01x\xc0\x0e");
        reply.extend(b"\xc0\x0c\x03\xe7\0\x01\0\0\0\x05\0\x02\xab\xcd");
        reply.extend(b"\xc0\x0e\0\x06\0\x01\0\0\0\x02\0\x18\xc0\x0c\xc0\x0e");
        for number in 1..=5u32 {
            reply.extend(number.to_be_bytes());
        }
        reply.extend(b"\0\0\x29\x04\xd0\0\0\0\0\0\x09\0\x0f\0\x05\0\x03old");
        let printed = print(&reply).unwrap();
        assert_eq!(
            printed.text,
            ";; status: NXDOMAIN\n\
             ;; flags: qr aa rd ra; QUERY: 1, ANSWER: 3, AUTHORITY: 1, ADDITIONAL: 1\n\
             ; EDNS: version: 0, flags:; udp: 1232\n\
             ; EDE: 3: (old)\n\
             ;; QUESTION SECTION:\n;a.b. IN A\n\
             ;; ANSWER SECTION:\n\
             a.b. 30 IN CNAME x.b.\n\
             a.b. 5 IN SRV 0 100 80 x.b.\n\
             a.b. 5 IN TYPE999 \\# 2 abcd\n\
             ;; AUTHORITY SECTION:\n\
             b. 2 IN SOA a.b. b. 1 2 3 4 5\n"
        );
        assert_eq!((printed.ttl_s, printed.answer.len()), (Some(5), 3));
    }

    #[test]
    fn what_is_cut_short_or_leads_in_a_circle_is_not_printed() {
        let whole = b"\0\0\x85\0\0\x01\0\x01\0\0\0\0\x01a\0\0\x01\0\x01\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\x0a\0\0\x01";
        assert!(print(whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(print(&whole[..end]), None, "{end} octets");
        }
        let mut circle = whole.to_vec();
        circle[20] = 0x13;
        assert_eq!(print(&circle), None);
    }
}
