//! O17: what a canary is judged by. Each row of `canary.yaml` is a change of the spec that one pod tries; both pods are the
//! real core, the servers behind them answer by script, and the operator's own code asks, judges and decides, look by look.

use std::collections::BTreeMap;
use std::time::Duration;

use crds::{ClusterDNS, Config};
use hickory_proto::op::Message;
use hickory_proto::rr::{Name, RecordType};
use k8s_openapi::jiff::Timestamp;
use operator::ask_pods::canary_analysis::judge::Asked;
use operator::ask_pods::canary_analysis::progress::Progress;
use operator::ask_pods::canary_analysis::question::Question;
use operator::ask_pods::canary_analysis::questions::questions;
use operator::ask_pods::canary_analysis::reply::{NoReply, Reply};
use operator::ask_pods::canary_analysis::{Versions, comparison, query};
use operator::decide::plan::RolloutPlan;
use operator::decide::{config_map, rollout};
use operator::observe::observed::{
    KnownClients, Observed, PodReport, Reported, Sample, SampledService,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tests::client::Transport;
use tests::scenario::Core;
use tests::scenario::objects::merge;

/// The version of every sampled Service before a round.
const VERSION: &str = "7";
/// Seconds between two rounds of questions.
const EVERY: i64 = 4;
/// Rounds until a canary must have been judged, or is held.
const ROUNDS: i64 = 8;

#[derive(Deserialize)]
struct Table {
    base: Value,
    servers: String,
    objects: String,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    change: String,
    #[serde(default)]
    before: Value,
    spec: Value,
    /// Ranges from which nodes give addresses to pods.
    #[serde(default)]
    ranges: Vec<ipnet::IpNet>,
    /// Addresses of nodes.
    #[serde(default)]
    nodes: Vec<std::net::IpAddr>,
    /// NodeLocal DNSCache asks our pods.
    #[serde(default)]
    node_local: bool,
    #[serde(default)]
    heard: Problem,
    verdict: String,
    #[serde(default)]
    words: Vec<String>,
}

/// What the operator hears instead of replies.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Problem {
    canary: Option<String>,
    stable: Option<String>,
    rounds: Vec<i64>,
    /// Services whose names the canary does not answer, because their owners change them in every round.
    toggled: Vec<String>,
    /// The same for Services that do not change.
    lost: Vec<String>,
    /// Questions to which the canary replies NOERROR and nothing else, as messages name them.
    without: Vec<String>,
}

impl Problem {
    fn is_in(&self, round: i64) -> bool {
        self.rounds.is_empty() || self.rounds.contains(&round)
    }
}

/// Two pods and an operator.
struct Stage<'a> {
    row: &'a Row,
    canary: Core,
    stable: Core,
    configs: (Config, Config),
    observed: Observed,
    dns: ClusterDNS,
    progress: Progress,
}

fn dns(spec: &Value, generation: i64) -> ClusterDNS {
    let object = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "spec": spec,
        "metadata": {"name": "default", "uid": "dns-uid", "generation": generation}});
    serde_json::from_value(object).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + seconds).expect("a time")
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

impl<'a> Stage<'a> {
    fn new(table: &Table, row: &'a Row, objects: &[Value]) -> Stage<'a> {
        let spec = |change: &Value| {
            let mut spec = table.base.clone();
            if !change.is_null() {
                merge(&mut spec, change);
            }
            spec
        };
        let (before, after) = (dns(&spec(&row.before), 1), dns(&spec(&row.spec), 2));
        let config = |dns: &ClusterDNS| {
            crds::check_resource(dns).unwrap_or_else(|why| panic!("{}: {why}", row.change))
        };
        let configs = (config(&after), config(&before));
        let core = |dns: &ClusterDNS| {
            let with = [objects, &[serde_json::to_value(dns).expect("JSON")]].concat();
            Core::new(&with)
                .and_then(|core| core.with_servers(&table.servers))
                .unwrap_or_else(|why| panic!("{}: {why:#}", row.change))
        };
        let (canary, stable) = (core(&after), core(&before));
        let mut observed = observed(objects);
        observed.known_clients = KnownClients {
            pod_ranges: row.ranges.clone(),
            nodes: row.nodes.clone(),
            has_node_local: row.node_local,
        };
        let exists = |name: &&String| observed.sample.namespaces.contains_key(*name);
        let named = configs.0.exposure.namespaces.iter();
        observed.sample.missing = named.filter(|name| !exists(name)).cloned().collect();
        let progress = Progress::default();
        let mut stage = Stage { row, canary, stable, configs, observed, dns: before, progress };
        stage.look(0);
        stage.pods_follow();
        stage.dns = after;
        stage
    }

    /// What is decided is written, as the operator does.
    fn look(&mut self, seconds: i64) -> RolloutPlan {
        let config = crds::check_resource(&self.dns).expect("it was valid before");
        let plan = rollout::plan(&self.dns, &config, &self.observed, at(seconds));
        let mut data = json!({"stable.json": plan.stable,
            "rollout.json": serde_json::to_string(&plan.state).expect("JSON")});
        if let Some(canary) = &plan.canary {
            data["canary.json"] = json!(canary);
        }
        self.observed.config_map = Some(object(json!({"data": data})));
        plan
    }

    /// Every pod runs its configuration.
    fn pods_follow(&mut self) {
        let state = config_map::state(&self.observed);
        for number in 1..4 {
            let uid = format!("dns-{number}-uid");
            let is_canary = state.canary_pod.as_ref().is_some_and(|pod| pod.uid == uid);
            let revision = if is_canary { &state.canary } else { &state.stable };
            let reported = Reported {
                process: uid.clone(),
                revision: revision.clone(),
                max_format: 1,
                ..Reported::default()
            };
            let (reported, age) = (Ok(reported), Duration::ZERO);
            let answer = PodReport { reported, age, before: None, is_silent: false };
            self.observed.pod_reports.insert(uid, answer);
        }
    }

    /// One round of questions, as the operator would hear it.
    fn round(&mut self, round: i64) {
        let state = config_map::state(&self.observed);
        let (config, before) = (&self.configs.0, &self.configs.1);
        let labels = ("fresh", &state.worse[..]);
        let asked: Vec<Asked> =
            questions(config, before, &self.observed, labels, &mut self.progress)
                .into_iter()
                .map(|question| {
                    let trouble = Some(&self.row.heard).filter(|trouble| trouble.is_in(round));
                    let of = |which: fn(&Problem) -> &Option<String>| {
                        trouble.and_then(|trouble| which(trouble).as_deref())
                    };
                    let skewed = [&self.row.heard.toggled[..], &self.row.heard.lost[..]].concat();
                    let is_skewed =
                        question.of.as_ref().is_some_and(|of| skewed.contains(&of.name));
                    let instead = if self.row.heard.without.contains(&question.what) {
                        Some("empty")
                    } else if is_skewed {
                        Some("denied")
                    } else {
                        of(|it| &it.canary)
                    };
                    let canary = heard(&self.canary, &question, instead);
                    let stable = heard(&self.stable, &question, of(|trouble| &trouble.stable));
                    Asked { question, canary, stable }
                })
                .collect();
        let uid = state.canary_pod.expect("a canary").uid;
        let configs = (config, before);
        let versions = self.versions_after(round);
        let reported = comparison(
            &uid,
            &state.canary,
            configs,
            &self.observed,
            (&asked, &versions),
            &self.progress,
        );
        self.observed.comparison = Some(reported);
    }

    /// Versions of the sampled Services after a round. Owners may change theirs all the time.
    fn versions_after(&self, round: i64) -> Versions {
        let services = self.observed.sample.services.iter();
        let is_toggled = |name: &str| self.row.heard.toggled.iter().any(|it| it == name);
        let version = |service: &SampledService| match is_toggled(&service.name) {
            true => format!("{VERSION} and {round}"),
            false => VERSION.to_owned(),
        };
        services.map(|it| ((it.namespace.clone(), it.name.clone()), version(it))).collect()
    }

    /// The verdict, and its words.
    fn verdict(&mut self) -> (&'static str, String) {
        let asked = self.configs.0.revision();
        let named = self.look(100);
        if named.state.stable == asked {
            return ("passes", String::new());
        }
        assert!(named.canary.is_some(), "{}: no pod tries it", self.row.change);
        self.pods_follow();
        let mut held = None;
        for round in 1..=ROUNDS {
            self.round(round);
            let plan = self.look(100 + round * EVERY);
            if plan.state.stable == asked {
                return ("passes", plan.state.warning);
            }
            if !plan.state.failed.is_empty() && !plan.state.is_unjudged {
                return ("fails", plan.state.failure);
            }
            held = plan.held;
        }
        match held {
            Some(held) => ("holds", format!("{}: {}", held.by.reason(), held.why)),
            None => ("stays on trial", format!("{:?}", self.observed.comparison)),
        }
    }
}

/// What a pod replies to each part of a question, or what is heard instead.
fn heard(core: &Core, question: &Question, instead: Option<&str>) -> Vec<Reply> {
    let one = |(name, kind): &(Name, RecordType)| match instead {
        Some("silent") => Err(NoReply::Silent("no reply within 1 s".to_owned())),
        Some("closed") => Err(NoReply::Closed("connection refused".to_owned())),
        Some("denied") => {
            let code = hickory_proto::op::ResponseCode::NXDomain;
            Ok(Message::error_msg(1, hickory_proto::op::OpCode::Query, code))
        }
        Some("empty") => Ok(Message::response(1, hickory_proto::op::OpCode::Query)),
        Some("unsent") => Err(NoReply::Unsent("no route to host".to_owned())),
        Some(other) => panic!("no pod gets {other}"),
        None => {
            let packet = query(name, *kind).to_vec().expect("a query");
            let outcome = core.ask(&packet, Transport::Udp, 1).expect("every server has a script");
            Ok(Message::from_vec(&outcome.reply.expect("a reply")).expect("a message"))
        }
    };
    question.asked.iter().map(one).collect()
}

/// Three ready pods, a Service, and some of what is in the cluster.
fn observed(objects: &[Value]) -> Observed {
    let pod = |number: u32| {
        object(
            json!({"metadata": {"name": format!("dns-{number}"), "uid": format!("dns-{number}-uid")},
            "status": {"podIP": format!("10.244.{number}.5"), "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": at(-100 + i64::from(number)).to_string()}]}}),
        )
    };
    let of_kind = |kind: &'static str| objects.iter().filter(move |it| it["kind"] == kind);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = |it: &Value| -> BTreeMap<String, String> {
        serde_json::from_value(it["metadata"]["labels"].clone()).unwrap_or_default()
    };
    let service = of_kind("Service").find(|it| it["metadata"]["name"] == "kube-dns");
    let mut service = service.expect("our own Service").clone();
    service["metadata"]["ownerReferences"] = json!([{"apiVersion": "clusterdns.dev/v1alpha1",
        "kind": "ClusterDNS", "name": "default", "uid": "dns-uid"}]);
    Observed {
        service: Some(object(service)),
        deployment: Some(object(json!({"metadata": {"generation": 1},
            "spec": {"replicas": 3, "selector": {}, "template": {}},
            "status": {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
                "availableReplicas": 3}}))),
        pods: (1..4).map(pod).collect(),
        sample: Sample {
            namespaces: of_kind("Namespace")
                .map(|it| (text(&it["metadata"]["name"]), labels(it)))
                .collect(),
            services: of_kind("Service")
                .map(|it| SampledService {
                    namespace: text(&it["metadata"]["namespace"]),
                    name: text(&it["metadata"]["name"]),
                    labels: labels(it),
                    address: text(&it["spec"]["clusterIP"]).parse().ok(),
                    version: VERSION.to_owned(),
                })
                .collect(),
            ..Sample::default()
        },
        ..Observed::default()
    }
}

#[test]
fn o17_each_change_gets_the_verdict_that_its_clients_would_give() {
    let table: Table = serde_saphyr::from_str(include_str!("canary.yaml")).expect("the table");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&table.objects).expect("objects");
    assert!(table.rows.len() >= 30, "{} rows", table.rows.len());
    let mut wrong = Vec::new();
    for row in &table.rows {
        let (verdict, words) = Stage::new(&table, row, &objects).verdict();
        let has_words = row.words.iter().all(|text| words.contains(text));
        let is_silent = verdict != "passes" || !row.words.is_empty() || words.is_empty();
        if verdict != row.verdict || !has_words || !is_silent {
            wrong.push(format!("{}: {verdict}, not {}: {words}", row.change, row.verdict));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
