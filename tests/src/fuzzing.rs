//! What the fuzz targets of `dataplane/core/fuzz` and the mutation tests of the stable toolchain run: any octets go in,
//! a broken promise panics. The targets take these files by path, so this needs only the core, hickory-proto and the
//! oracle.

#[path = "fuzzing/differences.rs"]
mod differences;
#[path = "fuzzing/fixture.rs"]
mod fixture;
#[path = "fuzzing/history.rs"]
mod history;
#[path = "fuzzing/promises.rs"]
mod promises;

use dataplane_core::{Action, Freshness, Reason, Transport, TtlCaps, Verdict, Waiting};
use hickory_proto::op::Message;

pub use differences::{ACCEPTED_BY_US, Difference, REJECTED_BY_US};
pub use fixture::{Asked, UPSTREAM_ID, fixture, relayed_questions};
pub use history::history;
pub use promises::{Limit, keeps_its_promises};

/// Target `query`: whether our reader takes a message must be what hickory-proto says, or a difference that is listed.
///
/// The reader is private to the core; the reason that `respond` gives says exactly what it made of the message.
pub fn query(message: &[u8]) -> Option<&'static Difference> {
    let (_, reason) = fixture().decide(message, Transport::Tcp, 0, &mut vec![0; 65_535]);
    differences::between(message, reason)
}

/// Target `respond`: one octet of transport and rotation, then the message. Whatever it is, the reply keeps the
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
            let length = forward.head.fail(22, "nobody answered", &mut buffer);
            keeps_its_promises(message, Limit::of(message, transport), &buffer[..length]);
        }
    }
    Some(reason)
}

/// Target `relay`: one octet chooses a question that is forwarded and its transport, the rest is what its upstream
/// sends back. Our ID is put in, as fuzzing would rarely find it.
pub fn relay(input: &[u8]) -> Option<&'static str> {
    let (&first, reply) = input.split_first()?;
    let questions = relayed_questions();
    let asked = &questions[usize::from(first >> 1) % questions.len()];
    let transport = if first & 1 == 0 { Transport::Udp } else { Transport::Tcp };
    let mut reply = reply.to_vec();
    if let Some(id) = reply.first_chunk_mut() {
        *id = UPSTREAM_ID.to_be_bytes();
    }
    let limit = Limit::of(&asked.packet, transport);
    let waiting = asked.waiting(transport);
    Some(match waiting.key.judge(UPSTREAM_ID, &reply, &TtlCaps::default()) {
        Verdict::Good(relayed) => {
            // What we pass on, hickory-proto decodes, unless what came was already beyond it.
            let readable = Message::from_vec(&reply).is_ok();
            let freshness = Freshness::Fresh { age_s: u32::from(first) };
            written(&waiting, asked, limit, readable, |buffer| {
                relayed.write(&waiting.head.borrow(), freshness, 7, buffer)
            });
            "good"
        }
        Verdict::Failed(_) => {
            let fail = |buffer: &mut [u8]| waiting.head.borrow().fail(23, "", buffer);
            written(&waiting, asked, limit, true, fail);
            "failed"
        }
        Verdict::Discard(discard) => discard.label(),
    })
}

fn written(
    waiting: &Waiting,
    asked: &Asked,
    limit: Limit,
    readable: bool,
    write: impl Fn(&mut [u8]) -> usize,
) {
    let mut buffer = vec![0xa5; 65_535];
    let length = write(&mut buffer);
    if readable {
        keeps_its_promises(&asked.packet, limit, &buffer[..length]);
    } else {
        assert!(length <= limit.octets, "{length} octets for {}", waiting.key.name());
    }
}
