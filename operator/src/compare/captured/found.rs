//! What is found in a file, and which messages are questions of clients.

use hickory_proto::op::{Message, MessageType, OpCode};
use hickory_proto::rr::{DNSClass, Name, RecordType};

use crate::compare::names::{Asked, Questions};

/// Questions, in the order of the file, and what a note says about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::compare) struct Captured {
    /// Each once, up to the bound of a run: a file may have millions.
    pub(in crate::compare) questions: Questions,
    /// How often they were asked.
    pub(in crate::compare) count: usize,
    /// Why nothing more was read, where the file is broken.
    pub(in crate::compare) broken: Option<String>,
    /// Lines, packets or frames without a question of a client: replies, other protocols, other lines of a log.
    pub(in crate::compare) passed_over: usize,
}

impl Captured {
    /// A message that was sent to a DNS server.
    pub(super) fn message(&mut self, octets: &[u8]) {
        match question(octets) {
            Some(asked) => self.question(asked),
            None => self.passed_over += 1,
        }
    }

    pub(super) fn question(&mut self, asked: Asked) {
        self.count += 1;
        self.questions.push(asked);
    }
}

/// The question of a query of class IN.
fn question(octets: &[u8]) -> Option<Asked> {
    let message = Message::from_vec(octets).ok()?;
    let is_query = message.metadata.message_type == MessageType::Query
        && message.metadata.op_code == OpCode::Query;
    let [query] = &message.queries[..] else { return None };
    let is_in = query.query_class() == DNSClass::IN && is_asked(query.query_type());
    (is_query && is_in).then(|| asked(query.name(), query.query_type()))
}

pub(super) fn asked(name: &Name, kind: RecordType) -> Asked {
    let mut name = name.to_lowercase();
    name.set_fqdn(true);
    Asked { name, kind }
}

/// True for types that `compare` asks for; transfers (RFC 5936) and OPT are left out.
pub(super) fn is_asked(kind: RecordType) -> bool {
    ![RecordType::AXFR, RecordType::IXFR, RecordType::OPT].contains(&kind)
}
