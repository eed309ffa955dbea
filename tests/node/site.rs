//! The cluster of these tests: a real control plane, real nodes, helm and kubectl.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::control_plane::{ControlPlane, not_run};
use tests::helm::Tools;
use tests::netns::MEASURED;
use tests::node::{
    Images, Node, Place, Release, lacking, lacking_with_suite, make_switch, route_api_server, setup,
};

/// Time for what a cluster does by itself, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(200);

/// Zones of several nodes: two share one.
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-a"];
/// As in a large cluster, where kube-proxy follows seconds later.
const PAUSE_OF_LARGE: &str = "3s";
/// The default of kube-proxy.
const PAUSE: &str = "1s";

/// All of it; gone when dropped.
pub(crate) struct Site {
    pub(crate) nodes: Vec<Node>,
    pub(crate) tools: Tools,
    pub(crate) kubeconfig: PathBuf,
    /// Packaged, as people get it.
    pub(crate) chart: PathBuf,
    pub(crate) plane: ControlPlane,
    images: Images,
    began: Instant,
}

impl Site {
    /// With one node, in the network of the test.
    pub(crate) async fn start() -> Option<Site> {
        let mut site = Site::without_nodes(lacking(), Images::new).await?;
        let node = Node::start(&site.plane, Place::alone(), &site.images, PAUSE_OF_LARGE).await;
        site.say("the node is ready");
        site.nodes.push(node);
        Some(site)
    }

    /// With three nodes in networks of their own, of both families.
    pub(crate) async fn start_several() -> Option<Site> {
        Site::without_nodes(lacking(), Images::new).await?.with_three_nodes().await
    }

    /// The same, with the images of Kubernetes' own DNS tests.
    pub(crate) async fn start_with_suite() -> Option<Site> {
        let site = Site::without_nodes(lacking_with_suite(), Images::with_suite).await?;
        site.with_three_nodes().await
    }

    async fn with_three_nodes(self) -> Option<Site> {
        let mut site = self;
        make_switch().expect("a bridge");
        for zone in ZONES {
            site.add_node(zone).await;
        }
        Some(site)
    }

    /// One more of several.
    pub(crate) async fn add_node(&mut self, zone: &'static str) {
        let number = u8::try_from(self.nodes.len() + 1).expect("few");
        let place = Place::among_others(number, zone).expect("its network");
        let node = Node::start(&self.plane, place, &self.images, PAUSE).await;
        self.say(&format!("{} is ready, in {zone}", node.name()));
        self.nodes.push(node);
    }

    /// None if this machine lacks something; that is printed.
    async fn without_nodes(
        lacking: Vec<String>,
        images: impl Fn() -> anyhow::Result<Images>,
    ) -> Option<Site> {
        if !lacking.is_empty() {
            not_run(&lacking.join(", "));
            return None;
        }
        let began = Instant::now();
        let plane = ControlPlane::start(setup()).await?;
        let tools = Tools::new(plane.kubeconfig())?;
        let kubeconfig = plane.kubeconfig().to_owned();
        route_api_server(&plane).await.expect("a route to the API server");
        let images = images().expect("the images can be made");
        let chart = match Release::given() {
            Some(release) => release.chart().expect("a whole release"),
            None => package(&tools, &Tools::chart(), "chart"),
        };
        let site = Site { nodes: Vec::new(), tools, kubeconfig, chart, plane, images, began };
        site.say("the control plane is ready");
        Some(site)
    }

    /// Whether its nodes have both families of addresses, as several have.
    pub(crate) fn is_dual_stack(&self) -> bool {
        self.nodes.iter().any(|node| node.place().is_dual_stack())
    }

    /// The node that a pod runs on.
    pub(crate) fn node_of(&self, pod: &Value) -> &Node {
        let name = text(pod, "/spec/nodeName");
        let node = self.nodes.iter().find(|node| node.name() == name);
        node.unwrap_or_else(|| panic!("no node {name:?} has\n{pod:#}"))
    }

    /// The network namespace of a pod.
    pub(crate) fn network_of(&self, pod: &Value) -> PathBuf {
        self.node_of(pod).network_of(text(pod, "/status/podIP").parse().expect("an address"))
    }

    /// Prints a table of what was measured.
    pub(crate) fn print(&self, table: &str) {
        for line in table.lines() {
            let _ = writeln!(std::io::stdout(), "{MEASURED} {line}");
        }
    }

    /// Prints what was measured: nothing depends on it.
    pub(crate) fn say(&self, what: &str) {
        let at = self.began.elapsed().as_secs_f32();
        let _ = writeln!(std::io::stdout(), "{MEASURED} {at:6.1} s: {what}");
    }

    pub(crate) fn kubectl(&self, words: &str) -> String {
        self.tools.kubectl(&words.split_whitespace().collect::<Vec<_>>()).ok()
    }

    /// Whether it works; nothing is printed if it does not.
    pub(crate) fn does(&self, words: &str) -> Option<String> {
        let ran = self.tools.kubectl(&words.split_whitespace().collect::<Vec<_>>());
        ran.success.then_some(ran.stdout)
    }

    /// An object as it is now.
    pub(crate) fn get(&self, words: &str) -> Value {
        let text = self.kubectl(&format!("get --output=json {words}"));
        serde_json::from_str(&text).expect("JSON")
    }

    /// All pods, also those that are being deleted.
    pub(crate) fn all_pods(&self, namespace: &str) -> Vec<Value> {
        let list = self.get(&format!("pods --namespace {namespace}"));
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Pods with a label that are not being deleted.
    pub(crate) fn pods(&self, namespace: &str, label: &str) -> Vec<Value> {
        let list = self.get(&format!("pods --namespace {namespace} --selector {label}"));
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        pods.into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect()
    }

    /// Waits for this many of them, all ready.
    pub(crate) async fn until_ready(
        &self,
        namespace: &str,
        label: &str,
        count: usize,
    ) -> Vec<Value> {
        let what = format!("{count} ready pods {label} in {namespace}");
        self.until(&what, || {
            let pods = self.pods(namespace, label);
            (pods.len() == count && pods.iter().all(is_ready)).then_some(pods)
        })
        .await
    }

    /// Waits until none is left, also none that still ends.
    pub(crate) async fn until_none(&self, namespace: &str, label: &str) {
        self.until(&format!("the end of the pods {label} in {namespace}"), || {
            let list = self.get(&format!("pods --namespace {namespace} --selector {label}"));
            list["items"].as_array().is_none_or(Vec::is_empty).then_some(())
        })
        .await;
    }

    /// Waits until the present spec of the ClusterDNS `default` has this condition.
    pub(crate) async fn until_condition(&self, kind: &str, status: &str, reason: &str) {
        self.until(&format!("{kind}={status}, {reason}"), || {
            let dns = self.get("clusterdns default");
            let is_of_now = dns["status"]["observedGeneration"] == dns["metadata"]["generation"];
            let mut conditions = dns["status"]["conditions"].as_array().into_iter().flatten();
            let found = conditions
                .any(|it| it["type"] == kind && it["status"] == status && it["reason"] == reason);
            (is_of_now && found).then_some(())
        })
        .await;
    }

    /// # Panics
    /// With all that is known, when it does not happen.
    pub(crate) async fn until<T>(&self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = ask() {
                return found;
            }
            assert!(Instant::now() < deadline, "{what}: not in time\n{}", self.story());
            tokio::time::sleep(POLL).await;
        }
    }

    pub(crate) fn story(&self) -> String {
        let all = "get pods,deployments,services,events --all-namespaces --output=wide";
        let all = self.tools.kubectl(&all.split(' ').collect::<Vec<_>>());
        let dns = self.does("get clusterdns --output=yaml").unwrap_or_default();
        let logs = "logs --namespace clusterdns-system --selector app.kubernetes.io/name=clusterdns-operator --tail=30";
        let logs = self.does(logs).unwrap_or_default();
        let nodes: String = self.nodes.iter().map(Node::logs).collect();
        format!("{}\n{}\n{dns}\n{logs}\n{nodes}", all.stdout, all.stderr)
    }
}

/// Packs a chart into a folder of the tools with this name.
pub(crate) fn package(tools: &Tools, chart: &Path, name: &str) -> PathBuf {
    let folder = tools.folder().join(name);
    let words = ["package", &chart.display().to_string(), "--destination"].map(str::to_owned);
    tools.helm(&[&words[..], &[folder.display().to_string()]].concat()).ok();
    let mut packed = std::fs::read_dir(&folder).expect("helm makes it");
    packed.next().expect("one chart").expect("readable").path()
}

/// What kubelet says of a pod.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// A text in an object, empty where there is none.
pub(crate) fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
