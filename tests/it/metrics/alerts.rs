//! Alerts: each has its page, names metrics that are shown, and is seen firing and resolving by promtool.

use std::collections::BTreeMap;
use std::fmt::Write;

use operator::desired::Kind;
use operator::runtime::lease;
use operator::settings::Settings;
use serde::Deserialize;
use serde_json::Value;
use tests::scratch::Scratch;

use super::expressions::{is_shown, metrics_of};
use super::promtool::promtool;
use crate::architecture::{read, root};
use crate::desired::{desired, desired_by, dns, observed};

/// The rules of the data plane, and those of the operator in the chart.
fn groups() -> [Value; 2] {
    let desired = desired(&dns("{}"), &observed(), |_| ());
    let rule = desired.get(Kind::PrometheusRule).expect("a rule");
    let of_data_plane = rule.data["spec"]["groups"][0].clone();
    let chart = read("tests/golden/chart/everything.yaml");
    let documents = chart.split("\n---").filter(|text| text.contains("kind: PrometheusRule"));
    let document: Value = serde_saphyr::from_str(documents.last().expect("a rule")).expect("YAML");
    [of_data_plane, document["spec"]["groups"][0].clone()]
}

pub(super) fn rules() -> Vec<Value> {
    let rules = groups().into_iter().flat_map(|group| group["rules"].as_array().cloned());
    rules.flatten().collect()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} of {value}"))
}

#[test]
fn each_alert_has_its_page_and_each_page_its_alert() {
    let rules = rules();
    for rule in &rules {
        let name = text(rule, "alert");
        let path = text(&rule["annotations"], "runbook");
        assert_eq!(path, format!("docs/runbooks/{name}.md"));
        let link = text(&rule["annotations"], "runbook_url");
        assert_eq!(link, format!("https://docs.example.com/runbooks/{name}.md"));
        let page = read(path);
        for heading in ["## What it means", "## What to look at", "## What to do"] {
            assert!(page.contains(heading), "{path} has no part {heading}");
        }
        assert!(
            read("docs/runbooks/README.md").contains(&format!("[{name}]({name}.md)")),
            "{name}"
        );
    }
    let pages = std::fs::read_dir(root().join("docs/runbooks")).unwrap();
    for page in pages.map(|page| page.unwrap().file_name().into_string().unwrap()) {
        let name = page.trim_end_matches(".md");
        let has_alert = rules.iter().any(|rule| text(rule, "alert") == name);
        assert!(name == "README" || has_alert, "no alert is called {name}");
    }
}

/// Without a place where the pages are published there is no link: a path would look like one and lead nowhere.
#[test]
fn a_link_to_a_runbook_is_a_url_or_is_not_there() {
    let settings = Settings::default();
    assert_eq!(settings.runbooks, None);
    let desired = desired_by(&settings, &dns("{}"), &observed(), |_| ());
    let rule = desired.get(Kind::PrometheusRule).expect("a rule");
    for rule in rule.data["spec"]["groups"][0]["rules"].as_array().expect("rules") {
        assert!(rule["annotations"]["runbook_url"].is_null(), "{rule}");
        assert!(text(&rule["annotations"], "runbook").starts_with("docs/runbooks/"), "{rule}");
    }
}

#[test]
fn alerts_and_runbooks_name_metrics_that_are_shown() {
    for rule in rules() {
        let name = text(&rule, "alert");
        let runbook = read(text(&rule["annotations"], "runbook"));
        let metrics = [metrics_of(text(&rule, "expr")), metrics_of(&runbook)];
        for metric in metrics.iter().flatten() {
            assert!(is_shown(metric), "{name}: nothing shows {metric}");
        }
    }
}

/// A person who has the alert asks Prometheus for each part of it.
#[test]
fn a_runbook_names_each_metric_of_an_alert_that_has_several() {
    for rule in rules() {
        let runbook = read(text(&rule["annotations"], "runbook"));
        let metrics = metrics_of(text(&rule, "expr"));
        for metric in metrics.iter().filter(|_| metrics.len() > 1) {
            assert!(runbook.contains(metric), "{}: {metric}", text(&rule, "alert"));
        }
    }
}

/// Which columns `kubectl get lease` has is no answer to when its holder renewed it.
#[test]
fn the_runbook_of_the_operator_says_how_old_the_lease_of_a_leader_is_at_most() {
    let page = read("docs/runbooks/ClusterDNSOperatorDown.md");
    for words in [
        format!("get lease {} -o", lease::NAME),
        ".spec.renewTime".to_owned(),
        format!("every {} s", lease::RETRY.as_secs()),
        format!("more than {} s ago", lease::DURATION.as_secs()),
    ] {
        assert!(page.contains(&words), "{words}");
    }
}

/// The image has no shell, a kubelet keeps only the status code of a probe, and a port-forward of a Deployment chooses a pod
/// by itself: a page that names `/readyz` of a pod is no help to a person who cannot open it.
#[test]
fn a_runbook_that_names_a_page_of_a_pod_links_how_to_open_it() {
    let recipe = "(README.md#pages-of-a-pod)";
    let pages = ["/readyz", "/config", "/upstreams", "/explain", "/top", "/look"];
    let mut linked = 0;
    for rule in rules() {
        let path = text(&rule["annotations"], "runbook");
        let page = read(path);
        let names_one = pages.iter().any(|name| page.contains(&format!("`{name}")));
        assert!(!names_one || page.contains(recipe), "{path} does not link {recipe}");
        linked += usize::from(names_one);
    }
    assert!(linked > 9, "{linked}");
    let readme = read("docs/runbooks/README.md");
    let (_, part) = readme.split_once("\n## Pages of a pod\n").expect("the part");
    for command in ["port-forward pod/POD 9153", "curl -s 127.0.0.1:9153/readyz"] {
        assert!(part.contains(command), "{command}");
    }
}

/// The image has no `dig`, which would not take the address and port of the label `upstream` either.
#[test]
fn the_runbook_of_an_upstream_asks_it_by_a_command_that_works_as_printed() {
    let page = read("docs/runbooks/ClusterDNSUpstreamDown.md");
    for words in ["kubectl run ask", r#""nodeName": "NODE""#, "nslookup example.com 'ADDRESS:PORT'"]
    {
        assert!(page.contains(words), "{words}");
    }
    for rule in rules() {
        let path = text(&rule["annotations"], "runbook");
        assert!(!read(path).contains("dig @UPSTREAM"), "{path}");
    }
}

#[test]
fn only_the_runbook_of_an_alert_with_a_pod_speaks_of_the_pod_that_it_names() {
    for rule in rules() {
        let path = text(&rule["annotations"], "runbook");
        let names_one = read(path).contains("the alert names");
        assert!(!names_one || text(&rule, "expr").contains("by (pod"), "{path}");
    }
    assert!(!read("docs/runbooks/README.md").contains("the pod that the alert names"));
}

/// Where kube-proxy does not work, all pods are ready and no alert fires.
#[test]
fn the_runbooks_say_what_no_alert_sees_and_how_to_look_for_it() {
    let readme = read("docs/runbooks/README.md");
    let (_, part) = readme.split_once("\n## What no alert sees\n").expect("the part");
    let part = part.split("\n## ").next().unwrap_or_default();
    let page = read("docs/runbooks/ClusterDNSNotReady.md");
    let heading = "\n## If pods are ready and clients get no answer\n";
    assert!(part.contains("#if-pods-are-ready-and-clients-get-no-answer"));
    let (_, commands) = page.split_once(heading).expect("the part");
    for what in ["kube-proxy", "table of connections", "NetworkPolicy"] {
        assert!(part.contains(what), "{what}");
        let line = commands.lines().find(|line| line.starts_with("- ") && line.contains(what));
        assert!(line.is_some_and(|line| line.contains("`kubectl ")), "{what} has no command");
    }
}

/// An alert that fires at all pods at once, as where the API server is away, is one alert.
#[test]
fn what_happens_to_all_pods_at_once_is_one_alert() {
    for name in ["ClusterDNSStale", "ClusterDNSFormerCluster", "ClusterDNSConfigurationRejected"] {
        let rules = rules();
        let rule = rules.iter().find(|rule| text(rule, "alert") == name).expect(name);
        assert!(text(rule, "expr").starts_with("count"), "{name}");
        assert!(text(&rule["annotations"], "description").contains("{{ $value }}"), "{name}");
    }
}

/// The durations of a text such as "for 5 minutes" and "for an hour", in seconds.
fn durations(text: &str) -> Vec<u64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let of = |three: &[&str]| -> Option<u64> {
        let [word, count, unit] = three else { return None };
        let count = match *count {
            "a" | "an" | "one" => 1,
            "two" => 2,
            digits => digits.parse().ok()?,
        };
        let unit = match unit.trim_matches(|c: char| !c.is_alphabetic()) {
            "minute" | "minutes" => 60,
            "hour" | "hours" => 3_600,
            _ => return None,
        };
        word.eq_ignore_ascii_case("for").then_some(count * unit)
    };
    words.windows(3).filter_map(of).collect()
}

/// A page that names another time than its rule lets people look for what happened at the wrong time.
#[test]
fn alerts_and_runbooks_say_how_long_an_alert_waits() {
    let readme = read("docs/runbooks/README.md");
    let mut compared = 0;
    for rule in rules() {
        let name = text(&rule, "alert");
        let (count, unit) = text(&rule, "for").split_at(text(&rule, "for").len() - 1);
        let mut waits: u64 = count.parse::<u64>().unwrap() * if unit == "h" { 3_600 } else { 60 };
        // The same series at five minutes in a row: the first and the fifth are four minutes apart.
        waits += if text(&rule, "expr").contains("[5m:1m])) >= 5") { 4 * 60 } else { 0 };
        let page = read(text(&rule["annotations"], "runbook"));
        let meaning = page.split("## ").find(|part| part.starts_with("What it means")).unwrap();
        let row = readme.lines().find(|line| line.starts_with(&format!("| [{name}]"))).unwrap();
        let annotations = ["summary", "description"].map(|key| text(&rule["annotations"], key));
        for said in [meaning, row].into_iter().chain(annotations).flat_map(durations) {
            let condition = text(&rule, "expr").trim_end_matches(')');
            let is_threshold = condition.ends_with(&format!("> {said}"));
            assert!(said == waits || is_threshold, "{name} waits for {waits} s, not {said} s");
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
}

/// How one alert is seen to fire and to resolve.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    alert: String,
    /// Of the rules with this name, those of one severity.
    severity: Option<String>,
    /// Series by name and labels, with promtool's values at intervals of a minute; `JOB` is the data plane's job.
    series: BTreeMap<String, String>,
    /// The labels of the alert besides those of its rule.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// What `$value` is when it has fired, where its texts show it.
    #[serde(default)]
    value: String,
    /// When it has fired, and when it has resolved; an alert that waits for nothing ends as soon as its cause.
    fires: Option<String>,
    resolved: Option<String>,
    /// For this many minutes it fires at none of them.
    quiet: Option<u32>,
}

impl Case {
    fn is_of(&self, rule: &Value) -> bool {
        let severity = text(&rule["labels"], "severity");
        let is_same = self.severity.as_deref().is_none_or(|wanted| wanted == severity);
        is_same && text(rule, "alert") == self.alert
    }

    /// A text with the labels and the value of the alert in it.
    fn filled(&self, template: &str) -> String {
        let text = template.replace("{{ $value }}", &self.value);
        self.labels.iter().fold(text, |text, (key, value)| {
            text.replace(&format!("{{{{ $labels.{key} }}}}"), value)
        })
    }

    /// The alert of this rule, as promtool wants it.
    fn expected(&self, rule: &Value) -> Value {
        let mut all = rule["labels"].as_object().expect("labels").clone();
        all.extend(self.labels.iter().map(|(key, value)| (key.clone(), value.clone().into())));
        let annotations = rule["annotations"].as_object().expect("annotations").iter();
        let annotations: serde_json::Map<String, Value> = annotations
            .map(|(key, text)| (key.clone(), self.filled(text.as_str().unwrap()).into()))
            .collect();
        serde_json::json!({"exp_labels": all, "exp_annotations": annotations})
    }

    /// One look at this alert: at this time it is as expected.
    fn look(&self, at: &str, expected: &Value) -> String {
        format!("  - {{eval_time: {at}, alertname: {}, exp_alerts: {expected}}}\n", self.alert)
    }
}

#[test]
fn each_alert_fires_and_resolves() {
    let rules = rules();
    let expression = text(&rules[0], "expr");
    let job = expression.split("job=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("alerts.yaml")).expect("cases");
    for rule in &rules {
        let has_case = cases
            .iter()
            .any(|case| case.fires.is_some() && case.resolved.is_some() && case.is_of(rule));
        assert!(has_case, "alerts.yaml does not show {} firing", text(rule, "alert"));
    }
    let mut test = String::from("rule_files: [rules.yaml]\nevaluation_interval: 1m\ntests:\n");
    for case in &cases {
        // Writing to a String cannot fail.
        let _ = writeln!(test, "- interval: 1m\n  name: {}\n  input_series:", case.alert);
        for (series, values) in &case.series {
            let series = series.replace("JOB", &format!("job=\"{job}\""));
            let _ = writeln!(test, "  - {{series: '{series}', values: '{values}'}}");
        }
        let of_alert: Vec<&Value> = rules.iter().filter(|rule| case.is_of(rule)).collect();
        assert!(!of_alert.is_empty(), "no alert is called {}", case.alert);
        let expected: Value = of_alert.iter().map(|rule| case.expected(rule)).collect();
        test.push_str("  alert_rule_test:\n");
        if let Some(at) = &case.fires {
            test.push_str(&case.look(at, &expected));
        }
        let minutes = case.quiet.into_iter().flat_map(|minutes| 0..minutes);
        for at in minutes.map(|at| format!("{at}m")).chain(case.resolved.clone()) {
            test.push_str(&case.look(&at, &serde_json::json!([])));
        }
    }
    let folder = Scratch::new("alerts").unwrap();
    let groups = serde_json::json!({"groups": groups()});
    folder.write("rules.yaml", groups.to_string()).unwrap();
    folder.write("test.yaml", test).unwrap();
    for arguments in [&["check", "rules", "rules.yaml"][..], &["test", "rules", "test.yaml"]] {
        let Some(result) = promtool(folder.path(), arguments, "") else { return };
        result.unwrap_or_else(|complaint| panic!("{complaint}"));
    }
}
