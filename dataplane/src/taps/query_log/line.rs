//! One line of the query log: a JSON object with fixed fields; a client that writes quotes or controls into a name adds none.

use dataplane_core::{Name, Reason};
use jiff::Timestamp;
use serde::Serialize;

use super::super::exchange::Exchange;
use crate::rrtype;

/// Octets of a DNS header (RFC 1035 §4.1.1).
const HEADER: usize = 12;

/// The response code as people write it (IANA DNS RCODEs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownRcode(u8);

impl ShownRcode {
    /// Of a reply; its upper bits are in an OPT record that we only ever set for a bad version (RFC 6891 §6.1.3).
    pub(super) fn of(exchange: &Exchange<'_>) -> ShownRcode {
        match (exchange.answered.reason, exchange.reply.get(3)) {
            (Reason::EdnsVersion, _) => ShownRcode(16),
            (_, Some(octet)) => ShownRcode(octet & 0x0f),
            (_, None) => ShownRcode(2),
        }
    }

    /// SERVFAIL, FORMERR, NOTIMP or BADVERS.
    pub(super) const fn is_error(self) -> bool {
        matches!(self.0, 1 | 2 | 4 | 16)
    }

    /// REFUSED or NXDOMAIN.
    pub(super) const fn is_denial(self) -> bool {
        matches!(self.0, 3 | 5)
    }
}

#[derive(Serialize)]
struct Line {
    timestamp: String,
    message: &'static str,
    client: String,
    transport: &'static str,
    /// Absent where the question cannot be read, like the type.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    qtype: Option<String>,
    outcome: String,
    reason: &'static str,
    origin: &'static str,
    duration_us: u64,
}

/// Appends the line of one exchange.
pub(super) fn write(exchange: &Exchange<'_>, lines: &mut Vec<u8>) {
    let question = question(exchange.query);
    let at = i128::try_from(exchange.at.as_micros()).unwrap_or_default() * 1_000;
    let line = Line {
        timestamp: Timestamp::from_nanosecond(at).unwrap_or_default().to_string(),
        message: "query",
        client: exchange.client.to_string(),
        transport: exchange.over.label(),
        name: question.as_ref().map(|(name, _)| name.to_string()),
        qtype: question.map(|(_, qtype)| rrtype::text(qtype)),
        outcome: crds::rcode::text(ShownRcode::of(exchange).0.into()),
        reason: exchange.answered.reason.label(),
        origin: exchange.answered.origin.label(),
        duration_us: u64::try_from(exchange.took.as_micros()).unwrap_or(u64::MAX),
    };
    // Writing to memory cannot fail, and these types always have a JSON form.
    if serde_json::to_writer(&mut *lines, &line).is_ok() {
        lines.push(b'\n');
    }
}

/// Name, in lower case, and type of the question.
fn question(query: &[u8]) -> Option<(Name, u16)> {
    let name = Name::from_wire(query.get(HEADER..)?)?;
    let qtype = query.get(HEADER + name.wire().len()..)?.first_chunk::<2>()?;
    Some((name, u16::from_be_bytes(*qtype)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crds::config::QueryLog as Level;

    use super::super::is_wanted;
    use super::*;
    use crate::origin::{Answered, Origin, ServedOver};
    use crate::taps::Side;

    fn exchange<'a>(query: &'a [u8], reply: &'a [u8], reason: Reason) -> Exchange<'a> {
        Exchange {
            side: Side::Client,
            at: Duration::new(1_700_000_000, 123_456_789),
            took: Duration::from_nanos(12_345),
            client: "10.0.0.1:5353".parse().unwrap(),
            server: "10.96.0.10:53".parse().unwrap(),
            over: ServedOver::Tls,
            answered: Answered { reason, origin: Origin::Own },
            query,
            is_query_cut: false,
            reply,
        }
    }

    fn line(query: &[u8], reply: &[u8], reason: Reason) -> String {
        let mut lines = Vec::new();
        write(&exchange(query, reply, reason), &mut lines);
        String::from_utf8(lines).unwrap()
    }

    fn query(name: &[u8], qtype: u16) -> Vec<u8> {
        [&[0; HEADER][..], name, &qtype.to_be_bytes(), &[0, 1]].concat()
    }

    #[test]
    fn a_line_says_who_asked_what_and_how_it_ended() {
        let reply = [0, 0, 0x84, 3, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            line(&query(b"\x04Cart\x04shop\x00", 28), &reply, Reason::NxDomain),
            "{\"timestamp\":\"2023-11-14T22:13:20.123456Z\",\"message\":\"query\",\"client\":\"10.0.0.1:5353\",\
             \"transport\":\"tls\",\"name\":\"cart.shop.\",\"type\":\"AAAA\",\"outcome\":\"NXDOMAIN\",\
             \"reason\":\"nx_domain\",\"origin\":\"own\",\"duration_us\":12}\n"
        );
    }

    #[test]
    fn s13_no_name_can_start_a_line_of_its_own() {
        let text = line(&query(b"\x05\n\"\x1b\xff.\x00", 65_280), &[0; HEADER], Reason::Found);
        assert_eq!(text.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["name"], "\\010\"\\027\\255\\..");
        assert_eq!(value["type"], "TYPE65280");
    }

    #[test]
    fn a_question_that_cannot_be_read_has_no_name() {
        for query in [&[0; HEADER][..], &query(b"\xc0\x0c", 1), &[]] {
            let text = line(query, &[0, 0, 0x80, 1], Reason::Question);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["outcome"], "FORMERR", "{text}");
            assert!(value.get("name").is_none() && value.get("type").is_none(), "{text}");
        }
    }

    #[test]
    fn the_level_decides_which_outcomes_have_a_line() {
        use Level::{All, Denials, Errors, None};
        let rows = [
            (0, Reason::Found, &[All][..]),
            (1, Reason::Question, &[Errors, Denials, All]),
            (2, Reason::Forward, &[Errors, Denials, All]),
            (3, Reason::NxDomain, &[Denials, All]),
            (4, Reason::Opcode, &[Errors, Denials, All]),
            (5, Reason::Client, &[Denials, All]),
            (0, Reason::EdnsVersion, &[Errors, Denials, All]),
        ];
        for (rcode, reason, wanted) in rows {
            let reply = [0, 0, 0x80, rcode];
            let exchange = exchange(&[], &reply, reason);
            for level in [None, Errors, Denials, All] {
                assert_eq!(
                    is_wanted(level, &exchange),
                    wanted.contains(&level),
                    "{rcode} {level:?}"
                );
            }
        }
    }
}
