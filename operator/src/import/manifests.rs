//! Kubernetes objects of another DNS server as sources: ConfigMaps, and the arguments, environment and mounts of the
//! workloads that read them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crds::manifest::{Places, places_of};
use serde_json::Value;

use super::folder::mounted;
use super::report::Place;
use super::{Argument, Look, Source, Text};

/// Kinds that are read; others are passed over.
const KINDS: [&str; 6] =
    ["ConfigMap", "Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Pod"];
/// The keys of the ConfigMap of kube-dns.
const KUBE_DNS_KEYS: [&str; 3] = ["stubDomains", "upstreamNameservers", "federations"];
/// Where a Corefile is mounted, where no workload says so.
const HOME: &str = "/etc/coredns";

/// ConfigMaps by namespace and name.
type Maps<'a> = BTreeMap<(&'a str, &'a str), &'a Object>;

/// A document of the input: kind, namespace, name and content.
pub(super) struct Object {
    /// What it is called in messages.
    pub(super) file: String,
    pub(super) value: Value,
    /// Where its fields are, in these lines, where that is known.
    pub(super) places: Option<(Places, Rc<Vec<String>>)>,
}

/// The objects of a manifest.
///
/// # Errors
/// It is no YAML.
pub(super) fn objects(text: &Text) -> Result<Vec<Object>, String> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text.text)
        .map_err(|error| format!("{}: {}", text.file, crds::manifest::not_yaml(&error).1))?;
    let all: Vec<Value> = documents.into_iter().flat_map(items).filter(is_read).collect();
    let mut places = places_of(&text.text, |key, kind| key == "kind" && KINDS.contains(&kind));
    // An owner reference has a kind too: then lines are not known.
    if places.len() != all.len() {
        places.clear();
    }
    let lines: Rc<Vec<String>> = Rc::new(text.text.lines().map(str::to_owned).collect());
    let mut places = places.into_iter();
    let object = |value| {
        let places = places.next().map(|places| (places, lines.clone()));
        Object { file: text.file.clone(), value, places }
    };
    Ok(all.into_iter().map(object).collect())
}

fn items(mut document: Value) -> Vec<Value> {
    match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        Some(_) | None => vec![document],
    }
}

fn is_read(value: &Value) -> bool {
    // Objects of a typed list have no kind; the cluster gives them one.
    value["kind"].as_str().is_some_and(|kind| KINDS.contains(&kind))
}

impl Object {
    fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.value["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    fn is_map(&self) -> bool {
        self.value["kind"] == "ConfigMap"
    }

    fn place(&self, field: &str) -> Place {
        let line = self.places.as_ref().and_then(|(places, _)| places.of(field));
        Place { file: self.file.clone(), line: line.map_or(1, |place| place.line) }
    }

    /// The keys of a ConfigMap.
    fn keys(&self) -> BTreeMap<String, Text> {
        let data = self.value["data"].as_object().into_iter().flatten();
        let texts = data.filter_map(|(key, text)| Some((key.clone(), text.as_str()?)));
        texts.map(|(key, text)| (key.clone(), self.key(&key, text))).collect()
    }

    /// A text between indented lines has lines of the manifest; others are counted by themselves.
    fn key(&self, key: &str, text: &str) -> Text {
        let text = text.to_owned();
        let own = Text { file: format!("{}[{key}]", self.file), line: 1, text };
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

    /// The pods of a workload, with the path of that field.
    fn pods(&self) -> (&Value, &'static str) {
        match self.value["kind"] == "Pod" {
            true => (&self.value["spec"], "spec"),
            false => (&self.value["spec"]["template"]["spec"], "spec.template.spec"),
        }
    }
}

/// What these objects configure, and environment variables that people add.
pub(super) fn sources(objects: &[Object], variables: &BTreeMap<String, String>) -> Vec<Source> {
    let maps: Maps<'_> = objects
        .iter()
        .filter(|object| object.is_map())
        .map(|object| ((object.namespace(), object.name()), object))
        .collect();
    let mut used = BTreeSet::new();
    let mut sources = Vec::new();
    // Before dnsmasq, which gets the servers that are named there.
    let of_kube_dns = |keys: &BTreeMap<String, Text>| {
        keys.keys().any(|key| KUBE_DNS_KEYS.contains(&key.as_str()))
    };
    let configs = maps.values().map(|object| object.keys()).filter(of_kube_dns);
    sources.extend(configs.map(Source::KubeDnsConfig));
    for object in objects.iter().filter(|object| !object.is_map()) {
        let (pods, at) = object.pods();
        let containers = pods["containers"].as_array().into_iter().flatten().enumerate();
        for (index, container) in containers {
            let process =
                Process { object, value: container, path: format!("{at}.containers[{index}]") };
            let files = process.files(pods, &maps, &mut used);
            sources.extend(process.sources(files, variables));
        }
    }
    for (at, object) in &maps {
        let keys = object.keys();
        let is_used = used.contains(&(at.0.to_owned(), at.1.to_owned()));
        if keys.contains_key("Corefile") && !is_used {
            let files = alone(*at, keys, &maps);
            sources.extend(corefile(files, &format!("{HOME}/Corefile"), variables.clone()));
        }
    }
    sources
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
    let look: Box<Look<'static>> = Box::new(move |pattern: &str| mounted(&files, pattern));
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

/// One container of a workload.
struct Process<'a> {
    object: &'a Object,
    value: &'a Value,
    path: String,
}

impl Process<'_> {
    fn name(&self) -> &str {
        self.value["name"].as_str().unwrap_or_default()
    }

    fn arguments(&self) -> Vec<Argument> {
        let of = |field: &'static str| {
            let words = self.value[field].as_array().into_iter().flatten().enumerate();
            words.filter_map(move |(at, word)| {
                let place = self.object.place(&format!("{}.{field}[{at}]", self.path));
                Some(Argument { place, text: word.as_str()?.to_owned() })
            })
        };
        of("command").chain(of("args")).collect()
    }

    /// The ConfigMaps that it mounts, as files.
    fn files(
        &self,
        pods: &Value,
        maps: &Maps<'_>,
        used: &mut BTreeSet<(String, String)>,
    ) -> BTreeMap<String, Text> {
        let mut files = BTreeMap::new();
        for mount in self.value["volumeMounts"].as_array().into_iter().flatten() {
            let text = |field: &str| mount[field].as_str().unwrap_or_default();
            let volumes = pods["volumes"].as_array().into_iter().flatten();
            let volume = volumes.into_iter().find(|volume| volume["name"] == mount["name"]);
            let Some(source) = volume.map(|volume| &volume["configMap"]) else { continue };
            let name = source["name"].as_str().unwrap_or_default();
            let map = maps.get(&(self.object.namespace(), name)).or_else(|| maps.get(&("", name)));
            let Some(map) = map else { continue };
            used.insert((map.namespace().to_owned(), map.name().to_owned()));
            for (key, content) in map.keys() {
                let items = source["items"].as_array();
                let path = match items {
                    None => key,
                    Some(items) => match items.iter().find(|item| item["key"] == key.as_str()) {
                        Some(item) => item["path"].as_str().unwrap_or_default().to_owned(),
                        None => continue,
                    },
                };
                let folder = text("mountPath").trim_end_matches('/');
                let file = match text("subPath") {
                    "" => format!("{folder}/{path}"),
                    sub if sub == path => folder.to_owned(),
                    _ => continue,
                };
                files.insert(file, content);
            }
        }
        files
    }

    fn variables(&self, more: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let env = self.value["env"].as_array().into_iter().flatten();
        let env = env.filter_map(|it| {
            Some((it["name"].as_str()?.to_owned(), it["value"].as_str()?.to_owned()))
        });
        env.chain(more.clone()).collect()
    }

    fn sources(
        &self,
        files: BTreeMap<String, Text>,
        variables: &BTreeMap<String, String>,
    ) -> Vec<Source> {
        let arguments = self.arguments();
        let has = |word: &str| {
            arguments.iter().any(|it| it.text.trim_start_matches('-').starts_with(word))
        };
        let conf = arguments.iter().position(|it| it.text.trim_start_matches('-') == "conf");
        let conf = conf.and_then(|at| arguments.get(at + 1)).map(|it| it.text.clone());
        let path = conf.unwrap_or_else(|| format!("{HOME}/Corefile"));
        let name = self.name().to_owned();
        if files.contains_key(&path) {
            let mut sources: Vec<Source> =
                corefile(files, &path, self.variables(variables)).into_iter().collect();
            sources.push(aside(
                name,
                arguments,
                "the process is another one: its settings are in the ClusterDNS",
            ));
            return sources;
        }
        if has("config-dir") || has("kubecfg-file") || name == "kubedns" {
            let own = arguments.into_iter().filter(|it| it.text.starts_with('-')).collect();
            return vec![Source::KubeDnsArguments(own)];
        }
        if let Some(end) = arguments.iter().position(|it| it.text == "--") {
            let options = arguments[end + 1..].to_vec();
            let look: Box<Look<'static>> = Box::new(move |pattern: &str| mounted(&files, pattern));
            let why = "dnsmasq was started again at every change; here a change is live without a restart";
            return vec![
                aside(name, arguments[..end].to_vec(), why),
                Source::Dnsmasq { options, look },
            ];
        }
        let why = match has("probe") {
            true => {
                "the pods report their own health and metrics; spec.metrics.compatibility: [KubeDNS] shows the metrics of \
                 kube-dns too"
            }
            false => "another container of these pods, which answers no questions",
        };
        vec![aside(name, arguments, why)]
    }
}

fn aside(name: String, arguments: Vec<Argument>, why: &'static str) -> Source {
    Source::Aside { name, arguments, why }
}
