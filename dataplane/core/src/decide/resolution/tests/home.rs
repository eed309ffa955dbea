//! Chains that lead from a name of others into the cluster zone: what an upstream says of the names there is not used.

use hickory_proto::op::ResponseCode::{self, NXDomain, NoError};
use hickory_proto::op::{MessageType, OpCode, Query};
use hickory_proto::rr::rdata::{NULL, SOA};
use hickory_proto::rr::{Name as HickoryName, RData, Record};

use super::*;

const NSEC: u16 = 47;

/// `owner TYPE data`, with a TTL of 60.
fn record(text: &str) -> Record {
    let words: Vec<&str> = text.split(' ').collect();
    let [owner, kind, data] = words[..] else { panic!("{text}") };
    let to_name = |text: &str| HickoryName::from_ascii(text).unwrap();
    let data = match kind {
        "SOA" => RData::SOA(SOA::new(to_name(data), to_name(data), 1, 1, 1, 1, 60)),
        "DNAME" => {
            let octets = name(data).wire().to_vec();
            RData::Unknown { code: rtype::DNAME.into(), rdata: NULL::with(octets) }
        }
        // The next name, and a bitmap of types.
        "NSEC" => {
            let octets = [name(data).wire(), &[0, 1, 0x20]].concat();
            RData::Unknown { code: NSEC.into(), rdata: NULL::with(octets) }
        }
        _ => RData::try_from_str(kind.parse().unwrap(), data).unwrap(),
    };
    Record::from_rdata(to_name(owner), 60, data)
}

/// The reply of an upstream to a question for addresses of this name, as it is kept where Z is `cluster.local`.
fn upstream(asked: &str, rcode: ResponseCode, answer: &[&str], authority: &[&str]) -> Relayed {
    let caps = TtlCaps { own_zone: Some(name("cluster.local")), ..TtlCaps::default() };
    judged(&key(asked), rcode, answer, authority, &caps)
}

/// The same with these caps; AD is set.
fn judged(
    asked: &LookupKey,
    rcode: ResponseCode,
    answer: &[&str],
    authority: &[&str],
    caps: &TtlCaps,
) -> Relayed {
    let mut reply = Message::new(0, MessageType::Response, OpCode::Query);
    (reply.metadata.response_code, reply.metadata.authentic_data) = (rcode, true);
    let owner = HickoryName::from_ascii(asked.name().to_string()).unwrap();
    reply.add_query(Query::query(owner, RecordType::A));
    reply.add_answers(answer.iter().map(|text| record(text)));
    reply.add_authorities(authority.iter().map(|text| record(text)));
    match asked.judge(0, &reply.to_vec().unwrap(), caps) {
        Verdict::Good(relayed) => relayed,
        other => panic!("{other:?}"),
    }
}

/// All lists are there; `cart.shop.svc.cluster.local` has an address, `nothere.shop.svc.cluster.local` does not exist.
fn records_of_cluster() -> Index {
    let cart = ExtraRecord {
        owner: name("cart.shop.svc.cluster.local"),
        wildcard: false,
        ttl_s: 30,
        data: ExtraData::Addresses(vec!["10.96.10.1".parse().unwrap()]),
        reverse: false,
        override_cluster_zone: true,
    };
    let mut index = Index::new(Settings { extra: vec![cart], ..settings_of_tests() });
    for resource in Resource::ALL {
        index.begin_list(resource);
        index.end_list(resource, 1, DataSource::Live);
    }
    index.publish(1).expect("other records");
    index
}

const TO_CART: &str = "cart.example.org. CNAME cart.shop.svc.cluster.local.";
const TO_NOTHING: &str = "cart.example.org. CNAME nothere.shop.svc.cluster.local.";
const CART: &str = "cart.shop.svc.cluster.local. A 10.96.10.1";
const OF_ROOT: &str = ". SOA a.root-servers.net.";

#[test]
fn fw42_no_upstream_speaks_for_names_of_the_cluster_zone() {
    let forged = "cart.shop.svc.cluster.local. A 6.6.6.6";
    let twice = [
        "cart.example.org. CNAME www.example.org.",
        "www.example.org. CNAME cart.shop.svc.Cluster.local.",
        "cart.shop.svc.cluster.local. CNAME www.example.org.",
    ];
    let below = ["example.org. DNAME shop.svc.cluster.local."];
    let made = [below[0], TO_CART, forged];
    for (rcode, answer, authority, expected, aliases) in [
        // A recursive server has asked the root.
        (NXDomain, &[TO_CART][..], &[OF_ROOT][..], NoError, 1),
        (NXDomain, &[TO_CART], &[], NoError, 1),
        (NoError, &[TO_CART], &[OF_ROOT], NoError, 1),
        (NoError, &[TO_CART, forged], &[], NoError, 1),
        (NoError, &[TO_CART, "cart.shop.svc.cluster.local. TXT 6"], &[], NoError, 1),
        (NoError, &twice, &[], NoError, 2),
        (NXDomain, &below, &[OF_ROOT], NoError, 2),
        (NoError, &made, &[], NoError, 2),
        (NoError, &[TO_NOTHING, "nothere.shop.svc.cluster.local. A 6.6.6.6"], &[], NXDomain, 1),
    ] {
        let index = records_of_cluster();
        let records = index.records();
        let around = Surroundings { records: &records, now_s: 0, seed: 0, limit: 1232 };
        let mut resolution = Resolution::default();
        let relayed = upstream("cart.example.org", rcode, answer, authority);
        assert_eq!(relayed.lifetime_s(), 60, "{answer:?}");
        assert_eq!(resolution.answered(relayed, FRESH, &around), Step::Done, "{answer:?}");
        let reply = reply(&resolution, "cart.example.org");
        assert_eq!(reply.metadata.response_code, expected, "{answer:?}");
        let ends: Vec<String> = reply.answers[aliases..].iter().map(line).collect();
        let cart: &[&str] = if expected == NoError { &[CART] } else { &[] };
        assert_eq!(ends, cart, "{answer:?}");
        let soa = reply.authorities.iter().map(|record| record.name.to_string());
        let of_zone: &[&str] = if expected == NoError { &[] } else { &["cluster.local."] };
        assert_eq!(soa.collect::<Vec<_>>(), of_zone, "{answer:?}");
    }
}

#[test]
fn fw42_with_do_the_proofs_of_a_reply_that_leads_home_stay() {
    let index = records_of_cluster();
    let records = index.records();
    let around = Surroundings { records: &records, now_s: 0, seed: 0, limit: 1232 };
    for dnssec in [true, false] {
        let asked = LookupKey::new(name("cart.example.org"), A, dnssec, false);
        let caps = TtlCaps { own_zone: Some(name("cluster.local")), ..TtlCaps::default() };
        let relayed = judged(&asked, NXDomain, &[TO_CART], &[OF_ROOT, ". NSEC aaa."], &caps);
        let mut resolution = Resolution::default();
        assert_eq!(resolution.answered(relayed, FRESH, &around), Step::Done);
        let reply = reply_with(&resolution, "cart.example.org", dnssec);
        assert_eq!(reply.answers.iter().map(line).collect::<Vec<_>>()[1..], [CART]);
        assert_eq!(
            (reply.metadata.response_code, reply.metadata.authentic_data),
            (NoError, false),
            "no signature covers all of it"
        );
        let proofs = reply.authorities.iter().map(|record| u16::from(record.record_type()));
        let expected: &[u16] = if dnssec { &[NSEC] } else { &[] };
        assert_eq!(proofs.collect::<Vec<_>>(), expected, "the SOA is no longer true");
    }
}

#[test]
fn fw42_the_end_of_a_chain_outside_the_cluster_zone_is_what_the_upstream_says() {
    for (target, address) in
        [("xcluster.local.", "xcluster.local. A 6.6.6.6"), ("local.", "local. A 6.6.6.6")]
    {
        let alias = format!("cart.example.org. CNAME {target}");
        let relayed = upstream("cart.example.org", NoError, &[&alias, address], &[]);
        assert!(!relayed.is_partial() && !relayed.is_negative(), "{target}");
        let denied = upstream("cart.example.org", NXDomain, &[&alias], &[OF_ROOT]);
        assert!(denied.is_nxdomain() && !denied.is_partial(), "{target}");
    }
}

fn line(record: &Record) -> String {
    format!("{} {} {}", record.name, record.record_type(), record.data)
}

/// Caps of a stub domain, whose servers may be those of another cluster of the same domain.
fn caps_of_stub() -> TtlCaps {
    let own_zone = Some(name("cluster.local"));
    TtlCaps { own_zone, relays_own_zone: true, ..TtlCaps::default() }
}

#[test]
fn fw42_a_stub_domain_may_give_records_of_names_in_z_and_cannot_deny_one() {
    let asked = &key("cart.example.org.");
    let of_zone = "cluster.local. SOA ns.";
    let behind = "cart.shop.svc.cluster.local. CNAME db.example.net.";
    for (rcode, answer, authority, ends_here) in [
        (NoError, &[TO_CART, "cart.shop.svc.cluster.local. A 10.1.1.1"][..], None, true),
        // An ExternalName there.
        (NoError, &[TO_CART, behind, "db.example.net. A 192.0.2.9"], None, true),
        // The Service there has no address of this family. A client that gets NXDOMAIN for one family gives up on both.
        (NoError, &[TO_CART], Some(of_zone), true),
        (NoError, &[TO_CART], Some("shop.svc.cluster.local. SOA ns."), true),
        (NoError, &[TO_CART, "cart.shop.svc.cluster.local. AAAA fd00::1"], None, true),
        (NoError, &[TO_CART], Some(OF_ROOT), false),
        (NoError, &[TO_CART], Some("other.local. SOA ns."), false),
        (NoError, &[TO_CART], None, false),
        (NXDomain, &[TO_CART], Some(of_zone), false),
        (NXDomain, &[TO_CART, behind, "db.example.net. CNAME x.cluster.local."], None, false),
    ] {
        let relayed = judged(asked, rcode, answer, authority.as_slice(), &caps_of_stub());
        assert_eq!(!relayed.is_partial(), ends_here, "{rcode} {answer:?} {authority:?}");
        assert_eq!(relayed.rcode(), 0, "{rcode} {answer:?} {authority:?}");
    }
    let nodata = judged(asked, NoError, &[TO_CART], &[of_zone], &caps_of_stub());
    assert!(nodata.is_negative() && nodata.lifetime_s() == 30, "its SOA is kept");
}
