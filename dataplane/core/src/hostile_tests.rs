//! Row L12: the worst objects that the limits allow, from people who may edit a namespace, and the worst replies of
//! upstreams. No reply to anything asked about them costs more than [`CHEAP_REPLIES`] times a ClusterIP A and what its own
//! octets cost, and no event more than its own rows. Steps are counted, not time.

mod aliases;
mod edits;
mod messages;
mod objects;
mod pointers;
mod rrsets;
mod upstreams;

use alloc::sync::Arc;
use core::net::{Ipv4Addr, SocketAddr};

use proptest::prelude::*;
use proptest::sample::select;

use crate::counters::{CacheCounters, Counters, Reason, WorkerCounters};
use crate::decide::respond::{Action, respond};
use crate::identity::Identity;
use crate::index::Index;
use crate::object::{Change, Resource};
use crate::records::{DataSource, Records};
use crate::settings::{PodRecords, Settings};
use crate::steps::count_steps;
use crate::testing::settings;
use crate::wire::message::{Query, Transport, rtype};
use crate::wire::name::Name;
use objects::{Shape, hostile, namespace, service};

/// What a reply may cost beside its octets, in ClusterIP As.
const CHEAP_REPLIES: u64 = 20;
/// Steps that one octet of a reply may cost: SRV records with the addresses of their targets cost about this many in
/// any large Service, because each target is looked up by name.
const STEPS_PER_OCTET: u64 = 8;
/// Steps that one row or port of an object may cost its event, with the text that is stored for it and its neighbours
/// in the records. An object costs few other steps.
const STEPS_PER_ROW: u64 = 500;
const STEPS_PER_EVENT: u64 = 20_000;

fn all_is_ours() -> Settings {
    let mut settings = settings();
    settings.reverse_cidrs = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
    settings
}

/// A query, over UDP with an OPT of 1232 octets.
fn query(name: &str, qtype: u16, edns: bool) -> Vec<u8> {
    let name = Name::from_text(name).unwrap();
    let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns)];
    packet.extend(name.wire());
    packet.extend(qtype.to_be_bytes());
    packet.extend([0, 1]);
    if edns {
        packet.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    }
    packet
}

/// What was asked, and what it cost.
#[derive(Debug)]
struct Asked {
    steps: u64,
    /// Empty where the query is forwarded.
    reply: Vec<u8>,
    reason: Reason,
    /// Counted because a PTR was withheld (RR63).
    withheld: u64,
}

impl Asked {
    fn rcode(&self) -> u8 {
        self.reply[3] & 0x0f
    }

    fn answers(&self) -> u16 {
        u16::from_be_bytes([self.reply[6], self.reply[7]])
    }

    /// Fails where it took more steps than a reply of its size may (L12); `cheap` is what a ClusterIP A takes.
    fn is_within_the_budget(&self, cheap: u64, what: &str) {
        let octets = self.reply.len() as u64;
        let budget = CHEAP_REPLIES * cheap + STEPS_PER_OCTET * octets;
        let steps = self.steps;
        assert!(steps <= budget, "{what}: {steps} steps, not {budget}, for {octets} octets");
    }
}

fn ask(records: &Records, name: &str, qtype: u16, transport: Transport, seed: u64) -> Asked {
    let asked = decide(records, name, qtype, transport, seed);
    assert_ne!(asked.reason, Reason::Forward, "{name}");
    asked
}

/// The same of any name, also of one that is forwarded.
fn decide(records: &Records, name: &str, qtype: u16, transport: Transport, seed: u64) -> Asked {
    let packet = query(name, qtype, seed & 1 == 0);
    let own = Arc::new(WorkerCounters::default());
    let identity = Identity::default();
    let all = [Arc::clone(&own)];
    let cache = CacheCounters::default();
    let counters =
        Counters { own: &own, all: &all, servers: &[], cache: &cache, identity: &identity };
    let query = Query {
        packet: &packet,
        client: SocketAddr::from((Ipv4Addr::LOCALHOST, 4_000)),
        transport,
        now_s: 1,
        seed,
    };
    let mut buffer = vec![0; 65_535];
    let ((action, reason), steps) =
        count_steps(|| respond(records, &query, &counters, &mut buffer));
    let octets = match action {
        Action::Reply(octets) => octets,
        Action::Forward(_) => 0,
        Action::Drop => panic!("{name} is not answered"),
    };
    let reply = buffer[..octets].to_vec();
    Asked { steps, reply, reason, withheld: own.withheld_ptrs() }
}

const SERVICES: u16 = 200;

/// The cluster that a victim shares with the hostile objects.
fn cluster(settings: Settings) -> Index {
    let mut index = Index::new(settings);
    for name in ["victim", "evil", "evil-2"] {
        index.apply(namespace(name));
    }
    for number in 0..SERVICES {
        let kind = objects::cluster_ip(number);
        index.apply(service("victim", &format!("service-{number}"), kind, &[("http", 80)]));
    }
    for resource in Resource::ALL {
        index.end_list(resource, 0, DataSource::Live);
    }
    index.publish(1);
    index
}

/// Steps of the A of a ClusterIP: the mean of all Services of the cluster, because the hash of a name is random, and so
/// is the way to its leaf.
fn cheap_reply(records: &Records) -> u64 {
    let all: u64 = (0..SERVICES)
        .map(|number| {
            let name = format!("service-{number}.victim.svc.cluster.local.");
            ask(records, &name, rtype::A, Transport::Udp, 0).steps
        })
        .sum();
    all.div_ceil(SERVICES.into())
}

/// Applies everything, each event against its budget.
fn apply(index: &mut Index, changes: Vec<Change>) {
    apply_each(index, changes, 1);
}

/// The same where each row is touched this many times.
fn apply_each(index: &mut Index, changes: Vec<Change>, times: usize) {
    for change in changes {
        let rows = objects::size(&change) * times;
        let what = format!("{rows} rows and ports");
        let (_, steps) = count_steps(|| {
            index.apply(change);
            index.publish(2)
        });
        let budget = STEPS_PER_EVENT + STEPS_PER_ROW * rows as u64;
        assert!(steps <= budget, "an event of {what} costs {steps} steps, not {budget}");
    }
}

/// Asks everything about hostile objects, each reply against its budget.
fn ask_all(records: &Records, shape: &Shape, seed: u64) {
    let cheap = cheap_reply(records);
    let qtypes = [rtype::A, rtype::AAAA, rtype::SRV, rtype::PTR, rtype::ANY, rtype::TXT];
    for name in shape.names() {
        for transport in [Transport::Udp, Transport::Tcp] {
            let mut rcodes = Vec::new();
            for qtype in qtypes {
                let asked = ask(records, &name, qtype, transport, seed);
                asked.is_within_the_budget(cheap, &format!("{name} {qtype} over {transport:?}"));
                rcodes.push(asked.rcode());
            }
            rcodes.dedup();
            assert_eq!(rcodes.len(), 1, "{name} exists for every type or for none (N33)");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn l12_no_reply_and_no_event_costs_more_than_its_budget(
        shape in hostile(),
        seed in any::<u64>(),
        pods in select(&[PodRecords::Insecure, PodRecords::Verified][..]),
    ) {
        let mut settings = all_is_ours();
        settings.pods = pods;
        let mut index = cluster(settings);
        apply(&mut index, shape.changes());
        ask_all(&index.records(), &shape, seed);
        // One changed line moves all rows of a slice: each row is removed and added again.
        apply(&mut index, vec![service("evil", "moved", crate::object::ServiceKind::Headless, &[])]);
        apply_each(&mut index, shape.moves("moved"), 2);
        apply_each(&mut index, shape.moves("wide"), 2);
        apply(&mut index, shape.deletions());
        prop_assert_eq!(index.objects(Resource::EndpointSlices), 0);
    }
}

fn check(shape: &Shape) -> Arc<Records> {
    let mut index = cluster(all_is_ours());
    apply(&mut index, shape.changes());
    let records = index.records();
    (0..4).for_each(|seed| ask_all(&records, shape, seed << 62 | seed));
    records
}

#[test]
fn l12_a_thousand_endpoints_with_thousands_of_ports_beside_some_without() {
    let shape = Shape { slices: 2, endpoints: 1_000, ports: 8_000, subsets: 2, ..Shape::small() };
    let records = check(&shape);
    let first = ask(&records, "_p1._tcp.wide.evil.svc.cluster.local.", rtype::A, Transport::Udp, 1);
    assert!(first.answers() > 0);
    // Names that the limit leaves out exist without data.
    let beyond = "_p7999._tcp.wide.evil.svc.cluster.local.";
    let beyond = ask(&records, beyond, rtype::A, Transport::Udp, 1);
    assert_eq!((beyond.rcode(), beyond.answers()), (0, 0));
}

#[test]
fn l12_lists_of_ports_that_nearly_agree() {
    check(&Shape { slices: 2, endpoints: 50, ports: 1_000, subsets: 2, ..Shape::small() });
    check(&Shape { slices: 60, endpoints: 5, ports: 200, subsets: 60, ..Shape::small() });
}

#[test]
fn l12_ten_thousand_names_of_one_address() {
    let shape = Shape { slices: 10, endpoints: 1_000, one_address: true, ..Shape::small() };
    let records = check(&shape);
    let ptr = ask(&records, "1.0.9.10.in-addr.arpa.", rtype::PTR, Transport::Tcp, 0);
    assert_eq!(ptr.answers(), 64);
}

#[test]
fn l12_ten_thousand_endpoints_of_one_name() {
    let shape = Shape { slices: 10, endpoints: 1_000, hostnames: 1, ..Shape::small() };
    let records = check(&shape);
    let srv = ask(&records, "wide.evil.svc.cluster.local.", rtype::SRV, Transport::Tcp, 0);
    assert_eq!(srv.answers(), 1);
}

#[test]
fn l12_endpoints_with_and_without_hostnames_in_one_service() {
    let some = || Shape { slices: 10, endpoints: 200, ..Shape::small() };
    for (unnamed, spelled) in [(2, false), (500, false), (2, true), (500, true)] {
        check(&Shape { unnamed, spelled, ..some() });
        check(&Shape { unnamed, spelled, ports: 17, subsets: 2, ..some() });
        check(&Shape { unnamed, spelled, ports: 2, subsets: 3, both_families: true, ..some() });
    }
    let all = Shape { slices: 4, endpoints: 25, unnamed: 50, ..Shape::small() };
    let records = check(&all);
    let srv = ask(&records, "wide.evil.svc.cluster.local.", rtype::SRV, Transport::Tcp, 0);
    assert_eq!(srv.answers(), 100);
}

#[test]
fn l12_names_and_addresses_that_return_in_every_slice_where_some_have_no_port() {
    for (hostnames, one_address) in [(1, false), (2, false), (70, false), (2, true)] {
        let shape = Shape { slices: 40, endpoints: 70, subsets: 2, hostnames, ..Shape::small() };
        check(&Shape { one_address, ..shape });
    }
}

/// How many PTRs an address has to which each of two namespaces gives 64 names of Pods and 64 others, by Services of this
/// name, and a younger namespace, the victim, gives one name.
fn pointers_beside_the_victim(settings: Settings, name: &str, has_pod: bool) -> u16 {
    let cheap = cheap_reply(&cluster(all_is_ours()).records());
    let mut index = Index::new(settings);
    for name in ["evil", "evil-2", "victim"] {
        index.apply(namespace(name));
    }
    for resource in Resource::ALL {
        index.end_list(resource, 0, DataSource::Live);
    }
    for (namespace, own_pods) in
        [("evil", true), ("evil", false), ("evil-2", true), ("evil-2", false)]
    {
        let shape = Shape { endpoints: 64, one_address: true, own_pods, ..Shape::small() };
        let name = format!("{own_pods}-{name}");
        apply(&mut index, shape.service_and_slices(namespace, &name, 1));
    }
    let shape = Shape { own_pods: true, ..Shape::small() };
    apply(&mut index, shape.service_and_slices("victim", "cart", 1));
    if has_pod {
        index.apply(shape.pod("victim"));
    }
    index.publish(9);
    let asked = ask(&index.records(), "1.0.9.10.in-addr.arpa.", rtype::PTR, Transport::Tcp, 0);
    asked.is_within_the_budget(cheap, name);
    asked.answers()
}

/// Services of this name are not seen: they are of the type ExternalName.
const UNSEEN: &str = "unseen-1";

#[test]
fn rr63_names_of_older_namespaces_take_no_places_of_the_one_whose_pod_it_is() {
    let verified = || Settings { pods: PodRecords::Verified, ..all_is_ours() };
    for name in ["seen", UNSEEN] {
        assert_eq!(pointers_beside_the_victim(verified(), name, true), 1);
    }
    // Without Pods it cannot be known whose address it is, unless the others have no names.
    for (name, expected) in [("seen", 0), (UNSEEN, 1)] {
        assert_eq!(pointers_beside_the_victim(all_is_ours(), name, false), expected);
    }
}

/// An address of no Pod, such as that of an external database, belongs to no namespace. Without Pods a targetRef is believed.
#[test]
fn rr63_a_target_ref_to_a_pod_that_does_not_exist_takes_no_ptr_of_another() {
    for (pods, expected) in [(PodRecords::Verified, 2), (PodRecords::Insecure, 1)] {
        let mut index = cluster(Settings { pods, ..all_is_ours() });
        for (name, own_pods) in [("evil", true), ("victim", false)] {
            index.apply(namespace(name));
            let shape = Shape { own_pods, one_address: true, ..Shape::small() };
            apply(&mut index, shape.service_and_slices(name, "db", 1));
        }
        index.publish(9);
        let asked = ask(&index.records(), "1.0.9.10.in-addr.arpa.", rtype::PTR, Transport::Tcp, 0);
        assert_eq!(asked.answers(), expected, "{pods:?}");
    }
}

#[test]
fn rr63_names_of_many_namespaces_take_no_places_of_the_one_whose_pod_it_is() {
    let cheap = cheap_reply(&cluster(all_is_ours()).records());
    let mut index = cluster(Settings { pods: PodRecords::Verified, ..all_is_ours() });
    let evil: Vec<String> = (0..300).map(|number| format!("evil-{number}")).collect();
    for name in &evil {
        index.apply(namespace(name));
    }
    index.apply(namespace("young"));
    let shape = Shape { own_pods: true, one_address: true, ..Shape::small() };
    for name in &evil {
        apply(&mut index, shape.service_and_slices(name, "mine", 1));
    }
    apply(&mut index, shape.service_and_slices("young", "cart", 1));
    index.apply(shape.pod("young"));
    index.publish(9);
    let asked = ask(&index.records(), "1.0.9.10.in-addr.arpa.", rtype::PTR, Transport::Tcp, 0);
    asked.is_within_the_budget(cheap, "names of 300 namespaces");
    assert_eq!(asked.answers(), 1);
}

#[test]
fn l12_a_name_behind_as_many_that_are_not_seen_as_are_looked_at() {
    let cheap = cheap_reply(&cluster(all_is_ours()).records());
    let mut index = cluster(all_is_ours());
    // With the victim's row they are as many as are looked at, twice: for the rule, and for the PTRs.
    for (namespace, own_pods, endpoints) in
        [("evil", true, 64), ("evil", false, 63), ("victim", true, 1)]
    {
        let shape = Shape { endpoints, one_address: true, own_pods, ..Shape::small() };
        let name = if namespace == "evil" { UNSEEN } else { "c" };
        apply(&mut index, shape.service_and_slices(namespace, &format!("{own_pods}-{name}"), 1));
    }
    let asked = ask(&index.records(), "1.0.9.10.in-addr.arpa.", rtype::PTR, Transport::Tcp, 0);
    asked.is_within_the_budget(cheap, "127 rows that are not seen");
    assert_eq!(asked.answers(), 1);
}

#[test]
fn n40_names_of_hidden_namespaces_take_no_places_of_those_that_are_seen() {
    for name in ["seen", UNSEEN] {
        let mut shown = all_is_ours();
        shown.exposure.namespaces = vec!["victim".into()];
        assert_eq!(pointers_beside_the_victim(shown, name, false), 1);
    }
}
