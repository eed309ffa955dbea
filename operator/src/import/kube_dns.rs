//! kube-dns: the keys of its ConfigMap and the arguments of its container.

use std::collections::BTreeMap;

use crds::config::MetricNames;
use crds::v1alpha1::{Server, StubDomain, Upstreams};
use serde_json::Value;

use super::draft::Draft;
use super::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};
use super::report::Place;
use super::values::{LINK_LOCAL, ServerError, is_reverse, name, server};
use super::{Argument, Text};

/// Flags without a word behind them.
const SWITCHES: [&str; 5] = ["logtostderr", "alsologtostderr", "profiling", "version", "help"];

/// In which order several servers are asked.
pub(super) const ORDER: &str = "a random one of these servers is asked first (policy: Random); dnsmasq stays with the one that \
                                answered it first (policy: Fastest is nearest to that)";

/// Converts the keys of the ConfigMap.
pub(super) fn keys(keys: &BTreeMap<String, Text>, draft: &mut Draft) {
    for (key, text) in keys {
        let place = Place { file: text.file.clone(), line: text.line };
        match key.as_str() {
            "stubDomains" => stub_domains(&place, &text.text, draft),
            "upstreamNameservers" => upstreams(&place, &text.text, draft),
            "federations" => federations(&place, &text.text, draft),
            _ => draft.report.add(&place, NotNeeded, key, "kube-dns reads no key of this name"),
        }
    }
}

fn stub_domains(place: &Place, text: &str, draft: &mut Draft) {
    let Some(Value::Object(domains)) = json(text) else {
        let message =
            "it is no JSON object of domains, so kube-dns ignores it too: write spec.stubDomains";
        return draft.report.add(place, NotPossible, "stubDomains", message);
    };
    for (written, servers) in domains {
        let domain = name(&written);
        let what = format!("stubDomains: {written}");
        let servers = self::servers(place, &what, &servers, draft);
        let servers = match is_needless(&domain, &servers, draft) {
            true => servers,
            false => usable(place, &what, servers, draft),
        };
        let (outcome, message) = match servers.is_empty() && !draft.is_ours(&domain) {
            true => (
                NotPossible,
                "no server is left, so these names go to spec.upstreams: write addresses in spec.stubDomains"
                    .to_owned(),
            ),
            false => add_stub(&domain, servers, draft),
        };
        draft.report.add(place, outcome, &what, message);
    }
}

/// Does the cluster answer these names itself? What is in the cluster domain or reverse, and is asked on the pod itself or at the
/// server that is replaced, it does.
fn is_needless(domain: &str, servers: &[Server], draft: &Draft) -> bool {
    let is_old = |server: &Server| is_pod(server) || draft.replaced.has_address(&server.address);
    let is_own = !servers.is_empty() && servers.iter().all(is_old);
    domain == draft.spec.domain || is_own && (draft.is_ours(domain) || is_reverse(domain))
}

/// Is it the pod that asks?
pub(super) fn is_pod(server: &Server) -> bool {
    server.address.starts_with("127.") || server.address == "::1"
}

/// The servers that a group can have; each of the others is reported.
fn usable(place: &Place, what: &str, servers: Vec<Server>, draft: &mut Draft) -> Vec<Server> {
    let (usable, lost) = draft.usable(servers);
    for why in lost {
        draft.report.add(place, NotPossible, what, why);
    }
    usable
}

/// Adds a stub domain; what the cluster answers itself needs none.
pub(super) fn add_stub(domain: &str, servers: Vec<Server>, draft: &mut Draft) -> (Outcome, String) {
    if is_needless(domain, &servers, draft) {
        return (NotNeeded, "names of the cluster are answered from memory".to_owned());
    }
    // dnsmasq asked these servers, because their suffix is the longer one.
    if draft.is_ours(domain) {
        let message = format!(
            "{domain} is in the cluster domain, whose names are answered from memory and never asked elsewhere, so those that \
             these servers know do not exist here: give the cluster that has them a domain of its own, with a stub domain to its \
             servers, or write single names as spec.hosts with overrideClusterZone: true"
        );
        return (NotPossible, message);
    }
    let is_one = servers.len() == 1;
    let stub = StubDomain {
        domain: domain.to_owned(),
        servers,
        policy: Default::default(),
        case_randomisation: false,
        limits: None,
        cache: None,
        withheld_types: None,
    };
    match draft.stub_domain(stub) {
        Ok(Some(differs)) => (Changed, format!("spec.stubDomains: {domain}; {differs}")),
        Ok(None) if is_one => (Kept, format!("spec.stubDomains: {domain}")),
        Ok(None) => (Changed, format!("spec.stubDomains: {domain}; {ORDER}")),
        Err(why) => (NotPossible, format!("{domain}: {why}")),
    }
}

fn upstreams(place: &Place, text: &str, draft: &mut Draft) {
    let what = "upstreamNameservers";
    let Some(list @ Value::Array(_)) = json(text) else {
        let message =
            "it is no JSON list, so kube-dns ignores it too: write spec.upstreams.servers";
        return draft.report.add(place, NotPossible, what, message);
    };
    let is_written = list.as_array().is_some_and(|list| !list.is_empty());
    let servers = servers(place, what, &list, draft);
    let servers = usable(place, what, servers, draft);
    if servers.is_empty() {
        let (outcome, message) = match is_written {
            true => (NotPossible, "no server is left, so those of the node are asked"),
            false => (NotNeeded, "without servers those of the node are asked"),
        };
        return draft.report.add(place, outcome, what, message);
    }
    let is_one = servers.len() == 1;
    let upstreams = Upstreams { servers: Some(servers), ..Upstreams::default() };
    match draft.upstreams(upstreams) {
        Ok(None) if is_one => draft.report.add(place, Kept, what, "spec.upstreams.servers"),
        Ok(differs) => {
            let more = differs.as_deref().unwrap_or(ORDER);
            let message = format!("spec.upstreams.servers; {more}");
            draft.report.add(place, Changed, what, message);
        }
        Err(why) => draft.report.add(place, NotPossible, what, why),
    }
}

/// The valid servers of a list.
fn servers(place: &Place, what: &str, list: &Value, draft: &mut Draft) -> Vec<Server> {
    let mut found = Vec::new();
    for text in list.as_array().into_iter().flatten() {
        let text = text.as_str().unwrap_or_default();
        match server(text, None) {
            Ok(server) => found.push(server),
            Err(why) => {
                let why = match why {
                    ServerError::LinkLocal => LINK_LOCAL,
                    ServerError::NoAddress | ServerError::NoName | ServerError::Transport(_) => {
                        "is no IP address: a server by name would need DNS to be found, so write its address"
                    }
                };
                draft.report.add(place, NotPossible, what, format!("{text:?} {why}"));
            }
        }
    }
    found
}

/// `NAME=DOMAIN,...`
fn federations(place: &Place, text: &str, draft: &mut Draft) {
    for federation in text.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let what = format!("federations: {federation}");
        let (outcome, message) = match federation.split_once('=') {
            Some((name, domain)) => super::federations::add(name.trim(), domain.trim(), draft),
            None => (
                NotPossible,
                "it is not NAME=DOMAIN, so kube-dns ignores it too: write spec.federations"
                    .to_owned(),
            ),
        };
        draft.report.add(place, outcome, &what, message);
    }
}

/// The names of its metrics: kept where its container is known, else named.
pub(super) fn metrics(place: &Place, is_container_known: bool, draft: &mut Draft) {
    let what = "metrics of kube-dns";
    if !is_container_known {
        let message = "skydns_* and kubedns_* end: where dashboards or alerts use them, write spec.metrics.compatibility: [CoreDNS, \
                       KubeDNS]";
        return draft.report.add(place, Changed, what, message);
    }
    let change = |spec: &mut crds::ClusterDNSSpec| {
        let metrics = spec.metrics.get_or_insert_default();
        if !metrics.compatibility.contains(&MetricNames::KubeDNS) {
            metrics.compatibility.push(MetricNames::KubeDNS);
        }
    };
    let (outcome, message) = match draft.change(change) {
        Ok(()) => (
            Changed,
            "spec.metrics.compatibility: KubeDNS: ports 10054 and 10055 of the pods show skydns_* and kubedns_*; docs/metrics.md \
             says what each counts here"
                .to_owned(),
        ),
        Err(why) => (NotPossible, why),
    };
    draft.report.add(place, outcome, what, message);
}

fn json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// The flags among the words of a container, each in one: `--domain a.example` is `--domain=a.example`.
pub(super) fn flags(words: Vec<Argument>) -> Vec<Argument> {
    let takes_word = |flag: &str| {
        let name = flag.trim_start_matches('-');
        flag.starts_with('-')
            && !name.is_empty()
            && !name.contains('=')
            && !SWITCHES.contains(&name)
    };
    let mut flags: Vec<Argument> = Vec::new();
    // The program and what starts it are in front.
    for word in words.into_iter().skip_while(|word| !word.text.starts_with('-')) {
        match flags.last_mut() {
            Some(flag) if !word.text.starts_with('-') && takes_word(&flag.text) => {
                flag.text = format!("{}={}", flag.text, word.text);
            }
            Some(_) | None => flags.push(word),
        }
    }
    flags
}

/// The cluster domain that the container was given.
pub(super) fn domain(arguments: &[Argument]) -> Option<String> {
    let texts = arguments.iter().map(|argument| argument.text.trim_start_matches('-'));
    let written = texts.filter_map(|text| text.strip_prefix("domain=")).next_back()?;
    Some(name(written)).filter(|domain| !domain.is_empty())
}

/// Converts the arguments of the container kubedns.
pub(super) fn arguments(arguments: &[Argument], draft: &mut Draft) {
    for argument in arguments {
        let text = argument.text.trim_start_matches('-');
        let (flag, value) = text.split_once('=').unwrap_or((text, ""));
        let place = &argument.place;
        let what = format!("kubedns {}", argument.text);
        let (outcome, message) = match flag {
            "domain" if name(value) == draft.spec.domain => {
                (Kept, format!("spec.domain: {}", draft.spec.domain))
            }
            "domain" => (NotPossible, format!("spec.domain is {} already", draft.spec.domain)),
            "federations" => {
                federations(place, value, draft);
                continue;
            }
            "nameservers" if !value.is_empty() => {
                let list = value.split(',').map(|it| Value::String(it.trim().to_owned())).collect();
                upstreams(place, &Value::Array(list).to_string(), draft);
                continue;
            }
            "nameservers" => (NotNeeded, "without servers those of the node are asked".to_owned()),
            "dns-port" | "dns-bind-address" => {
                (NotNeeded, "dnsmasq asked it there; one program answers here".to_owned())
            }
            "config-dir" | "config-map" | "config-map-namespace" | "config-period" => (
                NotNeeded,
                "a changed ClusterDNS reaches one pod within seconds, and the others after its trial (spec.rollout, 30 s by \
                 default)"
                    .to_owned(),
            ),
            "kubecfg-file" | "kube-master-url" => {
                (NotNeeded, "pods reach the API server by their service account".to_owned())
            }
            "healthz-port" => {
                (NotNeeded, "the pods have /livez and /readyz on port 9153".to_owned())
            }
            "initial-sync-timeout" => {
                (NotNeeded, "a pod is ready when everything has been listed".to_owned())
            }
            "v" | "logtostderr" | "vmodule" | "stderrthreshold" | "alsologtostderr" | "log-dir" => {
                (Changed, "spec.logging.level says what is logged".to_owned())
            }
            "profiling" => (NotNeeded, "there are no profiles to read".to_owned()),
            _ => (NotPossible, "this program does not know this flag of kube-dns".to_owned()),
        };
        draft.report.add(place, outcome, &what, message);
    }
}
