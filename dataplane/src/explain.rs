//! Why a question is answered as it is, for people. It calls `respond` with a message made from the
//! question; the rules and objects behind it are those that `trace` finds by the same routing. Nothing is sent to an
//! upstream and nothing is counted: what a cached reply or a server's health says is what is known already.

mod dig;
mod question;
mod text;
mod upstream;

use std::net::SocketAddr;
use std::time::Instant;

use dataplane_core::{
    Action, Counters, Hop, Identified, Name, Place, Query, Reason, Resource, Rule, Source,
    Surroundings, Transport, WorkerCounters, respond, trace,
};
use serde::Serialize;

use crate::forward::{Forwarder, Kept, KeptPart};
use crate::origin::Origin;
use crate::rrtype;
use crate::state::{Published, State};
pub(crate) use dig::answers;
pub use dig::{Printed, print};
pub use question::{Form, Question, typed};
pub use upstream::Upstream;

/// Any port but 0, from which queries are dropped.
const CLIENT_PORT: u16 = 53_000;
/// Octets of the largest UDP reply that a configuration allows (`limits.udpPayloadBytes`).
const BUFFER: usize = 4_096;

/// Everything that an explanation reads.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Who we are, and the counters that CHAOS answers read.
    pub state: &'a State,
    pub published: &'a Published,
    /// The forwarder: its cache, and the state of upstreams.
    pub forwarder: &'a Forwarder,
    /// Revision of the configuration that runs.
    pub revision: &'a str,
    /// Unix seconds.
    pub now_s: u64,
    /// The same moment, for the health of servers.
    pub now: Instant,
}

/// Why a question is answered as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Absolute name, in presentation form.
    pub name: String,
    /// As `dig` writes it: `A`, `TYPE65`.
    #[serde(rename = "type")]
    pub qtype: String,
    /// IP address that `access.clients` was asked about.
    pub client: String,
    /// Of the configuration that runs.
    pub revision: String,
    /// The reason, as metrics name it.
    pub reason: &'static str,
    /// Where the reply comes from, as metrics name it; `unasked` where an upstream would have to be asked.
    pub origin: &'static str,
    /// The rule behind the reply, where ours decide it.
    pub rule: Option<RuleView>,
    /// The names that the question leads through.
    pub steps: Vec<Step>,
    /// The smallest TTL of the reply in seconds, and its source.
    pub ttl: Option<Ttl>,
    /// The status of the reply, such as `NXDOMAIN`.
    pub status: Option<String>,
    /// Lines of the answer section, as `dig` writes them.
    pub answer: Vec<String>,
    /// The whole reply as `dig` prints it; none where an upstream would have to be asked.
    pub reply: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RuleView {
    pub id: &'static str,
    pub words: &'static str,
}

/// One name of the chain.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Absolute name, in presentation form.
    pub name: String,
    pub place: String,
    /// In the order in which they were asked.
    pub rules: Vec<RuleView>,
    /// What hides, replaces or withholds something.
    pub notes: Vec<String>,
    /// What it rests on; cut to the first few.
    pub objects: Vec<Object>,
    pub object_count: usize,
    /// Age of the snapshot that it rests on; none where the data is live.
    pub snapshot_age_seconds: Option<u64>,
    /// Resources without data.
    pub missing: Vec<&'static str>,
    /// What is known of the upstreams, for a name that is not ours.
    pub upstream: Option<Upstream>,
}

/// An object that an answer rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    pub kind: &'static str,
    /// Its namespace; empty for a Namespace.
    pub namespace: String,
    /// Its name; none for a slice or Pod that was not found again.
    pub name: Option<String>,
    /// The Service of a slice.
    pub service: Option<String>,
    /// `metadata.uid`; none where the source has none or the object was not found again.
    pub uid: Option<String>,
    /// `metadata.resourceVersion`; likewise, and none in a snapshot.
    pub version: Option<u64>,
    /// `held`, `gone` since the records were published, or `unknown` where the source did not answer in time.
    pub state: &'static str,
}

/// A TTL, and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Ttl {
    pub seconds: u32,
    /// Which rule or setting gives this TTL.
    pub from: &'static str,
}

impl From<Rule> for RuleView {
    fn from(Rule { id, words }: Rule) -> RuleView {
        RuleView { id, words }
    }
}

/// An explanation that does not know the objects yet, and the objects to look up in the index.
#[derive(Clone, Debug)]
pub struct Decided {
    explanation: Explanation,
    /// Those of all steps, in order.
    pub sources: Vec<Source>,
}

pub fn decide(scene: &Scene<'_>, question: &Question) -> Decided {
    let packet = question.packet();
    let client = SocketAddr::new(question.client, CLIENT_PORT);
    let query =
        Query { packet: &packet, client, transport: Transport::Udp, now_s: scene.now_s, seed: 0 };
    let own = WorkerCounters::default();
    let counters = Counters {
        own: &own,
        all: &scene.state.counters,
        servers: scene.published.upstreams.servers(),
        cache: scene.forwarder.cache().counters(),
        identity: &scene.state.identity,
    };
    let mut buffer = vec![0; BUFFER];
    let records = &scene.published.records;
    let (action, reason) = respond(records, &query, &counters, &mut buffer);
    let (octets, origin, parts) = match action {
        Action::Reply(octets) => (Some(octets), Origin::Own.label(), Vec::new()),
        Action::Drop => (None, Origin::Own.label(), Vec::new()),
        Action::Forward(forward) => {
            let (now_s, limit) = (scene.now_s, forward.head.form.limit);
            let around = Surroundings { records, now_s, seed: 0, limit };
            let upstreams = &scene.published.upstreams;
            let Kept { parts, reply } =
                scene.forwarder.explain(upstreams, &forward, &around, &mut buffer);
            match reply {
                Some((octets, origin)) => (Some(octets), origin.label(), parts),
                None => (None, "unasked", parts),
            }
        }
    };
    let (hops, steps) = match is_routed(reason) {
        true => chain(scene, question, &parts),
        false => Default::default(),
    };
    let printed = octets.and_then(|octets| print(&buffer[..octets]));
    let from = ttl_from(&hops, origin, printed.as_ref());
    let sources = hops.iter().flat_map(|hop| hop.sources.iter().cloned()).collect();
    let explanation = Explanation {
        name: question.name.to_string(),
        qtype: rrtype::text(question.qtype),
        client: question.client.to_string(),
        revision: scene.revision.to_owned(),
        reason: reason.label(),
        origin,
        rule: reason.rule().map(RuleView::from),
        steps,
        ttl: printed.as_ref().and_then(|printed| Some(Ttl { seconds: printed.ttl_s?, from })),
        status: printed.as_ref().map(|printed| printed.status.clone()),
        answer: printed.as_ref().map(|printed| printed.answer.clone()).unwrap_or_default(),
        reply: printed.map(|printed| printed.text),
    };
    Decided { explanation, sources }
}

impl Decided {
    /// The explanation, with what the index says of [`Decided::sources`], in their order; `None` where it did not answer.
    pub fn with(self, identified: Option<Vec<Option<Identified>>>) -> Explanation {
        let Decided { mut explanation, sources } = self;
        let mut identified = identified.map(Vec::into_iter);
        let mut sources = sources.iter();
        for object in explanation.steps.iter_mut().flat_map(|step| &mut step.objects) {
            let Some(source) = sources.next() else { break };
            let found = identified.as_mut().map(|objects| objects.next().flatten());
            *object = of_source(source, found);
        }
        explanation
    }
}

/// True if the name was routed; false if the query was refused before.
fn is_routed(reason: Reason) -> bool {
    match reason {
        Reason::SpecialUse
        | Reason::NotReady
        | Reason::Found
        | Reason::NoData
        | Reason::NxDomain
        | Reason::Cname
        | Reason::CnameLoop
        | Reason::RecursionNotDesired
        | Reason::NoGroup
        | Reason::Withheld
        | Reason::Forward => true,
        Reason::Short
        | Reason::IsResponse
        | Reason::SourcePortZero
        | Reason::Opcode
        | Reason::Counts
        | Reason::Question
        | Reason::QueryType
        | Reason::Additional
        | Reason::EdnsVersion
        | Reason::Client
        | Reason::Transfer
        | Reason::Class
        | Reason::Chaos => false,
    }
}

/// The names that a routed question leads through, with these parts of the cache. The chain of an upstream ends at a name that
/// is routed like any other (FW42).
fn chain(scene: &Scene<'_>, question: &Question, parts: &[KeptPart]) -> (Vec<Hop>, Vec<Step>) {
    let traced = |name: &Name| trace(&scene.published.records, name, question.qtype);
    let mut hops = traced(&question.name);
    let mut steps: Vec<Step> = hops.iter().map(|hop| step(scene, hop)).collect();
    for part in parts {
        if let Some(last) = steps.last_mut() {
            last.upstream = Some(Upstream::of(scene, part));
        }
        if let Some(target) = &part.leads_to {
            let more = traced(target);
            steps.extend(more.iter().map(|hop| step(scene, hop)));
            hops.extend(more);
        }
    }
    (hops, steps)
}

fn step(scene: &Scene<'_>, hop: &Hop) -> Step {
    let group = |number| scene.published.upstreams.group_view(number, scene.now);
    let place = match hop.place {
        Place::SpecialUse => "special-use name".to_owned(),
        Place::ClusterZone => "cluster domain".to_owned(),
        Place::Reverse => "reverse zone".to_owned(),
        Place::ExtraRecord => "record of the resource".to_owned(),
        Place::Group(0) => "default upstreams".to_owned(),
        Place::Group(number) => match group(number) {
            Some(group) => format!("stub domain {}", group.name),
            None => "stub domain".to_owned(),
        },
        Place::NoGroup => "none".to_owned(),
        Place::NotConfigured => "not known".to_owned(),
    };
    Step {
        name: hop.name.to_string(),
        place,
        rules: hop.rules.iter().copied().map(RuleView::from).collect(),
        notes: hop.notes.clone(),
        objects: hop.sources.iter().map(|source| of_source(source, None)).collect(),
        object_count: hop.source_count,
        snapshot_age_seconds: hop.snapshot_at_s.map(|at_s| scene.now_s.saturating_sub(at_s)),
        missing: hop.missing.iter().map(|resource| resource.plural()).collect(),
        upstream: None,
    }
}

/// An object, as far as the records and the index know it; `None`: the index did not answer.
fn of_source(source: &Source, found: Option<Option<Identified>>) -> Object {
    let (kind, namespace, name, service) = match source {
        Source::Service { namespace, name } => (Resource::Services, namespace, Some(name), None),
        Source::Slice { namespace, service, .. } => {
            (Resource::EndpointSlices, namespace, None, Some(service))
        }
        Source::Namespace { name } => (Resource::Namespaces, &Box::default(), Some(name), None),
        Source::Pod { namespace, .. } => (Resource::Pods, namespace, None, None),
    };
    let kind = match kind {
        Resource::Services => "Service",
        Resource::EndpointSlices => "EndpointSlice",
        Resource::Namespaces => "Namespace",
        Resource::Pods => "Pod",
    };
    let state = match &found {
        None => "unknown",
        Some(None) => "gone",
        Some(Some(_)) => "held",
    };
    let found = found.flatten();
    let version = found.as_ref().map(|found| found.version).filter(|version| *version != 0);
    let uid = found.as_ref().filter(|found| found.uid != 0).map(|found| uid_text(found.uid));
    let found_name = found.map(|found| String::from(found.key.name));
    Object {
        kind,
        namespace: String::from(namespace.clone()),
        name: found_name.or_else(|| name.map(|name| String::from(name.clone()))),
        service: service.map(|service| String::from(service.clone())),
        uid,
        version,
        state,
    }
}

/// A uid as Kubernetes writes it (RFC 9562 §4).
fn uid_text(uid: u128) -> String {
    let digits = format!("{uid:032x}");
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

/// The source of the reply's TTL.
fn ttl_from(hops: &[Hop], origin: &str, printed: Option<&Printed>) -> &'static str {
    match origin {
        "cache" => {
            return "what is left of the upstream's, within the bounds of spec.cache (CA2, CA3), or that of a CNAME of ours";
        }
        "stale" => return "that of an expired reply (CA40)",
        _ => {}
    }
    let is_denied = printed.is_none_or(|printed| printed.answer.is_empty());
    match (hops.last().map(|hop| hop.place), is_denied) {
        (Some(Place::SpecialUse), _) => "fixed for special-use names",
        (_, true) => "the smaller of spec.ttlSeconds and 5 (N31)",
        (Some(Place::ExtraRecord), false) => "that of the record in the resource (RR80)",
        (_, false) => "spec.ttlSeconds, or that of the record in the resource (RR74)",
    }
}
