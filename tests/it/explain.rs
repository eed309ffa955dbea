//! `/explain`: for each way to answer a question, the explanation that people read (`tests/golden/explain`), and
//! that an explanation agrees with the answer for every question of every scenario.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::Config;
use dataplane::explain::{Explanation, Form, Question, Scene, decide};
use dataplane::forward::cache::Member;
use dataplane::forward::{Forwarder, Upstreams};
use dataplane::settings;
use dataplane::source::{index_of, objects_from_yaml};
use dataplane::state::{Published, State};
use dataplane_core::{
    CacheCounters, Change, Counters, DataSource, Identity, Index, LookupKey, Name, Object, Place,
    Query, Reason, Records, Resource, Transport, TtlCaps, Verdict, WorkerCounters, respond, trace,
};
use serde::Deserialize;
use serde_json::Value;
use tests::scenario::{self, Cluster, objects};

/// Unix seconds of every question.
const NOW_S: u64 = 1_760_000_000;
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    question: String,
    #[serde(default)]
    spec: Value,
    snapshot: Option<u64>,
    #[serde(default)]
    missing: bool,
    #[serde(default)]
    kept: Vec<Kept>,
}

/// What an upstream said, with a TTL of 300 s.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    name: String,
    /// The name is an alias of this one, else it has an address.
    target: Option<String>,
    #[serde(default)]
    group: usize,
    /// Place of the server in its group.
    #[serde(default)]
    server: usize,
    /// How many pass after it.
    seconds: u64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/explain")
}

fn read<T: serde::de::DeserializeOwned>(file: &str) -> Vec<T> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// The object with the uid and version that its manifest has: the reader of manifests leaves them out.
fn with_uid(mut object: Object, all: &[Value]) -> Object {
    let key = object.key();
    let kind = match object.resource() {
        Resource::Services => "Service",
        Resource::EndpointSlices => "EndpointSlice",
        Resource::Namespaces => "Namespace",
        Resource::Pods => "Pod",
    };
    let is_it = |value: &&Value| {
        let metadata = &value["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        value["kind"] == kind && metadata["name"] == *key.name && namespace == &*key.namespace
    };
    let metadata = &all.iter().find(is_it).expect("a manifest of each object")["metadata"];
    let digits = metadata["uid"].as_str().unwrap().replace('-', "");
    let uid = u128::from_str_radix(&digits, 16).unwrap();
    let version = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
    match &mut object {
        Object::Service(service) => (service.uid, service.version) = (uid, version),
        Object::Slice(slice) => (slice.uid, slice.version) = (uid, version),
        Object::Namespace(namespace) => (namespace.uid, namespace.version) = (uid, version),
        Object::Pod(pod) => (pod.uid, pod.version) = (uid, version),
    }
    object
}

/// The index of these objects, as a list from this source leaves it.
fn index(config: &Config, all: &[Value], source: DataSource) -> Index {
    let text: Vec<String> = all.iter().map(Value::to_string).collect();
    let (objects, skipped) = objects_from_yaml(&text.join("\n---\n")).unwrap();
    // Slices of names are skipped on purpose (DF35).
    let is_meant = skipped.iter().all(|it| it.reason.contains("addressType FQDN"));
    assert!(is_meant, "{skipped:?}");
    let mut index = Index::new(settings::of(config).unwrap());
    if source != DataSource::None {
        for resource in Resource::ALL {
            index.begin_list(resource);
        }
        for object in objects {
            index.apply(Change::Apply(with_uid(object, all)));
        }
        for resource in Resource::ALL {
            index.end_list(resource, 0, source);
        }
    }
    index.publish(NOW_S - 1_000);
    index
}

/// Puts the reply into the cache, as a lookup does.
fn keep(forwarder: &Forwarder, upstreams: &Upstreams, kept: &Kept) {
    let Kept { name, target, group, server, seconds } = kept;
    let key = LookupKey::new(Name::from_text(name).unwrap(), 1, false, false);
    let mut reply = key.upstream_query(7).wire;
    (reply[2], reply[3]) = (0x81, 0x80);
    // One answer, no OPT: the message ends behind the question.
    let question = 12 + key.name().wire().len() + 4;
    reply.truncate(question);
    reply[4..12].copy_from_slice(&[0, 1, 0, 1, 0, 0, 0, 0]);
    let (rtype, data) = match target {
        Some(target) => (5, Name::from_text(target).unwrap().wire().to_vec()),
        None => (1, vec![192, 0, 2, 77]),
    };
    reply.extend([0xc0, 12, 0, rtype, 0, 1, 0, 0, 1, 44, 0, data.len() as u8]);
    reply.extend(data);
    let Verdict::Good(relayed) = key.judge(7, &reply, &TtlCaps::default()) else {
        panic!("the reply for {name} is not good");
    };
    let route = upstreams.route(*group).unwrap();
    let kept = (&relayed, Member::at(*server));
    forwarder.cache().keep(route, kept, u32::MAX, forwarder.clock().now_ms(), upstreams.cache());
    forwarder.clock().advance(Duration::from_secs(*seconds));
}

fn explained(case: &Case) -> (Explanation, Form) {
    let text = std::fs::read_to_string(folder().join("objects.yaml")).unwrap();
    let mut all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    if !case.spec.is_null() {
        objects::merge(&mut all[0]["spec"], &case.spec);
    }
    let config = scenario::config(&all).unwrap();
    let source = match (case.missing, case.snapshot) {
        (true, _) => DataSource::None,
        (_, Some(age_s)) => DataSource::Snapshot { confirmed_at_s: NOW_S - age_s },
        (_, None) => DataSource::Live,
    };
    let index = index(&config, &all, source);
    let upstreams = Arc::new(Upstreams::of(&config, Path::new("/nonexistent")));
    let forwarder = Forwarder::new();
    for kept in &case.kept {
        keep(&forwarder, &upstreams, kept);
    }
    let published = Published { records: index.records(), upstreams: upstreams.clone() };
    let state = State {
        published: Arc::new(Published { records: index.records(), upstreams }).into(),
        counters: Vec::new(),
        identity: Identity::default(),
        taps: Arc::default(),
        inspections: Arc::default(),
    };
    let asker = IpAddr::from(Ipv4Addr::LOCALHOST);
    let (question, form) = Question::read(&case.question, asker, Form::Text).unwrap();
    let scene = Scene {
        state: &state,
        published: &published,
        forwarder: &forwarder,
        revision: "r1",
        now_s: NOW_S,
        now: Instant::now(),
    };
    let decided = decide(&scene, &question);
    let identified = index.identify(&decided.sources);
    (decided.with(Some(identified)), form)
}

#[test]
fn every_fate_is_explained_with_its_rules_and_objects() {
    let mut differences = Vec::new();
    for case in read::<Case>("cases.yaml") {
        let (explanation, form) = explained(&case);
        let text = match form {
            Form::Text => explanation.text(),
            Form::Json => serde_json::to_string_pretty(&explanation).unwrap() + "\n",
        };
        let file = folder().join(format!("{}.txt", case.name));
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        if std::fs::read_to_string(&file).unwrap_or_default() != text {
            differences.push(format!("--- {}\n{text}", case.name));
        }
    }
    assert!(
        differences.is_empty(),
        "UPDATE_EXPECT=1 writes the files; read the difference\n{}",
        differences.join("\n")
    );
}

/// What is asked of one message: decided and traced.
fn agree(records: &Records, packet: &[u8], about: &str) -> bool {
    let client: SocketAddr = "10.244.1.99:40000".parse().unwrap();
    let query = Query { packet, client, transport: Transport::Tcp, now_s: NOW_S, seed: 0 };
    let own = WorkerCounters::default();
    let counters = Counters {
        own: &own,
        all: &[],
        servers: &[],
        cache: &CacheCounters::default(),
        identity: &Identity::default(),
    };
    let (_, reason) = respond(records, &query, &counters, &mut vec![0; 65_535]);
    let Some(name) = packet.get(12..).and_then(Name::from_wire) else { return false };
    let at = 12 + name.wire().len();
    let [high, low, 0, 1] = packet[at..at + 4] else { return false };
    let hops = trace(records, &name, u16::from_be_bytes([high, low]));
    let last = hops.last().unwrap();
    let is_ours = !matches!(last.place, Place::Group(_) | Place::NoGroup);
    let agrees = match reason {
        // RR97: zone or region is missing, and no list would supply it.
        Reason::NotReady => {
            !last.missing.is_empty() || last.rules.iter().any(|rule| rule.id == "RR97")
        }
        Reason::SpecialUse => last.place == Place::SpecialUse,
        // Without RD we answer about a zone of ours, and about a record of the resource, ourselves.
        Reason::NoData | Reason::Cname
            if hops.len() == 1 && !is_ours && matches!(last.rules[0].id, "RR75" | "RR81") =>
        {
            packet[2] & 1 == 0
        }
        Reason::Found | Reason::NoData => hops.len() == 1 && is_ours && last.exists,
        Reason::NxDomain => hops.len() == 1 && is_ours && !last.exists,
        // RD=0 behind an alias ends with the alias.
        Reason::Cname => hops.len() > 1 || last.exists,
        Reason::CnameLoop => hops.len() > 1,
        Reason::RecursionNotDesired => !is_ours,
        Reason::NoGroup => last.place == Place::NoGroup,
        Reason::Forward => matches!(last.place, Place::Group(_)),
        Reason::Withheld => last.rules.iter().any(|rule| rule.id == "FW45"),
        // Refused before the name is looked at.
        _ => return false,
    };
    assert!(agrees, "{about}: {} but {hops:#?}", reason.label());
    true
}

#[test]
fn an_explanation_agrees_with_the_answer_to_every_question_of_the_scenarios() {
    let mut agreed = 0;
    for cluster in Cluster::all().unwrap() {
        let config = scenario::config(&cluster.objects).unwrap();
        let text: Vec<String> = cluster.objects.iter().map(Value::to_string).collect();
        let (objects, _) = objects_from_yaml(&text.join("\n---\n")).unwrap();
        let mut index = index_of(objects, &config).unwrap();
        index.publish(NOW_S);
        let records = index.records();
        for scenario in &cluster.scenarios {
            for block in scenario.answers.blocks() {
                for (_, question) in &block.questions {
                    agreed += usize::from(agree(&records, &question.packet, &question.text));
                }
            }
        }
    }
    assert!(agreed > 150, "only {agreed} questions were traced");
}

#[test]
fn the_rules_that_an_explanation_cites_are_in_the_contract() {
    let page = std::fs::read_to_string(folder().join("../../../docs/dns.md")).unwrap();
    let mut cited = 0;
    let mut check = |id: &str| {
        cited += 1;
        let anchor = format!("<a id=\"{}\"></a>{id} ", id.to_lowercase());
        assert!(page.contains(&anchor), "docs/dns.md has no {id}");
    };
    Reason::ALL.iter().filter_map(|reason| reason.rule()).for_each(|rule| check(rule.id));
    for case in read::<Case>("cases.yaml") {
        let (explanation, _) = explained(&case);
        explanation.steps.iter().flat_map(|step| &step.rules).for_each(|rule| check(rule.id));
    }
    assert!(cited > 40, "only {cited}");
}
