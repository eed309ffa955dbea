//! Objects of manifests that the importer does not read, and keys of ConfigMaps that nothing names: each has a line of the
//! report.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::manifests::{KUBE_DNS_KEYS, Object, is_read};
use super::report::{Outcome, Place, Report};
use super::{Look, Source, Text};

/// Kinds that no DNS server reads its settings from: what of it our pods need, the operator makes.
const NEEDLESS: [&str; 13] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "Endpoints",
    "EndpointSlice",
    "Event",
    "Namespace",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PodMonitor",
    "Role",
    "RoleBinding",
    "ServiceAccount",
    "ServiceMonitor",
];

/// A line for each object of a kind that is not read.
pub(super) fn unread(objects: &[Object]) -> Vec<Source> {
    let unread = objects.iter().filter(|object| !is_read(&object.value));
    let line = |object: &Object| {
        let (outcome, message) = of_kind(object);
        let what = format!("{} {}", object.kind(), object.name());
        Source::Note { place: object.place(""), outcome, what, message }
    };
    unread.map(line).collect()
}

/// What is said of an object by its kind.
fn of_kind(object: &Object) -> (Outcome, String) {
    let of = |outcome, message: &str| (outcome, message.to_owned());
    match object.kind() {
        "HorizontalPodAutoscaler" => autoscaler(object),
        "CiliumLocalRedirectPolicy" => of(
            Outcome::NotPossible,
            "it leads what pods ask to pods of its own choice, also after the Service has moved: if that is NodeLocal DNSCache, \
             delete this policy when the ClusterDNS is Ready, and then the cache",
        ),
        kind if NEEDLESS.contains(&kind) => {
            of(Outcome::NotNeeded, "what the pods need of this kind, the operator makes")
        }
        _ => of(
            Outcome::NotPossible,
            "objects of this kind are not read: if DNS is configured in it, name the ConfigMap or Corefile that is made of it, or \
             use --from-cluster",
        ),
    }
}

/// The number of pods by load, as a ClusterDNS has it.
fn autoscaler(object: &Object) -> (Outcome, String) {
    let number = |field: &str| object.value["spec"][field].as_u64();
    let bounds = [("minReplicas", number("minReplicas")), ("maxReplicas", number("maxReplicas"))];
    let bounds = bounds.iter().filter_map(|(field, it)| Some(format!("{field}: {}", (*it)?)));
    let bounds: Vec<String> = bounds.collect();
    let message = format!(
        "pods follow the nodes and cores of the cluster here: if it scales the DNS server, spec.scaling: {{load: {{{}}}}} makes \
         one of these, with cpuMillicoresPerReplica in place of its metrics",
        bounds.join(", ")
    );
    (Outcome::Changed, message)
}

/// Which text of the input this is: file, line, and the name and the key of its ConfigMap.
type Id = (String, usize, Option<(String, String)>);

fn id(text: &Text) -> Id {
    (text.file.clone(), text.line, text.map.clone())
}

/// The keys of ConfigMaps, and those of them that a source asked for.
pub struct Keys {
    all: Vec<Text>,
    taken: Rc<RefCell<BTreeSet<Id>>>,
}

/// The sources, then the keys of all ConfigMaps, so that each key that no source takes has a line.
pub(super) fn with_keys(objects: &[Object], sources: Vec<Source>) -> Vec<Source> {
    let taken: Rc<RefCell<BTreeSet<Id>>> = Rc::default();
    let mut all: Vec<Source> = sources.into_iter().map(|it| watched(it, &taken)).collect();
    for map in objects.iter().filter(|object| object.is_map()) {
        for key in map.value["binaryData"].as_object().into_iter().flat_map(|data| data.keys()) {
            all.push(Source::Note {
                place: map.place(&format!("binaryData.{key}")),
                outcome: Outcome::NotPossible,
                what: format!("ConfigMap {} {key}", map.name()),
                message: "binaryData is not read: if a DNS server reads this key, put it into a file and name that"
                    .to_owned(),
            });
        }
    }
    let maps = objects.iter().filter(|object| object.is_map());
    // The keys of kube-dns have a line in any case.
    let keys =
        maps.flat_map(Object::keys).filter(|(key, _)| !KUBE_DNS_KEYS.contains(&key.as_str()));
    let keys = keys.map(|(_, text)| text).collect();
    all.push(Source::Keys(Keys { all: keys, taken }));
    all
}

/// The same source, which remembers the keys that it takes.
fn watched(source: Source, taken: &Rc<RefCell<BTreeSet<Id>>>) -> Source {
    let watch = |look: Box<Look<'static>>| -> Box<Look<'static>> {
        let taken = taken.clone();
        Box::new(move |pattern: &str| {
            let found = look(pattern);
            taken.borrow_mut().extend(found.found.iter().map(id));
            found
        })
    };
    match source {
        Source::Corefile { text, variables, look } => {
            taken.borrow_mut().insert(id(&text));
            Source::Corefile { text, variables, look: watch(look) }
        }
        Source::Dnsmasq { options, look } => Source::Dnsmasq { options, look: watch(look) },
        Source::KubeDnsConfig(keys) => {
            taken.borrow_mut().extend(keys.values().map(id));
            Source::KubeDnsConfig(keys)
        }
        Source::Size(size) => {
            taken.borrow_mut().extend(size.keys().map(id));
            Source::Size(size)
        }
        Source::KubeDnsArguments(_)
        | Source::Sidecar { .. }
        | Source::Aside { .. }
        | Source::Keys(_)
        | Source::Note { .. } => source,
    }
}

/// A line for each key that no source took, once all are converted.
pub(super) fn keys(keys: &Keys, report: &mut Report) {
    // As it is before these lines: two ConfigMaps that are written on one line have a line each.
    let places = report.places();
    let taken = keys.taken.borrow();
    let is_said = |text: &Text| {
        let lines = text.line..text.line + text.text.lines().count().max(1);
        places.get(&text.file).is_some_and(|said| said.range(lines).next().is_some())
    };
    for text in keys.all.iter().filter(|text| !taken.contains(&id(text)) && !is_said(text)) {
        let (name, key) = text.map.clone().unwrap_or_default();
        let place = Place { file: text.file.clone(), line: text.line };
        let message = "nothing that was read names this key: if a DNS server reads it, put it into a file and name that";
        report.add(&place, Outcome::NotNeeded, &format!("ConfigMap {name} {key}"), message);
    }
}
