//! Row L12, upstreams: the worst messages that they can send, and the chains that lead from them to the largest objects of
//! the cluster.

use proptest::collection::vec;

use super::messages::{CNAME, DNAME, Hostile, Message, NSEC, RRSIG, Soup, pointer};
use super::*;
use crate::decide::resolution::{Resolution, Step, Surroundings};
use crate::relay::{
    Cnames, Freshness, LookupKey, OwnRanges, RelayError, Relayed, ReplyForm, ReplyHead, TtlCaps,
    Verdict, cache, write_chain,
};
use crate::settings::{ExtraData, ExtraRecord};
use crate::wire::message::HEADER;

/// Steps that each octet of an upstream's message may cost: once, when it comes.
const STEPS_PER_OCTET_READ: u64 = 32;
const FRESH: Freshness = Freshness::Fresh { age_s: 0 };

fn hostile_message() -> impl Strategy<Value = Hostile> {
    let soups = select(&[Soup::ManyLabels, Soup::ManyPointers, Soup::Alike][..]);
    let types =
        select(&[rtype::A, CNAME, DNAME, rtype::PTR, 15, 14, 6, RRSIG, NSEC, rtype::TXT][..]);
    (
        select(&[1_200, 4_096, 16_000, 65_535][..]),
        soups,
        any::<bool>(),
        vec(types, 1..4),
        any::<bool>(),
        select(&[0, 1, 9, 15, 16, 40][..]),
    )
        .prop_map(|(octets, soup, many_owners, types, authority, chain)| Hostile {
            octets,
            soup,
            many_owners,
            types,
            authority,
            chain,
        })
}

/// What it becomes, within the budget of a message.
fn judged(key: &LookupKey, message: &[u8]) -> Option<Relayed> {
    let (verdict, steps) = count_steps(|| key.judge(0, message, &TtlCaps::default()));
    let budget = 2_000 + STEPS_PER_OCTET_READ * message.len() as u64;
    assert!(steps <= budget, "{steps} steps, not {budget}, for {} octets", message.len());
    match verdict {
        Verdict::Good(relayed) => Some(relayed),
        // What costs too much is no wrong message: that would end a connection on which others wait (FW54).
        Verdict::Discard(_) | Verdict::Failed(RelayError::Malformed) => panic!("it parses"),
        Verdict::Failed(_) => None,
    }
}

/// A client whose question is `name`, with this limit of a reply.
fn form(qtype: u16, limit: usize, do_: bool) -> ReplyForm {
    ReplyForm {
        id: 1,
        rd: true,
        cd: false,
        ad: false,
        do_,
        edns: limit != 512,
        qtype,
        limit,
        udp_payload_size: 1232,
        ra: true,
        snapshot_age_s: None,
        is_ours: false,
    }
}

/// Follows a chain whose parts are all there, and writes the reply: within the budget of each name and of what the client
/// may get. Parts that were just read cost what their octets cost besides.
struct Follows<'a> {
    records: &'a Records,
    cheap: u64,
    limit: usize,
    protects: bool,
    seed: u64,
}

impl Follows<'_> {
    fn follow(
        &self,
        first: &LookupKey,
        mut reply: impl FnMut(&LookupKey) -> Option<Relayed>,
    ) -> Vec<u8> {
        let Follows { records, cheap, limit, protects, seed } = *self;
        let around = Surroundings { records, now_s: 1, seed, limit };
        let mut resolution = Resolution::default();
        if protects {
            resolution.protect();
        }
        let (mut steps, mut octets) = (0, 0);
        let mut key = first.clone();
        loop {
            let Some(part) = reply(&key) else { return Vec::new() };
            octets += part.octets();
            let (step, cost) = count_steps(|| resolution.answered(part, FRESH, &around));
            steps += cost;
            match step {
                Step::Ask { key: next, .. } => key = next,
                Step::Done => break,
                Step::Failed { .. } => return Vec::new(),
            }
        }
        let form = form(first.qtype(), limit, first.dnssec_ok());
        let question = first.name().wire();
        let head = ReplyHead { form, question, nsid: None, cnames: Cnames::NONE };
        let mut buffer = vec![0; limit];
        let (written, cost) = count_steps(|| resolution.write(&head, seed, &mut buffer));
        steps += cost;
        let names = resolution.names() as u64;
        let filtered = if protects { octets as u64 } else { 0 };
        let budget = names * CHEAP_REPLIES * cheap + STEPS_PER_OCTET * limit as u64 + filtered;
        assert!(steps <= budget, "{steps} steps, not {budget}: {names} names, {limit} octets");
        buffer.truncate(written.octets);
        buffer
    }
}

/// A message with one CNAME.
fn alias(key: &LookupKey, target: &str) -> Relayed {
    let mut message = Message::about(key);
    message.record(0, &pointer(HEADER), CNAME, Name::from_text(target).unwrap().wire());
    judged(key, &message.finish()).unwrap()
}

fn key(text: &str, qtype: u16, dnssec: bool) -> LookupKey {
    LookupKey::new(Name::from_text(text).unwrap(), qtype, dnssec, false)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn l12_no_message_costs_more_than_its_octets_and_no_hit_more_than_the_reply(
        hostile in hostile_message(),
        qtype in select(&[rtype::A, CNAME, rtype::PTR, 15, 14, rtype::TXT, rtype::ANY][..]),
        limit in select(&[512, 1_232, 4_096, 65_535][..]),
        (dnssec, protects, seed) in (any::<bool>(), any::<bool>(), any::<u64>()),
    ) {
        let index = cluster(all_is_ours());
        let records = index.records();
        let cheap = cheap_reply(&records);
        let follows = Follows { records: &records, cheap, limit, protects, seed };
        let asked = key("www.example.org", qtype, dnssec);
        // The same message about every name that it leads to.
        follows.follow(&asked, |key| judged(key, &hostile.message(key)));
    }

    /// The reply is the same whether private addresses are removed when it comes or for each client (FW43).
    #[test]
    fn fw43_private_addresses_are_removed_later_as_they_are_at_once(
        hostile in hostile_message(),
        qtype in select(&[rtype::A, rtype::PTR, rtype::ANY][..]),
        dnssec in any::<bool>(),
    ) {
        removed_later_as_at_once(&hostile, qtype, dnssec);
    }
}

fn removed_later_as_at_once(hostile: &Hostile, qtype: u16, dnssec: bool) {
    let asked = key("www.example.org", qtype, dnssec);
    let message = hostile.message(&asked);
    let Some(relayed) = judged(&asked, &message) else { return };
    let caps = TtlCaps { no_private_addresses: true, ..TtlCaps::default() };
    let Verdict::Good(at_once) = asked.judge(0, &message, &caps) else {
        panic!("less of it cannot be used")
    };
    let later = text(&asked, relayed.without_private_addresses(&OwnRanges::NONE, usize::MAX, 0));
    let at_once = text(&asked, at_once);
    let differs = later.iter().zip(&at_once).find(|(later, at_once)| later != at_once);
    assert!(later == at_once, "{hostile:?}: {differs:?}");
}

/// The records of the reply that a client gets over TCP.
fn text(asked: &LookupKey, relayed: Relayed) -> Vec<String> {
    let form = ReplyForm { ad: true, ..form(asked.qtype(), 65_535, asked.dnssec_ok()) };
    let question = asked.name().wire();
    let head = ReplyHead { form, question, nsid: None, cnames: Cnames::NONE };
    let mut buffer = vec![0; 65_535];
    let length = write_chain(&head, &[(&relayed, FRESH)], 0, &mut buffer).octets;
    let reply = hickory_proto::op::Message::from_vec(&buffer[..length]).unwrap();
    let records = reply.answers.iter().chain(&reply.authorities);
    let head = format!("{:?} {:?}", reply.metadata, reply.edns);
    core::iter::once(head).chain(records.map(|record| format!("{record:?}"))).collect()
}

/// A chain of long names that differ at their ends costs much to read, and its end has more addresses than fit.
#[test]
fn l12_a_hit_without_private_addresses_copies_the_chain_and_does_not_read_it_again() {
    let index = cluster(all_is_ours());
    let records = index.records();
    let cheap = cheap_reply(&records);
    for soup in [Soup::ManyLabels, Soup::ManyPointers, Soup::Alike] {
        for (qtype, types) in [
            (rtype::A, vec![rtype::A, CNAME]),
            (rtype::A, vec![rtype::A]),
            (rtype::ANY, vec![rtype::A, rtype::PTR]),
            // The second name of an SOA could point to the first.
            (rtype::ANY, vec![rtype::A, 6]),
        ] {
            for chain in [0, 9, 15] {
                let hostile = Hostile {
                    octets: 16_000,
                    soup,
                    many_owners: false,
                    types: types.clone(),
                    authority: true,
                    chain,
                };
                let asked = key("www.example.org", qtype, false);
                let protects = true;
                let follows = Follows { records: &records, cheap, limit: 512, protects, seed: 0 };
                follows.follow(&asked, |key| judged(key, &hostile.message(key)));
                removed_later_as_at_once(&hostile, qtype, true);
            }
        }
    }
}

#[test]
fn l12_each_kind_of_hostile_message_keeps_the_budget_of_its_octets() {
    let types = [rtype::A, CNAME, DNAME, rtype::PTR, 15, 14, 6, RRSIG, rtype::TXT];
    let mut good = 0;
    for (soup, octets) in [
        (Soup::ManyLabels, 16_000),
        (Soup::ManyPointers, 16_000),
        (Soup::Alike, 16_000),
        (Soup::Alike, 65_535),
    ] {
        for (rtype, chain) in types.into_iter().flat_map(|rtype| [(rtype, 0), (rtype, 15)]) {
            for bits in 0..8 {
                let [many_owners, authority, any] = [1, 2, 4].map(|bit| bits & bit != 0);
                let types = vec![rtype];
                let hostile = Hostile { octets, soup, many_owners, types, authority, chain };
                let asked = key("www.example.org", if any { rtype::ANY } else { rtype }, true);
                good += usize::from(judged(&asked, &hostile.message(&asked)).is_some());
            }
        }
    }
    assert!(good > 100, "{good} are relayed");
}

#[test]
fn l12_large_messages_of_honest_servers_cost_much_less_than_they_may() {
    let asked = key("www.example.org", rtype::A, true);
    let mut chain = Message::about(&asked);
    let mut owner = HEADER;
    for link in 0..10 {
        let target = Name::from_text(&format!("host-{link}.zone-{link}.example.net")).unwrap();
        let at = chain.octets.len() + 12;
        chain.record(0, &pointer(owner), CNAME, target.wire());
        chain.record(0, &pointer(owner), RRSIG, &[&CNAME.to_be_bytes()[..], &[0; 90]].concat());
        owner = at;
    }
    for number in 0..3_000_u16 {
        let [high, low] = number.to_be_bytes();
        chain.record(0, &pointer(owner), rtype::A, &[203, 0, high, low]);
    }
    let reverse = format!("{}ip6.arpa", "1.".repeat(32));
    let pointers = key(&reverse, rtype::PTR, false);
    let mut names = Message::about(&pointers);
    let zone = names.octets.len() + 12 + 10;
    for number in 0..2_000 {
        let host = format!("\x09host-{number:04}");
        let rdata = match number {
            0 => [host.as_bytes(), b"\x04rack\x07example\x03org\0"].concat(),
            _ => [host.as_bytes(), &pointer(zone)].concat(),
        };
        names.record(0, &pointer(HEADER), rtype::PTR, &rdata);
    }
    for (key, message) in [(asked, chain.finish()), (pointers, names.finish())] {
        let (verdict, steps) = count_steps(|| key.judge(0, &message, &TtlCaps::default()));
        assert!(matches!(verdict, Verdict::Good(_)), "{verdict:?}");
        // Eight are for what is read and selected alone.
        assert!(steps <= 8 * message.len() as u64, "{steps} steps for {} octets", message.len());
    }
}

/// Chains from an upstream to a Service of this many endpoints, over names of ours and without.
fn lead_to(endpoints: usize, both_families: bool) {
    let extra = |owner: &str, data| ExtraRecord {
        owner: Name::from_text(owner).unwrap(),
        wildcard: false,
        ttl_s: 5,
        data,
        reverse: false,
        override_cluster_zone: false,
    };
    let mut settings = Settings { udp_payload_size: 4_096, ..all_is_ours() };
    let name = |text: &str| Name::from_text(text).unwrap();
    settings.extra = (0..8)
        .map(|link| {
            let target = format!("a{}.example", link + 1);
            extra(&format!("a{link}.example"), ExtraData::Cname(name(&target)))
        })
        .collect();
    let wide = "wide.evil.svc.cluster.local";
    settings.extra.push(extra("a8.example", ExtraData::Cname(name(wide))));
    settings.extra.push(extra("around.example", ExtraData::Dname(name("a.around.example"))));
    settings.extra.push(extra("evil.example", ExtraData::Dname(name("evil.svc.cluster.local"))));
    let shape = Shape { slices: 5, endpoints: endpoints / 5, both_families, ..Shape::small() };
    let mut index = cluster(settings);
    apply(&mut index, shape.changes());
    let records = index.records();
    let cheap = cheap_reply(&records);
    let below_loop = format!("{}around.example", "y.".repeat(80));
    let mut answers = 0;
    for target in [
        wide,
        "_p0._tcp.wide.evil.svc.cluster.local",
        "a0.example",
        "wide.evil.example",
        &below_loop,
    ] {
        for qtype in [rtype::A, rtype::AAAA, rtype::SRV, rtype::ANY, rtype::TXT] {
            for limit in [512, 1_232, 4_096, 65_535] {
                for (protects, seed) in [(false, 0), (true, 1 << 62), (false, 3 << 62)] {
                    let follows = Follows { records: &records, cheap, limit, protects, seed };
                    let asked = key("www.example.org", qtype, false);
                    let reply = follows.follow(&asked, |asked| Some(alias(asked, target)));
                    let is_cut = reply.get(2).is_some_and(|flags| flags & 2 != 0);
                    let count = reply
                        .get(7)
                        .map_or(0, |low| usize::from(reply[6]) << 8 | usize::from(*low));
                    assert!(!is_cut || limit < 65_535, "{target} {qtype} {limit}");
                    if (target, qtype, protects) == (wide, rtype::A, false) && !both_families {
                        // As many as there is room for, and TC where that is not all.
                        let room = (limit - reply.len()) / 16;
                        assert!(
                            room == 0 || count == 1 + endpoints,
                            "{count} records of {limit} octets"
                        );
                        assert_eq!(is_cut, limit < 65_535);
                    }
                    answers += count;
                }
            }
        }
    }
    assert!(answers > 100, "{answers} records");
}

#[test]
fn l12_a_chain_from_an_upstream_to_a_service_of_thousands_of_endpoints() {
    lead_to(4_000, false);
    lead_to(3_000, true);
}

#[test]
fn l12_a_chain_of_entries_of_the_cache_is_filtered_within_the_budget() {
    let index = cluster(all_is_ours());
    let records = index.records();
    let cheap = cheap_reply(&records);
    // Public addresses, private ones, and some of both, as many as the cache keeps.
    for every in [1, 2, 7, usize::MAX] {
        let end = key("end.example.org", rtype::A, false);
        let mut message = Message::about(&end);
        for number in 0..700_usize {
            let [.., high, low] = number.to_be_bytes();
            let first = if number.is_multiple_of(every) { 10 } else { 203 };
            message.record(0, &pointer(HEADER), rtype::A, &[first, 0, high, low]);
        }
        let end = judged(&end, &message.finish()).unwrap();
        assert!(cache::lifetime_s(&end).is_some(), "the cache keeps it");
        for limit in [512, 1_232, 4_096, 65_535] {
            for seed in [0, 1 << 62, 3 << 62] {
                let follows = Follows { records: &records, cheap, limit, protects: true, seed };
                let asked = key("www.example.org", rtype::A, false);
                let reply = follows.follow(&asked, |asked| {
                    Some(if asked.name() == end.key().name() {
                        end.clone()
                    } else {
                        alias(asked, "end.example.org")
                    })
                });
                let private = reply.windows(6).filter(|octets| *octets == [0, 4, 10, 0, 0, 7]);
                assert_eq!(private.count(), 0);
                let is_cut = reply[2] & 2 != 0;
                assert_eq!(is_cut, every > 1 && limit < 65_535, "{every} {limit}");
                let count = u16::from_be_bytes([reply[6], reply[7]]);
                assert_eq!(count == 0, every == 1, "{every} {limit}");
            }
        }
    }
}
