//! Asks `respond` itself, without a socket, and reads the answer section of its reply.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dataplane_core::{Action, CacheCounters, Counters, Query, Transport, WorkerCounters, respond};

use crate::state::{Published, State};

/// The types that a table shows, and their numbers.
const KINDS: [(&str, u16); 5] = [("A", 1), ("AAAA", 28), ("CNAME", 5), ("TXT", 16), ("SRV", 33)];
/// Longest name with its dots; a reply that has a longer one is not ours.
const MAX_NAME: usize = 255;

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
    let count = u16::from_be_bytes([*reply.get(6)?, *reply.get(7)?]);
    let (_, mut at) = name(reply, 12)?;
    at += 4;
    let mut answers = Vec::new();
    for _ in 0..count {
        let (owner, after) = name(reply, at)?;
        let number = u16_at(reply, after)?;
        let data = after + 10;
        let end = data + usize::from(u16_at(reply, after + 8)?);
        if let Some((kind, _)) = KINDS.iter().find(|(_, known)| *known == number) {
            let value = value(reply, kind, data, end)?;
            answers.push(Answer { owner, kind, value });
        }
        at = end;
    }
    Some(answers)
}

fn value(reply: &[u8], kind: &str, data: usize, end: usize) -> Option<String> {
    let octets = reply.get(data..end)?;
    Some(match kind {
        "A" => Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).to_string(),
        "AAAA" => Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).to_string(),
        "CNAME" => name(reply, data)?.0,
        "SRV" => {
            let port = u16_at(reply, data + 4)?;
            format!("port {port} of {}", name(reply, data + 6)?.0)
        }
        _ => strings(octets),
    })
}

/// The character-strings of a TXT record.
fn strings(mut octets: &[u8]) -> String {
    let mut texts = Vec::new();
    while let Some((length, rest)) = octets.split_first() {
        let (text, after) = rest.split_at(rest.len().min(usize::from(*length)));
        texts.push(format!("\"{}\"", text.escape_ascii()));
        octets = after;
    }
    texts.join(" ")
}

/// A name as text without its last dot, and where the next field begins.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut after = None;
    loop {
        let length = usize::from(*message.get(at)?);
        if length == 0 {
            return Some((text, after.unwrap_or(at + 1)));
        }
        if length >= 0xc0 {
            let target = usize::from(u16_at(message, at)? & 0x3fff);
            // Only backwards, so it ends.
            if target >= at {
                return None;
            }
            after = after.or(Some(at + 2));
            at = target;
            continue;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(&message.get(at + 1..at + 1 + length)?.escape_ascii().to_string());
        if text.len() > 4 * MAX_NAME {
            return None;
        }
        at += 1 + length;
    }
}

fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_section_is_read_with_compressed_names() {
        let mut reply = vec![0, 0, 0x85, 0, 0, 1, 0, 3, 0, 0, 0, 0];
        reply.extend(b"\x01a\x01b\0\0\x01\0\x01");
        reply.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\x0a\0\0\x01");
        reply.extend(b"\xc0\x0c\0\x21\0\x01\0\0\0\x05\0\x0a\0\0\0\x64\0\x50\x01x\xc0\x0e");
        reply.extend(b"\xc0\x0c\0\x10\0\x01\0\0\0\x05\0\x06\x05hel\"o");
        let read: Vec<_> = answers(&reply)
            .unwrap()
            .into_iter()
            .map(|answer| format!("{} {} {}", answer.owner, answer.kind, answer.value))
            .collect();
        assert_eq!(read, ["a.b A 10.0.0.1", "a.b SRV port 80 of x.b", "a.b TXT \"hel\\\"o\""]);
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
