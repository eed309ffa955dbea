//! How one client's question is resolved when that takes more than one lookup (FW42): the chain of an upstream may end in
//! a name with neither data nor an SOA, which is then asked where such a name belongs. A pure machine: what was answered
//! goes in, what to ask next comes out.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use crate::counters::{CacheCounters, Counters, WorkerCounters};
use crate::decide::found::Found;
use crate::decide::respond::own_reply;
use crate::decide::route::{Route, group_above, route};
use crate::decide::schema::Node;
use crate::identity::Identity;
use crate::records::Records;
use crate::relay::{
    Freshness, LookupKey, MAX_UDP, Relayed, ReplyHead, TtlCaps, Verdict, Written, write_chain,
};
use crate::wire::dname::Dname;
use crate::wire::ede;
use crate::wire::labels::Labels;
use crate::wire::message::{CLASS_IN, HEADER, Query, Transport, rtype};
use crate::wire::name::Name;

/// Names that one question may lead to (FW42).
const MAX_HOPS: usize = 10;
/// Octets that are kept of a chain that is not finished: as many as the cache keeps of one reply. Thousands of queries
/// may wait for the next part of a chain at once.
const MAX_UNFINISHED: usize = 16 << 10;
/// The largest message there is.
const MAX_MESSAGE: usize = 65_535;
/// The header of an authoritative reply with one question and one record, which follow it.
const OWN_HEADER: [u8; HEADER] = [0, 0, 0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0];
/// The largest reply over UDP to a client without EDNS (RFC 1035 §4.2.1); no client gets less.
const SMALLEST: usize = 512;
/// Where a header has TC, and the bit (RFC 1035 §4.1.1).
const FLAGS: usize = 2;
const TC: u8 = 2;
/// Where a header has the low octet of its number of answer records (RFC 1035 §4.1.1).
const ANSWER_COUNT: usize = 7;

/// What is known of one question so far: a reply for each name that it led to.
#[derive(Clone, Debug, Default)]
pub struct Resolution {
    hops: Vec<Part>,
    no_private_addresses: bool,
    /// How old the oldest snapshot is that names of ours on the chain are from, in seconds (E42).
    snapshot_age_s: Option<u32>,
}

/// The reply to one name of a chain.
#[derive(Clone, Debug)]
struct Part {
    relayed: Relayed,
    /// As it was when the reply was taken.
    freshness: Freshness,
    /// How long the chain has waited for other parts since. None of ours, which do not age.
    waited: Option<Duration>,
}

impl Part {
    /// How old it is now. A part whose time ends while the rest is asked stays fresh, with a TTL of 1.
    fn freshness(&self) -> Freshness {
        match (self.freshness, self.waited) {
            (Freshness::Fresh { age_s }, Some(waited)) => {
                let waited_s = u32::try_from(waited.as_secs()).unwrap_or(u32::MAX);
                Freshness::Fresh { age_s: age_s.saturating_add(waited_s) }
            }
            (freshness, _) => freshness,
        }
    }
}

/// The state of this process that a resolution reads.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The records, and the groups of all other names.
    pub records: &'a Records,
    /// Unix time in seconds.
    pub now_s: u64,
    /// A random number of this question alone.
    pub seed: u64,
    /// Octets of the largest reply that the client may get: of our own records no more are written.
    pub limit: usize,
}

/// The next step of a resolution: ask an upstream, reply, or give up.
// A box would be an allocation, and these are not kept.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A group must be asked; its reply goes into [`Resolution::answered`].
    Ask {
        /// As in [`Forward::group`](crate::Forward::group).
        group: usize,
        /// The question to the upstream.
        key: LookupKey,
    },
    /// The answer is complete.
    Done,
    /// The chain cannot be resolved: SERVFAIL with this Extended DNS Error.
    Failed {
        /// Extended DNS Error code (RFC 8914).
        ede: u16,
        /// Text of the Extended DNS Error, for people.
        text: &'static str,
    },
}

impl Resolution {
    /// From here on private addresses are removed, from any source (FW43): the chain began at a name of the public
    /// DNS, and its owner must not choose an address of a stub domain or of the cluster.
    pub fn protect(&mut self) {
        self.no_private_addresses = true;
    }

    /// What was answered so far has waited this long for the next part: its TTLs have counted down by as much (FW44).
    pub fn waited(&mut self, time: Duration) {
        for waited in self.hops.iter_mut().filter_map(|part| part.waited.as_mut()) {
            *waited = waited.saturating_add(time);
        }
    }

    /// Takes the reply to what was asked last, and follows its chain (FW42): through names of ours at once, to the group
    /// that has to be asked.
    pub fn answered(
        &mut self,
        relayed: Relayed,
        freshness: Freshness,
        around: &Surroundings<'_>,
    ) -> Step {
        let own_ranges = &around.records.zone.own_ranges;
        let mut last = match self.no_private_addresses {
            true => relayed.without_private_addresses(own_ranges, around.limit, around.seed),
            false => relayed,
        };
        let waited = Some(Duration::ZERO);
        self.hops.push(Part { relayed: last.clone(), freshness, waited });
        while let Some(target) = last.unresolved_target() {
            let key = last.key().about(target);
            let was_asked = self.hops.iter().any(|part| part.relayed.is_for(&key));
            if was_asked || self.hops.len() > MAX_HOPS {
                return Step::Failed { ede: ede::OTHER, text: "CNAME loop, or too many CNAMEs" };
            }
            // Whether or not the next part is in the cache: the answer does not depend on that.
            if self.octets() > MAX_UNFINISHED {
                return Step::Failed { ede: ede::OTHER, text: "the chain of CNAMEs is too large" };
            }
            match hop(&key, around, self.no_private_addresses) {
                Hop::Group(group) => return Step::Ask { group, key },
                Hop::Own(relayed, age_s) => {
                    last = relayed;
                    self.snapshot_age_s = self.snapshot_age_s.max(age_s);
                }
                Hop::Failed(ede, text) => return Step::Failed { ede, text },
            }
            let freshness = Freshness::Fresh { age_s: 0 };
            self.hops.push(Part { relayed: last.clone(), freshness, waited: None });
        }
        Step::Done
    }

    /// Octets of the replies that it keeps.
    fn octets(&self) -> usize {
        self.hops.iter().map(|part| part.relayed.octets()).sum()
    }

    /// The same, each divided by how many share it.
    pub fn share_octets(&self) -> usize {
        self.hops.iter().map(|part| part.relayed.share_octets()).sum()
    }

    /// How many names it has asked about, ours among them.
    #[cfg(test)]
    pub(crate) fn names(&self) -> usize {
        self.hops.len()
    }

    /// Whether a part of it has expired.
    pub fn is_stale(&self) -> bool {
        self.hops.iter().any(|part| part.freshness == Freshness::Stale)
    }

    /// Writes the client's reply from all that was answered; see [`write_chain`].
    pub fn write(&self, head: &ReplyHead<'_>, seed: u64, buffer: &mut [u8]) -> Written {
        let hops: Vec<(&Relayed, Freshness)> =
            self.hops.iter().map(|part| (&part.relayed, part.freshness())).collect();
        // The CNAMEs of ours in front may be from a snapshot too.
        let mut head = *head;
        head.form.snapshot_age_s = head.form.snapshot_age_s.max(self.snapshot_age_s);
        write_chain(&head, &hops, seed, buffer)
    }
}

/// Where the target of a chain leads (docs/dns.md §2.2).
enum Hop {
    Group(usize),
    /// Our answer, also to a type that is withheld (FW45), and how old the snapshot is that it is from, in seconds.
    Own(Relayed, Option<u32>),
    Failed(u16, &'static str),
}

fn hop(key: &LookupKey, around: &Surroundings<'_>, no_private_addresses: bool) -> Hop {
    let labels = Labels::of(key.name());
    let lookup = match route(around.records, &labels, &Found::Unknown, key.qtype(), &mut false) {
        Route::Group(group) if around.records.zone.withholds(group, key.qtype()) => {
            return Hop::Own(Relayed::withheld(key), None);
        }
        Route::Group(group) => return Hop::Group(group),
        Route::NoGroup => return Hop::Failed(ede::NOT_AUTHORITATIVE, "no upstream for this name"),
        Route::Own(lookup, _) => lookup,
    };
    if let Some(group) = group_above(around.records, &labels, &lookup, key.qtype()) {
        return Hop::Group(group);
    }
    if around.records.lacks(lookup.needs) {
        return Hop::Failed(ede::NOT_READY, lookup.needs.what_is_missing());
    }
    let age = |at_s| u32::try_from(around.now_s.saturating_sub(at_s)).unwrap_or(u32::MAX);
    let age_s = around.records.snapshot(lookup.needs).map(age);
    let whole = |reply| (reply, false);
    let (reply, is_cut) = match lookup.node {
        Some(Node::Alias(target, ttl_s)) if key.qtype() != rtype::CNAME => {
            whole(cname(key, &[], target, ttl_s))
        }
        Some(Node::Dname(dname)) if key.qtype() != rtype::CNAME => {
            match dname.substitute(key.name().wire()) {
                Some(target) => whole(cname(key, &[dname], &target, dname.ttl_s)),
                // YXDOMAIN.
                None => own(key, around),
            }
        }
        Some(Node::Federated(end)) if key.qtype() != rtype::CNAME => {
            match end.substitute(key.name().wire()) {
                Some(target) => whole(cname(key, &[], &target, end.ttl_s)),
                None => own(key, around),
            }
        }
        _ => own(key, around),
    };
    // Bounds are for what upstreams say, not for our own records.
    let caps = TtlCaps {
        max_s: u32::MAX,
        max_negative_s: u32::MAX,
        no_private_addresses,
        own_ranges: around.records.zone.own_ranges.clone(),
        ..TtlCaps::default()
    };
    match key.judge(0, &reply, &caps) {
        Verdict::Good(relayed) if is_cut => Hop::Own(relayed.cut(), age_s),
        Verdict::Good(relayed) => Hop::Own(relayed, age_s),
        Verdict::Discard(_) | Verdict::Failed(_) => Hop::Failed(ede::OTHER, "no answer of ours"),
    }
}

/// Our reply to this question, with as many octets as the client may get, and whether records are missing. Over UDP none is
/// missing that the client would have room for: its reply has the name of this question too, behind its own.
fn own(key: &LookupKey, around: &Surroundings<'_>) -> (Vec<u8>, bool) {
    // Most replies are small, over a stream too: there the room for the largest is made only where it is needed.
    let over_udp = own_over(key, around, Transport::Udp, around.limit.clamp(SMALLEST, MAX_UDP));
    match over_udp {
        (_, true) if around.limit > MAX_UDP => own_over(key, around, Transport::Tcp, MAX_MESSAGE),
        reply => reply,
    }
}

fn own_over(
    key: &LookupKey,
    around: &Surroundings<'_>,
    transport: Transport,
    limit: usize,
) -> (Vec<u8>, bool) {
    let packet = key.query_for_us(limit);
    let query = Query {
        packet: &packet,
        client: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        transport,
        now_s: around.now_s,
        seed: around.seed,
    };
    // The client's query is already counted, and no CNAME leads to the names that show our identity.
    let (uncounted, identity) = (WorkerCounters::default(), Identity::default());
    let cache = CacheCounters::default();
    let counters =
        Counters { own: &uncounted, all: &[], servers: &[], cache: &cache, identity: &identity };
    let mut reply = vec![0; limit];
    let octets = own_reply(around.records, &query, &counters, &mut reply);
    reply.truncate(octets);
    let is_cut = reply.get(FLAGS).is_some_and(|flags| flags & TC != 0);
    if let Some(flags) = reply.get_mut(FLAGS) {
        // It is no reply that must be asked for again.
        *flags &= !TC;
    }
    (reply, is_cut)
}

/// A reply with only a CNAME of ours: its target is the next hop. A CNAME that is made of a DNAME comes behind that.
fn cname(key: &LookupKey, dnames: &[&Dname], target: &Name, ttl_s: u32) -> Vec<u8> {
    let mut reply = OWN_HEADER.to_vec();
    reply.extend(key.name().wire());
    reply.extend(key.qtype().to_be_bytes());
    reply.extend(CLASS_IN.to_be_bytes());
    let mut record = |owner: &[u8], rtype: u16, target: &Name| {
        reply.extend(owner);
        reply.extend(rtype.to_be_bytes());
        reply.extend(CLASS_IN.to_be_bytes());
        reply.extend(ttl_s.to_be_bytes());
        reply.extend((target.wire().len() as u16).to_be_bytes());
        reply.extend(target.wire());
    };
    for dname in dnames {
        record(dname.owner.wire(), rtype::DNAME, &dname.target);
    }
    // The owner is the name in the question (RFC 1035 §4.1.4).
    record(&[0xc0, HEADER as u8], rtype::CNAME, target);
    if let Some(count) = reply.get_mut(ANSWER_COUNT) {
        *count += dnames.len() as u8;
    }
    reply
}

#[cfg(test)]
mod tests;
