//! Kubernetes objects of another DNS server as sources: ConfigMaps, and the arguments, environment and mounts of the
//! workloads that read them.

mod container;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crds::manifest::{Places, places_of};
use serde_json::Value;

use super::folder::mounted as found;
use super::report::{Outcome, Place};
use super::{Argument, Look, Source, Text};
use container::{Mounted, Program};

/// Kinds that are read; others have a line.
const KINDS: [&str; 7] =
    ["ConfigMap", "Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Pod", "Service"];
/// The keys of the ConfigMap of kube-dns.
pub(super) const KUBE_DNS_KEYS: [&str; 3] = ["stubDomains", "upstreamNameservers", "federations"];
/// The key of a ConfigMap that holds a Corefile.
const COREFILE: &str = "Corefile";
/// The file from which NodeLocal DNSCache makes the Corefile that it reads.
const BASE: &str = "/Corefile.base";
/// Where a Corefile is mounted, where no workload says so.
const HOME: &str = "/etc/coredns";

/// Containers of all workloads, and volumes and mounts of one, that are looked at.
const MAX_CONTAINERS: usize = 1_000;
/// Octets of the ConfigMaps that they mount or have in their environment, each as often as it is there.
const MAX_MOUNTED: usize = 256 << 20;

/// ConfigMaps by namespace and name.
type Maps<'a> = BTreeMap<(&'a str, &'a str), &'a Object>;

/// A document of the input: kind, namespace, name and content.
pub(super) struct Object {
    /// What it is called in messages.
    pub(super) file: String,
    pub(super) value: Value,
    /// The places of its fields in these lines, if they are known.
    pub(super) places: Option<(Places, Rc<Vec<String>>)>,
    /// People named it as a configuration of kube-dns, or an autoscaler of the DNS server as its rules: then no workload has to
    /// mount it.
    pub(super) is_named: bool,
}

/// The objects of a manifest.
///
/// # Errors
/// It is no YAML.
pub(super) fn objects(text: &Text) -> Result<Vec<Object>, String> {
    let documents = crds::manifest::documents(&text.text)
        .map_err(|error| format!("{}: {}", text.file, crds::manifest::not_yaml(&error).1))?;
    let all: Vec<Value> = documents.into_iter().flat_map(items).filter(has_kind).collect();
    let mut places = places_of(&text.text, |key, kind| key == "kind" && KINDS.contains(&kind));
    // An owner reference has a kind too: then lines are not known.
    if places.len() != all.iter().filter(|it| is_read(it)).count() {
        places.clear();
    }
    let lines: Rc<Vec<String>> = Rc::new(text.text.lines().map(str::to_owned).collect());
    let mut places = places.into_iter();
    let object = |value: Value| {
        let places = if is_read(&value) { places.next() } else { None };
        let places = places.map(|places| (places, lines.clone()));
        Object { file: text.file.clone(), value, places, is_named: false }
    };
    Ok(all.into_iter().map(object).collect())
}

fn items(mut document: Value) -> Vec<Value> {
    match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        Some(_) | None => vec![document],
    }
}

fn has_kind(value: &Value) -> bool {
    // Objects of a typed list have no kind; the cluster gives them one.
    value["kind"].is_string()
}

/// Is it of a kind that is read?
pub(super) fn is_read(value: &Value) -> bool {
    value["kind"].as_str().is_some_and(|kind| KINDS.contains(&kind))
}

impl Object {
    pub(super) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.value["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    pub(super) fn is_map(&self) -> bool {
        self.value["kind"] == "ConfigMap"
    }

    pub(super) fn place(&self, field: &str) -> Place {
        let line = self.places.as_ref().and_then(|(places, _)| places.of(field));
        Place { file: self.file.clone(), line: line.map_or(1, |place| place.line) }
    }

    /// The keys of a ConfigMap.
    pub(super) fn keys(&self) -> BTreeMap<String, Text> {
        let data = self.value["data"].as_object().into_iter().flatten();
        let texts = data.filter_map(|(key, text)| Some((key.clone(), text.as_str()?)));
        texts.map(|(key, text)| (key.clone(), self.key(&key, text))).collect()
    }

    /// Octets of its keys.
    fn octets(&self) -> usize {
        let data = self.value["data"].as_object().into_iter().flatten();
        data.map(|(key, text)| key.len() + text.as_str().map_or(0, str::len)).sum()
    }

    /// A text in a block of indented lines has the line numbers of the manifest; another text is counted from 1.
    fn key(&self, key: &str, text: &str) -> Text {
        let text = text.to_owned();
        let map = Some((self.name().to_owned(), key.to_owned()));
        let own = Text { file: format!("{}[{key}]", self.file), line: 1, text, map };
        let Some((_, lines)) = &self.places else { return own };
        let at = self.place(&format!("data.{key}"));
        let is_block = |line: &String| {
            let (_, value) = line.split_once(':').unwrap_or_default();
            value.trim_start().starts_with('|')
        };
        // The text begins below its key.
        let key_line = (1..=at.line).rev().take(2).find(|line| {
            lines.get(line - 1).is_some_and(|text| text.trim_start().starts_with(key))
        });
        match key_line {
            Some(line) if lines.get(line - 1).is_some_and(is_block) => {
                Text { file: self.file.clone(), line: line + 1, ..own }
            }
            Some(line) if !own.text.contains('\n') => Text { file: self.file.clone(), line, ..own },
            Some(_) | None => own,
        }
    }

    /// The words of the command lines of its containers.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        let containers = self.pods().0["containers"].as_array().into_iter().flatten();
        let lists = containers.flat_map(|it| [&it["command"], &it["args"]]);
        lists.flat_map(|it| it.as_array().into_iter().flatten()).filter_map(Value::as_str)
    }

    /// The pods of a workload, with the path of that field.
    pub(super) fn pods(&self) -> (&Value, &'static str) {
        match self.value["kind"] == "Pod" {
            true => (&self.value["spec"], "spec"),
            false => (&self.value["spec"]["template"]["spec"], "spec.template.spec"),
        }
    }
}

/// The octets of ConfigMaps that containers may still have: a pod can mount one ConfigMap thousands of times.
struct Room(usize);

impl Room {
    fn take(&mut self, map: &Object) -> Result<(), String> {
        self.0 = self.0.checked_sub(map.octets()).ok_or_else(|| {
            let most = MAX_MOUNTED >> 20;
            format!(
                "{}: the containers have more than {most} MiB of ConfigMaps, each as often as it is mounted: name the workloads \
                 of the DNS server only",
                map.file
            )
        })?;
        Ok(())
    }
}

/// The sources in these objects, with the environment variables that people add.
///
/// # Errors
/// There is more of them than is read.
pub(super) fn sources(
    objects: &[Object],
    variables: &BTreeMap<String, String>,
) -> Result<Vec<Source>, String> {
    let mut room = Room(MAX_MOUNTED);
    let maps: Maps<'_> = objects
        .iter()
        .filter(|object| object.is_map())
        .map(|object| ((object.namespace(), object.name()), object))
        .collect();
    let (mut processes, mut notes) = (Vec::new(), Vec::new());
    for object in objects.iter().filter(|object| !object.is_map()) {
        let (pods, at) = object.pods();
        let containers = pods["containers"].as_array().into_iter().flatten().enumerate();
        for (index, value) in containers {
            let process = Program { object, value, path: format!("{at}.containers[{index}]") };
            let lists = [&pods["volumes"], &value["volumeMounts"]];
            let longest = lists.iter().filter_map(|it| Some(it.as_array()?.len())).max();
            if processes.len().max(longest.unwrap_or(0)) >= MAX_CONTAINERS {
                return Err(format!(
                    "{}: more than {MAX_CONTAINERS} containers, volumes or mounts: name the workloads of the DNS server only",
                    object.file
                ));
            }
            let mounted = process.mounted(pods, &maps, &mut room)?;
            processes.push((process, mounted));
        }
        notes.extend(of_pods(object, pods, at));
    }
    // Before dnsmasq, which gets the servers that are named there.
    let readers = Readers::of(&processes);
    let mut sources: Vec<Source> =
        maps.values().filter_map(|map| of_kube_dns(map, &readers)).collect();
    let mut used = BTreeSet::new();
    for (process, mounted) in processes {
        if let Some(path) = process.corefile(&mounted) {
            used.extend(mounted.maps.get(&path).cloned());
        }
        sources.extend(process.sources(mounted, &maps, variables, &mut room)?);
    }
    sources.extend(notes);
    for (at, object) in &maps {
        let keys = object.keys();
        let is_used = used.contains(&(at.0.to_owned(), at.1.to_owned()));
        if keys.contains_key(COREFILE) && !is_used {
            let files = alone(*at, keys, &maps);
            sources.extend(corefile(files, &format!("{HOME}/{COREFILE}"), variables.clone()));
        }
    }
    Ok(sources)
}

/// The ConfigMaps that some container reads.
struct Readers {
    is_any: bool,
    mounted: BTreeSet<(String, String)>,
    /// Those that a flag names, by their name alone.
    named: BTreeSet<String>,
}

impl Readers {
    fn of(processes: &[(Program<'_>, Mounted)]) -> Readers {
        Readers {
            is_any: !processes.is_empty(),
            mounted: processes.iter().flat_map(|(_, it)| it.maps.values().cloned()).collect(),
            named: processes.iter().flat_map(|(process, _)| process.named_maps()).collect(),
        }
    }
}

/// What else of these pods could decide answers: each has a line.
fn of_pods(object: &Object, pods: &Value, at: &str) -> Vec<Source> {
    let line = |field: &str, index: usize, outcome, what: String, message: &str| Source::Note {
        place: object.place(&format!("{at}.{field}[{index}]")),
        outcome,
        what,
        message: message.to_owned(),
    };
    let all = |field: &str| pods[field].as_array().into_iter().flatten().enumerate();
    let aliases = all("hostAliases").map(|(index, it)| {
        let what = format!("hostAliases {}", it["ip"].as_str().unwrap_or_default());
        let message = "the hosts file of pods is not read: if the DNS server answers from it, write these names as spec.hosts";
        line("hostAliases", index, Outcome::NotPossible, what, message)
    });
    let first = all("initContainers").map(|(index, it)| {
        let what = format!("initContainers {}", it["name"].as_str().unwrap_or_default());
        let message = "it answers no questions: if it writes a file that the DNS server reads, name that file";
        line("initContainers", index, Outcome::NotNeeded, what, message)
    });
    aliases.chain(first).collect()
}

/// The keys of kube-dns in a ConfigMap. Clusters that moved to CoreDNS still have it, and no program reads it there: where
/// workloads are known, one of them must mount it.
fn of_kube_dns(map: &Object, readers: &Readers) -> Option<Source> {
    let keys = map.keys();
    if !keys.keys().any(|key| KUBE_DNS_KEYS.contains(&key.as_str())) {
        return None;
    }
    let at = (map.namespace().to_owned(), map.name().to_owned());
    let is_read = readers.mounted.contains(&at) || readers.named.contains(map.name());
    if map.is_named || !readers.is_any || is_read {
        return Some(Source::KubeDnsConfig(keys));
    }
    let known = keys.into_iter().filter(|(key, _)| KUBE_DNS_KEYS.contains(&key.as_str()));
    let arguments = known.map(|(key, text)| Argument {
        place: Place { file: text.file, line: text.line },
        text: key,
    });
    let name = format!("ConfigMap {}", map.name());
    let why = "no workload that was read mounts this ConfigMap, so no server reads it; if one does, name the file with \
               --kube-dns-config";
    Some(aside(name, arguments.collect(), why))
}

/// Where the keys of ConfigMaps usually are, where no workload says so.
fn alone(
    (namespace, name): (&str, &str),
    keys: BTreeMap<String, Text>,
    maps: &Maps<'_>,
) -> BTreeMap<String, Text> {
    let mut files: BTreeMap<String, Text> =
        keys.into_iter().map(|(key, text)| (format!("{HOME}/{key}"), text)).collect();
    let custom = format!("{name}-custom");
    let custom = maps.get(&(namespace, custom.as_str())).map(|map| map.keys()).unwrap_or_default();
    files.extend(custom.into_iter().map(|(key, text)| (format!("{HOME}/custom/{key}"), text)));
    files
}

fn corefile(
    files: BTreeMap<String, Text>,
    path: &str,
    variables: BTreeMap<String, String>,
) -> Option<Source> {
    let text = files.get(path)?.clone();
    let look: Box<Look<'static>> = Box::new(move |pattern: &str| found(&files, pattern));
    Some(Source::Corefile { text, variables, look })
}

/// The files of ConfigMaps that people name beside a Corefile of their own.
pub(super) fn files_beside(objects: &[Object]) -> BTreeMap<String, Text> {
    let mut files = BTreeMap::new();
    for object in objects.iter().filter(|object| object.is_map()) {
        let folder = if object.name().ends_with("-custom") { "/custom" } else { "" };
        let keys = object.keys().into_iter();
        files.extend(keys.map(|(key, text)| (format!("{HOME}{folder}/{key}"), text)));
    }
    files
}

/// The ConfigMaps of a volume: one by itself, or those of a projected volume.
pub(super) fn config_maps(volume: &Value) -> impl Iterator<Item = &Value> {
    let parts = volume["projected"]["sources"].as_array().into_iter().flatten();
    let all = std::iter::once(volume).chain(parts);
    all.map(|part| &part["configMap"]).filter(|map| map.is_object())
}

/// The ConfigMaps that the environment of a container is made of.
pub(super) fn config_maps_of_environment(container: &Value) -> impl Iterator<Item = &str> {
    let whole = container["envFrom"].as_array().into_iter().flatten();
    let single = container["env"].as_array().into_iter().flatten();
    let whole = whole.map(|it| &it["configMapRef"]["name"]);
    whole
        .chain(single.map(|it| &it["valueFrom"]["configMapKeyRef"]["name"]))
        .filter_map(Value::as_str)
}

fn aside(name: String, arguments: Vec<Argument>, why: &'static str) -> Source {
    Source::Aside { name, arguments, why }
}
