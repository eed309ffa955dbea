//! Target `history`: octets become events for the index and questions to it. Each reply is what the naive oracle says.
//! Each reply and each event costs no more steps than row L12 allows. Of large histories, which the limits may cut
//! short, only the Rcode is compared.

use std::net::{IpAddr, SocketAddr};

use dataplane_core::{
    Action, Change, DataSource, Endpoint, Index, Key, Object, Relist, Resource, Service,
    ServiceKind, Settings, Slice, Transport, count_steps,
};

use super::events::{Event, NAMESPACES, Octets, Stamp, configuration, event};
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
/// What a reply may cost: this many ClusterIP As, and this many steps for each of its octets (row L12).
const CHEAP_REPLIES: u64 = 20;
const STEPS_PER_OCTET: u64 = 6;
/// What an event may cost: this many steps, and this many for each row and port of the object and of the one that it
/// replaces (row L12).
const STEPS_PER_EVENT: u64 = 20_000;
const STEPS_PER_ROW: u64 = 500;
/// Rows of one address and namespace that readers see (docs/limits.md, `MAX_PUBLISHERS`).
const CROWD: usize = 64;
/// The Service, and its slice, that no event touches.
const CHEAP: &str = "cheap";

const LABELS: [&str; 13] = [
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
    "pod.cart.shop",
    "none.shop",
    "shop",
];
const OF_PODS: [&str; 2] = ["10-9-0-1.shop.pod.cluster.local", "10-9-0-2.evil.pod.cluster.local"];
const REVERSE: [&str; 3] =
    ["1.0.9.10.in-addr.arpa", "2.0.9.10.in-addr.arpa", "1.0.96.10.in-addr.arpa"];
const QTYPES: [u16; 6] = [rtype::A, rtype::AAAA, rtype::SRV, rtype::PTR, rtype::ANY, rtype::TXT];

/// Runs one history; returns the number of replies with records that were compared.
pub fn history(input: &[u8]) -> usize {
    let octets = &mut Octets(input);
    let scale = if octets.next().is_multiple_of(4) { LARGE } else { 1 };
    let mut play = Play::new(configuration(octets));
    for _ in 0..=octets.next() % MAX_EVENTS as u8 {
        play.event(event(octets, scale));
    }
    let core = InProcess::new(play.index.records());
    let cheap = question("cheap.shop.svc.cluster.local", rtype::A, 0);
    let cheap = steps(&core, &cheap, 0).1;
    // Questions are read from the end, so that a change of events leaves them as they are.
    let reversed: Vec<u8> = input.iter().rev().copied().collect();
    let octets = &mut Octets(&reversed);
    let mut found = 0;
    for _ in 0..=octets.next() as usize % MAX_QUESTIONS {
        let name = match octets.next() {
            choice if choice % 8 == 0 => octets.one_of(&REVERSE).to_owned(),
            choice if choice % 8 == 1 => octets.one_of(&OF_PODS).to_owned(),
            _ => format!("{}.svc.cluster.local", octets.one_of(&LABELS)),
        };
        let (how, seed) = (octets.next(), u64::from(octets.next()) << 56);
        for qtype in QTYPES {
            let question = question(&name, qtype, how);
            found += check(&core, &play.oracle, &question, cheap, scale == 1, seed);
        }
    }
    found
}

/// Index and oracle side by side.
struct Play {
    index: Index,
    oracle: Oracle,
    version: u64,
}

impl Play {
    /// With complete lists of one Service and its endpoint.
    fn new(settings: Settings) -> Play {
        let own = identity();
        let identity = Identity {
            version: own.version,
            pod_name: own.pod_name,
            replicas: 0,
            servers: Vec::new(),
        };
        let oracle = Oracle::new(settings.clone(), identity);
        let mut play = Play { index: Index::new(settings), oracle, version: 1 };
        for resource in Resource::ALL {
            play.list(resource, 0, true);
        }
        for object in cheap() {
            play.change(Change::Apply(object));
        }
        play
    }

    fn event(&mut self, event: Event) {
        self.version += 1;
        match event {
            Event::Apply(object, stamp) => {
                let object = self.stamped(object, stamp);
                self.change(Change::Apply(object));
            }
            Event::Delete(resource, key) => self.change(Change::Delete(resource, key)),
            Event::List { resource, keep, is_complete } => self.list(resource, keep, is_complete),
            Event::Configure(settings) => {
                self.oracle.settings = (*settings).clone();
                if self.index.configure(*settings) != Relist::Nothing {
                    for object in self.oracle.store.objects.clone() {
                        self.index.apply(Change::Apply(object));
                    }
                }
                self.index.publish(1);
            }
        }
    }

    /// Applies a change to both, and counts its steps.
    fn change(&mut self, change: Change) {
        let (resource, key, own) = match &change {
            Change::Apply(object) => (object.resource(), object.key(), rows(object)),
            Change::Delete(resource, key) => (*resource, key.clone(), 0),
        };
        let replaced = self.held(resource, &key).map_or(0, rows);
        self.oracle.store.apply(change.clone());
        let (_, steps) = count_steps(|| {
            self.index.apply(change);
            self.index.publish(1)
        });
        let budget = STEPS_PER_EVENT + STEPS_PER_ROW * (own + replaced) as u64;
        assert!(
            steps <= budget,
            "{resource:?} {key}: {steps} steps for {own} rows after {replaced}"
        );
    }

    fn list(&mut self, resource: Resource, keep: u8, is_complete: bool) {
        self.index.begin_list(resource);
        self.oracle.store.begin_list(resource);
        let held = self.oracle.store.objects.clone().into_iter();
        let held = held.filter(|object| object.resource() == resource);
        for (place, object) in held.enumerate() {
            if keep >> (place % 8) & 1 == 1 || &*object.key().name == CHEAP {
                self.change(Change::Apply(object));
            }
        }
        if is_complete {
            self.index.end_list(resource, self.version, DataSource::Live);
            self.oracle.store.end_list(resource, self.version, DataSource::Live);
            self.index.publish(1);
        }
    }

    fn held(&self, resource: Resource, key: &Key) -> Option<&Object> {
        let mut objects = self.oracle.store.objects.iter();
        objects.find(|object| object.resource() == resource && object.key() == *key)
    }

    /// The object with the uid and version that the API server would give it.
    fn stamped(&self, mut object: Object, stamp: Stamp) -> Object {
        let held = self.held(object.resource(), &object.key()).cloned();
        let held = held.map(|mut held| {
            let (uid, version) = identity_of(&mut held);
            (*uid, *version)
        });
        let (uid, version) = identity_of(&mut object);
        (*uid, *version) = match (stamp, held) {
            (Stamp::Late, Some((uid, version))) => (uid, version - 1),
            (Stamp::Next, Some((uid, _))) => (uid, self.version),
            _ => (u128::from(self.version), self.version),
        };
        object
    }
}

fn identity_of(object: &mut Object) -> (&mut u128, &mut u64) {
    match object {
        Object::Service(it) => (&mut it.uid, &mut it.version),
        Object::Slice(it) => (&mut it.uid, &mut it.version),
        Object::Namespace(it) => (&mut it.uid, &mut it.version),
        Object::Pod(it) => (&mut it.uid, &mut it.version),
    }
}

/// Rows and ports of an object.
fn rows(object: &Object) -> usize {
    match object {
        Object::Service(service) => service.ports.len() + 1,
        Object::Slice(slice) => {
            let addresses = slice.endpoints.iter().map(|endpoint| endpoint.addresses.len());
            slice.ports.len() + addresses.sum::<usize>()
        }
        Object::Namespace(_) | Object::Pod(_) => 1,
    }
}

/// A ClusterIP Service that no configuration hides, because it has an endpoint.
fn cheap() -> [Object; 2] {
    let key = || Key::new("shop", CHEAP);
    let endpoint = Endpoint {
        addresses: vec![IpAddr::from([10, 8, 0, 1])],
        ready: true,
        hostname: None,
        target: None,
    };
    [
        Object::Service(Service {
            key: key(),
            uid: 1,
            version: 1,
            labels: Vec::new(),
            kind: ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, 9, 9])]),
            ports: Vec::new(),
        }),
        Object::Slice(Slice {
            key: key(),
            uid: 1,
            version: 1,
            service: CHEAP.into(),
            ipv6: false,
            ports: Vec::new(),
            endpoints: vec![endpoint],
        }),
    ]
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
            let may_differ = is_crowded(oracle, &question.name);
            assert!(may_differ || actual.rcode == reply.rcode, "{question:?}: {expected:?}");
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

/// Whether one namespace has more rows of the address of a reverse name than readers see: those of
/// a Service that does not exist may take the places of others of that namespace.
fn is_crowded(oracle: &Oracle, name: &[u8]) -> bool {
    let name = Name::wire(name).0;
    let labels: Vec<_> = name.iter().rev().map(|label| String::from_utf8_lossy(label)).collect();
    let Some(address) = labels.get(2..).and_then(|octets| octets.join(".").parse::<IpAddr>().ok())
    else {
        return false;
    };
    let rows_of = |namespace: &str| {
        let slices = oracle.store.objects.iter().filter_map(|object| match object {
            Object::Slice(slice) if *slice.key.namespace == *namespace => Some(slice),
            _ => None,
        });
        let endpoints = slices.flat_map(|slice| &slice.endpoints);
        endpoints.filter(|endpoint| endpoint.addresses.contains(&address)).count()
    };
    NAMESPACES.iter().any(|namespace| rows_of(namespace) > CROWD)
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
