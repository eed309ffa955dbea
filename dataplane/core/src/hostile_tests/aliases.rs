//! Row L12, aliases: the longest chains that ExternalNames, DNAMEs and federations give together, and where they end.

use super::*;
use crate::object::ServiceKind;
use crate::settings::{ExtraData, ExtraRecord, Federation};

const DOMAIN: &str = "svc.cluster.local";
/// More than are followed (RR48).
const LINKS: usize = 12;

fn name(text: &str) -> Name {
    Name::from_text(text).unwrap()
}

fn dname(owner: &str, target: &str) -> ExtraRecord {
    ExtraRecord {
        owner: name(owner),
        wildcard: false,
        ttl_s: 5,
        data: ExtraData::Dname(name(target)),
        reverse: false,
        override_cluster_zone: false,
    }
}

/// Names at every depth, so that each suffix of a question is looked up; DNAMEs that lead on, around, and back into the
/// cluster; as many federations as may be.
fn settings_with_aliases() -> Settings {
    let mut settings = all_is_ours();
    let deep = |depth: usize| format!("{}stub.example", "x.".repeat(depth));
    settings.stub_domains = (0..100).map(|depth| name(&deep(depth))).collect();
    let link =
        |number: usize| dname(&format!("d{number}.example"), &format!("d{}.example", number + 1));
    settings.extra = (0..LINKS).map(link).collect();
    settings.extra.push(dname("around.example", "a.around.example"));
    settings.extra.push(dname("back.example", DOMAIN));
    settings.federations = (0..16)
        .map(|number| Federation {
            name: name(&format!("f{number}")),
            domain: Some(name("zone.region.back.example")),
        })
        .collect();
    settings
}

/// An ExternalName in `evil`.
fn alias(name: &str, to: &str) -> Change {
    service("evil", name, ServiceKind::ExternalName(to.into()), &[("p1", 1)])
}

#[test]
fn l12_chains_of_external_names_dnames_and_federations_keep_the_budget_of_a_reply() {
    let wide = Shape { slices: 2, endpoints: 600, ports: 300, ..Shape::small() };
    let mut index = cluster(settings_with_aliases());
    apply(&mut index, wide.changes());
    let mut changes = Vec::new();
    for number in 0..LINKS {
        // Each leads to the next one through a DNAME.
        changes.push(alias(&format!("e{number}"), &format!("e{}.evil.back.example", number + 1)));
    }
    changes.push(alias("loop", "loop.evil.back.example"));
    changes.push(alias("near", &format!("_p1._tcp.wide.evil.{DOMAIN}")));
    changes.push(alias("federated", &format!("wide.evil.f15.{DOMAIN}")));
    apply(&mut index, changes);
    let records = index.records();
    let cheap = cheap_reply(&records);
    let below_loop = format!("{}around.example.", "y.".repeat(80));
    let names = [
        format!("e0.evil.{DOMAIN}."),
        format!("e{}.evil.{DOMAIN}.", LINKS - 5),
        format!("loop.evil.{DOMAIN}."),
        format!("near.evil.{DOMAIN}."),
        format!("federated.evil.{DOMAIN}."),
        format!("wide.evil.f15.{DOMAIN}."),
        "wide.evil.back.example.".to_owned(),
        "_p1._tcp.wide.evil.back.example.".to_owned(),
        below_loop,
    ];
    let mut answers = 0;
    for name in &names {
        for qtype in [rtype::A, rtype::AAAA, rtype::SRV, rtype::TXT, rtype::ANY, rtype::CNAME] {
            for (seed, transport) in
                [(0, Transport::Udp), (1, Transport::Tcp), (1 << 62, Transport::Tcp)]
            {
                let asked = ask(&records, name, qtype, transport, seed);
                asked.is_within_the_budget(cheap, &format!("{name} {qtype} over {transport:?}"));
                answers += usize::from(asked.answers());
            }
        }
    }
    assert!(answers > 3 * names.len(), "{answers} records");
}

fn cname(owner: &str, target: &str) -> ExtraRecord {
    ExtraRecord { data: ExtraData::Cname(name(target)), ..dname(owner, "unused.example") }
}

/// The reply over UDP to a question without OPT, in a buffer of this many octets.
fn reply_within(records: &Records, packet: &[u8], limit: usize) -> Vec<u8> {
    let own = Arc::new(WorkerCounters::default());
    let (cache, identity) = (CacheCounters::default(), Identity::default());
    let counters =
        Counters { own: &own, all: &[], servers: &[], cache: &cache, identity: &identity };
    let client = SocketAddr::from((Ipv4Addr::LOCALHOST, 4_000));
    let query = Query { packet, client, transport: Transport::Udp, now_s: 1, seed: 0 };
    let mut buffer = vec![0; limit];
    match respond(records, &query, &counters, &mut buffer).0 {
        Action::Reply(octets) => buffer[..octets].to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn wr21_the_soa_of_our_zone_behind_aliases_is_there_or_tc_is_set() {
    let long = |label: &str| format!("{}{label}.example.", "long-label.".repeat(12));
    let mut settings = settings();
    settings.extra = vec![cname(&long("a"), &long("b")), cname(&long("b"), "cluster.local.")];
    let records = cluster(settings).records();
    let packet = query(&long("a"), rtype::SOA, false);
    let whole = reply_within(&records, &packet, 512);
    let outcomes: Vec<(bool, u16)> = (300..=600)
        .map(|limit| {
            let reply = reply_within(&records, &packet, limit);
            assert!(reply.len() <= limit.min(512) && whole[12..].starts_with(&reply[12..]));
            (reply[2] & 2 != 0, u16::from_be_bytes([reply[6], reply[7]]))
        })
        .collect();
    let expected = [(true, 0), (true, 1), (true, 2), (false, 3)];
    assert!(outcomes.iter().all(|outcome| expected.contains(outcome)), "{outcomes:?}");
    assert!(expected.iter().all(|outcome| outcomes.contains(outcome)), "{outcomes:?}");
}
