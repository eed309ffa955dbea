//! Asks `respond` itself, without a socket, and reads the answer section of its reply.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dataplane_core::{Action, CacheCounters, Counters, Query, Transport, WorkerCounters, respond};

use crate::explain;
use crate::state::{Published, State};

/// The types that a table shows, and their numbers.
const KINDS: [(&str, u16); 6] =
    [("A", 1), ("AAAA", 28), ("CNAME", 5), ("DNAME", 39), ("TXT", 16), ("SRV", 33)];

/// One record of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) owner: String,
    pub(super) kind: &'static str,
    pub(super) value: String,
}

/// A client of one published state. Counts into counters of its own, so that no metric moves.
pub(super) struct Ask<'a> {
    state: &'a State,
    published: arc_swap::Guard<std::sync::Arc<Published>>,
    counters: WorkerCounters,
}

impl<'a> Ask<'a> {
    pub(super) fn new(state: &'a State) -> Ask<'a> {
        Ask { state, published: state.published.load(), counters: WorkerCounters::default() }
    }

    /// The records of the answer; none when the name is forwarded, missing or not a name.
    pub(super) fn question(&self, name: &str, kind: &str) -> Vec<Answer> {
        let Some(packet) = packet(name, kind) else { return Vec::new() };
        let query = Query {
            packet: &packet,
            client: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1024),
            transport: Transport::Tcp,
            now_s: 0,
            seed: 0,
        };
        let counters = Counters {
            own: &self.counters,
            all: &self.state.counters,
            servers: &[],
            cache: &CacheCounters::default(),
            identity: &self.state.identity,
        };
        let mut buffer = vec![0; 65_535];
        match respond(&self.published.records, &query, &counters, &mut buffer) {
            (Action::Reply(length), _) => answers(&buffer[..length]).unwrap_or_default(),
            (Action::Drop | Action::Forward(_), _) => Vec::new(),
        }
    }
}

/// A query, or `None` for what is no name.
fn packet(name: &str, kind: &str) -> Option<Vec<u8>> {
    let number = KINDS.iter().find(|(known, _)| *known == kind)?.1;
    // Id 0, RD, one question.
    let mut packet = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        packet.push(length);
        packet.extend_from_slice(label.as_bytes());
    }
    packet.push(0);
    packet.extend_from_slice(&number.to_be_bytes());
    packet.extend_from_slice(&[0, 1]);
    Some(packet)
}

/// The answer section; `None` when the reply cannot be read.
fn answers(reply: &[u8]) -> Option<Vec<Answer>> {
    let records = explain::answers(reply)?.into_iter();
    Some(records.filter_map(|record| answer(&record.owner, record.rtype, &record.data)).collect())
}

/// A record as the table shows it: names without their last dot, and of a service its port.
fn answer(owner: &str, rtype: u16, data: &str) -> Option<Answer> {
    let (kind, _) = *KINDS.iter().find(|(_, known)| *known == rtype)?;
    let name = |text: &str| text.strip_suffix('.').unwrap_or(text).to_owned();
    let value = match kind {
        "CNAME" | "DNAME" => name(data),
        "SRV" => {
            let [_, _, port, target] = *data.split(' ').collect::<Vec<_>>() else { return None };
            format!("port {port} of {}", name(target))
        }
        _ => data.to_owned(),
    };
    Some(Answer { owner: name(owner), kind, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_a_record_of_the_resource_may_have_is_shown() {
        let crd = serde_json::to_value(crds::v1alpha1::crd()).unwrap();
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let types = crd.pointer(&format!("{spec}/records/items/properties/type/enum")).unwrap();
        for rtype in types.as_array().unwrap().iter().map(|rtype| rtype.as_str().unwrap()) {
            let number = crate::rrtype::parse(rtype);
            let is_asked = KINDS.iter().any(|(name, kind)| *name == rtype && Some(*kind) == number);
            assert!(is_asked, "--print-names and /explain do not know {rtype}");
        }
    }

    #[test]
    fn an_answer_section_is_read_with_compressed_names() {
        let mut reply = vec![0, 0, 0x85, 0, 0, 1, 0, 4, 0, 0, 0, 0];
        reply.extend(b"\x01a\x01b\0\0\x01\0\x01");
        reply.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\x0a\0\0\x01");
        reply.extend(b"\xc0\x0c\0\x21\0\x01\0\0\0\x05\0\x0a\0\0\0\x64\0\x50\x01x\xc0\x0e");
        reply.extend(b"\xc0\x0c\0\x10\0\x01\0\0\0\x05\0\x06\x05hel\"o");
        reply.extend(b"\xc0\x0c\0\x27\0\x01\0\0\0\x05\0\x03\x01n\0");
        let read: Vec<_> = answers(&reply)
            .unwrap()
            .into_iter()
            .map(|answer| format!("{} {} {}", answer.owner, answer.kind, answer.value))
            .collect();
        let expected =
            ["a.b A 10.0.0.1", "a.b SRV port 80 of x.b", "a.b TXT \"hel\\\"o\"", "a.b DNAME n"];
        assert_eq!(read, expected);
    }

    #[test]
    fn what_is_no_reply_gives_nothing() {
        let looping = b"\0\0\x85\0\0\x01\0\x01\0\0\0\0\x01a\0\0\x01\0\x01\xc0\x13";
        assert_eq!(answers(looping), None);
        assert_eq!(answers(b"short"), None);
        assert_eq!(packet("a..b", "A"), None);
        assert_eq!(packet(&"a".repeat(64), "A"), None);
    }
}
