//! Target `relay`: what an upstream sends is judged, read as the cache reads it, written for every client that shares
//! the entry, and followed where its chain leads.

use dataplane_core::{
    Age, CacheAction, CacheRules, Freshness, OwnRanges, Relayed, ReplyHead, Resolution, Step,
    Surroundings, Transport, TtlCaps, Verdict, Waiting, cache_action, lifetime_s, write_chain,
};
use hickory_proto::op::Message;
use hickory_proto::rr::Record;

use super::fixture::{Asked, UPSTREAM_ID, fixture, relayed_questions};
use super::promises::{Limit, keeps_its_promises};
use crate::in_process::NOW_S;

/// Transport, question and rotation; age; length of the first reply.
const HEAD: usize = 4;
const CACHE: CacheRules = CacheRules { stale_s: 86_400, prefetch: true };
const CAPS: TtlCaps = TtlCaps {
    max_s: 3600,
    max_negative_s: 30,
    no_private_addresses: false,
    own_ranges: OwnRanges::NONE,
    own_zone: None,
    relays_own_zone: false,
};
/// TTL of every record of a stale reply (CA40).
const STALE_TTL_S: u32 = 30;
/// Names that one question may lead to, and one more (FW42).
const MOST_LOOKUPS: usize = 12;
const HEADER: usize = 12;
const SERVFAIL: u8 = 2;

/// Runs one reply; the verdict on it.
pub fn relay(input: &[u8]) -> Option<&'static str> {
    let (&[choice, age, high, low], replies) = input.split_first_chunk::<HEAD>()?;
    let length = usize::from(u16::from_be_bytes([high, low])).min(replies.len());
    let (reply, next) = replies.split_at(length);
    let questions = relayed_questions();
    let asked = &questions[usize::from(choice >> 1) % questions.len()];
    let transport = if choice & 1 == 0 { Transport::Udp } else { Transport::Tcp };
    let client = Client { asked, transport, waiting: asked.waiting(transport) };
    let mut reply = reply.to_vec();
    // Fuzzing would rarely find our ID.
    if let Some(id) = reply.first_chunk_mut() {
        *id = UPSTREAM_ID.to_be_bytes();
    }
    let seed = u64::from(choice) << 56;
    Some(match client.waiting.key.judge(UPSTREAM_ID, &reply, &CAPS) {
        Verdict::Good(relayed) => {
            assert!(relayed.is_for(&client.waiting.key));
            assert_eq!(relayed.key(), client.waiting.key);
            let is_readable = Message::from_vec(&reply).is_ok();
            read_from_cache(&client, &relayed, age, seed, is_readable);
            follow(&client, relayed, next, seed, is_readable);
            "good"
        }
        Verdict::Failed(_) => {
            client.written(true, |head, buffer| head.fail(23, "", buffer));
            "failed"
        }
        Verdict::Discard(discard) => discard.label(),
    })
}

struct Client<'a> {
    asked: &'a Asked,
    transport: Transport,
    waiting: Waiting,
}

impl Client<'_> {
    /// The reply that is written; `None` where hickory-proto cannot read what the upstream sent, so that it need not
    /// read what we relay.
    fn written(
        &self,
        is_readable: bool,
        write: impl Fn(&ReplyHead<'_>, &mut [u8]) -> usize,
    ) -> Option<Message> {
        let limit = Limit::of(&self.asked.packet, self.transport);
        let mut buffer = vec![0xa5; 65_535];
        let length = write(&self.waiting.head.borrow(), &mut buffer);
        assert!(length <= limit.octets, "{length} octets for {}", self.waiting.key.name());
        is_readable.then(|| {
            keeps_its_promises(&self.asked.packet, limit, &buffer[..length]);
            Message::from_vec(&buffer[..length]).expect("just read")
        })
    }
}

/// Every client whose question has this key gets the same records, and TTLs that have counted down.
fn read_from_cache(first: &Client<'_>, relayed: &Relayed, age: u8, seed: u64, is_readable: bool) {
    let as_it_came = |head: &ReplyHead<'_>, buffer: &mut [u8]| {
        relayed.write(head, Freshness::Fresh { age_s: 0 }, seed, buffer).octets
    };
    let came = first.written(is_readable, as_it_came);
    let own_cnames = |client: &Client<'_>| {
        client.waiting.head.borrow().cnames.iter().map(|it| it.records()).sum()
    };
    let from_upstream = |client: &Client<'_>, reply: &Message| -> Vec<Record> {
        reply.answers.iter().skip(own_cnames(client)).cloned().collect()
    };
    let came = came.map(|reply| (from_upstream(first, &reply), reply.metadata.truncation));
    let Some(lifetime_s) = lifetime_s(relayed) else { return };
    // From the start of its life to long after its end.
    let age_s = u64::from(age) * u64::from(lifetime_s) / 100;
    let freshness = match cache_action(&Age::of_reply(lifetime_s, 0), age_s * 1_000, CACHE) {
        CacheAction::Fresh { age_s } | CacheAction::FreshAndPrefetch { age_s } => {
            Freshness::Fresh { age_s }
        }
        CacheAction::Stale { .. } => Freshness::Stale,
        CacheAction::Miss | CacheAction::Failed { .. } => return,
    };
    for asked in relayed_questions() {
        for transport in [Transport::Udp, Transport::Tcp] {
            let client = Client { asked, transport, waiting: asked.waiting(transport) };
            if client.waiting.key != first.waiting.key {
                continue;
            }
            let kept = client.written(is_readable, |head, buffer| {
                let written = relayed.write(head, freshness, seed, buffer);
                // Whether it was copied in one piece or written record by record.
                let mut other = vec![0x5a; buffer.len()];
                assert_eq!(write_chain(head, &[(relayed, freshness)], seed, &mut other), written);
                assert!(other[..written.octets] == buffer[..written.octets], "both writers agree");
                written.octets
            });
            let (Some(kept), Some((came, was_cut))) = (kept, &came) else { continue };
            let records = from_upstream(&client, &kept);
            if !was_cut && !kept.metadata.truncation {
                assert_eq!(records.len(), came.len(), "{records:?}, not {came:?}");
            }
            for (kept, came) in records.iter().zip(came) {
                assert_eq!((&kept.name, &kept.data), (&came.name, &came.data));
                match freshness {
                    Freshness::Fresh { age_s } => {
                        let left = came.ttl.saturating_sub(age_s).max(came.ttl.min(1));
                        assert_eq!(kept.ttl, left, "of {} s after {age_s} s", came.ttl);
                    }
                    Freshness::Stale => assert_eq!(kept.ttl, STALE_TTL_S),
                }
            }
        }
    }
}

/// Resolves what the reply leads to (FW42). Every upstream on the way says the same: `next`, behind its question.
fn follow(client: &Client<'_>, relayed: Relayed, next: &[u8], seed: u64, is_readable: bool) {
    let limit = client.waiting.head.limit();
    let around = Surroundings { records: fixture().records(), now_s: NOW_S, seed, limit };
    let mut resolution = Resolution::default();
    let mut is_readable = is_readable;
    let mut last = relayed;
    for _ in 0..MOST_LOOKUPS {
        assert_ne!(last.rcode(), SERVFAIL, "a failure is no answer");
        let fresh = Freshness::Fresh { age_s: 0 };
        match resolution.answered(last, fresh, &around) {
            Step::Ask { key, .. } => {
                let reply = behind_question(&key, next);
                match key.judge(UPSTREAM_ID, &reply, &CAPS) {
                    Verdict::Good(relayed) => {
                        is_readable &= Message::from_vec(&reply).is_ok();
                        last = relayed;
                    }
                    Verdict::Failed(_) | Verdict::Discard(_) => return,
                }
            }
            Step::Done => {
                client.written(is_readable, |head, buffer| {
                    resolution.write(head, seed, buffer).octets
                });
                return;
            }
            Step::Failed { ede, text } => {
                client.written(is_readable, |head, buffer| head.fail(ede, text, buffer));
                return;
            }
        }
    }
    panic!("{} leads on and on", client.waiting.key.name());
}

/// A reply to this question: `next` is the header behind the ID, and the records.
fn behind_question(key: &dataplane_core::LookupKey, next: &[u8]) -> Vec<u8> {
    let mut reply = key.upstream_query(UPSTREAM_ID).wire;
    reply.truncate(HEADER + key.name().wire().len() + 4);
    for (place, octet) in reply[2..HEADER].iter_mut().zip(next) {
        *place = *octet;
    }
    reply[4..6].copy_from_slice(&[0, 1]);
    reply.extend(next.iter().skip(HEADER - 2));
    reply
}
