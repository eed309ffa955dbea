//! What the fuzz targets of `dataplane/core/fuzz` and the mutation tests of the stable toolchain run: any octets go in,
//! a broken promise panics. The targets include these files by path, so they use only the core, hickory-proto and the
//! oracle.

mod history;
mod events;
mod relay;
mod promises;
mod fixture;
mod differences;

use dataplane_core::{Action, Reason, Transport};
use hickory_proto::op::Message;

pub use differences::{ACCEPTED_BY_US, Difference, REJECTED_BY_US, question_alone, rejected};
pub use fixture::{Asked, UPSTREAM_ID, fixture, relayed_questions};
pub use history::history;
pub use promises::{Limit, keeps_its_promises};
pub use relay::relay;

/// Target `query`: whether our reader takes a message must be what hickory-proto says, or a difference that is listed.
///
/// The reader is private to the core; the reason that `respond` gives says exactly what it made of the message.
pub fn query(message: &[u8]) -> Option<&'static Difference> {
    let (_, reason) = fixture().decide(message, Transport::Tcp, 0, &mut vec![0; 65_535]);
    differences::between(message, reason)
}

/// Target `respond`: one octet of transport and rotation, then the message. For each of them the reply keeps the
/// promises that hold for all replies, is the same when asked again, and hickory-proto decodes it.
pub fn respond(input: &[u8]) -> Option<Reason> {
    let (&first, message) = input.split_first()?;
    let transport = if first & 1 == 0 { Transport::Udp } else { Transport::Tcp };
    let seed = u64::from(first >> 1) << 57;
    // What is in the buffer before must never show.
    let (mut buffer, mut again) = (vec![0xa5; 65_535], vec![0x5a; 65_535]);
    let (action, reason) = fixture().decide(message, transport, seed, &mut buffer);
    match action {
        Action::Drop => {
            let is_query = message.len() >= 12 && message[2] & 0x80 == 0;
            assert!(!is_query, "a query is dropped: {reason:?}");
        }
        Action::Reply(length) => {
            keeps_its_promises(message, Limit::of(message, transport), &buffer[..length]);
            let _ = fixture().decide(message, transport, seed, &mut again);
            // Counters show in CHAOS answers, so asking changes those.
            assert!(reason == Reason::Chaos || buffer[..length] == again[..length], "{reason:?}");
        }
        Action::Forward(forward) => {
            let query = forward.key.upstream_query(UPSTREAM_ID);
            let read = Message::from_vec(&query.wire).expect("what we ask upstreams can be read");
            assert_eq!(read.queries.len(), 1);
            let length = forward.head.fail(22, "no server replied", &mut buffer);
            keeps_its_promises(message, Limit::of(message, transport), &buffer[..length]);
        }
    }
    Some(reason)
}
