//! The cluster of docs/dns.md §9.1 with its golden examples, for tests of the states of §9.11:
//! its rows can be asked of a data plane at any moment, one by one.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crds::Config;
use dataplane::source::api::{Options, Wanted};
use serde_json::{Value, json};

use crate::client::{self, Question, Text, Transport};
use crate::live::{self, Live};
use crate::scenario::{self, Cluster, objects, upstreams};
use crate::scratch::Scratch;
use crate::upstream::ScriptedUpstream;

/// What the ConfigMap with the configuration is called.
const CONFIG_MAP: (&str, &str) = ("dns", "clusterdns");

/// The shop: its objects, its rows, and a scripted server instead of every upstream.
#[derive(Debug)]
pub struct Shop {
    objects: Vec<Value>,
    rows: BTreeMap<String, Vec<(Question, Text)>>,
    upstreams: Vec<(IpAddr, ScriptedUpstream)>,
    files: Scratch,
}

impl Shop {
    /// The shop as §9.1 has it.
    pub fn open() -> Shop {
        Shop::with(&Value::Null)
    }

    /// The same with this merged into the spec of its ClusterDNS.
    pub fn with(spec: &Value) -> Shop {
        let clusters = Cluster::all().expect("scenarios");
        // Most scenarios take place in the shop as it is.
        let cluster = clusters.into_iter().max_by_key(|cluster| cluster.scenarios.len());
        let Cluster { mut objects, scenarios } = cluster.expect("a scenario");
        let upstreams = upstreams(&objects).expect("scripted upstreams");
        let twins: BTreeMap<IpAddr, SocketAddr> =
            upstreams.iter().map(|(address, twin)| (*address, twin.address())).collect();
        objects::redirect(&mut objects, &twins).expect("a twin for each");
        // The rows are written for an empty cache (§9.2), and these tests ask the same question again and again.
        objects::merge(configuration(&mut objects), &json!({"cache": {"entries": 0}}));
        if !spec.is_null() {
            objects::merge(configuration(&mut objects), spec);
        }
        let mut rows: BTreeMap<String, Vec<(Question, Text)>> = BTreeMap::new();
        for block in scenarios.iter().flat_map(|scenario| scenario.answers.blocks()) {
            for (row, question) in &block.questions {
                let asked = (question.clone(), block.expected.clone());
                rows.entry(row.clone()).or_default().push(asked);
            }
        }
        let files = Scratch::new("shop").expect("a scratch directory");
        Shop { objects, rows, upstreams, files }
    }

    /// The objects of Kubernetes: all but the ClusterDNS.
    pub fn objects(&self) -> Vec<Value> {
        self.objects.iter().filter(|object| object["kind"] != "ClusterDNS").cloned().collect()
    }

    /// What it runs, with this merged into its spec.
    ///
    /// # Panics
    /// When that is refused.
    pub fn config(&self, spec: &Value) -> Config {
        let mut objects = self.objects.clone();
        objects::merge(configuration(&mut objects), spec);
        scenario::config(&objects).expect("a configuration that is accepted")
    }

    /// A ConfigMap as the operator writes it.
    pub fn config_map(&self, config: &Config) -> Value {
        let (namespace, name) = CONFIG_MAP;
        json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"stable.json": config.to_json()},
               "metadata": {"namespace": namespace, "name": name}})
    }

    /// Options of a data plane that is given the ClusterDNS as a file.
    pub fn options(&self, kubeconfig: &Path) -> Options {
        Options { wanted: Wanted::File(self.file()), ..live::options(kubeconfig) }
    }

    /// Options of a data plane that takes its configuration from [`Shop::config_map`].
    pub fn options_with_config_map(&self, kubeconfig: &Path) -> Options {
        let (namespace, name) = CONFIG_MAP;
        let wanted =
            Wanted::ConfigMap { namespace: namespace.into(), name: name.into(), mounted: None };
        Options { wanted, ..live::options(kubeconfig) }
    }

    /// The file with the ClusterDNS.
    pub fn file(&self) -> PathBuf {
        self.file_with(&json!({}))
    }

    /// The same file, with this merged into the spec from now on.
    pub fn file_with(&self, spec: &Value) -> PathBuf {
        let mut objects = self.objects.clone();
        objects::merge(configuration(&mut objects), spec);
        let dns = objects.iter().find(|object| object["kind"] == "ClusterDNS");
        let text = dns.expect("a ClusterDNS").to_string();
        self.files.write("dns.yaml", text).expect("the directory is ours")
    }

    /// Where the scripted server that replaces this upstream listens, as a spec names it.
    pub fn twin(&self, upstream: &str) -> Value {
        let found = self.upstreams.iter().find(|(address, _)| address.to_string() == upstream);
        let (_, twin) = found.unwrap_or_else(|| panic!("{upstream} has no script"));
        json!({"address": twin.address().ip(), "port": twin.address().port()})
    }

    pub fn state_dir(&self) -> PathBuf {
        self.files.path().join("state")
    }

    /// The rows from one number to another for which there are questions.
    pub fn rows(&self, from: u32, to: u32) -> Vec<String> {
        let rows = (from..=to).map(|number| format!("G{number}"));
        rows.filter(|row| self.rows.contains_key(row)).collect()
    }

    /// Asks the questions of these rows over UDP; says where replies differ from what is written there.
    pub fn differences(&self, live: &Live, rows: &[impl AsRef<str>]) -> Vec<String> {
        self.differences_with(live, rows, |_| ())
    }

    /// The same with expected replies that `expect` has changed.
    pub fn differences_with(
        &self,
        live: &Live,
        rows: &[impl AsRef<str>],
        expect: impl Fn(&mut Text),
    ) -> Vec<String> {
        let mut differences = Vec::new();
        for row in rows {
            let row = row.as_ref();
            let asked = self.rows.get(row).unwrap_or_else(|| panic!("no scenario has {row}"));
            for (question, written) in asked.iter().filter(|(q, _)| q.is_for(Transport::Udp)) {
                let mut expected = written.clone();
                expect(&mut expected);
                let came = self.reply(live, question, expected.status == "no reply");
                if came != expected {
                    let text = &question.text;
                    differences
                        .push(format!("{row} {text}\n--- expected\n{expected}--- came\n{came}"));
                }
            }
        }
        differences
    }

    /// Whether all of these rows are answered as written.
    ///
    /// # Panics
    /// When one is not.
    pub fn check(&self, live: &Live, rows: &[impl AsRef<str>]) {
        let differences = self.differences(live, rows);
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }

    /// The replies to the questions of a row; what the row expects is not compared.
    pub fn replies(&self, live: &Live, row: &str) -> Vec<Text> {
        let asked = self.rows.get(row).unwrap_or_else(|| panic!("no scenario has {row}"));
        let over_udp = asked.iter().filter(|(question, _)| question.is_for(Transport::Udp));
        over_udp.map(|(question, _)| self.reply(live, question, false)).collect()
    }

    /// The reply to any other question, and which upstreams were asked for it.
    pub fn ask(&self, live: &Live, question: &str) -> Text {
        self.reply(live, &Question::parse(question).expect("a question"), false)
    }

    fn reply(&self, live: &Live, question: &Question, silence: bool) -> Text {
        let asked = |(_, twin): &(IpAddr, ScriptedUpstream)| twin.asked().len();
        let before: Vec<usize> = self.upstreams.iter().map(asked).collect();
        let reply = client::ask_udp(live.address(), &question.packet, silence).expect("a reply");
        let mut text = client::read(question, reply.as_deref(), Transport::Udp, live.names());
        let reached =
            self.upstreams.iter().zip(before).filter(|(twin, before)| asked(twin) > *before);
        let servers: Vec<String> = reached.map(|((address, _), _)| address.to_string()).collect();
        if !servers.is_empty() {
            text.notes.push(format!("forwarded to {}", servers.join(" ")));
        }
        text
    }
}

fn configuration(objects: &mut [Value]) -> &mut Value {
    let found = objects.iter_mut().find(|object| object["kind"] == "ClusterDNS");
    &mut found.expect("a ClusterDNS")["spec"]
}
