//! `render` and `check` on files: what people read, and the exit status that pipelines read.

use std::path::{Path, PathBuf};

use operator::args::{CheckFlags, Cluster, Render};
use operator::offline::{Format, Severity, check, render};
use tests::scratch::Scratch;

use crate::desired::is_golden;

/// Files of this test, named from the folder of golden files, so that messages are the same everywhere.
fn checked(files: &[&str]) -> (Severity, String) {
    checked_as(Format::Text, files)
}

fn checked_as(output: Format, files: &[&str]) -> (Severity, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/check");
    let file: Vec<PathBuf> = files.iter().map(|name| folder.join(name)).collect();
    let mut out = Vec::new();
    let args = CheckFlags { file, output, cluster: false, which: Cluster::default() };
    let outcome = check(&args, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    (outcome, text.replace(&format!("{}/", folder.display()), ""))
}

#[test]
fn what_is_wrong_has_file_line_and_field() {
    let (outcome, text) = checked(&["wrong.yaml"]);
    assert_eq!(outcome, Severity::Wrong);
    is_golden("check/wrong.txt", &text);
}

#[test]
fn what_is_unwise_is_a_warning_and_no_failure() {
    let (outcome, text) = checked(&["unwise.yaml"]);
    assert_eq!(outcome, Severity::Fine);
    is_golden("check/unwise.txt", &text);
}

#[test]
fn other_kinds_and_templates_are_passed_over() {
    let (outcome, text) = checked(&["others.yaml", "unwise.yaml"]);
    assert_eq!(outcome, Severity::Fine);
    assert!(text.contains("1 ClusterDNS checked in 2 files: 0 errors, "), "{text}");
}

#[test]
fn o1_where_nothing_was_checked_the_run_fails_and_says_so() {
    let (outcome, text) = checked(&["others.yaml"]);
    assert_eq!(outcome, Severity::Wrong);
    assert!(text.starts_with("others.yaml:1: error: NothingChecked: no ClusterDNS"), "{text}");
}

#[test]
fn o1_a_wrong_kind_or_group_no_spec_and_one_service_twice_are_errors() {
    let (outcome, text) = checked(&["meant.yaml"]);
    assert_eq!(outcome, Severity::Wrong);
    is_golden("check/meant.txt", &text);
}

#[test]
fn o1_nothing_is_rendered_of_a_resource_without_spec() {
    let folder = Scratch::new("render").unwrap();
    let file = folder.path().join("dns.yaml");
    let head = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: a}\n";
    std::fs::write(&file, head).unwrap();
    let args = Render {
        file: vec![file],
        dataplane_image: "a:b".to_owned(),
        namespace: "clusterdns-system".to_owned(),
    };
    let (mut out, mut problems) = (Vec::new(), Vec::new());
    assert_eq!(render(&args, &mut out, &mut problems).unwrap(), Severity::Wrong);
    let problems = String::from_utf8(problems).unwrap();
    assert!(problems.contains("error: spec: Missing: ") && out.is_empty(), "{problems}");
}

#[test]
fn o1_one_run_names_all_mistakes_of_all_kinds() {
    let (outcome, text) = checked(&["hidden.yaml"]);
    assert_eq!(outcome, Severity::Wrong);
    is_golden("check/hidden.txt", &text);
}

#[test]
fn o18_what_will_hurt_later_is_a_warning() {
    let (outcome, text) = checked(&["more-unwise.yaml"]);
    assert_eq!(outcome, Severity::Fine);
    assert!(text.contains("10.244.0.0/16 of spec.reverseCIDRs is only in part in these"), "{text}");
    for reason in [
        "ReverseRangeTooWide",
        "ClientsExcludePods",
        "HidesAPIServer",
        "MemoryLimitTooSmall",
        "AliasLoop",
    ] {
        assert!(text.contains(reason), "{reason}: {text}");
    }
    assert_eq!(
        text.matches("AliasLoop").count(),
        2,
        "a.example leads to the loop and is none: {text}"
    );
}

#[test]
fn o18_fields_without_effect_are_a_warning_in_every_file() {
    let folder = Scratch::new("check").unwrap();
    for row in crds::without_effect::FIELDS {
        let file = folder.path().join("dns.yaml");
        let head = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: a}\n";
        std::fs::write(&file, format!("{head}spec: {}\n", row.example)).unwrap();
        let mut out = Vec::new();
        let (output, which) = (Format::Text, Cluster::default());
        let args = CheckFlags { file: vec![file], output, cluster: false, which };
        assert_eq!(check(&args, &mut out).unwrap(), Severity::Fine, "a warning is no failure");
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("WithoutEffect") && text.contains(row.instead), "{text}");
    }
}

#[test]
fn folders_and_patterns_name_the_manifests_below_them() {
    let (outcome, text) = checked(&["*wise.yaml"]);
    assert_eq!(outcome, Severity::Fine);
    assert!(text.contains("2 ClusterDNS checked in 2 files: 0 errors, "), "{text}");
    let (outcome, text) = checked(&["."]);
    assert_eq!(outcome, Severity::Unreadable, "broken.yaml is among them");
    assert!(text.contains("wrong.yaml:18: error"), "{text}");
    assert!(checked(&["nothing-*.yaml"]).1.contains("names no manifest"));
}

#[test]
fn programs_read_the_findings_as_json_and_sarif() {
    let (outcome, text) = checked_as(Format::Json, &["meant.yaml"]);
    assert_eq!(outcome, Severity::Wrong);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["checked"], &json["files"]), (&5.into(), &1.into()));
    let conflict =
        json["findings"].as_array().unwrap().iter().find(|it| it["reason"] == "Conflict");
    assert_eq!(conflict.unwrap()["field"], "spec.service.clusterIPs");
    let (_, text) = checked_as(Format::Sarif, &["meant.yaml"]);
    let sarif: serde_json::Value = serde_json::from_str(&text).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), json["findings"].as_array().unwrap().len());
}

#[test]
fn o1_one_service_in_two_folders_is_a_warning_unless_it_is_one_resource() {
    let folder = Scratch::new("check").unwrap();
    for (cluster, name) in [("a", "first"), ("b", "second"), ("c", "first")] {
        let head = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nspec: {}\n";
        std::fs::create_dir(folder.path().join(cluster)).unwrap();
        let file = folder.path().join(cluster).join("dns.yaml");
        std::fs::write(file, format!("{head}metadata: {{name: {name}}}\n")).unwrap();
    }
    let mut out = Vec::new();
    let (output, which) = (Format::Json, Cluster::default());
    let file = vec![folder.path().to_owned()];
    let args = CheckFlags { file, output, cluster: false, which };
    assert_eq!(check(&args, &mut out).unwrap(), Severity::Fine, "they may be two clusters");
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let all = json["findings"].as_array().unwrap();
    let clashes: Vec<_> = all.iter().filter(|it| it["reason"] == "Conflict").collect();
    let [clash] = &clashes[..] else { panic!("{clashes:?}") };
    assert!(clash["file"].as_str().unwrap().ends_with("b/dns.yaml"), "{clash}");
    assert!(
        clash["message"].as_str().unwrap().contains("Service kube-system/kube-dns too"),
        "{clash}"
    );
}

#[test]
fn o1_a_file_that_cannot_be_read_is_a_finding_for_programs_too() {
    let (outcome, text) = checked_as(Format::Json, &["broken.yaml", "absent.yaml"]);
    assert_eq!(outcome, Severity::Unreadable);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let absent = findings.iter().find(|it| it["reason"] == "Unreadable").expect("a finding");
    assert!(absent["file"].as_str().unwrap().ends_with("absent.yaml"), "{absent}");
    assert_eq!(absent["severity"], "error");
}

#[test]
fn o1_an_alias_loop_through_a_wildcard_is_named_with_its_path() {
    let folder = Scratch::new("check").unwrap();
    let file = folder.path().join("dns.yaml");
    let text = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: a}\nspec:\n  records:\n  \
                - {name: '*.apps.example', type: CNAME, target: www.corp.example}\n  \
                - {name: www.corp.example, type: CNAME, target: x.apps.example}\n  \
                - {name: fine.example, type: CNAME, target: own.apps.example}\n  \
                - {name: own.apps.example, type: A, addresses: [192.0.2.1]}\n";
    std::fs::write(&file, text).unwrap();
    let mut out = Vec::new();
    let (output, which) = (Format::Text, Cluster::default());
    let args = CheckFlags { file: vec![file], output, cluster: false, which };
    assert_eq!(check(&args, &mut out).unwrap(), Severity::Fine);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.matches("AliasLoop").count(), 2, "{text}");
    assert!(
        text.contains("alias loop: *.apps.example -> www.corp.example -> *.apps.example"),
        "{text}"
    );
}

#[test]
fn an_unreadable_file_decides_the_outcome_and_the_others_are_checked() {
    let (outcome, text) = checked(&["wrong.yaml", "broken.yaml", "absent.yaml"]);
    assert_eq!(outcome, Severity::Unreadable);
    assert!(text.contains("broken.yaml:7:"), "{text}");
    assert!(text.contains("absent.yaml: cannot be read"), "{text}");
    assert!(text.contains("wrong.yaml:"), "the others are checked nevertheless: {text}");
}

#[test]
fn no_control_character_of_a_file_reaches_the_terminal() {
    let folder = Scratch::new("check").unwrap();
    let file = folder.path().join("dns.yaml");
    let text = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: a}\nspec: {\"x\\e[31m\\ny\": 1}\n";
    std::fs::write(&file, text).unwrap();
    let mut out = Vec::new();
    let (output, which) = (Format::Text, Cluster::default());
    let args = CheckFlags { file: vec![file], output, cluster: false, which };
    assert_eq!(check(&args, &mut out).unwrap(), Severity::Wrong);
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("UnknownField") && !text.contains('\u{1b}'), "{text:?}");
    assert!(!text.contains("\ny"), "{text:?}");
}

#[test]
fn every_example_is_without_an_error() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crds/examples");
    let file: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    let args = CheckFlags { file, output: Format::Text, cluster: false, which: Cluster::default() };
    let mut out = Vec::new();
    assert_eq!(
        check(&args, &mut out).unwrap(),
        Severity::Fine,
        "{}",
        String::from_utf8_lossy(&out)
    );
}

#[test]
fn render_names_the_obstacles() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/check");
    let rendered = |name: &str| {
        let args = Render {
            file: vec![folder.join(name)],
            dataplane_image: "a:b".to_owned(),
            namespace: "clusterdns-system".to_owned(),
        };
        let (mut out, mut problems) = (Vec::new(), Vec::new());
        let outcome = render(&args, &mut out, &mut problems).unwrap();
        (outcome, String::from_utf8(out).unwrap(), String::from_utf8(problems).unwrap())
    };
    let (outcome, objects, problems) = rendered("unwise.yaml");
    assert_eq!((outcome, problems.as_str()), (Severity::Fine, ""));
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&objects).unwrap();
    assert!(documents.iter().all(|object| object["metadata"]["name"].is_string()), "{objects}");
    let (outcome, _, problems) = rendered("wrong.yaml");
    assert_eq!(outcome, Severity::Wrong);
    let expected = std::fs::read_to_string(folder.join("wrong.txt")).unwrap();
    let expected: Vec<&str> = expected.lines().filter(|line| line.contains(": error: ")).collect();
    let problems = problems.replace(&format!("{}/", folder.display()), "");
    assert_eq!(problems.lines().collect::<Vec<_>>(), expected, "what `check` calls an error");
    let (outcome, objects, problems) = rendered("others.yaml");
    assert_eq!((outcome, objects.as_str()), (Severity::Unreadable, ""));
    assert!(problems.contains("no ClusterDNS in these files"), "{problems}");
}

#[test]
fn o18_what_is_no_danger_is_no_warning_and_one_server_twice_is() {
    let folder = Scratch::new("check").unwrap();
    let head = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: a}\n";
    let said = |spec: &str| {
        let file = folder.path().join("dns.yaml");
        std::fs::write(&file, format!("{head}spec: {spec}\n")).unwrap();
        let mut out = Vec::new();
        let (output, which) = (Format::Text, Cluster::default());
        let args = CheckFlags { file: vec![file], output, cluster: false, which };
        check(&args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert!(said("{}").contains("NoReverseCIDRs"));
    let text = said("{upstreams: {none: true}}");
    assert!(!text.contains("NoReverseCIDRs"), "nothing leaves the cluster: {text}");
    let text = said("{upstreams: {servers: [{address: 10.0.0.1}, {address: 10.0.0.1, port: 53}]}}");
    assert!(text.contains("spec.upstreams.servers[1]: ServerTwice"), "{text}");
    let text = said("{upstreams: {servers: [{address: 10.0.0.1}, {address: 10.0.0.1, port: 54}]}}");
    assert!(!text.contains("ServerTwice"), "{text}");
    let tls = "transport: TLS, tls: {serverName: dns.example}";
    for (server, expected) in [
        ("port: 853".to_owned(), true),
        ("port: 853, transport: TCP".to_owned(), true),
        (format!("port: 53, {tls}"), true),
        ("port: 5353".to_owned(), false),
        (format!("port: 853, {tls}"), false),
        (format!("port: 443, {tls}"), false),
        (tls.to_owned(), false),
    ] {
        let server = format!("{{address: 10.0.0.2, {server}}}");
        let text = said(&format!("{{upstreams: {{servers: [{{address: 10.0.0.1}}, {server}]}}}}"));
        let warned = text.contains("spec.upstreams.servers[1].port: PortOfOtherTransport");
        assert_eq!(warned, expected, "{text}");
        let stub = format!("{{stubDomains: [{{domain: corp.example, servers: [{server}]}}]}}");
        let text = said(&stub);
        let warned = text.contains("spec.stubDomains[0].servers[0].port: PortOfOtherTransport");
        assert_eq!(warned, expected, "{text}");
    }
}

#[test]
fn o1_a_field_that_cannot_be_read_makes_no_error_of_those_that_it_decides() {
    let (_, text) = checked(&["undecided.yaml"]);
    is_golden("check/undecided.txt", &text);
}

#[test]
fn o1_templates_of_helm_are_named_and_fail_no_check_of_a_repository() {
    let folder = Scratch::new("check").unwrap();
    let chart = folder.path().join("chart");
    std::fs::create_dir_all(chart.join("templates/more")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let head = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: a}\n";
    let template = format!(
        "{{{{- if .Values.dns }}}}\n{head}spec: {{{{ toYaml .Values.dns }}}}\n{{{{- end }}}}\n"
    );
    write("chart/templates/more/dns.yaml", &template);
    write("chart/templates/labels.yaml", "{{- $x := 1 }}\nclusterdns.dev/instance: {{ $x }}\n");
    write("dns.yaml", &format!("{head}spec: {{}}\n"));
    let run = || {
        let mut out = Vec::new();
        let (output, which) = (Format::Text, Cluster::default());
        let file = vec![folder.path().to_owned()];
        let args = CheckFlags { file, output, cluster: false, which };
        (check(&args, &mut out).unwrap(), String::from_utf8(out).unwrap())
    };
    assert_eq!(run().0, Severity::Unreadable, "without a Chart.yaml it is no template");
    write("chart/Chart.yaml", "apiVersion: v2\nname: chart\nversion: 0.1.0\n");
    let (outcome, text) = run();
    assert_eq!(outcome, Severity::Fine, "{text}");
    assert_eq!(text.matches("TemplateNotChecked").count(), 1, "{text}");
    assert!(text.contains("1 ClusterDNS checked in 4 files: 0 errors"), "{text}");

    let args = Render {
        file: vec![folder.path().to_owned()],
        dataplane_image: "a:b".to_owned(),
        namespace: "clusterdns-system".to_owned(),
    };
    let (mut out, mut problems) = (Vec::new(), Vec::new());
    assert_eq!(render(&args, &mut out, &mut problems).unwrap(), Severity::Fine, "a folder");
    let problems = String::from_utf8(problems).unwrap();
    assert!(problems.contains("a template of Helm is passed over"), "{problems}");
    assert!(String::from_utf8(out).unwrap().contains("kind: Deployment"));
}
