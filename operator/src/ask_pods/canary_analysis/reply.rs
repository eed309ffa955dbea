//! One reply of a pod to one question, or why there is none, and the Extended DNS Errors (RFC 8914) in it.

use crds::between_planes::ede;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;

/// The EDNS option of Extended DNS Errors (RFC 8914 §2).
const OPTION_EDE: u16 = 15;

/// The reply, or why there is none.
pub type Reply = Result<Message, NoReply>;

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// It was sent, several times, and no reply came in time.
    Silent(String),
    /// The port is closed, or the stream was broken off.
    Closed(String),
    /// It could not be sent: no route, no permission, no socket. That is a problem of the operator.
    Unsent(String),
}

impl NoReply {
    pub(super) fn why(&self) -> &str {
        let (NoReply::Silent(why) | NoReply::Closed(why) | NoReply::Unsent(why)) = self;
        why
    }
}

/// Whether the client list of the configuration refused the question.
pub(super) fn is_prohibited(reply: &Message) -> bool {
    reply.metadata.response_code == ResponseCode::Refused
        && ede_codes(reply).contains(&ede::PROHIBITED)
}

/// The codes of all Extended DNS Errors (RFC 8914).
pub(crate) fn ede_codes(reply: &Message) -> Vec<u16> {
    let options = reply.edns.iter().flat_map(|edns| edns.options().as_ref());
    let code = |option: &EdnsOption| match option {
        EdnsOption::Unknown(OPTION_EDE, octets) => {
            Some(u16::from_be_bytes([*octets.first()?, *octets.get(1)?]))
        }
        _ => None,
    };
    options.filter_map(|(_, option)| code(option)).collect()
}
