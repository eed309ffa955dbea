//! One container of a workload: which DNS server runs in it, with which arguments, environment and files.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{BASE, COREFILE, HOME, Maps, Object, Room, aside, config_maps, corefile, found};
use crate::import::kube_dns::flags;
use crate::import::report::Outcome;
use crate::import::{Argument, Look, Source, Text, dnsmasq};

/// The program dnsmasq, as containers and commands name it.
const DNSMASQ: &str = "dnsmasq";
/// The file that dnsmasq reads where no option names another one.
const DNSMASQ_CONF: &str = "/etc/dnsmasq.conf";

/// What a container mounts of ConfigMaps.
#[derive(Default)]
pub(super) struct Mounted {
    /// Files by their path.
    pub(super) files: BTreeMap<String, Text>,
    /// The namespace and name of the ConfigMap of each file.
    pub(super) maps: BTreeMap<String, (String, String)>,
    /// The path of a Corefile, by its key or as NodeLocal DNSCache names it.
    pub(super) corefile: Option<String>,
}

impl Mounted {
    /// The keys that a volume takes of a ConfigMap, where the container has them.
    fn add(&mut self, map: &Object, source: &Value, mount: &Value) {
        let text = |field: &str| mount[field].as_str().unwrap_or_default();
        for (key, content) in map.keys() {
            let path = match source["items"].as_array() {
                None => key.clone(),
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
            if key == COREFILE || file.ends_with(BASE) {
                self.corefile.get_or_insert_with(|| file.clone());
            }
            let at = (map.namespace().to_owned(), map.name().to_owned());
            self.maps.insert(file.clone(), at);
            self.files.insert(file, content);
        }
    }
}

/// The program of one container of a workload.
pub(super) struct Program<'a> {
    pub(super) object: &'a Object,
    pub(super) value: &'a Value,
    pub(super) path: String,
}

impl Program<'_> {
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
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn mounted(
        &self,
        pods: &Value,
        maps: &Maps<'_>,
        room: &mut Room,
    ) -> Result<Mounted, String> {
        let mut mounted = Mounted::default();
        for mount in self.value["volumeMounts"].as_array().into_iter().flatten() {
            let volumes = pods["volumes"].as_array().into_iter().flatten();
            let volume = volumes.into_iter().find(|volume| volume["name"] == mount["name"]);
            for source in volume.into_iter().flat_map(config_maps) {
                let name = source["name"].as_str().unwrap_or_default();
                let map = maps.get(&(self.object.namespace(), name));
                if let Some(map) = map.or_else(|| maps.get(&("", name))) {
                    room.take(map)?;
                    mounted.add(map, source, mount);
                }
            }
        }
        Ok(mounted)
    }

    /// The ConfigMaps that flags name. Old versions of kube-dns read them from the API server.
    pub(super) fn named_maps(&self) -> Vec<String> {
        let arguments = flags(self.arguments()).into_iter();
        let name = |it: Argument| {
            it.text.trim_start_matches('-').strip_prefix("config-map=").map(str::to_owned)
        };
        arguments.filter_map(name).collect()
    }

    /// The path of its Corefile among the mounted files. NodeLocal DNSCache makes the file of `-conf` itself, of a mounted
    /// one.
    pub(super) fn corefile(&self, mounted: &Mounted) -> Option<String> {
        let arguments = self.arguments();
        let mut words = arguments.iter().map(|it| it.text.trim_start_matches('-'));
        let conf = words.find_map(|word| match word {
            "conf" => Some(None),
            word => word.strip_prefix("conf=").map(Some),
        });
        // The word after it.
        let written = conf.and_then(|value| value.or_else(|| words.next()));
        let path = written.map_or_else(|| format!("{HOME}/{COREFILE}"), str::to_owned);
        if mounted.files.contains_key(&path) {
            return Some(path);
        }
        conf.and(mounted.corefile.clone())
    }

    /// The variables of its environment that are written, or that ConfigMaps have. Others are not known.
    fn variables(
        &self,
        maps: &Maps<'_>,
        more: &BTreeMap<String, String>,
        room: &mut Room,
    ) -> Result<BTreeMap<String, String>, String> {
        let mut keys = |name: &Value| {
            let name = name.as_str().unwrap_or_default();
            let map = maps.get(&(self.object.namespace(), name)).or_else(|| maps.get(&("", name)));
            let Some(map) = map else { return Ok(BTreeMap::new()) };
            room.take(map)?;
            Ok::<_, String>(map.keys())
        };
        let mut all = BTreeMap::new();
        for from in self.value["envFrom"].as_array().into_iter().flatten() {
            let prefix = from["prefix"].as_str().unwrap_or_default();
            for (key, text) in keys(&from["configMapRef"]["name"])? {
                all.insert(format!("{prefix}{key}"), text.text);
            }
        }
        for it in self.value["env"].as_array().into_iter().flatten() {
            let Some(name) = it["name"].as_str() else { continue };
            let from = &it["valueFrom"]["configMapKeyRef"];
            let value = match (it["value"].as_str(), from["key"].as_str()) {
                (Some(value), _) => Some(value.to_owned()),
                (None, Some(key)) => keys(&from["name"])?.remove(key).map(|text| text.text),
                (None, None) => None,
            };
            all.extend(value.map(|value| (name.to_owned(), value)));
        }
        all.extend(more.clone());
        Ok(all)
    }

    pub(super) fn sources(
        &self,
        mounted: Mounted,
        maps: &Maps<'_>,
        variables: &BTreeMap<String, String>,
        room: &mut Room,
    ) -> Result<Vec<Source>, String> {
        let arguments = self.arguments();
        let path = self.corefile(&mounted);
        let files = mounted.files;
        let has = |word: &str| {
            arguments.iter().any(|it| it.text.trim_start_matches('-').starts_with(word))
        };
        let name = self.name().to_owned();
        if let Some(path) = path {
            let variables = self.variables(maps, variables, room)?;
            let mut sources: Vec<Source> = corefile(files, &path, variables).into_iter().collect();
            sources.push(aside(
                name,
                arguments,
                "the process is another one: its settings are in the ClusterDNS",
            ));
            return Ok(sources);
        }
        if has("config-dir") || has("kubecfg-file") || name == "kubedns" {
            return Ok(vec![Source::KubeDnsArguments(flags(arguments))]);
        }
        if let Some(end) = arguments.iter().position(|it| it.text == "--") {
            let options = arguments[end + 1..].to_vec();
            let look: Box<Look<'static>> = Box::new(move |pattern: &str| found(&files, pattern));
            let why = "dnsmasq was started again at every change; here a change is live without a restart";
            return Ok(vec![
                aside(name, arguments[..end].to_vec(), why),
                Source::Dnsmasq { options, look },
            ]);
        }
        if let Some(options) = dnsmasq_options(&name, &arguments) {
            return Ok(self.dnsmasq(name, options, files));
        }
        if has("probe") {
            return Ok(vec![Source::Sidecar { name, arguments }]);
        }
        let why = "another container of these pods, which answers no questions";
        Ok(vec![aside(name, arguments, why)])
    }

    /// A container that runs dnsmasq itself, without the program that starts it again.
    fn dnsmasq(
        &self,
        name: String,
        options: Option<Vec<Argument>>,
        files: BTreeMap<String, Text>,
    ) -> Vec<Source> {
        let Some(mut options) = options else {
            let message = "a shell or another program starts dnsmasq here: write its options into a file, and name that \
                           with --dnsmasq";
            return vec![Source::Note {
                place: self.object.place(&self.path),
                outcome: Outcome::NotPossible,
                what: format!("container {name}"),
                message: message.to_owned(),
            }];
        };
        let names_file =
            |it: &Argument| it.text.starts_with("--conf-file") || it.text.starts_with("-C");
        if let Some(text) = files.get(DNSMASQ_CONF).filter(|_| !options.iter().any(names_file)) {
            options.extend(dnsmasq::written(text));
        }
        let look: Box<Look<'static>> = Box::new(move |pattern: &str| found(&files, pattern));
        vec![Source::Dnsmasq { options, look }]
    }
}

/// The options of dnsmasq, where a container of this name with these words runs it; `None` inside where it is hidden in the
/// words of another program.
fn dnsmasq_options(name: &str, words: &[Argument]) -> Option<Option<Vec<Argument>>> {
    let is_program = |it: &Argument| it.text.rsplit('/').next() == Some(DNSMASQ);
    match words.iter().position(is_program) {
        Some(at) => Some(Some(words[at + 1..].to_vec())),
        None if name != DNSMASQ => None,
        None => {
            let is_option = |it: &Argument| it.text.starts_with('-');
            Some(words.first().is_none_or(is_option).then(|| words.to_vec()))
        }
    }
}
