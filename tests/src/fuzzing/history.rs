//! Target `history`: octets become events for the index and questions to it. Each reply is what the naive oracle says,
//! and costs what row L12 allows. Of large histories, which the limits may cut short, the oracle says the Rcode.

use std::net::{IpAddr, SocketAddr};

use dataplane_core::{
    Action, Change, DataSource, Endpoint, Index, Key, Namespace, Object, Protocol, Resource,
    Service, ServiceKind, ServicePort, Settings, Slice, SlicePort, TargetRef, Transport,
    count_steps,
};

use super::fixture::settings;
use crate::in_process::{InProcess, identity};
use crate::oracle::compare::{Actual, differences};
use crate::oracle::decode::decode;
use crate::oracle::expected::{Edns, Expected, Question, rtype};
use crate::oracle::names::Name;
use crate::oracle::{Identity, Oracle};

const ID: u16 = 0x5a17;
/// Events and questions of one history.
const MAX_EVENTS: usize = 24;
const MAX_QUESTIONS: usize = 12;
/// Endpoints of a slice of a large history for each of a small one.
const LARGE: u8 = 40;
/// What a reply may cost: so many ClusterIP As, and so many steps for each of its octets (row L12).
const CHEAP_REPLIES: u64 = 20;
const STEPS_PER_OCTET: u64 = 6;

const NAMESPACES: [&str; 2] = ["shop", "evil"];
const SERVICES: [&str; 3] = ["cart", "db", "10-9-0-1"];
const SLICES: [&str; 3] = ["s1", "s2", "s3"];
const HOSTNAMES: [&str; 4] = ["a", "b", "10-9-0-1", "_tcp"];
const PORTS: [&str; 3] = ["", "http", "pg"];
const LABELS: [&str; 12] = [
    "cart.shop",
    "db.evil",
    "10-9-0-1.shop",
    "_tcp.cart.shop",
    "_http._tcp.cart.shop",
    "_pg._udp.db.evil",
    "a.cart.shop",
    "b.db.evil",
    "10-9-0-1.cart.shop",
    "10-9-0-2.db.evil",
    "none.shop",
    "shop",
];
const REVERSE: [&str; 3] =
    ["1.0.9.10.in-addr.arpa", "2.0.9.10.in-addr.arpa", "1.0.96.10.in-addr.arpa"];
const QTYPES: [u16; 6] = [rtype::A, rtype::AAAA, rtype::SRV, rtype::PTR, rtype::ANY, rtype::TXT];

/// The input, one octet after the other; zeros behind its end.
struct Octets<'a>(&'a [u8]);

impl Octets<'_> {
    fn next(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn one_of<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.next()) % from.len()]
    }
}

/// Runs one history; the number of replies with records that were compared.
pub fn history(input: &[u8]) -> usize {
    let octets = &mut Octets(input);
    let scale = if octets.next() % 4 == 0 { LARGE } else { 1 };
    let settings =
        Settings { reverse_cidrs: vec!["10.0.0.0/8".parse().expect("a range")], ..settings() };
    let own = identity();
    let told = Identity {
        version: own.version,
        pod_name: own.pod_name,
        instance_id: own.instance_id,
        servers: Vec::new(),
    };
    let mut oracle = Oracle::new(settings.clone(), told);
    let mut index = Index::new(settings);
    for resource in Resource::ALL {
        index.end_list(resource, 0, DataSource::Live);
        oracle.store.begin_list(resource);
        oracle.store.end_list(resource, 0, DataSource::Live);
    }
    let cheap = Change::Apply(Object::Service(Service {
        key: Key::new("shop", "cheap"),
        uid: 1,
        version: 1,
        labels: Vec::new(),
        kind: ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, 9, 9])]),
        ports: Vec::new(),
    }));
    let mut changes = vec![cheap];
    for version in 0..=octets.next() % MAX_EVENTS as u8 {
        changes.push(change(octets, u64::from(version) + 2, scale));
    }
    for change in changes {
        oracle.store.apply(change.clone());
        index.apply(change);
        index.publish(1);
    }
    let core = InProcess::new(index.records());
    let cheap = question("cheap.shop.svc.cluster.local", rtype::A, 0);
    let cheap = steps(&core, &cheap, 0).1;
    // Questions are read from the end, so that a change of events leaves them as they are.
    let reversed: Vec<u8> = input.iter().rev().copied().collect();
    let octets = &mut Octets(&reversed);
    let mut found = 0;
    for _ in 0..=octets.next() as usize % MAX_QUESTIONS {
        let name = match octets.next() {
            choice if choice % 5 == 0 => octets.one_of(&REVERSE).to_owned(),
            _ => format!("{}.svc.cluster.local", octets.one_of(&LABELS)),
        };
        let (how, seed) = (octets.next(), u64::from(octets.next()) << 56);
        for qtype in QTYPES {
            let question = question(&name, qtype, how);
            found += check(&core, &oracle, &question, cheap, scale == 1, seed);
        }
    }
    found
}

/// Asks one question and holds the reply against the oracle and its budget; 1 when it has records.
fn check(
    core: &InProcess,
    oracle: &Oracle,
    question: &Question,
    cheap: u64,
    is_small: bool,
    seed: u64,
) -> usize {
    let (reply, steps) = steps(core, question, seed);
    let budget = CHEAP_REPLIES * cheap + STEPS_PER_OCTET * reply.len() as u64;
    assert!(steps <= budget, "{question:?}: {steps} steps for {} octets", reply.len());
    let actual = decode(&reply).expect("a reply that can be read");
    let found = usize::from(!actual.answer.is_empty());
    let expected = oracle.answer(question);
    match (&expected, is_small) {
        (Expected::Reply(reply), false) => {
            assert_eq!(actual.rcode, reply.rcode, "{question:?}: {expected:?}");
        }
        _ => {
            let actual = Actual::Reply(Box::new(actual));
            let pod_name = &oracle.identity.pod_name;
            let settings = &oracle.settings;
            let found = differences(settings, pod_name, question, ID, &expected, &actual);
            assert!(found.is_empty(), "{question:?}: {found:#?}\n{expected:?}\n{actual:?}");
        }
    }
    found
}

/// The reply to a question of our zone, and the steps that it took.
fn steps(core: &InProcess, question: &Question, seed: u64) -> (Vec<u8>, u64) {
    let packet = question.packet(ID);
    let mut buffer = vec![0; 65_535];
    let (octets, steps) =
        count_steps(|| match core.decide(&packet, question.transport, seed, &mut buffer).0 {
            Action::Reply(octets) => octets,
            Action::Drop | Action::Forward(_) => panic!("{question:?} is ours"),
        });
    (buffer[..octets].to_vec(), steps)
}

fn question(name: &str, qtype: u16, how: u8) -> Question {
    Question {
        name: Name::text(name).to_wire(),
        qtype,
        class: rtype::CLASS_IN,
        rd: true,
        cd: false,
        edns: (how & 1 == 0).then_some(Edns {
            payload: 1232,
            version: 0,
            dnssec_ok: false,
            nsid: false,
        }),
        client: SocketAddr::from(([10, 244, 1, 99], 40_000)),
        transport: if how & 2 == 0 { Transport::Udp } else { Transport::Tcp },
    }
}

/// One event. Objects are so small that no limit cuts an answer, unless `scale` makes them large.
fn change(octets: &mut Octets<'_>, version: u64, scale: u8) -> Change {
    let kind = octets.next() % 8;
    let (namespace, service) = (octets.one_of(&NAMESPACES), octets.one_of(&SERVICES));
    match kind {
        7 => Change::Delete(Resource::Services, Key::new(namespace, service)),
        6 => Change::Delete(Resource::EndpointSlices, Key::new(namespace, octets.one_of(&SLICES))),
        2 => Change::Apply(Object::Namespace(Namespace {
            name: namespace.into(),
            uid: 1,
            version,
            labels: Vec::new(),
        })),
        3..=5 => Change::Apply(Object::Service(Service {
            key: Key::new(namespace, service),
            uid: 1,
            version,
            labels: Vec::new(),
            kind: match octets.next() % 4 {
                0 => ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, 0, octets.next() % 4])]),
                1 => ServiceKind::ExternalName("cart.shop.svc.cluster.local".into()),
                _ => ServiceKind::Headless,
            },
            ports: ports(octets)
                .map(|(name, port, protocol)| ServicePort { name: name.into(), port, protocol })
                .collect(),
        })),
        _ => Change::Apply(Object::Slice(slice(octets, (namespace, service), version, scale))),
    }
}

fn ports(octets: &mut Octets<'_>) -> impl Iterator<Item = (&'static str, u16, Protocol)> {
    let count = octets.next() % 3;
    let ports: Vec<_> = (0..count)
        .map(|_| {
            let protocol = octets.one_of(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp]);
            (octets.one_of(&PORTS), octets.one_of(&[53, 80, 5432]), protocol)
        })
        .collect();
    ports.into_iter()
}

fn slice(
    octets: &mut Octets<'_>,
    (namespace, service): (&str, &str),
    version: u64,
    scale: u8,
) -> Slice {
    let name = octets.one_of(&SLICES);
    let ports = ports(octets);
    let ports = ports.map(|(name, port, protocol)| SlicePort { name: name.into(), port, protocol });
    let ports = ports.collect();
    let ipv6 = octets.next().is_multiple_of(4);
    let count = octets.next() % 5 * scale;
    let (first, stride, hostname) = (octets.next() % 4, octets.next() % 2, octets.next());
    let endpoint = |number: u8| {
        let last = first.wrapping_add(number * stride);
        Endpoint {
            addresses: vec![match ipv6 {
                true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 9, u16::from(last)]),
                false => IpAddr::from([10, 9, 0, last]),
            }],
            ready: number % 7 != 6,
            hostname: match hostname % 4 {
                0 => None,
                1 => Some(HOSTNAMES[usize::from(hostname / 4) % HOSTNAMES.len()].into()),
                2 => Some(format!("host-{number}").into()),
                _ => number.is_multiple_of(2).then(|| "a".into()),
            },
            target: (hostname & 128 != 0)
                .then(|| TargetRef { namespace: namespace.into(), name: "pod".into() }),
        }
    };
    Slice {
        key: Key::new(namespace, name),
        uid: 1,
        version,
        service: service.into(),
        ipv6,
        ports,
        endpoints: (0..count).map(endpoint).collect(),
    }
}
