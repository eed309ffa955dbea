//! One run of the DNS tests of `e2e.test`, and what came of each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use tests::control_plane::path_of;
use tests::node::{AGNHOST, GLIBC};
use tests::process::Process;
use tests::scratch::Scratch;

use crate::site::Site;

/// All tests of this group of Kubernetes.
const GROUP: &str = r"\[sig-network\] DNS";
/// Names fewer of them.
const FOCUS: &str = "CLUSTERDNS_TEST_FOCUS";
const PROGRAM: &str = "e2e.test";
/// Between two looks at whether it has ended.
const POLL: Duration = Duration::from_secs(1);
/// Lines of a failure that are printed.
const SHOWN: usize = 5;

/// What came of the test of each name.
pub(super) type Outcomes = BTreeMap<String, Outcome>;

/// What came of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// It decided by itself that it cannot run here, and why.
    Skipped(String),
    Failed(String),
}

/// The suite, for one cluster.
pub(super) struct Suite {
    folder: Scratch,
    kubeconfig: PathBuf,
    focus: Option<String>,
}

impl Suite {
    pub(super) fn new(site: &Site) -> Suite {
        let folder = Scratch::new("conformance").expect("a scratch directory");
        let focus = std::env::var(FOCUS).ok().filter(|focus| !focus.is_empty());
        Suite { folder, kubeconfig: site.kubeconfig.clone(), focus }
    }

    /// Whether all tests run.
    pub(super) fn is_whole(&self) -> bool {
        self.focus.is_none()
    }

    /// # Panics
    /// Other images are wanted than those that are made here: another Kubernetes was pinned.
    pub(super) fn wants_our_images(&self) {
        let output = Command::new(path_of(PROGRAM)).arg("--list-images").output();
        let listed = output.expect("it runs").stdout;
        let listed = String::from_utf8_lossy(&listed);
        for image in [AGNHOST, GLIBC] {
            let is_wanted = listed.lines().any(|line| line.trim() == image);
            assert!(is_wanted, "the tests want no {image}:\n{listed}");
        }
    }

    /// Runs them, and does something about once a second meanwhile.
    ///
    /// # Panics
    /// No report is written.
    pub(super) async fn run(&self, name: &str, mut meanwhile: impl FnMut()) -> Outcomes {
        let folder = self.folder.path();
        let report = folder.join(format!("{name}.json"));
        let arguments = [
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--kubectl-path={}", path_of("kubectl").display()),
            format!("--e2e-output-dir={}", folder.display()),
            "--provider=skeleton".to_owned(),
            format!("--ginkgo.focus={}", self.focus.as_deref().unwrap_or(GROUP)),
            "--ginkgo.no-color".to_owned(),
            "--ginkgo.timeout=3h".to_owned(),
            format!("--ginkgo.json-report={}", report.display()),
        ];
        let home = folder.display().to_string();
        let program = path_of(PROGRAM);
        let process = Process::start_with(&program, &arguments, &[("HOME", home.as_str())], folder);
        let mut process = process.expect("it starts");
        while process.exited().is_none() {
            tokio::time::sleep(POLL).await;
            meanwhile();
        }
        let text = std::fs::read_to_string(&report);
        let text = text.unwrap_or_else(|_| panic!("no report: {}", process.log_tail()));
        let outcomes = read(&text);
        assert!(!outcomes.is_empty(), "no test ran: {}", process.log_tail());
        outcomes
    }
}

/// Prints how many passed, and what failed.
pub(super) fn report(site: &Site, server: &str, outcomes: &Outcomes) {
    site.say(&format!("{server}: {}", summary(outcomes)));
    for (name, outcome) in outcomes {
        if let Outcome::Failed(why) = outcome {
            let why: Vec<&str> = why.lines().take(SHOWN).collect();
            site.say(&format!("{server}: {name} failed: {}", why.join(" ")));
        }
    }
}

fn summary(outcomes: &Outcomes) -> String {
    let count = |wanted: fn(&Outcome) -> bool| outcomes.values().filter(|it| wanted(it)).count();
    let passed = count(|it| matches!(it, Outcome::Passed));
    let skipped = count(|it| matches!(it, Outcome::Skipped(_)));
    format!("{passed} passed, {skipped} skipped, {} failed", outcomes.len() - passed - skipped)
}

/// A report of Ginkgo.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    spec_reports: Vec<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    #[serde(default)]
    leaf_node_text: String,
    leaf_node_type: String,
    state: String,
    #[serde(default)]
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

fn read(text: &str) -> Outcomes {
    let reports: Vec<Report> = serde_json::from_str(text).expect("a report of Ginkgo");
    let specs = reports.into_iter().flat_map(|report| report.spec_reports);
    specs.filter_map(outcome).collect()
}

/// None: it was not wanted. A failure before or after all tests counts as one of a test.
fn outcome(spec: Spec) -> Option<(String, Outcome)> {
    let Spec { container_hierarchy_texts, leaf_node_text, leaf_node_type, state, failure } = spec;
    let message = failure.map(|failure| failure.message).unwrap_or_default();
    let outcome = match state.as_str() {
        "passed" => Outcome::Passed,
        "skipped" if message.is_empty() => return None,
        "skipped" => Outcome::Skipped(message),
        _ => Outcome::Failed(format!("{state}: {message}")),
    };
    if leaf_node_type != "It" {
        return matches!(outcome, Outcome::Failed(_)).then_some((leaf_node_type, outcome));
    }
    let mut words = container_hierarchy_texts.unwrap_or_default();
    words.push(leaf_node_text);
    Some((words.join(" "), outcome))
}

/// As Ginkgo writes it.
const REPORT: &str = r#"[{"SpecReports": [
{"ContainerHierarchyTexts": null, "LeafNodeType": "BeforeSuite", "LeafNodeText": "", "State": "passed"},
{"ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "good", "State": "passed"},
{"ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "bad", "State": "failed", "Failure": {"Message": "no answer"}},
{"ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "late", "State": "timedout"},
{"ContainerHierarchyTexts": ["[sig-network] DNS"], "LeafNodeType": "It", "LeafNodeText": "cloud", "State": "skipped", "Failure": {"Message": "no cloud"}},
{"ContainerHierarchyTexts": ["[sig-apps] Job"], "LeafNodeType": "It", "LeafNodeText": "not wanted", "State": "skipped"},
{"ContainerHierarchyTexts": null, "LeafNodeType": "AfterSuite", "LeafNodeText": "", "State": "panicked", "Failure": {"Message": "nil"}}
]}]"#;

#[test]
fn a_report_shows_what_failed_and_what_did_not_run() {
    let of = |name: &str, outcome: Outcome| (name.to_owned(), outcome);
    let failed = |why: &str| Outcome::Failed(why.to_owned());
    let wanted = [
        of("[sig-network] DNS good", Outcome::Passed),
        of("[sig-network] DNS bad", failed("failed: no answer")),
        of("[sig-network] DNS late", failed("timedout: ")),
        of("[sig-network] DNS cloud", Outcome::Skipped("no cloud".to_owned())),
        of("AfterSuite", failed("panicked: nil")),
    ];
    assert_eq!(read(REPORT), Outcomes::from(wanted));
}
